//! Where a scan stands, in a file, so that it can go on after an interruption, a crash or a kill.
//!
//! The file is replaced as a whole (written beside, then renamed), so that whenever the process ends
//! there is a complete one. It holds what decides which targets are asked and how they are judged;
//! another scan's file is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::targets::{Counts, Snapshot};

/// The layout of the file; another one is refused.
const LAYOUT: u32 = 1;

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
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CheckpointError::File { path: path.to_owned(), error }),
        };
        let foreign = |reason| CheckpointError::Foreign { path: path.to_owned(), reason };
        let checkpoint: Self = serde_json::from_str(&text).map_err(|error| foreign(error.to_string()))?;
        if checkpoint.layout != LAYOUT {
            return Err(foreign(format!("layout {}, this version knows {LAYOUT}", checkpoint.layout)));
        }
        let ordered = checkpoint.unfinished.is_sorted_by(|left, right| left.1 <= right.0);
        let within = |(from, to): &(u64, u64)| from < to && *to <= checkpoint.cursor;
        if !ordered || !checkpoint.unfinished.iter().all(within) {
            return Err(foreign("its positions contradict each other".to_owned()));
        }
        Ok(Some(checkpoint))
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
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let mut file = File::create(&beside)?;
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    }
}

#[cfg(test)]
mod tests {
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
}
