//! Where a sensor puts its batches: a table of the fleet in which it may enter rows, and nothing else. Here
//! stands what a sensor says to the server; what is done with its batches is the fleet's.

use super::{Beside, DatabaseError, Desk, Place, Writer, values};
use crate::inventory::store::{Run, StoreError};

/// A batch on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::inventory) struct Parcel {
    /// The run that has written it.
    pub(in crate::inventory) stream: String,
    /// Counts the batches of the run, from 1.
    pub(in crate::inventory) number: u64,
    /// The version of its format.
    pub(in crate::inventory) format: i64,
    /// How many sightings it tells of.
    pub(in crate::inventory) sightings: u64,
    pub(in crate::inventory) text: String,
}

/// How it stands with a sensor that sends a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::inventory) struct Standing {
    /// Sightings that its run has lost.
    pub(in crate::inventory) lost: u64,
    /// Batches that wait behind this one.
    pub(in crate::inventory) waiting: u64,
}

/// The way of a sensor to the server.
#[derive(Debug)]
pub(in crate::inventory) struct Inbox {
    beside: Beside,
}

impl Inbox {
    /// Comes to a server.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn open(place: &Place) -> Result<Self, StoreError> {
        Beside::open(place).map(|beside| Self { beside })
    }

    /// The sensor as which the server knows who has come; none where that is not one that may only enter
    /// batches.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn sensor(&self) -> Result<Option<String>, StoreError> {
        let query = "SELECT session_user::text FROM pg_class WHERE relname = 'fleet_inbox'
             AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'bannerwall')
             AND has_column_privilege(oid, 'batch', 'INSERT') AND NOT has_table_privilege(oid, 'SELECT')";
        let found = self.beside.desk().one(query, values![], |row| row.get(0));
        found.map_err(|error| self.beside.fault(error))
    }

    /// Says that the sensor is there.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn beat(&self) -> Result<(), StoreError> {
        let told = self.beside.desk().one("SELECT true FROM fleet_heard()", &[], |_| Ok(()));
        told.map(drop).map_err(|error| self.beside.fault(error))
    }

    /// Has the inventory of the server written by this way, which is no sensor's.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::inventory) fn into_writer(self, run: &Run) -> Result<Writer, StoreError> {
        Writer::by(self.beside.into_database(), run)
    }

    /// Connects anew where the connection is lost.
    ///
    /// # Errors
    /// The server is not there.
    pub(in crate::inventory) fn reach(&mut self) -> Result<(), StoreError> {
        self.beside.revive().map_err(|error| self.beside.fault(error))
    }

    /// Enters a batch, unless it is there already. Where the answer is lost it may be all the same.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn put(
        &mut self,
        parcel: &Parcel,
        standing: Standing,
    ) -> Result<(), StoreError> {
        let outcome = self.beside.revive().and_then(|()| enter(self.beside.desk(), parcel, standing));
        outcome.map_err(|error| self.beside.fault(error))
    }

    /// The same, of which nothing stays: whether the server would take it.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::inventory) fn attempt(
        &mut self,
        parcel: &Parcel,
        standing: Standing,
    ) -> Result<(), StoreError> {
        let attempt = |desk: Desk<'_>| {
            desk.batch("BEGIN")?;
            let outcome = enter(desk, parcel, standing);
            desk.batch("ROLLBACK").and(outcome)
        };
        let outcome = self.beside.revive().and_then(|()| attempt(self.beside.desk()));
        outcome.map_err(|error| self.beside.fault(error))
    }
}

fn enter(desk: Desk<'_>, parcel: &Parcel, standing: Standing) -> Result<(), DatabaseError> {
    // No target: who names one must be allowed to read.
    let query = "INSERT INTO fleet_inbox (stream, number, sent_at, waiting, lost, version, batch)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let values = values![
        &parcel.stream,
        signed(parcel.number),
        super::Time::now().millis(),
        signed(standing.waiting),
        signed(standing.lost),
        parcel.format,
        &parcel.text
    ];
    desk.execute(query, values).map(drop)
}
