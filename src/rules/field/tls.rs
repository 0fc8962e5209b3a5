//! Fields of the hellos of TLS.

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
    Row::either("alert", Field::Alert),
];
