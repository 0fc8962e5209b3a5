//! Batches that are written together with what another room keeps of them: all of both, or nothing.

use std::net::SocketAddr;

use ahash::AHashSet;

use super::super::beside::Desk;
use super::{Ahead, DatabaseError, Place, Record, Run, StoreError, Writer};
use crate::event::Event;
use crate::inventory::sighting;
use crate::inventory::store::Store as _;

/// What is to be written of one batch.
#[derive(Debug, Default)]
pub struct Findings(Vec<Record>);

impl Findings {
    /// Adds what the events of one target say.
    pub fn add(&mut self, events: &[Event]) {
        self.0.extend(sighting::of_events(events).into_iter().map(|seen| Record {
            asset: seen.asset,
            what: seen.what,
            software: seen.software,
            first: seen.at,
            last: seen.at,
            count: 1,
        }));
    }
}

/// Writes an inventory of a server by the batch, for who knows himself what was written.
#[derive(Debug)]
pub struct Keeper {
    writer: Writer,
}

impl Keeper {
    /// Opens the inventory, and begins a run of the scan there.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(place: &Place, sensor: &str, about: &str) -> Result<Self, StoreError> {
        let run = Run {
            source: crate::event::Source::Scan.name(),
            once: false,
            tells: false,
            sensor: sensor.to_owned(),
            about: about.to_owned(),
        };
        Writer::open(place, &run).map(|writer| Self { writer })
    }

    /// Every server that is known to be there.
    ///
    /// # Errors
    /// What the database says.
    pub fn known_servers(&self) -> Result<AHashSet<SocketAddr>, StoreError> {
        self.writer.known_servers()
    }

    /// Writes a batch and what `beside` does, before it, in one transaction, unless that says that there is
    /// nothing to write; whether it was written. Where the answer is lost, that may be so all the same:
    /// `beside` has to know.
    ///
    /// # Errors
    /// It is not known that anything was written.
    pub fn write(
        &mut self,
        batch: &Findings,
        beside: &mut dyn FnMut(Desk<'_>) -> Result<bool, DatabaseError>,
    ) -> Result<bool, StoreError> {
        let writer = &mut self.writer;
        writer.memory.bound();
        let outcome = writer.revive().and_then(|()| writer.try_write_beside(&batch.0, beside));
        if !matches!(outcome, Ok(true)) {
            // It may hold rows that were never written.
            writer.memory.forget();
        }
        outcome.map_err(|error| writer.database.fault(error))
    }

    /// True if what was to be written is at fault, and would be each time.
    pub fn refuses(error: &StoreError) -> bool {
        error.is_of_content()
    }

    /// The run is over, cleanly.
    ///
    /// # Errors
    /// It is not known as over.
    pub fn end(mut self) -> Result<(), StoreError> {
        self.writer.end(0)
    }
}

impl Writer {
    fn try_write_beside(
        &mut self,
        batch: &[Record],
        beside: &mut dyn FnMut(Desk<'_>) -> Result<bool, DatabaseError>,
    ) -> Result<bool, DatabaseError> {
        // What is beside needs nobody's turn: others may write the inventory meanwhile.
        let transaction = self.database.link.transaction_of_own()?;
        if !beside(Desk::new(&transaction))? {
            return Ok(false);
        }
        if !batch.is_empty() {
            transaction.wait_for_turn()?;
            self.memory.write(&transaction, batch, self.sensor)?;
        }
        transaction.commit()?;
        self.memory.ahead = Ahead::default();
        Ok(true)
    }
}
