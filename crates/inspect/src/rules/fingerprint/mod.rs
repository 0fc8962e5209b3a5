//! Fingerprints: product, version and system that a banner reveals.
//!
//! A fingerprint file holds databases, each for one kind of text, named in Recog's words:
//!
//! | `matches` | what its patterns read |
//! |---|---|
//! | `ssh.banner` | software and comments of an SSH identification |
//! | `http_header.server` | the Server field |
//! | `http_header.x-powered-by` | the X-Powered-By field |
//! | `http_header.wwwauth` | the WWW-Authenticate field |
//! | `http_header.cookie` | the Set-Cookie field |
//! | `html_title` | the text of a page's title |
//!
//! The first fingerprint of a database that matches wins, as in Recog. This module compiles files
//! and looks up texts. It reads no XML (`recog` does) and reports nothing.

mod base64;
mod compiled;
mod file;

use std::path::{Path, PathBuf};

use super::limits;
use super::text_source::read_text;
use super::toml_nesting;
use crate::banner::{GreetingBanner, ResponseHead};
use crate::event::ProductFacts;
use crate::terms::GreetingProtocol;

pub use base64::decode as decode_base64;
use compiled::FingerprintDatabase;
pub use compiled::IdentifiedProduct;
pub use file::{DatabaseEntry, ExampleEntry, FieldEntry, FingerprintEntry, FingerprintFile};

/// Fingerprint databases, compiled.
#[derive(Debug, Default)]
pub struct FingerprintSet {
    databases: Vec<FingerprintDatabase>,
}

/// Error of loading fingerprints.
#[derive(Debug, thiserror::Error)]
pub enum FingerprintError {
    /// A file or directory could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file was refused: it is too large, no regular file, or not UTF-8.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the refusal.
        reason: String,
    },
    /// A directory holds no fingerprint file.
    #[error("{}: no *.toml file in this folder", path.display())]
    Empty {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A Recog file, which must be converted first.
    #[error("{}: a Recog file; convert it with `bannerwall rules import recog`", path.display())]
    Recog {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file has the wrong form.
    #[error("{name}: {source}")]
    Form {
        /// The file's name.
        name: String,
        /// Description of the fault, with the line quoted.
        source: Box<toml::de::Error>,
    },
    /// A file's brackets are nested too deeply to be read.
    #[error("{name}:{line}: {reason}")]
    Nested {
        /// The file's name.
        name: String,
        /// Line in the file, from 1.
        line: usize,
        /// Description of the fault.
        reason: String,
    },
    /// A fingerprint can't be used.
    #[error("{name}: fingerprint {fingerprint:?}: {reason}")]
    Fingerprint {
        /// The file's name.
        name: String,
        /// The fingerprint's name.
        fingerprint: String,
        /// Description of the fault.
        reason: String,
    },
}

/// Names of Recog's subjects that databases may have, except greetings: those of SSH and HTTP.
const SUBJECTS: [&str; 6] = [
    "ssh.banner",
    "http_header.server",
    "http_header.wwwauth",
    "http_header.x-powered-by",
    "http_header.cookie",
    "html_title",
];

/// Returns the names of Recog's subjects that databases may have.
pub fn subjects() -> impl Iterator<Item = &'static str> {
    SUBJECTS.into_iter().chain(GreetingProtocol::all().map(GreetingProtocol::fingerprints))
}

impl FingerprintSet {
    /// Loads one fingerprint file, or every `*.toml` of a directory in the order of their names.
    ///
    /// # Errors
    /// Returns [`FingerprintError`] if a file can't be read, has the wrong form, or holds a pattern
    /// that the regex crate refuses or that would grow too large.
    pub fn load(path: &Path) -> Result<Self, FingerprintError> {
        let mut fingerprints = Self::default();
        for file in files(path)? {
            if file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml")) {
                return Err(FingerprintError::Recog { path: file });
            }
            let text = read_text(&file, limits::FINGERPRINT_OCTETS)
                .map_err(|reason| FingerprintError::Unreadable { path: file.clone(), reason })?;
            fingerprints.add(&file.display().to_string(), &text)?;
        }
        Ok(fingerprints)
    }

    /// Compiles the text of one fingerprint file; messages show `name`.
    ///
    /// # Errors
    /// As [`FingerprintSet::load`].
    pub fn parse(name: &str, text: &str) -> Result<Self, FingerprintError> {
        let mut fingerprints = Self::default();
        fingerprints.add(name, text)?;
        Ok(fingerprints)
    }

    /// Compiles a document; messages show `name`.
    ///
    /// # Errors
    /// Returns [`FingerprintError::Fingerprint`] with the first fingerprint that can't be used.
    pub fn compile(name: &str, document: &FingerprintFile) -> Result<Self, FingerprintError> {
        let compile = |entry| {
            FingerprintDatabase::compile(entry).map_err(|fault| FingerprintError::Fingerprint {
                name: name.to_owned(),
                fingerprint: fault.fingerprint,
                reason: fault.reason,
            })
        };
        Ok(Self { databases: document.database.iter().map(compile).collect::<Result<_, _>>()? })
    }

    fn add(&mut self, name: &str, text: &str) -> Result<(), FingerprintError> {
        // Before the parser, which recurses once for each level.
        if let Some(at) = toml_nesting::too_deep(text) {
            let line = text.bytes().take(at.start).filter(|octet| *octet == b'\n').count() + 1;
            return Err(FingerprintError::Nested {
                name: name.to_owned(),
                line,
                reason: toml_nesting::message(),
            });
        }
        let document: FingerprintFile = toml::from_str(text)
            .map_err(|source| FingerprintError::Form { name: name.to_owned(), source: Box::new(source) })?;
        self.databases.append(&mut Self::compile(name, &document)?.databases);
        Ok(())
    }

    /// Returns the number of fingerprints.
    pub fn len(&self) -> usize {
        self.databases.iter().map(FingerprintDatabase::len).sum()
    }

    /// True if there are no fingerprints.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first fingerprint of the databases for `matches` that recognizes `text`.
    pub fn identify(&self, matches: &str, text: &[u8]) -> Option<IdentifiedProduct<'_>> {
        self.databases
            .iter()
            .filter(|database| database.matches == matches)
            .find_map(|database| database.identify(text))
    }

    /// Returns the product of an SSH identification, by its software and comments (the part after
    /// `SSH-2.0-`).
    pub fn ssh(&self, software_and_comments: &[u8]) -> Option<ProductFacts> {
        self.facts("ssh.banner", software_and_comments)
    }

    /// Returns the product that the value of a Server field names.
    pub fn http_server(&self, value: &[u8]) -> Option<ProductFacts> {
        self.facts("http_header.server", value)
    }

    /// Returns the product that a page's title names.
    pub fn html_title(&self, text: &[u8]) -> Option<ProductFacts> {
        self.facts("html_title", text)
    }

    /// Returns the product of a response: by its Server field, or, if that names none, by other
    /// fields and the title.
    pub fn http_response(&self, response: &ResponseHead<'_>, title: Option<&[u8]>) -> Option<ProductFacts> {
        const FIELDS: [(&str, &str); 4] = [
            ("http_header.server", "Server"),
            ("http_header.wwwauth", "WWW-Authenticate"),
            ("http_header.x-powered-by", "X-Powered-By"),
            ("http_header.cookie", "Set-Cookie"),
        ];
        let of_fields = FIELDS.iter().flat_map(|(matches, field)| {
            response.headers.all(field).filter_map(|value| self.facts(matches, value))
        });
        let mut first = None;
        for facts in of_fields.chain(title.and_then(|text| self.html_title(text))) {
            if facts.product.is_some() {
                return Some(facts);
            }
            first.get_or_insert(facts);
        }
        first
    }

    /// Returns the product of a greeting, by the first of its lines that a fingerprint recognizes.
    pub fn greeting(&self, banner: &GreetingBanner<'_>) -> Option<ProductFacts> {
        let subject = banner.greeting.fingerprints();
        banner.lines().find_map(|line| self.facts(subject, banner.text(line)))
    }

    fn facts(&self, matches: &str, text: &[u8]) -> Option<ProductFacts> {
        self.identify(matches, text).map(|identified| identified.facts())
    }
}

/// Returns the files of a path, sorted by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, FingerprintError> {
    let failed = |source| FingerprintError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|extension| extension == "toml") {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(FingerprintError::Empty { path: path.to_owned() });
    }
    // The first database that knows a text names it. That must not depend on the file system's order.
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
