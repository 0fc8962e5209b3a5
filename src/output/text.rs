//! One readable line for each event, for a terminal.
//!
//! Text from the network is escaped. Colors are used only if the caller says that the output is for a
//! person.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::event::{
    AlertFacts, AnomalyFacts, ApplicationFacts, BanFacts, ChangeFacts, ConnectFacts, DropFacts, Endpoint,
    Event, EventKind, FlowEndpoints, FlowRecord, GreetingFacts, HttpFacts, OtherFacts, PortState,
    ProductFacts, ResetFacts, RuleAction, Severity, Side, SshFacts, SshSide, StatsFacts, TlsFacts,
    TrafficVolume,
};

use super::blocked_flows::BlockedFlows;
use super::evidence::MatchedField;
use super::time::ClockTime;
use super::{EscapedText, OutputFormat};

/// Use of colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColourMode {
    /// Plain text.
    #[default]
    Never,
    /// With ANSI colours.
    Always,
}

impl ColourMode {
    /// Returns colors for a terminal, unless `NO_COLOR` is set or the terminal is a dumb one.
    pub fn for_stream(stream: &impl IsTerminal) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if stream.is_terminal() && !set("NO_COLOR") && !dumb { Self::Always } else { Self::Never }
    }

    /// Returns colors for results, which go to this file or to standard output.
    pub fn for_results(file: Option<&Path>) -> Self {
        if file.is_some() { Self::Never } else { Self::for_stream(&std::io::stdout()) }
    }

    /// Returns the name of a severity in its color, padded to `width`.
    pub fn severity(self, name: &str, width: usize) -> String {
        let padded = format!("{name:<width$}");
        match Severity::named(name) {
            Some(severity) => self.paint(severity_colour(severity), padded).to_string(),
            None => padded,
        }
    }

    /// Returns text in green for good news, or in red.
    pub fn judgement(self, is_good: bool, text: &str) -> String {
        self.paint(if is_good { "32" } else { "1;31" }, text).to_string()
    }

    /// Returns `text` in the SGR color `code`.
    pub(super) fn paint(self, code: &'static str, text: impl Display) -> ColouredText<impl Display> {
        ColouredText { colour: self, code, text }
    }
}

/// Text lines as a [`OutputFormat`]. A blocked connection is one line: that of the alert.
#[derive(Debug, Default)]
pub struct TextFormat {
    colour: ColourMode,
    blocked: BlockedFlows,
}

impl TextFormat {
    /// Returns the format, with or without colors.
    pub fn new(colour: ColourMode) -> Self {
        Self { colour, ..Self::default() }
    }
}

impl OutputFormat for TextFormat {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        if self.blocked.covers(event) {
            return Ok(());
        }
        self.blocked.record(event);
        writeln!(out, "{}", EventLine { event, colour: self.colour })
    }
}

pub(super) struct ColouredText<T> {
    colour: ColourMode,
    code: &'static str,
    text: T,
}

impl<T: Display> Display for ColouredText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.colour {
            ColourMode::Never => self.text.fmt(f),
            ColourMode::Always => {
                write!(f, "\x1b[{}m", self.code)?;
                self.text.fmt(f)?;
                f.write_str("\x1b[0m")
            }
        }
    }
}

struct EventLine<'a> {
    event: &'a Event,
    colour: ColourMode,
}

impl Display for EventLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.colour.paint("2", ClockTime(self.event.timestamp)))?;
        match &self.event.kind {
            EventKind::Application(ApplicationFacts::Ssh(facts)) => self.ssh(facts, f),
            EventKind::Application(ApplicationFacts::Http(facts)) => self.http(facts, f),
            EventKind::Application(ApplicationFacts::Tls(facts)) => self.tls(facts, f),
            EventKind::Application(ApplicationFacts::Greeting(facts)) => self.greeting(facts, f),
            EventKind::Application(ApplicationFacts::Other(facts)) => self.other(facts, f),
            EventKind::Alert(facts) => self.alert(facts, f),
            EventKind::Drop(facts) => self.dropped(facts, f),
            EventKind::Anomaly(facts) => self.anomaly(facts, f),
            EventKind::Flow(facts) => self.flow(facts, f),
            EventKind::Connect(facts) => self.connect(facts, f),
            EventKind::Stats(facts) => stats(facts, f),
            EventKind::Hook(facts) => {
                write!(f, "hook    {} {}: {}", facts.families, facts.state, EscapedText(&facts.detail))
            }
            EventKind::Ban(facts) => write!(f, "ban     {}", BanLine(facts)),
            EventKind::Change(facts) => write!(f, "change  {}", ChangeLine(facts)),
        }
    }
}

/// A ban in one line: client, time and reason.
pub(super) struct BanLine<'a>(pub(super) &'a BanFacts);

impl fmt::Display for BanLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BanFacts { address, state, time, rule, banner, detail } = self.0;
        write!(f, "{address} {state}")?;
        if let Some(time) = time {
            write!(f, " for {} s", time.as_secs_f64().round())?;
        }
        if let Some(rule) = rule {
            write!(f, " by {rule}: {}", EscapedText(banner))?;
        }
        match detail {
            Some(detail) => write!(f, " ({})", EscapedText(detail)),
            None => Ok(()),
        }
    }
}

/// A change of the inventory in one line: service, kind, old and new value.
pub(super) struct ChangeLine<'a>(pub(super) &'a ChangeFacts);

impl fmt::Display for ChangeLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChangeFacts { kind, protocol, old, new, rule, why, .. } = self.0;
        write!(f, "{}  {protocol} {}", self.0.place(), kind.replace('_', " "))?;
        if let Some(rule) = rule {
            write!(f, "  {}", EscapedText(rule))?;
        }
        if let Some(why) = why {
            write!(f, " ({why})")?;
        }
        match (old, new) {
            (Some(old), Some(new)) => write!(f, "  {} -> {}", EscapedText(old), EscapedText(new)),
            (Some(one), None) | (None, Some(one)) => write!(f, "  {}", EscapedText(one)),
            (None, None) => Ok(()),
        }
    }
}

impl EventLine<'_> {
    fn ssh(&self, facts: &SshFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ssh     {}", self.ends())?;
        for (name, side) in [("server", &facts.server), ("client", &facts.client)] {
            let Some(SshSide { banner, fingerprint, .. }) = side.as_deref() else { continue };
            write!(f, "  {name} {}", EscapedText(banner))?;
            product(fingerprint.as_ref(), f)?;
        }
        facts.host_key().map_or(Ok(()), |key| write!(f, "  host key {key}"))
    }

    fn http(&self, facts: &HttpFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http    {}", self.ends())?;
        if let Some(request) = &facts.request {
            let host = request.header("Host").unwrap_or_default();
            write!(
                f,
                "  {} {}{}",
                EscapedText(&request.method),
                EscapedText(host),
                EscapedText(&request.url)
            )?;
        }
        let Some(response) = &facts.response else { return f.write_str("  (no answer seen)") };
        write!(f, "  {} {}", response.status, EscapedText(&response.reason))?;
        if let Some(server) = response.header("Server") {
            write!(f, "  {}", EscapedText(server))?;
        }
        if let Some(title) = &response.title {
            write!(f, "  \"{}\"", EscapedText(title))?;
        }
        product(response.fingerprint.as_ref(), f)
    }

    fn tls(&self, facts: &TlsFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match facts.quic {
            None => write!(f, "tls     {}", self.ends())?,
            Some(version) => write!(f, "quic    {}  version {}", self.ends(), version.name())?,
        }
        for side in [Side::Client, Side::Server] {
            let line = facts.line(side);
            if !line.is_empty() {
                write!(f, "  {} {}", side.name(), EscapedText(&line))?;
            }
        }
        if let Some(client) = facts.client.as_ref().filter(|client| !client.ja4.is_empty()) {
            write!(f, "  ja4 {}", client.ja4)?;
        }
        if let Some(certified) = facts.certified() {
            write!(f, "  certificate {}", EscapedText(&certified))?;
        }
        match facts.alert {
            Some(alert) => write!(f, "  {} alerts {}", alert.from.name(), alert.code.name()),
            None => Ok(()),
        }
    }

    fn greeting(&self, facts: &GreetingFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7} {}", facts.greeting.name(), self.ends())?;
        for (number, line) in facts.lines.iter().enumerate() {
            write!(f, "{}{}", if number == 0 { "  " } else { " | " }, EscapedText(line))?;
        }
        product(facts.fingerprint.as_ref(), f)
    }

    fn other(&self, facts: &OtherFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "other   {}  {}", self.ends(), facts.name)?;
        for side in [Side::Client, Side::Server] {
            let first = facts.first(side);
            if !first.is_empty() {
                write!(f, "  {} {}", side.name(), OtherFacts::text(first))?;
            }
        }
        Ok(())
    }

    fn alert(&self, facts: &AlertFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match (facts.blocked, facts.action.blocks()) {
            (true, _) => self.colour.paint("1;31", "BLOCKED"),
            (false, _) => self.colour.paint("1;33", "ALERT  "),
        };
        let severity = self.colour.paint(severity_colour(facts.severity), facts.severity.name());
        write!(
            f,
            "{word} {}  {severity}  {}: {}",
            self.ends(),
            EscapedText(&facts.rule),
            EscapedText(&facts.title)
        )?;
        match (facts.blocked, facts.action.blocks()) {
            (false, true) => write!(f, " (would {})", facts.action.name())?,
            (false, false) if facts.enforced => f.write_str(" (alert only)")?,
            _ => {}
        }
        if let Some(let_pass) = &facts.let_pass {
            write!(f, " (let pass by {})", EscapedText(&let_pass.facts().to_string()))?;
        }
        write!(f, "  [{}] {}", facts.from.name(), EscapedText(&facts.banner))?;
        if let Some(field) = MatchedField::beyond_line(facts) {
            write!(f, "  {field}")?;
        }
        product(Some(&facts.product), f)?;
        if let Some(told) = &facts.verdict {
            write!(f, "  {}: {}", told.verdict.name(), EscapedText(&told.reason))?;
        }
        if facts.blocked && facts.action == RuleAction::Reject {
            write!(f, "  {}", reset_result(facts.resets.as_deref()))?;
        }
        Ok(())
    }

    fn dropped(&self, facts: &DropFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.colour.paint("31", "DROPPED");
        write!(f, "{word} {}  {} bytes, {}", self.ends(), facts.header.length, facts.reason.name())?;
        if let Some(rule) = &facts.rule {
            write!(f, ", rule {}", EscapedText(rule))?;
        }
        if facts.rejected || facts.resets.is_some() {
            write!(f, ", {}", reset_result(facts.resets.as_deref()))?;
        }
        Ok(())
    }

    fn flow(&self, facts: &FlowRecord, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow    {}  ", self.ends())?;
        if let Some(protocol) = facts.protocol {
            write!(f, "{} ", protocol.name())?;
        }
        write!(f, "{}, {}", facts.state.name(), facts.verdict.name())?;
        if let Some(rule) = &facts.rule {
            write!(f, " by {}", EscapedText(rule))?;
        }
        let TrafficVolume { packets, octets } = facts.to_server;
        write!(f, "  {packets} packets, {octets} bytes to the server")?;
        let TrafficVolume { packets, octets } = facts.to_client;
        write!(f, ", {packets} packets, {octets} bytes to the client")?;
        write!(f, " in {}", DurationText(facts.last.since(facts.start)))?;
        if facts.unseen > 0 {
            write!(f, ", and {} bytes of bodies", facts.unseen)?;
        }
        if facts.whole { Ok(()) } else { f.write_str(", until it was decided") }
    }

    fn anomaly(&self, facts: &AnomalyFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.colour.paint("35", "ANOMALY");
        let layer = facts.layer.name();
        write!(f, "{word} {}  {layer} {}: {}", self.ends(), facts.name, EscapedText(&facts.detail))
    }

    fn connect(&self, facts: &ConnectFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colour = if facts.state == PortState::Open { "32" } else { "2" };
        let state = self.colour.paint(colour, format_args!("{:<8}", facts.state.name())).to_string();
        write!(f, "connect {}  {}", self.ends(), state.trim_end())?;
        if !facts.reason.is_empty() {
            write!(f, "  {}", EscapedText(&facts.reason))?;
        }
        if !facts.said.is_empty() {
            write!(f, "  {}", EscapedText(&facts.said))?;
        }
        match (facts.waited_ms.map(milliseconds), facts.round_trip) {
            (Some(time), _) => write!(f, "  waited {}", DurationText(time)),
            (None, Some(time)) => write!(f, "  {}", DurationText(time)),
            (None, None) => Ok(()),
        }
    }

    /// Returns `client > server`, or only the server if the client's address is unknown (a scan).
    fn ends(&self) -> String {
        let Some(flow) = &self.event.flow else { return "-".to_owned() };
        let FlowEndpoints { client, server } = flow.endpoints;
        match client.address.is_unspecified() {
            true => end(server),
            false => format!("{} > {}", end(client), end(server)),
        }
    }
}

/// Returns the result of the resets for a rejected flow; without facts, nothing sent them.
fn reset_result(resets: Option<&ResetFacts>) -> String {
    match resets.map(ResetFacts::unsent_reason) {
        Some(None) => "both ends reset".to_owned(),
        Some(Some(unsent)) => EscapedText(&unsent).to_string(),
        None => "would be reset".to_owned(),
    }
}

/// Returns a number of milliseconds as a duration.
pub(super) fn milliseconds(count: u32) -> Duration {
    Duration::from_millis(count.into())
}

/// A time in milliseconds, or in seconds from one second on.
pub(super) struct DurationText(pub(super) Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs_f64() {
            seconds if seconds < 1.0 => write!(f, "{:.1} ms", seconds * 1000.0),
            seconds => write!(f, "{seconds:.1} s"),
        }
    }
}

/// Returns `192.0.2.1:22` or `[2001:db8::1]:22`.
fn end(endpoint: Endpoint) -> String {
    std::net::SocketAddr::new(endpoint.address, endpoint.port).to_string()
}

fn product(facts: Option<&ProductFacts>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(ProductFacts { product: Some(product), version, .. }) = facts else { return Ok(()) };
    match version {
        Some(version) => write!(f, "  ({} {})", EscapedText(product), EscapedText(version)),
        None => write!(f, "  ({})", EscapedText(product)),
    }
}

fn stats(facts: &StatsFacts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "stats   after {:.1} s", facts.uptime.as_secs_f64())?;
    for (path, value) in facts.counters.iter().filter(|(_, value)| *value != 0) {
        write!(f, "  {path}={value}")?;
    }
    Ok(())
}

pub(super) fn severity_colour(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "1;31",
        Severity::High => "31",
        Severity::Medium => "33",
        Severity::Low => "36",
        Severity::Info => "2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::event::{
        DropReason, EventSource, FlowContext, PacketHeader, ResetFacts, ResetOutcome, Timestamp,
        TransportProtocol,
    };

    fn event(kind: EventKind) -> Event {
        let end = |address: &str, port| Endpoint { address: address.parse().unwrap(), port };
        let endpoints = FlowEndpoints { client: end("2001:db8::1", 50000), server: end("2001:db8::2", 22) };
        Event {
            timestamp: Timestamp::from_nanos(1_769_860_800_123_456_789),
            source: EventSource::Guard,
            flow: Some(FlowContext {
                id: 1,
                transport: TransportProtocol::Tcp,
                endpoints,
                from: None,
                interface: None,
                vlan: Vec::new(),
                packet_number: None,
                transaction: None,
                protocol: None,
                established: None,
                midstream: false,
            }),
            kind,
        }
    }

    fn line(kind: EventKind, colour: ColourMode) -> String {
        let mut out = Vec::new();
        TextFormat::new(colour).event(&event(kind), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn ssh(banner: &str) -> EventKind {
        let side = SshSide { banner: banner.to_owned(), ..SshSide::default() };
        EventKind::Application(ApplicationFacts::Ssh(Arc::new(SshFacts {
            client: None,
            server: Some(side.into()),
        })))
    }

    #[test]
    fn a_line_says_when_who_and_what() {
        assert_eq!(
            line(ssh("SSH-2.0-OpenSSH_9.2p1"), ColourMode::Never),
            "2026-01-31 12:00:00.123 ssh     [2001:db8::1]:50000 > [2001:db8::2]:22  server SSH-2.0-OpenSSH_9.2p1\n"
        );
    }

    #[test]
    fn a_drop_says_which_resets_left() {
        let dropped = |to_client| {
            let resets = Some(Box::new(ResetFacts { to_client, to_server: ResetOutcome::Bridged }));
            let reason = DropReason::Rules;
            let header = PacketHeader::default();
            line(
                EventKind::Drop(DropFacts { reason, rule: None, rejected: true, resets, header }),
                ColourMode::Never,
            )
        };
        assert!(dropped(ResetOutcome::Routed).ends_with(", rules, both ends reset\n"));
        let failed = dropped(ResetOutcome::Failed("Network is unreachable".to_owned()));
        assert!(failed.ends_with(", rules, no reset to the client: Network is unreachable\n"), "{failed}");
    }

    #[test]
    fn a_banner_cannot_command_the_terminal() {
        let hostile = line(ssh("SSH-2.0-x\x1b[2J\r\n12:00:00 forged"), ColourMode::Never);
        assert!(!hostile.contains('\x1b'));
        assert_eq!(hostile.matches('\n').count(), 1);
    }

    #[test]
    fn colours_only_where_asked_for() {
        let facts = ConnectFacts {
            state: PortState::Open,
            reason: "".into(),
            said: String::new(),
            round_trip: None,
            waited_ms: None,
        };
        let plain = line(EventKind::Connect(facts.clone()), ColourMode::Never);
        assert!(plain.ends_with("[2001:db8::2]:22  open\n"), "{plain:?}");
        assert!(line(EventKind::Connect(facts), ColourMode::Always).contains("\x1b[32mopen"));
    }
}
