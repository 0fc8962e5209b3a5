//! nmap's XML: open TCP ports with nmap's data about them, and closed ports that were known before.

use std::io::{self, BufRead, Read};

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::conversion::{protocol, says, server, time};
use super::{FileImporter, ImportFileError, NumberedLines};
use crate::event::Timestamp;
use crate::inventory::banner_product::named;
use crate::inventory::sighting::{NamedSoftware, SightingContent, UNKNOWN, banner};

/// Largest size of a tag or a text in bytes. Scripts print a few pages at most.
const PIECE: usize = 1 << 20;

/// XML with an error if one tag or text is longer than [`PIECE`], before it exhausts memory.
struct BoundedXmlReader<'i> {
    inner: &'i mut dyn BufRead,
    /// Number of bytes that the tag or text may still have.
    left: usize,
}

impl Read for BoundedXmlReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for BoundedXmlReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let bytes = self.inner.fill_buf()?;
        if self.left == 0 && !bytes.is_empty() {
            return Err(io::Error::other(format!("a tag or text of more than {} MiB", PIECE >> 20)));
        }
        Ok(bytes.get(..self.left).unwrap_or(bytes))
    }

    fn consume(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
        self.inner.consume(count);
    }
}

/// The data of the current host and port.
#[derive(Debug, Default)]
struct NmapHost {
    at: Option<Timestamp>,
    address: Option<String>,
}

#[derive(Debug, Default)]
struct NmapPort {
    number: u64,
    is_tcp: bool,
    state: String,
    name: Option<String>,
    by_tls: bool,
    product: Option<String>,
    version: Option<String>,
    os: Option<String>,
    cpe: Option<String>,
    banner: Option<String>,
}

pub(super) fn read(lines: &mut NumberedLines, importer: &mut FileImporter) -> Result<(), ImportFileError> {
    let mut reader = Reader::from_reader(BoundedXmlReader { inner: &mut lines.input, left: PIECE });
    let (mut host, mut port) = (NmapHost::default(), NmapPort::default());
    let (mut started, mut is_cpe, mut met_root) = (None, false, false);
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        reader.get_mut().left = PIECE;
        let event = reader.read_event_into(&mut buffer);
        let event = event
            .map_err(|error| ImportFileError::Fault(format!("byte {}: {error}", reader.error_position())))?;
        match event {
            Event::Start(element) | Event::Empty(element) => match element.name().as_ref() {
                "nmaprun" => {
                    met_root = true;
                    started = value(&element, "start").as_deref().and_then(time);
                }
                "host" => {
                    let at = value(&element, "endtime").or_else(|| value(&element, "starttime"));
                    host = NmapHost { at: at.as_deref().and_then(time).or(started), address: None };
                }
                "address" if value(&element, "addrtype").as_deref() != Some("mac") => {
                    host.address = value(&element, "addr");
                }
                "port" => {
                    let number = value(&element, "portid").and_then(|number| number.parse().ok());
                    let is_tcp = value(&element, "protocol").as_deref() == Some("tcp");
                    port = NmapPort { number: number.unwrap_or_default(), is_tcp, ..NmapPort::default() };
                }
                "state" => port.state = value(&element, "state").unwrap_or_default(),
                "service" => port.service(&element),
                "script" => port.script(&element),
                "cpe" => is_cpe = true,
                _ => {}
            },
            Event::Text(text) if is_cpe && port.cpe.is_none() => {
                port.cpe = Some(text.xml_content(XmlVersion::Implicit1_0).into_owned());
            }
            Event::End(element) => match element.name().as_ref() {
                "cpe" => is_cpe = false,
                "port" => {
                    let told = std::mem::take(&mut port).tell(&host, importer)?;
                    importer.count(told);
                }
                _ => {}
            },
            Event::Eof => break,
            _ => {}
        }
    }
    if met_root {
        Ok(())
    } else {
        Err(ImportFileError::Fault("no <nmaprun> element: not nmap's XML".to_owned()))
    }
}

fn value(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = element.try_get_attribute(name).ok().flatten()?;
    attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(std::borrow::Cow::into_owned)
}

impl NmapPort {
    fn service(&mut self, element: &BytesStart<'_>) {
        // A name from the table of ports does not describe the real service.
        let is_probed = value(element, "method").as_deref() != Some("table");
        self.name = value(element, "name").filter(|_| is_probed);
        self.by_tls = value(element, "tunnel").as_deref() == Some("ssl");
        self.product = value(element, "product");
        self.version = value(element, "version");
        self.os = value(element, "ostype");
    }

    /// Reads the banner from a script's output.
    fn script(&mut self, element: &BytesStart<'_>) {
        let output = value(element, "output").unwrap_or_default();
        match value(element, "id").as_deref() {
            Some("banner") => self.banner = Some(output),
            Some("http-server-header") => {
                let line = output.lines().map(str::trim).find(|line| !line.is_empty());
                self.banner = line.map(str::to_owned);
            }
            Some("http-headers") if self.banner.is_none() => {
                let field = output.lines().find_map(|line| line.trim().strip_prefix("Server: "));
                self.banner = field.map(str::to_owned);
            }
            _ => {}
        }
    }

    fn tell(self, host: &NmapHost, importer: &mut FileImporter) -> Result<bool, ImportFileError> {
        let (Some(at), Some(address), true) = (host.at, &host.address, self.is_tcp) else { return Ok(false) };
        let name = if self.by_tls { Some("tls") } else { self.name.as_deref() };
        let spoken = name.map_or(UNKNOWN, protocol);
        let Some(asset) = server(address, self.number, spoken) else { return Ok(false) };
        match self.state.as_str() {
            "open" => {}
            "closed" => {
                importer.tell(&asset, SightingContent::Gone, NamedSoftware::default(), at)?;
                return Ok(true);
            }
            _ => return Ok(false),
        }
        importer.said(&asset, self.says(spoken), at)?;
        Ok(true)
    }

    /// Returns its banner, and the software by nmap's detection.
    fn says(self, spoken: &'static str) -> (crate::inventory::sighting::AssetBanner, NamedSoftware) {
        let words = |text: &Option<String>| text.clone().unwrap_or_default();
        let known = format!("{} {}", words(&self.product), words(&self.version));
        let (said, mut software) = match &self.banner {
            Some(text) => says(spoken, text),
            // nmap's own description is no identification.
            None => (banner(known.trim()), NamedSoftware { product: named(""), patch: None }),
        };
        if let Some(product) = self.product {
            let version = words(&self.version);
            let (version, patch) = version.split_once(' ').unwrap_or((&version, ""));
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            software.product.product = Some(product);
            software.product.version = some(version);
            software.patch = software.patch.or_else(|| some(patch));
        }
        software.product.os = self.os.or(software.product.os);
        software.product.cpe =
            self.cpe.filter(|cpe| cpe.starts_with("cpe:/a:") || cpe.starts_with("cpe:2.3:a:"));
        (said, software)
    }
}
