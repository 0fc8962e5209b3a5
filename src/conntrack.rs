//! Access to the kernel's connection tracking over ctnetlink (`linux/netfilter/nfnetlink_conntrack.h`), one
//! connection at a time. It knows no flow and no rule.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::event::Endpoint;
use crate::packet::Segment;

/// `IPCTNL_MSG_CT_NEW`, `IPCTNL_MSG_CT_GET` and `IPCTNL_MSG_CT_GET_STATS` of `NFNL_SUBSYS_CTNETLINK`.
const NEW: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;
const GET_STATISTICS: u16 = 1 << 8 | 5;
/// `CTA_STATS_GLOBAL_ENTRIES`.
const ENTRIES: u16 = 1;
/// `NLM_F_REQUEST`, `NLM_F_ACK`, `NLM_F_DUMP`; without `NLM_F_CREATE` the kernel creates nothing.
const REQUEST: u16 = 1;
const ACKNOWLEDGED: u16 = 4;
const DUMP: u16 = 0x300;
/// `NLMSG_ERROR`, which is also the type of an acknowledgement, and `NLMSG_DONE`.
const ANSWER: u16 = 2;
const DONE: u16 = 3;
/// `NLA_F_NESTED`, and `NLA_TYPE_MASK`: the bits of a type without flags.
const NESTED: u16 = 1 << 15;
const TYPE: u16 = 0x3fff;
/// `struct nlmsghdr` and `struct nfgenmsg`.
const HEADER: usize = 16;
const HEADERS: usize = 20;

/// `CTA_TUPLE_ORIG`, which the kernel looks up in both directions, and `CTA_TUPLE_REPLY`.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
/// `CTA_TUPLE_IP` and `CTA_TUPLE_PROTO`.
const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
/// `CTA_IP_V4_SRC` and `CTA_IP_V4_DST`, and those of IPv6.
const V4: [u16; 2] = [1, 2];
const V6: [u16; 2] = [3, 4];
/// `CTA_PROTO_NUM`, `CTA_PROTO_SRC_PORT`, `CTA_PROTO_DST_PORT`.
const PROTOCOL: [u16; 3] = [1, 2, 3];
/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// `CTA_PROTOINFO` and `CTA_PROTOINFO_TCP`, which holds the state and the flags of both directions.
const PROTOCOL_STATE: u16 = 4;
const STATE_OF_TCP: u16 = 1;
const STATE: u16 = 1;
const FLAGS: [u16; 2] = [4, 5];
/// `IP_CT_TCP_FLAG_BE_LIBERAL`, and the mask that leaves the other flags unchanged.
const LIBERAL: [u8; 2] = [8, 8];
/// `IP_CT_TCP_FLAG_CLOSE_INIT`, flag and mask: a SYN that opens the connection again gets a new entry.
const REOPENS: [u8; 2] = [4, 4];
/// `TCP_CONNTRACK_CLOSE`, the state after a reset.
const CLOSED: u8 = 8;
/// `CTA_TIMEOUT`, and the seconds that the kernel gives such a connection (`nf_conntrack_tcp_timeout_close`).
const TIMEOUT: u16 = 7;
const CLOSED_TIMEOUT: u32 = 10;
/// `CTA_FILTER`, `CTA_FILTER_ORIG_FLAGS`, `CTA_FILTER_REPLY_FLAGS`.
const FILTER: u16 = 25;
const FILTERED: [u16; 2] = [1, 2];
/// `CTA_FILTER_F_CTA_IP_SRC`, `…_PROTO_NUM`, `…_PROTO_SRC_PORT`: a tuple's source.
const BY_SOURCE: u32 = 1 | 8 | 16;

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConntrackTuple {
    /// Address and port that it comes from.
    pub source: Endpoint,
    /// Address and port that it goes to.
    pub destination: Endpoint,
}

impl ConntrackTuple {
    /// Returns the direction of a segment.
    pub fn of(segment: &Segment<'_>) -> Self {
        Self { source: segment.source(), destination: segment.destination() }
    }

    /// Returns the other direction, if no address is translated.
    pub const fn reversed(&self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

/// A tracked connection: its tuple as the opening end sends it, and as the other end does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedConnection {
    /// From the opening end to the address that it connected to.
    pub original: ConntrackTuple,
    /// From the accepting end to the address that the connection came from.
    pub reply: ConntrackTuple,
}

impl TrackedConnection {
    /// Returns the peer as `end` sees it, which is not the other end if addresses are translated.
    pub fn peer_of(&self, end: Endpoint) -> Option<Endpoint> {
        let direction = [self.original, self.reply].into_iter().find(|tuple| tuple.source == end)?;
        Some(direction.destination)
    }
}

/// A netlink socket to the connection tracking.
#[derive(Debug)]
pub struct ConntrackSocket {
    socket: OwnedFd,
    number: u32,
}

impl ConntrackSocket {
    /// Opens the socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// This kernel has no ctnetlink, or `CAP_NET_ADMIN` is missing.
    pub fn open() -> io::Result<Self> {
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        let mut conntrack = Self { socket, number: 0 };
        // No connection has this tuple. Any answer but ENOENT shows that the tracking is missing or not
        // permitted.
        let nowhere = Endpoint { address: IpAddr::from([0; 4]), port: 0 };
        conntrack.find(&ConntrackTuple { source: nowhere, destination: nowhere })?;
        Ok(conntrack)
    }

    /// Returns the connection of which `tuple` is a direction.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn find(&mut self, tuple: &ConntrackTuple) -> io::Result<Option<TrackedConnection>> {
        // Without NLM_F_ACK: the connection itself is the only message, and `take` stops at it.
        self.request(GET, 0, tuple, &[nested(ORIGINAL, &direction(tuple))])?;
        let mut found = None;
        let result = self.receive(|body| {
            found = connection(body);
            true
        });
        match result {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
            result => result.map(|()| found),
        }
    }

    /// Returns the connection of two ends neither of which knows the other's address. For this the kernel
    /// walks over all connections.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn find_between(&mut self, ends: &ConntrackTuple) -> io::Result<Option<TrackedConnection>> {
        // Either end may have opened the connection.
        for ends in [*ends, ends.reversed()] {
            let filter = FILTERED.map(|side| attribute(side, &BY_SOURCE.to_ne_bytes()));
            let sources = [
                nested(ORIGINAL, &direction(&ends)),
                nested(REPLY, &direction(&ends.reversed())),
                nested(FILTER, &filter),
            ];
            self.request(GET, DUMP, &ends, &sources)?;
            let mut found = None;
            // Linux before 5.8 ignores the filter and lists all connections.
            let is_it = |it: &TrackedConnection| {
                it.original.source == ends.source && it.reply.source == ends.destination
            };
            // Read to the end even if it was found: as long as a dump runs, the socket's next dump gets EBUSY
            // (net/netlink/af_netlink.c: __netlink_dump_start).
            self.receive(|body| {
                found = found.or(connection(body).filter(is_it));
                false
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// True if the kernel tracks no connection in this network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn is_empty(&mut self) -> io::Result<bool> {
        self.send(GET_STATISTICS, 0, 0, &[])?;
        let mut entries = None;
        self.receive(|body| {
            entries = find(body, ENTRIES).and_then(|value| value.first_chunk().copied());
            true
        })?;
        Ok(entries.map(u32::from_be_bytes) == Some(0))
    }

    /// Makes the tracking accept a connection's segments whatever their sequence numbers are.
    ///
    /// # Errors
    /// There is no such connection, its addresses are translated (the rule for that may be gone), or the
    /// kernel refuses.
    pub fn relax_sequence_checks(&mut self, tuple: &ConntrackTuple) -> io::Result<()> {
        let flags = FLAGS.map(|direction| attribute(direction, &LIBERAL));
        let state = [nested(PROTOCOL_STATE, &[nested(STATE_OF_TCP, &flags)])];
        // If addresses are translated, the reversed tuple belongs to no connection. So it goes first, and
        // fails before anything has changed.
        self.change(&tuple.reversed(), &state)?;
        self.change(tuple, &state)
    }

    /// Closes a connection in the tracking, which has not seen the resets that ended it. Otherwise a blocked
    /// connection would stay open there, and later connections of the same ports would be blocked with it.
    ///
    /// # Errors
    /// There is no such connection, or the kernel refuses.
    pub fn close(&mut self, tuple: &ConntrackTuple) -> io::Result<()> {
        let [from, to] = FLAGS.map(|direction| attribute(direction, &REOPENS));
        let state = nested(STATE_OF_TCP, &[attribute(STATE, &[CLOSED]), from, to]);
        // The kernel changes the state alone and would keep the timeout of an open connection, five days by
        // default (net/netfilter/nf_conntrack_netlink.c: ctnetlink_change_conntrack).
        let timeout = attribute(TIMEOUT, &CLOSED_TIMEOUT.to_be_bytes());
        self.change(tuple, &[nested(PROTOCOL_STATE, &[state]), timeout])
    }

    fn change(&mut self, tuple: &ConntrackTuple, attributes: &[Vec<u8>]) -> io::Result<()> {
        // CTA_TUPLE_ORIG is looked up in both directions, so the caller need not know which end opened the
        // connection (nf_conntrack_find_get).
        let body = [&[nested(ORIGINAL, &direction(tuple))], attributes].concat();
        self.request(NEW, ACKNOWLEDGED, tuple, &body)?;
        self.receive(|_| false)
    }

    fn request(
        &mut self,
        kind: u16,
        flags: u16,
        tuple: &ConntrackTuple,
        attributes: &[Vec<u8>],
    ) -> io::Result<()> {
        let family = if tuple.source.address.is_ipv4() { 2 } else { 10 };
        self.send(kind, flags, family, attributes)
    }

    fn send(&mut self, kind: u16, flags: u16, family: u8, attributes: &[Vec<u8>]) -> io::Result<()> {
        self.number = self.number.wrapping_add(1);
        let message = message((kind, flags | REQUEST), family, self.number, attributes);
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }

    /// Reads the answer to the last request, up to its end or until `take` returns true.
    fn receive(&self, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        let mut buffer = [0; 32 << 10];
        loop {
            // Nothing has to be waited for: netlink handles a request within `send`, and continues a dump
            // within `recv` (net/netlink/af_netlink.c: netlink_unicast_kernel, netlink_recvmsg).
            let (count, _) = recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
            let mut rest = buffer.get(..count).unwrap_or_default();
            while let Some((answer, behind)) = ConntrackMessage::split(rest, self.number) {
                rest = behind;
                match answer {
                    ConntrackMessage::End(result) => return result,
                    ConntrackMessage::Body(body) if take(body) => return Ok(()),
                    ConntrackMessage::Body(_) | ConntrackMessage::Other => {}
                }
            }
        }
    }
}

/// One message of the kernel.
enum ConntrackMessage<'a> {
    /// The request is done.
    End(io::Result<()>),
    /// Attributes of a connection, or of the statistics.
    Body(&'a [u8]),
    /// It belongs to another request.
    Other,
}

impl<'a> ConntrackMessage<'a> {
    fn split(octets: &'a [u8], number: u32) -> Option<(Self, &'a [u8])> {
        let length = usize::try_from(u32::from_ne_bytes(*octets.first_chunk()?)).ok()?;
        let message = octets.get(..length).filter(|message| message.len() >= HEADER)?;
        let behind = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
        let of = u32::from_ne_bytes(*message.get(8..)?.first_chunk()?);
        let answer = match kind {
            // Left over from a request whose answer was not read to its end.
            _ if of != number => Self::Other,
            ANSWER => Self::End(match i32::from_ne_bytes(*message.get(HEADER..)?.first_chunk()?) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
            }),
            DONE => Self::End(Ok(())),
            NEW | GET_STATISTICS => Self::Body(message.get(HEADERS..).unwrap_or_default()),
            _ => Self::Other,
        };
        Some((answer, behind))
    }
}

/// Parses the two directions in the attributes of a connection.
fn connection(body: &[u8]) -> Option<TrackedConnection> {
    let tuple = |kind| {
        let tuple = find(body, kind)?;
        let (addresses, protocol) = (find(tuple, TUPLE_ADDRESSES)?, find(tuple, TUPLE_PROTOCOL)?);
        let endpoint = |side: usize| {
            let address = match find(addresses, *V4.get(side)?) {
                Some(address) => IpAddr::from(*address.first_chunk::<4>()?),
                None => IpAddr::from(*find(addresses, *V6.get(side)?)?.first_chunk::<16>()?),
            };
            let port = find(protocol, *PROTOCOL.get(side + 1)?)?;
            Some(Endpoint { address, port: u16::from_be_bytes(*port.first_chunk()?) })
        };
        Some(ConntrackTuple { source: endpoint(0)?, destination: endpoint(1)? })
    };
    Some(TrackedConnection { original: tuple(ORIGINAL)?, reply: tuple(REPLY)? })
}

/// Returns the value of the first attribute of a kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [low, high, kind_low, kind_high] = *attributes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([kind_low, kind_high]) & TYPE == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn direction(tuple: &ConntrackTuple) -> [Vec<u8>; 2] {
    let address = |kinds: [u16; 2], endpoint: Endpoint| match endpoint.address {
        IpAddr::V4(address) => attribute(kinds[0], &address.octets()),
        IpAddr::V6(address) => attribute(kinds[1], &address.octets()),
    };
    let addresses = [address([V4[0], V6[0]], tuple.source), address([V4[1], V6[1]], tuple.destination)];
    let protocol = [
        attribute(PROTOCOL[0], &[TCP]),
        attribute(PROTOCOL[1], &tuple.source.port.to_be_bytes()),
        attribute(PROTOCOL[2], &tuple.destination.port.to_be_bytes()),
    ];
    [nested(TUPLE_ADDRESSES, &addresses), nested(TUPLE_PROTOCOL, &protocol)]
}

fn message((kind, flags): (u16, u16), family: u8, number: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    // `struct nfgenmsg`: family, version, number of a resource.
    let body = [vec![family, 0, 0, 0], attributes.concat()].concat();
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    [
        &length.to_ne_bytes()[..],
        &kind.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &number.to_ne_bytes(),
        &0_u32.to_ne_bytes(),
        &body,
    ]
    .concat()
}

/// Builds an attribute, padded to a multiple of four bytes. Its length excludes the padding.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut attribute = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &attributes.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(source: &str, destination: &str) -> ConntrackTuple {
        let endpoint = |text: &str| {
            let address: std::net::SocketAddr = text.parse().unwrap();
            Endpoint { address: address.ip(), port: address.port() }
        };
        ConntrackTuple { source: endpoint(source), destination: endpoint(destination) }
    }

    #[test]
    fn a_message_is_what_ctnetlink_takes() {
        let sent = |tuple: &ConntrackTuple| {
            message((NEW, REQUEST | ACKNOWLEDGED), 2, 7, &[nested(ORIGINAL, &direction(tuple))])
        };
        let message = sent(&tuple("192.0.2.1:4660", "198.51.100.2:22"));
        // Lengths: 16 header, 4 family, tuple 4 + (4 + 16) + (4 + 24).
        assert_eq!(message.len(), 16 + 4 + 52);
        assert_eq!(message[..4], 72_u32.to_ne_bytes());
        assert_eq!(message[16], 2);
        assert_eq!(message[20..24], [&52_u16.to_ne_bytes()[..], &(ORIGINAL | NESTED).to_ne_bytes()].concat());
        assert_eq!(message[32..36], [192, 0, 2, 1]);
        assert_eq!(message[60..62], [0x12, 0x34]);
        assert_eq!(sent(&tuple("[2001:db8::1]:1", "[2001:db8::2]:2")).len(), message.len() + 24);
    }

    #[test]
    fn a_connection_is_read_as_it_was_written() {
        for (original, reply) in [
            (tuple("192.0.2.2:40000", "192.0.2.1:8080"), tuple("198.51.100.2:80", "198.51.100.1:40001")),
            (tuple("[2001:db8::1]:1", "[2001:db8::2]:2"), tuple("[2001:db8::2]:2", "[2001:db8::1]:1")),
        ] {
            let written = [
                nested(ORIGINAL, &direction(&original)),
                attribute(3, &[0; 4]),
                nested(REPLY, &direction(&reply)),
            ]
            .concat();
            let read = connection(&written).expect("both directions");
            assert_eq!(read, TrackedConnection { original, reply });
            assert_eq!(read.peer_of(reply.source), Some(reply.destination));
            assert_eq!(read.peer_of(original.source), Some(original.destination));
            (0..written.len()).for_each(|length| assert_eq!(connection(&written[..length]), None, "cut"));
        }
    }

    #[test]
    fn an_answer_belongs_to_its_message() {
        let told = |kind: u16, number: u32, error: i32| {
            [
                &[36, 0, 0, 0][..],
                &kind.to_ne_bytes(),
                &[0, 0],
                &number.to_ne_bytes(),
                &[0; 4],
                &error.to_ne_bytes(),
                &[0; 16],
            ]
            .concat()
        };
        let first = |octets: &[u8]| match ConntrackMessage::split(octets, 7)?.0 {
            ConntrackMessage::End(result) => {
                Some(result.map_err(|error| error.raw_os_error().unwrap_or_default()))
            }
            ConntrackMessage::Body(_) | ConntrackMessage::Other => None,
        };
        assert_eq!(first(&told(ANSWER, 7, 0)), Some(Ok(())));
        assert_eq!(first(&told(ANSWER, 7, -2)), Some(Err(2)));
        assert_eq!(first(&told(DONE, 7, 0)), Some(Ok(())));
        assert_eq!(first(&told(ANSWER, 6, 0)), None);
        assert_eq!(first(&[0; 18]), None, "cut");
    }
}
