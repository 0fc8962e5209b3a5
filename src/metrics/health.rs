//! State behind `/healthz` and `/readyz`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Health of the program; shared by its parts and by the endpoint.
#[derive(Debug, Default)]
pub struct ProgramHealth {
    ready: AtomicBool,
    failed: AtomicBool,
    /// Reasons why it is not ready, by the part that reported them.
    obstacles: Mutex<BTreeMap<&'static str, String>>,
}

impl ProgramHealth {
    /// Sets whether the program does its work: `/readyz`.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Records that a part of the program has failed for good: `/healthz`.
    pub fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Records why `part` (`hook`, `queue 3`) does not work, or that it works again. While there is any
    /// reason, `/readyz` is 503 and its body lists the reasons.
    pub fn set_obstacle(&self, part: &'static str, reason: Option<String>) {
        let mut obstacles = self.obstacles.lock().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => obstacles.insert(part, reason),
            None => obstacles.remove(part),
        };
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the reasons, one on each line; none if the program is ready.
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
