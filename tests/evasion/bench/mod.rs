//! The engine between a raw end and a model of a host, in one process and on a clock of its own.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bannerwall_inspect::engine::{AnomalyPolicy, ChecksumState, Decision, Engine, EngineConfig, PacketInput};
use bannerwall_inspect::event::{ApplicationFacts, Event, EventKind, Timestamp};
use bannerwall_inspect::rules::RuleSet;
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
    /// Packets that the raw end has sent, and where the host stands.
    sent: usize,
    expects: u32,
    says: u32,
    disturbance: Option<(usize, Disturbance)>,
}

/// What happens at one moment, step by step.
pub(crate) type Disturbance = &'static [Step];

/// One step of it.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// Another engine, which knows nothing, takes the place of the first one before the message has begun.
    Restart,
    /// Other connections fill the flow table.
    Crowd,
    /// Time passes.
    Silence(Duration),
    /// The raw end sends a packet, at the place that the host expects, which expires on its way.
    Expiring(fn(Packet) -> Packet),
}

/// How often a packet is sent of which only a probe goes on.
const RETRANSMISSIONS: usize = 4;

/// Connections that more than fill their share of the engine's table.
const CROWD: usize = 16;

fn engine(on_anomaly: AnomalyPolicy) -> Engine {
    let flow_limit = 2 * CROWD;
    let config = EngineConfig { enforce: true, on_anomaly, flow_limit, ..EngineConfig::default() };
    Engine::new(config, Arc::clone(&RULES), None)
}

fn moods(hostile: &Hostile) -> Moods {
    Moods::ALL[usize::try_from(hostile.seed & 3).expect("two bits")]
}

impl Bench {
    pub(crate) fn new(hostile: &Hostile, is_loud: bool) -> Self {
        Self::with(hostile, Some(engine(AnomalyPolicy::default())), moods(hostile), is_loud)
    }

    /// With this policy (without one nothing is between the ends), and disturbed before the packet of this
    /// number.
    pub(crate) fn disturbed(
        hostile: &Hostile,
        policy: Option<&str>,
        disturbance: Option<(usize, Disturbance)>,
        is_loud: bool,
    ) -> Self {
        let engine = policy.map(|policy| engine(policy.parse().expect("a policy")));
        Self { disturbance, ..Self::with(hostile, engine, moods(hostile), is_loud) }
    }

    /// The software that the host's application has read of, and packets that the raw end has sent.
    pub(crate) fn outcome(&self, hostile: &Hostile) -> (Option<Vec<u8>>, usize) {
        (hostile.cargo.software(hostile.role, self.receiver.read()), self.sent)
    }

    /// True if the engine counts what it has forgotten, or reads flows whose beginning it has not seen. A
    /// restart is logged by the program.
    pub(crate) fn reports_gap(&self, steps: Disturbance) -> bool {
        let has_restarted = steps.iter().any(|step| matches!(step, Step::Restart));
        has_restarted
            || self.engine.as_ref().is_some_and(|engine| {
                let counters = engine.counters();
                counters.midstream > 0 || counters.evictions.opening > 0
            })
    }

    fn disturb(&mut self, steps: Disturbance) {
        for step in steps {
            let Some(guard) = &mut self.engine else { return };
            match *step {
                Step::Restart if self.receiver.is_untouched() => *guard = engine(guard.config().on_anomaly),
                Step::Restart => {}
                Step::Silence(time) => self.pause(time.min(self.receiver.patience())),
                Step::Crowd => {
                    for port in (10_000..).take(3 * CROWD) {
                        let stranger = SocketAddr::new(self.local.ip(), port);
                        let syn = Packet::new(stranger, self.remote).flags(Flags::SYN);
                        let mut half = Packet { sequence: 1, ..Packet::new(stranger, self.remote) };
                        half.payload = b"GET / HTTP/1.1\r\nX: ".to_vec();
                        for packet in [syn, half] {
                            inspect(guard, self.now, &packet.build(), &mut self.events);
                        }
                    }
                }
                Step::Expiring(change) => {
                    let mut packet = Packet::new(self.local, self.remote).flags(Flags::ACK);
                    (packet.sequence, packet.acknowledgement) = (self.expects, self.says);
                    let mut octets = Packet { hop_limit: EXPIRES, ..change(packet) }.build();
                    self.passes(&mut octets);
                }
            }
        }
    }

    fn with(hostile: &Hostile, engine: Option<Engine>, moods: Moods, is_loud: bool) -> Self {
        let address = |v4: &str, v6: &str| if hostile.v6 { v6.parse() } else { v4.parse() };
        let mut local: SocketAddr =
            address("203.0.113.7:40000", "[2001:db8:3::7]:40000").expect("an address");
        let mut remote: SocketAddr =
            address("198.51.100.130:2222", "[2001:db8:2::2]:2222").expect("an address");
        if hostile.role == Role::Server {
            local.set_port(2222);
            remote.set_port(40_000);
        }
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
            sent: 0,
            expects: start(hostile),
            says: 0,
            disturbance: None,
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
        let failure = crate::differential::judge(hostile, read, |software| self.has_told(software));
        let mut trace = self.log.take().unwrap_or_default();
        trace.push(format!("= \"{}\"", read.escape_ascii()));
        trace.extend(self.events.iter().map(|event| format!("! {:?}", event.kind)));
        (Verdict { software, failure }, trace.join("\n"))
    }

    fn has_told(&self, software: &str) -> bool {
        self.events.iter().any(|event| match &event.kind {
            EventKind::Application(ApplicationFacts::Ssh(facts)) => [&facts.client, &facts.server]
                .into_iter()
                .flatten()
                .any(|side| side.software_version == software),
            EventKind::Application(ApplicationFacts::Http(facts)) => {
                let request = facts.request.iter().flat_map(|request| &request.headers);
                let response = facts.response.iter().flat_map(|response| &response.headers);
                request.chain(response).any(|field| field.value == software)
            }
            _ => false,
        })
    }

    /// Whether the guard lets a packet through.
    fn passes(&mut self, packet: &mut Vec<u8>) -> bool {
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
                    Decision::Patch(ref patch) => {
                        let patched = patch.apply(packet, packet.len());
                        patched.map(|patched| *packet = patched).is_some()
                    }
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

    /// Shows the engine a packet of the raw end and brings it to the host; false if only a probe goes on.
    fn deliver(&mut self, sent: &[u8]) -> bool {
        let mut packet = sent.to_vec();
        if !self.passes(&mut packet) {
            return true;
        }
        let Some(received) = Received::parse(&packet) else { return true };
        if received.hop_limit > EXPIRES && packet.len() <= LINK {
            let replies = self.receiver.take(&received);
            self.return_all(&replies);
        }
        packet.len() == sent.len()
    }

    /// Brings the host's packets to the raw end.
    fn return_all(&mut self, packets: &[Packet]) {
        for packet in packets {
            let length = packet.payload.len() + usize::from(packet.flags & (Flags::SYN | Flags::FIN) != 0);
            self.says = packet.sequence.wrapping_add(u32::try_from(length).expect("one packet"));
            if packet.flags & Flags::ACK != 0 {
                self.expects = packet.acknowledgement;
            }
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
        checksums: ChecksumState::Verify,
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
        if let Some((_, steps)) = self.disturbance.take_if(|(at, _)| *at == self.sent) {
            self.disturb(steps);
        }
        self.sent += 1;
        // Linux sends again what was not acknowledged, here at once.
        for _ in 0..RETRANSMISSIONS {
            if self.deliver(packet) {
                return;
            }
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
        if let Some(engine) = &mut self.engine {
            engine.tick(self.now, &mut self.events);
        }
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
