//! Wireless LAN frames (IEEE 802.11), and the headers that capture drivers put before them.
//!
//! Only unencrypted data frames with LLC carry readable IP.

use super::{NextHeader, llc, word};

/// A radiotap header, with its length (little-endian) at offset 2, before the frame.
pub(super) fn radiotap(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    let length = usize::from(word(frame, 2)?.swap_bytes());
    wireless(frame.get(length..)?)
}

/// A Prism header, with its length at offset 4 in the byte order of the capturing machine, or an AVS
/// header.
pub(super) fn prism(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    const AVS: [u8; 3] = [0x80, 0x21, 0x10];
    if frame.starts_with(&AVS) {
        return avs(frame);
    }
    let octets = *frame.get(4..)?.first_chunk::<4>()?;
    let length = u32::from_le_bytes(octets).min(u32::from_be_bytes(octets));
    wireless(frame.get(usize::try_from(length).ok()?..)?)
}

/// An AVS header, with its length (big-endian) at offset 4.
pub(super) fn avs(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    let length = u32::from_be_bytes(*frame.get(4..)?.first_chunk()?);
    wireless(frame.get(usize::try_from(length).ok()?..)?)
}

/// A data frame: a header of 24 bytes, or more with a fourth address, quality of service or
/// high-throughput control.
pub(super) fn wireless(frame: &[u8]) -> Option<(NextHeader, &[u8])> {
    let [kind, flags, ..] = *frame else { return None };
    let (version, class, subtype) = (kind & 0x03, kind >> 2 & 0x03, kind >> 4);
    let (protected, null) = (flags & 0x40 != 0, subtype & 0x04 != 0);
    if version != 0 || class != 2 || protected || null {
        return None;
    }
    let four_addresses = usize::from(flags & 0x03 == 0x03) * 6;
    let quality = subtype & 0x08 != 0;
    let throughput = usize::from(quality && flags & 0x80 != 0) * 4;
    llc(frame.get(24 + four_addresses + usize::from(quality) * 2 + throughput..)?)
}
