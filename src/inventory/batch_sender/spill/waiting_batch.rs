//! A waiting batch, and its run.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::file_format::{SpillFileKind, SpilledBatchHead, sealed};
use super::file_name::RunName;
use crate::inventory::batch::BatchEncoder;
use crate::inventory::database::OutgoingBatch;

/// Smallest disk usage of a file and its parts: a block of most file systems.
pub(super) const BLOCK: u64 = 4 << 10;

/// 1 January 2026, since the Unix epoch. The program did not exist before, so a clock with an earlier
/// time was not set yet.
const CLOCKLESS: Duration = Duration::from_secs(1_767_225_600);

/// Location of a batch's text.
#[derive(Debug, Clone)]
pub(super) enum BatchLocation {
    File,
    /// In memory, because the directory did not accept it.
    Memory(Arc<OutgoingBatch>),
}

/// A waiting batch.
#[derive(Debug, Clone)]
pub(super) struct WaitingBatch {
    pub(super) run: RunName,
    pub(super) number: u64,
    pub(super) is_end: bool,
    pub(super) held: BatchLocation,
    /// Its usage of the disk or of memory in bytes.
    pub(super) octets: u64,
    /// Number of its sightings, if known without reading its file.
    pub(super) sightings: Option<u64>,
    pub(super) written: SystemTime,
    /// Time at which this process learned of it.
    pub(super) since: Instant,
    /// True if it survives a power failure.
    pub(super) lasts: bool,
}

impl WaitingBatch {
    /// Returns an entry of a file.
    pub(super) fn in_file(run: RunName, number: u64, is_end: bool, length: u64, written: SystemTime) -> Self {
        let octets = length.next_multiple_of(BLOCK);
        let since = Instant::now();
        Self {
            run,
            number,
            is_end,
            held: BatchLocation::File,
            octets,
            sightings: None,
            written,
            since,
            lasts: true,
        }
    }

    /// Returns its age. For the `own` run it uses a monotonic clock. A file older than this program was
    /// written before the clock was set, and counts as new.
    pub(super) fn age(&self, own: &RunName) -> Duration {
        if self.run == *own || self.written < SystemTime::UNIX_EPOCH + CLOCKLESS {
            return self.since.elapsed();
        }
        // A time in the future counts as now.
        self.written.elapsed().unwrap_or_default()
    }

    pub(super) fn file(&self) -> String {
        self.run.batch(self.number, self.is_end)
    }
}

/// State of a run with waiting batches, or of the own one.
#[derive(Debug, Clone)]
pub(super) struct SpilledRun {
    /// Author that writes its last batch if it was killed.
    pub(super) author: Option<BatchEncoder>,
    pub(super) up_to: u64,
    /// Number of sightings that it has lost; for the own run, those that were dropped for space.
    pub(super) lost: u64,
}

/// Returns the file of a batch whose run has lost `lost` sightings.
pub(super) fn written(parcel: &OutgoingBatch, lost: u64) -> Vec<u8> {
    let OutgoingBatch { stream, number, format, sightings, text } = parcel;
    let (stream, number, format, sightings) = (stream.clone(), *number, *format, *sightings);
    sealed(SpillFileKind::Batch, &SpilledBatchHead { stream, number, format, sightings, lost }, text)
}
