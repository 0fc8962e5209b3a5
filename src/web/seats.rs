//! Who is being answered: so many connections in all, and so many of one address, at once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The places of a server.
#[derive(Debug, Clone)]
pub(crate) struct Seats {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    /// In all.
    all: usize,
    /// Of one address, so that none can keep all others out.
    of_one: usize,
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Seat(Seats, IpAddr);

impl Seats {
    /// So many in all, and so many of one address.
    pub(crate) fn new(all: usize, of_one: usize) -> Self {
        Self { taken: Arc::default(), all, of_one }
    }

    /// A place for a client, where there is one.
    pub(crate) fn take(&self, client: IpAddr) -> Option<Seat> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(&client).copied().unwrap_or_default();
        if own >= self.of_one || taken.values().sum::<usize>() >= self.all {
            return None;
        }
        taken.insert(client, own + 1);
        Some(Seat(self.clone(), client))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.1);
            }
        }
    }
}
