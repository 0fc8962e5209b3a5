//! Flags of scans that speak TLS.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::Args;
use rustls::pki_types::DnsName;

use crate::cli::{Failure, Global};
use crate::diagnostics::tell;
use crate::scan::tls::{Authorities, TlsOptions, With};
use crate::terms::Greeting;

/// The longest name of an application protocol, RFC 7301 section 3.1.
const LONGEST_PROTOCOL: usize = 255;

#[derive(Debug, Args)]
pub(super) struct TlsArgs {
    /// The host name to ask for (SNI), and to hold certificates against; by default the target's, and none
    /// where that is an address.
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    sni: Option<DnsName<'static>>,
    /// Authorities (PEM) by whose word certificates are valid; by default this system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl TlsArgs {
    /// What is offered: `alpn` as application protocols, then `second`, behind `starttls` where there is one.
    pub(super) fn options(
        &self,
        (alpn, second): (Vec<String>, Vec<String>),
        with: With,
        starttls: Option<Greeting>,
        global: &Global,
    ) -> Result<TlsOptions, Failure> {
        let authorities = match &self.ca {
            Some(path) => Authorities::read(path).map_err(|error| Failure::Usage(anyhow!("--ca {error}")))?,
            None => Authorities::of_system(),
        };
        if authorities.is_empty() && !global.quiet {
            tell("bannerwall: this system trusts no authority: no certificate is told as valid");
        }
        let authorities = Arc::new(authorities);
        Ok(TlsOptions { name: self.sni.clone(), alpn, second, with, starttls, authorities })
    }

    /// That it is not given where no TLS is spoken.
    pub(super) fn refuse(&self) -> Result<(), Failure> {
        match self.sni.is_some() || self.ca.is_some() {
            true => {
                Err(Failure::Usage(anyhow!("--sni and --ca are about TLS: give --tls auto, or `scan https`")))
            }
            false => Ok(()),
        }
    }

    /// What of it decides the results, for the checkpoint.
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

/// The name of an application protocol.
pub(super) fn application_protocol(text: &str) -> anyhow::Result<String> {
    if text.is_empty() || text.len() > LONGEST_PROTOCOL {
        bail!("the name of an application protocol has 1 to {LONGEST_PROTOCOL} octets");
    }
    Ok(text.to_owned())
}
