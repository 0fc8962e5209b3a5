//! The handshake before the bytes that a SOCKS server relays: versions 4 and 4a (which have no RFC) and 5
//! (RFC 1928, with the passwords of RFC 1929).
//!
//! Only `CONNECT` is followed: after it, client and far server exchange their own bytes, including
//! banners.

use super::first_bytes_cursor::{FirstBytesCursor, FirstBytesMiss, Look};
use super::parse_progress::{ParseProgress, ParseRejection};
use crate::terms::Side;

/// Methods of authentication, RFC 1928 section 3.
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;

/// The command, and the server's reply that it was executed.
const CONNECT: u8 = 1;
const GRANTED: u8 = 0x5a;

/// Length of the longest name that ends with NUL, in bytes: version 4 has no limit, some servers read 1,000.
const NAME_LIMIT: usize = 1024;

/// Skips the handshake of one side. `octets` begin at the start of its stream.
pub fn handshake(from: Side, octets: &[u8]) -> ParseProgress<()> {
    let mut start = FirstBytesCursor::new(octets);
    let read = match from {
        Side::Client => client(&mut start),
        Side::Server => server(&mut start),
    };
    match read {
        Ok(()) => ParseProgress::Done { value: (), consumed: octets.len() - start.rest().len() },
        Err(FirstBytesMiss::More) => ParseProgress::More,
        Err(FirstBytesMiss::Never) => ParseProgress::Never(ParseRejection::NotSocks),
    }
}

fn client(start: &mut FirstBytesCursor<'_>) -> Look {
    match start.among(&[4, 5])? {
        4 => request_of_4(start),
        _ => client_of_5(start),
    }
}

fn request_of_4(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[CONNECT])?;
    start.skip(2)?;
    let address = start.number(4, 0..=u32::MAX)?;
    name(start)?;
    // Version 4a: an impossible address means that a name follows the user's.
    if (1..=0xff).contains(&address) { name(start) } else { Ok(()) }
}

fn client_of_5(start: &mut FirstBytesCursor<'_>) -> Look {
    let methods = start.within(1..=u8::MAX)?;
    start.skip(methods.into())?;
    // Version 1 begins the name and password of RFC 1929, which a client sends only if the server has
    // chosen that method; the request follows behind it.
    if start.among(&[1, 5])? == 1 {
        for _ in ["user", "password"] {
            let length = start.octet()?;
            start.skip(length.into())?;
        }
        start.is(&[5])?;
    }
    start.is(&[CONNECT])?;
    address(start)
}

fn server(start: &mut FirstBytesCursor<'_>) -> Look {
    match start.among(&[0, 5])? {
        0 => {
            start.is(&[GRANTED])?;
            start.skip(6)
        }
        _ => server_of_5(start),
    }
}

fn server_of_5(start: &mut FirstBytesCursor<'_>) -> Look {
    if start.among(&[NO_AUTHENTICATION, PASSWORD])? == PASSWORD {
        start.is(&[1, 0])?;
    }
    start.is(&[5, 0])?;
    address(start)
}

/// Skips a reserved byte, the kind of an address, the address and a port.
fn address(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0])?;
    let length = match start.among(&[1, 3, 4])? {
        1 => 4,
        3 => start.octet()?.into(),
        _ => 16,
    };
    start.skip(length + 2)
}

/// Skips a name that ends with NUL.
fn name(start: &mut FirstBytesCursor<'_>) -> Look {
    start.run(0..=NAME_LIMIT, |octet| octet != 0)?;
    start.skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREIGN: ParseProgress<()> = ParseProgress::Never(ParseRejection::NotSocks);

    #[test]
    fn every_handshake_ends_where_relayed_octets_begin() {
        for (from, octets) in [
            (Side::Client, &b"\x04\x01\x00\x50\xc0\x00\x02\x01user\0"[..]),
            (Side::Client, b"\x04\x01\x00\x50\0\0\0\x01user\0host.example\0"),
            (Side::Client, b"\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"),
            (Side::Client, b"\x05\x02\x00\x02\x01\x01u\x02pw\x05\x01\x00\x03\x04host\x00\x16"),
            (Side::Client, b"\x05\x01\x00\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50"),
            (Side::Server, b"\x00\x5a\0\0\0\0\0\0"),
            (Side::Server, b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0"),
            (Side::Server, b"\x05\x02\x01\x00\x05\x00\x00\x03\x01h\0\0"),
        ] {
            let relayed = [octets, b"SSH-2.0-x\r\n"].concat();
            let done = ParseProgress::Done { value: (), consumed: octets.len() };
            assert_eq!(handshake(from, &relayed), done, "{octets:?}");
            for cut in 0..octets.len() {
                assert_eq!(handshake(from, &octets[..cut]), ParseProgress::More, "{octets:?} {cut}");
            }
        }
    }

    #[test]
    fn other_octets_and_refusals_are_no_handshake() {
        let endless = [b"\x04\x01\x00\x50\xc0\x00\x02\x01".as_slice(), &[b'u'; 1100]].concat();
        for (from, octets) in [
            (Side::Client, &b"GET / HTTP/1.1"[..]),
            (Side::Client, b"\x16\x03\x01"),
            (Side::Client, b"\x05\x00"),
            (Side::Client, b"\x05\x01\x00\x05\x03"),
            (Side::Client, &endless),
            (Side::Server, b"\x05\xff"),
            (Side::Server, b"\x00\x5b\0\0\0\0\0\0"),
            (Side::Server, b"\x05\x00\x05\x01"),
        ] {
            assert_eq!(handshake(from, octets), FOREIGN, "{octets:?}");
        }
    }
}
