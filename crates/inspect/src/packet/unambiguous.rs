//! Removes from a TCP header what would let the segment's receiver read other bytes than the engine.
//!
//! * The urgent pointer. RFC 6093: a receiver may take the byte before the pointer out of the stream. Most
//!   do, each in another way. Without the pointer, the bytes have only one meaning.
//! * Multipath TCP (RFC 8684) in a segment with SYN. It maps bytes to positions that the TCP header does not
//!   show, and spreads them over connections. Without the option both ends fall back to TCP.

use std::ops::Range;

use etherparse::TcpHeader;

use super::{IpHeader, PacketPatch, Segment, TcpFlags};

/// Offset of the flags in a TCP header.
const FLAGS: usize = 13;

/// Position of the checksum in a TCP header.
const CHECKSUM: Range<usize> = 16..18;

/// Position of the urgent pointer in a TCP header.
const URGENT_POINTER: Range<usize> = 18..20;

/// Kind of an option without meaning.
const NO_OPERATION: u8 = 1;

/// Kind of the options of Multipath TCP.
pub(super) const MULTIPATH: u8 = 30;

impl Segment<'_> {
    /// True if [`Segment::unambiguous`] would change the segment.
    pub fn is_ambiguous(&self) -> bool {
        let flags = self.flags();
        flags.urg() || flags.syn() && self.option(MULTIPATH).is_some()
    }

    /// Returns the patch that leaves `packet`, of which this is a view, only one meaning.
    ///
    /// `None` unless the segment is complete. A `verified` checksum is updated by the difference (RFC
    /// 1624); a checksum that the network card would write is computed.
    pub fn unambiguous(&self, packet: &[u8], verified: bool) -> Option<PacketPatch> {
        if !self.is_whole() {
            return None;
        }
        let before = self.tcp.header_slice();
        let at = before.as_ptr().addr().checked_sub(packet.as_ptr().addr())?;
        let mut header = before.to_vec();
        *header.get_mut(FLAGS)? &= !TcpFlags::URG;
        header.get_mut(URGENT_POINTER)?.fill(0);
        if self.flags().syn() {
            let options = self.options().filter(|(kind, _)| *kind == MULTIPATH);
            for (_, place) in options {
                // Overwritten instead of cut out, so that no other byte of the packet moves.
                header.get_mut(place)?.fill(NO_OPERATION);
            }
        }
        let checksum =
            if verified { self.updated_checksum(&header) } else { self.computed_checksum(&header)? };
        header.get_mut(CHECKSUM)?.copy_from_slice(&checksum.to_be_bytes());
        Some(PacketPatch::Write { at, octets: header })
    }

    /// RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), over all words of the header.
    fn updated_checksum(&self, header: &[u8]) -> u16 {
        let words = |octets: &[u8]| -> Vec<u16> {
            octets.as_chunks().0.iter().map(|word| u16::from_be_bytes(*word)).collect()
        };
        let mut sum = u32::from(!self.tcp.checksum());
        for (before, after) in words(self.tcp.header_slice()).into_iter().zip(words(header)) {
            sum += u32::from(!before) + u32::from(after);
        }
        // End-around carry of ones' complement addition (RFC 1071 section 2).
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap_or_default()
    }

    fn computed_checksum(&self, header: &[u8]) -> Option<u16> {
        // The pseudo header holds the final destination, which a routing header hides.
        if self.rerouted {
            return None;
        }
        let (header, _) = TcpHeader::from_slice(header).ok()?;
        let payload = self.tcp.payload();
        match &self.ip {
            IpHeader::V4(ip) => header.calc_checksum_ipv4_raw(ip.source(), ip.destination(), payload),
            IpHeader::V6(ip) => header.calc_checksum_ipv6_raw(ip.source(), ip.destination(), payload),
        }
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::packet::testing::{SegmentBuilder, endpoint};
    use crate::packet::{ParsedPacket, Segment, TcpFlags, parse};

    fn segment(octets: &[u8]) -> Segment<'_> {
        let Ok(ParsedPacket::Tcp(segment)) = parse(octets, octets.len()) else { panic!("a segment") };
        segment
    }

    fn builder(v6: bool, payload: &[u8]) -> SegmentBuilder {
        let [from, to] = if v6 {
            ["[2001:db8::1]:40000", "[2001:db8::2]:80"]
        } else {
            ["192.0.2.1:40000", "198.51.100.2:80"]
        };
        SegmentBuilder::new(endpoint(from), endpoint(to)).payload(payload)
    }

    fn patched(before: &[u8], verified: bool) -> Vec<u8> {
        let patch = segment(before).unambiguous(before, verified).expect("it is whole");
        patch.apply(before, before.len()).expect("it is long enough")
    }

    proptest! {
        #[test]
        fn the_packet_stays_whole_and_loses_its_pointer(
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            pointer: u16,
            v6: bool,
            verified: bool,
        ) {
            let before = builder(v6, &payload).urgent(pointer).build();
            prop_assert!(segment(&before).is_ambiguous() && segment(&before).checksums_valid());
            let after = patched(&before, verified);
            let (old, new) = (segment(&before), segment(&after));
            prop_assert!(new.checksums_valid() && !new.flags().urg() && new.urgent_pointer() == 0);
            prop_assert_eq!(new.payload(), old.payload());
            prop_assert_eq!(new.flags().bits(), old.flags().bits() & !TcpFlags::URG);
            prop_assert_eq!((new.sequence(), new.window()), (old.sequence(), old.window()));
        }

        #[test]
        fn a_syn_loses_every_option_of_multipath_tcp_and_no_other(
            kinds in proptest::collection::vec(proptest::sample::select(&[1_u8, 2, 8, 30, 30, 253][..]), 0..6),
            content: [u8; 4],
            v6: bool,
            verified: bool,
        ) {
            let option = |kind: &u8| if *kind == 1 { vec![1] } else { [&[*kind, 6], &content[..]].concat() };
            let mut options: Vec<u8> = kinds.iter().flat_map(option).collect();
            options.resize(options.len().next_multiple_of(4), 1);
            let expected: Vec<u8> = kinds.iter().flat_map(|kind| {
                if *kind == 30 { vec![1; 6] } else { option(kind) }
            }).collect();
            let before = builder(v6, b"early").flags(TcpFlags::SYN).all_options(&options).build();
            prop_assert_eq!(segment(&before).is_ambiguous(), kinds.contains(&30));
            let after = patched(&before, verified);
            let (old, new) = (segment(&before), segment(&after));
            prop_assert!(new.checksums_valid() && !new.is_ambiguous());
            prop_assert_eq!((new.payload(), new.flags()), (old.payload(), old.flags()));
            let header = new.tcp.header_slice();
            prop_assert_eq!(&header[20..20 + expected.len()], expected);
        }
    }

    #[test]
    fn options_are_read_as_far_as_receivers_read_them() {
        for (options, found) in [
            (&[1, 1, 30, 2][..], true),
            (&[0, 30, 2, 1], false),
            (&[2, 1, 30, 2], false),
            (&[2, 9, 30, 2], false),
            (&[1, 1, 1, 30], false),
        ] {
            let octets = builder(false, b"").flags(TcpFlags::SYN).all_options(options).build();
            assert_eq!(segment(&octets).is_ambiguous(), found, "{options:?}");
        }
        let octets = builder(false, b"x").all_options(&[30, 4, 0, 0]).build();
        assert!(!segment(&octets).is_ambiguous(), "only a SYN agrees on Multipath TCP");
    }

    #[test]
    fn what_was_cut_stays_as_it_is() {
        let whole = builder(false, b"SSH-2.0-x\r\n").urgent(3).build();
        let cut = &whole[..45];
        let Ok(ParsedPacket::Tcp(segment)) = parse(cut, whole.len()) else { panic!("a segment") };
        assert_eq!(segment.unambiguous(cut, true), None);
    }
}
