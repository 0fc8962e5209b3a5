//! A key exchange with an SSH server as far as its reply, in which it shows its host key (RFC 4253 sections 7
//! and 8, RFC 5656, RFC 8731).

use ring::digest::Context;

use super::agreement::{Half, Method};
use super::proof::Algorithm;
use crate::banner::KexInit;
use crate::banner::host_key::{Reply, fingerprint, string};
use crate::banner::kex::{COOKIE_LENGTH, MESSAGE_KEXINIT};
use crate::event::HostKey;

/// `SSH_MSG_KEX_ECDH_INIT`, and `SSH_MSG_KEXDH_INIT`.
const MESSAGE_BEGIN: u8 = 30;

/// Octets of an algorithm's name, RFC 4251 section 6.
const NAME: usize = 64;

/// Packets are multiples of so many octets, with at least so many of padding.
const BLOCK: usize = 8;
const PADDING: usize = 4;

/// An exchange that waits for the server's reply.
#[derive(Debug)]
pub(super) struct Exchange {
    method: &'static Method,
    algorithm: &'static Algorithm,
    half: Half,
    kex_init: Vec<u8>,
}

/// What is signed of what both have said before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hello<'a> {
    /// The client's identification line.
    pub(super) client: &'a [u8],
    /// The server's.
    pub(super) server: &'a [u8],
    /// The server's KEXINIT.
    pub(super) kex_init: &'a [u8],
}

impl Exchange {
    /// Begins one by what a server offers, and appends to `out` what is to be sent; none where it has no
    /// method or no kind of key that we have.
    ///
    /// Nothing is encrypted before the connection ends: of ciphers and the rest the server's own first are
    /// taken, so that it misses none.
    pub(super) fn begin(offered: &KexInit<'_>, out: &mut Vec<u8>) -> Option<Self> {
        let method = Method::of(offered.kex)?;
        let algorithm = Algorithm::of(offered.host_key)?;
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
        // Chance here keeps sessions apart, of which there is none.
        kex_init.extend([0; COOKIE_LENGTH]);
        put(&mut kex_init, method.name.as_bytes());
        put(&mut kex_init, algorithm.name.as_bytes());
        for list in others {
            put(&mut kex_init, first(list)?);
        }
        // No languages, no guess, and what is reserved.
        kex_init.extend([0; 4 + 4 + 1 + 4]);
        let mut begin = vec![MESSAGE_BEGIN];
        put(&mut begin, &half.public);
        packet(&kex_init, out);
        packet(&begin, out);
        Some(Self { method, algorithm, half, kex_init })
    }

    /// The key that a reply shows; none where it is of another kind than was agreed on.
    pub(super) fn conclude(self, hello: Hello<'_>, reply: Reply<'_>) -> Option<HostKey> {
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

/// The first name of a list, where that is one.
fn first(list: &[u8]) -> Option<&[u8]> {
    list.split(|octet| *octet == b',').next().filter(|name| name.len() <= NAME)
}

/// Appends a string.
fn put(out: &mut Vec<u8>, text: &[u8]) {
    // Nothing that is read is longer than a packet.
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(text);
}

/// Appends a packet that is not encrypted, RFC 4253 section 6.
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
