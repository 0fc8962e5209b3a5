//! The source of the texts of rule files and lists, which are read within bounds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    pub(super) fn is_folder(&self, path: &Path) -> bool {
        matches!(self, Self::Files) && path.is_dir()
    }

    /// Reads the bytes at `path`, at most `limit`; on failure returns the reason.
    pub(super) fn octets(&self, path: &Path, limit: u64) -> Result<Vec<u8>, String> {
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
