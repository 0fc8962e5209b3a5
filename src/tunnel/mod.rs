//! The tunnel: carries packets of a tun device to a peer over UDP, and back.
//!
//! The kernel passes packets before segmentation, up to 64 KiB and without checksums. The tunnel sends each
//! as a train of datagrams in one call, and the peer passes it into its kernel as one packet. So most of
//! TCP's work is done once for some forty segments. The tunnel itself does not segment, reassemble segments
//! or compute checksums.
//!
//! Each direction has one thread, which waits in one call and then makes the other. The main thread waits for
//! signals. The tunnel does not know rules: a guard without a queue inspects packets, if enabled.

mod device;
mod inspection;
mod ip;
mod key_agreement;
mod keys;
mod link_settings;
mod packet_counters;
mod peer_socket;
mod piece_number;
mod reassembly;
mod receiver;
mod replay_window;
mod run;
mod sender;
mod session;
mod train_switch;

use std::io;
use std::net::SocketAddr;

use bannerwall_ffi::error::CallError;

use crate::guard::{GuardError, InspectionConfig};
use crate::metrics::{MetricsConfig, MetricsError};

pub use keys::{TunnelKey, TunnelKeys};
pub use run::run;

/// Configuration of a tunnel.
#[derive(Debug, Clone)]
pub struct TunnelConfig {
    /// Local address of the datagrams.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Name of the device.
    pub device: String,
    /// MTU of the device; by default a new device gets the largest that fits into one datagram.
    pub mtu: Option<u16>,
    /// Protection of the packets.
    pub protection: PathProtection,
    /// True to pass packets before segmentation, with many datagrams a call.
    pub offload: bool,
    /// Inspection of the packets, if any.
    pub guard: Option<InspectionConfig>,
    /// Endpoint of metrics, if any.
    pub metrics: Option<MetricsConfig>,
}

/// Protection of packets on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathProtection {
    /// None needed: no packet leaves this machine.
    Loopback,
    /// None: everyone on the path can read and change packets.
    Plain,
    /// Encryption with these keys.
    Keys(TunnelKeys),
}

/// Error of starting or running a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// Packets would be unprotected.
    #[error(
        "--peer {0} is not this machine, and everyone on the path could read and change packets: pass --key and --peer-key, or --plain to accept that"
    )]
    Plain(SocketAddr),
    /// The Noise library failed.
    #[error("Noise protocol: {0}")]
    Noise(#[from] snow::Error),
    /// Different address families.
    #[error("--local and --peer must be both IPv4 or both IPv6")]
    Families,
    /// The local address is not available.
    #[error("--local {local}: {source}")]
    Bind {
        /// Requested address.
        local: SocketAddr,
        /// Reason.
        source: io::Error,
    },
    /// There is no route to the peer.
    #[error("--peer {peer}: {source}")]
    Connect {
        /// Requested address.
        peer: SocketAddr,
        /// Reason.
        source: io::Error,
    },
    /// The socket failed.
    #[error("UDP socket to the peer: {0}")]
    Socket(io::Error),
    /// This machine has no tun devices.
    #[error("cannot open /dev/net/tun: {0} (the kernel needs CONFIG_TUN)")]
    Clone(io::Error),
    /// The device is not available.
    #[error("--device {name}: {}", attach_fault(.source))]
    Attach {
        /// Name of the device.
        name: String,
        /// Reason.
        source: CallError,
    },
    /// A setting of the device was refused.
    #[error("--mtu: {0}")]
    Mtu(io::Error),
    /// The device is no longer readable.
    #[error("device {name}: {source}")]
    Device {
        /// Name of the device.
        name: String,
        /// Reason.
        source: io::Error,
    },
    /// The inspection cannot start.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A thread or the signal handlers could not be set up.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// A thread panicked; its message is on stderr.
    #[error("a thread of the tunnel panicked (see the message above)")]
    Failed,
}

impl TunnelError {
    /// True if a permission or a feature of this machine is missing, instead of valid input.
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
            "not permitted: run with CAP_NET_ADMIN, or create a device for this user with `ip tuntap add … user`"
                .to_owned()
        }
        Some(libc::EBUSY) => "another program uses this device".to_owned(),
        Some(libc::EINVAL) => "invalid name, or the device is not a tun device".to_owned(),
        _ => error.to_string(),
    }
}
