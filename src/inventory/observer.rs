//! The way of events to the inventory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashSet;

use super::database::{Inbox, Place, Writer};
use super::heartbeat::Heartbeat;
use super::notify::Receiver;
use super::outlet::Outlet;
use super::post::{Backlog, Found, Post, Spill, SpillConfig, find};
use super::recorder::{Losses, Recorder};
use super::sighting::concerns;
use super::store::{Run, Store, StoreError};
use crate::event::{Event, EventSink as _, Source};
use crate::output::consumer::Feed;
use crate::output::{Handle, Overflow, WriterConfig};
use crate::privileges::User;

/// Time for which a guard waits at its end for what is not sent: it goes with the next run.
const SENT_LAST: Duration = Duration::from_secs(1);

/// Where the inventory is, and who writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordConfig {
    /// The file, or the database of a server.
    pub place: Place,
    /// The name of this place of observation.
    pub sensor: String,
    /// True if somebody has given it.
    pub is_named: bool,
    /// What is scanned or read, for a person.
    pub about: String,
    /// Time for which things are kept since they were last seen; for ever where absent.
    pub keep: Option<Duration>,
    /// Time for which a server may not be seen before it is known as gone; for ever where absent.
    pub gone_after: Option<Duration>,
    /// The octets that the file may have.
    pub max_size: Option<u64>,
    /// Where batches of a sensor wait to be sent.
    pub spill: Option<SpillConfig>,
    /// Where changes are told.
    pub telling: Telling,
}

/// Where changes are told, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Telling {
    /// As events, in every output.
    pub as_events: bool,
    /// By requests and programs.
    pub receivers: Vec<Receiver>,
    /// How old an inventory is before its changes are told.
    pub learn_for: Option<Duration>,
}

impl RecordConfig {
    /// For the packet path, which never waits: room for what comes while the disk is busy.
    const COUNTING: WriterConfig =
        WriterConfig { capacity: 1 << 16, octets: 64 << 20, overflow: Overflow::Count };

    /// Opens or makes the inventory, and starts the thread that writes it, whose changes are told in
    /// `outputs` as well, where that is wanted. These must not be finished before the inventory. A guard
    /// never waits for it; scan and replay do.
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

    /// Writes the tables of the inventory.
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

    /// The same, which takes the folder for what is to be sent over from a process that is to end.
    #[must_use]
    pub fn succeeding(self, succeeds: bool) -> Self {
        Self { spill: self.spill.map(|spill| SpillConfig { succeeds, ..spill }), ..self }
    }

    /// Makes the folder for what is to be sent, where there is to be one, for a user that the process goes on
    /// as.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn prepare(&self, user: Option<&User>) -> Result<(), StoreError> {
        // Who gives one to a file is refused later.
        let spill = self.spill.as_ref().filter(|_| self.place.file().is_none());
        spill.map_or(Ok(()), |spill| spill.prepare(user))
    }

    /// The way of what is seen: to a fleet, where this is one of its sensors, or into tables.
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
            (run.tells, "changes are told by who may read (`inventory changes`, the page)"),
            (self.keep.is_some(), "`inventory prune` is for --keep"),
            (self.gone_after.is_some(), "--gone-after is for who may read"),
        ];
        if let Some((_, why)) = asked.into_iter().find(|(is_asked, _)| *is_asked) {
            return Err(StoreError::Sensor(self.place.clone(), why));
        }
        Ok(way)
    }
}

/// Where what is seen goes.
enum Way {
    /// A file, or a server that takes more than batches.
    Tables(Box<Writer>),
    /// A server that takes batches.
    Inbox(Inbox),
    /// A folder, from which they are sent.
    Folder(Box<Spill>, Backlog),
}

/// The inventory that a run writes, to be finished at its end.
#[derive(Debug)]
pub struct Inventory {
    feed: Feed<Recorder>,
    losses: Losses,
    /// Servers that were known before a scan.
    known: Arc<AHashSet<SocketAddr>>,
    backlog: Option<Backlog>,
    /// Says that this sensor of a fleet is there.
    _heartbeat: Option<Heartbeat>,
}

impl Inventory {
    /// A way to it.
    pub fn observer(&self) -> Observer {
        Observer { handle: self.feed.handle() }
    }

    /// Its channel, and the servers that were known before a scan.
    pub fn scan_feed(&self) -> (Handle, Arc<AHashSet<SocketAddr>>) {
        (self.feed.handle(), Arc::clone(&self.known))
    }

    /// Events that found no room, and sightings that the store refused.
    pub fn lost(&self) -> u64 {
        self.feed.handle().lost() + self.losses.count()
    }

    /// Services, clients and changes that were taken out since the file may not grow.
    pub fn displaced(&self) -> u64 {
        self.losses.displaced()
    }

    /// Times that the file was deleted or replaced under this run.
    pub fn replaced(&self) -> u64 {
        self.losses.replaced()
    }

    /// Batches that wait in a folder to be sent, and the octets that they take; none where there is no
    /// folder.
    pub fn waiting(&self) -> Option<(u64, u64)> {
        self.backlog.as_ref().map(|backlog| (backlog.batches(), backlog.octets()))
    }

    /// Sightings that were dropped from that folder, and batches that were set aside there.
    pub fn dropped(&self) -> (u64, u64) {
        self.backlog.as_ref().map_or((0, 0), |backlog| (backlog.dropped(), backlog.set_aside()))
    }

    /// Writes everything, and says how much was lost, also from the folder of what is to be sent.
    ///
    /// # Panics
    /// Hands on a panic of the recorder's thread.
    pub fn finish(self) -> u64 {
        let (handle, losses, backlog) = (self.feed.handle(), self.losses, self.backlog);
        drop(self.feed.finish());
        Finished::of(&handle, &losses, backlog.as_ref()).missing()
    }

    /// As [`Inventory::finish`], but gives a store up that takes nothing for so long; none then.
    ///
    /// # Panics
    /// As [`Inventory::finish`].
    pub fn finish_within(self, patience: Duration) -> Option<Finished> {
        let (handle, losses, backlog) = (self.feed.handle(), self.losses, self.backlog);
        self.feed.finish_within(patience)?;
        Some(Finished::of(&handle, &losses, backlog.as_ref()))
    }
}

/// What an inventory that has ended did not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Finished {
    /// Events that found no room, and sightings that the store refused.
    pub lost: u64,
    /// Sightings that were dropped from the folder of what is to be sent.
    pub dropped: u64,
    /// Batches that were set aside there.
    pub set_aside: u64,
}

impl Finished {
    fn of(handle: &Handle, losses: &Losses, backlog: Option<&Backlog>) -> Self {
        let (dropped, set_aside) = backlog.map_or((0, 0), |it| (it.dropped(), it.set_aside()));
        Self { lost: handle.lost() + losses.count(), dropped, set_aside }
    }

    /// Sightings that nobody will find.
    pub const fn missing(&self) -> u64 {
        self.lost + self.dropped
    }
}

/// Shows events to the inventory; one for each thread that has some.
#[derive(Debug, Clone)]
pub struct Observer {
    handle: Handle,
}

impl Observer {
    /// Shows an event that others read, too.
    pub fn share(&self, event: &Arc<Event>) {
        if concerns(event) {
            self.handle.share(event);
        }
    }

    /// Shows an event.
    pub fn show(&mut self, event: &Event) {
        if concerns(event) {
            self.handle.emit(event.clone());
        }
    }
}
