//! The key of a flow: two endpoints, the same for both directions.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv6Addr};

use crate::event::Endpoint;
use crate::packet::{Addresses, Datagram, Segment};
use crate::terms::hash;

/// One of a flow's two ends, by the order of their addresses and ports. It does not show which end opened
/// the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KeyEnd {
    /// The smaller endpoint.
    Low,
    /// The greater endpoint.
    High,
}

impl KeyEnd {
    /// The opposite end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Low => Self::High,
            Self::High => Self::Low,
        }
    }
}

/// A flow's two endpoints in a fixed order, so that both directions have one key.
///
/// IPv4 addresses are stored as IPv4-mapped ones (RFC 4291 section 2.5.5.2), which no packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    low: [u8; 16],
    high: [u8; 16],
    low_port: u16,
    high_port: u16,
}

impl FlowKey {
    /// Returns the key of a segment's flow, and the end that sent the segment.
    pub fn of(segment: &Segment<'_>) -> (Self, KeyEnd) {
        Self::between(segment.addresses(), segment.source_port(), segment.destination_port())
    }

    /// Returns the key of a datagram's flow, and the end that sent it. Flows of TCP and UDP may have the
    /// same key, so they have separate tables.
    pub fn of_datagram(datagram: &Datagram<'_>) -> (Self, KeyEnd) {
        Self::between(datagram.addresses(), datagram.source_port(), datagram.destination_port())
    }

    fn between(addresses: Addresses, source_port: u16, destination_port: u16) -> (Self, KeyEnd) {
        let (source, destination) = match addresses {
            Addresses::V4(source, destination) => (mapped(source), mapped(destination)),
            Addresses::V6(source, destination) => (source, destination),
        };
        Self::new((source, source_port), (destination, destination_port))
    }

    /// Returns the key's bytes for [`FlowKey::from_octets`]: both addresses, both ports.
    pub fn octets(&self) -> [u8; 36] {
        let mut octets = [0; 36];
        let (addresses, ports) = octets.split_at_mut(32);
        let (low, high) = addresses.split_at_mut(16);
        low.copy_from_slice(&self.low);
        high.copy_from_slice(&self.high);
        let (low, high) = ports.split_at_mut(2);
        low.copy_from_slice(&self.low_port.to_be_bytes());
        high.copy_from_slice(&self.high_port.to_be_bytes());
        octets
    }

    /// Returns a key from its bytes; none if the ends are in the wrong order.
    pub fn from_octets(octets: &[u8; 36]) -> Option<Self> {
        let (low, rest) = octets.split_first_chunk::<16>()?;
        let (high, rest) = rest.split_first_chunk::<16>()?;
        let (low_port, high_port) = rest.split_first_chunk::<2>()?;
        let high_port: &[u8; 2] = high_port.try_into().ok()?;
        let low = (*low, u16::from_be_bytes(*low_port));
        let (key, from) = Self::new(low, (*high, u16::from_be_bytes(*high_port)));
        (from == KeyEnd::Low).then_some(key)
    }

    fn new(source: ([u8; 16], u16), destination: ([u8; 16], u16)) -> (Self, KeyEnd) {
        let place = |(octets, port): ([u8; 16], u16)| (u128::from_be_bytes(octets), port);
        // Any fixed order serves, as long as both directions give the same key.
        let from = if place(source) <= place(destination) { KeyEnd::Low } else { KeyEnd::High };
        let ((low, low_port), (high, high_port)) = match from {
            KeyEnd::Low => (source, destination),
            KeyEnd::High => (destination, source),
        };
        (Self { low, high, low_port, high_port }, from)
    }

    /// Address and port of one end.
    pub fn endpoint(&self, end: KeyEnd) -> Endpoint {
        let (octets, port) = match end {
            KeyEnd::Low => (self.low, self.low_port),
            KeyEnd::High => (self.high, self.high_port),
        };
        let address = Ipv6Addr::from(octets);
        let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
        Endpoint { address, port }
    }

    /// Port of one end.
    pub const fn port(&self, end: KeyEnd) -> u16 {
        match end {
            KeyEnd::Low => self.low_port,
            KeyEnd::High => self.high_port,
        }
    }

    /// Returns the hash under a seed that an attacker does not know.
    pub(super) fn hash(&self, state: &ahash::RandomState) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write_u128(u128::from_ne_bytes(self.low));
        hasher.write_u128(u128::from_ne_bytes(self.high));
        hasher.write_u32(u32::from(self.low_port) << 16 | u32::from(self.high_port));
        hasher.finish()
    }

    /// Returns a number for events, made of the key and `salt`. It is the same in every run over the same
    /// packets, and below 2^53 for readers with floating-point numbers.
    pub fn flow_id(&self, salt: u64) -> u64 {
        let ports = u64::from(self.low_port) << 16 | u64::from(self.high_port);
        let mut hash = mix(salt ^ ports);
        for octets in [self.low, self.high] {
            let (words, _) = octets.as_chunks::<8>();
            for word in words {
                hash = mix(hash ^ u64::from_be_bytes(*word));
            }
        }
        hash >> 11
    }
}

/// Prefix of an IPv4-mapped address.
const MAPPED: u128 = 0xffff << 32;

/// A step of `SplitMix64` from `value` on.
const fn mix(value: u64) -> u64 {
    hash::mix(value.wrapping_add(hash::GOLDEN_GAMMA))
}

const fn mapped(address: [u8; 4]) -> [u8; 16] {
    (MAPPED | u32::from_be_bytes(address) as u128).to_be_bytes()
}
