//! `bannerwall guard`: flags to a [`GuardConfig`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::hook::{FamilyFlag, VariantFlag, unique};
use super::inspection::InspectionFlags;
use super::page::PageFlags;
use super::rule_paths::Use;
use super::{Exit, Failure};
use crate::diagnostics::tell;
use crate::doctor::GuardSettings;
use crate::engine::OnFailure;
use crate::guard::source::{Backend, MAXIMUM_COPY_RANGE, SourceConfig};
use crate::guard::{self, ControlPlace, GuardConfig, GuardError, Sandbox, control};
use crate::hook::{Chain, HookConfig, MarkField, Ports, Queues};
use crate::privileges::User;

/// Flags of `bannerwall guard`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall guard --hook input,output,forward            watch everything, block nothing
  bannerwall guard --hook forward --ports 22,80 --enforce block what the rules say on a router
  bannerwall guard --queue 0:3 --pin --metrics 127.0.0.1:9464 --events /var/log/bannerwall.json
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

    /// Queue number, or a range with one worker each.
    #[arg(long, value_name = "N|A:B", default_value = "0", help_heading = "Packets")]
    queue: Queues,
    /// Library that talks to the kernel.
    #[arg(long, value_name = "NAME", default_value = "libnetfilter_queue", help_heading = "Packets")]
    backend: BackendName,
    /// Put the iptables hook up for the run and take it down at its end: chains input, output,
    /// forward, separated by commas.
    #[arg(long, value_name = "CHAINS", value_delimiter = ',', help_heading = "Packets")]
    hook: Vec<Chain>,
    /// With --hook: what to do when something changes the hook or takes it away (a firewall's reload,
    /// another `hook down`): put it back, or only tell.
    #[arg(long, value_name = "MODE", default_value = "on", requires = "hook", help_heading = "Packets")]
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
    /// With --hook: queue UDP of these source or destination ports, too, so that QUIC is judged (443); none by
    /// default.
    #[arg(long, value_name = "LIST", requires = "hook", help_heading = "Packets")]
    hook_udp: Option<Ports>,
    #[command(flatten)]
    variant: VariantFlag,
    /// Octets of each packet to copy at first; grown by itself where a flow needs more.
    #[arg(long, value_name = "BYTES", default_value_t = 512, help_heading = "Packets",
          value_parser = clap::value_parser!(u32).range(128..=i64::from(MAXIMUM_COPY_RANGE)))]
    copy_range: u32,
    /// Packets that may wait in each queue.
    #[arg(long, value_name = "N", default_value_t = SourceConfig::new(0).maximum_length,
          help_heading = "Packets", value_parser = clap::value_parser!(u32).range(1..))]
    queue_length: u32,
    /// Packets that have waited longer in the queue get the verdict of --on-failure and are not judged
    /// (`off`: all are): after a pause of the guard they are old, and sent again. Needs stamps, which packets
    /// that come in have, and not with --backend nfq.
    #[arg(long, value_name = "TIME|off", default_value = "2s", help_heading = "Packets", value_parser = max_wait)]
    max_wait: MaxWait,
    /// Keep each worker on a CPU of its own.
    #[arg(long, help_heading = "Packets")]
    pin: bool,

    /// Judge every packet of decided flows here instead of having the kernel pass or drop them.
    #[arg(long, help_heading = "Verdicts")]
    no_offload: bool,
    /// Lowest of the two neighbouring mark bits that are ours.
    #[arg(long, value_name = "BIT", default_value_t = MarkField::HIGHEST_BIT, help_heading = "Verdicts",
          value_parser = clap::value_parser!(u8).range(..=i64::from(MarkField::HIGHEST_BIT)))]
    mark: u8,

    /// Go on as this user (a name or a number) once queues and sockets are open: without rights over files, so that
    /// rules must be readable and folders of event files writable for that user.
    #[arg(long, value_name = "NAME", help_heading = "General", value_parser = User::find)]
    user: Option<User>,
    /// Do not confine the guard to the files and calls that it needs, for debugging.
    #[arg(long, help_heading = "General")]
    no_sandbox: bool,
    /// Control socket for `bannerwall reload` [default: /run/bannerwall/guard-QUEUE-NETNS.sock].
    #[arg(long, value_name = "PATH", help_heading = "General")]
    control: Option<PathBuf>,
    /// Show /metrics, /healthz and /readyz on this address.
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Events")]
    metrics: Option<SocketAddr>,
}

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
    /// Our own binding of the C library: many packets a call.
    #[value(name = "libnetfilter_queue")]
    LibnetfilterQueue,
    /// The nfq crate: one packet a call.
    Nfq,
}

/// Runs `bannerwall guard`.
pub(super) fn run(arguments: &GuardArgs) -> Result<Exit, Failure> {
    let outputs = arguments.inspection.outputs();
    arguments.inspection.check_files()?;
    let config = arguments.config()?;
    match guard::run(&config, outputs) {
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

    /// What the guard is held to. One that notifies others runs their programs, which need what nobody knows.
    fn sandbox(&self) -> Sandbox {
        if self.no_sandbox {
            tell("bannerwall: --no-sandbox: nothing holds what a packet may lead astray");
            return Sandbox::Off;
        }
        if self.inspection.inventory.notifies() { Sandbox::Privileges } else { Sandbox::Whole }
    }

    fn config(&self) -> Result<GuardConfig, Failure> {
        let mark = MarkField::new(self.mark).unwrap_or_default();
        let inspection = &self.inspection;
        let hook = HookConfig {
            chains: unique(&self.hook),
            ports: self.ports.clone(),
            udp: self.hook_udp.clone(),
            queues: self.queue,
            bypass: inspection.on_failure() == OnFailure::Open,
            mark,
        };
        let user = self.user.as_ref();
        Ok(GuardConfig {
            rules: inspection.rules.selection_told(Use::Guard)?,
            fingerprints: inspection.fingerprints.path.clone(),
            queues: self.queue,
            backend: match self.backend {
                BackendName::LibnetfilterQueue => Backend::LibnetfilterQueue,
                BackendName::Nfq => Backend::Nfq,
            },
            enforce: inspection.enforce,
            on_failure: inspection.on_failure(),
            on_anomaly: inspection.on_anomaly.policy(inspection.enforce),
            http_inspect: inspection.http_inspect.into(),
            collect_kex: inspection.hassh,
            hook: (!hook.chains.is_empty()).then_some(hook),
            hook_repair: self.hook_repair == Switch::On,
            hook_keep: self.hook_keep,
            families: self.families.families(),
            variant: self.variant.variant(),
            offload: !self.no_offload,
            copy_range: self.copy_range,
            queue_length: self.queue_length,
            max_wait: self.max_wait.0,
            flow_limit: inspection.flow_limit(),
            mark,
            pin: self.pin,
            control: Some(ControlPlace {
                path: self.control.clone().unwrap_or_else(|| control::default_path(self.queue.first, user)),
                asked: self.control.is_some(),
            }),
            metrics: self.metrics,
            disclosure: inspection.log_headers.disclosure(),
            page: self.page.config(inspection.inventory.place()),
            inventory: inspection.inventory.config(format!("queue {}", self.queue)),
            flow_events: inspection.flow_events,
            user: self.user.clone(),
            sandbox: self.sandbox(),
            writes: inspection.writes(),
        })
    }
}
