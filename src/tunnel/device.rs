//! The tun device: packets that the kernel routes to the peer, and those from the peer for the kernel to route.
//!
//! Addresses, routes, up and down are for `ip(8)`. A device that is there already (`ip tuntap add`) is taken over as it
//! is; another one lives as long as this value.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read as _, Write as _};

use bannerwall_ffi::tun;
use rustix::io::Errno;

use super::TunnelError;
use super::link::{self, Setting};
use crate::metrics::TunnelDrop as Reason;

/// Octets of `struct virtio_net_hdr`, which says what is still to be done to a packet (`linux/virtio_net.h`).
pub const HEADER: usize = 10;

/// Where devices are made.
const CLONE: &str = "/dev/net/tun";

/// A header that asks nothing.
const NONE: [u8; HEADER] = [0; HEADER];

/// In the header's first octet: the checksum is still to be written.
const NEEDS_CHECKSUM: u8 = 1;

/// The device.
#[derive(Debug)]
pub struct Device {
    file: File,
    name: String,
    super_packets: bool,
    is_ours: bool,
}

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many octets.
    Octets(usize),
    /// The device was deleted.
    Gone,
}

impl Device {
    /// Makes or takes over the device `name`; `super_packets` takes packets before they are segmented.
    ///
    /// # Errors
    /// Without the permission, where the name is bad, or the device is another program's.
    pub fn open(name: &str, super_packets: bool) -> Result<Self, TunnelError> {
        let file = OpenOptions::new().read(true).write(true).open(CLONE).map_err(TunnelError::Clone)?;
        let was_there = link::exists(name);
        let fault = |source| TunnelError::Attach { name: name.to_owned(), source };
        let name = tun::attach(&file, name, super_packets).map_err(fault)?;
        Ok(Self { file, name, super_packets, is_ours: !was_there })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was made for this value.
    pub fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Whether packets come and go before they are segmented, a header before each.
    pub fn has_super_packets(&self) -> bool {
        self.super_packets
    }

    /// Makes a setting.
    ///
    /// # Errors
    /// As [`link::set`].
    pub fn set(&self, setting: Setting, value: usize) -> io::Result<()> {
        link::set(&self.name, setting, u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Waits for a packet.
    ///
    /// # Errors
    /// Where it cannot be read any more though it is there.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Read> {
        loop {
            match (&self.file).read(buffer) {
                Ok(octets) => return Ok(Read::Octets(octets)),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::BADFD) => return Ok(Read::Gone),
                    // Who waits while it is deleted hears EFAULT first (tun_ring_recv).
                    Some(Errno::INTR | Errno::FAULT) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Puts before a packet from the peer what the device wants there. `parts` begin with an empty one, which is the
    /// room for it.
    ///
    /// # Errors
    /// The device cannot do what is still to be done to the packet, or it is none.
    pub fn dress<'a>(&self, parts: &mut [IoSlice<'a>]) -> Result<(), Reason> {
        let [room, first, ..] = parts else { return Err(Reason::Malformed) };
        match (super::ip::is_ip(first), self.super_packets) {
            (true, true) => *room = IoSlice::new(&NONE),
            (false, false) if asks_nothing(first) => first.advance(HEADER),
            (false, false) => return Err(Reason::Offload),
            (true, false) | (false, true) => {}
        }
        Ok(())
    }

    /// Gives a packet of our own to the kernel.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn inject(&self, packet: &[u8]) -> Result<(), Reason> {
        let mut parts = [IoSlice::new(&[]), IoSlice::new(packet)];
        self.dress(&mut parts)?;
        self.write(&parts)
    }

    /// Gives a packet to the kernel, dressed.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> Result<(), Reason> {
        loop {
            let Err(error) = (&self.file).write_vectored(parts) else { return Ok(()) };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                Some(Errno::INVAL) => return Err(Reason::Malformed),
                _ => return Err(Reason::Device),
            }
        }
    }
}

/// Whether a packet's checksum is still to be written, as the header before it says.
pub fn lacks_checksum(octets: &[u8]) -> bool {
    matches!(octets, [flags, ..] if !super::ip::is_ip(octets) && flags & NEEDS_CHECKSUM != 0)
}

/// Whether a packet is still to be segmented, as the header before it says.
pub fn is_super_packet(octets: &[u8]) -> bool {
    matches!(octets, [_, kind, ..] if !super::ip::is_ip(octets) && *kind != 0)
}

/// What of a packet that was read goes to the peer: its header only where that says something.
pub fn without_idle_header(read: &[u8]) -> &[u8] {
    if asks_nothing(read) { read.get(HEADER..).unwrap_or_default() } else { read }
}

/// The packet itself, without the header that may stand before it.
pub fn packet(octets: &[u8]) -> &[u8] {
    if super::ip::is_ip(octets) { octets } else { octets.get(HEADER..).unwrap_or_default() }
}

/// Whether a header says that nothing is left to be done: neither a checksum nor segmentation.
fn asks_nothing(header: &[u8]) -> bool {
    matches!(header, [flags, 0, ..] if flags & NEEDS_CHECKSUM == 0 && header.len() >= HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_goes_along_only_where_it_says_something() {
        let with = |flags: u8, kind: u8| {
            let mut read = vec![flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
            read.extend([0x45, 1, 2]);
            read
        };
        for (flags, kind, goes) in [(0, 0, false), (2, 0, false), (1, 0, true), (0, 1, true), (3, 4, true)] {
            let read = with(flags, kind);
            let sent = without_idle_header(&read);
            assert_eq!(sent.len(), if goes { read.len() } else { 3 }, "{flags} {kind}");
            assert_eq!(packet(sent), [0x45, 1, 2]);
        }
        assert_eq!(without_idle_header(&[0; 4]), [0; 4]);
        assert_eq!(packet(&[1, 2, 3]), [0_u8; 0]);
    }
}
