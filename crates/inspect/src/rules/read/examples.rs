//! Reads `examples` and `counterexamples`: a banner as text, or a table of its parts.

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::example::{ExampleContent, ExampleMessage, KexAlgorithms, RuleExample};
use super::super::field::BannerSender;
use super::toml_value::{Entry, ValueReader};
use crate::event::{ProductFacts, Protocol};
use crate::terms::GreetingProtocol;

const SSH_KEYS: &[&str] =
    &["banner", "kex", "host_key", "encryption", "mac", "compression", "hassh", "product"];
const HTTP_KEYS: &[&str] =
    &["request", "response", "status", "reason", "method", "url", "headers", "body", "product"];
const GREETING_KEYS: &[&str] = &["banner", "product"];
const OTHER_KEYS: &[&str] = &["first", "hex"];
const PRODUCT_KEYS: &[&str] = &["vendor", "product", "version", "cpe", "os"];

/// Reads the list of examples of `key`.
pub(super) fn read(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    protocol: Protocol,
    from: BannerSender,
) -> Vec<RuleExample> {
    let values = match value.get_ref() {
        DeValue::Array(values) => values.iter().collect(),
        _ => vec![value],
    };
    values.into_iter().filter_map(|value| example(reader, key, value, protocol, from)).collect()
}

fn example(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    protocol: Protocol,
    from: BannerSender,
) -> Option<RuleExample> {
    let errors = reader.report.errors();
    let example = match value.get_ref() {
        DeValue::String(text) => RuleExample::from_text(text, protocol, from),
        DeValue::Table(_) => {
            let entries = reader.table(key, value)?;
            let (content, product) = match protocol {
                Protocol::Ssh => ssh(reader, &entries),
                Protocol::Http => http(reader, &entries, from),
                Protocol::Tls => super::tls_examples::example(reader, &entries, from),
                Protocol::Greeting(about) => greeting(reader, &entries, about),
                Protocol::Other => other(reader, &entries),
            };
            let (place, _, _) = reader.source.locate(value.span().start);
            let example = RuleExample { place, content, product };
            if reader.report.errors() > errors {
                return None;
            }
            example.check(from).map(|()| example)
        }
        _ => {
            reader.wrong_kind(key, "a list of strings or tables", value);
            return None;
        }
    };
    match example {
        Ok(example) => {
            let (place, _, _) = reader.source.locate(value.span().start);
            Some(RuleExample { place, ..example })
        }
        Err(reason) => {
            let message = format!("not a banner that the rule could see: {reason}");
            reader.error(&value.span(), message);
            None
        }
    }
}

/// Reads `{ banner = "SSH-2.0-…", kex = "…", mac = "…" }`, or with `hassh = "…"`.
fn ssh(reader: &mut ValueReader<'_>, entries: &[Entry<'_, '_>]) -> (ExampleContent, Option<ProductFacts>) {
    let (mut line, mut hassh, mut kex, mut facts) = (String::new(), None, None, None);
    for (key, span, value) in entries {
        if *key == "product" {
            facts = product(reader, value);
            continue;
        }
        if !SSH_KEYS.contains(key) {
            reader.unknown_key(span, key, "an example", SSH_KEYS.iter().copied());
            continue;
        }
        let Some(text) = reader.text(key, value) else { continue };
        let lists: &mut KexAlgorithms = match *key {
            "banner" => {
                line = text.value;
                continue;
            }
            "hassh" => {
                hassh = Some(text.value);
                continue;
            }
            _ => kex.get_or_insert_default(),
        };
        match *key {
            "kex" => lists.kex = text.value,
            "host_key" => lists.host_key = text.value,
            "encryption" => lists.encryption = text.value.into(),
            "mac" => lists.mac = text.value.into(),
            _ => lists.compression = text.value.into(),
        }
    }
    (ExampleContent::Ssh { line: line.into_bytes(), kex, hassh }, facts)
}

/// Reads `{ status = 200, headers = { Server = "nginx" }, body = "…" }`, `{ method = "GET", url =
/// "/" }`, or whole messages: `{ request = "…", response = "…" }`.
fn http(
    reader: &mut ValueReader<'_>,
    entries: &[Entry<'_, '_>],
    from: BannerSender,
) -> (ExampleContent, Option<ProductFacts>) {
    let mut parts = HttpParts::default();
    let mut facts = None;
    for (key, span, value) in entries {
        match *key {
            "product" => facts = product(reader, value),
            "status" => parts.status = reader.number(key, value, 100..=999),
            "headers" => {
                for (name, _, value) in reader.table(key, value).unwrap_or_default() {
                    for text in reader.texts(name, value) {
                        parts.headers.push_str(&format!("{name}: {}\n", text.value));
                    }
                }
            }
            "request" | "response" | "reason" | "method" | "url" | "body" => {
                if let Some(text) = reader.text(key, value) {
                    parts.texts.push((key, text.value));
                }
            }
            _ => reader.unknown_key(span, key, "an example", HTTP_KEYS.iter().copied()),
        }
    }
    (parts.content(from), facts)
}

/// Reads `{ banner = "220 mail ESMTP Exim 4.96" }`.
fn greeting(
    reader: &mut ValueReader<'_>,
    entries: &[Entry<'_, '_>],
    greeting: GreetingProtocol,
) -> (ExampleContent, Option<ProductFacts>) {
    let (mut text, mut facts) = (String::new(), None);
    for (key, span, value) in entries {
        match *key {
            "product" => facts = product(reader, value),
            "banner" => text = reader.text(key, value).map(|text| text.value).unwrap_or_default(),
            _ => reader.unknown_key(span, key, "an example", GREETING_KEYS.iter().copied()),
        }
    }
    (ExampleContent::greeting(greeting, &text), facts)
}

/// Reads `{ first = "RFB 003.008\n" }`, or the bytes in hexadecimal: `{ hex = "16 03 01 02 00 01"
/// }`.
fn other(reader: &mut ValueReader<'_>, entries: &[Entry<'_, '_>]) -> (ExampleContent, Option<ProductFacts>) {
    let mut octets = Vec::new();
    for (key, span, value) in entries {
        if !OTHER_KEYS.contains(key) {
            reader.unknown_key(span, key, "an example", OTHER_KEYS.iter().copied());
            continue;
        }
        let Some(text) = reader.text(key, value) else { continue };
        if *key == "first" {
            octets = text.value.into_bytes();
            continue;
        }
        match hexadecimal(&text.value) {
            Some(read) => octets = read,
            None => {
                let message = "not bytes of two hexadecimal digits each, such as `16 03 01`";
                reader.error(&text.span, message);
            }
        }
    }
    (ExampleContent::Other(octets), None)
}

pub(super) fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|character| character.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    Some(pairs.map(|pair| pair.iter().fold(0, |octet, digit| octet << 4 | digit)).collect())
}

#[derive(Default)]
struct HttpParts<'k> {
    status: Option<u32>,
    headers: String,
    texts: Vec<(&'k str, String)>,
}

impl HttpParts<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.texts.iter().find(|(known, _)| *known == key).map(|(_, text)| text.as_str())
    }

    fn content(&self, from: BannerSender) -> ExampleContent {
        let method = self.text("method").unwrap_or("GET");
        let line = self.text("url").map(|url| format!("{method} {url} HTTP/1.1"));
        let is_request = self.status.is_none() && (from == BannerSender::Client || line.is_some());
        let body = self.text("body").unwrap_or_default();
        let head = |line: &str| ExampleMessage::from_text(&format!("{line}\n{}\n{body}", self.headers));
        let whole = |key| self.text(key).map(ExampleMessage::from_text);
        if is_request {
            let line = line.unwrap_or_else(|| format!("{method} / HTTP/1.1"));
            let request = whole("request").unwrap_or_else(|| head(&line));
            return ExampleContent::Http { request: Some(request), response: whole("response") };
        }
        let status = self.status.unwrap_or(200);
        let reason = self.text("reason").unwrap_or("OK");
        let response = whole("response").unwrap_or_else(|| head(&format!("HTTP/1.1 {status} {reason}")));
        let question = line.map(|line| ExampleMessage::from_text(&format!("{line}\nHost: example\n")));
        ExampleContent::Http { request: whole("request").or(question), response: Some(response) }
    }
}

/// Reads `product = { product = "OpenSSH", version = "9.2p1" }`, the result of a fingerprint
/// database.
fn product(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<ProductFacts> {
    let mut facts = ProductFacts::default();
    for (key, span, value) in reader.table("product", value)? {
        let slot = match key {
            "vendor" => &mut facts.vendor,
            "product" => &mut facts.product,
            "version" => &mut facts.version,
            "cpe" => &mut facts.cpe,
            "os" => &mut facts.os,
            _ => {
                reader.unknown_key(&span, key, "`product`", PRODUCT_KEYS.iter().copied());
                continue;
            }
        };
        *slot = reader.text(key, value).map(|text| text.value);
    }
    Some(facts)
}
