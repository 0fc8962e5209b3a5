//! Check for the kernel's confinement.

use super::CheckReport;
use crate::confinement::{LandlockSupport, support};

pub(super) fn check() -> CheckReport {
    CheckReport::fine(match support() {
        LandlockSupport::Whole => "Landlock and seccomp confine guards, scans and replays to their files",
        LandlockSupport::Part => {
            "Landlock and seccomp confine guards, scans and replays to their files; from Linux 6.12 on a replay cannot use ports either"
        }
        LandlockSupport::None => {
            "the kernel has no Landlock: only system calls of guards, scans and replays are confined, not files"
        }
    })
}
