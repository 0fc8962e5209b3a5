//! Rules for sensors: publishers insert them, sensors read them and report the version in force.

use serde::Serialize;

use super::{FleetDatabase, values};
use crate::database::{DatabaseError, DatabaseLocation};
use crate::fleet::FleetError;
use crate::fleet::rules::LARGEST;
use crate::inventory::{InventoryTime, StoreError, TableClient};

/// Limit of listed versions.
const LISTED: i64 = 100;

/// Limit of a signature in bytes; the table has the same.
const SIGNATURE: i32 = 4096;

/// Number of the newest versions of each publisher among which a sensor looks for its own.
const OFFERED: i64 = 16;

/// A version of the rules on its way to the database.
#[derive(Debug, Clone)]
pub struct RulesPublication {
    /// Its number.
    pub serial: i64,
    /// Bytes of the pack.
    pub pack: Vec<u8>,
    /// Its signature, as minisign writes it.
    pub signature: String,
    /// Percentage of sensors that take it.
    pub percent: i64,
    /// Number of its rules.
    pub rules: i64,
    /// Comment for a person.
    pub note: String,
}

/// A version of the rules in the database.
#[derive(Debug, Clone, Serialize)]
pub struct RulesVersionState {
    /// Its number.
    pub version: i64,
    /// Percentage of sensors that take it.
    pub percent: i64,
    /// Number of its rules.
    pub rules: i64,
    /// Bytes of the pack.
    pub octets: i64,
    /// Comment for a person.
    pub note: String,
    /// The role that published it.
    pub who: String,
    /// Time of its publication.
    pub made: InventoryTime,
}

/// The state of a sensor's rules.
#[derive(Debug, Clone, Serialize)]
pub struct SensorRulesState {
    /// Its name.
    pub sensor: String,
    /// The version in force there.
    pub version: Option<i64>,
    /// Time since which they are in force.
    pub since: Option<InventoryTime>,
    /// The version that is meant for it.
    pub meant: Option<i64>,
    /// The newest version that it did not take.
    pub refused: Option<i64>,
    /// The reason.
    pub reason: Option<String>,
    /// Time of the refusal.
    pub refused_at: Option<InventoryTime>,
    /// Time of the sensor's last report.
    pub seen: Option<InventoryTime>,
}

impl FleetDatabase {
    /// Returns the number of the next version.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn next_rules(&self) -> Result<i64, FleetError> {
        let query = "SELECT coalesce(max(serial), 0) + 1 FROM fleet_rules";
        Ok(self.one(query, values![], |row| row.get(0))?.unwrap_or(1))
    }

    /// Inserts a version that is newer than all of its publisher.
    ///
    /// # Errors
    /// It is not newer, or the database returns an error.
    pub fn publish(&self, version: &RulesPublication) -> Result<(), FleetError> {
        let query = "INSERT INTO fleet_rules (serial, pack, signature, percent, rules, note)
             SELECT ?1::bigint, ?2::bytea, ?3::text, ?4::bigint, ?5::bigint, ?6::text
             WHERE NOT EXISTS (SELECT FROM fleet_rules WHERE serial >= ?1 AND who = session_user) ON CONFLICT DO NOTHING";
        let RulesPublication { serial, pack, signature, percent, rules, note } = version;
        let values = values![*serial, pack.as_slice(), signature, *percent, *rules, note];
        let entered = self.beside.link().execute(query, values);
        if entered.map_err(|error| self.fault(error))? == 0 {
            Err(FleetError::NotNewer(*serial))
        } else {
            Ok(())
        }
    }

    /// Returns the last versions, the newest first.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn rules(&self) -> Result<Vec<RulesVersionState>, FleetError> {
        let query =
            "SELECT serial, percent, rules, octet_length(pack)::bigint, note, who, made FROM fleet_rules
             ORDER BY serial DESC LIMIT ?1";
        self.all(query, values![LISTED], |row| {
            Ok(RulesVersionState {
                version: row.get(0)?,
                percent: row.get(1)?,
                rules: row.get(2)?,
                octets: row.get(3)?,
                note: row.get(4)?,
                who: row.get(5)?,
                made: InventoryTime::from_millis(row.get(6)?),
            })
        })
    }

    /// Returns the pack of a version, and its signature. If several have that number, it is the one of this
    /// role.
    ///
    /// # Errors
    /// No version has that number.
    pub fn pack(&self, serial: i64) -> Result<(Vec<u8>, String), FleetError> {
        let query = "SELECT substring(pack, 1, ?2), left(signature, ?3) FROM fleet_rules WHERE serial = ?1
             ORDER BY who = session_user DESC, made LIMIT 1";
        let values = values![serial, asked(), SIGNATURE];
        let found = self.one(query, values, |row| Ok((row.get(0)?, row.get(1)?)))?;
        found.ok_or(FleetError::NoRules(serial))
    }

    /// Sets the percentage of sensors that take a version.
    ///
    /// # Errors
    /// This role may change no version of that number.
    pub fn roll_out(&self, serial: i64, percent: i64) -> Result<(), FleetError> {
        let query = "UPDATE fleet_rules SET percent = ?2 WHERE serial = ?1";
        let values = values![serial, percent];
        let changed = self.beside.link().execute(query, values).map_err(|error| self.fault(error))?;
        if changed == 0 { Err(FleetError::NoRules(serial)) } else { Ok(()) }
    }

    /// Returns the state of each sensor's rules.
    ///
    /// # Errors
    /// The database returns an error.
    pub fn sensor_states(&self) -> Result<Vec<SensorRulesState>, FleetError> {
        let offers = self.all(OFFERS, values![0_i64, OFFERED, SIGNATURE], RulesOffer::read)?;
        let query = "SELECT coalesce(s.sensor, t.sensor), t.serial, t.since, t.refused, t.reason, t.refused_at, t.seen
             FROM fleet_sensors s FULL JOIN fleet_rules_taken t ON t.sensor = s.sensor ORDER BY 1";
        self.all(query, values![], |row| {
            let sensor: String = row.get(0)?;
            let time = |column| {
                Ok::<_, DatabaseError>(row.get::<Option<i64>>(column)?.map(InventoryTime::from_millis))
            };
            let meant = offers.iter().find(|offer| offer.is_meant_for(&sensor)).map(|offer| offer.serial);
            Ok(SensorRulesState {
                version: row.get(1)?,
                since: time(2)?,
                meant,
                refused: row.get(3)?,
                reason: row.get(4)?,
                refused_at: time(5)?,
                seen: time(6)?,
                sensor,
            })
        })
    }
}

/// Number of requested bytes of a pack: one more than the limit, so that a larger one is recognized.
fn asked() -> i32 {
    i32::try_from(LARGEST + 1).unwrap_or(i32::MAX)
}

/// Versions above one, the newest first: the same number of each publisher, so that none hides another one's.
const OFFERS: &str = "SELECT serial, who, percent, left(signature, ?3) FROM (
         SELECT *, row_number() OVER (PARTITION BY who ORDER BY serial DESC) AS place FROM fleet_rules
         WHERE serial > ?1 AND percent > 0) newest
       WHERE place <= ?2 ORDER BY serial DESC, who LIMIT 1024";

/// A version that a sensor may take.
#[derive(Debug, Clone)]
pub(in crate::fleet) struct RulesOffer {
    /// Its number in the table.
    pub(in crate::fleet) serial: i64,
    /// The role that published it.
    pub(in crate::fleet) who: String,
    /// Percentage of sensors that it is for.
    pub(in crate::fleet) percent: i64,
    /// The signature of the pack.
    pub(in crate::fleet) signature: String,
}

impl RulesOffer {
    fn read(row: &crate::database::QueryRow<'_>) -> Result<Self, DatabaseError> {
        Ok(Self { serial: row.get(0)?, who: row.get(1)?, percent: row.get(2)?, signature: row.get(3)? })
    }

    /// Returns its unique key.
    pub(in crate::fleet) fn key(&self) -> (i64, String) {
        (self.serial, self.who.clone())
    }

    /// True if this sensor takes it.
    pub(in crate::fleet) fn is_meant_for(&self, sensor: &str) -> bool {
        crate::fleet::rules::is_in_rollout(sensor, self.serial, self.percent)
    }
}

/// A sensor's connection to its rules.
#[derive(Debug)]
pub(in crate::fleet) struct RulesClient {
    beside: TableClient,
}

impl RulesClient {
    /// Connects to a server.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(in crate::fleet) fn open(place: &DatabaseLocation) -> Result<Self, StoreError> {
        TableClient::of_server(place).map(|beside| Self { beside })
    }

    /// Returns the role of this session.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::fleet) fn sensor(&self) -> Result<String, StoreError> {
        let found = self.beside.link().one("SELECT session_user::text", values![], |row| row.get(0));
        Ok(found.map_err(|error| self.beside.fault(error))?.unwrap_or_default())
    }

    /// Returns versions above `serial`, the newest first.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::fleet) fn offers(&self, above: i64) -> Result<Vec<RulesOffer>, StoreError> {
        let found = self.beside.link().all(OFFERS, values![above, OFFERED, SIGNATURE], RulesOffer::read);
        found.map_err(|error| self.beside.fault(error))
    }

    /// Returns the pack of a version, unless it is too large or gone.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::fleet) fn pack(&self, offer: &RulesOffer) -> Result<Option<Vec<u8>>, StoreError> {
        let query = "SELECT substring(pack, 1, ?2) FROM fleet_rules WHERE serial = ?1 AND who = ?3";
        let values = values![offer.serial, asked(), &offer.who];
        let found = self.beside.link().one(query, values, |row| row.get::<Vec<u8>>(0));
        let found = found.map_err(|error| self.beside.fault(error))?;
        Ok(found.filter(|octets| octets.len() <= LARGEST))
    }

    /// Reports which version is in force, and which one was refused.
    ///
    /// # Errors
    /// The database returns an error.
    pub(in crate::fleet) fn report_state(
        &self,
        serial: Option<i64>,
        refused: Option<&(i64, String)>,
    ) -> Result<(), StoreError> {
        let query = "INSERT INTO fleet_rules_taken (serial, refused, reason) VALUES (?1, ?2, ?3)
             ON CONFLICT (sensor) DO UPDATE SET serial = excluded.serial, refused = excluded.refused,
               reason = excluded.reason";
        let (refused, reason) = refused.map(|(serial, reason)| (*serial, reason.as_str())).unzip();
        let told = self.beside.link().execute(query, values![serial, refused, reason]);
        told.map(drop).map_err(|error| self.beside.fault(error))
    }
}
