//! `guard --serve`: turns flags into the page's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::CommandFailure;
use super::flags::listen_address;
use super::inspection::InspectionFlags;
use super::metrics::read_web_config;
use super::rule_paths::{RulePurpose, RulesFlag};
use crate::attachments;
use crate::database::DatabaseLocation;
use crate::guard::EventReader;
use crate::serve::{RuleCatalog, ServeConfig};

/// Flags of the page that shows the guard's inventory.
#[derive(Debug, Args)]
pub(super) struct PageFlags {
    /// Serve the inventory to browsers, as `bannerwall serve` does, with live alerts. Any address but
    /// loopback needs a login and TLS.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:8642",
          value_parser = listen_address, requires = "inventory", help_heading = "Page")]
    serve: Option<SocketAddr>,
    /// Require the token in FILE (as a password, or `Authorization: Bearer`).
    #[arg(long, value_name = "FILE", requires = "serve", help_heading = "Page")]
    serve_token_file: Option<PathBuf>,
    /// TLS and users, from a web configuration file of Prometheus' exporters (`tls_server_config`,
    /// `basic_auth_users`). The file is read at the start.
    #[arg(long, value_name = "FILE", requires = "serve", help_heading = "Page")]
    serve_web_config: Option<PathBuf>,
}

impl PageFlags {
    /// Returns the event readers of a guard: its inventory, and the page. `about` names the guard's input.
    ///
    /// # Errors
    ///
    /// The web configuration, or the rules that the page explains, cannot be loaded.
    pub(super) fn readers(
        &self,
        inspection: &InspectionFlags,
        about: String,
    ) -> Result<Vec<Box<dyn EventReader>>, CommandFailure> {
        let inventory = &inspection.inventory;
        let page = self.config(inventory.place(), &inspection.rules)?;
        Ok(attachments::readers(inventory.config(about), page))
    }

    /// Returns the page's configuration, if there is one.
    fn config(
        &self,
        inventory: Option<&DatabaseLocation>,
        rules: &RulesFlag,
    ) -> Result<Option<ServeConfig>, CommandFailure> {
        let (Some(inventory), Some(listen)) = (inventory, self.serve) else { return Ok(None) };
        Ok(Some(ServeConfig {
            inventory: inventory.clone(),
            listen,
            token_file: self.serve_token_file.clone(),
            web: read_web_config("--serve-web-config", self.serve_web_config.as_deref())?,
            rules: Arc::new(rule_catalog(rules, RulePurpose::Guard)?),
            scans: None,
            // A guard does not merge batches of other sensors: it inspects packets.
            merges: false,
            flags: ("--serve", "--serve-"),
        }))
    }
}

/// Returns the rules that a page explains; none if there are no rule files.
///
/// # Errors
///
/// The rules are refused, or flags name rules that do not exist.
pub(super) fn rule_catalog(rules: &RulesFlag, by: RulePurpose) -> Result<RuleCatalog, CommandFailure> {
    match rules.missing()? {
        Some(_) => Ok(RuleCatalog::default()),
        None => Ok(RuleCatalog::new(&rules.load(by, true)?)),
    }
}
