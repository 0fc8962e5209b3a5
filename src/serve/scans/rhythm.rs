//! Times of scheduled scans.
//!
//! A time of day belongs to a time zone. A schedule keeps the name of its zone, so it is due once a day for
//! every page, in any place.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned, civil};

use crate::inventory::InventoryTime;

/// Longest interval, in hours.
const HOURS: i64 = 24 * 366;

/// An hour, and the longest day, on which clocks are set back.
const HOUR: i64 = 3_600_000;
const DAY: i64 = 25 * HOUR;

/// Rhythm of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScheduleTimes {
    /// Every number of hours.
    Every(i64),
    /// Each day at this time, in a time zone; without one, in this machine's.
    Daily(civil::Time, Option<TimeZone>),
}

impl ScheduleTimes {
    /// Returns the rhythm with this machine's time zone if it has none, so that it means the same on other
    /// machines. A zone without a name (`TZ=CET-1`) stays local to each machine.
    pub(crate) fn settled(self) -> Self {
        match self {
            Self::Daily(at, None) => {
                let here = TimeZone::system();
                Self::Daily(at, here.iana_name().is_some().then_some(here))
            }
            settled => settled,
        }
    }

    /// True if `due` was computed by a clock that was ahead: it is later than one period after the next time.
    /// Smaller differences are normal between the clocks of pages, or after a correction. Acting on those
    /// would start the scan twice.
    pub(crate) fn is_ahead(&self, due: InventoryTime, now: InventoryTime) -> bool {
        let period = match self {
            Self::Every(hours) => hours * HOUR,
            Self::Daily(..) => DAY,
        };
        due.millis().saturating_sub(self.first(now).millis()) > period
    }

    /// Returns the first time after both `due` and `now`, and the number of times from `due` on.
    pub(crate) fn next(&self, due: InventoryTime, now: InventoryTime) -> (InventoryTime, u64) {
        match self {
            Self::Every(hours) => {
                let pause = hours * HOUR;
                let passed = now.millis().saturating_sub(due.millis()).max(0) / pause + 1;
                let next = due.millis().saturating_add(passed.saturating_mul(pause));
                (InventoryTime::from_millis(next), passed.unsigned_abs())
            }
            Self::Daily(..) => {
                let days = now.millis().saturating_sub(due.millis()).max(0) / (24 * HOUR) + 1;
                (self.first(now), days.unsigned_abs())
            }
        }
    }

    /// Returns the first time after `now`.
    pub(crate) fn first(&self, now: InventoryTime) -> InventoryTime {
        match self {
            Self::Every(hours) => InventoryTime::from_millis(now.millis() + hours * HOUR),
            Self::Daily(at, zone) => {
                let zone = zone.clone().unwrap_or_else(TimeZone::system);
                let here = Timestamp::from_millisecond(now.millis()).unwrap_or_default();
                let here = here.to_zoned(zone.clone());
                let on = |day: civil::Date| day.to_datetime(*at).to_zoned(zone.clone()).ok();
                let tomorrow = here.date().checked_add(Span::new().days(1)).ok();
                let next: Option<Zoned> =
                    on(here.date()).filter(|next| *next > here).or_else(|| tomorrow.and_then(on));
                // Only dates outside of the supported years have no next time.
                let later = now.millis() + 24 * HOUR;
                InventoryTime::from_millis(next.map_or(later, |next| next.timestamp().as_millisecond()))
            }
        }
    }
}

/// Parses `every 6h`, `daily 03:30` or `daily 03:30 Europe/Berlin`.
impl FromStr for ScheduleTimes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, value) = text.trim().split_once(' ').unwrap_or_default();
        let value = value.trim();
        match kind {
            "every" => {
                let hours = value.strip_suffix('h').unwrap_or(value).parse().ok();
                hours.filter(|hours| (1..=HOURS).contains(hours)).map(Self::Every)
            }
            "daily" => {
                let (at, zone) = value.split_once(' ').map_or((value, None), |(at, zone)| (at, Some(zone)));
                let at = civil::Time::strptime("%H:%M", at).ok();
                let zone = zone.map(|name| TimeZone::get(name.trim())).transpose();
                let zone = zone.map_err(|_| "when: unknown time zone")?;
                at.map(|at| Self::Daily(at, zone))
            }
            _ => None,
        }
        .ok_or("when: must be `every 6h`, `daily 03:30` or `daily 03:30 Europe/Berlin`")
    }
}

/// Formats the rhythm as it is parsed.
impl fmt::Display for ScheduleTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(hours) => write!(f, "every {hours}h"),
            Self::Daily(at, zone) => {
                write!(f, "daily {:02}:{:02}", at.hour(), at.minute())?;
                let name = zone.as_ref().and_then(TimeZone::iana_name);
                name.map_or(Ok(()), |name| write!(f, " {name}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_is_counted_and_the_next_time_is_behind_now() {
        let hour = |count: i64| InventoryTime::from_millis(count * 3_600_000);
        let every: ScheduleTimes = "every 6h".parse().unwrap();
        assert_eq!(every.first(hour(1)), hour(7));
        assert_eq!(every.next(hour(7), hour(7)), (hour(13), 1));
        assert_eq!(every.next(hour(7), hour(20)), (hour(25), 3));
        let daily: ScheduleTimes = "daily 03:30".parse().unwrap();
        let (next, count) = daily.next(hour(1_000), hour(1_050));
        assert!(next > hour(1_050) && next <= hour(1_075), "{next}");
        assert_eq!(count, 3);
        for (text, shown) in [
            ("every 6h", "every 6h"),
            (" every 24 ", "every 24h"),
            ("daily 3:05", "daily 03:05"),
            ("daily 3:05  Europe/Berlin", "daily 03:05 Europe/Berlin"),
        ] {
            assert_eq!(text.parse::<ScheduleTimes>().unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "every",
            "every 0h",
            "every -1h",
            "every 99999h",
            "daily",
            "daily 25:00",
            "weekly 1",
            "daily 3:05 Nowhere/Town",
        ] {
            assert!(wrong.parse::<ScheduleTimes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_of_day_is_one_of_its_zone_whoever_looks() {
        let at = |text: &str| InventoryTime::from_millis(text.parse::<Timestamp>().unwrap().as_millisecond());
        let first = |rhythm: &str, now: &str| rhythm.parse::<ScheduleTimes>().unwrap().first(at(now));
        for (zone, due) in [("Europe/Berlin", "2026-11-23T02:30:00Z"), ("Asia/Tokyo", "2026-11-23T18:30:00Z")]
        {
            assert_eq!(first(&format!("daily 03:30 {zone}"), "2026-11-22T20:00:00Z"), at(due), "{zone}");
        }
        // Clocks were put back in between.
        assert_eq!(first("daily 03:30 Europe/Berlin", "2026-10-24T12:00:00Z"), at("2026-10-25T02:30:00Z"));
        let here = "daily 03:30".parse::<ScheduleTimes>().unwrap();
        let again: ScheduleTimes = here.clone().settled().to_string().parse().unwrap();
        assert_eq!(again.first(at("2026-11-22T20:00:00Z")), here.first(at("2026-11-22T20:00:00Z")));
    }
}
