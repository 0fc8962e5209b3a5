//! Responses of HTTP servers.

use super::{Manner, Row, row, text};

/// A row that is written whole.
macro_rules! whole {
    ($name:literal, $template:expr) => {
        row($name, Manner::Answers, |software| vec![text($template, software)])
    };
}

/// A row with these lines between the status line and the field.
macro_rules! behind {
    ($name:literal, $before:expr) => {
        row($name, Manner::Answers, |software| {
            let before: Vec<u8> = $before.to_vec();
            let rest = text(b"Server: @\r\nContent-Length: 2\r\n\r\nok", software);
            vec![[b"HTTP/1.1 200 OK\r\n".to_vec(), before, rest].concat()]
        })
    };
}

/// A row with this status line.
macro_rules! status {
    ($name:literal, $line:expr) => {
        row($name, Manner::Answers, |software| {
            vec![[$line.to_vec(), text(b"Server: @\r\nContent-Length: 2\r\n\r\nok", software)].concat()]
        })
    };
}

/// Every row.
pub(crate) const RESPONSES: &[Row] = &[
    status!("plain", b"HTTP/1.1 200 OK\r\n"),
    status!("version 1.0", b"HTTP/1.0 200 OK\r\n"),
    status!("no reason", b"HTTP/1.1 200\r\n"),
    status!("two spaces", b"HTTP/1.1  200 OK\r\n"),
    status!("TAB in the status line", b"HTTP/1.1\t200\tOK\r\n"),
    status!("version 1.10", b"HTTP/1.10 200 OK\r\n"),
    status!("version 2", b"HTTP/2 200 OK\r\n"),
    status!("version 2.0", b"HTTP/2.0 200 OK\r\n"),
    status!("version 0.9", b"HTTP/0.9 200 OK\r\n"),
    status!("version 3", b"HTTP/3 200 OK\r\n"),
    status!("no version", b"HTTP 200 OK\r\n"),
    status!("small letters", b"http/1.1 200 OK\r\n"),
    status!("RTSP", b"RTSP/1.0 200 OK\r\n"),
    status!("ICY", b"ICY 200 OK\r\n"),
    status!("status +200", b"HTTP/1.1 +200 OK\r\n"),
    status!("status 0200", b"HTTP/1.1 0200 OK\r\n"),
    status!("status 20", b"HTTP/1.1 20 OK\r\n"),
    status!("status 999", b"HTTP/1.1 999 Odd\r\n"),
    status!("status 000", b"HTTP/1.1 000 Odd\r\n"),
    status!("status 404", b"HTTP/1.1 404 Not Found\r\n"),
    status!("status 500", b"HTTP/1.1 500 No\r\n"),
    status!("NUL in the reason", b"HTTP/1.1 200 O\0K\r\n"),
    status!("octets that are no ASCII in the reason", b"HTTP/1.1 200 \xff\xfe\r\n"),
    status!("LF behind the status line", b"HTTP/1.1 200 OK\n"),
    status!("CR CR LF behind the status line", b"HTTP/1.1 200 OK\r\r\n"),
    status!("behind an empty line", b"\r\nHTTP/1.1 200 OK\r\n"),
    status!("behind LF", b"\nHTTP/1.1 200 OK\r\n"),
    status!("behind a space", b" HTTP/1.1 200 OK\r\n"),
    status!("behind 300 spaces", [b" ".repeat(300), b"HTTP/1.1 200 OK\r\n".to_vec()].concat()),
    status!("behind 300 empty lines", [b"\r\n".repeat(300), b"HTTP/1.1 200 OK\r\n".to_vec()].concat()),
    status!("behind junk", b"junk\r\nHTTP/1.1 200 OK\r\n"),
    status!("behind NUL", b"\0HTTP/1.1 200 OK\r\n"),
    status!("behind 100", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"),
    status!("behind 103", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n"),
    status!("behind ten 102", [b"HTTP/1.1 102 On\r\n\r\n".repeat(10), b"HTTP/1.1 200 OK\r\n".to_vec()].concat()),
    status!("interim answer", b"HTTP/1.1 100 Continue\r\n"),
    status!("early hints", b"HTTP/1.1 103 Early Hints\r\n"),
    status!("status 199", b"HTTP/1.1 199 Odd\r\n"),
    status!("switching protocols", b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n"),
    whole!(
        "early hints before an answer without it",
        b"HTTP/1.1 103 Early Hints\r\nServer: @\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    ),
    whole!("LF only", b"HTTP/1.1 200 OK\nServer: @\nContent-Length: 2\n\nok"),
    whole!("small name", b"HTTP/1.1 200 OK\r\nserver: @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("large name", b"HTTP/1.1 200 OK\r\nSERVER: @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("no space behind the colon", b"HTTP/1.1 200 OK\r\nServer:@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("TAB behind the colon", b"HTTP/1.1 200 OK\r\nServer:\t@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("VT behind the colon", b"HTTP/1.1 200 OK\r\nServer:\x0b@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("FF behind the colon", b"HTTP/1.1 200 OK\r\nServer: \x0c@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("CR behind the colon", b"HTTP/1.1 200 OK\r\nServer:\r@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("0x85 behind the colon", b"HTTP/1.1 200 OK\r\nServer: \x85@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("0xa0 behind the colon", b"HTTP/1.1 200 OK\r\nServer: \xa0@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("0x1f behind the colon", b"HTTP/1.1 200 OK\r\nServer: \x1f@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("NUL behind the colon", b"HTTP/1.1 200 OK\r\nServer: \0@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("space before the colon", b"HTTP/1.1 200 OK\r\nServer : @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("TAB before the colon", b"HTTP/1.1 200 OK\r\nServer\t: @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("NUL before the colon", b"HTTP/1.1 200 OK\r\nServer\0: @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("space before the first name", b"HTTP/1.1 200 OK\r\n Server: @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("space before the name", b"HTTP/1.1 200 OK\r\nX: a\r\n Server: @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("folded", b"HTTP/1.1 200 OK\r\nServer:\r\n @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("folded by LF and TAB", b"HTTP/1.1 200 OK\r\nServer:\n\t@\r\nContent-Length: 2\r\n\r\nok"),
    whole!("folded twice", b"HTTP/1.1 200 OK\r\nServer:\r\n \r\n @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("value with NUL behind", b"HTTP/1.1 200 OK\r\nServer: @\0x\r\nContent-Length: 2\r\n\r\nok"),
    whole!("value with CR behind", b"HTTP/1.1 200 OK\r\nServer: @\rx\r\nContent-Length: 2\r\n\r\nok"),
    whole!("second of two", b"HTTP/1.1 200 OK\r\nServer: ok\r\nServer: @\r\nContent-Length: 2\r\n\r\nok"),
    whole!("first of two", b"HTTP/1.1 200 OK\r\nServer: @\r\nServer: ok\r\nContent-Length: 2\r\n\r\nok"),
    whole!("behind the other fields", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: @\r\n\r\nok"),
    whole!("trailer", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Server\r\n\r\n2\r\nok\r\n0\r\nServer: @\r\n\r\n"),
    whole!("chunked body", b"HTTP/1.1 200 OK\r\nServer: @\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    whole!("both lengths", b"HTTP/1.1 200 OK\r\nServer: @\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    whole!("status 204", b"HTTP/1.1 204 No Content\r\nServer: @\r\n\r\n"),
    whole!("status 304", b"HTTP/1.1 304 Not Modified\r\nServer: @\r\n\r\n"),
    whole!("status 302", b"HTTP/1.1 302 Found\r\nLocation: /x\r\nServer: @\r\nContent-Length: 0\r\n\r\n"),
    whole!("head within the body of a message without version", b"Server: @\r\n\r\nok"),
    behind!("behind a bare CR", b"X: a\r"),
    behind!("behind a field that ends in CR CR LF", b"X: a\r\r\n"),
    behind!("behind a field with CR in it", b"X: a\rb\r\n"),
    behind!("behind a line without a colon", b"junk\r\n"),
    behind!("behind a field without a name", b": junk\r\n"),
    behind!("behind NUL in a field", b"X: a\0b\r\n"),
    behind!("behind NUL in a name", b"X\0: a\r\n"),
    behind!("behind a name with a space in it", b"X Y: a\r\n"),
    behind!("behind a name that is no token", b"X(): a\r\n"),
    behind!("behind octets that are no ASCII", b"X\xff: \xfe\r\n"),
    behind!("behind a folded line before all fields", b" folded\r\n"),
    behind!("behind a second status line", b"HTTP/1.1 404 No\r\n"),
    behind!("behind a line of white space", b"X: a\r\n \r\n"),
    behind!("behind LF CR", b"X: a\n\r"),
    behind!("behind a CR at the line's start", b"X: a\r\n\r"),
    behind!("behind 99 fields", b"A: b\r\n".repeat(99)),
    behind!("behind 1,000 fields", b"A: b\r\n".repeat(1_000)),
    behind!("behind 2,100 fields", b"A: b\r\n".repeat(2_100)),
    behind!("behind a field of 5,000 octets", [b"X: ".to_vec(), b"x".repeat(5_000), b"\r\n".to_vec()].concat()),
    behind!("behind a field of 20,000 octets", [b"X: ".to_vec(), b"x".repeat(20_000), b"\r\n".to_vec()].concat()),
    behind!("behind a field of 66,000 octets", [b"X: ".to_vec(), b"x".repeat(66_000), b"\r\n".to_vec()].concat()),
    behind!("behind 70 KiB of fields", [b"X: ".to_vec(), b"x".repeat(1_019), b"\r\n".to_vec()].concat().repeat(70)),
    behind!("behind 250 KiB of fields", [b"X: ".to_vec(), b"x".repeat(1_019), b"\r\n".to_vec()].concat().repeat(250)),
    row("field without a line end", Manner::Answers, |software| {
        vec![text(b"HTTP/1.1 200 OK\r\nServer: @", software)]
    }),
    row("head cut behind the field", Manner::Answers, |software| {
        vec![text(b"HTTP/1.1 200 OK\r\nServer: @\r\n", software)]
    }),
    row("head cut behind the field, and nothing more", Manner::Stays, |software| {
        vec![text(b"HTTP/1.1 200 OK\r\nServer: @\r\n", software)]
    }),
    row("head cut before its last line end, and nothing more", Manner::Stays, |software| {
        vec![text(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: @\r\n\r", software)]
    }),
    row("octet by octet", Manner::Answers, |software| {
        let whole = text(b"HTTP/1.1 200 OK\r\nServer: @\r\n\r\n", software);
        whole.iter().map(|octet| vec![*octet]).collect()
    }),
    row("cut within the field", Manner::Answers, |software| {
        let (start, rest) = software.split_at(4);
        let start = format!("HTTP/1.1 200 OK\r\nServer: {start}").into_bytes();
        vec![start, format!("{rest}\r\nContent-Length: 2\r\n\r\nok").into_bytes()]
    }),
    row("cut within the status line", Manner::Answers, |software| {
        vec![b"HT".to_vec(), text(b"TP/1.1 200 OK\r\nServer: @\r\n\r\n", software)]
    }),
    row("before the request", Manner::Greets, |software| {
        vec![text(b"HTTP/1.1 200 OK\r\nServer: @\r\nContent-Length: 2\r\n\r\nok", software)]
    }),
    row("before the request, behind a space", Manner::Greets, |software| {
        vec![text(b" HTTP/1.1 200 OK\r\nServer: @\r\nContent-Length: 2\r\n\r\nok", software)]
    }),
    row("before the request, behind an empty line", Manner::Greets, |software| {
        vec![text(b"\r\nHTTP/1.1 200 OK\r\nServer: @\r\nContent-Length: 2\r\n\r\nok", software)]
    }),
    row("before the request, behind a line", Manner::Greets, |software| {
        vec![text(b"220 hello\r\nHTTP/1.1 200 OK\r\nServer: @\r\nContent-Length: 2\r\n\r\nok", software)]
    }),
    row("before the request, RTSP", Manner::Greets, |software| {
        vec![text(b"RTSP/1.0 200 OK\r\nServer: @\r\nContent-Length: 2\r\n\r\nok", software)]
    }),
];
