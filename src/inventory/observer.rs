//! Passes events to the inventory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashSet;

use super::database::{Inbox, Writer};
use super::heartbeat::Heartbeat;
use super::notify::Receivers;
use super::outlet::Outlet;
use super::post::{Backlog, Found, Post, Spill, SpillConfig, find};
use super::recorder::{Losses, Recorder};
use super::sighting::concerns;
use super::store::{Run, Store, StoreError};
use crate::database::Place;
use crate::event::{Event, EventSink as _, Source};
use crate::output::consumer::Feed;
use crate::output::{Handle, Overflow, WriterConfig};
use crate::privileges::User;

/// Time for which a guard waits at its end for unsent batches: the next run sends the rest.
const SENT_LAST: Duration = Duration::from_secs(1);

/// Settings of the inventory and its writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordConfig {
    /// The file, or the database of a server.
    pub place: Place,
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
    pub telling: Telling,
}

/// Settings of reports about changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Telling {
    /// True to emit events in every output.
    pub as_events: bool,
    /// URLs and commands that are notified.
    pub receivers: Receivers,
    /// Age of the inventory before which changes are not reported.
    pub learn_for: Option<Duration>,
}

impl RecordConfig {
    /// For the packet path, which never waits: space for events that come while the disk is busy.
    const COUNTING: WriterConfig =
        WriterConfig { capacity: 1 << 16, octets: 64 << 20, overflow: Overflow::Count };

    /// Opens or creates the inventory and starts the thread that writes it. If wanted, changes are also
    /// emitted to `outputs`, which must not be finished before the inventory. A guard never waits for it;
    /// scan and replay do.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn start(&self, source: Source, outputs: Vec<Handle>) -> Result<Inventory, StoreError> {
        let telling = &self.telling;
        let run = Run {
            source: source.name(),
            once: source == Source::Replay,
            tells: telling.as_events || !telling.receivers.is_empty(),
            sensor: self.sensor.clone(),
            about: self.about.clone(),
        };
        if let (Some(_), Place::Server(_)) = (self.max_size, &self.place) {
            let why = "a server has no file whose size could be bounded; --keep bounds what is kept";
            return Err(StoreError::NoFile(self.place.clone(), why));
        }
        let channel = match source {
            Source::Guard => Self::COUNTING,
            Source::Replay => WriterConfig::WAITING,
            Source::Scan => WriterConfig::BATCHES,
        };
        let fault = |error| StoreError::File { path: self.place.to_string().into(), error };
        let losses = Losses::default();
        let (post, backlog): (Box<dyn Store>, _) = match self.way(&run, source, &losses)? {
            Way::Inbox(inbox) => (Box::new(Post::new(inbox, &run)?), None),
            Way::Folder(spill, backlog) => (spill, Some(backlog)),
            Way::Tables(store) => return self.record(source, outputs, &run, (*store, channel, losses)),
        };
        let recorder = Recorder::new(post, losses.clone());
        let feed = Feed::open("inventory", channel, recorder).map_err(fault)?;
        let heartbeat = Some(Heartbeat::start(&self.place).map_err(fault)?);
        Ok(Inventory { feed, losses, known: Arc::default(), backlog, _heartbeat: heartbeat })
    }

    /// Starts a recorder that writes the tables of the inventory.
    fn record(
        &self,
        source: Source,
        outputs: Vec<Handle>,
        run: &Run,
        (store, channel, losses): (Writer, WriterConfig, Losses),
    ) -> Result<Inventory, StoreError> {
        let telling = &self.telling;
        let fault = |error| StoreError::File { path: self.place.to_string().into(), error };
        let store = store.bounded(self.max_size)?;
        let known = match source {
            Source::Scan => Arc::new(store.known_servers()?),
            Source::Guard | Source::Replay => Arc::default(),
        };
        let outlet = if run.tells {
            let outputs = if telling.as_events { outputs } else { Vec::new() };
            let learned =
                telling.learn_for.map(|age| store.begun().map(|begun| begun.after(age))).transpose()?;
            Some(Outlet::open(source, &run.sensor, outputs, &telling.receivers, learned).map_err(fault)?)
        } else {
            None
        };
        let recorder = Recorder::new(Box::new(store), losses.clone())
            .keeping(self.keep)
            .giving_up_after(self.gone_after)
            .telling(outlet);
        let feed = Feed::open("inventory", channel, recorder).map_err(fault)?;
        Ok(Inventory { feed, losses, known, backlog: None, _heartbeat: None })
    }

    /// Sets whether it takes over the spill directory from a predecessor.
    #[must_use]
    pub fn succeeding(self, succeeds: bool) -> Self {
        Self { spill: self.spill.map(|spill| SpillConfig { succeeds, ..spill }), ..self }
    }

    /// Creates everything that the process needs once it is confined as `user`: the spill directory, if one
    /// is set, and the process that notifies.
    ///
    /// # Errors
    /// One of them cannot be created.
    pub fn prepare(&self, user: Option<&User>) -> Result<(), StoreError> {
        self.telling.receivers.start_delivery(user).map_err(StoreError::Notifier)?;
        // A spill directory for a file is refused later.
        let spill = self.spill.as_ref().filter(|_| self.place.file().is_none());
        spill.map_or(Ok(()), |spill| spill.prepare(user))
    }

    /// Returns the destination of sightings: a fleet's inbox if this is a sensor, else the tables.
    fn way(&self, run: &Run, source: Source, losses: &Losses) -> Result<Way, StoreError> {
        let sensor = self.is_named.then_some(&*self.sensor);
        let way = match &self.spill {
            Some(spill) if self.place.file().is_some() => {
                let why = "it is for sensors of a fleet, whose --inventory is a server's (postgresql://…)";
                return Err(StoreError::Spill { folder: spill.folder.clone(), why: why.to_owned() });
            }
            Some(spill) => {
                let patience = (source == Source::Guard).then_some(SENT_LAST);
                let (spill, backlog) =
                    Spill::start(spill, &self.place, sensor, run, losses.clone(), patience)?;
                Way::Folder(Box::new(spill), backlog)
            }
            None if self.place.file().is_some() => {
                return Writer::open(&self.place, run).map(Box::new).map(Way::Tables);
            }
            None => match find(&self.place, sensor)? {
                Found::Writer(inbox) => return inbox.into_writer(run).map(Box::new).map(Way::Tables),
                Found::Sensor(_, inbox) => Way::Inbox(inbox),
            },
        };
        let asked = [
            (run.tells, "a role that may read reports changes (`inventory changes`, the page)"),
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
enum Way {
    /// A file, or a server with full access.
    Tables(Box<Writer>),
    /// A server that accepts batches only.
    Inbox(Inbox),
    /// A directory from which batches are sent.
    Folder(Box<Spill>, Backlog),
}

/// The inventory that a run writes; it must be finished at the end of the run.
#[derive(Debug)]
pub struct Inventory {
    feed: Feed<Recorder>,
    losses: Losses,
    /// Servers that were known before a scan.
    known: Arc<AHashSet<SocketAddr>>,
    backlog: Option<Backlog>,
    /// Keeps this sensor of a fleet alive.
    _heartbeat: Option<Heartbeat>,
}

impl Inventory {
    /// Returns a sender of events.
    pub fn observer(&self) -> Observer {
        Observer { handle: self.feed.handle() }
    }

    /// Returns its channel, and the servers that were known before a scan.
    pub fn scan_feed(&self) -> (Handle, Arc<AHashSet<SocketAddr>>) {
        (self.feed.handle(), Arc::clone(&self.known))
    }

    /// Number of events that did not fit, and of sightings that the store refused.
    pub fn lost(&self) -> u64 {
        self.feed.handle().lost() + self.losses.count()
    }

    /// Number of services, clients and changes that were removed to limit the file's size.
    pub fn displaced(&self) -> u64 {
        self.losses.displaced()
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
        Finished::of(&handle, &losses, backlog.as_ref()).missing()
    }

    /// Does the same as [`Inventory::finish`], but gives up on a store that is blocked for `patience`;
    /// then it returns none.
    ///
    /// # Panics
    /// The same as [`Inventory::finish`].
    pub fn finish_within(self, patience: Duration) -> Option<Finished> {
        let (handle, losses, backlog) = (self.feed.handle(), self.losses, self.backlog);
        self.feed.finish_within(patience)?;
        Some(Finished::of(&handle, &losses, backlog.as_ref()))
    }
}

/// Losses of a finished inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Finished {
    /// Number of events that did not fit, and of sightings that the store refused.
    pub lost: u64,
    /// Number of sightings that were dropped from the spill directory.
    pub dropped: u64,
    /// Number of batches that were set aside there.
    pub set_aside: u64,
}

impl Finished {
    fn of(handle: &Handle, losses: &Losses, backlog: Option<&Backlog>) -> Self {
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
pub struct Observer {
    handle: Handle,
}

impl Observer {
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
