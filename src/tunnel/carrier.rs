//! The UDP socket between the two peers: what is as long as a datagram may be, and how many go by one call.
//!
//! It is connected, so that the kernel takes no datagram from anybody but the peer.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use bannerwall_ffi::datagrams::{self, Train};
use rustix::io::Errno;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover, set_ipv6_mtu_discover,
    set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force,
};

use super::TunnelError;
use crate::diagnostics::tell;
use crate::metrics::TunnelDrop as Reason;

/// The most datagrams that the kernel cuts out of one send: `UDP_MAX_SEGMENTS` before Linux 6.10.
pub const MOST_SEGMENTS: usize = 64;

/// The longest that may be sent by one call: 65,535 octets with the headers of IPv4 and UDP.
const MOST_OCTETS: usize = 65_507;

/// Path MTUs that are used as they are; a packet has to fit into the pieces that it can be numbered by.
const SMALLEST_MTU: usize = 576;
const LARGEST_MTU: usize = 65_535;

/// What the socket's buffers hold: some dozens of the longest trains.
const BUFFER: usize = 8 << 20;

/// The socket.
#[derive(Debug)]
pub struct Carrier {
    socket: UdpSocket,
    local: SocketAddr,
    peer: SocketAddr,
    /// Octets that one datagram may have. The kernel is told with each send what its pieces were cut by: this
    /// may change meanwhile.
    each: AtomicUsize,
    /// True if the kernel cuts what is sent; where not, each datagram is sent by itself.
    cuts: AtomicBool,
}

impl Carrier {
    /// Opens it, from `local` to `peer`; `trains` sends and receives many datagrams a call.
    ///
    /// # Errors
    /// The addresses are of two families, `local` cannot be had, or there is no route to `peer`.
    pub fn open(local: SocketAddr, peer: SocketAddr, trains: bool) -> Result<Self, TunnelError> {
        if local.is_ipv4() != peer.is_ipv4() {
            return Err(TunnelError::Families);
        }
        let socket = UdpSocket::bind(local).map_err(|source| TunnelError::Bind { local, source })?;
        socket.connect(peer).map_err(|source| TunnelError::Connect { peer, source })?;
        // Connected, it has one address of the machine's, whichever of them were asked for.
        let local = socket.local_addr().map_err(TunnelError::Socket)?;
        let cuts = trains && datagrams::can_cut(&socket);
        if trains && !cuts {
            tell("bannerwall: this kernel sends datagrams one by one (no UDP_SEGMENT): the tunnel is slower");
        }
        let carrier = Self { socket, local, peer, each: AtomicUsize::new(0), cuts: AtomicBool::new(cuts) };
        carrier.prepare(trains).map_err(TunnelError::Socket)?;
        Ok(carrier)
    }

    fn prepare(&self, trains: bool) -> io::Result<()> {
        // Without CAP_NET_ADMIN the buffers are as large as the administrator lets everybody's be.
        let large = set_socket_recv_buffer_size_force(&self.socket, BUFFER)
            .and_then(|()| set_socket_send_buffer_size_force(&self.socket, BUFFER));
        if large.is_err() {
            let socket = socket2::SockRef::from(&self.socket);
            socket.set_recv_buffer_size(BUFFER)?;
            socket.set_send_buffer_size(BUFFER)?;
        }
        // What is too long for the way is told to us instead of being sent in fragments.
        if self.peer.is_ipv6() {
            set_ipv6_mtu_discover(&self.socket, Ipv6PathMtuDiscovery::DO)?;
        } else {
            set_ip_mtu_discover(&self.socket, Ipv4PathMtuDiscovery::DO)?;
        }
        if trains && datagrams::join(&self.socket).is_err() {
            tell("bannerwall: this kernel receives datagrams one by one (no UDP_GRO): the tunnel is slower");
        }
        self.look_at_path().map(drop)
    }

    /// Octets that one datagram may have.
    pub fn each(&self) -> usize {
        self.each.load(Relaxed)
    }

    /// How many datagrams of `each` octets go by one call.
    pub fn at_once(&self, each: usize) -> usize {
        if self.cuts.load(Relaxed) { (MOST_OCTETS / each.max(1)).clamp(1, MOST_SEGMENTS) } else { 1 }
    }

    /// Asks the kernel for the path's MTU and sends datagrams accordingly from now on.
    ///
    /// # Errors
    /// Where the socket is not what it should be.
    pub fn look_at_path(&self) -> io::Result<usize> {
        let mtu = if self.peer.is_ipv6() { ipv6_mtu(&self.socket)? } else { ip_mtu(&self.socket)? };
        let mtu = usize::try_from(mtu).unwrap_or(LARGEST_MTU).clamp(SMALLEST_MTU, LARGEST_MTU);
        self.each.store((mtu - headers(self.peer)).min(MOST_OCTETS), Relaxed);
        Ok(mtu)
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_one(&self, datagram: &[u8]) -> Result<(), Reason> {
        self.send(&[IoSlice::new(datagram)], datagram.len())
    }

    /// Sends datagrams, [`Self::at_once`] at most: all but the last of `each` octets.
    ///
    /// # Errors
    /// Why they were not sent. With [`Reason::TooLong`] the path has become narrower: the packet is to be cut
    /// anew.
    pub fn send(&self, parts: &[IoSlice<'_>], each: usize) -> Result<(), Reason> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let each = if length > each { Some(u16::try_from(each).map_err(|_| Reason::TooLong)?) } else { None };
        loop {
            let Err(error) = datagrams::send(&self.socket, parts, each) else { return Ok(()) };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                // An answer to an earlier datagram, which the next call does not give again.
                Some(Errno::CONNREFUSED) => return Err(Reason::Unreachable),
                Some(error) => return Err(self.failed(error, each.is_some())),
                None => return Err(Reason::NotSent),
            }
        }
    }

    fn failed(&self, error: Errno, was_cut: bool) -> Reason {
        match error {
            Errno::MSGSIZE | Errno::INVAL => {
                // The kernel has learnt of it by now; where not, the packet is lost and the next one tells.
                let _ = self.look_at_path();
                Reason::TooLong
            }
            // The device on the way cannot write checksums of what is to be cut (udp_send_skb).
            Errno::IO if was_cut => {
                if self.cuts.swap(false, Relaxed) {
                    tell(
                        "bannerwall: the device towards the peer takes datagrams one by one: the tunnel is slower",
                    );
                }
                Reason::TooLong
            }
            Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL => {
                Reason::Unreachable
            }
            Errno::NOBUFS | Errno::AGAIN | Errno::NOMEM => Reason::NoRoom,
            _ => Reason::NotSent,
        }
    }

    /// Waits for datagrams from the peer.
    ///
    /// # Errors
    /// When the socket is of no more use.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Train> {
        loop {
            match datagrams::receive(&self.socket, buffer) {
                Ok(train) => return Ok(train),
                // What became of datagrams that were sent was counted, or is not known.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// True if `packet` is a datagram of ours to the peer, which leads around in a circle.
    pub fn is_own(&self, packet: &[u8]) -> bool {
        super::ip::udp_ends(packet) == Some((self.local, self.peer))
    }
}

/// Octets of the headers of IP and UDP towards `peer`.
pub const fn headers(peer: SocketAddr) -> usize {
    match peer {
        SocketAddr::V4(_) => 20 + 8,
        SocketAddr::V6(_) => 40 + 8,
    }
}

/// True if the next call may fare better.
fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(
            Errno::INTR
                | Errno::CONNREFUSED
                | Errno::NETUNREACH
                | Errno::HOSTUNREACH
                | Errno::MSGSIZE
                | Errno::NETDOWN
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::OPNOTSUPP
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::ACCESS
                | Errno::NOMEM
                | Errno::NOBUFS
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_cut_as_its_pieces_are_whatever_the_path_has_become() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = "127.0.0.1:0".parse().unwrap();
        let carrier = Carrier::open(local, to.local_addr().unwrap(), true).unwrap();
        let mut buffer = [0; 2000];
        for now in [100, 400, 1000] {
            carrier.each.store(now, Relaxed);
            carrier.send(&[IoSlice::new(&[1; 250]), IoSlice::new(&[2; 500])], 250).unwrap();
            for expected in [[1; 250], [2; 250], [2; 250]] {
                let length = to.recv(&mut buffer).unwrap();
                assert_eq!(buffer[..length], expected, "{now}");
            }
            carrier.send_one(&[3; 999]).unwrap();
            assert_eq!(to.recv(&mut buffer).unwrap(), 999);
        }
    }
}
