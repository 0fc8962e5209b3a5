//! Messages by `recvmsg(2)` or `sendmsg(2)` with control messages from or for the kernel (`cmsg(3)`).

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use libc::{c_int, c_void};

/// Content of a control message.
///
/// # Safety
///
/// Any bytes of its size are a valid value.
pub(crate) unsafe trait ControlPayload: Copy {
    /// Level and type of the control message.
    const KIND: (c_int, c_int);
}

/// Size of the buffer for control messages in bytes, with a reserve.
const CONTROL: usize = 64;

/// A buffer that is aligned for `struct cmsghdr`.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL]);

/// Receives a message into `buffer`. Returns its length, and the content of its first control message if
/// that is a `T`.
///
/// # Errors
/// The same as `recvmsg(2)`.
pub(crate) fn receive<T: ControlPayload>(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: c_int,
) -> io::Result<(usize, Option<T>)> {
    let mut control = ControlBuffer([0; CONTROL]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a msghdr is pointers and numbers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL as _;
    // SAFETY: everything that `message` points to is live, writable and as long as said.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: recvmsg has just filled `message` in, and its control buffer is still live.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: null, or a header inside of the control buffer, which is aligned for one and holds all of its
    // message.
    Ok((length, unsafe { control_content(header) }))
}

/// A control message of two bytes, in the layout of `cmsg(3)`.
#[repr(C)]
struct ShortControlMessage {
    header: libc::cmsghdr,
    octets: [u8; 2],
    rest: [u8; size_of::<usize>() - 2],
}

// SAFETY: both compute from a number.
const _: () = assert!(offset_of!(ShortControlMessage, octets) == unsafe { libc::CMSG_LEN(0) } as usize);
// SAFETY: as above.
const _: () = assert!(size_of::<ShortControlMessage>() == unsafe { libc::CMSG_SPACE(2) } as usize);

/// Sends `parts`, one after the other, to the peer of `socket`. `beside` is a control message: its level,
/// its type and its two bytes. Returns the number of sent bytes.
///
/// # Errors
/// The same as `sendmsg(2)`.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    beside: Option<((c_int, c_int), [u8; 2])>,
) -> io::Result<usize> {
    // SAFETY: a cmsghdr is numbers, for which zero is a valid value.
    let header: libc::cmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut control = ShortControlMessage { header, octets: [0; 2], rest: [0; _] };
    // SAFETY: a msghdr is pointers and numbers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    // An `IoSlice` has the layout of an iovec, and the kernel writes nothing there.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    if let Some(((level, kind), octets)) = beside {
        control.header.cmsg_level = level;
        control.header.cmsg_type = kind;
        control.header.cmsg_len = (offset_of!(ShortControlMessage, octets) + octets.len()) as _;
        control.octets = octets;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<ShortControlMessage>() as _;
    }
    // SAFETY: everything that `message` points to is live, and as long as said; the kernel only reads it.
    let length = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Returns the content of a control message.
///
/// # Safety
///
/// `header` is null, or a live and aligned header with as many bytes as it says.
unsafe fn control_content<T: ControlPayload>(header: *const libc::cmsghdr) -> Option<T> {
    // SAFETY: null or a whole header, says the caller.
    let kind = unsafe { header.as_ref() }?;
    // SAFETY: computes from a number.
    let whole = unsafe { libc::CMSG_LEN(u32::try_from(size_of::<T>()).ok()?) };
    if (kind.cmsg_level, kind.cmsg_type) != T::KIND || kind.cmsg_len < whole as _ {
        return None;
    }
    // SAFETY: the message holds a whole `T` behind its header, as was just looked at.
    let data: *const c_void = unsafe { libc::CMSG_DATA(header) }.cast();
    // SAFETY: as above, and any bytes are a `T`; read without a claim about its alignment.
    Some(unsafe { ptr::read_unaligned(data.cast()) })
}
