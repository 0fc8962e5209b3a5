//! Check for the capabilities of this process.

use rustix::thread::{CapabilitySet, capabilities};

use super::CheckReport;

pub(super) fn check() -> CheckReport {
    let held = capabilities(None).map_or_else(|_| CapabilitySet::empty(), |sets| sets.effective);
    let needed = [
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN (queues, marks, iptables)"),
        (CapabilitySet::NET_RAW, "CAP_NET_RAW (resets)"),
    ];
    let missing: Vec<&str> =
        needed.iter().filter(|(capability, _)| !held.contains(*capability)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        CheckReport::fine("this process has CAP_NET_ADMIN and CAP_NET_RAW")
    } else {
        CheckReport::denied(format!("missing {}; run as root or grant them", missing.join(" and ")))
    }
}

/// True if this process has the capability that most other checks need.
pub(super) fn may_administer() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}
