//! `--metrics`, and who may see them.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::Failure;
use crate::diagnostics::tell;
use crate::metrics::MetricsConfig;
use crate::web::WebConfig;

/// Where a command shows its metrics, and to whom.
#[derive(Debug, Args)]
pub(super) struct MetricsFlags {
    /// Show /metrics, /healthz and /readyz on this address.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// With --metrics: TLS and users, from a web configuration file of Prometheus' exporters
    /// (`tls_server_config`, `basic_auth_users`). It is read at the start.
    #[arg(long, value_name = "FILE", requires = "metrics")]
    metrics_web_config: Option<PathBuf>,
}

impl MetricsFlags {
    /// What they say, with certificates and key read.
    pub(super) fn config(&self) -> Result<Option<MetricsConfig>, Failure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let read = |path: &PathBuf| WebConfig::read(path).context("--metrics-web-config");
        let web = self.metrics_web_config.as_ref().map(read).transpose().map_err(Failure::Usage)?;
        if web.as_ref().is_some_and(WebConfig::shows_passwords) && !address.ip().to_canonical().is_loopback()
        {
            tell(
                "bannerwall: --metrics-web-config has users and no TLS: their passwords go over the network as they are",
            );
        }
        Ok(Some(MetricsConfig { address, web }))
    }
}
