//! Passes events to the inventory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashSet;

use super::batch_sender::{DirectSender, GrantedAccess, SharedBacklog, SpillConfig, SpillStore, find};
use super::change_output::ChangeEmitter;
use super::database::{RunWriter, SensorInbox};
use super::error::StoreError;
use super::heartbeat::SensorHeartbeat;
use super::notify::NotificationReceivers;
use super::recorder::{SharedLosses, SightingRecorder};
use super::sighting::concerns;
use super::store::{RunDescription, SightingStore};
use crate::database::DatabaseLocation;
use crate::event::{Event, EventSink as _, EventSource};
use crate::output::consumer::ConsumerThread;
use crate::output::{ChannelHandle, OverflowPolicy, WriterConfig};
use crate::privileges::UnprivilegedUser;

/// Time for which a guard waits at its end for unsent batches: the next run sends the rest.
const SENT_LAST: Duration = Duration::from_secs(1);

/// Settings of the inventory and its writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordConfig {
    /// The file, or the database of a server.
    pub place: DatabaseLocation,
    /// The name of this sensor.
    pub sensor: String,
    /// True if `--sensor` was given.
    pub is_named: bool,
    /// Description of the targets or files, for a person.
    pub about: String,
    /// Time after the last sighting for which data is kept; for ever if absent.
    pub keep: Option<Duration>,
    /// Time without a sighting after which a server is marked as gone; never if absent.
    pub gone_after: Option<Duration>,
    /// Largest size of the file in bytes.
    pub max_size: Option<u64>,
    /// The directory in which a sensor's batches wait.
    pub spill: Option<SpillConfig>,
    /// Reports of changes.
    pub telling: ChangeReporting,
}

/// Settings of reports about changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeReporting {
    /// True to emit events in every output.
    pub as_events: bool,
    /// URLs and commands that are notified.
    pub receivers: NotificationReceivers,
    /// Age of the inventory before which changes are not reported.
    pub learn_for: Option<Duration>,
}

impl RecordConfig {
    /// For the packet path, which never waits: space for events that come while the disk is busy.
    const COUNTING: WriterConfig =
        WriterConfig { capacity: 1 << 16, octets: 64 << 20, overflow: OverflowPolicy::Count };

    /// Opens or creates the inventory and starts the thread that writes it. If wanted, changes are also
    /// emitted to `outputs`, which must not be finished before the inventory. A guard never waits for it;
    /// scan and replay do.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn start(&self, source: EventSource, outputs: Vec<ChannelHandle>) -> Result<Inventory, StoreError> {
        let telling = &self.telling;
        let run = RunDescription {
            source: source.name(),
            once: source == EventSource::Replay,
            reports_changes: telling.as_events || !telling.receivers.is_empty(),
            sensor: self.sensor.clone(),
            about: self.about.clone(),
        };
        if let (Some(_), DatabaseLocation::Server(_)) = (self.max_size, &self.place) {
            let why = "a server has no file whose size could be bounded; --keep bounds what is kept";
            return Err(StoreError::NoFile(self.place.clone(), why));
        }
        let channel = match source {
            EventSource::Guard => Self::COUNTING,
            EventSource::Replay => WriterConfig::WAITING,
            EventSource::Scan => WriterConfig::BATCHES,
        };
        let fault = |error| StoreError::File { path: self.place.to_string().into(), error };
        let losses = SharedLosses::default();
        let (post, backlog): (Box<dyn SightingStore>, _) =
            match self.open_destination(&run, source, &losses)? {
                SightingDestination::Inbox(inbox) => (Box::new(DirectSender::new(inbox, &run)?), None),
                SightingDestination::Folder(spill, backlog) => (spill, Some(backlog)),
                SightingDestination::Tables(store) => {
                    return self.record(source, outputs, &run, (*store, channel, losses));
                }
            };
        let recorder = SightingRecorder::new(post, losses.clone());
        let feed = ConsumerThread::open("inventory", channel, recorder).map_err(fault)?;
        let heartbeat = Some(SensorHeartbeat::start(&self.place).map_err(fault)?);
        Ok(Inventory { feed, losses, known: Arc::default(), backlog, _heartbeat: heartbeat })
    }

    /// Starts a recorder that writes the tables of the inventory.
    fn record(
        &self,
        source: EventSource,
        outputs: Vec<ChannelHandle>,
        run: &RunDescription,
        (store, channel, losses): (RunWriter, WriterConfig, SharedLosses),
    ) -> Result<Inventory, StoreError> {
        let telling = &self.telling;
        let fault = |error| StoreError::File { path: self.place.to_string().into(), error };
        let store = store.bounded(self.max_size)?;
        let known = match source {
            EventSource::Scan => Arc::new(store.known_servers()?),
            EventSource::Guard | EventSource::Replay => Arc::default(),
        };
        let outlet = if run.reports_changes {
            let outputs = if telling.as_events { outputs } else { Vec::new() };
            let learned =
                telling.learn_for.map(|age| store.begun().map(|begun| begun.after(age))).transpose()?;
            Some(
                ChangeEmitter::open(source, &run.sensor, outputs, &telling.receivers, learned)
                    .map_err(fault)?,
            )
        } else {
            None
        };
        let recorder = SightingRecorder::new(Box::new(store), losses.clone())
            .with_retention(self.keep)
            .with_gone_after(self.gone_after)
            .with_output(outlet);
        let feed = ConsumerThread::open("inventory", channel, recorder).map_err(fault)?;
        Ok(Inventory { feed, losses, known, backlog: None, _heartbeat: None })
    }

    /// Sets whether it takes over the spill directory from a predecessor.
    #[must_use]
    pub fn with_takeover(self, succeeds: bool) -> Self {
        Self { spill: self.spill.map(|spill| SpillConfig { succeeds, ..spill }), ..self }
    }

    /// Creates everything that the process needs once it is confined as `user`: the spill directory, if one
    /// is set, and the process that notifies.
    ///
    /// # Errors
    /// One of them cannot be created.
    pub fn prepare(&self, user: Option<&UnprivilegedUser>) -> Result<(), StoreError> {
        self.telling.receivers.start_delivery(user).map_err(StoreError::Notifier)?;
        // A spill directory for a file is refused later.
        let spill = self.spill.as_ref().filter(|_| self.place.file().is_none());
        spill.map_or(Ok(()), |spill| spill.prepare(user))
    }

    /// Returns the destination of sightings: a fleet's inbox if this is a sensor, else the tables.
    fn open_destination(
        &self,
        run: &RunDescription,
        source: EventSource,
        losses: &SharedLosses,
    ) -> Result<SightingDestination, StoreError> {
        let sensor = self.is_named.then_some(&*self.sensor);
        let way = match &self.spill {
            Some(spill) if self.place.file().is_some() => {
                let why = "it is for sensors of a fleet, whose --inventory is a server's (postgresql://…)";
                return Err(StoreError::Spill { folder: spill.folder.clone(), why: why.to_owned() });
            }
            Some(spill) => {
                let patience = (source == EventSource::Guard).then_some(SENT_LAST);
                let (spill, backlog) =
                    SpillStore::start(spill, &self.place, sensor, run, losses.clone(), patience)?;
                SightingDestination::Folder(Box::new(spill), backlog)
            }
            None if self.place.file().is_some() => {
                return RunWriter::open(&self.place, run).map(Box::new).map(SightingDestination::Tables);
            }
            None => match find(&self.place, sensor)? {
                GrantedAccess::Writer(inbox) => {
                    return inbox.into_writer(run).map(Box::new).map(SightingDestination::Tables);
                }
                GrantedAccess::Sensor(_, inbox) => SightingDestination::Inbox(inbox),
            },
        };
        let asked = [
            (run.reports_changes, "a role that may read reports changes (`inventory changes`, the page)"),
            (self.keep.is_some(), "use `inventory prune` instead of --keep"),
            (self.gone_after.is_some(), "--gone-after needs a role that may read"),
        ];
        if let Some((_, why)) = asked.into_iter().find(|(is_asked, _)| *is_asked) {
            return Err(StoreError::Sensor(self.place.clone(), why));
        }
        Ok(way)
    }
}

/// Destination of sightings.
enum SightingDestination {
    /// A file, or a server with full access.
    Tables(Box<RunWriter>),
    /// A server that accepts batches only.
    Inbox(SensorInbox),
    /// A directory from which batches are sent.
    Folder(Box<SpillStore>, SharedBacklog),
}

/// The inventory that a run writes; it must be finished at the end of the run.
#[derive(Debug)]
pub struct Inventory {
    feed: ConsumerThread<SightingRecorder>,
    losses: SharedLosses,
    /// Servers that were known before a scan.
    known: Arc<AHashSet<SocketAddr>>,
    backlog: Option<SharedBacklog>,
    /// Keeps this sensor of a fleet alive.
    _heartbeat: Option<SensorHeartbeat>,
}

impl Inventory {
    /// Returns a sender of events.
    pub fn observer(&self) -> InventorySender {
        InventorySender { handle: self.feed.handle() }
    }

    /// Returns its channel, and the servers that were known before a scan.
    pub fn scan_feed(&self) -> (ChannelHandle, Arc<AHashSet<SocketAddr>>) {
        (self.feed.handle(), Arc::clone(&self.known))
    }

    /// Number of events that did not fit, and of sightings that the store refused.
    pub fn lost(&self) -> u64 {
        self.feed.handle().lost() + self.losses.count()
    }

    /// Number of services, clients and changes that were removed to limit the file's size.
    pub fn removed_for_space(&self) -> u64 {
        self.losses.removed_for_space()
    }

    /// Number of times that the file was deleted or replaced during this run.
    pub fn replaced(&self) -> u64 {
        self.losses.replaced()
    }

    /// Why its file, which is gone, cannot be opened again.
    pub fn file_fault(&self) -> Option<String> {
        self.losses.file_fault()
    }

    /// Number of waiting batches and of their bytes; none without a spill directory.
    pub fn waiting(&self) -> Option<(u64, u64)> {
        self.backlog.as_ref().map(|backlog| (backlog.batches(), backlog.octets()))
    }

    /// Number of sightings that were dropped from that directory, and of batches set aside there.
    pub fn dropped(&self) -> (u64, u64) {
        self.backlog.as_ref().map_or((0, 0), |backlog| (backlog.dropped(), backlog.set_aside()))
    }

    /// Writes everything and returns the number of losses, including those of the spill directory.
    ///
    /// # Panics
    /// Propagates a panic of the recorder's thread.
    pub fn finish(self) -> u64 {
        let (handle, losses, backlog) = (self.feed.handle(), self.losses, self.backlog);
        drop(self.feed.finish());
        InventoryLosses::of(&handle, &losses, backlog.as_ref()).missing()
    }

    /// Does the same as [`Inventory::finish`], but gives up on a store that is blocked for `patience`;
    /// then it returns none.
    ///
    /// # Panics
    /// The same as [`Inventory::finish`].
    pub fn finish_within(self, patience: Duration) -> Option<InventoryLosses> {
        let (handle, losses, backlog) = (self.feed.handle(), self.losses, self.backlog);
        self.feed.finish_within(patience)?;
        Some(InventoryLosses::of(&handle, &losses, backlog.as_ref()))
    }
}

/// Losses of a finished inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InventoryLosses {
    /// Number of events that did not fit, and of sightings that the store refused.
    pub lost: u64,
    /// Number of sightings that were dropped from the spill directory.
    pub dropped: u64,
    /// Number of batches that were set aside there.
    pub set_aside: u64,
}

impl InventoryLosses {
    fn of(handle: &ChannelHandle, losses: &SharedLosses, backlog: Option<&SharedBacklog>) -> Self {
        let (dropped, set_aside) = backlog.map_or((0, 0), |it| (it.dropped(), it.set_aside()));
        Self { lost: handle.lost() + losses.count(), dropped, set_aside }
    }

    /// Number of sightings that are lost.
    pub const fn missing(&self) -> u64 {
        self.lost + self.dropped
    }
}

/// Sender of events to the inventory; one for each thread.
#[derive(Debug, Clone)]
pub struct InventorySender {
    handle: ChannelHandle,
}

impl InventorySender {
    /// Passes an event that other readers share.
    pub fn share(&self, event: &Arc<Event>) {
        if concerns(event) {
            self.handle.share(event);
        }
    }

    /// Passes an event.
    pub fn show(&mut self, event: &Event) {
        if concerns(event) {
            self.handle.emit(event.clone());
        }
    }
}
