//! Progress of a scan in a file, to resume it after an interruption, a crash or a kill.
//!
//! The file is replaced as a whole, so a complete one exists whenever the process stops. An empty one belongs
//! to a scan that has not saved yet. It holds the options that select targets and judge results. A file of
//! another scan is refused.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::targets::{FeedSnapshot, TargetCounts};
use crate::files::AlternatingFile;

/// Version of the file's layout; others are refused.
const LAYOUT: u32 = 1;

/// Permission bits that let others than the owner write.
const FOREIGN_WRITE: u32 = 0o022;

/// Error of continuing a scan.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read or written.
    #[error("--resume {path}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The file is not a checkpoint.
    #[error("--resume {path}: not a checkpoint of a scan: {reason}")]
    Foreign {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// Another user could have written the file.
    #[error(
        "--resume {path}: its command line is not trusted: {reason}; pass the targets, or take ownership of the file"
    )]
    Untrusted {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The file belongs to a scan with other options.
    #[error(
        "--resume {path}: the file belongs to a different scan: {differences}\n\
         its command line: {command}\n\
         use the same options to resume it, or pass another file"
    )]
    Mismatch {
        /// Path of the file.
        path: PathBuf,
        /// Options that differ, with both values.
        differences: String,
        /// Command line that created the file.
        command: String,
    },
}

/// Content of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    layout: u32,
    /// Command line that started the scan, the program's name first.
    pub arguments: Vec<String>,
    /// Options that select targets and judge results.
    pub options: BTreeMap<String, String>,
    /// First position that was not handed out yet.
    cursor: u64,
    /// Unfinished positions before the cursor, as half-open ranges.
    unfinished: Vec<(u64, u64)>,
    counts: TargetCounts,
    elapsed_ms: u64,
}

impl Checkpoint {
    /// Returns a checkpoint of a scan's progress after `elapsed` in total.
    pub fn new(
        arguments: Vec<String>,
        options: BTreeMap<String, String>,
        snapshot: &FeedSnapshot,
        elapsed: Duration,
    ) -> Self {
        Self {
            layout: LAYOUT,
            arguments,
            options,
            cursor: snapshot.cursor,
            unfinished: snapshot.unfinished.iter().map(|range| (range.start, range.end)).collect(),
            counts: snapshot.counts,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Reads the file at `path`; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The file is unreadable, or not a checkpoint.
    pub fn load(path: &Path) -> Result<Option<Self>, CheckpointError> {
        Self::read(path, |_| Ok(()))
    }

    /// Reads a file whose [`arguments`](Self::arguments) will be obeyed. Everyone who could write it would
    /// control the files to overwrite and the hosts to probe.
    ///
    /// # Errors
    ///
    /// As [`Checkpoint::load`], and if others than this user and root could have written it.
    pub fn load_trusted(path: &Path) -> Result<Option<Self>, CheckpointError> {
        Self::read(path, |metadata| check_owner(metadata, rustix::process::geteuid().as_raw()))
    }

    fn read(
        path: &Path,
        check: impl FnOnce(&Metadata) -> Result<(), String>,
    ) -> Result<Option<Self>, CheckpointError> {
        let fault = |error| CheckpointError::File { path: path.to_owned(), error };
        // Opening a FIFO without O_NONBLOCK would wait for its writer.
        let unwaiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let mut file = match File::options().read(true).custom_flags(unwaiting).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault(error)),
        };
        // The check is on the open file, not on its path, which could be replaced in between.
        let metadata = file.metadata().map_err(fault)?;
        if !metadata.is_file() {
            return Err(fault(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        check(&metadata).map_err(|reason| CheckpointError::Untrusted { path: path.to_owned(), reason })?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(fault)?;
        // An empty file is that of a scan which stopped before its first checkpoint.
        if text.is_empty() { Ok(None) } else { Self::parse(path, &text).map(Some) }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, CheckpointError> {
        let foreign = |reason| CheckpointError::Foreign { path: path.to_owned(), reason };
        let checkpoint: Self = serde_json::from_str(text).map_err(|error| foreign(error.to_string()))?;
        if checkpoint.layout != LAYOUT {
            return Err(foreign(format!(
                "it has layout {}, and this version reads {LAYOUT}",
                checkpoint.layout
            )));
        }
        // A damaged file must not lead to targets that are skipped or probed twice without notice.
        let ordered = checkpoint.unfinished.is_sorted_by(|left, right| left.1 <= right.0);
        let within = |(from, to): &(u64, u64)| from < to && *to <= checkpoint.cursor;
        if !ordered || !checkpoint.unfinished.iter().all(within) {
            return Err(foreign("its positions contradict each other".to_owned()));
        }
        Ok(checkpoint)
    }

    /// Refuses to resume a scan with other options.
    ///
    /// # Errors
    ///
    /// Lists every option that differs.
    pub fn check(&self, path: &Path, options: &BTreeMap<String, String>) -> Result<(), CheckpointError> {
        let none = String::new();
        let mut names: Vec<&String> = self.options.keys().chain(options.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let differing = names.into_iter().filter_map(|name| {
            let (then, now) = (self.options.get(name).unwrap_or(&none), options.get(name).unwrap_or(&none));
            (then != now).then(|| format!("{name} was `{then}` and is now `{now}`"))
        });
        let differences = differing.collect::<Vec<_>>().join("; ");
        if differences.is_empty() {
            return Ok(());
        }
        let command = self.arguments.join(" ");
        Err(CheckpointError::Mismatch { path: path.to_owned(), differences, command })
    }

    /// Returns the scan's progress.
    pub fn snapshot(&self) -> FeedSnapshot {
        FeedSnapshot {
            cursor: self.cursor,
            unfinished: self.unfinished.iter().map(|(from, to)| *from..*to).collect(),
            counts: self.counts,
        }
    }

    /// Returns the running time of the scan.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms)
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// The file of a running scan. Only its owner may read it: a command line may hold credentials (`--header
/// 'Authorization: …'`).
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
    files: AlternatingFile,
}

impl CheckpointFile {
    /// Makes the file at `path`, with the checkpoint that was loaded there, if any. The process may become
    /// another user then: the file stays its owner's.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(path: &Path, loaded: Option<&Checkpoint>) -> Result<Self, CheckpointError> {
        let bytes = loaded.map_or_else(|| Ok(Vec::new()), Checkpoint::bytes);
        let files = bytes.and_then(|bytes| AlternatingFile::open(path, &bytes));
        let files = files.map_err(|error| CheckpointError::File { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), files })
    }

    /// Replaces the checkpoint.
    ///
    /// # Errors
    /// It cannot be written; the old one is still whole.
    pub fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let saved = checkpoint.bytes().and_then(|bytes| self.files.put(&bytes));
        saved.map_err(|error| CheckpointError::File { path: self.path.clone(), error })
    }

    /// Removes the file of a scan that is over.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(self) -> Result<(), CheckpointError> {
        let Self { path, files } = self;
        files.remove().map_err(|error| CheckpointError::File { path, error })
    }
}

/// Refuses a file that others than the user `own` and root could have written.
fn check_owner(metadata: &Metadata, own: u32) -> Result<(), String> {
    if metadata.uid() != own && metadata.uid() != 0 {
        return Err(format!("its owner is user {}, not {own} or root", metadata.uid()));
    }
    match metadata.mode() & 0o7777 {
        mode if mode & FOREIGN_WRITE != 0 => Err(format!("other users can write to it (mode {mode:04o})")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn options(seed: &str) -> BTreeMap<String, String> {
        [("--seed", seed), ("targets", "abc")].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn checkpoint() -> Checkpoint {
        let snapshot = FeedSnapshot {
            cursor: 500,
            unfinished: vec![3..5, 499..500],
            counts: TargetCounts { open: 7, ..TargetCounts::default() },
        };
        Checkpoint::new(
            vec!["bannerwall".to_owned(), "scan".to_owned()],
            options("1"),
            &snapshot,
            Duration::from_secs(9),
        )
    }

    #[test]
    fn what_was_saved_is_loaded_and_no_file_is_a_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(Checkpoint::load(&path).unwrap(), None);
        let mut file = CheckpointFile::open(&path, None).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap(), None, "nothing was written yet");
        file.save(&checkpoint()).unwrap();
        file.save(&checkpoint()).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap(), Some(checkpoint()));
        drop(file);
        let file = CheckpointFile::open(&path, Some(&checkpoint())).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap(), Some(checkpoint()));
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn another_scan_is_refused_with_what_differs() {
        let path = Path::new("state");
        assert!(checkpoint().check(path, &options("1")).is_ok());
        let error = checkpoint().check(path, &options("2")).unwrap_err().to_string();
        assert!(error.contains("--seed was `1` and is now `2`"), "{error}");
        assert!(!error.contains("targets was"), "{error}");
        assert!(error.contains("its command line: bannerwall scan"), "{error}");
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut contradicting = checkpoint();
        contradicting.cursor = 4;
        for text in ["{}", "[1]", &serde_json::to_string(&contradicting).unwrap()] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(Checkpoint::load(&path), Err(CheckpointError::Foreign { .. })), "{text}");
        }
    }

    #[test]
    fn a_command_line_is_taken_only_from_a_file_that_nobody_else_could_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(Checkpoint::load_trusted(&path).unwrap(), None);
        CheckpointFile::open(&path, Some(&checkpoint())).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Checkpoint::load_trusted(&path).unwrap(), Some(checkpoint()));
        for mode in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = Checkpoint::load_trusted(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("other users can write to it (mode {mode:04o})")), "{error}");
            assert!(Checkpoint::load(&path).is_ok(), "where it stands is checked against the command line");
        }
        let metadata = std::fs::metadata(&path).unwrap();
        assert!(check_owner(&metadata, metadata.uid() + 1).is_err() || metadata.uid() == 0);
    }
}
