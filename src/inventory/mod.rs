//! The inventory: which host runs which software, since when, who saw it, and what changed.
//!
//! Guard, scan and replay pass their events to an [`Observer`]. A [`recorder`] on its own thread sums
//! them up, and a [`store::Store`] keeps them. This module decides nothing about traffic, and the packet
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

pub use alert::Alert;
pub use batch::{Batch, Unread};
pub use database::{
    Beside, Change, Contact, Count, Cursor, Database, Findings, Found, History, HostRecord, HostRow, Keeper,
    Merger, Overview, PastOrder, PastRun, Rule, Said, Schedule, Sent, Service, Time, schema_of_server,
};
pub use filter::Filter;
pub use impact::{Impact, impact};
pub use moment::{Moment, parse_age};
pub use notify::{Receiver, parse_url};
pub(crate) use notify::{SUBCOMMAND as NOTIFIER, serve as serve_notifier};
pub use observer::{Inventory, Observer, RecordConfig, Telling};
pub use post::SpillConfig;
pub use store::StoreError;

pub use crate::terms::place;
