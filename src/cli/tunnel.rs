//! `bannerwall tunnel`: flags to a [`TunnelConfig`].

use std::net::SocketAddr;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::{Exit, Failure};
use crate::tunnel::{self, TunnelConfig};

/// Flags of `bannerwall tunnel`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall tunnel --local 192.0.2.1:7777 --peer 198.51.100.2:7777 --device bw0 --plain
  bannerwall tunnel --local '[2001:db8::1]:7777' --peer '[2001:db8::2]:7777' --device bw0 --plain --no-offload
  ip address add 203.0.113.1/30 dev bw0 && ip link set bw0 up

Signals: SIGINT and SIGTERM end the run; so does `ip link delete` of the device. All end with 0, and a last line on
stderr that accounts for every packet.")]
pub(super) struct TunnelArgs {
    /// Address and port of this end; 0.0.0.0 or `[::]` take the one that the route to the peer has.
    #[arg(long, value_name = "ADDR:PORT")]
    local: SocketAddr,
    /// Address and port of the other end. Datagrams from elsewhere are not taken.
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddr,
    /// Name of the tun device, made unless it is there (`ip tuntap add mode tun`). Addresses, routes, up and down are for
    /// ip(8).
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    device: String,
    /// The device's MTU [default: what fits into one datagram; of a device that is there, its own].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    mtu: Option<u16>,
    /// Carry packets as they are, for whoever is on the way to read and change. Without it the peer must be this machine.
    #[arg(long)]
    plain: bool,
    /// Carry packet by packet, as segments, instead of up to 64 KiB a call. Both ends must be alike.
    #[arg(long)]
    no_offload: bool,
    /// Show /metrics, /healthz and /readyz on this address.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
}

/// Runs `bannerwall tunnel`.
pub(super) fn run(arguments: &TunnelArgs) -> Result<Exit, Failure> {
    match tunnel::run(&arguments.config()) {
        Ok(()) => Ok(Exit::Done),
        Err(error) if error.is_unsupported() => Err(Failure::unsupported(error)),
        Err(error) => Err(Failure::usage(error)),
    }
}

impl TunnelArgs {
    fn config(&self) -> TunnelConfig {
        TunnelConfig {
            local: self.local,
            peer: self.peer,
            device: self.device.clone(),
            mtu: self.mtu,
            plain: self.plain,
            offload: !self.no_offload,
            metrics: self.metrics,
        }
    }
}
