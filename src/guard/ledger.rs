//! What a run leaves for the next one: how far the hook had counted when its accounts were closed.
//!
//! A hook that stays up goes on counting while no guard runs. The file is a line in the run-time folder
//! (`$RUNTIME_DIRECTORY` under systemd, else `/run/bannerwall`), one a range of queues and network
//! namespace; it is gone after a reboot, as the hook is. Where it can't be written, the gap is not told.

use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use bannerwall_ffi::namespace::cookie;

use super::control;
use crate::hook::Queues;
use crate::privileges::User;

/// How the accounts of the last run stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Previous {
    /// They were closed when the hook had counted so many packets.
    Closed(u64),
    /// They were never closed: the run was killed, or still goes on.
    Open,
}

/// Where it is kept.
pub(super) fn folder(user: Option<&User>) -> PathBuf {
    std::env::var_os("RUNTIME_DIRECTORY").map_or_else(|| control::folder(user), PathBuf::from)
}

/// The file.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
}

impl Ledger {
    /// The one of a guard of these queues, in this network namespace.
    pub(super) fn of(queues: Queues, user: Option<&User>) -> Self {
        let namespace = cookie().map_or_else(
            |_older| {
                let inode = std::fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino());
                format!("inode-{inode}")
            },
            |cookie| cookie.to_string(),
        );
        let queues = queues.to_string().replace(':', "-");
        Self { path: folder(user).join(format!("accounts-{queues}.{namespace}")) }
    }

    /// One at a path.
    #[cfg(test)]
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// What the last run left; nothing where there was none, or its file can't be read.
    pub(super) fn read(&self) -> Option<Previous> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        match text.trim_end().split_once(' ')? {
            ("closed", count) => count.parse().ok().map(Previous::Closed),
            ("open", _) => Some(Previous::Open),
            _ => None,
        }
    }

    /// Leaves word for the next run. Without a folder to write to, there is none.
    pub(super) fn write(&self, accounts: Previous) {
        let line = match accounts {
            Previous::Closed(count) => format!("closed {count}\n"),
            Previous::Open => "open -\n".to_owned(),
        };
        let _ = self.replace(&line);
    }

    /// Takes the file away: the next hook counts from zero.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn replace(&self, line: &str) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o640).custom_flags(libc::O_NOFOLLOW);
        options.open(&self.path)?.write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_leaves_the_next_one_finds() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger { path: folder.path().join("run/accounts") };
        assert_eq!(ledger.read(), None);
        for accounts in [Previous::Open, Previous::Closed(u64::MAX), Previous::Closed(0)] {
            ledger.write(accounts);
            assert_eq!(ledger.read(), Some(accounts));
        }
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
        Ledger { path }.write(Previous::Open);
        assert_eq!(std::fs::read_to_string(target).unwrap(), "mine");
    }
}
