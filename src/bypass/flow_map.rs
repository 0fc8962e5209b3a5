//! The map of flows for one worker: inserts decided flows, and removes flows that start or end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aya::maps::{HashMap, MapData};
use rustix::time::{ClockId, clock_gettime};

use crate::conntrack::{ConntrackSocket, ConntrackTuple};
use crate::packet::{Addresses, Segment};

/// `BPF_NOEXIST`.
const NEW: u64 = 1;

/// One direction of a flow, as the program reads it.
type Key = [u8; 40];
/// Interfaces of entry and exit, time of the last packet, and time of the last packet through the hook.
type Value = [u8; 24];

/// State shared with the workers.
#[derive(Debug)]
pub(super) struct BypassState {
    pub(super) is_on: AtomicBool,
    pub(super) interfaces: Vec<u32>,
    /// Number of inserted flows.
    pub(super) handed: AtomicU64,
}

/// Map of flows, with a worker's other state.
pub struct BypassFlows {
    flows: HashMap<MapData, Key, Value>,
    state: Arc<BypassState>,
    connections: ConntrackSocket,
}

impl BypassFlows {
    pub(super) fn new(
        flows: HashMap<MapData, Key, Value>,
        connections: ConntrackSocket,
        state: Arc<BypassState>,
    ) -> Self {
        Self { flows, state, connections }
    }

    /// Inserts the flow of a segment that may pass, for all later segments. A segment that starts or ends a
    /// connection inserts nothing. Neither does one that connection tracking does not know: its flow could
    /// not return to the hook.
    pub fn insert(&mut self, segment: &Segment<'_>, came_in: u32, goes_out: u32) {
        let BypassState { is_on, interfaces, .. } = &*self.state;
        let is_between = [came_in, goes_out].iter().all(|index| interfaces.contains(index));
        let may = is_on.load(Ordering::Relaxed) && is_between && came_in != goes_out;
        if !may || changes_connection(segment) {
            return;
        }
        let [key, other] = keys(segment);
        // Before the first segment can skip conntrack: from then on its window is stale, and without this the
        // segments that do reach it would be invalid (net/netfilter/nf_conntrack_proto_tcp.c: tcp_in_window).
        if self.connections.relax_sequence_checks(&ConntrackTuple::of(segment)).is_err() {
            return self.remove(segment);
        }
        let now = monotonic();
        let value = value(came_in, goes_out, now);
        // BPF_NOEXIST first: only its success shows that the flow is new and counts.
        let is_new = self.flows.insert(key, value, NEW).is_ok();
        // The path may have changed since; a full map leaves the flow with the hook.
        let here = is_new || self.flows.insert(key, value, 0).is_ok();
        let both = here && self.flows.insert(other, self::value(goes_out, came_in, now), 0).is_ok();
        if is_new && both {
            self.state.handed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes the flow of a segment that starts or ends a connection.
    pub fn remove_on_change(&mut self, segment: &Segment<'_>) {
        if changes_connection(segment) {
            self.remove(segment);
        }
    }

    /// Removes the flow of a segment.
    pub fn remove(&mut self, segment: &Segment<'_>) {
        for key in keys(segment) {
            // Usually the map has no such entry.
            let _ = self.flows.remove(&key);
        }
    }
}

fn changes_connection(segment: &Segment<'_>) -> bool {
    let flags = segment.flags();
    flags.syn() || flags.fin() || flags.rst()
}

/// Returns the clock that the program reads, in nanoseconds.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let [seconds, nanoseconds] =
        [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or_default());
    seconds * 1_000_000_000 + nanoseconds
}

fn value(came_in: u32, goes_out: u32, seen: u64) -> Value {
    let mut value = [0; 24];
    value[..4].copy_from_slice(&came_in.to_ne_bytes());
    value[4..8].copy_from_slice(&goes_out.to_ne_bytes());
    value[8..16].copy_from_slice(&seen.to_ne_bytes());
    value[16..].copy_from_slice(&seen.to_ne_bytes());
    value
}

/// Returns the keys of the segment's direction and of the other one.
fn keys(segment: &Segment<'_>) -> [Key; 2] {
    let (source, destination) = (segment.source_port(), segment.destination_port());
    let addresses = segment.addresses();
    [key(addresses, source, destination), key(addresses.reversed(), destination, source)]
}

fn key(addresses: Addresses, source: u16, destination: u16) -> Key {
    let mut key = [0; 40];
    let family: u32 = match addresses {
        Addresses::V4(from, to) => {
            key[..4].copy_from_slice(&from);
            key[16..20].copy_from_slice(&to);
            2
        }
        Addresses::V6(from, to) => {
            key[..16].copy_from_slice(&from);
            key[16..32].copy_from_slice(&to);
            10
        }
    };
    key[32..34].copy_from_slice(&source.to_be_bytes());
    key[34..36].copy_from_slice(&destination.to_be_bytes());
    key[36..].copy_from_slice(&family.to_ne_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::testing::{SegmentBuilder, endpoint};
    use crate::packet::{self, ParsedPacket, TcpFlags};

    #[test]
    fn the_directions_of_a_flow_are_each_others_reverse() {
        for [one, other] in
            [["192.0.2.1:4000", "198.51.100.2:80"], ["[2001:db8::1]:4000", "[2001:db8::2]:80"]]
        {
            let segment = |from: &str, to: &str| {
                let octets = SegmentBuilder::new(endpoint(from), endpoint(to)).flags(TcpFlags::ACK).build();
                let Ok(ParsedPacket::Tcp(segment)) = packet::parse(&octets, octets.len()) else {
                    panic!("a segment")
                };
                keys(&segment)
            };
            let ([there, back], [back_there, back_back]) = (segment(one, other), segment(other, one));
            assert_eq!((there, back), (back_back, back_there));
            assert_ne!(there, back);
            assert_eq!(there[32..36], [0x0f, 0xa0, 0, 80]);
        }
    }
}
