//! A batch as sensors write it, and how it gets into the inbox without one.

use bannerwall_test_support::psql;

/// A batch as sensors write it, of one service.
pub const BATCH: &str = r#"{"source":"guard","about":"by hand","once":false,"started":1}
{"address":"203.0.113.9","port":22,"side":"server","protocol":"ssh","what":{"said":{"kind":"banner","text":"SSH-2.0-hand_1"}},"first":1700000000000000000,"last":1700000000000000000,"count":5}
"#;

/// Enters a batch as a sensor does, the so manyth of its run.
pub fn enter(sensor: &str, number: u32, batch: &str) {
    let query = format!(
        "INSERT INTO bannerwall.fleet_inbox (stream, number, sent_at, waiting, lost, version, batch)
         VALUES ('s', {number}, bannerwall.fleet_now(), 0, 0, 1, $q${batch}$q$)"
    );
    psql(sensor, &query);
}
