//! What is on the network: who runs which software where, since when, who saw it, and what changed.
//!
//! Guard, scan and replay show their events to an [`Observer`], a [`recorder`] sums up what they say on a
//! thread of its own, and a [`store::Store`] keeps it. Nothing here decides what is allowed, and nothing on the
//! packet path waits for it.

pub mod export;
mod filter;
mod impact;
pub mod import;
mod moment;
mod notify;
mod observer;
mod outlet;
mod product;
mod recorder;
mod sighting;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;

pub use filter::Filter;
pub use impact::{Impact, impact};
pub use moment::{Moment, parse_age};
pub use notify::{Receiver, parse_url};
pub use observer::{Inventory, Observer, RecordConfig, Telling};
pub use sqlite::{
    Change, Contact, Count, Found, History, HostRecord, HostRow, Overview, PastRun, Rule, Said, Service,
    Sqlite, Time,
};
pub use store::StoreError;

pub use crate::terms::place;
