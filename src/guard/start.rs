//! Everything that must be had before the first packet is judged.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use bannerwall_ffi::stamps::PacketStamps;
use crossbeam_channel::{Sender, unbounded};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::config::{GuardConfig, Output};
use super::control::Control;
use super::handed::Handed;
use super::hold;
use super::interfaces::Interfaces;
use super::notify::{self, Notifier};
use super::page::Page;
use super::policy::{Offload, Policy};
use super::pulse::{Pulse, Rounds};
use super::queue::Queue;
use super::recent::Recent;
use super::resets::{Allowance, Injector};
use super::source::{MAXIMUM_COPY_RANGE, Source, SourceConfig, SourceError, Verdict};
use super::supervise::{Run, load_rules};
use super::tally::{Answers, Publisher, Tally};
use super::waiting::Waiting;
use super::worker::{Judge, Shared, TICK, Worker};
use super::{GuardError, Message, signals};
use crate::diagnostics::tell;
use crate::engine::{EngineConfig, OnFailure};
use crate::event;
use crate::hook::MarkState;
use crate::inline::Inspector;
use crate::metrics::{Endpoint, GuardMetrics, Health, Registry, ReloadResult};
use crate::output::{Writer, WriterConfig};
use crate::rules::fingerprint::Fingerprints;

/// Opens everything; what fails here leaves nothing behind.
pub(super) fn start(config: &GuardConfig, outputs: Vec<Output>) -> Result<(Run, Vec<Queue>), GuardError> {
    let rules = load_rules(&config.rules)?;
    if rules.rules().is_empty() && rules.policies().is_empty() {
        tell("bannerwall: no rule is in force: nothing is alerted about or blocked");
    }
    let fingerprints = config.fingerprints.as_deref().map(Fingerprints::load).transpose()?.map(Arc::new);
    let registry = Registry::new()?;
    let metrics = GuardMetrics::new(&registry)?;
    let health = Arc::new(Health::default());
    let sources = bind(config)?;
    let injector = match config.enforce {
        true => Some(open_injector(config, &metrics)?),
        false => None,
    };
    // No thread runs yet: what is given up here none of them has.
    let programs = hold::give_up(config, &rules)?;
    let endpoint = match config.metrics {
        Some(address) => Some(Endpoint::start(address, registry, Arc::clone(&health))?),
        None => None,
    };
    let (sender, messages) = unbounded::<Message>();
    let listener = signals::Listener::start(sender.clone())?;
    let control = listen(config, &sender)?;
    let writers = start_writers(outputs)?;
    let outputs = || writers.iter().map(Writer::handle).collect();
    let inventory =
        config.inventory.as_ref().map(|inventory| inventory.start(event::Source::Guard, outputs()));
    let inventory = inventory.transpose()?;
    let page = config.page.as_ref().map(|page| Page::start(page, config.inventory.as_ref())).transpose()?;
    metrics.rules.set(i64::try_from(rules.rules().len()).unwrap_or(i64::MAX));
    metrics.note_rules(ReloadResult::Success);
    metrics.enforcing.set(i64::from(config.enforce));
    let wants_stamps = config.metrics.is_some() || config.max_wait.is_some();
    let stamps = wants_stamps.then(PacketStamps::ask_for).and_then(Result::ok);
    let manager = service_manager();
    let watchdog = manager.clone().zip(notify::watchdog());
    let run = Run {
        config: config.clone(),
        programs,
        rounds: Rounds::new(config.queues.numbers().len(), watchdog),
        manager,
        stop: Arc::new(AtomicBool::new(false)),
        rules: Arc::new(ArcSwap::from_pointee(rules)),
        metrics,
        health,
        messages,
        sender,
        writers,
        inventory,
        page,
        workers: Vec::new(),
        _listener: listener,
        _control: control,
        _endpoint: endpoint,
        _stamps: stamps,
    };
    let parts = Parts { run: &run, fingerprints, injector, cpus: allowed_cpus(config.pin) };
    let numbered = config.queues.numbers().zip(sources).enumerate();
    let queues = numbered.map(|(index, (number, source))| parts.queue(index, number, source)).collect();
    Ok((run, queues))
}

/// Starts a writer for each output.
pub(super) fn start_writers(outputs: Vec<Output>) -> Result<Vec<Writer>, GuardError> {
    let start = |output: Output| Writer::start(WriterConfig::COUNTING, output.destination, output.format);
    outputs.into_iter().map(start).collect::<Result<_, _>>().map_err(GuardError::Output)
}

/// The service manager that wants to be told, if any.
fn service_manager() -> Option<Arc<Notifier>> {
    Notifier::from_environment().map(|notifier| notifier.map(Arc::new)).unwrap_or_else(|error| {
        tell(format_args!("bannerwall: the service manager of NOTIFY_SOCKET cannot be told: {error}"));
        None
    })
}

/// Makes the control socket. That the one of the default name can't be made is no reason not to guard.
fn listen(config: &GuardConfig, messages: &Sender<Message>) -> Result<Option<Control>, GuardError> {
    let Some(place) = &config.control else { return Ok(None) };
    match Control::start(&place.path, messages.clone()) {
        Ok(control) => Ok(Some(control)),
        Err(source) if place.asked => Err(GuardError::Control { path: place.path.clone(), source }),
        Err(error) => {
            let path = place.path.display();
            tell(format_args!(
                "bannerwall: no control socket, so that `bannerwall reload` finds no guard: {path}: {error}"
            ));
            Ok(None)
        }
    }
}

fn bind(config: &GuardConfig) -> Result<Vec<Box<dyn Source>>, GuardError> {
    let open = |queue: u16| {
        let source = SourceConfig {
            backend: config.backend,
            copy_range: config.copy_range.min(MAXIMUM_COPY_RANGE),
            maximum_length: config.queue_length,
            fail_open: config.on_failure == OnFailure::Open,
            ..SourceConfig::new(queue)
        };
        source.open().map_err(|source: SourceError| GuardError::Source { queue, source })
    };
    config.queues.numbers().map(open).collect()
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
}

impl Parts<'_> {
    fn queue(&self, index: usize, number: u16, source: Box<dyn Source>) -> Queue {
        let run = self.run;
        let in_force = Arc::clone(&run.rules);
        let inspector = Inspector::new(self.engine_config(), in_force, self.fingerprints.clone(), TICK);
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
            sink: run.sinks(),
            interfaces: Interfaces::new(),
            answers: Answers::default(),
            grown: None,
        };
        let shared = Shared { stop: Arc::clone(&run.stop), tally: Arc::new(Tally::default()) };
        let publisher = Publisher::new(run.metrics.clone(), number, &run.rules.load());
        let waiting = Waiting::new(number, run.config.max_wait, self.failure(), run.metrics.clone());
        let handed = Handed::new(number);
        let pulse = Pulse::new(Arc::clone(&run.rounds), index);
        let worker = Worker { source, judge, publisher, shared, copy_range, waiting, handed, pulse };
        let cpu = (!self.cpus.is_empty()).then(|| self.cpus.get(index % self.cpus.len()).copied()).flatten();
        Queue { number, worker, cpu }
    }

    fn engine_config(&self) -> EngineConfig {
        let config = &self.run.config;
        let queues = config.queues.numbers().len();
        let defaults = EngineConfig::default();
        EngineConfig {
            source: event::Source::Guard,
            enforce: config.enforce,
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
