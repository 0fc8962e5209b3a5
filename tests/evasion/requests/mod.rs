//! Crooked requests of a forbidden client, one row each, for `http_differential.rs`.
//!
//! What a server makes of a row is for its application to say: a row that nobody takes proves nothing.

/// A request that is bent in one way.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) name: &'static str,
    pub(crate) octets: fn() -> Vec<u8>,
}

/// The usual fields, and the field that matters, in a request that ends its connection.
const FIELDS: &[u8] = b"Host: a.example\r\nUser-Agent: sqlmap/1.7\r\nAccept: */*\r\n\r\n";

/// A row with this request line, and with what may stand before it.
macro_rules! line {
    ($name:literal, $line:expr) => {
        Request { name: $name, octets: || [$line.to_vec(), FIELDS.to_vec()].concat() }
    };
}

/// A row with these lines before the field.
macro_rules! behind {
    ($name:literal, $lines:expr) => {
        Request {
            name: $name,
            octets: || {
                let head = b"GET /x HTTP/1.1\r\nHost: a.example\r\n".to_vec();
                [head, $lines.to_vec(), b"User-Agent: sqlmap/1.7\r\n\r\n".to_vec()].concat()
            },
        }
    };
}

/// A row with this field (and its line end) for the one that matters.
macro_rules! field {
    ($name:literal, $field:expr) => {
        Request {
            name: $name,
            octets: || {
                let head = b"GET /x HTTP/1.1\r\nHost: a.example\r\n".to_vec();
                [head, $field.to_vec(), b"Accept: */*\r\n\r\n".to_vec()].concat()
            },
        }
    };
}

/// A row that is written out.
macro_rules! whole {
    ($name:literal, $octets:expr) => {
        Request { name: $name, octets: || $octets.to_vec() }
    };
}

fn many(octets: &[u8], count: usize, rest: &[u8]) -> Vec<u8> {
    [octets.repeat(count), rest.to_vec()].concat()
}

fn long(before: &[u8], count: usize, rest: &[u8]) -> Vec<u8> {
    [before.to_vec(), b"x".repeat(count), rest.to_vec()].concat()
}

/// Every row.
pub(crate) const REQUESTS: &[Request] = &[
    line!("plain", b"GET /x HTTP/1.1\r\n"),
    line!("version 1.0", b"GET /x HTTP/1.0\r\n"),
    line!("version 1.2", b"GET /x HTTP/1.2\r\n"),
    line!("version 1.10", b"GET /x HTTP/1.10\r\n"),
    line!("version 2.0", b"GET /x HTTP/2.0\r\n"),
    line!("version 0.9 by name", b"GET /x HTTP/0.9\r\n"),
    line!("version in small letters", b"GET /x http/1.1\r\n"),
    line!("version with zeros", b"GET /x HTTP/01.01\r\n"),
    line!("version with a space behind", b"GET /x HTTP/1.1 \r\n"),
    line!("version and a word", b"GET /x HTTP/1.1 x\r\n"),
    line!("version RTSP", b"GET /x RTSP/1.0\r\n"),
    line!("version ICE", b"SOURCE /x ICE/1.0\r\n"),
    line!("version without a slash", b"GET /x HTTP1.1\r\n"),
    line!("version cut in two behind a glued method", b"GET/x HTTP /1.1\r\n"),
    line!("no version", b"GET /x\r\n"),
    line!("target that ends like a version", b"GET /xHTTP/1.1\r\n"),
    line!("WebDAV method and target that ends like a version", b"PROPFIND /xHTTP/1.1\r\n"),
    line!("HTTP/2 preface with fields", b"PRI * HTTP/2.0\r\n"),
    line!("method in small letters", b"get /x HTTP/1.1\r\n"),
    line!("method POST without a length", b"POST /x HTTP/1.1\r\n"),
    line!("method OPTIONS of everything", b"OPTIONS * HTTP/1.1\r\n"),
    line!("method TRACE", b"TRACE /x HTTP/1.1\r\n"),
    line!("method CONNECT", b"CONNECT a.example:80 HTTP/1.1\r\n"),
    line!("method DELETE", b"DELETE /x HTTP/1.1\r\n"),
    line!("method M-SEARCH", b"M-SEARCH * HTTP/1.1\r\n"),
    line!("method nobody knows", b"FOOBAR /x HTTP/1.1\r\n"),
    line!("method with a digit", b"G3T /x HTTP/1.1\r\n"),
    line!("method in brackets", b"(GET) /x HTTP/1.1\r\n"),
    line!("method in quotes", b"\"GET /x HTTP/1.1\r\n"),
    line!("method with NUL", b"GE\0T /x HTTP/1.1\r\n"),
    line!("method with high octets", b"G\xcb\xd2T /x HTTP/1.1\r\n"),
    line!("method of 65 letters", many(b"M", 65, b" /x HTTP/1.1\r\n")),
    line!("method of 300 letters", many(b"M", 300, b" /x HTTP/1.1\r\n")),
    line!("method of 5,000 letters", many(b"M", 5_000, b" /x HTTP/1.1\r\n")),
    line!("method nobody knows and a target of 17,000 octets", long(b"FOO /", 17_000, b" HTTP/1.1\r\n")),
    line!("method nobody knows and a control octet in the target", b"FOO /\x01x HTTP/1.1\r\n"),
    line!("method nobody knows and DEL in the target", b"FOO /\x7fx HTTP/1.1\r\n"),
    line!("target of 7,000 octets", long(b"GET /", 7_000, b" HTTP/1.1\r\n")),
    line!("target of 60,000 octets", long(b"GET /", 60_000, b" HTTP/1.1\r\n")),
    line!("target with its server", b"GET http://a.example/x HTTP/1.1\r\n"),
    line!("target with another server", b"GET http://b.example/x HTTP/1.1\r\n"),
    line!("target with another scheme", b"GET ftp://a.example/x HTTP/1.1\r\n"),
    line!("target without a slash", b"GET x HTTP/1.1\r\n"),
    line!("target of two slashes", b"GET //x HTTP/1.1\r\n"),
    line!("target of a question mark", b"GET ?x HTTP/1.1\r\n"),
    line!("target with a space in it", b"GET /x y HTTP/1.1\r\n"),
    line!("target with TAB in it", b"GET /x\ty HTTP/1.1\r\n"),
    line!("target with NUL in it", b"GET /x\0y HTTP/1.1\r\n"),
    line!("target with a control octet in it", b"GET /\x01 HTTP/1.1\r\n"),
    line!("target with high octets in it", b"GET /\xff\xfe HTTP/1.1\r\n"),
    line!("target with a fragment", b"GET /x#y HTTP/1.1\r\n"),
    line!("target with a broken escape", b"GET /%zz HTTP/1.1\r\n"),
    line!("two spaces", b"GET  /x  HTTP/1.1\r\n"),
    line!("TAB between the words", b"GET\t/x\tHTTP/1.1\r\n"),
    line!("VT between the words", b"GET\x0b/x HTTP/1.1\r\n"),
    line!("FF between the words", b"GET\x0c/x\x0cHTTP/1.1\r\n"),
    line!("CR between the words", b"GET\r/x HTTP/1.1\r\n"),
    line!("0x1c between the words", b"GET\x1c/x\x1cHTTP/1.1\r\n"),
    line!("0x85 between the words", b"GET\x85/x HTTP/1.1\r\n"),
    line!("0xa0 between the words", b"GET\xa0/x\xa0HTTP/1.1\r\n"),
    line!("VT before the words", b"\x0bGET /x HTTP/1.1\r\n"),
    line!("behind an empty line", b"\r\nGET /x HTTP/1.1\r\n"),
    line!("behind LF", b"\nGET /x HTTP/1.1\r\n"),
    line!("behind CR CR LF", b"\r\r\nGET /x HTTP/1.1\r\n"),
    line!("behind a space", b" GET /x HTTP/1.1\r\n"),
    line!("behind NUL", b"\0GET /x HTTP/1.1\r\n"),
    line!("behind 260 octets of empty lines", many(b"\r\n", 130, b"GET /x HTTP/1.1\r\n")),
    line!("behind 2,000 octets of empty lines", many(b"\r\n", 1_000, b"GET /x HTTP/1.1\r\n")),
    line!("behind 300 spaces", many(b" ", 300, b"GET /x HTTP/1.1\r\n")),
    line!("line end LF", b"GET /x HTTP/1.1\n"),
    line!("line end CR", b"GET /x HTTP/1.1\r"),
    line!("line end CR CR LF", b"GET /x HTTP/1.1\r\r\n"),
    behind!("behind a field without a colon", b"X\r\n"),
    behind!("behind a field without a name", b": a\r\n"),
    behind!("behind a field with a space in its name", b"X Y: a\r\n"),
    behind!("behind a space before a colon", b"X : a\r\n"),
    behind!("behind a folded field", b"X: a\r\n b\r\n"),
    behind!("behind a line of white space", b"X: a\r\n \r\n"),
    behind!("behind NUL in a field", b"X: a\0b\r\n"),
    behind!("behind NUL in a name", b"X\0: a\r\n"),
    behind!("behind high octets in a field", b"X\xff: \xfe\r\n"),
    behind!("behind a name that is no token", b"X(): a\r\n"),
    behind!("behind a bare CR", b"X: a\r"),
    behind!("behind a CR in a field", b"X: a\rb\r\n"),
    behind!("behind LF CR", b"X: a\n\r"),
    behind!("behind a CR at the line's start", b"X: a\r\n\r"),
    behind!("behind a second Host", b"Host: b.example\r\n"),
    behind!("behind a second request line", b"GET / HTTP/1.1\r\n"),
    behind!("behind a wrong length", b"Content-Length: +0\r\n"),
    behind!("behind two lengths", b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
    behind!("behind an expectation", b"Expect: 100-continue\r\nContent-Length: 0\r\n"),
    behind!("behind an upgrade", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
    behind!("behind an upgrade to websockets", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    behind!("behind an allowed one", b"User-Agent: ok\r\n"),
    behind!("behind 95 fields", b"A: b\r\n".repeat(95)),
    behind!("behind 2,100 fields", b"A: b\r\n".repeat(2_100)),
    behind!("behind a field of 7,000 octets", long(b"X: ", 7_000, b"\r\n")),
    behind!("behind a field of 66,000 octets", long(b"X: ", 66_000, b"\r\n")),
    behind!("behind 70 KiB of fields", long(b"X: ", 1_019, b"\r\n").repeat(70)),
    field!("small name", b"user-agent: sqlmap/1.7\r\n"),
    field!("name with an underscore", b"User_Agent: sqlmap/1.7\r\n"),
    field!("name with a space behind", b"User-Agent : sqlmap/1.7\r\n"),
    field!("name with TAB behind", b"User-Agent\t: sqlmap/1.7\r\n"),
    field!("name with NUL behind", b"User-Agent\0: sqlmap/1.7\r\n"),
    field!("name behind a space", b" User-Agent: sqlmap/1.7\r\n"),
    field!("no space behind the colon", b"User-Agent:sqlmap/1.7\r\n"),
    field!("TAB behind the colon", b"User-Agent:\tsqlmap/1.7\r\n"),
    field!("5,000 spaces behind the colon", [b"User-Agent:".to_vec(), b" ".repeat(5_000), b"sqlmap/1.7\r\n".to_vec()].concat()),
    field!("VT behind the colon", b"User-Agent: \x0bsqlmap/1.7\r\n"),
    field!("FF behind the colon", b"User-Agent: \x0csqlmap/1.7\r\n"),
    field!("0x85 behind the colon", b"User-Agent: \x85sqlmap/1.7\r\n"),
    field!("0xa0 behind the colon", b"User-Agent: \xa0sqlmap/1.7\r\n"),
    field!("0x1f behind the colon", b"User-Agent: \x1fsqlmap/1.7\r\n"),
    field!("folded value", b"User-Agent:\r\n sqlmap/1.7\r\n"),
    field!("value folded by LF", b"User-Agent:\n\tsqlmap/1.7\r\n"),
    field!("value with NUL", b"User-Agent: sqlmap/1.7\0x\r\n"),
    field!("value with high octets", b"User-Agent: sqlmap/\xff\r\n"),
    field!("value with CR", b"User-Agent: sqlmap/1.7\rx\r\n"),
    field!("value of 7,000 octets", long(b"User-Agent: sqlmap/", 7_000, b"\r\n")),
    field!("line end LF of the field", b"User-Agent: sqlmap/1.7\n"),
    field!("line end CR CR LF of the field", b"User-Agent: sqlmap/1.7\r\r\n"),
    field!("twice", b"User-Agent: ok\r\nUser-Agent: sqlmap/1.7\r\n"),
    whole!("LF only", b"GET /x HTTP/1.1\nHost: a\nUser-Agent: sqlmap/1.7\n\n"),
    whole!("CR only", b"GET /x HTTP/1.1\rHost: a\rUser-Agent: sqlmap/1.7\r\r"),
    whole!("no Host", b"GET /x HTTP/1.1\r\nUser-Agent: sqlmap/1.7\r\n\r\n"),
    whole!("cut before the last LF", b"GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n\r"),
    whole!("cut behind the field", b"GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n"),
    whole!("cut within the field's line end", b"GET /x HTTP/1.0\r\nHost: a\r\nUser-Agent: sqlmap/1.7"),
    whole!("chunked trailer", b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nUser-Agent: sqlmap/1.7\r\n\r\n"),
    whole!("last line end LF LF", b"GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\n\n"),
    whole!("last line end with a space", b"GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n \r\n\r\n"),
    whole!("body behind it", b"POST /x HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\nContent-Length: 2\r\n\r\nok"),
];
