//! Heartbeats of pages with running scans. A page sends heartbeats while its scans run. If a page was killed
//! and never came back under its name, any other page closes its scans in the journal.
//!
//! Clocks of machines differ, so a page compares counters and waits by its own clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::diagnostics::log_line;
use crate::inventory::{InventoryDatabase, StoreError};

/// Interval of heartbeats.
const PAUSE: Duration = Duration::from_secs(5);

/// Silence after which a page counts as gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Own heartbeats, and those of other pages.
#[derive(Debug, Default)]
pub(super) struct PageHeartbeat {
    told: Option<Instant>,
    /// Last counter of each scan, with the time of its change.
    heard: BTreeMap<i64, (i64, Instant)>,
}

impl PageHeartbeat {
    /// Sends heartbeats for this page's scans, and closes scans without heartbeats.
    ///
    /// # Errors
    /// Error of the database.
    pub(super) fn tend(
        &mut self,
        inventory: &InventoryDatabase,
        own: &[i64],
        now: Instant,
    ) -> Result<(), StoreError> {
        if self.told.is_none_or(|told| now.duration_since(told) >= PAUSE) {
            own.iter().try_for_each(|id| inventory.beat(*id))?;
            self.told = Some(now);
        }
        for silent in self.silent(inventory.beats()?, own, now) {
            if inventory.end_if_silent(silent)? {
                log_line(format_args!(
                    "bannerwall: scan #{} is closed: its page sends no heartbeats",
                    silent.0
                ));
            }
        }
        Ok(())
    }

    /// Returns running scans of other pages without heartbeats for too long.
    fn silent(&mut self, running: Vec<(i64, i64)>, own: &[i64], now: Instant) -> Vec<(i64, i64)> {
        self.heard.retain(|known, _| running.iter().any(|(id, _)| id == known));
        let is_silent = |(id, beat): &(i64, i64)| {
            let heard = self.heard.entry(*id).or_insert((*beat, now));
            // The time is taken by the own monotonic clock when the number changes, so clocks of other
            // machines do not matter.
            if heard.0 != *beat {
                *heard = (*beat, now);
            }
            !own.contains(id) && now.duration_since(heard.1) >= PATIENCE
        };
        running.into_iter().filter(is_silent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_tells_of_is_told_apart_from_what_is_told_of_late() {
        let (mut heartbeat, begun) = (PageHeartbeat::default(), Instant::now());
        let mut look = |seconds: u64, running: &[(i64, i64)]| {
            heartbeat.silent(running.to_vec(), &[3], begun + Duration::from_secs(seconds))
        };
        assert_eq!(look(0, &[(1, 4), (2, 9), (3, 0)]), []);
        assert_eq!(look(29, &[(1, 4), (2, 10), (3, 0)]), []);
        assert_eq!(look(30, &[(1, 4), (2, 10), (3, 0)]), [(1, 4)]);
        assert_eq!(look(58, &[(2, 10)]), []);
        assert_eq!(look(59, &[(1, 4), (2, 10)]), [(2, 10)], "one that was taken back is waited for anew");
        // A page that has begun again under the same number, of a journal that was put back.
        assert_eq!(look(89, &[(1, 3)]), []);
    }
}
