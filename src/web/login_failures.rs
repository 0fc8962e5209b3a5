//! Limit of wrong logins from one address.
//!
//! A correct user may share an address with an attacker: behind one NAT, or in one IPv6 network. Logins that
//! were correct before are never refused ([`WebUsers::has_seen`](super::WebUsers::has_seen), which costs
//! nothing). A new login is refused at first, like a guess. If it is repeated after a while, as a scraper's
//! is, it is tried. An attacker must send each guess twice, and only one in a while is tried.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::AddressRateLimits;

/// Wrong logins of one address: burst and rate a second.
const FAILURES: (f64, f64) = (10.0, 1.0 / 6.0);

/// Time that an untried login must wait, and interval of such tries.
const AGAIN: Duration = Duration::from_secs(5);

/// Time and number of stored untried logins.
const MEMORY: Duration = Duration::from_secs(180);
const REMEMBERED: usize = 1 << 14;

/// Wrong logins by address.
#[derive(Debug)]
pub(crate) struct LoginFailures {
    rates: AddressRateLimits,
    refused: Mutex<UntriedLogins>,
}

/// Untried logins, by their digests, with the time of their first attempt.
#[derive(Debug, Default)]
struct UntriedLogins {
    since: HashMap<[u8; 32], Instant>,
    /// Time of the last such try.
    tried: Option<Instant>,
}

impl LoginFailures {
    /// Returns an empty record.
    pub(crate) fn new() -> Self {
        Self { rates: AddressRateLimits::new(FAILURES), refused: Mutex::default() }
    }

    /// True if a login that was not correct before may be tried.
    pub(crate) fn may_try(&self, address: IpAddr, login: [u8; 32], now: Instant) -> bool {
        self.rates.has_room(address, now)
            || self.refused.lock().unwrap_or_else(PoisonError::into_inner).comes_again(login, now)
    }

    /// Counts a wrong login.
    pub(crate) fn count(&self, address: IpAddr, now: Instant) {
        self.rates.admits(address, now);
    }
}

impl UntriedLogins {
    /// True if it is the turn of a login that was refused before; stores a new one.
    fn comes_again(&mut self, login: [u8; 32], now: Instant) -> bool {
        let passed = |since: Instant| now.saturating_duration_since(since);
        match self.since.get(&login).copied() {
            Some(since) if passed(since) < MEMORY => {
                let is_due = passed(since) >= AGAIN && self.tried.is_none_or(|tried| passed(tried) >= AGAIN);
                if is_due {
                    self.since.remove(&login);
                    self.tried = Some(now);
                }
                return is_due;
            }
            _ => {}
        }
        if self.since.len() >= REMEMBERED {
            self.since.retain(|_, since| passed(*since) < MEMORY);
            if self.since.len() >= REMEMBERED {
                self.since.clear();
            }
        }
        self.since.insert(login, now);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// The digest of a login of this number.
    fn login(number: u32) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn a_login_that_comes_again_is_tried_though_somebody_guesses_all_the_time() {
        let (failures, start) = (LoginFailures::new(), Instant::now());
        let (mut tried, mut own) = (0, None);
        for number in 0..20_000 {
            // A hundred guesses a second, and a scraper each fifteen seconds.
            let now = start + Duration::from_millis(10 * u64::from(number));
            if failures.may_try(PEER, login(number), now) {
                tried += 1;
                failures.count(PEER, now);
            }
            if number % 1500 == 700 && failures.may_try(PEER, login(u32::MAX), now) {
                own.get_or_insert(now.duration_since(start).as_secs());
            }
        }
        // Ten at once, one in six seconds.
        assert!((10..=10 + 200 / 6 + 1).contains(&tried), "{tried}");
        assert_eq!(own, Some(22), "the second time");
    }

    #[test]
    fn who_says_each_guess_twice_has_one_in_a_while_tried() {
        let (failures, start) = (LoginFailures::new(), Instant::now());
        (0..10).for_each(|_| failures.count(PEER, start));
        let mut tried = 0;
        for second in 1..=300_u32 {
            let now = start + Duration::from_secs(second.into());
            for number in 0..50 {
                if failures.may_try(PEER, login(number), now) {
                    tried += 1;
                    failures.count(PEER, now);
                }
            }
        }
        assert!(tried <= 300 / 6 + 300 / 5 + 50, "{tried}");
    }

    #[test]
    fn no_more_logins_are_remembered_than_there_is_room_for() {
        let (mut refused, now) = (UntriedLogins::default(), Instant::now());
        (0..40_000).for_each(|number| _ = refused.comes_again(login(number), now));
        assert!(refused.since.len() <= REMEMBERED);
    }
}
