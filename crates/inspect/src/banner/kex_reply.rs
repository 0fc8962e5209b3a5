//! The reply of an SSH server to a key exchange (message 31: `SSH_MSG_KEX_ECDH_REPLY` of RFC 5656 section 4,
//! `SSH_MSG_KEXDH_REPLY` of RFC 4253 section 8), in which it shows its host key.
//!
//! The signature proves that the key is the server's own; this module does not verify it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::byte_reader::ByteReader;
use super::kexinit::{PACKET_LIMIT, binary_packet, is_filler};
use super::parse_progress::{ParseProgress, ParseRejection};

const MESSAGE_REPLY: u8 = 31;

/// A server's reply. The key's form is fixed; the other parts depend on the method of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KexReply<'a> {
    /// The public key, after its type.
    pub key: &'a [u8],
    /// The server's part of the exchange.
    pub public: &'a [u8],
    /// The signature of the exchange, after its algorithm.
    pub signature: &'a [u8],
}

/// Parses the reply from the bytes that a server sent after its KEXINIT.
pub fn reply(behind_kex_init: &[u8]) -> ParseProgress<KexReply<'_>> {
    let mut consumed = 0;
    loop {
        let rest = behind_kex_init.get(consumed..).unwrap_or_default();
        let (payload, length) = match binary_packet(rest, MESSAGE_REPLY) {
            ParseProgress::Done { value, consumed } => (value, consumed),
            ParseProgress::More => return ParseProgress::More,
            ParseProgress::Never(reason) => return ParseProgress::Never(reason),
        };
        consumed += length;
        match payload.split_first() {
            // As before the KEXINIT: IGNORE and DEBUG may precede, up to one common limit.
            Some((message, _)) if is_filler(*message) && consumed < PACKET_LIMIT => {}
            Some((&MESSAGE_REPLY, body)) => {
                return fields(body).map_or(ParseProgress::Never(ParseRejection::NotKexInit), |value| {
                    ParseProgress::Done { value, consumed }
                });
            }
            _ => return ParseProgress::Never(ParseRejection::NotKexInit),
        }
    }
}

fn fields(body: &[u8]) -> Option<KexReply<'_>> {
    let mut body = ByteReader(body);
    Some(KexReply { key: body.after_u32()?, public: body.after_u32()?, signature: body.after_u32()? })
}

/// Takes a string (RFC 4251 section 5) from the start of `octets`.
pub fn string<'a>(octets: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut reader = ByteReader(octets);
    let text = reader.after_u32()?;
    *octets = reader.0;
    Some(text)
}

/// Returns the fingerprint of a key as OpenSSH shows it: `SHA256:` and base64 without padding.
pub fn fingerprint(key: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(message: u8, strings: &[&[u8]]) -> Vec<u8> {
        let mut body = vec![3, message];
        for text in strings {
            body.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
            body.extend(*text);
        }
        body.extend([0; 3]);
        [&u32::try_from(body.len()).unwrap().to_be_bytes(), body.as_slice()].concat()
    }

    #[test]
    fn the_reply_may_stand_behind_what_is_ignored_and_is_whole_or_none() {
        let wanted = packet(31, &[b"key", b"public", b"signature"]);
        let octets = [packet(2, &[b"x"]), packet(4, &[]), wanted.clone(), packet(21, &[])].concat();
        let ParseProgress::Done { value, .. } = reply(&octets) else { panic!("{:?}", reply(&octets)) };
        assert_eq!(value, KexReply { key: b"key", public: b"public", signature: b"signature" });
        for end in 0..wanted.len() {
            assert_eq!(reply(&wanted[..end]), ParseProgress::More);
        }
        // SSH_MSG_DISCONNECT, and a reply that ends too early.
        assert!(matches!(reply(&packet(1, &[])), ParseProgress::Never(_)));
        assert!(matches!(reply(&packet(31, &[b"key", b"public"])), ParseProgress::Never(_)));
    }

    #[test]
    fn a_fingerprint_is_that_of_openssh() {
        // ssh-keygen -lf of: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
        let text = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
        let key = STANDARD_NO_PAD.decode(text).unwrap();
        assert_eq!(fingerprint(&key), "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU");
    }

    proptest! {
        #[test]
        fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = reply(&octets);
            let _ = reply(&[&[0, 0, 0, 100, 4, 31], octets.as_slice()].concat());
        }
    }
}
