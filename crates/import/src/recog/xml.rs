//! The XML of a Recog database: reads elements into plain values and checks only the form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Component, Path};

use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

use bannerwall_inspect::rules::fingerprint::{ExampleEntry, decode_base64};
use bannerwall_inspect::rules::limits;
use bannerwall_inspect::rules::text_source::read_octets;

const VERSION: XmlVersion = XmlVersion::Implicit1_0;

/// A database as in its file.
#[derive(Debug, Default)]
pub(super) struct RecogDatabase {
    pub(super) matches: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) fingerprints: Vec<RecogFingerprint>,
}

/// A fingerprint as in its file.
#[derive(Debug, Default)]
pub(super) struct RecogFingerprint {
    pub(super) line: usize,
    pub(super) pattern: String,
    pub(super) flags: String,
    pub(super) description: String,
    pub(super) parameters: Vec<RecogParameter>,
    pub(super) examples: Vec<RecogExample>,
}

/// A field's source: constant at position 0, else a capture group.
#[derive(Debug)]
pub(super) struct RecogParameter {
    pub(super) position: usize,
    pub(super) name: String,
    pub(super) value: String,
}

/// An example as in its file. Attributes with a leading underscore describe how to read it; the others
/// are fields that it must give.
#[derive(Debug, Default)]
pub(super) struct RecogExample {
    attributes: BTreeMap<String, String>,
    content: String,
}

/// A deviation from Recog's form, with its position.
#[derive(Debug)]
pub(super) struct RecogFault {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// Reads the text of a database.
pub(super) fn read(text: &str) -> Result<RecogDatabase, RecogFault> {
    let mut reading = RecogReader { text, line: 1, ..RecogReader::default() };
    let mut reader = Reader::from_str(text);
    loop {
        reading.go_to(usize::try_from(reader.buffer_position()).unwrap_or(text.len()));
        let event = reader.read_event().map_err(|error| {
            reading.go_to(usize::try_from(reader.error_position()).unwrap_or(text.len()));
            reading.fault(error.to_string())
        })?;
        match event {
            Event::Start(element) => reading.start(&element)?,
            Event::Empty(element) => {
                reading.start(&element)?;
                reading.end(element.name().as_ref());
            }
            Event::End(element) => reading.end(element.name().as_ref()),
            Event::Text(text) => reading.content.push_str(&text.xml_content(VERSION)),
            Event::CData(text) => reading.content.push_str(&text.xml_content(VERSION)),
            Event::GeneralRef(reference) => reading.reference(&reference)?,
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    if !reading.met_root {
        return Err(reading.fault("no <fingerprints> element: not a Recog database".into()));
    }
    Ok(reading.source)
}

#[derive(Default)]
struct RecogReader<'t> {
    text: &'t str,
    /// Start of the current event, in bytes and as a line from 1.
    offset: usize,
    line: usize,
    met_root: bool,
    source: RecogDatabase,
    current: Option<RecogFingerprint>,
    example: Option<RecogExample>,
    content: String,
}

impl RecogReader<'_> {
    /// Moves to a byte. Lines are counted from the start of the last event: counting from the start of
    /// the file each time would cost the square of its length.
    fn go_to(&mut self, offset: usize) {
        let lines = |octets: Option<&[u8]>| {
            octets.unwrap_or_default().iter().filter(|octet| **octet == b'\n').count()
        };
        let octets = self.text.as_bytes();
        self.line = if offset >= self.offset {
            self.line + lines(octets.get(self.offset..offset))
        } else {
            1 + lines(octets.get(..offset))
        };
        self.offset = offset;
    }

    fn fault(&self, reason: String) -> RecogFault {
        RecogFault { line: self.line, reason }
    }

    fn start(&mut self, element: &BytesStart<'_>) -> Result<(), RecogFault> {
        self.content.clear();
        let mut attributes = self.attributes(element)?;
        match element.name().as_ref() {
            "fingerprints" => {
                self.met_root = true;
                self.source.matches = attributes.remove("matches");
                self.source.protocol = attributes.remove("protocol");
            }
            "fingerprint" => {
                let Some(pattern) = attributes.remove("pattern") else {
                    return Err(self.fault("a fingerprint without a pattern".into()));
                };
                let flags = attributes.remove("flags").unwrap_or_default();
                let line = self.line;
                self.current = Some(RecogFingerprint { line, pattern, flags, ..RecogFingerprint::default() });
            }
            "example" => self.example = Some(RecogExample { attributes, content: String::new() }),
            "param" => {
                let parameter = self.parameter(attributes)?;
                if let Some(current) = &mut self.current {
                    current.parameters.push(parameter);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, name: &str) {
        let content = std::mem::take(&mut self.content);
        match (name, &mut self.current) {
            ("fingerprint", current) => self.source.fingerprints.extend(current.take()),
            // Recog wraps its descriptions like prose.
            ("description", Some(current)) => {
                current.description = content.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            ("example", Some(current)) => {
                current
                    .examples
                    .extend(self.example.take().map(|example| RecogExample { content, ..example }));
            }
            _ => {}
        }
    }

    fn attributes(&self, element: &BytesStart<'_>) -> Result<BTreeMap<String, String>, RecogFault> {
        let mut attributes = BTreeMap::new();
        for attribute in element.attributes() {
            let attribute = attribute.map_err(|error| self.fault(error.to_string()))?;
            let value = attribute.normalized_value(VERSION).map_err(|error| self.fault(error.to_string()))?;
            attributes.insert(attribute.key.as_ref().to_owned(), value.into_owned());
        }
        Ok(attributes)
    }

    fn parameter(&self, mut attributes: BTreeMap<String, String>) -> Result<RecogParameter, RecogFault> {
        let (Some(position), Some(name)) = (attributes.remove("pos"), attributes.remove("name")) else {
            return Err(self.fault("a param needs pos and name".into()));
        };
        let position =
            position.trim().parse().map_err(|_| self.fault(format!("pos={position:?} is not a number")))?;
        Ok(RecogParameter { position, name, value: attributes.remove("value").unwrap_or_default() })
    }

    fn reference(&mut self, reference: &BytesRef<'_>) -> Result<(), RecogFault> {
        let name = reference.xml_content(VERSION);
        let resolved = match reference.resolve_char_ref().map_err(|error| self.fault(error.to_string()))? {
            Some(letter) => Some(Cow::Owned(letter.to_string())),
            None => quick_xml::escape::resolve_predefined_entity(&name).map(Cow::Borrowed),
        };
        let Some(resolved) = resolved else {
            return Err(self.fault(format!("the entity &{name}; is not known")));
        };
        self.content.push_str(&resolved);
        Ok(())
    }
}

impl RecogExample {
    /// Returns the example in bannerwall's form. `path` is the database's; files of `_filename` examples
    /// are in its directory.
    pub(super) fn read(&self, path: &Path) -> Result<ExampleEntry, String> {
        let content = match self.attributes.get("_filename") {
            Some(name) => read_example_file(path, name)?,
            None => self.content.clone().into_bytes(),
        };
        let content = match self.attributes.get("_encoding").map(String::as_str) {
            None => content,
            Some("base64") => decode_base64(&String::from_utf8_lossy(&content)),
            Some(other) => return Err(format!("its encoding {other} is not known")),
        };
        let stated = self.attributes.iter().filter(|(name, _)| !name.starts_with('_'));
        Ok(ExampleEntry::new(&content, stated.map(|(name, value)| (name.clone(), value.clone())).collect()))
    }
}

/// Reads an example's file: from the directory named like the database, or from the database's directory;
/// never from elsewhere.
fn read_example_file(path: &Path, name: &str) -> Result<Vec<u8>, String> {
    // `..`, `/` and a drive are components of other kinds. The database comes from outside and must not read
    // other files.
    let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if !inside {
        return Err(format!("its file {name} is not in the folder of the database"));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let own = path.with_extension("").join(name);
    let read = |file: &Path| read_octets(file, limits::FINGERPRINT_OCTETS);
    read(&own).or_else(|_| read(&folder.join(name))).map_err(|error| format!("its file {name}: {error}"))
}
