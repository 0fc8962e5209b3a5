//! Which protocol a stream speaks, by its first octets and never by its port.

use super::{Progress, Side, socks, ssh};

/// Methods that are HTTP even where the request line has no version (HTTP/0.9) or no visible end.
const METHODS: [&[u8]; 9] =
    [b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE", b"PATCH"];

/// The longest first line that is waited for, in octets.
const FIRST_LINE_LIMIT: usize = 16 * 1024;

/// The longest unknown method, in octets.
const METHOD_LIMIT: usize = 64;

/// Empty lines and white space that are overlooked before a request line, in octets.
pub(super) const LEADING_LIMIT: usize = 256;

/// What the first octets of one side look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recognition {
    /// An SSH identification.
    Ssh,
    /// An HTTP/1.x (or 0.9) message.
    Http,
    /// Whole lines of text from a server, as RFC 4253 lets them stand before the identification.
    ///
    /// SMTP and FTP greet like that too: it is SSH only when an identification follows, and not
    /// when the client turns out to speak something else.
    PerhapsSsh,
    /// The whole of what a client says to a SOCKS server; what it relays follows.
    Relayed,
    /// None of these.
    Unknown,
    /// Too few octets to tell.
    More,
}

/// Tells the protocol from what `from` has sent from the start of its stream.
pub fn recognise(from: Side, octets: &[u8]) -> Recognition {
    if octets.starts_with(ssh::PREFIX) {
        return Recognition::Ssh;
    }
    if ssh::PREFIX.starts_with(octets) {
        return Recognition::More;
    }
    match from {
        Side::Client => client(octets),
        Side::Server => server(octets),
    }
}

fn client(octets: &[u8]) -> Recognition {
    if let Some(4 | 5) = octets.first() {
        return match socks::handshake(Side::Client, octets) {
            Progress::More => Recognition::More,
            Progress::Done { .. } => Recognition::Relayed,
            Progress::Never(_) => Recognition::Unknown,
        };
    }
    let text = skip_leading(octets);
    // No further than a method may reach: a body without spaces is looked at line by line.
    let start = text.iter().take(METHOD_LIMIT + 1);
    let method_length = start.copied().position(|octet| octet == b' ' || octet == b'\t');
    let Some((method, rest)) = method_length.and_then(|length| text.split_at_checked(length)) else {
        return unfinished_method(octets, text);
    };
    if method.is_empty() || method.len() > METHOD_LIMIT || !method.iter().all(u8::is_ascii_graphic) {
        return Recognition::Unknown;
    }
    // Octets that no target holds tell a binary protocol, whose line may never end.
    let known = is_known_method(method);
    let readable = rest.get(..FIRST_LINE_LIMIT).unwrap_or(rest);
    match memchr::memchr(b'\n', readable) {
        Some(end) => request_line(known, readable.get(..end).unwrap_or_default()),
        None if rest.len() >= FIRST_LINE_LIMIT => known_or_not(known),
        None if known || is_all_text(rest) => Recognition::More,
        None => Recognition::Unknown,
    }
}

/// What stands where an HTTP message may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Beginning {
    /// A message, as far as can be told.
    Message,
    /// Too few octets to tell.
    More,
    /// So many octets that begin none: a line, or all there are.
    Other(usize),
}

/// Tells what stands between two messages of `from`, or, unless `contiguous`, behind octets that are
/// missing, where the middle of anything may stand.
pub fn beginning(from: Side, octets: &[u8], contiguous: bool) -> Beginning {
    let text = skip_leading(octets);
    if text.is_empty() {
        // White space, other than empty lines, is the oddity of the message that follows.
        let spaced = octets.iter().any(|octet| b" \t".contains(octet)) && octets.len() < LEADING_LIMIT;
        return if contiguous && spaced { Beginning::More } else { Beginning::Other(octets.len()) };
    }
    let line = memchr::memchr(b'\n', text).map(|end| octets.len() - text.len() + end + 1);
    let other = Beginning::Other(line.unwrap_or(octets.len()));
    match from {
        Side::Server => match status_line(text) {
            Recognition::Http => Beginning::Message,
            Recognition::More => Beginning::More,
            _ => other,
        },
        Side::Client => match client(octets) {
            Recognition::Http => Beginning::Message,
            Recognition::More if contiguous || begins_known_method(text) => Beginning::More,
            _ => other,
        },
    }
}

/// Whether `method` is one of [`METHODS`].
pub(super) fn is_known_method(method: &[u8]) -> bool {
    METHODS.iter().any(|known| known.eq_ignore_ascii_case(method))
}

/// Whether `text` begins with a method of [`METHODS`], as far as it goes.
fn begins_known_method(text: &[u8]) -> bool {
    let word = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    METHODS.iter().any(|known| {
        if word.len() < text.len() { known.eq_ignore_ascii_case(word) } else { known.starts_with(word) }
    })
}

/// Judges a request line behind its method: `RTSP/1.0` and `SIP/2.0` share methods with HTTP.
fn request_line(known: bool, whole: &[u8]) -> Recognition {
    let line = whole.trim_ascii_end();
    let word = line.rsplit(|&octet| octet == b' ' || octet == b'\t').next().unwrap_or_default();
    let version = word.len() < line.len() && word.get(..5).is_some_and(|p| p.eq_ignore_ascii_case(b"HTTP/"));
    let foreign = [&b"RTSP/"[..], b"SIP/", b"ICAP/"].iter().any(|prefix| word.starts_with(prefix));
    if version && (known || is_all_text(whole)) { Recognition::Http } else { known_or_not(known && !foreign) }
}

const fn known_or_not(known: bool) -> Recognition {
    if known { Recognition::Http } else { Recognition::Unknown }
}

fn unfinished_method(octets: &[u8], text: &[u8]) -> Recognition {
    let plausible = text.len() <= METHOD_LIMIT && text.iter().all(u8::is_ascii_graphic);
    if plausible && octets.len() - text.len() <= LEADING_LIMIT {
        Recognition::More
    } else {
        Recognition::Unknown
    }
}

/// Whether `octets` begin, as far as they go, like a status line.
fn status_line(octets: &[u8]) -> Recognition {
    for prefix in [&b"HTTP/"[..], b"ICY "] {
        let length = octets.len().min(prefix.len());
        if octets
            .get(..length)
            .is_some_and(|start| prefix.get(..length).is_some_and(|p| p.eq_ignore_ascii_case(start)))
        {
            return if length == prefix.len() { Recognition::Http } else { Recognition::More };
        }
    }
    Recognition::Unknown
}

fn server(octets: &[u8]) -> Recognition {
    match status_line(octets) {
        Recognition::Unknown => {}
        told => return told,
    }
    match memchr::memchr(b'\n', octets) {
        Some(end) if is_all_text(octets.get(..end).unwrap_or_default()) => Recognition::PerhapsSsh,
        None if octets.len() <= ssh::READ_LIMIT && is_all_text(octets) => Recognition::More,
        _ => Recognition::Unknown,
    }
}

/// What lies behind the empty lines and white space that servers overlook before a request line.
pub(super) fn skip_leading(octets: &[u8]) -> &[u8] {
    let skip = octets.iter().take(LEADING_LIMIT).take_while(|octet| b"\r\n \t".contains(octet)).count();
    octets.get(skip..).unwrap_or_default()
}

/// Looks at every octet, also behind one that is no text: without a way out the loop takes many octets
/// a step, and a line that comes octet by octet is gone over again for each of them.
fn is_all_text(octets: &[u8]) -> bool {
    octets.iter().fold(true, |text, &octet| text & is_text(octet))
}

/// Printable ASCII, UTF-8 or Latin-1, white space; not what binary protocols begin with.
const fn is_text(octet: u8) -> bool {
    (octet >= b' ') & (octet != 0x7f) | (octet == b'\t') | (octet == b'\r') | (octet == b'\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn protocols_are_told_by_their_octets() {
        for (from, octets, expected) in [
            (Side::Client, &b"SSH-2.0-x\r\n"[..], Recognition::Ssh),
            (Side::Server, b"SSH-", Recognition::Ssh),
            (Side::Server, b"SS", Recognition::More),
            (Side::Server, b"", Recognition::More),
            (Side::Server, b"HTTP/1.1 200 OK\r\n", Recognition::Http),
            (Side::Server, b"http/1.0 200", Recognition::Http),
            (Side::Server, b"ICY 200 OK\r\n", Recognition::Http),
            (Side::Server, b"HTT", Recognition::More),
            (Side::Server, b"220 mail ESMTP\r\n", Recognition::PerhapsSsh),
            (Side::Server, b"220 mail", Recognition::More),
            (Side::Server, b"\x16\x03\x01", Recognition::Unknown),
            (Side::Client, b"GET /", Recognition::More),
            (Side::Client, b"GET /\r\n", Recognition::Http),
            (Side::Client, b"get / HTTP/1.0\n", Recognition::Http),
            (Side::Client, b"OPTIONS rtsp://x RTSP/1.0\r\n", Recognition::Unknown),
            (Side::Client, b"OPTIONS sip:x SIP/2.0\r\n", Recognition::Unknown),
            (Side::Client, b"GE", Recognition::More),
            (Side::Client, b"\r\n\r\nPOST / HTTP/1.0\r\n", Recognition::Http),
            (Side::Client, b"BREW /pot HTCPCP/1.0\r\n", Recognition::Unknown),
            (Side::Client, b"BREW /pot HTTP/1.0\r\n", Recognition::Http),
            (Side::Client, b"BREW /pot", Recognition::More),
            (Side::Client, b"EHLO example\r\n", Recognition::Unknown),
            (Side::Client, b"\x05\x01\x00", Recognition::More),
            (Side::Client, b"\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50", Recognition::Relayed),
            (Side::Client, b"\x05\x00\x0b\x03", Recognition::Unknown),
            (Side::Client, b"\x16\x03\x01\x02\x00\x01", Recognition::Unknown),
        ] {
            assert_eq!(recognise(from, octets), expected, "{from:?} {:?}", octets.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_message_is_told_from_what_stands_between_messages() {
        use Beginning::{Message, More, Other};
        for (from, octets, whole, behind_gap) in [
            (Side::Client, &b"GET /"[..], More, More),
            (Side::Client, b"\r\nGET / HTTP/1.1\r\n", Message, Message),
            (Side::Client, b"BREW /", More, Other(6)),
            (Side::Client, b"BREW / HTTP/1.1\r\n", Message, Message),
            (Side::Client, b"name=value", More, Other(10)),
            (Side::Client, b"--B\r\nX: y\r\n", Other(5), Other(5)),
            (Side::Client, b"\r\n", Other(2), Other(2)),
            (Side::Client, b"P", More, More),
            (Side::Client, b"\0\0", Other(2), Other(2)),
            (Side::Server, b"HT", More, More),
            (Side::Server, b"\nhttp/1.1 200 OK\n", Message, Message),
            (Side::Server, b"rest of a body", Other(14), Other(14)),
            (Side::Server, b"rest\nHTTP/1.1 200 OK\n", Other(5), Other(5)),
        ] {
            let shown = octets.escape_ascii().to_string();
            assert_eq!(beginning(from, octets, true), whole, "{from:?} {shown}");
            assert_eq!(beginning(from, octets, false), behind_gap, "{from:?} {shown}");
        }
    }

    /// Found by the fuzz target `http`.
    #[test]
    fn a_control_octet_behind_an_unknown_method_stays_unknown() {
        for octets in [
            &b"BREW /\x01"[..],
            b"BREW /\x01 HTTP/1.1\r\n",
            b"BREW / HTTP/1.1\x0c",
            b"BREW / HTTP/1.1\x0c\r\n",
        ] {
            assert_eq!(recognise(Side::Client, octets), Recognition::Unknown);
        }
    }

    proptest! {
        #[test]
        fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = recognise(Side::Client, &octets);
            let _ = recognise(Side::Server, &octets);
            for (from, contiguous) in [(Side::Client, true), (Side::Client, false), (Side::Server, true)] {
                if let Beginning::Other(count) = beginning(from, &octets, contiguous) {
                    prop_assert!(count <= octets.len() && (count > 0 || octets.is_empty()));
                }
            }
        }

        #[test]
        fn more_octets_never_change_a_decision(text in "[A-Z]{1,12} [ -~\r\n]{0,60}", cut in 0_usize..60) {
            for from in [Side::Client, Side::Server] {
                let whole = recognise(from, text.as_bytes());
                let part = recognise(from, &text.as_bytes()[..cut.min(text.len())]);
                prop_assert!(part == Recognition::More || part == whole, "{:?} {:?}", part, whole);
            }
        }
    }
}
