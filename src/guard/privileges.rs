//! What a thread that reads hostile packets may still do.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Takes every capability from the calling thread but those that the packet path needs: verdicts and
/// marks (`CAP_NET_ADMIN`), resets (`CAP_NET_RAW`).
///
/// The main thread keeps what it has: it runs iptables and reads rules again.
pub(super) fn keep_network_only() -> std::io::Result<()> {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let now = capabilities(None)?;
    let kept = CapabilitySets {
        effective: now.effective & needed,
        permitted: now.permitted & needed,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_loses_its_own_privileges_and_no_other_threads() {
        let before = capabilities(None).expect("a thread may look at itself");
        std::thread::spawn(|| {
            keep_network_only().expect("less is always allowed");
            let kept = capabilities(None).expect("a thread may look at itself");
            let needed = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
            assert!(needed.contains(kept.permitted) && needed.contains(kept.effective));
            assert!(kept.inheritable.is_empty());
        })
        .join()
        .expect("no panic");
        assert_eq!(capabilities(None).expect("still allowed").permitted, before.permitted);
    }
}
