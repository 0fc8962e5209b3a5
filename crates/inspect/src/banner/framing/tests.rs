use proptest::prelude::*;

use super::*;
use crate::banner::http;

fn request_framing(fields: &str) -> FramingResult {
    let head = format!("POST / HTTP/1.1\r\n{fields}\r\n");
    of_request(&http::parse_request(head.as_bytes()).done().unwrap().message)
}

fn response_framing(status: &str, fields: &str, method: &str) -> FramingResult {
    let head = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
    let read = http::parse_response(head.as_bytes()).done().unwrap();
    of_response(&read.message, Some(method.as_bytes()))
}

const fn fair(framing: BodyFraming) -> FramingResult {
    FramingResult { framing, hostile: None }
}

const fn hostile(framing: BodyFraming, reason: Anomaly) -> FramingResult {
    FramingResult { framing, hostile: Some(reason) }
}

#[test]
fn requests_are_framed_by_their_fields() {
    for (fields, expected) in [
        ("", fair(BodyFraming::Length(0))),
        ("Content-Length: 5\r\n", fair(BodyFraming::Length(5))),
        ("content-length: 5, 5\r\nContent-Length: 5\r\n", fair(BodyFraming::Length(5))),
        ("Transfer-Encoding: Chunked\r\n", fair(BodyFraming::Chunked)),
        ("Transfer-Encoding: gzip, chunked\r\n", fair(BodyFraming::Chunked)),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", fair(BodyFraming::Chunked)),
        ("Transfer-Encoding: identity\r\nContent-Length: 3\r\n", fair(BodyFraming::Length(3))),
    ] {
        assert_eq!(request_framing(fields), expected, "{fields}");
    }
}

#[test]
fn hostile_framing_is_named() {
    use Anomaly as H;
    for (fields, expected) in [
        (
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            hostile(BodyFraming::Length(5), H::ContentLengthConflict),
        ),
        ("Content-Length: 5, 6\r\n", hostile(BodyFraming::Length(5), H::ContentLengthConflict)),
        ("Content-Length: +5\r\n", hostile(BodyFraming::Length(0), H::ContentLengthInvalid)),
        ("Content-Length: -5\r\n", hostile(BodyFraming::Length(0), H::ContentLengthInvalid)),
        ("Content-Length: 5 5\r\n", hostile(BodyFraming::Length(0), H::ContentLengthInvalid)),
        ("Content-Length: 0x5\r\n", hostile(BodyFraming::Length(0), H::ContentLengthInvalid)),
        ("Content-Length:\r\n", hostile(BodyFraming::Length(0), H::ContentLengthInvalid)),
        (
            "Content-Length: 9223372036854775808\r\n",
            hostile(BodyFraming::Length(0), H::ContentLengthOverflow),
        ),
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            hostile(BodyFraming::Chunked, H::LengthAndChunked),
        ),
        (
            "Transfer-Encoding: chunked, chunked\r\n",
            hostile(BodyFraming::Chunked, H::TransferEncodingInvalid),
        ),
        ("Transfer-Encoding: chunked, gzip\r\n", hostile(BodyFraming::Chunked, H::TransferEncodingInvalid)),
        ("Transfer-Encoding: xchunked\r\n", hostile(BodyFraming::Chunked, H::TransferEncodingInvalid)),
        ("Transfer-Encoding: \"chunked\"\r\n", hostile(BodyFraming::Chunked, H::TransferEncodingInvalid)),
        ("Transfer-Encoding: chunked;q=1\r\n", hostile(BodyFraming::Chunked, H::TransferEncodingInvalid)),
        ("Transfer-Encoding: gzip\r\n", hostile(BodyFraming::Length(0), H::TransferEncodingUnknown)),
        ("Transfer-Encoding:\r\n chunked\r\n", fair(BodyFraming::Chunked)),
        ("Transfer-Encoding: gzip,\r\n chunked\r\n", hostile(BodyFraming::Chunked, H::FoldedFraming)),
        ("Content-Length: 1\r\n 0\r\n", hostile(BodyFraming::Length(0), H::FoldedFraming)),
    ] {
        assert_eq!(request_framing(fields), expected, "{fields}");
    }
}

#[test]
fn responses_are_framed_by_status_and_method_first() {
    let length = "Content-Length: 9\r\n";
    for (status, fields, method, expected) in [
        ("200 OK", length, "GET", BodyFraming::Length(9)),
        ("200 OK", "", "GET", BodyFraming::UntilClose),
        ("200 OK", "Transfer-Encoding: chunked\r\n", "GET", BodyFraming::Chunked),
        ("200 OK", "Transfer-Encoding: gzip\r\n", "GET", BodyFraming::UntilClose),
        ("200 OK", length, "HEAD", BodyFraming::Length(0)),
        ("204 No Content", length, "GET", BodyFraming::Length(0)),
        ("304 Not Modified", length, "GET", BodyFraming::Length(0)),
        ("100 Continue", length, "POST", BodyFraming::Length(0)),
        ("101 Switching Protocols", length, "GET", BodyFraming::Upgrade),
        ("200 OK", "Content-Length: 0\r\n", "CONNECT", BodyFraming::Tunnel),
        ("204 No Content", "", "connect", BodyFraming::Tunnel),
        ("403 Forbidden", length, "CONNECT", BodyFraming::Length(9)),
    ] {
        assert_eq!(response_framing(status, fields, method), fair(expected), "{status} {method}");
    }
    let ordinary = hostile(BodyFraming::Tunnel, Anomaly::FramingLost);
    assert_eq!(response_framing("200 OK", length, "CONNECT"), ordinary);
    assert!(is_interim(100) && is_interim(103) && !is_interim(101) && !is_interim(200));
}

#[test]
fn persistence_follows_version_and_connection() {
    for (version, connection, expected) in [
        ("HTTP/1.1", "", true),
        ("HTTP/1.1", "Connection: Close\r\n", false),
        ("HTTP/1.1", "Connection: te, close\r\n", false),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", true),
    ] {
        let head = format!("{version} 200 OK\r\n{connection}\r\n");
        let read = http::parse_response(head.as_bytes()).done().unwrap();
        assert_eq!(is_persistent(read.message.version, &read.message.headers), expected, "{head}");
    }
}

/// Reads `input` cut at `cuts`; the content, the bytes consumed and whether the message ended.
fn read(framing: BodyFraming, input: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize, bool), Anomaly> {
    let mut reader = BodyReader::new(framing);
    let (mut content, mut consumed) = (Vec::new(), 0);
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    ends.push(input.len());
    ends.sort_unstable();
    for end in ends {
        if end > consumed && !reader.is_done() {
            let advance = reader.read(&input[consumed..end], |octets| content.extend_from_slice(octets))?;
            assert!(advance.done || consumed + advance.consumed == end);
            consumed += advance.consumed;
        }
    }
    assert_eq!(reader.content_length(), content.len() as u64);
    Ok((content, consumed, reader.is_done()))
}

#[test]
fn chunks_with_extensions_and_trailers_are_decoded() {
    let input = b"5\r\nhello\r\n006;a=b;c=\"d\"\r\n world\r\n0\r\nX: y\r\nZ: \r\n\r\nHTTP/1.1 ";
    let (content, consumed, done) = read(BodyFraming::Chunked, input, &[]).unwrap();
    assert_eq!(content, b"hello world");
    assert_eq!(consumed, input.len() - 9);
    assert!(done);
    assert_eq!(read(BodyFraming::Chunked, b"3 \nabc\n0\n\nrest", &[]), Ok((b"abc".to_vec(), 10, true)));
}

#[test]
fn hostile_chunks_are_named() {
    for (input, expected) in [
        ("\r\n", Anomaly::ChunkSizeInvalid),
        ("-1\r\n", Anomaly::ChunkSizeInvalid),
        ("+1\r\n", Anomaly::ChunkSizeInvalid),
        (" 1\r\n", Anomaly::ChunkSizeInvalid),
        ("0x1\r\n", Anomaly::ChunkSizeInvalid),
        ("1_0\r\n", Anomaly::ChunkSizeInvalid),
        ("fffffffffffffffff\r\n", Anomaly::ChunkSizeHuge),
        ("10000000001\r\n", Anomaly::ChunkSizeHuge),
        ("1\rX", Anomaly::ChunkLineEnd),
        ("1;a\rX", Anomaly::ChunkLineEnd),
        ("1\r\nab\r\n", Anomaly::ChunkUnterminated),
        ("1\r\na\rb", Anomaly::ChunkUnterminated),
        ("0\r\n\rX", Anomaly::ChunkLineEnd),
    ] {
        assert_eq!(read(BodyFraming::Chunked, input.as_bytes(), &[]), Err(expected), "{input:.40}");
    }
}

#[test]
fn what_is_longer_than_anybody_sends_is_named_once_and_gone_over() {
    let long = format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(EXTENSION_LIMIT as usize));
    let trailer = format!("1\r\nx\r\n0\r\n{}\r\n\r\n", "a".repeat(TRAILER_LIMIT as usize + 1));
    for (input, expected) in [(long, Anomaly::ExtensionTooLong), (trailer, Anomaly::TrailerTooLong)] {
        for size in [1, 100, input.len()] {
            let mut reader = BodyReader::new(BodyFraming::Chunked);
            let advances = input.as_bytes().chunks(size).map(|piece| reader.read(piece, |_| ()).unwrap());
            let odd: Vec<Anomaly> = advances.filter_map(|advance| advance.odd).collect();
            assert_eq!(odd, [expected]);
            assert!(reader.is_done() && reader.content_length() == 1);
        }
    }
}

#[test]
fn content_can_be_skipped_but_framing_cannot() {
    let mut reader = BodyReader::new(BodyFraming::Chunked);
    assert_eq!(reader.skip(10), 0);
    reader.read(b"a\r\n12", |_| ()).unwrap();
    assert_eq!(reader.skip(100), 8);
    assert_eq!(reader.skip(100), 0);
    assert!(reader.read(b"\r\n0\r\n\r\n", |_| ()).unwrap().done);
    let mut length = BodyReader::new(BodyFraming::Length(7));
    assert_eq!((length.skip(100), length.is_done()), (7, true));
    let endless = BodyReader::new(BodyFraming::UntilClose);
    assert!(endless.is_whole_at_end() && !endless.is_done());
}

#[test]
fn a_body_buffer_keeps_the_beginning() {
    let mut buffer = BodyBuffer::new(4);
    buffer.push(b"abc");
    buffer.push(b"def");
    assert!(buffer.is_full());
    assert_eq!(buffer.as_slice(), b"abcd");
}

/// A whole chunked body decoded in the plainest way, to compare with.
fn reference(mut input: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let line = input.iter().position(|&octet| octet == b'\n')?;
        let text = std::str::from_utf8(&input[..line]).ok()?;
        let digits = text.split(';').next()?.trim_end();
        let size = usize::from_str_radix(digits, 16).ok()?;
        input = &input[line + 1..];
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(input.get(..size)?);
        input = input.get(size..)?;
        input = input.strip_prefix(b"\r\n").or_else(|| input.strip_prefix(b"\n"))?;
    }
}

proptest! {
    #[test]
    fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..200), cuts in proptest::collection::vec(any::<usize>(), 0..4)) {
        for framing in [BodyFraming::Chunked, BodyFraming::Length(100), BodyFraming::UntilClose] {
            let _ = read(framing, &octets, &cuts);
        }
        let _ = read(BodyFraming::Chunked, &[b"5;", octets.as_slice()].concat(), &cuts);
    }

    #[test]
    fn chunks_agree_with_the_reference_however_they_are_cut(
        chunks in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 1..40), "(;[a-z=]{0,5})?", any::<bool>()), 0..6),
        trailer in "([A-Z]: [a-z]{0,4}\r\n){0,2}",
        tail in proptest::collection::vec(any::<u8>(), 0..20),
        cuts in proptest::collection::vec(any::<usize>(), 0..8),
    ) {
        let mut input = Vec::new();
        for (data, extension, bare) in &chunks {
            let end = if *bare && extension.is_empty() { "\n" } else { "\r\n" };
            input.extend(format!("{:x}{extension}{end}", data.len()).bytes());
            input.extend(data);
            input.extend(end.bytes());
        }
        input.extend(format!("0\r\n{trailer}\r\n").bytes());
        let length = input.len();
        input.extend(&tail);
        let (content, consumed, done) = read(BodyFraming::Chunked, &input, &cuts).unwrap();
        prop_assert_eq!(Some(content), reference(&input));
        prop_assert_eq!((consumed, done), (length, true));
    }

    #[test]
    fn cuts_never_change_what_is_read(
        octets in "[0-3a;\r\n ]{0,40}",
        cuts in proptest::collection::vec(any::<usize>(), 0..8),
    ) {
        let whole = read(BodyFraming::Chunked, octets.as_bytes(), &[]);
        prop_assert_eq!(read(BodyFraming::Chunked, octets.as_bytes(), &cuts), whole);
    }

    #[test]
    fn a_length_takes_just_that(length in 0_u64..60, octets in proptest::collection::vec(any::<u8>(), 0..60), cuts in proptest::collection::vec(any::<usize>(), 0..4)) {
        let (content, consumed, done) = read(BodyFraming::Length(length), &octets, &cuts).unwrap();
        let expected = octets.len().min(usize::try_from(length).unwrap());
        prop_assert_eq!(content, &octets[..expected]);
        prop_assert_eq!((consumed, done), (expected, octets.len() as u64 >= length));
    }
}
