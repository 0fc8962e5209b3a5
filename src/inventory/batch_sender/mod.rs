//! The store of a sensor: sends sightings as batches to the inbox of a fleet, whose workers merge them.
//!
//! A batch that could not be sent is sent again unchanged, with its number, by which the server
//! recognizes it. If the server is away, batches wait in memory or in a directory ([`spill`]).

mod spill;

use super::batch::{BatchEncoder, FORMAT};
use super::database::{OutgoingBatch, SensorBacklog, SensorInbox};
use super::error::StoreError;
use super::inventory_time::InventoryTime;
use super::store::{RunDescription, SightingRecord, SightingStore, WriteResult};
use crate::database::DatabaseLocation;
pub use spill::SpillConfig;
pub(super) use spill::{SharedBacklog, SpillStore};

/// Sends batches directly, and accepts none that it cannot send.
#[derive(Debug)]
pub(super) struct DirectSender {
    inbox: SensorInbox,
    writer: BatchNumberer,
    /// A batch without an answer: the number of its records, the last record, and the batch.
    unanswered: Option<(usize, SightingRecord, OutgoingBatch)>,
}

/// Numbers the batches of a run.
#[derive(Debug)]
pub(super) struct BatchNumberer {
    author: BatchEncoder,
    stream: String,
    number: u64,
}

impl BatchNumberer {
    pub(super) fn new(run: &RunDescription) -> Result<Self, StoreError> {
        let none = || StoreError::Create(std::io::Error::other("the system has no random bytes"));
        // A random name instead of a clock or a process id: two runs of cloned machines would share
        // those, and the server would drop the batches of one as repetitions.
        let octets = random::<12>().ok_or_else(none)?;
        let stream = crate::terms::hexadecimal(&octets);
        Ok(Self { author: BatchEncoder::new(run, InventoryTime::now().millis()), stream, number: 0 })
    }

    /// Writes as many of the first records as fit into a batch; returns their number and the batch.
    pub(super) fn write(&mut self, records: &[SightingRecord]) -> (usize, OutgoingBatch) {
        let (count, text) = self.author.write(records);
        let sightings = records.iter().take(count).map(|record| record.count).sum();
        (count, self.parcel(text, sightings))
    }

    /// Returns the last batch.
    pub(super) fn end(&mut self) -> OutgoingBatch {
        let text = self.author.end(InventoryTime::now().millis());
        self.parcel(text, 0)
    }

    fn parcel(&mut self, text: String, sightings: u64) -> OutgoingBatch {
        self.number += 1;
        OutgoingBatch { stream: self.stream.clone(), number: self.number, format: FORMAT, sightings, text }
    }

    /// Makes the last number free again: no batch with it was sent.
    fn take_back(&mut self) {
        self.number -= 1;
    }
}

impl DirectSender {
    /// Creates the store of a run with an open inbox.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn new(inbox: SensorInbox, run: &RunDescription) -> Result<Self, StoreError> {
        Ok(Self { inbox, writer: BatchNumberer::new(run)?, unanswered: None })
    }
}

impl SightingStore for DirectSender {
    fn write(&mut self, batch: &[SightingRecord]) -> Result<WriteResult, StoreError> {
        // The recorder may have given up the unanswered records meanwhile.
        let is_of = |(count, last, _): &(usize, SightingRecord, OutgoingBatch)| {
            count.checked_sub(1).and_then(|at| batch.get(at)) == Some(last)
        };
        // The same batch with the same number is sent again. If the server did commit it before the
        // connection broke, it recognizes the number and drops the copy.
        let again = self.unanswered.take().filter(is_of);
        let (count, parcel) = match again {
            Some((count, _, parcel)) => (count, parcel),
            None => self.writer.write(batch),
        };
        let Some(last) = count.checked_sub(1).and_then(|at| batch.get(at)) else {
            return Ok(WriteResult::default());
        };
        match self.inbox.insert_batch(&parcel, SensorBacklog::default()) {
            Ok(()) => Ok(WriteResult { records: count, changes: Vec::new() }),
            Err(error) => {
                self.unanswered = Some((count, last.clone(), parcel));
                Err(error)
            }
        }
    }

    fn finish(&mut self, lost: u64) -> Result<(), StoreError> {
        let last = self.writer.end();
        self.inbox.insert_batch(&last, SensorBacklog { lost, waiting: 0 })
    }
}

/// Returns unpredictable bytes; none if the system has none.
fn random<const COUNT: usize>() -> Option<[u8; COUNT]> {
    ring::rand::generate(&ring::rand::SystemRandom::new()).ok().map(ring::rand::Random::expose)
}

/// Access that the server grants.
#[derive(Debug)]
pub(super) enum GrantedAccess {
    /// A sensor of this name, which may only insert batches.
    Sensor(String, SensorInbox),
    /// A role that may write the inventory itself.
    Writer(SensorInbox),
}

/// Connects to a server and finds out whether the role is a sensor's.
///
/// # Errors
/// The server is away, or its role belongs to another sensor than the named one.
pub(super) fn find(place: &DatabaseLocation, sensor: Option<&str>) -> Result<GrantedAccess, StoreError> {
    let inbox = SensorInbox::open(place)?;
    match (inbox.sensor()?, sensor) {
        (None, _) => Ok(GrantedAccess::Writer(inbox)),
        (Some(known), Some(named)) if known != named => {
            Err(StoreError::OtherSensor { place: place.clone(), known, named: named.to_owned() })
        }
        (Some(known), _) => Ok(GrantedAccess::Sensor(known, inbox)),
    }
}
