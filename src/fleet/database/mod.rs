//! The statements of a fleet: of operators ([`scans`], [`status`]), workers ([`shard_leases`]), schedules
//! ([`schedules`]) and sensors ([`inbox`], [`rules`]). [`init`] sets a fleet up, and [`permission_check`]
//! compares its roles with that setup.

mod file;
pub(super) mod inbox;
mod init;
mod permission_check;
mod rules;
mod scans;
mod schedules;
mod shard_leases;
mod status;

pub use inbox::{SensorState, sensors_of};
pub use init::{FleetRole, RoleGroup, check_name, script};
pub(super) use rules::{RulesClient, RulesOffer};
pub use rules::{RulesPublication, RulesVersionState, SensorRulesState};
pub use scans::ScanSubmission;
pub use schedules::ScheduledScan;
pub(super) use shard_leases::{
    BatchWriteOutcome, GrantedRate, HeartbeatReply, ResultRow, ScanAssignment, ShardLease, write,
};
pub use status::{ScanEnd, ScanState, ScanStatus};

use super::FleetError;
use crate::database::{DatabaseConnection, DatabaseError, DatabaseLocation, QueryRow, SqlParameter, values};
use crate::inventory::TableClient;

/// Version of the tables that this program writes.
pub(super) const VERSION: i64 = TABLES.len() as i64;

/// SQL of the tables, one step per version.
const TABLES: [&str; 8] = [
    include_str!("../fleet-1.sql"),
    include_str!("../fleet-2.sql"),
    include_str!("../fleet-3.sql"),
    include_str!("../fleet-4.sql"),
    include_str!("../fleet-5.sql"),
    include_str!("../fleet-6.sql"),
    include_str!("../fleet-7.sql"),
    include_str!("../fleet-8.sql"),
];

/// The database of a fleet.
#[derive(Debug)]
pub struct FleetDatabase {
    beside: TableClient,
}

impl FleetDatabase {
    /// Opens a fleet, and creates its tables and those of the inventory if they do not exist.
    ///
    /// # Errors
    ///
    /// See [`FleetError`].
    pub fn make(place: &DatabaseLocation) -> Result<Self, FleetError> {
        let queue = Self { beside: TableClient::make(place)? };
        queue.upgrade().map_err(|error| queue.fault(error))?;
        queue.checked()
    }

    /// Opens an existing fleet. The tables of an older program are upgraded.
    ///
    /// # Errors
    ///
    /// See [`FleetError`].
    pub fn open(place: &DatabaseLocation) -> Result<Self, FleetError> {
        let queue = Self { beside: TableClient::open(place)? };
        let found = queue.version()?;
        if found == VERSION {
            return Ok(queue);
        }
        if (1..VERSION).contains(&found) {
            queue.upgrade().map_err(|error| FleetError::Older(found, queue.beside.fault(error)))?;
        }
        queue.checked()
    }

    /// Creates a fleet with its roles, or the missing parts of it. Returns what was created and what existed.
    ///
    /// # Errors
    ///
    /// See [`FleetError`].
    pub fn init(place: &DatabaseLocation, members: &[FleetRole]) -> Result<Vec<String>, FleetError> {
        // Checked before anything is made, so that a refused request changes nothing.
        let told = init::plan_roles(&TableClient::of_server(place)?, members)?;
        let queue = Self::make(place)?;
        init::create_roles(&queue.beside, members).map_err(|error| queue.fault(error))?;
        Ok(told)
    }

    fn checked(self) -> Result<Self, FleetError> {
        match self.version()? {
            0 => Err(FleetError::NoFleet),
            VERSION => Ok(self),
            newer => Err(FleetError::Newer(newer)),
        }
    }

    /// Upgrades the tables, and grants the new rights to existing groups.
    fn upgrade(&self) -> Result<(), DatabaseError> {
        if version(self.beside.link())? >= VERSION {
            return Ok(());
        }
        self.beside.in_transaction(|link| {
            link.wait_for_turn()?;
            // Another process may have been quicker.
            let found = usize::try_from(version(link)?).unwrap_or_default();
            if link.is_file() {
                return if found == 0 { link.batch(file::TABLES) } else { Ok(()) };
            }
            TABLES.iter().skip(found).try_for_each(|step| link.batch(step))?;
            init::grant(link)
        })
    }

    fn version(&self) -> Result<i64, FleetError> {
        version(self.beside.link()).map_err(|error| self.fault(error))
    }

    /// Reconnects if the connection is lost.
    ///
    /// # Errors
    ///
    /// The server is unreachable.
    pub(super) fn reconnect(&mut self) -> Result<(), DatabaseError> {
        self.beside.revive()
    }

    fn fault(&self, error: DatabaseError) -> FleetError {
        FleetError::Store(self.beside.fault(error))
    }

    fn one<T>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        read: impl FnOnce(&QueryRow<'_>) -> Result<T, DatabaseError>,
    ) -> Result<Option<T>, FleetError> {
        self.beside.link().one(text, values, read).map_err(|error| self.fault(error))
    }

    fn all<T>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        read: impl FnMut(&QueryRow<'_>) -> Result<T, DatabaseError>,
    ) -> Result<Vec<T>, FleetError> {
        self.beside.link().all(text, values, read).map_err(|error| self.fault(error))
    }
}

/// Returns the version of the tables; 0 if there are none.
fn version(link: &DatabaseConnection) -> Result<i64, DatabaseError> {
    let there = if link.is_file() {
        "SELECT count(*) FROM sqlite_schema WHERE name = 'fleet_version'"
    } else {
        "SELECT to_regclass('bannerwall.fleet_version') IS NOT NULL"
    };
    if link.one(there, &[], |row| row.get::<bool>(0))? != Some(true) {
        return Ok(0);
    }
    let found = link.one("SELECT max(version) FROM fleet_version", values![], |row| row.get(0))?;
    Ok(found.unwrap_or_default())
}
