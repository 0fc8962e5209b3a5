//! Counters of a stats event, under EVE's names if EVE has one.

use std::sync::LazyLock;

use super::worker_counts::{WorkerCounts, total};
use crate::engine::{Anomaly, EngineCounters};
use crate::event::{Protocol, Side};

/// Name of the count of packets that the kernel dropped. Not every user may read it.
const KERNEL_DROPS: &str = "capture.kernel_drops";

/// Returns the sums over all workers. A counter that one of them does not know is left out.
pub(super) fn counters(workers: impl Iterator<Item = WorkerCounts>) -> Vec<(&'static str, u64)> {
    let mut sums: Vec<(&'static str, u64)> = Vec::new();
    let mut knows_kernel = true;
    for worker in workers {
        knows_kernel &= worker.statistics.knows_kernel;
        let of_one = of(&worker);
        if sums.is_empty() {
            sums = of_one;
        } else {
            for (sum, (_, value)) in sums.iter_mut().zip(of_one) {
                sum.1 += value;
            }
        }
    }
    sums.retain(|(name, _)| knows_kernel || *name != KERNEL_DROPS);
    sums
}

fn of(worker: &WorkerCounts) -> Vec<(&'static str, u64)> {
    let WorkerCounts { statistics, engine, answers } = worker;
    let mut counters = vec![
        ("capture.kernel_packets", statistics.received),
        (KERNEL_DROPS, statistics.dropped_queue_full + statistics.dropped_socket_full),
        ("capture.errors", statistics.malformed + statistics.refused),
        ("capture.late_verdicts", statistics.late_verdicts),
        ("capture.socket_overruns", statistics.socket_drops),
        ("decoder.pkts", engine.packets),
        ("decoder.bytes", engine.octets),
        ("decoder.invalid", engine.malformed),
        ("decoder.udp", engine.datagrams),
        ("decoder.not_tcp", engine.not_tcp),
        ("decoder.fragments", engine.fragments),
        ("decoder.reassembled", engine.reassembled),
        ("tcp.sessions", engine.flows),
        ("tcp.overlap_octets", engine.overlap_octets),
        ("tcp.out_of_order", engine.out_of_order),
        ("tcp.midstream_pickups", engine.midstream),
        ("tcp.midstream_probes", engine.probes),
        ("ips.accepted", answers.accept),
        ("ips.blocked", answers.drop + engine.decisions.block),
        ("ips.rejected", engine.decisions.reject),
        ("flow.total", engine.flows + engine.udp_flows),
        ("flow.tcp", engine.flows),
        ("flow.udp", engine.udp_flows),
        ("flow.active", total(engine.flows_now) + total(engine.udp_flows_now)),
        ("flow.memcap", engine.no_room),
        ("flow.evicted", total(engine.evictions) + total(engine.udp_evictions)),
        ("flow.budget_spent", engine.budget_spent),
        ("http.bodies_released", engine.released),
        ("http.unseen_octets", engine.unseen_octets),
        ("ssh.preamble_octets", engine.preamble_octets),
        ("detect.alert", engine.matches.iter().sum()),
    ];
    counters.extend(banners(engine));
    counters.extend(anomalies(engine));
    counters
}

/// Returns the number of banners by protocol, from clients and servers together.
fn banners(engine: &EngineCounters) -> impl Iterator<Item = (&'static str, u64)> {
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| Protocol::all().map(|protocol| format!("banners.{}", protocol.name())).collect());
    let sum = |protocol| engine.banners(protocol, Side::Client) + engine.banners(protocol, Side::Server);
    NAMES.iter().map(String::as_str).zip(Protocol::all().map(sum))
}

/// Returns the anomalies that EVE counts too.
fn anomalies(engine: &EngineCounters) -> [(&'static str, u64); 3] {
    [
        ("tcp.invalid_checksum", engine.anomalies(Anomaly::BadChecksum)),
        ("tcp.overlap_diff_data", engine.anomalies(Anomaly::OverlapDifferentData)),
        ("tcp.reassembly_gap", engine.anomalies(Anomaly::Gap)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_summed_up_name_by_name() {
        let mut worker = WorkerCounts::default();
        worker.engine.octets = 10;
        worker.statistics.received = 3;
        worker.answers.drop = 1;
        worker.statistics.knows_kernel = true;
        worker.statistics.dropped_queue_full = 2;
        let blind = WorkerCounts::default();
        let names = counters([worker.clone(), blind].into_iter());
        assert!(names.iter().all(|(path, _)| *path != KERNEL_DROPS), "who does not know does not say 0");
        let sums = counters([worker.clone(), worker].into_iter());
        let value = |name: &str| sums.iter().find(|(path, _)| *path == name).map(|(_, value)| *value);
        assert_eq!(value("capture.kernel_packets"), Some(6));
        assert_eq!(value(KERNEL_DROPS), Some(4));
        assert_eq!(value("decoder.bytes"), Some(20));
        assert_eq!(value("ips.blocked"), Some(2));
        assert_eq!(value("flow.total"), Some(0));
        for protocol in Protocol::all() {
            assert_eq!(value(&format!("banners.{}", protocol.name())), Some(0));
        }
    }

    #[test]
    fn each_counter_stands_in_the_reference() {
        let counters = counters([WorkerCounts::default()].into_iter());
        let names = counters.iter().filter(|(path, _)| !path.starts_with("banners."));
        let names = names.filter_map(|(path, _)| path.split('.').next_back());
        bannerwall_test_support::reference::assert_named("reference/events.md", names);
    }
}
