//! nmap's XML, so that readers of nmap's results can read it: one `host` element for each host, with all
//! its ports. Targets come in random order. `spool` keeps the ports of incomplete hosts, so that a scan
//! of any size fits into memory. A host is written when its last port is known, or at the end.
//!
//! Product and version come from a fingerprint database, else from the software's own banner.
//!
//! The banner is where nmap's `banner` script puts it. Each rule that matched is a script,
//! `bannerwall-RULE`.

pub(crate) mod element;
mod host_spool;

use std::borrow::Cow;
use std::io::{self, Write as _};

use quick_xml::events::{BytesDecl, BytesStart, BytesText, Event as Xml};
use quick_xml::writer::Writer;

use crate::event::{AlertFacts, CertificateFacts, Event, HostKey, PortState, Timestamp, TlsFacts};

use super::evidence::MatchedField;
use super::service_identity::ServiceIdentity;
use super::target_report::TargetReport;
use super::time::LongTime;
use super::{OutputFormat, escape};
use element::{XmlWriter, attribute, clean, empty, end, start};
use host_spool::{HostSpool, SpooledHost, XmlPort};

/// The version of nmap's XML.
const XML_VERSION: &str = "1.05";

/// A scan's results as a [`OutputFormat`]; it needs the events of a target together.
#[derive(Debug)]
pub struct NmapXml {
    run: XmlRun,
    last: Timestamp,
    hosts: HostSpool,
    up: u64,
    down: u64,
}

/// Facts about the run in the document.
#[derive(Debug, Clone)]
pub struct XmlRun {
    /// The command line.
    pub arguments: String,
    /// Time at which it was started.
    pub start: Timestamp,
    /// The ports as the user wrote them.
    pub services: String,
    /// Number of these ports.
    pub service_count: usize,
}

impl NmapXml {
    /// Creates a document about `run`.
    pub fn new(run: XmlRun) -> Self {
        Self { last: run.start, hosts: HostSpool::new(run.service_count), run, up: 0, down: 0 }
    }
}

impl OutputFormat for NmapXml {
    fn begin(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut xml = Writer::new(&mut *out);
        xml.write_event(Xml::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        xml.get_mut().write_all(b"\n")?;
        xml.write_event(Xml::DocType(BytesText::from_escaped("nmaprun")))?;
        xml.get_mut().write_all(b"\n")?;
        let mut root = BytesStart::new("nmaprun");
        // The document type allows no other scanner.
        attribute(&mut root, "scanner", "nmap");
        attribute(&mut root, "args", &self.run.arguments);
        attribute(&mut root, "start", &seconds(self.run.start));
        attribute(&mut root, "startstr", &LongTime(self.run.start).to_string());
        attribute(&mut root, "version", concat!("bannerwall ", env!("CARGO_PKG_VERSION")));
        attribute(&mut root, "xmloutputversion", XML_VERSION);
        xml.write_event(Xml::Start(root))?;
        let count = self.run.service_count.to_string();
        let services = [("type", "connect"), ("protocol", "tcp"), ("numservices", &count)];
        empty(&mut xml, "scaninfo", &[&services[..], &[("services", &self.run.services)]].concat())?;
        empty(&mut xml, "verbose", &[("level", "0")])?;
        empty(&mut xml, "debugging", &[("level", "0")])?;
        out.write_all(b"\n")
    }

    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        self.group(std::slice::from_ref(event), out)
    }

    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        let Some(finding) = TargetReport::new(events) else { return Ok(()) };
        self.last = self.last.max(finding.timestamp);
        let mut element = Vec::new();
        port(&mut Writer::new(&mut element), &finding)?;
        let port = XmlPort {
            timestamp: finding.timestamp,
            number: finding.target.port(),
            answered: matches!(finding.state(), PortState::Open | PortState::Closed),
            element,
        };
        match self.hosts.add(finding.target.ip(), port)? {
            Some(whole) => self.host(&whole, out),
            None => Ok(()),
        }
    }

    fn rest(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let Some(host) = self.hosts.next()? else { return Ok(false) };
        self.host(&host, out)?;
        Ok(true)
    }

    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let elapsed = format!("{:.2}", self.last.since(self.run.start).as_secs_f64());
        let total = self.up + self.down;
        let time = LongTime(self.last).to_string();
        let summary =
            format!("bannerwall done at {time}; {total} targets ({} answered) in {elapsed} seconds", self.up);
        let mut xml = Writer::new(&mut *out);
        start(&mut xml, "runstats", &[])?;
        let finished = [
            ("time", seconds(self.last)),
            ("timestr", time),
            ("summary", summary),
            ("elapsed", elapsed),
            ("exit", "success".to_owned()),
        ];
        empty(&mut xml, "finished", &finished.each_ref().map(|(name, value)| (*name, value.as_str())))?;
        let (up, down, total) = (self.up.to_string(), self.down.to_string(), total.to_string());
        empty(&mut xml, "hosts", &[("up", &up), ("down", &down), ("total", &total)])?;
        end(&mut xml, "runstats")?;
        end(&mut xml, "nmaprun")?;
        out.write_all(b"\n")
    }
}

impl NmapXml {
    /// Writes a host. It is up if any of its ports answered.
    fn host(&mut self, (address, ports): &SpooledHost, out: &mut Vec<u8>) -> io::Result<()> {
        let answered = ports.iter().any(|port| port.answered);
        *if answered { &mut self.up } else { &mut self.down } += 1;
        let times = || ports.iter().map(|port| port.timestamp);
        let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        let mut xml = Writer::new(&mut *out);
        start(&mut xml, "host", &[("starttime", &seconds(first)), ("endtime", &seconds(last))])?;
        let state = if answered { "up" } else { "unknown" };
        empty(&mut xml, "status", &[("state", state), ("reason", "user-set"), ("reason_ttl", "0")])?;
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        empty(&mut xml, "address", &[("addr", &address.to_string()), ("addrtype", family)])?;
        start(&mut xml, "ports", &[])?;
        ports.iter().try_for_each(|port| xml.get_mut().write_all(&port.element))?;
        end(&mut xml, "ports")?;
        end(&mut xml, "host")?;
        out.write_all(b"\n")
    }
}

fn port(xml: &mut XmlWriter<'_>, finding: &TargetReport<'_>) -> io::Result<()> {
    start(xml, "port", &[("protocol", "tcp"), ("portid", &finding.target.port().to_string())])?;
    let (state, reason) = (finding.state(), reason(finding));
    empty(xml, "state", &[("state", state.name()), ("reason", reason), ("reason_ttl", "0")])?;
    service(xml, finding)?;
    scripts(xml, finding)?;
    end(xml, "port")
}

/// Returns nmap's word for the reason, else bannerwall's.
fn reason<'a>(finding: &TargetReport<'a>) -> &'a str {
    match (finding.state(), finding.connect) {
        (PortState::Open, _) => "syn-ack",
        (PortState::Closed, _) => "conn-refused",
        (_, Some(facts)) => &facts.reason,
        (_, None) => "no-response",
    }
}

fn service(xml: &mut XmlWriter<'_>, finding: &TargetReport<'_>) -> io::Result<()> {
    let Some(name) = finding.service() else { return Ok(()) };
    let mut element = BytesStart::new("service");
    attribute(&mut element, "name", name);
    let product = product(finding);
    let ssh = finding.ssh().map(|side| format!("protocol {}", side.protocol_version));
    let extra = ssh.or(product.extra);
    for (name, value) in [("product", &product.name), ("version", &product.version), ("extrainfo", &extra)] {
        if let Some(value) = value {
            attribute(&mut element, name, value);
        }
    }
    if finding.is_within_tls() {
        attribute(&mut element, "tunnel", "ssl");
    }
    attribute(&mut element, "method", "probed");
    attribute(&mut element, "conf", "10");
    match &product.cpe {
        None => xml.write_event(Xml::Empty(element)),
        Some(cpe) => {
            xml.write_event(Xml::Start(element))?;
            start(xml, "cpe", &[])?;
            xml.write_event(Xml::Text(BytesText::new(&clean(cpe))))?;
            end(xml, "cpe")?;
            end(xml, "service")
        }
    }
}

/// The software of a `service` element.
#[derive(Default)]
struct XmlProduct {
    name: Option<String>,
    version: Option<String>,
    extra: Option<String>,
    cpe: Option<String>,
}

fn product(finding: &TargetReport<'_>) -> XmlProduct {
    let own = finding.identity();
    match finding.named() {
        Some(facts) => XmlProduct {
            name: facts.product.clone(),
            version: facts.version.clone(),
            extra: own.and_then(|own| own.extra),
            cpe: facts.cpe.clone(),
        },
        None => match own {
            Some(ServiceIdentity { product, version, extra, cpe }) => {
                XmlProduct { name: Some(product), version, extra, cpe }
            }
            None => {
                let facts = finding.product().cloned().unwrap_or_default();
                let name = facts.product.or_else(|| finding.software().map(Cow::into_owned));
                XmlProduct { name, version: facts.version, extra: None, cpe: facts.cpe }
            }
        },
    }
}

fn scripts(xml: &mut XmlWriter<'_>, finding: &TargetReport<'_>) -> io::Result<()> {
    let foreign = finding.connect.map_or("", |facts| facts.said.as_str());
    let banner = finding.banner().unwrap_or(foreign.into());
    if !banner.is_empty() {
        empty(xml, "script", &[("id", "banner"), ("output", &banner)])?;
    }
    let mut headers = String::new();
    for response in finding.responses() {
        headers.push_str(&format!(
            "\n  {} {} {}",
            response.version,
            response.status,
            escape(&response.reason)
        ));
        for field in &response.headers {
            headers.push_str(&format!("\n  {}: {}", escape(&field.name), escape(&field.value)));
        }
        headers.push_str("\n  ");
    }
    if !headers.is_empty() {
        empty(xml, "script", &[("id", "http-headers"), ("output", &headers)])?;
    }
    if let Some(title) = finding.responses().find_map(|response| response.title.as_deref()) {
        empty(xml, "script", &[("id", "http-title"), ("output", title)])?;
    }
    if let Some(certificate) = finding.tls().find_map(TlsFacts::certificate) {
        empty(xml, "script", &[("id", "ssl-cert"), ("output", &ssl_cert(certificate))])?;
    }
    if let Some(key) = finding.host_key() {
        host_key_script(xml, key)?;
    }
    finding.alerts.iter().try_for_each(|alert| alert_script(xml, alert))
}

/// Writes a host key as nmap's script does, except for the fingerprint, which is OpenSSH's, and the
/// signature.
fn host_key_script(xml: &mut XmlWriter<'_>, key: &HostKey) -> io::Result<()> {
    start(xml, "script", &[("id", "ssh-hostkey"), ("output", &format!("\n  {key}"))])?;
    start(xml, "table", &[])?;
    let HostKey { algorithm, fingerprint, signature } = key;
    for (key, value) in [("type", *algorithm), ("fingerprint", fingerprint), ("signature", signature.name())]
    {
        start(xml, "elem", &[("key", key)])?;
        xml.write_event(Xml::Text(BytesText::new(value)))?;
        end(xml, "elem")?;
    }
    end(xml, "table")?;
    end(xml, "script")
}

/// Returns a certificate as nmap's script writes it.
fn ssl_cert(certificate: &CertificateFacts) -> String {
    let CertificateFacts { subject, issuer, key, key_bits, signature, not_before, not_after, sha1, .. } =
        certificate;
    let names: Vec<String> = certificate.names.iter().map(|name| escape(name).into_owned()).collect();
    format!(
        "Subject: {}\nSubject Alternative Name: {}\nIssuer: {}\nPublic Key type: {key}\nPublic Key bits: {key_bits}\n\
         Signature Algorithm: {signature}\nNot valid before: {not_before}\nNot valid after:  {not_after}\nSHA-1: {sha1}",
        escape(subject),
        names.join(", "),
        escape(issuer),
    )
}

fn alert_script(xml: &mut XmlWriter<'_>, facts: &AlertFacts) -> io::Result<()> {
    let references = facts.references.join(" ");
    let told = facts.verdict.as_deref();
    let verdict = told.map_or_else(String::new, |told| format!(" {}: {}", told.verdict.name(), told.reason));
    let matched = MatchedField::of(facts).map(|field| field.to_string());
    let shown = MatchedField::beyond_line(facts).map(|field| format!(" {field}")).unwrap_or_default();
    let output = format!("{}: {} {references}{shown}{verdict}", facts.severity.name(), facts.title);
    let id = format!("bannerwall-{}", facts.rule);
    start(xml, "script", &[("id", &id), ("output", output.trim_end())])?;
    let about = [
        ("rule", facts.rule.as_str()),
        ("severity", facts.severity.name()),
        ("title", &facts.title),
        ("references", &references),
        ("banner", &facts.banner),
    ];
    let evidence = told.into_iter().flat_map(|told| {
        let fixed = told.fixed.as_deref().map(|fixed| ("fixed", fixed));
        let marker = told.marker.map(|marker| ("marker", marker));
        [("verdict", told.verdict.name()), ("reason", &told.reason)].into_iter().chain(fixed).chain(marker)
    });
    let matched = matched.as_deref().map(|matched| ("matched", matched));
    for (key, value) in about.into_iter().chain(matched).chain(evidence) {
        start(xml, "elem", &[("key", key)])?;
        xml.write_event(Xml::Text(BytesText::new(&clean(value))))?;
        end(xml, "elem")?;
    }
    end(xml, "script")
}

fn seconds(timestamp: Timestamp) -> String {
    (timestamp.as_nanos() / 1_000_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::output::sample_events::{NOON, all, spelled};

    /// nmap's own document type, as Debian's nmap-common has it.
    const DOCUMENT_TYPE: &str = "/usr/share/nmap/nmap.dtd";

    fn document() -> String {
        let run = XmlRun {
            arguments: "bannerwall scan ssh --match '<&\">'\n\x1b".to_owned(),
            start: NOON,
            services: "22,25,8080".to_owned(),
            service_count: 3,
        };
        spelled(NmapXml::new(run), &all())
    }

    #[test]
    fn nmaps_document_type_accepts_it() {
        let mut lint = match Command::new("xmllint")
            .args(["--noout", "--dtdvalid", DOCUMENT_TYPE, "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
        {
            Ok(lint) if std::path::Path::new(DOCUMENT_TYPE).exists() => lint,
            _ => {
                return eprintln!("skipped: needs xmllint (libxml2-utils) and {DOCUMENT_TYPE} (nmap-common)");
            }
        };
        lint.stdin.take().expect("a pipe").write_all(document().as_bytes()).expect("xmllint reads");
        let said = lint.wait_with_output().expect("xmllint ends");
        assert!(said.status.success(), "{}\n{}", String::from_utf8_lossy(&said.stderr), document());
    }

    #[test]
    fn a_reader_gets_back_what_was_found() {
        let text = document();
        let mut reader = quick_xml::Reader::from_str(&text);
        let (mut ports, mut scripts, mut hosts) = (Vec::new(), Vec::new(), None);
        loop {
            let element = match reader.read_event().expect("well-formed") {
                Xml::Eof => break,
                Xml::Start(element) | Xml::Empty(element) => element,
                _ => continue,
            };
            let value = |name: &str| {
                let attribute = element.try_get_attribute(name).expect("well-formed").expect("it is there");
                let value =
                    attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0).expect("known entities");
                value.into_owned()
            };
            match element.name().as_ref() {
                "port" => ports.push(value("portid")),
                "state" => ports.push(value("state")),
                "script" => scripts.push((value("id"), value("output"))),
                "hosts" => hosts = Some((value("up"), value("down"), value("total"))),
                _ => {}
            }
        }
        // In the order of the addresses, as none has all of the three ports.
        let expected =
            ["25", "open", "22", "closed", "22", "error", "2222", "open", "22", "filtered", "8080", "open"];
        assert_eq!(ports, expected);
        assert_eq!(hosts, Some(("4".to_owned(), "2".to_owned(), "6".to_owned())));
        let output = |id: &str| -> Vec<&str> {
            scripts.iter().filter(|script| script.0 == id).map(|script| script.1.as_str()).collect()
        };
        let banners = output("banner");
        assert_eq!(banners, ["220 <mail>\\r\n\\x1b[2J\u{fffd}", "SSH-2.0-OpenSSH_9.2p1 <&\"'>\\x07/x"]);
        assert_eq!(output("http-title"), ["Welcome & <so on>"]);
        let alerts = output("bannerwall-openssh-regresshion");
        assert_eq!(alerts, ["high: OpenSSH 8.5p1 to 9.7p1 CVE-2024-6387"]);
    }
}
