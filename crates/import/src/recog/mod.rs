//! Reads Recog's XML databases into bannerwall's own form.
//!
//! The form has the meaning of Recog's own reader: a `param` with position 0 is a constant, any other a
//! capture group; examples are text, base64 or a file in the database's directory. Patterns without a
//! linear-time equivalent are left out and reported, never guessed.

mod ruby;
mod xml;

use std::fmt;
use std::path::{Path, PathBuf};

pub use ruby::{RubyOptions, translate};

use bannerwall_inspect::rules::fingerprint::{
    DatabaseEntry, FieldEntry, FingerprintEntry, FingerprintError, FingerprintFile, FingerprintSet,
};
use bannerwall_inspect::rules::limits;
use bannerwall_inspect::rules::text_source::read_text;

/// A database in bannerwall's form, and remarks about the import.
#[derive(Debug)]
pub struct ImportedDatabase {
    /// The database, named after the file if it has no name.
    pub database: DatabaseEntry,
    /// Fingerprints that were left out or changed.
    pub remarks: Vec<ImportRemark>,
}

/// A remark about an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRemark {
    /// Line in the XML file, from 1.
    pub line: usize,
    /// The fingerprint's description.
    pub fingerprint: String,
    /// The kind of remark.
    pub kind: RemarkKind,
}

/// The kind of remark about a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemarkKind {
    /// It was left out.
    LeftOut(String),
    /// It was imported, but differs from the file.
    Changed(String),
}

impl fmt::Display for ImportRemark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, reason) = match &self.kind {
            RemarkKind::LeftOut(reason) => ("left out", reason),
            RemarkKind::Changed(reason) => ("taken", reason),
        };
        write!(formatter, "{}: {verb} {:?}: {reason}", self.line, self.fingerprint)
    }
}

/// The reason why a file is no Recog database.
#[derive(Debug, thiserror::Error)]
pub enum RecogImportError {
    /// It could not be read.
    #[error("{}: {reason}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// It is not XML of Recog's form.
    #[error("{}:{line}: {reason}", path.display())]
    Form {
        /// Path of the file.
        path: PathBuf,
        /// Line in the file, from 1.
        line: usize,
        /// Description of the fault.
        reason: String,
    },
}

/// An example for which a set of fingerprints does not give the stated fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExampleMismatch {
    /// The fingerprint that holds the example.
    pub fingerprint: String,
    /// The example.
    pub content: Vec<u8>,
    /// Description of the difference.
    pub reason: String,
}

impl fmt::Display for ExampleMismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = self.content.escape_ascii();
        write!(formatter, "example of {:?}: \"{content}\": {}", self.fingerprint, self.reason)
    }
}

/// Reads one Recog file.
///
/// # Errors
/// Returns [`RecogImportError`] if the file can't be read or is no Recog database.
pub fn import(path: &Path) -> Result<ImportedDatabase, RecogImportError> {
    let text = read_text(path, limits::FINGERPRINT_OCTETS)
        .map_err(|reason| RecogImportError::Read { path: path.to_owned(), reason })?;
    let source = xml::read(&text).map_err(|fault| RecogImportError::Form {
        path: path.to_owned(),
        line: fault.line,
        reason: fault.reason,
    })?;
    Ok(convert(source, path))
}

/// Counts the examples of `database` and lists those for which `fingerprints` does not give the
/// stated fields.
pub fn verify(database: &DatabaseEntry, fingerprints: &FingerprintSet) -> (usize, Vec<ExampleMismatch>) {
    let mut mismatches = Vec::new();
    let mut count = 0;
    for entry in &database.fingerprint {
        for example in &entry.examples {
            count += 1;
            let content = example.content();
            let identified = fingerprints.identify(&database.matches, &content);
            let reason = match &identified {
                None => Some("nothing matches it".to_owned()),
                Some(identified) => example.fields.iter().find_map(|(field, stated)| {
                    let given = identified.get(field);
                    (given != Some(stated)).then(|| {
                        format!("{field} should be {stated:?} and is {given:?}, by {:?}", identified.name())
                    })
                }),
            };
            mismatches.extend(reason.map(|reason| ExampleMismatch {
                fingerprint: entry.name.clone(),
                content,
                reason,
            }));
        }
    }
    (count, mismatches)
}

fn convert(source: xml::RecogDatabase, path: &Path) -> ImportedDatabase {
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let mut imported = ImportedDatabase {
        database: DatabaseEntry {
            matches: source.matches.unwrap_or(stem),
            protocol: source.protocol.map(|protocol| protocol.to_lowercase()),
            fingerprint: Vec::with_capacity(source.fingerprints.len()),
        },
        remarks: Vec::new(),
    };
    for fingerprint in source.fingerprints {
        let mut remark = |kind| {
            let (line, fingerprint) = (fingerprint.line, fingerprint.description.clone());
            imported.remarks.push(ImportRemark { line, fingerprint, kind });
        };
        match convert_one(&fingerprint, path) {
            Ok((entry, notes)) => {
                notes.into_iter().for_each(|note| remark(RemarkKind::Changed(note)));
                imported.database.fingerprint.push(entry);
            }
            Err(reason) => remark(RemarkKind::LeftOut(reason)),
        }
    }
    imported
}

/// Returns one fingerprint in bannerwall's form with notes, or the reason to leave it out.
fn convert_one(
    source: &xml::RecogFingerprint,
    path: &Path,
) -> Result<(FingerprintEntry, Vec<String>), String> {
    let mut notes = Vec::new();
    let mut options = RubyOptions::default();
    for flag in source.flags.split(',').map(str::trim).filter(|flag| !flag.is_empty()) {
        match flag {
            "REG_ICASE" => options.ignore_case = true,
            "REG_DOT_NEWLINE" | "REG_MULTILINE" => options.dot_matches_newline = true,
            "REG_LINE_ANY_CRLF" => {}
            _ => return Err(format!("its flag {flag} is not known")),
        }
    }
    let translated = translate(&source.pattern, options).map_err(|error| error.to_string())?;
    notes.extend(translated.notes.iter().map(|note| (*note).to_owned()));
    let mut entry = FingerprintEntry {
        name: source.description.clone(),
        pattern: translated.pattern,
        unless: translated.unless,
        ..FingerprintEntry::default()
    };
    for parameter in &source.parameters {
        let value = match parameter.position {
            0 => FieldEntry::Text(parameter.value.clone()),
            group => FieldEntry::Capture(group),
        };
        entry.fields.insert(parameter.name.clone(), value);
    }
    for example in &source.examples {
        match example.read(path) {
            Ok(example) => entry.examples.push(example),
            Err(reason) => notes.push(format!("without an example: {reason}")),
        }
    }
    // Compiled alone, so that a pattern that fails leaves out only its own fingerprint.
    let alone = DatabaseEntry { fingerprint: vec![entry.clone()], ..DatabaseEntry::default() };
    FingerprintSet::compile("", &FingerprintFile { database: vec![alone] }).map_err(|error| match error {
        FingerprintError::Fingerprint { reason, .. } => reason,
        other => other.to_string(),
    })?;
    Ok((entry, notes))
}

#[cfg(test)]
mod tests;
