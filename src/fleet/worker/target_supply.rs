//! Supplies the targets of the worker's shards at the permitted rate.
//!
//! The next shard starts while the last answers of the previous one are awaited. Targets of a network that
//! may not be probed now are set aside, and others are probed meanwhile.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::fleet::database::ShardLease;
use crate::fleet::finished_targets::FinishedTargets;
use crate::scan::pacing::{ScanRate, TokenBucket};
use crate::scan::permutation::Permutation;
use crate::scan::targets::{Shard, TargetSet};
use crate::scan::{NextTarget, Target, TargetSource};

/// Number of results waiting for the database from which on nothing more is probed.
const WAITING: usize = 32_768;

/// Number of targets of one network that are set aside before nothing more is probed.
const ASIDE: usize = 16_384;

/// Pause if nothing may be probed now.
const PAUSE: Duration = Duration::from_millis(10);

/// Number of targets that are examined before other threads have their turn.
const AT_ONCE: usize = 256;

/// The next targets of a worker, shared by the probing threads and the leading one.
#[derive(Debug)]
pub(super) struct TargetSupply {
    set: TargetSet,
    permutation: Permutation,
    /// Number of shards of the scan.
    shards: u64,
    parts: VecDeque<ShardRemainder>,
    total: TokenBucket,
    networks: Vec<LimitedNetwork>,
    /// A target that found no room among those set aside.
    stuck: Option<(usize, Target)>,
    /// Time when the rates expire.
    until: Option<Instant>,
    is_paused: bool,
    is_closed: bool,
    /// Number of results that wait to be written.
    waiting: Arc<AtomicUsize>,
}

/// The remaining part of a shard.
#[derive(Debug)]
struct ShardRemainder {
    shard: Shard,
    next: u64,
    total: u64,
    over: FinishedTargets,
    is_lost: Arc<AtomicBool>,
}

/// A network with its own limit.
#[derive(Debug)]
struct LimitedNetwork {
    network: IpNet,
    bucket: TokenBucket,
    aside: VecDeque<Target>,
}

impl TargetSupply {
    /// Returns a supply of a scan's targets in their sequence.
    pub(super) fn new(
        set: TargetSet,
        (seed, shards): (u64, u64),
        networks: &[IpNet],
        waiting: Arc<AtomicUsize>,
    ) -> Self {
        let network = |network: &IpNet| LimitedNetwork {
            network: *network,
            bucket: empty_bucket(),
            aside: VecDeque::new(),
        };
        Self {
            permutation: Permutation::new(set.len(), seed),
            set,
            shards,
            parts: VecDeque::new(),
            total: TokenBucket::new(ScanRate::Max, 1),
            networks: networks.iter().map(network).collect(),
            stuck: None,
            until: None,
            is_paused: false,
            is_closed: false,
            waiting,
        }
    }

    /// Adds a shard.
    pub(super) fn add(&mut self, lease: &ShardLease, is_lost: Arc<AtomicBool>) {
        let Some(shard) = Shard::numbered(lease.number, self.shards) else { return };
        self.parts.push_back(ShardRemainder {
            shard,
            next: 0,
            total: lease.total,
            over: lease.over.clone(),
            is_lost,
        });
    }

    /// Returns the number of targets of the scan.
    pub(super) fn targets(&self) -> u64 {
        self.set.len()
    }

    /// Returns the number of shards with remaining targets.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if no targets remain.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.stuck.is_none() && self.networks.iter().all(|it| it.aside.is_empty())
    }

    /// Stops the supply for good.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Pauses or resumes the supply.
    pub(super) fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Sets the rates up to a time, in targets per thousand seconds: of all targets, and of each network.
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

    fn next(&mut self, now: Instant) -> NextTarget {
        if self.is_closed {
            return NextTarget::End;
        }
        let is_late = self.until.is_some_and(|until| until <= now);
        if self.is_paused || is_late || self.waiting.load(Relaxed) >= WAITING {
            return NextTarget::Wait(PAUSE);
        }
        // The total's permission comes first. It is lost if no target follows, which only makes the
        // scan slower.
        if let Err(wait) = self.total.take(now) {
            return NextTarget::Wait(wait);
        }
        for network in &mut self.networks {
            if !network.aside.is_empty()
                && network.bucket.take(now).is_ok()
                && let Some(target) = network.aside.pop_front()
            {
                return NextTarget::Target(target);
            }
        }
        self.fresh(now).map_or(NextTarget::Wait(PAUSE), NextTarget::Target)
    }

    /// Returns a new target that may be probed now.
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
            // One target is held back instead of a growing queue. The draw stops until this network has
            // room.
            if network.aside.len() >= ASIDE {
                self.stuck = Some((at, target));
                return None;
            }
            // A target of a full network is set aside, so that targets of other networks are not
            // delayed by it.
            network.aside.push_back(target);
        }
        None
    }

    /// Returns the index of the smallest network that contains a target.
    fn network_of(&self, address: SocketAddr) -> Option<usize> {
        self.networks.iter().position(|it| it.network.contains(&address.ip().to_canonical()))
    }

    /// Returns the next target in the sequence.
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

/// Returns a bucket that admits nothing yet.
fn empty_bucket() -> TokenBucket {
    let mut bucket = TokenBucket::new(ScanRate::Max, 1);
    bucket.adjust(0, Instant::now());
    bucket
}

/// The handle of one thread to the supply.
#[derive(Debug, Clone)]
pub(super) struct SupplyHandle(Arc<Mutex<TargetSupply>>);

impl SupplyHandle {
    pub(super) fn new(supply: TargetSupply) -> Self {
        Self(Arc::new(Mutex::new(supply)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, TargetSupply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TargetSource for SupplyHandle {
    fn next(&mut self, now: Instant) -> NextTarget {
        self.lock().next(now)
    }

    fn asked_again(&mut self, times: u32) {
        self.lock().total.charge(times);
    }
}
