//! The header that a load balancer sends before a client's bytes.
//!
//! Version 1 of the PROXY protocol is a line, version 2 is binary (`HAProxy`'s proxy-protocol.txt, sections
//! 2.1 and 2.2). `NetScaler`'s Client IP header holds the client's IP and TCP headers (`HAProxy`'s
//! `conn_recv_netscaler_cip`).

use std::ops::RangeInclusive;

use super::parse_progress::{ParseProgress, ParseRejection};

/// Start of version 1.
const LINE: &[u8] = b"PROXY ";

/// Length of the longest accepted line, in bytes; the specification allows 107.
const LINE_LIMIT: usize = 512;

/// Start of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Number of bytes of version 2 between signature and addresses: version and command, family, length.
const FIXED: usize = 4;

/// Start of a Client IP header: a number that servers are configured with, here a small one.
const CLIENT_IP: u8 = 0;

/// Number of bytes of a Client IP header before the client's headers: the number and a length, and in the
/// later form a type and the length of the headers.
const CLIENT_IP_FIXED: [usize; 2] = [8, 12];

/// Lengths of an IP and a TCP header together, in bytes.
const HEADERS: RangeInclusive<usize> = 40..=120;

/// Number of TCP in IP headers.
const TCP: u8 = 6;

/// Skips the header at the start of `octets`.
pub fn header(octets: &[u8]) -> ParseProgress<()> {
    if octets.first() == Some(&CLIENT_IP) {
        return client_ip(octets);
    }
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

fn client_ip(octets: &[u8]) -> ParseProgress<()> {
    let never = ParseProgress::Never(ParseRejection::NotProxied);
    let (length, behind) = octets.split_at(octets.len().min(CLIENT_IP_FIXED[0]));
    let short = |at: usize, longest: u8| length.get(at).is_none_or(|octet| *octet <= longest);
    if !(4..7).all(|at| short(at, 0)) || !short(7, u8::MAX / 2) {
        return never;
    }
    let Some([kind, _, high, low]) = behind.first_chunk() else { return ParseProgress::More };
    let (fixed, headers) = match kind {
        0 => (CLIENT_IP_FIXED[1], usize::from(u16::from_be_bytes([*high, *low]))),
        _ => (CLIENT_IP_FIXED[0], usize::from(length.last().copied().unwrap_or_default())),
    };
    if !HEADERS.contains(&headers) {
        return never;
    }
    let Some(packet) = octets.get(fixed..fixed + headers) else { return ParseProgress::More };
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.get(9) == Some(&TCP) => {}
        Some(6) if packet.get(6) == Some(&TCP) => {}
        _ => return never,
    }
    ParseProgress::Done { value: (), consumed: fixed + headers }
}

/// True if `octets` begin with `wanted`, as far as they go.
fn begins(octets: &[u8], wanted: &[u8]) -> bool {
    let length = octets.len().min(wanted.len());
    octets.get(..length) == wanted.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv4 and TCP headers of a client.
    fn client_headers() -> Vec<u8> {
        let mut headers = vec![0; 40];
        (headers[0], headers[9], headers[32]) = (0x45, TCP, 0x50);
        headers
    }

    #[test]
    fn headers_of_both_versions_end_where_the_client_begins() {
        let binary =
            [SIGNATURE, b"\x21\x11\x00\x0c", &[192, 0, 2, 1, 192, 0, 2, 2, 0x9c, 0x40, 0, 80]].concat();
        for header in [
            &b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 80\r\n"[..],
            b"PROXY UNKNOWN\r\n",
            &binary,
            &[SIGNATURE, b"\x20\0\0\0"].concat(),
            &[&b"\0\0\0\x03\0\0\0\x28"[..], &client_headers()].concat(),
            &[&b"\0\0\0\x03\0\0\0\x34\0\0\0\x28"[..], &client_headers()].concat(),
        ] {
            let whole = [header, b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(super::header(&whole), ParseProgress::Done { value: (), consumed: header.len() });
            for cut in 0..header.len() {
                assert_eq!(super::header(&header[..cut]), ParseProgress::More, "{cut}");
            }
        }
        let endless = [LINE, &[b'x'; LINE_LIMIT]].concat();
        for octets in [
            &b"PROPFIND"[..],
            b"\r\n\r\nGET",
            b"\0\0\0\x08\x04",
            &[0; 12],
            &[SIGNATURE, b"\x11\0\0\0"].concat(),
            &endless,
        ] {
            assert_eq!(header(octets), ParseProgress::Never(ParseRejection::NotProxied));
        }
    }
}
