//! Tunnels: finds the packet inside an IP packet, as dissectors do.
//!
//! IP in IP (RFC 2003, 2473, 4213), MPLS in IP and UDP (RFC 4023, 7510), GRE (RFC 2784, 2890, 2637), in
//! UDP too (RFC 8086), with ERSPAN and the wireless frames that access points send to their controller,
//! VXLAN (RFC 7348) and its GPE, Geneve (RFC 8926), Teredo (RFC 4380), AYIYA, L2TP (RFC 2661) and GTP-U
//! (3GPP TS 29.281). The content of fragments is visible only after reassembly: see [`is_piece`].

use super::link::{self, FrameContent, VlanIds};

/// Largest number of nested tunnels.
const DEPTH_LIMIT: usize = 4;

/// Largest number of IPv6 extension headers that are skipped.
const EXTENSION_LIMIT: usize = 8;

const IPV4: u8 = 4;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const MPLS: u8 = 137;

/// `EtherType` of transparent Ethernet bridging, a whole frame.
const BRIDGED: u16 = 0x6558;

/// `EtherType` of MPLS.
const MPLS_LABEL: u16 = 0x8847;

/// `LINKTYPE_` numbers of frames in tunnels.
const ETHERNET: u16 = 1;
const RAW_IP: u16 = 101;
const WIRELESS: u16 = 105;

/// The content of a tunnel, by its header.
enum TunnelContent<'a> {
    /// A frame of that `LINKTYPE_` number.
    Frame(u16, &'a [u8]),
    /// A packet of that `EtherType`.
    Typed(u16, &'a [u8]),
}

/// Finds the innermost IP packet in a frame of the `LINKTYPE_` number `link`.
pub fn innermost(link: u16, frame: &[u8]) -> FrameContent<'_> {
    let mut found = link::carried(link, frame);
    for _ in 0..DEPTH_LIMIT {
        // Any layer that is no IP packet ends the search; the last IP packet found counts.
        let FrameContent::Ip { packet, vlans } = found else { break };
        let Some(inner) = inner(packet) else { break };
        let next = match inner {
            TunnelContent::Frame(link, frame) => link::carried(link, frame),
            TunnelContent::Typed(kind, content) => link::carried_as(kind, content),
        };
        let FrameContent::Ip { packet, vlans: own } = next else { break };
        let vlans = if own == VlanIds::default() { vlans } else { own };
        found = FrameContent::Ip { packet, vlans };
    }
    found
}

fn inner(packet: &[u8]) -> Option<TunnelContent<'_>> {
    let (protocol, payload) = payload(packet)?;
    match protocol {
        IPV4 | IPV6 => Some(TunnelContent::Frame(RAW_IP, payload)),
        GRE => gre(payload),
        MPLS => Some(TunnelContent::Typed(MPLS_LABEL, payload)),
        UDP => udp(payload),
        _ => None,
    }
}

/// True if `packet` is a fragment of a packet that may belong to a tunnel.
pub fn is_piece(packet: &[u8]) -> bool {
    let octet = |at: usize| packet.get(at).copied().unwrap_or_default();
    match octet(0) >> 4 {
        4 => (octet(6) & 0x3f, octet(7)) != (0, 0) && is_tunnel(octet(9)),
        // A fragment header, RFC 8200 section 4.5, with the number of the header after it.
        6 => octet(6) == 44 && is_tunnel(octet(40)),
        _ => false,
    }
}

const fn is_tunnel(protocol: u8) -> bool {
    matches!(protocol, IPV4 | IPV6 | GRE | UDP | MPLS)
}

/// Returns the protocol and payload of an unfragmented packet. TCP, the usual case, returns here at once.
fn payload(packet: &[u8]) -> Option<(u8, &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet.first()? & 0x0f) * 4;
            // Offset and the MF flag: only a whole packet has its tunnel's header and content together.
            let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
            let protocol = *packet.get(9)?;
            let whole = fragment == 0 && is_tunnel(protocol);
            whole.then_some((protocol, packet.get(header.max(20)..)?))
        }
        6 => ipv6_payload(packet),
        _ => None,
    }
}

fn ipv6_payload(packet: &[u8]) -> Option<(u8, &[u8])> {
    let (mut protocol, mut rest) = (*packet.get(6)?, packet.get(40..)?);
    for _ in 0..EXTENSION_LIMIT {
        match protocol {
            tunnel if is_tunnel(tunnel) => return Some((protocol, rest)),
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => {
                let length = (usize::from(*rest.get(1)?) + 1) * 8;
                (protocol, rest) = (*rest.first()?, rest.get(length..)?);
            }
            _ => return None,
        }
    }
    None
}

fn gre(header: &[u8]) -> Option<TunnelContent<'_>> {
    let [flags, version, ..] = *header else { return None };
    let kind = word(header, 2)?;
    let has = |bit: u8| usize::from(flags & bit != 0) * 4;
    match version & 7 {
        // Source routing (RFC 1701) is obsolete, and its length depends on the route.
        0 if flags & 0x40 == 0 => {
            let sequence = has(0x10);
            let content = header.get(4 + has(0x80) + has(0x20) + sequence..)?;
            gre_content(kind, sequence != 0, content)
        }
        // PPTP: a key always, an acknowledgement if a bit of the second byte is set.
        1 if kind == 0x880b => {
            let acknowledgement = usize::from(version & 0x80 != 0) * 4;
            ppp(header.get(8 + has(0x10) + acknowledgement..)?)
        }
        _ => None,
    }
}

fn gre_content(kind: u16, sequenced: bool, content: &[u8]) -> Option<TunnelContent<'_>> {
    match kind {
        BRIDGED => Some(TunnelContent::Frame(ETHERNET, content)),
        // ERSPAN type I has no header of its own, types II and III have 8 and 12 bytes.
        0x88be if sequenced => Some(TunnelContent::Frame(ETHERNET, content.get(8..)?)),
        0x88be => Some(TunnelContent::Frame(ETHERNET, content)),
        0x22eb => Some(TunnelContent::Frame(ETHERNET, content.get(12..)?)),
        // Aruba's access points number their frames' kinds like this.
        0x8200..0x8400 if kind & 0x0f == 0 => Some(TunnelContent::Frame(WIRELESS, content)),
        _ => Some(TunnelContent::Typed(kind, content)),
    }
}

fn ppp(frame: &[u8]) -> Option<TunnelContent<'_>> {
    match frame.strip_prefix(&[0xff, 0x03]).unwrap_or(frame) {
        [0x00, 0x21 | 0x57, packet @ ..] | [0x21 | 0x57, packet @ ..] => {
            Some(TunnelContent::Frame(RAW_IP, packet))
        }
        _ => None,
    }
}

fn udp(header: &[u8]) -> Option<TunnelContent<'_>> {
    let (source, destination) = (word(header, 0)?, word(header, 2)?);
    let content = header.get(8..)?;
    let either = |port| source == port || destination == port;
    match destination {
        4789 => Some(TunnelContent::Frame(ETHERNET, content.get(8..)?)),
        6081 => geneve(content),
        4754 => gre(content),
        4790 => extended_vxlan(content),
        _ if either(3544) => teredo(content),
        _ if either(2152) => gtp(content),
        _ if either(5072) => ayiya(content),
        _ if either(1701) => l2tp(content),
        6635 => Some(TunnelContent::Typed(MPLS_LABEL, content)),
        _ => None,
    }
}

/// A data message of L2TP version 2: the first byte shows which fields precede the PPP frame.
fn l2tp(header: &[u8]) -> Option<TunnelContent<'_>> {
    const CONTROL: u8 = 0x80;
    let [flags, version, ..] = *header else { return None };
    if flags & CONTROL != 0 || version & 0x0f != 2 {
        return None;
    }
    let (length, sequence) = (usize::from(flags & 0x40 != 0) * 2, usize::from(flags & 0x08 != 0) * 4);
    let fields = 2 + length + 4 + sequence;
    match flags & 0x02 {
        0 => ppp(header.get(fields..)?),
        _ => ppp(header.get(fields + 2 + usize::from(word(header, fields)?)..)?),
    }
}

fn geneve(header: &[u8]) -> Option<TunnelContent<'_>> {
    let options = usize::from(header.first()? & 0x3f) * 4;
    let content = header.get(8 + options..)?;
    match word(header, 2)? {
        BRIDGED => Some(TunnelContent::Frame(ETHERNET, content)),
        kind => Some(TunnelContent::Typed(kind, content)),
    }
}

/// VXLAN-GPE: like VXLAN, with the number of the next protocol.
fn extended_vxlan(header: &[u8]) -> Option<TunnelContent<'_>> {
    let content = header.get(8..)?;
    match header.get(3)? {
        1 | 2 => Some(TunnelContent::Frame(RAW_IP, content)),
        3 => Some(TunnelContent::Frame(ETHERNET, content)),
        _ => None,
    }
}

/// AYIYA: an identity and a signature; the first two bytes hold their lengths.
fn ayiya(header: &[u8]) -> Option<TunnelContent<'_>> {
    const FORWARD: u8 = 1;
    let [lengths, signature, operation, next, ..] = *header else { return None };
    let identity = 1_usize << (lengths >> 4);
    let content = header.get(8 + identity + usize::from(signature >> 4) * 4..)?;
    (operation & 0x0f == FORWARD && matches!(next, IPV4 | IPV6))
        .then_some(TunnelContent::Frame(RAW_IP, content))
}

/// An IPv6 packet, after an optional authentication and origin indication.
fn teredo(mut content: &[u8]) -> Option<TunnelContent<'_>> {
    if let [0, 1, identifier, authentication, ..] = *content {
        content = content.get(13 + usize::from(identifier) + usize::from(authentication)..)?;
    }
    if let [0, 0, ..] = content {
        content = content.get(8..)?;
    }
    (content.first()? >> 4 == 6 && content.len() >= 40).then_some(TunnelContent::Frame(RAW_IP, content))
}

/// A G-PDU: message type 255, with optional fields and extension headers.
fn gtp(header: &[u8]) -> Option<TunnelContent<'_>> {
    let [flags, 255, ..] = *header else { return None };
    if flags >> 4 != 3 {
        return None;
    }
    if flags & 7 == 0 {
        return Some(TunnelContent::Frame(RAW_IP, header.get(8..)?));
    }
    let (mut next, mut rest) = (*header.get(11)?, header.get(12..)?);
    for _ in 0..EXTENSION_LIMIT {
        if next == 0 {
            return Some(TunnelContent::Frame(RAW_IP, rest));
        }
        let length = usize::from(*rest.first()?) * 4;
        next = *rest.get(length.checked_sub(1)?)?;
        rest = rest.get(length..)?;
    }
    None
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|chunk| u16::from_be_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A recognisable innermost packet: IPv4 with TCP.
    fn tcp() -> Vec<u8> {
        ipv4(6, b"innermost")
    }

    fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol];
        packet.resize(20, 1);
        packet.extend(payload);
        packet
    }

    fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        packet.resize(40, 1);
        packet.extend(payload);
        packet
    }

    fn to_port(port: u16, content: &[u8]) -> Vec<u8> {
        ipv4(UDP, &[&[0, 9], port.to_be_bytes().as_slice(), &[0; 4], content].concat())
    }

    fn from_port(port: u16, content: &[u8]) -> Vec<u8> {
        ipv4(UDP, &[port.to_be_bytes().as_slice(), &[0, 9, 0, 0, 0, 0], content].concat())
    }

    fn ethernet(packet: &[u8]) -> Vec<u8> {
        [[0; 12].as_slice(), &[8, 0], packet].concat()
    }

    #[test]
    fn every_tunnel_leads_to_its_packet() {
        let frame = ethernet(&tcp());
        let bridged = |prefix: &[u8]| [prefix, &frame].concat();
        let routed = |prefix: &[u8]| [prefix, &tcp()].concat();
        let teredo = ipv6(IPV4, &tcp());
        for packet in [
            tcp(),
            ipv4(IPV4, &tcp()),
            ipv6(IPV4, &tcp()),
            ipv4(IPV6, &ipv6(IPV4, &tcp())),
            ipv6(60, &[&[IPV4, 0, 0, 0, 0, 0, 0, 0], tcp().as_slice()].concat()),
            ipv4(GRE, &routed(&[0, 0, 8, 0])),
            ipv4(GRE, &routed(&[0xb0, 0, 8, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3])),
            ipv4(GRE, &bridged(&[0, 0, 0x65, 0x58])),
            ipv4(GRE, &routed(&[0, 0, 0x88, 0x47, 0, 1, 1, 0x40])),
            ipv4(MPLS, &routed(&[0, 1, 1, 0x40])),
            to_port(6635, &routed(&[0, 1, 1, 0x40])),
            to_port(4790, &routed(&[0x0c, 0, 0, 1, 0, 0, 1, 0])),
            to_port(4790, &bridged(&[0x0c, 0, 0, 3, 0, 0, 1, 0])),
            to_port(1701, &routed(&[0, 2, 0, 1, 0, 1, 0xff, 3, 0, 0x21])),
            from_port(1701, &routed(&[0x4a, 2, 0, 9, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 9, 0x21])),
            to_port(5072, &routed(&[[0x44, 0x52, 0x11, IPV4].as_slice(), &[0; 40]].concat())),
            from_port(5072, &routed(&[[0x44, 0x52, 0x11, IPV4].as_slice(), &[0; 40]].concat())),
            to_port(4754, &routed(&[0, 0, 8, 0])),
            ipv4(
                GRE,
                &[&[0, 0, 0x82, 0, 8, 1], [0; 22].as_slice(), &routed(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0])]
                    .concat(),
            ),
            ipv4(GRE, &bridged(&[0, 0, 0x88, 0xbe])),
            ipv4(GRE, &bridged(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])),
            ipv4(
                GRE,
                &routed(&[0x30, 0x81, 0x88, 0x0b, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 3, 0, 0x21]),
            ),
            to_port(4789, &bridged(&[8, 0, 0, 0, 0, 0, 1, 0])),
            to_port(6081, &bridged(&[1, 0, 0x65, 0x58, 0, 0, 1, 0, 9, 9, 9, 9])),
            to_port(3544, &teredo),
            to_port(
                3544,
                &[&[0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 2, 2, 2, 2, 2, 2], teredo.as_slice()]
                    .concat(),
            ),
            to_port(2152, &routed(&[0x30, 255, 0, 0, 0, 0, 0, 1])),
            to_port(2152, &routed(&[0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0, 0])),
        ] {
            let FrameContent::Ip { packet: found, .. } = innermost(101, &packet) else {
                panic!("{packet:?}")
            };
            assert_eq!(found, tcp(), "{packet:?}");
        }
    }

    #[test]
    fn fragments_of_tunnels_are_told_from_other_packets() {
        let fragment = |mut packet: Vec<u8>| {
            packet[7] = 9;
            packet
        };
        assert!(is_piece(&fragment(to_port(4789, b""))));
        assert!(is_piece(&ipv6(44, &[GRE, 0, 0, 1, 0, 0, 0, 1])));
        assert!(!is_piece(&fragment(tcp())));
        assert!(!is_piece(&to_port(4789, b"")));
        assert!(!is_piece(&ipv6(44, &[6, 0, 0, 1, 0, 0, 0, 1])));
        assert!(!is_piece(b""));
    }

    #[test]
    fn other_packets_stay_as_they_are() {
        let fragment = |mut packet: Vec<u8>| {
            packet[6] = 0x20;
            packet
        };
        for packet in
            [ipv4(UDP, b"short"), to_port(53, &tcp()), fragment(ipv4(IPV4, &tcp())), ipv4(IPV4, b"\x99none")]
        {
            let FrameContent::Ip { packet: found, .. } = innermost(101, &packet) else {
                panic!("{packet:?}")
            };
            assert_eq!(found, packet);
        }
    }

    proptest! {
        #[test]
        fn random_packets_never_panic(
            protocol in proptest::sample::select(vec![IPV4, IPV6, GRE, UDP, MPLS, 0, 43, 60]),
            port in proptest::sample::select(vec![1701_u16, 4754, 4789, 4790, 5072, 6081, 6635, 3544, 2152, 1]),
            payload in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = innermost(101, &ipv4(protocol, &payload));
            let _ = innermost(101, &ipv6(protocol, &payload));
            let _ = innermost(101, &to_port(port, &payload));
        }
    }
}
