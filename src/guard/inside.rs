//! A guard without a queue: it judges packets that somebody else has in hand, a tunnel's, and says what is to become of
//! each. Rules, events, their readers and metrics are those of any guard; there is no hook and no mark.

use std::fmt;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;

use super::clock::Clock;
use super::hold;
use super::reader::{self, EventReader, RunningReader};
use super::readers::{ReadersShown, finish_readers};
use super::reload::{exchange_rules, load_rules};
use super::resets::{Allowance, Outcomes};
use super::sinks::Sinks;
use super::source::Verdict;
use super::start::{check_readers, start_readers, start_writers};
use super::tally::{Answers, Publisher, Tally};
use super::{GuardError, Output};
use crate::banner::disclosure::Disclosure;
use crate::diagnostics::tell;
use crate::engine::{
    AnomalyPolicy, Checksums, Decision, EnforceOnly, EngineConfig, HttpInspect, OnFailure, PacketInput,
    Resets,
};
use crate::event::{self, Timestamp};
use crate::inline::Inspector;
use crate::metrics::{GuardMetrics, Registry, ReloadResult};
use crate::output::Writer;
use crate::packet::Patch;
use crate::rules::fingerprint::Fingerprints;
use crate::rules::{RuleSet, Selection};

/// How often silent flows are looked for.
const TICK: Duration = Duration::from_millis(100);

/// The number by which packets stand in the metrics where others have their queue's.
const NO_QUEUE: u16 = 0;

/// The settings, as those of [`super::GuardConfig`].
#[derive(Debug, Clone)]
pub struct InsideConfig {
    /// Where rules come from.
    pub rules: Selection,
    /// A fingerprint database.
    pub fingerprints: Option<PathBuf>,
    /// Whether blocking rules block.
    pub enforce: bool,
    /// The flows that are enforced.
    pub enforce_only: EnforceOnly,
    /// What becomes of packets that cannot be inspected.
    pub on_failure: OnFailure,
    /// What is done about traffic that an inspector could be misled with.
    pub on_anomaly: AnomalyPolicy,
    /// How much of an HTTP connection is read.
    pub http_inspect: HttpInspect,
    /// Whether KEXINIT is read for HASSH even if no rule asks for it.
    pub collect_kex: bool,
    /// Flows remembered at once.
    pub flow_limit: usize,
    /// How much of messages events show.
    pub disclosure: Disclosure,
    /// Whether each flow is told of at its end.
    pub flow_events: bool,
    /// Whether the process is confined to its files and calls.
    pub is_confined: bool,
    /// The files that are written.
    pub writes: Vec<PathBuf>,
}

/// A packet that is to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// From its IP header on, in parts, of which the first has all headers or is all.
    pub parts: &'a [IoSlice<'a>],
    /// Whether its checksums are there.
    pub checksums: Checksums,
    /// The interface that it goes through.
    pub interface: &'a str,
}

/// What is to become of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Pass,
    /// It goes on with these octets in place of its own.
    Patch(Patch),
    /// It does not.
    Stop,
}

/// The guard, as far as packets are judged; threads share it.
pub struct Inside {
    judge: Mutex<Judge>,
    metrics: GuardMetrics,
}

/// What one thread looks after.
pub struct Upkeep {
    inside: Arc<Inside>,
    selection: Selection,
    rules: Arc<ArcSwap<RuleSet>>,
    writers: Vec<Writer>,
    readers: Vec<Box<dyn RunningReader>>,
    shown: ReadersShown,
}

struct Judge {
    inspector: Inspector,
    sink: Sinks,
    clock: Clock,
    allowance: Allowance,
    publisher: Publisher,
    tally: Tally,
    answers: Answers,
    /// A packet whose first part was not enough.
    whole: Vec<u8>,
    failure: Fate,
    /// Nothing more passes.
    is_over: bool,
}

impl Upkeep {
    /// Loads the rules, confines the calling thread and those that it starts, and opens everything that events go to.
    ///
    /// # Errors
    /// Where one of these cannot be had.
    pub fn start(
        config: InsideConfig,
        outputs: Vec<Output>,
        readers: Vec<Box<dyn EventReader>>,
        registry: &Registry,
    ) -> Result<Self, GuardError> {
        let rules = load_rules(&config.rules)?;
        let fingerprints = config.fingerprints.as_deref().map(Fingerprints::load).transpose()?.map(Arc::new);
        check_readers(&readers)?;
        readers.iter().try_for_each(|reader| reader.prepare(None)).map_err(GuardError::Attached)?;
        if config.is_confined {
            let attached = reader::confinement(&readers);
            hold::files(&config.rules, &rules, attached, &config.writes).apply_or_tell(false);
        }
        if rules.rules().is_empty() && rules.policies().is_empty() {
            tell("bannerwall: no rule is in force: nothing is alerted about or blocked");
        }
        let metrics = GuardMetrics::new(registry)?;
        let writers = start_writers(outputs)?;
        let mut readers = start_readers(readers, &writers, false)?;
        readers.iter_mut().try_for_each(|reader| reader.open().map(drop)).map_err(GuardError::Attached)?;
        metrics.rules.set(i64::try_from(rules.rules().len()).unwrap_or(i64::MAX));
        metrics.note_rules(ReloadResult::Success);
        metrics.enforcing.set(i64::from(config.enforce));
        let publisher = Publisher::new(metrics.clone(), NO_QUEUE, &rules);
        let rules = Arc::new(ArcSwap::from_pointee(rules));
        let judge = Judge {
            inspector: Inspector::new(engine(&config), Arc::clone(&rules), fingerprints, TICK),
            sink: Sinks::new(
                writers.iter().map(Writer::handle).collect(),
                readers.iter().map(|reader| reader.sender()).collect(),
            ),
            clock: Clock::start(Instant::now(), wall()),
            allowance: Allowance::default(),
            publisher,
            tally: Tally::default(),
            answers: Answers::default(),
            whole: Vec::new(),
            failure: match config.on_failure {
                OnFailure::Open => Fate::Pass,
                OnFailure::Closed => Fate::Stop,
            },
            is_over: false,
        };
        let inside = Arc::new(Inside { judge: Mutex::new(judge), metrics });
        Ok(Self { inside, selection: config.rules, rules, writers, readers, shown: ReadersShown::default() })
    }

    /// What judges.
    pub fn inside(&self) -> Arc<Inside> {
        Arc::clone(&self.inside)
    }

    /// How many rules are in force.
    pub fn rules(&self) -> usize {
        self.rules.load().rules().len()
    }

    /// Looks after flows that are silent, new rules and the metrics; to be called some times a second.
    pub fn tick(&self) {
        self.inside.lock().tick();
        self.shown.show(&self.inside.metrics, &self.writers, &self.readers);
    }

    /// Reads the rules again and opens the files of events anew: somebody may have moved them away.
    pub fn reload(&self) {
        for writer in &self.writers {
            writer.handle().reopen();
        }
        // Who sent a signal reads what became of it on stderr.
        let _ = exchange_rules(&self.selection, &self.rules, &self.inside.metrics);
    }

    /// Ends: tells what flows still owed, and waits, not for long, until everybody has heard it.
    pub fn finish(self) {
        self.tick();
        self.inside.lock().finish();
        finish_readers(self.writers, self.readers, &self.shown, &self.inside.metrics);
    }
}

impl Inside {
    /// Judges a packet; where both ends of its connection are to be reset, `send` does so.
    pub fn judge(&self, packet: Shown<'_>, send: impl FnOnce(&Resets) -> Outcomes) -> Fate {
        let mut judge = self.lock();
        judge.tally.receive();
        let (fate, outcomes) = judge.judge(packet, send);
        judge.answers.count(if fate == Fate::Stop { Verdict::Drop } else { Verdict::Accept });
        if let Some(outcomes) = outcomes {
            outcomes.count(&self.metrics);
        }
        fate
    }

    fn lock(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Inside").finish_non_exhaustive()
    }
}

impl Judge {
    fn judge(
        &mut self,
        packet: Shown<'_>,
        send: impl FnOnce(&Resets) -> Outcomes,
    ) -> (Fate, Option<Outcomes>) {
        let Some(first) = packet.parts.first().filter(|_| !self.is_over) else { return (Fate::Stop, None) };
        let instant = Instant::now();
        let now = self.clock.even(instant);
        let input = PacketInput {
            now,
            ip: first,
            wire_length: packet.parts.iter().map(|part| part.len()).sum(),
            checksums: packet.checksums,
            interface: Some(packet.interface),
            vlan: &[],
            packet_number: None,
        };
        let held = self.sink.hold();
        let mut decision = self.inspector.inspect(&input, &mut self.sink).decision;
        if matches!(decision, Decision::More { .. }) {
            self.whole.clear();
            packet.parts.iter().for_each(|part| self.whole.extend_from_slice(part));
            let input = PacketInput { ip: &self.whole, ..input };
            decision = self.inspector.inspect(&input, &mut self.sink).decision;
        }
        let mut outcomes = None;
        let fate = match decision {
            Decision::Undecided
            | Decision::Release
            | Decision::Stand
            | Decision::Keep
            | Decision::Regain
            | Decision::Pass => Fate::Pass,
            Decision::Patch(patch) => Fate::Patch(patch),
            Decision::More { .. } => self.failure,
            Decision::Drop | Decision::Block => Fate::Stop,
            Decision::Reject(resets) => {
                let told = if self.allowance.admit(instant) { send(&resets) } else { Outcomes::LIMITED };
                let events = self.sink.held_since(held);
                self.sink.complete(events, &told);
                outcomes = Some(told);
                Fate::Stop
            }
        };
        self.sink.release();
        (fate, outcomes)
    }

    fn finish(&mut self) {
        let now = self.clock.even(Instant::now());
        self.inspector.finish(now, &mut self.sink);
        // What was blocked is forgotten now.
        self.is_over = true;
    }

    fn tick(&mut self) {
        let instant = Instant::now();
        self.clock.set(instant, wall());
        self.sink.set_step(self.clock.step());
        let now = self.clock.even(instant);
        if self.inspector.is_due(now) {
            self.inspector.tick(now, &mut self.sink);
        }
        let day = self.sink.step().of_day(now);
        self.publisher.publish(&self.tally, self.inspector.counters(), self.answers, day);
        if let Some(rules) = self.inspector.take_rules() {
            self.publisher.set_rules(&rules, self.inspector.counters());
        }
    }
}

/// The time of day.
fn wall() -> Timestamp {
    SystemTime::now().into()
}

fn engine(config: &InsideConfig) -> EngineConfig {
    EngineConfig {
        source: event::Source::Guard,
        enforce: config.enforce,
        enforce_only: config.enforce_only.clone(),
        on_failure: config.on_failure,
        on_anomaly: config.on_anomaly,
        http_inspect: config.http_inspect,
        disclosure: config.disclosure,
        flow_events: config.flow_events,
        collect_kex: config.collect_kex,
        flow_limit: config.flow_limit,
        ..EngineConfig::default()
    }
}
