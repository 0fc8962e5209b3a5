//! Scans of a fleet for a person.

use std::fmt::Write as _;

use crate::fleet::{Planned, PublishedState, ScanEnd, ScanState, SensorState, Status, TakenState};
use crate::inventory::Time;
use crate::output::Escaped;

/// The columns of a scan.
pub(super) const SCAN: &[&str] = &[
    "scan", "state", "about", "who", "made", "ended", "targets", "over", "shards", "ready", "leased", "done",
    "parked",
];

/// The columns of a schedule.
pub(super) const SCHEDULE: &[&str] =
    &["schedule", "cron", "about", "who", "due", "missed", "missed_at", "missed_why"];

/// A scan on a line.
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
        Escaped(&scan.about)
    )
}

/// How a scan has ended.
pub(super) fn end(scan: i64, end: ScanEnd) -> String {
    match end {
        ScanEnd::Done => format!("scan #{scan} is done"),
        ScanEnd::Cancelled => format!("scan #{scan} was cancelled"),
        ScanEnd::Failed(shards) => {
            format!(
                "scan #{scan}: {shards} shards have failed too often (`fleet status {scan}`, `fleet retry {scan}`)"
            )
        }
    }
}

/// The same, with what came of it, who works on it, and what failed.
pub(super) fn status(status: &Status) -> String {
    let mut text = scan(&status.scan);
    let counts = &status.counts;
    // Text takes whatever is written.
    let _ = write!(
        text,
        "\n  open {}, matched {}, refused {}, timed out {}, unreachable {}, local error {}",
        counts.open, counts.matched, counts.refused, counts.timed_out, counts.unreachable, counts.local_error
    );
    for worker in &status.workers {
        let rate = worker.rate.map_or_else(String::new, |rate| format!(", {rate} targets a second"));
        let _ = write!(
            text,
            "\n  {} has {} shards{rate}, seen {}",
            Escaped(&worker.name),
            worker.shards,
            worker.seen
        );
    }
    for error in &status.errors {
        let _ = write!(
            text,
            "\n  shard {} ({}, failed {} times): {}",
            error.shard,
            error.state,
            error.attempts,
            Escaped(&error.error)
        );
    }
    text
}

/// A sensor on a line.
pub(super) fn sensor(sensor: &SensorState) -> String {
    let time = |time: Option<Time>| time.map_or_else(|| "never".to_owned(), |time| time.to_string());
    let (alive, heard) = (time(sensor.alive), time(sensor.heard));
    let mut text = format!(
        "sensor {}  last heard {alive}, last batch {heard}  {} batches with {} sightings",
        Escaped(&sensor.sensor),
        sensor.batches,
        sensor.sightings
    );
    let counts = [
        (sensor.inbox, "in the inbox"),
        (sensor.waiting, "waiting there"),
        (sensor.refused, "set aside"),
        (sensor.lost, "sightings lost"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        // Text takes whatever is written.
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

/// Sensors that are forgotten, on a line each, with what was set aside of them.
pub(super) fn forgotten(sensors: &[String], aside: &[usize]) -> String {
    let line = |(sensor, count): (&String, &usize)| {
        let aside =
            if *count > 0 { format!(", with {count} batches that were set aside") } else { String::new() };
        format!("sensor {} is forgotten{aside}\n", Escaped(sensor))
    };
    sensors.iter().zip(aside).map(line).collect()
}

/// A schedule on a line.
pub(super) fn planned(planned: &Planned) -> String {
    let missed = match (&planned.missed_at, &planned.missed_why) {
        (Some(at), Some(why)) => format!("  missed {} times, last noticed {at}: {why}", planned.missed),
        _ => String::new(),
    };
    format!(
        "#{}  {}  due {}  {}{missed}",
        planned.schedule,
        Escaped(&planned.cron),
        planned.due,
        Escaped(&planned.about)
    )
}

/// The columns of a version of the rules.
pub(super) const RULES: &[&str] = &["version", "percent", "rules", "octets", "who", "made", "note"];

/// The columns of a sensor that takes rules.
pub(super) const TAKEN: &[&str] =
    &["sensor", "version", "since", "meant", "refused", "reason", "refused_at", "seen"];

/// A version of the rules on a line.
pub(super) fn version(version: &PublishedState) -> String {
    format!(
        "{:>5}  {:>3} %  {} rules  {}  {}  {}",
        version.version,
        version.percent,
        version.rules,
        version.made,
        Escaped(&version.who),
        Escaped(&version.note)
    )
}

/// A sensor and its rules on a line, and on one more what it refused.
pub(super) fn taken(taken: &TakenState) -> String {
    let mut text = match (taken.version, &taken.since) {
        (Some(version), Some(since)) => {
            format!("{}  version {version} since {since}", Escaped(&taken.sensor))
        }
        _ => format!("{}  no version", Escaped(&taken.sensor)),
    };
    // Text takes whatever is written.
    match taken.meant {
        Some(meant) if taken.version.is_none_or(|version| version < meant) => {
            let _ = write!(text, ", version {meant} is meant for it");
        }
        _ => {}
    }
    let seen = taken.seen.map_or_else(|| "never".to_owned(), |seen| seen.to_string());
    let _ = write!(text, "  last heard {seen}");
    if let (Some(refused), Some(reason)) = (taken.refused, &taken.reason) {
        let _ = write!(text, "\n  version {refused} is refused: {}", Escaped(reason));
    }
    text
}
