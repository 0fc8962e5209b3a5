//! Index of version requirements: finds those that admit a version, without trying each.
//!
//! The versions in the requirements divide the order of all versions into points and gaps. A
//! requirement admits a few runs of these cells. The nodes of a segment tree that cover these runs
//! hold its number. A look-up compares with the logarithm of the number of points, and walks as
//! many nodes. The results are candidates: bounds with `!=` are left to [`VersionRequirement::admits`].

use std::ops::RangeInclusive;

use super::version::{self, VersionRequirement};

/// Requirements with numbers; a look-up returns the numbers of those that admit a version.
#[derive(Debug, Default)]
pub(super) struct VersionRangeIndex {
    /// Every version in a requirement, once, in order. Cell `2 * n` is the gap below the version
    /// `n`, cell `2 * n + 1` the version itself. The last cell is everything above.
    points: Vec<String>,
    /// A segment tree over the cells: the children of node `n` are `2 * n` and `2 * n + 1`, cell `c`
    /// is the leaf `leaves + c`.
    nodes: Vec<Vec<u32>>,
    leaves: usize,
}

impl VersionRangeIndex {
    /// Builds an index of requirements and their numbers.
    pub(super) fn new(requirements: &[(&VersionRequirement, u32)]) -> Self {
        let mut points: Vec<String> =
            requirements.iter().flat_map(|(one, _)| one.versions()).map(str::to_owned).collect();
        points.sort_by(|left, right| version::compare(left.as_bytes(), right.as_bytes()));
        points.dedup_by(|left, right| version::compare(left.as_bytes(), right.as_bytes()).is_eq());
        let leaves = points.len() * 2 + 1;
        let mut ranges = Self { points, nodes: vec![Vec::new(); leaves * 2], leaves };
        for (requirement, number) in requirements {
            let last = ranges.leaves - 1;
            for cells in requirement.runs(last, |version| ranges.cell(version)) {
                ranges.cover(cells, *number);
            }
        }
        ranges
    }

    /// Adds the numbers of all requirements that could admit `version`, perhaps with duplicates.
    pub(super) fn search(&self, version: &[u8], found: &mut Vec<u32>) {
        let mut node = self.leaves + self.cell(version);
        while node > 0 {
            found.extend(self.nodes.get(node).into_iter().flatten());
            node /= 2;
        }
    }

    /// Returns the cell of a version.
    fn cell(&self, version: &[u8]) -> usize {
        match self.points.binary_search_by(|point| version::compare(point.as_bytes(), version)) {
            Ok(at) => at * 2 + 1,
            Err(at) => at * 2,
        }
    }

    /// Records `number` at the fewest nodes that cover exactly `cells`.
    fn cover(&mut self, cells: RangeInclusive<usize>, number: u32) {
        let (mut low, mut high) = (self.leaves + cells.start(), self.leaves + cells.end() + 1);
        while low < high {
            if low % 2 == 1 {
                self.note(low, number);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.note(high, number);
            }
            low /= 2;
            high /= 2;
        }
    }

    fn note(&mut self, node: usize, number: u32) {
        if let Some(numbers) = self.nodes.get_mut(node) {
            numbers.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(texts: &[&str], version: &str) -> Vec<u32> {
        let requirements: Vec<VersionRequirement> =
            texts.iter().map(|text| VersionRequirement::parse(text).unwrap()).collect();
        let numbered: Vec<(&VersionRequirement, u32)> = requirements.iter().zip(0..).collect();
        let mut found = Vec::new();
        VersionRangeIndex::new(&numbered).search(version.as_bytes(), &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn a_version_finds_the_requirements_that_admit_it() {
        let texts = [">=8.5p1, <9.8p1", "<4.4", "=9.2p1 || >10", ">9.2p1", "<=9.2p1", ">2, <1"];
        for (version, expected) in [
            ("9.2p1", vec![0, 2, 4]),
            ("9.3p1", vec![0, 3]),
            ("4.3", vec![1, 4]),
            ("9.8p1", vec![3]),
            ("10.0", vec![3]),
            ("10.1", vec![2, 3]),
            ("", vec![1, 4]),
        ] {
            assert_eq!(found(&texts, version), expected, "{version}");
        }
        assert_eq!(found(&[], "1"), Vec::<u32>::new());
    }

    #[test]
    fn ten_thousand_ranges_are_a_few_comparisons() {
        let texts: Vec<String> = (0..10_000).map(|number| format!(">={number}.1, <{number}.2")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert_eq!(found(&texts, "4711.1.5"), [4711]);
        assert_eq!(found(&texts, "4711.2"), Vec::<u32>::new());
    }

    fn requirement() -> impl Strategy<Value = String> {
        let bound = "(<|<=|=|!=|>=|>)[0-3](\\.[0-3]|p1|rc1|a)?";
        let bounds = prop::collection::vec(bound, 1..4).prop_map(|bounds| bounds.join(", "));
        prop::collection::vec(bounds, 1..3).prop_map(|alternatives| alternatives.join(" || "))
    }

    proptest! {
        #[test]
        fn the_index_finds_what_asking_each_finds(
            texts in prop::collection::vec(requirement(), 0..20),
            version in "[0-4](\\.[0-4])?(p1|p2|rc1|rc2|a|b|\\.0)?",
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let found = found(&texts, &version);
            for (text, number) in texts.iter().zip(0..) {
                let admits = VersionRequirement::parse(text).unwrap().admits(version.as_bytes());
                // Without `!=` the index is exact, with it a candidate may be found besides.
                prop_assert!(!admits || found.contains(&number), "{} {}", text, version);
                prop_assert!(admits || !found.contains(&number) || text.contains("!="), "{} {}", text, version);
            }
        }
    }
}
