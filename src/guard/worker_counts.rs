//! Counts of a worker, and their publication in the metrics: as differences, on the worker's ticks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::{IntCounter, IntGauge};

use super::source::{BatchCounts, PacketVerdict, QueueStatistics};
use crate::engine::{EngineCounters, FlowCounts};
use crate::event::{Protocol, RuleAction, Side, Timestamp};
use crate::inspector::TakeoverCounts;
use crate::metrics::{GuardMetrics, QueueDrop, VerdictLabel as Label};
use crate::rules::RuleSet;
use crate::terms::Anomaly;

/// Counts that other threads may read at any time.
#[derive(Debug, Default)]
pub(super) struct SharedWorkerCounts {
    received: AtomicU64,
    latest: Mutex<WorkerCounts>,
}

/// The counts of a worker at its last tick.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerCounts {
    pub(super) statistics: QueueStatistics,
    pub(super) engine: EngineCounters,
    pub(super) answers: VerdictCounts,
}

impl SharedWorkerCounts {
    /// Counts a packet before it is answered. While it waits for its verdict the kernel counts it too, so
    /// that the sum of both cannot miss it.
    pub(super) fn receive(&self) {
        // Only one thread writes, so no read-modify-write is needed.
        self.received.store(self.received.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns the number of packets received, including those without a verdict yet.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// Continues from the number of packets that another process received.
    pub(super) fn go_on_from(&self, received: u64) {
        self.received.store(received, Ordering::Release);
    }

    pub(super) fn latest(&self) -> WorkerCounts {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, latest: WorkerCounts) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = latest;
    }
}

/// Numbers of packets by verdict.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct VerdictCounts {
    pub(super) accept: u64,
    pub(super) drop: u64,
    pub(super) repeat: u64,
}

impl VerdictCounts {
    pub(super) fn count(&mut self, verdict: PacketVerdict) {
        match verdict {
            PacketVerdict::Accept => self.accept += 1,
            PacketVerdict::Drop => self.drop += 1,
            PacketVerdict::Repeat => self.repeat += 1,
        }
    }
}

/// Adds the counts of one worker to the metrics that all workers share.
pub(super) struct MetricsPublisher {
    metrics: GuardMetrics,
    packets: [IntCounter; 3],
    queue: u16,
    /// Counters by rule index, for the rule set in force.
    matches: Vec<IntCounter>,
    /// In the order of [`Anomaly::ALL`].
    anomalies: Vec<IntCounter>,
    flows: [IntGauge; 6],
    evictions: [IntCounter; 6],
    blocked: [IntCounter; 2],
    suppressed: [IntCounter; 2],
    last_turn: IntGauge,
    before: WorkerCounts,
    /// Number of packets of all queues that passed uninspected, at the last read.
    missed: Option<u64>,
}

impl MetricsPublisher {
    pub(super) fn new(metrics: GuardMetrics, queue: u16, rules: &RuleSet) -> Self {
        let packets = [Label::Accept, Label::Drop, Label::Repeat].map(|label| metrics.packets(queue, label));
        let flows = STATES.map(|state| metrics.flows(state));
        let evictions = STATES.map(|state| metrics.flow_evictions(state));
        let blocked = [RuleAction::Drop, RuleAction::Reject].map(|action| metrics.flows_blocked(action));
        let suppressed = ["alert", "anomaly"].map(|kind| metrics.events_suppressed(kind));
        let anomalies = Anomaly::ALL.iter().map(|anomaly| metrics.anomalies(anomaly.name())).collect();
        let last_turn = metrics.last_turn(queue);
        let mut publisher = Self {
            metrics,
            packets,
            queue,
            matches: Vec::new(),
            anomalies,
            flows,
            evictions,
            blocked,
            suppressed,
            last_turn,
            before: WorkerCounts::default(),
            missed: None,
        };
        publisher.set_rules(rules, &EngineCounters::default());
        publisher
    }

    /// Counts matches of another rule set from now on. `engine` holds the counts of an engine that has this
    /// set already. All of them were published before, so the counts that it kept for unchanged rules are not
    /// new.
    pub(super) fn set_rules(&mut self, rules: &RuleSet, engine: &EngineCounters) {
        let handle = |rule: &crate::rules::Rule| self.metrics.rule_matches(rule.id(), rule.action());
        self.matches = rules.rules().iter().map(handle).collect();
        for policy in rules.policies() {
            // The counter is shown before the policy has refused a connection.
            self.metrics.policy_refusals(policy.id());
        }
        // Indexes of rules differ between sets, so differences must start from the new order.
        self.before.engine.matches.clone_from(&engine.matches);
    }

    /// True if packets passed uninspected since the last call, according to the hook's counters.
    pub(super) fn has_missed(&mut self) -> bool {
        let missed = self.metrics.uninspected_packets.get();
        let before = std::mem::replace(&mut self.missed, missed);
        missed > before.or(Some(0))
    }

    /// Continues the metrics of another process. It has published the kernel's counts up to `statistics`, and
    /// the counts of the flows in `engine`, except the `news`.
    pub(super) fn go_on_from(
        &mut self,
        statistics: QueueStatistics,
        engine: &EngineCounters,
        news: &TakeoverCounts,
    ) {
        self.before.statistics = statistics;
        let mut before = engine.clone();
        before.flows_dropped = before.flows_dropped.saturating_sub(news.dropped);
        before.flows_rejected = before.flows_rejected.saturating_sub(news.rejected);
        for (rule, new) in &news.matches {
            before.matches.get_mut(*rule).into_iter().for_each(|count| *count = count.saturating_sub(*new));
        }
        for (policy, new) in &news.refusals {
            let count = before.refusals.get_mut(policy).into_iter();
            count.for_each(|count| *count = count.saturating_sub(*new));
        }
        // Current values belong to this process.
        (before.flows_now, before.udp_flows_now) = (FlowCounts::default(), FlowCounts::default());
        (before.buffered_now, before.udp_buffered_now) = (0, 0);
        self.before.engine = before;
    }

    /// Counts packets that an earlier guard had read but not answered.
    pub(super) fn count_abandoned(&self, packets: u64) {
        self.metrics.abandoned_packets.inc_by(packets);
    }

    /// Adds the packets of a batch, and the time that they waited for their verdicts, if known.
    pub(super) fn batch(&mut self, received: BatchCounts, waited: Option<Duration>) {
        if let Some(waited) = waited {
            self.metrics.verdict_latency.observe(waited, received.packets as u64);
        }
        self.metrics.bytes.inc_by(received.octets);
    }

    /// Publishes everything counted since the last call.
    pub(super) fn publish(
        &mut self,
        tally: &SharedWorkerCounts,
        engine: &EngineCounters,
        answers: VerdictCounts,
        now: Timestamp,
    ) {
        // Set on every tick, even if no packet came: an idle loop is alive.
        self.last_turn.set(signed(now.as_nanos() / 1_000_000_000));
        self.publish_answers(answers);
        self.publish_engine(engine);
        self.before.engine.clone_from(engine);
        tally.store(self.before.clone());
    }

    /// Publishes the counts of the kernel and of the queue's socket.
    pub(super) fn publish_statistics(&mut self, now: QueueStatistics) {
        let before = self.before.statistics;
        let metrics = &self.metrics;
        // Series of unknown values are absent rather than 0.
        if now.knows_kernel {
            metrics.queue_depth(self.queue).set(signed(now.waiting));
            for (reason, new, old) in [
                (QueueDrop::QueueFull, now.dropped_queue_full, before.dropped_queue_full),
                (QueueDrop::SocketOverrun, now.dropped_socket_full, before.dropped_socket_full),
            ] {
                metrics.queue_dropped(reason).inc_by(new.saturating_sub(old));
            }
        }
        for (counter, new, old) in [
            (&metrics.socket_overruns, now.socket_drops, before.socket_drops),
            (&metrics.late_verdicts, now.late_verdicts, before.late_verdicts),
            (&metrics.receive_errors, now.malformed + now.refused, before.malformed + before.refused),
        ] {
            counter.inc_by(new.saturating_sub(old));
        }
        self.before.statistics = now;
    }

    fn publish_answers(&mut self, now: VerdictCounts) {
        let before = self.before.answers;
        let differences = [now.accept - before.accept, now.drop - before.drop, now.repeat - before.repeat];
        for (counter, difference) in self.packets.iter().zip(differences) {
            counter.inc_by(difference);
        }
        self.before.answers = now;
    }

    fn publish_engine(&mut self, now: &EngineCounters) {
        let before = &self.before.engine;
        let metrics = &self.metrics;
        for (counter, new, old) in [
            (&self.suppressed[0], now.alerts_suppressed, before.alerts_suppressed),
            (&self.suppressed[1], now.events_suppressed, before.events_suppressed),
            (&self.blocked[0], now.flows_dropped, before.flows_dropped),
            (&self.blocked[1], now.flows_rejected, before.flows_rejected),
            (&metrics.no_room_packets, now.no_room, before.no_room),
            (&metrics.budget_spent_flows, now.budget_spent, before.budget_spent),
            (&metrics.unseen_bytes, now.unseen_octets, before.unseen_octets),
            (&metrics.suppressed_matches, now.suppressed, before.suppressed),
            (&metrics.udp_packets, now.datagrams, before.datagrams),
            (&metrics.udp_flows_begun, now.udp_flows, before.udp_flows),
            (&metrics.udp_flow_evictions, total(now.udp_evictions), total(before.udp_evictions)),
        ] {
            counter.inc_by(new.saturating_sub(old));
        }
        for (policy, new) in &now.refusals {
            let old = before.refusals.get(policy).copied().unwrap_or_default();
            metrics.policy_refusals(policy).inc_by(new.saturating_sub(old));
        }
        for protocol in Protocol::all() {
            for from in [Side::Client, Side::Server] {
                let difference = now.banners(protocol, from) - before.banners(protocol, from);
                if difference > 0 {
                    metrics.banners(protocol, from).inc_by(difference);
                }
            }
        }
        for (index, (counter, new)) in self.matches.iter().zip(&now.matches).enumerate() {
            let old = before.matches.get(index).copied().unwrap_or_default();
            counter.inc_by(new.saturating_sub(old));
        }
        for (anomaly, counter) in Anomaly::ALL.iter().zip(&self.anomalies) {
            counter.inc_by(now.anomalies(*anomaly).saturating_sub(before.anomalies(*anomaly)));
        }
        for ((counter, new), old) in
            self.evictions.iter().zip(by_state(now.evictions)).zip(by_state(before.evictions))
        {
            counter.inc_by(new.saturating_sub(old));
        }
        // Gauges are sums over all workers, so each worker adds its own difference.
        for ((gauge, new), old) in
            self.flows.iter().zip(by_state(now.flows_now)).zip(by_state(before.flows_now))
        {
            gauge.add(signed(new) - signed(old));
        }
        for (gauge, new, old) in [
            (&metrics.buffered_bytes, now.buffered_now as u64, before.buffered_now as u64),
            (&metrics.udp_buffered_bytes, now.udp_buffered_now as u64, before.udp_buffered_now as u64),
            (&metrics.udp_flows, total(now.udp_flows_now), total(before.udp_flows_now)),
        ] {
            gauge.add(signed(new) - signed(old));
        }
    }
}

/// States of flows, as the metrics name them.
const STATES: [&str; 6] = ["opening", "unconfirmed", "undecided", "passed", "blocked", "closed"];

/// Returns the numbers of flows in the order of [`STATES`].
fn by_state(flows: FlowCounts) -> [u64; 6] {
    [flows.opening, flows.unconfirmed, flows.undecided, flows.passed, flows.blocked, flows.closed]
}

/// Returns the number of flows in all states.
pub(super) fn total(flows: FlowCounts) -> u64 {
    by_state(flows).iter().sum()
}

/// Converts a value for a gauge.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
