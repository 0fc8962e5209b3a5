//! Takeover: another process continues in place of this one without a loss of packets.
//!
//! An NFQUEUE binding belongs to the address of the netlink socket rather than to a process: the process that
//! holds the socket reads and answers the packets of its queue. So the sockets are handed over, in one of two
//! ways:
//!
//! - **`--takeover PATH`**: a guard listens at PATH, and a guard that starts with the same flag connects
//!   there. By then the new guard has read its rules and options. The old one sends duplicates of its sockets
//!   (`SCM_RIGHTS`) and keeps judging while the new one confines itself and opens everything else. Only when
//!   the new one sends `go` do the loops of the old one end, each after an answered batch, and their state
//!   follows queue by queue. If a step before that fails, the old guard is unaffected. At the end it exits
//!   with code 0 and leaves the hook alone.
//! - **`--fd-store`**: the service manager stores the sockets (`sd_pid_notify_with_fds(3)`, `FDSTORE=1`). It
//!   stores those of queues from the start, so that packets wait even if a guard is killed, and the state
//!   once the guard is told to end.
//!
//! The state is a sealed anonymous file ([`state`]). It holds the keys of decided flows, the packets of
//! undecided flows ([`crate::inspector::InspectorState`]), which the next engine inspects again, counters by
//! name, and the accounts of the hook. So no version needs to know the internal state of another one. A state
//! that is unreadable is rejected as a whole and reported. Its flows are then picked up mid-stream, like
//! flows that are older than a guard.
//!
//! Both processes check each other's user (`SO_PEERCRED`), and continue only if queues, mark and network
//! namespace are the same. From the sockets that a service manager stored, a guard takes those of the same
//! queues in the same network namespace, whatever else has changed.

mod descriptor_store;
mod messages;
mod predecessor;
mod state;
mod successor_listener;

use serde::{Deserialize, Serialize};

pub(super) use self::descriptor_store::{DescriptorStore, StoredDescriptors};
pub(super) use self::predecessor::{HandoverState, Predecessor, PredecessorMessage};
pub(super) use self::state::{QueueState, QueueStateNumbers, SharedRunState, sealed};
pub(super) use self::successor_listener::{ConnectedSuccessor, HandoverSocket, SuccessorListener};

use super::config::GuardConfig;
use bannerwall_ffi::namespace::cookie;

/// Name of the metrics listener.
pub(super) const METRICS: &str = "metrics";
/// Prefix of the names of queue sockets.
const QUEUE: &str = "queue-";
/// Prefix of the names of states.
const STATE: &str = "state-";
/// Name of the state that belongs to no queue.
const RUN: &str = "state-run";

/// Returns the name of a queue's socket.
pub(super) fn queue_name(queue: u16) -> String {
    format!("{QUEUE}{queue}")
}

/// Returns the name of the state of a queue's worker.
pub(super) fn state_name(queue: u16) -> String {
    format!("{STATE}{QUEUE}{queue}")
}

/// Returns the name of the state of the rest of a run.
pub(super) fn run_name() -> String {
    RUN.to_owned()
}

/// Settings that two guards must share for a takeover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TakeoverSettings {
    /// The program's version, for messages.
    version: String,
    queues: String,
    /// The bits of the mark that bannerwall uses.
    mark: u32,
    /// Cookie of the network namespace, in which the kernel numbers the queues.
    network: Option<u64>,
}

impl TakeoverSettings {
    /// Returns the settings of a guard.
    pub(super) fn of(config: &GuardConfig) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            queues: config.queues.to_string(),
            mark: config.mark.mask(),
            network: cookie().ok(),
        }
    }

    /// Returns the reason why a guard of `other` settings cannot take over from one of these.
    fn differs_from(&self, other: &Self) -> Option<String> {
        if self.queues != other.queues {
            return Some(format!("this guard serves queue {}, not {}", self.queues, other.queues));
        }
        if self.mark != other.mark {
            return Some(
                "this guard uses other bits of the mark: start both with the same --mark".to_owned(),
            );
        }
        let networks = self.network.zip(other.network);
        networks
            .filter(|(own, its)| own != its)
            .map(|_| "this guard is in another network namespace".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_queues_marks_and_network_fit() {
        let own = TakeoverSettings {
            version: "1".into(),
            queues: "0:3".into(),
            mark: 0xC000_0000,
            network: Some(4026),
        };
        let newer = TakeoverSettings { version: "2".into(), network: None, ..own.clone() };
        assert_eq!(own.differs_from(&newer), None);
        for (other, said) in [
            (TakeoverSettings { queues: "0".into(), ..own.clone() }, "serves queue 0:3, not 0"),
            (TakeoverSettings { mark: 3, ..own.clone() }, "--mark"),
            (TakeoverSettings { network: Some(1), ..own.clone() }, "another network namespace"),
        ] {
            assert!(own.differs_from(&other).is_some_and(|why| why.contains(said)), "{said}");
        }
    }
}
