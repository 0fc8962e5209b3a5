//! Where a scan stands, in a file, so that it can go on after an interruption, a crash or a kill.
//!
//! The file is replaced as a whole (written beside, then renamed), so that whenever the process ends
//! there is a complete one. It holds what decides which targets are asked and how they are judged;
//! another scan's file is refused.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::targets::{Counts, Snapshot};

/// The layout of the file; another one is refused.
const LAYOUT: u32 = 1;

/// Who may read the file: a command line may hold credentials (`--header 'Authorization: …'`).
const PRIVATE: u32 = 0o600;

/// Permission bits by which others than the owner could write.
const FOREIGN_WRITE: u32 = 0o022;

/// Why a scan cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read or written.
    #[error("--resume {path}: {error}")]
    File {
        /// Its name.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is no checkpoint.
    #[error("--resume {path}: not a checkpoint of a scan: {reason}")]
    Foreign {
        /// Its name.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Others than who asks could have written it.
    #[error(
        "--resume {path}: its command line is not taken: {reason}; name the targets, or make the file yours"
    )]
    Untrusted {
        /// Its name.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It is another scan's.
    #[error(
        "--resume {path}: that scan was another one: {differences}\n\
         it was started as: {command}\n\
         say the same again to go on with it, or name another file"
    )]
    Mismatch {
        /// Its name.
        path: PathBuf,
        /// Each option that differs, then and now.
        differences: String,
        /// The command line that made the file.
        command: String,
    },
}

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    layout: u32,
    /// The command line that started the scan, the program's name first.
    pub arguments: Vec<String>,
    /// Everything that decides what is asked and how it is judged.
    pub options: BTreeMap<String, String>,
    /// The first position that was never handed out.
    cursor: u64,
    /// Positions before the cursor that are not over, from and up to.
    unfinished: Vec<(u64, u64)>,
    counts: Counts,
    elapsed_ms: u64,
}

impl Checkpoint {
    /// A checkpoint of where a scan stands after `elapsed` in all.
    pub fn new(
        arguments: Vec<String>,
        options: BTreeMap<String, String>,
        snapshot: &Snapshot,
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

    /// Reads the file at `path`; none where there isn't one yet.
    ///
    /// # Errors
    /// It cannot be read, or is no checkpoint.
    pub fn load(path: &Path) -> Result<Option<Self>, CheckpointError> {
        Self::read(path, |_| Ok(()))
    }

    /// As [`Checkpoint::load`] for one whose [`arguments`](Self::arguments) are to be obeyed: what they
    /// overwrite and whom they ask is decided by whoever could write the file.
    ///
    /// # Errors
    /// As [`Checkpoint::load`], and where others than this user and root could have written it.
    pub fn load_trusted(path: &Path) -> Result<Option<Self>, CheckpointError> {
        Self::read(path, |metadata| check_owner(metadata, rustix::process::geteuid().as_raw()))
    }

    fn read(
        path: &Path,
        check: impl FnOnce(&Metadata) -> Result<(), String>,
    ) -> Result<Option<Self>, CheckpointError> {
        let fault = |error| CheckpointError::File { path: path.to_owned(), error };
        // A FIFO would have us wait for its writer.
        let unwaiting = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let mut file = match File::options().read(true).custom_flags(unwaiting).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault(error)),
        };
        // Of what was opened, not of the name: that may lead elsewhere a moment later.
        let metadata = file.metadata().map_err(fault)?;
        if !metadata.is_file() {
            return Err(fault(io::Error::new(io::ErrorKind::InvalidInput, "no regular file")));
        }
        check(&metadata).map_err(|reason| CheckpointError::Untrusted { path: path.to_owned(), reason })?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(fault)?;
        Self::parse(path, &text).map(Some)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, CheckpointError> {
        let foreign = |reason| CheckpointError::Foreign { path: path.to_owned(), reason };
        let checkpoint: Self = serde_json::from_str(text).map_err(|error| foreign(error.to_string()))?;
        if checkpoint.layout != LAYOUT {
            return Err(foreign(format!("layout {}, this version knows {LAYOUT}", checkpoint.layout)));
        }
        let ordered = checkpoint.unfinished.is_sorted_by(|left, right| left.1 <= right.0);
        let within = |(from, to): &(u64, u64)| from < to && *to <= checkpoint.cursor;
        if !ordered || !checkpoint.unfinished.iter().all(within) {
            return Err(foreign("its positions contradict each other".to_owned()));
        }
        Ok(checkpoint)
    }

    /// Refuses to go on with a scan that `options` would not have made.
    ///
    /// # Errors
    /// Names every option that differs.
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

    /// Replaces the file at `path`.
    ///
    /// # Errors
    /// It cannot be written; the old one is still whole.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        self.replace(path).map_err(|error| CheckpointError::File { path: path.to_owned(), error })
    }

    /// Whether a checkpoint can be written at `path`, before anything was done that it would keep.
    ///
    /// # Errors
    /// Where it cannot.
    pub fn check_place(path: &Path) -> Result<(), CheckpointError> {
        let beside = beside(path);
        let made = make(&beside).and_then(|_| std::fs::remove_file(&beside));
        made.map_err(|error| CheckpointError::File { path: path.to_owned(), error })
    }

    /// Where the scan stood.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            cursor: self.cursor,
            unfinished: self.unfinished.iter().map(|(from, to)| *from..*to).collect(),
            counts: self.counts,
        }
    }

    /// How long the scan had run.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms)
    }

    fn replace(&self, path: &Path) -> io::Result<()> {
        let beside = beside(path);
        let mut file = make(&beside)?;
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    }
}

/// The file that takes the place of the one at `path`.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    beside.into()
}

/// Makes a file anew: what a crash left there, or a link that somebody planted, must not be written through.
fn make(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::options().write(true).create_new(true).mode(PRIVATE).open(path),
    }
}

/// Refuses a file that others than the user `own` and root could have written.
fn check_owner(metadata: &Metadata, own: u32) -> Result<(), String> {
    if metadata.uid() != own && metadata.uid() != 0 {
        return Err(format!("it belongs to user {}, not to {own} or root", metadata.uid()));
    }
    match metadata.mode() & 0o7777 {
        mode if mode & FOREIGN_WRITE != 0 => Err(format!("others may write to it (mode {mode:04o})")),
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
        let snapshot = Snapshot {
            cursor: 500,
            unfinished: vec![3..5, 499..500],
            counts: Counts { open: 7, ..Counts::default() },
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
        checkpoint().save(&path).unwrap();
        checkpoint().save(&path).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap(), Some(checkpoint()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn another_scan_is_refused_with_what_differs() {
        let path = Path::new("state");
        assert!(checkpoint().check(path, &options("1")).is_ok());
        let error = checkpoint().check(path, &options("2")).unwrap_err().to_string();
        assert!(error.contains("--seed was `1` and is now `2`"), "{error}");
        assert!(!error.contains("targets was"), "{error}");
        assert!(error.contains("started as: bannerwall scan"), "{error}");
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut contradicting = checkpoint();
        contradicting.cursor = 4;
        for text in ["", "{}", "[1]", &serde_json::to_string(&contradicting).unwrap()] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(Checkpoint::load(&path), Err(CheckpointError::Foreign { .. })), "{text}");
        }
    }

    #[test]
    fn a_command_line_is_taken_only_from_a_file_that_nobody_else_could_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(Checkpoint::load_trusted(&path).unwrap(), None);
        checkpoint().save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, PRIVATE);
        assert_eq!(Checkpoint::load_trusted(&path).unwrap(), Some(checkpoint()));
        for mode in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = Checkpoint::load_trusted(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("others may write to it (mode {mode:04o})")), "{error}");
            assert!(Checkpoint::load(&path).is_ok(), "where it stands is checked against the command line");
        }
        let metadata = std::fs::metadata(&path).unwrap();
        assert!(check_owner(&metadata, metadata.uid() + 1).is_err() || metadata.uid() == 0);
    }

    #[test]
    fn a_planted_link_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (path, treasure) = (folder.path().join("state"), folder.path().join("treasure"));
        std::fs::write(&treasure, "gold").unwrap();
        std::os::unix::fs::symlink(&treasure, folder.path().join("state.new")).unwrap();
        checkpoint().save(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&treasure).unwrap(), "gold");
        assert_eq!(Checkpoint::load(&path).unwrap(), Some(checkpoint()));
    }
}
