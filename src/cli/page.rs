//! `guard --serve`: turns flags into the page's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::flags::{InventoryFlags, listen_address};
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
    #[arg(
        long,
        value_name = "FILE",
        requires = "serve",
        conflicts_with = "serve_htpasswd",
        help_heading = "Page"
    )]
    serve_token_file: Option<PathBuf>,
    /// Require a login of a user in FILE, which `htpasswd -B` makes.
    #[arg(long, value_name = "FILE", requires = "serve", help_heading = "Page")]
    serve_htpasswd: Option<PathBuf>,
    /// Certificate chain of TLS, in PEM.
    #[arg(long, value_name = "FILE", requires = "serve_tls_key", requires = "serve", help_heading = "Page")]
    serve_tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "serve_tls_cert", help_heading = "Page")]
    serve_tls_key: Option<PathBuf>,
}

impl PageFlags {
    /// Returns the event readers of a guard: its inventory, and the page. `about` names the guard's input.
    pub(super) fn readers(&self, inventory: &InventoryFlags, about: String) -> Vec<Box<dyn EventReader>> {
        attachments::readers(inventory.config(about), self.config(inventory.place()))
    }

    /// Returns the page's configuration, if there is one.
    fn config(&self, inventory: Option<&DatabaseLocation>) -> Option<ServeConfig> {
        Some(ServeConfig {
            inventory: inventory?.clone(),
            listen: self.serve?,
            token_file: self.serve_token_file.clone(),
            htpasswd: self.serve_htpasswd.clone(),
            tls: self.serve_tls_cert.clone().zip(self.serve_tls_key.clone()),
            scans: None,
            // A guard does not merge batches of other sensors: it inspects packets.
            merges: false,
            flags: ("--serve", "--serve-"),
        })
    }
}
