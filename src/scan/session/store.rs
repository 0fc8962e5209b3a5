//! Interface for storing a scan's results; implemented above the scan.

use std::error::Error;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ahash::AHashSet;

use crate::event::{Event, PortState};
use crate::output::ChannelHandle;

/// An error of a store, with a message that names the flag.
pub type StoreFault = Box<dyn Error + Send + Sync>;

/// Store of a scan's results.
pub trait ResultStore: Debug {
    /// Creates needed files, before the process is confined.
    ///
    /// # Errors
    ///
    /// Error of the system.
    fn prepare(&self) -> Result<(), StoreFault>;

    /// Opens the store. Its own events go to `outputs`, which are finished after it.
    ///
    /// # Errors
    ///
    /// The store cannot be opened.
    fn start(&mut self, outputs: Vec<ChannelHandle>) -> Result<ResultFeed, StoreFault>;

    /// Writes everything, and returns the number of lost results.
    fn finish(self: Box<Self>) -> u64;
}

/// Passes results to a store; each thread has a clone.
#[derive(Debug, Clone)]
pub struct ResultFeed {
    /// Channel to the store.
    pub handle: ChannelHandle,
    /// Servers that were known before the scan.
    pub known: Arc<AHashSet<SocketAddr>>,
}

impl ResultFeed {
    /// True if the store needs the state of a port: it is open, or a known server had it.
    pub fn wants(&self, address: IpAddr, port: u16, state: PortState) -> bool {
        match state {
            PortState::Open => true,
            PortState::Closed | PortState::Filtered => {
                self.known.contains(&SocketAddr::new(address.to_canonical(), port))
            }
            PortState::Error => false,
        }
    }

    /// Passes groups of events, one group for each target.
    pub fn emit_groups(&self, groups: Vec<Vec<Event>>) {
        self.handle.emit_groups(groups);
    }
}
