//! Batches of sensors on their way into the tables.

use std::collections::VecDeque;

use ahash::AHashMap;

use super::super::beside::Desk;
use super::super::link::Link;
use super::super::values;
use super::{Ahead, Database, DatabaseError, Memory, Place, Row, StoreError};
use crate::inventory::batch::Batch;

/// Runs of sensors of which it is remembered what was told before them.
const REMEMBERED: usize = 64;

/// A batch, and whose it is.
#[derive(Debug)]
pub struct Sent {
    /// The sensor.
    pub sensor: String,
    /// Its run.
    pub stream: String,
    /// What it tells.
    pub batch: Batch,
    /// Sightings that the run has lost.
    pub lost: i64,
}

/// Writes what sensors tell into the inventory of a server.
#[derive(Debug)]
pub struct Merger {
    database: Database,
    memory: Memory,
    /// What rows told of before runs that count once.
    told: VecDeque<Told>,
}

/// What rows told of before a run.
#[derive(Debug)]
struct Told {
    run: String,
    rows: AHashMap<Row, Option<(i64, i64)>>,
}

impl Merger {
    /// Opens the inventory of a server.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(place: &Place) -> Result<Self, StoreError> {
        let database = Database::create(place)?;
        Ok(Self { database, memory: Memory::default(), told: VecDeque::new() })
    }

    /// Writes the batches that `take` finds, and what it does itself, in one transaction.
    ///
    /// # Errors
    /// It is not known that anything was written.
    pub fn merge(
        &mut self,
        take: &mut dyn FnMut(Desk<'_>) -> Result<Vec<Sent>, DatabaseError>,
    ) -> Result<(), StoreError> {
        self.memory.bound();
        let outcome = self.revive().and_then(|()| self.try_merge(take));
        if outcome.is_err() {
            // It may hold rows that were never written.
            self.memory.forget();
        }
        outcome.map_err(|error| self.database.fault(error))
    }

    /// A question beside it.
    ///
    /// # Errors
    /// What the database says.
    pub fn ask<T>(
        &mut self,
        work: impl FnOnce(Desk<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, StoreError> {
        let outcome = self.revive().and_then(|()| work(Desk::new(&self.database.link)));
        outcome.map_err(|error| self.database.fault(error))
    }

    /// True if what was to be written is at fault, and would be each time.
    pub fn refuses(error: &StoreError) -> bool {
        error.is_of_row()
    }

    fn revive(&mut self) -> Result<(), DatabaseError> {
        self.database.link.revive()
    }

    fn try_merge(
        &mut self,
        take: &mut dyn FnMut(Desk<'_>) -> Result<Vec<Sent>, DatabaseError>,
    ) -> Result<(), DatabaseError> {
        let transaction = self.database.link.transaction_of_own()?;
        let sent = take(Desk::new(&transaction))?;
        if !sent.is_empty() {
            transaction.wait_for_turn()?;
        }
        for one in &sent {
            let sensor = entered(&transaction, one)?;
            self.memory.counts_once = one.batch.once;
            let run = format!("{}/{}", one.sensor, one.stream);
            let told = recall(&mut self.told, run);
            self.memory.told = told.rows;
            let outcome = self.memory.write(&transaction, &one.batch.records, sensor);
            self.told.push_back(Told { rows: std::mem::take(&mut self.memory.told), ..told });
            outcome?;
            end(&transaction, one, sensor)?;
        }
        transaction.commit()?;
        self.memory.ahead = Ahead::default();
        Ok(())
    }
}

/// What is remembered of a run.
fn recall(told: &mut VecDeque<Told>, run: String) -> Told {
    if let Some(known) = told.iter().position(|it| it.run == run).and_then(|at| told.remove(at)) {
        return known;
    }
    if told.len() >= REMEMBERED {
        told.pop_front();
    }
    Told { run, rows: AHashMap::new() }
}

/// The row of a sensor.
fn entered(link: &Link, sent: &Sent) -> Result<i64, DatabaseError> {
    let sensor = values![sent.batch.source, &sent.sensor];
    link.execute("INSERT INTO sensors (source, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING", sensor)?;
    link.sole("SELECT id FROM sensors WHERE source = ?1 AND name = ?2", sensor, |row| row.get(0))
}

/// Enters a run that is over: while it is not, nobody here could tell whether it still runs.
fn end(link: &Link, sent: &Sent, sensor: i64) -> Result<(), DatabaseError> {
    let Batch { about, started, ended: Some(ended), .. } = &sent.batch else { return Ok(()) };
    let query = "INSERT INTO runs (sensor, about, pid, started, ended, state, lost) VALUES (?1, ?2, 0, ?3, ?4, 'done', ?5)";
    link.execute(query, values![sensor, about, *started, *ended, sent.lost]).map(drop)
}
