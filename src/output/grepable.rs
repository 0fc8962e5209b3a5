//! nmap's grepable format: one line for each host and port, with tabs between fields.

use std::borrow::Cow;
use std::io::{self, Write as _};

use crate::event::{Event, Timestamp};

use super::target_report::TargetReport;
use super::time::LongTime;
use super::{OutputFormat, escape};

/// A scan's results as a [`OutputFormat`]; it needs the events of a target together.
#[derive(Debug, Clone)]
pub struct GrepableFormat {
    arguments: String,
    start: Timestamp,
    last: Timestamp,
    targets: u64,
}

impl GrepableFormat {
    /// Creates the format for a scan with these `arguments`.
    pub fn new(arguments: String, start: Timestamp) -> Self {
        Self { arguments, start, last: start, targets: 0 }
    }
}

impl OutputFormat for GrepableFormat {
    fn begin(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        let (start, arguments) = (LongTime(self.start), escape(&self.arguments));
        // Readers recognize nmap's files by these first two words.
        writeln!(out, "# Nmap (bannerwall {version}) scan initiated {start} as: {arguments}")
    }

    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        self.group(std::slice::from_ref(event), out)
    }

    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        let Some(finding) = TargetReport::new(events) else { return Ok(()) };
        self.targets += 1;
        self.last = self.last.max(finding.timestamp);
        let state = finding.state().name();
        let tunnel = if finding.is_within_tls() { "ssl|" } else { "" };
        let service = finding.service().unwrap_or_default();
        let (address, port) = (finding.target.ip(), finding.target.port());
        write!(
            out,
            "Host: {address} ()\tPorts: {port}/{state}/tcp//{tunnel}{service}//{}/",
            version(&finding)
        )?;
        if !finding.alerts.is_empty() {
            let alerts = finding.alerts.iter().map(|alert| {
                let verdict = alert.verdict.as_ref().map(|told| format!(", {}", told.verdict.name()));
                format!("{}({}{})", alert.rule, alert.severity.name(), verdict.unwrap_or_default())
            });
            write!(out, "\tAlerts: {}", escape(&alerts.collect::<Vec<_>>().join(", ")))?;
        }
        writeln!(out)
    }

    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let elapsed = self.last.since(self.start).as_secs_f64();
        writeln!(
            out,
            "# Nmap (bannerwall) done at {} -- {} targets listed in {elapsed:.2} seconds",
            LongTime(self.last),
            self.targets
        )
    }
}

/// Returns product and version, or the banner if there is no name for it. A slash separates fields, so it
/// is written as nmap does.
fn version(finding: &TargetReport<'_>) -> String {
    let spell = |product: &str, version: Option<&str>| {
        format!("{product} {}", version.unwrap_or_default()).trim_end().to_owned()
    };
    let named =
        finding.named().and_then(|facts| Some(spell(facts.product.as_deref()?, facts.version.as_deref())));
    let own = || finding.identity().map(|own| spell(&own.product, own.version.as_deref()));
    let text = named.or_else(own).or_else(|| finding.software().map(Cow::into_owned)).unwrap_or_default();
    escape(&text).replace('/', "|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sample_events::{NOON, all, spelled};

    #[test]
    fn every_target_has_a_line_of_nmaps_fields() {
        let text = spelled(GrepableFormat::new("bannerwall scan\n".to_owned(), NOON), &all());
        let (comments, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
        let [first, last] = comments.as_slice() else { panic!("{comments:?}") };
        assert!(first.contains("scan initiated") && first.ends_with("as: bannerwall scan\\n"), "{first}");
        assert!(last.ends_with("6 targets listed in 0.00 seconds"), "{last}");
        assert_eq!(
            lines,
            [
                "Host: 192.0.2.7 ()\tPorts: 25/open/tcp/////",
                "Host: 192.0.2.8 ()\tPorts: 22/closed/tcp/////",
                "Host: 2001:db8::9 ()\tPorts: 22/filtered/tcp/////",
                "Host: 192.0.2.10 ()\tPorts: 22/error/tcp/////",
                "Host: 192.0.2.20 ()\tPorts: 2222/open/tcp//ssh//OpenSSH 9.2p1/\t\
                 Alerts: openssh-regresshion(high)",
                "Host: 2001:db8::20 ()\tPorts: 8080/open/tcp//http//nginx 1.22/",
            ]
        );
    }
}
