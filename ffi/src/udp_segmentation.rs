//! Trains of UDP datagrams: many of one length, sent and received by one call each (`udp(7)`,
//! `UDP_SEGMENT` and `UDP_GRO`).

use std::io::{self, IoSlice};
use std::mem::size_of;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr;

use libc::{c_int, socklen_t};

use crate::control_message::{self, ControlPayload};
use crate::error::CallError;

/// The datagrams of one receive call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramTrain {
    /// Number of bytes in all.
    pub length: usize,
    /// Number of bytes of each datagram except the last, which may be shorter; 0 if there is only one.
    pub each: usize,
}

/// True if the kernel splits the data of [`send`]: since Linux 4.18.
pub fn can_cut(socket: &UdpSocket) -> bool {
    let mut each: c_int = 0;
    let mut length = socklen_t::try_from(size_of::<c_int>()).unwrap_or(socklen_t::MAX);
    // SAFETY: `each` is a live integer of `length` bytes, which the kernel writes; it writes `length`, too.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw mut each).cast(),
            &raw mut length,
        )
    };
    result == 0
}

/// Sends `parts`, one after the other, to the peer of `socket`. The kernel splits them into datagrams of
/// `each` bytes, of which the last may be shorter; without `each` they are one datagram. The size is a
/// parameter of the call, not of the socket, so that threads with different sizes do not disturb each
/// other.
///
/// # Errors
/// The same as `sendmsg(2)`: `EINVAL` or `EMSGSIZE` if a datagram is longer than the path's MTU, `EIO` if
/// the device on the path writes no checksums.
pub fn send(socket: &UdpSocket, parts: &[IoSlice<'_>], each: Option<u16>) -> io::Result<()> {
    // The kernel reads a `u16` in native byte order (udp(7)).
    let each = each.map(u16::to_ne_bytes);
    control_message::send(socket.as_fd(), parts, each.map(|each| ((libc::SOL_UDP, libc::UDP_SEGMENT), each)))
        .map(drop)
}

/// Lets [`receive`] return several datagrams at once.
///
/// # Errors
/// The kernel is older than Linux 5.0.
pub fn join(socket: &UdpSocket) -> Result<(), CallError> {
    set(socket, libc::UDP_GRO, 1, "setsockopt(UDP_GRO)")
}

/// Waits for datagrams and writes them one after the other into `buffer`. Data that does not fit is lost:
/// 64 KiB suffice.
///
/// # Errors
/// The same as `recvmsg(2)`, including errors of earlier datagrams such as `ECONNREFUSED`.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<DatagramTrain> {
    let (length, each) = control_message::receive::<SegmentSize>(socket.as_fd(), buffer, 0)?;
    Ok(DatagramTrain {
        length,
        each: each.and_then(|SegmentSize(each)| usize::try_from(each).ok()).unwrap_or(0),
    })
}

/// Number of bytes of each datagram, if the kernel has joined several.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
struct SegmentSize(c_int);

// SAFETY: an integer.
unsafe impl ControlPayload for SegmentSize {
    const KIND: (c_int, c_int) = (libc::SOL_UDP, libc::UDP_GRO);
}

fn set(socket: &UdpSocket, option: c_int, value: c_int, call: &'static str) -> Result<(), CallError> {
    let length = socklen_t::try_from(size_of::<c_int>()).unwrap_or(socklen_t::MAX);
    // SAFETY: `value` is a live integer of `length` bytes, which the kernel reads.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, ptr::from_ref(&value).cast(), length)
    };
    if result < 0 { Err(CallError::last(call)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_were_cut_from_one_are_received_as_one() {
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        join(&to).expect("Linux 5.0");
        assert!(can_cut(&from), "Linux 4.18");
        let sent: Vec<u8> = (0..2500_u16).map(|number| number.to_ne_bytes()[0]).collect();
        let (start, end) = sent.split_at(700);
        send(&from, &[IoSlice::new(start), IoSlice::new(end)], Some(1000)).unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut received: Vec<u8> = Vec::new();
        while received.len() < sent.len() {
            let train = receive(&to, &mut buffer).unwrap();
            assert!(train.each == 1000 || train.length <= 1000, "{train:?}");
            received.extend_from_slice(&buffer[..train.length]);
        }
        assert_eq!(received, sent);
        // The size is that of one call.
        send(&from, &[IoSlice::new(&sent)], None).unwrap();
        assert_eq!(receive(&to, &mut buffer).unwrap(), DatagramTrain { length: sent.len(), each: 0 });
        send(&from, &[IoSlice::new(b"short")], Some(1000)).unwrap();
        assert_eq!(receive(&to, &mut buffer).unwrap(), DatagramTrain { length: 5, each: 0 });
    }
}
