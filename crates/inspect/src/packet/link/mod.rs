//! Link layers: finds the IP packet in a captured frame, after tags, `PPPoE` and MPLS.
//!
//! Frames without IP are skipped. This module reads nothing of an IP packet except its version.

mod radio;

/// Number of VLAN tags that are kept for events; further ones are skipped.
const VLAN_LIMIT: usize = 4;

/// Largest number of headers (tags, labels, sessions) between the link layer and IP.
const HEADER_LIMIT: usize = 16;

/// VLAN ids, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VlanIds {
    ids: [u16; VLAN_LIMIT],
    count: usize,
}

impl VlanIds {
    /// The ids, outermost first.
    pub fn as_slice(&self) -> &[u16] {
        self.ids.get(..self.count).unwrap_or_default()
    }

    fn push(&mut self, id: u16) {
        if let Some(slot) = self.ids.get_mut(self.count) {
            *slot = id;
            self.count += 1;
        }
    }
}

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameContent<'a> {
    /// An IP packet, followed by any padding of the frame.
    Ip {
        /// The bytes from the IP header on.
        packet: &'a [u8],
        /// The tags before it.
        vlans: VlanIds,
    },
    /// Anything else, or too little to decide.
    Other,
    /// The link type is not supported.
    UnknownLink,
}

/// The kind of the next header.
#[derive(Debug, Clone, Copy)]
enum NextHeader {
    /// The value of an `EtherType`; below 1536 it is a length and LLC follows.
    EtherType(u16),
    /// The value of a PPP protocol number, RFC 1661 and 1332.
    Ppp(u16),
    /// IP of the version in its first byte.
    Ip,
    /// A protocol that carries no IP.
    Nothing,
}

/// Finds the IP packet in a frame of the `LINKTYPE_` number `link`.
pub fn carried(link: u16, frame: &[u8]) -> FrameContent<'_> {
    let Some(first) = first_header(link, frame) else { return FrameContent::UnknownLink };
    first.parsed.map_or(FrameContent::Other, |(next, rest)| walk(next, rest))
}

/// Finds the IP packet in `content` of the `EtherType` `kind`.
pub(super) fn carried_as(kind: u16, content: &[u8]) -> FrameContent<'_> {
    walk(NextHeader::EtherType(kind), content)
}

fn walk(mut next: NextHeader, mut rest: &[u8]) -> FrameContent<'_> {
    let mut vlans = VlanIds::default();
    for _ in 0..HEADER_LIMIT {
        let following = match next {
            NextHeader::Ip => return ip(rest, vlans),
            NextHeader::EtherType(kind) => ether_type(kind, rest, &mut vlans),
            NextHeader::Ppp(protocol) => Some((ppp(protocol), rest)),
            NextHeader::Nothing => None,
        };
        let Some(following) = following else { break };
        (next, rest) = following;
    }
    FrameContent::Other
}

fn ip(packet: &[u8], vlans: VlanIds) -> FrameContent<'_> {
    match packet.first().map(|octet| octet >> 4) {
        Some(4 | 6) => FrameContent::Ip { packet, vlans },
        _ => FrameContent::Other,
    }
}

/// A readable link header, unless the frame is too short.
struct FirstHeader<'a> {
    parsed: Option<(NextHeader, &'a [u8])>,
}

/// Reads the link header; `None` for an unknown link type.
///
/// The numbers are those of the tcpdump project's list of link types.
fn first_header(link: u16, frame: &[u8]) -> Option<FirstHeader<'_>> {
    let parsed = match link {
        1 => typed(frame, 12, 14),
        113 => typed(frame, 14, 16),
        // InfiniBand, with the addresses of both ends.
        242 => typed(frame, 40, 44),
        276 => typed(frame, 0, 20),
        0 | 108 => loopback(frame),
        // LINKTYPE_RAW, and the numbers that some systems write for it by mistake.
        12 | 14 | 101 | 228 | 229 => Some((NextHeader::Ip, frame)),
        9 | 50 => point_to_point(frame),
        51 => pppoe(frame),
        // PPP after a byte with the direction.
        204 => point_to_point(frame.get(1..).unwrap_or_default()),
        // Cisco HDLC: address, control, and an EtherType.
        104 => typed(frame, 2, 4),
        107 => frame_relay(frame),
        // Token Ring, FDDI and ATM: LLC after their headers.
        6 => token_ring(frame),
        10 => frame.get(13..).and_then(llc),
        100 => llc(frame),
        105 => radio::wireless(frame),
        119 => radio::prism(frame),
        127 => radio::radiotap(frame),
        163 => radio::avs(frame),
        239 => netfilter_log(frame),
        // A header with the link type of the content: per-packet information (PPI), and macOS's captures
        // of all interfaces (PKTAP).
        192 => return announced(frame, 2, 4),
        258 => return announced(frame, 0, 8),
        _ => return None,
    };
    Some(FirstHeader { parsed })
}

/// A header of `length` bytes with an `EtherType` at `at`.
fn typed(frame: &[u8], at: usize, length: usize) -> Option<(NextHeader, &[u8])> {
    Some((NextHeader::EtherType(word(frame, at)?), frame.get(length..)?))
}

/// A header that holds its own length and the link type of what follows, both little-endian.
fn announced(frame: &[u8], length_at: usize, link_at: usize) -> Option<FirstHeader<'_>> {
    let little = |at| word(frame, at).map(u16::swap_bytes);
    let Some((length, link)) = little(length_at).zip(little(link_at)) else {
        return Some(FirstHeader { parsed: None });
    };
    match (link, frame.get(usize::from(length)..)) {
        // These headers do not nest.
        (192 | 258, _) => None,
        (link, Some(rest)) => first_header(link, rest),
        (_, None) => Some(FirstHeader { parsed: None }),
    }
}

/// The address family, in the byte order of the capturing machine; IPv6's number differs by system.
fn loopback(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    let (family, rest) = frame.split_first_chunk::<4>()?;
    let family = u32::from_le_bytes(*family);
    let known = |number: u32| matches!(number, 2 | 10 | 24 | 28 | 30);
    let next = if known(family) || known(family.swap_bytes()) { NextHeader::Ip } else { NextHeader::Nothing };
    Some((next, rest))
}

/// Access and frame control, two addresses, and a routing field where the source's first bit is set.
fn token_ring(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    let routed = frame.get(8)? & 0x80 != 0;
    let routing = if routed { usize::from(frame.get(14)? & 0x1f) } else { 0 };
    llc(frame.get(14 + routing..)?)
}

/// Frame Relay, RFC 2427: an address whose last byte has the lowest bit set, then a protocol number.
fn frame_relay(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    let address = frame.iter().take(4).position(|octet| octet & 1 == 1)? + 1;
    match frame.get(address..)? {
        [0x03, 0xcc | 0x8e, rest @ ..] => Some((NextHeader::Ip, rest)),
        [0x03, 0x80, _, _, _, rest @ ..] | [0x03, 0, 0x80, _, _, _, rest @ ..] => typed(rest, 0, 2),
        _ => None,
    }
}

/// The format of the kernel's `NFLOG`: attributes of length and kind, in the byte order of the capturing
/// machine; the packet has kind 9.
fn netfilter_log(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    const PAYLOAD: u16 = 9;
    let mut rest = frame.get(4..)?;
    loop {
        let little = |at| word(rest, at).map(u16::swap_bytes);
        // A length never exceeds the frame's; this shows the byte order.
        let swapped = usize::from(little(0)?) <= rest.len();
        let field = |at| if swapped { little(at) } else { word(rest, at) };
        let (length, kind) = (usize::from(field(0)?), field(2)?);
        if kind == PAYLOAD {
            return Some((NextHeader::Ip, rest.get(4..length.min(rest.len()))?));
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..)?;
    }
}

/// PPP, with or without address and control bytes and with a protocol of one or two bytes.
fn point_to_point(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    ppp_header(frame.strip_prefix(&[0xff, 0x03]).unwrap_or(frame))
}

fn ppp_header(rest: &[u8]) -> Option<(NextHeader, &[u8])> {
    match rest {
        [short, rest @ ..] if short & 1 == 1 => Some((NextHeader::Ppp(u16::from(*short)), rest)),
        [high, low, rest @ ..] => Some((NextHeader::Ppp(u16::from_be_bytes([*high, *low])), rest)),
        _ => None,
    }
}

const fn ppp(protocol: u16) -> NextHeader {
    match protocol {
        0x0021 | 0x0057 => NextHeader::Ip,
        0x0281 => NextHeader::EtherType(MPLS),
        _ => NextHeader::Nothing,
    }
}

/// A `PPPoE` session packet, RFC 2516: six bytes, then PPP.
fn pppoe(rest: &[u8]) -> Option<(NextHeader, &[u8])> {
    match rest {
        [0x11, 0, _, _, _, _, rest @ ..] => ppp_header(rest),
        _ => None,
    }
}

const MPLS: u16 = 0x8847;

fn ether_type<'a>(kind: u16, rest: &'a [u8], vlans: &mut VlanIds) -> Option<(NextHeader, &'a [u8])> {
    match kind {
        0x0800 | 0x86dd => Some((NextHeader::Ip, rest)),
        0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300 => {
            vlans.push(word(rest, 0)? & 0x0fff);
            typed(rest, 2, 4)
        }
        0x8864 => pppoe(rest),
        // A provider's backbone bridge (IEEE 802.1ah): a tag, then the customer's whole frame.
        0x88e7 => typed(rest.get(4..)?, 12, 14),
        // Tags of virtual interfaces and port extenders (VNTag, IEEE 802.1BR).
        0x8926 => typed(rest, 4, 6),
        0x893f => typed(rest, 6, 8),
        MPLS | 0x8848 => mpls(rest),
        0..0x0600 => llc(rest),
        _ => None,
    }
}

/// An MPLS label, RFC 3032: after the last one follows IP, or Ethernet with or without a control word
/// (RFC 4448).
fn mpls(rest: &[u8]) -> Option<(NextHeader, &[u8])> {
    let (label, rest) = rest.split_first_chunk::<4>()?;
    let bottom = label[2] & 1 == 1;
    match rest.first()? >> 4 {
        _ if !bottom => Some((NextHeader::EtherType(MPLS), rest)),
        4 | 6 => Some((NextHeader::Ip, rest)),
        0 => typed(rest.get(4..)?, 12, 14),
        _ => None,
    }
}

/// IEEE 802.2 LLC: IP by its own service access point, or SNAP.
fn llc(rest: &[u8]) -> Option<(NextHeader, &[u8])> {
    match rest {
        [0xaa, 0xaa, 0x03, _, _, _, rest @ ..] => typed(rest, 0, 2),
        [0x06, 0x06, 0x03, rest @ ..] => Some((NextHeader::Ip, rest)),
        _ => None,
    }
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|chunk| u16::from_be_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IP: [u8; 4] = [0x45, 1, 2, 3];

    fn found(link: u16, parts: &[&[u8]]) -> Option<Vec<u16>> {
        let frame = parts.concat();
        match carried(link, &frame) {
            FrameContent::Ip { packet, vlans } => {
                assert_eq!(packet, IP);
                Some(vlans.as_slice().to_vec())
            }
            _ => None,
        }
    }

    #[test]
    fn every_link_type_leads_to_its_ip_packet() {
        let addresses = [0; 12];
        let cooked = [0; 14];
        let plain = Some(vec![]);
        assert_eq!(found(1, &[&addresses, &[8, 0], &IP]), plain);
        assert_eq!(found(1, &[&addresses, &[0x81, 0, 0x20, 7, 8, 0], &IP]), Some(vec![7]));
        assert_eq!(
            found(1, &[&addresses, &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 0x86, 0xdd], &IP]),
            Some(vec![9, 7])
        );
        assert_eq!(found(1, &[&addresses, &[0x88, 0x64, 0x11, 0, 0, 1, 0, 9, 0, 0x21], &IP]), plain);
        assert_eq!(found(1, &[&addresses, &[0x88, 0x47, 0, 0, 0, 9, 0, 0, 1, 9], &IP]), plain);
        assert_eq!(found(1, &[&addresses, &[0, 12, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &IP]), plain);
        assert_eq!(found(113, &[&cooked, &[8, 0], &IP]), plain);
        assert_eq!(found(113, &[&cooked, &[0x81, 0, 0, 7, 8, 0], &IP]), Some(vec![7]));
        assert_eq!(found(276, &[&[8, 0], &[0; 18], &IP]), plain);
        assert_eq!(found(242, &[&[0; 40], &[8, 0, 0, 0], &IP]), plain);
        for link in [12, 14, 101, 228, 229] {
            assert_eq!(found(link, &[&IP]), plain);
        }
        assert_eq!(found(0, &[&[2, 0, 0, 0], &IP]), plain);
        assert_eq!(found(0, &[&[0, 0, 0, 30], &IP]), plain);
        assert_eq!(found(108, &[&[0, 0, 0, 24], &IP]), plain);
        assert_eq!(found(9, &[&[0xff, 3, 0, 0x21], &IP]), plain);
        assert_eq!(found(9, &[&[0x21], &IP]), plain);
        assert_eq!(found(51, &[&[0x11, 0, 0, 1, 0, 9, 0, 0x57], &IP]), plain);
        assert_eq!(found(104, &[&[0xf, 0, 8, 0], &IP]), plain);
        assert_eq!(found(204, &[&[0, 0xff, 3, 0, 0x21], &IP]), plain);
    }

    #[test]
    fn rarer_link_types_lead_to_their_ip_packet_too() {
        let plain = Some(vec![]);
        let snap: &[u8] = &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        assert_eq!(found(107, &[&[0x18, 0x41, 3, 0xcc], &IP]), plain);
        assert_eq!(found(107, &[&[0x18, 0x41, 3, 0, 0x80, 0, 0, 0, 8, 0], &IP]), plain);
        assert_eq!(found(6, &[&[0; 14], snap, &IP]), plain);
        assert_eq!(found(6, &[&[0; 8], &[0x80, 0, 0, 0, 0, 0, 2, 0], snap, &IP]), plain);
        assert_eq!(found(10, &[&[0; 13], snap, &IP]), plain);
        assert_eq!(found(100, &[snap, &IP]), plain);
        let ppi: &[u8] = &[0, 0, 12, 0, 105, 0, 0, 0, 9, 9, 9, 9, 8, 1];
        assert_eq!(found(192, &[ppi, &[0; 22], snap, &IP]), plain);
        let pktap: &[u8] = &[[16, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0].as_slice(), &[9; 4]].concat();
        assert_eq!(found(258, &[pktap, &[0; 12], &[8, 0], &IP]), plain);
        assert_eq!(carried(258, &[16, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0]), FrameContent::UnknownLink);
        let log: &[u8] = &[2, 0, 0, 0, 6, 0, 5, 0, 1, 2, 0, 0, 8, 0, 9, 0];
        assert_eq!(found(239, &[log, &IP]), plain);
        let log: &[u8] = &[2, 0, 0, 0, 0, 6, 0, 5, 1, 2, 0, 0, 0, 8, 0, 9];
        assert_eq!(found(239, &[log, &IP]), plain);
    }

    #[test]
    fn wireless_data_frames_lead_to_their_ip_packet() {
        let plain = Some(vec![]);
        let snap: &[u8] = &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        let data: &[u8] = &[[8, 1].as_slice(), &[0; 22]].concat();
        assert_eq!(found(105, &[data, snap, &IP]), plain);
        assert_eq!(found(105, &[&[0x88, 2], &[0; 24], snap, &IP]), plain);
        assert_eq!(found(105, &[&[0x88, 0x83], &[0; 34], snap, &IP]), plain);
        assert_eq!(found(127, &[&[0, 0, 9, 0, 0, 0, 0, 0, 0], data, snap, &IP]), plain);
        assert_eq!(found(119, &[&[0x44, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0], data, snap, &IP]), plain);
        assert_eq!(found(119, &[&[0x80, 0x21, 0x10, 1, 0, 0, 0, 8], data, snap, &IP]), plain);
        assert_eq!(found(163, &[&[0x80, 0x21, 0x10, 1, 0, 0, 0, 8], data, snap, &IP]), plain);
        assert_eq!(found(105, &[&[8, 0x41], &[0; 22], snap, &IP]), None, "encrypted");
        assert_eq!(found(105, &[&[0x48, 1], &[0; 22], snap, &IP]), None, "without data");
        assert_eq!(found(105, &[&[0x80, 0], &[0; 22], snap, &IP]), None, "a beacon");
    }

    #[test]
    fn tags_between_ethernet_and_ip_are_walked_over() {
        let (addresses, plain) = ([0; 12], Some(vec![]));
        let inner: &[u8] = &[[0; 12].as_slice(), &[8, 0]].concat();
        assert_eq!(found(1, &[&addresses, &[0x88, 0xe7, 0, 0, 0, 1], inner, &IP]), plain);
        assert_eq!(found(1, &[&addresses, &[0x89, 0x26, 0, 0, 0, 0, 8, 0], &IP]), plain);
        assert_eq!(found(1, &[&addresses, &[0x89, 0x3f, 0, 0, 0, 0, 0, 0, 8, 0], &IP]), plain);
    }

    #[test]
    fn what_is_no_ip_is_passed_over() {
        assert_eq!(carried(1, &[[0; 12].as_slice(), &[8, 6, 0, 1]].concat()), FrameContent::Other);
        assert_eq!(carried(1, &[0; 9]), FrameContent::Other);
        assert_eq!(carried(101, &[0x55]), FrameContent::Other);
        assert_eq!(carried(250, &[0; 90]), FrameContent::UnknownLink);
    }

    #[test]
    fn more_tags_than_are_kept_are_walked_over() {
        let tags = [0x81, 0, 0, 1].repeat(6);
        let frame = [[0; 12].as_slice(), &tags, &[8, 0], &IP].concat();
        let FrameContent::Ip { vlans, .. } = carried(1, &frame) else { panic!() };
        assert_eq!(vlans.as_slice(), [1; VLAN_LIMIT]);
        let endless = [[0; 12].as_slice(), &[0x81, 0, 0, 1].repeat(99)].concat();
        assert_eq!(carried(1, &endless), FrameContent::Other);
    }

    proptest! {
        #[test]
        fn random_frames_never_panic(
            link in proptest::sample::select(vec![0_u16, 1, 6, 9, 10, 12, 51, 100, 101, 104, 105, 107, 108, 113, 119, 127, 163, 192, 204, 239, 242, 258, 276]),
            frame in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = carried(link, &frame);
        }
    }
}
