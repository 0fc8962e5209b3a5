//! The work of a worker on one scan, from its order to the last written answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use ipnet::IpNet;

use super::result_writer::{ResultWriter, WorkerProgress};
use super::results::{IsKnownServer, ResultReporter, WriterMessage};
use super::target_supply::{SupplyHandle, TargetSupply};
use super::{ExitCondition, OrderTranslator, ScanTask, ScanWorker};
use crate::fleet::ScanOrder;
use crate::fleet::cron::ExclusionWindows;
use crate::fleet::database::ScanAssignment;
use crate::fleet::rate_share::RateShare;
use crate::inventory::{StoreError, TransactionalWriter};
use crate::scan::report::ResultSelection;
use crate::scan::session::{asks_each_name, config_of, threads_for};
use crate::scan::targets::{SetOptions, TargetSet, TargetSetBuilder};
use crate::scan::{ScanError, ScannerConfig};

/// Interval between checks of the state of the work.
const TICK: Duration = Duration::from_millis(20);

/// Number of unfinished shards that a worker holds in advance.
const AHEAD: usize = 2;

/// Maximum number of shards that a worker holds, including those that wait for their last answers.
const HELD: usize = 64;

/// Limit of the wait for answers under way when a worker is told to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reason why the work on a scan ended early.
pub(super) enum ScanStopReason {
    /// The worker is told to stop.
    Stopped,
    /// Nothing may be probed now.
    Rest,
    /// This worker cannot do the scan.
    Scan(String),
}

/// Works on a scan until there are no more shards to take, or the worker is told to stop.
pub(super) fn run(
    worker: &mut ScanWorker<'_>,
    scan: i64,
    read: &OrderTranslator<'_>,
) -> Result<(), ScanStopReason> {
    let ordered = worker.query_until_stopped(|queue| queue.order(scan));
    let Some(ordered) = ordered else { return Err(ScanStopReason::Stopped) };
    let ScanAssignment { order, rate, shards, about } = match ordered {
        Ok(ordered) => ordered,
        Err(error) => return fail(worker, scan, error),
    };
    let exclusions = match ExclusionWindows::read(&order.not_at) {
        Ok(exclusions) => exclusions,
        Err(error) => return fail(worker, scan, format!("--not-at: {error}")),
    };
    if !exclusions.is_empty() {
        match worker.beat(Some(scan)) {
            Some(beat) if !exclusions.cover(beat.now) => {}
            // Without the server's time no target is probed: the exclusion windows could not be kept.
            _ => return Err(ScanStopReason::Rest),
        }
    }
    let made = read(&order, rate).and_then(|task| Ok((targets(&order, &task)?, task)));
    let (set, task) = match made {
        Ok(made) => made,
        Err(error) => return fail(worker, scan, error),
    };
    let keeper = open(worker, &about)?;
    let known = keeper.known_servers().map_err(|_| ScanStopReason::Rest)?;
    let mut networks: Vec<(i64, IpNet)> = (1..).zip(order.limits.iter().map(|limit| limit.network)).collect();
    // The smallest network that contains a target applies.
    networks.sort_by_key(|(_, network)| std::cmp::Reverse(network.prefix_len()));
    let tally = WorkerProgress::default();
    let nets: Vec<IpNet> = networks.iter().map(|(_, network)| *network).collect();
    let supply = TargetSupply::new(set, (order.seed, shards), &nets, Arc::clone(&tally.waiting));
    let lease = worker.config.lease;
    let of_all = rate.map(|_| RateShare::new(0));
    let leader = ScanLeader {
        worker,
        scan,
        exclusions,
        total: of_all,
        networks: networks.iter().map(|(number, _)| RateShare::new(*number)).collect(),
        tap: SupplyHandle::new(supply),
        tally: tally.clone(),
        looked: None,
        taken: 0,
        closing: None,
        is_failed: None,
        is_cancelled: false,
    };
    let scribe = ResultWriter::new(keeper, (scan, shards), lease, task.eve, tally);
    let knows: IsKnownServer = Arc::new(move |server| known.contains(&server));
    leader.run(&task, (scribe, knows), order.every)
}

/// Reports an order that cannot be done: a shard is taken and returned with the reason, so that the reason
/// shows in the status.
fn fail(worker: &mut ScanWorker<'_>, scan: i64, error: String) -> Result<(), ScanStopReason> {
    let id = worker.id;
    worker.query_until_stopped(|queue| queue.take(id, scan, 1));
    Err(ScanStopReason::Scan(error))
}

/// Returns the targets of an order, which must equal those of the program that made it.
fn targets(order: &ScanOrder, task: &ScanTask) -> Result<TargetSet, String> {
    let mut builder = TargetSetBuilder::default();
    order.targets.iter().try_for_each(|word| builder.target(word)).map_err(|error| error.to_string())?;
    order.named.iter().for_each(|(address, name)| builder.named_target(*address, name));
    order.endpoints.iter().for_each(|(address, name)| builder.endpoint(*address, name.as_deref()));
    let how = SetOptions { include_reserved: true, ask_each_name: asks_each_name(&task.options.probe) };
    let set = builder.build(&task.options.ports, how).map_err(|error| error.to_string())?;
    match set.fingerprint() == order.fingerprint {
        true => Ok(set),
        false => Err("its targets differ from those that were submitted: another version of bannerwall \
                      created it"
            .to_owned()),
    }
}

/// Opens the inventory as soon as possible.
fn open(worker: &mut ScanWorker<'_>, about: &str) -> Result<TransactionalWriter, ScanStopReason> {
    let (place, name) = (&worker.config.place, &worker.config.name);
    TransactionalWriter::open(place, name, about).map_err(|error| match error {
        StoreError::Database { .. } => ScanStopReason::Rest,
        error => ScanStopReason::Scan(error.to_string()),
    })
}

/// Leads the threads of one scan.
struct ScanLeader<'w, 'a> {
    worker: &'w mut ScanWorker<'a>,
    scan: i64,
    exclusions: ExclusionWindows,
    /// Its shares of the limit of all targets, if there is one, and of the limits of networks.
    total: Option<RateShare>,
    networks: Vec<RateShare>,
    tap: SupplyHandle,
    tally: WorkerProgress,
    /// Time of the last query that found no shards.
    looked: Option<Instant>,
    taken: usize,
    /// Time from which on nothing more is probed.
    closing: Option<Instant>,
    is_failed: Option<String>,
    /// True if the scan was cancelled.
    is_cancelled: bool,
}

impl ScanLeader<'_, '_> {
    fn run(
        mut self,
        task: &ScanTask,
        (scribe, knows): (ResultWriter, IsKnownServer),
        every: bool,
    ) -> Result<(), ScanStopReason> {
        let options = &task.options;
        let remaining = self.tap.lock().targets();
        let config =
            config_of(options, remaining).map_err(|error| ScanStopReason::Scan(error.to_string()))?;
        let threads = threads_for(options.threads, options.rate, remaining);
        let selection =
            // The selection of a local terminal does not apply: the fleet stores what the order says.
            ResultSelection { open_only: !every, hide_unanswered: false, ..options.selection.clone() };
        let selection = Arc::new(selection);
        // Nothing is probed before the rate is known.
        self.adjust(Instant::now());
        self.beat();
        std::thread::scope(|scope| {
            let (sender, receiver) = unbounded();
            let reporter = || {
                let waiting = Arc::clone(&self.tally.waiting);
                ResultReporter::new(Arc::clone(&selection), Arc::clone(&knows), waiting, sender.clone())
            };
            let parts = (0..threads).map(|_| (self.tap.clone(), reporter())).collect();
            let writing = spawn(scope, "fleet-writer", move || scribe.run(&receiver))?;
            let config_of_scan = &config;
            let asking = move || crate::scan::run(config_of_scan, parts).map(drop);
            let asking = match spawn(scope, "fleet-scan", asking) {
                Ok(asking) => asking,
                Err(fault) => {
                    // The writer ends once the last sender is gone. Otherwise the scope would wait for
                    // it for ever.
                    drop(sender);
                    return Err(fault);
                }
            };
            self.lead(&config, sender, asking, &writing)
        })?;
        self.worker.ended.targets += self.tally.over.load(Relaxed);
        self.worker.ended.shards += self.tally.done.load(Relaxed);
        match self.is_failed {
            Some(error) => Err(ScanStopReason::Scan(error)),
            None if self.worker.stop.is_asked() => Err(ScanStopReason::Stopped),
            None => Ok(()),
        }
    }

    /// Leads until all threads have ended.
    fn lead(
        &mut self,
        config: &ScannerConfig,
        sender: Sender<WriterMessage>,
        asking: ScopedJoinHandle<'_, Result<(), ScanError>>,
        writing: &ScopedJoinHandle<'_, ()>,
    ) -> Result<(), ScanStopReason> {
        let (mut sender, mut asking) = (Some(sender), Some(asking));
        while !writing.is_finished() {
            if self.worker.is_due() {
                self.beat();
            }
            if let Some(sender) = &sender {
                self.provide(sender);
            }
            self.end_in_time(config);
            if asking.as_ref().is_some_and(ScopedJoinHandle::is_finished)
                && let Some(asking) = asking.take()
            {
                let ended = asking.join().unwrap_or(Err(ScanError::Panicked));
                self.is_failed = ended.err().map(|error| error.to_string());
                // When the last answers are written, the writer ends too.
                sender = None;
            }
            std::thread::park_timeout(TICK);
        }
        Ok(())
    }

    /// Reports to the server, and reads the state of the scan and the rates.
    fn beat(&mut self) {
        let Some(beat) = self.worker.beat(Some(self.scan)) else { return };
        if !beat.is_open && !self.is_cancelled {
            // Answers under way are no longer needed.
            self.is_cancelled = true;
            self.close();
        }
        self.tap.lock().pause(self.exclusions.cover(beat.now));
        self.share();
    }

    /// Requests shares of the limits of the scan.
    fn share(&mut self) {
        let (id, lease, scan) = (self.worker.id, self.worker.config.lease, self.scan);
        let now = Instant::now();
        // A lower rate is applied before it is reported.
        let used: Vec<u64> =
            self.total.iter_mut().chain(&mut self.networks).map(|it| it.lower(now)).collect();
        self.adjust(now);
        for (allowance, used) in self.total.iter_mut().chain(&mut self.networks).zip(used) {
            let (asked, number) = (Instant::now(), allowance.number);
            if let Some(share) =
                self.worker.query_server(|queue| queue.share((scan, number), id, used, lease))
            {
                allowance.take(share, asked, lease);
            }
        }
        self.adjust(Instant::now());
    }

    fn adjust(&mut self, now: Instant) {
        let own = self.worker.config.rate.map(|rate| u64::from(rate) * 1_000);
        let share = self.total.map(|it| it.rate(now));
        let total = [own, share].into_iter().flatten().min();
        let networks: Vec<u64> = self.networks.iter().map(|it| it.rate(now)).collect();
        let until = self.total.iter().chain(&self.networks).filter_map(RateShare::until).min();
        self.tap.lock().adjust(total, &networks, now, until);
    }

    /// Takes shards in advance.
    fn provide(&mut self, sender: &Sender<WriterMessage>) {
        if self.closing.is_some() {
            return;
        }
        if self.worker.stop.is_asked() || self.is_failed.is_some() {
            return self.close();
        }
        let (ahead, is_empty) = {
            let supply = self.tap.lock();
            // The lock is held only for these two reads: the scan's threads need it for each target.
            (supply.len(), supply.is_empty())
        };
        let is_late = self.looked.is_some_and(|looked| looked.elapsed() < super::LOOKS);
        let most = match self.worker.config.until {
            ExitCondition::Once => 1 - self.taken.min(1),
            ExitCondition::Told | ExitCondition::Empty => AHEAD.saturating_sub(ahead),
        };
        // Shards whose last results are not written yet count, too. Otherwise a slow database would let
        // one worker hoard shards.
        let held = self.tally.held.load(Relaxed);
        if most == 0 || held >= HELD || (is_late && !is_empty) {
            if most == 0 && is_empty && self.worker.config.until == ExitCondition::Once {
                self.close();
            }
            return;
        }
        let (id, scan) = (self.worker.id, self.scan);
        let Some(leases) = self.worker.query_server(|queue| queue.take(id, scan, most)) else { return };
        if leases.is_empty() {
            self.looked = Some(Instant::now());
            // Targets that wait for a slow network are still to be probed, so the supply closes only
            // when it is empty.
            if is_empty {
                self.close();
            }
            return;
        }
        for lease in leases {
            self.taken += 1;
            self.tally.held.fetch_add(1, Relaxed);
            let is_lost = Arc::new(AtomicBool::new(false));
            // The writer learns of the shard before any answer arrives.
            let _ = sender.send(WriterMessage::Taken(Box::new(lease.clone()), Arc::clone(&is_lost)));
            self.tap.lock().add(&lease, is_lost);
        }
    }

    /// Stops probing.
    fn close(&mut self) {
        self.closing.get_or_insert_with(Instant::now);
        self.tap.lock().close();
    }

    /// Gives up answers under way if the worker must end and they take too long.
    fn end_in_time(&mut self, config: &ScannerConfig) {
        let Some(since) = self.closing else { return };
        let is_over_time = self.worker.stop.is_asked() && since.elapsed() > PATIENCE;
        if self.is_cancelled || self.worker.stop.is_urgent() || is_over_time {
            config.stop.store(true, Relaxed);
        }
        let is_urgent = self.worker.stop.is_urgent();
        let is_late = self.worker.stop.is_asked() && since.elapsed() > PATIENCE + self.worker.config.lease;
        if is_urgent || is_late {
            // After the lease the shards belong to others anyway, and unwritten targets are probed
            // again.
            self.tally.give_up.store(true, Relaxed);
        }
    }
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, ScanStopReason> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread
        .spawn_scoped(scope, body)
        .map_err(|error| ScanStopReason::Scan(format!("cannot start a thread: {error}")))
}
