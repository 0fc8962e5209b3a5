//! A netlink socket for one queue: options, sends, and its own loss counter.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, socklen_t};

use crate::error::CallError;

/// Index of the loss counter in `SO_MEMINFO`'s array (`SK_MEMINFO_DROPS` in `linux/sock_diag.h`).
const MEMORY_DROPS: usize = 8;
/// Length of that array (`SK_MEMINFO_VARS`).
const MEMORY_VARIABLES: usize = 9;

/// Opens a netlink socket to netfilter with an address that the kernel chooses. It is connected to the
/// kernel, so sends need no address and no other process can send to it.
pub(super) fn open() -> Result<OwnedFd, CallError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER) };
    if fd < 0 {
        return Err(CallError::last("socket(AF_NETLINK, NETLINK_NETFILTER)"));
    }
    // SAFETY: `fd` was just opened and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let address = kernel();
    let length = address_length();
    // SAFETY: `address` is a valid sockaddr_nl of `length` bytes for the length of the call.
    let result = unsafe { libc::bind(fd, ptr::from_ref(&address).cast(), length) };
    if result < 0 {
        return Err(CallError::last("bind(AF_NETLINK)"));
    }
    // SAFETY: `address` is a valid sockaddr_nl of `length` bytes for the length of the call.
    let result = unsafe { libc::connect(fd, ptr::from_ref(&address).cast(), length) };
    if result < 0 {
        return Err(CallError::last("connect(AF_NETLINK)"));
    }
    Ok(socket)
}

/// Returns the socket's own netlink address.
pub(super) fn portid(socket: BorrowedFd<'_>) -> Result<u32, CallError> {
    let mut address = kernel();
    let mut length = address_length();
    let at = ptr::from_mut(&mut address).cast();
    // SAFETY: `at` and `length` describe a live sockaddr_nl that the kernel may write.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), at, &raw mut length) };
    if result < 0 { Err(CallError::last("getsockname(AF_NETLINK)")) } else { Ok(address.nl_pid) }
}

/// Sends whole messages to the kernel, which has processed each of them when this returns.
pub(super) fn send(socket: &OwnedFd, messages: &[u8]) -> Result<(), CallError> {
    // SAFETY: the pointer is to live memory of the length that goes with it.
    let sent = unsafe { libc::send(socket.as_raw_fd(), messages.as_ptr().cast(), messages.len(), 0) };
    if sent < 0 { Err(CallError::last("send(AF_NETLINK)")) } else { Ok(()) }
}

/// Requests a receive buffer of `octets` bytes, beyond the system's limit if that is permitted. Returns
/// the size that the kernel granted (it doubles the request for its own overhead).
pub(super) fn set_receive_buffer(socket: BorrowedFd<'_>, octets: usize) -> Result<usize, CallError> {
    let wanted = c_int::try_from(octets).unwrap_or(c_int::MAX);
    // SO_RCVBUFFORCE needs CAP_NET_ADMIN; SO_RCVBUF stays below net.core.rmem_max (socket(7)).
    if set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &wanted, "setsockopt(SO_RCVBUFFORCE)").is_err() {
        set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &wanted, "setsockopt(SO_RCVBUF)")?;
    }
    let mut granted: c_int = 0;
    read(socket, libc::SO_RCVBUF, &mut granted, "getsockopt(SO_RCVBUF)")?;
    Ok(usize::try_from(granted).unwrap_or(0))
}

/// Keeps the socket readable after an overrun. Without this it would return only ENOBUFS until it is
/// empty. The loss counter still counts.
pub(super) fn set_no_enobufs(socket: BorrowedFd<'_>) -> Result<(), CallError> {
    set(socket, libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, &1, "setsockopt(NETLINK_NO_ENOBUFS)")
}

/// Sets the timeout of a blocking receive.
pub(super) fn set_receive_timeout(socket: BorrowedFd<'_>, timeout: Duration) -> Result<(), CallError> {
    let value = libc::timeval {
        // A time longer than the kernel can count becomes 0, which means no timeout.
        tv_sec: timeout.as_secs().try_into().unwrap_or_default(),
        tv_usec: timeout.subsec_micros().into(),
    };
    set(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value, "setsockopt(SO_RCVTIMEO)")
}

/// Returns the number of messages that did not fit into the socket's receive buffer since it was opened.
pub(super) fn drops(socket: BorrowedFd<'_>) -> Result<u64, CallError> {
    let mut memory = [0_u32; MEMORY_VARIABLES];
    read(socket, libc::SO_MEMINFO, &mut memory, "getsockopt(SO_MEMINFO)")?;
    Ok(memory.get(MEMORY_DROPS).copied().unwrap_or(0).into())
}

/// True if `socket` is a netlink socket to netfilter.
pub(super) fn is_netfilter(socket: BorrowedFd<'_>) -> bool {
    let number = |option, call| {
        let mut value: c_int = -1;
        read(socket, option, &mut value, call).map(|()| value)
    };
    number(libc::SO_DOMAIN, "getsockopt(SO_DOMAIN)").is_ok_and(|domain| domain == libc::AF_NETLINK)
        && number(libc::SO_PROTOCOL, "getsockopt(SO_PROTOCOL)")
            .is_ok_and(|protocol| protocol == libc::NETLINK_NETFILTER)
}

/// Prevents programs that this process starts from inheriting `socket`.
pub(super) fn close_on_exec(socket: BorrowedFd<'_>) -> Result<(), CallError> {
    // SAFETY: takes no pointers.
    let result = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    if result < 0 { Err(CallError::last("fcntl(FD_CLOEXEC)")) } else { Ok(()) }
}

/// Waits up to `timeout` until the socket is readable; returns false on a timeout.
pub(super) fn wait_readable(socket: BorrowedFd<'_>, timeout: Duration) -> Result<bool, CallError> {
    let mut request = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: `request` is one live pollfd.
    let ready = unsafe { libc::poll(&raw mut request, 1, millis) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = CallError::last("poll");
    if error.source.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}

/// Returns the kernel's address.
fn kernel() -> libc::sockaddr_nl {
    // SAFETY: a sockaddr_nl is plain numbers, for which zero is a valid value.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::sa_family_t::try_from(libc::AF_NETLINK).unwrap_or_default();
    address
}

fn address_length() -> socklen_t {
    socklen_t::try_from(size_of::<libc::sockaddr_nl>()).unwrap_or_default()
}

fn set<T>(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &T,
    call: &'static str,
) -> Result<(), CallError> {
    let length = socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let at = ptr::from_ref(value).cast();
    // SAFETY: `at` points to a live T of `length` bytes.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, length) };
    if result < 0 { Err(CallError::last(call)) } else { Ok(()) }
}

/// A type for which any bytes are a valid value.
///
/// # Safety
///
/// Every pattern of bits is a valid value of the type, and it has no padding.
unsafe trait PlainOptionValue {}

// SAFETY: a number.
unsafe impl PlainOptionValue for c_int {}
// SAFETY: numbers without anything between them.
unsafe impl PlainOptionValue for [u32; MEMORY_VARIABLES] {}

/// Reads an option of `SOL_SOCKET` into `value`; bytes for which the kernel has no data stay.
fn read<T: PlainOptionValue>(
    socket: BorrowedFd<'_>,
    option: c_int,
    value: &mut T,
    call: &'static str,
) -> Result<(), CallError> {
    let mut length = socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let at = ptr::from_mut(value).cast();
    // SAFETY: `at` points to a live T of `length` bytes, which may be any.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, at, &raw mut length) };
    if result < 0 { Err(CallError::last(call)) } else { Ok(()) }
}
