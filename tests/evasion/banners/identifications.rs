//! Identifications of SSH servers.

use super::{Manner, Row, row, text};

/// A row that is written whole.
macro_rules! whole {
    ($name:literal, $template:expr) => {
        row($name, Manner::Greets, |software| vec![text($template, software)])
    };
}

/// A row with these octets before an ordinary identification.
macro_rules! behind {
    ($name:literal, $before:expr) => {
        row($name, Manner::Greets, |software| {
            let before: Vec<u8> = $before.to_vec();
            vec![[before, text(b"SSH-2.0-@\r\n", software)].concat()]
        })
    };
}

/// Every row.
pub(crate) const IDENTIFICATIONS: &[Row] = &[
    whole!("plain", b"SSH-2.0-@\r\n"),
    whole!("LF only", b"SSH-2.0-@\n"),
    whole!("comment", b"SSH-2.0-@ a comment\r\n"),
    whole!("version 1.99", b"SSH-1.99-@\r\n"),
    whole!("version 2.1", b"SSH-2.1-@\r\n"),
    whole!("version 2.00", b"SSH-2.00-@\r\n"),
    whole!("small letters", b"ssh-2.0-@\r\n"),
    whole!("white space behind", b"SSH-2.0-@ \t \r\n"),
    whole!("white space before", b" SSH-2.0-@\r\n"),
    whole!("two CR", b"SSH-2.0-@\r\r\n"),
    whole!("LF CR", b"SSH-2.0-@\n\r"),
    whole!("NUL behind", b"SSH-2.0-@\0\r\n"),
    whole!("NUL and text behind", b"SSH-2.0-@\0OpenSSH_9.9\r\n"),
    whole!("TAB behind", b"SSH-2.0-@\tx\r\n"),
    whole!("text that is no ASCII behind", b"SSH-2.0-@ \xc3\xa9\xff\r\n"),
    whole!("CR before the software", b"SSH-2.0-\r@\r\n"),
    whole!("CR in the version", b"SSH-2\r.0-@\r\n"),
    row("CR in the software", Manner::Greets, |software| {
        let (start, rest) = software.split_at(4);
        vec![format!("SSH-2.0-{start}\r{rest}\r\n").into_bytes()]
    }),
    row("NUL in the software", Manner::Greets, |software| {
        let (start, rest) = software.split_at(4);
        vec![format!("SSH-2.0-{start}\0{rest}\r\n").into_bytes()]
    }),
    row("255 octets", Manner::Greets, |software| {
        vec![format!("SSH-2.0-{software} {}\r\n", "c".repeat(255 - 11 - software.len())).into_bytes()]
    }),
    row("300 octets", Manner::Greets, |software| {
        vec![format!("SSH-2.0-{software} {}\r\n", "c".repeat(300)).into_bytes()]
    }),
    row("2,000 octets", Manner::Greets, |software| {
        vec![format!("SSH-2.0-{software} {}\r\n", "c".repeat(2_000)).into_bytes()]
    }),
    row("cut within the software", Manner::Greets, |software| {
        let (start, rest) = software.split_at(4);
        vec![format!("SSH-2.0-{start}").into_bytes(), format!("{rest}\r\n").into_bytes()]
    }),
    row("cut within SSH-", Manner::Greets, |software| vec![b"SS".to_vec(), text(b"H-2.0-@\r\n", software)]),
    row("cut before the LF", Manner::Greets, |software| vec![text(b"SSH-2.0-@\r", software), b"\n".to_vec()]),
    row("octet by octet", Manner::Greets, |software| {
        text(b"SSH-2.0-@\r\n", software).iter().map(|octet| vec![*octet]).collect()
    }),
    row("a line, and then a pause", Manner::Greets, |software| {
        vec![b"hello\r\n".to_vec(), text(b"SSH-2.0-@\r\n", software)]
    }),
    behind!("behind a line", b"hello\r\n"),
    behind!("behind an empty line", b"\r\n"),
    behind!("behind empty lines", b"\n\n\r\n\n"),
    behind!("behind a lone CR", b"\r"),
    behind!("behind a line with CR in it", b"a\rb\r\n"),
    behind!("behind a line that ends in two CR", b"a\r\r\n"),
    behind!("behind 100 lines", b"a line\r\n".repeat(100)),
    behind!("behind 1,030 lines", b"l\r\n".repeat(1_030)),
    behind!("behind 80 KiB of lines", [b"l".repeat(78), b"\r\n".to_vec()].concat().repeat(1_024)),
    behind!("behind 200 KiB of lines", [b"l".repeat(198), b"\r\n".to_vec()].concat().repeat(1_024)),
    behind!("behind 300 KiB of lines", [b"l".repeat(298), b"\r\n".to_vec()].concat().repeat(1_024)),
    behind!("behind a control octet", b"\x01\r\n"),
    behind!("behind an escape sequence", b"\x1b[2Jhello\r\n"),
    behind!("behind DEL", b"\x7f\r\n"),
    behind!("behind telnet options", b"\xff\xfb\x01\r\n"),
    behind!("behind NUL", b"\0\r\n"),
    behind!("behind text that is no ASCII", b"gr\xc3\xbc\xc3\x9fe \xff\xfe\r\n"),
    behind!("behind VT and FF", b"\x0b\x0c\r\n"),
    behind!("behind an HTTP head", b"HTTP/1.1 200 OK\r\n\r\n"),
    behind!(
        "behind an HTTP head with fields",
        b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 0\r\n\r\n"
    ),
    behind!("behind an HTTP line", b"HTTP/1.1 200 OK\r\n"),
    behind!("behind an ICY line", b"ICY 200 OK\r\n"),
    behind!("behind an RTSP line", b"RTSP/1.0 200 OK\r\n"),
    behind!("behind a request", b"GET / HTTP/1.1\r\n\r\n"),
    behind!("behind a mail server's greeting", b"220 mail.example ESMTP\r\n"),
    behind!("behind a POP server's greeting", b"+OK ready\r\n"),
    behind!("behind a SOCKS 5 answer", b"\x05\x00\r\n"),
    behind!("behind a SOCKS 4 answer", b"\0\x5a\0\0\0\0\0\0\r\n"),
    behind!("behind a TLS record", b"\x16\x03\x01\x00\x05hello\n"),
    behind!("behind an HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    behind!("behind a line SSH", b"SSH\r\n"),
    behind!("behind a line in small letters", b"ssh-2.0-OpenSSH_9.9\r\n"),
    behind!("behind a line with SSH- in it", b"x SSH-2.0-OpenSSH_9.9\r\n"),
    behind!("behind a line of 255 octets", [b"l".repeat(253), b"\r\n".to_vec()].concat()),
    behind!("behind a line of 4,000 octets", [b"l".repeat(4_000), b"\r\n".to_vec()].concat()),
    behind!("behind a line of 9,000 octets", [b"l".repeat(9_000), b"\r\n".to_vec()].concat()),
    behind!("behind a line of 70,000 octets", [b"l".repeat(70_000), b"\r\n".to_vec()].concat()),
    behind!("behind 255 octets without a line end", b"l".repeat(255)),
    behind!("behind 256 octets without a line end", b"l".repeat(256)),
    behind!("behind 254 octets and CR", [b"l".repeat(254), b"\r".to_vec()].concat()),
    behind!("behind 510 octets without a line end", b"l".repeat(510)),
    behind!("behind 4,096 octets without a line end", b"l".repeat(4_096)),
    behind!("behind 8,192 octets without a line end", b"l".repeat(8_192)),
];
