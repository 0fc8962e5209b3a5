//! Hellos of TLS, made by hand: RFC 8446 sections 4.1 and 5.1.

/// A certificate of `openssl req -x509 -newkey ec` for `www.example`, in base64.
pub const CERTIFICATE: &str = "\
    MIIBmzCCAUGgAwIBAgIUYJwhdsL45qAxQIVgjyIqDE7NrY4wCgYIKoZIzj0EAwIwFjEUMBIGA1UEAwwLd3d3LmV4YW1wbGUw\
    IBcNMjYxMTIyMTEyMjEyWhgPMjEyNjEwMjkxMTIyMTJaMBYxFDASBgNVBAMMC3d3dy5leGFtcGxlMFkwEwYHKoZIzj0CAQYI\
    KoZIzj0DAQcDQgAEpeBeDPGQQK156u3FveAo3ZgL2PvfVEh651fytPSTvIgZ6ymNGNjt7/YDvrbwVxnBkfZYXufZ7HD5Dvs5\
    cSnNSaNrMGkwHQYDVR0OBBYEFHVV2H/PTmophzcLtXhvtK8kMlv5MB8GA1UdIwQYMBaAFHVV2H/PTmophzcLtXhvtK8kMlv5\
    MA8GA1UdEwEB/wQFMAMBAf8wFgYDVR0RBA8wDYILd3d3LmV4YW1wbGUwCgYIKoZIzj0EAwIDSAAwRQIgaEU04C/iwdhcEXqN\
    VODX32MMy6eWcqq8Tg07+G247ZwCIQC0NYpReP25/a2rQF+noeMQ921oah6qijNPneCEbkH7Mg==";
/// Its key, PKCS #8 in base64.
pub const KEY: &str = "\
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg4zC/Y42BevxMo35KOGWg0cCPGWQk16hcdaFx6NeJC1ehRANC\
    AASl4F4M8ZBArXnq7cW94CjdmAvY+99USHrnV/K09JO8iBnrKY0Y2O3v9gO+tvBXGcGR9lhe59nscPkO+zlxKc1J";

/// A `ClientHello` as a handshake message, that asks for a name and offers TLS 1.3 and an application
/// protocol; `padding` octets make it longer (RFC 7685).
pub fn client_hello(name: &str, padding: usize) -> Vec<u8> {
    let host = [&[0][..], &prefixed(name.as_bytes())].concat();
    let extensions = [
        extension(0, &prefixed(&host)),
        extension(10, &prefixed(&[0x11, 0xec, 0, 0x1d])),
        extension(13, &prefixed(&[4, 3, 8, 4])),
        extension(16, &prefixed(b"\x02h2")),
        extension(43, &[4, 3, 4, 3, 3]),
        extension(21, &vec![0; padding]),
    ]
    .concat();
    let ciphers = prefixed(&[0x13, 0x01, 0xc0, 0x2f]);
    let body = [&[3, 3], &[b'r'; 32][..], &[0], &ciphers, &[1, 0], &prefixed(&extensions)].concat();
    message(1, &body)
}

/// A `ServerHello` of TLS 1.2 as a handshake message, with a cipher suite and an application protocol.
pub fn server_hello(cipher: u16, protocol: &str) -> Vec<u8> {
    let [_, length] = u16::try_from(protocol.len()).unwrap_or(u16::MAX).to_be_bytes();
    let protocol = [&[length], protocol.as_bytes()].concat();
    let extensions = prefixed(&extension(16, &prefixed(&protocol)));
    let body = [&[3, 3], &[b'r'; 32][..], &[0], &cipher.to_be_bytes(), &[0], &extensions].concat();
    message(2, &body)
}

/// A chain of certificates as a handshake message.
pub fn certificates(chain: &[&[u8]]) -> Vec<u8> {
    let list: Vec<u8> = chain.iter().flat_map(|der| [&[0][..], &prefixed(der)].concat()).collect();
    message(11, &[&[0][..], &prefixed(&list)].concat())
}

/// A handshake message in records of at most `size` octets each.
pub fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[0x16, 3, 1][..], &prefixed(part)].concat()).collect()
}

/// An alert that ends the connection.
pub fn alert(description: u8) -> Vec<u8> {
    vec![0x15, 3, 3, 0, 2, 2, description]
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 0][..], &prefixed(body)].concat()
}

fn extension(number: u16, content: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &prefixed(content)].concat()
}

/// Octets behind their count as a number of two octets.
fn prefixed(octets: &[u8]) -> Vec<u8> {
    let length = u16::try_from(octets.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], octets].concat()
}
