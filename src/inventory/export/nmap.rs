//! Exports servers as nmap's XML, with a `host` element for each host, for readers of nmap's results.

use std::io::Write;

use quick_xml::events::{BytesDecl, BytesText, Event as Xml};
use quick_xml::writer::Writer;

use super::ExportError;
use crate::inventory::database::InventoryDatabase;
use crate::inventory::database::query::{self, ServiceRecord};
use crate::inventory::filter::ServiceFilter;
use crate::inventory::inventory_time::InventoryTime;
use crate::inventory::sighting::UNKNOWN;
use crate::output::xml::element::{XmlWriter, clean, empty, end, start};

/// The version of nmap's XML that is written.
const XML_VERSION: &str = "1.05";

/// Writes the servers that a filter selects.
///
/// # Errors
/// Errors of the database or of `out`.
pub fn nmap(
    inventory: &InventoryDatabase,
    filter: &ServiceFilter,
    now: InventoryTime,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut document = NmapDocument { out, now, host: Vec::new(), up: 0, down: 0 };
    document.begin()?;
    query::services(inventory, filter, |service| document.service(service))?;
    document.end()
}

struct NmapDocument<'a> {
    out: &'a mut dyn Write,
    now: InventoryTime,
    /// The servers of the current host.
    host: Vec<ServiceRecord>,
    up: u64,
    down: u64,
}

impl NmapDocument<'_> {
    fn begin(&mut self) -> Result<(), ExportError> {
        let mut text = Vec::new();
        let mut xml = Writer::new(&mut text);
        xml.write_event(Xml::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        xml.write_event(Xml::DocType(BytesText::from_escaped("nmaprun")))?;
        let (seconds, time) = (seconds(self.now), self.now.to_string());
        let run = [
            // The document type allows no other scanner.
            ("scanner", "nmap"),
            ("args", "bannerwall inventory export"),
            ("start", &seconds),
            ("startstr", &time),
            ("version", concat!("bannerwall ", env!("CARGO_PKG_VERSION"))),
            ("xmloutputversion", XML_VERSION),
        ];
        start(&mut xml, "nmaprun", &run)?;
        empty(&mut xml, "verbose", &[("level", "0")])?;
        empty(&mut xml, "debugging", &[("level", "0")])?;
        self.put(&text)
    }

    /// Services come in the order of addresses. If a port has several protocols, the best one is written.
    fn service(&mut self, service: ServiceRecord) -> Result<(), ExportError> {
        if service.side != "server" {
            return Ok(());
        }
        if self.host.first().is_some_and(|first| first.address != service.address) {
            self.host()?;
        }
        match self.host.last_mut() {
            Some(last) if last.port == service.port => {
                if better(&service) > better(last) {
                    *last = service;
                }
            }
            _ => self.host.push(service),
        }
        Ok(())
    }

    fn host(&mut self) -> Result<(), ExportError> {
        let services = std::mem::take(&mut self.host);
        let Some(first) = services.first() else { return Ok(()) };
        let is_up = services.iter().any(|service| service.state == "open");
        *if is_up { &mut self.up } else { &mut self.down } += 1;
        let times = |time: fn(&ServiceRecord) -> InventoryTime| services.iter().map(time);
        let begin = times(|it| it.first_seen).min().unwrap_or(self.now);
        let last = times(|it| it.last_seen).max().unwrap_or(self.now);
        let mut text = Vec::new();
        let mut xml = Writer::new(&mut text);
        start(&mut xml, "host", &[("starttime", &seconds(begin)), ("endtime", &seconds(last))])?;
        let state = if is_up { "up" } else { "unknown" };
        empty(&mut xml, "status", &[("state", state), ("reason", "user-set"), ("reason_ttl", "0")])?;
        let family = if first.address.contains(':') { "ipv6" } else { "ipv4" };
        empty(&mut xml, "address", &[("addr", &first.address), ("addrtype", family)])?;
        start(&mut xml, "ports", &[])?;
        services.iter().try_for_each(|service| port(&mut xml, service))?;
        end(&mut xml, "ports")?;
        end(&mut xml, "host")?;
        self.put(&text)
    }

    fn end(mut self) -> Result<(), ExportError> {
        self.host()?;
        let (seconds, time) = (seconds(self.now), self.now.to_string());
        let (up, down, total) =
            (self.up.to_string(), self.down.to_string(), (self.up + self.down).to_string());
        let mut text = Vec::new();
        let mut xml = Writer::new(&mut text);
        start(&mut xml, "runstats", &[])?;
        let finished =
            [("time", seconds.as_str()), ("timestr", &time), ("elapsed", "0.00"), ("exit", "success")];
        empty(&mut xml, "finished", &finished)?;
        empty(&mut xml, "hosts", &[("up", &up), ("down", &down), ("total", &total)])?;
        end(&mut xml, "runstats")?;
        end(&mut xml, "nmaprun")?;
        self.put(&text)
    }

    fn put(&mut self, text: &[u8]) -> Result<(), ExportError> {
        self.out.write_all(text)?;
        Ok(self.out.write_all(b"\n")?)
    }
}

/// Order of two protocols at a port: one that is present is best, then one that is known, then the last
/// seen.
fn better(service: &ServiceRecord) -> (bool, bool, InventoryTime) {
    (service.state == "open", service.protocol != UNKNOWN, service.last_seen)
}

fn port(xml: &mut XmlWriter<'_>, service: &ServiceRecord) -> std::io::Result<()> {
    start(xml, "port", &[("protocol", &service.transport), ("portid", &service.port.to_string())])?;
    let (state, reason) =
        if service.state == "open" { ("open", "syn-ack") } else { ("closed", "no-response") };
    empty(xml, "state", &[("state", state), ("reason", reason), ("reason_ttl", "0")])?;
    let mut about = vec![("name", service.protocol.as_str())];
    let known = [
        ("product", &service.product),
        ("version", &service.version),
        ("extrainfo", &service.patch),
        ("ostype", &service.os),
    ];
    about.extend(known.iter().filter_map(|(name, value)| value.as_deref().map(|value| (*name, value))));
    about.extend([("method", "probed"), ("conf", "10")]);
    start(xml, "service", &about)?;
    if let Some(cpe) = &service.cpe {
        start(xml, "cpe", &[])?;
        xml.write_event(Xml::Text(BytesText::new(&clean(cpe))))?;
        end(xml, "cpe")?;
    }
    end(xml, "service")?;
    if !service.banner.is_empty() {
        empty(xml, "script", &[("id", "banner"), ("output", &service.banner)])?;
    }
    for found in &service.findings {
        let (id, output) =
            (format!("bannerwall-{}", found.rule), format!("{}: {}", found.severity, found.title));
        empty(xml, "script", &[("id", &id), ("output", &output)])?;
    }
    end(xml, "port")
}

fn seconds(time: InventoryTime) -> String {
    (time.millis() / 1_000).to_string()
}
