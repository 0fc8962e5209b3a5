//! The flags of what judges live packets, whoever has them in hand: `guard`, and `tunnel --guard`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use super::flags::{
    EnforceOnlyFlag, FingerprintsFlag, FormatName, HttpExtent, InventoryFlags, LogHeadersFlag, OnAnomalyFlag,
    output_file,
};
use super::hook::OnFailureFlag;
use super::rule_paths::{RulesFlag, Use};
use crate::confinement::tell_unheld;
use crate::engine::{EngineConfig, OnFailure};
use crate::guard::{InspectionConfig, Output, Sandbox};
use crate::output::Destination;
use crate::output::eve::{Eve, EveOptions};
use crate::output::learn::Learning;
use crate::rules::Selection;

/// The most flows that may be remembered: room for an index of them is made at the start.
const MOST_FLOWS: u64 = 1 << 26;

/// By what packets are judged, and where what comes of it is told.
#[derive(Debug, Args)]
pub(super) struct InspectionFlags {
    #[command(flatten)]
    pub(super) rules: RulesFlag,
    #[command(flatten)]
    pub(super) fingerprints: FingerprintsFlag,

    /// Block what blocking rules match; without it alerts say what would have been blocked.
    #[arg(long, help_heading = "Verdicts")]
    pub(super) enforce: bool,
    #[command(flatten)]
    pub(super) enforce_only: EnforceOnlyFlag,
    /// What becomes of packets that cannot be inspected (queue full, memory short, guard dead): open
    /// lets them pass, closed drops them.
    #[arg(long, value_name = "MODE", default_value = "open", help_heading = "Verdicts")]
    pub(super) on_failure: OnFailureFlag,
    #[command(flatten)]
    pub(super) on_anomaly: OnAnomalyFlag,
    /// How much of a kept-alive HTTP connection is read: its first transaction; every request, and the first
    /// response; or all, for which every packet is queued but those of long bodies of responses. Where a rule
    /// in force blocks requests and --enforce is given, auto reads every request, so that a second one is no
    /// way around it, and all where rules block for anything else, too.
    #[arg(long, value_name = "WHICH", default_value = "auto", help_heading = "Verdicts")]
    pub(super) http_inspect: HttpExtent,
    /// Read the SSH key exchange for its fingerprint (HASSH) even if no rule asks for it; costs a packet or
    /// two a connection.
    #[arg(long, help_heading = "Verdicts")]
    pub(super) hassh: bool,
    /// Flows remembered at once, over all queues.
    #[arg(long, value_name = "N", default_value_t = EngineConfig::default().flow_limit as u64,
          help_heading = "Verdicts", value_parser = clap::value_parser!(u64).range(1..=MOST_FLOWS))]
    flow_limit: u64,

    /// Write events as JSON lines (EVE) to FILE, appending; nothing goes to stdout then unless
    /// --format says so.
    #[arg(long, value_name = "FILE", help_heading = "Events")]
    events: Option<PathBuf>,
    /// At the end, write to FILE the policies that would allow just what was seen (ports, networks, protocols
    /// and products), to be reviewed.
    #[arg(long, value_name = "FILE", help_heading = "Events")]
    learn: Option<PathBuf>,
    /// How events look on stdout [default: text].
    #[arg(long, value_name = "FORMAT", help_heading = "Events")]
    format: Option<FormatName>,
    /// Write what would go to stdout to FILE instead.
    #[arg(short, long, value_name = "FILE", help_heading = "Events", value_parser = output_file)]
    output: Option<PathBuf>,
    /// Leave everything out of JSON events that EVE has no name for.
    #[arg(long, help_heading = "Events")]
    eve_strict: bool,
    #[command(flatten)]
    pub(super) log_headers: LogHeadersFlag,
    /// Tell of each flow at its end: packets and octets in each direction, protocol, verdict, times. What the
    /// kernel passes on by itself is counted until then; --no-offload counts all of it.
    #[arg(long, help_heading = "Events")]
    pub(super) flow_events: bool,
    #[command(flatten)]
    pub(super) inventory: InventoryFlags,
}

impl InspectionFlags {
    /// What a shortage means.
    pub(super) fn on_failure(&self) -> OnFailure {
        match self.on_failure {
            OnFailureFlag::Open => OnFailure::Open,
            OnFailureFlag::Closed => OnFailure::Closed,
        }
    }

    /// The rules to load.
    ///
    /// # Errors
    /// See [`RulesFlag::selection`].
    pub(super) fn selection(&self) -> Result<Selection, Failure> {
        Ok(self.learning(self.rules.selection_told(Use::Guard)?))
    }

    /// The selection that also alerts of what no policy can allow, if policies are to be learned.
    pub(super) fn learning(&self, selection: Selection) -> Selection {
        Selection { learns: self.learn.is_some(), ..selection }
    }

    /// What packets are inspected by, with these rules.
    pub(super) fn config(&self, rules: Selection, no_sandbox: bool) -> InspectionConfig {
        InspectionConfig {
            rules,
            fingerprints: self.fingerprints.path.clone(),
            engine: EngineConfig {
                enforce: self.enforce,
                enforce_only: self.enforce_only.only(),
                on_failure: self.on_failure(),
                on_anomaly: self.on_anomaly.policy(self.enforce),
                http_inspect: self.http_inspect.into(),
                disclosure: self.log_headers.disclosure(),
                flow_events: self.flow_events,
                collect_kex: self.hassh,
                flow_limit: self.flow_limit(),
                ..EngineConfig::default()
            },
            sandbox: self.sandbox(no_sandbox),
            writes: self.writes(),
        }
    }

    /// What the process is held to. One that notifies others runs their programs, whose needs are unknown.
    fn sandbox(&self, is_off: bool) -> Sandbox {
        if is_off {
            tell_unheld("a packet");
            return Sandbox::Off;
        }
        if self.inventory.notifies() { Sandbox::Privileges } else { Sandbox::Whole }
    }

    /// Flows remembered at once.
    fn flow_limit(&self) -> usize {
        usize::try_from(self.flow_limit).unwrap_or(usize::MAX)
    }

    /// The files that are written.
    fn writes(&self) -> Vec<PathBuf> {
        let files = [self.events.as_deref(), self.learn.as_deref(), self.output.as_deref()];
        files.into_iter().flatten().map(Path::to_owned).chain(self.inventory.writes()).collect()
    }

    /// Whether the files that are written at the end can be.
    ///
    /// # Errors
    /// They cannot.
    pub(super) fn check_files(&self) -> Result<(), Failure> {
        self.learn.as_deref().map_or(Ok(()), super::check_learn)
    }

    /// Where events go: the event file, and stdout (or what stands for it) unless only the event file
    /// was asked for.
    pub(super) fn outputs(&self) -> Vec<Output> {
        let eve = EveOptions { strict: self.eve_strict, headers: self.log_headers.lists() };
        let mut outputs = Vec::new();
        if let Some(file) = &self.events {
            outputs.push(Output { destination: Destination::Log(file.clone()), format: Box::new(Eve(eve)) });
        }
        if let Some(file) = &self.learn {
            let destination = Destination::Other(Box::new(std::io::sink()));
            outputs.push(Output { destination, format: Box::new(Learning::new(file.clone())) });
        }
        if self.events.is_some() && self.format.is_none() && self.output.is_none() {
            return outputs;
        }
        let destination = self.output.clone().map_or(Destination::Stdout, Destination::Log);
        let format = self.format.unwrap_or(FormatName::Text).events(eve, &destination);
        outputs.push(Output { destination, format });
        outputs
    }

    /// The first of these flags that was given, if any: for whom they mean nothing alone.
    pub(super) fn given(&self) -> Option<&'static str> {
        [
            (self.rules.is_given(), "--rules, --local and --profile"),
            (self.fingerprints.path.is_some(), "--fingerprints"),
            (self.enforce, "--enforce"),
            (self.on_failure == OnFailureFlag::Closed, "--on-failure"),
            (self.on_anomaly.is_given(), "--on-anomaly"),
            (self.http_inspect != HttpExtent::Auto, "--http-inspect"),
            (self.hassh, "--hassh"),
            (self.flow_limit() != EngineConfig::default().flow_limit, "--flow-limit"),
            (self.events.is_some(), "--events"),
            (self.learn.is_some(), "--learn"),
            (self.format.is_some(), "--format"),
            (self.output.is_some(), "--output"),
            (self.flow_events, "--flow-events"),
            (self.eve_strict, "--eve-strict"),
            (self.log_headers.is_given(), "--log-headers"),
            (self.inventory.config(String::new()).is_some(), "--inventory"),
        ]
        .into_iter()
        .find_map(|(is_given, name)| is_given.then_some(name))
    }
}
