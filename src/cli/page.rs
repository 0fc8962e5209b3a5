//! `guard --serve`: flags to the page's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::flags::InventoryFlags;
use crate::guard::EventReader;
use crate::inventory::Place;
use crate::run;
use crate::serve::{ScanConfig, ServeConfig};

/// The page of the inventory that a guard keeps.
#[derive(Debug, Args)]
pub(super) struct PageFlags {
    /// Show the inventory to browsers, as `bannerwall serve` does, with alerts as they come. Any but a
    /// loopback address asks for a login and TLS.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:8642",
          requires = "inventory", help_heading = "Page")]
    serve: Option<SocketAddr>,
    /// Show it only to those who know the token in FILE (as a password, or `Authorization: Bearer`).
    #[arg(
        long,
        value_name = "FILE",
        requires = "serve",
        conflicts_with = "serve_htpasswd",
        help_heading = "Page"
    )]
    serve_token_file: Option<PathBuf>,
    /// Show it only to the users of FILE, which `htpasswd -B` makes.
    #[arg(long, value_name = "FILE", requires = "serve", help_heading = "Page")]
    serve_htpasswd: Option<PathBuf>,
    /// Certificate chain of TLS, in PEM.
    #[arg(long, value_name = "FILE", requires = "serve_tls_key", requires = "serve", help_heading = "Page")]
    serve_tls_cert: Option<PathBuf>,
    /// Its key, in PEM.
    #[arg(long, value_name = "FILE", requires = "serve_tls_cert", help_heading = "Page")]
    serve_tls_key: Option<PathBuf>,
}

impl PageFlags {
    /// The readers of a guard's events: its inventory, and the page of that. `about` names what the guard
    /// reads.
    pub(super) fn readers(&self, inventory: &InventoryFlags, about: String) -> Vec<Box<dyn EventReader>> {
        run::readers(inventory.config(about), self.config(inventory.place()))
    }

    /// The page to show, if any.
    fn config(&self, inventory: Option<&Place>) -> Option<ServeConfig> {
        Some(ServeConfig {
            inventory: inventory?.clone(),
            listen: self.serve?,
            token_file: self.serve_token_file.clone(),
            htpasswd: self.serve_htpasswd.clone(),
            tls: self.serve_tls_cert.clone().zip(self.serve_tls_key.clone()),
            scans: ScanConfig::default(),
            // A guard merges nothing: it does its own work.
            merges: false,
            flags: ("--serve", "--serve-"),
        })
    }
}
