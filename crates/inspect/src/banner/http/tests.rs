use proptest::prelude::*;

use super::*;

fn request(octets: &[u8]) -> (ParsedHead<RequestHead<'_>>, usize) {
    match parse_request(octets) {
        ParseProgress::Done { value, consumed } => (value, consumed),
        other => panic!("{other:?}"),
    }
}

fn response(octets: &[u8]) -> (ParsedHead<ResponseHead<'_>>, usize) {
    match parse_response(octets) {
        ParseProgress::Done { value, consumed } => (value, consumed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_clean_request_is_read_without_remark() {
    let octets = b"GET /a?b HTTP/1.1\r\nHost: example\r\nX-A:  b c \r\n\r\nbody";
    let (read, consumed) = request(octets);
    assert_eq!(consumed, octets.len() - 4);
    assert_eq!(read.message.line, b"GET /a?b HTTP/1.1");
    assert_eq!(read.message.method, b"GET");
    assert_eq!(read.message.url, b"/a?b");
    assert_eq!(read.message.version, b"HTTP/1.1");
    assert_eq!(read.message.headers.first("HOST"), Some(&b"example"[..]));
    assert_eq!(read.message.headers.first("x-a"), Some(&b"b c"[..]));
    assert!(read.anomalies.is_empty());
}

#[test]
fn a_clean_response_is_read_without_remark() {
    let (read, _) = response(b"HTTP/1.0 404 Not Found\r\nServer: nginx\r\n\r\n");
    assert_eq!((read.message.status, read.message.reason), (404, &b"Not Found"[..]));
    assert_eq!(read.message.version, b"HTTP/1.0");
    assert_eq!(read.message.headers.first("server"), Some(&b"nginx"[..]));
    assert!(read.anomalies.is_empty());
    assert_eq!(response(b"HTTP/1.1 200\r\n\r\n").0.message.reason, b"");
    assert_eq!(response(b"HTTP/1.1 200 caf\xe9\r\n\r\n").0.message.reason, b"caf\xe9");
}

/// Bytes of a head, what must be noted, and a header that must be read all the same.
const ODD_REQUESTS: [(&[u8], Anomaly); 17] = [
    (b"GET / HTTP/1.1\r\nA: b\r\n c\r\nHost: h\r\n\r\n", Anomaly::FoldedHeader),
    (b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", Anomaly::SpaceBeforeColon),
    (b"GET / HTTP/1.1\r\nA: \0\r\nHost: h\r\n\r\n", Anomaly::NulOctet),
    (b"GET / HTTP/1.1\r\nA: b\rc\r\nHost: h\r\n\r\n", Anomaly::BareCarriageReturn),
    (b"GET / HTTP/1.1\r\nA: b\x01\r\nHost: h\r\n\r\n", Anomaly::ControlOctet),
    (b"GET / HTTP/1.1\nA: b\r\nHost: h\r\n\r\n", Anomaly::MixedLineEnds),
    (b"GET / HTTP/1.1\r\n Host: h\r\n\r\n", Anomaly::LeadingSpace),
    (b" GET / HTTP/1.1\r\nHost: h\r\n\r\n", Anomaly::LeadingSpace),
    (b"GET / HTTP/1.1\r\nnothing\r\nHost: h\r\n\r\n", Anomaly::HeaderWithoutColon),
    (b"GET / HTTP/1.1\r\n: x\r\nHost: h\r\n\r\n", Anomaly::HeaderNameInvalid),
    (b"G(T / HTTP/1.1\r\nHost: h\r\n\r\n", Anomaly::MethodInvalid),
    (b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", Anomaly::LineSpacing),
    (b"GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n", Anomaly::LineSpacing),
    (b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", Anomaly::SpaceInTarget),
    (b"GET / HTTP/2.7\r\nHost: h\r\n\r\n", Anomaly::VersionUnusual),
    (b"GET / http/1.1\r\nHost: h\r\n\r\n", Anomaly::VersionUnusual),
    (b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", Anomaly::HostConflict),
];

#[test]
fn odd_requests_are_read_and_noted() {
    for (octets, anomaly) in ODD_REQUESTS {
        let (read, consumed) = request(octets);
        let shown = octets.escape_ascii();
        assert!(read.anomalies.contains(anomaly), "{shown}: {:?}", read.anomalies);
        assert_eq!(read.anomalies.iter().count(), 1, "{shown}: {:?}", read.anomalies);
        assert_eq!(read.message.headers.first("host"), Some(&b"h"[..]), "{shown}");
        assert!(read.message.url.starts_with(b"/"), "{shown}");
        assert_eq!(consumed, octets.len(), "{shown}");
    }
}

#[test]
fn a_folded_value_is_kept_whole() {
    let (read, _) = response(b"HTTP/1.1 200 OK\r\nServer: Apa\r\n\tche\r\n /2\r\nB: c\r\n\r\n");
    assert_eq!(read.message.headers.first("server"), Some(&b"Apa\r\n\tche\r\n /2"[..]));
    assert_eq!(read.message.headers.first("b"), Some(&b"c"[..]));
}

#[test]
fn lf_alone_throughout_is_no_anomaly() {
    let (read, consumed) = request(b"GET / HTTP/1.0\nHost: h\n\nX");
    assert!(read.anomalies.is_empty());
    assert_eq!(consumed, 24);
}

#[test]
fn an_empty_line_may_hold_carriage_returns() {
    let octets = b"HTTP/1.1 200 OK\r\nServer: a\n\r\r\nbody";
    let (read, consumed) = response(octets);
    assert_eq!(read.message.headers.first("server"), Some(&b"a"[..]));
    assert_eq!(consumed, octets.len() - 4);
    assert!(read.anomalies.contains(Anomaly::BareCarriageReturn));
    assert!(matches!(parse_response(&octets[..octets.len() - 5]), ParseProgress::More));
}

#[test]
fn a_simple_request_is_whole_with_its_line() {
    let (read, consumed) = request(b"GET /index.html\r\nHost: ignored\r\n\r\n");
    assert_eq!((read.message.url, read.message.version, consumed), (&b"/index.html"[..], &b""[..], 17));
    assert!(read.anomalies.contains(Anomaly::VersionMissing));
    let (read, _) = request(b"GET /a HTTP\r\n");
    assert_eq!(read.message.url, b"/a HTTP");
}

#[test]
fn odd_responses_are_read_and_noted() {
    for (octets, anomaly) in [
        (&b"HTTP/1.1  200 OK\r\nServer: s\r\n\r\n"[..], Anomaly::LineSpacing),
        (b"ICY 200 OK\r\nServer: s\r\n\r\n", Anomaly::VersionUnusual),
        (b"HTTP/1.1 20\r\nServer: s\r\n\r\n", Anomaly::StatusInvalid),
        (b"HTTP/1.1 200 OK\r\nServer : s\r\n\r\n", Anomaly::SpaceBeforeColon),
    ] {
        let (read, _) = response(octets);
        assert!(read.anomalies.contains(anomaly), "{}: {:?}", octets.escape_ascii(), read.anomalies);
        assert_eq!(read.message.headers.first("server"), Some(&b"s"[..]));
    }
    assert_eq!(parse_response(b"HTTP/1.1 abc\r\n\r\n"), ParseProgress::Never(ParseRejection::NotAResponse));
    assert_eq!(parse_response(b"<html>"), ParseProgress::Never(ParseRejection::NotAResponse));
}

#[test]
fn other_protocols_are_refused() {
    assert_eq!(parse_request(b"PRI * HTTP/2.0\r\n\r\n"), ParseProgress::Never(ParseRejection::Http2Preface));
    assert_eq!(parse_request(&[b'\r'; LEADING_LIMIT]), ParseProgress::Never(ParseRejection::NotARequest));
}

#[test]
fn a_head_beyond_the_limit_is_read_as_far_as_the_limit_goes() {
    let mut octets = b"GET / HTTP/1.1\r\nHost: h\r\n".to_vec();
    while octets.len() < HEAD_LIMIT {
        octets.extend(b"Filler: 0123456789\r\n");
    }
    let (read, consumed) = request(&octets);
    assert!(read.anomalies.contains(Anomaly::HeadTooLong));
    assert!(read.anomalies.contains(Anomaly::TooManyHeaders));
    assert_eq!(read.message.headers.first("host"), Some(&b"h"[..]));
    assert!(read.message.headers.iter().count() > FIELD_LIMIT, "judged all the same");
    assert_eq!(consumed, HEAD_LIMIT);
}

#[test]
fn more_fields_than_usual_are_all_read() {
    let mut octets = b"HTTP/1.1 200 OK\r\n".to_vec();
    for _ in 0..USUAL_FIELDS + 1 {
        octets.extend(b"A: b\r\n");
    }
    octets.extend(b"Server: s\r\n\r\n");
    let (read, _) = response(&octets);
    assert_eq!(read.message.headers.first("server"), Some(&b"s"[..]));
    assert!(read.anomalies.is_empty(), "{:?}", read.anomalies);
}

proptest! {
    #[test]
    fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_request(&octets);
        let _ = parse_response(&octets);
        let _ = parse_request(&[b"GET / HTTP/1.1\r\n", octets.as_slice(), b"\r\n\r\n"].concat());
        let _ = parse_response(&[b"HTTP/1.1 200 OK\r\n", octets.as_slice(), b"\r\n\r\n"].concat());
    }

    #[test]
    fn every_prefix_says_more_or_the_same(
        line in "[A-Z]{1,5}[ \t]{1,2}/[a-z ]{0,9}( HTTP/1\\.[01])?\r?\n",
        fields in "([A-Za-z]{1,6} ?:[ -~\r\t]{0,9}\r?\n( [a-z]{0,4}\r?\n)?){0,4}",
        tail in "[ -~]{0,9}",
    ) {
        let whole = format!("{line}{fields}\r\n{tail}").into_bytes();
        let expected = parse_request(&whole);
        let consumed = match &expected {
            ParseProgress::Done { consumed, .. } => *consumed,
            _ => whole.len(),
        };
        for end in 0..whole.len() {
            let part = parse_request(&whole[..end]);
            if end < consumed {
                prop_assert_eq!(part, ParseProgress::More);
            } else {
                prop_assert_eq!(&part, &expected);
            }
        }
    }

    /// The second reading sees what httparse sees wherever httparse sees anything.
    #[test]
    fn both_readings_agree_on_clean_heads(
        url in "/[a-z?=&%0-9]{0,20}",
        fields in proptest::collection::vec(("[A-Za-z-]{1,8}", "[!-~]{0,6}"), 0..6),
    ) {
        let mut head = format!("GET {url} HTTP/1.1\r\n");
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        prop_assert_eq!(strict_request(head.as_bytes()), lenient::request(head.as_bytes()));
    }
}
