//! Many scanners and one truth: a scan is cut into shards, which are rows of a database; workers take them,
//! and write what they find into the inventory of the same database. Workers of several machines need a
//! PostgreSQL server; those of one machine can use an SQLite file.
//!
//! The way of the data: [`FleetDatabase::submit`], of the command line or of a page, or a due schedule enters
//! a scan, and the database cuts it. A worker takes shards with a token, probes their targets, and writes
//! results, records and finished targets at once. The last one to give a shard back closes the scan. Scans of
//! a pool are for the workers of that pool: those of a page for the page's own worker.
//!
//! A shard is every nth target of the scan's order, as `--shard` has it, so that it needs no list of its
//! targets. Who takes one gets a token, and holds it as long as he is heard of by the server's clock.
//! Results, the inventory's rows, and which targets are over are written in one transaction that holds only
//! with the shard's token: whoever dies, however late somebody wakes, and whenever the server goes away, each
//! target is told of once.
//!
//! Sensors elsewhere enter what they see into an inbox of the same database, and read nothing of it; whoever
//! may write merges it.
//!
//! | module | what it owns |
//! |---|---|
//! | [`mod@merge`] | what sensors have sent, into the inventory |
//! | [`scan_order`] | what is scanned, as it lies in the database |
//! | [`finished_targets`] | which targets of a shard are over |
//! | [`rate_share`] | how fast a worker may be now |
//! | [`database`] | every statement to the database |
//! | [`cron`] | when scans begin again, and when nothing is scanned |
//! | [`rules`] | rules from one place: packs, signatures, who takes which |
//! | [`mod@wait`] | who waits for the end of scans |
//! | [`worker`] | takes shards, scans, writes |

mod cron;
mod database;
mod finished_targets;
mod merge;
mod rate_share;
pub mod rules;
mod scan_order;
mod wait;
mod worker;

pub use cron::CronSchedule;
pub use database::{
    FleetDatabase, FleetRole, RoleGroup, RulesPublication, RulesVersionState, ScanEnd, ScanState, ScanStatus,
    ScanSubmission, ScheduledScan, SensorRulesState, SensorState, check_name, script, sensors_of,
};
pub use merge::{BackgroundMerge, MergeConfig, MergeCounts, merge};
pub use scan_order::{FileKind, NetworkRate, RuleFile, ScanOrder, leads_down};
pub use wait::{WaitConfig, WaitOutcome, wait};
pub use worker::{ExitCondition, ScanTask, StopRequests, WorkerConfig, WorkerSummary, run};

use std::time::Duration;

use crate::database::{DatabaseError, DatabaseLocation};
use crate::inventory::StoreError;

/// First pause before a server that is away is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Default number of targets of a shard.
pub const SHARD: u64 = 1 << 16;

/// Maximum number of targets of a shard. Its bits of finished targets then take 128 KiB.
pub const LARGEST_SHARD: u64 = 1 << 20;

/// Maximum number of shards of a scan.
pub const SHARDS: u64 = 1_000_000;

/// Error of a fleet operation.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The database cannot be used.
    #[error("--database {0}")]
    Store(#[from] StoreError),
    /// The database returned an error.
    #[error("--database: {0}")]
    Database(#[from] DatabaseError),
    /// There is no fleet in it.
    #[error("--database: there is no fleet yet; create it with `bannerwall fleet init` or `fleet submit`")]
    NoFleet,
    /// The command needs a server.
    #[error("--database {0}: this needs a PostgreSQL server: pass postgresql://user@host/database")]
    NoServer(DatabaseLocation),
    /// An older program has made it, and it cannot be brought up to date.
    #[error("--database: the fleet's tables are version {0}, and cannot be brought to version {known}: \
             {1}; run `bannerwall fleet init` as the role that created them", known = database::VERSION)]
    Older(i64, StoreError),
    /// A role may do more than a sensor is to.
    #[error(
        "--sensor {0}: this role exists and is a superuser or passes row security; a sensor needs its \
             own role"
    )]
    Mighty(String),
    /// A sensor would be able to read.
    #[error("--sensor {0}: this role is a member of {1}; a sensor needs its own role")]
    Reads(String, String),
    /// A sensor's role would do something else, too.
    #[error("--{1} {0}: this role is a sensor's; a sensor needs its own role, which cannot read")]
    IsSensor(String, &'static str),
    /// The role may not merge.
    #[error("--database: this role may not merge batches; use the role of a worker or an admin")]
    MayNotMerge,
    /// A newer program has made the tables.
    #[error("--database: the fleet's tables are version {0}, and this bannerwall knows up to {known}: use a newer one",
        known = database::VERSION)]
    Newer(i64),
    /// The scan does not exist.
    #[error("there is no scan #{0}")]
    NoScan(i64),
    /// The sensor does not exist.
    #[error("there is no sensor {0}")]
    NoSensor(String),
    /// Batches of the sensor would be lost.
    #[error("sensor {0} has unmerged batches: {1}; run `bannerwall fleet merge` before you delete it")]
    Waits(String, i64),
    /// The schedule does not exist.
    #[error("there is no schedule #{0}")]
    NoSchedule(i64),
    /// The version of the rules does not exist.
    #[error("there is no version {0} of the rules")]
    NoRules(i64),
    /// A version that guards have to take as newer would not be.
    #[error("version {0} of the rules is not newer than the published ones: publish it with a higher number")]
    NotNewer(i64),
    /// The state of the scan does not allow the command.
    #[error("scan #{0} {1}")]
    Over(i64, &'static str),
    /// A crontab of days that there are not.
    #[error("the crontab never matches a time")]
    NeverDue,
}

impl FleetError {
    /// True if the server is away, or accepts no connections for now.
    fn is_unavailable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_unavailable(),
            Self::Database(error) => error.is_unavailable(),
            _ => false,
        }
    }
}
