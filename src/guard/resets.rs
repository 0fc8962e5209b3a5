//! Resets for rejected connections, sent by raw sockets.
//!
//! The packets come ready from the engine, IP header on, and speak for a peer that is not this
//! machine: hence raw sockets. They carry our own mark, so that the hook does not queue them.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Instant;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::engine::Resets;
use crate::metrics::{GuardMetrics, ResetResult};

/// `IPPROTO_RAW`: the kernel takes whole packets, header included, for IPv4 (`raw(7)`) and for IPv6
/// (`net/ipv6/raw.c`, `rawv6_init_sk`), and delivers none.
const WHOLE_PACKETS: i32 = 255;

/// Pairs of resets that a worker sends at once, and a second thereafter: whoever is able to make a guard
/// send them is not to make it a source of floods. A flow whose resets are held back is blocked all the same.
const BURST: u32 = 256;
const RATE: u32 = 64;

/// A bucket of tokens, one a pair of resets.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// When the bucket was last looked at, and what it held.
    last: Option<(Instant, f64)>,
}

impl Allowance {
    /// Whether a pair of resets may be sent now.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        let full = f64::from(BURST);
        let held = self.last.map_or(full, |(then, held)| {
            let grown = now.saturating_duration_since(then).as_secs_f64() * f64::from(RATE);
            (held + grown).min(full)
        });
        let admitted = held >= 1.0;
        self.last = Some((now, if admitted { held - 1.0 } else { held }));
        admitted
    }
}

/// One raw socket for each address family.
#[derive(Debug)]
pub(super) struct Injector {
    v4: Socket,
    v6: Option<Socket>,
    metrics: GuardMetrics,
}

impl Injector {
    /// Opens the sockets; `mark` is set on every packet that they send.
    ///
    /// # Errors
    /// Without `CAP_NET_RAW` (the sockets) or `CAP_NET_ADMIN` (the mark).
    pub(super) fn open(mark: u32, metrics: GuardMetrics) -> io::Result<Self> {
        let v4 = raw_socket(Domain::IPV4, mark)?;
        let v6 = match raw_socket(Domain::IPV6, mark) {
            // A kernel that runs no IPv6 has no IPv6 connections to reset either.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            socket => Some(socket?),
        };
        Ok(Self { v4, v6, metrics })
    }

    /// Sends both resets; `receiving` and `sending` are the interfaces towards the receiver and the
    /// sender of the stopped segment (only link-local addresses need them).
    pub(super) fn send(&self, resets: &Resets, receiving: u32, sending: u32) {
        for (packet, to, interface) in
            [(&resets.to_receiver, resets.receiver, receiving), (&resets.to_sender, resets.sender, sending)]
        {
            let result = match self.send_one(packet, to, interface) {
                Ok(()) => ResetResult::Sent,
                Err(_) => ResetResult::Failed,
            };
            self.metrics.resets(result).inc();
        }
    }

    /// Counts resets that are not sent, as there were too many.
    pub(super) fn hold_back(&self) {
        self.metrics.resets(ResetResult::Limited).inc_by(2);
    }

    fn send_one(&self, packet: &[u8], to: IpAddr, interface: u32) -> io::Result<()> {
        let (socket, address) = match to {
            IpAddr::V4(_) => (&self.v4, SocketAddr::new(to, 0)),
            IpAddr::V6(address) => {
                let scope = if address.is_unicast_link_local() { interface } else { 0 };
                let socket = self.v6.as_ref().ok_or(io::ErrorKind::Unsupported)?;
                (socket, SocketAddrV6::new(address, 0, 0, scope).into())
            }
        };
        socket.send_to(packet, &SockAddr::from(address)).map(drop)
    }
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
        let (mut allowance, start) = (Allowance::default(), Instant::now());
        let sent = |allowance: &mut Allowance, now| (0..10_000).filter(|_| allowance.admit(now)).count();
        assert_eq!(sent(&mut allowance, start), 256);
        assert_eq!(sent(&mut allowance, start + Duration::from_secs(1)), 64);
        assert_eq!(sent(&mut allowance, start + Duration::from_secs(3600)), 256);
    }
}
