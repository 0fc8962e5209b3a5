//! The start of a run: everything that is opened before the first packet is judged.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use bannerwall_ffi::error::{CallError, QueueError};
use bannerwall_ffi::socket_timestamps::PacketStamps;
use crossbeam_channel::unbounded;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::account_file::AccountFile;
use super::bans::{BanConfig, BanHandle, BanKeeper};
use super::config::{EventOutput, GuardConfig};
use super::drop_privileges;
use super::endpoints::{GuardEndpoints, PendingEndpoints, UnboundSockets};
use super::event_reader::{self, EventReader};
use super::hang_detection::{LoopHeartbeat, LoopRounds};
use super::inspection::{InspectionRuntime, RulesAndFingerprints};
use super::interface_names::InterfaceNameCache;
use super::leftovers;
use super::offload_check::OffloadCheck;
use super::own_listeners::OwnListeners;
use super::packet_age::PacketAgeLimit;
use super::ready_worker::ReadyWorker;
use super::recent_packets::RecentPackets;
use super::resets::ResetInjector;
use super::rule_source::{RuleSource, start_polling, with_first_rules};
use super::service_notifier::{self, ServiceNotifier};
use super::source::{MAXIMUM_COPY_RANGE, PacketSource, PacketVerdict, SourceConfig, SourceError};
use super::supervise::{GuardRun, RunStart};
use super::takeover::{DescriptorStore, HandoverSocket, Predecessor, StoredDescriptors, queue_name};
use super::verdict_translator::{OffloadMethod, VerdictTranslator};
use super::worker::{PacketHandler, QueueWorker, WorkerContext};
use super::{GuardError, GuardMessage, signals};
use crate::bypass::third_party_config::{self, BypassInterface};
use crate::bypass::{Bypass, BypassError, BypassFlows};
use crate::diagnostics::log_line;
use crate::engine::{EngineConfig, OnFailure};
use crate::hook::{MarkState, ProgramRunner, QueueRange, turn_off_early_demux};
use crate::metrics::{GuardMetrics, MetricsRegistry};
use crate::privileges::may_answer;

/// Limit of the bytes of undecided flows' packets that are kept for a successor, over all queues.
const JOURNAL: usize = 64 << 20;

/// The service manager and the sockets that it stored.
pub(super) struct ManagerContext {
    manager: Option<Arc<ServiceNotifier>>,
    pub(super) store: Option<DescriptorStore>,
    pub(super) kept: StoredDescriptors,
}

impl ManagerContext {
    /// Takes the sockets that the manager stored, before anything is opened.
    pub(super) fn take(config: &GuardConfig) -> Self {
        let kept = StoredDescriptors::take();
        let manager = service_manager();
        let store = store(config, manager.as_ref());
        if store.is_some() {
            return Self { manager, store, kept };
        }
        // Without --fd-store this run does not continue with the stored queues. It releases them, since
        // packets wait in a queue as long as any process holds its socket.
        kept.give_back(manager.as_ref());
        Self { manager, store, kept: StoredDescriptors::default() }
    }
}

/// Closes the sockets that the manager stored, if this process does not run a guard.
pub(super) fn close_stored() {
    StoredDescriptors::take().give_back(service_manager().as_ref());
}

/// Everything that needs more rights than a run keeps, so it is opened before
/// [`drop_privileges`](drop_privileges::drop_privileges).
struct PrivilegedResources {
    injector: Option<Arc<ResetInjector>>,
    bypass: Option<Arc<Bypass>>,
    entries: Vec<BypassFlows>,
    stamps: Option<PacketStamps>,
    unbound: UnboundSockets,
}

impl PrivilegedResources {
    fn open(config: &GuardConfig, metrics: &GuardMetrics) -> Result<Self, GuardError> {
        let injector = config.engine().enforce.then(|| open_injector(config, metrics)).transpose()?;
        let (bypass, entries) = start_bypass(config, metrics)?;
        // A confined process cannot open this socket.
        let stamps = enable_timestamps(config);
        prepare_machine(config);
        Ok(Self { injector, bypass, entries, stamps, unbound: UnboundSockets::open(config)? })
    }
}

/// Opens everything. A failed start leaves nothing behind.
pub(super) fn start(
    config: &GuardConfig,
    outputs: Vec<EventOutput>,
    readers: Vec<Box<dyn EventReader>>,
    mut source: Option<Box<dyn RuleSource>>,
    ManagerContext { manager, store, kept }: ManagerContext,
) -> Result<(GuardRun, Vec<ReadyWorker>), GuardError> {
    let config = &with_first_rules(config, &mut source)?;
    // Rules come first: an error in them ends the start before anything is opened.
    let loaded = RulesAndFingerprints::read(&config.inspection, &readers)?;
    let (registry, metrics) = register_metrics(config)?;
    // Before the queues: a queue belongs to one netlink port id, and a second bind gets EBUSY
    // (net/netfilter/nfnetlink_queue.c: nfqnl_recv_config). So a running predecessor's sockets are adopted.
    let mut predecessor = Predecessor::find(config, store.as_ref(), kept)?;
    let sources = bind(config, predecessor.as_mut(), store.as_ref())?;
    let listener = predecessor.as_mut().and_then(|running| inherit_listener(running, config));
    let PrivilegedResources { injector, bypass, entries, stamps, unbound } =
        PrivilegedResources::open(config, &metrics)?;
    // No other thread runs yet. Capabilities belong to a thread (capabilities(7)), so one that ran already
    // would keep what this one gives up.
    let programs =
        drop_privileges::drop_privileges(config, &loaded.rules, event_reader::confinement(&readers))?;
    let (sender, messages) = unbounded::<GuardMessage>();
    let signals = signals::SignalListener::start(sender.clone())?;
    let succeeds = predecessor.as_ref().is_some_and(Predecessor::is_of_a_guard);
    // Event files are opened by the user that will reopen them after a rotation.
    let host = InspectionRuntime::start(loaded, metrics, outputs, readers, succeeds)?;
    let gifts = handover_sockets(config, &sources);
    let now = SystemTime::now().into();
    let publisher =
        source.map(|source| start_polling(source, sender.clone(), host.metrics.clone())).transpose()?;
    let mut run = GuardRun {
        config: config.clone(),
        programs,
        bypass,
        rounds: loop_rounds(config, manager.as_ref()),
        manager,
        stop: Arc::new(AtomicBool::new(false)),
        leaves: Arc::new(AtomicBool::new(false)),
        host,
        registry,
        health: Arc::default(),
        messages,
        sender,
        workers: Vec::new(),
        bans: None,
        predecessor,
        facade: None,
        front: GuardEndpoints::default(),
        beginning: RunStart::Fresh,
        store,
        started: now,
        loaded: now,
        last_reload: None,
        port_ids: port_ids(config, &sources),
        blocks: Arc::default(),
        publisher,
        _listener: signals,
        _stamps: stamps,
    };
    // The thread runs the ban commands by `programs`, and the workers get its handle.
    let bans = run.start_bans()?;
    // The last step that can fail, so that no client reaches a guard whose start then fails.
    let listeners = run.open_endpoints(listener, gifts, unbound)?;
    let parts = WorkerResources { run: &run, bans, injector, cpus: allowed_cpus(config.queues), listeners };
    let queues = parts.queues(sources, entries);
    Ok((run, queues))
}

fn register_metrics(config: &GuardConfig) -> Result<(MetricsRegistry, GuardMetrics), GuardError> {
    let registry = MetricsRegistry::new()?;
    let metrics = GuardMetrics::new(&registry)?;
    metrics.enforcing.set(i64::from(config.engine().enforce));
    Ok((registry, metrics))
}

/// Returns the rounds of the workers, which the service manager's watchdog follows.
fn loop_rounds(config: &GuardConfig, manager: Option<&Arc<ServiceNotifier>>) -> Arc<LoopRounds> {
    let watchdog = manager.cloned().zip(service_notifier::watchdog());
    LoopRounds::new(config.queues.numbers().len(), watchdog)
}

/// Changes files and settings that a confined process cannot change.
fn prepare_machine(config: &GuardConfig) {
    if let Some(Err(error)) = config.hook.as_ref().map(turn_off_early_demux) {
        log_line(format_args!("bannerwall: {error}"));
    }
    let user = config.user.as_ref();
    leftovers::remove(user, &AccountFile::of(config.queues, user));
}

/// Returns the predecessor's socket for metrics, if it has this guard's address.
fn inherit_listener(predecessor: &mut Predecessor, config: &GuardConfig) -> Option<TcpListener> {
    predecessor.metrics(config.metrics.as_ref().map(|shown| shown.address))
}

/// Returns the queues, with the netlink port ids of their sockets.
fn port_ids(config: &GuardConfig, sources: &[BoundQueue]) -> Vec<(u16, Option<u32>)> {
    config.queues.numbers().zip(sources).map(|(number, bound)| (number, bound.source.port_id())).collect()
}

/// Enables the kernel's timestamps of packets if they are needed to measure how long packets wait in the
/// queue.
fn enable_timestamps(config: &GuardConfig) -> Option<PacketStamps> {
    let is_wanted = config.metrics.is_some() || config.max_wait.is_some();
    let tell_missing = |error: &CallError| {
        log_line(format_args!(
            "bannerwall: the time that packets wait in the queue is unknown, and --max-wait has no effect: {error}"
        ));
    };
    is_wanted.then(PacketStamps::enable)?.inspect_err(tell_missing).ok()
}

/// Starts the bypass of decided flows, unless it would skip third-party rules. Each queue's handle of the map
/// is opened here, because a confined process cannot open it.
fn start_bypass(
    config: &GuardConfig,
    metrics: &GuardMetrics,
) -> Result<(Option<Arc<Bypass>>, Vec<BypassFlows>), GuardError> {
    let Some(bypass) = &config.bypass else { return Ok((None, Vec::new())) };
    let named = |name: &String| BypassInterface { name: name.clone(), index: None };
    let interfaces: Vec<BypassInterface> = bypass.interfaces.iter().map(named).collect();
    // Before the program is attached, so that no packet skips third-party rules even for a moment.
    let found = third_party_config::find_third_party(&ProgramRunner::Here, &interfaces)
        .map_err(BypassError::Blind)?;
    if !found.is_empty() {
        return Err(BypassError::Neighbours(found).into());
    }
    let started = Bypass::start(bypass)?;
    let entries = config.queues.numbers().map(|_| started.entries()).collect::<Result<_, _>>()?;
    // CAP_BPF and CAP_PERFMON are given up here rather than with the other rights, since nothing after this
    // loads a program.
    drop_privileges::drop_load_privileges()?;
    metrics.bypass_up.set(1);
    Ok((Some(Arc::new(started)), entries))
}

impl GuardRun {
    /// Starts the thread that manages bans.
    fn start_bans(&mut self) -> Result<BanHandle, GuardError> {
        let enforces = self.config.engine().enforce;
        let expected = enforces && self.host.rules.load().needs().bans;
        let config = BanConfig { exempt: self.config.ban_exempt.clone(), enforces, expected };
        let keeper =
            BanKeeper::start(self.programs.clone(), config, self.host.metrics.clone(), self.sinks())?;
        let handle = keeper.handle.clone();
        self.bans = Some(keeper);
        Ok(handle)
    }

    /// Opens the metrics endpoint, the control socket and the page, or keeps them ready while another guard
    /// has their addresses.
    fn open_endpoints(
        &mut self,
        listener: Option<TcpListener>,
        gifts: Vec<HandoverSocket>,
        unbound: UnboundSockets,
    ) -> Result<OwnListeners, GuardError> {
        let own_listeners = OwnListeners::default();
        let facade = PendingEndpoints {
            registry: self.registry.clone(),
            health: Arc::clone(&self.health),
            metrics: self.host.metrics.clone(),
            messages: self.sender.clone(),
            listener,
            gifts,
            store: self.store.clone(),
            unbound,
            own_listeners: own_listeners.clone(),
            has_manager: self.manager.is_some(),
        };
        if self.predecessor.is_some() {
            self.facade = Some(facade);
            return Ok(own_listeners);
        }
        let (front, failed) = GuardEndpoints::open(&self.config, facade, &mut self.host.readers);
        // Without a predecessor the run has not begun, so any endpoint that fails fails the start.
        failed.into_iter().next().map_or(Ok(()), Err)?;
        self.front = front;
        Ok(own_listeners)
    }
}

/// Returns the service manager that expects notifications, if there is one.
fn service_manager() -> Option<Arc<ServiceNotifier>> {
    ServiceNotifier::from_environment().map(|notifier| notifier.map(Arc::new)).unwrap_or_else(|error| {
        log_line(format_args!("bannerwall: cannot notify the service manager of NOTIFY_SOCKET: {error}"));
        None
    })
}

/// Returns the manager's store, if it is configured.
fn store(config: &GuardConfig, manager: Option<&Arc<ServiceNotifier>>) -> Option<DescriptorStore> {
    if config.fd_store && manager.is_none() {
        log_line(
            "bannerwall: --fd-store has no effect: no service manager started this guard \
                  (NOTIFY_SOCKET is not set)",
        );
    }
    manager.filter(|_| config.fd_store).cloned().map(DescriptorStore::of)
}

/// A bound queue.
struct BoundQueue {
    source: Box<dyn PacketSource>,
    /// True if another process bound it.
    is_adopted: bool,
}

/// Binds the queues, except those that another process has bound.
fn bind(
    config: &GuardConfig,
    mut predecessor: Option<&mut Predecessor>,
    store: Option<&DescriptorStore>,
) -> Result<Vec<BoundQueue>, GuardError> {
    let mut open = |queue: u16| {
        let source = SourceConfig {
            backend: config.backend,
            copy_range: config.copy_range.min(MAXIMUM_COPY_RANGE),
            maximum_length: config.queue_length,
            fail_open: config.engine().on_failure == OnFailure::Open,
            ..SourceConfig::new(queue)
        };
        let failed = |source: SourceError| GuardError::Source { queue, source };
        let left = predecessor.as_mut().and_then(|predecessor| predecessor.queue(queue));
        // Without the right to answer, packets of an adopted socket would be read and never answered.
        if left.is_some() && !may_answer() {
            return Err(failed(QueueError::NotPermitted { queue }.into()));
        }
        let adopted = left.map(|(socket, marks)| source.adopt(socket, marks));
        let (source, is_adopted) = match (adopted, store) {
            (Some(Ok(adopted)), _) => (adopted, true),
            // A failed run may have released the queue.
            (Some(Err(error)), Some(store)) => {
                log_line(format_args!(
                    "bannerwall: queue {queue} is bound again: the stored descriptor is not its socket: \
                     {error}"
                ));
                store.remove(&queue_name(queue));
                (source.open().map_err(failed)?, false)
            }
            (Some(Err(error)), None) => return Err(failed(error)),
            (None, _) => (source.open().map_err(failed)?, false),
        };
        // Stored as soon as it is bound: whatever ends this process from here on, the kernel keeps the queue
        // and its packets as long as one copy of the socket is open.
        if let Some((store, socket)) = store.zip(source.socket()) {
            store.keep(&queue_name(queue), socket);
        }
        Ok(BoundQueue { source, is_adopted })
    };
    config.queues.numbers().map(&mut open).collect()
}

/// Returns duplicates of the sockets, for a successor.
fn handover_sockets(config: &GuardConfig, bound: &[BoundQueue]) -> Vec<HandoverSocket> {
    if config.takeover.is_none() {
        return Vec::new();
    }
    let numbered = config.queues.numbers().zip(bound);
    let gifts = numbered.filter_map(|(number, BoundQueue { source, .. })| {
        // A copy: the worker goes on reading its own until it has answered what it read.
        let socket = source.socket()?.try_clone_to_owned().ok()?;
        Some(HandoverSocket {
            name: queue_name(number),
            socket,
            marks_connections: source.marks_connections(),
        })
    });
    gifts.collect()
}

fn open_injector(config: &GuardConfig, metrics: &GuardMetrics) -> Result<Arc<ResetInjector>, GuardError> {
    // Resets of this machine meet the hook in OUTPUT, which passes them by this mark.
    let mark = config.mark.value(MarkState::Ours);
    ResetInjector::open(mark, metrics.clone()).map(Arc::new).map_err(GuardError::Resets)
}

/// Returns the CPUs that the workers of several queues are pinned to, in order. The worker of a single queue
/// is not pinned.
fn allowed_cpus(queues: QueueRange) -> Vec<usize> {
    if queues.numbers().len() < 2 {
        return Vec::new();
    }
    // The allowed CPUs rather than all: a cgroup's cpuset or `taskset` may exclude some, and pinning to those
    // fails.
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Everything that the workers need.
struct WorkerResources<'a> {
    run: &'a GuardRun,
    injector: Option<Arc<ResetInjector>>,
    cpus: Vec<usize>,
    bans: BanHandle,
    listeners: OwnListeners,
}

impl WorkerResources<'_> {
    fn queues(&self, sources: Vec<BoundQueue>, entries: Vec<BypassFlows>) -> Vec<ReadyWorker> {
        let mut entries = entries.into_iter();
        let numbered = self.run.config.queues.numbers().zip(sources).enumerate();
        let queue = |(index, (number, bound))| self.queue(index, number, bound, entries.next());
        numbered.map(queue).collect()
    }

    fn queue(
        &self,
        index: usize,
        number: u16,
        bound: BoundQueue,
        bypass: Option<BypassFlows>,
    ) -> ReadyWorker {
        let run = self.run;
        let BoundQueue { source, is_adopted } = bound;
        let mut inspection = run.host.inspection(self.engine_config(), number, run.sinks());
        if run.config.leaves_queues() {
            // A successor sees only later packets. It repeats these to read undecided flows from their start.
            inspection.inspector.keep_packet_log(JOURNAL / run.config.queues.numbers().len().max(1));
        }
        let copy_range = source.copy_range();
        let offload = match (run.config.offload, source.marks_connections()) {
            (false, _) => OffloadMethod::Never,
            (true, false) => OffloadMethod::Hook,
            (true, true) => OffloadMethod::Verdict,
        };
        let judge = PacketHandler {
            inspection,
            policy: VerdictTranslator::new(run.config.mark, offload, self.failure(), copy_range),
            injector: self.injector.clone(),
            resets: Vec::new(),
            own: RecentPackets::new(),
            listeners: self.listeners.clone(),
            interfaces: InterfaceNameCache::new(),
            grown: None,
            bypass,
            bans: self.bans.clone(),
        };
        let shared = WorkerContext {
            number,
            stop: Arc::clone(&run.stop),
            leaves: Arc::clone(&run.leaves),
            messages: run.sender.clone(),
        };
        let waiting =
            PacketAgeLimit::new(number, run.config.max_wait, self.failure(), run.host.metrics.clone());
        let handed = OffloadCheck::new(number);
        let pulse = LoopHeartbeat::new(Arc::clone(&run.rounds), index);
        let (inherited, is_doubtful) = (None, false);
        let worker =
            QueueWorker { source, judge, shared, copy_range, waiting, handed, pulse, inherited, is_doubtful };
        let cpu = (!self.cpus.is_empty()).then(|| self.cpus.get(index % self.cpus.len()).copied()).flatten();
        ReadyWorker { number, worker, is_adopted, cpu }
    }

    fn engine_config(&self) -> EngineConfig {
        let GuardConfig { inspection, offload, queues, .. } = &self.run.config;
        let engine = &inspection.engine;
        let queues = queues.numbers().len();
        EngineConfig {
            hands_over: *offload,
            // The limits are of the whole guard. Rounded up, so that a limit below the number of queues does
            // not become 0.
            flow_limit: engine.flow_limit.div_ceil(queues),
            buffer_limit: engine.buffer_limit.div_ceil(queues),
            ..engine.clone()
        }
    }

    /// Returns the verdict on a packet that cannot be judged.
    fn failure(&self) -> PacketVerdict {
        match self.run.config.engine().on_failure {
            OnFailure::Open => PacketVerdict::Accept,
            OnFailure::Closed => PacketVerdict::Drop,
        }
    }
}
