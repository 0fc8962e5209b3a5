//! Targets of the shards that a worker has, as fast as it may be.
//!
//! One shard goes over into the next one, so that the last answers of one are waited for while the next one
//! is asked. Of a network that may not be asked now targets are put aside, and others asked meanwhile.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::fleet::over::Over;
use crate::fleet::queue::Lease;
use crate::scan::pacing::{Bucket, Rate};
use crate::scan::permutation::Permutation;
use crate::scan::targets::{Shard, TargetSet};
use crate::scan::{Next, Target, Targets};

/// Results that wait for the database before nothing more is asked.
const WAITING: usize = 32_768;

/// Targets of one network that are put aside before nothing more is asked.
const ASIDE: usize = 16_384;

/// How soon it is looked again where nothing can be asked now.
const PAUSE: Duration = Duration::from_millis(10);

/// Targets that are looked at before others have their turn.
const AT_ONCE: usize = 256;

/// What a worker asks next; shared by the threads that ask and the one that leads them.
#[derive(Debug)]
pub(super) struct Supply {
    set: TargetSet,
    permutation: Permutation,
    /// Shards of the scan.
    shards: u64,
    parts: VecDeque<Part>,
    total: Bucket,
    networks: Vec<Network>,
    /// One that found no room aside.
    stuck: Option<(usize, Target)>,
    /// Time at which it is not known any more how fast it may be.
    until: Option<Instant>,
    is_paused: bool,
    is_closed: bool,
    /// Results that wait to be written.
    waiting: Arc<AtomicUsize>,
}

/// What of a shard was not asked.
#[derive(Debug)]
struct Part {
    shard: Shard,
    next: u64,
    total: u64,
    over: Over,
    is_lost: Arc<AtomicBool>,
}

/// A network with a limit of its own.
#[derive(Debug)]
struct Network {
    network: IpNet,
    bucket: Bucket,
    aside: VecDeque<Target>,
}

impl Supply {
    /// One for a scan's targets in their order.
    pub(super) fn new(
        set: TargetSet,
        (seed, shards): (u64, u64),
        networks: &[IpNet],
        waiting: Arc<AtomicUsize>,
    ) -> Self {
        let network =
            |network: &IpNet| Network { network: *network, bucket: nothing(), aside: VecDeque::new() };
        Self {
            permutation: Permutation::new(set.len(), seed),
            set,
            shards,
            parts: VecDeque::new(),
            total: Bucket::new(Rate::Max, 1),
            networks: networks.iter().map(network).collect(),
            stuck: None,
            until: None,
            is_paused: false,
            is_closed: false,
            waiting,
        }
    }

    /// One more shard.
    pub(super) fn add(&mut self, lease: &Lease, is_lost: Arc<AtomicBool>) {
        let Some(shard) = Shard::numbered(lease.number, self.shards) else { return };
        self.parts.push_back(Part { shard, next: 0, total: lease.total, over: lease.over.clone(), is_lost });
    }

    /// All targets of the scan.
    pub(super) fn targets(&self) -> u64 {
        self.set.len()
    }

    /// Shards of which something was not asked.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if everything was asked that there was.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.stuck.is_none() && self.networks.iter().all(|it| it.aside.is_empty())
    }

    /// Nothing more is asked.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Nothing is asked as long as it is paused.
    pub(super) fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// How fast it may be from now on up to a time, in a thousand seconds: all, and each network.
    pub(super) fn adjust(
        &mut self,
        total: Option<u64>,
        networks: &[u64],
        now: Instant,
        until: Option<Instant>,
    ) {
        self.until = until;
        if let Some(total) = total {
            self.total.adjust(total, now);
        }
        for (network, rate) in self.networks.iter_mut().zip(networks) {
            network.bucket.adjust(*rate, now);
        }
    }

    fn next(&mut self, now: Instant) -> Next {
        if self.is_closed {
            return Next::End;
        }
        let is_late = self.until.is_some_and(|until| until <= now);
        if self.is_paused || is_late || self.waiting.load(Relaxed) >= WAITING {
            return Next::Wait(PAUSE);
        }
        if let Err(wait) = self.total.take(now) {
            return Next::Wait(wait);
        }
        for network in &mut self.networks {
            if !network.aside.is_empty()
                && network.bucket.take(now).is_ok()
                && let Some(target) = network.aside.pop_front()
            {
                return Next::Target(target);
            }
        }
        self.fresh(now).map_or(Next::Wait(PAUSE), Next::Target)
    }

    /// A target that was not looked at yet and may be asked now.
    fn fresh(&mut self, now: Instant) -> Option<Target> {
        for _ in 0..AT_ONCE {
            let (at, target) = match self.stuck.take() {
                Some(stuck) => stuck,
                None => {
                    let target = self.draw()?;
                    match self.network_of(target.address) {
                        None => return Some(target),
                        Some(at) => (at, target),
                    }
                }
            };
            let network = self.networks.get_mut(at)?;
            if network.aside.is_empty() && network.bucket.take(now).is_ok() {
                return Some(target);
            }
            if network.aside.len() >= ASIDE {
                self.stuck = Some((at, target));
                return None;
            }
            network.aside.push_back(target);
        }
        None
    }

    /// The first of the networks that a target is in: the smallest one.
    fn network_of(&self, address: SocketAddr) -> Option<usize> {
        self.networks.iter().position(|it| it.network.contains(&address.ip().to_canonical()))
    }

    /// The next target in order.
    fn draw(&mut self) -> Option<Target> {
        loop {
            let part = self.parts.front_mut()?;
            while part.next < part.total && part.over.contains(part.next) {
                part.next += 1;
            }
            if part.next >= part.total || part.is_lost.load(Relaxed) {
                self.parts.pop_front();
                continue;
            }
            let index = part.shard.position(part.next);
            part.next += 1;
            if let Some((address, host)) = self.set.at(self.permutation.at(index)) {
                return Some(Target { address, index, host });
            }
        }
    }
}

/// A bucket that gives nothing yet.
fn nothing() -> Bucket {
    let mut bucket = Bucket::new(Rate::Max, 1);
    bucket.adjust(0, Instant::now());
    bucket
}

/// A thread's way to it.
#[derive(Debug, Clone)]
pub(super) struct Tap(Arc<Mutex<Supply>>);

impl Tap {
    pub(super) fn new(supply: Supply) -> Self {
        Self(Arc::new(Mutex::new(supply)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Supply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Targets for Tap {
    fn next(&mut self, now: Instant) -> Next {
        self.lock().next(now)
    }

    fn asked_again(&mut self, times: u32) {
        self.lock().total.charge(times);
    }
}
