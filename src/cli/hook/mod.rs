//! `bannerwall hook`: print, put up, take down and look at the iptables rules.

mod status;

use clap::{Args, Subcommand, ValueEnum};

use super::{Exit, Failure, print};
use crate::diagnostics::tell;
use crate::hook::{
    self, Chain, Family, FamilyStatus, HookConfig, HookError, MarkField, Ports, Programs, Queues, Scope, Up,
    Variant,
};

/// Flags of `bannerwall hook`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall hook print --chains forward --ports 22,80
  sudo bannerwall hook up --chains forward --ports 22,80
  sudo bannerwall hook up --chains forward --ports 443 --hook-udp 443   QUIC as well as TLS
  sudo bannerwall hook status
  sudo bannerwall hook down")]
pub(super) struct HookArgs {
    #[command(subcommand)]
    command: HookCommand,
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Show the commands that would put the hook up; needs no privilege.
    #[command(
        after_help = "Examples:\n  bannerwall hook print\n  bannerwall hook print --chains forward --ports 22,80,8000-8010 --queue 0:3"
    )]
    Print(HookFlags),
    /// Put the hook up, or make the one that is there agree with the flags.
    #[command(
        after_help = "Examples:\n  bannerwall hook up\n  bannerwall hook up --chains input --ports 22 --on-failure closed"
    )]
    Up(HookFlags),
    /// Remove all that bannerwall ever put up, and nothing else.
    ///
    /// Takes the flags of `up`, so that one line of flags serves all; but for --iptables and --family they
    /// change nothing.
    #[command(
        after_help = "Examples:\n  bannerwall hook down\n  bannerwall hook down --unless-closed   # what a service does after its end"
    )]
    Down(DownFlags),
    /// Tell what is up, whether it works, and what it has counted.
    ///
    /// Takes the flags of `up`, so that one line of flags serves all; but for --iptables and --family they
    /// change nothing.
    #[command(after_help = "Example:
  bannerwall hook status

Exit codes: 0 it is up, in its place and served; 1 it is there, but not whole or not as it should be; 4 there is no hook;
5 it is whole, but leads to a queue that no guard reads: nobody listens, another program does, or the guard is stopped.")]
    Status(HookFlags),
}

#[derive(Debug, Args)]
struct DownFlags {
    /// Leave a hook up that drops packets while no guard listens (`--on-failure closed`).
    #[arg(long)]
    unless_closed: bool,
    #[command(flatten)]
    hook: HookFlags,
}

#[derive(Debug, Args)]
struct HookFlags {
    /// Base chains to hook: input (for this machine), output (from it), forward (routed by it).
    #[arg(long, value_name = "CHAINS", value_delimiter = ',', default_value = "input,output,forward")]
    chains: Vec<Chain>,
    /// Queue only these source or destination ports (22,80,8000-8010); all TCP by default.
    #[arg(long, value_name = "LIST")]
    ports: Option<Ports>,
    /// Queue UDP of these source or destination ports, too, so that QUIC is judged (443); none by default.
    #[arg(long, value_name = "LIST")]
    hook_udp: Option<Ports>,
    /// Queue number, or a range that address pairs are balanced over.
    #[arg(long, value_name = "N|A:B", default_value = "0")]
    queue: Queues,
    /// What happens to packets while no guard listens: open lets them pass, closed drops them.
    #[arg(long, value_name = "MODE", default_value = "open")]
    on_failure: OnFailureFlag,
    /// Lowest of the two neighbouring mark bits that are ours.
    #[arg(long, value_name = "BIT", default_value_t = MarkField::HIGHEST_BIT,
          value_parser = clap::value_parser!(u8).range(..=i64::from(MarkField::HIGHEST_BIT)))]
    mark: u8,
    #[command(flatten)]
    variant: VariantFlag,
    #[command(flatten)]
    families: FamilyFlag,
}

/// `--family`: which address families have a hook.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FamilyFlag {
    /// Address families to hook; both needs iptables and ip6tables.
    #[arg(long = "family", value_name = "FAMILY", default_value = "both")]
    family: FamilyName,
}

impl FamilyFlag {
    pub(super) fn families(self) -> Vec<Family> {
        match self.family {
            FamilyName::Both => Family::ALL.to_vec(),
            FamilyName::Ipv4 => vec![Family::V4],
            FamilyName::Ipv6 => vec![Family::V6],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FamilyName {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
}

/// `--on-failure`: one switch for the hook's bypass, the queue's fail-open flag and the memory policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OnFailureFlag {
    /// What cannot be inspected passes.
    Open,
    /// What cannot be inspected is dropped.
    Closed,
}

/// `--iptables`: which implementation's rules.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct VariantFlag {
    /// Which iptables to use.
    #[arg(long = "iptables", value_name = "VARIANT", default_value = "system")]
    variant: VariantName,
}

impl VariantFlag {
    pub(super) fn variant(self) -> Variant {
        match self.variant {
            VariantName::System => Variant::System,
            VariantName::Legacy => Variant::Legacy,
            VariantName::Nft => Variant::Nft,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VariantName {
    /// What `iptables` is on this machine; `down` and `status` look at the other one as well.
    System,
    /// iptables-legacy.
    Legacy,
    /// iptables-nft.
    Nft,
}

impl HookFlags {
    fn scope(&self) -> Scope {
        Scope {
            variant: self.variant.variant(),
            families: self.families.families(),
            programs: Programs::Here,
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

/// The chains without duplicates, in the kernel's order.
pub(super) fn unique(chains: &[Chain]) -> Vec<Chain> {
    Chain::ALL.into_iter().filter(|chain| chains.contains(chain)).collect()
}

/// Runs `bannerwall hook`.
pub(super) fn run(arguments: &HookArgs, quiet: bool) -> Result<Exit, Failure> {
    match &arguments.command {
        HookCommand::Print(flags) => print(hook::print(&flags.config(), flags.scope()).as_bytes()),
        HookCommand::Up(flags) => {
            let up = hook::up(&flags.config(), flags.scope()).map_err(failure)?;
            say(
                quiet,
                match up {
                    Up::Created => "hook is up",
                    Up::Replaced => "hook is up, the one that was there is replaced",
                    Up::Unchanged => "hook was up already, nothing changed",
                },
            )
        }
        HookCommand::Down(flags) => {
            let scope = flags.hook.scope();
            if flags.unless_closed && is_closed(&hook::status(scope.clone()).map_err(failure)?) {
                return say(quiet, "hook stays up: it was made with --on-failure closed");
            }
            let removed = hook::down(scope).map_err(failure)?;
            say(quiet, if removed { "hook is down" } else { "there was no hook" })
        }
        HookCommand::Status(flags) => status::run(flags.scope()),
    }
}

/// True if any hook that is up drops packets while no guard listens.
fn is_closed(places: &[FamilyStatus]) -> bool {
    hook::inspect::hooks(places).any(|(_, config)| !config.bypass)
}

fn say(quiet: bool, message: &str) -> Result<Exit, Failure> {
    if !quiet {
        tell(message);
    }
    Ok(Exit::Done)
}

/// An error of the hook with the exit code that belongs to it.
pub(super) fn failure(error: HookError) -> Failure {
    if error.is_unsupported() { Failure::unsupported(error) } else { Failure::usage(error) }
}
