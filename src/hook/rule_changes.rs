//! Notifications of the kernel about changed rules of `nf_tables`.
//!
//! The kernel reports every change of a table, chain or rule to the netlink group `NFNLGRP_NFTABLES`, from
//! any program: iptables-nft, `nft flush ruleset`, firewalld. The legacy interface sends no notifications.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::rule_text::TABLE;

/// `NFNLGRP_NFTABLES` as a bit of the address's group mask (`linux/netfilter/nfnetlink.h`).
const GROUPS: u32 = 1 << (7 - 1);
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of a message's type.
const SUBSYSTEM: u16 = 10;
/// `NFT_MSG_{NEW,DEL}{TABLE,CHAIN,RULE}`, the lower byte (`linux/netfilter/nf_tables.h`).
const CHANGES: [u16; 6] = [0, 2, 3, 5, 6, 8];
/// `NFTA_{TABLE_NAME,CHAIN_TABLE,RULE_TABLE}`: the name of the table, with a final zero byte.
const TABLE_NAME: u16 = 1;
/// Sizes of `struct nlmsghdr` and of `struct nfgenmsg`, in bytes.
const HEADERS: (usize, usize) = (16, 4);

/// Socket for notifications of changed rules.
#[derive(Debug)]
pub struct RuleChangeSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// Result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeReason {
    /// A table that may hold the hook has changed.
    Changed,
    /// The other descriptor became readable.
    Woken,
}

impl RuleChangeSocket {
    /// Opens the socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// `CAP_NET_ADMIN` is missing, or the kernel has no `nf_tables`.
    pub fn open() -> io::Result<Self> {
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { socket, buffer: vec![0; 1 << 16] })
    }

    /// Waits for a change, or until `wake` is readable.
    ///
    /// # Errors
    ///
    /// The socket fails, except for a signal or an overrun.
    pub fn wait(&mut self, wake: BorrowedFd<'_>) -> io::Result<WakeReason> {
        loop {
            let mut ready =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::from_borrowed_fd(wake, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            if !ready[1].revents().is_empty() {
                return Ok(WakeReason::Woken);
            }
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((octets, _)) if !may_concern_us(self.buffer.get(..octets).unwrap_or_default()) => {}
                // A notification lost in an overrun may have been about this table.
                Ok(_) | Err(Errno::NOBUFS) => return Ok(WakeReason::Changed),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// True if one of these netlink messages may be about the hook's table; unreadable ones may be.
fn may_concern_us(mut messages: &[u8]) -> bool {
    while !messages.is_empty() {
        let (Some(length), Some(kind)) = (number(messages, 0, 4), number(messages, 4, 2)) else {
            return true;
        };
        let Some(message) = messages.get(..length).filter(|message| message.len() >= HEADERS.0) else {
            return true;
        };
        let is_change =
            u16::try_from(kind).is_ok_and(|kind| kind >> 8 == SUBSYSTEM && CHANGES.contains(&(kind & 0xff)));
        if is_change && table_of(message).is_none_or(|table| table == TABLE.as_bytes()) {
            return true;
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// Returns the name of the changed table.
fn table_of(message: &[u8]) -> Option<&[u8]> {
    let mut attributes = message.get(HEADERS.0 + HEADERS.1..)?;
    loop {
        let length = number(attributes, 0, 2).filter(|length| *length >= 4)?;
        if number(attributes, 2, 2)? == usize::from(TABLE_NAME) {
            return attributes.get(4..length)?.strip_suffix(b"\0");
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// Returns a number of two or four bytes in the machine's byte order.
fn number(octets: &[u8], at: usize, length: usize) -> Option<usize> {
    let octets = octets.get(at..at + length)?;
    match *octets {
        [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d] => usize::try_from(u32::from_ne_bytes([a, b, c, d])).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, table: &str) -> Vec<u8> {
        let length = u16::try_from(4 + table.len() + 1).expect("a short name");
        let mut message = u32::from(20 + length.next_multiple_of(4)).to_ne_bytes().to_vec();
        message.extend(((SUBSYSTEM << 8) | kind).to_ne_bytes());
        message.extend([0; 14]);
        message.extend(length.to_ne_bytes());
        message.extend(TABLE_NAME.to_ne_bytes());
        message.extend(table.as_bytes());
        message.resize(20 + usize::from(length.next_multiple_of(4)), 0);
        message
    }

    #[test]
    fn only_changes_of_our_table_concern_us() {
        assert!(may_concern_us(&message(8, "mangle")));
        assert!(!may_concern_us(&message(8, "filter")), "another table");
        assert!(!may_concern_us(&message(12, "mangle")), "an element of a set");
        assert!(may_concern_us(&[message(6, "nat"), message(2, "mangle")].concat()));
        assert!(!may_concern_us(&[]));
    }

    #[test]
    fn what_cannot_be_read_may_concern_us() {
        let whole = message(8, "filter");
        for cut in 1..whole.len() {
            assert!(may_concern_us(&whole[..cut]), "{cut}");
        }
        assert!(may_concern_us(&[0; 7]));
        let mut endless = message(12, "filter");
        endless[..4].copy_from_slice(&0_u32.to_ne_bytes());
        assert!(may_concern_us(&endless), "a message without length");
    }
}
