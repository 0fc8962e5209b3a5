//! EVE's `ssh` and `http` objects.

use std::borrow::Cow;

use serde::Serialize;

use crate::event::{HeaderField, HttpFacts, SshFacts, SshSide};
use crate::terms::cut;

/// Largest number of bytes of one text in an alert.
const BRIEF: usize = 256;

/// The detail with which an exchange is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct EveDetail {
    /// True to write the lists of header fields.
    pub(super) lists: bool,
    /// True to cut long texts, because many alerts may be about the same exchange.
    pub(super) brief: bool,
    /// True if the request was the scan's own: then only its target matters.
    pub(super) scan: bool,
}

impl EveDetail {
    fn text<'a>(self, text: &'a str) -> Cow<'a, str> {
        if !self.brief || text.len() <= BRIEF {
            return text.into();
        }
        format!("{}…", cut(text, BRIEF)).into()
    }
}

/// EVE's `ssh`.
#[derive(Debug, Serialize)]
pub(super) struct EveSsh<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<SshEnd<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<SshEnd<'a>>,
}

#[derive(Debug, Serialize)]
struct SshEnd<'a> {
    proto_version: &'a str,
    software_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hassh: Option<HasshObject<'a>>,
}

#[derive(Debug, Serialize)]
struct HasshObject<'a> {
    hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    string: Option<&'a str>,
}

impl<'a> EveSsh<'a> {
    pub(super) fn new(facts: &'a SshFacts, extent: EveDetail) -> Self {
        let end = |side| SshEnd::new(side, extent);
        Self { client: facts.client.as_deref().map(end), server: facts.server.as_deref().map(end) }
    }
}

impl<'a> SshEnd<'a> {
    fn new(side: &'a SshSide, extent: EveDetail) -> Self {
        Self {
            proto_version: &side.protocol_version,
            software_version: &side.software_version,
            hassh: side.hassh.as_ref().map(|hassh| HasshObject {
                hash: &hassh.hash,
                string: (!extent.brief).then_some(hassh.algorithms.as_str()),
            }),
        }
    }
}

/// EVE's `http`.
#[derive(Debug, Serialize)]
pub(super) struct EveHttp<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_user_agent: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xff: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_content_type: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_refer: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_method: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(skip_serializing_if = "<[EveHttpHeader<'_>]>::is_empty")]
    request_headers: Vec<EveHttpHeader<'a>>,
    #[serde(skip_serializing_if = "<[EveHttpHeader<'_>]>::is_empty")]
    response_headers: Vec<EveHttpHeader<'a>>,
}

#[derive(Debug, Serialize)]
struct EveHttpHeader<'a> {
    name: &'a str,
    value: &'a str,
}

impl<'a> EveHttp<'a> {
    pub(super) fn new(facts: &'a HttpFacts, extent: EveDetail) -> Self {
        let (request, response) = (facts.request.as_ref(), facts.response.as_ref());
        let asked: &[HeaderField] = request.map_or(&[], |request| &request.headers);
        let answered: &[HeaderField] = response.map_or(&[], |response| &response.headers);
        let (hostname, http_port) = find(asked, "Host").map_or((None, None), split_host);
        let text = |text: &'a str| extent.text(text);
        let listed = |headers| if extent.lists { fields(headers) } else { Vec::new() };
        Self {
            hostname: hostname.map(text),
            http_port,
            url: request.map(|request| text(&request.url)),
            http_user_agent: find(asked, "User-Agent").map(text),
            xff: find(asked, "X-Forwarded-For").map(text),
            http_content_type: find(answered, "Content-Type").map(media_type).map(text),
            http_refer: find(asked, "Referer").map(text),
            http_method: request.map(|request| text(&request.method)),
            protocol: version(facts, extent).map(text),
            status: response.map(|response| response.status),
            redirect: find(answered, "Location").map(text),
            length: response.map(|response| response.body_length),
            request_headers: listed(asked),
            response_headers: listed(answered),
        }
    }
}

/// Returns the request's version, as EVE does. For a scan it is the server's, because the request is the
/// scan's own.
fn version(facts: &HttpFacts, extent: EveDetail) -> Option<&str> {
    let asked = facts.request.as_ref().map(|request| request.version.as_str());
    let answered = facts.response.as_ref().map(|response| response.version.as_str());
    let version = if extent.scan { answered.or(asked) } else { asked.or(answered) };
    version.filter(|version| !version.is_empty())
}

fn fields(headers: &[HeaderField]) -> Vec<EveHttpHeader<'_>> {
    headers.iter().map(|field| EveHttpHeader { name: &field.name, value: &field.value }).collect()
}

fn find<'a>(headers: &'a [HeaderField], name: &str) -> Option<&'a str> {
    headers.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value.as_str())
}

/// Returns the media type without its parameters, as EVE does.
fn media_type(value: &str) -> &str {
    value.split(';').next().unwrap_or(value).trim_end()
}

/// Splits the port off a `Host` field; an IPv6 literal keeps its brackets.
fn split_host(host: &str) -> (Option<&str>, Option<u16>) {
    let name_end = host.rfind(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = host.get(name_end..).and_then(|rest| rest.find(':')) else {
        return (Some(host), None);
    };
    let (name, port) = host.split_at(name_end + colon);
    match port.strip_prefix(':').unwrap_or(port).parse() {
        Ok(port) => (Some(name), Some(port)),
        Err(_) => (Some(host), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_split_from_their_ports() {
        assert_eq!(split_host("example.org"), (Some("example.org"), None));
        assert_eq!(split_host("example.org:8080"), (Some("example.org"), Some(8080)));
        assert_eq!(split_host("[2001:db8::1]:81"), (Some("[2001:db8::1]"), Some(81)));
        assert_eq!(split_host("[2001:db8::1]"), (Some("[2001:db8::1]"), None));
        assert_eq!(split_host("example.org:99999"), (Some("example.org:99999"), None));
        assert_eq!(split_host("]:"), (Some("]:"), None));
    }

    #[test]
    fn media_types_lose_their_parameters() {
        assert_eq!(media_type("text/html; charset=utf-8"), "text/html");
        assert_eq!(media_type("text/html"), "text/html");
    }
}
