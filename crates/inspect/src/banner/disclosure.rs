//! Bounds on what events show of a message: credentials are masked, long texts are cut.
//!
//! Rules see every message whole. Only this module makes the facts of an event, so no output format has
//! to know what is secret.

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use compact_str::CompactString;

use super::html_title;
use super::message_head::{HttpHeader, HttpHeaders, RequestHead, ResponseHead};
use crate::event::{HeaderField, HttpRequestFacts, HttpResponseFacts};

/// The text that replaces a secret.
const MASK: &str = "***";

/// Number of bytes of the longest character in UTF-8.
const LONGEST_CHARACTER: usize = 4;

/// Treatment of secrets in header fields and URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SecretMasking {
    /// As they were sent.
    Shown,
    /// Masked.
    #[default]
    Masked,
}

/// The amount of a message that events show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DisclosureLimits {
    /// The masking of secrets.
    pub secrets: SecretMasking,
    /// Largest number of header fields of a message.
    pub fields: usize,
    /// Largest number of bytes of these fields' names and values together.
    pub octets: usize,
    /// Largest number of bytes of one text (a target, a value, a line).
    pub text: usize,
}

impl Default for DisclosureLimits {
    fn default() -> Self {
        Self { secrets: SecretMasking::default(), fields: 64, octets: 8 << 10, text: 1 << 10 }
    }
}

impl DisclosureLimits {
    /// Returns the facts of a request.
    pub fn request(&self, request: &RequestHead<'_>) -> HttpRequestFacts {
        let (headers, left_out) = self.fields(&request.headers);
        HttpRequestFacts {
            method: self.text(request.method),
            url: self.masked_text(request.url),
            version: self.text(request.version),
            headers,
            left_out,
        }
    }

    /// Returns the facts of a response. `body_length` is that of the collected body; a caller that
    /// counted more corrects it.
    pub fn response(&self, response: &ResponseHead<'_>) -> HttpResponseFacts {
        let (headers, left_out) = self.fields(&response.headers);
        HttpResponseFacts {
            version: self.text(response.version),
            status: response.status,
            reason: self.text(response.reason),
            headers,
            left_out,
            body_length: u64::try_from(response.body.len()).unwrap_or(u64::MAX),
            title: html_title::title(response.body),
            fingerprint: None,
        }
    }

    /// Returns the facts of a header field.
    pub fn field(&self, HttpHeader { name, value }: &HttpHeader<'_>) -> HeaderField {
        // All of it is masked before it is cut: what is left of a cut secret may not look like one.
        let (name, value) = (CompactString::from_utf8_lossy(name), unfolded(value));
        let value = match self.secrets {
            SecretMasking::Shown => value,
            SecretMasking::Masked if SECRET_NAMES.is_match(&name) => masked_value(&name, &value).into(),
            SecretMasking::Masked => without_secrets(value),
        };
        HeaderField { name: self.cut(name), value: self.cut(value) }
    }

    /// Returns a message's first line, or an SSH identification, as events show it.
    pub fn line(&self, line: &[u8]) -> String {
        self.masked_text(line)
    }

    fn fields(&self, headers: &HttpHeaders<'_>) -> (Vec<HeaderField>, u32) {
        let mut kept = Vec::with_capacity(headers.iter().len().min(self.fields));
        let (mut octets, mut left_out) = (0, 0);
        for header in headers.iter() {
            // Both count only as far as events show them.
            let shown = header.name.len().min(self.text) + header.value.len().min(self.text);
            if kept.len() < self.fields && octets + shown <= self.octets {
                octets += shown;
                kept.push(self.field(header));
            } else {
                left_out += 1;
            }
        }
        (kept, left_out)
    }

    fn masked_text(&self, octets: &[u8]) -> String {
        let text = CompactString::from_utf8_lossy(octets);
        let text = match self.secrets {
            SecretMasking::Shown => text,
            SecretMasking::Masked => without_secrets(text),
        };
        self.cut(text).into()
    }

    /// Returns bytes as UTF-8, cut.
    fn text(&self, octets: &[u8]) -> CompactString {
        // A character more than is shown, so that it is cut.
        self.cut(CompactString::from_utf8_lossy(
            octets.get(..self.text + LONGEST_CHARACTER).unwrap_or(octets),
        ))
    }

    /// Cuts a text that is too long; it ends with an ellipsis then.
    fn cut(&self, text: CompactString) -> CompactString {
        if text.len() <= self.text {
            return text;
        }
        let end = crate::terms::cut(&text, self.text).len();
        let mut text = text;
        text.truncate(end);
        text.push('…');
        text
    }
}

/// Masks the secrets in a text.
fn without_secrets(text: CompactString) -> CompactString {
    match masked(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(masked) => masked.into(),
    }
}

/// Replaces each fold of a value (line end and white space) by one space, RFC 9112 section 5.2.
fn unfolded(value: &[u8]) -> CompactString {
    if memchr::memchr(b'\n', value).is_none() {
        return CompactString::from_utf8_lossy(value);
    }
    let lines: Vec<&[u8]> = value.split(|&octet| octet == b'\n').map(<[u8]>::trim_ascii).collect();
    CompactString::from_utf8_lossy(&lines.join(&b' '))
}

/// Parts of names of header fields and URL parameters whose values are secret.
static SECRET_NAMES: LazyLock<WordFinder> = LazyLock::new(|| {
    WordFinder::new(&[
        "authorization",
        "cookie",
        "token",
        "secret",
        "password",
        "passwd",
        "api-key",
        "apikey",
        "api_key",
        "access-key",
        "access_key",
        "session",
        "x-auth",
        "signature",
        "jwt",
    ])
});

/// Whole names of URL parameters whose values are secret.
const SECRET_PARAMETERS: [&str; 9] =
    ["key", "auth", "code", "pass", "pwd", "sig", "sid", "assertion", "client_assertion"];

/// Attributes of a cookie, RFC 6265 section 4.1.1 and its successors: no secrets.
const COOKIE_ATTRIBUTES: [&str; 9] =
    ["path", "domain", "expires", "max-age", "samesite", "secure", "httponly", "priority", "partitioned"];

/// Finds words in a name in one pass, ignoring case.
struct WordFinder(Option<AhoCorasick>);

impl WordFinder {
    fn new(words: &[&str]) -> Self {
        // A handful of short words always fits. If building failed, everything would count as secret.
        Self(AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok())
    }

    fn is_match(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|words| words.is_match(name))
    }
}

/// Masks a secret field's value. The scheme of an authorization and the names of cookies stay.
fn masked_value(name: &str, value: &str) -> String {
    let ends_with = |end: &str| {
        let start = name.len().saturating_sub(end.len());
        name.get(start..).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    };
    if ends_with("cookie") {
        // Only `Set-Cookie` has attributes; `Cookie` has pairs only.
        let attributes = name.len() > "cookie".len();
        let parts: Vec<String> = value
            .split(';')
            .enumerate()
            .map(|(at, part)| masked_cookie(part, attributes && at > 0))
            .collect();
        return parts.join(";");
    }
    match value.split_once(' ') {
        Some((scheme, _)) if ends_with("authorization") => format!("{scheme} {MASK}"),
        _ => MASK.to_owned(),
    }
}

/// Returns `name=***`; an attribute after a cookie stays.
fn masked_cookie(part: &str, may_be_attribute: bool) -> String {
    let name = part.split('=').next().unwrap_or_default();
    if may_be_attribute && COOKIE_ATTRIBUTES.iter().any(|known| name.trim().eq_ignore_ascii_case(known)) {
        return part.to_owned();
    }
    if part.contains('=') { format!("{name}={MASK}") } else { MASK.to_owned() }
}

/// Masks user information and secret parameters of URLs in a text. Without any, the text stays borrowed.
fn masked(text: &str) -> Cow<'_, str> {
    let text = masked_user(text);
    // Nearly no field holds a parameter. Searching for bytes is a vectorized pass.
    if memchr::memchr3(b'?', b'&', b'#', text.as_bytes()).is_none() {
        return text;
    }
    match masked_parameters(&text) {
        Some(masked) => Cow::Owned(masked),
        None => text,
    }
}

/// Returns `scheme://user:password@host` as `scheme://***@host`.
fn masked_user(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b':', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        let end = behind.find(['/', '?', '#', ' ', '"', '\'']).unwrap_or(behind.len());
        let (authority, tail) = behind.split_at(end);
        out.push_str(before);
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                found = true;
                out.push_str(MASK);
                out.push('@');
                out.push_str(host);
            }
            None => out.push_str(authority),
        }
        rest = tail;
    }
    if !found {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Masks the values of secret keys in `key=value` after `?`, `&`, `;` or `#`.
fn masked_parameters(text: &str) -> Option<String> {
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some(at) = rest.find(['?', '&', ';', '#']) {
        let (before, behind) = rest.split_at(at + 1);
        out.push_str(before);
        rest = behind;
        let end = behind.find(|it: char| it == '=' || is_end(it)).unwrap_or(behind.len());
        let (key, value) = behind.split_at(end);
        if let Some(value) = value.strip_prefix('=')
            && is_secret_parameter(key.trim_start())
        {
            found = true;
            out.push_str(key);
            out.push('=');
            out.push_str(MASK);
            rest = value.get(value.find(is_end).unwrap_or(value.len())..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    found.then_some(out)
}

fn is_end(character: char) -> bool {
    matches!(character, '?' | '&' | ';' | '#' | ' ' | '"' | '\'' | '<' | '>' | ',')
}

fn is_secret_parameter(key: &str) -> bool {
    SECRET_PARAMETERS.iter().any(|known| key.eq_ignore_ascii_case(known)) || SECRET_NAMES.is_match(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::banner::http;

    fn value(name: &str, value: &str) -> CompactString {
        let header = HttpHeader { name: name.as_bytes(), value: value.as_bytes() };
        DisclosureLimits::default().field(&header).value
    }

    #[test]
    fn credentials_in_fields_are_masked() {
        for (name, sent, told) in [
            ("Authorization", "Basic YWRtaW46c2VjcmV0", "Basic ***"),
            ("proxy-authorization", "YWRtaW46c2VjcmV0", "***"),
            ("COOKIE", "session=deadbeef; a=b; odd", "session=***; a=***;***"),
            ("Set-Cookie", "id=a3fWa; Path=/; HttpOnly; Max-Age=9", "id=***; Path=/; HttpOnly; Max-Age=9"),
            ("Set-Cookie2", "id=a3fWa", "***"),
            ("X-Api-Key", "k3y", "***"),
            ("X-CSRF-Token", "t0ken", "***"),
            ("My-Client-Secret", "s", "***"),
            ("Referer", "http://u:p@h/?a=b&token=c#d", "http://***@h/?a=b&token=***#d"),
            ("Location", "/cb#access_token=abc&state=x", "/cb#access_token=***&state=x"),
            ("Server", "Apache/2.4.49 (Unix)", "Apache/2.4.49 (Unix)"),
            ("Strict-Transport-Security", "max-age=1; includeSubDomains", "max-age=1; includeSubDomains"),
            ("WWW-Authenticate", "Basic realm=\"x\"", "Basic realm=\"x\""),
        ] {
            assert_eq!(value(name, sent), told, "{name}");
        }
        let shown = DisclosureLimits { secrets: SecretMasking::Shown, ..DisclosureLimits::default() };
        let header = HttpHeader { name: b"Cookie", value: b"a=b" };
        assert_eq!(shown.field(&header).value, "a=b");
    }

    #[test]
    fn credentials_in_urls_are_masked_wherever_the_url_stands() {
        for (sent, told) in [
            ("GET /?token=abc HTTP/1.1", "GET /?token=*** HTTP/1.1"),
            ("GET /?a=1&Api_Key=k&b=2 HTTP/1.1", "GET /?a=1&Api_Key=***&b=2 HTTP/1.1"),
            ("GET http://u:p@h/a@b HTTP/1.1", "GET http://***@h/a@b HTTP/1.1"),
            ("GET /?code=1&key=&x HTTP/1.1", "GET /?code=***&key=***&x HTTP/1.1"),
            ("GET /a?q=token HTTP/1.1", "GET /a?q=token HTTP/1.1"),
            ("SSH-2.0-OpenSSH_9.2p1 Debian", "SSH-2.0-OpenSSH_9.2p1 Debian"),
        ] {
            assert_eq!(DisclosureLimits::default().line(sent.as_bytes()), told);
        }
    }

    #[test]
    fn a_secret_is_masked_before_its_text_is_cut() {
        let disclosure = DisclosureLimits { text: 40, ..DisclosureLimits::default() };
        let field = |name: &str, value: &str| {
            disclosure.field(&HttpHeader { name: name.as_bytes(), value: value.as_bytes() }).value
        };
        let long = "s3cr3t-".repeat(20);
        assert_eq!(
            disclosure.line(format!("GET http://user:{long}@host/ HTTP/1.1").as_bytes()),
            "GET http://***@host/ HTTP/1.1"
        );
        assert_eq!(field("Referer", &format!("http://user:{long}@host/")), "http://***@host/");
        assert_eq!(field("Referer", &format!("http://h/?token={long}&a=b")), "http://h/?token=***&a=b");
        assert_eq!(field("Cookie", &format!("a={long}; b={long}")), "a=***; b=***");
        let name = format!("X-{}-Token", "a".repeat(60));
        assert_eq!(field(&name, "s3cr3t"), "***");
        assert_eq!(disclosure.line(&[b'\xff'; 100]), format!("{}…", "\u{fffd}".repeat(13)));
    }

    #[test]
    fn a_hostile_head_is_told_in_part() {
        let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
        for number in 0..2000 {
            head.extend(format!("X-{number}: {}\r\n", "\u{1}".repeat(20)).as_bytes());
        }
        head.extend(format!("Server: {}\r\n\r\n", "a".repeat(9000)).as_bytes());
        let read = http::parse_response(&head).done().expect("a head");
        let facts = DisclosureLimits::default().response(&read.message);
        assert_eq!((facts.headers.len(), facts.left_out), (64, 1937));
        let long = HttpHeader { name: b"Server", value: &[b'a'; 9000] };
        let told = DisclosureLimits::default().field(&long).value;
        assert!(told.ends_with("a…") && told.len() < 1030, "{told}");
    }

    proptest::proptest! {
        #[test]
        fn text_without_secrets_stays_as_it_is(text in "[a-z /:.-]{0,40}") {
            proptest::prop_assert_eq!(masked(&text), text.as_str());
        }

        #[test]
        fn any_text_can_be_masked(text in ".{0,60}") {
            let _ = masked(&text);
        }
    }
}
