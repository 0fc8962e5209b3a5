//! The two clocks of a worker: a monotonic one for the age of flows, and the wall clock for the times in
//! events.

use std::time::Instant;

use crate::event::Timestamp;

/// A monotonic clock that starts at the time of day, together with the last reading of the wall clock. If the
/// wall clock is set, flows neither expire early nor live longer.
#[derive(Debug, Clone, Copy)]
pub(super) struct MonotonicClock {
    start: Instant,
    anchor: Timestamp,
    /// The monotonic time at which the wall clock was last read, and the wall clock's time then.
    read: Timestamp,
    wall: Timestamp,
}

/// Nanoseconds by which the wall clock is ahead of the monotonic clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WallClockOffset(i64);

impl MonotonicClock {
    /// Starts a clock at this time of day.
    pub(super) const fn start(start: Instant, wall: Timestamp) -> Self {
        Self { start, anchor: wall, read: wall, wall }
    }

    /// Stores a new reading of the wall clock.
    pub(super) fn set(&mut self, instant: Instant, wall: Timestamp) {
        (self.read, self.wall) = (self.monotonic_at(instant), wall);
    }

    /// Returns the monotonic time, by which flows age.
    pub(super) fn monotonic_at(&self, instant: Instant) -> Timestamp {
        self.anchor.after(instant.duration_since(self.start))
    }

    /// Returns the difference between the wall clock and the monotonic clock.
    pub(super) const fn wall_offset(&self) -> WallClockOffset {
        WallClockOffset(self.wall.as_nanos().cast_signed().saturating_sub(self.read.as_nanos().cast_signed()))
    }
}

impl WallClockOffset {
    /// Returns the time of day for a monotonic time.
    pub(super) const fn wall_clock(self, even: Timestamp) -> Timestamp {
        Timestamp::from_nanos(even.as_nanos().saturating_add_signed(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wall_clock_that_is_set_changes_events_and_not_ages() {
        let (start, day) = (Instant::now(), Timestamp::from_nanos(1_800_000_000_000_000_000));
        for (hours, forward) in [(5, true), (5, false), (0, true)] {
            let mut clock = MonotonicClock::start(start, day);
            let later = start + Duration::from_secs(10);
            let shift = Duration::from_secs(hours * 3600);
            let wall = match forward {
                true => day.after(shift),
                false => Timestamp::from_nanos(day.as_nanos() - 3600 * hours * 1_000_000_000),
            };
            clock.set(later, wall);
            assert_eq!(clock.monotonic_at(later).since(day), Duration::from_secs(10));
            assert_eq!(clock.wall_offset().wall_clock(clock.monotonic_at(later)), wall);
            let second = later + Duration::from_secs(1);
            assert_eq!(
                clock.wall_offset().wall_clock(clock.monotonic_at(second)),
                wall.after(Duration::from_secs(1))
            );
        }
    }
}
