//! `--metrics` and access to them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::CommandFailure;
use super::flags::listen_address;
use crate::diagnostics::log_line;
use crate::metrics::MetricsConfig;
use crate::web::WebConfig;

/// Address of the metrics, and access to them.
#[derive(Debug, Args)]
pub(super) struct MetricsFlags {
    /// Serve /metrics, /healthz and /readyz on this address. A port alone is one of 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// With --metrics: TLS and users, from a web configuration file of Prometheus' exporters
    /// (`tls_server_config`, `basic_auth_users`). The file is read at the start.
    #[arg(long, value_name = "FILE", requires = "metrics")]
    metrics_web_config: Option<PathBuf>,
}

/// Reads the web configuration file of this flag, if it was given.
pub(super) fn read_web_config(
    flag: &'static str,
    path: Option<&Path>,
) -> Result<Option<WebConfig>, CommandFailure> {
    path.map(|path| WebConfig::read(path).context(flag)).transpose().map_err(CommandFailure::Usage)
}

impl MetricsFlags {
    /// Returns the configuration, with certificates and key loaded.
    pub(super) fn config(&self) -> Result<Option<MetricsConfig>, CommandFailure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let web = read_web_config("--metrics-web-config", self.metrics_web_config.as_deref())?;
        if web.as_ref().is_some_and(WebConfig::shows_passwords) && !address.ip().to_canonical().is_loopback()
        {
            log_line(
                "bannerwall: --metrics-web-config has users but no TLS: passwords cross the network in clear text",
            );
        }
        Ok(Some(MetricsConfig { address, web }))
    }
}
