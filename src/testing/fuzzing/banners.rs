//! Fuzz targets for parsers of the application layer.

use super::FuzzChoices;
use crate::banner::disclosure::DisclosureLimits;
use crate::banner::framing::{BodyFraming, BodyReader, of_request, of_response};
use crate::banner::unread_protocols::{
    self as others, OtherBanner, OtherProtocol, ProtocolNaming, SignatureFit,
};
use crate::banner::{
    ParseProgress, ProtocolRecognition, Side, greeting as greetings, html_title, http as heads, kex_reply,
    kexinit, recognise, ssh as identifications,
};
use crate::event::{GreetingFacts, SshSide};
use crate::terms::Anomaly;

/// Asserts that `parse` of any prefix returns `More`, or the result for the whole.
fn holds_for_prefixes<'a, T: PartialEq + std::fmt::Debug>(
    octets: &'a [u8],
    cut: usize,
    parse: impl Fn(&'a [u8]) -> ParseProgress<T>,
) {
    let whole = parse(octets);
    if let ParseProgress::Done { consumed, .. } = &whole {
        assert!(*consumed <= octets.len(), "consumed more than there was");
        assert!(*consumed > 0, "consumed nothing");
        let (needed, _) = octets.split_at(*consumed);
        assert_eq!(parse(needed), whole, "what follows a message changes it");
    }
    let (part, _) = octets.split_at(cut.min(octets.len()));
    let early = parse(part);
    assert!(
        matches!(early, ParseProgress::More) || early == whole,
        "a prefix says {early:?}, the whole {whole:?}"
    );
}

/// Fuzzes SSH identifications, KEXINIT, the reply to a key exchange, and recognition.
pub fn ssh(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let from = if choices.octet() & 1 == 0 { Side::Server } else { Side::Client };
    let cut = usize::from(choices.word());
    let octets = choices.0;
    holds_for_prefixes(octets, cut, |octets| identifications::identify(from, octets));
    holds_for_prefixes(octets, cut, kexinit::parse);
    holds_for_prefixes(octets, cut, kex_reply::reply);
    recognition_is_final(from, octets, cut);
    let settled = identifications::settled(octets);
    assert!(settled <= octets.len(), "settled more than there was");
    if let Some(read) = identifications::identify(from, octets).done() {
        let facts = SshSide::from(&read.identification);
        assert!(facts.software_version.len() <= facts.banner.len(), "software is part of the banner");
    }
    if let Some(lists) = kexinit::parse(octets).done() {
        assert_eq!(lists.hassh_of(from).hash.len(), 32, "an MD5 in hexadecimal");
    }
}

/// Fuzzes greetings at any port.
pub fn greeting(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let (cut, port) = (usize::from(choices.word()), choices.word());
    let octets = choices.0;
    holds_for_prefixes(octets, cut, |octets| greetings::parse(octets, port));
    if let Some(banner) = greetings::parse(octets, port).done() {
        let facts = GreetingFacts::from(&banner);
        assert!(!facts.lines.is_empty() && facts.lines.len() == facts.texts.len(), "a text a line");
        assert!(banner.line().starts_with(banner.code()), "a line begins with its code");
    }
}

/// Fuzzes first bytes of protocols that are only named: a name must never change, whatever follows.
pub fn other(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let from = if choices.octet() % 2 == 0 { Side::Client } else { Side::Server };
    let cut = usize::from(choices.word());
    let octets = choices.0;
    let (part, _) = octets.split_at(cut.min(octets.len()));
    let (early, whole) = (others::name(from, part), others::name(from, octets));
    assert!(early == ProtocolNaming::More || early == whole, "{early:?} became {whole:?}");
    if let ProtocolNaming::Named(name) = whole {
        assert_eq!(others::settle(from, octets), Some(name), "what is named stays so at the end");
    }
    for name in OtherProtocol::all().filter(|name| name.is_told_by(from)) {
        let (early, whole) = (name.fit(from, part), name.fit(from, octets));
        assert!(early == SignatureFit::More || early == whole, "{name:?}: {early:?} became {whole:?}");
    }
    let banner = OtherBanner::settled(from, octets);
    assert!(banner.line().len() <= banner.first.len(), "a line is part of the first octets");
}

fn recognition_is_final(from: Side, octets: &[u8], cut: usize) {
    let (part, _) = octets.split_at(cut.min(octets.len()));
    let early = recognise(from, part);
    let whole = recognise(from, octets);
    assert!(early == ProtocolRecognition::More || early == whole, "{early:?} became {whole:?}");
}

/// Fuzzes HTTP heads of both sides, with their framing and titles.
pub fn http(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let cut = usize::from(choices.word());
    let octets = choices.0;
    holds_for_prefixes(octets, cut, heads::parse_request);
    holds_for_prefixes(octets, cut, heads::parse_response);
    recognition_is_final(Side::Client, octets, cut);
    recognition_is_final(Side::Server, octets, cut);
    if let Some(read) = heads::parse_request(octets).done() {
        let _ = of_request(&read.message);
        let facts = DisclosureLimits::default().request(&read.message);
        let told = facts.headers.len() + facts.left_out as usize;
        assert_eq!(told, read.message.headers.iter().count(), "every field is told or counted");
    }
    if let Some(read) = heads::parse_response(octets).done() {
        let _ = of_response(&read.message, Some(b"GET"));
        assert!(read.message.status < 1000, "a status of three digits");
        let _ = DisclosureLimits::default().response(&read.message);
    }
    let _ = html_title::title(octets);
}

/// Fuzzes body framing, cut in any way, against a simple decoder of chunks.
pub fn framing(data: &[u8]) {
    let mut choices = FuzzChoices(data);
    let kind = choices.octet();
    let framing = match kind & 3 {
        0 | 1 => BodyFraming::Chunked,
        2 => BodyFraming::Length(u64::from(kind >> 2)),
        _ => BodyFraming::UntilClose,
    };
    let pieces = usize::from(choices.octet()).max(1);
    let octets = choices.0;
    let whole = read_in_pieces(framing, octets, octets.len().max(1));
    assert_eq!(read_in_pieces(framing, octets, pieces), whole, "cuts change what is read");
    if let (BodyFraming::Chunked, Ok((content, consumed, true))) = (framing, &whole) {
        let (message, _) = octets.split_at(*consumed);
        assert_eq!(Some(content), plain_chunks(message).as_ref(), "the plain reading differs");
    }
}

type Body = (Vec<u8>, usize, bool);

fn read_in_pieces(framing: BodyFraming, octets: &[u8], pieces: usize) -> Result<Body, Anomaly> {
    let mut reader = BodyReader::new(framing);
    let (mut content, mut consumed) = (Vec::new(), 0);
    for piece in octets.chunks(pieces) {
        if reader.is_done() {
            break;
        }
        let advance = reader.read(piece, |run| content.extend_from_slice(run))?;
        consumed += advance.consumed;
        assert!(advance.done || advance.consumed == piece.len(), "octets were left out");
    }
    assert_eq!(reader.content_length(), content.len() as u64, "content is counted");
    Ok((content, consumed, reader.is_done()))
}

/// Decodes a whole chunked body in the simplest way.
fn plain_chunks(mut message: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let end = message.iter().position(|&octet| octet == b'\n')?;
        let (line, rest) = message.split_at(end + 1);
        let digits: String = line
            .iter()
            .take_while(|octet| octet.is_ascii_hexdigit())
            .map(|&octet| char::from(octet))
            .collect();
        let size = usize::from_str_radix(&digits, 16).ok()?;
        if size == 0 {
            return Some(content);
        }
        content.extend_from_slice(rest.get(..size)?);
        let rest = rest.get(size..)?;
        message = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n"))?;
    }
}
