//! Whether the kernel can hold the program to the files that it needs.

use super::Report;
use crate::confinement::{Support, support};

pub(super) fn check() -> Report {
    Report::fine(match support() {
        Support::Whole => "Landlock and seccomp hold guards, scans and replays to their files",
        Support::Part => {
            "Landlock and seccomp hold guards, scans and replays to their files; a replay to no port, too, from Linux 6.12 on"
        }
        Support::None => {
            "no Landlock here: of guards, scans and replays system calls are confined, files are not"
        }
    })
}
