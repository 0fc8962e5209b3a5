//! TCP flows: a bounded table of them, and the first bytes of each direction in order.
//!
//! This module does no I/O, reads no clock and knows no SSH or HTTP. The owner's state of the dialogue is
//! boxed, and exists only while the flow is undecided. A decided flow costs one table entry of at most
//! 152 bytes.

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
