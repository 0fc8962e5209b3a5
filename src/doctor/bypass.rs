//! Check for `guard --bypass`: the kernel supports it, and it would skip no third-party rules. A failure is
//! not a fault: most machines do not need it.

use super::CheckReport;
use crate::bypass::{self, third_party_config};
use crate::hook::ProgramRunner;

pub(super) fn check() -> CheckReport {
    if let Err(why) = bypass::check_support() {
        return CheckReport::nothing(format!("`guard --bypass` is not available: {why}"));
    }
    match third_party_config::find_third_party(&ProgramRunner::Here, &[]) {
        Ok(found) if found.is_empty() => CheckReport::fine(
            "`guard --bypass` is available: the kernel supports it, and between plain Ethernet interfaces it skips no rules",
        ),
        Ok(found) => CheckReport::nothing(format!(
            "`guard --bypass` would be refused, since it would skip {}",
            found.join("; ")
        )),
        Err(why) => CheckReport::blind(format!("rules that `guard --bypass` would skip: {why}")),
    }
}
