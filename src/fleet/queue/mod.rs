//! The database of a fleet: every statement. What those who give orders ask stands in [`orders`] and [`status`], what
//! workers do in [`work`], and what begins by itself in [`schedules`].

mod orders;
mod schedules;
mod status;
mod work;

pub use orders::Submission;
pub use schedules::Planned;
pub use status::{ScanState, Status};
pub(super) use work::{Beat, Lease, Ordered, Rows, Share, Written, write};

use super::FleetError;
use crate::inventory::{Beside, DatabaseError, Place, Row, Value, values};

/// The version of the tables that this program writes.
pub(super) const VERSION: i64 = 1;

/// What makes them.
const TABLES: &str = include_str!("../fleet-1.sql");

/// Who makes the tables waits for others who do: `bwfl`.
const MAKING: i64 = 0x6277_666c;

/// A fleet's database.
#[derive(Debug)]
pub struct Queue {
    beside: Beside,
}

impl Queue {
    /// Comes to a fleet, and makes its tables and those of the inventory where there are none.
    ///
    /// # Errors
    /// See [`FleetError`].
    pub fn make(place: &Place) -> Result<Self, FleetError> {
        let queue = Self { beside: Beside::make(place)? };
        if queue.version()? == 0 {
            queue
                .beside
                .together(|desk| {
                    desk.batch(&format!("SELECT pg_advisory_xact_lock({MAKING})"))?;
                    // Another one may have been quicker.
                    if version(&queue.beside)? == 0 { desk.batch(TABLES) } else { Ok(()) }
                })
                .map_err(|error| queue.fault(error))?;
        }
        queue.checked()
    }

    /// Comes to a fleet that is there.
    ///
    /// # Errors
    /// See [`FleetError`].
    pub fn open(place: &Place) -> Result<Self, FleetError> {
        Self { beside: Beside::open(place)? }.checked()
    }

    fn checked(self) -> Result<Self, FleetError> {
        match self.version()? {
            0 => Err(FleetError::NoFleet),
            VERSION => Ok(self),
            newer => Err(FleetError::Newer(newer)),
        }
    }

    fn version(&self) -> Result<i64, FleetError> {
        version(&self.beside).map_err(|error| self.fault(error))
    }

    /// Connects anew where the connection is lost.
    ///
    /// # Errors
    /// The server is not there.
    pub(super) fn revive(&mut self) -> Result<(), DatabaseError> {
        self.beside.revive()
    }

    fn fault(&self, error: DatabaseError) -> FleetError {
        FleetError::Store(self.beside.fault(error))
    }

    fn one<T>(
        &self,
        text: &str,
        values: &[Value<'_>],
        read: impl FnOnce(&Row<'_>) -> Result<T, DatabaseError>,
    ) -> Result<Option<T>, FleetError> {
        self.beside.desk().one(text, values, read).map_err(|error| self.fault(error))
    }

    fn all<T>(
        &self,
        text: &str,
        values: &[Value<'_>],
        read: impl FnMut(&Row<'_>) -> Result<T, DatabaseError>,
    ) -> Result<Vec<T>, FleetError> {
        self.beside.desk().all(text, values, read).map_err(|error| self.fault(error))
    }
}

/// The version of the tables that are there; 0 where there are none.
fn version(beside: &Beside) -> Result<i64, DatabaseError> {
    let there = "SELECT to_regclass('bannerwall.fleet_version') IS NOT NULL";
    if beside.desk().one(there, &[], |row| row.get::<bool>(0))? != Some(true) {
        return Ok(0);
    }
    let found = beside.desk().one("SELECT max(version) FROM fleet_version", values![], |row| row.get(0))?;
    Ok(found.unwrap_or_default())
}
