//! Conversations as files: what each end says, what is decided of it, and what is told.
//!
//! Every case is played over IPv4 and IPv6 and, unless it names its own, with each thing said at once and
//! byte by byte: the segment that completes it is the one that its decision is about, those before stay
//! undecided. Characters stand for bytes, `\u0085` for 0x85. `{each}` stands for one after the other of
//! what `each` lists.

mod protocols;

use std::time::Duration;

use serde::Deserialize;

use super::testing::{Conversation, Setup, event_kind};
use super::{AnomalyPolicy, Decision, HttpInspect};
use crate::event::{Event, EventKind};
use crate::flow::TrackingMode;
use crate::packet::TcpFlags;

const FILES: [(&str, &str); 3] = [
    ("http.toml", include_str!("http.toml")),
    ("ssh.toml", include_str!("ssh.toml")),
    ("streams.toml", include_str!("streams.toml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineCaseFile {
    /// Rules that the cases of the file are played with.
    rules: String,
    case: Vec<EngineCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineCase {
    name: String,
    #[serde(default)]
    monitor: bool,
    /// A capture that is replayed, which may lack packets.
    #[serde(default)]
    replay: bool,
    /// Every transaction is read.
    #[serde(default)]
    all: bool,
    /// The handshake is not seen.
    #[serde(default)]
    midstream: bool,
    /// Another policy than the engine's own for all anomalies: `alert` or `drop`.
    on_anomaly: Option<String>,
    #[serde(default = "sizes")]
    sizes: Vec<usize>,
    #[serde(default = "once")]
    each: Vec<String>,
    say: Vec<CaseStep>,
    events: Option<Vec<String>>,
    anomalies: Option<Vec<String>>,
    alerts: Option<Vec<String>>,
    /// Number, target, status and length of the body.
    transactions: Option<Vec<(u32, String, u16, u64)>>,
}

/// One thing that happens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseStep {
    client: Option<String>,
    server: Option<String>,
    /// How often that is said again.
    #[serde(default = "one")]
    times: usize,
    /// Who acknowledges, ends or resets.
    ack: Option<CaseSide>,
    fin: Option<CaseSide>,
    reset: Option<CaseSide>,
    /// Seconds go by.
    wait: Option<u64>,
    /// The server says so many bytes that never come by.
    lose: Option<u32>,
    /// The input is at its end.
    #[serde(default)]
    finish: bool,
    /// What is decided of what is said.
    then: Option<String>,
    /// It may be decided before all of it was said.
    #[serde(default)]
    early: bool,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum CaseSide {
    Client,
    Server,
}

fn sizes() -> Vec<usize> {
    vec![1400, 1]
}

fn once() -> Vec<String> {
    vec![String::new()]
}

const fn one() -> usize {
    1
}

/// One way to play a case.
struct CasePlay<'c> {
    case: &'c EngineCase,
    each: &'c str,
    size: usize,
    talk: Conversation,
    shown: String,
    faults: Vec<String>,
}

impl CasePlay<'_> {
    /// Plays it; gives what was not as it should be.
    fn run(mut self) -> Vec<String> {
        for step in &self.case.say {
            self.step(step);
        }
        let Self { talk, case, shown, mut faults, .. } = self;
        let events = &talk.events;
        let mut expect = |what: &str, found: Vec<&str>, expected: &Option<Vec<String>>| {
            if let Some(expected) = expected
                && found != *expected
            {
                faults.push(format!("{what} of {shown}: {found:?}, not {expected:?}"));
            }
        };
        expect("events", events.iter().filter_map(kind).collect(), &case.events);
        expect("anomalies", events.iter().filter_map(anomaly).collect(), &case.anomalies);
        expect("alerts", events.iter().filter_map(rule).collect(), &case.alerts);
        let transactions = talk.transactions();
        if let Some(expected) = case.transactions.as_ref().filter(|expected| transactions != **expected) {
            faults.push(format!("transactions of {shown}: {transactions:?}, not {expected:?}"));
        }
        faults
    }

    fn step(&mut self, step: &CaseStep) {
        for (from_client, text) in [(true, &step.client), (false, &step.server)] {
            let Some(text) = text else { continue };
            let octets = octets(&text.replace("{each}", self.each));
            for _ in 0..step.times {
                self.say(from_client, &octets, step);
            }
        }
        for (who, flags) in [
            (step.ack, TcpFlags::ACK),
            (step.fin, TcpFlags::FIN | TcpFlags::ACK),
            (step.reset, TcpFlags::RST),
        ] {
            let Some(who) = who else { continue };
            let decision = self.talk.send(who == CaseSide::Client, flags, b"");
            self.expect(&decision, step.then.as_deref());
        }
        if let Some(count) = step.lose {
            self.talk.lose_of_server(count);
        }
        if let Some(seconds) = step.wait {
            self.talk.wait(Duration::from_secs(seconds));
        }
        if step.finish {
            self.talk.engine.finish(self.talk.now, &mut self.talk.events);
        }
    }

    fn say(&mut self, from_client: bool, octets: &[u8], step: &CaseStep) {
        let mut pieces = octets.chunks(self.size).peekable();
        while let Some(piece) = pieces.next() {
            let decision = self.talk.send(from_client, TcpFlags::ACK | TcpFlags::PSH, piece);
            let then = step.then.as_deref();
            if step.early && then == Some(name(&decision)) {
                return;
            }
            let last = pieces.peek().is_none();
            self.expect(&decision, if last { then } else { None });
        }
    }

    fn expect(&mut self, decision: &Decision, then: Option<&str>) {
        let (decision, expected) = (name(decision), then.unwrap_or("undecided"));
        if decision != expected {
            self.faults.push(format!("{decision}, not {expected}, in {}", self.shown));
        }
    }
}

const fn name(decision: &Decision) -> &'static str {
    match decision {
        Decision::Undecided => "undecided",
        Decision::Release => "release",
        Decision::Stand => "stand",
        Decision::Keep => "keep",
        Decision::Regain => "regain",
        Decision::Pass => "pass",
        Decision::More { .. } => "more",
        Decision::Drop => "drop",
        Decision::Block => "block",
        Decision::Reject(_) => "reject",
        Decision::Patch(_) => "patch",
    }
}

impl EngineCase {
    fn setup(&self, rules: &str) -> Setup {
        let mut setup = if self.monitor { Setup::monitoring(rules) } else { Setup::enforcing(rules) };
        if self.all {
            setup.config.http_inspect = HttpInspect::All;
        }
        if self.replay {
            setup.config.tracking = TrackingMode::Lossy;
        }
        if let Some(action) = &self.on_anomaly {
            setup.config.on_anomaly = AnomalyPolicy::all(action.parse().expect("an action"));
        }
        setup
    }

    fn play(&self, rules: &str, faults: &mut Vec<String>) {
        for each in &self.each {
            for size in &self.sizes {
                for v6 in [false, true] {
                    let setup = self.setup(rules).v6(v6);
                    let talk = if self.midstream { setup.midstream() } else { setup.open() };
                    let shown = format!("`{}` in {size} ({})", self.name, each.escape_default());
                    let play = CasePlay { case: self, each, size: *size, talk, shown, faults: Vec::new() };
                    faults.extend(play.run());
                }
            }
        }
    }
}

fn octets(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(character).expect("an octet a character")).collect()
}

fn kind(event: &Event) -> Option<&str> {
    Some(event_kind(event))
}

fn anomaly(event: &Event) -> Option<&str> {
    match &event.kind {
        EventKind::Anomaly(facts) => Some(facts.name),
        _ => None,
    }
}

fn rule(event: &Event) -> Option<&str> {
    match &event.kind {
        EventKind::Alert(alert) => Some(&alert.rule),
        _ => None,
    }
}

#[test]
fn conversations_are_decided_and_told_as_their_files_say() {
    let mut faults = Vec::new();
    for (name, text) in FILES {
        let file: EngineCaseFile = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for case in &file.case {
            case.play(&file.rules, &mut faults);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
