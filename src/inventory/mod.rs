//! The inventory: which host runs which software, since when, who saw it, and what changed.
//!
//! Guard, scan and replay pass their events to an [`InventorySender`]. A [`recorder`] on its own thread sums
//! them up, and a [`store::SightingStore`] keeps them. This module decides nothing about traffic, and the
//! packet path never waits for it.

mod banner_product;
mod batch;
mod batch_sender;
mod change_output;
mod database;
mod event_input;
pub mod export;
mod filter;
mod heartbeat;
pub mod import;
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
pub use database::{
    BatchMerger, BatchRecords, ClientContact, HostRecord, HostRow, InventoryChange, InventoryDatabase,
    InventoryOverview, InventoryTime, PastRun, ReceivedBatch, RuleSummary, ServiceBanner, ServiceCursor,
    ServiceFinding, ServiceHistory, ServiceRecord, TableClient, TransactionalWriter, ValueCount,
    schema_of_server,
};
pub use event_input::{ChangeReporting, Inventory, InventorySender, RecordConfig};
pub use filter::ServiceFilter;
pub use live_alert::LiveAlert;
pub use notify::{NotificationReceiver, parse_url};
pub(crate) use notify::{SUBCOMMAND as NOTIFIER, serve as serve_notifier};
pub use rule_impact::{RuleImpact, impact};
pub use store::StoreError;
pub use time_reference::{TimeReference, parse_age};

pub use crate::terms::place;

/// Returns the name of this machine, the default name of a sensor and of a worker.
pub fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
