//! The tunnel: packets of a tun device to a peer over UDP, and back.
//!
//! The kernel hands over what it has to send before it is cut into segments, up to 64 KiB and without
//! checksums; that goes to the peer as a train of datagrams by one call, and there into the kernel again as
//! one packet. So most of TCP's work is done once for some forty segments, and nothing here segments, puts
//! segments together or writes checksums.
//!
//! One thread a direction, which waits in the one call and then makes the other; the main thread waits for
//! signals. Nothing here knows what a rule says: a guard without a queue judges packets, where one is asked
//! for.

mod account;
mod assembly;
mod carrier;
mod device;
mod guarded;
mod inlet;
mod ip;
mod keys;
mod link;
mod loss;
mod noise;
mod outlet;
mod place;
mod run;
mod session;
mod window;

use std::io;
use std::net::SocketAddr;

use bannerwall_ffi::error::CallError;

use crate::guard::{GuardError, InspectionConfig};
use crate::metrics::{MetricsConfig, MetricsError};

pub use keys::{Key, Keys};
pub use run::run;

/// What a tunnel is told at its start.
#[derive(Debug, Clone)]
pub struct TunnelConfig {
    /// Where datagrams are sent from and received.
    pub local: SocketAddr,
    /// Where they are sent to and come from.
    pub peer: SocketAddr,
    /// The device's name.
    pub device: String,
    /// Its MTU; without one a new device gets what fits into one datagram.
    pub mtu: Option<u16>,
    /// Whether it may be.
    pub protection: Protection,
    /// True if packets go before they are segmented, many datagrams a call.
    pub offload: bool,
    /// By what packets are judged, if they are.
    pub guard: Option<InspectionConfig>,
    /// Where metrics are shown.
    pub metrics: Option<MetricsConfig>,
}

/// Who on the way may read and change what goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Nobody, since nothing leaves this machine.
    Loopback,
    /// Whoever is there.
    Plain,
    /// Nobody without these keys.
    Keys(Keys),
}

/// Why a tunnel could not start, or ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// Nothing would hide what goes through.
    #[error(
        "--peer {0} is not this machine, and whoever is on the way could read and change what goes through: give it --key and --peer-key, or --plain if that is meant"
    )]
    Plain(SocketAddr),
    /// The library does not do what was asked of it.
    #[error("Noise protocol: {0}")]
    Noise(#[from] snow::Error),
    /// One IPv4, one IPv6.
    #[error("--local and --peer must be both IPv4 or both IPv6")]
    Families,
    /// The local address cannot be had.
    #[error("--local {local}: {source}")]
    Bind {
        /// As it was asked for.
        local: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// There is no way to the peer.
    #[error("--peer {peer}: {source}")]
    Connect {
        /// As it was asked for.
        peer: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The socket is not what it should be.
    #[error("UDP socket: {0}")]
    Socket(io::Error),
    /// There are no tun devices here.
    #[error("/dev/net/tun: {0} (the kernel needs CONFIG_TUN)")]
    Clone(io::Error),
    /// The device cannot be had.
    #[error("--device {name}: {}", attach_fault(.source))]
    Attach {
        /// Its name.
        name: String,
        /// Why.
        source: CallError,
    },
    /// A setting of the device was refused.
    #[error("--mtu: {0}")]
    Mtu(io::Error),
    /// The device cannot be read any more.
    #[error("device {name}: {source}")]
    Device {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Packets cannot be judged as was asked.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The metrics could not be shown.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A thread or the signal handlers could not be set up.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// A thread ended by a panic, whose message stands above on stderr.
    #[error("a thread of the tunnel has failed")]
    Failed,
}

impl TunnelError {
    /// True if a permission or a feature of this machine is missing, rather than good input.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Clone(_) => true,
            Self::Guard(error) => error.is_unsupported(),
            Self::Attach { source, .. } => source.errno() == Some(libc::EPERM),
            Self::Mtu(error) => error.kind() == io::ErrorKind::PermissionDenied,
            Self::Bind { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

fn attach_fault(error: &CallError) -> String {
    match error.errno() {
        Some(libc::EPERM) => {
            "not permitted: this takes CAP_NET_ADMIN, or a device that `ip tuntap add … user` made for this user"
                .to_owned()
        }
        Some(libc::EBUSY) => "another program has this device".to_owned(),
        Some(libc::EINVAL) => "no name for a device, or that of one which is no tun device".to_owned(),
        _ => error.to_string(),
    }
}
