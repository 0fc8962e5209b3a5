//! Queries of the tables.

mod condition;
mod history;
mod overview;
mod paging;
mod rules;
mod services;
mod top_values;

pub use self::history::{
    ClientContact, HostRecord, PastRun, ServiceBanner, ServiceHistory, changes, difference, host, runs,
    time_of,
};
pub(in crate::inventory) use self::history::{PeerBanner, clients, said_to};
pub(super) use self::history::{changes_since, latest_number};
pub use self::overview::{InventoryOverview, overview};
pub use self::paging::{
    HostRow, ServiceCursor, changes_before, changes_behind, hosts_behind, latest_change, services_behind,
};
pub use self::rules::{RuleSummary, rules};
pub(in crate::inventory) use self::services::unanswered;
pub use self::services::{ServiceFinding, ServiceRecord, services};
pub use self::top_values::{ValueCount, fields, products, top};
