//! Flags of TLS probes.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::Args;
use rustls::pki_types::DnsName;

use crate::cli::{CommandFailure, GlobalFlags};
use crate::diagnostics::log_line;
use crate::scan::tls::{TlsOptions, TlsTargets, TrustedAuthorities};
use crate::terms::GreetingProtocol;

/// Limit of an application protocol's name in bytes, RFC 7301 section 3.1.
const LONGEST_PROTOCOL: usize = 255;

#[derive(Debug, Args)]
pub(super) struct TlsArgs {
    /// Host name for SNI and for the check of certificates [default: the target's name, and none for an
    /// address].
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    sni: Option<DnsName<'static>>,
    /// Certificate authorities to trust, in PEM [default: this system's].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the options: first `alpn` as application protocols, then `second`, after `starttls` if there
    /// is one.
    pub(super) fn options(
        &self,
        (alpn, second): (Vec<String>, Vec<String>),
        with: TlsTargets,
        starttls: Option<GreetingProtocol>,
        global: &GlobalFlags,
    ) -> Result<TlsOptions, CommandFailure> {
        let authorities = match &self.ca {
            Some(path) => TrustedAuthorities::read(path)
                .map(Arc::new)
                .map_err(|error| CommandFailure::Usage(anyhow!("--ca {error}")))?,
            None => TrustedAuthorities::of_system(),
        };
        if authorities.is_empty() && !global.quiet {
            log_line(
                "bannerwall: this system has no certificate authorities, so no certificate is reported as valid (pass --ca)",
            );
        }
        Ok(TlsOptions { name: self.sni.clone(), alpn, second, with, starttls, authorities })
    }

    /// Refuses these flags for a scan without TLS.
    pub(super) fn refuse(&self) -> Result<(), CommandFailure> {
        match self.sni.is_some() || self.ca.is_some() {
            true => Err(CommandFailure::Usage(anyhow!(
                "--sni and --ca need TLS: pass --tls auto, or use `scan https`"
            ))),
            false => Ok(()),
        }
    }

    /// Returns the flags that affect the results, for the checkpoint.
    pub(super) fn own(&self) -> [(&'static str, String); 2] {
        let sni = self.sni.as_ref().map_or("", AsRef::as_ref);
        let ca = self.ca.as_ref().map(|path| path.display().to_string());
        [("--sni", sni.to_owned()), ("--ca", ca.unwrap_or_default())]
    }
}

fn host_name(text: &str) -> anyhow::Result<DnsName<'static>> {
    match DnsName::try_from(text.to_owned()) {
        Ok(name) => Ok(name),
        Err(_) => bail!("not a host name"),
    }
}

/// Parses the name of an application protocol.
pub(super) fn application_protocol(text: &str) -> anyhow::Result<String> {
    if text.is_empty() || text.len() > LONGEST_PROTOCOL {
        bail!("must have 1 to {LONGEST_PROTOCOL} bytes");
    }
    Ok(text.to_owned())
}
