//! Addresses that cannot be hosts, from IANA's special-purpose registries.
//!
//! Private, loopback, shared and documentation networks are not included: they can have hosts.

use super::intervals::RangeSet;

/// Range that is skipped by default.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReservedRange<N> {
    pub(super) first: N,
    pub(super) last: N,
    /// Name and purpose.
    pub(super) name: &'static str,
}

/// IPv4 (RFC 6890, RFC 5771, RFC 1112).
pub(super) const V4: [ReservedRange<u32>; 3] = [
    ReservedRange { first: 0, last: 0x00ff_ffff, name: "0.0.0.0/8, \"this network\"" },
    ReservedRange { first: 0xe000_0000, last: 0xefff_ffff, name: "224.0.0.0/4, multicast" },
    ReservedRange { first: 0xf000_0000, last: 0xffff_ffff, name: "240.0.0.0/4, reserved and broadcast" },
];

/// IPv6 (RFC 4291): without an interface a link-local address cannot be reached, and addresses in
/// `::ffff:0:0/96` would be IPv4 ones by another name.
pub(super) const V6: [ReservedRange<u128>; 4] = [
    ReservedRange { first: 0, last: 0, name: "::, unspecified" },
    ReservedRange { first: 0xffff_0000_0000, last: 0xffff_ffff_ffff, name: "::ffff:0:0/96, IPv4-mapped" },
    ReservedRange { first: 0xfe80 << 112, last: (0xfec0 << 112) - 1, name: "fe80::/10, link-local" },
    ReservedRange { first: 0xff00 << 112, last: u128::MAX, name: "ff00::/8, multicast" },
];

/// Returns the ranges of `table` as a set.
pub(super) fn set<N: super::intervals::RangeNumber>(table: &[ReservedRange<N>]) -> RangeSet<N> {
    RangeSet::new(table.iter().map(|reserved| (reserved.first, reserved.last)).collect())
}
