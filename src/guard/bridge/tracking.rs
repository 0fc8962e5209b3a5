//! Ends connections for the kernel's tracking, which does not see the resets that leave by a port.
//!
//! Else a blocked connection would stay in its table as an open one for as long as that lasts, and the same
//! pair of ports would be blocked with it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::packet::{Addresses, Parsed, parse};

/// `NFNL_SUBSYS_CTNETLINK`, `IPCTNL_MSG_CT_NEW`; without `NLM_F_CREATE` it changes what is there.
const CHANGE: u16 = 1 << 8;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// `AF_INET` and `AF_INET6` as `struct nfgenmsg` has them.
const FAMILIES: [u8; 2] = [2, 10];
const TCP: u8 = 6;

/// `TCP_CONNTRACK_CLOSE`, what a reset leads to (`linux/netfilter/nf_conntrack_tcp.h`).
const CLOSED: u8 = 8;
/// Seconds that the kernel gives a connection in that state (`nf_conntrack_tcp_timeout_close`).
const TIMEOUT: u32 = 10;
/// `IP_CT_TCP_FLAG_CLOSE_INIT`, flag and mask: whoever opens the connection again gets a new one.
const REOPENS: [u8; 2] = [4, 4];

/// A socket to the kernel's tracking of connections.
#[derive(Debug)]
pub(super) struct Tracking(OwnedFd);

impl Tracking {
    /// Opens it in the calling thread's network namespace.
    ///
    /// # Errors
    /// Where the kernel has no such socket.
    pub(super) fn open() -> io::Result<Self> {
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Ends the connection that `packet` belongs to, where it is tracked.
    ///
    /// # Errors
    /// When the kernel could not be asked.
    pub(super) fn close(&self, packet: &[u8]) -> io::Result<()> {
        let Ok(Parsed::Tcp(segment)) = parse(packet, packet.len()) else { return Ok(()) };
        let ports = [segment.source_port(), segment.destination_port()];
        send(&self.0, &closing(segment.addresses(), ports), SendFlags::DONTWAIT)?;
        // Only refusals are answered: of connections that are not tracked, or not any more.
        while recv(&self.0, &mut [0_u8; 512], RecvFlags::DONTWAIT).is_ok() {}
        Ok(())
    }
}

/// The message that ends a connection, which either of its directions names.
fn closing(addresses: Addresses, ports: [u16; 2]) -> Vec<u8> {
    let (family, ip) = match addresses {
        Addresses::V4(source, destination) => {
            (FAMILIES[0], [attribute(1, &source), attribute(2, &destination)].concat())
        }
        Addresses::V6(source, destination) => {
            (FAMILIES[1], [attribute(3, &source), attribute(4, &destination)].concat())
        }
    };
    let [source, destination] = ports.map(u16::to_be_bytes);
    let protocol = [attribute(1, &[TCP]), attribute(2, &source), attribute(3, &destination)].concat();
    let tuple = [attribute(NESTED | 1, &ip), attribute(NESTED | 2, &protocol)].concat();
    let state = [attribute(1, &[CLOSED]), attribute(4, &REOPENS), attribute(5, &REOPENS)].concat();
    let body = [
        // `struct nfgenmsg`.
        vec![family, 0, 0, 0],
        // CTA_TUPLE_ORIG, CTA_PROTOINFO with CTA_PROTOINFO_TCP, CTA_TIMEOUT.
        attribute(NESTED | 1, &tuple),
        attribute(NESTED | 4, &attribute(NESTED | 1, &state)),
        attribute(7, &TIMEOUT.to_be_bytes()),
    ]
    .concat();
    let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(CHANGE.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// A `struct nlattr` with its value, padded to four octets.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut octets = length.to_ne_bytes().to_vec();
    octets.extend(kind.to_ne_bytes());
    octets.extend(value);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}
