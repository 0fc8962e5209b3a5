//! Hashes that are the same in every run and on every machine; they protect no secret.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// SHA-256 of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Its bytes.
    pub const fn octets(self) -> [u8; 32] {
        self.0
    }
}

/// Hexadecimal digits.
impl fmt::Display for Sha256Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&super::hexadecimal(&self.0))
    }
}

/// The increment of `SplitMix64`: 2^64 divided by the golden ratio.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// `SplitMix64`'s finaliser: every bit of the input reaches every bit of the output.
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// FNV-1a in 32 bits.
pub const fn fnv32(octets: &[u8]) -> u32 {
    let (mut hash, mut index) = (0x811c_9dc5_u32, 0);
    while index < octets.len() {
        hash = (hash ^ octets[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}

/// FNV-1a in 64 bits.
pub const fn fnv64(octets: &[u8]) -> u64 {
    let (mut hash, mut index) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while index < octets.len() {
        hash = (hash ^ octets[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_hold() {
        assert_eq!((fnv32(b""), fnv32(b"a"), fnv32(b"foobar")), (0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968));
        assert_eq!((fnv64(b"a"), fnv64(b"foobar")), (0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8));
        // The first number of SplitMix64 seeded with 0.
        assert_eq!(mix(GOLDEN_GAMMA), 0xe220_a839_7b1d_cdaf);
    }
}
