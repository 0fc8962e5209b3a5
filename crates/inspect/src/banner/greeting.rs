//! Greetings of protocols whose server speaks first: the first reply, of one or more lines.

use memchr::memchr;

use super::parse_progress::{ParseProgress, ParseRejection};
use crate::terms::{GreetingDialect, GreetingProtocol};

/// Limits of a reply, in bytes and lines; the start of a longer one is the greeting. RFC 5321 section
/// 4.5.3.1.5 allows 512 bytes a line.
const REPLY_LIMIT: usize = 16 << 10;
const REPLY_LINES: usize = 100;

/// Length of the longest first line, in bytes.
pub const LINE_LIMIT: usize = 4 << 10;

/// Number of digits of a reply code.
const CODE: usize = 3;

/// A server's first reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreetingBanner<'a> {
    /// The protocol that greets like this.
    pub greeting: GreetingProtocol,
    /// The whole reply without its last line end.
    pub octets: &'a [u8],
}

impl<'a> GreetingBanner<'a> {
    /// The lines of the reply, without their ends; at least one.
    pub fn lines(&self) -> ReplyLines<'a> {
        ReplyLines { rest: Some(self.octets) }
    }

    /// The first line.
    pub fn line(&self) -> &'a [u8] {
        self.lines().next().unwrap_or_default()
    }

    /// The code at the start of the first line: `220`, `+OK`, `* OK`.
    pub fn code(&self) -> &'a [u8] {
        let line = self.line();
        line.get(..opening(self.greeting.dialect(), line)).unwrap_or_default()
    }

    /// The text of a line after its code; the whole line if it has none.
    pub fn text(&self, line: &'a [u8]) -> &'a [u8] {
        let code = self.code();
        let Some(behind) = line.strip_prefix(code) else { return line.trim_ascii() };
        match behind.split_first() {
            None => b"",
            Some((separator, text)) if !separator.is_ascii_alphanumeric() => text.trim_ascii(),
            Some((octet, _))
                if self.greeting.dialect() == GreetingDialect::Code && !octet.is_ascii_digit() =>
            {
                behind.trim_ascii()
            }
            Some(_) => line.trim_ascii(),
        }
    }

    /// True if the server is ready to serve.
    pub fn is_welcome(&self) -> bool {
        match self.greeting.dialect() {
            GreetingDialect::Code => self.code().first() == Some(&b'2'),
            GreetingDialect::Status => self.code() == b"+OK",
            GreetingDialect::Untagged => !self.code().eq_ignore_ascii_case(b"* BYE"),
        }
    }
}

/// Lines of a reply.
#[derive(Debug, Clone)]
pub struct ReplyLines<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for ReplyLines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let (line, rest) = match memchr(b'\n', rest) {
            Some(end) => (rest.get(..end).unwrap_or_default(), rest.get(end + 1..)),
            None => (rest, None),
        };
        self.rest = rest;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// Parses the first reply of a server at `port`.
pub fn parse(octets: &[u8], port: u16) -> ParseProgress<GreetingBanner<'_>> {
    let Some(end) = memchr(b'\n', octets) else {
        // A line without its end is worth waiting for only while some greeting can still begin like it.
        let possible =
            GreetingProtocol::all().any(|greeting| begins(greeting, octets) != GreetingComparison::Otherwise);
        return match possible && octets.len() < LINE_LIMIT {
            true => ParseProgress::More,
            false => ParseProgress::Never(ParseRejection::NotAGreeting),
        };
    };
    let line = octets.get(..end).unwrap_or_default();
    let Some(first) =
        GreetingProtocol::all().find(|greeting| begins(*greeting, line) == GreetingComparison::Thus)
    else {
        return ParseProgress::Never(ParseRejection::NotAGreeting);
    };
    let consumed = match first.dialect() {
        GreetingDialect::Code => match end_of_reply(octets, line) {
            Some(consumed) => consumed,
            None => return ParseProgress::More,
        },
        GreetingDialect::Status | GreetingDialect::Untagged => end + 1,
    };
    let reply = octets.get(..consumed).unwrap_or_default();
    let reply = reply.strip_suffix(b"\n").unwrap_or(reply);
    let reply = reply.strip_suffix(b"\r").unwrap_or(reply);
    let greeting = told_apart(first, reply, port);
    ParseProgress::Done { value: GreetingBanner { greeting, octets: reply }, consumed }
}

/// Returns the known part of a reply whose end never comes, if its first line starts one.
pub fn unfinished(octets: &[u8], port: u16) -> Option<GreetingBanner<'_>> {
    let line = octets.split(|octet| *octet == b'\n').next().unwrap_or_default();
    let first =
        GreetingProtocol::all().find(|greeting| begins(*greeting, line) == GreetingComparison::Thus)?;
    let octets = octets.trim_ascii_end();
    Some(GreetingBanner { greeting: told_apart(first, octets, port), octets })
}

/// Result of comparing a line with a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GreetingComparison {
    Thus,
    /// Too short to decide.
    Perhaps,
    Otherwise,
}

fn begins(greeting: GreetingProtocol, line: &[u8]) -> GreetingComparison {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut told = GreetingComparison::Otherwise;
    for opening in greeting.openings() {
        let opening = opening.as_bytes();
        let common = line.len().min(opening.len());
        let same = line.get(..common).zip(opening.get(..common));
        if !same.is_some_and(|(line, opening)| line.eq_ignore_ascii_case(opening)) {
            continue;
        }
        if common < opening.len() {
            told = GreetingComparison::Perhaps;
            continue;
        }
        // The opening must be a whole word: `2200` does not begin with the code 220. Clients take any other
        // byte behind a code (Python's `smtplib` and `ftplib`), and white space behind a word.
        let is_code = greeting.dialect() == GreetingDialect::Code;
        let ends = |octet: &u8| if is_code { !octet.is_ascii_digit() } else { is_separator(octet) };
        if line.get(common).is_none_or(ends) {
            return GreetingComparison::Thus;
        }
    }
    told
}

/// True for white space and control characters.
const fn is_separator(octet: &u8) -> bool {
    *octet <= b' '
}

/// Number of bytes of a line's code.
fn opening(dialect: GreetingDialect, line: &[u8]) -> usize {
    let word = |from: usize| {
        let rest = line.get(from..).unwrap_or_default();
        from + rest.iter().position(is_separator).unwrap_or(rest.len())
    };
    match dialect {
        GreetingDialect::Code => CODE.min(line.len()),
        GreetingDialect::Status => word(0),
        GreetingDialect::Untagged => word(2),
    }
}

/// Returns the end of a reply whose first line is `first`. It ends after the line with the same code and
/// without a hyphen, or at the length limit. RFC 959 allows any lines between.
pub fn end_of_reply(octets: &[u8], first: &[u8]) -> Option<usize> {
    let code = first.get(..CODE).unwrap_or_default();
    let mut at = 0;
    for _ in 0..REPLY_LINES {
        let rest = octets.get(at..REPLY_LIMIT.min(octets.len())).unwrap_or_default();
        let Some(end) = memchr(b'\n', rest) else {
            return (octets.len() >= REPLY_LIMIT).then_some(REPLY_LIMIT);
        };
        let line = rest.get(..end).unwrap_or_default();
        at += end + 1;
        if line.strip_prefix(code).is_some_and(|behind| behind.first() != Some(&b'-')) {
            return Some(at);
        }
    }
    Some(at)
}

/// Returns the protocol of `first`'s dialect that greets with `reply` at `port`: by its usual port, else
/// by its words, else by the table's order.
fn told_apart(first: GreetingProtocol, reply: &[u8], port: u16) -> GreetingProtocol {
    let siblings = || GreetingProtocol::all().filter(|other| other.dialect() == first.dialect());
    // FTP and SMTP share the code 220. The port comes first, because the text behind a code is free.
    let by_port = siblings().find(|greeting| greeting.ports().contains(&port));
    let names =
        |greeting: &GreetingProtocol| greeting.words().iter().any(|word| contains(reply, word.as_bytes()));
    by_port.or_else(|| siblings().find(names)).unwrap_or(first)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(octets: &[u8], port: u16) -> Option<(&'static str, usize)> {
        match parse(octets, port) {
            ParseProgress::Done { value, consumed } => Some((value.greeting.name(), consumed)),
            _ => None,
        }
    }

    #[test]
    fn protocols_are_told_by_port_then_words_then_order() {
        for (octets, port, name) in [
            (&b"220 mail.example ESMTP Postfix (Debian)\r\n"[..], 25, "smtp"),
            (b"220 mail.example ESMTP Exim 4.96\r\n", 9000, "smtp"),
            (b"220 ProFTPD Server (Debian) [203.0.113.2]\r\n", 21, "ftp"),
            (b"220 (vsFTPd 3.0.3)\r\n", 9000, "ftp"),
            (b"220 hello\r\n", 21, "ftp"),
            (b"220 hello\r\n", 9000, "smtp"),
            (b"554 no\r\n", 25, "smtp"),
            (b"+OK Dovecot (Debian) ready.\r\n", 110, "pop3"),
            (b"-ERR busy\r\n", 9000, "pop3"),
            (b"* OK [CAPABILITY IMAP4rev1] Dovecot ready.\n", 143, "imap"),
            (b"* bye later\r\n", 143, "imap"),
        ] {
            assert_eq!(read(octets, port), Some((name, octets.len())), "{}", octets.escape_ascii());
        }
        for octets in [
            &b"SSH-2.0-x\r\n"[..],
            b"HTTP/1.1 200 OK\r\n",
            b"2200 x\r\n",
            b"+OKAY\r\n",
            b"\r\n",
            b"* LIST\r\n",
        ] {
            assert_eq!(read(octets, 25), None, "{}", octets.escape_ascii());
        }
    }

    #[test]
    fn a_reply_of_several_lines_is_one_greeting() {
        let octets = b"220-Welcome\r\n to all\r\n220-220 x\r\n220 ProFTPD 1.3.8\r\nmore";
        let ParseProgress::Done { value, consumed } = parse(octets, 21) else { panic!("not whole") };
        assert_eq!(consumed, octets.len() - 4);
        let texts: Vec<&[u8]> = value.lines().map(|line| value.text(line)).collect();
        assert_eq!(texts, [&b"Welcome"[..], b"to all", b"220 x", b"ProFTPD 1.3.8"]);
        assert_eq!((value.code(), value.line()), (&b"220"[..], &b"220-Welcome"[..]));
        assert!(value.is_welcome());
    }

    #[test]
    fn codes_are_spelled_as_each_dialect_does() {
        for (octets, port, code, text, welcome) in [
            (&b"+OK ready\r\n"[..], 110, &b"+OK"[..], &b"ready"[..], true),
            (b"-ERR\r\n", 110, b"-ERR", b"", false),
            (b"* PREAUTH hi\r\n", 143, b"* PREAUTH", b"hi", true),
            (b"* BYE now\r\n", 143, b"* BYE", b"now", false),
            (b"421 later\r\n", 25, b"421", b"later", false),
            (b"220\tready\r\n", 25, b"220", b"ready", true),
            (b"220\0ready\r\n", 25, b"220", b"ready", true),
            (b"220ready\r\n", 25, b"220", b"ready", true),
            (b"+OK\tready\r\n", 110, b"+OK", b"ready", true),
            (b"* OK\tready\r\n", 143, b"* OK", b"ready", true),
        ] {
            let ParseProgress::Done { value, .. } = parse(octets, port) else { panic!("not whole") };
            assert_eq!((value.code(), value.text(value.line())), (code, text));
            assert_eq!(value.is_welcome(), welcome);
        }
    }

    proptest! {
        #[test]
        fn the_split_of_the_octets_changes_nothing(
            text in "(220|\\+OK|\\* OK|-ERR)[- ]?[ -~\r\n]{0,60}\r\n220 x\r\n", cut in 0_usize..70, port in any::<u16>()
        ) {
            let part = parse(&text.as_bytes()[..cut.min(text.len())], port);
            prop_assert!(part == ParseProgress::More || part == parse(text.as_bytes(), port));
        }

        #[test]
        fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let ParseProgress::Done { value, consumed } = parse(&octets, 25) {
                prop_assert!(consumed <= octets.len());
                let _ = (value.code(), value.is_welcome());
                prop_assert!(value.lines().all(|line| value.text(line).len() <= line.len()));
            }
        }
    }
}
