//! Recognition of a server by its first bytes, as the passive engine recognizes it.

use crate::banner::unread_protocols::{self, OtherProtocol, ProtocolNaming};
use crate::banner::{ParseProgress, ProtocolRecognition, greeting};
use crate::terms::Side;

/// Beginning of an HTTP response.
const HTTP: &[u8] = b"HTTP/";

/// Kind of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecognisedServer {
    /// More bytes are needed.
    More,
    Ssh,
    Greeting,
    Http,
    /// HTTP that refuses the request: so do servers that expect TLS.
    BadRequest,
    Tls,
    /// A protocol that is only named, or unknown.
    Other,
}

/// Recognizes a server at `port`. `is_asked` is true if the bytes may answer a request.
pub(super) fn recognise(said: &[u8], is_asked: bool, port: u16) -> RecognisedServer {
    if said.starts_with(HTTP) {
        let is_status = said.iter().filter(|octet| **octet == b' ').count() > 1 || said.contains(&b'\n');
        return match (is_status, is_bad_request(said)) {
            (false, _) => RecognisedServer::More,
            (true, true) => RecognisedServer::BadRequest,
            (true, false) => RecognisedServer::Http,
        };
    }
    if HTTP.starts_with(said) {
        return RecognisedServer::More;
    }
    let recognised = crate::banner::recognise(Side::Server, said);
    match recognised {
        ProtocolRecognition::Ssh => return RecognisedServer::Ssh,
        ProtocolRecognition::Http if is_asked => return RecognisedServer::Http,
        _ => {}
    }
    // A server that speaks first may greet. The same bytes after a request are an answer (`+OK` of Redis).
    let greeting = greeting::parse(said, port);
    if !is_asked && matches!(greeting, ParseProgress::Done { .. }) {
        return RecognisedServer::Greeting;
    }
    match (unread_protocols::name(Side::Server, said), greeting) {
        (ProtocolNaming::Named(OtherProtocol::TLS), _) => RecognisedServer::Tls,
        (ProtocolNaming::Named(_), _) => RecognisedServer::Other,
        (_, ParseProgress::Done { .. }) => RecognisedServer::Greeting,
        (ProtocolNaming::More, _) | (_, ParseProgress::More) => RecognisedServer::More,
        // RFC 4253 section 4.2: an SSH server may send other lines first.
        (ProtocolNaming::Unknown, ParseProgress::Never(_)) => match recognised {
            ProtocolRecognition::PerhapsSsh | ProtocolRecognition::More if is_text(said) => {
                RecognisedServer::More
            }
            _ => RecognisedServer::Other,
        },
    }
}

/// Returns the protocol that the complete bytes name.
pub(super) fn settle(said: &[u8]) -> Option<OtherProtocol> {
    unread_protocols::settle(Side::Server, said)
}

/// True for a response with status 400.
pub(super) fn is_bad_request(said: &[u8]) -> bool {
    said.starts_with(HTTP) && said.split(|octet| *octet == b' ').nth(1) == Some(b"400")
}

fn is_text(said: &[u8]) -> bool {
    said.iter().all(|octet| octet.is_ascii_graphic() || octet.is_ascii_whitespace() || *octet >= 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_recognized_by_their_first_bytes_alone() {
        for (said, is_asked, expected) in [
            (&b"SSH-2.0-x\r\n"[..], false, RecognisedServer::Ssh),
            (b"SSH", false, RecognisedServer::More),
            (b"Welcome\r\n", false, RecognisedServer::More),
            (b"220 mail ESMTP\r\n", false, RecognisedServer::Greeting),
            (b"220 mail ESMTP\r\n", true, RecognisedServer::Greeting),
            (b"+OK POP3\r\n", false, RecognisedServer::Greeting),
            (b"-ERR unknown command", true, RecognisedServer::Other),
            (b"HTTP/1.1 200 OK\r\n", true, RecognisedServer::Http),
            (b"HTTP/1.1 400 Bad Request\r\n", true, RecognisedServer::BadRequest),
            (b"HTT", true, RecognisedServer::More),
            (b"\x15\x03\x01\x00\x02\x02\x46", true, RecognisedServer::Tls),
            (b"RFB 003.008\n", false, RecognisedServer::Other),
            (b"\x00\x01\x02\x03 binary", false, RecognisedServer::Other),
        ] {
            assert_eq!(recognise(said, is_asked, 7777), expected, "{}", said.escape_ascii());
        }
    }
}
