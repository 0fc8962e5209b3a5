use proptest::prelude::*;

use super::*;

/// What real software says first, or the first example of the specification.
const SAMPLES: &[(&str, Side, &[u8])] = &[
    ("tls", Side::Client, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ("tls", Side::Server, b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03"),
    ("tls", Side::Server, b"\x15\x03\x03\x00\x02\x02\x28"),
    ("rfb", Side::Server, b"RFB 003.008\n"),
    ("rfb", Side::Client, b"RFB 003.008\n"),
    ("rdp", Side::Client, b"\x03\x00\x00\x2b\x26\xe0\x00\x00\x00\x00\x00Cookie: mstshash=user\r\n"),
    ("rdp", Side::Client, b"\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x0b\x00\x00\x00"),
    ("rdp", Side::Server, b"\x03\x00\x00\x13\x0e\xd0\x00\x00\x12\x34\x00\x02\x1f\x08\x00\x02\x00\x00\x00"),
    ("tpkt", Side::Client, b"\x03\x00\x00\x16\x11\xe0\x00\x00\x00\x01\x00\xc1\x02\x01\x00\xc2\x02\x01\x02"),
    ("smb", Side::Client, b"\x00\x00\x00\x45\xffSMBr\x00"),
    ("smb", Side::Server, b"\x00\x00\x00\xf8\xfeSMB\x40\x00"),
    ("mysql", Side::Server, b"\x4a\x00\x00\x00\x0a8.0.36-0ubuntu0.22.04.1\x00"),
    ("mysql", Side::Server, b"\x5b\x00\x00\x00\x0a5.5.5-10.11.6-MariaDB-0+deb12u1\x00"),
    ("mysql", Side::Server, b"\x45\x00\x00\x00\xff\x6a\x04Host '192.0.2.1' is not allowed"),
    ("postgresql", Side::Client, b"\x00\x00\x00\x08\x04\xd2\x16\x2f"),
    ("postgresql", Side::Client, b"\x00\x00\x00\x29\x00\x03\x00\x00user\x00postgres\x00"),
    ("redis", Side::Client, b"*1\r\n$4\r\nPING\r\n"),
    ("redis", Side::Client, b"PING\r\n"),
    ("redis", Side::Server, b"-DENIED Redis is running in protected mode"),
    ("memcached", Side::Client, b"version\r\n"),
    ("memcached", Side::Client, b"get key\r\n"),
    ("memcached", Side::Client, b"\x80\x0b\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
    ("memcached", Side::Server, b"VERSION 1.6.18\r\n"),
    ("amqp", Side::Client, b"AMQP\x00\x00\x09\x01"),
    ("amqp", Side::Server, b"\x01\x00\x00\x00\x00\x02\x07\x00\x0a\x00\x0a\x00\x09\x00\x00"),
    ("mqtt", Side::Client, b"\x10\x17\x00\x04MQTT\x04\x02\x00\x3c\x00\x0bmosq"),
    ("mqtt", Side::Client, b"\x10\x80\x02\x00\x06MQIsdp\x03\x02"),
    ("mqtt", Side::Server, b"\x20\x02\x00\x00"),
    ("bittorrent", Side::Client, b"\x13BitTorrent protocol\x00\x00\x00\x00\x00\x10\x00\x05"),
    ("dns", Side::Client, b"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example"),
    ("openvpn", Side::Client, b"\x00\x0e\x38\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x00\x00"),
    ("openvpn", Side::Client, b"\x00\x2a\x38\x01\x02\x03\x04\x05\x06\x07\x08\xaa\xbb\xcc"),
    ("openvpn", Side::Server, b"\x00\x1a\x40\x01\x02\x03\x04\x05\x06\x07\x08\x01\x00\x00\x00\x00"),
    ("socks", Side::Client, b"\x05\x02\x00\x02"),
    ("socks", Side::Client, b"\x04\x01\x00\x50\xc0\x00\x02\x01user\x00"),
    ("ldap", Side::Client, b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00"),
    ("ldap", Side::Client, b"\x30\x84\x00\x00\x00\x10\x02\x01\x01\x60\x84\x00\x00\x00\x07"),
    ("ldap", Side::Server, b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00"),
    ("kerberos", Side::Client, b"\x00\x00\x00\xc0\x6a\x81\xbd\x30\x81\xba\xa1\x03"),
    ("telnet", Side::Server, b"\xff\xfd\x18\xff\xfd\x20\xff\xfd\x23\xff\xfd\x27"),
    ("telnet", Side::Client, b"\xff\xfb\x1f\xff\xfb\x20"),
    ("http2", Side::Client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04"),
    ("http2", Side::Server, b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80"),
    ("rtsp", Side::Client, b"OPTIONS rtsp://192.0.2.1/stream RTSP/1.0\r\nCSeq: 1\r\n"),
    ("rtsp", Side::Client, b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n"),
    ("rtsp", Side::Server, b"RTSP/1.0 200 OK\r\n"),
    ("sip", Side::Client, b"REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/TCP 192.0.2.1\r\n"),
    ("sip", Side::Server, b"SIP/2.0 200 OK\r\n"),
    ("nats", Side::Server, b"INFO {\"server_id\":\"NA\",\"version\":\"2.9.10\"}\r\n"),
    ("nats", Side::Client, b"CONNECT {\"verbose\":false}\r\nPING\r\n"),
    ("irc", Side::Client, b"NICK someone\r\nUSER someone 0 * :Some One\r\n"),
    ("irc", Side::Client, b"PASS secret\r\nNICK someone\r\n"),
    ("irc", Side::Server, b":irc.example.org NOTICE * :*** Looking up your hostname...\r\n"),
    ("irc", Side::Server, b":irc.example.org 451 * :You have not registered\r\n"),
    ("xmpp", Side::Client, b"<?xml version='1.0'?><stream:stream to='example.org' xmlns='jabber:client'"),
    ("xmpp", Side::Client, b"<stream:stream xmlns='jabber:client'"),
    ("x11", Side::Client, b"l\x00\x0b\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
    ("cassandra", Side::Client, b"\x04\x00\x00\x00\x05\x00\x00\x00\x00"),
    (
        "mongodb",
        Side::Client,
        b"\x3a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xd4\x07\x00\x00\x00\x00\x00\x00admin",
    ),
    ("mssql", Side::Client, b"\x12\x01\x00\x2f\x00\x00\x01\x00\x00\x00\x1a\x00\x06"),
    (
        "sunrpc",
        Side::Client,
        b"\x80\x00\x00\x28\x12\x34\x56\x78\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01\x86\xa0",
    ),
    ("rsync", Side::Server, b"@RSYNCD: 31.0 sha512 sha256\n"),
    ("svn", Side::Server, b"( success ( 2 2 ( ) ( edit-pipeline"),
    ("git", Side::Client, b"0032git-upload-pack /project.git\x00host=example\x00"),
    ("adb", Side::Client, b"CNXN\x00\x00\x00\x01"),
    ("ajp", Side::Client, b"\x12\x34\x00\x01\x0a"),
    ("iec104", Side::Client, b"\x68\x04\x07\x00\x00\x00"),
    ("stomp", Side::Client, b"CONNECT\naccept-version:1.2\nhost:example\n\n\x00"),
    ("rmi", Side::Client, b"JRMI\x00\x02\x4b"),
    ("nntp", Side::Server, b"200 news.example.org InterNetNews NNRP server INN 2.7 ready\r\n"),
    ("modbus", Side::Client, b"\x00\x01\x00\x00\x00\x06\x01\x03\x00\x00\x00\x0a"),
];

/// What other software says first, and no row may take for its own.
const STRANGERS: &[(Side, &[u8])] = &[
    (Side::Client, b"SSH-2.0-OpenSSH_9.2p1\r\n"),
    (Side::Server, b"SSH-2.0-OpenSSH_9.2p1\r\n"),
    (Side::Client, b"GET / HTTP/1.1\r\nHost: example\r\n"),
    (Side::Client, b"get / http/1.0\r\n"),
    (Side::Client, b"OPTIONS * HTTP/1.1\r\n"),
    (Side::Client, b"PROPFIND / HTTP/1.1\r\n"),
    (Side::Client, b"CONNECT example.org:443 HTTP/1.1\r\n"),
    (Side::Server, b"HTTP/1.1 200 OK\r\n"),
    (Side::Server, b"220 mail.example.org ESMTP Postfix\r\n"),
    (Side::Server, b"+OK Dovecot ready.\r\n"),
    (Side::Server, b"-ERR too many connections\r\n"),
    (Side::Server, b"* OK IMAP4rev1 ready\r\n"),
    (Side::Client, b"EHLO client.example.org\r\n"),
    (Side::Client, b"USER anonymous\r\n"),
    (Side::Client, b"\x16\x03\x01\x00\x05\x02"),
    (Side::Client, b"\x05\x01\x7f"),
    (Side::Client, b"\x13Bit\x00"),
    (Side::Client, b"hello\r\n"),
    (Side::Server, b"login: "),
];

#[test]
fn what_software_says_first_has_its_name_however_it_is_cut() {
    for (wanted, from, octets) in SAMPLES {
        let wanted = OtherProtocol::named(wanted).unwrap();
        assert_eq!(settle(*from, octets), Some(wanted), "{from:?} {}", octets.escape_ascii());
        let mut told = false;
        for end in 0..=octets.len() {
            match name(*from, &octets[..end]) {
                ProtocolNaming::More => assert!(!told, "{wanted:?} at {end}"),
                ProtocolNaming::Named(name) => {
                    assert_eq!(name, wanted, "at {end}");
                    told = true;
                }
                ProtocolNaming::Unknown => panic!("{wanted:?} is unknown at {end}"),
            }
        }
        assert!(told, "{wanted:?} {from:?}");
    }
}

#[test]
fn each_row_and_side_has_a_sample() {
    for known in OtherProtocol::all() {
        assert_eq!(OtherProtocol::named(known.name()), Some(known), "a name is given once");
        assert!(SAMPLES.iter().any(|(name, ..)| *name == known.name()), "{known:?}");
    }
}

#[test]
fn no_row_begins_like_ssh() {
    for side in [Side::Client, Side::Server] {
        for octets in [&b"SSH-"[..], b"SSH-2.0-OpenSSH_9.9\r\n", b"SSH-1.99-x\r\n", b"SSH-\0\0\0\0"] {
            assert!(
                OtherProtocol::all().all(|known| known.fit(side, octets) == SignatureFit::No),
                "{side:?} {octets:?}"
            );
        }
    }
}

#[test]
fn strangers_are_unknown() {
    for (from, octets) in STRANGERS {
        assert_eq!(settle(*from, octets), None, "{}", octets.escape_ascii());
    }
}

#[test]
fn what_cannot_be_told_within_the_limit_is_unknown() {
    let endless = [&b"200 "[..], &[b'x'; 2 * FIRST_OCTETS]].concat();
    assert_eq!(name(Side::Server, &endless[..100]), ProtocolNaming::More);
    assert_eq!(name(Side::Server, &endless), ProtocolNaming::Unknown);
}

proptest! {
    #[test]
    fn more_octets_never_take_a_name_back(
        start in prop::sample::select(SAMPLES),
        kept in 0_usize..24,
        tail in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let (_, from, octets) = start;
        let octets = [&octets[..kept.min(octets.len())], &tail].concat();
        let mut told = ProtocolNaming::More;
        for end in 0..=octets.len() {
            let now = name(from, &octets[..end]);
            prop_assert!(told == ProtocolNaming::More || told == now, "{:?} then {:?}", told, now);
            told = now;
        }
        for known in OtherProtocol::all() {
            let mut before = SignatureFit::More;
            for end in 0..=octets.len() {
                let now = if known.is_told_by(from) { known.fit(from, &octets[..end]) } else { before };
                prop_assert!(before == SignatureFit::More || before == now, "{:?}", known);
                before = now;
            }
        }
    }
}
