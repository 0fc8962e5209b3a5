//! `bannerwall tunnel`: turns flags into a [`TunnelConfig`], and manages keys.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use super::inspection::InspectionFlags;
use super::metrics::MetricsFlags;
use super::page::PageFlags;
use super::rule_paths::LOCAL_FLAG;
use super::{CliExitCode, CommandFailure, print};
use crate::guard::{EventOutput, EventReader, InspectionConfig};
use crate::tunnel::{self, PathProtection, TunnelConfig, TunnelKey, TunnelKeys};

/// `bannerwall tunnel`: a run, or a command about keys.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  # once at each end; copy here.pub to the other end
  bannerwall tunnel keygen here.key > here.pub
  bannerwall tunnel --local 0.0.0.0:7777 --peer 198.51.100.2:7777 --device bw0 \\
      --key here.key --peer-key there.pub
All flags: bannerwall tunnel --help",
    after_long_help = "Examples:
  # once at each end; copy here.pub to the other end
  bannerwall tunnel keygen here.key > here.pub
  bannerwall tunnel --local 0.0.0.0:7777 --peer 198.51.100.2:7777 --device bw0 \\
      --key here.key --peer-key there.pub
  bannerwall tunnel --local '[2001:db8::1]:7777' --peer '[2001:db8::2]:7777' --device bw0 \\
      --plain --no-offload
  bannerwall tunnel --local 0.0.0.0:7777 --peer 198.51.100.2:7777 --device bw0 \\
      --key here.key --peer-key there.pub --guard --enforce --events events.json
  ip address add 203.0.113.1/30 dev bw0 && ip link set bw0 up

Signals: with --guard, SIGHUP, SIGUSR1 and SIGUSR2 reload the rules and reopen event files. SIGINT
and SIGTERM stop the tunnel, and so does `ip link delete` of the device. The exit code is then 0,
and a last line
on stderr accounts for every packet."
)]
pub(super) struct TunnelArgs {
    #[command(subcommand)]
    command: Option<KeyCommand>,
    #[command(flatten)]
    flags: Option<TunnelFlags>,
    #[command(flatten)]
    metrics: MetricsFlags,
    #[command(flatten)]
    inspection: TunnelInspectionFlags,
    #[command(flatten)]
    page: PageFlags,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make a private key in a new file, and print its public key.
    #[command(after_help = "Example:\n  bannerwall tunnel keygen /etc/bannerwall/tunnel.key > tunnel.pub")]
    Keygen {
        /// File of the private key; only its owner can read it.
        file: PathBuf,
    },
    /// Print the public key of a private key.
    #[command(after_help = "Example:\n  bannerwall tunnel public /etc/bannerwall/tunnel.key")]
    Public {
        /// File of the private key.
        file: PathBuf,
    },
}

/// Flags of a run.
#[derive(Debug, Args)]
struct TunnelFlags {
    /// Address and port of this end; 0.0.0.0 and `[::]` select the address of the route to the peer.
    #[arg(long, value_name = "ADDR:PORT", value_parser = super::flags::endpoint)]
    local: SocketAddr,
    /// Address and port of the other end. The tunnel ignores datagrams from other addresses.
    #[arg(long, value_name = "ADDR:PORT", value_parser = super::flags::endpoint)]
    peer: SocketAddr,
    /// Name of the tun device, created if it does not exist (`ip tuntap add mode tun`). Use ip(8) for
    /// addresses, routes, up and down.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    device: String,
    /// Private key of this end (from `bannerwall tunnel keygen` or `wg genkey`).
    #[arg(long, value_name = "FILE", requires = "peer_key", conflicts_with = "plain")]
    key: Option<PathBuf>,
    /// The peer's public key.
    #[arg(long, value_name = "FILE", requires = "key")]
    peer_key: Option<PathBuf>,
    /// Carry packets without encryption: everyone on the path can read and change them. Without this flag and
    /// without keys the peer must be this machine.
    #[arg(long)]
    plain: bool,
    /// MTU of the device [default: the largest that fits into one datagram, or that of an existing device].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    mtu: Option<u16>,
    /// Carry single packets instead of up to 64 KiB a call. Both ends must use the same setting.
    #[arg(long)]
    no_offload: bool,
    /// Inspect the carried packets by rules, as `bannerwall guard` does: watch, and with --enforce block.
    #[arg(long)]
    guard: bool,
    /// With --guard: do not confine the tunnel to the files and system calls that it needs, for debugging.
    #[arg(long, requires = "guard")]
    no_sandbox: bool,
}

/// Flags of the guard, with `--local PATH` renamed to `--local-rules PATH`.
#[derive(Debug)]
struct TunnelInspectionFlags(InspectionFlags);

impl Args for TunnelInspectionFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        InspectionFlags::augment_args(command).mut_arg(LOCAL_FLAG, |flag| flag.long("local-rules"))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TunnelInspectionFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        InspectionFlags::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Runs `bannerwall tunnel`.
pub(super) fn run(arguments: &TunnelArgs) -> Result<CliExitCode, CommandFailure> {
    let TunnelInspectionFlags(inspection) = &arguments.inspection;
    match (&arguments.command, &arguments.flags) {
        (Some(KeyCommand::Keygen { file }), _) => {
            let key = TunnelKey::generate().map_err(CommandFailure::usage)?;
            let public = key.public().map_err(CommandFailure::usage)?;
            key.write_new(file).map_err(CommandFailure::usage)?;
            print(format!("{public}\n").as_bytes())
        }
        (Some(KeyCommand::Public { file }), _) => {
            let public = TunnelKey::read(file).and_then(|key| key.public()).map_err(CommandFailure::usage)?;
            print(format!("{public}\n").as_bytes())
        }
        (None, Some(flags)) => {
            let config = flags.config(arguments, inspection)?;
            let readers = flags.readers(inspection, &arguments.page)?;
            match tunnel::run(&config, flags.outputs(inspection), readers) {
                Ok(()) => Ok(CliExitCode::Done),
                Err(error) if error.is_unsupported() => Err(CommandFailure::unsupported(error)),
                Err(error) => Err(CommandFailure::usage(error)),
            }
        }
        (None, None) => Err(CommandFailure::usage(anyhow!("pass --local, --peer and --device"))),
    }
}

impl TunnelFlags {
    fn config(
        &self,
        arguments: &TunnelArgs,
        inspection: &InspectionFlags,
    ) -> Result<TunnelConfig, CommandFailure> {
        let protection = match (&self.key, &self.peer_key) {
            (Some(key), Some(peer)) => {
                PathProtection::Keys(TunnelKeys::read(key, peer).map_err(CommandFailure::usage)?)
            }
            _ if self.plain => PathProtection::Plain,
            _ => PathProtection::Loopback,
        };
        Ok(TunnelConfig {
            local: self.local,
            peer: self.peer,
            device: self.device.clone(),
            mtu: self.mtu,
            protection,
            offload: !self.no_offload,
            guard: self.guard(inspection)?,
            metrics: arguments.metrics.config()?,
        })
    }

    /// Returns the configuration of the inspection, if there is one.
    fn guard(&self, inspection: &InspectionFlags) -> Result<Option<InspectionConfig>, CommandFailure> {
        if !self.guard {
            return match inspection.given() {
                Some(flags) => Err(CommandFailure::usage(anyhow!("{flags}: pass --guard, too"))),
                None => Ok(None),
            };
        }
        inspection.check_files()?;
        Ok(Some(inspection.config(inspection.selection()?, self.no_sandbox)))
    }

    /// Returns the event readers; none without `--guard`.
    fn readers(
        &self,
        inspection: &InspectionFlags,
        page: &PageFlags,
    ) -> Result<Vec<Box<dyn EventReader>>, CommandFailure> {
        if !self.guard {
            return Ok(Vec::new());
        }
        page.readers(inspection, format!("tunnel {}", self.device))
    }

    fn outputs(&self, inspection: &InspectionFlags) -> Vec<EventOutput> {
        if self.guard { inspection.outputs() } else { Vec::new() }
    }
}
