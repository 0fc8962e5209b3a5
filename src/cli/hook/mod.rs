//! `bannerwall hook`: prints, puts up, takes down and checks the iptables rules.

mod status;

use clap::{Args, Subcommand, ValueEnum};

use super::{CliExitCode, CommandFailure, print};
use crate::diagnostics::log_line;
use crate::hook::{
    self, BaseChain, FamilyStatus, HookConfig, HookError, HookUpResult, IpFamily, IptablesScope,
    IptablesVariant, MarkField, PortList, ProgramRunner, QueueRange,
};

/// Flags of `bannerwall hook`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall hook print --chains forward --ports 22,80
  sudo bannerwall hook up --chains forward --ports 22,80
  sudo bannerwall hook up --chains forward --ports 443 --hook-udp 443   # QUIC as well as TLS
  sudo bannerwall hook status
  sudo bannerwall hook down")]
pub(super) struct HookArgs {
    #[command(subcommand)]
    command: HookCommand,
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Print the commands that would put the hook up; needs no privilege.
    #[command(
        after_help = "Examples:\n  bannerwall hook print\n  bannerwall hook print --chains forward --ports 22,80,8000-8010 --queue 0:3"
    )]
    Print(HookFlags),
    /// Put the hook up, or adapt an existing hook to the flags.
    #[command(
        after_help = "Examples:\n  bannerwall hook up\n  bannerwall hook up --chains input --ports 22 --on-failure closed"
    )]
    Up(HookFlags),
    /// Remove every rule and chain that bannerwall put up, and nothing else.
    ///
    /// The command accepts the flags of `up`, so you can share one line of flags. Only --iptables and
    /// --family have an effect.
    #[command(after_help = "Examples:
  bannerwall hook down
  bannerwall hook down --unless-closed     # for a service's stop")]
    Down(DownFlags),
    /// Show the hook's rules, faults and counters.
    ///
    /// The command accepts the flags of `up`, so you can share one line of flags. Only --iptables and
    /// --family have an effect.
    #[command(after_help = "Example:
  bannerwall hook status

Exit codes: 0 the hook is up, and a guard reads its queue; 1 the hook is incomplete or has faults;
4 there is no hook; 5 the hook is complete, but no guard reads its queue: the queue has no
listener or another program, or the guard is stopped.")]
    Status(HookFlags),
}

#[derive(Debug, Args)]
struct DownFlags {
    /// Leave the hook up if it drops packets while no guard listens (`--on-failure closed`).
    #[arg(long)]
    unless_closed: bool,
    #[command(flatten)]
    hook: HookFlags,
}

#[derive(Debug, Args)]
struct HookFlags {
    /// Base chains to hook: input (for this machine), output (from it), forward (routed by it).
    #[arg(long, value_name = "CHAINS", value_delimiter = ',', default_value = "input,output,forward")]
    chains: Vec<BaseChain>,
    /// Queue only TCP with these source or destination ports (22,80,8000-8010) [default: all TCP].
    #[arg(long, value_name = "LIST")]
    ports: Option<PortList>,
    /// Also queue UDP with these source or destination ports, to inspect QUIC (443) [default: none].
    #[arg(long, value_name = "LIST")]
    hook_udp: Option<PortList>,
    /// Queue number, or a range of queues that share the address pairs.
    #[arg(long, value_name = "N|A:B", default_value = "0")]
    queue: QueueRange,
    /// Handling of packets while no guard listens: open lets them pass, closed drops them.
    #[arg(long, value_name = "MODE", default_value = "open")]
    on_failure: OnFailureFlag,
    /// Lowest of the two adjacent mark bits to use.
    #[arg(long, value_name = "BIT", default_value_t = MarkField::HIGHEST_BIT,
          value_parser = clap::value_parser!(u8).range(..=i64::from(MarkField::HIGHEST_BIT)))]
    mark: u8,
    #[command(flatten)]
    variant: VariantFlag,
    #[command(flatten)]
    families: FamilyFlag,
}

/// `--family`: address families with a hook.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FamilyFlag {
    /// Address families to hook; both needs iptables and ip6tables.
    #[arg(long = "family", value_name = "FAMILY", default_value = "both")]
    family: FamilyName,
}

impl FamilyFlag {
    pub(super) fn families(self) -> Vec<IpFamily> {
        match self.family {
            FamilyName::Both => IpFamily::ALL.to_vec(),
            FamilyName::Ipv4 => vec![IpFamily::V4],
            FamilyName::Ipv6 => vec![IpFamily::V6],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FamilyName {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

/// `--on-failure`: one switch for the hook's bypass, the queue's fail-open flag and the memory policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OnFailureFlag {
    /// Packets that cannot be inspected pass.
    Open,
    /// Packets that cannot be inspected are dropped.
    Closed,
}

/// `--iptables`: implementation of iptables.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct VariantFlag {
    /// Implementation of iptables.
    #[arg(long = "iptables", value_name = "VARIANT", default_value = "system")]
    variant: VariantName,
}

impl VariantFlag {
    pub(super) fn variant(self) -> IptablesVariant {
        match self.variant {
            VariantName::System => IptablesVariant::System,
            VariantName::Legacy => IptablesVariant::Legacy,
            VariantName::Nft => IptablesVariant::Nft,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VariantName {
    /// The machine's `iptables`; `down` and `status` check the other one as well.
    System,
    /// iptables-legacy.
    Legacy,
    /// iptables-nft.
    Nft,
}

impl HookFlags {
    fn scope(&self) -> IptablesScope {
        IptablesScope {
            variant: self.variant.variant(),
            families: self.families.families(),
            programs: ProgramRunner::Here,
        }
    }

    fn config(&self) -> HookConfig {
        HookConfig {
            chains: unique(&self.chains),
            ports: self.ports.clone(),
            udp: self.hook_udp.clone(),
            queues: self.queue,
            bypass: self.on_failure == OnFailureFlag::Open,
            mark: MarkField::new(self.mark).unwrap_or_default(),
            releases: true,
        }
    }
}

/// Returns the chains without duplicates, in the kernel's order.
pub(super) fn unique(chains: &[BaseChain]) -> Vec<BaseChain> {
    BaseChain::ALL.into_iter().filter(|chain| chains.contains(chain)).collect()
}

/// Runs `bannerwall hook`.
pub(super) fn run(arguments: &HookArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    match &arguments.command {
        HookCommand::Print(flags) => print(hook::print(&flags.config(), flags.scope()).as_bytes()),
        HookCommand::Up(flags) => {
            let config = flags.config();
            let up = hook::up(&config, flags.scope()).map_err(failure)?;
            if let Err(error) = hook::turn_off_early_demux(&config) {
                log_line(format!("bannerwall: {error}"));
            }
            say(
                quiet,
                match up {
                    HookUpResult::Created => "hook is up",
                    HookUpResult::Replaced => "hook is up, and replaces the previous hook",
                    HookUpResult::Unchanged => "hook was up already, without changes",
                },
            )
        }
        HookCommand::Down(flags) => {
            let scope = flags.hook.scope();
            if flags.unless_closed && is_closed(&hook::status(scope.clone()).map_err(failure)?) {
                return say(quiet, "hook stays up: it has --on-failure closed");
            }
            let removed = hook::down(scope).map_err(failure)?;
            say(quiet, if removed { "hook is down" } else { "there was no hook" })
        }
        HookCommand::Status(flags) => status::run(flags.scope()),
    }
}

/// True if any hook drops packets while no guard listens.
fn is_closed(places: &[FamilyStatus]) -> bool {
    hook::hook_state::hooks(places).any(|(_, config)| !config.bypass)
}

fn say(quiet: bool, message: &str) -> Result<CliExitCode, CommandFailure> {
    if !quiet {
        log_line(message);
    }
    Ok(CliExitCode::Done)
}

/// Returns an error of the hook with its exit code.
pub(super) fn failure(error: HookError) -> CommandFailure {
    if error.is_unsupported() { CommandFailure::unsupported(error) } else { CommandFailure::usage(error) }
}
