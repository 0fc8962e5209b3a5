//! When scans are to be started again and again.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned, civil};

use crate::inventory::Time;

/// The longest pause, in hours.
const HOURS: i64 = 24 * 366;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rhythm {
    /// Every so many hours.
    Every(i64),
    /// Each day at this time of this machine.
    Daily(civil::Time),
}

impl Rhythm {
    /// The first time behind one that was due and behind now; and how many there were from the former on.
    pub(crate) fn next(self, due: Time, now: Time) -> (Time, u64) {
        match self {
            Self::Every(hours) => {
                let pause = hours * 3_600_000;
                let passed = now.millis().saturating_sub(due.millis()).max(0) / pause + 1;
                let next = due.millis().saturating_add(passed.saturating_mul(pause));
                (Time::from_millis(next), passed.unsigned_abs())
            }
            Self::Daily(_) => {
                let days = now.millis().saturating_sub(due.millis()).max(0) / (24 * 3_600_000) + 1;
                (self.first(now), days.unsigned_abs())
            }
        }
    }

    /// The first time behind now.
    pub(crate) fn first(self, now: Time) -> Time {
        match self {
            Self::Every(hours) => Time::from_millis(now.millis() + hours * 3_600_000),
            Self::Daily(at) => {
                let here = Timestamp::from_millisecond(now.millis()).unwrap_or_default();
                let here = here.to_zoned(TimeZone::system());
                let on = |day: civil::Date| day.to_datetime(at).to_zoned(TimeZone::system()).ok();
                let tomorrow = here.date().checked_add(Span::new().days(1)).ok();
                let next: Option<Zoned> =
                    on(here.date()).filter(|next| *next > here).or_else(|| tomorrow.and_then(on));
                let later = now.millis() + 24 * 3_600_000;
                Time::from_millis(next.map_or(later, |next| next.timestamp().as_millisecond()))
            }
        }
    }
}

/// Reads `every 6h` or `daily 03:30`.
impl FromStr for Rhythm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, value) = text.trim().split_once(' ').unwrap_or_default();
        let value = value.trim();
        match kind {
            "every" => {
                let hours = value.strip_suffix('h').unwrap_or(value).parse().ok();
                hours.filter(|hours| (1..=HOURS).contains(hours)).map(Self::Every)
            }
            "daily" => civil::Time::strptime("%H:%M", value).ok().map(Self::Daily),
            _ => None,
        }
        .ok_or("when: as in `every 6h` or `daily 03:30`")
    }
}

/// As it is read.
impl fmt::Display for Rhythm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(hours) => write!(f, "every {hours}h"),
            Self::Daily(at) => write!(f, "daily {:02}:{:02}", at.hour(), at.minute()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_is_counted_and_the_next_time_is_behind_now() {
        let hour = |count: i64| Time::from_millis(count * 3_600_000);
        let every: Rhythm = "every 6h".parse().unwrap();
        assert_eq!(every.first(hour(1)), hour(7));
        assert_eq!(every.next(hour(7), hour(7)), (hour(13), 1));
        assert_eq!(every.next(hour(7), hour(20)), (hour(25), 3));
        let daily: Rhythm = "daily 03:30".parse().unwrap();
        let (next, count) = daily.next(hour(1_000), hour(1_050));
        assert!(next > hour(1_050) && next <= hour(1_075), "{next}");
        assert_eq!(count, 3);
        for (text, shown) in
            [("every 6h", "every 6h"), (" every 24 ", "every 24h"), ("daily 3:05", "daily 03:05")]
        {
            assert_eq!(text.parse::<Rhythm>().unwrap().to_string(), shown);
        }
        for wrong in
            ["", "every", "every 0h", "every -1h", "every 99999h", "daily", "daily 25:00", "weekly 1"]
        {
            assert!(wrong.parse::<Rhythm>().is_err(), "{wrong}");
        }
    }
}
