//! Counts of a source's recent matches, for `count = { times = 5, within = "60s" }`.
//!
//! The state is bounded in keys and in recorded times. When it is full, the source with the oldest
//! last match is evicted. The caller keeps the state, so a reload of the rules does not lose it: a
//! hash of the id identifies a rule.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use super::rule::Rule;
use crate::event::Timestamp;

/// Recent matches of rules with a `count`, by source.
#[derive(Debug)]
pub struct MatchHistory {
    /// Times of the last matches of a rule and source, oldest first.
    matches: HashMap<RuleSourceKey, RecentMatchTimes, ahash::RandomState>,
    /// Keys in the order of their last match, by a running number.
    order: BTreeMap<u64, RuleSourceKey>,
    next: u64,
    remembered: usize,
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RuleSourceKey {
    rule: u64,
    source: IpAddr,
}

#[derive(Debug, Default)]
struct RecentMatchTimes {
    times: VecDeque<Timestamp>,
    turn: u64,
}

/// Default number of recorded matches; each takes at most some 64 bytes.
const DEFAULT_LIMIT: usize = 1 << 18;

impl Default for MatchHistory {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT)
    }
}

impl MatchHistory {
    /// Creates a state that records at most `limit` matches in all.
    pub fn new(limit: usize) -> Self {
        Self {
            matches: HashMap::default(),
            order: BTreeMap::new(),
            next: 1,
            remembered: 0,
            limit: limit.max(1),
        }
    }

    /// Records a match and returns whether the rule takes effect. A rule without `count` always
    /// does. Another one does if this source has at least `times` matches within the window.
    pub fn admit(&mut self, rule: &Rule, source: IpAddr, now: Timestamp) -> bool {
        let Some(count) = rule.count() else { return true };
        let key = RuleSourceKey { rule: rule.identity(), source: source.to_canonical() };
        let times = usize::try_from(count.times).unwrap_or(usize::MAX);
        let recent = self.matches.entry(key).or_default();
        // The source moves to the end of the order, so that `forget` begins with the one that has been quiet
        // for longest. A new source has turn 0, which is never in the order.
        self.order.remove(&recent.turn);
        recent.turn = self.next;
        self.order.insert(self.next, key);
        self.next += 1;
        let before = recent.times.len();
        recent.times.push_back(now);
        // Only the last `times` matches count, and only those within the window.
        let stale = |oldest: &Timestamp| now.since(*oldest) > count.within;
        while recent.times.len() > times || recent.times.front().is_some_and(stale) {
            recent.times.pop_front();
        }
        let reached = recent.times.len() >= times;
        self.remembered = self.remembered + recent.times.len() - before;
        self.forget();
        reached
    }

    /// Returns the result that [`Self::admit`] would have, without recording a match.
    pub fn would_admit(&self, rule: &Rule, source: IpAddr, now: Timestamp) -> bool {
        let Some(count) = rule.count() else { return true };
        let key = RuleSourceKey { rule: rule.identity(), source: source.to_canonical() };
        let within = |time: &&Timestamp| now.since(**time) <= count.within;
        let before = self.matches.get(&key).map_or(0, |recent| recent.times.iter().filter(within).count());
        // The match in question would count as well.
        before + 1 >= usize::try_from(count.times).unwrap_or(usize::MAX)
    }

    /// Evicts the sources with the oldest last match, until the rest is within the limit.
    fn forget(&mut self) {
        while self.remembered > self.limit {
            let Some((_, key)) = self.order.pop_first() else { return };
            if let Some(recent) = self.matches.remove(&key) {
                self.remembered -= recent.times.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleSet;

    fn rule(count: &str) -> RuleSet {
        let text = format!(
            "[[rule]]\nid='a'\ntitle='a'\nprotocol='ssh'\nmatch.software='a'\naction='alert'\n{count}\n"
        );
        RuleSet::parse("a.toml", &text).unwrap().rules
    }

    fn second(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn the_third_match_within_the_window_takes_effect_and_so_do_those_behind_it() {
        let set = rule("count = { times = 3, within = '10s' }");
        let rule = &set.rules()[0];
        let source = "192.0.2.1".parse().unwrap();
        let other = "192.0.2.2".parse().unwrap();
        let mut thresholds = MatchHistory::default();
        for (time, source, expected) in [
            (0, source, false),
            (1, other, false),
            (2, source, false),
            (9, source, true),
            (10, source, true),
            (25, source, false),
            (26, source, false),
            (35, source, true),
        ] {
            assert_eq!(thresholds.would_admit(rule, source, second(time)), expected, "{time}");
            assert_eq!(thresholds.admit(rule, source, second(time)), expected, "{time}");
        }
    }

    #[test]
    fn a_rule_without_count_always_takes_effect() {
        let set = rule("");
        assert!(MatchHistory::default().admit(&set.rules()[0], "192.0.2.1".parse().unwrap(), second(0)));
    }

    #[test]
    fn the_state_is_bounded_and_the_silent_are_forgotten_first() {
        let set = rule("count = { times = 2, within = '1h' }");
        let rule = &set.rules()[0];
        let mut thresholds = MatchHistory::new(100);
        let address = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(0xC000_0200 + number));
        for number in 0..1_000 {
            assert!(!thresholds.admit(rule, address(number), second(u64::from(number))));
        }
        assert_eq!(thresholds.matches.len(), 100);
        assert_eq!(thresholds.order.len(), 100);
        assert!(thresholds.admit(rule, address(950), second(1_001)), "a recent one is remembered");
        assert!(!thresholds.admit(rule, address(10), second(1_002)), "an old one is not");
    }
}
