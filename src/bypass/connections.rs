//! Sets connections to liberal tracking in the kernel. The kernel sees few of a bypassed connection's
//! segments. Without this flag, a segment far outside of the known window would belong to no connection, and
//! would lack the mark that lets it pass.
//!
//! The kernel's own flowtables set the same flag for the same reason (`flow_offload_fixup_tcp`). It is sent
//! by ctnetlink (`linux/netfilter/nfnetlink_conntrack.h`), one connection at a time.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::packet::Addresses;

/// `IPCTNL_MSG_CT_NEW` of `NFNL_SUBSYS_CTNETLINK`.
const CHANGE: u16 = 1 << 8;
/// `NLM_F_REQUEST` and `NLM_F_ACK`; without `NLM_F_CREATE` no connection is created.
const ACKNOWLEDGED: u16 = 1 | 4;
/// `NLMSG_ERROR`, also the type of an acknowledgement.
const ANSWER: u16 = 2;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// `CTA_TUPLE_ORIG`, which is matched in either direction, and its content.
const TUPLE: u16 = 1;
const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
/// `CTA_IP_V4_SRC` and `CTA_IP_V4_DST`, and those of IPv6.
const V4: [u16; 2] = [1, 2];
const V6: [u16; 2] = [3, 4];
/// `CTA_PROTO_NUM`, `CTA_PROTO_SRC_PORT`, `CTA_PROTO_DST_PORT`.
const PROTOCOL: [u16; 3] = [1, 2, 3];
/// `CTA_PROTOINFO`, `CTA_PROTOINFO_TCP`, and the flags of both directions in it.
const STATE: u16 = 4;
const STATE_OF_TCP: u16 = 1;
const FLAGS: [u16; 2] = [4, 5];
/// `IP_CT_TCP_FLAG_BE_LIBERAL`, and the mask that leaves the other flags alone.
const LIBERAL: [u8; 2] = [8, 8];

/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// Socket to connection tracking, for one thread.
pub(super) struct Connections {
    socket: OwnedFd,
    number: Cell<u32>,
}

impl Connections {
    /// Opens the socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel has no ctnetlink, or `CAP_NET_ADMIN` is missing.
    pub(super) fn open() -> io::Result<Self> {
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        let connections = Self { socket, number: Cell::new(0) };
        // This connection cannot exist, so any error but ENOENT is about the kernel.
        match connections.change(Addresses::V4([0; 4], [0; 4]), 0, 0) {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(connections),
            Err(error) => Err(error),
            Ok(()) => Ok(connections),
        }
    }

    /// Makes the tracking of a connection liberal: it accepts segments with any sequence numbers.
    ///
    /// # Errors
    ///
    /// There is no such connection, its addresses are translated (by a rule that may be gone), or the kernel
    /// refuses.
    pub(super) fn loosen(&self, addresses: Addresses, source: u16, destination: u16) -> io::Result<()> {
        // With translated addresses, one direction is not the reverse of the other. This call then fails, and
        // the flow stays with the hook.
        self.change(addresses.reversed(), destination, source)?;
        self.change(addresses, source, destination)
    }

    fn change(&self, addresses: Addresses, source: u16, destination: u16) -> io::Result<()> {
        let number = self.number.get().wrapping_add(1);
        self.number.set(number);
        send(&self.socket, &message(addresses, source, destination, number), SendFlags::empty())?;
        let mut buffer = [0; 256];
        // The kernel replies before `send` returns.
        loop {
            let (count, _) = recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
            if let Some(answer) = answer(buffer.get(..count).unwrap_or_default(), number) {
                return answer;
            }
        }
    }
}

/// Parses a reply; none if it belongs to another message.
fn answer(octets: &[u8], number: u32) -> Option<io::Result<()>> {
    let kind = u16::from_ne_bytes(*octets.get(4..)?.first_chunk()?);
    let of = u32::from_ne_bytes(*octets.get(8..)?.first_chunk()?);
    let error = i32::from_ne_bytes(*octets.get(16..)?.first_chunk()?);
    let is_ours = kind == ANSWER && of == number;
    is_ours
        .then(|| if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error.saturating_neg())) })
}

fn message(addresses: Addresses, source: u16, destination: u16, number: u32) -> Vec<u8> {
    let (family, addresses) = match addresses {
        Addresses::V4(from, to) => (2, [attribute(V4[0], &from), attribute(V4[1], &to)]),
        Addresses::V6(from, to) => (10, [attribute(V6[0], &from), attribute(V6[1], &to)]),
    };
    let protocol = [
        attribute(PROTOCOL[0], &[TCP]),
        attribute(PROTOCOL[1], &source.to_be_bytes()),
        attribute(PROTOCOL[2], &destination.to_be_bytes()),
    ];
    let tuple = [nested(TUPLE_ADDRESSES, &addresses), nested(TUPLE_PROTOCOL, &protocol)];
    let flags = nested(STATE_OF_TCP, &FLAGS.map(|direction| attribute(direction, &LIBERAL)));
    // `struct nfgenmsg`: family, version, number of a resource.
    let body = [vec![family, 0, 0, 0], nested(TUPLE, &tuple), nested(STATE, &[flags])].concat();
    let mut message = Vec::with_capacity(16 + body.len());
    let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    message.extend(length.to_ne_bytes());
    message.extend(CHANGE.to_ne_bytes());
    message.extend(ACKNOWLEDGED.to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    message
}

/// Builds an attribute, padded to four bytes; its length excludes the padding.
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

    #[test]
    fn a_message_is_what_ctnetlink_takes() {
        let sent = message(Addresses::V4([192, 0, 2, 1], [198, 51, 100, 2]), 0x1234, 22, 7);
        // Lengths: 16 header, 4 family, tuple 4 + (4 + 16) + (4 + 24), state 4 + 4 + 16.
        assert_eq!(sent.len(), 16 + 4 + 52 + 24);
        assert_eq!(sent[..4], 96_u32.to_ne_bytes());
        assert_eq!(sent[16], 2);
        assert_eq!(sent[20..24], [&52_u16.to_ne_bytes()[..], &(TUPLE | NESTED).to_ne_bytes()].concat());
        assert_eq!(sent[32..36], [192, 0, 2, 1]);
        assert_eq!(sent[60..62], [0x12, 0x34]);
        assert_eq!(sent[84..88], [8, 8, 0, 0]);
        let v6 = message(Addresses::V6([1; 16], [2; 16]), 1, 2, 7);
        assert_eq!(v6.len(), sent.len() + 24);
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
            ]
            .concat()
        };
        assert!(matches!(answer(&told(ANSWER, 7, 0), 7), Some(Ok(()))));
        let refused = answer(&told(ANSWER, 7, -2), 7);
        assert!(refused.is_some_and(|it| it.is_err_and(|error| error.raw_os_error() == Some(2))));
        assert!(answer(&told(ANSWER, 6, 0), 7).is_none());
        assert!(answer(&told(3, 7, 0), 7).is_none());
        assert!(answer(&[0; 18], 7).is_none(), "cut");
    }
}
