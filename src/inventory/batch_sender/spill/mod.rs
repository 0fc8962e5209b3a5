//! Spill: each batch is a file of a directory until the server has it. A server that is away for hours
//! costs only disk space, and the next run sends the batches of a run that was killed.
//!
//! | module | what it owns |
//! |---|---|
//! | [`leftover_runs`] | the batches of earlier runs |
//! | [`waiting_batch`] | a waiting batch, and its run |
//! | [`file_format`] | the content of a file, and its checksum |
//! | [`directory`] | the directory, its lock, its owner |
//! | [`file_name`] | names of files |
//! | [`queue`] | the waiting batches, in order and within their bound |
//! | [`sender`] | the thread that sends |

mod directory;
mod file_format;
mod file_name;
mod leftover_runs;
mod queue;
mod sender;
#[cfg(test)]
mod tests;
mod waiting_batch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::directory::{LOCK, SpillDirectory};
use self::file_format::SpillOwner;
use self::file_name::RunName;
pub(in crate::inventory) use self::queue::SharedBacklog;
use self::queue::SpillState;
use self::sender::{SpillSender, take_over};
use super::super::database::{OutgoingBatch, SensorInbox};
use super::super::error::StoreError;
use super::super::recorder::SharedLosses;
use super::super::store::{RunDescription, SightingRecord, SightingStore, WriteResult};
use super::{BatchNumberer, GrantedAccess, find};
use crate::database::{DatabaseError, DatabaseLocation};
use crate::diagnostics::log_line;
use crate::privileges::{FILES, UnprivilegedUser, keep_or_warn};

/// Time for which records gather while the server is away: one file and one disk sync each second.
const GATHERS: Duration = Duration::from_secs(1);

/// Interval of the check at the end whether everything is sent.
const LOOKS: Duration = Duration::from_millis(5);

/// Time limit for a server to identify the role, if the directory's owner is known.
const SOON: Duration = Duration::from_secs(3);

/// Settings of the spill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillConfig {
    /// The directory.
    pub folder: PathBuf,
    /// Largest disk usage in bytes.
    pub size: u64,
    /// True if the directory is taken over from a predecessor.
    pub succeeds: bool,
}

impl SpillConfig {
    /// Creates the directory, if it is missing, for the user to which the process drops.
    ///
    /// # Errors
    /// Error of the system.
    pub fn prepare(&self, user: Option<&UnprivilegedUser>) -> Result<(), StoreError> {
        directory::prepare(&self.folder, user).map_err(|error| fault(&self.folder, &error))
    }

    /// Returns a file of the directory, to test whether it is writable.
    pub fn file(&self) -> PathBuf {
        self.folder.join(LOCK)
    }
}

/// Keeps batches in a directory, from which they are sent.
#[derive(Debug)]
pub(in crate::inventory) struct SpillStore {
    shared: Arc<SpillState>,
    writer: BatchNumberer,
    sender: JoinHandle<()>,
    /// Time for which the end waits for unsent batches; without a limit if absent, while the server
    /// accepts some.
    patience: Option<Duration>,
}

/// The sensor's name, and what else is known before the first write.
struct OpenedSpill {
    folder: SpillDirectory,
    sensor: String,
    inbox: Option<SensorInbox>,
}

impl SpillStore {
    /// Opens the directory and starts to send its batches; also returns the backlog.
    ///
    /// # Errors
    /// The directory cannot be used or belongs to another sensor, or the server is away and the directory
    /// has no owner.
    pub(in crate::inventory) fn start(
        config: &SpillConfig,
        place: &DatabaseLocation,
        sensor: Option<&str>,
        run: &RunDescription,
        losses: SharedLosses,
        patience: Option<Duration>,
    ) -> Result<(Self, SharedBacklog), StoreError> {
        let fault = |error| fault(&config.folder, &error);
        let folder = SpillDirectory::open(&config.folder).map_err(fault)?;
        // This comes before the first write, which is no sign of an earlier run.
        let changed = folder.changed();
        let lock = folder.lock().map_err(fault)?;
        if lock.is_none() && !config.succeeds {
            let by = folder.holder().map_or_else(String::new, |process| format!(" (process {process})"));
            let why = format!("another bannerwall{by} uses it; each needs a separate folder");
            return Err(StoreError::Spill { folder: config.folder.clone(), why });
        }
        let OpenedSpill { folder, sensor, inbox } = open(folder, place, sensor)?;
        let writer = BatchNumberer::new(run)?;
        let own = RunName { started: writer.author.started(), stream: writer.stream.clone() };
        let shared = Arc::new(SpillState::new(folder, config.size, losses, own, writer.author.clone()));
        if inbox.is_none() {
            shared.mark_server_away();
        }
        if let Some(lock) = lock {
            let _ = shared.lock.set(lock);
            take_over(&shared, changed);
        }
        let sender = SpillSender::new(Arc::clone(&shared), place.clone(), sensor, inbox);
        let sending = move || {
            keep_or_warn("spill", FILES);
            sender.run();
        };
        let sender = std::thread::Builder::new().name("spill".to_owned()).spawn(sending).map_err(fault)?;
        let backlog = shared.backlog.clone();
        Ok((Self { shared, writer, sender, patience }, backlog))
    }

    fn keep(&mut self, parcel: OutgoingBatch, is_end: bool) -> Result<(), StoreError> {
        self.shared.keep(parcel, is_end).map_err(|error| {
            self.writer.take_back();
            fault(self.shared.folder.path(), &error)
        })
    }
}

impl SightingStore for SpillStore {
    fn write(&mut self, batch: &[SightingRecord]) -> Result<WriteResult, StoreError> {
        if batch.is_empty() {
            return Ok(WriteResult::default());
        }
        let (count, parcel) = self.writer.write(batch);
        self.keep(parcel, false)?;
        Ok(WriteResult { records: count, changes: Vec::new() })
    }

    fn batching_delay(&self) -> Option<Duration> {
        self.shared.is_away().then_some(GATHERS)
    }

    fn finish(&mut self, _lost: u64) -> Result<(), StoreError> {
        let last = self.writer.end();
        let kept = self.keep(last, true);
        self.shared.close();
        let began = Instant::now();
        let is_patient = || self.patience.is_none_or(|patience| began.elapsed() < patience);
        while !self.sender.is_finished() && is_patient() {
            std::thread::sleep(LOOKS);
        }
        self.shared.write_memory_batches();
        let waiting = self.shared.backlog.batches();
        if waiting > 0 {
            log_line(format_args!(
                "bannerwall: unsent batches in {}: {waiting}; the next run sends them",
                self.shared.folder.path().display()
            ));
        }
        kept
    }
}

/// Finds out the sensor's name: from the server, or while that is away from the directory's owner.
fn open(
    folder: SpillDirectory,
    place: &DatabaseLocation,
    named: Option<&str>,
) -> Result<OpenedSpill, StoreError> {
    let refused = |why: String| StoreError::Spill { folder: folder.path().to_owned(), why };
    let remembered = folder.owner().map_err(|error| fault(folder.path(), &error))?;
    let server = place.to_string();
    if let Some(owner) = remembered.as_ref().filter(|owner| owner.server != server) {
        let SpillOwner { sensor, server: other } = owner;
        return Err(refused(format!("it is sensor {sensor}'s for {other}, and not for {server}")));
    }
    // Packets may wait already, so the wait for a silent server is short if the directory answers the
    // question.
    let found = if remembered.is_some() { find_soon(place, named) } else { find(place, named) };
    match (found, remembered) {
        (Ok(GrantedAccess::Writer(_)), _) => Err(StoreError::NoSensor(place.clone())),
        (Ok(GrantedAccess::Sensor(known, _)), Some(SpillOwner { sensor, .. })) if known != sensor => {
            Err(refused(format!("it is sensor {sensor}'s, and not sensor {known}'s")))
        }
        (Ok(GrantedAccess::Sensor(sensor, inbox)), Some(_)) => {
            Ok(OpenedSpill { folder, sensor, inbox: Some(inbox) })
        }
        (Ok(GrantedAccess::Sensor(sensor, inbox)), None) => {
            folder
                .remember(&SpillOwner { sensor: sensor.clone(), server })
                .map_err(|error| fault(folder.path(), &error))?;
            Ok(OpenedSpill { folder, sensor, inbox: Some(inbox) })
        }
        (Err(error), Some(SpillOwner { sensor, .. })) if error.is_unavailable() => {
            if let Some(named) = named.filter(|named| *named != sensor) {
                return Err(refused(format!("it is sensor {sensor}'s, and --sensor says {named}")));
            }
            log_line(format_args!(
                "bannerwall: {error}; batches of sensor {sensor} wait in {} until the server is back",
                folder.path().display()
            ));
            Ok(OpenedSpill { folder, sensor, inbox: None })
        }
        (Err(error), None) if error.is_unavailable() => {
            Err(refused(format!("{error}; and the folder is new, so the sensor's name is unknown")))
        }
        (Err(error), _) => Err(error),
    }
}

/// Returns the access that the server grants, if it answers soon.
fn find_soon(place: &DatabaseLocation, named: Option<&str>) -> Result<GrantedAccess, StoreError> {
    let (told, answer) = std::sync::mpsc::channel();
    let (asked, named) = (place.clone(), named.map(str::to_owned));
    let asking = move || {
        keep_or_warn("spill", FILES);
        // The receiver may have given up.
        let _ = told.send(find(&asked, named.as_deref()));
    };
    let thread = std::thread::Builder::new().name("spill-asks".to_owned()).spawn(asking);
    let silent = |error| StoreError::Database { place: place.clone(), error };
    thread.map_err(|error| silent(DatabaseError::System(error)))?;
    answer.recv_timeout(SOON).unwrap_or_else(|_| Err(silent(DatabaseError::Silent)))
}

fn fault(folder: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Spill { folder: folder.to_owned(), why: error.to_string() }
}
