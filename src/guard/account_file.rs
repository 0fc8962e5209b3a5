//! The accounts that a run leaves for the next one: how many of the packets that the hook counted are
//! accounted for.
//!
//! The guard writes the accounts each second, so that after a kill the next run can still count the packets
//! that passed. A hook that stays up keeps counting while no guard runs. The file is in the run-time folder
//! (`$RUNTIME_DIRECTORY` under systemd, otherwise `/run/bannerwall`). There is one file per range of queues
//! and network namespace. A reboot removes the file and the hook.

use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bannerwall_ffi::namespace::cookie;
use serde::{Deserialize, Serialize};

use super::control::socket_path;
use crate::hook::QueueRange;
use crate::privileges::UnprivilegedUser;

/// First part of the name of a file of accounts.
pub(super) const PREFIX: &str = "accounts-";

/// Padded length of the line in the file, in bytes, which exceeds that of any accounts.
const LENGTH: usize = 255;

/// The way a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RunEnd {
    /// The run continues, or was killed.
    #[default]
    Open,
    /// A signal or a request stopped it.
    Stopped,
    /// An error ended it.
    Failed,
}

/// The accounts of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct AccountRecord {
    /// The way the run ended.
    pub(super) end: RunEnd,
    /// Number of packets of the hook's count that were inspected, dropped by the kernel or reported as lost;
    /// absent if unknown.
    pub(super) settled: Option<u64>,
    /// Number of packets that waited in the queues.
    pub(super) waiting: u64,
    /// Sum of the kernel's sequence numbers of the last packet in each queue.
    pub(super) enqueued: u32,
    /// Number of packets that passed uninspected, over all runs.
    pub(super) uninspected: u64,
    /// Number of packets that were dropped while no guard listened, over all runs.
    pub(super) dropped: u64,
    /// Number of runs that ended without being told to stop.
    pub(super) failed_runs: u64,
}

/// Returns the folder of the accounts.
pub(super) fn folder(user: Option<&UnprivilegedUser>) -> PathBuf {
    std::env::var_os("RUNTIME_DIRECTORY").map_or_else(|| socket_path::folder(user), PathBuf::from)
}

/// The file that holds the accounts.
#[derive(Debug)]
pub(super) struct AccountFile {
    path: PathBuf,
}

impl AccountFile {
    /// Returns the ledger of a guard with these queues, in this network namespace.
    pub(super) fn of(queues: QueueRange, user: Option<&UnprivilegedUser>) -> Self {
        let namespace = cookie().map_or_else(
            |_older| {
                let inode = std::fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino());
                format!("inode-{inode}")
            },
            |cookie| cookie.to_string(),
        );
        let queues = queues.to_string().replace(':', "-");
        Self { path: folder(user).join(format!("{PREFIX}{queues}.{namespace}")) }
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a ledger at a path.
    #[cfg(test)]
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the accounts of the last run; none if there was no run or the file is unreadable.
    pub(super) fn read(&self) -> Option<AccountRecord> {
        serde_json::from_slice(&std::fs::read(&self.path).ok()?).ok()
    }

    /// Writes the accounts for the next run. Without a writable folder there are none.
    pub(super) fn write(&self, entry: &AccountRecord) {
        let _ = self.replace(entry);
    }

    /// Removes the file.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn replace(&self, entry: &AccountRecord) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = std::fs::OpenOptions::new();
        // Never truncated: a kill between truncation and write would leave an empty file. O_NOFOLLOW, since a
        // link in the folder must not lead root to another file.
        options.write(true).create(true).truncate(false).mode(0o640).custom_flags(libc::O_NOFOLLOW);
        // A single write of a fixed length: whenever the process is killed, the file holds complete accounts.
        let line = format!("{:LENGTH$}\n", serde_json::to_string(entry)?);
        options.open(&self.path)?.write_all_at(line.as_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_leaves_the_next_one_finds() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = AccountFile { path: folder.path().join("run/accounts") };
        assert_eq!(ledger.read(), None);
        for settled in [None, Some(u64::MAX), Some(0)] {
            let entry =
                AccountRecord { settled, end: RunEnd::Failed, failed_runs: 3, ..AccountRecord::default() };
            ledger.write(&entry);
            assert_eq!(ledger.read(), Some(entry));
        }
        let most = AccountRecord {
            end: RunEnd::Stopped,
            settled: Some(u64::MAX),
            waiting: u64::MAX,
            enqueued: u32::MAX,
            uninspected: u64::MAX,
            dropped: u64::MAX,
            failed_runs: u64::MAX,
        };
        ledger.write(&most);
        assert_eq!(std::fs::metadata(&ledger.path).unwrap().len(), 256);
        std::fs::write(&ledger.path, "closed many\n").unwrap();
        assert_eq!(ledger.read(), None);
        ledger.remove();
        assert_eq!(ledger.read(), None);
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, path) = (folder.path().join("target"), folder.path().join("accounts"));
        std::fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        AccountFile { path }.write(&AccountRecord::default());
        assert_eq!(std::fs::read_to_string(target).unwrap(), "mine");
    }
}
