//! Rate limits by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Limit of tracked addresses; beyond it, idle ones are dropped.
const REMEMBERED: usize = 4_096;

/// Token buckets, one for each address, full at first.
#[derive(Debug)]
pub(crate) struct AddressRateLimits {
    buckets: Mutex<HashMap<IpAddr, AddressBucket>>,
    size: f64,
    a_second: f64,
}

#[derive(Debug, Clone, Copy)]
struct AddressBucket {
    level: f64,
    at: Instant,
}

impl AddressRateLimits {
    /// Returns buckets with this size and this rate a second.
    pub(crate) fn new((size, a_second): (f64, f64)) -> Self {
        Self { buckets: Mutex::default(), size, a_second }
    }

    /// Takes a token of an address; returns false if there is none.
    pub(crate) fn admits(&self, address: IpAddr, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= REMEMBERED {
            buckets.retain(|_, bucket| self.level(bucket, now) < self.size);
            if buckets.len() >= REMEMBERED {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(group(address)).or_insert(AddressBucket { level: self.size, at: now });
        *bucket = AddressBucket { level: self.level(bucket, now), at: now };
        let admitted = bucket.level >= 1.0;
        if admitted {
            bucket.level -= 1.0;
        }
        admitted
    }

    /// True if an address has a token, without taking it.
    pub(crate) fn has_room(&self, address: IpAddr, now: Instant) -> bool {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.get(&group(address)).is_none_or(|bucket| self.level(bucket, now) >= 1.0)
    }

    fn level(&self, bucket: &AddressBucket, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.level + passed * self.a_second).min(self.size)
    }
}

/// Returns the key of an address. A site's IPv6 network (/48, RFC 6177) is one client, since it has 65,536
/// subnets.
pub(super) fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) & (u128::MAX << 80)).to_be_bytes()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_runs_dry_and_recovers_and_others_do_not_notice() {
        let rates = AddressRateLimits::new((3.0, 1.0));
        let (one, now) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
        assert_eq!([(); 5].map(|()| rates.admits(one, now)), [true, true, true, false, false]);
        assert!(!rates.has_room(one, now) && rates.has_room(IpAddr::from([192, 0, 2, 2]), now));
        assert!(rates.admits(one, now + Duration::from_secs(1)));
        assert!(!rates.admits(one, now + Duration::from_secs(1)));
        let network = |last: &str| format!("2001:db8::{last}").parse().unwrap();
        assert_eq!(
            ["1", "2", "3", "4"].map(|last| rates.admits(network(last), now)),
            [true, true, true, false]
        );
    }

    #[test]
    fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let (rates, now) = (AddressRateLimits::new((2.0, 1.0)), Instant::now());
        for number in 0..20_000_u32 {
            rates.admits(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(rates.buckets.lock().unwrap().len() <= REMEMBERED);
    }
}
