//! Read-only views of IPv4 and IPv6 packets with TCP or UDP, reassembly of IP fragments, and link layers
//! and tunnels around them.
//!
//! [`parse`] checks a packet once. A [`Segment`] or [`Datagram`] has complete headers, and nothing
//! rechecks them. The bytes come from the network: they may be cut short by a copy range or a snap
//! length, padded, or hostile. This module knows no flows and no clock.

use std::net::IpAddr;

use etherparse::err::ipv4::HeaderSliceError as Ipv4Error;
use etherparse::err::ipv6::HeaderSliceError as Ipv6Error;
use etherparse::{
    IpAuthHeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice,
    Ipv6RawExtHeaderSlice, ip_number,
};

mod build_resets;
mod datagram;
mod fragment;
pub mod link;
mod patch;
mod segment;
#[doc(hidden)]
pub mod testing;
pub mod tunnels;
mod unambiguous;

pub use build_resets::{Addresses, Reset, probe, reset};
pub use datagram::Datagram;
pub use fragment::{FragmentReassembler, IpFragment, ReassemblyLimits, ReassemblyResult};
pub use patch::PacketPatch;
pub use segment::{Segment, TcpFlags};

use segment::IpHeader;

/// Largest number of extension headers of a packet; real ones have one or two.
const EXTENSION_HEADER_LIMIT: usize = 16;

/// A packet, by what bannerwall can do with it.
#[derive(Debug)]
pub enum ParsedPacket<'a> {
    /// A TCP segment with complete headers.
    Tcp(Segment<'a>),
    /// A UDP datagram with complete headers.
    Udp(Datagram<'a>),
    /// A fragment of an IP packet, for a [`FragmentReassembler`].
    Fragment(IpFragment<'a>),
    /// An IP packet with another protocol, or with a datagram that receivers drop.
    Other,
}

/// The reason why a packet could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The headers exceed the captured part; the packet had at least `needed` bytes.
    #[error("headers need {needed} bytes, but only {captured} were captured")]
    Captured {
        /// Number of bytes from the start of the IP header that are needed.
        needed: usize,
        /// Number of bytes that were captured.
        captured: usize,
    },
    /// On the wire, the packet ends before its headers do.
    #[error("the packet is shorter than its headers")]
    Short,
    /// Neither version 4 nor 6.
    #[error("IP version {0}")]
    Version(u8),
    /// A header's own length field is smaller than the header.
    #[error("a header length smaller than the header")]
    HeaderLength,
    /// More extension headers than any honest packet has.
    #[error("more than {EXTENSION_HEADER_LIMIT} IPv6 extension headers")]
    ExtensionHeaders,
}

/// Reads the IP packet `ip`, of which `wire_length` bytes were on the wire.
///
/// `wire_length` exceeds `ip.len()` if a copy range or snap length cut the packet short. Bytes beyond the
/// IP header's stated length (Ethernet padding) are left out. A stated length of zero (segmentation
/// offload, IPv6 jumbograms) means the whole packet.
///
/// # Errors
///
/// Returns a [`PacketError`] if the IP or TCP headers are cut short or inconsistent.
pub fn parse(ip: &[u8], wire_length: usize) -> Result<ParsedPacket<'_>, PacketError> {
    let wire_length = wire_length.max(ip.len());
    match ip.first().map(|octet| octet >> 4) {
        Some(4) => parse_ipv4(ip, wire_length),
        Some(6) => parse_ipv6(ip, wire_length),
        Some(version) => Err(PacketError::Version(version)),
        None => Err(short(1, 0, wire_length)),
    }
}

/// Returns source and destination of a packet that may be incomplete; none if they are missing.
pub fn ends(ip: &[u8]) -> Option<[IpAddr; 2]> {
    let octets = |at: usize, length: usize| ip.get(at..at + length);
    let v4 = |at| Some(IpAddr::from(<[u8; 4]>::try_from(octets(at, 4)?).ok()?));
    let v6 = |at| Some(IpAddr::from(<[u8; 16]>::try_from(octets(at, 16)?).ok()?));
    match ip.first()? >> 4 {
        4 => Some([v4(12)?, v4(16)?]),
        6 => Some([v6(8)?, v6(24)?]),
        _ => None,
    }
}

fn parse_ipv4(ip: &[u8], wire_length: usize) -> Result<ParsedPacket<'_>, PacketError> {
    let header = Ipv4HeaderSlice::from_slice(ip).map_err(|error| match error {
        Ipv4Error::Len(error) => short(error.required_len, ip.len(), wire_length),
        Ipv4Error::Content(_) => PacketError::HeaderLength,
    })?;
    let header_length = header.slice().len();
    let extent = PacketExtent::new(ip, stated(usize::from(header.total_len())), wire_length);
    if extent.wire < header_length {
        return Err(PacketError::HeaderLength);
    }
    // Also the first fragment, though it has the TCP header: its payload is not whole.
    if header.is_fragmenting_payload() {
        let body = extent.body(header_length);
        return Ok(ParsedPacket::Fragment(IpFragment::v4(&header, body)));
    }
    match header.protocol() {
        ip_number::TCP => Segment::parse(IpHeader::V4(header), extent, header_length, false),
        ip_number::UDP => Datagram::parse(IpHeader::V4(header), extent, header_length, false),
        _ => Ok(ParsedPacket::Other),
    }
}

fn parse_ipv6(ip: &[u8], wire_length: usize) -> Result<ParsedPacket<'_>, PacketError> {
    let header = Ipv6HeaderSlice::from_slice(ip).map_err(|error| match error {
        Ipv6Error::Len(error) => short(error.required_len, ip.len(), wire_length),
        Ipv6Error::Content(_) => PacketError::HeaderLength,
    })?;
    let mut at = header.slice().len();
    let total = stated(usize::from(header.payload_length())).map(|length| length + at);
    let extent = PacketExtent::new(ip, total, wire_length);
    let mut next = header.next_header();
    let mut rerouted = false;
    for _ in 0..EXTENSION_HEADER_LIMIT {
        let rest = extent.captured.get(at..).unwrap_or_default();
        let (length, following) = match next {
            ip_number::TCP => return Segment::parse(IpHeader::V6(header), extent, at, rerouted),
            ip_number::UDP => return Datagram::parse(IpHeader::V6(header), extent, at, rerouted),
            // An atomic fragment (RFC 6946) is a whole packet: the loop goes on behind its header.
            ip_number::IPV6_FRAGMENTATION_HEADER => {
                let fragment = Ipv6FragmentHeaderSlice::from_slice(rest)
                    .map_err(|error| extent.short(at + error.required_len))?;
                if fragment.is_fragmenting_payload() {
                    let body = extent.body(at + fragment.slice().len());
                    return Ok(ParsedPacket::Fragment(IpFragment::v6(ip, at, &header, &fragment, body)));
                }
                (fragment.slice().len(), fragment.next_header())
            }
            ip_number::AUTHENTICATION_HEADER => {
                let authentication = IpAuthHeaderSlice::from_slice(rest).map_err(|error| match error {
                    etherparse::err::ip_auth::HeaderSliceError::Len(error) => {
                        extent.short(at + error.required_len)
                    }
                    etherparse::err::ip_auth::HeaderSliceError::Content(_) => PacketError::HeaderLength,
                })?;
                (authentication.slice().len(), authentication.next_header())
            }
            other if Ipv6RawExtHeaderSlice::header_type_supported(other) => {
                let extension = Ipv6RawExtHeaderSlice::from_slice(rest)
                    .map_err(|error| extent.short(at + error.required_len))?;
                rerouted |= routes_on(other, extension.payload());
                (extension.slice().len(), extension.next_header())
            }
            _ => return Ok(ParsedPacket::Other),
        };
        at += length;
        next = following;
    }
    Err(PacketError::ExtensionHeaders)
}

/// True if a routing header has segments left. Then the destination will change on the path, and the TCP
/// checksum can't be verified here (RFC 8200 section 8.1).
fn routes_on(kind: IpNumber, payload: &[u8]) -> bool {
    kind == ip_number::IPV6_ROUTE_HEADER && payload.get(1).is_some_and(|left| *left != 0)
}

fn stated(length: usize) -> Option<usize> {
    (length != 0).then_some(length)
}

fn short(needed: usize, captured: usize, wire_length: usize) -> PacketError {
    if needed <= wire_length { PacketError::Captured { needed, captured } } else { PacketError::Short }
}

/// The captured part of a packet without padding, and its length on the wire.
#[derive(Debug, Clone, Copy)]
struct PacketExtent<'a> {
    captured: &'a [u8],
    wire: usize,
}

impl<'a> PacketExtent<'a> {
    fn new(ip: &'a [u8], stated: Option<usize>, wire_length: usize) -> Self {
        let wire = stated.map_or(wire_length, |stated| stated.min(wire_length));
        let captured = ip.get(..wire).unwrap_or(ip);
        Self { captured, wire }
    }

    fn short(&self, needed: usize) -> PacketError {
        short(needed, self.captured.len(), self.wire)
    }

    /// Returns the part after `offset`.
    fn body(&self, offset: usize) -> Self {
        Self {
            captured: self.captured.get(offset..).unwrap_or_default(),
            wire: self.wire.saturating_sub(offset),
        }
    }
}

#[cfg(test)]
mod tests;
