//! A batch that waits, and the run that it is of.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::file::{BatchHead, Kind, sealed};
use super::name::RunName;
use crate::inventory::batch::Author;
use crate::inventory::database::Parcel;

/// What a file takes at least, and each of its parts: a block of most file systems.
pub(super) const BLOCK: u64 = 4 << 10;

/// Since the Unix epoch, 1 January 2026: before that nobody had this program, and a clock that says so has
/// not been set.
const CLOCKLESS: Duration = Duration::from_secs(1_767_225_600);

/// Where the text of a batch is.
#[derive(Debug, Clone)]
pub(super) enum Held {
    File,
    /// The folder did not take it.
    Memory(Arc<Parcel>),
}

/// A batch that waits.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) run: RunName,
    pub(super) number: u64,
    pub(super) is_end: bool,
    pub(super) held: Held,
    /// What it takes of the disk, or of memory.
    pub(super) octets: u64,
    /// As far as that is known without its file.
    pub(super) sightings: Option<u64>,
    pub(super) written: SystemTime,
    /// Time at which this process came to know of it.
    pub(super) since: Instant,
    /// True if it outlasts a power cut.
    pub(super) lasts: bool,
}

impl Entry {
    /// One that is in a file.
    pub(super) fn in_file(run: RunName, number: u64, is_end: bool, length: u64, written: SystemTime) -> Self {
        let octets = length.next_multiple_of(BLOCK);
        let since = Instant::now();
        Self { run, number, is_end, held: Held::File, octets, sightings: None, written, since, lasts: true }
    }

    /// How old it is: by no clock that may jump where its run is the `own` one. A file that is older than
    /// this program was written before a clock had its time, and counts as new.
    pub(super) fn age(&self, own: &RunName) -> Duration {
        if self.run == *own || self.written < SystemTime::UNIX_EPOCH + CLOCKLESS {
            return self.since.elapsed();
        }
        // What lies ahead of the clock is new.
        self.written.elapsed().unwrap_or_default()
    }

    pub(super) fn file(&self) -> String {
        self.run.batch(self.number, self.is_end)
    }
}

/// What is known of a run of which batches wait, or of the own one.
#[derive(Debug, Clone)]
pub(super) struct RunState {
    /// Writes its end, once it is killed.
    pub(super) author: Option<Author>,
    pub(super) up_to: u64,
    /// Sightings that it has lost; of the own run those that had to make room.
    pub(super) lost: u64,
}

/// The file of a batch whose run has lost so much.
pub(super) fn written(parcel: &Parcel, lost: u64) -> Vec<u8> {
    let Parcel { stream, number, format, sightings, text } = parcel;
    let (stream, number, format, sightings) = (stream.clone(), *number, *format, *sightings);
    sealed(Kind::Batch, &BatchHead { stream, number, format, sightings, lost }, text)
}
