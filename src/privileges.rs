//! What a thread may still do once it has what it needs.
//!
//! Threads of one process share memory, so this is no wall between them: it is less that code led astray
//! finds at hand, and nothing that a program started by it gets back.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use crate::diagnostics::tell;

/// Verdicts, marks and iptables (`CAP_NET_ADMIN`), resets (`CAP_NET_RAW`).
pub(crate) const NETWORK: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Rules, event files and iptables' lock that belong to another user.
pub(crate) const FILES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

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
