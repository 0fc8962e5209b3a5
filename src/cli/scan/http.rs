//! Flags of HTTP probes, within TLS or without.

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use regex::bytes::Regex;

use super::tls::TlsArgs;
use super::{CommandFailure, CommonScanFlags, GlobalFlags, HTTP_1_1, HTTP_2, HTTPS, ModeFlagValues};
use crate::event::HeaderField;
use crate::scan::report::ResultPattern;
use crate::scan::targets::PortSet;
use crate::scan::tls::TlsTargets;
use crate::scan::{HttpOptions, HttpRequest, ProbeOptions};

/// Default port of HTTP.
const HTTP: u16 = 80;

#[derive(Debug, Args)]
pub(super) struct HttpArgs {
    /// Method of the requests.
    #[arg(long, value_name = "METHOD", default_value = "GET", value_parser = method)]
    method: String,
    /// Path to request; can be given several times.
    #[arg(long = "path", value_name = "PATH", default_value = "/", value_parser = path)]
    paths: Vec<String>,
    /// Header field to send; replaces a default field of the same name.
    #[arg(long = "header", value_name = "'K: V'", value_parser = header)]
    headers: Vec<HeaderField>,
    /// Show only servers with a response that has this header field; if given several times, all must match.
    /// Patterns see the fields as events show them: credentials are masked unless --log-headers all is given.
    #[arg(long = "match", value_name = "'Header: REGEX'", value_parser = header_pattern)]
    matches: Vec<(String, Regex)>,
    /// Use a new connection for each request.
    #[arg(long)]
    no_pipeline: bool,
    /// Concurrent connections to a host; a server without pipelining gets up to four.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=HttpOptions::MOST_CONNECTIONS as i64))]
    host_connections: u16,
    /// Bytes of a body to keep for the rules.
    #[arg(long, value_name = "OCTETS", default_value_t = 4096)]
    body_limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TlsName {
    Never,
    Auto,
}

impl HttpArgs {
    /// Turns the flags of `scan http` into a mode-independent request.
    pub(super) fn request<'a>(
        &self,
        ports: Option<&PortSet>,
        when: TlsName,
        tls: &TlsArgs,
        common: &'a CommonScanFlags,
        global: &GlobalFlags,
    ) -> Result<ModeFlagValues<'a>, CommandFailure> {
        let probe = match when {
            TlsName::Never => {
                tls.refuse()?;
                ProbeOptions::Http(self.options())
            }
            TlsName::Auto => {
                let options = tls.options(https_protocols(&[]), TlsTargets::UsualPorts, None, global)?;
                ProbeOptions::Https(self.options(), options)
            }
        };
        Ok(ModeFlagValues {
            name: "http",
            ports: ports.cloned().unwrap_or_else(|| http_ports(when)),
            probe,
            patterns: self.patterns(),
            own: self.own().into_iter().chain(tls.own()).chain([("--tls", format!("{when:?}"))]).collect(),
            common,
        })
    }

    /// Turns the flags of `scan https` into a mode-independent request.
    pub(super) fn within_tls<'a>(
        &self,
        ports: &PortSet,
        alpn: &[String],
        tls: &TlsArgs,
        common: &'a CommonScanFlags,
        global: &GlobalFlags,
    ) -> Result<ModeFlagValues<'a>, CommandFailure> {
        let options = tls.options(https_protocols(alpn), TlsTargets::All, None, global)?;
        Ok(ModeFlagValues {
            name: "https",
            ports: ports.clone(),
            probe: ProbeOptions::Https(self.options(), options),
            patterns: self.patterns(),
            own: self.own().into_iter().chain(tls.own()).chain([("--alpn", alpn.join(","))]).collect(),
            common,
        })
    }

    fn patterns(&self) -> Vec<ResultPattern> {
        self.matches.iter().map(|(name, regex)| ResultPattern::Header(name.clone(), regex.clone())).collect()
    }

    /// Returns the flags that affect the results, for the checkpoint.
    fn own(&self) -> [(&'static str, String); 4] {
        [
            ("--match", format!("{:?}", self.matches)),
            ("--method", self.method.clone()),
            ("--path", format!("{:?}", self.paths)),
            ("--header", format!("{:?}", self.headers)),
        ]
    }

    fn options(&self) -> HttpOptions {
        let request = |path: &String| HttpRequest {
            method: self.method.clone(),
            path: path.clone(),
            headers: self.headers.clone(),
        };
        HttpOptions {
            requests: self.paths.iter().map(request).collect(),
            pipeline: !self.no_pipeline,
            host_connections: self.host_connections.into(),
            body_limit: self.body_limit,
        }
    }
}

/// Returns the usual ports of HTTP.
fn http_ports(when: TlsName) -> PortSet {
    match when {
        TlsName::Never => PortSet::from_iter([HTTP]),
        TlsName::Auto => PortSet::from_iter([HTTP, HTTPS]),
    }
}

/// Returns the offered versions of HTTP, and those of a second attempt. Pipelining needs fewer packets than
/// HTTP/2, so HTTP/1.1 comes first.
pub(super) fn https_protocols(alpn: &[String]) -> (Vec<String>, Vec<String>) {
    match alpn {
        [] => (vec![HTTP_1_1.to_owned()], vec![HTTP_2.to_owned()]),
        said => (said.to_vec(), Vec::new()),
    }
}

fn method(text: &str) -> anyhow::Result<String> {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if !text.is_empty() && text.chars().all(token) {
        Ok(text.to_owned())
    } else {
        bail!("must be an HTTP method, as GET or HEAD")
    }
}

fn path(text: &str) -> anyhow::Result<String> {
    if text != "*" && !text.starts_with('/') {
        bail!("a path must start with /");
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        bail!("a path must not contain white space: write %20");
    }
    Ok(text.to_owned())
}

fn header(text: &str) -> anyhow::Result<HeaderField> {
    let Some((name, value)) = text.split_once(':') else { bail!("must be `Name: value`") };
    let value = value.trim();
    if value.chars().any(char::is_control) {
        bail!("a header field must not contain control characters");
    }
    Ok(HeaderField {
        name: method(name).map_err(|_| anyhow!("invalid name of a header field"))?.into(),
        value: value.into(),
    })
}

fn header_pattern(text: &str) -> anyhow::Result<(String, Regex)> {
    let Some((name, regex)) = text.split_once(':') else { bail!("must be `Header: REGEX`") };
    let name = method(name).map_err(|_| anyhow!("invalid name of a header field"))?;
    Ok((name, Regex::new(regex.trim_start())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_cannot_smuggle_lines() {
        assert_eq!(header("X-A:  b ").unwrap(), HeaderField { name: "X-A".into(), value: "b".into() });
        assert!(["X", "X: a\r\nY: b", "X Y: a", ": a"].iter().all(|text| header(text).is_err()));
        assert!(["x", "/a b", "/a\r\n"].iter().all(|text| path(text).is_err()));
        let (name, regex) = header_pattern("Server: ^nginx/1").unwrap();
        assert!(name == "Server" && regex.is_match(b"nginx/1.2"));
    }
}
