//! `guard --serve`: turns flags into the page's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::CommandFailure;
use super::flags::{InventoryFlags, listen_address};
use super::metrics::read_web_config;
use crate::attachments;
use crate::database::DatabaseLocation;
use crate::guard::EventReader;
use crate::serve::ServeConfig;

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
    pub(super) fn readers(
        &self,
        inventory: &InventoryFlags,
        about: String,
    ) -> Result<Vec<Box<dyn EventReader>>, CommandFailure> {
        Ok(attachments::readers(inventory.config(about), self.config(inventory.place())?))
    }

    /// Returns the page's configuration, if there is one.
    fn config(&self, inventory: Option<&DatabaseLocation>) -> Result<Option<ServeConfig>, CommandFailure> {
        let (Some(inventory), Some(listen)) = (inventory, self.serve) else { return Ok(None) };
        Ok(Some(ServeConfig {
            inventory: inventory.clone(),
            listen,
            token_file: self.serve_token_file.clone(),
            web: read_web_config("--serve-web-config", self.serve_web_config.as_deref())?,
            scans: None,
            // A guard does not merge batches of other sensors: it inspects packets.
            merges: false,
            flags: ("--serve", "--serve-"),
        }))
    }
}
