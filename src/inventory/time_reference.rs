//! Points in time, as users write them.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::inventory_time::InventoryTime;
use crate::event::Timestamp;

/// `24h` ago, `2026-11-20`, `2026-11-20T08:30`, or the end of run `#3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeReference {
    /// A time before now.
    Ago(Duration),
    /// This time.
    At(InventoryTime),
    /// The end of this run.
    Run(i64),
}

impl std::str::FromStr for TimeReference {
    type Err = &'static str;

    /// Times without an offset are UTC; a date means its midnight.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(run) = text.strip_prefix('#') {
            return run.parse().map(Self::Run).map_err(|_| "`#` must precede a run's number");
        }
        let of_day =
            || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp());
        if let Some(time) = text.parse::<jiff::Timestamp>().ok().or_else(of_day) {
            return Ok(Self::At(InventoryTime::from_millis(time.as_millisecond())));
        }
        age(text)
            .map(Self::Ago)
            .ok_or("a time is an age (24h, 7d), a date (2026-11-20, 2026-11-20T08:30) or a run (#3)")
    }
}

impl TimeReference {
    /// Returns the time; none for a run.
    pub(super) fn time(self, now: Timestamp) -> Option<InventoryTime> {
        match self {
            Self::Ago(age) => Some(InventoryTime::from(now).before(age)),
            Self::At(time) => Some(time),
            Self::Run(_) => None,
        }
    }
}

/// Parses `7d`, `24h`, `90m`: days have 24 hours.
pub(super) fn age(text: &str) -> Option<Duration> {
    let span: jiff::Span = text.parse().ok()?;
    Duration::try_from(span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}

/// Parses the value of a flag that is a duration.
///
/// # Errors
/// Returns the expected form.
pub fn parse_age(text: &str) -> Result<Duration, &'static str> {
    age(text).ok_or("a time with its unit, as in 90d or 12h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_say_them() {
        let now = Timestamp::from_nanos(1_767_225_600_000_000_000);
        for (text, said) in [
            ("24h", "2025-12-31 00:00:00"),
            ("7d", "2025-12-25 00:00:00"),
            ("2026-11-20", "2026-11-20 00:00:00"),
            ("2026-11-20T08:30", "2026-11-20 08:30:00"),
            ("2026-11-20T08:30:00+01:00", "2026-11-20 07:30:00"),
        ] {
            let moment: TimeReference = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(moment.time(now).map(|time| time.to_string()).as_deref(), Some(said), "{text}");
        }
        assert_eq!("#3".parse(), Ok(TimeReference::Run(3)));
        for text in ["", "soon", "#", "#x", "2026-13-01", "7"] {
            assert!(text.parse::<TimeReference>().is_err(), "{text}");
        }
    }
}
