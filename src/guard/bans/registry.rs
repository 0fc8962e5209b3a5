//! The banned addresses and the ends of their bans: a bounded copy of the kernel's set, with the fields that
//! the set has no room for.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::hook::ban_call::{BanElement, CAPACITY};

/// Smallest difference in the end of a ban that is worth a change of the kernel's set.
const WORTH: Duration = Duration::from_secs(1);

/// One banned client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RegisteredBan {
    pub(super) address: IpAddr,
    /// The rule that asked for it; absent for a ban by `bannerwall bans add`.
    pub(super) rule: Option<String>,
    /// The banner of the client, as far as the kernel's set holds it.
    pub(super) banner: String,
    pub(super) until: Instant,
}

impl RegisteredBan {
    /// Returns the ban as an element of the kernel's set.
    pub(super) fn element(&self, now: Instant) -> BanElement {
        let left = self.until.saturating_duration_since(now);
        let comment = format!("{} {}", self.rule.as_deref().unwrap_or(NO_RULE), self.banner);
        BanElement::new(
            self.address,
            // Rounded up, so that no ban ends early.
            left.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX),
            &comment,
        )
    }

    /// Returns the ban of an element of the kernel's set.
    pub(super) fn read(element: &BanElement, now: Instant) -> Self {
        let (rule, banner) = element.comment.split_once(' ').unwrap_or((NO_RULE, ""));
        Self {
            address: element.address,
            rule: Some(rule.to_owned()).filter(|rule| rule != NO_RULE),
            banner: banner.to_owned(),
            until: now + Duration::from_secs(element.seconds),
        }
    }
}

/// Replaces a rule's id in the kernel's comment.
const NO_RULE: &str = "-";

/// The result of adding a ban.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BanAddResult {
    /// The client was not banned before.
    New,
    /// It was banned for a shorter time.
    Extended,
    /// It was banned for as long.
    Known,
}

/// All bans, by address and by end.
#[derive(Debug)]
pub(super) struct BanRegistry {
    bans: HashMap<IpAddr, RegisteredBan>,
    ends: BTreeSet<(Instant, IpAddr)>,
    limit: usize,
}

impl Default for BanRegistry {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl BanRegistry {
    fn new(limit: usize) -> Self {
        Self { bans: HashMap::new(), ends: BTreeSet::new(), limit }
    }

    /// Adds a ban, or extends the one of the same address. Also returns the ban that was evicted for it: the
    /// one that would have ended first.
    pub(super) fn add(&mut self, ban: RegisteredBan) -> (BanAddResult, Option<RegisteredBan>) {
        let before = self.bans.get(&ban.address).map(|before| before.until);
        if before.is_some_and(|until| ban.until < until + WORTH) {
            return (BanAddResult::Known, None);
        }
        let evicted = if before.is_none() && self.bans.len() >= self.limit {
            // The ban that ends first loses the least.
            self.ends.first().copied().and_then(|(_, address)| self.remove(address))
        } else {
            None
        };
        self.remove(ban.address);
        self.ends.insert((ban.until, ban.address));
        self.bans.insert(ban.address, ban);
        (if before.is_some() { BanAddResult::Extended } else { BanAddResult::New }, evicted)
    }

    /// Returns the ban of an address.
    pub(super) fn get(&self, address: IpAddr) -> Option<&RegisteredBan> {
        self.bans.get(&address)
    }

    /// Removes the ban of an address.
    pub(super) fn remove(&mut self, address: IpAddr) -> Option<RegisteredBan> {
        let ban = self.bans.remove(&address)?;
        self.ends.remove(&(ban.until, address));
        Some(ban)
    }

    /// Removes and returns the next ban that has ended.
    pub(super) fn pop_ended(&mut self, now: Instant) -> Option<RegisteredBan> {
        let (until, address) = self.ends.first().copied()?;
        if until > now { None } else { self.remove(address) }
    }

    /// Returns the end of the ban that ends first.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// Returns the bans, the one that ends first at the front.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RegisteredBan> {
        self.ends.iter().filter_map(|(_, address)| self.bans.get(address))
    }

    pub(super) fn len(&self) -> usize {
        self.bans.len()
    }

    /// Updates the bans from the kernel's set, and returns those that it no longer holds.
    pub(super) fn agree_with(&mut self, elements: Vec<BanElement>, now: Instant) -> Vec<RegisteredBan> {
        let mut gone: HashMap<IpAddr, RegisteredBan> = std::mem::take(&mut self.bans);
        self.ends.clear();
        for element in elements {
            let read = RegisteredBan::read(&element, now);
            // The kernel rounds down to seconds, and truncates the banner.
            let ban = match gone.remove(&read.address) {
                Some(known) if known.until.saturating_duration_since(read.until) <= 2 * WORTH => known,
                _ => read,
            };
            let _ = self.add(ban);
        }
        gone.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(last: u8, now: Instant, seconds: u64) -> RegisteredBan {
        RegisteredBan {
            address: [192, 0, 2, last].into(),
            rule: Some("old-ssh".to_owned()),
            banner: "SSH-2.0-OldSSH_1 with spaces".to_owned(),
            until: now + Duration::from_secs(seconds),
        }
    }

    #[test]
    fn the_ban_that_ends_first_is_evicted_from_a_full_registry() {
        let (mut registry, now) = (BanRegistry::new(3), Instant::now());
        for (last, seconds) in [(1, 300), (2, 100), (3, 200)] {
            assert_eq!(registry.add(ban(last, now, seconds)), (BanAddResult::New, None));
        }
        assert_eq!(registry.add(ban(2, now, 100)), (BanAddResult::Known, None));
        assert_eq!(
            registry.add(ban(3, now, 400)),
            (BanAddResult::Extended, None),
            "no eviction for who is banned"
        );
        assert_eq!(registry.add(ban(4, now, 50)), (BanAddResult::New, Some(ban(2, now, 100))));
        assert_eq!(registry.len(), 3);
        let order: Vec<IpAddr> = registry.iter().map(|ban| ban.address).collect();
        assert_eq!(order, [4, 1, 3].map(|last| IpAddr::from([192, 0, 2, last])));
    }

    #[test]
    fn bans_end_in_their_order_and_no_earlier() {
        let (mut registry, now) = (BanRegistry::default(), Instant::now());
        for (last, seconds) in [(1, 30), (2, 10)] {
            registry.add(ban(last, now, seconds));
        }
        assert_eq!(registry.next_end(), Some(now + Duration::from_secs(10)));
        assert_eq!(registry.pop_ended(now + Duration::from_secs(9)), None);
        let later = now + Duration::from_secs(30);
        assert_eq!(registry.pop_ended(later), Some(ban(2, now, 10)));
        assert_eq!(registry.pop_ended(later), Some(ban(1, now, 30)));
        assert_eq!((registry.pop_ended(later), registry.next_end(), registry.len()), (None, None, 0));
    }

    #[test]
    fn the_kernel_keeps_rule_banner_and_remaining_time() {
        let now = Instant::now();
        let known = ban(1, now, 600);
        assert_eq!(RegisteredBan::read(&known.element(now), now), known);
        let by_hand = RegisteredBan { rule: None, banner: String::new(), ..known };
        assert_eq!(RegisteredBan::read(&by_hand.element(now), now), by_hand);
    }

    #[test]
    fn the_kernel_s_set_is_believed() {
        let (mut registry, now) = (BanRegistry::default(), Instant::now());
        registry.add(ban(1, now, 600));
        registry.add(ban(2, now, 600));
        let listed = vec![ban(2, now, 599).element(now), ban(3, now, 60).element(now)];
        assert_eq!(registry.agree_with(listed, now), [ban(1, now, 600)]);
        let bans: Vec<RegisteredBan> = registry.iter().cloned().collect();
        assert_eq!(bans, [ban(3, now, 60), ban(2, now, 600)]);
    }
}
