//! Settings of the device over rtnetlink, as `ip(8)` makes them: its MTU, and the limit of packets before
//! segmentation.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// `RTM_NEWLINK`, `NLM_F_REQUEST | NLM_F_ACK`, and the reply's type, `NLMSG_ERROR`.
const CHANGE: u16 = 16;
const ACKNOWLEDGED: u16 = 0x1 | 0x4;
const ANSWER: u16 = 2;

/// Setting: `IFLA_MTU` or `IFLA_GSO_MAX_SIZE` (`linux/if_link.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkSetting {
    /// Limit of a packet.
    Mtu = 4,
    /// Limit of a packet before segmentation.
    SuperPacket = 41,
}

/// True if a device with this name exists.
pub fn exists(name: &str) -> bool {
    socket().is_ok_and(|socket| name_to_index(&socket, name).is_ok())
}

/// Changes a setting of the device `name`.
///
/// # Errors
///
/// `ENODEV` if there is no such device, `EPERM` without `CAP_NET_ADMIN`, `EINVAL` for an invalid value.
pub fn set(name: &str, setting: LinkSetting, value: u32) -> io::Result<()> {
    let socket = socket()?;
    // The index is used instead of the name: a rename in between must not hit another device.
    let index = name_to_index(&socket, name)?;
    sendto(&socket, &request(index, setting, value), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 1024];
    let length = loop {
        match recv(&socket, &mut answer[..], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            received => break received?.0,
        }
    };
    outcome(answer.get(..length).unwrap_or_default())
}

fn socket() -> io::Result<OwnedFd> {
    // NETLINK_ROUTE is protocol 0, which `None` stands for.
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Builds `struct nlmsghdr`, `struct ifinfomsg` and one attribute, all in the machine's byte order.
fn request(index: u32, setting: LinkSetting, value: u32) -> Vec<u8> {
    const LENGTH: u32 = 16 + 16 + 8;
    let mut message = Vec::new();
    message.extend(LENGTH.to_ne_bytes());
    message.extend(CHANGE.to_ne_bytes());
    message.extend(ACKNOWLEDGED.to_ne_bytes());
    // Sequence number and port.
    message.extend([0; 8]);
    // Family and type are unspecified; the index selects the device; no flags change.
    message.extend([0; 4]);
    message.extend(index.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(8_u16.to_ne_bytes());
    message.extend((setting as u16).to_ne_bytes());
    message.extend(value.to_ne_bytes());
    message
}

/// Parses the kernel's reply: `struct nlmsghdr` and a negative errno, 0 for success.
fn outcome(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|octets| octets.first_chunk()).copied().map(u16::from_ne_bytes);
    let code = answer.get(16..20).and_then(|octets| octets.first_chunk()).copied().map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(ANSWER), Some(0)) => Ok(()),
        (Some(ANSWER), Some(code)) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_far_as_they_go() {
        let answer = |kind: u16, code: i32| {
            let mut answer = vec![0; 16];
            answer[4..6].copy_from_slice(&kind.to_ne_bytes());
            answer.extend(code.to_ne_bytes());
            answer
        };
        assert!(outcome(&answer(ANSWER, 0)).is_ok());
        assert_eq!(outcome(&answer(ANSWER, -1)).unwrap_err().raw_os_error(), Some(1));
        assert!(outcome(&answer(3, 0)).is_err());
        for length in 0..20 {
            assert!(outcome(&answer(ANSWER, 0)[..length]).is_err(), "{length}");
        }
        assert_eq!(request(7, LinkSetting::Mtu, 1400).len(), 40);
    }

    #[test]
    fn a_device_that_is_not_there_is_told() {
        let error = set("no-such-device", LinkSetting::Mtu, 1400).expect_err("there is none");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
