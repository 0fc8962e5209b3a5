//! Packets in, decisions and events out: the one inspector behind guard and replay.
//!
//! The engine does no I/O, reads no clock, and never waits. It finds each packet's flow, collects
//! the first octets of both directions in order, recognises SSH and HTTP by those octets, asks the
//! rules about every complete banner and says what to do with the packet.

#![expect(dead_code, reason = "the inspector that counts these follows")]

mod config;
mod counters;
mod decision;

pub use crate::flow::Anomaly;
pub use config::{AnomalyPolicy, EngineConfig, HttpInspect, OnFailure, Timeouts};
pub use counters::{Counters, DecisionCounts, FlowCounts};
pub use decision::{Checksums, Decision, Inspected, PacketInput, Resets};
