//! The set of finished targets of a shard: all below a number, and some above it, one bit each. A shard of
//! 65,536 targets takes at most 8 KiB, and each write is as long as the window of targets under way.

use std::collections::VecDeque;

/// Positions that are finished.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FinishedTargets {
    /// All positions below this multiple of 8 are finished.
    to: u64,
    /// One bit per position above, the lowest bit first.
    bits: VecDeque<u8>,
    count: u64,
}

impl FinishedTargets {
    /// Reads the set from the columns of a row.
    pub(super) fn new(to: u64, bits: &[u8]) -> Self {
        let behind: u64 = bits.iter().map(|octet| u64::from(octet.count_ones())).sum();
        Self { to, bits: bits.iter().copied().collect(), count: to + behind }
    }

    /// Adds a position. Returns true if it was not finished before.
    pub(super) fn add(&mut self, position: u64) -> bool {
        if self.contains(position) {
            return false;
        }
        let Ok(at) = usize::try_from((position - self.to) / 8) else { return false };
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        if let Some(octet) = self.bits.get_mut(at) {
            *octet |= 1 << (position % 8);
        }
        self.count += 1;
        while self.bits.front() == Some(&u8::MAX) {
            self.bits.pop_front();
            self.to += 8;
        }
        true
    }

    pub(super) fn contains(&self, position: u64) -> bool {
        let Some(behind) = position.checked_sub(self.to) else { return true };
        let octet = usize::try_from(behind / 8).ok().and_then(|at| self.bits.get(at));
        octet.is_some_and(|octet| octet & (1 << (position % 8)) != 0)
    }

    /// Returns the number of finished positions.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the columns of a row.
    pub(super) fn parts(&self) -> (u64, Vec<u8>) {
        (self.to, self.bits.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    proptest::proptest! {
        #[test]
        fn what_was_added_is_over_and_nothing_else(all in proptest::collection::vec(0_u64..200, 0..300), cut in 0_usize..300) {
            let (mut over, mut set) = (FinishedTargets::default(), BTreeSet::new());
            for (at, position) in all.iter().enumerate() {
                proptest::prop_assert_eq!(over.add(*position), set.insert(*position));
                if at == cut {
                    // Another worker goes on.
                    let (to, bits) = over.parts();
                    over = FinishedTargets::new(to, &bits);
                }
            }
            proptest::prop_assert_eq!(over.count(), set.len() as u64);
            proptest::prop_assert!((0..210).all(|position| over.contains(position) == set.contains(&position)));
        }
    }

    #[test]
    fn what_is_over_in_order_takes_no_room() {
        let mut over = FinishedTargets::default();
        assert!((0..65_536).all(|position| over.add(position)));
        assert_eq!((over.parts(), over.count()), ((65_536, Vec::new()), 65_536));
    }
}
