//! Fields of TLS: those of the hellos, and those of the server's certificate.

use super::{BannerField, FieldRow};
use crate::terms::Side;

pub(super) const FIELDS: &[FieldRow] = &[
    FieldRow::of(Side::Client, "sni", BannerField::Sni),
    FieldRow::either("alpn", BannerField::Alpn),
    FieldRow::either("version", BannerField::TlsVersion),
    FieldRow::either("cipher", BannerField::Cipher),
    FieldRow::of(Side::Client, "ja3", BannerField::Ja3),
    FieldRow::of(Side::Client, "ja4", BannerField::Ja4),
    FieldRow::of(Side::Server, "ja3s", BannerField::Ja3s),
    FieldRow::of(Side::Client, "ech", BannerField::Ech),
    FieldRow::of(Side::Client, "transport", BannerField::Transport),
    FieldRow::either("alert", BannerField::Alert),
    FieldRow::of(Side::Server, "subject", BannerField::Subject),
    FieldRow::of(Side::Server, "issuer", BannerField::Issuer),
    FieldRow::of(Side::Server, "san", BannerField::San),
    FieldRow::of(Side::Server, "serial", BannerField::Serial),
    FieldRow::of(Side::Server, "not_before", BannerField::NotBefore),
    FieldRow::of(Side::Server, "not_after", BannerField::NotAfter),
    FieldRow::of(Side::Server, "key", BannerField::Key),
    FieldRow::of(Side::Server, "key_bits", BannerField::KeyBits),
    FieldRow::of(Side::Server, "signature", BannerField::Signature),
    FieldRow::of(Side::Server, "self_signed", BannerField::SelfSigned),
    FieldRow::of(Side::Server, "sha256", BannerField::Sha256),
    FieldRow::of(Side::Server, "verification", BannerField::Verification),
];
