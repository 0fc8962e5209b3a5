//! The inventory: which host runs which software, since when, who saw it, and what changed.
//!
//! Guard, scan and replay pass their events to an [`InventorySender`]. A [`recorder`] on its own thread sums
//! them up, and a [`store::SightingStore`] keeps them. This module decides nothing about traffic, and the packet
//! path never waits for it.

mod alert;
mod batch;
mod database;
pub mod export;
mod filter;
mod heartbeat;
mod impact;
pub mod import;
mod moment;
mod notify;
mod observer;
mod outlet;
mod post;
mod product;
mod recorder;
mod sighting;
mod store;
#[cfg(test)]
mod tests;

pub use alert::LiveAlert;
pub use batch::{SensorBatch, UnreadableRecords};
pub use database::{
    BatchMerger, BatchRecords, ClientContact, HostRecord, HostRow, InventoryChange, InventoryDatabase,
    InventoryOverview, InventoryTime, PastPageScan, PastRun, PostgresClient, ReceivedBatch, RuleSummary,
    ScanSchedule, ServiceBanner, ServiceCursor, ServiceFinding, ServiceHistory, ServiceRecord,
    TransactionalWriter, ValueCount, schema_of_server,
};
pub use filter::ServiceFilter;
pub use impact::{RuleImpact, impact};
pub use moment::{TimeReference, parse_age};
pub use notify::{NotificationReceiver, parse_url};
pub(crate) use notify::{SUBCOMMAND as NOTIFIER, serve as serve_notifier};
pub use observer::{ChangeReporting, Inventory, InventorySender, RecordConfig};
pub use post::SpillConfig;
pub use store::StoreError;

pub use crate::terms::place;
