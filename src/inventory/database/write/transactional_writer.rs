//! Batches that are written in one transaction with another module's own rows.

use std::net::SocketAddr;

use ahash::AHashSet;

use super::run_writer::RunWriter;
use crate::database::{DatabaseConnection, DatabaseError, DatabaseLocation};
use crate::event::Event;
use crate::inventory::error::StoreError;
use crate::inventory::sighting;
use crate::inventory::store::{RunDescription, SightingRecord, SightingStore as _};

/// The records of one batch.
#[derive(Debug, Default)]
pub struct BatchRecords(Vec<SightingRecord>);

impl BatchRecords {
    /// Adds the events of one target.
    pub fn add(&mut self, events: &[Event]) {
        self.0.extend(sighting::of_events(events).into_iter().map(|seen| SightingRecord {
            asset: seen.asset,
            what: seen.what,
            software: seen.software,
            first: seen.at,
            last: seen.at,
            count: 1,
        }));
    }
}

/// Writes an inventory of a server in batches, for a caller that tracks what was written.
#[derive(Debug)]
pub struct TransactionalWriter {
    writer: RunWriter,
}

impl TransactionalWriter {
    /// Opens the inventory and starts a run of the scan.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(place: &DatabaseLocation, sensor: &str, about: &str) -> Result<Self, StoreError> {
        let run = RunDescription {
            source: crate::event::EventSource::Scan.name(),
            once: false,
            reports_changes: false,
            sensor: sensor.to_owned(),
            about: about.to_owned(),
        };
        RunWriter::open(place, &run).map(|writer| Self { writer })
    }

    /// Returns every server that is present.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn known_servers(&self) -> Result<AHashSet<SocketAddr>, StoreError> {
        self.writer.known_servers()
    }

    /// Writes a batch in one transaction with the work of `beside`, which comes first. If `beside`
    /// returns that there is nothing to write, the batch is skipped. Returns true if it was written. If
    /// the answer is lost, it may have been written: `beside` has to detect that.
    ///
    /// # Errors
    /// Nothing is known to be written.
    pub fn write(
        &mut self,
        batch: &BatchRecords,
        beside: &mut dyn FnMut(&DatabaseConnection) -> Result<bool, DatabaseError>,
    ) -> Result<bool, StoreError> {
        self.writer.write_beside(&batch.0, beside)
    }

    /// True if the written data is at fault, so that a retry is useless.
    pub fn is_data_error(error: &StoreError) -> bool {
        error.is_data_error()
    }

    /// Ends the run cleanly.
    ///
    /// # Errors
    /// The end could not be recorded.
    pub fn end(mut self) -> Result<(), StoreError> {
        self.writer.finish(0)
    }
}
