//! A flow that is forgotten, ended or begun again at any moment of a trick, against a model of the host.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bannerwall_test_support::raw::{Cargo, Flags, Hostile, Medium, Packet, RawEnd, Role};

use crate::bench::{Bench, Disturbance, Step, start};
use crate::tricks::{PENDING, SLOW, Shot, TOO_SLOW, TRICKS, Trick};

/// The default, by what it does.
const DEFAULT: &str = "bad_checksum=drop";

/// Policies, each of which is tried.
const POLICIES: [&str; 3] = [DEFAULT, "alert", "drop"];

/// Disturbances behind which the engine does not know the beginning of a flow. No firewall can decide these
/// tricks then (`crates/inspect/src/engine/evasion/mod.rs`): what it sees is, packet for packet, also an allowed
/// conversation. They may deliver where the engine or its program reports that it has not seen all.
const FORGETFUL: [&str; 4] = ["restart", "restart and SYN here", "crowd", "reset and crowd"];
const UNDECIDABLE: [&str; 2] = [
    // The client answers the server's SYN by SYN and ACK, as a server would.
    "simultaneous open",
    "simultaneous open with the decoy",
];

/// Moments of a long trick that are tried.
const MOMENTS: usize = 24;

const RESET: Step = Step::Expiring(|packet| packet.flags(Flags::RST | Flags::ACK));
const END: Step = Step::Expiring(|packet| packet.flags(Flags::FIN | Flags::ACK));
const AHEAD: Step = Step::Expiring(|packet| Packet {
    sequence: packet.sequence.wrapping_add(3000),
    payload: b"x".to_vec(),
    ..packet
});
const FAR_AHEAD: Step = Step::Expiring(|packet| Packet {
    sequence: packet.sequence.wrapping_add(300_000),
    payload: b"x".to_vec(),
    ..packet
});
const SYN: Step = Step::Expiring(|packet| {
    let sequence = packet.sequence.wrapping_add(0x2000_0000);
    Packet { sequence, acknowledgement: 0, ..packet.flags(Flags::SYN) }
});
/// Makes what follows its first octets.
const SYN_HERE: Step = Step::Expiring(|packet| {
    let sequence = packet.sequence.wrapping_sub(1);
    Packet { sequence, acknowledgement: 0, ..packet.flags(Flags::SYN) }
});
const SYN_ACK: Step = Step::Expiring(|packet| {
    let sequence = packet.sequence.wrapping_add(0x2000_0000);
    Packet { sequence, ..packet.flags(Flags::SYN | Flags::ACK) }
});
const SOON: Step = Step::Silence(Duration::from_secs(21));
const LATE: Step = Step::Silence(Duration::from_secs(4 * 24 * 3600));

/// What happens to the flow.
const DISTURBANCES: [(&str, Disturbance); 13] = [
    ("reset", &[RESET]),
    ("reset, forgotten and ahead", &[RESET, SOON, AHEAD]),
    ("reset and crowd", &[RESET, Step::Crowd, FAR_AHEAD]),
    ("end", &[END, SOON]),
    ("reset and SYN", &[RESET, SOON, SYN_HERE]),
    ("SYN", &[SYN]),
    ("SYN here", &[SYN_HERE, SOON]),
    ("SYN-ACK", &[SYN_ACK]),
    ("ahead", &[AHEAD]),
    ("crowd", &[Step::Crowd, AHEAD]),
    ("late", &[LATE, AHEAD]),
    ("restart", &[Step::Restart]),
    ("restart and SYN here", &[Step::Restart, SYN_HERE]),
];

/// A trick as one end plays it.
#[derive(Clone, Copy)]
struct Row {
    number: usize,
    trick: &'static Trick,
    role: Role,
}

fn rows() -> Vec<Row> {
    let tricks = TRICKS.iter().chain(SLOW).filter(|trick| !PENDING.contains(&trick.name));
    let played = tricks.flat_map(|trick| [Role::Client, Role::Server].map(|role| (trick, role)));
    let played = played.filter(|(trick, role)| trick.ends.includes(*role));
    played.enumerate().map(|(number, (trick, role))| Row { number, trick, role }).collect()
}

impl Row {
    /// The same for the same row, but for what is said.
    fn hostile(self, is_forbidden: bool) -> Hostile {
        let mut hostile = Hostile::new(u64::try_from(self.number).expect("a few"));
        hostile.role = self.role;
        hostile.v6 = self.trick.v6_only;
        hostile.cargo = if self.role == Role::Client { Cargo::Http } else { Cargo::Ssh };
        hostile.truth = hostile.cargo.message(self.role, is_forbidden);
        hostile.decoy = hostile.cargo.message(self.role, false);
        hostile
    }

    /// Plays it, and gives the packets that were sent, and whether the message has arrived.
    fn play(self, bench: &mut Bench, hostile: &Hostile) -> (usize, bool) {
        let (local, remote) = bench.addresses();
        let medium: Box<dyn Medium + '_> = Box::new(&mut *bench);
        let mut end = RawEnd::new(medium, hostile.role, local, remote, start(hostile)).quiet();
        (self.trick.play)(&mut end, Shot { truth: hostile.truth, decoy: hostile.decoy });
        drop(end);
        let (software, sent) = bench.outcome(hostile);
        (sent, software == hostile.cargo.software(hostile.role, hostile.truth))
    }

    /// Whether the message arrives where nothing disturbs it.
    fn arrives(self, policy: Option<&str>, is_forbidden: bool) -> (usize, bool) {
        let hostile = self.hostile(is_forbidden);
        self.play(&mut Bench::disturbed(&hostile, policy, None, false), &hostile)
    }

    /// The moments at which a disturbance brings the forbidden message past the engine, with the trace of the
    /// first.
    fn failures(self) -> Vec<String> {
        let hostile = self.hostile(true);
        let (sent, _) = self.arrives(Some(DEFAULT), true);
        // Some policies let a trick pass.
        let stands = POLICIES.map(|policy| !self.arrives(Some(policy), true).1);
        let mut failures = Vec::new();
        for at in (0..=sent).step_by(sent.div_ceil(MOMENTS).max(1)) {
            for (number, (name, steps)) in DISTURBANCES.into_iter().enumerate() {
                let policy = (at + number + self.number) % POLICIES.len();
                let (stands, policy) = (stands[policy], POLICIES[policy]);
                let waits = steps.iter().any(|step| matches!(step, Step::Silence(_)));
                let is_undecidable = UNDECIDABLE.contains(&self.trick.name) && FORGETFUL.contains(&name);
                // `alert` lets pass what takes too long.
                if waits && policy == "alert" {
                    continue;
                }
                let bench = |is_loud| Bench::disturbed(&hostile, Some(policy), Some((at, steps)), is_loud);
                let mut quiet = bench(false);
                if !stands || !self.play(&mut quiet, &hostile).1 {
                    continue;
                }
                if is_undecidable && quiet.reports_gap(steps) {
                    continue;
                }
                let mut text =
                    format!("{} ({:?}), {name} before packet {at}, {policy}", self.trick.name, self.role);
                if failures.is_empty() {
                    let mut bench = bench(true);
                    self.play(&mut bench, &hostile);
                    text.push_str(&format!("\n{}\n", bench.conclude(&hostile).1));
                }
                failures.push(text);
            }
        }
        failures
    }
}

#[test]
fn no_moment_at_which_a_flow_is_forgotten_ended_or_begun_brings_a_forbidden_message_past_the_engine() {
    let rows = rows();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    failures.lock().expect("no thread panics").extend(row.failures());
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panics");
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn what_the_moments_disturb_arrives_without_an_engine_and_what_is_allowed_with_one() {
    let rows = rows();
    let valid = rows.iter().filter(|row| row.arrives(None, true).1).count();
    assert!(valid * 10 >= rows.len() * 9, "{valid} of {}", rows.len());
    for row in &rows {
        let due = row.arrives(None, false).1 && !TOO_SLOW.contains(&row.trick.name);
        assert!(!due || row.arrives(Some(DEFAULT), false).1, "{} ({:?})", row.trick.name, row.role);
    }
}

#[test]
fn what_is_allowed_arrives_when_the_engine_has_forgotten_its_connection() {
    const FORGOTTEN: [&[Step]; 2] = [&[Step::Restart], &[Step::Crowd]];
    let mut failures = Vec::new();
    // A second SYN-ACK is what opens a connection, to an engine that has not seen the first.
    for row in rows().iter().filter(|row| row.trick.name != "decoy with SYN") {
        let hostile = row.hostile(false);
        let (sent, arrives) = row.arrives(Some(DEFAULT), false);
        for at in if arrives { 1..sent } else { 0..0 } {
            for steps in FORGOTTEN {
                let mut bench = Bench::disturbed(&hostile, Some(DEFAULT), Some((at, steps)), true);
                let (_, arrives) = row.play(&mut bench, &hostile);
                if !arrives {
                    failures.push(format!(
                        "{} ({:?}), {at}\n{}",
                        row.trick.name,
                        row.role,
                        bench.conclude(&hostile).1
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
