//! Whether the kernel can hold the program to the files that it needs.

use super::Report;
use crate::confinement::{Support, support};

pub(super) fn check() -> Report {
    Report::fine(match support() {
        Support::Whole => "Landlock and seccomp hold a replay to its files",
        Support::Part => {
            "Landlock and seccomp hold a replay to its files; its ports, too, from Linux 6.12 on"
        }
        Support::None => "no Landlock here: of a replay system calls are confined, files are not",
    })
}
