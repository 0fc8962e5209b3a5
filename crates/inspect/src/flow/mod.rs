//! TCP flows: a bounded table of them, and the first bytes of each direction in order.
//!
//! A pure core: no I/O, no clock, no knowledge of SSH or HTTP. What a flow's owner knows about the
//! conversation is kept beside it, boxed, and only as long as the flow is undecided: a decided flow
//! costs one table entry of at most 152 bytes.

mod anomaly;
mod collect;
mod entry;
mod key;
mod stream;
mod table;
mod track;

pub use crate::terms::{Anomaly, AnomalySet};
pub use collect::{Collector, Limits, Offer, PIN_LIMIT};
pub use entry::{Class, Ends, Flow, OpeningSyn, Parts, Ruling, SynOptions};
pub use key::{End, FlowKey};
pub use stream::{NEARBY, Stream, distance};
pub use table::{FlowId, FlowTable, FullTable};
pub use track::{Tracked, Tracking};

#[cfg(test)]
mod tests;
