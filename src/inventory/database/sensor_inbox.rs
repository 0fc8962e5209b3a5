//! The inbox of a sensor: a table of the fleet into which it may only insert rows. This module sends; the
//! fleet processes the batches.

use super::table_client::TableClient;
use super::write::RunWriter;
use crate::database::{DatabaseConnection, DatabaseError, DatabaseLocation, values};
use crate::inventory::error::StoreError;
use crate::inventory::inventory_time::InventoryTime;
use crate::inventory::store::RunDescription;

/// A batch to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::inventory) struct OutgoingBatch {
    /// The run that wrote it.
    pub(in crate::inventory) stream: String,
    /// Number of the batch in its run, from 1.
    pub(in crate::inventory) number: u64,
    /// The version of its format.
    pub(in crate::inventory) format: i64,
    /// Number of its sightings.
    pub(in crate::inventory) sightings: u64,
    pub(in crate::inventory) text: String,
}

/// State of a sensor that sends a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::inventory) struct SensorBacklog {
    /// Number of sightings that its run has lost.
    pub(in crate::inventory) lost: u64,
    /// Number of batches that wait after this one.
    pub(in crate::inventory) waiting: u64,
}

/// A sensor's connection to the server.
#[derive(Debug)]
pub(in crate::inventory) struct SensorInbox {
    beside: TableClient,
}

impl SensorInbox {
    /// Connects to a server.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn open(place: &DatabaseLocation) -> Result<Self, StoreError> {
        TableClient::of_server(place).map(|beside| Self { beside })
    }

    /// Returns the sensor that the role belongs to; none if the role is not limited to inserting batches.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::inventory) fn sensor(&self) -> Result<Option<String>, StoreError> {
        // The role is a sensor's if it may insert batches but not read any. `session_user`, because SET
        // ROLE does not change it.
        let query = "SELECT session_user::text FROM pg_class WHERE relname = 'fleet_inbox'
             AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'bannerwall')
             AND has_column_privilege(oid, 'batch', 'INSERT') AND NOT has_table_privilege(oid, 'SELECT')";
        let found = self.beside.link().one(query, values![], |row| row.get(0));
        found.map_err(|error| self.beside.fault(error))
    }

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::inventory) fn send_heartbeat(&self) -> Result<(), StoreError> {
        let sent = self.beside.link().one("SELECT true FROM fleet_heard()", &[], |_| Ok(()));
        sent.map(drop).map_err(|error| self.beside.fault(error))
    }

    /// Turns the connection into a writer of the inventory, if the role is no sensor's.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn into_writer(self, run: &RunDescription) -> Result<RunWriter, StoreError> {
        RunWriter::by(self.beside.into_database(), run)
    }

    /// Reconnects if the connection is lost.
    ///
    /// # Errors
    /// The server is unreachable.
    pub(in crate::inventory) fn ensure_connected(&mut self) -> Result<(), StoreError> {
        self.beside.revive().map_err(|error| self.beside.fault(error))
    }

    /// Inserts a batch, unless it is there already. If the answer is lost, it may have been inserted.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::inventory) fn insert_batch(
        &mut self,
        parcel: &OutgoingBatch,
        standing: SensorBacklog,
    ) -> Result<(), StoreError> {
        let outcome = self.beside.revive().and_then(|()| enter(self.beside.link(), parcel, standing));
        outcome.map_err(|error| self.beside.fault(error))
    }

    /// Tries to insert a batch and rolls back: tests whether the server would accept it.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::inventory) fn attempt(
        &mut self,
        parcel: &OutgoingBatch,
        standing: SensorBacklog,
    ) -> Result<(), StoreError> {
        let attempt = |link: &DatabaseConnection| {
            link.batch("BEGIN")?;
            let outcome = enter(link, parcel, standing);
            // The attempt only finds out if the server accepts the rows. They are sent for good later,
            // under the same number.
            link.batch("ROLLBACK").and(outcome)
        };
        let outcome = self.beside.revive().and_then(|()| attempt(self.beside.link()));
        outcome.map_err(|error| self.beside.fault(error))
    }
}

fn enter(
    link: &DatabaseConnection,
    parcel: &OutgoingBatch,
    standing: SensorBacklog,
) -> Result<(), DatabaseError> {
    // No conflict target, because naming one requires the right to read.
    let query = "INSERT INTO fleet_inbox (stream, number, sent_at, waiting, lost, version, batch)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let values = values![
        &parcel.stream,
        signed(parcel.number),
        InventoryTime::now().millis(),
        signed(standing.waiting),
        signed(standing.lost),
        parcel.format,
        &parcel.text
    ];
    link.execute(query, values).map(drop)
}
