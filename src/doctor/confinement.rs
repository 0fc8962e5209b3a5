//! Check for the kernel's confinement.

use super::Report;
use crate::confinement::{Support, support};

pub(super) fn check() -> Report {
    Report::fine(match support() {
        Support::Whole => "Landlock and seccomp confine guards, scans and replays to their files",
        Support::Part => {
            "Landlock and seccomp confine guards, scans and replays to their files; from Linux 6.12 on a replay cannot use ports either"
        }
        Support::None => {
            "the kernel has no Landlock: only system calls of guards, scans and replays are confined, not files"
        }
    })
}
