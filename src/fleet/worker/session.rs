//! A worker's work on one scan, from its order to the last answer that is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use ipnet::IpNet;

use super::report::{Knows, Message, Reporter};
use super::scribe::{Scribe, Tally};
use super::supply::{Supply, Tap};
use super::{Reader, Task, Until, Worker};
use crate::fleet::Order;
use crate::fleet::pace::Allowance;
use crate::fleet::queue::Ordered;
use crate::fleet::rhythm::Exclusions;
use crate::inventory::{Keeper, StoreError};
use crate::scan::report::Selection;
use crate::scan::session::{asks_each_name, config_of, threads_for};
use crate::scan::targets::{Builder, SetOptions, TargetSet};
use crate::scan::{Config, ScanError};

/// Interval at which it is looked how things stand.
const TICK: Duration = Duration::from_millis(20);

/// Shards of which something is to be asked that a worker has ahead of time.
const AHEAD: usize = 2;

/// Shards that a worker has at most, those whose last answers it waits for among them.
const HELD: usize = 64;

/// Time for which answers that are under way are waited for when a worker is to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why work on a scan ended early.
pub(super) enum Fault {
    /// The worker is to end.
    Stopped,
    /// Nothing is to be asked now.
    Rest,
    /// The scan cannot be done by this worker.
    Scan(String),
}

/// Works on a scan until there is nothing more of it to take, or the worker is to end.
pub(super) fn run(worker: &mut Worker<'_>, scan: i64, read: &Reader<'_>) -> Result<(), Fault> {
    let told = worker.ask_until_told(|queue| {
        let order = queue.order(scan)?;
        queue.limits(scan).map(|limits| (order, limits))
    });
    let Some((ordered, limits)) = told else { return Err(Fault::Stopped) };
    let Ordered { order, shards, about } = match ordered {
        Ok(ordered) => ordered,
        Err(error) => return fail(worker, scan, error),
    };
    let exclusions = match Exclusions::read(&order.not_at) {
        Ok(exclusions) => exclusions,
        Err(error) => return fail(worker, scan, format!("when nothing is asked: {error}")),
    };
    if !exclusions.is_empty() {
        match worker.beat(Some(scan)) {
            Some(beat) if !exclusions.cover(beat.now) => {}
            _ => return Err(Fault::Rest),
        }
    }
    let made = read(&order).and_then(|task| Ok((targets(&order, &task)?, task)));
    let (set, task) = match made {
        Ok(made) => made,
        Err(error) => return fail(worker, scan, error),
    };
    let keeper = open(worker, &about)?;
    let known = keeper.known_servers().map_err(|_| Fault::Rest)?;
    let mut networks: Vec<(i64, IpNet)> = (1..).zip(order.limits.iter().map(|limit| limit.network)).collect();
    // The smallest one counts.
    networks.sort_by_key(|(_, network)| std::cmp::Reverse(network.prefix_len()));
    let tally = Tally::default();
    let nets: Vec<IpNet> = networks.iter().map(|(_, network)| *network).collect();
    let supply = Supply::new(set, (order.seed, shards), &nets, Arc::clone(&tally.waiting));
    let lease = worker.config.lease;
    let of_all = limits.contains(&0).then(|| Allowance::new(0));
    let leader = Leader {
        worker,
        scan,
        exclusions,
        total: of_all,
        networks: networks.iter().map(|(number, _)| Allowance::new(*number)).collect(),
        tap: Tap::new(supply),
        tally: tally.clone(),
        looked: None,
        taken: 0,
        closing: None,
        is_failed: None,
        is_cancelled: false,
    };
    let scribe = Scribe::new(keeper, (scan, shards), lease, task.eve, tally);
    let knows: Knows = Arc::new(move |server| known.contains(&server));
    leader.run(&task, (scribe, knows), order.every)
}

/// An order that cannot be done: a shard is taken and given back with the reason, so that whoever looks finds
/// it.
fn fail(worker: &mut Worker<'_>, scan: i64, error: String) -> Result<(), Fault> {
    let id = worker.id;
    worker.ask_until_told(|queue| queue.take(id, scan, 1));
    Err(Fault::Scan(error))
}

/// The targets of an order, which must be those of whoever made it.
fn targets(order: &Order, task: &Task) -> Result<TargetSet, String> {
    let mut builder = Builder::default();
    order.targets.iter().try_for_each(|word| builder.target(word)).map_err(|error| error.to_string())?;
    order.named.iter().for_each(|(address, name)| builder.named_target(*address, name));
    order.endpoints.iter().for_each(|(address, name)| builder.endpoint(*address, name.as_deref()));
    let how = SetOptions { include_reserved: true, ask_each_name: asks_each_name(&task.options.probe) };
    let set = builder.build(&task.options.ports, how).map_err(|error| error.to_string())?;
    match set.fingerprint() == order.fingerprint {
        true => Ok(set),
        false => Err("its targets are not those that were ordered: another version has made it".to_owned()),
    }
}

/// Opens the inventory, as soon as that can be.
fn open(worker: &mut Worker<'_>, about: &str) -> Result<Keeper, Fault> {
    let (place, name) = (&worker.config.place, &worker.config.name);
    Keeper::open(place, name, about).map_err(|error| match error {
        StoreError::Database { .. } => Fault::Rest,
        error => Fault::Scan(error.to_string()),
    })
}

/// Leads the threads of one scan.
struct Leader<'w, 'a> {
    worker: &'w mut Worker<'a>,
    scan: i64,
    exclusions: Exclusions,
    /// What it may use of the limit of all targets, where there is one, and of networks.
    total: Option<Allowance>,
    networks: Vec<Allowance>,
    tap: Tap,
    tally: Tally,
    /// When there was nothing to take.
    looked: Option<Instant>,
    taken: usize,
    /// Since when nothing more is asked.
    closing: Option<Instant>,
    is_failed: Option<String>,
    /// The scan was ended by who gives orders.
    is_cancelled: bool,
}

impl Leader<'_, '_> {
    fn run(mut self, task: &Task, (scribe, knows): (Scribe, Knows), every: bool) -> Result<(), Fault> {
        let options = &task.options;
        let remaining = self.tap.lock().targets();
        let config = config_of(options, remaining).map_err(|error| Fault::Scan(error.to_string()))?;
        let threads = threads_for(options.threads, options.rate, remaining);
        let selection = Selection { open_only: !every, hide_unanswered: false, ..options.selection.clone() };
        let selection = Arc::new(selection);
        // Nothing is asked before it is known how fast that may be.
        self.adjust(Instant::now());
        self.beat();
        std::thread::scope(|scope| {
            let (sender, receiver) = unbounded();
            let reporter = || {
                let waiting = Arc::clone(&self.tally.waiting);
                Reporter::new(Arc::clone(&selection), Arc::clone(&knows), waiting, sender.clone())
            };
            let parts = (0..threads).map(|_| (self.tap.clone(), reporter())).collect();
            let writing = spawn(scope, "fleet-writer", move || scribe.run(&receiver))?;
            let config_of_scan = &config;
            let asking = move || crate::scan::run(config_of_scan, parts).map(drop);
            let asking = match spawn(scope, "fleet-scan", asking) {
                Ok(asking) => asking,
                Err(fault) => {
                    drop(sender);
                    return Err(fault);
                }
            };
            self.lead(&config, sender, asking, &writing)
        })?;
        self.worker.ended.targets += self.tally.over.load(Relaxed);
        self.worker.ended.shards += self.tally.done.load(Relaxed);
        match self.is_failed {
            Some(error) => Err(Fault::Scan(error)),
            None if self.worker.stop.is_asked() => Err(Fault::Stopped),
            None => Ok(()),
        }
    }

    /// Until all threads have ended.
    fn lead(
        &mut self,
        config: &Config,
        sender: Sender<Message>,
        asking: ScopedJoinHandle<'_, Result<(), ScanError>>,
        writing: &ScopedJoinHandle<'_, ()>,
    ) -> Result<(), Fault> {
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
                // The last answers are written, and then that is over, too.
                sender = None;
            }
            std::thread::park_timeout(TICK);
        }
        Ok(())
    }

    /// Is heard of, and hears how the scan stands and how fast it may be.
    fn beat(&mut self) {
        let Some(beat) = self.worker.beat(Some(self.scan)) else { return };
        if !beat.is_open && !self.is_cancelled {
            // What is under way nobody wants to know any more.
            self.is_cancelled = true;
            self.close();
        }
        self.tap.lock().pause(self.exclusions.cover(beat.now));
        self.share();
    }

    /// Asks for its shares of the scan's limits.
    fn share(&mut self) {
        let (id, lease, scan) = (self.worker.id, self.worker.config.lease, self.scan);
        let now = Instant::now();
        // What is less from now on is used less of before that is told.
        let used: Vec<u64> =
            self.total.iter_mut().chain(&mut self.networks).map(|it| it.lower(now)).collect();
        self.adjust(now);
        for (allowance, used) in self.total.iter_mut().chain(&mut self.networks).zip(used) {
            let (asked, number) = (Instant::now(), allowance.number);
            if let Some(share) = self.worker.ask(|queue| queue.share((scan, number), id, used, lease)) {
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
        let until = self.total.iter().chain(&self.networks).filter_map(Allowance::until).min();
        self.tap.lock().adjust(total, &networks, now, until);
    }

    /// Takes shards ahead of time.
    fn provide(&mut self, sender: &Sender<Message>) {
        if self.closing.is_some() {
            return;
        }
        if self.worker.stop.is_asked() || self.is_failed.is_some() {
            return self.close();
        }
        let (ahead, is_empty) = {
            let supply = self.tap.lock();
            (supply.len(), supply.is_empty())
        };
        let is_late = self.looked.is_some_and(|looked| looked.elapsed() < super::LOOKS);
        let most = match self.worker.config.until {
            Until::Once => 1 - self.taken.min(1),
            Until::Told | Until::Empty => AHEAD.saturating_sub(ahead),
        };
        let held = self.tally.held.load(Relaxed);
        if most == 0 || held >= HELD || (is_late && !is_empty) {
            if most == 0 && is_empty && self.worker.config.until == Until::Once {
                self.close();
            }
            return;
        }
        let (id, scan) = (self.worker.id, self.scan);
        let Some(leases) = self.worker.ask(|queue| queue.take(id, scan, most)) else { return };
        if leases.is_empty() {
            self.looked = Some(Instant::now());
            if is_empty {
                self.close();
            }
            return;
        }
        for lease in leases {
            self.taken += 1;
            self.tally.held.fetch_add(1, Relaxed);
            let is_lost = Arc::new(AtomicBool::new(false));
            // Known to who writes before any answer comes.
            let _ = sender.send(Message::Taken(Box::new(lease.clone()), Arc::clone(&is_lost)));
            self.tap.lock().add(&lease, is_lost);
        }
    }

    /// Nothing more is asked.
    fn close(&mut self) {
        self.closing.get_or_insert_with(Instant::now);
        self.tap.lock().close();
    }

    /// Gives up what is under way where the worker is to end and that takes too long.
    fn end_in_time(&mut self, config: &Config) {
        let Some(since) = self.closing else { return };
        let is_over_time = self.worker.stop.is_asked() && since.elapsed() > PATIENCE;
        if self.is_cancelled || self.worker.stop.is_urgent() || is_over_time {
            config.stop.store(true, Relaxed);
        }
        let is_urgent = self.worker.stop.is_urgent();
        let is_late = self.worker.stop.is_asked() && since.elapsed() > PATIENCE + self.worker.config.lease;
        if is_urgent || is_late {
            self.tally.give_up.store(true, Relaxed);
        }
    }
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Fault> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn_scoped(scope, body).map_err(|error| Fault::Scan(format!("a thread: {error}")))
}
