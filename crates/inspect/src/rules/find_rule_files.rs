//! Finds rule files and reads them within bounds.

use std::path::{Path, PathBuf};

use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::limits;
use super::source_file::SourceFile;
use super::text_source::TextSource;

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
                sources.extend(decode(&path, octets, report).map(|source| source.with_list_source(texts)));
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

fn unreadable(path: &Path, reason: &str) -> RuleDiagnostic {
    let name = path.display().to_string();
    // The number of the system's error says nothing to a person.
    let reason = reason.split(" (os error").next().unwrap_or(reason);
    RuleDiagnostic::of_file(DiagnosticLevel::Error, name.clone(), format!("cannot read {name}: {reason}"))
        .with_help("name a file or folder that exists and that this user may read")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_folder_on_disk_is_not_read_if_texts_are_given() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("there.toml"), "on disk").unwrap();
        let given = Path::new("0/a.toml");
        let texts = TextSource::Given(Arc::new(BTreeMap::from([(given.to_owned(), "given".to_owned())])));
        let mut report = DiagnosticCollector::default();
        let read =
            read(&[given.to_owned(), folder.path().to_owned()], &texts, DiagnosticLevel::Error, &mut report);
        assert_eq!((read.len(), report.errors()), (1, 1));
    }
}
