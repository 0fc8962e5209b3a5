//! Queue of waiting batches, shared by the recording thread and the sending thread. The first batch is
//! removed once the server has it. If there is no space, the oldest are dropped, but never the last batch
//! of a run.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use super::directory::{DirectoryLock, SpillDirectory};
use super::file_format::{SpillFileKind, SpilledBatchHead, SpilledRunHead, opened, sealed};
use super::file_name::{RunName, SetAsideReason};
use super::waiting_batch::{BLOCK, BatchLocation, SpilledRun, WaitingBatch, written};
use crate::diagnostics::log_line;
use crate::inventory::batch::BatchEncoder;
use crate::inventory::database::OutgoingBatch;
use crate::inventory::recorder::SharedLosses;

/// Largest number of bytes of batches in memory while the directory accepts none.
const MEMORY: u64 = 8 << 20;

/// Number of batch numbers that a run reserves at once.
const NUMBERS: u64 = 1_000;

/// Time after which a server forgets silent runs: it might accept older batches twice.
const FORGOTTEN: Duration = Duration::from_secs(90 * 86_400);

/// Figures about the waiting batches, shared with metrics.
#[derive(Debug, Clone, Default)]
pub(in crate::inventory) struct SharedBacklog(Arc<BacklogCounters>);

#[derive(Debug, Default)]
struct BacklogCounters {
    batches: AtomicU64,
    octets: AtomicU64,
    dropped: AtomicU64,
    set_aside: AtomicU64,
}

impl SharedBacklog {
    /// Number of waiting batches.
    pub(in crate::inventory) fn batches(&self) -> u64 {
        self.0.batches.load(Relaxed)
    }

    /// Number of bytes of the disk that they take.
    pub(in crate::inventory) fn octets(&self) -> u64 {
        self.0.octets.load(Relaxed)
    }

    /// Number of sightings that were dropped for space or because of their age.
    pub(in crate::inventory) fn dropped(&self) -> u64 {
        self.0.dropped.load(Relaxed)
    }

    /// Number of batches that were damaged, or refused by the server.
    pub(in crate::inventory) fn set_aside(&self) -> u64 {
        self.0.set_aside.load(Relaxed)
    }
}

#[derive(Debug, Default)]
struct BatchQueue {
    waiting: VecDeque<WaitingBatch>,
    runs: BTreeMap<RunName, SpilledRun>,
    /// Number of bytes on disk and in memory.
    octets: [u64; 2],
    /// True if the first batch is being sent, or may have reached the server.
    is_first_out: bool,
    /// True if no more batches will come.
    is_last: bool,
}

/// The first batch, taken for sending.
#[derive(Debug)]
pub(super) struct SendJob {
    pub(super) entry: WaitingBatch,
    /// Number of sightings that its run has lost so far.
    pub(super) lost: u64,
    /// Number of batches after it.
    pub(super) behind: u64,
}

/// The reason why a batch cannot be sent.
#[derive(Debug)]
pub(super) enum UnsendableReason {
    /// Its file is damaged for good.
    Damaged(String),
    /// A temporary error, or one of this process: the file may be intact.
    Fault(io::Error),
}

impl From<io::Error> for UnsendableReason {
    fn from(error: io::Error) -> Self {
        // These errors pass by themselves, so the file must not be set aside as damaged.
        const PASSING: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR];
        let passes = error.raw_os_error().is_some_and(|code| PASSING.contains(&code));
        if passes || error.kind() == io::ErrorKind::PermissionDenied {
            Self::Fault(error)
        } else {
            Self::Damaged(error.to_string())
        }
    }
}

/// State that both threads share.
#[derive(Debug)]
pub(super) struct SpillState {
    pub(super) folder: SpillDirectory,
    pub(super) own: RunName,
    /// Largest disk usage in bytes.
    bound: u64,
    /// Losses of the recorder in the own run.
    losses: SharedLosses,
    pub(super) backlog: SharedBacklog,
    queue: Mutex<BatchQueue>,
    changed: Condvar,
    is_away: AtomicBool,
    /// True if the directory's error was reported, and true if it was reported as full.
    told: [AtomicBool; 2],
    pub(super) lock: OnceLock<DirectoryLock>,
}

impl SpillState {
    /// Starts the own run.
    pub(super) fn new(
        folder: SpillDirectory,
        bound: u64,
        losses: SharedLosses,
        own: RunName,
        author: BatchEncoder,
    ) -> Self {
        let shared = Self {
            folder,
            own: own.clone(),
            bound,
            losses,
            backlog: SharedBacklog::default(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            is_away: AtomicBool::new(false),
            told: Default::default(),
            lock: OnceLock::new(),
        };
        let state = SpilledRun { author: Some(author), up_to: NUMBERS, lost: 0 };
        shared.note(&own, &state);
        shared.queue().runs.insert(own, state);
        shared
    }

    fn queue(&self) -> MutexGuard<'_, BatchQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the server is known to be away.
    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Relaxed)
    }

    /// Returns the number of sightings that a run has lost.
    fn lost(&self, run: &RunName, state: Option<&SpilledRun>) -> u64 {
        let own = if *run == self.own { self.losses.count() } else { 0 };
        state.map_or(0, |state| state.lost) + own
    }

    /// Adds a batch of the own run: in a file, or temporarily in memory.
    ///
    /// # Errors
    /// Neither has space.
    pub(super) fn keep(&self, parcel: OutgoingBatch, is_end: bool) -> io::Result<()> {
        let (run, number, sightings) = (self.own.clone(), parcel.number, Some(parcel.sightings));
        let mut queue = self.queue();
        // The state reserves the numbers on disk before one is used, so that no later run reuses them.
        if let Some(state) = queue.runs.get_mut(&run).filter(|state| number > state.up_to) {
            state.up_to = number + NUMBERS;
            self.note(&run, state);
        }
        let octets = written(&parcel, self.lost(&run, queue.runs.get(&run)));
        let length = octets.len() as u64;
        self.make_room(&mut queue, length.next_multiple_of(BLOCK));
        // The sender must not wait for the disk, so the lock is released meanwhile.
        drop(queue);
        let lasts = self.is_away();
        let entry = WaitingBatch {
            sightings,
            lasts,
            ..WaitingBatch::in_file(run.clone(), number, is_end, length, SystemTime::now())
        };
        let stored = self.folder.put(&run.batch(number, is_end), &octets, lasts);
        let mut queue = self.queue();
        let entry = match stored {
            Ok(()) => {
                if self.told[0].swap(false, Relaxed) {
                    log_line(format_args!(
                        "bannerwall: --spill {}: batches are written to it again",
                        self.path()
                    ));
                }
                entry
            }
            Err(error) => {
                if !self.told[0].swap(true, Relaxed) {
                    log_line(format_args!(
                        "bannerwall: --spill {}: {error}: batches stay in memory while there is space",
                        self.path()
                    ));
                }
                // Without a limit, a full disk would exhaust the memory of the guard as well.
                if queue.octets[1] + length > MEMORY {
                    return Err(error);
                }
                WaitingBatch { held: BatchLocation::Memory(Arc::new(parcel)), octets: length, ..entry }
            }
        };
        self.push(&mut queue, entry);
        drop(queue);
        self.changed.notify_all();
        Ok(())
    }

    fn path(&self) -> std::path::Display<'_> {
        self.folder.path().display()
    }

    fn push(&self, queue: &mut BatchQueue, entry: WaitingBatch) {
        queue.octets[usize::from(!matches!(entry.held, BatchLocation::File))] += entry.octets;
        queue.waiting.push_back(entry);
        self.show(queue);
    }

    /// Adds the batches of earlier runs before all others.
    pub(super) fn adopt(&self, runs: Vec<(RunName, SpilledRun)>, entries: Vec<WaitingBatch>) {
        let mut queue = self.queue();
        queue.runs.extend(runs);
        // The batches of earlier runs go first, so that the server gets sightings in the order of their
        // times.
        let own = std::mem::replace(&mut queue.waiting, entries.into());
        let octets = |is_file| {
            let all =
                queue.waiting.iter().filter(|entry| matches!(entry.held, BatchLocation::File) == is_file);
            all.map(|entry| entry.octets).sum::<u64>()
        };
        let adopted = [octets(true), octets(false)];
        queue.octets = [queue.octets[0] + adopted[0], queue.octets[1] + adopted[1]];
        queue.waiting.extend(own);
        self.make_room(&mut queue, 0);
        self.show(&queue);
    }

    fn show(&self, queue: &BatchQueue) {
        self.backlog.0.batches.store(queue.waiting.len() as u64, Relaxed);
        self.backlog.0.octets.store(queue.octets[0], Relaxed);
    }

    /// Drops the oldest batches until there is space for `coming` bytes.
    fn make_room(&self, queue: &mut BatchQueue, coming: u64) {
        let before = self.backlog.dropped();
        while queue.octets[0] + coming > self.bound {
            // The server may have the first batch already, so it must not be dropped.
            let first = usize::from(queue.is_first_out);
            let may_go = |entry: &WaitingBatch| !entry.is_end && matches!(entry.held, BatchLocation::File);
            let Some(at) = queue.waiting.iter().skip(first).position(may_go) else { break };
            self.drop_at(queue, first + at);
        }
        if self.backlog.dropped() > before && !self.told[1].swap(true, Relaxed) {
            log_line(format_args!(
                "bannerwall: --spill {} is full: the oldest batches are dropped; lost sightings are counted",
                self.path()
            ));
        }
    }

    /// Drops an unsent batch and counts its sightings.
    fn drop_at(&self, queue: &mut BatchQueue, at: usize) {
        let Some(entry) = queue.waiting.remove(at) else { return };
        let known = || self.read(&entry).map(|parcel| parcel.sightings).ok();
        let sightings = entry.sightings.or_else(known).unwrap_or_default();
        // The loss is recorded before the file is removed. After a crash in between the batch is sent
        // and counted as lost, but no loss stays hidden.
        self.lose(queue, &entry, sightings);
        self.backlog.0.dropped.fetch_add(sightings, Relaxed);
        self.forget(queue, &entry);
    }

    /// Counts a batch's sightings as lost by its run, before its file is removed. If the process is
    /// killed in between, the count is too high rather than too low.
    fn lose(&self, queue: &mut BatchQueue, entry: &WaitingBatch, sightings: u64) {
        let Some(state) = queue.runs.get_mut(&entry.run).filter(|_| sightings > 0) else { return };
        state.lost += sightings;
        self.note(&entry.run, state);
    }

    /// Removes the file of a finished batch; after the last batch of a run, also the run's state.
    fn forget(&self, queue: &mut BatchQueue, entry: &WaitingBatch) {
        let place = usize::from(!matches!(entry.held, BatchLocation::File));
        queue.octets[place] = queue.octets[place].saturating_sub(entry.octets);
        let mut removed = Ok(());
        if entry.is_end {
            // This comes before the last batch, so that no run writes another one.
            queue.runs.remove(&entry.run);
            removed = self.folder.remove(&entry.run.file());
        }
        if let BatchLocation::File = entry.held {
            removed = removed.and(self.folder.remove(&entry.file()));
        }
        if let Err(error) = removed {
            // The next run sends it again, and the server recognizes it.
            log_line(format_args!("bannerwall: --spill {}: {}: {error}", self.path(), entry.file()));
        }
        self.show(queue);
    }

    /// Writes the state of a run. If that fails, the next loss writes it.
    fn note(&self, run: &RunName, state: &SpilledRun) {
        let head = SpilledRunHead { up_to: state.up_to, lost: self.lost(run, Some(state)) };
        let text = state.author.as_ref().map(BatchEncoder::head).unwrap_or_default();
        // An error is not reported here: it shows at the next batch, which is written to the same
        // folder.
        let _ = self.folder.put(&run.file(), &sealed(SpillFileKind::Run, &head, &text), self.is_away());
    }

    /// Returns the first batch as soon as there is one; none if no more will come.
    pub(super) fn next(&self) -> Option<SendJob> {
        let mut queue = self.queue();
        loop {
            while queue.waiting.front().is_some_and(|entry| entry.age(&self.own) > FORGOTTEN) {
                self.drop_at(&mut queue, 0);
                queue.is_first_out = false;
            }
            if let Some(entry) = queue.waiting.front().cloned() {
                // From here on the server may get the batch at any time, so [`Self::make_room`] must
                // not drop it.
                queue.is_first_out = true;
                let lost = self.lost(&entry.run, queue.runs.get(&entry.run));
                return Some(SendJob { lost, behind: queue.waiting.len() as u64 - 1, entry });
            }
            if queue.is_last {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the batch as it is sent.
    pub(super) fn read(&self, entry: &WaitingBatch) -> Result<OutgoingBatch, UnsendableReason> {
        if let BatchLocation::Memory(parcel) = &entry.held {
            return Ok(OutgoingBatch::clone(parcel));
        }
        let damaged = |why: &str| UnsendableReason::Damaged(why.to_owned());
        let octets = self.folder.read(&entry.file()).map_err(UnsendableReason::from)?;
        let (head, text) = opened::<SpilledBatchHead>(SpillFileKind::Batch, &octets)
            .ok_or_else(|| damaged("it is damaged"))?;
        // A file under a false name would be sent with a number that another batch has or gets.
        if (&head.stream, head.number) != (&entry.run.stream, entry.number) {
            return Err(damaged("its name belongs to another batch"));
        }
        let SpilledBatchHead { stream, number, format, sightings, lost: _ } = head;
        Ok(OutgoingBatch { stream, number, format, sightings, text: text.to_owned() })
    }

    /// Removes the first batch: the server has it.
    pub(super) fn is_sent(&self) {
        self.pop(|_, _, _| {});
    }

    /// Sets the first batch aside, because it cannot be read or is refused; `sightings` of it are lost.
    pub(super) fn set_aside(&self, why: SetAsideReason, sightings: u64) {
        self.pop(|shared, queue, entry| {
            shared.lose(queue, entry, sightings);
            shared.backlog.0.set_aside.fetch_add(1, Relaxed);
            if let BatchLocation::File = entry.held
                && let Err(error) = shared.folder.set_aside(&entry.file(), why)
            {
                log_line(format_args!("bannerwall: --spill {}: {}: {error}", shared.path(), entry.file()));
            }
        });
    }

    /// Reduces a batch in a file to these records before it is set aside. If they cannot be written, the
    /// file stays as it is: it is kept for a person to inspect.
    pub(super) fn keep_only(&self, entry: &WaitingBatch, records: &OutgoingBatch) {
        if let BatchLocation::File = entry.held {
            let _ = self.folder.put(&entry.file(), &written(records, 0), false);
        }
    }

    fn pop(&self, before: impl FnOnce(&Self, &mut BatchQueue, &WaitingBatch)) {
        let mut queue = self.queue();
        queue.is_first_out = false;
        if let Some(entry) = queue.waiting.pop_front() {
            before(self, &mut queue, &entry);
            self.forget(&mut queue, &entry);
        }
    }

    /// Keeps the first batch, which was not sent. If it `may_be_there` nevertheless, it will not be
    /// dropped.
    pub(super) fn keep_first(&self, may_be_there: bool) {
        self.queue().is_first_out = may_be_there;
    }

    /// Records that the server is away: from now on files survive a power failure.
    pub(super) fn mark_server_away(&self) {
        if self.is_away.swap(true, Relaxed) {
            return;
        }
        // While the server answers, a batch lives for milliseconds, and a sync for each one would be
        // wasted. Once it is away, they must survive a crash of the machine.
        let is_open = |entry: &&WaitingBatch| !entry.lasts && matches!(entry.held, BatchLocation::File);
        let files: Vec<String> =
            self.queue().waiting.iter().filter(is_open).map(WaitingBatch::file).collect();
        // The next write reports a failed sync.
        let synced: io::Result<()> = files.iter().try_for_each(|file| self.folder.sync_file(file));
        let _ = synced.and_then(|()| self.folder.sync());
    }

    /// Records that the server is back; new drops are reported again.
    pub(super) fn mark_server_back(&self) {
        self.is_away.store(false, Relaxed);
        self.told[1].store(false, Relaxed);
    }

    /// Pauses for this time, or until the run ends; returns true if it has ended.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let queue = self.queue();
        if queue.is_last {
            return true;
        }
        let waited = self.changed.wait_timeout_while(queue, pause, |queue| !queue.is_last);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_last
    }

    /// Records that no more batches of the own run will come.
    pub(super) fn close(&self) {
        self.queue().is_last = true;
        self.changed.notify_all();
    }

    /// Writes batches that are only in memory, at the end of the run; those that cannot be written are
    /// lost and counted.
    pub(super) fn write_memory_batches(&self) {
        let mut queue = self.queue();
        let (mut lost, mut octets) = (0, queue.octets);
        let BatchQueue { waiting, runs, .. } = &mut *queue;
        for entry in &mut *waiting {
            let BatchLocation::Memory(parcel) = &entry.held else { continue };
            let file = written(parcel, self.lost(&entry.run, runs.get(&entry.run)));
            if self.folder.put(&entry.file(), &file, true).is_ok() {
                // The file system allocates whole blocks, and the limit is one of disk space.
                (entry.held, entry.octets) =
                    (BatchLocation::File, (file.len() as u64).next_multiple_of(BLOCK));
                octets[0] += entry.octets;
            } else {
                lost += parcel.sightings;
                if let Some(state) = runs.get_mut(&entry.run) {
                    state.lost += parcel.sightings;
                }
            }
        }
        if lost > 0 {
            // The next run reports it to the server, if there is space for this little file.
            runs.iter().for_each(|(run, state)| self.note(run, state));
        }
        queue.octets = octets;
        self.backlog.0.dropped.fetch_add(lost, Relaxed);
        if lost > 0 {
            log_line(format_args!(
                "bannerwall: --spill {}: sightings that could not be written and are lost: {lost}",
                self.path()
            ));
        }
        self.show(&queue);
    }
}
