//! Check for the limit of open files, which bounds the connections of each ring of a scan.

use rustix::process::{Resource, getrlimit};

use super::Report;

/// Limit below which a scan is slow.
const FEW: u64 = 4096;

pub(super) fn check() -> Report {
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FEW => Report::fault(format!(
            "the limit of {most} open files bounds the connections of each ring of a scan; raise it with \
             `ulimit -Hn 65536` or LimitNOFILE="
        )),
        Some(most) => Report::fine(format!("limit {most}, for the connections of each ring of a scan")),
        None => Report::fine("unlimited"),
    }
}
