//! Sets of whole numbers as sorted, disjoint, inclusive ranges.

/// Number of a range: an IPv4 or IPv6 address or a port.
pub(crate) trait RangeNumber: Copy + Ord {
    /// Returns the next number; none after the last.
    fn after(self) -> Option<Self>;
    /// Returns the previous number; none before the first.
    fn before(self) -> Option<Self>;
    /// Returns this number plus `offset`, which must exist.
    fn plus(self, offset: u64) -> Self;
    /// Returns the distance of this number from `first`.
    fn offset_from(self, first: Self) -> u128;
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl RangeNumber for $kind {
            fn after(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn before(self) -> Option<Self> {
                self.checked_sub(1)
            }
            fn plus(self, offset: u64) -> Self {
                self.wrapping_add(offset as Self)
            }
            fn offset_from(self, first: Self) -> u128 {
                u128::from(self - first)
            }
        }
    )*};
}

#[expect(clippy::cast_possible_truncation, reason = "offsets within a set are below its size")]
mod numbers {
    use super::RangeNumber;
    number!(u16, u32, u128);
}

/// A set of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RangeSet<N>(Vec<(N, N)>);

impl<N: RangeNumber> RangeSet<N> {
    /// Returns the union of inclusive ranges in any order, overlapping or not.
    pub(crate) fn new(mut ranges: Vec<(N, N)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(N, N)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end || end.after() == Some(first) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        merged.shrink_to_fit();
        Self(merged)
    }

    pub(crate) fn ranges(&self) -> &[(N, N)] {
        &self.0
    }

    /// Returns how many numbers there are, saturating.
    pub(crate) fn count(&self) -> u128 {
        self.0.iter().fold(0, |sum, (first, last)| {
            u128::saturating_add(sum, last.offset_from(*first).saturating_add(1))
        })
    }

    /// Returns the numbers of this set that are not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::with_capacity(self.0.len());
        let mut holes = other.0.iter().peekable();
        for &(first, last) in &self.0 {
            let mut from = Some(first);
            while let Some(&&(hole_first, hole_last)) = holes.peek() {
                let Some(start) = from.filter(|start| hole_first <= last && *start <= last) else { break };
                if hole_last >= start {
                    if let Some(end) = hole_first.before().filter(|end| start <= *end) {
                        left.push((start, end));
                    }
                    from = hole_last.after();
                }
                if hole_last > last {
                    break;
                }
                holes.next();
            }
            if let Some(start) = from.filter(|start| *start <= last) {
                left.push((start, last));
            }
        }
        Self(left)
    }

    /// Returns the numbers in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }

    pub(crate) fn contains(&self, number: N) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= number);
        behind.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, last)| number <= *last)
    }
}

/// Set with access by position.
#[derive(Debug, Clone)]
pub(crate) struct IndexedRanges<N> {
    ranges: Vec<(N, N)>,
    /// Number of numbers before each range.
    starts: Vec<u64>,
    count: u64,
}

impl<N: RangeNumber> IndexedRanges<N> {
    /// Indexes `set`; none if it has more than 2^62 numbers.
    pub(crate) fn new(set: RangeSet<N>) -> Option<Self> {
        let count = u64::try_from(set.count()).ok().filter(|count| *count <= 1 << 62)?;
        let mut starts = Vec::with_capacity(set.0.len());
        let mut before = 0;
        for (first, last) in &set.0 {
            starts.push(before);
            before += u64::try_from(last.offset_from(*first)).ok()? + 1;
        }
        Some(Self { starts, ranges: set.0, count })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number at `position`; none after the last.
    pub(crate) fn at(&self, position: u64) -> Option<N> {
        let range = self.starts.partition_point(|start| *start <= position).checked_sub(1)?;
        let (first, _) = self.ranges.get(range)?;
        let offset = position - self.starts.get(range)?;
        (position < self.count).then(|| first.plus(offset))
    }

    pub(crate) fn contains(&self, number: N) -> bool {
        let behind = self.ranges.partition_point(|(first, _)| *first <= number);
        behind.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, last)| number <= *last)
    }

    pub(crate) fn ranges(&self) -> &[(N, N)] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn members(set: &RangeSet<u16>) -> BTreeSet<u16> {
        set.ranges().iter().flat_map(|(first, last)| *first..=*last).collect()
    }

    fn ranges() -> impl Strategy<Value = Vec<(u16, u16)>> {
        let edge = prop_oneof![0_u16..60, (u16::MAX - 60)..=u16::MAX];
        prop::collection::vec((edge, 0_u16..8), 0..8).prop_map(|ranges| {
            ranges.into_iter().map(|(first, length)| (first, first.saturating_add(length))).collect()
        })
    }

    proptest! {
        #[test]
        fn sets_agree_with_sets(left in ranges(), right in ranges()) {
            let (left, right) = (RangeSet::new(left), RangeSet::new(right));
            let (l, r) = (members(&left), members(&right));
            prop_assert_eq!(members(&left.without(&right)), &l - &r);
            prop_assert_eq!(members(&left.intersection(&right)), &l & &r);
            prop_assert_eq!(left.count(), l.len() as u128);
            prop_assert!(l.iter().all(|number| left.contains(*number)));
            prop_assert!(r.difference(&l).all(|number| !left.contains(*number)));
            let indexed = IndexedRanges::new(left).unwrap();
            let listed: Vec<u16> = (0..indexed.count()).map(|at| indexed.at(at).unwrap()).collect();
            prop_assert_eq!(listed, l.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(indexed.at(indexed.count()), None);
        }
    }

    #[test]
    fn neighbours_become_one_range() {
        let set = RangeSet::new(vec![(5_u32, 6), (1, 2), (3, 4), (u32::MAX, u32::MAX), (4, 5)]);
        assert_eq!(set.ranges(), [(1, 6), (u32::MAX, u32::MAX)]);
    }

    #[test]
    fn all_of_ipv6_has_no_index() {
        assert!(IndexedRanges::new(RangeSet::new(vec![(0_u128, u128::MAX)])).is_none());
    }
}
