//! The keys of Initials: RFC 9001 section 5.2, RFC 9369 section 3.3.

use std::fmt;
use std::ops::Range;

use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use super::packets::{ConnectionId, LongPacket};
use crate::terms::QuicVersion;

/// Bytes of the longest packet number, behind which the sample for header protection begins.
pub(super) const NUMBER_LIMIT: usize = 4;

/// Bytes of the sample, RFC 9001 section 5.4.2.
pub(super) const SAMPLE_LENGTH: usize = 16;

/// The keys that one end protects its Initials with.
pub struct InitialKeys {
    version: QuicVersion,
    payload: LessSafeKey,
    iv: [u8; 12],
    header: HeaderProtectionKey,
}

impl InitialKeys {
    /// Returns the client's keys, which follow from the destination connection ID of its first Initial, or of
    /// its first behind a Retry; none for a version that is not read.
    pub fn new(version: QuicVersion, first_destination: &ConnectionId) -> Option<Self> {
        Self::derive(version, first_destination, b"client in")
    }

    /// Returns the server's keys, which follow from the same connection ID.
    pub fn of_server(version: QuicVersion, first_destination: &ConnectionId) -> Option<Self> {
        Self::derive(version, first_destination, b"server in")
    }

    /// Derives the keys of the end with this label.
    fn derive(version: QuicVersion, first_destination: &ConnectionId, end: &[u8]) -> Option<Self> {
        let constants = InitialConstants::of(version)?;
        let initial = Salt::new(HKDF_SHA256, &constants.salt).extract(first_destination.octets());
        let secret: Prk = expand(&initial, end, HKDF_SHA256)?;
        let mut iv = [0; 12];
        expand_into(&secret, constants.iv, &mut iv)?;
        Some(Self {
            version,
            payload: LessSafeKey::new(expand::<_, UnboundKey>(&secret, constants.key, &AES_128_GCM)?),
            iv,
            header: expand(&secret, constants.header, &AES_128)?,
        })
    }

    /// Returns the version that the keys belong to.
    pub const fn version(&self) -> QuicVersion {
        self.version
    }

    /// Returns the packet's number and the place of its frames in `room`; none if it was not protected with
    /// these keys. `expected` is the number behind the highest that was seen.
    pub fn open(
        &self,
        packet: &LongPacket<'_>,
        expected: u64,
        room: &mut Vec<u8>,
    ) -> Option<(u64, Range<usize>)> {
        room.clear();
        room.extend_from_slice(packet.octets);
        let (header, rest) = room.split_at_mut_checked(packet.number_at)?;
        let (number, behind) = rest.split_at_mut_checked(NUMBER_LIMIT)?;
        let [first_mask, number_mask @ ..] = self.mask(behind.get(..SAMPLE_LENGTH)?)?;
        let first = header.first_mut()?;
        *first ^= first_mask & 0x0f;
        // The length of the number is itself protected: only now is it known how much of the mask applies.
        let length = usize::from(*first & 3) + 1;
        let number = number.get_mut(..length)?;
        number.iter_mut().zip(number_mask).for_each(|(byte, mask)| *byte ^= mask);
        let truncated = number.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let number = whole_number(truncated, length, expected);
        let (header, payload) = room.split_at_mut_checked(packet.number_at + length)?;
        let payload = self.payload.open_in_place(self.nonce(number), Aad::from(&*header), payload).ok()?;
        Some((number, header.len()..header.len() + payload.len()))
    }

    /// Returns the mask of the header protection: RFC 9001 section 5.4.1.
    pub(super) fn mask(&self, sample: &[u8]) -> Option<[u8; 5]> {
        self.header.new_mask(sample).ok()
    }

    /// Encrypts a packet's frames in place and appends the tag.
    pub(super) fn seal(&self, number: u64, header: &[u8], frames: &mut Vec<u8>) -> Option<()> {
        self.payload.seal_in_place_append_tag(self.nonce(number), Aad::from(header), frames).ok()
    }

    /// Returns the nonce of a packet: RFC 9001 section 5.3.
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        nonce.iter_mut().rev().zip(number.to_be_bytes().iter().rev()).for_each(|(byte, part)| *byte ^= part);
        Nonce::assume_unique_for_key(nonce)
    }
}

impl fmt::Debug for InitialKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("InitialKeys").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The salt and the labels of a version's Initials.
struct InitialConstants {
    salt: [u8; 20],
    key: &'static [u8],
    iv: &'static [u8],
    header: &'static [u8],
}

impl InitialConstants {
    /// Returns those of a version that is read.
    fn of(version: QuicVersion) -> Option<Self> {
        let salt = match (version, version.draft()) {
            (QuicVersion::V1, _) | (_, Some(33 | 34)) => [
                0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c,
                0xad, 0xcc, 0xbb, 0x7f, 0x0a,
            ],
            (QuicVersion::V2, _) => [
                0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d,
                0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
            ],
            (_, Some(29..=32)) => [
                0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61, 0x11,
                0xe0, 0x43, 0x90, 0xa8, 0x99,
            ],
            _ => return None,
        };
        Some(match version {
            QuicVersion::V2 => Self { salt, key: b"quicv2 key", iv: b"quicv2 iv", header: b"quicv2 hp" },
            _ => Self { salt, key: b"quic key", iv: b"quic iv", header: b"quic hp" },
        })
    }
}

/// Returns key material by HKDF-Expand-Label without a context: RFC 8446 section 7.1.
fn expand<L: KeyType, K: for<'a> From<ring::hkdf::Okm<'a, L>>>(
    secret: &Prk,
    label: &[u8],
    kind: L,
) -> Option<K> {
    let info = label_info(label, kind.len())?;
    Some(K::from(secret.expand(&[&info], kind).ok()?))
}

/// Fills `room` by HKDF-Expand-Label without a context.
fn expand_into(secret: &Prk, label: &[u8], room: &mut [u8]) -> Option<()> {
    let info = label_info(label, room.len())?;
    secret.expand(&[&info], KeyLength(room.len())).ok()?.fill(room).ok()
}

/// Encodes an `HkdfLabel` without a context.
fn label_info(label: &[u8], length: usize) -> Option<Vec<u8>> {
    let name = [b"tls13 ", label].concat();
    let length = u16::try_from(length).ok()?.to_be_bytes();
    Some([&length[..], &[u8::try_from(name.len()).ok()?], &name, &[0]].concat())
}

/// A number of bytes of key material.
#[derive(Debug)]
struct KeyLength(usize);

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// The packet number whose lowest bytes these are, next to the `expected` one: RFC 9000 appendix A.3.
const fn whole_number(truncated: u64, octets: usize, expected: u64) -> u64 {
    let window = 1_u64 << (8 * octets);
    let candidate = expected & !(window - 1) | truncated;
    if candidate + window / 2 <= expected && candidate + window < 1 << 62 {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 9000 appendix A.3, and numbers around the turn of a byte.
    #[test]
    fn packet_numbers_are_those_next_to_the_expected_one() {
        assert_eq!(whole_number(0x9b32, 2, 0xa82f_30ea + 1), 0xa82f_9b32);
        assert_eq!(whole_number(2, 1, 0), 2);
        assert_eq!(whole_number(0xff, 1, 0), 0xff);
        assert_eq!(whole_number(1, 1, 0xff), 0x101);
        assert_eq!(whole_number(0xfe, 1, 0x101), 0xfe);
    }
}
