//! The fingerprint file as text: TOML to plain values and back, without compiling.
//!
//! ```toml
//! [[database]]
//! matches = "ssh.banner"                 # what its patterns read, see the table in `fingerprint`
//! protocol = "ssh"                       # becomes the field service.protocol
//!
//! [[database.fingerprint]]
//! name = "OpenSSH on Debian"
//! pattern = '^OpenSSH_([\w.]+) Debian-(\S+)$'
//! unless = '^OpenSSH_0'                  # takes it back
//! [database.fingerprint.fields]
//! "service.product" = "OpenSSH"          # a text stands for itself,
//! "service.version" = 1                  # a number for what that capture group holds,
//! "service.cpe23" = "cpe:/a:openbsd:openssh:{service.version}"    # braces for another field
//! [[database.fingerprint.examples]]
//! text = "OpenSSH_9.2p1 Debian-2"        # or base64 = "…"
//! fields = { "service.version" = "9.2p1" }
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::base64;

/// A whole fingerprint file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FingerprintFile {
    /// Its databases, in the order of look-ups.
    #[serde(default)]
    pub database: Vec<DatabaseEntry>,
}

/// The fingerprints that read one kind of text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseEntry {
    /// The text that its patterns read, by Recog's name: `ssh.banner`, `http_header.server`.
    pub matches: String,
    /// The value of `service.protocol` if a fingerprint sets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its fingerprints; the first that matches wins.
    #[serde(default)]
    pub fingerprint: Vec<FingerprintEntry>,
}

/// One fingerprint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FingerprintEntry {
    /// Description of the software that it recognizes.
    pub name: String,
    /// A regular expression of the regex crate over bytes; classes are ASCII.
    pub pattern: String,
    /// A regular expression that excludes a match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unless: Option<String>,
    /// Facts about the software that it recognizes.
    #[serde(default)]
    pub fields: BTreeMap<String, FieldEntry>,
    /// Texts that it must recognize.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ExampleEntry>,
}

/// The source of a field's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldEntry {
    /// The capture group of this number, from 1.
    Capture(usize),
    /// This text, in which `{other.field}` is replaced by that field's value.
    Text(String),
}

/// A text that a fingerprint must recognize.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExampleEntry {
    /// The text itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The text in base64, if it is not printable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Fields that the fingerprint must set for it; it may set more.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

impl ExampleEntry {
    /// Creates an example: as text if it is printable, else in base64.
    pub fn new(content: &[u8], fields: BTreeMap<String, String>) -> Self {
        let printable = |text: &&str| !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'));
        match std::str::from_utf8(content).ok().filter(printable) {
            Some(text) => Self { text: Some(text.to_owned()), base64: None, fields },
            None => Self { text: None, base64: Some(base64::encode(content)), fields },
        }
    }

    /// Returns the bytes that the fingerprint must recognize.
    pub fn content(&self) -> Vec<u8> {
        match (&self.text, &self.base64) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(encoded)) => base64::decode(encoded),
            (None, None) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_survives_being_written_and_read() {
        let entry = FingerprintEntry {
            name: "Quotes ''' and \"\"\"".into(),
            pattern: r"^'([\w.]+)'''\\$".into(),
            unless: None,
            fields: BTreeMap::from([
                ("service.product".into(), FieldEntry::Text("Cafe\u{e9}\t".into())),
                ("service.version".into(), FieldEntry::Capture(1)),
            ]),
            examples: vec![
                ExampleEntry::new(b"\x00\xff", BTreeMap::new()),
                ExampleEntry::new(b"line\nline ", BTreeMap::from([("a".into(), String::new())])),
            ],
        };
        let document = FingerprintFile {
            database: vec![DatabaseEntry {
                matches: "ssh.banner".into(),
                protocol: Some("ssh".into()),
                fingerprint: vec![entry],
            }],
        };
        let text = toml::to_string_pretty(&document).expect("a document can be written");
        let read: FingerprintFile = toml::from_str(&text).expect("and read again");
        assert_eq!(read, document);
        let contents: Vec<_> =
            read.database[0].fingerprint[0].examples.iter().map(ExampleEntry::content).collect();
        assert_eq!(contents, [b"\x00\xff".to_vec(), b"line\nline ".to_vec()]);
    }
}
