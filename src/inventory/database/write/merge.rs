//! Merges batches of sensors into the tables.

use std::collections::VecDeque;

use ahash::AHashMap;

use super::prefetched_rows::PrefetchedRows;
use super::row_cache::{CountedRow, RowCache};
use crate::database::{DatabaseConnection, DatabaseError, DatabaseLocation, values};
use crate::inventory::batch::SensorBatch;
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;

/// Number of sensors' runs whose earlier sightings are cached.
const REMEMBERED: usize = 64;

/// A batch and its sender.
#[derive(Debug)]
pub struct ReceivedBatch {
    /// The sensor.
    pub sensor: String,
    /// Its run.
    pub stream: String,
    /// Its content.
    pub batch: SensorBatch,
    /// Number of sightings that the run has lost.
    pub lost: i64,
}

/// Merges batches of sensors into the inventory of a server.
#[derive(Debug)]
pub struct BatchMerger {
    database: InventoryDatabase,
    memory: RowCache,
    /// Sightings of rows before runs that count once.
    baselines: VecDeque<SightingBaseline>,
}

/// Sightings of rows before a run.
#[derive(Debug)]
struct SightingBaseline {
    run: String,
    rows: AHashMap<CountedRow, Option<(i64, i64)>>,
}

impl BatchMerger {
    /// Opens the inventory of a server.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(place: &DatabaseLocation) -> Result<Self, StoreError> {
        let database = InventoryDatabase::create(place)?;
        Ok(Self { database, memory: RowCache::default(), baselines: VecDeque::new() })
    }

    /// Merges the batches that `take` returns, in one transaction with the work of `take`.
    ///
    /// # Errors
    /// Nothing is known to be written.
    pub fn merge(
        &mut self,
        take: &mut dyn FnMut(&DatabaseConnection) -> Result<Vec<ReceivedBatch>, DatabaseError>,
    ) -> Result<(), StoreError> {
        self.memory.bound();
        let outcome = self.revive().and_then(|()| self.try_merge(take));
        if outcome.is_err() {
            // The cache may hold rows that were never written.
            self.memory.forget();
        }
        outcome.map_err(|error| self.database.fault(error))
    }

    /// Runs a query outside of a merge.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn ask<T>(
        &mut self,
        work: impl FnOnce(&DatabaseConnection) -> Result<T, DatabaseError>,
    ) -> Result<T, StoreError> {
        let outcome = self.revive().and_then(|()| work(&self.database.link));
        outcome.map_err(|error| self.database.fault(error))
    }

    /// True if the written data is at fault, so that a retry is useless.
    pub fn is_data_error(error: &StoreError) -> bool {
        error.is_row_rejection()
    }

    fn revive(&mut self) -> Result<(), DatabaseError> {
        self.database.link.reconnect()
    }

    fn try_merge(
        &mut self,
        take: &mut dyn FnMut(&DatabaseConnection) -> Result<Vec<ReceivedBatch>, DatabaseError>,
    ) -> Result<(), DatabaseError> {
        let transaction = self.database.link.begin_concurrent()?;
        let sent = take(&transaction)?;
        if !sent.is_empty() {
            transaction.wait_for_turn()?;
        }
        for one in &sent {
            let sensor = entered(&transaction, one)?;
            self.memory.counts_once = one.batch.once;
            let run = format!("{}/{}", one.sensor, one.stream);
            let baseline = recall(&mut self.baselines, run);
            self.memory.counted = baseline.rows;
            let outcome = self.memory.write(&transaction, &one.batch.records, sensor);
            self.baselines
                .push_back(SightingBaseline { rows: std::mem::take(&mut self.memory.counted), ..baseline });
            outcome?;
            end(&transaction, one, sensor)?;
        }
        transaction.commit()?;
        self.memory.ahead = PrefetchedRows::default();
        Ok(())
    }
}

/// Returns the cached sightings of a run.
fn recall(baselines: &mut VecDeque<SightingBaseline>, run: String) -> SightingBaseline {
    if let Some(known) = baselines.iter().position(|it| it.run == run).and_then(|at| baselines.remove(at)) {
        return known;
    }
    if baselines.len() >= REMEMBERED {
        baselines.pop_front();
    }
    SightingBaseline { run, rows: AHashMap::new() }
}

/// Returns the row of a sensor.
fn entered(link: &DatabaseConnection, sent: &ReceivedBatch) -> Result<i64, DatabaseError> {
    let sensor = values![sent.batch.source, &sent.sensor];
    link.execute("INSERT INTO sensors (source, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING", sensor)?;
    link.sole("SELECT id FROM sensors WHERE source = ?1 AND name = ?2", sensor, |row| row.get(0))
}

/// Records a run as ended: this process could not tell whether it is still running.
fn end(link: &DatabaseConnection, sent: &ReceivedBatch, sensor: i64) -> Result<(), DatabaseError> {
    let SensorBatch { about, started, ended: Some(ended), .. } = &sent.batch else { return Ok(()) };
    let query = "INSERT INTO runs (sensor, about, pid, started, ended, state, lost) VALUES (?1, ?2, 0, ?3, ?4, 'done', ?5)";
    link.execute(query, values![sensor, about, *started, *ended, sent.lost]).map(drop)
}
