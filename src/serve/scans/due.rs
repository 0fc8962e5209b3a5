//! Decision about a schedule, from times and running scans, without I/O or a clock.

use super::rhythm::ScheduleTimes;
use crate::inventory::InventoryTime;

/// Longest delay of a start, in milliseconds; after that the start counts as missed.
const LATE: i64 = 5 * 60_000;

/// Time after the page's start, in milliseconds, during which the state of running scans may be outdated.
const UNKNOWN: i64 = 60_000;

/// State of a schedule, and of this page.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduleState {
    pub(super) now: InventoryTime,
    /// Start of the page.
    pub(super) begun: InventoryTime,
    /// True if a scan of the schedule runs, or seems to.
    pub(super) runs: bool,
    /// True if the limit of concurrent scans is reached.
    pub(super) is_full: bool,
    /// True if this page may start it.
    pub(super) is_ours: bool,
}

/// Next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScheduleStep {
    /// Nothing before the next check.
    Wait,
    /// Start the scan; this is the next time.
    Start(InventoryTime),
    /// Record missed starts; this is the next time.
    Missed { count: u64, next: InventoryTime, why: &'static str },
    /// Correct the next time, since a clock was ahead.
    SetBack(InventoryTime),
}

/// Decides about a schedule. A due scan is started, unless it is too late or the previous scan still runs:
/// then the start counts as missed. A due scan waits for other scans to end. If this page may not start it,
/// another page can, until it is too late.
pub(super) fn decide(rhythm: &ScheduleTimes, due: InventoryTime, seen: ScheduleState) -> ScheduleStep {
    let ScheduleState { now, begun, runs, is_full, is_ours } = seen;
    let passed = |since: InventoryTime| now.millis().saturating_sub(since.millis());
    if due > now {
        // A clock that was ahead has set this time. Without a new one, the schedule would not start
        // until then.
        return if rhythm.is_ahead(due, now) {
            ScheduleStep::SetBack(rhythm.first(now))
        } else {
            ScheduleStep::Wait
        };
    }
    if runs && passed(begun) < UNKNOWN {
        return ScheduleStep::Wait;
    }
    let (next, count) = rhythm.next(due, now);
    // A start that only waits for a free slot of this page is not late, as long as the next one is not
    // due.
    let has_waited = is_ours && is_full && due >= begun && count == 1;
    if runs {
        return ScheduleStep::Missed { count, next, why: "the previous scan still runs" };
    }
    if passed(due) > LATE && !has_waited {
        return ScheduleStep::Missed { count, next, why: "it could not be started in time" };
    }
    if is_full || !is_ours { ScheduleStep::Wait } else { ScheduleStep::Start(next) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes from some midnight in UTC on.
    fn at(minutes: i64) -> InventoryTime {
        InventoryTime::from_millis(20_000 * 86_400_000 + minutes * 60_000)
    }

    fn daily() -> ScheduleTimes {
        "daily 03:30 Etc/UTC".parse().unwrap()
    }

    const DAY: i64 = 24 * 60;
    const DUE: i64 = 3 * 60 + 30;

    fn seen(now: i64) -> ScheduleState {
        ScheduleState { now: at(now), begun: at(-DAY), runs: false, is_full: false, is_ours: true }
    }

    #[test]
    fn what_was_started_is_not_started_again_by_a_clock_that_is_behind() {
        let ScheduleStep::Start(next) = decide(&daily(), at(DUE), seen(DUE)) else { panic!("it is due") };
        assert_eq!(next, at(DUE + DAY));
        for behind in [DUE - 1, DUE - 90, DUE - 13 * 60, DUE] {
            assert_eq!(decide(&daily(), next, seen(behind)), ScheduleStep::Wait, "{behind}");
        }
        let every: ScheduleTimes = "every 6h".parse().unwrap();
        assert_eq!(decide(&every, at(DUE), seen(DUE)), ScheduleStep::Start(at(DUE + 360)));
        assert_eq!(decide(&every, at(DUE + 360), seen(DUE - 60)), ScheduleStep::Wait);
    }

    #[test]
    fn a_clock_that_was_ahead_for_long_is_put_right() {
        assert_eq!(decide(&daily(), at(DUE + 30 * DAY), seen(DUE + 1)), ScheduleStep::SetBack(at(DUE + DAY)));
        let every: ScheduleTimes = "every 6h".parse().unwrap();
        assert_eq!(decide(&every, at(DUE + 30 * DAY), seen(DUE)), ScheduleStep::SetBack(at(DUE + 360)));
    }

    #[test]
    fn what_is_due_is_started_or_waits_or_was_missed() {
        let next = at(DUE + DAY);
        let (still, late) = ("the previous scan still runs", "it could not be started in time");
        let missed =
            |count: u64, next: InventoryTime, why: &'static str| ScheduleStep::Missed { count, next, why };
        let now = |minutes: i64| seen(DUE + minutes);
        for (seen, expected) in [
            (now(-1), ScheduleStep::Wait),
            (now(5), ScheduleStep::Start(next)),
            (now(6), missed(1, next, late)),
            (now(2 * DAY), missed(3, at(DUE + 3 * DAY), late)),
            (ScheduleState { runs: true, ..now(1) }, missed(1, next, still)),
            // It is not known yet.
            (ScheduleState { runs: true, begun: at(DUE), ..now(0) }, ScheduleStep::Wait),
            // Others are waited for, by a page that was there when it was due.
            (ScheduleState { is_full: true, ..now(1) }, ScheduleStep::Wait),
            (ScheduleState { is_full: true, ..now(60) }, ScheduleStep::Wait),
            (ScheduleState { is_full: true, begun: at(DUE + 1), ..now(60) }, missed(1, next, late)),
            (ScheduleState { is_full: true, ..now(DAY) }, missed(2, at(DUE + 2 * DAY), late)),
            // Another page may start it.
            (ScheduleState { is_ours: false, ..now(5) }, ScheduleStep::Wait),
            (ScheduleState { is_ours: false, ..now(6) }, missed(1, next, late)),
        ] {
            assert_eq!(decide(&daily(), at(DUE), seen), expected, "{seen:?}");
        }
    }
}
