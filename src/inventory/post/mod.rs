//! The store of a sensor: sends sightings as batches to the inbox of a fleet, whose workers merge them.
//!
//! A batch that could not be sent is sent again unchanged, with its number, by which the server
//! recognizes it. If the server is away, batches wait in memory or in a directory ([`spill`]).

mod spill;

use super::batch::{Author, FORMAT};
use super::database::{Inbox, Parcel, Standing, Time};
use super::store::{Record, Run, Store, StoreError, Taken};
use crate::database::Place;
pub use spill::SpillConfig;
pub(super) use spill::{Backlog, Spill};

/// Sends batches directly, and accepts none that it cannot send.
#[derive(Debug)]
pub(super) struct Post {
    inbox: Inbox,
    writer: Writer,
    /// A batch without an answer: the number of its records, the last record, and the batch.
    unanswered: Option<(usize, Record, Parcel)>,
}

/// Numbers the batches of a run.
#[derive(Debug)]
pub(super) struct Writer {
    author: Author,
    stream: String,
    number: u64,
}

impl Writer {
    pub(super) fn new(run: &Run) -> Result<Self, StoreError> {
        let none = || StoreError::Create(std::io::Error::other("the system has no random bytes"));
        let octets = random::<12>().ok_or_else(none)?;
        let stream = crate::terms::hexadecimal(&octets);
        Ok(Self { author: Author::new(run, Time::now().millis()), stream, number: 0 })
    }

    /// Writes as many of the first records as fit into a batch; returns their number and the batch.
    pub(super) fn write(&mut self, records: &[Record]) -> (usize, Parcel) {
        let (count, text) = self.author.write(records);
        let sightings = records.iter().take(count).map(|record| record.count).sum();
        (count, self.parcel(text, sightings))
    }

    /// Returns the last batch.
    pub(super) fn end(&mut self) -> Parcel {
        let text = self.author.end(Time::now().millis());
        self.parcel(text, 0)
    }

    fn parcel(&mut self, text: String, sightings: u64) -> Parcel {
        self.number += 1;
        Parcel { stream: self.stream.clone(), number: self.number, format: FORMAT, sightings, text }
    }

    /// Makes the last number free again: no batch with it was sent.
    fn take_back(&mut self) {
        self.number -= 1;
    }
}

impl Post {
    /// Creates the store of a run with an open inbox.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn new(inbox: Inbox, run: &Run) -> Result<Self, StoreError> {
        Ok(Self { inbox, writer: Writer::new(run)?, unanswered: None })
    }
}

impl Store for Post {
    fn write(&mut self, batch: &[Record]) -> Result<Taken, StoreError> {
        // The recorder may have given up the unanswered records meanwhile.
        let is_of = |(count, last, _): &(usize, Record, Parcel)| {
            count.checked_sub(1).and_then(|at| batch.get(at)) == Some(last)
        };
        let again = self.unanswered.take().filter(is_of);
        let (count, parcel) = match again {
            Some((count, _, parcel)) => (count, parcel),
            None => self.writer.write(batch),
        };
        let Some(last) = count.checked_sub(1).and_then(|at| batch.get(at)) else {
            return Ok(Taken::default());
        };
        match self.inbox.put(&parcel, Standing::default()) {
            Ok(()) => Ok(Taken { records: count, changes: Vec::new() }),
            Err(error) => {
                self.unanswered = Some((count, last.clone(), parcel));
                Err(error)
            }
        }
    }

    fn end(&mut self, lost: u64) -> Result<(), StoreError> {
        let last = self.writer.end();
        self.inbox.put(&last, Standing { lost, waiting: 0 })
    }
}

/// Returns unpredictable bytes; none if the system has none.
fn random<const COUNT: usize>() -> Option<[u8; COUNT]> {
    ring::rand::generate(&ring::rand::SystemRandom::new()).ok().map(ring::rand::Random::expose)
}

/// Access that the server grants.
#[derive(Debug)]
pub(super) enum Found {
    /// A sensor of this name, which may only insert batches.
    Sensor(String, Inbox),
    /// A role that may write the inventory itself.
    Writer(Inbox),
}

/// Connects to a server and finds out whether the role is a sensor's.
///
/// # Errors
/// The server is away, or its role belongs to another sensor than the named one.
pub(super) fn find(place: &Place, sensor: Option<&str>) -> Result<Found, StoreError> {
    let inbox = Inbox::open(place)?;
    match (inbox.sensor()?, sensor) {
        (None, _) => Ok(Found::Writer(inbox)),
        (Some(known), Some(named)) if known != named => {
            Err(StoreError::OtherSensor { place: place.clone(), known, named: named.to_owned() })
        }
        (Some(known), _) => Ok(Found::Sensor(known, inbox)),
    }
}
