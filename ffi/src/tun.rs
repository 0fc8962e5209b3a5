//! Network devices whose packets a process reads and writes (`tun(4)`, `linux/if_tun.h`).

use std::ffi::{CStr, c_int, c_short};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::ptr;

use libc::{Ioctl, c_char, c_uint, ifreq};

use crate::error::CallError;

/// `_IOW('T', 220, int)`: numbers of the header before each packet are little-endian on every machine.
const TUNSETVNETLE: Ioctl = 0x4004_54dc;

/// `_IOW('T', 216, int)`: length of the header before each packet.
const TUNSETVNETHDRSZ: Ioctl = 0x4004_54d8;

/// Number of bytes of that header: a `struct virtio_net_hdr` without extensions.
const HEADER: c_int = 10;

/// Work that a device leaves to the process: checksums, and segmenting packets longer than its MTU (TCP,
/// and UDP since Linux 6.2).
const TCP: c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
const TCP_AND_UDP: c_uint = TCP | libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Attaches `file`, `/dev/net/tun` opened for reading and writing, to the device `name`, which is created
/// if it does not exist. Returns the device's name, because `name` may be a pattern (`bw%d`).
///
/// Each read returns one packet from its IP header on, and each write takes one. With `super_packets`, a
/// `struct virtio_net_hdr` of ten bytes, little-endian, precedes each. Such a packet may be up to 64 KiB
/// long, still to be segmented, or lack its checksum.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, unless the device exists and belongs to the user; `EBUSY` if another
/// process has it; `EINVAL` if `name` is invalid, or that of another kind of device.
pub fn attach(file: &File, name: &str, super_packets: bool) -> Result<String, CallError> {
    // SAFETY: an ifreq is numbers, and pointers that no request here looks at: zero is a valid value.
    let mut request: ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return Err(CallError::of("ioctl(TUNSETIFF)", libc::EINVAL));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | if super_packets { libc::IFF_VNET_HDR } else { 0 };
    request.ifr_ifru.ifru_flags = c_short::try_from(flags).unwrap_or_default();
    // SAFETY: `request` is a live ifreq, which the kernel reads and writes its name into.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(CallError::last("ioctl(TUNSETIFF)"));
    }
    set_offload(file, super_packets)?;
    // SAFETY: the name is there, and the kernel ends it by a zero.
    let given = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    Ok(given.to_string_lossy().into_owned())
}

/// Sets whether the kernel passes super-packets to `file`, which [`attach`] attached with them. If not,
/// the kernel segments them before each read. This needs no capability, and works for open connections.
///
/// # Errors
/// The same as `ioctl(TUNSETOFFLOAD)`.
pub fn take_super_packets(file: &File, are_taken: bool) -> Result<(), CallError> {
    let is_set =
        // Segmentation of UDP came with Linux 6.2; older kernels reject the whole request.
        if are_taken { ask(file, TCP_AND_UDP) || ask(file, TCP) } else { ask(file, libc::TUN_F_CSUM) };
    if is_set { Ok(()) } else { Err(CallError::last("ioctl(TUNSETOFFLOAD)")) }
}

fn ask(file: &File, features: c_uint) -> bool {
    // SAFETY: the argument is a number; no pointer is handed over.
    unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(features)) >= 0 }
}

fn set_offload(file: &File, super_packets: bool) -> Result<(), CallError> {
    if !super_packets {
        return if ask(file, 0) { Ok(()) } else { Err(CallError::last("ioctl(TUNSETOFFLOAD)")) };
    }
    take_super_packets(file, true)?;
    // A device that existed before may have the length of another program.
    // SAFETY: `HEADER` is an integer that outlives the call, which the kernel reads.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETVNETHDRSZ, ptr::from_ref(&HEADER)) };
    if result < 0 {
        return Err(CallError::last("ioctl(TUNSETVNETHDRSZ)"));
    }
    let on: c_int = 1;
    // SAFETY: `on` is a live integer, which the kernel reads.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETVNETLE, ptr::from_ref(&on)) };
    if result < 0 { Err(CallError::last("ioctl(TUNSETVNETLE)")) } else { Ok(()) }
}
