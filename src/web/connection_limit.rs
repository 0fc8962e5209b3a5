//! Limits of concurrent connections, in total and for each client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::rate_limit::group;

/// Connection slots of a server.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimit {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    /// Limit in total.
    all: usize,
    /// Limit of one address, or IPv6 site, so that none can lock out all others.
    of_one: usize,
}

/// Slot of a connection, released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(ConnectionLimit, IpAddr);

impl ConnectionLimit {
    /// Returns slots with a limit in total and one for each address.
    pub(crate) fn new(all: usize, of_one: usize) -> Self {
        Self { taken: Arc::default(), all, of_one }
    }

    /// Takes a slot for a client, if one is free.
    pub(crate) fn take(&self, client: IpAddr) -> Option<ConnectionPermit> {
        let client = group(client);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(&client).copied().unwrap_or_default();
        if own >= self.of_one || taken.values().sum::<usize>() >= self.all {
            return None;
        }
        taken.insert(client, own + 1);
        Some(ConnectionPermit(self.clone(), client))
    }
}

impl Drop for ConnectionPermit {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_can_not_keep_all_others_out_by_however_many_addresses() {
        let seats = ConnectionLimit::new(4, 2);
        let take = |address: &str| seats.take(address.parse().unwrap());
        let own: Vec<Option<ConnectionPermit>> =
            (1..=4).map(|last| take(&format!("2001:db8:0:{last}::1"))).collect();
        assert_eq!(own.iter().flatten().count(), 2);
        let mapped = [take("192.0.2.1"), take("::ffff:192.0.2.1")];
        assert!(
            mapped.iter().all(Option::is_some) && take("2001:db8:1::1").is_none(),
            "there are four in all"
        );
        drop(own);
        assert!(take("192.0.2.1").is_none() && take("2001:db8:1::1").is_some());
    }
}
