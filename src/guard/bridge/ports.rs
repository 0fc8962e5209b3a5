//! The ports of all bridges of this network namespace, as the kernel lists them (`rtnetlink(7)`).

use std::collections::BTreeSet;
use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// Length of `struct nlmsghdr`, in bytes.
const HEADER: usize = 16;
/// `AF_BRIDGE`: restricts the list of links to bridge ports.
const BRIDGE: u8 = 7;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const LIST: u16 = 0x301;

/// Returns the interface indices of all ports.
///
/// # Errors
///
/// The kernel does not list them.
pub(super) fn list() -> io::Result<BTreeSet<u32>> {
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    // `struct nlmsghdr`, then `struct ifinfomsg`.
    let mut request = [0; 32];
    request[..4].copy_from_slice(&32_u32.to_ne_bytes());
    request[4..6].copy_from_slice(&GET_LINK.to_ne_bytes());
    request[6..8].copy_from_slice(&LIST.to_ne_bytes());
    request[HEADER] = BRIDGE;
    send(&socket, &request, SendFlags::empty())?;
    let (mut ports, mut buffer) = (BTreeSet::new(), vec![0; 1 << 16]);
    loop {
        // The kernel has the next part ready before this call can sleep.
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if !read(buffer.get(..length).unwrap_or_default(), &mut ports) {
            return Ok(ports);
        }
    }
}

/// Reads one part of the list. Returns false if it was the last.
fn read(mut messages: &[u8], ports: &mut BTreeSet<u32>) -> bool {
    while let Some((length, kind)) = header(messages) {
        match kind {
            NEW_LINK => {
                let index = messages.get(HEADER + 4..).and_then(<[u8]>::first_chunk);
                ports.extend(index.map(|octets| u32::from_ne_bytes(*octets)));
            }
            // NLMSG_DONE, NLMSG_ERROR, or an unrequested message.
            _ => return false,
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    // Bytes that form no message end the list.
    messages.is_empty()
}

/// Returns the length and type of the first message, if it is complete.
fn header(messages: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(*messages.first_chunk()?);
    let kind = u16::from_ne_bytes(*messages.get(4..)?.first_chunk()?);
    let length = usize::try_from(length).ok()?;
    (length >= HEADER && length <= messages.len()).then_some((length, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_where_it_says_so_and_where_it_cannot_be_read() {
        let message = |kind: u16, index: u32| {
            let mut message = [0; 32];
            message[..4].copy_from_slice(&32_u32.to_ne_bytes());
            message[4..6].copy_from_slice(&kind.to_ne_bytes());
            message[20..24].copy_from_slice(&index.to_ne_bytes());
            message
        };
        let mut ports = BTreeSet::new();
        assert!(read(&[message(NEW_LINK, 5), message(NEW_LINK, 9)].concat(), &mut ports));
        assert!(!read(&message(3, 7), &mut ports), "NLMSG_DONE");
        assert_eq!(ports, BTreeSet::from([5, 9]));
        let whole = message(NEW_LINK, 5);
        for cut in 1..whole.len() {
            assert!(!read(&whole[..cut], &mut ports), "{cut}");
        }
        assert!(list().is_ok(), "this kernel tells");
    }
}
