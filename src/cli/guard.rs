//! `bannerwall guard`: flags to a [`GuardConfig`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use ipnet::IpNet;

use super::hook::{FamilyFlag, VariantFlag, unique};
use super::inspection::InspectionFlags;
use super::metrics::MetricsFlags;
use super::page::PageFlags;
use super::rule_paths::Use;
use super::rules_from::RulesFromFlags;
use super::{Exit, Failure};
use crate::bypass::{self, BypassConfig};
use crate::doctor::GuardSettings;
use crate::engine::OnFailure;
use crate::fleet::rules::RulesFrom;
use crate::guard::source::{Backend, MAXIMUM_COPY_RANGE, SourceConfig};
use crate::guard::{self, ConfigFile, ControlPlace, GuardConfig, GuardError, control};
use crate::hook::{Chain, HookConfig, MarkField, Ports, Queues};
use crate::privileges::User;
use crate::rules::Selection;
use crate::run;

/// The flags of `guard` that few need: its help leaves them out, OPERATIONS has a table of them.
pub(super) const RARE_FLAGS: [&str; 22] = [
    "backend",
    "bypass-flows",
    "control",
    "copy-range",
    "eve-strict",
    "family",
    "fd-store",
    "flow-limit",
    "hook-repair",
    "inventory-max-size",
    "iptables",
    "learn-for",
    "mark",
    "max-wait",
    "no-local",
    "no-offload",
    "no-sandbox",
    "profile",
    "queue-length",
    "rules-poll",
    "rules-state",
    "spill-size",
];

/// Flags of `bannerwall guard`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall guard --hook input,output,forward            watch everything, block nothing
  bannerwall guard --hook forward --ports 22,80 --enforce block what the rules say on a router
  bannerwall guard --queue 0:3 --metrics 127.0.0.1:9464 --events /var/log/bannerwall.json
  bannerwall guard --hook input --enforce --on-failure closed
  bannerwall guard --hook forward --inventory /var/lib/bannerwall/net.db --serve     then open http://127.0.0.1:8642/

Signals: SIGHUP reads the rules again and opens the event file anew; SIGUSR1 opens the event file anew
and writes a stats event, which is what logrotate should send; SIGUSR2 reads the rules again, as
`bannerwall reload` does and tells how that went; SIGINT and SIGTERM end the run cleanly: a hook of
--hook is taken down, unless --hook-keep is given. A run that fails under --on-failure closed leaves
its hook up, so that packets are dropped until a guard runs or `bannerwall hook down`.")]
pub(super) struct GuardArgs {
    #[command(flatten)]
    inspection: InspectionFlags,
    #[command(flatten)]
    page: PageFlags,
    #[command(flatten)]
    rules_from: RulesFromFlags,

    /// Queue number, or a range with one worker each.
    #[arg(long, value_name = "N|A:B", default_value = "0", help_heading = "Packets")]
    queue: Queues,
    /// What talks to the kernel.
    #[arg(long, value_name = "NAME", default_value = "libnetfilter_queue", help_heading = "Packets")]
    backend: BackendName,
    /// Put the iptables hook up for the run and take it down at its end: chains input, output,
    /// forward, separated by commas.
    #[arg(long, value_name = "CHAINS", value_delimiter = ',', help_heading = "Packets")]
    hook: Vec<Chain>,
    /// With --hook: what to do when something changes the hook or takes it away (a firewall's reload,
    /// another `hook down`): put it back, or only tell.
    #[arg(long, value_name = "MODE", default_value = "on", requires = "hook")]
    hook_repair: Switch,
    /// With --hook: leave the hook up at the end of the run. Until the next one packets pass
    /// (--on-failure open) or are dropped (closed): with closed nothing goes by during a restart.
    #[arg(long, requires = "hook", help_heading = "Packets")]
    hook_keep: bool,
    #[command(flatten)]
    families: FamilyFlag,
    /// With --hook: queue only these source or destination ports (22,80,8000-8010).
    #[arg(long, value_name = "LIST", requires = "hook", help_heading = "Packets")]
    ports: Option<Ports>,
    /// With --hook: queue UDP of these source or destination ports, too, so that QUIC is judged (443); none
    /// by default.
    #[arg(long, value_name = "LIST", requires = "hook", help_heading = "Packets")]
    hook_udp: Option<Ports>,
    #[command(flatten)]
    variant: VariantFlag,
    /// Octets of each packet to copy at first; grown by itself where a flow needs more.
    #[arg(long, value_name = "BYTES", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(128..=i64::from(MAXIMUM_COPY_RANGE)))]
    copy_range: u32,
    /// Packets that may wait in each queue.
    #[arg(long, value_name = "N", default_value_t = SourceConfig::new(0).maximum_length,
          value_parser = clap::value_parser!(u32).range(1..))]
    queue_length: u32,
    /// Packets that have waited longer in the queue get the verdict of --on-failure and are not judged
    /// (`off`: all are): after a pause of the guard they are old, and sent again. Needs stamps, which packets
    /// that come in have, and not with --backend nfq [default: 2s].
    #[arg(long, value_name = "TIME|off", value_parser = max_wait)]
    max_wait: Option<MaxWait>,

    /// Judge every packet of decided flows here instead of having the kernel pass or drop them.
    #[arg(long, help_heading = "Verdicts")]
    no_offload: bool,
    /// Forward decided TCP flows between these interfaces (tc:eth0,eth1) by a program of eBPF, below
    /// connection tracking and all rules; refused where that would skip rules of others, address translation,
    /// bridges, routing rules or policies of xfrm, and ended where such comes later.
    #[arg(long, value_name = "tc:IF,IF", conflicts_with = "no_offload", help_heading = "Verdicts")]
    bypass: Option<BypassConfig>,
    /// With --bypass: flows that are known to it at once; what is displaced goes by the hook.
    #[arg(long, value_name = "N", requires = "bypass",
          default_value_t = bypass::FLOWS, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    bypass_flows: u32,
    /// Never ban clients of these networks (192.0.2.0/24), nor addresses of this machine and its default
    /// gateways.
    #[arg(long, value_name = "NETS", value_delimiter = ',', help_heading = "Verdicts", value_parser = super::flags::network)]
    ban_exempt: Vec<IpNet>,
    /// Lowest of the two neighbouring mark bits that are ours.
    #[arg(long, value_name = "BIT", default_value_t = MarkField::HIGHEST_BIT,
          value_parser = clap::value_parser!(u8).range(..=i64::from(MarkField::HIGHEST_BIT)))]
    mark: u8,

    /// Go on as this user (a name or a number) once queues and sockets are open: without rights over files,
    /// so that rules must be readable and folders of event files writable for that user.
    #[arg(long, value_name = "NAME", help_heading = "General", value_parser = User::find)]
    user: Option<User>,
    /// Read configuration, rules and fingerprints as a start would, tell what stands in its way, and end:
    /// nothing is bound or put up.
    #[arg(long, help_heading = "General")]
    check: bool,
    /// Do not confine the guard to the files and calls that it needs, for debugging.
    #[arg(long)]
    no_sandbox: bool,
    /// Control socket for `bannerwall reload`, `status` and `why` [default:
    /// /run/bannerwall/guard-QUEUE-NETNS.sock].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Go on in the place of the guard that listens at this Unix socket, if one does, without a cut, and
    /// listen there for the next one: an upgrade is the same command again. The other one ends once this one
    /// is ready.
    #[arg(long, value_name = "PATH", help_heading = "General")]
    takeover: Option<PathBuf>,
    /// Have the service manager keep queues and what is known of flows over a restart (systemd, with a file
    /// descriptor store); a hook of --hook has to stay up then (--hook-keep).
    #[arg(long, help_heading = "General")]
    fd_store: bool,
    #[command(flatten, next_help_heading = "Events")]
    metrics: MetricsFlags,
}

/// Longest time that a packet may wait, unless something else is said.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A limit, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MaxWait(Option<Duration>);

fn max_wait(text: &str) -> anyhow::Result<MaxWait> {
    if text == "off" {
        Ok(MaxWait(None))
    } else {
        super::flags::duration(text).map(|limit| MaxWait(Some(limit)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// Do it.
    On,
    /// Leave it.
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendName {
    #[cfg_attr(
        feature = "libnetfilter_queue",
        value(name = "libnetfilter_queue", help = "Our own binding of the C library: many packets a call")
    )]
    #[cfg_attr(
        not(feature = "libnetfilter_queue"),
        value(
            name = "libnetfilter_queue",
            help = "Our own binding: many packets a call; in this build it writes the library's messages by itself"
        )
    )]
    LibnetfilterQueue,
    /// The nfq crate: one packet a call.
    Nfq,
}

/// Runs `bannerwall guard`.
pub(super) fn run(arguments: &GuardArgs, config_file: Option<&Path>) -> Result<Exit, Failure> {
    let outputs = arguments.inspection.outputs();
    let rules_from = arguments.rules_from.config(&arguments.published());
    let config = arguments.inspection.check_files();
    let config = config.and_then(|()| arguments.config(config_file, rules_from.as_ref()));
    let config = config.inspect_err(|_| guard::give_back_kept())?;
    let inspection = &arguments.inspection;
    let readers = arguments.page.readers(&inspection.inventory, format!("queue {}", arguments.queue));
    let source = rules_from.map(run::rule_source);
    let ended = if arguments.check {
        guard::check(&config, &readers, source)
    } else {
        guard::run(&config, outputs, readers, source)
    };
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(GuardError::Forced) => Ok(Exit::Interrupted),
        Err(error) if error.is_unsupported() => Err(Failure::unsupported(error)),
        Err(error) => Err(Failure::usage(error)),
    }
}

impl GuardArgs {
    /// What the hook of this guard must agree with.
    pub(super) fn settings(&self) -> GuardSettings {
        GuardSettings {
            queues: self.queue,
            mark: MarkField::new(self.mark).unwrap_or_default(),
            open: self.inspection.on_failure() == OnFailure::Open,
        }
    }

    /// Longest time that a packet may wait; the nfq crate does not tell how long one has.
    fn longest_wait(&self) -> Result<Option<Duration>, Failure> {
        match (self.backend, self.max_wait) {
            (BackendName::Nfq, Some(MaxWait(Some(_)))) => Err(Failure::Usage(anyhow!(
                "--max-wait: --backend nfq does not tell how long a packet has waited"
            ))),
            (BackendName::Nfq, _) | (_, Some(MaxWait(None))) => Ok(None),
            (_, Some(MaxWait(limit))) => Ok(limit),
            (_, None) => Ok(Some(MAX_WAIT)),
        }
    }

    /// What a guard needs that leaves its queues to the next one.
    fn check_handover(&self) -> Result<(), Failure> {
        let flag = match (&self.takeover, self.fd_store) {
            (Some(_), _) => "--takeover",
            (None, true) => "--fd-store",
            (None, false) => return Ok(()),
        };
        if self.backend == BackendName::Nfq {
            return Err(Failure::usage(anyhow::anyhow!(
                "{flag}: --backend nfq can't go on with a queue of others"
            )));
        }
        if self.fd_store && !self.hook.is_empty() && !self.hook_keep {
            return Err(Failure::usage(anyhow::anyhow!(
                "--fd-store: without --hook-keep the hook is taken down at each end, and packets pass until it is up again"
            )));
        }
        Ok(())
    }

    /// The rules of a guard whose rules are published, as those are all that there are: the profiles alone.
    fn published(&self) -> Selection {
        let inspection = &self.inspection;
        inspection.learning(inspection.rules.only(Vec::new(), Vec::new(), Use::Guard))
    }

    fn config(
        &self,
        config_file: Option<&Path>,
        rules_from: Option<&RulesFrom>,
    ) -> Result<GuardConfig, Failure> {
        self.check_handover()?;
        let mark = MarkField::new(self.mark).unwrap_or_default();
        let inspection = &self.inspection;
        let hook = HookConfig {
            chains: unique(&self.hook),
            ports: self.ports.clone(),
            udp: self.hook_udp.clone(),
            queues: self.queue,
            bypass: inspection.on_failure() == OnFailure::Open,
            mark,
            releases: true,
        };
        let user = self.user.as_ref();
        let rules = match rules_from {
            Some(_) => self.published(),
            None => inspection.selection()?,
        };
        let mut inspection = inspection.config(rules, self.no_sandbox);
        inspection.writes.extend(rules_from.iter().map(|from| from.state.clone()));
        Ok(GuardConfig {
            inspection,
            config_file: config_file.map(ConfigFile::read).transpose()?,
            queues: self.queue,
            backend: match self.backend {
                BackendName::LibnetfilterQueue => Backend::LibnetfilterQueue,
                BackendName::Nfq => Backend::Nfq,
            },
            ban_exempt: self.ban_exempt.clone(),
            hook: (!hook.chains.is_empty()).then_some(hook),
            hook_repair: self.hook_repair == Switch::On,
            hook_keep: self.hook_keep,
            families: self.families.families(),
            variant: self.variant.variant(),
            offload: !self.no_offload,
            bypass: self.bypass.clone().map(|bypass| BypassConfig { flows: self.bypass_flows, ..bypass }),
            copy_range: self.copy_range,
            queue_length: self.queue_length,
            max_wait: self.longest_wait()?,
            mark,
            control: Some(ControlPlace {
                path: self.control.clone().unwrap_or_else(|| control::default_path(self.queue.first, user)),
                asked: self.control.is_some(),
            }),
            takeover: self.takeover.clone(),
            fd_store: self.fd_store,
            metrics: self.metrics.config()?,
            user: self.user.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_leaves_out_flags_that_operations_lists() {
        let operations = include_str!("../../OPERATIONS.md");
        let command = crate::cli::command();
        let guard = command.find_subcommand("guard").unwrap();
        for name in RARE_FLAGS {
            let flag = guard.get_arguments().find(|flag| flag.get_long() == Some(name));
            assert!(flag.is_some_and(clap::Arg::is_hide_set), "--{name}");
            assert!(operations.contains(&format!("\n| `--{name}")), "--{name}");
        }
    }
}
