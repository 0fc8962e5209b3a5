//! Resets for rejected connections, sent through raw sockets.
//!
//! The packets come ready from the engine, IP header on, and speak for a peer that is not this
//! machine: hence raw sockets. They carry our own mark, so that the hook does not queue them. Those of
//! bridged connections leave by the bridge's ports, where no hook meets them.
//!
//! Where the kernel translates both addresses of a connection, neither end knows the other by the address
//! that a forwarded packet shows. The kernel's tracking says whom each of them takes for its peer.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::bridge::{BridgePortPair, BridgeTracker};
use super::source::QueuedPacket;
use crate::conntrack::{ConntrackSocket, ConntrackTuple, TrackedConnection};
use crate::engine::ResetPair;
use crate::event::{Endpoint, ResetOutcome};
use crate::metrics::{GuardMetrics, ResetResult};
use crate::packet::{Addresses, ParsedPacket, Reset, parse, reset};

/// `IPPROTO_RAW`: the kernel takes whole packets with their header for IPv4 (`raw(7)`) and for IPv6
/// (`net/ipv6/raw.c`, `rawv6_init_sk`), and delivers none to the socket.
const WHOLE_PACKETS: i32 = 255;

/// Pairs of resets that a worker may send at once, and per second after that. The limit keeps the guard from
/// being a source of floods for anyone who can make it send resets. A flow whose resets are suppressed is
/// blocked all the same.
const BURST: u32 = 256;
const RATE: u32 = 64;

/// Burst of lookups in all of the kernel's connections, likewise.
const LOOKUP_BURST: u32 = 16;
const LOOKUP_RATE: u32 = 8;

/// A bucket of tokens, one a pair of resets.
#[derive(Debug)]
pub(super) struct ResetRateLimit {
    burst: u32,
    rate: u32,
    /// Time at which the bucket was last looked at, and what it held.
    last: Option<(Instant, f64)>,
}

impl Default for ResetRateLimit {
    fn default() -> Self {
        Self { burst: BURST, rate: RATE, last: None }
    }
}

impl ResetRateLimit {
    /// True if a pair of resets may be sent now.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        let full = f64::from(self.burst);
        let held = self.last.map_or(full, |(then, held)| {
            let grown = now.saturating_duration_since(then).as_secs_f64() * f64::from(self.rate);
            (held + grown).min(full)
        });
        let admitted = held >= 1.0;
        self.last = Some((now, if admitted { held - 1.0 } else { held }));
        admitted
    }
}

/// The paths to the two ends of a connection, as the blocked segment shows them.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResetPaths {
    /// Index of the interface towards the receiver. Only link-local addresses need it.
    receiving: u32,
    /// Index of the interface towards the sender.
    sending: u32,
    /// The bridge ports on the two sides.
    crossing: Option<BridgePortPair>,
}

impl ResetPaths {
    pub(super) fn of(queued: &QueuedPacket<'_>) -> Self {
        Self {
            receiving: queued.output_interface,
            sending: queued.input_interface,
            crossing: BridgePortPair::of(queued),
        }
    }
}

/// Outcomes of the resets for the receiver and the sender of the blocked segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetOutcomes {
    /// Outcome of the reset for the receiver.
    pub receiver: ResetOutcome,
    /// Outcome of the reset for the sender.
    pub sender: ResetOutcome,
}

impl ResetOutcomes {
    /// Outcome of resets over the limit, which are not sent.
    pub(super) const LIMITED: Self = Self { receiver: ResetOutcome::Limited, sender: ResetOutcome::Limited };

    pub(super) fn count(&self, metrics: &GuardMetrics) {
        for outcome in [&self.receiver, &self.sender] {
            let result = match outcome {
                ResetOutcome::Routed | ResetOutcome::Bridged => ResetResult::Sent,
                ResetOutcome::Failed(_) => ResetResult::Failed,
                ResetOutcome::Limited => ResetResult::Limited,
            };
            metrics.resets(result).inc();
        }
    }
}

/// The kernel's tracking of connections, for all workers.
#[derive(Debug)]
struct NatLookup {
    conntrack: ConntrackSocket,
    lookups: ResetRateLimit,
}

/// One raw socket for each address family, and the bridges.
#[derive(Debug)]
pub(super) struct ResetInjector {
    v4: Socket,
    v6: Option<Socket>,
    bridge: Option<BridgeTracker>,
    /// Absent in a kernel that tracks no connections.
    translations: Option<Mutex<NatLookup>>,
    metrics: GuardMetrics,
}

impl ResetInjector {
    /// Opens the sockets. `mark` is set on every packet that they send.
    ///
    /// # Errors
    ///
    /// `CAP_NET_RAW` (for the sockets) or `CAP_NET_ADMIN` (for the mark) is missing.
    pub(super) fn open(mark: u32, metrics: GuardMetrics) -> io::Result<Self> {
        let v4 = raw_socket(Domain::IPV4, mark)?;
        let v6 = match raw_socket(Domain::IPV6, mark) {
            // A kernel without IPv6 has no IPv6 connections to reset.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            socket => Some(socket?),
        };
        let bridge = match BridgeTracker::open() {
            // On a kernel without packet sockets, resets of bridged connections follow the routing table.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            bridge => Some(bridge?),
        };
        let lookups = ResetRateLimit { burst: LOOKUP_BURST, rate: LOOKUP_RATE, last: None };
        let translations =
            ConntrackSocket::open().map(|conntrack| Mutex::new(NatLookup { conntrack, lookups }));
        Ok(Self { v4, v6, bridge, translations: translations.ok(), metrics })
    }

    /// Returns the bridges, if the kernel allows frames to be sent.
    pub(super) fn bridge(&self) -> Option<&BridgeTracker> {
        self.bridge.as_ref()
    }

    /// Returns the paths of a connection without a segment at hand, from the interface by which its last
    /// segment came. Link-local ends are both on the network of that interface.
    pub(super) fn paths_by(&self, interface: u32, resets: &ResetPair) -> ResetPaths {
        let crossing = self.bridge.as_ref().and_then(|it| it.ports_of(interface, resets.receiver));
        ResetPaths { receiving: interface, sending: interface, crossing }
    }

    /// Sends both resets.
    pub(super) fn send(&self, resets: &ResetPair, ways: ResetPaths) -> ResetOutcomes {
        let outcomes = match (&self.bridge, ways.crossing) {
            (Some(bridge), Some(BridgePortPair { input, output })) => {
                let (receiver, sender) = ((output, resets.receiver), (input, resets.sender));
                let outcomes = ResetOutcomes {
                    receiver: self.cross(bridge, &resets.to_receiver, receiver, sender, ways.receiving),
                    sender: self.cross(bridge, &resets.to_sender, sender, receiver, ways.sending),
                };
                // Frames that leave by bridge ports skip netfilter, so conntrack never sees these resets.
                self.close(&resets.to_sender);
                outcomes
            }
            _ => ResetOutcomes {
                receiver: self.route(&resets.to_receiver, resets.receiver, ways.receiving),
                sender: self.route(&resets.to_sender, resets.sender, ways.sending),
            },
        };
        outcomes.count(&self.metrics);
        outcomes
    }

    /// The resets as their receivers know the connection, if the kernel translates both of its addresses;
    /// that connection is over for its tracking. `None` if it is not known, for too many have been looked up.
    pub(super) fn address(&self, resets: ResetPair, ways: ResetPaths, now: Instant) -> Option<ResetPair> {
        let Some(translations) = self.translations.as_ref().filter(|_| ways.crossing.is_none()) else {
            return Some(resets);
        };
        let Some(seen) = tuple(&resets.to_receiver) else { return Some(resets) };
        let mut translations = translations.lock().unwrap_or_else(PoisonError::into_inner);
        let NatLookup { conntrack, lookups } = &mut *translations;
        // By one translation alone, what is forwarded is a direction of the connection, and the kernel
        // translates the resets.
        let is_known = |found: io::Result<Option<TrackedConnection>>| !matches!(found, Ok(None));
        // Looked up by hash, so it is cheap. Only `find_between` walks over all connections and is limited.
        if is_known(conntrack.find(&seen)) || is_known(conntrack.find(&seen.reversed())) {
            return Some(resets);
        }
        if !lookups.admit(now) {
            // Without any connection nothing is translated, and there is nothing to look up.
            return conntrack.is_empty().unwrap_or_default().then_some(resets);
        }
        // An unknown connection is not translated, so its segments show the true addresses.
        let Ok(Some(connection)) = conntrack.find_between(&seen) else { return Some(resets) };
        // Where the kernel does not take it, the connection is forgotten later.
        let _ = conntrack.close(&connection.original);
        let from_peer = |packet: &[u8], end| connection.peer_of(end).and_then(|peer| sent_by(packet, peer));
        Some(ResetPair {
            to_receiver: from_peer(&resets.to_receiver, seen.destination).unwrap_or(resets.to_receiver),
            to_sender: from_peer(&resets.to_sender, seen.source).unwrap_or(resets.to_sender),
            ..resets
        })
    }

    /// Has the kernel forget the connection that a reset for one of its ends belongs to.
    fn close(&self, reset: &[u8]) {
        if let (Some(translations), Some(tuple)) = (&self.translations, tuple(reset)) {
            let mut translations = translations.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = translations.conntrack.close(&tuple);
        }
    }

    /// Counts resets that are not sent, as there were too many.
    pub(super) fn count_suppressed(&self) -> ResetOutcomes {
        ResetOutcomes::LIMITED.count(&self.metrics);
        ResetOutcomes::LIMITED
    }

    /// Sends a reset by a bridge port. If that fails, tries the routing table, which works if the bridge has
    /// an address.
    fn cross(
        &self,
        bridge: &BridgeTracker,
        packet: &[u8],
        to: (u32, IpAddr),
        from: (u32, IpAddr),
        interface: u32,
    ) -> ResetOutcome {
        let Err(refused) = bridge.send(packet, to, from) else { return ResetOutcome::Bridged };
        match self.route(packet, to.1, interface) {
            ResetOutcome::Failed(routed) => ResetOutcome::Failed(format!("{refused}; {routed}")),
            sent => sent,
        }
    }

    fn route(&self, packet: &[u8], to: IpAddr, interface: u32) -> ResetOutcome {
        match self.send_one(packet, to, interface) {
            Ok(()) => ResetOutcome::Routed,
            Err(error) => ResetOutcome::Failed(error.to_string()),
        }
    }

    fn send_one(&self, packet: &[u8], to: IpAddr, interface: u32) -> io::Result<()> {
        let (socket, address) = match to {
            IpAddr::V4(_) => (&self.v4, SocketAddr::new(to, 0)),
            IpAddr::V6(address) => {
                // Only link-local addresses need the interface (RFC 4007 section 6).
                let scope = if address.is_unicast_link_local() { interface } else { 0 };
                let socket = self.v6.as_ref().ok_or(io::ErrorKind::Unsupported)?;
                (socket, SocketAddrV6::new(address, 0, 0, scope).into())
            }
        };
        socket.send_to(packet, &SockAddr::from(address)).map(drop)
    }
}

/// The direction that a reset is of.
fn tuple(packet: &[u8]) -> Option<ConntrackTuple> {
    let Ok(ParsedPacket::Tcp(segment)) = parse(packet, packet.len()) else { return None };
    Some(ConntrackTuple::of(&segment))
}

/// The same reset from another peer.
fn sent_by(packet: &[u8], peer: Endpoint) -> Option<Vec<u8>> {
    let Ok(ParsedPacket::Tcp(segment)) = parse(packet, packet.len()) else { return None };
    let addresses = match (segment.addresses(), peer.address) {
        (Addresses::V4(_, destination), IpAddr::V4(source)) => Addresses::V4(source.octets(), destination),
        (Addresses::V6(_, destination), IpAddr::V6(source)) => Addresses::V6(source.octets(), destination),
        _ => return None,
    };
    Some(reset(&Reset {
        addresses,
        source_port: peer.port,
        destination_port: segment.destination_port(),
        sequence: segment.sequence(),
        acknowledgement: segment.acknowledgement(),
    }))
}

/// A socket that never blocks: a reset that finds no room is counted, not waited for.
fn raw_socket(domain: Domain, mark: u32) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(WHOLE_PACKETS)))?;
    socket.set_nonblocking(true)?;
    socket.set_mark(mark)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_of_resets_is_held_to_a_burst_and_a_rate() {
        let (mut allowance, start) = (ResetRateLimit::default(), Instant::now());
        let sent = |allowance: &mut ResetRateLimit, now| (0..10_000).filter(|_| allowance.admit(now)).count();
        assert_eq!(sent(&mut allowance, start), 256);
        assert_eq!(sent(&mut allowance, start + Duration::from_secs(1)), 64);
        assert_eq!(sent(&mut allowance, start + Duration::from_secs(3600)), 256);
    }
}
