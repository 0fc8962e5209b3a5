//! Ethernet frames by packet sockets (`packet(7)`): receives those of one interface, and sends complete
//! frames by an interface.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd as _, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, sockaddr_ll, socklen_t, tpacket_auxdata};

use crate::control_message::{self, ControlPayload};
use crate::error::CallError;

/// One instruction of a classic BPF program: code, jump if true, jump if false, operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BpfInstruction(pub u16, pub u8, pub u8, pub u32);

/// The VLAN tag of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// `EtherType` of the tag: 0x8100 or 0x88a8.
    pub protocol: u16,
    /// Priority and VLAN id.
    pub control: u16,
}

/// A frame that an interface received; its start was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedFrame<'a> {
    /// The bytes from its destination address on, without its outer tag.
    pub octets: &'a [u8],
    /// The outer tag.
    pub tag: Option<VlanTag>,
}

/// A packet socket that never blocks.
#[derive(Debug)]
pub struct FrameSocket(OwnedFd);

impl FrameSocket {
    /// Opens a socket for sending, which receives nothing.
    ///
    /// # Errors
    ///
    /// Without `CAP_NET_RAW`, or if the kernel has no packet sockets.
    pub fn sending() -> Result<Self, CallError> {
        const KIND: c_int = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0: nothing is received until the socket is bound to another.
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, KIND, 0) };
        if fd < 0 {
            return Err(CallError::last("socket(AF_PACKET)"));
        }
        // SAFETY: `fd` was just opened and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Opens a socket that receives the frames of the interface with index `interface`, as far as
    /// `filter` accepts them.
    ///
    /// # Errors
    ///
    /// The same as [`FrameSocket::sending`]; also if there is no such interface, or if the filter is
    /// invalid.
    pub fn watching(interface: u32, filter: &[BpfInstruction]) -> Result<Self, CallError> {
        let socket = Self::sending()?;
        // Filter and options come before the bind, from which on frames arrive.
        socket.filter(filter)?;
        socket.switch_on(libc::PACKET_AUXDATA, "setsockopt(PACKET_AUXDATA)")?;
        socket.switch_on(libc::PACKET_IGNORE_OUTGOING, "setsockopt(PACKET_IGNORE_OUTGOING)")?;
        let address = address(interface, libc::ETH_P_ALL);
        // SAFETY: `address` is a live `sockaddr_ll` of the length given.
        let result =
            unsafe { libc::bind(socket.0.as_raw_fd(), ptr::from_ref(&address).cast(), LENGTH_OF_ADDRESS) };
        if result < 0 { Err(CallError::last("bind(AF_PACKET)")) } else { Ok(socket) }
    }

    /// Sends `frame`, from its destination address on, by the interface with index `interface`.
    ///
    /// # Errors
    ///
    /// The interface is gone, down or full.
    pub fn send(&self, interface: u32, frame: &[u8]) -> io::Result<()> {
        let address = address(interface, 0);
        // SAFETY: `frame` and `address` are live and as long as said; the kernel only reads them.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                ptr::from_ref(&address).cast(),
                LENGTH_OF_ADDRESS,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the next waiting frame with its start in `buffer`; none if no frame waits.
    ///
    /// # Errors
    ///
    /// The interface is down or gone.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<ReceivedFrame<'a>>> {
        let (length, data) = match control_message::receive(self.0.as_fd(), buffer, libc::MSG_DONTWAIT) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let tag = data.and_then(|data: tpacket_auxdata| tag_of(&data));
        Ok(buffer.get(..length).map(|octets| ReceivedFrame { octets, tag }))
    }

    fn filter(&self, filter: &[BpfInstruction]) -> Result<(), CallError> {
        let mut program: Vec<libc::sock_filter> = filter
            .iter()
            .map(|&BpfInstruction(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
            .collect();
        let length = u16::try_from(program.len()).unwrap_or(u16::MAX);
        let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
            .map_err(|source| CallError { call: "setsockopt(SO_ATTACH_FILTER)", source })
    }

    fn switch_on(&self, option: c_int, call: &'static str) -> Result<(), CallError> {
        let on: c_int = 1;
        self.set(libc::SOL_PACKET, option, &on).map_err(|source| CallError { call, source })
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let length = socklen_t::try_from(size_of::<T>()).unwrap_or(socklen_t::MAX);
        // SAFETY: `value` is live and `length` bytes long; the kernel only reads it, and what the program of
        // `filter` points to.
        let result = unsafe {
            libc::setsockopt(self.0.as_raw_fd(), level, option, ptr::from_ref(value).cast(), length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a structure of 20 bytes")]
const LENGTH_OF_ADDRESS: socklen_t = size_of::<sockaddr_ll>() as socklen_t;

/// Returns the address of an interface; `protocol` is in host byte order.
fn address(interface: u32, protocol: c_int) -> sockaddr_ll {
    sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
        sll_protocol: u16::try_from(protocol).unwrap_or_default().to_be(),
        sll_ifindex: c_int::try_from(interface).unwrap_or_default(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

// SAFETY: a structure of numbers.
unsafe impl ControlPayload for tpacket_auxdata {
    const KIND: (c_int, c_int) = (libc::SOL_PACKET, libc::PACKET_AUXDATA);
}

fn tag_of(data: &tpacket_auxdata) -> Option<VlanTag> {
    const IEEE_802_1Q: u16 = 0x8100;
    let has = |bit: u32| data.tp_status & bit != 0;
    has(libc::TP_STATUS_VLAN_VALID).then(|| VlanTag {
        protocol: if has(libc::TP_STATUS_VLAN_TPID_VALID) { data.tp_vlan_tpid } else { IEEE_802_1Q },
        control: data.tp_vlan_tci,
    })
}
