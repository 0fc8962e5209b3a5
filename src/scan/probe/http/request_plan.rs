//! Requests to every host: the user's and those that the rules need, each once, prepared except for the
//! host's name.

use crate::banner::{HttpHeader, HttpHeaders, RequestHead};
use crate::rules::ProbeRequest;
use crate::scan::{HttpRequest, Target};

/// Product token of `User-Agent`.
const AGENT: &str = concat!("bannerwall/", env!("CARGO_PKG_VERSION"));
const VERSION: &[u8] = b"HTTP/1.1";
/// Idempotent methods, which may be repeated if the first attempt is uncertain, RFC 9110 section 9.2.2.
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
/// Methods whose requests have a body, even if empty.
const WITH_BODY: [&str; 3] = ["POST", "PUT", "PATCH"];

/// Requests of a scan, in order.
#[derive(Debug)]
pub(super) struct RequestPlan {
    requests: Vec<PlannedRequest>,
}

/// One request without the host's name.
#[derive(Debug)]
pub(super) struct PlannedRequest {
    line: Vec<u8>,
    method: Vec<u8>,
    path: Vec<u8>,
    /// Fields in order; `None` stands for the host's name.
    fields: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    idempotent: bool,
}

impl RequestPlan {
    /// Merges requests, the user's first. `close` requests the connection's end after each.
    pub(super) fn new(user: &[HttpRequest], rules: &[ProbeRequest], close: bool) -> Self {
        let of_user = user.iter().map(|request| {
            let fields =
                request.headers.iter().map(|field| (field.name.to_string(), field.value.to_string()));
            (request.method.clone(), request.path.clone(), fields.collect::<Vec<_>>())
        });
        let of_rules = rules
            .iter()
            .map(|request| (request.method.clone(), request.path.clone(), request.headers.clone()));
        let mut seen = std::collections::HashSet::new();
        let requests = of_user
            .chain(of_rules)
            .filter(|(method, path, fields)| {
                let fields = fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
                seen.insert((method.clone(), target(path), fields.collect::<Vec<_>>()))
            })
            .map(|(method, path, fields)| PlannedRequest::new(&method, &path, &fields, close))
            .collect();
        Self { requests }
    }

    /// Returns the number of requests, up to 65,535.
    pub(super) fn len(&self) -> u16 {
        u16::try_from(self.requests.len()).unwrap_or(u16::MAX)
    }

    pub(super) fn get(&self, number: u16) -> Option<&PlannedRequest> {
        self.requests.get(usize::from(number))
    }

    pub(super) fn is_idempotent(&self, number: u16) -> bool {
        self.get(number).is_some_and(|request| request.idempotent)
    }
}

impl PlannedRequest {
    fn new(method: &str, path: &str, extra: &[(String, String)], close: bool) -> Self {
        let given = |name: &str| extra.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut fields = Vec::with_capacity(extra.len() + 4);
        let mut add = |name: &str, value: Option<&str>| {
            if !given(name) {
                fields.push((name.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec())));
            }
        };
        add("Host", None);
        add("User-Agent", Some(AGENT));
        add("Accept", Some("*/*"));
        if WITH_BODY.contains(&method) {
            add("Content-Length", Some("0"));
        }
        if close {
            add("Connection", Some("close"));
        }
        fields.extend(extra.iter().map(|(name, value)| (plain(name), Some(plain(value)))));
        let (method_octets, path) = (plain(method), target(path));
        let line = [&method_octets, b" ".as_slice(), &path, b" ", VERSION].concat();
        Self { line, method: method_octets, path, fields, idempotent: IDEMPOTENT.contains(&method) }
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the fields in order; `None` stands for the host's name.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.fields.iter().map(|(name, value)| (name.as_slice(), value.as_deref()))
    }

    pub(super) fn method(&self) -> &[u8] {
        &self.method
    }

    /// Appends the request for `host`.
    pub(super) fn write(&self, host: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.line);
        out.extend_from_slice(b"\r\n");
        for (name, value) in &self.fields {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_deref().unwrap_or(host));
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Returns the request as rules and events see it.
    pub(super) fn request<'a>(&'a self, host: &'a [u8]) -> RequestHead<'a> {
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| HttpHeader { name, value: value.as_deref().unwrap_or(host) });
        RequestHead {
            line: &self.line,
            method: &self.method,
            url: &self.path,
            version: VERSION,
            headers: HttpHeaders::new(fields.collect()),
            body: &[],
        }
    }
}

/// Appends the `Host` field's value for a target, RFC 9110 section 7.2: the name or the address, IPv6 in
/// brackets and without its zone, and the port unless it is the `usual` one.
pub(super) fn write_host(target: &Target, usual: u16, out: &mut Vec<u8>) {
    use std::io::Write as _;
    let written = match (&target.host, target.address.ip()) {
        (Some(name), _) => write!(out, "{name}"),
        (None, std::net::IpAddr::V4(address)) => write!(out, "{address}"),
        (None, std::net::IpAddr::V6(address)) => write!(out, "[{address}]"),
    };
    if written.is_ok() && target.address.port() != usual {
        // Writing to a Vec cannot fail.
        let _ = write!(out, ":{}", target.address.port());
    }
}

/// Returns text without line ends and NUL, so that a value cannot add header fields.
fn plain(text: &str) -> Vec<u8> {
    text.bytes().map(|octet| if matches!(octet, b'\r' | b'\n' | 0) { b' ' } else { octet }).collect()
}

/// Returns a request target with white space and control bytes percent-encoded, absolute unless it is `*`.
fn target(path: &str) -> Vec<u8> {
    let mut octets = Vec::with_capacity(path.len() + 1);
    if path != "*" && !path.starts_with('/') && !path.contains("://") {
        octets.push(b'/');
    }
    for octet in path.bytes() {
        if octet.is_ascii_graphic() {
            octets.push(octet);
        } else {
            octets.extend_from_slice(format!("%{octet:02X}").as_bytes());
        }
    }
    octets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::HeaderField;

    fn target_of(address: &str, host: Option<&str>) -> Target {
        Target { address: address.parse().expect("an address"), index: 0, host: host.map(Into::into) }
    }

    fn written(address: &str, host: Option<&str>) -> String {
        let mut out = Vec::new();
        write_host(&target_of(address, host), 80, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn hosts_are_named_as_the_rfc_wants() {
        assert_eq!(written("192.0.2.1:80", None), "192.0.2.1");
        assert_eq!(written("192.0.2.1:8080", None), "192.0.2.1:8080");
        assert_eq!(written("[2001:db8::1]:80", None), "[2001:db8::1]");
        assert_eq!(written("[2001:db8::1]:8080", None), "[2001:db8::1]:8080");
        assert_eq!(written("192.0.2.1:8000", Some("www.example")), "www.example:8000");
    }

    #[test]
    fn requests_of_user_and_rules_are_asked_once_each() {
        let rule = |path: &str| ProbeRequest {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
        };
        let plan = RequestPlan::new(
            &[HttpRequest::default()],
            &[rule("/"), rule("/server-status"), rule("/")],
            false,
        );
        let paths: Vec<_> = plan.requests.iter().map(|request| request.path.as_slice()).collect();
        assert_eq!(paths, [b"/".as_slice(), b"/server-status"]);
    }

    #[test]
    fn a_request_is_written_whole_and_read_back_the_same() {
        let headers = vec![HeaderField { name: "user-agent".into(), value: "x\r\ny".into() }];
        let request = HttpRequest { method: "POST".to_owned(), path: "a b".to_owned(), headers };
        let plan = RequestPlan::new(&[request], &[], true);
        let mut out = Vec::new();
        let planned = plan.get(0).expect("one request");
        planned.write(b"h", &mut out);
        let expected = "POST /a%20b HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nContent-Length: 0\r\n\
                        Connection: close\r\nuser-agent: x  y\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        let read = crate::banner::http::parse_request(&out).done().expect("a whole request");
        assert_eq!(read.message, planned.request(b"h"));
        assert!(!plan.is_idempotent(0));
    }
}
