//! Where we and tshark differ on purpose, and why.
//!
//! The list below is of the corpus. Of captures made to be odd, these kinds of differences were studied
//! and left as they are:
//!
//! | what | tshark 4.0 | we, as servers and clients would |
//! |---|---|---|
//! | methods in small letters or unknown to it, tabs or several spaces between the words of a first line | no request, or one without a target | a request |
//! | a space or a NUL within the target | ends it there | goes on to the version |
//! | folded fields, white space before a colon, lines without one | loses later fields, `Server` among them | reads them |
//! | a request without a version (HTTP/0.9) | no request, unless fields follow | a request |
//! | a first line without a target | takes the version for it | an empty target |
//! | a head that never ends, where no FIN follows | no message | a message of the lines that are there |
//! | a client's messages from whom the handshake made the server (SOCKS `BIND`) | messages | none |
//! | a segment of a message that is sent again behind the next | the message twice | once |
//! | TLS with the keys in the capture; HTTP over SCTP | messages | none |
//! | a body that is shorter than its head says, or whose parts are missing, without a FIN | no message | a message |
//! | two lengths that contradict each other, pipelined HEAD | loses the next responses | reads them |
//! | an interim response before a final one | two responses | one transaction, one response |
//! | RTSP and SIP to port 80 | HTTP requests | none |
//! | SSH on ports other than 22, behind other lines, in several segments | none | an identification |
//! | overlapping segments | may lose the message | the first octets count |

/// Who reports something that the other does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Only bannerwall.
    Ours,
    /// Only tshark.
    Theirs,
}

/// One deliberate difference.
pub(crate) struct Difference {
    /// The capture, below `pcap/`.
    capture: &'static str,
    whose: Whose,
    /// What the fact holds.
    part: &'static str,
    /// Why it is right to differ.
    #[expect(dead_code, reason = "for whoever reads the list")]
    reason: &'static str,
}

impl Difference {
    /// Whether it is about this fact.
    pub(crate) fn explains(&self, capture: &str, whose: Whose, fact: &str) -> bool {
        self.capture == capture && self.whose == whose && fact.contains(self.part)
    }
}

/// All of them.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        capture: "http/concurrent-range-requests.pcap",
        whose: Whose::Ours,
        part: "58718 response | 206",
        reason: LONG,
    },
    Difference {
        capture: "http/content-range-gap.pcap",
        whose: Whose::Ours,
        part: "response | 206",
        reason: LONG,
    },
    Difference { capture: "http/entity_gap2.pcap", whose: Whose::Ours, part: "response | 200", reason: LONG },
    Difference {
        capture: "http/http-bad-content-range-01.pcap",
        whose: Whose::Ours,
        part: "response | 206",
        reason: LONG,
    },
    Difference {
        capture: "http/putty-upload.pcap",
        whose: Whose::Ours,
        part: "request | POST",
        reason: LONG,
    },
    Difference {
        capture: "http/connect-with-smtp.pcap",
        whose: Whose::Theirs,
        part: "request | CONNECT",
        reason: SPACE,
    },
    Difference {
        capture: "http/connect-with-smtp.pcap",
        whose: Whose::Ours,
        part: "request | CONNECT",
        reason: SPACE,
    },
    Difference {
        capture: "http/get-to-ssh-server.pcap",
        whose: Whose::Ours,
        part: "request | GET",
        reason: PORT,
    },
    Difference { capture: "http/http-single-conn-22.pcap", whose: Whose::Ours, part: "", reason: PORT },
    Difference {
        capture: "http/zeek-image-post-1080-8000-x.pcap",
        whose: Whose::Ours,
        part: "",
        reason: PORT,
    },
    Difference {
        capture: "ssh/ssh-on-port-80.pcap",
        whose: Whose::Ours,
        part: "ssh | SSH-2.0",
        reason: PORT,
    },
    Difference {
        capture: "http/http-body-match.pcap",
        whose: Whose::Theirs,
        part: "response | 100",
        reason: INTERIM,
    },
    Difference {
        capture: "http/http-lower-case-nonstandard-port.pcap",
        whose: Whose::Ours,
        part: "response | 200",
        reason: CASE,
    },
    Difference { capture: "http/http_09.pcap", whose: Whose::Ours, part: "request", reason: SIMPLE },
    Difference { capture: "http/no-version.pcap", whose: Whose::Ours, part: "request | GET", reason: SIMPLE },
    Difference {
        capture: "http/query-method.pcap",
        whose: Whose::Ours,
        part: "request | QUERY",
        reason: METHOD,
    },
    Difference {
        capture: "ssh/server-pre-banner-data.pcap",
        whose: Whose::Ours,
        part: "ssh | SSH-2.0",
        reason: PREAMBLE,
    },
];

const LONG: &str =
    "tshark reports a message once its body is whole; the capture lacks a part of it, and the head was there";
const SPACE: &str =
    "the target holds a space: tshark ends it there, servers and we take all up to the version";
const PORT: &str = "tshark goes by the port, we go by the octets";
const INTERIM: &str = "1xx precedes the response of the same transaction, and a transaction is one event";
const CASE: &str = "tshark wants HTTP in capitals in a status line; clients do not";
const SIMPLE: &str = "tshark knows no HTTP/0.9, servers do";
const METHOD: &str =
    "tshark 4.0 does not know the method QUERY; any token with a version behind it is a request";
const PREAMBLE: &str = "tshark wants the identification first, RFC 4253 lets a server send lines before it";
