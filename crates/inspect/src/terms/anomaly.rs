//! Anomalies of packets, streams and messages: one table for all modules, by stable name.
//!
//! The module that finds an anomaly records it and reads on as the receiver would. A policy decides
//! whether to stop the flow.

use std::fmt;

/// Layer of an anomaly, EVE's `anomaly.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnomalyLayer {
    /// The IP or TCP header.
    Decode,
    /// TCP's stream of bytes.
    Stream,
    /// SSH, HTTP, TLS or QUIC.
    Application,
}

impl AnomalyLayer {
    /// EVE's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Stream => "stream",
            Self::Application => "applayer",
        }
    }
}

macro_rules! anomalies {
    ($($(#[doc = $doc:literal])+ $variant:ident $layer:ident $name:literal $detail:literal,)+) => {
        /// Something in a packet, stream or message that an inspector could be misled with, or that no honest
        /// peer sends.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Anomaly {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Anomaly {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable name in events and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The layer that it belongs to.
            pub const fn layer(self) -> AnomalyLayer {
                match self { $(Self::$variant => AnomalyLayer::$layer,)+ }
            }

            /// Description for a person.
            pub const fn detail(self) -> &'static str {
                match self { $(Self::$variant => $detail,)+ }
            }
        }
    };
}

anomalies! {
    /// IP or TCP headers that contradict themselves.
    MalformedPacket Decode "malformed_packet" "IP or TCP headers that contradict themselves",
    /// A checksum that the receiver will not accept.
    BadChecksum Decode "bad_checksum" "a wrong checksum: receiver and engine ignore the segment",
    /// IP fragments whose bytes contradict each other.
    FragmentConflict Decode "fragment_overlap_different_data" "IP fragments with different data for the same bytes",
    /// An IP fragment that can be part of no packet.
    FragmentMalformed Decode "fragment_malformed" "an IP fragment that can be part of no packet",
    /// Bytes sent again with other values.
    OverlapDifferentData Stream "overlap_different_data" "bytes that were sent before came again with other values; the first ones count",
    /// Data to the right of what the receiver's window allows.
    OutOfWindow Stream "out_of_window" "data beyond the receiver's window: receiver and engine ignore it",
    /// A reset whose sequence number the receiver will not accept.
    ResetWrongSequence Stream "reset_wrong_sequence" "a reset that its receiver rejects: the flow continues",
    /// Data from an end that was reset.
    DataAfterReset Stream "data_after_reset" "data after a reset: the reset never took effect",
    /// Data behind the sender's own FIN.
    DataAfterFin Stream "data_after_fin" "data after the end that its sender had announced",
    /// Data without ACK.
    DataWithoutAck Stream "data_without_ack" "data without the ACK flag: receiver and engine ignore it",
    /// An acknowledgement of what was never sent.
    AckOfUnsentData Stream "ack_of_unsent_data" "an acknowledgement of bytes that were never sent: receiver and engine ignore the segment",
    /// An acknowledgement that lies too far back.
    OldAcknowledgement Stream "old_acknowledgement" "an acknowledgement that lies too far back: most receivers ignore the segment",
    /// Data before the SYN that it would follow.
    DataBeforeHandshake Stream "data_before_handshake" "data before the SYN that it would follow: receiver and engine ignore it",
    /// A TCP MD5 or TCP-AO signature where the connection began without.
    UnexpectedSignature Stream "unexpected_signature" "a signature in a connection that has none: most receivers ignore the segment",
    /// Data in a SYN that would begin a flow anew.
    DataInReopeningSyn Stream "data_in_reopening_syn" "data in a SYN for ports that are in use: it can't be read before the answer",
    /// A further path of an MPTCP connection.
    MptcpJoin Stream "mptcp_join" "a further path of a Multipath TCP connection, whose bytes would be read apart from the others",
    /// SYN together with FIN or RST.
    ContradictoryFlags Stream "contradictory_flags" "SYN together with FIN or RST",
    /// Urgent data.
    UrgentData Stream "urgent_data" "urgent data, which a receiver may take out of the stream",
    /// A SYN inside an open connection.
    SynInConnection Stream "syn_in_connection" "a SYN with a new sequence number inside an open connection",
    /// The server answered a SYN by a SYN.
    SplitHandshake Stream "split_handshake" "a SYN was answered by a SYN without ACK; the first sender stays the client",
    /// Data in a SYN that the server did not take.
    FastOpenRefused Stream "fast_open_refused" "data in a SYN was not acknowledged; the engine reads what comes instead",
    /// Data with a much smaller hop limit than the handshake had.
    HopLimitDrop Stream "hop_limit_drop" "data with a much smaller hop limit than before: it may expire before it arrives",
    /// Bytes that the receiver has acknowledged went another way.
    Gap Stream "gap" "acknowledged bytes that never came this way",
    /// Too many segments out of order.
    ReorderLimit Stream "reorder_limit" "more data out of order than the engine holds",
    /// A rule matches where no other end has answered.
    UnconfirmedMatch Stream "unconfirmed_match" "a rule matches in a connection that the other end has not confirmed; alerts follow once it does",
    /// No decision within the budget.
    BudgetSpent Application "inspection_budget_spent" "no decision within the budget of bytes or time",
    /// Both ends speak, but not the same protocol.
    ProtocolMismatch Application "protocol_mismatch" "client and server speak different protocols",
    /// An SSH identification of more than 255 bytes with its line end (RFC 4253 section 4.2).
    SshLineTooLong Application "ssh_line_too_long" "the SSH identification is longer than 255 bytes",
    /// An SSH identification without a software version.
    SshMalformed Application "ssh_malformed" "the SSH identification has no software version",
    /// A NUL or another control byte in an SSH identification.
    SshControlOctet Application "ssh_control_octet" "the SSH identification holds a control byte",
    /// Lines before the identification of a client; only a server may send them.
    SshClientPreamble Application "ssh_client_preamble" "the client sent lines before its SSH identification",
    /// More than 64 KiB or 1,024 lines before the SSH identification, where clients give up.
    SshLongPreamble Application "ssh_long_preamble" "more came before the SSH identification than clients read",
    /// A hello of TLS that contradicts itself.
    TlsMalformed Application "tls_malformed" "the hello contradicts itself",
    /// An SSH identification within what looks like a hello of TLS: servers of each find their own.
    TlsDisputed Application "tls_disputed_hello" "an SSH identification inside what looks like a hello",
    /// An upgrade to TLS that the client has asked for, and behind which more came than is searched for its
    /// hello.
    UpgradeNotFollowed Application "upgrade_not_followed" "the client requested TLS, and no hello followed within the searched data",
    /// QUIC of a version whose Initials nobody here can open.
    QuicUnknownVersion Application "quic_unknown_version" "QUIC of an unknown version: its hello is not judged",
    /// An Initial that none of the connections' keys opens.
    QuicUnreadable Application "quic_unreadable_initial" "an Initial of QUIC that no known connection's keys open",
    /// An Initial with frames that none has, or a handshake that begins with no hello.
    QuicMalformed Application "quic_malformed" "an Initial of QUIC with frames or a hello that no client sends",
    /// Bytes of a hello sent again with other values.
    QuicConflict Application "quic_overlap_different_data" "bytes of a hello came again with other values; the first ones count",
    /// More connections of one flow than are looked at, none of whose hellos is whole.
    QuicCrowd Application "quic_too_many_hellos" "more unfinished hellos of QUIC between two ports than the engine reads",
    /// A head that did not end within the limit; what was read is its beginning.
    HeadTooLong Application "http_head_too_long" "the message head is longer than the limit",
    /// More header fields than anybody sends.
    TooManyHeaders Application "http_too_many_headers" "the message head has more fields than real software sends",
    /// Lines that end with LF alone between others that end with CR LF.
    MixedLineEnds Application "http_mixed_line_ends" "some lines of the head end with LF, others with CR LF",
    /// A CR that no LF follows, within a head.
    BareCarriageReturn Application "http_bare_carriage_return" "the head contains a CR without LF",
    /// A NUL within a head.
    NulOctet Application "http_nul_octet" "the head contains a NUL",
    /// Another control byte within a head.
    ControlOctet Application "http_control_octet" "the head contains a control byte",
    /// A header value that goes on in the next line (obs-fold, RFC 9112 section 5.2).
    FoldedHeader Application "http_folded_header" "a header value continues on the next line",
    /// White space between a header's name and its colon.
    SpaceBeforeColon Application "http_space_before_colon" "white space before a header's colon",
    /// White space before the message or its first header field.
    LeadingSpace Application "http_leading_space" "white space before the message or its first header field",
    /// A header line without a colon.
    HeaderWithoutColon Application "http_header_without_colon" "a header line has no colon",
    /// A header name that is empty or no token.
    HeaderNameInvalid Application "http_header_name_invalid" "a header name is empty or no token",
    /// A request method that is no token.
    MethodInvalid Application "http_method_invalid" "the request method is no token",
    /// A request or status line whose parts are not divided by single spaces.
    LineSpacing Application "http_line_spacing" "the first line is not divided by single spaces",
    /// A request target with white space in it.
    SpaceInTarget Application "http_space_in_target" "the request target holds white space",
    /// A version other than `HTTP/1.0` and `HTTP/1.1`.
    VersionUnusual Application "http_version_unusual" "the version is neither HTTP/1.0 nor HTTP/1.1",
    /// A request line without a version: HTTP/0.9.
    VersionMissing Application "http_version_missing" "the request line has no version",
    /// A status code that is not three digits.
    StatusInvalid Application "http_status_invalid" "the status code is not three digits",
    /// More than one `Host`, with different values.
    HostConflict Application "http_host_conflict" "several Host fields disagree",
    /// A head that the sender did not end before it closed.
    UnfinishedHead Application "http_unfinished_head" "the connection ended before the message head did",
    /// More than 256 bytes of empty lines or white space before a message.
    LongLeading Application "http_long_leading" "many empty lines or much white space before the message",
    /// A line that only some clients take for an SSH identification: it begins where they cut a longer
    /// one, or one that holds a CR.
    SshDisputed Application "ssh_disputed_identification" "only some clients take this for an SSH identification",
    /// Several `Content-Length` values that differ.
    ContentLengthConflict Application "http_content_length_conflict" "several Content-Length values disagree",
    /// A `Content-Length` that is no plain decimal number.
    ContentLengthInvalid Application "http_content_length_invalid" "Content-Length is no plain decimal number",
    /// A `Content-Length` beyond 63 bits.
    ContentLengthOverflow Application "http_content_length_overflow" "Content-Length is beyond 63 bits",
    /// `Content-Length` beside `Transfer-Encoding`.
    LengthAndChunked Application "http_length_and_chunked" "both Content-Length and Transfer-Encoding are present",
    /// A `Transfer-Encoding` that some read as `chunked` and some not.
    TransferEncodingInvalid Application "http_transfer_encoding_invalid" "some read this Transfer-Encoding as chunked and some do not",
    /// A request whose last transfer coding is not `chunked`.
    TransferEncodingUnknown Application "http_transfer_encoding_unknown" "the request's last transfer coding is not chunked",
    /// `Transfer-Encoding: chunked` in a message older than HTTP/1.1.
    ChunkedBeforeHttp11 Application "http_chunked_before_http_1_1" "a message older than HTTP/1.1 is chunked",
    /// A framing field that is folded over lines.
    FoldedFraming Application "http_folded_framing" "a field that frames the message is folded over lines",
    /// A chunk size that is no plain hexadecimal number.
    ChunkSizeInvalid Application "http_chunk_size_invalid" "a chunk size is no plain hexadecimal number",
    /// A chunk size beyond 1 TiB.
    ChunkSizeHuge Application "http_chunk_size_huge" "a chunk size is beyond 1 TiB",
    /// Chunk data that is not followed by its line end.
    ChunkUnterminated Application "http_chunk_unterminated" "chunk data is not followed by a line end",
    /// A CR without LF where a chunk's line ends.
    ChunkLineEnd Application "http_chunk_line_end" "a chunk's line holds a CR without LF",
    /// Chunk extensions beyond 4 KiB in one line.
    ExtensionTooLong Application "http_chunk_extension_too_long" "a chunk's extensions are beyond the limit",
    /// Trailer fields beyond 64 KiB.
    TrailerTooLong Application "http_trailer_too_long" "the trailer is beyond the limit",
    /// A message whose body has no end that all its receivers agree on: RFC 9112 section 6.3 has them refuse
    /// it, and one that does not may find a message where others find a body.
    FramingLost Application "http_framing_lost" "receivers disagree where the message ends, so it may hide what follows",
    /// A request that was not read as one, and that its server answers.
    UnknownRequest Application "http_unknown_request" "a server answers something that is no request",
    /// More alerts than a flow may cause.
    AlertsCut Application "alerts_cut" "more rules matched than the connection may cause alerts",
    /// A request is answered by what is no response.
    UnknownResponse Application "http_unknown_response" "something that is no response answers a request",
    /// Bytes between two messages that belong to neither.
    UnexpectedData Application "http_unexpected_data" "bytes between messages that belong to none",
    /// Bytes that answer no request.
    UnsolicitedResponse Application "http_unsolicited_response" "bytes that answer no request",
    /// A target of a scan sent more results than the scan holds.
    ScanResultsCut Application "scan_results_cut" "more results of one target than the scan holds",
}

impl Anomaly {
    /// Number of anomalies.
    pub const COUNT: usize = Self::ALL.len();
}

/// A set of anomalies, without allocation.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct AnomalySet([u32; 3]);

const _: () = assert!(Anomaly::COUNT <= 96, "a set of anomalies has 96 bits");

impl AnomalySet {
    /// The empty set.
    pub const NONE: Self = Self([0; 3]);

    /// A set of one.
    pub const fn of(anomaly: Anomaly) -> Self {
        let mut set = Self::NONE;
        set.insert(anomaly);
        set
    }

    /// Adds one; returns true if it is new.
    pub const fn insert(&mut self, anomaly: Anomaly) -> bool {
        let (word, bit) = place(anomaly);
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Removes one.
    pub const fn remove(&mut self, anomaly: Anomaly) {
        let (word, bit) = place(anomaly);
        self.0[word] &= !bit;
    }

    /// Union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        let ([a, b, c], [d, e, f]) = (self.0, other.0);
        Self([a | d, b | e, c | f])
    }

    /// Adds one if `condition` holds.
    pub const fn insert_if(&mut self, condition: bool, anomaly: Anomaly) {
        if condition {
            self.insert(anomaly);
        }
    }

    /// True if it is in the set.
    pub const fn contains(self, anomaly: Anomaly) -> bool {
        let (word, bit) = place(anomaly);
        self.0[word] & bit != 0
    }

    /// True if there is none.
    pub const fn is_empty(self) -> bool {
        matches!(self.0, [0, 0, 0])
    }

    /// Iterates over the set.
    pub fn iter(self) -> impl Iterator<Item = Anomaly> {
        let [low, middle, high] = self.0.map(u128::from);
        let mut rest = low | middle << 32 | high << 64;
        // Most sets are empty, so the loop takes only as many steps as there are anomalies in it.
        std::iter::from_fn(move || {
            let anomaly = Anomaly::ALL.get(rest.trailing_zeros() as usize).copied()?;
            rest &= rest - 1;
            Some(anomaly)
        })
    }
}

impl fmt::Debug for AnomalySet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter().map(Anomaly::name)).finish()
    }
}

/// Returns the word and bit of an anomaly in a set.
const fn place(anomaly: Anomaly) -> (usize, u32) {
    let number = anomaly as usize;
    (number / 32, 1 << (number % 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_anomaly_has_a_place_and_a_name_of_its_own() {
        let mut seen = AnomalySet::NONE;
        for (index, anomaly) in Anomaly::ALL.iter().enumerate() {
            assert_eq!(*anomaly as usize, index);
            assert!(!seen.contains(*anomaly) && seen.insert(*anomaly) && !seen.insert(*anomaly));
        }
        let names: std::collections::BTreeSet<_> =
            Anomaly::ALL.iter().map(|anomaly| anomaly.name()).collect();
        assert_eq!(names.len(), Anomaly::COUNT);
        assert!(seen.iter().eq(Anomaly::ALL.iter().copied()) && AnomalySet::NONE.iter().next().is_none());
        seen.remove(Anomaly::Gap);
        assert!(!seen.contains(Anomaly::Gap) && seen.with(AnomalySet::NONE) == seen);
    }
}
