//! Check for the limit of open files, which bounds the connections of each ring of a scan.

use rustix::process::{Resource, getrlimit};

use super::CheckReport;

/// Limit below which a scan is slow.
const FEW: u64 = 4096;

pub(super) fn check() -> CheckReport {
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FEW => CheckReport::fault(format!(
            "the limit of {most} open files bounds the connections of each ring of a scan; raise it with \
             `ulimit -Hn 65536` or LimitNOFILE="
        )),
        Some(most) => CheckReport::fine(format!("limit {most}, for the connections of each ring of a scan")),
        None => CheckReport::fine("unlimited"),
    }
}
