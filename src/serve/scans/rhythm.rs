//! When scans are to be started again and again.
//!
//! A time of day is one of a time zone: a schedule keeps the name of its zone, so that it is due once a day
//! whichever page looks, wherever that is.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned, civil};

use crate::inventory::Time;

/// The longest pause, in hours.
const HOURS: i64 = 24 * 366;

/// An hour, and the longest day: the one on which clocks are put back.
const HOUR: i64 = 3_600_000;
const DAY: i64 = 25 * HOUR;

/// How often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rhythm {
    /// Every so many hours.
    Every(i64),
    /// Each day at this time, in a time zone; in this machine's where none is named.
    Daily(civil::Time, Option<TimeZone>),
}

impl Rhythm {
    /// The same with this machine's time zone where none is named, so that it means the same to others. A
    /// zone that has no name (`TZ=CET-1`) remains each machine's own.
    pub(crate) fn settled(self) -> Self {
        match self {
            Self::Daily(at, None) => {
                let here = TimeZone::system();
                Self::Daily(at, here.iana_name().is_some().then_some(here))
            }
            settled => settled,
        }
    }

    /// True if a clock was ahead that has found this to be due: nobody waits for longer than from the first
    /// time behind now to the one behind that. Less is what clocks of several pages differ by, or one that is
    /// put right behind a start: to go by that would be to start again.
    pub(crate) fn is_ahead(&self, due: Time, now: Time) -> bool {
        let period = match self {
            Self::Every(hours) => hours * HOUR,
            Self::Daily(..) => DAY,
        };
        due.millis().saturating_sub(self.first(now).millis()) > period
    }

    /// The first time behind one that was due and behind now; and how many there were from the former on.
    pub(crate) fn next(&self, due: Time, now: Time) -> (Time, u64) {
        match self {
            Self::Every(hours) => {
                let pause = hours * HOUR;
                let passed = now.millis().saturating_sub(due.millis()).max(0) / pause + 1;
                let next = due.millis().saturating_add(passed.saturating_mul(pause));
                (Time::from_millis(next), passed.unsigned_abs())
            }
            Self::Daily(..) => {
                let days = now.millis().saturating_sub(due.millis()).max(0) / (24 * HOUR) + 1;
                (self.first(now), days.unsigned_abs())
            }
        }
    }

    /// The first time behind now.
    pub(crate) fn first(&self, now: Time) -> Time {
        match self {
            Self::Every(hours) => Time::from_millis(now.millis() + hours * HOUR),
            Self::Daily(at, zone) => {
                let zone = zone.clone().unwrap_or_else(TimeZone::system);
                let here = Timestamp::from_millisecond(now.millis()).unwrap_or_default();
                let here = here.to_zoned(zone.clone());
                let on = |day: civil::Date| day.to_datetime(*at).to_zoned(zone.clone()).ok();
                let tomorrow = here.date().checked_add(Span::new().days(1)).ok();
                let next: Option<Zoned> =
                    on(here.date()).filter(|next| *next > here).or_else(|| tomorrow.and_then(on));
                let later = now.millis() + 24 * HOUR;
                Time::from_millis(next.map_or(later, |next| next.timestamp().as_millisecond()))
            }
        }
    }
}

/// Reads `every 6h`, `daily 03:30` or `daily 03:30 Europe/Berlin`.
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
            "daily" => {
                let (at, zone) = value.split_once(' ').map_or((value, None), |(at, zone)| (at, Some(zone)));
                let at = civil::Time::strptime("%H:%M", at).ok();
                let zone = zone.map(|name| TimeZone::get(name.trim())).transpose();
                let zone = zone.map_err(|_| "when: this machine knows no such time zone")?;
                at.map(|at| Self::Daily(at, zone))
            }
            _ => None,
        }
        .ok_or("when: as in `every 6h`, `daily 03:30` or `daily 03:30 Europe/Berlin`")
    }
}

/// As it is read.
impl fmt::Display for Rhythm {
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
        let hour = |count: i64| Time::from_millis(count * 3_600_000);
        let every: Rhythm = "every 6h".parse().unwrap();
        assert_eq!(every.first(hour(1)), hour(7));
        assert_eq!(every.next(hour(7), hour(7)), (hour(13), 1));
        assert_eq!(every.next(hour(7), hour(20)), (hour(25), 3));
        let daily: Rhythm = "daily 03:30".parse().unwrap();
        let (next, count) = daily.next(hour(1_000), hour(1_050));
        assert!(next > hour(1_050) && next <= hour(1_075), "{next}");
        assert_eq!(count, 3);
        for (text, shown) in [
            ("every 6h", "every 6h"),
            (" every 24 ", "every 24h"),
            ("daily 3:05", "daily 03:05"),
            ("daily 3:05  Europe/Berlin", "daily 03:05 Europe/Berlin"),
        ] {
            assert_eq!(text.parse::<Rhythm>().unwrap().to_string(), shown);
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
            assert!(wrong.parse::<Rhythm>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_of_day_is_one_of_its_zone_whoever_looks() {
        let at = |text: &str| Time::from_millis(text.parse::<Timestamp>().unwrap().as_millisecond());
        let first = |rhythm: &str, now: &str| rhythm.parse::<Rhythm>().unwrap().first(at(now));
        for (zone, due) in [("Europe/Berlin", "2026-11-23T02:30:00Z"), ("Asia/Tokyo", "2026-11-23T18:30:00Z")]
        {
            assert_eq!(first(&format!("daily 03:30 {zone}"), "2026-11-22T20:00:00Z"), at(due), "{zone}");
        }
        // Clocks were put back in between.
        assert_eq!(first("daily 03:30 Europe/Berlin", "2026-10-24T12:00:00Z"), at("2026-10-25T02:30:00Z"));
        let here = "daily 03:30".parse::<Rhythm>().unwrap();
        let again: Rhythm = here.clone().settled().to_string().parse().unwrap();
        assert_eq!(again.first(at("2026-11-22T20:00:00Z")), here.first(at("2026-11-22T20:00:00Z")));
    }
}
