//! The engine between a raw end and a model of a host, in one process and on a clock of its own.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bannerwall::workbench::engine::{AnomalyPolicy, Checksums, Decision, Engine, EngineConfig, PacketInput};
use bannerwall::workbench::event::{Application, Event, EventKind, Timestamp};
use bannerwall::workbench::rules::RuleSet;
use bannerwall_test_support::raw::{
    Cargo, Flags, Hostile, Medium, Moods, Packet, RawEnd, Received, Receiver, Role,
};

static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    let parsed = RuleSet::parse("differential.toml", Cargo::RULES).expect("rules without errors");
    Arc::new(parsed.rules)
});

/// Octets of a packet that the engine is shown at first, as the guard's queue does.
const COPY_RANGE: usize = 512;

/// What the last link takes, and the hop limit that does not get over it.
const LINK: usize = 1_280;
const EXPIRES: u8 = 2;

/// Where the raw end's data begins: sometimes just before the numbers begin anew.
pub(crate) fn start(hostile: &Hostile) -> u32 {
    if hostile.seed & 12 == 0 { u32::MAX - 20 } else { 1_000_000 }
}

/// What came of a sequence.
pub(crate) struct Verdict {
    pub(crate) software: Option<Vec<u8>>,
    pub(crate) failure: Option<&'static str>,
}

/// The engine (unless there is none) between a raw end and a model of a host.
pub(crate) struct Bench {
    engine: Option<Engine>,
    events: Vec<Event>,
    receiver: Receiver,
    inbox: VecDeque<Vec<u8>>,
    now: Timestamp,
    /// Whether decided flows are left to the kernel, and what it was told.
    offloads: bool,
    offloaded: Option<bool>,
    local: SocketAddr,
    remote: SocketAddr,
    start: u32,
    log: Option<Vec<String>>,
}

impl Bench {
    pub(crate) fn new(hostile: &Hostile, is_loud: bool) -> Self {
        let on_anomaly = AnomalyPolicy::default();
        let config = EngineConfig { enforce: true, on_anomaly, flow_limit: 64, ..EngineConfig::default() };
        let engine = Engine::new(config, Arc::clone(&RULES), None);
        let moods = Moods::ALL[usize::try_from(hostile.seed & 3).expect("two bits")];
        Self::with(hostile, Some(engine), moods, is_loud)
    }

    fn with(hostile: &Hostile, engine: Option<Engine>, moods: Moods, is_loud: bool) -> Self {
        let address = |v4: &str, v6: &str| if hostile.v6 { v6.parse() } else { v4.parse() };
        let local = address("203.0.113.7:40000", "[2001:db8:3::7]:40000").expect("an address");
        let remote = address("198.51.100.130:2222", "[2001:db8:2::2]:2222").expect("an address");
        let talk = hostile.cargo.talk(hostile.role);
        let mut bench = Self {
            engine,
            events: Vec::new(),
            receiver: Receiver::new(hostile.role, remote, local, talk, moods),
            inbox: VecDeque::new(),
            now: Timestamp::from_nanos(1_000_000_000_000),
            offloads: hostile.seed & 32 == 0,
            offloaded: None,
            local,
            remote,
            start: start(hostile),
            log: is_loud.then(Vec::new),
        };
        if hostile.role == Role::Server {
            let first = bench.receiver.connect();
            bench.return_all(&first);
        }
        bench
    }

    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.local, self.remote)
    }

    /// What comes of it all, with a trace.
    pub(crate) fn conclude(&mut self, hostile: &Hostile) -> (Verdict, String) {
        let now = self.now;
        if let Some(engine) = &mut self.engine {
            engine.finish(now, &mut self.events);
        }
        let read = self.receiver.read();
        let software = hostile.cargo.software(hostile.role, read);
        let failure = super::judge(hostile, read, |software| self.has_told(software));
        let mut trace = self.log.take().unwrap_or_default();
        trace.push(format!("= \"{}\"", read.escape_ascii()));
        trace.extend(self.events.iter().map(|event| format!("! {:?}", event.kind)));
        (Verdict { software, failure }, trace.join("\n"))
    }

    fn has_told(&self, software: &str) -> bool {
        self.events.iter().any(|event| match &event.kind {
            EventKind::Application(Application::Ssh(facts)) => [&facts.client, &facts.server]
                .into_iter()
                .flatten()
                .any(|side| side.software_version == software),
            EventKind::Application(Application::Http(facts)) => {
                let request = facts.request.iter().flat_map(|request| &request.headers);
                let response = facts.response.iter().flat_map(|response| &response.headers);
                request.chain(response).any(|field| field.value == software)
            }
            _ => false,
        })
    }

    /// Whether the guard lets a packet through.
    fn passes(&mut self, packet: &mut [u8]) -> bool {
        let parsed = Received::parse(packet);
        let is_syn = parsed.as_ref().is_some_and(|packet| packet.has(Flags::SYN));
        let (decision, passes) = match (self.offloaded, &mut self.engine) {
            (_, None) => (None, true),
            // The hook shows every SYN, so that a new connection is not taken for a decided one.
            (Some(passes), _) if !is_syn => (None, passes),
            (_, Some(engine)) => {
                self.now = self.now.after(Duration::from_micros(100));
                let decision = inspect(engine, self.now, packet, &mut self.events);
                let passes = match decision {
                    Decision::Undecided
                    | Decision::Release
                    | Decision::Stand
                    | Decision::Keep
                    | Decision::Regain => true,
                    Decision::Patch(patch) => patch.apply(packet),
                    Decision::Pass => {
                        self.offloaded = self.offloads.then_some(true);
                        true
                    }
                    Decision::More { .. } | Decision::Drop => false,
                    Decision::Block | Decision::Reject(_) => {
                        self.offloaded = self.offloads.then_some(false);
                        false
                    }
                };
                (Some(decision), passes)
            }
        };
        if let Some(log) = &mut self.log {
            let text = parsed
                .map_or_else(|| "no TCP".to_owned(), |packet| describe(&packet, self.local, self.start));
            log.push(format!("{text} -> {decision:?}, {}", if passes { "through" } else { "stopped" }));
        }
        passes
    }

    /// Brings the host's packets to the raw end.
    fn return_all(&mut self, packets: &[Packet]) {
        for packet in packets {
            let mut octets = packet.build();
            if self.passes(&mut octets) {
                self.inbox.push_back(octets);
            }
        }
    }
}

fn describe(packet: &Received, local: SocketAddr, start: u32) -> String {
    let peer_start = 5_000_001;
    if packet.source == local {
        format!("> {}", packet.describe(start, peer_start))
    } else {
        format!("< {}", packet.describe(peer_start, start))
    }
}

/// Shows a packet to the engine as the guard's queue does: cut, and whole if it asks for more.
fn inspect(engine: &mut Engine, now: Timestamp, packet: &[u8], events: &mut Vec<Event>) -> Decision {
    let mut input = PacketInput {
        now,
        ip: &packet[..packet.len().min(COPY_RANGE)],
        wire_length: packet.len(),
        checksums: Checksums::Verify,
        interface: None,
        vlan: &[],
        packet_number: None,
    };
    let decision = engine.inspect(&input, events).decision;
    if !matches!(decision, Decision::More { .. }) {
        return decision;
    }
    input.ip = packet;
    engine.inspect(&input, events).decision
}

impl Medium for Bench {
    fn transmit(&mut self, packet: &[u8]) {
        let mut packet = packet.to_vec();
        if !self.passes(&mut packet) {
            return;
        }
        let Some(received) = Received::parse(&packet) else { return };
        if received.hop_limit > EXPIRES && packet.len() <= LINK {
            let replies = self.receiver.take(&received);
            self.return_all(&replies);
        }
    }

    fn receive(&mut self, wait: Duration) -> Option<Vec<u8>> {
        let packet = self.inbox.pop_front();
        if packet.is_none() {
            self.now = self.now.after(wait);
        }
        packet
    }

    fn pause(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }
}

/// What the model's application reads of a sequence where no guard is between.
pub(crate) fn read_without_guard(seed: u64, moods: Moods) -> Vec<u8> {
    let mut hostile = Hostile::new(seed);
    let bench = Bench::with(&hostile, None, moods, false);
    let (local, remote) = bench.addresses();
    let mut end = RawEnd::new(bench, hostile.role, local, remote, start(&hostile)).quiet();
    hostile.play(&mut end, false);
    end.medium.receiver.read().to_vec()
}
