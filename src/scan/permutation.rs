//! Pseudo-random order of the numbers below `n`, without memory.
//!
//! A Feistel network over a rectangle `a` × `b` that is just large enough for `n` (Black and Rogaway,
//! "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). Results in the small rest above `n` are permuted
//! again. This is not a cipher: it spreads a scan over networks and protects no secret.

use crate::terms::hash::{GOLDEN_GAMMA, mix};

/// Rounds of the network; four look random to a scanned network, two more cost nothing.
const ROUNDS: usize = 6;

/// Bijection of the numbers below its length.
#[derive(Debug, Clone)]
pub struct Permutation {
    length: u64,
    /// Columns and rows of the rectangle; their product is at least the length.
    columns: u64,
    rows: u64,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// Returns the permutation of the numbers below `length` for `seed`.
    ///
    /// # Panics
    ///
    /// If `length` is more than 2^62.
    pub fn new(length: u64, seed: u64) -> Self {
        assert!(length <= 1 << 62, "the rectangle must fit 64 bits");
        let columns = length.isqrt().max(1);
        let rows = length.div_ceil(columns).max(1);
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(GOLDEN_GAMMA);
            mix(state)
        });
        Self { length, columns, rows, keys }
    }

    /// Returns the number at `position`, which must be below the length.
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.length);
        let mut number = position;
        loop {
            number = self.encrypt(number);
            // The rest above the length is smaller than one row, so this seldom repeats. The loop ends: the
            // cycle of a number below the length leads back below it.
            if number < self.length {
                return number;
            }
        }
    }

    fn encrypt(&self, number: u64) -> u64 {
        let (mut column, mut row) = (number % self.columns, number / self.columns);
        for pair in self.keys.chunks_exact(2) {
            let [even, odd] = pair else { continue };
            column = add(column, scale(mix(row ^ even), self.columns), self.columns);
            row = add(row, scale(mix(column ^ odd), self.rows), self.rows);
        }
        row * self.columns + column
    }
}

/// Scales a 64-bit `value` evenly below `limit`, without a division.
fn scale(value: u64, limit: u64) -> u64 {
    ((u128::from(value) * u128::from(limit)) >> 64) as u64
}

/// Returns `(left + right) mod modulus` for numbers below `modulus`.
fn add(left: u64, right: u64, modulus: u64) -> u64 {
    let sum = left + right;
    if sum >= modulus { sum - modulus } else { sum }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_small_length_is_permuted_whole() {
        for length in 0..300 {
            for seed in 0..4 {
                let permutation = Permutation::new(length, seed);
                let seen: HashSet<u64> = (0..length).map(|position| permutation.at(position)).collect();
                assert_eq!(seen.len() as u64, length);
                assert!(seen.iter().all(|number| *number < length));
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
        #[test]
        fn a_bijection_for_any_seed(length in 1_u64..60_000, seed: u64) {
            let permutation = Permutation::new(length, seed);
            let mut seen = vec![false; usize::try_from(length).unwrap()];
            for position in 0..length {
                let number = permutation.at(position);
                let slot = &mut seen[usize::try_from(number).unwrap()];
                proptest::prop_assert!(!std::mem::replace(slot, true), "{number} twice");
            }
        }

        #[test]
        fn huge_lengths_stay_in_bounds(length in 1_u64..=1 << 62, seed: u64, at: u64) {
            let permutation = Permutation::new(length, seed);
            proptest::prop_assert!(permutation.at(at % length) < length);
        }
    }

    #[test]
    fn neighbours_are_scattered_and_seeds_differ() {
        let permutation = Permutation::new(1 << 16, 1);
        let first: Vec<u64> = (0..256).map(|position| permutation.at(position)).collect();
        let networks: HashSet<u64> = first.iter().map(|number| number >> 8).collect();
        // 256 balls into 256 boxes fill 162 in the mean; far fewer would mean runs.
        assert!(networks.len() > 120, "{} of 256 networks", networks.len());
        let other = Permutation::new(1 << 16, 2);
        let same = (0..256).filter(|position| other.at(*position) == permutation.at(*position)).count();
        assert!(same < 8, "{same} of 256 alike");
    }

    #[test]
    fn a_seed_means_the_same_order_for_ever() {
        // A checkpoint names a position in this order: it must survive new versions.
        let order: Vec<u64> = (0..8).map(|position| Permutation::new(1000, 42).at(position)).collect();
        assert_eq!(order, [351, 227, 600, 857, 525, 787, 864, 469]);
    }
}
