//! `bannerwall hook`: print, put up, take down and look at the iptables rules.

use std::fmt::Write as _;

use clap::{Args, Subcommand, ValueEnum};

use super::{Exit, Failure, print};
use crate::diagnostics::tell;
use crate::hook::{
    self, Chain, FamilyStatus, HookConfig, HookError, Installed, MarkField, Ports, Queues, Up, Variant,
};

/// Flags of `bannerwall hook`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall hook print --chains forward --ports 22,80
  sudo bannerwall hook up --chains forward --ports 22,80
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
    /// Takes the flags of `up`, so that one line of flags serves all; but for --iptables they change nothing.
    #[command(after_help = "Example:\n  bannerwall hook down")]
    Down(HookFlags),
    /// Tell what is up and what it has counted; exit code 1 where it is not complete.
    ///
    /// Takes the flags of `up`, so that one line of flags serves all; but for --iptables they change nothing.
    #[command(after_help = "Example:\n  bannerwall hook status")]
    Status(HookFlags),
}

#[derive(Debug, Args)]
struct HookFlags {
    /// Base chains to hook: input (for this machine), output (from it), forward (routed by it).
    #[arg(long, value_name = "CHAINS", value_delimiter = ',', default_value = "input,output,forward")]
    chains: Vec<Chain>,
    /// Queue only these source or destination ports (22,80,8000-8010); all TCP by default.
    #[arg(long, value_name = "LIST")]
    ports: Option<Ports>,
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
    fn config(&self) -> HookConfig {
        HookConfig {
            chains: unique(&self.chains),
            ports: self.ports.clone(),
            queues: self.queue,
            bypass: self.on_failure == OnFailureFlag::Open,
            mark: MarkField::new(self.mark).unwrap_or_default(),
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
        HookCommand::Print(flags) => print(hook::print(&flags.config(), flags.variant.variant()).as_bytes()),
        HookCommand::Up(flags) => {
            let up = hook::up(&flags.config(), flags.variant.variant()).map_err(failure)?;
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
            let removed = hook::down(flags.variant.variant()).map_err(failure)?;
            say(quiet, if removed { "hook is down" } else { "there was no hook" })
        }
        HookCommand::Status(flags) => {
            let places = hook::status(flags.variant.variant()).map_err(failure)?;
            print(describe(&places).as_bytes())?;
            Ok(if is_up(&places) { Exit::Done } else { Exit::Findings })
        }
    }
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

/// Up: every family has a whole hook in one of the variants, and nothing is damaged.
fn is_up(places: &[FamilyStatus]) -> bool {
    let complete = |place: &&FamilyStatus| matches!(place.installed, Installed::Complete(..));
    let damaged = places.iter().any(|place| matches!(place.installed, Installed::Damaged(_)));
    let covered = |family| places.iter().filter(complete).any(|place| place.family == family);
    !damaged && places.iter().all(|place| covered(place.family))
}

fn describe(places: &[FamilyStatus]) -> String {
    let mut text = String::new();
    for place in places {
        let FamilyStatus { family, variant, installed } = place;
        // Writing to a String cannot fail.
        let _ = match installed {
            Installed::Absent => writeln!(text, "{family} ({variant}): no hook"),
            Installed::Damaged(why) => writeln!(
                text,
                "{family} ({variant}): damaged: {why}; mend it with `bannerwall hook down` and `up`"
            ),
            Installed::Complete(config, counters) => writeln!(
                text,
                "{family} ({variant}): up: {}; reached the queue rule {}, passed as decided {}, \
                 dropped as decided {} packets",
                describe_config(config),
                counters.queued,
                counters.passed,
                counters.blocked
            ),
        };
    }
    text
}

fn describe_config(config: &HookConfig) -> String {
    let chains: Vec<&str> = config.chains.iter().map(|chain| chain.name()).collect();
    let ports = config.ports.as_ref().map_or("all ports".to_owned(), |ports| format!("ports {ports}"));
    format!(
        "chains {}, {ports}, queue {}, on failure {}, mark {}",
        chains.join(","),
        config.queues,
        if config.bypass { "open" } else { "closed" },
        config.mark
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::{Counters, Family};

    fn place(family: Family, variant: Variant, installed: Installed) -> FamilyStatus {
        FamilyStatus { family, variant, installed }
    }

    fn whole() -> Installed {
        Installed::Complete(HookConfig::default(), Counters::default())
    }

    #[test]
    fn up_means_a_whole_hook_for_each_family_in_some_variant() {
        let v4 = place(Family::V4, Variant::Nft, whole());
        let v6 = place(Family::V6, Variant::Nft, Installed::Absent);
        let v6_legacy = place(Family::V6, Variant::Legacy, whole());
        assert!(!is_up(&[v4.clone(), v6.clone()]));
        assert!(is_up(&[v4.clone(), v6.clone(), v6_legacy.clone()]));
        let damaged = place(Family::V4, Variant::Legacy, Installed::Damaged("half".to_owned()));
        assert!(!is_up(&[v4, damaged, v6, v6_legacy]));
    }
}
