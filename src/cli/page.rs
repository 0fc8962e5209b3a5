//! `guard --serve`: flags to the page's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::inventory::Place;
use crate::serve::{ScanConfig, ServeConfig};

/// The page of the inventory that a guard keeps.
#[derive(Debug, Args)]
pub(super) struct PageFlags {
    /// Show the inventory to browsers, as `bannerwall serve` does, with alerts as they come. Any but a loopback address asks
    /// for a login and TLS.
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
    /// The page to show, if any.
    pub(super) fn config(&self, inventory: Option<&Place>) -> Option<ServeConfig> {
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
