//! The queue in a file: its tables, and the work that functions of a server do.

use crate::database::{DatabaseConnection, DatabaseError, SqlParameter, values};

/// The tables of the newest version.
pub(super) const TABLES: &str = include_str!("../fleet-file.sql");

/// Records a sign of life of a worker, and takes shards from workers whose lease is over. Returns the time,
/// or none if the worker is unknown.
pub(super) fn beat(link: &DatabaseConnection, worker: i64, lease: i64) -> Result<Option<i64>, DatabaseError> {
    let seen = "UPDATE fleet_workers SET seen = fleet_now(), expires = fleet_now() + ?2 WHERE id = ?1
         RETURNING seen";
    let Some(now) = link.one(seen, values![worker, lease], |row| row.get(0))? else { return Ok(None) };
    let take_back =
        "UPDATE fleet_shards AS s SET worker = NULL, token = s.token + 1, attempts = s.attempts + 1,
           error = 'worker ' || w.name || ' was not heard of any more',
           state = CASE WHEN f.state = 'cancelled' THEN 'cancelled'
                        WHEN s.attempts + 1 >= f.attempts THEN 'parked' ELSE 'ready' END
         FROM fleet_workers w, fleet_scans f
         WHERE s.state = 'leased' AND w.id = s.worker AND w.expires <= ?1 AND f.id = s.scan";
    if link.execute(take_back, values![now])? > 0 {
        // The last shard of a scan may have been parked.
        let close = "UPDATE fleet_scans SET state = 'done', ended = ?1 WHERE state = 'open' AND NOT EXISTS
             (SELECT 1 FROM fleet_shards s WHERE s.scan = fleet_scans.id AND s.state IN ('ready', 'leased'))";
        link.execute(close, values![now])?;
    }
    Ok(Some(now))
}

/// Grants a share of a limit: scan, number, worker, rate in use, lease. Returns the granted and the fair
/// rate.
pub(super) fn share(
    link: &DatabaseConnection,
    values: &[SqlParameter<'_>; 5],
) -> Result<(i64, i64), DatabaseError> {
    let [scan, number, worker, used, lease] = values;
    let others = "SELECT l.rate, coalesce(sum(s.rate), 0), count(s.worker) FROM fleet_limits l
         LEFT JOIN fleet_shares s ON s.scan = l.scan AND s.number = l.number AND s.worker <> ?3
           AND s.expires > fleet_now()
         WHERE l.scan = ?1 AND l.number = ?2 GROUP BY l.rate";
    let (total, others, count) = link.sole(others, values![scan, number, worker], |row| {
        Ok((row.get::<i64>(0)?, row.get::<i64>(1)?, row.get::<i64>(2)?))
    })?;
    let fair = total / (count + 1);
    let SqlParameter::Integer(used) = *used else { return Err(DatabaseError::Column(0)) };
    let granted = (total - others).min(used.max(fair)).max(0);
    let upsert = "INSERT INTO fleet_shares (scan, number, worker, rate, expires)
         VALUES (?1, ?2, ?3, ?4, fleet_now() + ?5)
         ON CONFLICT (scan, number, worker) DO UPDATE SET rate = excluded.rate, expires = excluded.expires";
    link.execute(upsert, values![scan, number, worker, granted, lease])?;
    Ok((granted, fair))
}

/// Moves a schedule that is due, and starts its scan: schedule, next time, 1 if it starts, number of missed
/// times, reason. Returns the scan's number, 0 if none starts, or none if the schedule is no longer due.
pub(super) fn begin(
    link: &DatabaseConnection,
    values: &[SqlParameter<'_>; 5],
) -> Result<Option<i64>, DatabaseError> {
    let [schedule, next, begins, missed, why] = values;
    let moved = "UPDATE fleet_schedules SET due = min(max(?2, due + gap), fleet_now() + longest), missed = missed + ?3,
           missed_at = CASE WHEN ?3 > 0 THEN fleet_now() ELSE missed_at END,
           missed_why = coalesce(?4, missed_why)
         WHERE id = ?1 AND due <= fleet_now()";
    if link.execute(moved, values![schedule, next, missed, why])? == 0 {
        return Ok(None);
    }
    let enter = "INSERT INTO fleet_scans (schedule, about, what, targets, shards, attempts, who, pool)
         SELECT id, about, what, targets, shards, attempts, who, pool FROM fleet_schedules
         WHERE id = ?1 AND ?2 = 1
           AND NOT EXISTS (SELECT 1 FROM fleet_scans WHERE schedule = ?1 AND state = 'open') RETURNING id";
    let scan = link.one(enter, values![schedule, begins], |row| row.get(0))?;
    Ok(Some(scan.unwrap_or_default()))
}
