//! What a thread may still do once it has what it needs.
//!
//! Threads of one process share memory, so this is no wall between them: it is less that code led astray
//! finds at hand, and nothing that a program started by it gets back.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::diagnostics::tell;
use crate::files::folder_of;

/// Verdicts, marks and iptables (`CAP_NET_ADMIN`), resets (`CAP_NET_RAW`).
pub(crate) const NETWORK: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Rules, event files and iptables' lock that belong to another user.
pub(crate) const FILES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// A program of eBPF for the network, loaded once (`--bypass`).
pub(crate) const PROGRAMS: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// Becoming another user, which no confined program needs a second time.
pub(crate) const CHANGE_USER: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Whether the calling thread may answer packets: nfnetlink asks for it with each message, whoever has opened the socket.
pub(crate) fn may_answer() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// A user that a program goes on as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    uid: Uid,
    /// The user's own group first.
    groups: Vec<Gid>,
}

impl User {
    /// Looks a user up by name or number (`getpwnam`, `getpwuid`).
    ///
    /// # Errors
    /// There is none of that name, or it is root.
    pub fn find(name: &str) -> io::Result<Self> {
        let found = match name.parse::<u32>() {
            Ok(number) => nix::unistd::User::from_uid(number.into())?,
            Err(_) => nix::unistd::User::from_name(name)?,
        };
        let found = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such user"))?;
        if found.uid.is_root() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "root keeps every right over files"));
        }
        let groups = nix::unistd::getgrouplist(&CString::new(found.name)?, found.gid)?;
        let groups = groups.into_iter().map(|group| Gid::from_raw(group.as_raw())).collect();
        Ok(Self { uid: Uid::from_raw(found.uid.as_raw()), groups })
    }

    /// The user's number.
    pub(crate) const fn number(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Gives a folder to the user; not what a link leads to.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn own(&self, folder: &Path) -> io::Result<()> {
        lchown(folder, Some(self.uid.as_raw()), self.groups.first().map(|group| group.as_raw()))
    }

    /// Whether the calling thread, which has become the user, may write a file, or make it.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn may_write(path: &Path) -> io::Result<()> {
        let there = std::fs::metadata(path).is_ok();
        Ok(access(if there { path } else { folder_of(path) }, Access::WRITE_OK)?)
    }

    /// Makes the calling thread the user's, and all that it starts later; of its capabilities it keeps `needed`.
    ///
    /// # Errors
    /// Without [`CHANGE_USER`].
    pub(crate) fn become_keeping(&self, needed: CapabilitySet) -> io::Result<()> {
        set_keep_capabilities(true)?;
        set_thread_groups(&self.groups)?;
        if let Some(group) = self.groups.first().copied() {
            set_thread_res_gid(group, group, group)?;
        }
        set_thread_res_uid(self.uid, self.uid, self.uid)?;
        // What was effective has gone with the old user; what is permitted has not.
        let permitted = capabilities(None)?.permitted & needed;
        Ok(set_capabilities(
            None,
            CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() },
        )?)
    }
}

/// Takes every capability from the calling thread, and so from those that it starts later, but `needed`.
///
/// # Errors
/// Where the kernel refuses, which it does not for less than there was.
pub(crate) fn keep(needed: CapabilitySet) -> io::Result<()> {
    let now = capabilities(None)?;
    let kept = CapabilitySets {
        effective: now.effective & needed,
        permitted: now.permitted & needed,
        // What was handed down to us for programs that we start (ambient capabilities) stays.
        inheritable: now.inheritable & needed,
    };
    Ok(set_capabilities(None, kept)?)
}

/// [`keep`] for a thread that does its work all the same where that fails; `thread` is its name.
pub(crate) fn keep_or_tell(thread: &str, needed: CapabilitySet) {
    if let Err(error) = keep(needed) {
        tell(format_args!("bannerwall: thread {thread}: cannot give up capabilities: {error}"));
    }
}

/// Takes every capability from the calling thread, named `thread`.
pub(crate) fn give_up_all(thread: &str) {
    keep_or_tell(thread, CapabilitySet::empty());
}

/// [`keep`], and no program that the thread starts ever gets more: neither by its owner's set-user-id
/// bit, nor by being started by root.
///
/// # Errors
/// As [`keep`].
pub(crate) fn keep_for_good(needed: CapabilitySet) -> io::Result<()> {
    keep(needed)?;
    Ok(set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_loses_its_own_privileges_and_no_other_threads() {
        let before = capabilities(None).expect("a thread may look at itself");
        std::thread::spawn(|| {
            keep(NETWORK).expect("less is always allowed");
            let kept = capabilities(None).expect("a thread may look at itself");
            assert!(NETWORK.contains(kept.permitted) && NETWORK.contains(kept.effective));
            assert!(NETWORK.contains(kept.inheritable));
        })
        .join()
        .expect("no panic");
        assert_eq!(capabilities(None).expect("still allowed").permitted, before.permitted);
    }
}
