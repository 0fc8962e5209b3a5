//! UDP socket between the two peers: the size of datagrams, and the number in one call.
//!
//! The socket is connected, so the kernel accepts datagrams only from the peer.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use bannerwall_ffi::udp_segmentation::{self, DatagramTrain};
use rustix::io::Errno;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover, set_ipv6_mtu_discover,
    set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force,
};

use super::TunnelError;
use crate::diagnostics::log_line;
use crate::metrics::TunnelDrop as Reason;

/// Limit of datagrams that the kernel splits from one send: `UDP_MAX_SEGMENTS` before Linux 6.10.
pub const MOST_SEGMENTS: usize = 64;

/// Limit of one send: 65,535 bytes with the headers of IPv4 and UDP.
const MOST_OCTETS: usize = 65_507;

/// Range of usable path MTUs; a packet must fit into the numbered pieces.
const SMALLEST_MTU: usize = 576;
const LARGEST_MTU: usize = 65_535;

/// Size of the socket's buffers: some dozens of the longest trains.
const BUFFER: usize = 8 << 20;

/// Socket to the peer.
#[derive(Debug)]
pub struct PeerSocket {
    socket: UdpSocket,
    local: SocketAddr,
    peer: SocketAddr,
    /// Limit of one datagram in bytes. Each send passes its own value to the kernel, since this may change
    /// meanwhile.
    each: AtomicUsize,
    /// True if the kernel splits sends; otherwise each datagram needs a call.
    cuts: AtomicBool,
}

impl PeerSocket {
    /// Opens the socket from `local` to `peer`; `trains` enables many datagrams a call.
    ///
    /// # Errors
    ///
    /// The addresses have different families, `local` is not available, or there is no route to `peer`.
    pub fn open(local: SocketAddr, peer: SocketAddr, trains: bool) -> Result<Self, TunnelError> {
        if local.is_ipv4() != peer.is_ipv4() {
            return Err(TunnelError::Families);
        }
        let socket = UdpSocket::bind(local).map_err(|source| TunnelError::Bind { local, source })?;
        // A connected socket gets ICMP errors and the path MTU of its route, and the kernel drops
        // datagrams of others.
        socket.connect(peer).map_err(|source| TunnelError::Connect { peer, source })?;
        // A connected socket has a specific local address, even if the requested one was unspecified.
        let local = socket.local_addr().map_err(TunnelError::Socket)?;
        let cuts = trains && udp_segmentation::can_cut(&socket);
        if trains && !cuts {
            log_line(
                "bannerwall: this kernel sends datagrams one by one (no UDP_SEGMENT): the tunnel is slower",
            );
        }
        let carrier = Self { socket, local, peer, each: AtomicUsize::new(0), cuts: AtomicBool::new(cuts) };
        carrier.prepare(trains).map_err(TunnelError::Socket)?;
        Ok(carrier)
    }

    fn prepare(&self, trains: bool) -> io::Result<()> {
        // Without CAP_NET_ADMIN the buffers are limited by the administrator's sysctl.
        let large = set_socket_recv_buffer_size_force(&self.socket, BUFFER)
            .and_then(|()| set_socket_send_buffer_size_force(&self.socket, BUFFER));
        if large.is_err() {
            let socket = socket2::SockRef::from(&self.socket);
            socket.set_recv_buffer_size(BUFFER)?;
            socket.set_send_buffer_size(BUFFER)?;
        }
        // The kernel must report datagrams above the path MTU instead of fragmenting them.
        if self.peer.is_ipv6() {
            set_ipv6_mtu_discover(&self.socket, Ipv6PathMtuDiscovery::DO)?;
        } else {
            set_ip_mtu_discover(&self.socket, Ipv4PathMtuDiscovery::DO)?;
        }
        if trains && udp_segmentation::join(&self.socket).is_err() {
            log_line(
                "bannerwall: this kernel receives datagrams one by one (no UDP_GRO): the tunnel is slower",
            );
        }
        self.look_at_path().map(drop)
    }

    /// Returns the limit of one datagram in bytes.
    pub fn each(&self) -> usize {
        self.each.load(Relaxed)
    }

    /// Returns the number of datagrams of `each` bytes in one call.
    pub fn at_once(&self, each: usize) -> usize {
        if self.cuts.load(Relaxed) { (MOST_OCTETS / each.max(1)).clamp(1, MOST_SEGMENTS) } else { 1 }
    }

    /// Updates the limit of a datagram from the kernel's path MTU, and returns that.
    ///
    /// # Errors
    ///
    /// The socket is invalid.
    pub fn look_at_path(&self) -> io::Result<usize> {
        let mtu = if self.peer.is_ipv6() { ipv6_mtu(&self.socket)? } else { ip_mtu(&self.socket)? };
        let mtu = usize::try_from(mtu).unwrap_or(LARGEST_MTU).clamp(SMALLEST_MTU, LARGEST_MTU);
        self.each.store((mtu - headers(self.peer)).min(MOST_OCTETS), Relaxed);
        Ok(mtu)
    }

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_one(&self, datagram: &[u8]) -> Result<(), Reason> {
        self.send(&[IoSlice::new(datagram)], datagram.len())
    }

    /// Sends up to [`Self::at_once`] datagrams; all but the last have `each` bytes.
    ///
    /// # Errors
    ///
    /// Reason of the failure. After [`Reason::TooLong`] the path MTU is smaller, and the packet must be split
    /// again.
    pub fn send(&self, parts: &[IoSlice<'_>], each: usize) -> Result<(), Reason> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let each = if length > each { Some(u16::try_from(each).map_err(|_| Reason::TooLong)?) } else { None };
        loop {
            let Err(error) = udp_segmentation::send(&self.socket, parts, each) else { return Ok(()) };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                // This reports an earlier datagram, and the next call will not repeat it.
                Some(Errno::CONNREFUSED) => return Err(Reason::Unreachable),
                Some(error) => return Err(self.failed(error, each.is_some())),
                None => return Err(Reason::NotSent),
            }
        }
    }

    fn failed(&self, error: Errno, was_cut: bool) -> Reason {
        match error {
            Errno::MSGSIZE | Errno::INVAL => {
                // The kernel usually knows the new MTU by now. If not, this packet is lost, and a later one
                // reports it.
                let _ = self.look_at_path();
                Reason::TooLong
            }
            // The outgoing device cannot compute checksums of split datagrams (udp_send_skb).
            Errno::IO if was_cut => {
                if self.cuts.swap(false, Relaxed) {
                    log_line(
                        "bannerwall: the network device to the peer sends datagrams one by one: the tunnel is slower",
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
    ///
    /// The socket is unusable.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<DatagramTrain> {
        loop {
            match udp_segmentation::receive(&self.socket, buffer) {
                Ok(train) => return Ok(train),
                // These errors are about sent datagrams, which are already counted.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// True if `packet` is one of the tunnel's own datagrams to the peer, so that the route forms a loop.
    pub fn is_own(&self, packet: &[u8]) -> bool {
        super::ip::udp_ends(packet) == Some((self.local, self.peer))
    }
}

/// Returns the size of the IP and UDP headers towards `peer`, in bytes.
pub const fn headers(peer: SocketAddr) -> usize {
    match peer {
        SocketAddr::V4(_) => 20 + 8,
        SocketAddr::V6(_) => 40 + 8,
    }
}

/// True if the error is temporary.
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
        let carrier = PeerSocket::open(local, to.local_addr().unwrap(), true).unwrap();
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
