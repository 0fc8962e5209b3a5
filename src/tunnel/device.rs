//! The tun device: packets that the kernel routes to the peer, and packets from the peer for the kernel.
//!
//! Use `ip(8)` for addresses, routes, up and down. An existing device (`ip tuntap add`) is used as it is; a
//! new one is deleted with this value.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read as _, Write as _};

use bannerwall_ffi::error::CallError;
use bannerwall_ffi::tun;
use etherparse::checksum::Sum16BitWords;
use rustix::io::Errno;

use super::TunnelError;
use super::link_settings::{self, LinkSetting};
use crate::metrics::TunnelDrop as Reason;

/// Size of `struct virtio_net_hdr` in bytes; it describes the offloads that a packet still needs
/// (`linux/virtio_net.h`).
pub const HEADER: usize = 10;

/// Device file for creating tun devices.
const CLONE: &str = "/dev/net/tun";

/// Header without any offload.
const NONE: [u8; HEADER] = [0; HEADER];

/// Flags in the header's first byte: the checksum is missing, or was verified.
const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_IS_RIGHT: u8 = 2;

/// Values of the second byte: segments of TCP over IPv4, of TCP over IPv6, and of UDP; and a flag for CWR
/// only in the first segment. Neither end enables others (`TUNSETOFFLOAD`).
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
const CONGESTION: u8 = 0x80;

/// Least size of a segment in bytes: the least that Linux sends (`TCP_MIN_SND_MSS`). A peer with a smaller
/// value would make the kernel split one datagram into tens of thousands of packets.
const LEAST_SEGMENT: usize = 48;

/// Reserved value of the segment size (`linux/skbuff.h`).
const GSO_BY_FRAGS: u16 = 0xffff;

/// Tun device.
#[derive(Debug)]
pub struct TunDevice {
    file: File,
    name: String,
    super_packets: bool,
    is_ours: bool,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceRead {
    /// Number of bytes.
    Octets(usize),
    /// The device was deleted.
    Gone,
}

impl TunDevice {
    /// Creates the device `name`, or opens an existing one; `super_packets` enables packets before
    /// segmentation.
    ///
    /// # Errors
    ///
    /// The permission is missing, the name is invalid, or another program uses the device.
    pub fn open(name: &str, super_packets: bool) -> Result<Self, TunnelError> {
        let file = OpenOptions::new().read(true).write(true).open(CLONE).map_err(TunnelError::Clone)?;
        // The call below creates a missing device without a word, so the check comes first.
        let was_there = link_settings::exists(name);
        let fault = |source| TunnelError::Attach { name: name.to_owned(), source };
        let name = tun::attach(&file, name, super_packets).map_err(fault)?;
        Ok(Self { file, name, super_packets, is_ours: !was_there })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if this process created the device.
    pub fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// True if packets pass before segmentation, each with a header.
    pub fn has_super_packets(&self) -> bool {
        self.super_packets
    }

    /// Enables or disables packets before segmentation; if disabled, the kernel segments them.
    ///
    /// # Errors
    ///
    /// As [`tun::take_super_packets`].
    pub fn take_super_packets(&self, are_taken: bool) -> Result<(), CallError> {
        tun::take_super_packets(&self.file, are_taken)
    }

    /// Changes a setting.
    ///
    /// # Errors
    ///
    /// As [`link_settings::set`].
    pub fn set(&self, setting: LinkSetting, value: usize) -> io::Result<()> {
        link_settings::set(&self.name, setting, u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Waits for a packet.
    ///
    /// # Errors
    ///
    /// The device exists, but is unreadable.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<DeviceRead> {
        loop {
            match (&self.file).read(buffer) {
                Ok(octets) => return Ok(DeviceRead::Octets(octets)),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::BADFD) => return Ok(DeviceRead::Gone),
                    // A read that waits during the deletion first gets EFAULT (tun_ring_recv).
                    Some(Errno::INTR | Errno::FAULT) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Adds or removes the header before a packet from the peer, as the device expects. The first of `parts`
    /// is empty and has room for it.
    ///
    /// # Errors
    ///
    /// The device does not support the packet's offloads, or the packet is invalid.
    pub fn dress<'a>(&self, parts: &mut [IoSlice<'a>]) -> Result<(), Reason> {
        let [room, first, ..] = parts else { return Err(Reason::Malformed) };
        match (super::ip::is_ip(first), self.super_packets) {
            // A device with IFF_VNET_HDR expects a virtio-net header before each packet.
            (true, true) => *room = IoSlice::new(&NONE),
            (false, false) if asks_nothing(first) => first.advance(HEADER),
            (false, false) => return Err(Reason::Offload),
            (true, false) | (false, true) => {}
        }
        Ok(())
    }

    /// Passes a packet of the tunnel to the kernel.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn inject(&self, packet: &[u8]) -> Result<(), Reason> {
        let mut parts = [IoSlice::new(&[]), IoSlice::new(packet)];
        self.dress(&mut parts)?;
        self.write(&parts)
    }

    /// Passes a prepared packet to the kernel.
    ///
    /// # Errors
    ///
    /// Reason of the failure.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> Result<(), Reason> {
        loop {
            let Err(error) = (&self.file).write_vectored(parts) else { return Ok(()) };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                // The kernel checks the header and the start of the packet.
                Some(Errno::INVAL) => return Err(Reason::Malformed),
                _ => return Err(Reason::Device),
            }
        }
    }
}

/// True if the header says that the packet's checksum is missing.
pub fn lacks_checksum(octets: &[u8]) -> bool {
    matches!(octets, [flags, ..] if !super::ip::is_ip(octets) && flags & NEEDS_CHECKSUM != 0)
}

/// True if the header says that the packet needs segmentation.
pub fn is_super_packet(octets: &[u8]) -> bool {
    matches!(octets, [_, kind, ..] if !super::ip::is_ip(octets) && *kind != 0)
}

/// True if the header, if there is one, fits the packet: all offsets are inside, and segments have a size and
/// the packet's protocol. `tun_get_user` and `virtio_net_hdr_to_skb` check most of this, too, but not the
/// same in every kernel.
pub fn fits(parts: &[IoSlice<'_>]) -> bool {
    let Some(first) = parts.first() else { return false };
    if super::ip::is_ip(first) {
        return true;
    }
    let Some((header, packet)) = VirtioNetHeader::read(first) else { return false };
    let length = parts.iter().map(|part| part.len()).sum::<usize>() - HEADER;
    // The kernel would refuse other flags, or use them for features that this program does not know.
    let is_known = header.flags & !(NEEDS_CHECKSUM | CHECKSUM_IS_RIGHT) == 0;
    let has_checksum = !header.needs_checksum() || header.start + header.offset + 2 <= length;
    let has_segments = match (header.kind & !CONGESTION, packet.first().map(|octet| octet >> 4)) {
        (0, Some(4 | 6)) => header.kind == 0,
        (TCP4, Some(4)) | (TCP6, Some(6)) => header.can_be_cut(16),
        (UDP, Some(4 | 6)) => header.can_be_cut(6),
        _ => false,
    };
    is_known && has_checksum && has_segments && header.length <= length
}

/// Checksums that the kernel would write into a packet after the inspection: one at any offset
/// (`skb_checksum_help`), or new ones into the segments of a packet with a checksum.
#[derive(Debug, PartialEq, Eq)]
pub enum PendingChecksums {
    /// None, or the checksum of TCP or UDP at its usual place.
    Usual,
    /// Other checksum (GRE has one, and encapsulated protocols do). This is the packet with the checksum,
    /// which needs no header any more.
    Other(Vec<u8>),
    /// Offload that no end of the tunnel enables.
    Unfit,
}

impl PendingChecksums {
    /// Evaluates the header before a packet, if there is one.
    pub fn of(parts: &[IoSlice<'_>]) -> Self {
        let Some(first) = parts.first() else { return Self::Unfit };
        if super::ip::is_ip(first) {
            return Self::Usual;
        }
        let Some((header, packet)) = VirtioNetHeader::read(first) else { return Self::Unfit };
        if !header.needs_checksum() {
            return if header.kind == 0 { Self::Usual } else { Self::Unfit };
        }
        if super::ip::checksum_place(packet) == Some((header.start, header.offset)) {
            // The inspector then skips the checksum of TCP or UDP, but the kernel still drops packets with a
            // wrong IPv4 header checksum.
            return if super::ip::has_right_header(packet) { Self::Usual } else { Self::Unfit };
        }
        let written = if header.kind == 0 { header.written(parts) } else { None };
        written.map_or(Self::Unfit, Self::Other)
    }
}

/// Returns the bytes to send to the peer: with the header only if it has an effect.
pub fn without_idle_header(read: &[u8]) -> &[u8] {
    if asks_nothing(read) { read.get(HEADER..).unwrap_or_default() } else { read }
}

/// Returns the packet without the header that may precede it.
pub fn packet(octets: &[u8]) -> &[u8] {
    if super::ip::is_ip(octets) { octets } else { octets.get(HEADER..).unwrap_or_default() }
}

/// True if a header requests neither a checksum nor segmentation.
fn asks_nothing(header: &[u8]) -> bool {
    matches!(header, [flags, 0, ..] if flags & NEEDS_CHECKSUM == 0 && header.len() >= HEADER)
}

/// `struct virtio_net_hdr`, little-endian.
#[derive(Debug, Clone, Copy)]
struct VirtioNetHeader {
    flags: u8,
    /// Kind of the segments; 0 for none.
    kind: u8,
    /// Size of the packet's headers in bytes, or more.
    length: usize,
    /// Size of a segment in bytes.
    each: usize,
    /// Start of the checksummed data, and offset of the checksum from there.
    start: usize,
    offset: usize,
}

impl VirtioNetHeader {
    /// Parses a header, and returns the bytes after it, too.
    fn read(octets: &[u8]) -> Option<(Self, &[u8])> {
        let (&[flags, kind, numbers @ ..], packet) = octets.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, e, f, g, h] = numbers;
        let [length, each, start, offset] =
            [[a, b], [c, d], [e, f], [g, h]].map(|number| usize::from(u16::from_le_bytes(number)));
        Some((Self { flags, kind, length, each, start, offset }, packet))
    }

    /// True if the packet can be segmented with the checksum at `offset` in each segment, as far as the
    /// header says.
    fn can_be_cut(self, offset: usize) -> bool {
        let lengths = LEAST_SEGMENT..usize::from(GSO_BY_FRAGS);
        lengths.contains(&self.each) && (!self.needs_checksum() || self.offset == offset)
    }

    /// Returns the packet in `parts` after this header, with its checksum; `None` if the checksum does not
    /// fit into it. As in `skb_checksum_help`, the old value at its place is part of the sum.
    fn written(self, parts: &[IoSlice<'_>]) -> Option<Vec<u8>> {
        let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let mut packet = packet(&whole).to_vec();
        let sum = Sum16BitWords::new().add_slice(packet.get(self.start..)?);
        let at = self.start + self.offset;
        // Zero means "no checksum" in UDP, so the sum is written as 0xffff instead.
        packet.get_mut(at..at + 2)?.copy_from_slice(&sum.to_ones_complement_with_no_zero().to_ne_bytes());
        Some(packet)
    }

    fn needs_checksum(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    /// A packet behind a header.
    fn headed(flags: u8, kind: u8, numbers: [u16; 4], packet: &[u8]) -> Vec<u8> {
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        [flags, kind].into_iter().chain(numbers).chain(packet.iter().copied()).collect()
    }

    fn tcp(is_v6: bool) -> Vec<u8> {
        let builder = if is_v6 {
            PacketBuilder::ipv6([1; 16], [2; 16], 64)
        } else {
            PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64)
        };
        let mut packet = Vec::new();
        builder.tcp(1, 2, 3, 4).write(&mut packet, &[0; 60]).unwrap();
        packet
    }

    #[test]
    fn a_header_asks_only_for_what_fits_its_packet() {
        let (v4, v6) = (tcp(false), tcp(true));
        let length = 20 + 20 + 60;
        for (flags, kind, numbers, does_fit) in [
            (0, 0, [0; 4], true),
            (2, 0, [0, 0, 9999, 9999], true),
            (1, 0, [0, 0, 20, 16], true),
            (1, 1, [40, 48, 20, 16], true),
            (3, 0x81, [length, 48, length - 18, 16], true),
            (1, 5, [40, 48, 20, 6], true),
            (1, 0, [0, 0, length - 17, 16], false),
            (1, 0, [0, 0, u16::MAX, u16::MAX], false),
            (0, 0, [length + 1, 0, 0, 0], false),
            (1, 1, [40, 0, 20, 16], false),
            (1, 1, [40, 1, 20, 16], false),
            (1, 5, [40, 47, 20, 6], false),
            (1, 1, [40, 0xffff, 20, 16], false),
            (1, 1, [40, 48, 20, 6], false),
            (1, 0x80, [40, 48, 20, 16], false),
            (1, 4, [40, 48, 20, 16], false),
            (1, 3, [40, 48, 20, 16], false),
            (1, 0x21, [40, 48, 20, 16], false),
            (4, 0, [0; 4], false),
        ] {
            let octets = headed(flags, kind, numbers, &v4);
            for cut in [11, 30, octets.len()] {
                let (first, rest) = octets.split_at(cut);
                let parts = [IoSlice::new(first), IoSlice::new(rest)];
                assert_eq!(fits(&parts), does_fit, "{flags} {kind} {numbers:?} {cut}");
            }
        }
        let whole = |octets: &[u8]| fits(&[IoSlice::new(octets)]);
        assert!(whole(&v4) && whole(&v6) && whole(&headed(1, 4, [60, 48, 40, 16], &v6)));
        assert!(!whole(&headed(1, 1, [60, 48, 40, 16], &v6)), "of the other family");
        assert!(!whole(&headed(0, 0, [0; 4], &[0x15; 40])) && !whole(&[0; 9]) && !whole(&[]) && !fits(&[]));
    }

    #[test]
    fn nothing_is_written_behind_the_judge_but_a_checksum_at_its_place() {
        for (start, packet) in [(20, tcp(false)), (40, tcp(true))] {
            let stays =
                |octets: &[u8]| PendingChecksums::of(&[IoSlice::new(octets)]) == PendingChecksums::Usual;
            let with = |flags, kind, numbers| stays(&headed(flags, kind, numbers, &packet));
            assert!(stays(&packet) && !stays(&[1; 9]));
            assert!(with(0, 0, [0; 4]) && with(2, 0, [0, 0, 1, 1]));
            assert!(with(1, 0, [0, 0, start, 16]) && with(1, 1, [40, 30, start, 16]));
            assert!(!with(1, 0, [0, 0, start + 20, 16]), "into what is said");
            assert!(!with(1, 0, [0, 0, start, 6]) && !with(1, 0, [0, 0, 0, 10]));
            let mut other = packet.clone();
            other[8] ^= 1;
            let of_other = stays(&headed(1, 0, [0, 0, start, 16], &other));
            assert_eq!(of_other, start == 40, "another hop limit, which IPv6 has no sum of");
            assert!(!with(2, 1, [40, 30, start, 16]), "segments get checksums whatever this one's is");
        }
    }

    #[test]
    fn checksums_of_others_are_written_before_the_judge_looks() {
        // A ping in GRE with a checksum, whose place is zero, and in IP, where that of ICMP has a seed.
        let mut inner = Vec::new();
        PacketBuilder::ipv4([203, 0, 113, 1], [203, 0, 113, 2], 64)
            .icmpv4_echo_request(1, 2)
            .write(&mut inner, &[7; 33])
            .unwrap();
        inner[22..24].copy_from_slice(&[0, 9]);
        for (protocol, before, start, offset) in
            [(47, &[0x80, 0, 8, 0, 0, 0, 0, 0][..], 20, 4), (4, &[], 40, 2)]
        {
            let mut packet = Vec::new();
            let said = [before, &inner].concat();
            PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64)
                .write(&mut packet, protocol.into(), &said)
                .unwrap();
            let octets = headed(1, 0, [0, 0, start, offset], &packet);
            let (first, rest) = octets.split_at(45);
            let parts = [IoSlice::new(first), IoSlice::new(rest)];
            let PendingChecksums::Other(written) = PendingChecksums::of(&parts) else { panic!("another's") };
            let (start, at) = (usize::from(start), usize::from(start + offset));
            // The seed is the sum of what stands elsewhere.
            let seed = [packet[at], packet[at + 1]];
            let sum = Sum16BitWords::new().add_2bytes(seed).add_slice(&written[start..]);
            assert_eq!(sum.ones_complement(), 0, "it is right");
            packet[at..at + 2].copy_from_slice(&written[at..at + 2]);
            assert_eq!(written, packet, "and nothing else was written");
        }
        let tcp = tcp(false);
        let of = |octets: &[u8]| PendingChecksums::of(&[IoSlice::new(octets)]);
        let with = |flags, kind, numbers| of(&headed(flags, kind, numbers, &tcp));
        assert_eq!(with(1, 0, [0, 0, 20, 16]), PendingChecksums::Usual, "the kernel writes that");
        assert_eq!((with(0, 0, [0; 4]), of(&tcp)), (PendingChecksums::Usual, PendingChecksums::Usual));
        assert_eq!(with(1, 1, [40, 30, 20, 6]), PendingChecksums::Unfit, "each segment would need it");
        assert_eq!(with(1, 0, [0, 0, 9999, 16]), PendingChecksums::Unfit, "it does not fit");
        assert_eq!(PendingChecksums::of(&[]), PendingChecksums::Unfit);
    }

    #[test]
    fn a_header_goes_along_only_where_it_says_something() {
        let with = |flags: u8, kind: u8| {
            let mut read = vec![flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
            read.extend([0x45, 1, 2]);
            read
        };
        for (flags, kind, goes) in [(0, 0, false), (2, 0, false), (1, 0, true), (0, 1, true), (3, 4, true)] {
            let read = with(flags, kind);
            let sent = without_idle_header(&read);
            assert_eq!(sent.len(), if goes { read.len() } else { 3 }, "{flags} {kind}");
            assert_eq!(packet(sent), [0x45, 1, 2]);
        }
        assert_eq!(without_idle_header(&[0; 4]), [0; 4]);
        assert_eq!(packet(&[1, 2, 3]), [0_u8; 0]);
    }
}
