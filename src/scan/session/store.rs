//! Where a scan's findings are kept beside its results; implemented above the scan.

use std::error::Error;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ahash::AHashSet;

use crate::event::{Event, PortState};
use crate::output::Handle;

/// An error of a store, with a message that names the flag.
pub type StoreFault = Box<dyn Error + Send + Sync>;

/// A store of what a scan finds.
pub trait ResultStore: Debug {
    /// Makes, before the process is confined, what it needs.
    ///
    /// # Errors
    /// The system's error.
    fn prepare(&self) -> Result<(), StoreFault>;

    /// Opens the store. Its own events go to `outputs`, which are finished after it.
    ///
    /// # Errors
    /// It cannot be opened.
    fn start(&mut self, outputs: Vec<Handle>) -> Result<ResultFeed, StoreFault>;

    /// Writes everything, and returns the number of findings that were lost.
    fn finish(self: Box<Self>) -> u64;
}

/// Passes findings to a store; each thread has a clone.
#[derive(Debug, Clone)]
pub struct ResultFeed {
    /// The channel to the store.
    pub handle: Handle,
    /// Servers that were known before the scan.
    pub known: Arc<AHashSet<SocketAddr>>,
}

impl ResultFeed {
    /// True if the state of a port matters to the store: it is open, or a known server had it.
    pub fn wants(&self, address: IpAddr, port: u16, state: PortState) -> bool {
        match state {
            PortState::Open => true,
            PortState::Closed | PortState::Filtered => {
                self.known.contains(&SocketAddr::new(address.to_canonical(), port))
            }
            PortState::Error => false,
        }
    }

    /// Passes groups of events, each about one target.
    pub fn emit_groups(&self, groups: Vec<Vec<Event>>) {
        self.handle.emit_groups(groups);
    }
}
