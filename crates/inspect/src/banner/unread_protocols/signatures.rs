//! The table of signatures: one row for each protocol, with its source.
//!
//! Rows are tried in order; a more specific row comes before a vaguer one. Every signature ends within
//! [`FIRST_OCTETS`](super::FIRST_OCTETS).

use super::database_signatures::{
    cassandra, memcached_client, memcached_server, mongodb_client, mongodb_server, mssql, mysql, postgresql,
    redis_client, redis_server,
};
use crate::banner::first_bytes_cursor::{FirstBytesCursor, FirstBytesMiss, Look, require};
use crate::banner::tls::MAJOR_LIMIT;
use crate::terms::Side;

/// Takes the first bytes of one side, or fails with the reason.
pub(super) type Signature = fn(&mut FirstBytesCursor<'_>) -> Look;

/// The signatures of one protocol.
#[derive(Debug)]
pub(super) struct SignatureRow {
    pub(super) name: &'static str,
    client: Option<Signature>,
    server: Option<Signature>,
}

impl SignatureRow {
    const fn client(name: &'static str, client: Signature) -> Self {
        Self { name, client: Some(client), server: None }
    }

    const fn server(name: &'static str, server: Signature) -> Self {
        Self { name, client: None, server: Some(server) }
    }

    const fn both(name: &'static str, client: Signature, server: Signature) -> Self {
        Self { name, client: Some(client), server: Some(server) }
    }

    pub(super) const fn signature(&self, side: Side) -> Option<Signature> {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
    }
}

pub(super) const TABLE: &[SignatureRow] = &[
    SignatureRow::both("tls", tls_client, tls_server),
    SignatureRow::both("rfb", rfb, rfb),
    SignatureRow::both("rdp", rdp_client, rdp_server),
    SignatureRow::both("tpkt", tpkt, tpkt),
    SignatureRow::both("smb", smb, smb),
    SignatureRow::server("mysql", mysql),
    SignatureRow::client("postgresql", postgresql),
    SignatureRow::both("redis", redis_client, redis_server),
    SignatureRow::both("memcached", memcached_client, memcached_server),
    SignatureRow::both("amqp", amqp, amqp),
    SignatureRow::both("mqtt", mqtt_client, mqtt_server),
    SignatureRow::both("bittorrent", bittorrent, bittorrent),
    SignatureRow::client("dns", dns),
    SignatureRow::both("openvpn", openvpn_client, openvpn_server),
    SignatureRow::client("socks", socks),
    SignatureRow::both("ldap", ldap_client, ldap_server),
    SignatureRow::client("kerberos", kerberos),
    SignatureRow::both("telnet", telnet, telnet),
    SignatureRow::both("http2", http2_client, http2_server),
    SignatureRow::both("rtsp", rtsp_client, rtsp_server),
    SignatureRow::both("sip", sip_client, sip_server),
    SignatureRow::both("nats", nats_client, nats_server),
    SignatureRow::both("irc", irc_client, irc_server),
    SignatureRow::both("xmpp", xmpp, xmpp),
    SignatureRow::client("x11", x11),
    SignatureRow::client("cassandra", cassandra),
    SignatureRow::client("mssql", mssql),
    SignatureRow::client("sunrpc", sunrpc),
    SignatureRow::both("rsync", rsync, rsync),
    SignatureRow::server("svn", svn),
    SignatureRow::client("git", git),
    SignatureRow::both("adb", adb, adb),
    SignatureRow::client("ajp", ajp),
    SignatureRow::client("iec104", iec104),
    SignatureRow::client("stomp", stomp),
    SignatureRow::client("rmi", rmi),
    SignatureRow::server("nntp", nntp),
    // A protocol that begins with any bytes comes last.
    SignatureRow::client("modbus", modbus),
    SignatureRow::both("mongodb", mongodb_client, mongodb_server),
];

/// RFC 8446 section 5.1: a record of a handshake: a version that readers ignore, at most 2^14 + 2048 bytes,
/// and the type of the message in it. Empty records may precede it (OpenSSL skips 32), and so may warning
/// alerts (Go skips them).
fn tls_message(start: &mut FirstBytesCursor<'_>, kind: u8) -> Look {
    loop {
        let record = start.among(&[0x15, 0x16])?;
        start.within(0..=MAJOR_LIMIT)?;
        start.skip(1)?;
        if record == 0x15 {
            start.is(&[0, 2, 1])?;
            start.skip(1)?;
        } else if start.number(2, 0..=(1 << 14) + 2048)? > 0 {
            return start.is(&[kind]);
        }
    }
}

/// RFC 8446 section 4: a `ClientHello`.
fn tls_client(start: &mut FirstBytesCursor<'_>) -> Look {
    tls_message(start, 0x01)
}

/// RFC 8446 sections 4 and 6: a `ServerHello`, or an alert of two bytes.
fn tls_server(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| {
            start.is(&[0x15, 0x03])?;
            start.within(0..=4)?;
            start.is(&[0, 2])?;
            start.within(1..=2).map(|_| ())
        },
        |start| tls_message(start, 0x02),
    ])
}

/// RFC 6143 section 7.1.1: `RFB 003.008` and a line end, from both ends.
fn rfb(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(b"RFB ")?;
    start.digits(3)?;
    start.is(b".")?;
    start.digits(3)?;
    start.is(b"\n")
}

/// RFC 1006 section 6 and X.224 section 13.3: a TPKT, and the length and code of the TPDU in it.
fn tpdu(start: &mut FirstBytesCursor<'_>, codes: &[u8]) -> Look {
    start.is(&[0x03, 0x00])?;
    start.number(2, 7..=0xffff)?;
    start.within(2..=254)?;
    start.among(codes).map(|_| ())
}

/// MS-RDPBCGR section 2.2.1.1: a connection request with a cookie, a token or a negotiation request.
fn rdp_client(start: &mut FirstBytesCursor<'_>) -> Look {
    tpdu(start, &[0xe0])?;
    start.is(&[0, 0])?;
    start.skip(2)?;
    start.is(&[0])?;
    start.either(&[
        |start| start.is(b"Cookie: m"),
        |start| {
            start.is(&[0x01])?;
            start.skip(1)?;
            start.is(&[0x08, 0x00])
        },
    ])
}

/// MS-RDPBCGR section 2.2.1.2: a connection confirm with the answer of a negotiation.
fn rdp_server(start: &mut FirstBytesCursor<'_>) -> Look {
    tpdu(start, &[0xd0])?;
    start.skip(5)?;
    start.among(&[0x02, 0x03])?;
    start.skip(1)?;
    start.is(&[0x08, 0x00])
}

/// RFC 1006 section 6: a TPKT with any TPDU of class 0 (S7comm, MMS).
fn tpkt(start: &mut FirstBytesCursor<'_>) -> Look {
    tpdu(start, &[0xe0, 0xd0, 0xf0, 0x80, 0x70])
}

/// MS-SMB2 section 2.1: a direct TCP header of four bytes, then a protocol identifier; RFC 1002 section
/// 4.3.2 for a session request before it.
fn smb(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| {
            start.is(&[0])?;
            start.skip(3)?;
            start.among(&[0xff, 0xfe, 0xfd])?;
            start.is(b"SMB")
        },
        |start| start.is(&[0x81, 0, 0, 0x44, 0x20]),
    ])
}

/// AMQP 0-9-1 section 4.2.2 and AMQP 1.0 section 2.2: the protocol header, of a server where it refuses.
/// A server of 0-9-1 begins with the method `connection.start`.
fn amqp(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| {
            start.is(b"AMQP")?;
            start.within(0..=3).map(|_| ())
        },
        |start| {
            start.is(&[1, 0, 0])?;
            start.number(4, 12..=0xffff)?;
            start.is(&[0, 10, 0, 10, 0, 9])
        },
    ])
}

/// MQTT 3.1.1 and 5.0 section 3.1: CONNECT with the protocol's name.
fn mqtt_client(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0x10])?;
    // The remaining length: up to four bytes, the last one without its high bit.
    let mut octets = 1;
    while start.octet()? & 0x80 != 0 {
        octets += 1;
        require(octets <= 4)?;
    }
    start.any_of(&[b"\x00\x04MQTT", b"\x00\x06MQIsdp"])
}

/// MQTT section 3.2: CONNACK.
fn mqtt_server(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0x20])?;
    let length = start.within(2..=127)?;
    start.within(0..=1)?;
    if length == 2 { start.within(0..=5).map(|_| ()) } else { start.within(0..=0xa2).map(|_| ()) }
}

/// BEP 3: the handshake of a peer.
fn bittorrent(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(b"\x13BitTorrent protocol")
}

/// RFC 1035 sections 4.1.1 and 4.2.2: the length of a query, and its header with one question.
fn dns(start: &mut FirstBytesCursor<'_>) -> Look {
    start.number(2, 17..=600)?;
    start.skip(2)?;
    start.among(&[0x00, 0x01])?;
    start.among(&[0x00, 0x10, 0x20, 0x30])?;
    start.is(&[0, 1, 0, 0, 0, 0, 0])?;
    start.within(0..=2).map(|_| ())
}

/// `OpenVPN`'s wire protocol, sections "TCP" and "`P_CONTROL"`: the length of the packet, its opcode with key
/// 0, a session, and where nothing protects it an empty list of acknowledgements.
fn openvpn(start: &mut FirstBytesCursor<'_>, opcodes: &[u8]) -> Look {
    let length = start.number(2, 14..=600)?;
    start.among(opcodes)?;
    start.skip(8)?;
    if length == 14 { start.is(&[0, 0, 0, 0, 0]) } else { require(length >= 26) }
}

fn openvpn_client(start: &mut FirstBytesCursor<'_>) -> Look {
    openvpn(start, &[0x38, 0x50, 0x08])
}

fn openvpn_server(start: &mut FirstBytesCursor<'_>) -> Look {
    openvpn(start, &[0x40, 0x10])
}

/// RFC 1928 section 3 and the memo "SOCKS 4": methods that exist, or a command with an address.
fn socks(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| {
            start.is(&[0x05])?;
            let count = start.within(1..=10)?;
            (0..count).try_for_each(|_| start.within(0..=9).map(|_| ()))
        },
        |start| {
            start.is(&[0x04])?;
            start.within(1..=2)?;
            start.skip(6)?;
            start.run(0..=64, |octet| octet.is_ascii_graphic())?;
            start.is(&[0])
        },
    ])
}

/// RFC 4511 section 4.1.1: an `LDAPMessage` in BER, its number, and an operation.
fn ldap(start: &mut FirstBytesCursor<'_>, operations: &[u8]) -> Look {
    start.is(&[0x30])?;
    ber_length(start)?;
    start.is(&[0x02])?;
    let width = start.within(1..=4)?;
    start.skip(width.into())?;
    start.among(operations).map(|_| ())
}

/// Bind, unbind, search, extended.
fn ldap_client(start: &mut FirstBytesCursor<'_>) -> Look {
    ldap(start, &[0x60, 0x42, 0x63, 0x77])
}

/// The answers to these.
fn ldap_server(start: &mut FirstBytesCursor<'_>) -> Look {
    ldap(start, &[0x61, 0x64, 0x65, 0x78])
}

/// RFC 4120 sections 5.4.1 and 7.2.2: the length of a message, and an AS-REQ or TGS-REQ in BER.
fn kerberos(start: &mut FirstBytesCursor<'_>) -> Look {
    start.number(4, 40..=65_535)?;
    start.among(&[0x6a, 0x6c])?;
    start.among(&[0x81, 0x82])?;
    start.skip(1)?;
    start.either(&[
        |start| start.is(&[0x30]),
        |start| {
            start.skip(1)?;
            start.is(&[0x30])
        },
    ])
}

/// RFC 854: a command that negotiates an option of IANA's list.
fn telnet(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0xff])?;
    start.within(0xfb..=0xfe)?;
    let option = start.octet()?;
    require(matches!(option, 0..=49 | 138..=140))
}

/// RFC 9113 section 3.4: the connection preface.
fn http2_client(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
}

/// The same: a SETTINGS frame on stream 0, not an acknowledgement.
fn http2_server(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0, 0])?;
    let length = start.within(0..=120)?;
    require(length % 6 == 0)?;
    start.is(&[0x04, 0, 0, 0, 0, 0])
}

/// RFC 2326 section 6 and RFC 7826 section 5: a request for an `rtsp` address, or for `*` in its version.
fn rtsp_client(start: &mut FirstBytesCursor<'_>) -> Look {
    method(start)?;
    start.any_of(&[b"rtsp://", b"rtsps://", b"rtspu://", b"* RTSP/"])
}

fn rtsp_server(start: &mut FirstBytesCursor<'_>) -> Look {
    start.any_of(&[b"RTSP/1.", b"RTSP/2."])
}

/// RFC 3261 section 7: a request for a `sip` or `tel` address, or a status line.
fn sip_client(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| start.is(b"SIP/2.0 "),
        |start| {
            method(start)?;
            start.any_of(&[b"sip:", b"sips:", b"tel:"])
        },
    ])
}

fn sip_server(start: &mut FirstBytesCursor<'_>) -> Look {
    sip_client(start)
}

/// NATS client protocol: `INFO` of a server, `CONNECT` of a client, both with JSON.
fn nats_client(start: &mut FirstBytesCursor<'_>) -> Look {
    start.any_of(&[b"CONNECT {", b"connect {"])
}

fn nats_server(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(b"INFO {")
}

/// RFC 2812 section 3.1 and `IRCv3` capability negotiation: the registration of a client.
fn irc_client(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| start.any_of(&[b"NICK ", b"CAP LS", b"CAP REQ ", b"CAP END"]),
        |start| {
            start.is(b"PASS ")?;
            start.run(1..=64, |octet| octet.is_ascii_graphic())?;
            start.any_of(&[b"\r\nNICK ", b"\nNICK ", b"\r\nCAP ", b"\nCAP "])
        },
    ])
}

/// RFC 2812 section 2.3.1: a prefix and a numeric reply or notice, or a notice without.
fn irc_server(start: &mut FirstBytesCursor<'_>) -> Look {
    start.either(&[
        |start| start.any_of(&[b"NOTICE AUTH ", b"NOTICE * ", b"ERROR :Closing Link", b"ERROR :Trying to"]),
        |start| {
            start.is(b":")?;
            start.run(1..=63, |octet| octet.is_ascii_alphanumeric() || b".-_:".contains(&octet))?;
            start.is(b" ")?;
            start.either(&[
                |start| start.any_of(&[b"NOTICE ", b"CAP "]),
                |start| {
                    start.digits(3)?;
                    start.is(b" ")
                },
            ])
        },
    ])
}

/// RFC 6120 section 4.2: a stream header, perhaps behind an XML declaration.
fn xmpp(start: &mut FirstBytesCursor<'_>) -> Look {
    if start.clone().any_of(&[b"<?xml "]) != Err(FirstBytesMiss::Never) {
        start.is(b"<?xml ")?;
        start.run(1..=80, |octet| octet != b'>')?;
        start.is(b">")?;
        start.run(0..=8, |octet| octet.is_ascii_whitespace())?;
    }
    start.is(b"<stream:stream")
}

/// X Window System Protocol section 8: the byte order, and version 11.0.
fn x11(start: &mut FirstBytesCursor<'_>) -> Look {
    start.any_of(&[&[b'B', 0, 0, 11, 0, 0], &[b'l', 0, 11, 0, 0, 0]])
}

/// RFC 5531 sections 9 and 11: a last fragment with a call of version 2.
fn sunrpc(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0x80, 0])?;
    start.skip(6)?;
    start.is(&[0, 0, 0, 0, 0, 0, 0, 2])
}

/// rsync's clientserver.c: both ends begin with the version of the daemon's protocol.
fn rsync(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(b"@RSYNCD: ")
}

/// Subversion's `ra_svn/protocol`: a server's greeting.
fn svn(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(b"( success ( ")
}

/// gitprotocol-pack, "Git Transport": the length of a line in hexadecimal, and a service.
fn git(start: &mut FirstBytesCursor<'_>) -> Look {
    (0..4).try_for_each(|_| require(start.octet()?.is_ascii_hexdigit()))?;
    start.any_of(&[b"git-upload-pack ", b"git-receive-pack ", b"git-upload-archive "])
}

/// Android's adb/protocol.txt: a message that connects or asks for TLS.
fn adb(start: &mut FirstBytesCursor<'_>) -> Look {
    start.any_of(&[b"CNXN", b"STLS", b"AUTH\x01\x00\x00\x00"])
}

/// Apache's `AJPv13`: a packet of a web server, a forwarded request or a ping.
fn ajp(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0x12, 0x34])?;
    start.number(2, 1..=8192)?;
    start.among(&[0x02, 0x0a]).map(|_| ())
}

/// IEC 60870-5-104 section 5.3: STARTDT act.
fn iec104(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(&[0x68, 0x04, 0x07, 0, 0, 0])
}

/// STOMP 1.2, section "Connecting".
fn stomp(start: &mut FirstBytesCursor<'_>) -> Look {
    start.any_of(&[b"CONNECT\n", b"CONNECT\r\n", b"STOMP\n", b"STOMP\r\n"])
}

/// Java RMI wire protocol section 10.2: magic, version 2, stream or single operation.
fn rmi(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(b"JRMI\x00\x02")?;
    start.within(0x4b..=0x4d).map(|_| ())
}

/// RFC 3977 section 5.1: a greeting of code 200 or 201 that says so.
fn nntp(start: &mut FirstBytesCursor<'_>) -> Look {
    start.is(b"20")?;
    start.within(b'0'..=b'1')?;
    start.is(b" ")?;
    let line = start.rest().split(|octet| *octet == b'\n').next().unwrap_or_default();
    let ended = line.len() < start.rest().len();
    let known = [&b"NNTP"[..], b"InterNetNews", b"news server"];
    let says = known.iter().any(|word| line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)));
    match (says, ended) {
        (true, _) => Ok(()),
        (false, true) => Err(FirstBytesMiss::Never),
        (false, false) => Err(FirstBytesMiss::More),
    }
}

/// Modbus Messaging on TCP/IP section 3.1.3: a header whose protocol is 0, with a request to read or write.
fn modbus(start: &mut FirstBytesCursor<'_>) -> Look {
    start.skip(2)?;
    start.is(&[0, 0, 0, 6])?;
    start.skip(1)?;
    start.within(1..=6).map(|_| ())
}

/// A method in capitals and a space.
fn method(start: &mut FirstBytesCursor<'_>) -> Look {
    start.run(3..=16, |octet| octet.is_ascii_uppercase() || octet == b'_')?;
    start.is(b" ")
}

/// A definite length in BER, X.690 section 8.1.3.
fn ber_length(start: &mut FirstBytesCursor<'_>) -> Look {
    match start.octet()? {
        0..=0x7f => Ok(()),
        long @ 0x81..=0x84 => start.skip(usize::from(long & 0x7f)),
        _ => Err(FirstBytesMiss::Never),
    }
}
