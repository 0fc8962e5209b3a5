//! Capabilities and users of threads after their start.
//!
//! Threads of one process share memory, so this is no barrier between them. It reduces what an exploited bug
//! finds, and a started program cannot regain what was given up.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::diagnostics::log_line;
use crate::files::folder_of;

/// Capabilities for verdicts, marks and iptables (`CAP_NET_ADMIN`), and for resets (`CAP_NET_RAW`).
pub(crate) const NETWORK: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Capabilities for rules, event files and iptables' lock of other users.
pub(crate) const FILES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// Capability to replace a file of another user in a folder that lets only owners replace files (`/tmp`).
pub(crate) const REPLACE_FILES: CapabilitySet = CapabilitySet::FOWNER;

/// Capabilities for loading an eBPF program for the network (`--bypass`).
pub(crate) const PROGRAMS: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// Capabilities for switching to another user, which a confined program does once.
pub(crate) const CHANGE_USER: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// User that a program of root switches to by default. The packages create it. Without it the program stays
/// root: a user that other services share, such as `nobody`, could stop the program and take over from it.
const IN_PLACE_OF_ROOT: &str = "bannerwall";

/// User of programs that a program of root starts, without [`IN_PLACE_OF_ROOT`].
const NOBODY: &str = "nobody";

/// True if the calling thread may send verdicts: nfnetlink checks the capability for each message, whoever
/// opened the socket.
pub(crate) fn may_answer() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// User to switch to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnprivilegedUser {
    uid: Uid,
    /// Groups, the user's own first.
    groups: Vec<Gid>,
}

impl UnprivilegedUser {
    /// Looks a user up by name or number (`getpwnam`, `getpwuid`).
    ///
    /// # Errors
    ///
    /// There is no such user, or it is root.
    pub fn find(name: &str) -> io::Result<Self> {
        let found = match name.parse::<u32>() {
            Ok(number) => nix::unistd::User::from_uid(number.into())?,
            Err(_) => nix::unistd::User::from_name(name)?,
        };
        let found = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such user"))?;
        if found.uid.is_root() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "root cannot be used here: it keeps every right over files",
            ));
        }
        let groups = nix::unistd::getgrouplist(&CString::new(found.name)?, found.gid)?;
        let groups = groups.into_iter().map(|group| Gid::from_raw(group.as_raw())).collect();
        Ok(Self { uid: Uid::from_raw(found.uid.as_raw()), groups })
    }

    /// Returns the user that a program of root switches to once its sockets are open. `None` if the calling
    /// thread is not root's, or if the machine or the user namespace lacks that user.
    pub(crate) fn in_place_of_root() -> Option<Self> {
        Self::of_root(IN_PLACE_OF_ROOT)
    }

    /// Returns the user that programs run as which a program of root starts: the one of
    /// [`UnprivilegedUser::in_place_of_root`], or `nobody`.
    pub(crate) fn of_programs() -> Option<Self> {
        let may_change = capabilities(None).is_ok_and(|sets| sets.effective.contains(CHANGE_USER));
        Self::in_place_of_root().or_else(|| Self::of_root(NOBODY)).filter(|_| may_change)
    }

    /// Returns this user if the calling thread is root's and the user namespace has the user.
    fn of_root(name: &str) -> Option<Self> {
        let user = Self::find(name).ok().filter(|_| geteuid().is_root())?;
        is_mapped(user.number()).then_some(user)
    }

    /// Returns the user's number.
    pub(crate) const fn number(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Changes the owner of a folder to the user, without following a link.
    ///
    /// # Errors
    ///
    /// Error of the system.
    pub(crate) fn own(&self, folder: &Path) -> io::Result<()> {
        lchown(folder, Some(self.uid.as_raw()), self.groups.first().map(|group| group.as_raw()))
    }

    /// Checks that the calling thread, which has switched to the user, may write or create a file.
    ///
    /// # Errors
    ///
    /// It may not.
    pub(crate) fn may_write(path: &Path) -> io::Result<()> {
        let there = std::fs::metadata(path).is_ok();
        Ok(access(if there { path } else { folder_of(path) }, Access::WRITE_OK)?)
    }

    /// Switches the calling thread to the user, with all that it starts later; it keeps the capabilities
    /// `needed`.
    ///
    /// # Errors
    ///
    /// [`CHANGE_USER`] is missing.
    pub(crate) fn become_keeping(&self, needed: CapabilitySet) -> io::Result<()> {
        set_keep_capabilities(true)?;
        set_thread_groups(&self.groups)?;
        if let Some(group) = self.groups.first().copied() {
            set_thread_res_gid(group, group, group)?;
        }
        set_thread_res_uid(self.uid, self.uid, self.uid)?;
        // The switch of users clears the effective set, but not the permitted one.
        let permitted = capabilities(None)?.permitted & needed;
        Ok(set_capabilities(
            None,
            CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() },
        )?)
    }
}

/// True if this user namespace maps the number (`user_namespaces(7)`).
fn is_mapped(user: u32) -> bool {
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else { return true };
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(first)), _, Some(Ok(count))) = (numbers.next(), numbers.next(), numbers.next()) else {
            return false;
        };
        user.checked_sub(first).is_some_and(|offset| offset < count)
    })
}

/// [`keep`] for a thread that also leaves root, unless this user namespace has no other user. Rights over
/// files stay if `needed` has them.
///
/// # Errors
///
/// As [`UnprivilegedUser::become_keeping`] and [`keep`].
pub(crate) fn leave_root(needed: CapabilitySet) -> io::Result<()> {
    match UnprivilegedUser::in_place_of_root() {
        Some(user) if capabilities(None)?.effective.contains(CHANGE_USER) => user.become_keeping(needed),
        _ => keep(needed),
    }
}

/// [`leave_root`] for a process that runs programs, which get the same capabilities and never more.
///
/// # Errors
///
/// As [`leave_root`].
pub(crate) fn leave_root_with_programs(needed: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    leave_root(needed)?;
    if geteuid().is_root() {
        // Programs of root get its capabilities anyway.
        return Ok(());
    }
    let now = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: now.permitted, ..now })?;
    now.permitted.iter().try_for_each(|one| Ok(configure_capability_in_ambient_set(one, true)?))
}

/// Takes every capability from a helper process, and every way to get one. It switches to the user with this
/// number, or leaves root.
///
/// # Errors
///
/// See [`UnprivilegedUser::find`] and [`leave_root`].
pub(crate) fn give_up_everything(user: Option<u32>) -> io::Result<()> {
    set_no_new_privs(true)?;
    match user {
        Some(number) => UnprivilegedUser::find(&number.to_string())?.become_keeping(CapabilitySet::empty()),
        None => leave_root(CapabilitySet::empty()),
    }
}

/// [`leave_root`] that reports a failure and continues.
pub(crate) fn leave_root_or_warn(needed: CapabilitySet) {
    if let Err(error) = leave_root(needed) {
        log_line(format_args!("bannerwall: cannot give up root's rights: {error}"));
    }
}

/// Drops every capability except `needed` from the calling thread, and so from those that it starts later.
///
/// # Errors
///
/// The kernel refuses, which it never does for a smaller set.
pub(crate) fn keep(needed: CapabilitySet) -> io::Result<()> {
    let now = capabilities(None)?;
    let kept = CapabilitySets {
        effective: now.effective & needed,
        permitted: now.permitted & needed,
        // Ambient capabilities for started programs stay within the set.
        inheritable: now.inheritable & needed,
    };
    Ok(set_capabilities(None, kept)?)
}

/// [`keep`] that reports a failure and continues; `thread` is the thread's name.
pub(crate) fn keep_or_warn(thread: &str, needed: CapabilitySet) {
    if let Err(error) = keep(needed) {
        log_line(format_args!("bannerwall: thread {thread}: cannot give up capabilities: {error}"));
    }
}

/// Drops every capability of the calling thread, named `thread`.
pub(crate) fn give_up_all(thread: &str) {
    keep_or_warn(thread, CapabilitySet::empty());
}

/// [`keep`], and no program that the thread starts ever gets more: neither by a set-user-id bit, nor because
/// root starts it.
///
/// # Errors
///
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
