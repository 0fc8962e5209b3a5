//! What no honest peer sends in a banner, and what two readers could read in two ways.
//!
//! A parser never refuses for these: it reads on as common servers do and notes them here, so that
//! a policy can decide. Whether to block is not this module's business.

use std::fmt;

/// One oddity of an SSH identification or an HTTP message head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Anomaly {
    /// An SSH identification of more than 255 octets with its line end (RFC 4253 section 4.2).
    SshLineTooLong,
    /// An SSH identification without a software version.
    SshMalformed,
    /// A NUL or another control octet in an SSH identification.
    SshControlOctet,
    /// Lines before the identification of a client; only a server may send them.
    SshClientPreamble,
    /// More than 64 KiB or 1,024 lines before the SSH identification, where clients give up.
    SshLongPreamble,
    /// A head that did not end within the limit; what was read is its beginning.
    HeadTooLong,
    /// More header fields than anybody sends.
    TooManyHeaders,
    /// Lines that end with LF alone between others that end with CR LF.
    MixedLineEnds,
    /// A CR that no LF follows, within a head.
    BareCarriageReturn,
    /// A NUL within a head.
    NulOctet,
    /// Another control octet within a head.
    ControlOctet,
    /// A header value that goes on in the next line (obs-fold, RFC 9112 section 5.2).
    FoldedHeader,
    /// White space between a header's name and its colon.
    SpaceBeforeColon,
    /// White space before the message or its first header field.
    LeadingSpace,
    /// A header line without a colon.
    HeaderWithoutColon,
    /// A header name that is empty or no token.
    HeaderNameInvalid,
    /// A request method that is no token.
    MethodInvalid,
    /// A request or status line whose parts are not divided by single spaces.
    LineSpacing,
    /// A request target with white space in it.
    SpaceInTarget,
    /// A version other than `HTTP/1.0` and `HTTP/1.1`.
    VersionUnusual,
    /// A request line without a version: HTTP/0.9.
    VersionMissing,
    /// A status code that is not three digits.
    StatusInvalid,
    /// More than one `Host`, with different values.
    HostConflict,
    /// A head that the sender did not end before it closed.
    UnfinishedHead,
    /// More than 256 octets of empty lines or white space before a message.
    LongLeading,
    /// What only some clients take for an SSH identification: a line that begins where they cut a longer
    /// one, or one that holds a CR.
    SshDisputed,
}

/// Every anomaly, in the order of its bit.
const ALL: [Anomaly; 26] = [
    Anomaly::SshLineTooLong,
    Anomaly::SshMalformed,
    Anomaly::SshControlOctet,
    Anomaly::SshClientPreamble,
    Anomaly::SshLongPreamble,
    Anomaly::HeadTooLong,
    Anomaly::TooManyHeaders,
    Anomaly::MixedLineEnds,
    Anomaly::BareCarriageReturn,
    Anomaly::NulOctet,
    Anomaly::ControlOctet,
    Anomaly::FoldedHeader,
    Anomaly::SpaceBeforeColon,
    Anomaly::LeadingSpace,
    Anomaly::HeaderWithoutColon,
    Anomaly::HeaderNameInvalid,
    Anomaly::MethodInvalid,
    Anomaly::LineSpacing,
    Anomaly::SpaceInTarget,
    Anomaly::VersionUnusual,
    Anomaly::VersionMissing,
    Anomaly::StatusInvalid,
    Anomaly::HostConflict,
    Anomaly::UnfinishedHead,
    Anomaly::LongLeading,
    Anomaly::SshDisputed,
];

impl Anomaly {
    /// The stable name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SshLineTooLong => "ssh_line_too_long",
            Self::SshMalformed => "ssh_malformed",
            Self::SshControlOctet => "ssh_control_octet",
            Self::SshClientPreamble => "ssh_client_preamble",
            Self::SshLongPreamble => "ssh_long_preamble",
            Self::HeadTooLong => "http_head_too_long",
            Self::TooManyHeaders => "http_too_many_headers",
            Self::MixedLineEnds => "http_mixed_line_ends",
            Self::BareCarriageReturn => "http_bare_carriage_return",
            Self::NulOctet => "http_nul_octet",
            Self::ControlOctet => "http_control_octet",
            Self::FoldedHeader => "http_folded_header",
            Self::SpaceBeforeColon => "http_space_before_colon",
            Self::LeadingSpace => "http_leading_space",
            Self::HeaderWithoutColon => "http_header_without_colon",
            Self::HeaderNameInvalid => "http_header_name_invalid",
            Self::MethodInvalid => "http_method_invalid",
            Self::LineSpacing => "http_line_spacing",
            Self::SpaceInTarget => "http_space_in_target",
            Self::VersionUnusual => "http_version_unusual",
            Self::VersionMissing => "http_version_missing",
            Self::StatusInvalid => "http_status_invalid",
            Self::HostConflict => "http_host_conflict",
            Self::UnfinishedHead => "http_unfinished_head",
            Self::LongLeading => "http_long_leading",
            Self::SshDisputed => "ssh_disputed_identification",
        }
    }

    /// What was seen, for a person.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::SshLineTooLong => "the SSH identification is longer than 255 octets",
            Self::SshMalformed => "the SSH identification has no software version",
            Self::SshControlOctet => "the SSH identification holds a control octet",
            Self::SshClientPreamble => "the client sent lines before its SSH identification",
            Self::SshLongPreamble => "more came before the SSH identification than clients read",
            Self::HeadTooLong => "the message head is longer than the limit",
            Self::TooManyHeaders => "the message head has more fields than anybody sends",
            Self::MixedLineEnds => "some lines of the head end with LF, others with CR LF",
            Self::BareCarriageReturn => "a CR without LF stands within the head",
            Self::NulOctet => "a NUL stands within the head",
            Self::ControlOctet => "a control octet stands within the head",
            Self::FoldedHeader => "a header value goes on in the next line",
            Self::SpaceBeforeColon => "white space stands before a header's colon",
            Self::LeadingSpace => "white space stands before the message or its first header field",
            Self::HeaderWithoutColon => "a header line has no colon",
            Self::HeaderNameInvalid => "a header name is empty or no token",
            Self::MethodInvalid => "the request method is no token",
            Self::LineSpacing => "the first line is not divided by single spaces",
            Self::SpaceInTarget => "the request target holds white space",
            Self::VersionUnusual => "the version is neither HTTP/1.0 nor HTTP/1.1",
            Self::VersionMissing => "the request line has no version",
            Self::StatusInvalid => "the status code is not three digits",
            Self::HostConflict => "several Host fields disagree",
            Self::UnfinishedHead => "the connection ended before the message head did",
            Self::LongLeading => "many empty lines or much white space stand before the message",
            Self::SshDisputed => "only some clients take this for an SSH identification",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// A set of anomalies, without allocation.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies(u32);

impl Anomalies {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds one.
    pub const fn insert(&mut self, anomaly: Anomaly) {
        self.0 |= anomaly.bit();
    }

    /// Adds one where `condition` holds.
    pub const fn insert_if(&mut self, condition: bool, anomaly: Anomaly) {
        if condition {
            self.insert(anomaly);
        }
    }

    /// Whether it is in the set.
    pub const fn contains(self, anomaly: Anomaly) -> bool {
        self.0 & anomaly.bit() != 0
    }

    /// Whether nothing was odd.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in the set.
    pub fn iter(self) -> impl Iterator<Item = Anomaly> {
        ALL.into_iter().filter(move |&anomaly| self.contains(anomaly))
    }
}

impl fmt::Debug for Anomalies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter().map(Anomaly::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_anomaly_has_its_own_bit_and_name() {
        let mut seen = Anomalies::NONE;
        for (index, anomaly) in ALL.into_iter().enumerate() {
            assert_eq!(anomaly as usize, index);
            assert!(!seen.contains(anomaly));
            seen.insert(anomaly);
        }
        let names: std::collections::BTreeSet<_> = ALL.into_iter().map(Anomaly::name).collect();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(seen.iter().count(), ALL.len());
    }
}
