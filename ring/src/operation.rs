//! The kernel's operations, and their submission entries.

use std::net::SocketAddr;
use std::ptr;

use io_uring::{opcode, squeue, types};

use crate::receive_buffers::GROUP;
use crate::slab::{OperationKey, OperationSlab, RawSocketAddress};

/// Operations that [`crate::Ring::new`] requires.
pub(super) const REQUIRED: [(u8, &str); 6] = [
    (opcode::Socket::CODE, "IORING_OP_SOCKET (Linux 5.19)"),
    (opcode::Connect::CODE, "IORING_OP_CONNECT (Linux 5.5)"),
    (opcode::Send::CODE, "IORING_OP_SEND (Linux 5.6)"),
    (opcode::Recv::CODE, "IORING_OP_RECV (Linux 5.6)"),
    (opcode::AsyncCancel::CODE, "IORING_OP_ASYNC_CANCEL (Linux 5.5)"),
    (opcode::Close::CODE, "IORING_OP_CLOSE (Linux 5.6)"),
];

/// Every operation that a ring may submit.
pub(super) const CODES: &[u8] = &[
    opcode::Socket::CODE,
    opcode::SetSockOpt::CODE,
    opcode::Connect::CODE,
    opcode::Send::CODE,
    opcode::Recv::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Close::CODE,
    #[cfg(test)]
    opcode::FixedFdInstall::CODE,
];

/// Every flag that an operation may have.
pub(super) const FLAGS: squeue::Flags = squeue::Flags::FIXED_FILE
    .union(squeue::Flags::IO_LINK)
    .union(squeue::Flags::IO_HARDLINK)
    .union(squeue::Flags::BUFFER_SELECT)
    .union(squeue::Flags::SKIP_SUCCESS);

/// A direct socket: an index into the ring's own table of descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectSocket(pub u32);

/// Address family of a new socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SocketFamily {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
}

impl SocketFamily {
    /// The family of an address.
    pub fn of(address: &SocketAddr) -> Self {
        if address.is_ipv4() { Self::Inet } else { Self::Inet6 }
    }

    fn domain(self) -> i32 {
        match self {
            Self::Inet => libc::AF_INET,
            Self::Inet6 => libc::AF_INET6,
        }
    }
}

/// The link of an operation to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationLink {
    /// None: the operation ends its chain.
    End,
    /// The next one starts when this one succeeds, and is cancelled when it fails.
    Success,
    /// The next one starts when this one is finished.
    Order,
}

impl OperationLink {
    pub(super) fn flags(self) -> squeue::Flags {
        match self {
            Self::End => squeue::Flags::empty(),
            Self::Success => squeue::Flags::IO_LINK,
            Self::Order => squeue::Flags::IO_HARDLINK,
        }
    }
}

/// An operation whose completion is reported.
#[derive(Debug)]
pub enum Operation {
    /// Connects a socket.
    Connect {
        /// The socket, of the address's family.
        socket: DirectSocket,
        /// The address to connect to.
        address: SocketAddr,
    },
    /// Receives available data into one of the ring's buffers; read it with [`crate::Ring::received`].
    Receive {
        /// A connected socket.
        socket: DirectSocket,
    },
    /// Sends `octets[from..]`; the result is the number of bytes sent.
    Send {
        /// A connected socket.
        socket: DirectSocket,
        /// The bytes, which the completion returns.
        octets: Vec<u8>,
        /// Number of leading bytes to skip.
        from: usize,
    },
}

impl Operation {
    /// The socket of the operation.
    pub(super) fn socket(&self) -> DirectSocket {
        match self {
            Self::Connect { socket, .. } | Self::Receive { socket } | Self::Send { socket, .. } => *socket,
        }
    }

    /// Moves the operation's data to the entry of `key`, and makes a submission entry that points there.
    pub(super) fn prepare<T>(self, slab: &mut OperationSlab<T>, key: OperationKey) -> squeue::Entry {
        match self {
            Self::Connect { socket, address } => {
                let (pointer, length) = slab.keep_address(key, RawSocketAddress::from(address));
                opcode::Connect::new(types::Fixed(socket.0), pointer, length).build()
            }
            // The kernel takes the length from the buffer that it chooses.
            Self::Receive { socket } => opcode::Recv::new(types::Fixed(socket.0), ptr::null_mut(), 0)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
            Self::Send { socket, octets, from } => {
                let octets = slab.keep_octets(key, octets);
                let octets = octets.get(from..).unwrap_or_default();
                let length = u32::try_from(octets.len()).unwrap_or(u32::MAX);
                // A peer that has closed completes the operation with EPIPE; without the flag the process
                // would get SIGPIPE (send(2)).
                opcode::Send::new(types::Fixed(socket.0), octets.as_ptr(), length)
                    .flags(libc::MSG_NOSIGNAL)
                    .build()
            }
        }
    }
}

/// An operation whose success is not reported. It owns no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachedOperation {
    /// Creates a TCP socket at this index, in place of the previous one.
    Open {
        /// The index.
        socket: DirectSocket,
        /// Its address family.
        family: SocketFamily,
    },
    /// Sends small segments at once (`TCP_NODELAY`), even if data is unacknowledged; disconnecting keeps
    /// the setting. It does nothing on a ring without [`crate::RingOptions::no_delay`], or on a kernel before
    /// Linux 6.7. Its failure is never reported: bytes only arrive later.
    NoDelay {
        /// The socket.
        socket: DirectSocket,
    },
    /// Disconnects a socket, with a reset if it was connected (`connect(AF_UNSPEC)`), so that it can
    /// connect again.
    Disconnect {
        /// The socket.
        socket: DirectSocket,
    },
    /// Closes a socket normally.
    Close {
        /// The socket.
        socket: DirectSocket,
    },
    /// Cancels an operation in flight, which then completes with `ECANCELED`.
    Cancel {
        /// The operation to cancel.
        operation: OperationKey,
    },
}

/// Marks the user data of detached operations; a [`OperationKey`] never has this bit.
const UNATTENDED: u64 = 1 << 63;
/// Shift of an detached operation's kind in its user data.
const KIND_SHIFT: u32 = 32;

/// The address that disconnects a socket.
static UNSPECIFIED: libc::sockaddr = libc::sockaddr { sa_family: 0, sa_data: [0; 14] };
const _: () = assert!(libc::AF_UNSPEC == 0);

/// The value that enables an option.
static ON: libc::c_int = 1;
/// Level and name of `TCP_NODELAY`.
const NO_DELAY: (u32, u32) = (libc::IPPROTO_TCP.cast_unsigned(), libc::TCP_NODELAY.cast_unsigned());

impl DetachedOperation {
    pub(super) fn prepare(self) -> squeue::Entry {
        match self {
            Self::Open { socket, family } => {
                // The kernel replaces the socket that was at this index (io_uring/filetable.c:
                // io_install_fixed_file), so a place needs no `Close` before it is reused.
                let place = types::DestinationSlot::try_from_slot_target(socket.0).ok();
                opcode::Socket::new(family.domain(), libc::SOCK_STREAM, 0).file_index(place).build()
            }
            Self::NoDelay { socket } => {
                let length = u32::try_from(size_of_val(&ON)).unwrap_or_default();
                let (level, name) = NO_DELAY;
                opcode::SetSockOpt::new(types::Fixed(socket.0), level, name, (&raw const ON).cast(), length)
                    .build()
            }
            Self::Disconnect { socket } => {
                let length = u32::try_from(size_of_val(&UNSPECIFIED)).unwrap_or_default();
                // connect(2) with AF_UNSPEC dissolves the association: the kernel resets a connected socket
                // and keeps the descriptor (net/ipv4/af_inet.c: inet_stream_connect; net/ipv4/tcp.c:
                // tcp_disconnect).
                opcode::Connect::new(types::Fixed(socket.0), &raw const UNSPECIFIED, length).build()
            }
            Self::Close { socket } => opcode::Close::new(types::Fixed(socket.0)).build(),
            // By user data, which is unique: the generation in it keeps a late cancellation from a newer
            // operation in the same entry.
            Self::Cancel { operation } => opcode::AsyncCancel::new(operation.user_data()).build(),
        }
    }

    /// The socket of the operation; none for a cancellation.
    pub(super) fn socket(self) -> Option<DirectSocket> {
        match self {
            Self::Open { socket, .. }
            | Self::NoDelay { socket }
            | Self::Disconnect { socket }
            | Self::Close { socket } => Some(socket),
            Self::Cancel { .. } => None,
        }
    }

    pub(super) fn user_data(self) -> u64 {
        let (kind, socket) = match self {
            Self::Open { socket, .. } => (DetachedKind::Open, socket),
            Self::Disconnect { socket } => (DetachedKind::Disconnect, socket),
            Self::Close { socket } => (DetachedKind::Close, socket),
            Self::NoDelay { socket } => (DetachedKind::NoDelay, socket),
            Self::Cancel { .. } => (DetachedKind::Cancel, NO_SOCKET),
        };
        UNATTENDED | (kind as u64) << KIND_SHIFT | u64::from(socket.0)
    }
}

/// No particular socket.
const NO_SOCKET: DirectSocket = DirectSocket(u32::MAX);

/// The kind of an detached operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum DetachedKind {
    Open,
    Disconnect,
    Close,
    NoDelay,
    Cancel,
}

/// The detached operation that a completion is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DetachedCompletion {
    pub(super) kind: DetachedKind,
    /// Its socket; [`NO_SOCKET`] for a cancellation.
    pub(super) socket: DirectSocket,
}

impl DetachedCompletion {
    /// Decodes user data; `None` if it belongs to an operation whose completion is reported.
    pub(super) fn of_user_data(user_data: u64) -> Option<Self> {
        if user_data & UNATTENDED == 0 {
            return None;
        }
        let [a, b, c, d, kind, ..] = user_data.to_le_bytes();
        let kinds =
            [DetachedKind::Open, DetachedKind::Disconnect, DetachedKind::Close, DetachedKind::NoDelay];
        let kind = kinds.get(usize::from(kind)).copied().unwrap_or(DetachedKind::Cancel);
        Some(Self { kind, socket: DirectSocket(u32::from_le_bytes([a, b, c, d])) })
    }
}
