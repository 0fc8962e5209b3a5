//! Times in the inventory.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use crate::database::{FromSqlValue, SqlValue};
use crate::event::Timestamp;

/// A time in the inventory: milliseconds since the Unix epoch, shown in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InventoryTime(i64);

impl InventoryTime {
    /// Returns the current time.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// From milliseconds since the Unix epoch.
    pub(crate) const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub(crate) const fn millis(self) -> i64 {
        self.0
    }

    /// Returns the time `age` earlier.
    #[must_use]
    pub fn before(self, age: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time `age` later.
    #[must_use]
    pub fn after(self, age: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
    }

    fn text(self, format: &str) -> String {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        time.strftime(format).to_string()
    }
}

/// `2026-01-31 12:00:00`, UTC.
impl fmt::Display for InventoryTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text("%Y-%m-%d %H:%M:%S"))
    }
}

/// RFC 3339 with milliseconds.
impl Serialize for InventoryTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text("%Y-%m-%dT%H:%M:%S%.3fZ"))
    }
}

impl From<SystemTime> for InventoryTime {
    fn from(time: SystemTime) -> Self {
        Timestamp::from(time).into()
    }
}

impl From<Timestamp> for InventoryTime {
    fn from(time: Timestamp) -> Self {
        Self(millis(time))
    }
}

impl FromSqlValue for InventoryTime {
    fn from_cell(cell: SqlValue<'_>) -> Option<Self> {
        i64::from_cell(cell).map(Self)
    }
}

/// Returns milliseconds since the Unix epoch; a 64-bit number of nanoseconds always fits.
pub(super) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}
