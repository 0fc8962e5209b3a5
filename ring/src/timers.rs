//! Timeouts of one constant length: a list in the order of starting, linked through a table.
//!
//! The timeout that starts last ends last. So starting, stopping and finding the next one are a few
//! stores each, without a heap or a wheel. The caller provides a monotonic clock.
//!
//! ```
//! use std::time::Duration;
//!
//! use bannerwall_ring::timers::TimeoutList;
//!
//! let mut silent = TimeoutList::new(Duration::from_nanos(100), 2);
//! silent.start(0, 1_000);
//! silent.start(1, 1_050);
//! assert_eq!(silent.deadline(), Some(1_100));
//! assert_eq!((silent.expired(1_120), silent.expired(1_120)), (Some(0), None));
//! ```

use std::time::Duration;

/// Nanoseconds since a time that the caller chose, the same for all calls.
pub type Nanos = u64;

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct TimerEntry {
    previous: u32,
    next: u32,
    /// Its end; [`STOPPED`] if it is not in the list.
    deadline: Nanos,
}

/// A deadline that never comes.
const STOPPED: Nanos = Nanos::MAX;

/// Running timeouts, identified by small numbers: memory grows with the highest number that was started.
///
/// `u32::MAX` is not a valid number.
#[derive(Debug)]
pub struct TimeoutList {
    length: Nanos,
    entries: Vec<TimerEntry>,
    first: u32,
    last: u32,
}

impl TimeoutList {
    /// Creates timeouts of `length`; numbers below `capacity` need no further memory.
    pub fn new(length: Duration, capacity: usize) -> Self {
        let length = Nanos::try_from(length.as_nanos()).unwrap_or(STOPPED);
        Self { length, entries: Vec::with_capacity(capacity), first: NONE, last: NONE }
    }

    /// Starts or restarts the timeout of `number`.
    #[inline]
    pub fn start(&mut self, number: u32, now: Nanos) {
        if number == NONE {
            return;
        }
        // A running timeout leaves its place, since the list is ordered by the time of the start.
        self.stop(number);
        let index = at(number);
        if index >= self.entries.len() {
            self.entries.resize(index + 1, TimerEntry { previous: NONE, next: NONE, deadline: STOPPED });
        }
        let last = self.last;
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = TimerEntry { previous: last, next: NONE, deadline: now.saturating_add(self.length) };
        }
        match self.entries.get_mut(at(last)) {
            Some(previous) => previous.next = number,
            None => self.first = number,
        }
        self.last = number;
    }

    /// Restarts the timeout of `number`, if it runs.
    #[inline]
    pub fn restart(&mut self, number: u32, now: Nanos) {
        if self.entries.get(at(number)).is_some_and(|entry| entry.deadline != STOPPED) {
            self.start(number, now);
        }
    }

    /// Stops the timeout of `number`, if it runs.
    #[inline]
    pub fn stop(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(at(number)) else { return };
        if entry.deadline == STOPPED {
            return;
        }
        entry.deadline = STOPPED;
        let (previous, next) = (entry.previous, entry.next);
        match self.entries.get_mut(at(previous)) {
            Some(entry) => entry.next = next,
            None => self.first = next,
        }
        match self.entries.get_mut(at(next)) {
            Some(entry) => entry.previous = previous,
            None => self.last = previous,
        }
    }

    /// Stops and returns one that has expired.
    #[inline]
    pub fn expired(&mut self, now: Nanos) -> Option<u32> {
        let number = self.first;
        if self.deadline()? > now {
            return None;
        }
        self.stop(number);
        Some(number)
    }

    /// The end of the next timeout.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        self.entries.get(at(self.first)).map(|entry| entry.deadline)
    }
}

/// Returns a number as an index; `NONE` is beyond any table.
fn at(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_number_that_names_none_starts_nothing() {
        let mut timers = TimeoutList::new(Duration::from_nanos(100), 0);
        timers.start(NONE, 0);
        assert_eq!(timers.deadline(), None);
    }

    proptest! {
        /// Whatever is started, restarted and stopped, each ends once, in time, in order.
        #[test]
        fn behaves_as_a_sorted_map(steps in prop::collection::vec((0..12_u32, 0..3_u8, 0..40_u64), 1..200)) {
            let mut timers = TimeoutList::new(Duration::from_nanos(100), 0);
            let mut model = BTreeMap::new();
            let mut now = 0;
            for (number, what, passed) in steps {
                now += passed;
                match what {
                    0 => {
                        timers.start(number, now);
                        model.insert(number, now + 100);
                    }
                    1 => {
                        timers.stop(number);
                        model.remove(&number);
                    }
                    _ => while let Some(ended) = timers.expired(now) {
                        let deadline = model.remove(&ended);
                        prop_assert!(deadline.is_some_and(|deadline| deadline <= now));
                    },
                }
                if what == 2 {
                    prop_assert!(model.values().all(|deadline| *deadline > now));
                }
                prop_assert_eq!(timers.deadline(), model.values().min().copied());
            }
        }
    }
}
