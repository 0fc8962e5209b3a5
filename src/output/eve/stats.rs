//! EVE's `stats`: dotted counters as nested objects, and the list of counters that EVE has.

use serde_json::{Map, Value};

use crate::event::StatsFacts;

/// Counters of bannerwall that are in `stats` of Suricata's schema.
const KNOWN: [&str; 21] = [
    "capture.errors",
    "capture.kernel_drops",
    "capture.kernel_packets",
    "decoder.bytes",
    "decoder.invalid",
    "decoder.pkts",
    "decoder.udp",
    "detect.alert",
    "flow.active",
    "flow.memcap",
    "flow.tcp",
    "flow.total",
    "flow.udp",
    "ips.accepted",
    "ips.blocked",
    "ips.rejected",
    "tcp.invalid_checksum",
    "tcp.midstream_pickups",
    "tcp.overlap_diff_data",
    "tcp.reassembly_gap",
    "tcp.sessions",
];

/// Returns the `stats` of EVE, and the counters that EVE lacks.
pub(super) fn nested(facts: &StatsFacts) -> (Map<String, Value>, Map<String, Value>) {
    let (mut known, mut own) = (Map::new(), Map::new());
    known.insert("uptime".to_owned(), facts.uptime.as_secs().into());
    for (path, value) in &facts.counters {
        let tree = if KNOWN.binary_search(path).is_ok() { &mut known } else { &mut own };
        insert(tree, path, *value);
    }
    (known, own)
}

/// Sets `value` at a dotted path and creates the objects on it. An object replaces a number on the path.
fn insert(tree: &mut Map<String, Value>, path: &str, value: u64) {
    let Some((first, rest)) = path.split_once('.') else {
        tree.insert(path.to_owned(), value.into());
        return;
    };
    let branch = tree.entry(first).or_insert_with(|| Value::Object(Map::new()));
    if !branch.is_object() {
        *branch = Value::Object(Map::new());
    }
    if let Value::Object(branch) = branch {
        insert(branch, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_table_is_sorted_for_the_search() {
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn counters_nest_and_strangers_stand_apart() {
        let facts = StatsFacts {
            uptime: Duration::from_millis(12_900),
            counters: vec![("capture.kernel_packets", 7), ("ips.blocked", 2), ("writer.lost", 1)],
        };
        let (known, own) = nested(&facts);
        let expected = serde_json::json!({
            "uptime": 12, "capture": {"kernel_packets": 7}, "ips": {"blocked": 2}
        });
        assert_eq!(Value::Object(known), expected);
        assert_eq!(Value::Object(own), serde_json::json!({"writer": {"lost": 1}}));
    }
}
