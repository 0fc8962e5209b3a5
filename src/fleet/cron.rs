//! Times at which a scan repeats, and times at which nothing is scanned: crontabs with an optional time zone
//! (UTC by default), `every 6h`, and `daily 03:30` with an optional time zone (this machine's by default).

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::civil;
use jiff::tz::TimeZone;

use crate::inventory::InventoryTime;

/// Number of runs that are compared to find the shortest interval: eight years of a daily one.
const LOOKED_AT: usize = 3_000;

/// Longest interval, in hours.
const HOURS: i64 = 24 * 366;

/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;

/// Message for a malformed schedule.
const FORMS: &str = "must be `every 6h`, `daily 03:30`, `daily 03:30 Europe/Berlin`, or a crontab of minute, hour, day, month, \
                     day of the week and a time zone, as in '30 3 * * 1-5 Europe/Berlin'";

/// Times at which a scan repeats.
#[derive(Debug, Clone)]
pub struct CronSchedule {
    text: String,
    times: ScheduleTimes,
}

/// The parsed form.
#[derive(Debug, Clone)]
enum ScheduleTimes {
    /// Minute, hour, day, month, day of the week, time zone.
    Crontab(Box<Crontab>),
    /// Every number of hours.
    Every(i64),
}

/// Minutes in which nothing is scanned.
#[derive(Debug, Clone, Default)]
pub struct ExclusionWindows(Vec<CronSchedule>);

impl std::str::FromStr for CronSchedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, value) = text.trim().split_once(' ').unwrap_or_default();
        let value = value.trim();
        let (text, times) = match kind {
            "every" => {
                let hours = value.strip_suffix('h').unwrap_or(value).parse().ok();
                let hours = hours.filter(|hours| (1..=HOURS).contains(hours)).ok_or(FORMS)?;
                (format!("every {hours}h"), ScheduleTimes::Every(hours))
            }
            "daily" => {
                let (at, zone) = daily(value).ok_or(FORMS)?;
                let times = crontab(&format!("{} {} * * * {zone}", at.minute(), at.hour()))?;
                (format!("daily {:02}:{:02} {zone}", at.hour(), at.minute()), times)
            }
            _ => (text.to_owned(), crontab(text)?),
        };
        Ok(Self { text, times })
    }
}

/// Parses a time of day and a time zone. The name of this machine's zone makes the schedule mean the same on
/// other machines.
fn daily(value: &str) -> Option<(civil::Time, String)> {
    let (at, zone) = value.split_once(' ').map_or((value, None), |(at, zone)| (at, Some(zone.trim())));
    let zone = match zone {
        Some(zone) => zone.to_owned(),
        None => TimeZone::system().iana_name().unwrap_or("UTC").to_owned(),
    };
    Some((civil::Time::strptime("%H:%M", at).ok()?, zone))
}

fn crontab(text: &str) -> Result<ScheduleTimes, String> {
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    let read = parse_crontab_with(text, options).map_err(|_| FORMS.to_owned())?;
    Ok(ScheduleTimes::Crontab(Box::new(read)))
}

impl CronSchedule {
    /// Returns the text of the schedule.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the first time after another one; none if there is none for years.
    pub fn next(&self, after: InventoryTime) -> Option<InventoryTime> {
        let next = match &self.times {
            ScheduleTimes::Every(hours) => after.millis().saturating_add(hours * HOUR),
            ScheduleTimes::Crontab(read) => {
                let after = MakeTimestamp::from_millisecond(after.millis()).ok()?;
                read.find_next(after).ok()?.timestamp().as_millisecond()
            }
        };
        Some(InventoryTime::from_millis(next))
    }

    /// Returns how often it is due after a time and up to another one, and when last. Counts at most `most`
    /// times.
    pub fn due(&self, after: InventoryTime, to: InventoryTime, most: u64) -> (u64, InventoryTime) {
        let (mut count, mut last) = (0, after);
        while let Some(due) = self.next(last).filter(|due| *due <= to && count < most) {
            (count, last) = (count + 1, due);
        }
        (count, last)
    }

    /// Returns the shortest and the longest time between two runs after a time, in milliseconds; none if
    /// there are no two runs.
    pub fn gaps(&self, after: InventoryTime) -> Option<(i64, i64)> {
        let mut last = self.next(after)?;
        let runs = std::iter::from_fn(|| {
            let next = self.next(last)?;
            Some(next.millis() - std::mem::replace(&mut last, next).millis())
        });
        let extend = |found: Option<(i64, i64)>, gap: i64| {
            Some(found.map_or((gap, gap), |(least, most)| (gap.min(least), gap.max(most))))
        };
        runs.take(LOOKED_AT).fold(None, extend)
    }

    /// True if a crontab includes the minute of a time.
    fn names(&self, at: InventoryTime) -> bool {
        let minute = at.millis() - at.millis().rem_euclid(60_000);
        match &self.times {
            ScheduleTimes::Every(_) => false,
            ScheduleTimes::Crontab(read) => {
                MakeTimestamp::from_millisecond(minute).is_ok_and(|at| read.matches(at).unwrap_or(false))
            }
        }
    }
}

impl ExclusionWindows {
    /// Reads crontabs.
    ///
    /// # Errors
    ///
    /// One of them is invalid.
    pub fn read(texts: &[String]) -> Result<Self, String> {
        texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Self)
    }

    /// True if there are no exclusions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if nothing may be scanned at a time.
    pub fn cover(&self, at: InventoryTime) -> bool {
        self.0.iter().any(|cron| cron.names(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> InventoryTime {
        InventoryTime::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn a_crontab_is_due_by_its_own_time_zone() {
        let cron: CronSchedule = "30 3 * * 1-5 Europe/Berlin".parse().unwrap();
        // A Sunday in winter, and a Friday in summer.
        assert_eq!(cron.next(time("2026-11-22T12:00:00Z")), Some(time("2026-11-23T02:30:00Z")));
        assert_eq!(cron.next(time("2026-07-03T01:30:00Z")), Some(time("2026-07-06T01:30:00Z")));
        let hourly: CronSchedule = "0 * * * *".parse().unwrap();
        let (from, to) = (time("2026-11-22T12:00:00Z"), time("2026-11-22T15:59:00Z"));
        assert_eq!(hourly.due(from, to, 100), (3, time("2026-11-22T15:00:00Z")));
        assert_eq!(hourly.due(from, to, 2), (2, time("2026-11-22T14:00:00Z")));
        assert_eq!(hourly.due(to, to, 2), (0, to));
        let gaps = |text: &str| {
            let gaps = text.parse::<CronSchedule>().unwrap().gaps(to);
            gaps.map(|(least, most)| (least / 60_000, most / 60_000))
        };
        assert_eq!(gaps("*/10 * * * *"), Some((10, 10)));
        // When the clock is put forward, and when it is put back.
        assert_eq!(gaps("30 3 * * * Europe/Berlin"), Some((23 * 60, 25 * 60)));
        assert_eq!(gaps("0 3 * * 1"), Some((7 * 24 * 60, 7 * 24 * 60)));
        for wrong in ["", "* * * *", "61 * * * *", "30 3 * * * Europe/Nowhere", "daily"] {
            assert!(wrong.parse::<CronSchedule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn intervals_and_times_of_day_are_schedules() {
        for (text, shown) in [
            ("every 6h", "every 6h"),
            (" every 24 ", "every 24h"),
            ("daily 3:05  Europe/Berlin", "daily 03:05 Europe/Berlin"),
        ] {
            assert_eq!(text.parse::<CronSchedule>().unwrap().text(), shown);
        }
        let next = |text: &str, after: &str| text.parse::<CronSchedule>().unwrap().next(time(after));
        assert_eq!(next("every 6h", "2026-11-22T12:34:56Z"), Some(time("2026-11-22T18:34:56Z")));
        let berlin = "daily 03:30 Europe/Berlin";
        assert_eq!(next(berlin, "2026-11-22T20:00:00Z"), Some(time("2026-11-23T02:30:00Z")));
        // Clocks were put back in between.
        assert_eq!(next(berlin, "2026-10-24T12:00:00Z"), Some(time("2026-10-25T02:30:00Z")));
        let here: CronSchedule = "daily 03:30".parse().unwrap();
        let again: CronSchedule = here.text().parse().unwrap();
        assert_eq!(again.next(time("2026-11-22T12:00:00Z")), here.next(time("2026-11-22T12:00:00Z")));
        let wrong = [
            "every",
            "every 0h",
            "every -1h",
            "every 99999h",
            "daily 25:00",
            "weekly 1",
            "daily 3:05 Nowhere/Town",
        ];
        for wrong in wrong {
            assert!(wrong.parse::<CronSchedule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn excluded_are_the_minutes_that_a_crontab_names() {
        let office = ExclusionWindows::read(&["* 8-17 * * 1-5 Europe/Berlin".to_owned()]).unwrap();
        for (at, is_covered) in [
            ("2026-11-23T06:59:59Z", false),
            ("2026-11-23T07:00:00Z", true),
            ("2026-11-23T12:34:56Z", true),
            ("2026-11-23T16:59:59Z", true),
            ("2026-11-23T17:00:00Z", false),
            ("2026-11-22T12:00:00Z", false),
        ] {
            assert_eq!(office.cover(time(at)), is_covered, "{at}");
        }
        assert!(!ExclusionWindows::default().cover(time("2026-11-23T12:00:00Z")));
        assert!(ExclusionWindows::read(&["whenever".to_owned()]).is_err());
    }
}
