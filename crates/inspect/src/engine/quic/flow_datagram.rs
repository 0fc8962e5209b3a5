//! The datagram at hand.

use crate::engine::decision::PacketInput;
use crate::flow::{FlowKey, KeyEnd};
use crate::packet::Datagram;

/// A datagram of a flow in the table, or of one to be.
#[derive(Clone, Copy)]
pub struct FlowDatagram<'s> {
    pub(super) datagram: &'s Datagram<'s>,
    pub(super) packet: &'s PacketInput<'s>,
    pub(super) key: FlowKey,
    pub(super) from: KeyEnd,
}
