//! The inbox of sensors' batches: merges them in each sensor's order, and reports the sensors' state.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{FleetDatabase, VERSION, values, version};
use crate::database::{DatabaseConnection, DatabaseError, QueryRow};
use crate::fleet::FleetError;
use crate::inventory::{InventoryDatabase, InventoryTime, ReceivedBatch, SensorBatch, UnreadableRecords};

/// Time after which silent runs of sensors are forgotten, in milliseconds: 90 days.
const FORGOTTEN: i64 = 90 * 86_400_000;

/// Tolerated lead of a sensor's clock over the server's, in milliseconds: a minute. Later times are bounded.
const TOLERATED: i64 = 60_000;

/// Bytes of batches after which a turn takes no further one: no other process writes while they are merged.
const TURN: i64 = 2 << 20;

/// The state of a sensor.
#[derive(Debug, Clone, Serialize)]
pub struct SensorState {
    /// Its name, which is also its role's.
    pub sensor: String,
    /// Time of its last batch.
    pub heard: Option<InventoryTime>,
    /// Time of its last batch or heartbeat.
    pub alive: Option<InventoryTime>,
    /// Age of that by the server's clock, in milliseconds.
    pub silent: Option<i64>,
    /// Lead of its clock over the server's at the last merged batch, in milliseconds. It includes the time of
    /// the transfer.
    pub skew: Option<i64>,
    /// Number of its batches in the inbox.
    pub inbox: i64,
    /// Age of the oldest of them, in milliseconds.
    pub behind: Option<i64>,
    /// Number of batches in its own queue when it sent its last one.
    pub waiting: i64,
    /// Number of batches that cannot be merged.
    pub refused: i64,
    /// Number of merged batches.
    pub batches: i64,
    /// Number of sightings in them.
    pub sightings: i64,
    /// Number of sightings that it reported as lost.
    pub lost: i64,
}

/// The result of merging some batches of the inbox.
#[derive(Debug, Default)]
pub(in crate::fleet) struct InboxMergeResult {
    /// Number of rows, readable or not.
    pub(in crate::fleet) rows: usize,
    /// Number of merged batches.
    pub(in crate::fleet) merged: usize,
    /// The last row to merge, and its sensor. If it is the only one, it is the one at fault.
    pub(in crate::fleet) last: Option<i64>,
    /// Messages about batches that cannot be read.
    pub(in crate::fleet) refused: Vec<String>,
    /// Messages about other batches.
    pub(in crate::fleet) notes: Vec<String>,
}

/// A row of the inbox.
struct InboxRow {
    id: i64,
    stream: String,
    number: i64,
    sent_at: i64,
    received_at: i64,
    waiting: i64,
    lost: i64,
    version: i64,
    text: String,
    again: bool,
}

/// The progress of merging a run.
#[derive(Default)]
struct StreamProgress {
    number: i64,
    lost: i64,
    heard: i64,
}

/// Takes at most `most` batches of a sensor in its order, if no other process has them. Their content goes
/// into `sent`.
pub(in crate::fleet) fn take(
    link: &DatabaseConnection,
    most: i64,
    taken: &mut InboxMergeResult,
) -> Result<Vec<ReceivedBatch>, DatabaseError> {
    *taken = InboxMergeResult::default();
    let Some(sensor) = next_sensor(link)? else { return Ok(Vec::new()) };
    let letters = letters(link, &sensor, most)?;
    let Some(last) = letters.last() else { return Ok(Vec::new()) };
    taken.rows = letters.len();
    let (skew, waiting) = (last.sent_at.saturating_sub(last.received_at), last.waiting);
    let heard = last.received_at;
    let (mut streams, mut sent, mut lost) = (streams(link, &sensor, &letters)?, Vec::new(), 0);
    let (mut over, mut sightings) = (Vec::new(), 0);
    for letter in letters {
        let stream = streams.entry(letter.stream.clone()).or_default();
        lost += (letter.lost - stream.lost).max(0);
        stream.lost = stream.lost.max(letter.lost);
        stream.heard = stream.heard.max(letter.received_at);
        // The sensor has sent it again, since the answer was lost.
        let is_known = letter.number <= stream.number && !letter.again;
        stream.number = stream.number.max(letter.number);
        if is_known {
            over.push(letter.id);
            continue;
        }
        let (batch, is_over) = read(link, &sensor, &letter, taken)?;
        if is_over {
            over.push(letter.id);
        }
        if let Some(batch) = batch {
            sightings += i64::try_from(batch.sightings()).unwrap_or(i64::MAX);
            taken.last = Some(letter.id);
            sent.push(ReceivedBatch {
                sensor: sensor.clone(),
                stream: letter.stream,
                batch,
                lost: letter.lost,
            });
        }
    }
    taken.merged = sent.len();
    link.execute("DELETE FROM fleet_inbox WHERE id = ANY(?1)", &[over.into_iter().collect()])?;
    for (name, stream) in &streams {
        let upsert =
            "INSERT INTO fleet_streams (sensor, stream, number, heard, lost) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (sensor, stream) DO UPDATE SET number = excluded.number, heard = excluded.heard,
               lost = excluded.lost";
        link.execute(upsert, values![&sensor, name, stream.number, stream.heard, stream.lost])?;
    }
    let merged = i64::try_from(taken.merged).unwrap_or(i64::MAX);
    let update = "UPDATE fleet_sensors SET heard = ?2, skew = ?3, waiting = ?4, merged = fleet_now(),
           batches = batches + ?5, sightings = sightings + ?6, lost = lost + ?7 WHERE sensor = ?1";
    link.execute(update, values![&sensor, heard, skew, waiting, merged, sightings, lost])?;
    let forget = "DELETE FROM fleet_streams WHERE sensor = ?1 AND heard < fleet_now() - ?2";
    link.execute(forget, values![&sensor, FORGOTTEN])?;
    Ok(sent)
}

/// Reads a batch, and sets aside the parts that cannot be read. Returns the readable part, and true if
/// nothing is set aside.
fn read(
    link: &DatabaseConnection,
    sensor: &str,
    letter: &InboxRow,
    taken: &mut InboxMergeResult,
) -> Result<(Option<SensorBatch>, bool), DatabaseError> {
    let number = letter.number;
    let (mut batch, unread) = match SensorBatch::read_most(letter.version, &letter.text) {
        Ok(read) => read,
        Err(error) => {
            let error = error.to_string();
            refuse(link, letter.id, &error)?;
            taken.refused.push(format!("sensor {sensor}: batch {number} is set aside: {error}"));
            return Ok((None, false));
        }
    };
    let late = batch.bound_times(letter.received_at.saturating_add(TOLERATED));
    if late > 0 {
        taken.notes.push(format!(
            "sensor {sensor}: records of batch {number} with a time after its arrival: {late}; they get \
             the time of arrival: correct the sensor's clock"
        ));
    }
    let Some(UnreadableRecords { records, text, error }) = unread else { return Ok((Some(batch), true)) };
    let update = "UPDATE fleet_inbox SET refused = ?2, batch = ?3 WHERE id = ?1";
    link.execute(update, values![letter.id, error.to_string(), text])?;
    taken
        .refused
        .push(format!("sensor {sensor}: records of batch {number} that are set aside: {records}: {error}"));
    Ok((Some(batch), false))
}

/// Sets aside a batch that cannot be merged.
pub(in crate::fleet) fn refuse(link: &DatabaseConnection, id: i64, why: &str) -> Result<(), DatabaseError> {
    link.execute("UPDATE fleet_inbox SET refused = ?2 WHERE id = ?1", values![id, why]).map(drop)
}

/// Releases all batches that were set aside, for another attempt. Returns their number.
pub(in crate::fleet) fn retry(link: &DatabaseConnection) -> Result<usize, DatabaseError> {
    link.execute("UPDATE fleet_inbox SET refused = NULL, again = true WHERE refused IS NOT NULL", &[])
}

/// Ends sessions of the fleet's roles that have kept others waiting for too long. Returns their users.
pub(in crate::fleet) fn unblock(link: &DatabaseConnection) -> Result<Vec<String>, DatabaseError> {
    link.all("SELECT fleet_unblock()", &[], |row| row.get(0))
}

/// True if there is anything to merge.
pub(in crate::fleet) fn is_waiting(link: &DatabaseConnection) -> Result<bool, DatabaseError> {
    let query = "SELECT EXISTS (SELECT FROM fleet_inbox WHERE refused IS NULL)";
    Ok(link.one(query, &[], |row| row.get(0))?.unwrap_or_default())
}

/// True if the database's user may merge.
pub(in crate::fleet) fn may_merge(link: &DatabaseConnection) -> Result<bool, DatabaseError> {
    let query =
        "SELECT has_table_privilege('fleet_inbox', 'DELETE') AND has_table_privilege('services', 'INSERT')";
    Ok(link.one(query, &[], |row| row.get(0))?.unwrap_or_default())
}

/// Returns the sensor whose batch waits for longest, locked until the end of the transaction.
fn next_sensor(link: &DatabaseConnection) -> Result<Option<String>, DatabaseError> {
    let query = "SELECT sensor FROM fleet_sensors s WHERE EXISTS (SELECT FROM fleet_inbox i
           WHERE i.sensor = s.sensor AND i.refused IS NULL)
         ORDER BY merged NULLS FIRST LIMIT 1 FOR UPDATE SKIP LOCKED";
    if let Some(sensor) = link.one(query, &[], |row| row.get(0))? {
        return Ok(Some(sensor));
    }
    // A sensor that was created without `fleet init` is known from its first batch on.
    let enter =
        "INSERT INTO fleet_sensors (sensor) SELECT DISTINCT sensor FROM fleet_inbox i WHERE refused IS NULL
           AND NOT EXISTS (SELECT FROM fleet_sensors s WHERE s.sensor = i.sensor) ON CONFLICT DO NOTHING";
    match link.execute(enter, &[])? {
        0 => Ok(None),
        _ => link.one(query, &[], |row| row.get(0)),
    }
}

fn letters(link: &DatabaseConnection, sensor: &str, most: i64) -> Result<Vec<InboxRow>, DatabaseError> {
    // The first batch, however large, and the following ones that a turn has room for.
    let query = "SELECT id, stream, number, sent_at, received_at, waiting, lost, version, batch, again
         FROM fleet_inbox JOIN (SELECT id, sum(octets) OVER (ORDER BY id) - octets AS before
             FROM (SELECT id, octet_length(batch) AS octets FROM fleet_inbox
               WHERE sensor = ?1 AND refused IS NULL ORDER BY id LIMIT ?2) queued) taken USING (id)
         WHERE before < ?3 ORDER BY id";
    link.all(query, values![sensor, most, TURN], |row| {
        Ok(InboxRow {
            id: row.get(0)?,
            stream: row.get(1)?,
            number: row.get(2)?,
            sent_at: row.get(3)?,
            received_at: row.get(4)?,
            waiting: row.get(5)?,
            lost: row.get(6)?,
            version: row.get(7)?,
            text: row.get(8)?,
            again: row.get(9)?,
        })
    })
}

/// Returns the progress of the runs that have batches.
fn streams(
    link: &DatabaseConnection,
    sensor: &str,
    letters: &[InboxRow],
) -> Result<BTreeMap<String, StreamProgress>, DatabaseError> {
    let query =
        "SELECT stream, number, lost, heard FROM fleet_streams WHERE sensor = ?1 AND stream = ANY(?2)";
    let names = letters.iter().map(|letter| letter.stream.as_str()).collect();
    let found = link.all(query, &[sensor.into(), names], |row| {
        Ok((row.get(0)?, StreamProgress { number: row.get(1)?, lost: row.get(2)?, heard: row.get(3)? }))
    })?;
    Ok(found.into_iter().collect())
}

/// The tables about a sensor, besides its batches.
const OF_SENSOR: [&str; 4] = ["fleet_streams", "fleet_heartbeats", "fleet_rules_taken", "fleet_sensors"];

impl FleetDatabase {
    /// Forgets sensors, all or none, and their batches that were set aside. Returns the number of these
    /// batches for each sensor. Their records in the inventory stay.
    ///
    /// # Errors
    /// One is unknown, or has batches that wait to be merged.
    pub fn forget_sensors(&self, names: &[String]) -> Result<Vec<usize>, FleetError> {
        if let (true, Some(name)) = (self.beside.link().is_file(), names.first()) {
            return Err(FleetError::NoSensor(name.clone()));
        }
        let outcome = self.beside.in_transaction(|link| {
            for name in names {
                if let Some(error) = forget_obstacle(link, name)? {
                    return Ok(Err(error));
                }
            }
            names.iter().map(|name| forget(link, name)).collect::<Result<_, _>>().map(Ok)
        });
        outcome.map_err(|error| self.fault(error))?
    }

    /// Returns all sensors.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn sensors(&self) -> Result<Vec<SensorState>, FleetError> {
        let link = self.beside.link();
        if link.is_file() {
            // Sensors need a server.
            return Ok(Vec::new());
        }
        sensors(link).map_err(|error| self.fault(error))
    }
}

/// Returns why a sensor cannot be forgotten. Until the end of the transaction no process merges its batches.
fn forget_obstacle(link: &DatabaseConnection, name: &str) -> Result<Option<FleetError>, DatabaseError> {
    link.one("SELECT FROM fleet_sensors WHERE sensor = ?1 FOR UPDATE", values![name], |_| Ok(()))?;
    let query = "SELECT count(*) FILTER (WHERE refused IS NULL), count(*) > 0
             OR EXISTS (SELECT FROM fleet_sensors WHERE sensor = ?1)
             OR EXISTS (SELECT FROM fleet_heartbeats WHERE sensor = ?1)
             OR EXISTS (SELECT FROM fleet_rules_taken WHERE sensor = ?1)
         FROM fleet_inbox WHERE sensor = ?1";
    let (waiting, is_known) =
        link.one(query, values![name], |row| Ok((row.get(0)?, row.get(1)?)))?.unwrap_or((0, false));
    Ok(match (waiting, is_known) {
        (_, false) => Some(FleetError::NoSensor(name.to_owned())),
        (0, true) => None,
        (waiting, true) => Some(FleetError::Waits(name.to_owned(), waiting)),
    })
}

/// Removes a sensor from the tables. Returns the number of its batches that were set aside.
fn forget(link: &DatabaseConnection, name: &str) -> Result<usize, DatabaseError> {
    for table in OF_SENSOR {
        link.execute(&format!("DELETE FROM {table} WHERE sensor = ?1"), values![name])?;
    }
    link.execute("DELETE FROM fleet_inbox WHERE sensor = ?1 AND refused IS NOT NULL", values![name])
}

/// Returns all sensors that send to the fleet of an inventory's server; none if this program knows no fleet
/// there.
///
/// # Errors
/// The database returns an error.
pub fn sensors_of(inventory: &InventoryDatabase) -> Result<Option<Vec<SensorState>>, DatabaseError> {
    match inventory.server() {
        Some(link) if version(link)? == VERSION => sensors(link).map(Some),
        _ => Ok(None),
    }
}

fn sensors(link: &DatabaseConnection) -> Result<Vec<SensorState>, DatabaseError> {
    let query = "SELECT sensor, greatest(s.heard, i.heard) AS heard, greatest(s.heard, i.heard, h.at) AS alive, s.skew,
           coalesce(i.inbox, 0), coalesce(i.waiting, s.waiting), coalesce(i.refused, 0), coalesce(s.batches, 0),
           coalesce(s.sightings, 0), coalesce(s.lost, 0), fleet_now() - greatest(s.heard, i.heard, h.at),
           fleet_now() - i.oldest
         FROM fleet_sensors s FULL JOIN (SELECT sensor, max(received_at) AS heard,
             count(*) FILTER (WHERE refused IS NULL) AS inbox, count(refused) AS refused,
             min(received_at) FILTER (WHERE refused IS NULL) AS oldest,
             (array_agg(waiting ORDER BY id DESC))[1] AS waiting
           FROM fleet_inbox GROUP BY sensor) i USING (sensor)
         FULL JOIN fleet_heartbeats h USING (sensor) ORDER BY sensor";
    link.all(query, &[], sensor)
}

fn sensor(row: &QueryRow<'_>) -> Result<SensorState, DatabaseError> {
    let time =
        |column| Ok::<_, DatabaseError>(row.get::<Option<i64>>(column)?.map(InventoryTime::from_millis));
    Ok(SensorState {
        sensor: row.get(0)?,
        heard: time(1)?,
        alive: time(2)?,
        skew: row.get(3)?,
        inbox: row.get(4)?,
        waiting: row.get::<Option<i64>>(5)?.unwrap_or_default(),
        refused: row.get(6)?,
        batches: row.get(7)?,
        sightings: row.get(8)?,
        lost: row.get(9)?,
        silent: row.get(10)?,
        behind: row.get(11)?,
    })
}
