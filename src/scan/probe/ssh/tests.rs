use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::host_key_signature::ALGORITHMS;
use super::key_agreement::{METHODS, is_among, positive};
use super::key_exchange::{ExchangeHashInput, PendingKeyExchange};
use crate::banner::kex_reply::{KexReply, string};
use crate::banner::{KexInit, ParseProgress, kexinit};
use crate::event::SignatureResult;

fn strings(texts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for text in texts {
        out.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        out.extend(*text);
    }
    out
}

fn offer<'a>(kex: &'a str, host_key: &'a str) -> KexInit<'a> {
    KexInit {
        kex: kex.as_bytes(),
        host_key: host_key.as_bytes(),
        encryption_client_to_server: b"aes128-ctr,aes256-ctr",
        encryption_server_to_client: b"3des-cbc",
        mac_client_to_server: b"hmac-sha1",
        mac_server_to_client: b"hmac-md5,none",
        compression_client_to_server: b"zlib,none",
        compression_server_to_client: b"",
    }
}

#[test]
fn what_is_asked_for_has_the_first_of_ours_that_a_server_has_and_its_own_first_of_the_rest() {
    let mut out = Vec::new();
    let server =
        offer("x,diffie-hellman-group14-sha1,ecdh-sha2-nistp256", "ssh-rsa,ecdsa-sha2-nistp256,ssh-dss");
    assert!(PendingKeyExchange::begin(&server, &mut out).is_some());
    let ParseProgress::Done { value, consumed } = kexinit::parse(&out) else { panic!("{out:?}") };
    let asked = [value.kex, value.host_key, value.encryption_client_to_server, value.mac_server_to_client];
    assert_eq!(asked, [&b"ecdh-sha2-nistp256"[..], b"ecdsa-sha2-nistp256", b"aes128-ctr", b"hmac-md5"]);
    assert_eq!(
        (value.compression_client_to_server, value.compression_server_to_client),
        (&b"zlib"[..], &b""[..])
    );
    // Both packets are whole blocks, and the second begins the exchange with a point of the curve.
    assert_eq!((consumed % 8, out.len() % 8), (0, 0));
    assert_eq!((out[consumed + 5], out[consumed + 9], out[consumed + 10]), (30, 65, 4));

    let mut out = Vec::new();
    for (kex, host_key) in [("x", "ssh-rsa"), ("curve25519-sha256", "ssh-rsa-cert-v01@openssh.com"), ("", "")]
    {
        assert!(
            PendingKeyExchange::begin(&offer(kex, host_key), &mut out).is_none() && out.is_empty(),
            "{kex} {host_key}"
        );
    }
    let long = KexInit { mac_client_to_server: &[b'a'; 65], ..offer("curve25519-sha256", "ssh-rsa") };
    assert!(PendingKeyExchange::begin(&long, &mut out).is_none() && out.is_empty());
}

#[test]
fn a_key_that_something_else_was_signed_with_is_known_as_such() {
    let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap();
    let key = strings(&[b"ssh-ed25519", pair.public_key().as_ref()]);
    let [ed25519, .., dss] = &ALGORITHMS;
    let signed = |message: &[u8]| strings(&[b"ssh-ed25519", pair.sign(message).as_ref()]);
    assert_eq!(ed25519.weigh(&key, &signed(b"hash"), b"hash"), SignatureResult::Good);
    assert_eq!(ed25519.weigh(&key, &signed(b"other"), b"hash"), SignatureResult::Bad);
    assert_eq!(ed25519.weigh(&key, b"", b"hash"), SignatureResult::Bad);
    assert_eq!(dss.weigh(&key, b"", b"hash"), SignatureResult::Untried);

    // What a server shows of another's: the key is told, and its signature is not its own.
    let conclude = |key: &[u8], public: &[u8]| {
        let exchange =
            PendingKeyExchange::begin(&offer("curve25519-sha256", "ssh-ed25519"), &mut Vec::new()).unwrap();
        let hello = ExchangeHashInput { client: b"SSH-2.0-a", server: b"SSH-2.0-b", kex_init: b"" };
        exchange.conclude(hello, KexReply { key, public, signature: &signed(b"hash") })
    };
    assert_eq!(conclude(&key, &[9; 32]).unwrap().signature, SignatureResult::Bad);
    assert!(conclude(&key, &[9; 31]).is_none(), "no point of the curve");
    assert!(conclude(&key, &[0; 32]).is_none(), "nothing is agreed on");
    assert!(conclude(&strings(&[b"ssh-rsa", b"x"]), &[9; 32]).is_none(), "another kind than was asked for");
}

#[test]
fn every_method_agrees_with_itself() {
    for method in &METHODS {
        let [one, other] = [method.begin().unwrap(), method.begin().unwrap()];
        let publics = [one.public.clone(), other.public.clone()];
        let secret = one.agree(&publics[1]).unwrap();
        assert_eq!(secret, other.agree(&publics[0]).unwrap(), "{}", method.name);
        assert!(secret.len() >= 31 && publics[0] != publics[1], "{}", method.name);
        for wrong in [&[][..], &[0], &[1], &[0xff; 300]] {
            assert!(method.begin().unwrap().agree(wrong).is_none(), "{} {wrong:?}", method.name);
        }
    }
}

#[test]
fn numbers_are_written_as_positive_ones() {
    let cases: [(&[u8], &[u8]); 4] =
        [(&[0, 0, 1], &[1]), (&[0x80], &[0, 0x80]), (&[0, 0x7f, 0], &[0x7f, 0]), (&[0], &[])];
    for (octets, number) in cases {
        assert_eq!(positive(octets), number);
    }
    assert!(is_among("b", b"a,b") && !is_among("b", b"a,bc") && !is_among("b", b""));
}

proptest! {
    #[test]
    fn no_reply_is_too_strange(key in any::<Vec<u8>>(), signature in any::<Vec<u8>>(), inner in any::<Vec<u8>>()) {
        for algorithm in &ALGORITHMS {
            let begun = strings(&[algorithm.key.as_bytes(), &inner, &key]);
            let signed = strings(&[algorithm.name.as_bytes(), &signature]);
            prop_assert_ne!(algorithm.weigh(&begun, &signed, b"hash"), SignatureResult::Good);
            prop_assert_ne!(algorithm.weigh(&key, &signature, b"hash"), SignatureResult::Good);
        }
        let _ = string(&mut key.as_slice());
    }
}
