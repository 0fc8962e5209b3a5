//! A scan's results for a person: one line for each target as it comes, with the matches of rules below.

use std::fmt::{self, Display};
use std::io::{self, Write as _};

use crate::event::{
    AlertFacts, ApplicationFacts, ConnectFacts, Event, EventKind, HttpFacts, OtherFacts, PortState,
    ProductFacts, Side, TlsFacts,
};

use super::evidence::MatchedField;
use super::target_report::TargetReport;
use super::text::{ChangeLine, ColourMode, DurationText, milliseconds, severity_colour};
use super::{EscapedText, OutputFormat};

/// Width of the column of addresses: any IPv4 address with its port.
const ADDRESS_WIDTH: usize = 21;

/// Width of the column of states.
const STATE_WIDTH: usize = 8;

/// A scan's results as a [`OutputFormat`]; it needs the events of a target together.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableFormat {
    /// The color of lines.
    pub colour: ColourMode,
    /// True if fingerprints of key exchanges are shown.
    pub hassh: bool,
    /// True if every HTTP request is shown, instead of only those of alerts.
    pub requests: bool,
}

impl OutputFormat for TableFormat {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        self.group(std::slice::from_ref(event), out)
    }

    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        for event in events {
            if let EventKind::Change(facts) = &event.kind {
                writeln!(out, "{:ADDRESS_WIDTH$}  changed   {}", "", ChangeLine(facts))?;
            }
        }
        let Some(finding) = TargetReport::new(events) else { return Ok(()) };
        self.first_line(&finding, out)?;
        let others = finding.http().skip(1).filter(|_| self.requests);
        others.into_iter().try_for_each(|facts| writeln!(out, "{:33}{}", "", HttpCell(facts)))?;
        let behind = finding.said.len() > 1;
        finding
            .tls()
            .filter(|_| behind)
            .try_for_each(|facts| writeln!(out, "{:33}{}", "", TlsCell(facts)))?;
        let first = finding.http().next().and_then(request_url);
        finding.by_severity().iter().try_for_each(|facts| self.alert(facts, first, out))
    }
}

impl TableFormat {
    fn first_line(&self, finding: &TargetReport<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        let state = finding.state();
        let colour = if state == PortState::Open { "32" } else { "2" };
        let state = format!("{:STATE_WIDTH$}", state.name());
        write!(out, "{:ADDRESS_WIDTH$}  {}  ", finding.target.to_string(), self.colour.paint(colour, state))?;
        let within = finding.said.iter().find(|said| !matches!(said, ApplicationFacts::Tls(_)));
        match within.or(finding.said.first()) {
            Some(ApplicationFacts::Http(facts)) => write!(out, "{}", HttpCell(facts))?,
            Some(ApplicationFacts::Tls(facts)) => write!(out, "{}", TlsCell(facts))?,
            Some(ApplicationFacts::Other(facts)) => {
                write!(out, "{}  {}", facts.name, OtherFacts::text(&facts.server))?;
            }
            Some(said) => write!(out, "{}", EscapedText(&said.summary().banner.unwrap_or_default()))?,
            None => write!(out, "{}", ConnectCell(finding.connect))?,
        }
        writeln!(out, "{}", ProductCell(finding.product()))?;
        let hassh = finding.ssh().and_then(|side| side.hassh.as_ref()).filter(|_| self.hassh);
        hassh.map_or(Ok(()), |hassh| writeln!(out, "{:33}hassh {}", "", hassh.hash))?;
        finding.host_key().map_or(Ok(()), |key| writeln!(out, "{:33}host key {key}", ""))
    }

    fn alert(&self, facts: &AlertFacts, first: Option<&str>, out: &mut Vec<u8>) -> io::Result<()> {
        let severity = format!("{:STATE_WIDTH$}", facts.severity.name());
        let severity = self.colour.paint(severity_colour(facts.severity), severity);
        write!(
            out,
            "{:ADDRESS_WIDTH$}  {severity}  {}: {}",
            "",
            EscapedText(&facts.rule),
            EscapedText(&facts.title)
        )?;
        if let Some(reference) = facts.references.first() {
            write!(out, " [{}]", EscapedText(reference))?;
        }
        if let ApplicationFacts::Http(http) = &facts.application
            && let Some(url) = request_url(http).filter(|url| first != Some(*url))
        {
            write!(out, "  at {}", EscapedText(url))?;
        }
        if let Some(field) = MatchedField::beyond_line(facts) {
            write!(out, "  {field}")?;
        }
        match &facts.verdict {
            Some(told) => writeln!(out, " {}: {}", told.verdict.name(), EscapedText(&told.reason)),
            None => writeln!(out),
        }
    }
}

fn request_url(facts: &HttpFacts) -> Option<&str> {
    facts.request.as_ref().map(|request| request.url.as_str())
}

/// The time of the connect, or the time spent waiting, and the reason if there is no more.
struct ConnectCell<'a>(Option<&'a ConnectFacts>);

impl Display for ConnectCell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(facts) = self.0 else { return Ok(()) };
        f.write_str(&facts.reason)?;
        match (facts.waited_ms.map(milliseconds), facts.round_trip, facts.state) {
            (Some(time), ..) => write!(f, ", waited {}", DurationText(time))?,
            (None, Some(time), PortState::Open) => write!(f, ", {}", DurationText(time))?,
            _ => {}
        }
        if facts.said.is_empty() { Ok(()) } else { write!(f, ": {}", EscapedText(&facts.said)) }
    }
}

/// A response, with its request unless that was `/`.
struct HttpCell<'a>(&'a HttpFacts);

impl Display for HttpCell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.0.request.as_ref().filter(|request| request.method != "GET" || request.url != "/");
        if let Some(request) = request {
            write!(f, "{} {}: ", EscapedText(&request.method), EscapedText(&request.url))?;
        }
        let Some(response) = &self.0.response else { return f.write_str("no answer") };
        write!(
            f,
            "{} {} {}",
            EscapedText(&response.version),
            response.status,
            EscapedText(&response.reason)
        )?;
        for field in response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("server")) {
            write!(f, "  {}", EscapedText(&field.value))?;
        }
        match &response.title {
            Some(title) => write!(f, "  \"{}\"", EscapedText(title)),
            None => Ok(()),
        }
    }
}

/// The parameters that a TLS server chose, and its certificate.
struct TlsCell<'a>(&'a TlsFacts);

impl Display for TlsCell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.0;
        write!(f, "{}", EscapedText(&facts.line(Side::Server)))?;
        if let Some(alpn) = facts.server.as_ref().and_then(|server| server.alpn.as_deref()) {
            write!(f, "  {}", EscapedText(alpn))?;
        }
        if let Some(certified) = facts.certified() {
            write!(f, "  {}", EscapedText(&certified))?;
        }
        match facts.alert.filter(|_| facts.server.is_some()) {
            Some(alert) => write!(f, "  alert {}", alert.code.name()),
            None => Ok(()),
        }
    }
}

struct ProductCell<'a>(Option<&'a ProductFacts>);

impl Display for ProductCell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ProductFacts { product: Some(product), version: Some(version), .. }) => {
                write!(f, "  ({} {})", EscapedText(product), EscapedText(version))
            }
            Some(ProductFacts { product: Some(product), version: None, .. }) => {
                write!(f, "  ({})", EscapedText(product))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::output::sample_events::{all, spelled, ssh};

    #[test]
    fn every_target_has_a_line_and_no_control_character_gets_through() {
        let expected = concat!(
            "192.0.2.7:25           open      foreign, 1.2 ms: 220 <mail>\\r\\n\\x1b[2J\u{fffe}\n",
            "192.0.2.8:22           closed    refused\n",
            "[2001:db8::9]:22       filtered  no-response\n",
            "192.0.2.10:22          error     EADDRNOTAVAIL\n",
            "192.0.2.20:2222        open      SSH-2.0-OpenSSH_9.2p1 <&\"'>\\x07/x  (OpenSSH 9.2p1)\n",
            "                                 host key SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU ssh-ed25519\n",
            "                       high      openssh-regresshion: OpenSSH 8.5p1 to 9.7p1 [CVE-2024-6387]\n",
            "[2001:db8::20]:8080    open      HTTP/1.1 200 Fine  nginx/1.22  \"Welcome & <so on>\"\n",
            "                                 GET /server-status: HTTP/1.1 404 Fine  nginx/1.22\n",
        );
        assert_eq!(
            spelled(TableFormat { colour: ColourMode::Never, hassh: false, requests: true }, &all()),
            expected
        );
    }

    #[test]
    fn what_stays_silent_is_told_with_how_long_it_was_waited_for() {
        let facts = ConnectFacts {
            state: PortState::Open,
            reason: "silent".into(),
            said: String::new(),
            round_trip: Some(Duration::from_micros(16_300)),
            waited_ms: Some(2004),
        };
        assert_eq!(ConnectCell(Some(&facts)).to_string(), "silent, waited 2.0 s");
        let soon = ConnectFacts { reason: "ended".into(), waited_ms: Some(3), ..facts };
        assert_eq!(ConnectCell(Some(&soon)).to_string(), "ended, waited 3.0 ms");
    }

    #[test]
    fn a_rule_that_matched_several_answers_is_told_once() {
        let mut events = ssh();
        events.extend(events.last().cloned());
        let text =
            spelled(TableFormat { colour: ColourMode::Never, hassh: false, requests: false }, &[events]);
        assert_eq!(text.matches("openssh-regresshion").count(), 1, "{text}");
    }
}
