//! Key exchange with an SSH server up to its reply, which contains its host key (RFC 4253 sections 7 and 8,
//! RFC 5656, RFC 8731).

use ring::digest::Context;

use super::host_key_signature::HostKeyAlgorithm;
use super::key_agreement::{KexKeyPair, KexMethod};
use crate::banner::KexInit;
use crate::banner::kex_reply::{KexReply, fingerprint, string};
use crate::banner::kexinit::{COOKIE_LENGTH, MESSAGE_KEXINIT};
use crate::event::HostKey;

/// `SSH_MSG_KEX_ECDH_INIT`, and `SSH_MSG_KEXDH_INIT`.
const MESSAGE_BEGIN: u8 = 30;

/// Limit of an algorithm's name in bytes, RFC 4251 section 6.
const NAME: usize = 64;

/// Block size of packets, and their least padding, in bytes.
const BLOCK: usize = 8;
const PADDING: usize = 4;

/// Exchange that waits for the server's reply.
#[derive(Debug)]
pub(super) struct PendingKeyExchange {
    method: &'static KexMethod,
    algorithm: &'static HostKeyAlgorithm,
    half: KexKeyPair,
    kex_init: Vec<u8>,
}

/// Signed data from both sides' first messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExchangeHashInput<'a> {
    /// Identification line of the client.
    pub(super) client: &'a [u8],
    /// Identification line of the server.
    pub(super) server: &'a [u8],
    /// KEXINIT of the server.
    pub(super) kex_init: &'a [u8],
}

impl PendingKeyExchange {
    /// Starts an exchange from a server's offer, and appends its messages to `out`; none if no method or key
    /// type is shared.
    ///
    /// Nothing is encrypted before the connection ends. So the server's first cipher, MAC and compression are
    /// chosen, which it surely supports.
    pub(super) fn begin(offered: &KexInit<'_>, out: &mut Vec<u8>) -> Option<Self> {
        let method = KexMethod::of(offered.kex)?;
        let algorithm = HostKeyAlgorithm::of(offered.host_key)?;
        let others = [
            offered.encryption_client_to_server,
            offered.encryption_server_to_client,
            offered.mac_client_to_server,
            offered.mac_server_to_client,
            offered.compression_client_to_server,
            offered.compression_server_to_client,
        ];
        let half = method.begin()?;
        let mut kex_init = vec![MESSAGE_KEXINIT];
        // The cookie makes session ids unique, and there is no session.
        kex_init.extend([0; COOKIE_LENGTH]);
        put(&mut kex_init, method.name.as_bytes());
        put(&mut kex_init, algorithm.name.as_bytes());
        for list in others {
            put(&mut kex_init, first(list)?);
        }
        // No languages, no guessed packet, and the reserved field.
        kex_init.extend([0; 4 + 4 + 1 + 4]);
        let mut begin = vec![MESSAGE_BEGIN];
        put(&mut begin, &half.public);
        packet(&kex_init, out);
        packet(&begin, out);
        Some(Self { method, algorithm, half, kex_init })
    }

    /// Returns the host key of a reply; none if it has another type than agreed.
    pub(super) fn conclude(self, hello: ExchangeHashInput<'_>, reply: KexReply<'_>) -> Option<HostKey> {
        if string(&mut { reply.key })? != self.algorithm.key.as_bytes() {
            return None;
        }
        let public = self.half.public.clone();
        let secret = self.half.agree(reply.public)?;
        let mut context = Context::new(self.method.digest);
        let signed = [
            hello.client,
            hello.server,
            &self.kex_init,
            hello.kex_init,
            reply.key,
            &public,
            reply.public,
            &secret,
        ];
        for part in signed {
            let mut text = Vec::with_capacity(4 + part.len());
            put(&mut text, part);
            context.update(&text);
        }
        let signature = self.algorithm.weigh(reply.key, reply.signature, context.finish().as_ref());
        Some(HostKey { algorithm: self.algorithm.key, fingerprint: fingerprint(reply.key), signature })
    }
}

/// Returns the first name of a list, if it is valid.
fn first(list: &[u8]) -> Option<&[u8]> {
    list.split(|octet| *octet == b',').next().filter(|name| name.len() <= NAME)
}

/// Appends a string.
fn put(out: &mut Vec<u8>, text: &[u8]) {
    // No parsed field is longer than a packet, so the length fits.
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(text);
}

/// Appends an unencrypted packet, RFC 4253 section 6.
fn packet(payload: &[u8], out: &mut Vec<u8>) {
    let unpadded = 4 + 1 + payload.len();
    let padding = BLOCK - unpadded % BLOCK;
    let padding = if padding < PADDING { padding + BLOCK } else { padding };
    let length = 1 + payload.len() + padding;
    out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    out.push(u8::try_from(padding).unwrap_or(u8::MAX));
    out.extend_from_slice(payload);
    out.resize(out.len() + padding, 0);
}
