//! Queries of the tables.

mod condition;
mod history;
mod overview;
mod paging;
mod rules;
mod search;
mod services;
mod sorted;
mod top_values;
mod trends;

pub use self::history::{
    ClientContact, HostRecord, PastRun, ServiceBanner, ServiceHistory, changes, difference, host,
    host_within, latest_runs, runs, time_of,
};
pub(in crate::inventory) use self::history::{PeerBanner, clients, said_to};
pub(super) use self::history::{changes_since, latest_number};
pub use self::overview::{
    BlockingRule, InventoryTotals, RecentChanges, blocking_rules, overview, recent_changes, totals,
};
pub use self::paging::{
    HostRow, ServiceCursor, changes_before, changes_behind, hosts_behind, latest_change, services_behind,
};
pub use self::rules::{RuleSummary, rule, rules};
pub use self::search::{SearchHits, search};
pub(in crate::inventory) use self::services::unanswered;
pub use self::services::{ServiceFinding, ServiceRecord, services};
pub use self::sorted::{ServiceOrder, hosts_by_severity, newest_hosts, services_sorted};
pub use self::top_values::{ValueCount, fields, products, top};
pub use self::trends::{FindingTrends, SeverityTrend, finding_trends, rule_trend};
