//! TCP flows: a bounded table of them, and the first bytes of each direction in order.
//!
//! This module does no I/O, reads no clock and knows no SSH or HTTP. The owner's state of the dialogue is
//! boxed, and exists only while the flow is undecided. A decided flow costs one table entry of at most
//! 152 bytes.

mod anomaly;
mod entry;
mod flow_table;
mod key;
mod stream;
mod stream_reassembly;
mod tcp_tracking;

pub use crate::terms::{Anomaly, AnomalySet};
pub use entry::{EndStates, Flow, FlowClass, FlowDecision, FlowParts, OpeningSyn, SynOptions};
pub use flow_table::{FlowId, FlowTable, FullTable};
pub use key::{FlowKey, KeyEnd};
pub use stream::{NEARBY, StreamState, distance};
pub use stream_reassembly::{CollectorLimits, OfferedPayload, PIN_LIMIT, StreamCollector};
pub use tcp_tracking::{TrackedSegment, TrackingMode};

#[cfg(test)]
mod tests;
