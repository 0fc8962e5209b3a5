//! Check for `guard --bypass`: the kernel supports it, and it would skip no third-party rules. A failure is
//! not a fault: most machines do not need it.

use super::Report;
use crate::bypass::{self, neighbours};
use crate::hook::Programs;

pub(super) fn check() -> Report {
    if let Err(why) = bypass::try_out() {
        return Report::fine(format!("`guard --bypass` is not available: {why}"));
    }
    match neighbours::look(&Programs::Here, &[]) {
        Ok(found) if found.is_empty() => Report::fine(
            "`guard --bypass` is available: the kernel supports it, and between plain Ethernet interfaces it skips no rules",
        ),
        Ok(found) => Report::fine(format!(
            "`guard --bypass` would be refused, since it would skip {}",
            found.join("; ")
        )),
        Err(why) => Report::blind(format!("rules that `guard --bypass` would skip: {why}")),
    }
}
