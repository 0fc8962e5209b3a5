//! `SSH_MSG_KEXINIT` (RFC 4253 section 7.1), and the HASSH fingerprints derived from it.
//!
//! The packet follows the identification unencrypted. Only its name lists are read.

use md5::{Digest as _, Md5};

use super::byte_reader::ByteReader;
use super::parse_progress::{ParseProgress, ParseRejection};
use super::ssh_banner::KexInit;
use crate::event::HasshFingerprint;
use crate::terms::Side;
use crate::terms::hexadecimal;

/// Length of the longest accepted binary packet, in bytes. OpenSSH accepts 256 KiB; real ones have 1 to 3
/// KiB.
pub const PACKET_LIMIT: usize = 64 * 1024;

const MESSAGE_IGNORE: u8 = 2;
const MESSAGE_DEBUG: u8 = 4;
/// The number of the message.
pub const MESSAGE_KEXINIT: u8 = 20;
/// Number of random bytes at the start of the message.
pub const COOKIE_LENGTH: usize = 16;

/// The packet after an identification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KexPacket<'a> {
    /// It is incomplete: this many bytes are needed.
    More(usize),
    /// Another packet that may come before the KEXINIT, of this length in bytes.
    Other(usize),
    /// The KEXINIT, of this length in bytes.
    KexInit(KexInit<'a>, usize),
    /// A packet that is not allowed there.
    Never(ParseRejection),
}

/// Parses the KEXINIT from the bytes that a side has sent after its identification line.
pub fn parse(behind_identification: &[u8]) -> ParseProgress<KexInit<'_>> {
    let mut consumed = 0;
    loop {
        let rest = behind_identification.get(consumed..).unwrap_or_default();
        match packet(rest) {
            KexPacket::More(_) => return ParseProgress::More,
            KexPacket::Never(reason) => return ParseProgress::Never(reason),
            KexPacket::KexInit(value, length) => {
                return ParseProgress::Done { value, consumed: consumed + length };
            }
            // RFC 4253 section 11 allows IGNORE and DEBUG messages at any time. All together share one limit,
            // so that a side cannot postpone its KEXINIT forever.
            KexPacket::Other(length) if consumed + length < PACKET_LIMIT => consumed += length,
            KexPacket::Other(_) => return ParseProgress::Never(ParseRejection::NotKexInit),
        }
    }
}

/// Reads one unencrypted binary packet at the start of `octets`, RFC 4253 section 6, so that a reader of
/// a stream inspects each packet once.
pub fn packet(octets: &[u8]) -> KexPacket<'_> {
    let (payload, consumed) = match binary_packet(octets, MESSAGE_KEXINIT) {
        ParseProgress::Done { value, consumed } => (value, consumed),
        ParseProgress::More => return KexPacket::More(packet_length(octets).max(octets.len() + 1)),
        ParseProgress::Never(reason) => return KexPacket::Never(reason),
    };
    match payload.split_first() {
        Some((&MESSAGE_KEXINIT, body)) => match name_lists(body) {
            Some(lists) => KexPacket::KexInit(lists, consumed),
            None => KexPacket::Never(ParseRejection::BrokenNameList),
        },
        Some((message, _)) if is_filler(*message) => KexPacket::Other(consumed),
        _ => KexPacket::Never(ParseRejection::NotKexInit),
    }
}

/// Returns the length of the packet at the start of `octets`, as far as it is certain that the packet is
/// wanted.
fn packet_length(octets: &[u8]) -> usize {
    match octets.split_first_chunk::<4>() {
        // `rest` begins with the padding's length and the message number. Before the number is there, the
        // packet may still be refused.
        Some((length, rest)) if rest.len() > 1 => {
            usize::try_from(u32::from_be_bytes(*length)).unwrap_or(0).saturating_add(4)
        }
        _ => 0,
    }
}

/// Returns the payload of the KEXINIT that [`parse`] has read, as both sides sign it.
pub fn payload(behind_identification: &[u8]) -> Option<&[u8]> {
    let mut rest = behind_identification;
    loop {
        let ParseProgress::Done { value, consumed } = binary_packet(rest, MESSAGE_KEXINIT) else {
            return None;
        };
        // Only the KEXINIT itself enters the exchange hash (RFC 4253 section 8), not the messages before it.
        if value.first() == Some(&MESSAGE_KEXINIT) {
            return Some(value);
        }
        rest = rest.get(consumed..)?;
    }
}

/// True if a message may precede any other.
pub(super) const fn is_filler(message: u8) -> bool {
    matches!(message, MESSAGE_IGNORE | MESSAGE_DEBUG)
}

/// Returns the payload of the packet at the start of `octets`. It must be a `wanted` message, or one that
/// may precede it.
pub(super) fn binary_packet(octets: &[u8], wanted: u8) -> ParseProgress<&[u8]> {
    let Some((length, rest)) = octets.split_first_chunk::<4>() else { return ParseProgress::More };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    // Checked before any wait: a text protocol's first four bytes are a huge length.
    if !(2..=PACKET_LIMIT).contains(&length) {
        return ParseProgress::Never(ParseRejection::NotKexInit);
    }
    // Refuse at the first byte that decides, so that the flow does not wait for 64 KiB of other data.
    if let Some(&message) = rest.get(1)
        && message != wanted
        && !is_filler(message)
    {
        return ParseProgress::Never(ParseRejection::NotKexInit);
    }
    let Some(packet) = rest.get(..length) else { return ParseProgress::More };
    let payload = packet.split_first().and_then(|(&padding, body)| {
        let payload_length = body.len().checked_sub(usize::from(padding))?;
        body.get(..payload_length)
    });
    payload.map_or(ParseProgress::Never(ParseRejection::NotKexInit), |value| ParseProgress::Done {
        value,
        consumed: 4 + length,
    })
}

fn name_lists(body: &[u8]) -> Option<KexInit<'_>> {
    let mut lists = ByteReader(body.get(COOKIE_LENGTH..)?);
    let mut next = || lists.after_u32();
    Some(KexInit {
        kex: next()?,
        host_key: next()?,
        encryption_client_to_server: next()?,
        encryption_server_to_client: next()?,
        mac_client_to_server: next()?,
        mac_server_to_client: next()?,
        compression_client_to_server: next()?,
        compression_server_to_client: next()?,
    })
}

impl KexInit<'_> {
    /// The fingerprint of the side that sent it: [`Self::hassh`] or [`Self::hassh_server`].
    pub fn hassh_of(&self, from: Side) -> HasshFingerprint {
        match from {
            Side::Client => self.hassh(),
            Side::Server => self.hassh_server(),
        }
    }

    /// HASSH of a client: what it offers from client to server.
    pub fn hassh(&self) -> HasshFingerprint {
        fingerprint([
            self.kex,
            self.encryption_client_to_server,
            self.mac_client_to_server,
            self.compression_client_to_server,
        ])
    }

    /// HASSH of a server: what it offers from server to client.
    pub fn hassh_server(&self) -> HasshFingerprint {
        fingerprint([
            self.kex,
            self.encryption_server_to_client,
            self.mac_server_to_client,
            self.compression_server_to_client,
        ])
    }
}

fn fingerprint(lists: [&[u8]; 4]) -> HasshFingerprint {
    let joined = lists.join(&b';');
    let hash = hexadecimal(&Md5::digest(&joined));
    HasshFingerprint { hash, algorithms: String::from_utf8_lossy(&joined).into_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(message: u8, lists: &[&str], padding: u8) -> Vec<u8> {
        let mut payload = vec![message];
        payload.extend([7; COOKIE_LENGTH]);
        for list in lists {
            payload.extend(u32::try_from(list.len()).unwrap().to_be_bytes());
            payload.extend(list.as_bytes());
        }
        payload.extend([0; 5]);
        let length = u32::try_from(payload.len() + 1 + usize::from(padding)).unwrap();
        let mut octets = length.to_be_bytes().to_vec();
        octets.push(padding);
        octets.extend(payload);
        octets.extend(vec![0; usize::from(padding)]);
        octets
    }

    const LISTS: [&str; 10] = [
        "curve25519-sha256,x",
        "ssh-ed25519",
        "aes128-ctr",
        "aes256-ctr",
        "hmac-a",
        "hmac-b",
        "none",
        "zlib",
        "",
        "",
    ];

    #[test]
    fn both_fingerprints_take_their_own_direction() {
        let octets = packet(20, &LISTS, 4);
        let ParseProgress::Done { value, consumed } = parse(&octets) else { panic!() };
        assert_eq!(consumed, octets.len());
        assert_eq!(value.host_key, b"ssh-ed25519");
        assert_eq!(value.hassh().algorithms, "curve25519-sha256,x;aes128-ctr;hmac-a;none");
        assert_eq!(value.hassh_server().algorithms, "curve25519-sha256,x;aes256-ctr;hmac-b;zlib");
        // md5sum of the two strings above.
        assert_eq!(value.hassh_of(Side::Client).hash, CLIENT_MD5);
        assert_eq!(value.hassh_of(Side::Server).hash, SERVER_MD5);
    }

    const CLIENT_MD5: &str = "0df5ada34591c7b9b0f7c176026d5bdd";
    const SERVER_MD5: &str = "5cf9f7b3a08653b93d0abf9eb97d94a7";

    #[test]
    fn ignore_and_debug_may_come_first() {
        let octets = [packet(2, &[], 0), packet(4, &[], 9), packet(20, &LISTS, 4)].concat();
        assert!(matches!(parse(&octets), ParseProgress::Done { consumed, .. } if consumed == octets.len()));
    }

    #[test]
    fn other_messages_and_broken_lists_are_refused() {
        assert_eq!(parse(&packet(21, &LISTS, 4)), ParseProgress::Never(ParseRejection::NotKexInit));
        assert_eq!(parse(b"GET / HTTP/1.1\r\n"), ParseProgress::Never(ParseRejection::NotKexInit));
        let mut octets = packet(20, &LISTS, 4);
        octets[4 + 2 + COOKIE_LENGTH] = 0xff;
        assert_eq!(parse(&octets), ParseProgress::Never(ParseRejection::BrokenNameList));
        let mut padded = packet(20, &LISTS, 4);
        padded[4] = 255;
        assert_ne!(parse(&padded), ParseProgress::More);
    }

    proptest! {
        #[test]
        fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&octets);
            let framed = [&[0, 0, 0, 200, 4, 20], octets.as_slice()].concat();
            let _ = parse(&framed);
        }

        #[test]
        fn a_part_says_more(padding in 0_u8..20) {
            let octets = packet(20, &LISTS, padding);
            for end in 0..octets.len() {
                prop_assert_eq!(parse(&octets[..end]), ParseProgress::More);
            }
        }
    }
}
