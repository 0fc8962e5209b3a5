//! Fields of TLS: those of the hellos, and those of the server's certificate.

use super::{Field, Row};
use crate::terms::Side;

pub(super) const FIELDS: &[Row] = &[
    Row::of(Side::Client, "sni", Field::Sni),
    Row::either("alpn", Field::Alpn),
    Row::either("version", Field::TlsVersion),
    Row::either("cipher", Field::Cipher),
    Row::of(Side::Client, "ja3", Field::Ja3),
    Row::of(Side::Client, "ja4", Field::Ja4),
    Row::of(Side::Server, "ja3s", Field::Ja3s),
    Row::of(Side::Client, "ech", Field::Ech),
    Row::of(Side::Client, "transport", Field::Transport),
    Row::either("alert", Field::Alert),
    Row::of(Side::Server, "subject", Field::Subject),
    Row::of(Side::Server, "issuer", Field::Issuer),
    Row::of(Side::Server, "san", Field::San),
    Row::of(Side::Server, "serial", Field::Serial),
    Row::of(Side::Server, "not_before", Field::NotBefore),
    Row::of(Side::Server, "not_after", Field::NotAfter),
    Row::of(Side::Server, "key", Field::Key),
    Row::of(Side::Server, "key_bits", Field::KeyBits),
    Row::of(Side::Server, "signature", Field::Signature),
    Row::of(Side::Server, "self_signed", Field::SelfSigned),
    Row::of(Side::Server, "sha256", Field::Sha256),
    Row::of(Side::Server, "verification", Field::Verification),
];
