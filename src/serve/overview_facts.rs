//! Facts of the overview, which all readers of the page share for some seconds.

use std::time::Instant;

use tokio::sync::Mutex;

use crate::fleet::SensorState;
use crate::inventory::{InventoryOverview, InventoryTime, PastRun, ValueCount};

/// Sensors of the fleet in the inventory's database; empty without a fleet, or the error of reading them.
pub(super) type SensorStates = Result<Vec<SensorState>, String>;

/// Data of the page.
#[derive(Debug, Clone)]
pub(super) struct OverviewFacts {
    pub(super) now: InventoryTime,
    pub(super) overview: InventoryOverview,
    pub(super) products: Vec<ValueCount>,
    pub(super) versions: Vec<ValueCount>,
    pub(super) runs: Vec<PastRun>,
    pub(super) sensors: SensorStates,
}

/// Cached facts, with the time of the query.
pub(super) type CachedFacts = Mutex<Option<(Instant, OverviewFacts)>>;
