//! Messages to the kernel, written by `libnetfilter_queue`; only this module calls it.
//!
//! Its functions do not check bounds, so each is called only if its bytes fit; see
//! [`attribute`](super::attribute).

use libc::nlmsghdr;

use super::attribute::{ATTRIBUTE_HEADER, HEADERS, has_room};
use crate::sys;

/// `nfq_nlmsg_put`.
#[must_use]
pub(super) fn begin(message: &mut [u32], kind: u16, queue: u16) -> bool {
    if message.len() * 4 < HEADERS {
        return false;
    }
    // SAFETY: the slice has room for the 20 bytes of both headers, and begins at a word, as they must.
    unsafe { sys::nfq_nlmsg_put(message.as_mut_ptr().cast(), kind.into(), queue.into()) };
    true
}

/// `nfq_nlmsg_cfg_put_cmd`.
#[must_use]
pub(super) fn command(message: &mut [u32], command: u8) -> bool {
    // SAFETY: `with` found the bytes that this takes behind a message that `begin` began.
    with(message, 8, |header| unsafe { sys::nfq_nlmsg_cfg_put_cmd(header, 0, command) })
}

/// `nfq_nlmsg_cfg_put_params`.
#[must_use]
pub(super) fn copy(message: &mut [u32], mode: u8, range: u32) -> bool {
    let range = range.cast_signed();
    // SAFETY: `with` found the bytes that this takes (a header of 4, 5, and padding) behind a message that
    // `begin` began.
    with(message, 12, |header| unsafe { sys::nfq_nlmsg_cfg_put_params(header, mode, range) })
}

/// `nfq_nlmsg_cfg_put_qmaxlen`.
#[must_use]
pub(super) fn maximum_length(message: &mut [u32], length: u32) -> bool {
    // SAFETY: `with` found the bytes that this takes behind a message that `begin` began.
    with(message, 8, |header| unsafe { sys::nfq_nlmsg_cfg_put_qmaxlen(header, length) })
}

/// `nfq_nlmsg_verdict_put`.
#[must_use]
pub(super) fn verdict(message: &mut [u32], id: u32, code: u32) -> bool {
    let (id, code) = (id.cast_signed(), code.cast_signed());
    // SAFETY: `with` found the bytes that this takes behind a message that `begin` began.
    with(message, 12, |header| unsafe { sys::nfq_nlmsg_verdict_put(header, id, code) })
}

/// `nfq_nlmsg_verdict_put_mark`.
#[must_use]
pub(super) fn mark(message: &mut [u32], mark: u32) -> bool {
    // SAFETY: `with` found the bytes that this takes behind a message that `begin` began.
    with(message, 8, |header| unsafe { sys::nfq_nlmsg_verdict_put_mark(header, mark) })
}

/// `nfq_nlmsg_verdict_put_pkt`.
#[must_use]
pub(super) fn payload(message: &mut [u32], octets: &[u8]) -> bool {
    let Ok(length) = u16::try_from(octets.len() + ATTRIBUTE_HEADER) else { return false };
    let count = u32::from(length) - 4;
    let room = usize::from(length).next_multiple_of(4);
    // SAFETY: `with` found the bytes that this takes (a header of 4, `octets`, and padding) behind a message
    // that `begin` began; `count` of `octets` are read.
    with(message, room, |header| unsafe {
        sys::nfq_nlmsg_verdict_put_pkt(header, octets.as_ptr().cast(), count);
    })
}

/// Lets the library add `room` bytes to a message that has space for them.
fn with(message: &mut [u32], room: usize, add: impl FnOnce(*mut nlmsghdr)) -> bool {
    let fits = has_room(message, room);
    if fits {
        add(message.as_mut_ptr().cast());
    }
    fits
}
