//! Where a scan begins, and what of it is kept.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::time::Duration;

use super::Keep;
use crate::output::Handle;
use crate::scan::checkpoint::{Checkpoint, CheckpointError};
use crate::scan::targets::{Plan, Shard, Snapshot, TargetSet};

/// A scan's beginning, by its own words and an earlier run's file.
#[derive(Debug)]
pub(super) struct Resume {
    keep: Option<Keep>,
    pub(super) seed: u64,
    /// There was a checkpoint.
    pub(super) goes_on: bool,
    pub(super) from: Snapshot,
    pub(super) earlier: Duration,
}

impl Resume {
    pub(super) fn open(
        mut keep: Option<Keep>,
        set: &TargetSet,
        seed: Option<u64>,
        shard: Shard,
    ) -> Result<Self, CheckpointError> {
        let loaded = keep.as_ref().map(|keep| Checkpoint::load(&keep.path)).transpose()?.flatten();
        keep.as_ref().map(|keep| Checkpoint::check_place(&keep.path)).transpose()?;
        let stored = loaded.as_ref().and_then(|checkpoint| checkpoint.options.get("--seed")?.parse().ok());
        let seed = seed.or(stored).unwrap_or_else(|| match shard {
            Shard::WHOLE => RandomState::new().hash_one(0),
            _ => 0,
        });
        if let Some(Keep { path, command, decides }) = &mut keep {
            decides.insert("targets".to_owned(), set.fingerprint());
            decides.insert("--seed".to_owned(), seed.to_string());
            decides.insert("--shard".to_owned(), shard.to_string());
            if let Some(checkpoint) = &loaded {
                checkpoint.check(path, decides)?;
                // What the scan was started with at first.
                command.clone_from(&checkpoint.arguments);
            }
        }
        Ok(Self {
            keep,
            seed,
            goes_on: loaded.is_some(),
            from: loaded.as_ref().map(Checkpoint::snapshot).unwrap_or_default(),
            earlier: loaded.as_ref().map(Checkpoint::elapsed).unwrap_or_default(),
        })
    }

    /// The file that it is kept in, where that is wanted.
    pub(super) fn path(&self) -> Option<&Path> {
        self.keep.as_ref().map(|keep| keep.path.as_path())
    }

    pub(super) fn save(
        &self,
        plan: &Plan,
        writer: &Handle,
        elapsed: Duration,
    ) -> Result<(), CheckpointError> {
        let Some(Keep { path, command, decides }) = &self.keep else { return Ok(()) };
        let snapshot = plan.snapshot();
        // What the snapshot calls over must be in the file before the checkpoint says so.
        writer.sync();
        Checkpoint::new(command.clone(), decides.clone(), &snapshot, elapsed).save(path)
    }
}
