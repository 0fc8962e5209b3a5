//! The inventory: which host runs which software, since when, who saw it, and what changed.
//!
//! Guard, scan and replay pass their events to an [`InventorySender`]. A [`recorder`] on its own thread sums
//! them up, and a [`store::SightingStore`] keeps them. This module decides nothing about traffic, and the
//! packet path never waits for it.

mod banner_product;
mod batch;
mod batch_sender;
mod change;
mod change_output;
mod database;
mod error;
mod event_input;
pub mod export;
mod filter;
mod heartbeat;
pub mod import;
mod inventory_time;
mod live_alert;
mod notify;
mod recorder;
mod rule_impact;
mod sighting;
mod store;
#[cfg(test)]
mod tests;
mod time_reference;

pub use batch::{SensorBatch, UnreadableRecords};
pub use batch_sender::SpillConfig;
pub use change::InventoryChange;
pub use database::query::{
    BlockingRule, ClientContact, FindingTrends, HostRecord, HostRow, InventoryTotals, PastRun, RecentChanges,
    RuleSummary, SearchHits, ServiceBanner, ServiceCursor, ServiceFinding, ServiceHistory, ServiceOrder,
    ServiceRecord, SeverityTrend, ValueCount,
};
pub use database::{
    BatchMerger, BatchRecords, InventoryDatabase, ReceivedBatch, TableClient, TransactionalWriter,
    maintenance, query, schema_of_server,
};
pub use error::StoreError;
pub use event_input::{ChangeReporting, Inventory, InventorySender, RecordConfig};
pub use filter::ServiceFilter;
pub use inventory_time::InventoryTime;
pub use live_alert::LiveAlert;
pub use notify::{NotificationReceiver, parse_url};
pub(crate) use notify::{SUBCOMMAND as NOTIFIER, serve as serve_notifier};
pub use rule_impact::{RuleImpact, impact};
pub use time_reference::{TimeReference, parse_age};

pub use crate::terms::place;

/// Returns the name of this machine, the default name of a sensor and of a worker.
pub fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
