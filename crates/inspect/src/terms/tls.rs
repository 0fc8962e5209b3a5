//! TLS's numbers and their names: versions, cipher suites, alerts.

use tls_parser::TlsCipherSuite;

/// A version of the protocol as it stands in hellos, RFC 8446 section 4.2.1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsVersion(pub u16);

/// A cipher suite's number in IANA's registry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CipherSuite(pub u16);

/// The description of an alert, RFC 8446 section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AlertCode(pub u8);

/// Result of verifying a server's certificate against authorities, a name and the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CertificateVerification {
    /// Every check succeeded.
    Valid,
    /// Its validity, or that of one above it, is over.
    Expired,
    /// Its validity, or that of one above it, has not begun.
    NotYetValid,
    /// It signed itself.
    SelfSigned,
    /// Its issuer is not trusted.
    UnknownIssuer,
    /// It is not valid for the requested name.
    WrongName,
    /// Its issuer did not sign it.
    BadSignature,
    /// It can't be read.
    Broken,
    /// It is not made for a server, or uses an unknown method.
    Unusable,
}

impl CertificateVerification {
    const NAMES: [(&'static str, Self); 9] = [
        ("valid", Self::Valid),
        ("expired", Self::Expired),
        ("not yet valid", Self::NotYetValid),
        ("self-signed", Self::SelfSigned),
        ("unknown issuer", Self::UnknownIssuer),
        ("wrong name", Self::WrongName),
        ("bad signature", Self::BadSignature),
        ("broken", Self::Broken),
        ("unusable", Self::Unusable),
    ];

    /// The name in rules and events.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// The result of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, verification)| *verification)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }
}

impl TlsVersion {
    /// TLS 1.2, RFC 5246.
    pub const TLS_1_2: Self = Self(0x0303);
    /// TLS 1.3, RFC 8446.
    pub const TLS_1_3: Self = Self(0x0304);

    const NAMES: [(Self, &'static str); 6] = [
        (Self(0x0002), "SSLv2"),
        (Self(0x0300), "SSLv3"),
        (Self(0x0301), "TLSv1"),
        (Self(0x0302), "TLS 1.1"),
        (Self(0x0303), "TLS 1.2"),
        (Self(0x0304), "TLS 1.3"),
    ];

    /// The name in rules and events, as EVE spells it; drafts of TLS 1.3 have the final version's name.
    pub fn name(self) -> &'static str {
        if self.0 & 0xff00 == 0x7f00 {
            return "TLS 1.3";
        }
        Self::NAMES.iter().find(|(version, _)| *version == self).map_or("unknown", |(_, name)| name)
    }

    /// The version of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(version, _)| *version)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(_, name)| *name)
    }

    /// True if everything after the server's hello is encrypted.
    pub fn encrypts_handshake(self) -> bool {
        self > Self::TLS_1_2
    }
}

impl CipherSuite {
    /// The name in IANA's registry; `unknown` if it has none.
    pub fn name(self) -> &'static str {
        TlsCipherSuite::from_id(self.0).map_or("unknown", |suite| suite.name)
    }

    /// The cipher suite of that name.
    pub fn named(name: &str) -> Option<Self> {
        TlsCipherSuite::from_name(name).map(|suite| Self(suite.id.0))
    }
}

impl AlertCode {
    /// The client offers no application protocol that the server supports, RFC 7301 section 3.2.
    pub const NO_APPLICATION_PROTOCOL: Self = Self(120);

    const NAMES: [(u8, &'static str); 35] = [
        (0, "close_notify"),
        (10, "unexpected_message"),
        (20, "bad_record_mac"),
        (21, "decryption_failed"),
        (22, "record_overflow"),
        (30, "decompression_failure"),
        (40, "handshake_failure"),
        (41, "no_certificate"),
        (42, "bad_certificate"),
        (43, "unsupported_certificate"),
        (44, "certificate_revoked"),
        (45, "certificate_expired"),
        (46, "certificate_unknown"),
        (47, "illegal_parameter"),
        (48, "unknown_ca"),
        (49, "access_denied"),
        (50, "decode_error"),
        (51, "decrypt_error"),
        (60, "export_restriction"),
        (70, "protocol_version"),
        (71, "insufficient_security"),
        (80, "internal_error"),
        (86, "inappropriate_fallback"),
        (90, "user_canceled"),
        (100, "no_renegotiation"),
        (109, "missing_extension"),
        (110, "unsupported_extension"),
        (111, "certificate_unobtainable"),
        (112, "unrecognized_name"),
        (113, "bad_certificate_status_response"),
        (114, "bad_certificate_hash_value"),
        (115, "unknown_psk_identity"),
        (116, "certificate_required"),
        (120, "no_application_protocol"),
        (121, "ech_required"),
    ];

    /// The name in RFC 8446 and its predecessors.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(code, _)| *code == self.0).map_or("unknown", |(_, name)| name)
    }

    /// The alert of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(code, _)| Self(*code))
    }
}

/// True if a number is one of those that have no meaning and must be ignored (GREASE), RFC 8701.
pub const fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_names_of_their_registries() {
        assert_eq!(CipherSuite(0x1301).name(), "TLS_AES_128_GCM_SHA256");
        assert_eq!(CipherSuite::named("TLS_RSA_WITH_RC4_128_MD5"), Some(CipherSuite(4)));
        assert_eq!(CipherSuite(0x0a0a).name(), "unknown");
        assert_eq!((TlsVersion(0x0304).name(), TlsVersion(0x7f1c).name()), ("TLS 1.3", "TLS 1.3"));
        assert_eq!(TlsVersion::named("TLSv1"), Some(TlsVersion(0x0301)));
        assert_eq!(AlertCode(112).name(), "unrecognized_name");
        assert!(AlertCode::NAMES.iter().all(|(code, name)| AlertCode::named(name) == Some(AlertCode(*code))));
    }

    #[test]
    fn grease_is_what_repeats_and_ends_in_a() {
        let all: Vec<u16> = (0..=u16::MAX).filter(|number| is_grease(*number)).collect();
        assert_eq!(all.len(), 16);
        assert!(all.contains(&0x0a0a) && all.contains(&0xfafa) && !is_grease(0x0a1a));
    }
}
