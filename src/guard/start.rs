//! Everything that must be had before the first packet is judged.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use bannerwall_ffi::error::QueueError;
use bannerwall_ffi::stamps::PacketStamps;
use crossbeam_channel::unbounded;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::bans::{BanConfig, BanHandle, BanKeeper};
use super::config::{GuardConfig, Output};
use super::front::{Facade, Front, UnboundSockets};
use super::handed::Handed;
use super::hold;
use super::interfaces::Interfaces;
use super::notify::{self, Notifier};
use super::own_listeners::OwnListeners;
use super::policy::{Offload, Policy};
use super::pulse::{Pulse, Rounds};
use super::queue::Queue;
use super::reader::{self, EventReader, ReaderStart, RunningReader};
use super::readers::ReadersShown;
use super::recent::Recent;
use super::reload::load_rules;
use super::resets::{Allowance, Injector};
use super::rule_source::{RuleSource, start_polling, with_first_rules};
use super::source::{MAXIMUM_COPY_RANGE, Source, SourceConfig, SourceError, Verdict};
use super::supervise::{Beginning, Run};
use super::takeover::{Estate, Gift, Kept, Store, queue_name};
use super::tally::{Answers, Publisher, Tally};
use super::waiting::Waiting;
use super::worker::{Judge, Shared, TICK, Worker};
use super::{GuardError, Message, signals};
use crate::bypass::neighbours::{self, Interface};
use crate::bypass::{Bypass, BypassConfig, BypassError, Entries};
use crate::diagnostics::tell;
use crate::engine::{EngineConfig, OnFailure};
use crate::event;
use crate::hook::{MarkState, Programs};
use crate::inline::Inspector;
use crate::metrics::{GuardMetrics, Health, Registry, ReloadResult};
use crate::output::{Writer, WriterConfig};
use crate::privileges::may_answer;
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;

/// Octets of packets of undecided flows that are kept for a guard that goes on, over all queues.
const JOURNAL: usize = 64 << 20;

/// What the service manager has to do with a run.
pub(super) struct Left {
    manager: Option<Arc<Notifier>>,
    pub(super) store: Option<Store>,
    pub(super) kept: Kept,
}

impl Left {
    /// Takes what the manager has kept, before anything is opened.
    pub(super) fn take(config: &GuardConfig) -> Self {
        let kept = Kept::take();
        let manager = service_manager();
        let store = store(config, manager.as_ref());
        if store.is_some() {
            return Self { manager, store, kept };
        }
        kept.give_back(manager.as_ref());
        Self { manager, store, kept: Kept::default() }
    }
}

/// Gives back what the manager has kept, where no run comes of this process.
pub(super) fn give_back() {
    Kept::take().give_back(service_manager().as_ref());
}

/// Opens everything; what fails here leaves nothing behind.
pub(super) fn start(
    config: &GuardConfig,
    outputs: Vec<Output>,
    readers: Vec<Box<dyn EventReader>>,
    mut source: Option<Box<dyn RuleSource>>,
    Left { manager, store, kept }: Left,
) -> Result<(Run, Vec<Queue>), GuardError> {
    let config = &with_first_rules(config, &mut source)?;
    let (rules, fingerprints) = read(config, &readers)?;
    let registry = Registry::new()?;
    let metrics = GuardMetrics::new(&registry)?;
    let health = Arc::new(Health::default());
    let mut predecessor = Estate::find(config, store.as_ref(), kept)?;
    let sources = bind(config, predecessor.as_mut(), store.as_ref())?;
    let shown = config.metrics.as_ref().map(|shown| shown.address);
    let listener = predecessor.as_mut().and_then(|estate| estate.metrics(shown));
    let injector = config.enforce.then(|| open_injector(config, &metrics)).transpose()?;
    let bypass = config.bypass.as_ref().map(|bypass| start_bypass(config, bypass, &metrics)).transpose()?;
    let (bypass, entries) = bypass.unzip();
    // No thread runs yet: what is given up here none of them has.
    let unbound = UnboundSockets::open(config)?;
    let attached = reader::confinement(&readers);
    let attached = source.iter().fold(attached, |attached, source| source.confine(attached));
    let programs = hold::give_up(config, &rules, attached)?;
    let (sender, messages) = unbounded::<Message>();
    let signals = signals::Listener::start(sender.clone())?;
    let writers = start_writers(outputs)?;
    let succeeds = predecessor.as_ref().is_some_and(Estate::is_of_a_guard);
    let readers = start_readers(readers, &writers, succeeds)?;
    note_start(&metrics, config, &rules);
    let wants_stamps = config.metrics.is_some() || config.max_wait.is_some();
    let stamps = wants_stamps.then(PacketStamps::ask_for).and_then(Result::ok);
    let gifts = gifts(config, &sources);
    let port_id = |(number, bound): (u16, &Bound)| (number, bound.source.port_id());
    let port_ids = config.queues.numbers().zip(&sources).map(port_id).collect();
    let now = SystemTime::now().into();
    let publisher =
        source.map(|source| start_polling(source, sender.clone(), metrics.clone())).transpose()?;
    let watchdog = manager.clone().zip(notify::watchdog());
    let mut run = Run {
        config: config.clone(),
        programs,
        bypass,
        rounds: Rounds::new(config.queues.numbers().len(), watchdog),
        manager,
        stop: Arc::new(AtomicBool::new(false)),
        leaves: Arc::new(AtomicBool::new(false)),
        rules: Arc::new(ArcSwap::from_pointee(rules)),
        registry,
        metrics,
        health,
        messages,
        sender,
        writers,
        readers,
        workers: Vec::new(),
        bans: None,
        shown: ReadersShown::default(),
        predecessor,
        facade: None,
        front: Front::default(),
        beginning: Beginning::Fresh,
        store,
        started: now,
        loaded: now,
        last_reload: None,
        port_ids,
        blocks: Arc::default(),
        publisher,
        _listener: signals,
        _stamps: stamps,
    };
    let bans = run.start_bans()?;
    let listeners = OwnListeners::default();
    run.face(listener, gifts, unbound, listeners.clone())?;
    let parts = Parts { run: &run, bans, fingerprints, injector, cpus: allowed_cpus(config.pin), listeners };
    let mut entries = entries.into_iter().flatten();
    let numbered = config.queues.numbers().zip(sources).enumerate();
    let queues =
        numbered.map(|(index, (number, bound))| parts.queue(index, number, bound, entries.next())).collect();
    Ok((run, queues))
}

/// Has decided flows go by below netfilter, where nobody's rules are skipped by that. Each queue's way into the map is opened
/// here: a confined process can't.
fn start_bypass(
    config: &GuardConfig,
    bypass: &BypassConfig,
    metrics: &GuardMetrics,
) -> Result<(Arc<Bypass>, Vec<Entries>), GuardError> {
    let named = |name: &String| Interface { name: name.clone(), index: None };
    let interfaces: Vec<Interface> = bypass.interfaces.iter().map(named).collect();
    let found = neighbours::look(&Programs::Here, &interfaces).map_err(BypassError::Blind)?;
    if !found.is_empty() {
        return Err(BypassError::Neighbours(found).into());
    }
    let started = Bypass::start(bypass)?;
    let entries = config.queues.numbers().map(|_| started.entries()).collect::<Result<_, _>>()?;
    hold::give_up_loading()?;
    metrics.bypass_up.set(1);
    Ok((Arc::new(started), entries))
}

/// Reads what is there to be read, and checks all readers before one of them makes anything.
fn read(
    config: &GuardConfig,
    readers: &[Box<dyn EventReader>],
) -> Result<(RuleSet, Option<Arc<Fingerprints>>), GuardError> {
    let rules = load_rules(&config.rules)?;
    tell_where_none(&rules);
    let fingerprints = config.fingerprints.as_deref().map(Fingerprints::load).transpose()?.map(Arc::new);
    check_readers(readers)?;
    Ok((rules, fingerprints))
}

fn note_start(metrics: &GuardMetrics, config: &GuardConfig, rules: &RuleSet) {
    metrics.rules.set(i64::try_from(rules.rules().len()).unwrap_or(i64::MAX));
    metrics.note_rules(ReloadResult::Success);
    metrics.enforcing.set(i64::from(config.enforce));
}

impl Run {
    /// Starts the thread that keeps bans.
    fn start_bans(&mut self) -> Result<BanHandle, GuardError> {
        let enforces = self.config.enforce;
        let expected = enforces && self.rules.load().needs().bans;
        let config = BanConfig { exempt: self.config.ban_exempt.clone(), enforces, expected };
        let keeper = BanKeeper::start(self.programs.clone(), config, self.metrics.clone(), self.sinks())?;
        let handle = keeper.handle.clone();
        self.bans = Some(keeper);
        Ok(handle)
    }

    /// Opens what others see of it, or holds it ready as long as another guard has these places.
    fn face(
        &mut self,
        listener: Option<TcpListener>,
        gifts: Vec<Gift>,
        unbound: UnboundSockets,
        own_listeners: OwnListeners,
    ) -> Result<(), GuardError> {
        let facade = Facade {
            registry: self.registry.clone(),
            health: Arc::clone(&self.health),
            metrics: self.metrics.clone(),
            messages: self.sender.clone(),
            listener,
            gifts,
            store: self.store.clone(),
            unbound,
            own_listeners,
            has_manager: self.manager.is_some(),
        };
        if self.predecessor.is_some() {
            self.facade = Some(facade);
            return Ok(());
        }
        let (front, failed) = Front::open(&self.config, facade, &mut self.readers);
        failed.into_iter().next().map_or(Ok(()), Err)?;
        self.front = front;
        Ok(())
    }
}

/// Says so where nothing will come of a run.
fn tell_where_none(rules: &RuleSet) {
    if rules.rules().is_empty() && rules.policies().is_empty() {
        tell("bannerwall: no rule is in force: nothing is alerted about or blocked");
    }
}

/// Starts a writer for each output.
pub(super) fn start_writers(outputs: Vec<Output>) -> Result<Vec<Writer>, GuardError> {
    let start = |output: Output| Writer::start(WriterConfig::COUNTING, output.destination, output.format);
    outputs.into_iter().map(start).collect::<Result<_, _>>().map_err(GuardError::Output)
}

/// Checks what readers are configured with.
pub(super) fn check_readers(readers: &[Box<dyn EventReader>]) -> Result<(), GuardError> {
    readers.iter().try_for_each(|reader| reader.check()).map_err(GuardError::Attached)
}

/// Starts the readers of events.
pub(super) fn start_readers(
    readers: Vec<Box<dyn EventReader>>,
    writers: &[Writer],
    succeeds: bool,
) -> Result<Vec<Box<dyn RunningReader>>, GuardError> {
    let start = |reader: Box<dyn EventReader>| {
        let outputs = writers.iter().map(Writer::handle).collect();
        reader.start(ReaderStart { outputs, succeeds })
    };
    readers.into_iter().map(start).collect::<Result<_, _>>().map_err(GuardError::Attached)
}

/// The service manager that wants to be told, if any.
fn service_manager() -> Option<Arc<Notifier>> {
    Notifier::from_environment().map(|notifier| notifier.map(Arc::new)).unwrap_or_else(|error| {
        tell(format_args!("bannerwall: the service manager of NOTIFY_SOCKET cannot be told: {error}"));
        None
    })
}

/// The manager's store, where it is asked for.
fn store(config: &GuardConfig, manager: Option<&Arc<Notifier>>) -> Option<Store> {
    if config.fd_store && manager.is_none() {
        tell("bannerwall: --fd-store: no service manager is there to keep anything (NOTIFY_SOCKET)");
    }
    manager.filter(|_| config.fd_store).cloned().map(Store::of)
}

/// A queue that is read from.
struct Bound {
    source: Box<dyn Source>,
    /// Whether another process has bound it.
    is_adopted: bool,
}

/// Binds the queues, but for those that another process has bound.
fn bind(
    config: &GuardConfig,
    mut predecessor: Option<&mut Estate>,
    store: Option<&Store>,
) -> Result<Vec<Bound>, GuardError> {
    let mut open = |queue: u16| {
        let source = SourceConfig {
            backend: config.backend,
            copy_range: config.copy_range.min(MAXIMUM_COPY_RANGE),
            maximum_length: config.queue_length,
            fail_open: config.on_failure == OnFailure::Open,
            ..SourceConfig::new(queue)
        };
        let failed = |source: SourceError| GuardError::Source { queue, source };
        let left = predecessor.as_mut().and_then(|estate| estate.queue(queue));
        // The socket's owner could, and who only has it can't: packets would be read and never be answered.
        if left.is_some() && !may_answer() {
            return Err(failed(QueueError::NotPermitted { queue }.into()));
        }
        let adopted = left.map(|(socket, marks)| source.adopt(socket, marks));
        let (source, is_adopted) = match (adopted, store) {
            (Some(Ok(adopted)), _) => (adopted, true),
            // A run that failed may have given it back.
            (Some(Err(error)), Some(store)) => {
                tell(format_args!(
                    "bannerwall: queue {queue} is bound anew: what was kept is not its socket: {error}"
                ));
                store.remove(&queue_name(queue));
                (source.open().map_err(failed)?, false)
            }
            (Some(Err(error)), None) => return Err(failed(error)),
            (None, _) => (source.open().map_err(failed)?, false),
        };
        if let Some((store, socket)) = store.zip(source.socket()) {
            store.keep(&queue_name(queue), socket);
        }
        Ok(Bound { source, is_adopted })
    };
    config.queues.numbers().map(&mut open).collect()
}

/// Duplicates of the sockets, for a guard that takes over.
fn gifts(config: &GuardConfig, bound: &[Bound]) -> Vec<Gift> {
    if config.takeover.is_none() {
        return Vec::new();
    }
    let numbered = config.queues.numbers().zip(bound);
    let gifts = numbered.filter_map(|(number, Bound { source, .. })| {
        let socket = source.socket()?.try_clone_to_owned().ok()?;
        Some(Gift { name: queue_name(number), socket, marks_connections: source.marks_connections() })
    });
    gifts.collect()
}

fn open_injector(config: &GuardConfig, metrics: &GuardMetrics) -> Result<Arc<Injector>, GuardError> {
    let mark = config.mark.value(MarkState::Ours);
    Injector::open(mark, metrics.clone()).map(Arc::new).map_err(GuardError::Resets)
}

/// The CPUs that this process may run on, in order; none where workers are not pinned.
fn allowed_cpus(pin: bool) -> Vec<usize> {
    if !pin {
        return Vec::new();
    }
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// What the workers are made of.
struct Parts<'a> {
    run: &'a Run,
    fingerprints: Option<Arc<Fingerprints>>,
    injector: Option<Arc<Injector>>,
    cpus: Vec<usize>,
    bans: BanHandle,
    listeners: OwnListeners,
}

impl Parts<'_> {
    fn queue(&self, index: usize, number: u16, bound: Bound, bypass: Option<Entries>) -> Queue {
        let run = self.run;
        let Bound { source, is_adopted } = bound;
        let in_force = Arc::clone(&run.rules);
        let mut inspector = Inspector::new(self.engine_config(), in_force, self.fingerprints.clone(), TICK);
        if run.config.leaves_queues() {
            inspector.keep_journal(JOURNAL / run.config.queues.numbers().len().max(1));
        }
        let copy_range = source.copy_range();
        let offload = match (run.config.offload, source.marks_connections()) {
            (false, _) => Offload::Never,
            (true, false) => Offload::Hook,
            (true, true) => Offload::Verdict,
        };
        let judge = Judge {
            inspector,
            policy: Policy::new(run.config.mark, offload, self.failure(), copy_range),
            injector: self.injector.clone(),
            allowance: Allowance::default(),
            resets: Vec::new(),
            own: Recent::new(),
            listeners: self.listeners.clone(),
            sink: run.sinks(),
            interfaces: Interfaces::new(),
            answers: Answers::default(),
            grown: None,
            bypass,
            bans: self.bans.clone(),
        };
        let shared = Shared {
            number,
            stop: Arc::clone(&run.stop),
            leaves: Arc::clone(&run.leaves),
            messages: run.sender.clone(),
            tally: Arc::new(Tally::default()),
        };
        let publisher = Publisher::new(run.metrics.clone(), number, &run.rules.load());
        let waiting = Waiting::new(number, run.config.max_wait, self.failure(), run.metrics.clone());
        let handed = Handed::new(number);
        let pulse = Pulse::new(Arc::clone(&run.rounds), index);
        let (inherited, is_doubtful) = (None, false);
        let worker = Worker {
            source,
            judge,
            publisher,
            shared,
            copy_range,
            waiting,
            handed,
            pulse,
            inherited,
            is_doubtful,
        };
        let cpu = (!self.cpus.is_empty()).then(|| self.cpus.get(index % self.cpus.len()).copied()).flatten();
        Queue { number, worker, is_adopted, cpu }
    }

    fn engine_config(&self) -> EngineConfig {
        let config = &self.run.config;
        let queues = config.queues.numbers().len();
        let defaults = EngineConfig::default();
        EngineConfig {
            source: event::Source::Guard,
            enforce: config.enforce,
            enforce_only: config.enforce_only.clone(),
            on_failure: config.on_failure,
            on_anomaly: config.on_anomaly,
            http_inspect: config.http_inspect,
            disclosure: config.disclosure,
            flow_events: config.flow_events,
            hands_over: config.offload,
            collect_kex: config.collect_kex,
            flow_limit: config.flow_limit.div_ceil(queues),
            buffer_limit: defaults.buffer_limit.div_ceil(queues),
            ..defaults
        }
    }

    /// The verdict of a packet that cannot be judged.
    fn failure(&self) -> Verdict {
        match self.run.config.on_failure {
            OnFailure::Open => Verdict::Accept,
            OnFailure::Closed => Verdict::Drop,
        }
    }
}
