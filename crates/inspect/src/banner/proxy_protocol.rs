//! The header of the PROXY protocol that a load balancer sends before a client's bytes. Version 1 is a
//! line, version 2 is binary (`HAProxy`'s proxy-protocol.txt, sections 2.1 and 2.2).

use super::parse_progress::{ParseProgress, ParseRejection};

/// Start of version 1.
const LINE: &[u8] = b"PROXY ";

/// Length of the longest accepted line, in bytes; the specification allows 107.
const LINE_LIMIT: usize = 512;

/// Start of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Number of bytes of version 2 between signature and addresses: version and command, family, length.
const FIXED: usize = 4;

/// Skips the header at the start of `octets`.
pub fn header(octets: &[u8]) -> ParseProgress<()> {
    if begins(octets, SIGNATURE) {
        let Some([version, _, high, low]) = octets.get(SIGNATURE.len()..SIGNATURE.len() + FIXED) else {
            return ParseProgress::More;
        };
        let consumed = SIGNATURE.len() + FIXED + usize::from(u16::from_be_bytes([*high, *low]));
        return match version >> 4 {
            2 if octets.len() >= consumed => ParseProgress::Done { value: (), consumed },
            2 => ParseProgress::More,
            _ => ParseProgress::Never(ParseRejection::NotProxied),
        };
    }
    if !begins(octets, LINE) {
        return ParseProgress::Never(ParseRejection::NotProxied);
    }
    // Without a line end within the limit, it is no header, and the flow must not wait for one.
    let readable = octets.get(..LINE_LIMIT).unwrap_or(octets);
    match memchr::memchr(b'\n', readable) {
        Some(end) => ParseProgress::Done { value: (), consumed: end + 1 },
        None if octets.len() < LINE_LIMIT => ParseProgress::More,
        None => ParseProgress::Never(ParseRejection::NotProxied),
    }
}

/// True if `octets` begin with `wanted`, as far as they go.
fn begins(octets: &[u8], wanted: &[u8]) -> bool {
    let length = octets.len().min(wanted.len());
    octets.get(..length) == wanted.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_both_versions_end_where_the_client_begins() {
        let binary =
            [SIGNATURE, b"\x21\x11\x00\x0c", &[192, 0, 2, 1, 192, 0, 2, 2, 0x9c, 0x40, 0, 80]].concat();
        for header in [
            &b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 80\r\n"[..],
            b"PROXY UNKNOWN\r\n",
            &binary,
            &[SIGNATURE, b"\x20\0\0\0"].concat(),
        ] {
            let whole = [header, b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(super::header(&whole), ParseProgress::Done { value: (), consumed: header.len() });
            for cut in 0..header.len() {
                assert_eq!(super::header(&header[..cut]), ParseProgress::More, "{cut}");
            }
        }
        let endless = [LINE, &[b'x'; LINE_LIMIT]].concat();
        for octets in [&b"PROPFIND"[..], b"\r\n\r\nGET", &[SIGNATURE, b"\x11\0\0\0"].concat(), &endless] {
            assert_eq!(header(octets), ParseProgress::Never(ParseRejection::NotProxied));
        }
    }
}
