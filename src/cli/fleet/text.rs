//! Text output about the scans of a fleet.

use std::fmt::Write as _;

use crate::diagnostics::several;
use crate::fleet::{
    RulesVersionState, ScanEnd, ScanState, ScanStatus, ScheduledScan, SensorRulesState, SensorState,
};
use crate::inventory::InventoryTime;
use crate::output::EscapedText;

/// Columns of a scan.
pub(super) const SCAN: &[&str] = &[
    "scan", "state", "about", "who", "made", "ended", "targets", "over", "shards", "ready", "leased", "done",
    "parked", "schedule", "error",
];

/// Columns of a schedule.
pub(super) const SCHEDULE: &[&str] =
    &["schedule", "cron", "about", "who", "due", "missed", "missed_at", "missed_why"];

/// Formats a scan as one line.
pub(super) fn scan(scan: &ScanState) -> String {
    let share = 100.0 * scan.over as f64 / scan.targets.max(1) as f64;
    let parked = if scan.parked > 0 { format!(", {} parked", scan.parked) } else { String::new() };
    format!(
        "#{}  {:9} {share:5.1} %  {}/{} targets  {}/{} shards{parked}  {}  {}",
        scan.scan,
        scan.state,
        scan.over,
        scan.targets,
        scan.done,
        scan.shards,
        scan.made,
        EscapedText(&scan.about)
    )
}

/// Describes the end of a scan.
pub(super) fn end(scan: i64, end: ScanEnd) -> String {
    match end {
        ScanEnd::Done => format!("scan #{scan} is done"),
        ScanEnd::Cancelled => format!("scan #{scan} was cancelled"),
        ScanEnd::Failed(shards) => {
            format!(
                "scan #{scan}: shards that failed too often: {shards} (`fleet status {scan}`, `fleet retry {scan}`)"
            )
        }
    }
}

/// Formats a scan with its results, workers and errors.
pub(super) fn status(status: &ScanStatus) -> String {
    let mut text = scan(&status.scan);
    let counts = &status.counts;
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "\n  open {}, matched {}, refused {}, timed out {}, unreachable {}, local error {}",
        counts.open, counts.matched, counts.refused, counts.timed_out, counts.unreachable, counts.local_error
    );
    for worker in &status.workers {
        let rate = worker.rate.map_or_else(String::new, |rate| format!(", {rate} targets/s"));
        let _ = write!(
            text,
            "\n  {}: shards {}{rate}, seen {}",
            EscapedText(&worker.name),
            worker.shards,
            worker.seen
        );
    }
    for error in &status.errors {
        let _ = write!(
            text,
            "\n  shard {} ({}, failed {}): {}",
            error.shard,
            error.state,
            several(error.attempts, "time"),
            EscapedText(&error.error)
        );
    }
    text
}

/// Formats a sensor as one line.
pub(super) fn sensor(sensor: &SensorState) -> String {
    let time = |time: Option<InventoryTime>| time.map_or_else(|| "never".to_owned(), |time| time.to_string());
    let (alive, heard) = (time(sensor.alive), time(sensor.heard));
    let mut text = format!(
        "sensor {}  last sign of life {alive}, last batch {heard}  batches {}, sightings {}",
        EscapedText(&sensor.sensor),
        sensor.batches,
        sensor.sightings
    );
    let counts = [
        (sensor.inbox, "in the inbox"),
        (sensor.waiting, "waiting to be merged"),
        (sensor.refused, "set aside"),
        (sensor.lost, "sightings lost"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        // Writing to a String cannot fail.
        let _ = write!(text, ", {count} {what}");
    }
    if let Some(behind) = sensor.behind {
        let _ = write!(text, ", the oldest for {:.1} s", behind as f64 / 1_000.0);
    }
    if let Some(skew) = sensor.skew {
        let way = if skew < 0 { "behind" } else { "ahead" };
        let _ = write!(text, "  clock {:.3} s {way}", skew.unsigned_abs() as f64 / 1_000.0);
    }
    text
}

/// Formats deleted sensors, one line each, with the number of deleted batches that were set aside.
pub(super) fn forgotten(sensors: &[String], aside: &[usize]) -> String {
    let line = |(sensor, count): (&String, &usize)| {
        let aside =
            if *count > 0 { format!(", with batches that were set aside: {count}") } else { String::new() };
        format!("sensor {} is deleted{aside}\n", EscapedText(sensor))
    };
    sensors.iter().zip(aside).map(line).collect()
}

/// Formats a schedule as one line.
pub(super) fn planned(planned: &ScheduledScan) -> String {
    let missed = match (&planned.missed_at, &planned.missed_why) {
        (Some(at), Some(why)) => format!("  missed {} times, last at {at}: {why}", planned.missed),
        _ => String::new(),
    };
    format!(
        "#{}  {}  due {}  {}{missed}",
        planned.schedule,
        EscapedText(&planned.cron),
        planned.due,
        EscapedText(&planned.about)
    )
}

/// Columns of a version of the rules.
pub(super) const RULES: &[&str] = &["version", "percent", "rules", "octets", "who", "made", "note"];

/// Columns of a sensor with published rules.
pub(super) const TAKEN: &[&str] =
    &["sensor", "version", "since", "meant", "refused", "reason", "refused_at", "seen"];

/// Formats a version of the rules as one line.
pub(super) fn version(version: &RulesVersionState) -> String {
    format!(
        "{:>5}  {:>3} %  {}  {}  {}  {}",
        version.version,
        version.percent,
        several(version.rules, "rule"),
        version.made,
        EscapedText(&version.who),
        EscapedText(&version.note)
    )
}

/// Formats a sensor and its rules as one line, and the refused version as another.
pub(super) fn taken(taken: &SensorRulesState) -> String {
    let mut text = match (taken.version, &taken.since) {
        (Some(version), Some(since)) => {
            format!("{}  version {version} since {since}", EscapedText(&taken.sensor))
        }
        _ => format!("{}  no version", EscapedText(&taken.sensor)),
    };
    // Writing to a String cannot fail.
    match taken.meant {
        Some(meant) if taken.version.is_none_or(|version| version < meant) => {
            let _ = write!(text, ", version {meant} is published for it");
        }
        _ => {}
    }
    let seen = taken.seen.map_or_else(|| "never".to_owned(), |seen| seen.to_string());
    let _ = write!(text, "  last seen {seen}");
    if let (Some(refused), Some(reason)) = (taken.refused, &taken.reason) {
        let _ = write!(text, "\n  version {refused} is refused: {}", EscapedText(reason));
    }
    text
}
