//! What is on the network: who runs which software where, since when, who saw it, and what changed.
//!
//! Guard, scan and replay show their events to an [`Observer`], a [`recorder`] sums up what they say on a
//! thread of its own, and a [`Store`] keeps it. Nothing here decides what is allowed, and nothing on the
//! packet path waits for it.

mod filter;
mod observer;
mod product;
mod recorder;
mod sighting;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;

pub use filter::Filter;
pub use observer::{Inventory, Observer, RecordConfig};
pub use sqlite::{Found, Service, Sqlite};
pub use store::StoreError;
