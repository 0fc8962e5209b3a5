//! Hand-made conversations for the engine's tests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{
    AnomalyAction, AnomalyPolicy, ChecksumState, Decision, Engine, EngineConfig, InspectionResult,
    PacketInput,
};
use crate::event::{ApplicationFacts, Endpoint, Event, EventKind, Timestamp};
use crate::packet::TcpFlags;
use crate::packet::testing::{SegmentBuilder, endpoint};
use crate::rules::RuleSet;

/// Forbids one agent.
pub(super) const NO_SQLMAP: &str = "[[rule]]\nid = \"no-sqlmap\"\ntitle = \"t\"\nprotocol = \"http\"\nfrom = \"client\"\n\
                                    match.\"header.user-agent\" = '^sqlmap/'\naction = \"drop\"\nseverity = \"high\"\n";

/// Forbids a name in client hellos, and an SSH identification of either side.
pub(super) const NO_BAD_TLS_OR_SSH: &str = r#"
[[rule]]
id = "name"
protocol = "tls"
from = "client"
match.sni = '^bad'
action = "drop"

[[rule]]
id = "ssh"
protocol = "ssh"
from = "either"
match.software = '^bad'
action = "drop"
"#;

/// An engine to be, and whether it sees IPv4 or IPv6.
pub(super) struct Setup {
    pub(super) config: EngineConfig,
    rules: RuleSet,
    v6: bool,
}

impl Setup {
    pub(super) fn enforcing(rules: &str) -> Self {
        let rules = RuleSet::parse("test.toml", rules).expect("rules without errors").rules;
        let on_anomaly = AnomalyPolicy::default();
        Self {
            config: EngineConfig { enforce: true, on_anomaly, ..EngineConfig::default() },
            rules,
            v6: false,
        }
    }

    pub(super) fn monitoring(rules: &str) -> Self {
        let mut setup = Self::enforcing(rules);
        setup.config.enforce = false;
        setup.config.on_anomaly = AnomalyPolicy::all(AnomalyAction::Alert);
        setup
    }

    pub(super) fn v6(mut self, v6: bool) -> Self {
        self.v6 = v6;
        self
    }

    /// A conversation whose handshake was not seen.
    pub(super) fn midstream(self) -> Conversation {
        let (client, server) = if self.v6 {
            ("[2001:db8::1]:40000", "[2001:db8::2]:22")
        } else {
            ("192.0.2.1:40000", "198.51.100.2:22")
        };
        Conversation {
            engine: Engine::new(self.config, Arc::new(self.rules), None),
            events: Vec::new(),
            now: Timestamp::from_nanos(1_000_000_000_000),
            client: endpoint(client),
            server: endpoint(server),
            next: [1000, 5000],
            checksums: ChecksumState::Verify,
            strangers: 0,
        }
    }

    /// A conversation whose handshake was not seen, and whose ends have said where they stand.
    pub(super) fn picked_up(self) -> Conversation {
        let mut conversation = self.midstream();
        for from_client in [true, false] {
            assert_eq!(conversation.acknowledge(from_client), Decision::Undecided);
        }
        conversation
    }

    /// A conversation behind its handshake.
    pub(super) fn open(self) -> Conversation {
        let mut conversation = self.midstream();
        conversation.handshake();
        conversation
    }
}

/// Two ends and the engine between them; what they send arrives in order unless a test says otherwise.
pub(super) struct Conversation {
    pub(super) engine: Engine,
    pub(super) events: Vec<Event>,
    pub(super) now: Timestamp,
    client: Endpoint,
    server: Endpoint,
    /// What client and server send next.
    pub(super) next: [u32; 2],
    /// Strangers that came.
    strangers: u16,
    /// Whether packets' checksums are there to be verified.
    pub(super) checksums: ChecksumState,
}

/// Another client of the same engine.
pub(super) struct Other<'c>(&'c mut Conversation);

impl Other<'_> {
    pub(super) fn syn(&mut self) -> Decision {
        let source = Endpoint { port: 41_000, ..self.0.client };
        let packet = SegmentBuilder::new(source, self.0.server).flags(TcpFlags::SYN).build();
        self.0.inspect_cut(&packet, packet.len()).decision
    }
}

impl Conversation {
    pub(super) fn other(&mut self) -> Other<'_> {
        Other(self)
    }

    /// The same client connects from another port, to this server.
    pub(super) fn reopen(&mut self, server: IpAddr) {
        self.client.port += 1;
        self.server.address = server;
        self.handshake();
    }

    pub(super) fn handshake(&mut self) {
        let [client, server] = self.next;
        let syn = self.segment(true).sequence(client.wrapping_sub(1)).flags(TcpFlags::SYN);
        let answer = self
            .segment(false)
            .sequence(server.wrapping_sub(1))
            .acknowledgement(client)
            .flags(TcpFlags::SYN | TcpFlags::ACK);
        for segment in [syn, answer, self.segment(true)] {
            assert_eq!(self.show(&segment), Decision::Undecided);
        }
    }

    /// A segment of one end at its next sequence number.
    pub(super) fn segment(&self, from_client: bool) -> SegmentBuilder {
        let [client, server] = self.next;
        if from_client {
            SegmentBuilder::new(self.client, self.server).sequence(client).acknowledgement(server)
        } else {
            SegmentBuilder::new(self.server, self.client).sequence(server).acknowledgement(client)
        }
    }

    pub(super) fn server_segment(&self, payload: &[u8]) -> SegmentBuilder {
        self.segment(false).payload(payload)
    }

    pub(super) fn server_packet(&self, payload: &[u8]) -> Vec<u8> {
        self.server_segment(payload).build()
    }

    /// Sends payload with these flags.
    pub(super) fn send(&mut self, from_client: bool, flags: u8, payload: &[u8]) -> Decision {
        let segment = self.segment(from_client).flags(flags).payload(payload);
        let next = &mut self.next[usize::from(!from_client)];
        *next = next.wrapping_add(u32::try_from(payload.len()).unwrap());
        self.show(&segment)
    }

    /// A segment of a connection that nobody has seen before, to this server.
    pub(super) fn stranger(&mut self, flags: u8, payload: &[u8]) -> Decision {
        self.strangers += 1;
        let source = Endpoint { port: 10_000 + self.strangers, ..self.client };
        self.show(&SegmentBuilder::new(source, self.server).flags(flags).payload(payload))
    }

    /// Time goes by, and the engine looks up now and then.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.engine.tick(self.now, &mut self.events);
    }

    /// One end acknowledges all that it was sent.
    pub(super) fn acknowledge(&mut self, from_client: bool) -> Decision {
        self.send(from_client, TcpFlags::ACK, b"")
    }

    pub(super) fn client(&mut self, payload: &[u8]) -> Decision {
        self.send(true, TcpFlags::ACK | TcpFlags::PSH, payload)
    }

    pub(super) fn server(&mut self, payload: &[u8]) -> Decision {
        self.send(false, TcpFlags::ACK | TcpFlags::PSH, payload)
    }

    /// The server sends `count` bytes that never come by here.
    pub(super) fn lose_of_server(&mut self, count: u32) {
        self.next[1] = self.next[1].wrapping_add(count);
    }

    /// The client sends `count` bytes that are shown in another way, or never come by here.
    pub(super) fn lose_of_client(&mut self, count: u32) {
        self.next[0] = self.next[0].wrapping_add(count);
    }

    pub(super) fn client_next(&self) -> u32 {
        self.next[0]
    }

    pub(super) fn server_next(&self) -> u32 {
        self.next[1]
    }

    pub(super) fn client_endpoint(&self) -> Endpoint {
        self.client
    }

    pub(super) fn server_endpoint(&self) -> Endpoint {
        self.server
    }

    /// Shows any segment to the engine.
    pub(super) fn show(&mut self, segment: &SegmentBuilder) -> Decision {
        let packet = segment.build();
        self.inspect_cut(&packet, packet.len()).decision
    }

    /// Shows a segment as a queue with this copy range does: cut, and whole if the engine asks for more.
    pub(super) fn show_cut(&mut self, segment: &SegmentBuilder, copy_range: usize) -> InspectionResult {
        let packet = segment.build();
        let inspected = self.inspect_cut(&packet, packet.len().min(copy_range));
        match inspected.decision {
            Decision::More { .. } => self.inspect_cut(&packet, packet.len()),
            _ => inspected,
        }
    }

    /// Shows the first bytes of a packet to the engine.
    pub(super) fn inspect_cut(&mut self, packet: &[u8], captured: usize) -> InspectionResult {
        self.now = self.now.after(Duration::from_millis(1));
        let input = PacketInput {
            now: self.now,
            ip: &packet[..captured],
            wire_length: packet.len(),
            checksums: self.checksums,
            interface: None,
            vlan: &[],
            packet_number: None,
        };
        self.engine.inspect(&input, &mut self.events)
    }

    /// Sends in segments of `size` bytes, and says whether one was blocked.
    pub(super) fn sends(&mut self, from_client: bool, octets: &[u8], size: usize) -> bool {
        let mut pieces = octets.chunks(size);
        pieces.any(|piece| self.send(from_client, TcpFlags::ACK | TcpFlags::PSH, piece) == Decision::Block)
    }

    /// True if the flow passes, at the latest once the client has said more than is searched for banners.
    pub(super) fn passes_once_searched(&mut self) -> bool {
        if self.acknowledge(true) == Decision::Pass {
            return true;
        }
        (0..40)
            .any(|_| self.acknowledge(false) == Decision::Pass || self.client(&[0; 30_000]) == Decision::Pass)
    }

    /// Names of the anomalies that were told.
    pub(super) fn anomalies(&self) -> Vec<&'static str> {
        let name = |event: &Event| match &event.kind {
            EventKind::Anomaly(facts) => Some(facts.name),
            _ => None,
        };
        self.events.iter().filter_map(name).collect()
    }

    /// Number, target, status and body length of the transactions that were told.
    pub(super) fn transactions(&self) -> Vec<(u32, String, u16, u64)> {
        self.events
            .iter()
            .filter_map(|event| {
                let EventKind::Application(ApplicationFacts::Http(facts)) = &event.kind else { return None };
                let number = event.flow.as_ref()?.transaction?;
                let url = facts.request.as_ref().map(|request| request.url.clone()).unwrap_or_default();
                let (status, length) = facts
                    .response
                    .as_ref()
                    .map_or((0, 0), |response| (response.status, response.body_length));
                Some((number, url, status, length))
            })
            .collect()
    }
}

/// Name of an event's kind; of an application event, the protocol's.
pub(super) fn event_kind(event: &Event) -> &'static str {
    match &event.kind {
        EventKind::Application(said) => said.protocol().name(),
        EventKind::Alert(_) => "alert",
        EventKind::Drop(_) => "drop",
        EventKind::Anomaly(_) => "anomaly",
        EventKind::Flow(_) => "flow",
        EventKind::Connect(_)
        | EventKind::Stats(_)
        | EventKind::Hook(_)
        | EventKind::Ban(_)
        | EventKind::Change(_) => "other",
    }
}
