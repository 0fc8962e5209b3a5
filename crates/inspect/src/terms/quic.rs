//! Terms of QUIC: transports and versions.

use std::borrow::Cow;

/// The transport protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TransportProtocol {
    /// TCP, RFC 9293.
    #[default]
    Tcp,
    /// UDP, RFC 768; of its protocols, only QUIC is read.
    Udp,
}

impl TransportProtocol {
    /// The name in EVE's `proto`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    /// IANA's number of the protocol.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// A version of QUIC, RFC 8999 section 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct QuicVersion(pub u32);

impl QuicVersion {
    /// The version with which a server lists the versions that it supports, RFC 8999 section 6.
    pub const NEGOTIATION: Self = Self(0);
    /// RFC 9000.
    pub const V1: Self = Self(1);
    /// RFC 9369.
    pub const V2: Self = Self(0x6b33_43cf);

    /// The number of a draft before version 1: `29` for `0xff00001d`.
    pub const fn draft(self) -> Option<u8> {
        match self.0.to_be_bytes() {
            [0xff, 0, 0, draft] => Some(draft),
            _ => None,
        }
    }

    /// The name in events: `1`, `2`, `draft-29`, or the number, `0xfaceb002`.
    pub fn name(self) -> Cow<'static, str> {
        match (self, self.draft()) {
            (Self::V1, _) => "1".into(),
            (Self::V2, _) => "2".into(),
            (_, Some(draft)) => format!("draft-{draft}").into(),
            (Self(number), None) => format!("{number:#010x}").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_names() {
        let name = |number| QuicVersion(number).name().into_owned();
        assert_eq!([name(1), name(0x6b33_43cf)], ["1", "2"]);
        assert_eq!([name(0xff00_001d), name(0x0a1a_2a3a)], ["draft-29", "0x0a1a2a3a"]);
    }
}
