//! Times as the formats write them, always UTC.

use std::fmt;

use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};

use crate::event::Timestamp;

/// `2026-01-31T12:00:00.123456+0000`, EVE's form.
#[derive(Debug, Clone, Copy)]
pub(super) struct EveTime(pub(super) Timestamp);

/// `2026-01-31 12:00:00.123`, for a person at a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockTime(pub(super) Timestamp);

/// `Sat Jan 31 12:00:00 2026`, as nmap writes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LongTime(pub(super) Timestamp);

impl fmt::Display for LongTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", civil(self.0).strftime("%a %b %e %H:%M:%S %Y"))
    }
}

/// Writes digits directly: each event has such a time, and `write!` with widths is slow.
impl fmt::Display for EveTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = civil(self.0);
        let mut text = *b"0000-00-00T00:00:00.000000+0000";
        for (place, number) in [
            (0..4, i32::from(time.year())),
            (5..7, time.month().into()),
            (8..10, time.day().into()),
            (11..13, time.hour().into()),
            (14..16, time.minute().into()),
            (17..19, time.second().into()),
            (20..26, time.subsec_nanosecond() / 1000),
        ] {
            put_digits(text.get_mut(place).unwrap_or_default(), number);
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// Writes the last digits of a non-negative number, as many as `room` holds.
fn put_digits(room: &mut [u8], mut number: i32) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

impl fmt::Display for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = civil(self.0);
        let millis = time.subsec_nanosecond() / 1_000_000;
        write!(f, "{} {:02}:{:02}:{:02}.{millis:03}", time.date(), time.hour(), time.minute(), time.second())
    }
}

impl Serialize for EveTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns date and time in UTC. Every 64-bit number of nanoseconds is before the year 2555, well within
/// the range of a calendar date.
fn civil(timestamp: Timestamp) -> jiff::civil::DateTime {
    let instant = jiff::Timestamp::from_nanosecond(i128::from(timestamp.as_nanos())).unwrap_or_default();
    TimeZone::UTC.to_datetime(instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eve_time_has_microseconds_and_a_numeric_zone() {
        let timestamp = Timestamp::from_nanos(1_769_860_800_123_456_789);
        assert_eq!(EveTime(timestamp).to_string(), "2026-01-31T12:00:00.123456+0000");
        assert_eq!(ClockTime(timestamp).to_string(), "2026-01-31 12:00:00.123");
        assert_eq!(LongTime(timestamp).to_string(), "Sat Jan 31 12:00:00 2026");
    }

    #[test]
    fn the_first_and_the_last_nanosecond_have_a_date() {
        assert_eq!(EveTime(Timestamp::from_nanos(0)).to_string(), "1970-01-01T00:00:00.000000+0000");
        assert_eq!(EveTime(Timestamp::from_nanos(u64::MAX)).to_string(), "2554-07-21T23:34:33.709551+0000");
    }
}
