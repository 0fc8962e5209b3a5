//! Removes the urgent pointer of a segment, so that its receiver reads the same bytes as the engine.
//!
//! RFC 6093: a receiver may take the byte before the pointer out of the stream. Most do, each in another
//! way. Without the pointer, the bytes have only one meaning.

use etherparse::TcpSlice;

use super::{Flags, IpHeader, Patch, Segment};

/// Offset of the flags in a TCP header; window, checksum and urgent pointer follow.
const FLAGS: usize = 13;

impl Segment<'_> {
    /// Returns the patch that removes URG and urgent pointer from `packet`, of which this is a view.
    ///
    /// `None` unless the segment is complete. A `verified` checksum is updated by the difference (RFC
    /// 1624); a checksum that the network card would write is computed.
    pub fn without_urgent_pointer(&self, packet: &[u8], verified: bool) -> Option<Patch> {
        if !self.is_whole() {
            return None;
        }
        let header = self.tcp.header_slice();
        let at = header.as_ptr().addr().checked_sub(packet.as_ptr().addr())? + FLAGS;
        let [flags, window @ .., _, _, _, _] = *header.get(FLAGS..)?.first_chunk::<7>()?;
        let flags = flags & !Flags::URG;
        let checksum = if verified { self.checksum_brought_up() } else { self.checksum_worked_out()? };
        let [high, low] = checksum.to_be_bytes();
        Some(Patch::Write { at, octets: [flags, window[0], window[1], high, low, 0, 0] })
    }

    /// RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    fn checksum_brought_up(&self) -> u16 {
        let pointer = self.tcp.urgent_pointer();
        let flags = u16::from(self.flags().bits());
        let changed = [(flags, flags & !u16::from(Flags::URG)), (pointer, 0)];
        let mut sum = u32::from(!self.tcp.checksum());
        for (before, after) in changed {
            sum += u32::from(!before) + u32::from(after);
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap_or_default()
    }

    fn checksum_worked_out(&self) -> Option<u16> {
        // The pseudo header holds the final destination, which a routing header hides.
        if self.rerouted {
            return None;
        }
        let mut header = TcpSlice::to_header(&self.tcp);
        (header.urg, header.urgent_pointer) = (false, 0);
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
    use crate::packet::{Flags, Parsed, Segment, parse};

    fn segment(octets: &[u8]) -> Segment<'_> {
        let Ok(Parsed::Tcp(segment)) = parse(octets, octets.len()) else { panic!("a segment") };
        segment
    }

    fn urgent(v6: bool, payload: &[u8], pointer: u16) -> Vec<u8> {
        let [from, to] = if v6 {
            ["[2001:db8::1]:40000", "[2001:db8::2]:80"]
        } else {
            ["192.0.2.1:40000", "198.51.100.2:80"]
        };
        SegmentBuilder::new(endpoint(from), endpoint(to)).payload(payload).urgent(pointer).build()
    }

    proptest! {
        #[test]
        fn the_packet_stays_whole_and_loses_its_pointer(
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            pointer: u16,
            v6: bool,
            verified: bool,
        ) {
            let before = urgent(v6, &payload, pointer);
            prop_assert!(segment(&before).flags().urg() && segment(&before).checksums_valid());
            let patch = segment(&before).without_urgent_pointer(&before, verified).expect("it is whole");
            let after = patch.apply(&before, before.len()).expect("it is long enough");
            let (old, new) = (segment(&before), segment(&after));
            prop_assert!(new.checksums_valid() && !new.flags().urg() && new.urgent_pointer() == 0);
            prop_assert_eq!(new.payload(), old.payload());
            prop_assert_eq!(new.flags().bits(), old.flags().bits() & !Flags::URG);
            prop_assert_eq!((new.sequence(), new.window()), (old.sequence(), old.window()));
        }
    }

    #[test]
    fn what_was_cut_stays_as_it_is() {
        let whole = urgent(false, b"SSH-2.0-x\r\n", 3);
        let cut = &whole[..45];
        let Ok(Parsed::Tcp(segment)) = parse(cut, whole.len()) else { panic!("a segment") };
        assert_eq!(segment.without_urgent_pointer(cut, true), None);
    }
}
