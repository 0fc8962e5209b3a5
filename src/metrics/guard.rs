//! The guard's families.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Latency, MetricsError, Registry};
use crate::event::{Action, Protocol, Side};

/// How a queued packet was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Let through.
    Accept,
    /// Dropped.
    Drop,
    /// Sent through the hook once more, with a mark or for more of its octets.
    Repeat,
}

/// Why the kernel dropped packets before anybody saw them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueDrop {
    /// The queue was full.
    QueueFull,
    /// The socket's buffer was full.
    SocketOverrun,
}

/// How a reload of the rules ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadResult {
    /// The new rules are in force.
    Success,
    /// The new rules are bad; the old ones stay in force.
    Failure,
}

/// What became of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetResult {
    /// Handed to the network.
    Sent,
    /// The kernel refused it.
    Failed,
}

/// The guard's families; clones share them.
#[derive(Debug, Clone)]
pub struct GuardMetrics {
    packets: IntCounterVec,
    flows: IntGaugeVec,
    banners: IntCounterVec,
    rule_matches: IntCounterVec,
    anomalies: IntCounterVec,
    queue_depth: IntGaugeVec,
    queue_dropped: IntCounterVec,
    reloads: IntCounterVec,
    resets: IntCounterVec,
    /// Octets of packets that were inspected.
    pub bytes: IntCounter,
    /// Packets that reached the hook's queue rule and went by without inspection.
    pub uninspected_packets: IntCounter,
    /// Time from arrival to verdict.
    pub verdict_latency: Latency,
    /// Verdicts for packets that the kernel no longer held.
    pub late_verdicts: IntCounter,
    /// Packets that did not fit into a queue's socket; under `--on-failure open` they passed.
    pub socket_overruns: IntCounter,
    /// Messages from the kernel that could not be read.
    pub receive_errors: IntCounter,
    /// Flows forgotten before their time because the table was full.
    pub flow_evictions: IntCounter,
    /// Packets that found no room in the flow table or its buffers.
    pub no_room_packets: IntCounter,
    /// Flows that ran out of their octet or time budget undecided.
    pub budget_spent_flows: IntCounter,
    /// Matches that a rule's threshold kept silent.
    pub suppressed_matches: IntCounter,
    /// Octets held in buffers of undecided flows.
    pub buffered_bytes: IntGauge,
    /// Events lost because their writer could not keep up.
    pub events_dropped: IntCounter,
    /// Rules in force.
    pub rules: IntGauge,
}

impl GuardMetrics {
    /// Registers the families, with every label value that is known beforehand at zero.
    ///
    /// # Errors
    /// Where the registry has them already.
    pub fn new(registry: &Registry) -> Result<Self, MetricsError> {
        let metrics = Self {
            packets: registry.counters(
                "packets_total",
                "Queued packets by queue and verdict",
                &["queue", "verdict"],
            )?,
            flows: registry.gauges("flows", "Flows remembered now, by state", &["state"])?,
            banners: registry.counters(
                "banners_total",
                "Banners read, by protocol and sender",
                &["protocol", "from"],
            )?,
            rule_matches: registry.counters(
                "rule_matches_total",
                "Banners that a rule matched, by rule and its action",
                &["rule", "action"],
            )?,
            anomalies: registry.counters(
                "anomalies_total",
                "Things seen that an inspector could be misled with, by name",
                &["anomaly"],
            )?,
            queue_depth: registry.gauges(
                "queue_depth",
                "Packets that wait in the kernel for a verdict",
                &["queue"],
            )?,
            queue_dropped: registry.counters(
                "queue_dropped_total",
                "Packets that the kernel dropped before anybody saw them, by reason",
                &["reason"],
            )?,
            reloads: registry.counters("reloads_total", "Reloads of the rules, by result", &["result"])?,
            resets: registry.counters(
                "resets_total",
                "Resets for rejected connections, by result",
                &["result"],
            )?,
            bytes: registry.counter("bytes_total", "Octets of queued packets on the wire")?,
            uninspected_packets: registry.counter(
                "uninspected_packets_total",
                "Packets that reached the hook's queue rule and went by without inspection",
            )?,
            verdict_latency: Latency::new(registry)?,
            late_verdicts: registry
                .counter("late_verdicts_total", "Verdicts for packets that the kernel no longer held")?,
            socket_overruns: registry
                .counter("socket_overruns_total", "Packets that did not fit into a queue's socket")?,
            receive_errors: registry.counter(
                "receive_errors_total",
                "Messages from the kernel that were errors or could not be read",
            )?,
            flow_evictions: registry.counter(
                "flow_evictions_total",
                "Flows forgotten before their time because the table was full",
            )?,
            no_room_packets: registry.counter(
                "no_room_packets_total",
                "Packets that found no room in the flow table or its buffers",
            )?,
            budget_spent_flows: registry.counter(
                "budget_spent_flows_total",
                "Flows that ran out of their octet or time budget undecided",
            )?,
            suppressed_matches: registry
                .counter("suppressed_matches_total", "Matches that a rule's threshold kept silent")?,
            buffered_bytes: registry.gauge("buffered_bytes", "Octets held in buffers of undecided flows")?,
            events_dropped: registry
                .counter("events_dropped_total", "Events lost because their writer could not keep up")?,
            rules: registry.gauge("rules", "Rules in force")?,
        };
        metrics.start_at_zero();
        Ok(metrics)
    }

    /// Makes every series with labels known beforehand, so that a first increase is seen as one.
    fn start_at_zero(&self) {
        for protocol in Protocol::all() {
            for from in [Side::Client, Side::Server] {
                self.banners(protocol, from);
            }
        }
        for reason in [QueueDrop::QueueFull, QueueDrop::SocketOverrun] {
            self.queue_dropped(reason);
        }
        for result in [ReloadResult::Success, ReloadResult::Failure] {
            self.reloads(result);
        }
        for result in [ResetResult::Sent, ResetResult::Failed] {
            self.resets(result);
        }
    }

    /// Packets of `queue` answered with `verdict`.
    pub fn packets(&self, queue: u16, verdict: Verdict) -> IntCounter {
        let verdict = match verdict {
            Verdict::Accept => "accept",
            Verdict::Drop => "drop",
            Verdict::Repeat => "repeat",
        };
        self.packets.with_label_values(&[&*queue.to_string(), verdict])
    }

    /// Flows remembered in `state`.
    pub fn flows(&self, state: &str) -> IntGauge {
        self.flows.with_label_values(&[state])
    }

    /// Banners of `protocol` read that `from` sent.
    pub fn banners(&self, protocol: Protocol, from: Side) -> IntCounter {
        self.banners.with_label_values(&[protocol.name(), from.name()])
    }

    /// Banners that the rule with this id matched.
    pub fn rule_matches(&self, rule: &str, action: Action) -> IntCounter {
        self.rule_matches.with_label_values(&[rule, action.name()])
    }

    /// Anomalies of this name.
    pub fn anomalies(&self, name: &str) -> IntCounter {
        self.anomalies.with_label_values(&[name])
    }

    /// Packets that wait in `queue`.
    pub fn queue_depth(&self, queue: u16) -> IntGauge {
        self.queue_depth.with_label_values(&[&*queue.to_string()])
    }

    /// Packets that the kernel dropped for this reason.
    pub fn queue_dropped(&self, reason: QueueDrop) -> IntCounter {
        self.queue_dropped.with_label_values(&[match reason {
            QueueDrop::QueueFull => "queue_full",
            QueueDrop::SocketOverrun => "socket_overrun",
        }])
    }

    /// Reloads that ended so.
    pub fn reloads(&self, result: ReloadResult) -> IntCounter {
        self.reloads.with_label_values(&[match result {
            ReloadResult::Success => "success",
            ReloadResult::Failure => "failure",
        }])
    }

    /// Resets that ended so.
    pub fn resets(&self, result: ResetResult) -> IntCounter {
        self.resets.with_label_values(&[match result {
            ResetResult::Sent => "sent",
            ResetResult::Failed => "failed",
        }])
    }
}
