//! Whether `guard --bypass` can be had: the kernel takes it, and it would not skip what others have set up.
//! That it can't is no fault: most machines do without.

use super::Report;
use crate::bypass::{self, neighbours};
use crate::hook::Programs;

pub(super) fn check() -> Report {
    if let Err(why) = bypass::try_out() {
        return Report::fine(format!("`guard --bypass` cannot be had here: {why}"));
    }
    match neighbours::look(&Programs::Here, &[]) {
        Ok(found) if found.is_empty() => Report::fine(
            "`guard --bypass` can be had: the kernel takes it, and between interfaces of plain Ethernet it would skip nobody's rules",
        ),
        Ok(found) => Report::fine(format!(
            "`guard --bypass` would be refused, since it would skip {}",
            found.join("; ")
        )),
        Err(why) => Report::blind(format!("what `guard --bypass` would skip: {why}")),
    }
}
