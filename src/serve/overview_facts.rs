//! Facts of the overview, which all readers of the page share.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::fleet::SensorState;
use crate::inventory::{
    BlockingRule, FindingTrends, InventoryTime, InventoryTotals, PastRun, RecentChanges, RuleSummary,
    ValueCount,
};

/// Sensors of the fleet in the inventory's database; empty without a fleet, or the error of reading them.
pub(super) type SensorStates = Result<Vec<SensorState>, String>;

/// Findings, changes and runs.
#[derive(Debug, Clone)]
pub(super) struct RecentFacts {
    pub(super) now: InventoryTime,
    pub(super) trends: FindingTrends,
    /// Rules with open findings, the most severe first.
    pub(super) worst: Vec<RuleSummary>,
    pub(super) recent: RecentChanges,
    pub(super) stopped: Vec<BlockingRule>,
    pub(super) runs: Vec<PastRun>,
    pub(super) sensors: SensorStates,
}

/// Numbers for which all services are counted: this takes a while if there are many.
#[derive(Debug, Clone)]
pub(super) struct TotalFacts {
    pub(super) totals: InventoryTotals,
    pub(super) products: Vec<ValueCount>,
    pub(super) versions: Vec<ValueCount>,
}

/// Facts, with the time of the query and its duration.
#[derive(Debug, Clone)]
pub(super) struct TimedFacts<T> {
    pub(super) asked: Instant,
    pub(super) took: Duration,
    pub(super) facts: T,
}

/// Cached facts.
#[derive(Debug, Default)]
pub(super) struct CachedFacts {
    pub(super) recent: Mutex<Option<TimedFacts<RecentFacts>>>,
    pub(super) totals: std::sync::Mutex<Option<TimedFacts<TotalFacts>>>,
    /// Held while the totals are counted.
    pub(super) counting: Mutex<()>,
}
