//! Start of a scan from a checkpoint, and its saving.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::CheckpointOptions;
use crate::output::ChannelHandle;
use crate::scan::checkpoint::{Checkpoint, CheckpointError, CheckpointFile};
use crate::scan::targets::{FeedSnapshot, Shard, TargetPlan, TargetSet};

/// Start of a scan, from its options and an earlier run's file.
#[derive(Debug)]
pub(super) struct ResumeState {
    keep: Option<CheckpointOptions>,
    file: Mutex<Option<CheckpointFile>>,
    pub(super) seed: u64,
    /// True if there was a checkpoint.
    pub(super) goes_on: bool,
    pub(super) from: FeedSnapshot,
    pub(super) earlier: Duration,
}

impl ResumeState {
    pub(super) fn open(
        mut keep: Option<CheckpointOptions>,
        set: &TargetSet,
        seed: Option<u64>,
        shard: Shard,
    ) -> Result<Self, CheckpointError> {
        let loaded = keep.as_ref().map(|keep| Checkpoint::load(&keep.path)).transpose()?.flatten();
        let stored = loaded.as_ref().and_then(|checkpoint| checkpoint.options.get("--seed")?.parse().ok());
        let seed = seed.or(stored).unwrap_or_else(|| match shard {
            Shard::WHOLE => RandomState::new().hash_one(0),
            _ => 0,
        });
        if let Some(CheckpointOptions { path, command, decides }) = &mut keep {
            decides.insert("targets".to_owned(), set.fingerprint());
            decides.insert("--seed".to_owned(), seed.to_string());
            decides.insert("--shard".to_owned(), shard.to_string());
            if let Some(checkpoint) = &loaded {
                checkpoint.check(path, decides)?;
                // Keeps the first run's command line.
                command.clone_from(&checkpoint.arguments);
            }
        }
        let file = keep.as_ref().map(|keep| CheckpointFile::open(&keep.path, loaded.as_ref())).transpose()?;
        Ok(Self {
            keep,
            file: Mutex::new(file),
            seed,
            goes_on: loaded.is_some(),
            from: loaded.as_ref().map(Checkpoint::snapshot).unwrap_or_default(),
            earlier: loaded.as_ref().map(Checkpoint::elapsed).unwrap_or_default(),
        })
    }

    /// Returns the checkpoint's path, if there is one.
    pub(super) fn path(&self) -> Option<&Path> {
        self.keep.as_ref().map(|keep| keep.path.as_path())
    }

    pub(super) fn save(
        &self,
        plan: &TargetPlan,
        writer: &ChannelHandle,
        elapsed: Duration,
    ) -> Result<(), CheckpointError> {
        let Some(CheckpointOptions { command, decides, .. }) = &self.keep else { return Ok(()) };
        let snapshot = plan.snapshot();
        // The results of targets in the snapshot must be on disk before the checkpoint counts them as
        // finished.
        writer.sync();
        let checkpoint = Checkpoint::new(command.clone(), decides.clone(), &snapshot, elapsed);
        self.file().as_mut().map_or(Ok(()), |file| file.save(&checkpoint))
    }

    /// Removes the file, as nothing is left to do.
    pub(super) fn remove(&self) -> Result<(), CheckpointError> {
        self.file().take().map_or(Ok(()), CheckpointFile::remove)
    }

    fn file(&self) -> MutexGuard<'_, Option<CheckpointFile>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
