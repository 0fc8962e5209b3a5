//! `bannerwall rules test --flow`: runs one simulated connection through the guard's engine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::ValueEnum;
use etherparse::PacketBuilder;

use crate::engine::{AnomalyPolicy, ChecksumState, Decision, Engine, EngineConfig, PacketInput};
use crate::event::{Endpoint, Event, EventKind, FlowEndpoints, RuleAction, Side, Timestamp};
use crate::rules::{Policy, RuleSet};

/// Client's port: no rule refers to it.
const CLIENT_PORT: u16 = 49_152;

/// Size of a segment's payload, in bytes.
const SEGMENT: usize = 1_400;

/// Limit of a simulated silence.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Both ends of the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowEnds {
    client: SocketAddr,
    server: SocketAddr,
}

/// Event of the simulated connection.
#[derive(Debug, Clone)]
pub(super) enum FlowTestStep {
    /// Data from one side.
    Say(Side, Vec<u8>),
    /// Silence of both sides for this time.
    Wait(Duration),
}

/// Verdict about the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FlowTestVerdict {
    /// The connection passes without an alert.
    Pass,
    /// The connection passes with an alert.
    Alert,
    /// The connection is dropped.
    Drop,
    /// The connection is dropped, and both ends get a reset.
    Reject,
}

impl FlowTestVerdict {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Alert => "alert",
            Self::Drop => "drop",
            Self::Reject => "reject",
        }
    }
}

/// Result of a simulated connection.
pub(super) struct FlowTestResult<'r> {
    pub(super) steps: Vec<FlowStepResult>,
    pub(super) verdict: FlowTestVerdict,
    /// Policy of the connection's port, if there is one.
    pub(super) policy: Option<&'r Policy>,
}

/// Result of one step.
pub(super) struct FlowStepResult {
    pub(super) said: String,
    pub(super) octets: usize,
    /// Number of passed bytes.
    pub(super) passed: usize,
    pub(super) decision: &'static str,
    /// Alerts: their rule or policy, with its place in the file.
    pub(super) because: Vec<String>,
}

/// Parses `203.0.113.7 > 192.0.2.1:22`, `[2001:db8::1]:22` or `22`; a missing end gets a documentation
/// address.
impl FromStr for FlowEnds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, anyhow::Error> {
        let (client, server) = match text.split_once('>') {
            Some((client, server)) => (Some(client.trim()), server.trim()),
            None => (None, text.trim()),
        };
        let server = match server.strip_prefix(':').unwrap_or(server).parse::<u16>() {
            Ok(port) => SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), port),
            Err(_) => server
                .parse()
                .with_context(|| format!("`{server}` is not an address and port, such as 192.0.2.1:22"))?,
        };
        let address = match client {
            Some(client) => {
                client.parse::<IpAddr>().with_context(|| format!("`{client}` is not an address"))?
            }
            None if server.is_ipv4() => Ipv4Addr::new(203, 0, 113, 1).into(),
            None => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xc1).into(),
        };
        if address.is_ipv4() != server.is_ipv4() {
            bail!("one end is IPv4 and the other IPv6");
        }
        Ok(Self { client: SocketAddr::new(address, CLIENT_PORT), server })
    }
}

/// Parses `client: TEXT`, `server: TEXT` or `wait: 10s`.
impl FromStr for FlowTestStep {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, anyhow::Error> {
        let (who, what) = text
            .split_once(':')
            .ok_or_else(|| anyhow!("a step is `client: TEXT`, `server: TEXT` or `wait: 10s`"))?;
        let what = what.strip_prefix(' ').unwrap_or(what);
        match who.trim() {
            "client" => Ok(Self::Say(Side::Client, octets(what)?)),
            "server" => Ok(Self::Say(Side::Server, octets(what)?)),
            "wait" => {
                let time = super::flags::duration(what.trim())?;
                Ok(Self::Wait(time.min(LONGEST_WAIT)))
            }
            other => bail!("unknown step `{other}`: a step is `client: …`, `server: …` or `wait: …`"),
        }
    }
}

/// Returns text with `\r`, `\n`, `\t`, `\0`, `\\` and `\xHH` as bytes.
fn octets(text: &str) -> Result<Vec<u8>, anyhow::Error> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            octets.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        octets.push(match rest.next() {
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16)
                    .with_context(|| format!("`\\x{digits}` is not a byte; write two hexadecimal digits"))?
            }
            other => bail!("unknown escape `\\{}`", other.map(String::from).unwrap_or_default()),
        });
    }
    Ok(octets)
}

/// Runs a connection through an enforcing engine.
pub(super) fn run<'r>(
    rules: &'r Arc<RuleSet>,
    ends: &FlowEnds,
    steps: &[FlowTestStep],
) -> FlowTestResult<'r> {
    let end = |address: SocketAddr| Endpoint { address: address.ip(), port: address.port() };
    let both = FlowEndpoints { client: end(ends.client), server: end(ends.server) };
    let config =
        EngineConfig { enforce: true, on_anomaly: AnomalyPolicy::default(), ..EngineConfig::default() };
    let mut wire = SimulatedConnection {
        engine: Engine::new(config, Arc::clone(rules), None),
        events: Vec::new(),
        ends: *ends,
        now: Timestamp::from_nanos(1_000_000_000),
        next: [1_000, 5_000],
        rejected: false,
    };
    wire.handshake();
    let mut tried = Vec::new();
    for step in steps {
        tried.push(wire.take(step, rules));
    }
    let alerted = wire.events.iter().any(|event| matches!(event.kind, EventKind::Alert(_)));
    let dropped = wire.events.iter().any(|event| matches!(event.kind, EventKind::Drop(_)));
    let verdict = match (wire.rejected, dropped, alerted) {
        (true, ..) => FlowTestVerdict::Reject,
        (_, true, _) => FlowTestVerdict::Drop,
        (_, _, true) => FlowTestVerdict::Alert,
        _ => FlowTestVerdict::Pass,
    };
    FlowTestResult { steps: tried, verdict, policy: rules.policy(&both).map(AsRef::as_ref) }
}

/// The connection and the engine that inspects it.
struct SimulatedConnection {
    engine: Engine,
    events: Vec<Event>,
    ends: FlowEnds,
    now: Timestamp,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
    rejected: bool,
}

impl SimulatedConnection {
    fn handshake(&mut self) {
        let [client, server] = self.next;
        let (syn, answer) = (client.wrapping_sub(1), server.wrapping_sub(1));
        self.send(Side::Client, syn, None, true, &[]);
        self.send(Side::Server, answer, Some(client), true, &[]);
        self.send(Side::Client, client, Some(server), false, &[]);
    }

    fn take(&mut self, step: &FlowTestStep, rules: &RuleSet) -> FlowStepResult {
        let known = self.events.len();
        let (said, octets, passed, mut stopped) = match step {
            FlowTestStep::Wait(time) => {
                self.now = self.now.after(*time);
                self.engine.tick(self.now, &mut self.events);
                // After a rejected silence the reset goes out with the next packet, which this trial does not
                // send.
                let new = self.events.get(known..).unwrap_or_default();
                let refused = new.iter().any(is_rejection);
                self.rejected |= refused;
                (format!("silence for {} s", time.as_secs()), 0, 0, refused)
            }
            FlowTestStep::Say(side, octets) => {
                let passed = self.say(*side, octets);
                let said = format!("{} {}", side.name(), octets.escape_ascii());
                (said, octets.len(), passed, passed < octets.len())
            }
        };
        let new = self.events.get(known..).unwrap_or_default();
        stopped |= new.iter().any(|event| matches!(event.kind, EventKind::Drop(_)));
        let because = new.iter().filter_map(|event| describe_cause(event, rules)).collect();
        FlowStepResult { said, octets, passed, decision: if stopped { "stopped" } else { "passes" }, because }
    }

    /// Sends bytes in segments, and returns the number of passed bytes.
    fn say(&mut self, from: Side, octets: &[u8]) -> usize {
        let mut passed = 0;
        for piece in octets.chunks(SEGMENT) {
            let [client, server] = self.next;
            let (own, peer) = if from == Side::Client { (client, server) } else { (server, client) };
            let decision = self.send(from, own, Some(peer), false, piece);
            self.rejected |= matches!(decision, Decision::Reject(_));
            if !matches!(decision, Decision::Undecided | Decision::Pass) {
                break;
            }
            passed += piece.len();
            let next = if from == Side::Client { &mut self.next[0] } else { &mut self.next[1] };
            *next = next.wrapping_add(u32::try_from(piece.len()).unwrap_or_default());
        }
        // The acknowledgement lets the engine treat the passed bytes as received.
        let [client, server] = self.next;
        let (own, peer) = if from == Side::Client { (server, client) } else { (client, server) };
        self.send(from.other(), own, Some(peer), false, &[]);
        passed
    }

    fn send(
        &mut self,
        from: Side,
        sequence: u32,
        acknowledges: Option<u32>,
        syn: bool,
        octets: &[u8],
    ) -> Decision {
        let (source, destination) = match from {
            Side::Client => (self.ends.client, self.ends.server),
            Side::Server => (self.ends.server, self.ends.client),
        };
        let packet = packet(source, destination, (sequence, acknowledges, syn), octets);
        self.now = self.now.after(Duration::from_millis(1));
        let input = PacketInput {
            now: self.now,
            ip: &packet,
            wire_length: packet.len(),
            checksums: ChecksumState::NotReady,
            interface: None,
            vlan: &[],
            packet_number: None,
        };
        self.engine.inspect(&input, &mut self.events).decision
    }
}

/// Builds a whole IP packet.
fn packet(
    source: SocketAddr,
    destination: SocketAddr,
    (sequence, acknowledges, syn): (u32, Option<u32>, bool),
    octets: &[u8],
) -> Vec<u8> {
    let ip = match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), 64),
        (from, to) => PacketBuilder::ipv6(six(from), six(to), 64),
    };
    let mut tcp = ip.tcp(source.port(), destination.port(), sequence, u16::MAX);
    if let Some(number) = acknowledges {
        tcp = tcp.ack(number);
    }
    if syn {
        tcp = tcp.syn();
    }
    let mut packet = Vec::with_capacity(tcp.size(octets.len()));
    // `write` fails only if a payload exceeds the limit of IP, and SEGMENT is far below it.
    let _ = tcp.write(&mut packet, octets);
    packet
}

fn six(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// True if the alert resets the connection.
fn is_rejection(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Alert(facts) if facts.blocked && facts.action == RuleAction::Reject)
}

/// Describes the rule or policy behind an alert, with its place in the file.
fn describe_cause(event: &Event, rules: &RuleSet) -> Option<String> {
    let EventKind::Alert(facts) = &event.kind else { return None };
    let action = facts.action.name();
    if let Some(policy) = rules.policies().iter().find(|policy| policy.id() == facts.rule) {
        let what = match &facts.application {
            crate::event::ApplicationFacts::Other(facts) => facts.name,
            said => said.protocol().name(),
        };
        return Some(format!("{action} by the policy {policy}: {what} is not {}", policy.allows()));
    }
    let rule = rules.rules().iter().find(|rule| rule.id() == facts.rule)?;
    Some(format!("{action} by the rule `{}` ({}:{}): {}", rule.id(), rule.file(), rule.place(), rule.title()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_and_steps_are_read_or_refused() {
        for text in ["22", ":22", "192.0.2.1:22", "[2001:db8::1]:22", "203.0.113.7 > 192.0.2.1:22"] {
            assert!(text.parse::<FlowEnds>().is_ok(), "{text}");
        }
        for text in ["", "x", "192.0.2.1", "2001:db8::1 > 192.0.2.1:22", "70000", "a > 192.0.2.1:22"] {
            assert!(text.parse::<FlowEnds>().is_err(), "{text}");
        }
        assert!(
            matches!("server: a\\x00\\n".parse(), Ok(FlowTestStep::Say(Side::Server, said)) if said == b"a\0\n")
        );
        assert!(
            matches!("wait: 10s".parse(), Ok(FlowTestStep::Wait(time)) if time == Duration::from_secs(10))
        );
        for text in ["server", "me: x", "wait: long", "client: \\q", "client: \\xg1", "client: \\"] {
            assert!(text.parse::<FlowTestStep>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_connection_is_tried_as_a_guard_would_see_it() {
        let text = "[[policy]]\nport = 22\nsource = \"203.0.113.0/24\"\nallow = \"ssh\"\notherwise = \"reject\"\nsilent_after = \"5s\"\n";
        let rules = Arc::new(RuleSet::parse("a.toml", text).unwrap().rules);
        for (flow, said, verdict) in [
            ("22", &["server: SSH-2.0-x\\r\\n", "client: SSH-2.0-y\\r\\n"][..], FlowTestVerdict::Pass),
            ("22", &["server: RFB 003.008\\n"], FlowTestVerdict::Reject),
            ("192.0.2.9 > 192.0.2.1:22", &["server: RFB 003.008\\n"], FlowTestVerdict::Pass),
            ("[2001:db8::1]:22", &["server: RFB 003.008\\n"], FlowTestVerdict::Pass),
            ("22", &["wait: 10s"], FlowTestVerdict::Reject),
            ("22", &["wait: 1s", "client: SSH-"], FlowTestVerdict::Pass),
        ] {
            let steps: Vec<FlowTestStep> = said.iter().map(|text| text.parse().unwrap()).collect();
            let trial = run(&rules, &flow.parse().unwrap(), &steps);
            assert_eq!(trial.verdict, verdict, "{flow} {said:?}");
        }
    }
}
