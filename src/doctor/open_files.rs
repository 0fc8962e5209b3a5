//! Descriptors bound the connections of each ring of a scan.

use rustix::process::{Resource, getrlimit};

use super::Report;

/// Fewer than these slow a scan down.
const FEW: u64 = 4096;

pub(super) fn check() -> Report {
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FEW => Report::fault(format!(
            "at most {most} open files, and so connections at once, for each ring of a scan; raise it with \
             `ulimit -Hn 65536` or LimitNOFILE="
        )),
        Some(most) => {
            Report::fine(format!("up to {most}, and so connections at once, for each ring of a scan"))
        }
        None => Report::fine("unlimited"),
    }
}
