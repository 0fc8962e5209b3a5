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

mod descriptor_names;
mod descriptor_store;
mod messages;
mod predecessor;
mod state;
mod successor_listener;
mod takeover_settings;

pub(super) use self::descriptor_names::{METRICS, queue_name, run_name, state_name};
pub(super) use self::descriptor_store::{DescriptorStore, StoredDescriptors};
pub(super) use self::predecessor::{HandoverState, Predecessor, PredecessorMessage};
pub(super) use self::state::{QueueState, QueueStateNumbers, SharedRunState, sealed};
pub(super) use self::successor_listener::{ConnectedSuccessor, HandoverSocket, SuccessorListener};
pub(super) use self::takeover_settings::TakeoverSettings;
