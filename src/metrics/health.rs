//! What `/healthz` and `/readyz` say.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether the program works, and whether it does all of its work; shared by whoever knows and by the
/// endpoint that tells.
#[derive(Debug, Default)]
pub struct Health {
    ready: AtomicBool,
    failed: AtomicBool,
    /// What keeps it from its work, by who says so.
    obstacles: Mutex<BTreeMap<&'static str, String>>,
}

impl Health {
    /// Says whether the program does its work now: `/readyz`.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Says that a part of the program has failed for good: `/healthz`.
    pub fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Says what keeps `part` (`hook`, `queue 3`) from its work, or that nothing does any more. As long
    /// as anything does, `/readyz` is 503 and its body names it.
    pub fn hinder(&self, part: &'static str, reason: Option<String>) {
        let mut obstacles = self.obstacles.lock().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => obstacles.insert(part, reason),
            None => obstacles.remove(part),
        };
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// What is in the way, a line each; none where the program is ready.
    pub(crate) fn obstacles(&self) -> Option<String> {
        let mut lines = String::new();
        if self.has_failed() {
            lines.push_str("failed\n");
        }
        let obstacles = self.obstacles.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, reason) in obstacles.iter() {
            // Writing to a string can't fail.
            let _ = writeln!(lines, "{part}: {reason}");
        }
        let ready = self.ready.load(Ordering::Relaxed) && lines.is_empty();
        (!ready).then_some(lines)
    }
}
