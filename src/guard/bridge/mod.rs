//! The guard on a bridge: the hosts behind each port, and frames for them.
//!
//! A bridge needs no address, so its packets cannot always be answered through the routing table. A reset
//! leaves by the port that its receiver is behind, with the Ethernet addresses and the VLAN tag that the two
//! hosts use. A queue reports neither the tag nor the destination of a packet's frame. They come from the
//! frames themselves: packet sockets on the ports show the frames that open connections. For connections
//! older than the guard, only the sender address that the queue reports is known.

mod frame;
mod hosts;
mod ports;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bannerwall_ffi::packet_socket::FrameSocket;

pub(super) use self::hosts::KnownBridgeHost;
use self::hosts::{BridgeHost, BridgeHosts};
use super::source::QueuedPacket;
use crate::diagnostics::log_line;

/// Maximum number of watched ports. Resets for hosts behind other ports rely on the queue's information.
const PORT_LIMIT: usize = 256;
/// Interval between checks for new and removed ports.
const PORTS_AGE: Duration = Duration::from_secs(1);
/// Maximum number of frames read from one port at once.
const FRAMES: usize = 4096;

/// The ports of a bridge that a packet crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BridgePortPair {
    /// Towards the sender.
    pub(super) input: u32,
    /// Towards the receiver.
    pub(super) output: u32,
}

impl BridgePortPair {
    /// Returns the ports of a packet that is bridged rather than routed: a routed packet's second port is not
    /// known when it is queued.
    pub(super) fn of(queued: &QueuedPacket<'_>) -> Option<Self> {
        let (input, output) = (queued.input_port, queued.output_port);
        (input != 0 && output != 0).then_some(Self { input, output })
    }
}

/// The bridges of this network namespace, for all workers.
#[derive(Debug)]
pub(super) struct BridgeTracker {
    socket: FrameSocket,
    state: Mutex<BridgeState>,
}

#[derive(Debug, Default)]
struct BridgeState {
    watched: HashMap<u32, FrameSocket>,
    /// Ports on which frames with a tag arrived.
    tagged: HashSet<u32>,
    hosts: BridgeHosts,
    /// True if frames may carry packets in an encapsulation that neither the frames nor the queue show.
    enveloped: bool,
    listed: Option<Instant>,
}

impl BridgeTracker {
    /// Opens the sockets for the present ports.
    ///
    /// # Errors
    ///
    /// `CAP_NET_RAW` is missing.
    pub(super) fn open() -> io::Result<Self> {
        let socket = FrameSocket::sending().map_err(|error| error.source)?;
        let bridge = Self { socket, state: Mutex::default() };
        bridge.state().list(Instant::now());
        Ok(bridge)
    }

    /// Updates the list of ports and reads their frames.
    pub(super) fn tick(&self, now: Instant) {
        // If another worker is doing this now, that suffices.
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if state.listed.is_none_or(|then| now.saturating_duration_since(then) >= PORTS_AGE) {
            state.list(now);
        }
        let ports: Vec<u32> = state.watched.keys().copied().collect();
        for port in ports {
            state.read(port);
        }
    }

    /// Stores the Ethernet address that a queued packet came from.
    pub(super) fn learn_address(&self, queued: &QueuedPacket<'_>) {
        let (Some(crossing), Some(address)) = (BridgePortPair::of(queued), queued.hardware_address) else {
            return;
        };
        if let Some(sender) = frame::sender(queued.payload) {
            self.state().hosts.learn_address(crossing.input, sender, address);
        }
    }

    /// Sends `packet` to `to` behind port `port`, on behalf of `from` behind port `other`.
    ///
    /// # Errors
    ///
    /// The frames between the two are unknown, or the port does not accept the frame.
    pub(super) fn send(&self, packet: &[u8], to: (u32, IpAddr), from: (u32, IpAddr)) -> io::Result<()> {
        let mut state = self.state();
        // Frames that wait in the sockets may show newer addresses and tags.
        state.read(to.0);
        state.read(from.0);
        let (receiver, sender) = (state.host(to)?, state.host(from)?);
        // Other workers need not wait for the send.
        drop(state);
        self.socket.send(to.0, &frame::frame(receiver, sender.address, packet))
    }

    /// Returns all known hosts, for a successor.
    pub(super) fn known_hosts(&self) -> Vec<KnownBridgeHost> {
        self.state().hosts.all()
    }

    /// Continues with the hosts of a predecessor.
    pub(super) fn restore(&self, hosts: &[KnownBridgeHost]) {
        let mut state = self.state();
        for host in hosts {
            state.hosts.restore(host);
            if host.tag.is_some() {
                state.tagged.insert(host.port);
            }
        }
    }

    /// Returns the ports of a connection that came in by the port `input`; none if it was not bridged, or if
    /// the port of its receiver is unknown.
    pub(super) fn ports_of(&self, input: u32, receiver: IpAddr) -> Option<BridgePortPair> {
        let mut state = self.state();
        if !state.watched.contains_key(&input) {
            return None;
        }
        let ports: Vec<u32> = state.watched.keys().copied().filter(|port| *port != input).collect();
        let mut outputs = ports.into_iter().filter(|port| state.hosts.get(*port, receiver).is_some());
        let output = outputs.next()?;
        // A second port means that a host claims another one's address.
        outputs.next().is_none().then_some(BridgePortPair { input, output })
    }

    fn state(&self) -> MutexGuard<'_, BridgeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BridgeState {
    /// Watches the present ports, and no others.
    fn list(&mut self, now: Instant) {
        self.listed = Some(now);
        self.enveloped = is_on("bridge-nf-filter-pppoe-tagged");
        let Ok(ports) = ports::list() else { return };
        self.watched.retain(|port, _| ports.contains(port));
        self.tagged.retain(|port| ports.contains(port));
        for port in ports {
            if self.watched.len() < PORT_LIMIT && !self.watched.contains_key(&port) {
                // If a port cannot be watched, the queue's information has to suffice.
                let Ok(socket) = FrameSocket::watching(port, &frame::OPENING) else { continue };
                self.watched.insert(port, socket);
            }
        }
    }

    /// Reads the frames that arrived on a port.
    fn read(&mut self, port: u32) {
        let Some(socket) = self.watched.get(&port) else { return };
        let mut buffer = [0; frame::LENGTH];
        // Bounded, since frames may arrive as fast as they are read.
        for _ in 0..FRAMES {
            // An error means that the port is down or gone, which the next list shows.
            let Ok(Some(seen)) = socket.receive(&mut buffer) else { return };
            if seen.tag.is_some() && self.tagged.insert(port) && !is_on("bridge-nf-filter-vlan-tagged") {
                log_line(
                    "bannerwall: frames with VLAN tags cross a bridge without passing iptables, so the \
                     guard does not see them; sysctl net.bridge.bridge-nf-filter-vlan-tagged=1 shows them \
                     to the hook",
                );
            }
            if let Some((sender, address)) = frame::read(seen.octets) {
                self.hosts.learn(port, sender, BridgeHost { address, tag: seen.tag, witnessed: true });
            }
        }
    }

    /// Returns the Ethernet address and tag of a host behind this port.
    fn host(&mut self, (port, address): (u32, IpAddr)) -> io::Result<BridgeHost> {
        let host = self.hosts.get(port, address);
        // The queue does not report tags. If the port has tagged frames, an untagged one may not arrive.
        let unclear = self.enveloped || self.tagged.contains(&port);
        let known = host.filter(|host| host.witnessed || !unclear);
        known.ok_or_else(|| io::Error::new(io::ErrorKind::HostUnreachable, "its frames were never seen"))
    }
}

/// True if a setting of `br_netfilter` is on.
fn is_on(setting: &str) -> bool {
    let file = format!("/proc/sys/net/bridge/{setting}");
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_without_tag_is_not_guessed_where_there_may_be_more_to_it() {
        let (old, new) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut state = BridgeState::default();
        state.hosts.learn_address(1, old, [1; 6]);
        state.hosts.learn(1, new, BridgeHost { address: [2; 6], tag: None, witnessed: true });
        assert!(state.host((1, old)).is_ok() && state.host((1, new)).is_ok());
        assert!(state.host((2, new)).is_err(), "another port");
        state.tagged.insert(1);
        assert!(state.host((1, old)).is_err() && state.host((1, new)).is_ok());
        state.tagged.clear();
        state.enveloped = true;
        assert!(state.host((1, old)).is_err() && state.host((1, new)).is_ok());
    }
}
