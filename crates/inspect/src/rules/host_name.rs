//! The names by which servers look up a host that a client asks for.
//!
//! Servers and applications read a `Host` field, a target or a server name in several ways, so that a rule
//! about a name is asked about each of them.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use unicode_normalization::UnicodeNormalization as _;

/// Returns the names by which servers look up a requested host, where they differ from it.
pub(super) fn lookups(requested: &[u8]) -> Vec<String> {
    let requested = decoded(requested);
    let mut names = Vec::new();
    // HAProxy's `req.hdr(host)` takes each part of a list.
    for part in requested.split(',') {
        let part = part.trim();
        let is_usual =
            |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'-' | b'_' | b':');
        let of_url = (!part.bytes().all(is_usual)).then(|| host_of_url(part));
        for name in of_url.as_deref().into_iter().chain([part]).map(without_port) {
            if !name.is_empty() && name != requested && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Returns the same for the target of a request, if it names a host.
pub(super) fn lookups_of_target(method: &[u8], target: &[u8]) -> Vec<String> {
    let text = decoded(target);
    let scheme = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme.trim()));
    let rest = scheme.map_or(&*text, |(_, rest)| rest);
    let slashes = rest.bytes().take_while(|octet| is_slash(*octet)).count();
    let authority = if method.eq_ignore_ascii_case(b"CONNECT") {
        &*text
    } else if scheme.is_some() || slashes > 1 {
        rest
    } else {
        return Vec::new();
    };
    let host = host_of_url(authority);
    let mut names = lookups(host.as_bytes());
    names.push(host);
    names
}

/// Returns text as UTF-8 or, as Node.js reads fields, as Latin-1.
fn decoded(octets: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(octets) {
        Ok(text) => text.into(),
        Err(_) => octets.iter().copied().map(char::from).collect::<String>().into(),
    }
}

/// Returns a name in small letters, without a port, brackets and final dots (nginx's
/// `ngx_http_validate_host`, Go's `net.SplitHostPort`).
fn without_port(name: &str) -> String {
    let host = match name.strip_prefix('[').and_then(|name| name.split_once(']')) {
        Some((inner, _)) => inner,
        None => name.split(':').next().unwrap_or_default(),
    };
    host.trim_end_matches('.').to_lowercase()
}

/// Returns host and port of a URL behind its scheme (<https://url.spec.whatwg.org/>). Applications build one
/// of a field: Node.js' `new URL(request.url, 'http://' + request.headers.host)`.
fn host_of_url(text: &str) -> String {
    let text: String = text.chars().filter(|letter| !matches!(letter, '\t' | '\r' | '\n')).collect();
    let text = text.trim_matches(|letter: char| letter <= ' ').trim_start_matches(['/', '\\']);
    let authority = text.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = percent_decode_str(host).decode_utf8_lossy();
    let host = host.nfkc().filter(|letter| !is_ignored(*letter));
    host.map(|letter| if letter == '\u{3002}' { '.' } else { letter }).collect()
}

/// True for letters that a name does not need (UTS 46 section 4).
const fn is_ignored(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{2060}' | '\u{2064}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

const fn is_slash(octet: u8) -> bool {
    matches!(octet, b'/' | b'\\' | b'\t' | b'\r' | b'\n')
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"+-.\t\r\n".contains(&octet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_however_servers_read_it() {
        for requested in [
            &b"BAD.example"[..],
            b"bad.example:80",
            b"bad.example:80.",
            b"bad.example.",
            b"bad.example:80:80",
            b" bad.example\t",
            b"bad.example,good",
            b"good, bad.example",
            b"[bad.example]",
            b"user@bad.example",
            b"u:p@bad.example:80",
            b"bad.example/x",
            b"bad.example?x",
            b"bad.example#x",
            b"bad.example\\x",
            b"//bad.example",
            b"b%61d.example",
            b"bad%2eexample",
            b"bad\xad.example",
            b"b\xaad.example",
            "bad。example".as_bytes(),
            "ｂａｄ．example".as_bytes(),
        ] {
            let names = lookups(requested);
            assert!(names.contains(&"bad.example".to_owned()), "{}: {names:?}", requested.escape_ascii());
        }
        assert_eq!(lookups(b"bad.example"), Vec::<String>::new());
        assert_eq!(lookups(b"bad.example.org:80"), ["bad.example.org"]);
        assert!(lookups(b"[2001:db8::1]:80").contains(&"2001:db8::1".to_owned()));
    }

    #[test]
    fn a_target_names_a_host_if_it_is_a_url() {
        for target in [
            "http://bad.example/",
            "HTTP://user@Bad.example:80?x",
            "http:\\\\bad.example/",
            "https:/bad.example",
            "https:bad.example",
            "http:///bad.example/",
            "//bad.example/",
            "/\\bad.example/",
            "http://b%61d.example/",
            "ht\ttp://bad.exa\tmple/",
        ] {
            let names = lookups_of_target(b"GET", target.as_bytes());
            assert!(names.contains(&"bad.example".to_owned()), "{target}: {names:?}");
        }
        for target in ["/", "/bad.example", "/?u=http://bad.example/", "*", "/a//bad.example"] {
            assert_eq!(lookups_of_target(b"GET", target.as_bytes()), Vec::<String>::new(), "{target}");
        }
        assert!(lookups_of_target(b"CONNECT", b"bad.example:443").contains(&"bad.example".to_owned()));
    }
}
