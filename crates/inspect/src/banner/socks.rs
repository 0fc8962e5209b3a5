//! The handshake before the bytes that a SOCKS server relays: versions 4 and 4a (which have no RFC) and 5
//! (RFC 1928, with the passwords of RFC 1929).
//!
//! Only `CONNECT` is followed: after it, client and far server exchange their own bytes, including
//! banners.

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
    let mut cursor = SocksCursor { octets, at: 0 };
    let read = match from {
        Side::Client => cursor.client(),
        Side::Server => cursor.server(),
    };
    match read {
        Ok(()) => ParseProgress::Done { value: (), consumed: cursor.at },
        Err(SocksReadError::Short) => ParseProgress::More,
        Err(SocksReadError::Foreign) => ParseProgress::Never(ParseRejection::NotSocks),
    }
}

/// The reason why reading stopped.
enum SocksReadError {
    Short,
    Foreign,
}

type Outcome<T = ()> = Result<T, SocksReadError>;

struct SocksCursor<'a> {
    octets: &'a [u8],
    at: usize,
}

impl SocksCursor<'_> {
    fn client(&mut self) -> Outcome {
        match self.octet()? {
            4 => self.request_of_4(),
            5 => self.client_of_5(),
            _ => Err(SocksReadError::Foreign),
        }
    }

    fn request_of_4(&mut self) -> Outcome {
        self.expect(CONNECT)?;
        self.skip(2)?;
        let mut address = [0; 4];
        for octet in &mut address {
            *octet = self.octet()?;
        }
        self.name()?;
        // Version 4a: an impossible address means that a name follows the user's.
        if matches!(address, [0, 0, 0, host] if host != 0) { self.name() } else { Ok(()) }
    }

    fn client_of_5(&mut self) -> Outcome {
        let methods = usize::from(self.octet()?);
        if methods == 0 {
            return Err(SocksReadError::Foreign);
        }
        self.skip(methods)?;
        // Version 1 begins the name and password of RFC 1929, which a client sends only if the server has
        // chosen that method; the request follows behind it.
        let next = match self.octet()? {
            1 => {
                for _ in ["user", "password"] {
                    let length = usize::from(self.octet()?);
                    self.skip(length)?;
                }
                self.octet()?
            }
            other => other,
        };
        if next != 5 {
            return Err(SocksReadError::Foreign);
        }
        self.expect(CONNECT)?;
        self.address()
    }

    fn server(&mut self) -> Outcome {
        match self.octet()? {
            0 => {
                self.expect(GRANTED)?;
                self.skip(6)
            }
            5 => self.server_of_5(),
            _ => Err(SocksReadError::Foreign),
        }
    }

    fn server_of_5(&mut self) -> Outcome {
        match self.octet()? {
            NO_AUTHENTICATION => {}
            PASSWORD => {
                self.expect(1)?;
                self.expect(0)?;
            }
            _ => return Err(SocksReadError::Foreign),
        }
        self.expect(5)?;
        self.expect(0)?;
        self.address()
    }

    /// Skips a reserved byte, the kind of an address, the address and a port.
    fn address(&mut self) -> Outcome {
        self.expect(0)?;
        let length = match self.octet()? {
            1 => 4,
            3 => usize::from(self.octet()?),
            4 => 16,
            _ => return Err(SocksReadError::Foreign),
        };
        self.skip(length + 2)
    }

    fn octet(&mut self) -> Outcome<u8> {
        let octet = *self.octets.get(self.at).ok_or(SocksReadError::Short)?;
        self.at += 1;
        Ok(octet)
    }

    fn expect(&mut self, wanted: u8) -> Outcome {
        if self.octet()? == wanted { Ok(()) } else { Err(SocksReadError::Foreign) }
    }

    fn skip(&mut self, count: usize) -> Outcome {
        self.at += count;
        if self.at <= self.octets.len() { Ok(()) } else { Err(SocksReadError::Short) }
    }

    /// Skips a name that ends with NUL.
    fn name(&mut self) -> Outcome {
        for _ in 0..=NAME_LIMIT {
            if self.octet()? == 0 {
                return Ok(());
            }
        }
        Err(SocksReadError::Foreign)
    }
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
