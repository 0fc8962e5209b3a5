//! Another process goes on in this one's place, and no packet notices.
//!
//! An NFQUEUE binding belongs to the netlink socket's address, not to a process: whoever holds the socket
//! reads what waits in its queue and answers it. So the sockets are handed over, by one of two ways:
//!
//! - **`--takeover PATH`**: a guard listens at PATH, and one that is started with the same flag asks there.
//!   The new one has read its rules and options by then; the old one sends duplicates of its sockets
//!   (`SCM_RIGHTS`) and goes on judging, while the new one confines itself and opens all else. Only when it
//!   says `go` do the old one's loops end, each behind a batch that is answered, and what they know follows,
//!   queue by queue. Whatever fails before that leaves the old guard as it was. It ends with code 0 and
//!   leaves the hook alone.
//! - **`--fd-store`**: the service manager keeps the sockets (`sd_pid_notify_with_fds(3)`, `FDSTORE=1`),
//!   those of queues from the start on, so that packets wait even where a guard is killed, and what is known
//!   once this one is told to end.
//!
//! What is known goes as a file without a name, sealed ([`state`]): flows that are decided by their key, of
//! flows that are not the packets themselves ([`crate::inline::State`]), which the next engine is shown
//! again, counters by name, and how far the accounts of the hook are. No version needs to know how another
//! one remembers. What can't be read is refused as a whole and told; flows are then picked up in their
//! middle, as those are that are older than a guard.
//!
//! Both sides look at each other's user (`SO_PEERCRED`), and go on only where queues, mark and network are
//! the same. Of what a service manager has kept, sockets of the same queues in the same network are taken,
//! whatever else has changed.

mod estate;
mod heirs;
mod state;
mod store;
mod wire;

use serde::{Deserialize, Serialize};

pub(super) use self::estate::{Estate, Heard, Legacy};
pub(super) use self::heirs::{Gift, Heir, Heirs};
pub(super) use self::state::{Known, QueueState, RunState, sealed};
pub(super) use self::store::{Kept, Store};

use super::config::GuardConfig;
use bannerwall_ffi::namespace::cookie;

/// What goes by this name is the listener of metrics.
pub(super) const METRICS: &str = "metrics";
/// What the name of a queue's socket begins with.
const QUEUE: &str = "queue-";
/// What the names of states begin with.
const STATE: &str = "state-";
/// What the name of a state is that belongs to no queue.
const RUN: &str = "state-run";

/// The name of a queue's socket.
pub(super) fn queue_name(queue: u16) -> String {
    format!("{QUEUE}{queue}")
}

/// The name of what a queue's loop knows.
pub(super) fn state_name(queue: u16) -> String {
    format!("{STATE}{QUEUE}{queue}")
}

/// The name of what the rest of a run knows.
pub(super) fn run_name() -> String {
    RUN.to_owned()
}

/// What two guards must have in common for one to go on in the other's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Terms {
    /// The program's version, for people.
    version: String,
    queues: String,
    /// Our bits of the mark.
    mark: u32,
    /// The network namespace, where the kernel numbers them.
    network: Option<u64>,
}

impl Terms {
    /// Those of a guard.
    pub(super) fn of(config: &GuardConfig) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            queues: config.queues.to_string(),
            mark: config.mark.mask(),
            network: cookie().ok(),
        }
    }

    /// Why a guard of `other` terms can't go on in the place of one of these.
    fn differs_from(&self, other: &Self) -> Option<String> {
        if self.queues != other.queues {
            return Some(format!("this guard serves queue {}, not {}", self.queues, other.queues));
        }
        if self.mark != other.mark {
            return Some("this guard has other bits of the mark: start both with the same --mark".to_owned());
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
        let own = Terms { version: "1".into(), queues: "0:3".into(), mark: 0xC000_0000, network: Some(4026) };
        let newer = Terms { version: "2".into(), network: None, ..own.clone() };
        assert_eq!(own.differs_from(&newer), None);
        for (other, said) in [
            (Terms { queues: "0".into(), ..own.clone() }, "serves queue 0:3, not 0"),
            (Terms { mark: 3, ..own.clone() }, "--mark"),
            (Terms { network: Some(1), ..own.clone() }, "another network namespace"),
        ] {
            assert!(own.differs_from(&other).is_some_and(|why| why.contains(said)), "{said}");
        }
    }
}
