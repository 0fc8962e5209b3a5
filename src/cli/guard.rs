//! `bannerwall guard`: turns flags into a [`GuardConfig`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use ipnet::IpNet;

use super::hook::{FamilyFlag, VariantFlag, unique};
use super::inspection::InspectionFlags;
use super::metrics::MetricsFlags;
use super::page::PageFlags;
use super::rule_paths::RulePurpose;
use super::rules_from::RulesFromFlags;
use super::{CliExitCode, CommandFailure};
use crate::attachments;
use crate::bypass::{self, BypassConfig};
use crate::doctor::GuardSettings;
use crate::engine::OnFailure;
use crate::fleet::rules::FleetRulesConfig;
use crate::guard::source::{MAXIMUM_COPY_RANGE, QueueBackend, SourceConfig};
use crate::guard::{self, ConfigFile, ControlPlace, GuardConfig, GuardError, control};
use crate::hook::{BaseChain, HookConfig, MarkField, PortList, QueueRange};
use crate::privileges::UnprivilegedUser;
use crate::rules::RuleSelection;

/// Flags of `bannerwall guard`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:
  sudo bannerwall guard --hook input,output,forward             # report, block nothing
  sudo bannerwall guard --hook forward --ports 22,80 --enforce  # block on a router
All flags: bannerwall guard --help",
    after_long_help = "Examples:
  sudo bannerwall guard --hook input,output,forward             # report, block nothing
  sudo bannerwall guard --hook forward --ports 22,80 --enforce  # block on a router
  sudo bannerwall guard --queue 0:3 --metrics :9464 --events /var/log/bannerwall.json
  sudo bannerwall guard --hook input --enforce --on-failure closed
  sudo bannerwall guard --hook forward --inventory net.db --serve

Signals: SIGHUP reloads the rules and reopens the event file; SIGUSR1 reopens the event file
and writes a stats event, for logrotate; SIGUSR2 reloads the rules, as
`bannerwall reload` does with a report; SIGINT and SIGTERM stop the guard cleanly: it takes the
hook of --hook down, unless --hook-keep is given. A guard that fails under --on-failure closed
leaves its hook up. The kernel then drops packets until a guard runs or you run
`bannerwall hook down`."
)]
pub(super) struct GuardArgs {
    #[command(flatten)]
    inspection: InspectionFlags,
    #[command(flatten)]
    page: PageFlags,
    #[command(flatten)]
    rules_from: RulesFromFlags,

    /// Queue number, or a range with one worker each.
    #[arg(long, value_name = "N|A:B", default_value = "0")]
    queue: QueueRange,
    /// Interface to the kernel's queue.
    #[arg(long, value_name = "NAME", default_value = "libnetfilter_queue")]
    backend: BackendName,
    /// Put the iptables hook up at the start, and take it down at the end. Chains: input, output, forward,
    /// separated by commas.
    #[arg(long, value_name = "CHAINS", value_delimiter = ',')]
    hook: Vec<BaseChain>,
    /// With --hook: reaction to changes of the hook by others (a firewall's reload, another `hook down`).
    /// `on` restores the hook, `off` only logs the change.
    #[arg(long, value_name = "MODE", default_value = "on", requires = "hook")]
    hook_repair: OnOffSwitch,
    /// With --hook: leave the hook up at the end of the run. Until the next run packets pass (--on-failure
    /// open) or are dropped (closed). With closed no packet passes during a restart.
    #[arg(long, requires = "hook")]
    hook_keep: bool,
    #[command(flatten)]
    families: FamilyFlag,
    /// With --hook: queue only TCP with these source or destination ports (22,80,8000-8010).
    #[arg(long, value_name = "LIST", requires = "hook")]
    ports: Option<PortList>,
    /// With --hook: also queue UDP with these source or destination ports, to inspect QUIC (443) [default:
    /// none].
    #[arg(long, value_name = "LIST", requires = "hook")]
    hook_udp: Option<PortList>,
    #[command(flatten)]
    variant: VariantFlag,
    /// Bytes of each packet to copy at first. The guard raises this number if a flow needs more.
    #[arg(long, value_name = "BYTES", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(128..=i64::from(MAXIMUM_COPY_RANGE)))]
    copy_range: u32,
    /// Limit of packets that wait in each queue.
    #[arg(long, value_name = "N", default_value_t = SourceConfig::new(0).maximum_length,
          value_parser = clap::value_parser!(u32).range(1..))]
    queue_length: u32,
    /// Limit of a packet's time in the queue (`off`: none). An older packet gets the verdict of --on-failure
    /// without inspection, since its sender has sent it again. Packets that waited for a restart are
    /// inspected at any age. Needs timestamps, which incoming packets have; not available with --backend nfq
    /// [default: 2s].
    #[arg(long, value_name = "TIME|off", value_parser = max_wait)]
    max_wait: Option<MaxWait>,

    /// Inspect every packet of decided flows, too, instead of letting the kernel pass or drop them.
    #[arg(long)]
    no_offload: bool,
    /// Forward decided TCP flows between these interfaces (tc:eth0,eth1) with an eBPF program, below
    /// connection tracking and all rules. The guard refuses this if it would skip other firewall rules,
    /// address translation, bridges, routing rules or xfrm policies, and stops it if such rules appear later.
    #[arg(long, value_name = "tc:IF,IF", conflicts_with = "no_offload")]
    bypass: Option<BypassConfig>,
    /// With --bypass: limit of flows in the bypass. Evicted flows pass through the hook again.
    #[arg(long, value_name = "N", requires = "bypass",
          default_value_t = bypass::FLOWS, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    bypass_flows: u32,
    /// Never ban clients in these networks (192.0.2.0/24). The guard also never bans this machine's addresses
    /// and its default gateways.
    #[arg(long, value_name = "NETS", value_delimiter = ',', value_parser = super::flags::network)]
    ban_exempt: Vec<IpNet>,
    /// Lowest of the two adjacent mark bits to use.
    #[arg(long, value_name = "BIT", default_value_t = MarkField::HIGHEST_BIT,
          value_parser = clap::value_parser!(u8).range(..=i64::from(MarkField::HIGHEST_BIT)))]
    mark: u8,

    /// Switch to this user (a name or a number) once queues and sockets are open. The user has no special
    /// rights over files: it must be able to read the rules and to write into the folders of event files.
    #[arg(long, value_name = "NAME", value_parser = UnprivilegedUser::find)]
    user: Option<UnprivilegedUser>,
    /// Check configuration, rules and fingerprints as a start would, report faults, and exit. Binds no queue
    /// and no socket, and puts no hook up.
    #[arg(long)]
    check: bool,
    /// Do not confine the guard to the files and system calls that it needs, for debugging.
    #[arg(long)]
    no_sandbox: bool,
    /// Control socket for `bannerwall reload`, `status` and `why` [default:
    /// /run/bannerwall/guard-QUEUE-NETNS.sock].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Take over from the guard that listens at this Unix socket, if there is one, without a gap, and listen
    /// there for the next guard. To upgrade, run the same command again. The old guard exits once the new one
    /// is ready.
    #[arg(long, value_name = "PATH")]
    takeover: Option<PathBuf>,
    /// Let the service manager keep queues and flows over a restart (systemd, with a file descriptor store).
    /// A hook of --hook must stay up then (--hook-keep).
    #[arg(long)]
    fd_store: bool,
    #[command(flatten)]
    metrics: MetricsFlags,
}

/// Default limit of a packet's time in the queue.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Limit of a packet's time in the queue, or none.
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
enum OnOffSwitch {
    /// Enable it.
    On,
    /// Disable it.
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
            help = "Our own binding: many packets a call; this build encodes the library's messages itself"
        )
    )]
    LibnetfilterQueue,
    /// The nfq crate: one packet a call.
    Nfq,
}

/// Runs `bannerwall guard`.
pub(super) fn run(arguments: &GuardArgs, config_file: Option<&Path>) -> Result<CliExitCode, CommandFailure> {
    let outputs = arguments.inspection.outputs();
    let inventory = arguments.inspection.inventory.place();
    let rules_from = arguments.rules_from.config(&arguments.published(), inventory);
    let config = arguments.inspection.check_files();
    let config = config.and_then(|()| arguments.config(config_file, rules_from.as_ref()));
    // With wrong settings this guard will never read the queues that the service manager stored. While
    // it holds their sockets, packets would wait.
    let config = config.inspect_err(|_| guard::close_stored_sockets())?;
    let inspection = &arguments.inspection;
    let readers = arguments.page.readers(inspection, format!("queue {}", arguments.queue));
    let readers = readers.inspect_err(|_| guard::close_stored_sockets())?;
    let source = rules_from.map(attachments::rule_source);
    let ended = if arguments.check {
        guard::check(&config, &readers, source)
    } else {
        guard::run(&config, outputs, readers, source)
    };
    match ended {
        Ok(()) => Ok(CliExitCode::Done),
        Err(GuardError::Forced) => Ok(CliExitCode::Interrupted),
        Err(error) if error.is_unsupported() => Err(CommandFailure::unsupported(error)),
        Err(error) => Err(CommandFailure::usage(error)),
    }
}

impl GuardArgs {
    /// Returns the settings that the guard's hook must agree with.
    pub(super) fn settings(&self) -> GuardSettings {
        GuardSettings {
            queues: self.queue,
            mark: MarkField::new(self.mark).unwrap_or_default(),
            open: self.inspection.on_failure() == OnFailure::Open,
        }
    }

    /// Returns the limit of a packet's time in the queue. The nfq crate does not report that time.
    fn longest_wait(&self) -> Result<Option<Duration>, CommandFailure> {
        match (self.backend, self.max_wait) {
            (BackendName::Nfq, Some(MaxWait(Some(_)))) => Err(CommandFailure::Usage(anyhow!(
                "--max-wait: --backend nfq does not report the time in the queue; leave one of them out"
            ))),
            // The default does not apply to nfq, which cannot measure the time: an error would forbid
            // this backend.
            (BackendName::Nfq, _) | (_, Some(MaxWait(None))) => Ok(None),
            (_, Some(MaxWait(limit))) => Ok(limit),
            (_, None) => Ok(Some(MAX_WAIT)),
        }
    }

    /// Checks the flags of a guard that hands its queues to a successor.
    fn check_handover(&self) -> Result<(), CommandFailure> {
        let flag = match (&self.takeover, self.fd_store) {
            (Some(_), _) => "--takeover",
            (None, true) => "--fd-store",
            (None, false) => return Ok(()),
        };
        if self.backend == BackendName::Nfq {
            return Err(CommandFailure::usage(anyhow::anyhow!(
                "{flag}: --backend nfq cannot take over a queue; leave one of them out"
            )));
        }
        if self.fd_store && !self.hook.is_empty() && !self.hook_keep {
            return Err(CommandFailure::usage(anyhow::anyhow!(
                "--fd-store needs --hook-keep: otherwise packets pass between the runs, while the hook is down"
            )));
        }
        Ok(())
    }

    /// Returns the selection of a guard with published rules: the profiles alone, since it has no rule files.
    fn published(&self) -> RuleSelection {
        let inspection = &self.inspection;
        inspection.learning(inspection.rules.only(Vec::new(), Vec::new(), RulePurpose::Guard))
    }

    fn config(
        &self,
        config_file: Option<&Path>,
        rules_from: Option<&FleetRulesConfig>,
    ) -> Result<GuardConfig, CommandFailure> {
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
        // The confinement forbids all other files, and the file of stored rules is written while the
        // guard runs.
        inspection.writes.extend(rules_from.iter().map(|from| from.state.clone()));
        Ok(GuardConfig {
            inspection,
            config_file: config_file.map(ConfigFile::read).transpose()?,
            queues: self.queue,
            backend: match self.backend {
                BackendName::LibnetfilterQueue => QueueBackend::LibnetfilterQueue,
                BackendName::Nfq => QueueBackend::Nfq,
            },
            ban_exempt: self.ban_exempt.clone(),
            hook: (!hook.chains.is_empty()).then_some(hook),
            hook_repair: self.hook_repair == OnOffSwitch::On,
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
