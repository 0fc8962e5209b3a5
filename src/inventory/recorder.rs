//! Sums up sightings and passes them to the store in batches.
//!
//! New facts are written within a tenth of a second. Repeated sightings are counted in memory and written
//! once a minute. So a busy service costs one look-up for each connection and one row a minute.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ahash::{AHashMap, AHashSet};

use super::change_output::ChangeEmitter;
use super::error::StoreError;
use super::sighting::{self, AssetKey, NamedSoftware, Sighting, SightingContent};
use super::store::{SightingRecord, SightingStore};
use crate::diagnostics::log_line;
use crate::event::{Event, Timestamp};
use crate::output::EventConsumer;

/// Time for which repeated sightings are only counted.
const QUIET: Duration = Duration::from_secs(60);

/// Number of records that are written together without waiting for the deadline.
const BATCH: usize = 1_000;

/// Number of records that wait for a blocked store; further ones are lost.
const WAITING: usize = 16 * BATCH;

/// Number of assets in memory; beyond it, all are written and the memory is emptied.
const REMEMBERED: usize = 1 << 16;

/// Interval of the check whether the file was deleted or replaced.
const LOOK: Duration = Duration::from_secs(1);

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Interval at which old data is removed.
const PRUNING: Duration = Duration::from_secs(3_600);

/// Shortest and longest interval of the search for unseen servers.
const LOOKING: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// Written and unwritten sightings of an asset.
#[derive(Debug)]
struct RecentSighting {
    software: NamedSoftware,
    reported: Timestamp,
    first: Timestamp,
    last: Timestamp,
    /// Number of sightings that are not written.
    count: u64,
}

/// Banners of connections, as hashes, so that each counts once in a connection. If there are too many,
/// the older half is dropped.
#[derive(Debug, Default)]
struct FlowMemory {
    hasher: ahash::RandomState,
    newer: AHashSet<u64>,
    older: AHashSet<u64>,
}

impl FlowMemory {
    /// True if a connection sends this banner for the first time.
    fn is_first(&mut self, flow: u64, said: &impl Hash) -> bool {
        // Two sets instead of one: the older half is forgotten at once, without the cost of an eviction
        // order.
        if self.newer.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        let hash = self.hasher.hash_one((flow, said));
        self.newer.insert(hash) && !self.older.contains(&hash)
    }
}

/// Counters of lost and removed data, shared with metrics.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedLosses(Arc<LossCounters>);

#[derive(Debug, Default)]
struct LossCounters {
    lost: AtomicU64,
    displaced: AtomicU64,
    replaced: AtomicU64,
    file_fault: Mutex<Option<String>>,
}

impl SharedLosses {
    pub(super) fn count(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Number of services, clients and changes that were removed for space.
    pub(super) fn removed_for_space(&self) -> u64 {
        self.0.displaced.load(Relaxed)
    }

    /// Number of times that the file was deleted or replaced, with all its content.
    pub(super) fn replaced(&self) -> u64 {
        self.0.replaced.load(Relaxed)
    }

    /// Why the file cannot be opened again that was deleted or replaced.
    pub(super) fn file_fault(&self) -> Option<String> {
        self.0.file_fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_file_fault(&self, fault: Option<String>) {
        *self.0.file_fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }
}

/// The consumer of events that feeds a store.
pub(super) struct SightingRecorder {
    store: Box<dyn SightingStore>,
    recent: AHashMap<(AssetKey, SightingContent), RecentSighting>,
    flows: FlowMemory,
    batch: Vec<SightingRecord>,
    since: Option<Instant>,
    /// Time of the last successful write.
    written: Option<Instant>,
    swept: Instant,
    /// Time of the file's last check.
    looked: Instant,
    losses: SharedLosses,
    /// Time for which data is kept after its last sighting, and time of the last removal.
    keep: Option<(Duration, Option<Instant>)>,
    /// Time without a sighting after which a server is gone, and time of the last search.
    gone_after: Option<(Duration, Option<Instant>)>,
    /// Number of losses when the store began to fail, and time of the last failure.
    failing: Option<(u64, Instant)>,
    /// Output of changes.
    outlet: Option<ChangeEmitter>,
}

impl std::fmt::Debug for SightingRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SightingRecorder").field("waiting", &self.batch.len()).finish_non_exhaustive()
    }
}

impl EventConsumer for SightingRecorder {
    fn take(&mut self, event: &Event) {
        self.group(std::slice::from_ref(event));
    }

    fn group(&mut self, events: &[Event]) {
        self.look_after_file();
        for sighting in sighting::of_events(events) {
            self.observe(sighting);
        }
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    fn holds_since(&self) -> Option<Instant> {
        self.since
    }

    fn flush(&mut self) {
        if self.swept.elapsed() >= QUIET {
            self.write_counts();
        }
        if self.batch.len() >= self.batch_limit() {
            self.write();
        }
        self.since = (!self.batch.is_empty()).then(Instant::now);
        self.mark_unseen_as_gone();
    }

    fn idle(&mut self) {
        self.look_after_file();
        if self.swept.elapsed() >= QUIET {
            self.flush();
        }
        self.prune();
        self.mark_unseen_as_gone();
    }

    fn end(&mut self) {
        // Counts come first: they become records of this last write.
        self.write_counts();
        self.write();
        self.prune();
        if !self.batch.is_empty() {
            self.lose();
        }
        if let Err(error) = self.store.finish(self.losses.count()) {
            self.report_failure_once(&error);
        }
    }
}

impl SightingRecorder {
    pub(super) fn new(store: Box<dyn SightingStore>, losses: SharedLosses) -> Self {
        Self {
            store,
            recent: AHashMap::new(),
            flows: FlowMemory::default(),
            batch: Vec::new(),
            since: None,
            written: None,
            swept: Instant::now(),
            looked: Instant::now(),
            losses,
            keep: None,
            gone_after: None,
            failing: None,
            outlet: None,
        }
    }

    /// Sets the time after which unseen data is removed.
    pub(super) fn with_retention(self, keep: Option<Duration>) -> Self {
        Self { keep: keep.map(|keep| (keep, None)), ..self }
    }

    /// Sets the time after which an unseen server is marked as gone.
    pub(super) fn with_gone_after(self, age: Option<Duration>) -> Self {
        Self { gone_after: age.map(|age| (age, None)), ..self }
    }

    /// Sets the output of changes.
    pub(super) fn with_output(self, outlet: Option<ChangeEmitter>) -> Self {
        Self { outlet, ..self }
    }

    /// Periodically removes old data.
    fn prune(&mut self) {
        let Some((keep, last)) = &mut self.keep else { return };
        if last.is_some_and(|last| last.elapsed() < PRUNING) {
            return;
        }
        *last = Some(Instant::now());
        if let Err(error) = self.store.prune(ago(*keep)) {
            log_line(format_args!("bannerwall: cannot remove old data from the inventory: {error}"));
        }
    }

    /// Periodically marks services that were not seen for `gone_after` as gone.
    fn mark_unseen_as_gone(&mut self) {
        // Waiting sightings come first: they may show that some services are present.
        if self.failing.is_some() {
            return;
        }
        let Some((age, last)) = &mut self.gone_after else { return };
        // A hundredth of the age is precise enough.
        let pause = (*age / 100).clamp(LOOKING.0, LOOKING.1);
        if last.is_some_and(|last| last.elapsed() < pause) {
            return;
        }
        *last = Some(Instant::now());
        match self.store.mark_gone(ago(*age)) {
            Ok(changes) => self.outlet.iter().for_each(|outlet| outlet.emit(changes.clone())),
            Err(error) => {
                log_line(format_args!("bannerwall: cannot mark unseen servers as gone: {error}"));
            }
        }
    }

    /// Makes space if the store may not grow any more.
    fn fit(&mut self, coming: usize) {
        match self.store.make_room(coming) {
            Ok(0) => {}
            Ok(rows) => {
                self.losses.0.displaced.fetch_add(rows, Relaxed);
                log_line(format_args!(
                    "bannerwall: the inventory is near its size limit: services, clients and changes \
                     removed, oldest first: {rows}"
                ));
            }
            Err(error) => self.report_failure_once(&error),
        }
    }

    fn observe(&mut self, sighting: Sighting) {
        let Sighting { asset, what, software, at, flow, is_unanswered } = sighting;
        if matches!(what, SightingContent::Gone) {
            self.push(SightingRecord { asset, what, software, first: at, last: at, count: 1 });
            return;
        }
        let key = (asset, what);
        // A server that answers in another protocol has answered.
        if matches!(key.1, SightingContent::Met(_))
            && !self.flows.is_first(flow, &key.0.address)
            && is_unanswered
        {
            return;
        }
        // One connection counts once for each peer, even if it carries many requests.
        if matches!(key.1, SightingContent::Met(_) | SightingContent::SaidTo(..))
            && !self.flows.is_first(flow, &key)
        {
            return;
        }
        if let Some(recent) = self.recent.get_mut(&key) {
            recent.add(at);
            // The first sighting was written at once. Repetitions are only counted, so a busy server
            // costs one record a minute.
            if at.since(recent.reported) >= QUIET {
                recent.reported = at;
                let record = recent.take(&key);
                self.push(record);
            }
            return;
        }
        if self.recent.len() >= REMEMBERED {
            // Everything is written before the memory is emptied, so no count is lost.
            self.write_counts();
            self.recent.clear();
        }
        let record = SightingRecord {
            asset: key.0.clone(),
            what: key.1.clone(),
            software: software.clone(),
            first: at,
            last: at,
            count: 1,
        };
        self.recent.insert(key, RecentSighting { software, reported: at, first: at, last: at, count: 0 });
        self.push(record);
    }

    fn push(&mut self, record: SightingRecord) {
        self.since.get_or_insert_with(Instant::now);
        self.batch.push(record);
    }

    /// Writes the sightings that were only counted so far.
    fn write_counts(&mut self) {
        self.swept = Instant::now();
        // The entries stay, with a count of zero, so that the next sighting is still a repetition.
        let counted = self.recent.iter_mut().filter(|(_, recent)| recent.count > 0);
        self.batch.extend(counted.map(|(key, recent)| {
            recent.reported = recent.last;
            recent.take(key)
        }));
    }

    /// Renews the file also while nothing is written: later sightings may be of known assets, which only
    /// count.
    fn look_after_file(&mut self) {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.renew();
        }
    }

    /// Reopens the file if it was deleted or replaced, and forgets everything written to the old one.
    /// Returns false if that fails.
    fn renew(&mut self) -> bool {
        let renewed = self.store.reopen_if_replaced();
        // A success also clears an earlier fault.
        self.losses.set_file_fault(renewed.as_ref().err().map(ToString::to_string));
        match renewed {
            Ok(false) => true,
            Ok(true) => {
                self.losses.0.replaced.fetch_add(1, Relaxed);
                log_line(
                    "bannerwall: the inventory's file was deleted or replaced; its content is lost, and a new run starts",
                );
                self.write_counts();
                self.recent.clear();
                self.since.get_or_insert_with(Instant::now);
                true
            }
            Err(error) => {
                self.keep(&error);
                false
            }
        }
    }

    /// Returns the number of records that are written at once, before the deadline.
    fn batch_limit(&self) -> usize {
        let is_recent = |when: Option<Instant>, pause| when.is_some_and(|when| when.elapsed() < pause);
        // After a failure the records are collected for a moment. Otherwise each event would wait for
        // the same error.
        if is_recent(self.failing.map(|(_, when)| when), RETRY) {
            return WAITING;
        }
        let gathers = self.store.batching_delay().is_some_and(|pause| is_recent(self.written, pause));
        if gathers { BATCH } else { 0 }
    }

    fn write(&mut self) {
        if self.batch.is_empty() || !self.renew() {
            return;
        }
        // Space is made before the write, because a write at the page limit fails as a whole.
        self.fit(self.batch.len());
        let mut at_once = self.batch.len();
        while !self.batch.is_empty() {
            at_once = at_once.clamp(1, self.batch.len());
            match self.store.write(&self.batch[..at_once]) {
                Ok(taken) => {
                    self.batch.drain(..taken.records);
                    self.written = Some(Instant::now());
                    if let Some(outlet) = &self.outlet {
                        outlet.emit(taken.changes);
                    }
                    // After a success, a larger batch is tried again.
                    at_once *= 2;
                }
                // One record is at fault: halving the batch finds it, and the others are written without
                // it.
                Err(error) if error.is_data_error() && at_once > 1 => at_once /= 2,
                Err(error) if error.is_data_error() => {
                    self.report_failure_once(&error);
                    self.lose_first();
                }
                Err(error) => return self.keep(&error),
            }
        }
        if let Some((before, _)) = self.failing.take() {
            let lost = self.losses.count() - before;
            log_line(format_args!(
                "bannerwall: the inventory is written again; sightings lost meanwhile: {lost}"
            ));
        }
    }

    /// Keeps records for a blocked store, as far as there is space.
    fn keep(&mut self, error: &StoreError) {
        self.report_failure_once(error);
        if self.batch.len() >= WAITING {
            self.lose();
        }
    }

    /// Drops the first waiting record.
    fn lose_first(&mut self) {
        let SightingRecord { asset, what, count, .. } = self.batch.remove(0);
        // The counted repetitions go with it. Otherwise the same record would come back with the next
        // sweep, and fail again.
        let counted = self.recent.remove(&(asset, what)).map_or(0, |recent| recent.count);
        self.losses.0.lost.fetch_add(count + counted, Relaxed);
    }

    /// Drops the waiting records. They count as new when they are seen again.
    fn lose(&mut self) {
        let waiting = self.batch.iter().map(|record| record.count);
        let counted = self.recent.values().map(|recent| recent.count);
        self.losses.0.lost.fetch_add(waiting.chain(counted).sum(), Relaxed);
        self.batch.clear();
        self.recent.clear();
    }

    /// Reports once that the store fails, until it works again.
    fn report_failure_once(&mut self, error: &StoreError) {
        if self.failing.is_none() {
            log_line(format_args!(
                "bannerwall: cannot write the inventory: {error}; lost sightings are counted"
            ));
        }
        let before = self.failing.map_or(self.losses.count(), |(before, _)| before);
        self.failing = Some((before, Instant::now()));
    }
}

/// Returns the time `age` before now.
fn ago(age: Duration) -> Timestamp {
    Timestamp::from(SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH))
}

impl RecentSighting {
    /// Counts a sighting.
    fn add(&mut self, at: Timestamp) {
        if self.count == 0 {
            (self.first, self.last) = (at, at);
        }
        (self.first, self.last) = (self.first.min(at), self.last.max(at));
        self.count += 1;
    }

    /// Returns the unwritten sightings as a record.
    fn take(&mut self, (asset, what): &(AssetKey, SightingContent)) -> SightingRecord {
        SightingRecord {
            asset: asset.clone(),
            what: what.clone(),
            software: self.software.clone(),
            first: self.first,
            last: self.last,
            count: std::mem::take(&mut self.count),
        }
    }
}
