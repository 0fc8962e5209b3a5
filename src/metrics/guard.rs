//! The guard's metric families.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{LatencyHistogram, MetricsError, MetricsRegistry, OptionalCounter};
use crate::event::{Protocol, RuleAction, Side};

/// The verdict for a queued packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictLabel {
    /// The packet passes.
    Accept,
    /// Dropped.
    Drop,
    /// The packet passes the hook again, with a mark or to copy more of its bytes.
    Repeat,
}

/// The reason why packets were dropped without inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueDrop {
    /// The queue was full.
    QueueFull,
    /// The socket's buffer was full.
    SocketOverrun,
    /// No process listened on the queue, between two runs under `--on-failure closed`.
    NoListener,
    /// The packets had waited for longer than `--max-wait`, under `--on-failure closed`.
    Overdue,
}

/// Result of a reload of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadResult {
    /// The new rules are in force.
    Success,
    /// The new rules are invalid; the old ones stay in force.
    Failure,
}

/// Result of a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverResult {
    /// This process has taken over from another one.
    Success,
    /// A successor was refused, or stopped before its turn.
    Failure,
}

/// Result of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetResult {
    /// Handed to the network.
    Sent,
    /// The kernel refused it.
    Failed,
    /// Not sent, because of the rate limit.
    Limited,
}

macro_rules! families {
    (@type counter) => { IntCounter };
    (@type gauge) => { IntGauge };
    ($($(#[doc = $doc:literal])+ $visibility:vis $field:ident: $kind:ident $name:literal $help:literal,)+) => {
        /// The guard's families; clones share them.
        #[derive(Debug, Clone)]
        pub struct GuardMetrics {
            labelled: LabelledFamilies,
            /// Number of packets that passed without inspection, at the hook's queue rule or by a rule
            /// before its jump; absent while it is unknown.
            pub uninspected_packets: OptionalCounter,
            /// Time from arrival in this process to the verdict.
            pub verdict_latency: LatencyHistogram,
            /// Time from the kernel's receipt to arrival in this process, if the kernel stamps packets.
            pub queue_wait: LatencyHistogram,
            $($(#[doc = $doc])+ $visibility $field: families!(@type $kind),)+
        }

        impl GuardMetrics {
            /// Registers the families, with every label value that is known in advance at zero.
            ///
            /// # Errors
            /// Returns an error if the registry has them already.
            pub fn new(registry: &MetricsRegistry) -> Result<Self, MetricsError> {
                let uninspected =
                    "Packets that passed without inspection, at the hook's queue rule or by a rule before its jump";
                let metrics = Self {
                    labelled: LabelledFamilies::new(registry)?,
                    uninspected_packets: OptionalCounter::new(registry, "uninspected_packets_total", uninspected)?,
                    verdict_latency: LatencyHistogram::verdict(registry)?,
                    queue_wait: LatencyHistogram::queue_wait(registry)?,
                    $($field: registry.$kind($name, $help)?,)+
                };
                metrics.start_at_zero();
                Ok(metrics)
            }
        }
    };
}

// Families without labels: field, kind, name and help text.
families! {
    /// Bytes of packets that were inspected.
    pub bytes: counter "bytes_total" "Bytes of queued packets, as on the wire",
    /// Verdicts for packets that the kernel no longer held.
    pub late_verdicts: counter "late_verdicts_total" "Verdicts for packets that the kernel no longer held",
    /// Packets that did not fit into a queue's socket; under `--on-failure open` they passed.
    pub socket_overruns: counter "socket_overruns_total" "Packets that did not fit into a queue's socket",
    /// Packets that a guard had read and not answered when it was killed; they got the verdict of
    /// `--on-failure`.
    pub abandoned_packets: counter "abandoned_packets_total" "Packets that a killed guard had read and not answered",
    /// Messages from the kernel that could not be read.
    pub receive_errors: counter "receive_errors_total" "Messages from the kernel that were errors or unreadable",
    /// Packets that did not fit into the flow table or its buffers.
    pub no_room_packets: counter "no_room_packets_total" "Packets without room in the flow table or its buffers",
    /// Flows that ran out of their byte or time budget undecided.
    pub budget_spent_flows: counter "budget_spent_flows_total" "Flows that used up their budget of bytes or time undecided",
    /// Bytes of released bodies and responses, which the kernel passed.
    pub unseen_bytes: counter "unseen_body_bytes_total" "Bytes of responses that passed in the kernel while the guard read every request",
    /// Matches below a rule's threshold.
    pub suppressed_matches: counter "suppressed_matches_total" "Matches below the count of their rule",
    /// Bytes held in buffers of undecided flows.
    pub buffered_bytes: gauge "buffered_bytes" "Bytes in buffers of undecided flows",
    /// Datagrams of UDP flows.
    pub udp_packets: counter "udp_packets_total" "Datagrams of UDP flows (--hook-udp)",
    /// New UDP flows.
    pub udp_flows_begun: counter "udp_flows_total" "UDP flows started: pairs of ports with a QUIC connection",
    /// UDP flows in the table.
    pub udp_flows: gauge "udp_flows" "UDP flows tracked now",
    /// UDP flows evicted because the table was full.
    pub udp_flow_evictions: counter "udp_flow_evictions_total" "UDP flows evicted from a full table",
    /// Bytes that UDP flows hold in buffers.
    pub udp_buffered_bytes: gauge "udp_buffered_bytes" "Bytes in buffers of UDP flows",
    /// Events lost because their writer could not keep up.
    pub events_dropped: counter "events_dropped_total" "Events lost because the writer could not keep up or the reader was gone",
    /// Events that their destinations took.
    pub events_written: counter "events_written_total" "Events written",
    /// Events and sightings that the inventory could not keep.
    pub inventory_lost: counter "inventory_lost_total" "Events and sightings that the inventory lost",
    /// Times that the inventory's file was deleted or replaced under the guard.
    pub inventory_replaced: counter "inventory_replaced_total" "Times that the inventory's file was deleted or replaced under the guard",
    /// Rows that were removed to keep the inventory below its size limit.
    pub inventory_displaced: counter "inventory_displaced_total" "Services, clients and changes deleted to keep the inventory below --inventory-max-size",
    /// Batches that wait in the folder of --spill.
    pub spill_batches: gauge "spill_batches" "Batches that wait for the server in the folder of --spill",
    /// Bytes of the waiting batches.
    pub spill_bytes: gauge "spill_bytes" "Bytes on disk of the batches that wait in the folder of --spill",
    /// Sightings that were dropped from the folder of --spill.
    pub spill_dropped: counter "spill_dropped_total" "Sightings dropped from the folder of --spill because it was full or they were too old",
    /// Batches that were set aside in the folder of --spill.
    pub spill_set_aside: counter "spill_set_aside_total" "Batches in the folder of --spill that were damaged, or that the server refused",
    /// Rules in force.
    pub rules: gauge "rules" "Rules in force",
    /// The published version of the rules that is in force.
    pub rules_version: gauge "rules_version" "Published version of the rules in force (--rules-from); else 0",
    /// Published versions that were refused.
    pub rules_refused: counter "rules_refused_total" "Published versions of the rules that the guard refused",
    /// Requests for newer versions.
    pub rules_polls: counter "rules_polls_total" "Successful polls for newer rules",
    /// Time of the last answer to such a request.
    rules_last_poll: gauge "rules_last_poll_timestamp_seconds" "Time of the last successful poll for newer rules, Unix time in seconds; 0 before the first",
    /// Interval of these requests.
    pub rules_poll_interval: gauge "rules_poll_interval_seconds" "Interval between polls for newer rules (--rules-poll); 0 without --rules-from",
    /// Failed requests for newer versions.
    pub rules_poll_failures: counter "rules_poll_failures_total" "Failed polls for newer rules, for the database's fault or the guard's",
    /// 1 if blocking rules block, 0 if they only report.
    pub enforcing: gauge "enforcing" "1 if blocking rules block, 0 if they only alert",
    /// Flows that were offloaded to the bypass.
    bypass_flows: counter "bypass_flows_total" "Decided flows that the bypass took over",
    /// Segments that the bypass forwarded.
    bypass_packets: counter "bypass_packets_total" "Segments that the bypass forwarded below netfilter",
    /// Bytes of segments that the bypass forwarded.
    bypass_bytes: counter "bypass_bytes_total" "Bytes that the bypass forwarded below netfilter, from the IP header on",
    /// 1 if a bypass forwards decided flows.
    pub bypass_up: gauge "bypass_up" "1 if the bypass forwards decided flows below netfilter, 0 without --bypass or after it had to stop",
    /// Repairs of the hook after another program had removed it.
    pub hook_repairs: counter "hook_repairs_total" "Times that the guard restored its hook after another program had changed or removed it",
    /// Clients that are banned now.
    pub bans_now: gauge "bans" "Clients that are banned now",
    /// Packets of banned clients that the kernel dropped.
    pub banned_packets: counter "banned_packets_total" "Packets of banned clients that the kernel dropped",
    /// Earlier runs that did not stop normally.
    pub failed_runs: counter "failed_runs_total" "Earlier runs of this guard that were killed, hung or failed, since the machine's start",
    /// 1 if the rules that were read last are in force.
    last_reload_successful: gauge "last_reload_successful" "1 if the last load of the rules (at the start, or a reload) succeeded, else 0",
    /// Time at which rules were last put in force.
    last_reload_success: gauge "last_reload_success_timestamp_seconds" "Time of the last successful load of the rules, Unix time in seconds",
    /// Time at which this process took over from another one.
    last_takeover: gauge "last_takeover_timestamp_seconds" "Time at which this process took over from another guard, Unix time in seconds; 0 if it did not",
}

macro_rules! labelled {
    (@type counter) => { IntCounterVec };
    (@type gauge) => { IntGaugeVec };
    (@register counter) => { MetricsRegistry::counters };
    (@register gauge) => { MetricsRegistry::gauges };
    ($($field:ident: $kind:ident $name:literal by [$($label:literal),+] $help:literal,)+) => {
        /// Families with labels.
        #[derive(Debug, Clone)]
        struct LabelledFamilies {
            $($field: labelled!(@type $kind),)+
        }

        impl LabelledFamilies {
            fn new(registry: &MetricsRegistry) -> Result<Self, MetricsError> {
                Ok(Self { $($field: labelled!(@register $kind)(registry, $name, $help, &[$($label),+])?,)+ })
            }
        }
    };
}

// Families with labels: field, kind, name, labels, and help.
labelled! {
    packets: counter "packets_total" by ["queue", "verdict"] "Queued packets by queue and verdict",
    flows: gauge "flows" by ["state"] "Flows tracked now, by state",
    flows_blocked: counter "flows_blocked_total" by ["action"] "Blocked flows, by action; always 0 in monitor mode",
    flow_evictions: counter "flow_evictions_total" by ["state"] "Flows evicted from a full table, by their state",
    banners: counter "banners_total" by ["protocol", "from"] "Banners by protocol and sender",
    rule_matches: counter "rule_matches_total" by ["rule", "action"] "Matches by rule and its action, enforced or not",
    policy_refusals: counter "policy_refusals_total" by ["policy"] "Flows that a policy does not allow, by policy, enforced or not",
    anomalies: counter "anomalies_total" by ["anomaly"] "Anomalies by name",
    events_suppressed: counter "events_suppressed_total" by ["kind"] "Events left out because there were too many of their kind",
    queue_depth: gauge "queue_depth" by ["queue"] "Packets that wait in the kernel for a verdict, by queue",
    queue_dropped: counter "queue_dropped_total" by ["reason"] "Packets dropped before inspection, by reason",
    last_turn: gauge "worker_last_turn_timestamp_seconds" by ["queue"] "Time at which the worker of a queue last went around its loop, Unix time in seconds",
    reloads: counter "reloads_total" by ["result"] "Reloads of the rules, by result",
    takeovers: counter "takeovers_total" by ["result"] "Takeovers from another guard, by result",
    resets: counter "resets_total" by ["result"] "Resets for rejected connections, by result",
    bans: counter "bans_total" by ["result"] "Bans by rules or administrators, by result",
    unbans: counter "unbans_total" by ["reason"] "Bans that ended, by reason",
    queue_bound: gauge "queue_bound" by ["queue"] "1 if this guard has bound the queue, else 0",
    hook_up: gauge "hook_up" by ["family"] "1 if a hook of this address family leads packets to this guard's queues, else 0",
}

impl GuardMetrics {
    /// Creates every series whose labels are known in advance, so that a first increase is visible.
    fn start_at_zero(&self) {
        for protocol in Protocol::all() {
            for from in [Side::Client, Side::Server] {
                self.banners(protocol, from);
            }
        }
        // The kernel's drops are shown once its counters can be read.
        for reason in [QueueDrop::NoListener, QueueDrop::Overdue] {
            self.queue_dropped(reason);
        }
        for result in [ReloadResult::Success, ReloadResult::Failure] {
            self.reloads(result);
        }
        for result in [TakeoverResult::Success, TakeoverResult::Failure] {
            self.takeovers(result);
        }
        for result in [ResetResult::Sent, ResetResult::Failed, ResetResult::Limited] {
            self.resets(result);
        }
        for action in [RuleAction::Drop, RuleAction::Reject] {
            self.flows_blocked(action);
        }
        for result in ["banned", "extended", "exempt", "failed", "lost"] {
            self.bans(result);
        }
        for reason in ["expired", "removed", "evicted"] {
            self.unbans(reason);
        }
    }

    /// Records the result of reading rules: at the start, and at each reload.
    pub fn note_rules(&self, result: ReloadResult) {
        let success = result == ReloadResult::Success;
        self.last_reload_successful.set(i64::from(success));
        if success {
            self.last_reload_success.set(super::unix_seconds());
        }
    }

    /// Records the work of the bypass since the last call.
    pub fn note_bypassed(&self, flows: u64, packets: u64, octets: u64) {
        self.bypass_flows.inc_by(flows);
        self.bypass_packets.inc_by(packets);
        self.bypass_bytes.inc_by(octets);
    }

    /// Number of packets of `queue` with `verdict`.
    pub fn packets(&self, queue: u16, verdict: VerdictLabel) -> IntCounter {
        let verdict = match verdict {
            VerdictLabel::Accept => "accept",
            VerdictLabel::Drop => "drop",
            VerdictLabel::Repeat => "repeat",
        };
        self.labelled.packets.with_label_values(&[&*queue.to_string(), verdict])
    }

    /// Number of flows in `state`.
    pub fn flows(&self, state: &str) -> IntGauge {
        self.labelled.flows.with_label_values(&[state])
    }

    /// Number of banners of `protocol` that `from` sent.
    pub fn banners(&self, protocol: Protocol, from: Side) -> IntCounter {
        self.labelled.banners.with_label_values(&[protocol.name(), from.name()])
    }

    /// Number of banners that the rule with this id matched.
    pub fn rule_matches(&self, rule: &str, action: RuleAction) -> IntCounter {
        self.labelled.rule_matches.with_label_values(&[rule, action.name()])
    }

    /// Number of flows that the policy with this id does not allow.
    pub fn policy_refusals(&self, policy: &str) -> IntCounter {
        self.labelled.policy_refusals.with_label_values(&[policy])
    }

    /// Number of anomalies of this name.
    pub fn anomalies(&self, name: &str) -> IntCounter {
        self.labelled.anomalies.with_label_values(&[name])
    }

    /// Number of packets that wait in `queue`.
    pub fn queue_depth(&self, queue: u16) -> IntGauge {
        self.labelled.queue_depth.with_label_values(&[&*queue.to_string()])
    }

    /// Number of packets that were dropped for this reason.
    pub fn queue_dropped(&self, reason: QueueDrop) -> IntCounter {
        self.labelled.queue_dropped.with_label_values(&[match reason {
            QueueDrop::QueueFull => "queue_full",
            QueueDrop::SocketOverrun => "socket_overrun",
            QueueDrop::NoListener => "no_listener",
            QueueDrop::Overdue => "overdue",
        }])
    }

    /// Number of reloads with this result.
    pub fn reloads(&self, result: ReloadResult) -> IntCounter {
        self.labelled.reloads.with_label_values(&[match result {
            ReloadResult::Success => "success",
            ReloadResult::Failure => "failure",
        }])
    }

    /// Number of takeovers with this result.
    pub fn takeovers(&self, result: TakeoverResult) -> IntCounter {
        self.labelled.takeovers.with_label_values(&[match result {
            TakeoverResult::Success => "success",
            TakeoverResult::Failure => "failure",
        }])
    }

    /// Records that this process has taken over now.
    pub fn note_takeover(&self) {
        self.takeovers(TakeoverResult::Success).inc();
        self.last_takeover.set(super::unix_seconds());
    }

    /// Records that the database has answered a request for newer rules now.
    pub fn note_rules_answer(&self) {
        self.rules_last_poll.set(super::unix_seconds());
    }

    /// Number of bans with this result.
    pub fn bans(&self, result: &str) -> IntCounter {
        self.labelled.bans.with_label_values(&[result])
    }

    /// Number of bans that ended for this reason.
    pub fn unbans(&self, reason: &str) -> IntCounter {
        self.labelled.unbans.with_label_values(&[reason])
    }

    /// Number of resets with this result.
    pub fn resets(&self, result: ResetResult) -> IntCounter {
        self.labelled.resets.with_label_values(&[match result {
            ResetResult::Sent => "sent",
            ResetResult::Failed => "failed",
            ResetResult::Limited => "limited",
        }])
    }

    /// Number of flows that were really stopped, by action: dropped, or also reset.
    pub fn flows_blocked(&self, action: RuleAction) -> IntCounter {
        self.labelled.flows_blocked.with_label_values(&[action.name()])
    }

    /// Number of flows in `state` that were evicted. Only evictions of undecided or blocked flows are a
    /// loss of inspection.
    pub fn flow_evictions(&self, state: &str) -> IntCounter {
        self.labelled.flow_evictions.with_label_values(&[state])
    }

    /// Number of events of this kind that were not emitted, because there were too many.
    pub fn events_suppressed(&self, kind: &str) -> IntCounter {
        self.labelled.events_suppressed.with_label_values(&[kind])
    }

    /// Time of the last loop turn of the worker of `queue`, Unix time in seconds. If it lags behind the
    /// clock, the worker hangs.
    pub fn last_turn(&self, queue: u16) -> IntGauge {
        self.labelled.last_turn.with_label_values(&[&*queue.to_string()])
    }

    /// 1 if this queue is bound to this guard, else 0.
    pub fn queue_bound(&self, queue: u16) -> IntGauge {
        self.labelled.queue_bound.with_label_values(&[&*queue.to_string()])
    }

    /// Removes the series of this address family's hook.
    pub fn forget_hook(&self, family: &str) {
        // The series may not exist.
        let _ = self.labelled.hook_up.remove_label_values(&[family]);
    }

    /// 1 if the hook of this address family (`ipv4`, `ipv6`) leads packets to this guard, else 0.
    pub fn hook_up(&self, family: &str) -> IntGauge {
        self.labelled.hook_up.with_label_values(&[family])
    }
}
