//! Finds rule files and reads them within bounds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::limits;
use super::source_file::SourceFile;

/// The source of the texts of rule files and lists.
#[derive(Debug, Clone, Default)]
pub enum TextSource {
    /// Files of this machine.
    #[default]
    Files,
    /// Only these texts, and no file.
    Given(Arc<BTreeMap<PathBuf, String>>),
}

impl TextSource {
    fn is_folder(&self, path: &Path) -> bool {
        matches!(self, Self::Files) && path.is_dir()
    }

    /// Reads the bytes at `path`, at most `limit`; on failure returns the reason.
    fn octets(&self, path: &Path, limit: u64) -> Result<Vec<u8>, String> {
        match self {
            Self::Files => read_octets(path, limit),
            Self::Given(texts) => {
                let text = texts.get(path).ok_or("it was not given")?;
                bounded(text.clone().into_bytes(), limit)
            }
        }
    }

    /// Reads a text like [`read_text`].
    ///
    /// # Errors
    /// The reason, as [`read_text`] gives it.
    pub fn text(&self, path: &Path, limit: u64) -> Result<String, String> {
        as_text(self.octets(path, limit)?)
    }
}

/// Reads every rule file of `paths`. Of a directory it reads the `*.toml` files in the order of
/// their names. `empty` is the level of the report about a directory without any.
pub(super) fn read(
    paths: &[PathBuf],
    texts: &TextSource,
    empty: DiagnosticLevel,
    report: &mut DiagnosticCollector,
) -> Vec<SourceFile> {
    let mut files = Vec::new();
    for path in paths {
        if texts.is_folder(path) {
            match folder(path) {
                Ok(found) if found.is_empty() => {
                    let name = path.display().to_string();
                    let message = "the folder has no *.toml file";
                    report.push(RuleDiagnostic::of_file(empty, name, message));
                }
                Ok(found) => files.extend(found),
                Err(error) => report.push(unreadable(path, &error.to_string())),
            }
        } else {
            files.push(path.clone());
        }
    }
    if files.len() > limits::FILES {
        let first = files.first().map(|path| path.display().to_string()).unwrap_or_default();
        let message = format!("{} rule files; at most {} are allowed", files.len(), limits::FILES);
        report.push(RuleDiagnostic::of_file(DiagnosticLevel::Error, first, message));
        return Vec::new();
    }
    let mut sources = Vec::with_capacity(files.len());
    for path in files {
        match texts.octets(&path, limits::FILE_OCTETS) {
            Ok(octets) => {
                sources.extend(decode(&path, octets, report).map(|source| source.with_list_source(texts)))
            }
            Err(reason) => report.push(unreadable(&path, &reason)),
        }
    }
    sources
}

/// Returns the rule files of a path: itself, or those of the directory.
pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() { folder(path).unwrap_or_default() } else { vec![path.to_owned()] }
}

/// Reads every local file of `paths`. A directory may be empty: so it is after the installation.
pub(super) fn read_local(
    paths: &[PathBuf],
    texts: &TextSource,
    report: &mut DiagnosticCollector,
) -> Vec<SourceFile> {
    let holds_some =
        |path: &&PathBuf| !texts.is_folder(path) || folder(path).map_or(true, |found| !found.is_empty());
    let paths: Vec<PathBuf> = paths.iter().filter(holds_some).cloned().collect();
    read(&paths, texts, DiagnosticLevel::Warning, report).into_iter().map(SourceFile::into_local).collect()
}

/// Decodes a rule file. The first byte that is not UTF-8 is reported at its position.
fn decode(path: &Path, octets: Vec<u8>, report: &mut DiagnosticCollector) -> Option<SourceFile> {
    let name = path.display().to_string();
    let error = match String::from_utf8(octets) {
        Ok(text) => return Some(SourceFile::new(name, text)),
        Err(error) => error,
    };
    let at = error.utf8_error().valid_up_to();
    let octet = error.as_bytes().get(at).copied().unwrap_or_default();
    // The text before the invalid byte is the same in both, so the position is right.
    let source = SourceFile::new(name, String::from_utf8_lossy(error.as_bytes()));
    let span = at..at + char::REPLACEMENT_CHARACTER.len_utf8();
    let message = format!("the byte 0x{octet:02x} is not UTF-8");
    report.push(
        RuleDiagnostic::at(DiagnosticLevel::Error, &source, &span, message)
            .with_help("save the file as UTF-8"),
    );
    None
}

/// Returns the `*.toml` files of a directory, sorted by name, without hidden files.
fn folder(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a regular file of at most `limit` bytes as text.
///
/// # Errors
/// The reason: the file cannot be read, is too large, or is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> Result<String, String> {
    as_text(read_octets(path, limit)?)
}

fn as_text(octets: Vec<u8>) -> Result<String, String> {
    String::from_utf8(octets).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(at).filter(|octet| **octet == b'\n').count() + 1;
        format!("not UTF-8 at byte {at} (line {line})")
    })
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// The reason: the file cannot be read, or is too large.
pub fn read_octets(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    // This test comes before opening: opening a named pipe would block until it has a writer.
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut octets = Vec::new();
    // The read itself is limited: a file may grow, and some (in `/proc`) have the length 0.
    file.take(limit + 1).read_to_end(&mut octets).map_err(|error| error.to_string())?;
    bounded(octets, limit)
}

fn bounded(octets: Vec<u8>, limit: u64) -> Result<Vec<u8>, String> {
    if u64::try_from(octets.len()).unwrap_or(u64::MAX) > limit {
        return Err(format!("larger than {} MiB", limit >> 20));
    }
    Ok(octets)
}

fn unreadable(path: &Path, reason: &str) -> RuleDiagnostic {
    let name = path.display().to_string();
    RuleDiagnostic::of_file(DiagnosticLevel::Error, name.clone(), format!("cannot read {name}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_pipe_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.toml");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(read_text(&pipe, 10), Err("not a regular file".to_owned()));
    }

    #[test]
    fn what_is_given_is_read_and_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("there.toml");
        std::fs::write(&file, "on disk").unwrap();
        let given = Path::new("0/a.toml");
        let texts = TextSource::Given(Arc::new(BTreeMap::from([(given.to_owned(), "given".to_owned())])));
        assert_eq!(texts.text(given, 5).as_deref(), Ok("given"));
        assert!(texts.text(given, 4).is_err());
        assert_eq!(texts.text(&file, 100), Err("it was not given".to_owned()));
        assert_eq!(TextSource::Files.text(&file, 100).as_deref(), Ok("on disk"));
        let mut report = DiagnosticCollector::default();
        let read =
            read(&[given.to_owned(), folder.path().to_owned()], &texts, DiagnosticLevel::Error, &mut report);
        assert_eq!((read.len(), report.errors()), (1, 1));
    }

    #[test]
    fn a_file_above_the_limit_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("big.toml");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_text(&file, 10).as_deref(), Ok("0123456789"));
        assert!(read_text(&file, 9).is_err());
    }
}
