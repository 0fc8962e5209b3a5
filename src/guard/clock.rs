//! The two clocks of a worker: flows age by one that nobody can set, events tell the time of day.

use std::time::Instant;

use crate::event::Timestamp;

/// A clock that goes on evenly from the time of day at the start of the run, and what the time of day is
/// beside it: a wall clock that is set neither ages flows nor makes them young again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    anchor: Timestamp,
    /// Time at which the wall clock was last read, by the even clock, and what it said.
    read: Timestamp,
    wall: Timestamp,
}

/// Nanoseconds that the wall clock is ahead of the even one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Step(i64);

impl Clock {
    /// A clock that starts now, at this time of day.
    pub(super) const fn start(start: Instant, wall: Timestamp) -> Self {
        Self { start, anchor: wall, read: wall, wall }
    }

    /// Takes the time of day anew.
    pub(super) fn set(&mut self, instant: Instant, wall: Timestamp) {
        (self.read, self.wall) = (self.even(instant), wall);
    }

    /// The time that flows age by.
    pub(super) fn even(&self, instant: Instant) -> Timestamp {
        self.anchor.after(instant.duration_since(self.start))
    }

    /// How far the time of day has gone from that.
    pub(super) const fn step(&self) -> Step {
        Step(self.wall.as_nanos().cast_signed().saturating_sub(self.read.as_nanos().cast_signed()))
    }
}

impl Step {
    /// The time of day at `even`.
    pub(super) const fn of_day(self, even: Timestamp) -> Timestamp {
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
            let mut clock = Clock::start(start, day);
            let later = start + Duration::from_secs(10);
            let shift = Duration::from_secs(hours * 3600);
            let wall = match forward {
                true => day.after(shift),
                false => Timestamp::from_nanos(day.as_nanos() - 3600 * hours * 1_000_000_000),
            };
            clock.set(later, wall);
            assert_eq!(clock.even(later).since(day), Duration::from_secs(10));
            assert_eq!(clock.step().of_day(clock.even(later)), wall);
            let second = later + Duration::from_secs(1);
            assert_eq!(clock.step().of_day(clock.even(second)), wall.after(Duration::from_secs(1)));
        }
    }
}
