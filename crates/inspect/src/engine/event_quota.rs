//! The quota of events that need no connection: any host can send such packets.

use crate::event::Timestamp;
use crate::flow::Anomaly;

/// Events at once.
const BURST: u64 = 64;

/// Events a second thereafter.
const RATE: u64 = 4;

const SECOND: u64 = 1_000_000_000;

/// A bucket of tokens, one an event; every event is counted elsewhere, told or not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EventQuota {
    /// Events told since the bucket was full, less those made good by time, in nanoseconds of [`RATE`].
    owed: u64,
    last: Timestamp,
    /// Events not told since one was.
    suppressed: u64,
}

impl EventQuota {
    /// Returns the number of suppressed events since the last one, if another may be emitted now.
    pub(super) fn admit(&mut self, now: Timestamp) -> Option<u64> {
        let each = SECOND / RATE;
        let passed = u64::try_from(now.since(self.last).as_nanos()).unwrap_or(u64::MAX);
        self.owed = self.owed.saturating_sub(passed);
        self.last = now;
        if self.owed + each > BURST * each {
            self.suppressed += 1;
            return None;
        }
        self.owed += each;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// A bucket a kind of event.
#[derive(Debug)]
pub(super) struct EventQuotas {
    anomalies: [EventQuota; Anomaly::COUNT],
    /// Packets that find no room, under `--on-failure closed`.
    pub(super) no_room: EventQuota,
}

impl Default for EventQuotas {
    fn default() -> Self {
        Self { anomalies: [EventQuota::default(); Anomaly::COUNT], no_room: EventQuota::default() }
    }
}

impl EventQuotas {
    pub(super) fn of(&mut self, anomaly: Anomaly) -> &mut EventQuota {
        &mut self.anomalies[anomaly as usize]
    }
}

/// `detail`, with a word about the events that were not told before this one.
pub(super) fn detail(detail: &str, suppressed: u64) -> String {
    match suppressed {
        0 => detail.to_owned(),
        count => format!("{detail} ({count} more before this one, not reported)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_in_part_and_says_how_much_was_not() {
        let mut quota = EventQuota::default();
        let start = Timestamp::from_nanos(1_800_000_000 * SECOND);
        let told = (0..20_000).filter(|_| quota.admit(start).is_some()).count();
        assert_eq!(told, 64);
        let later = start.after(std::time::Duration::from_secs(1));
        assert_eq!(quota.admit(later), Some(19_936));
        let told = (0..100).filter(|_| quota.admit(later) == Some(0)).count();
        assert_eq!(told, 3);
    }
}
