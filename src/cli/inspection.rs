//! Flags of live packet inspection, for `guard` and `tunnel --guard`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::CommandFailure;
use super::flags::{
    EnforceOnlyFlag, FingerprintsFlag, FormatName, HttpExtent, InventoryFlags, LogHeadersFlag, OnAnomalyFlag,
    output_file,
};
use super::hook::OnFailureFlag;
use super::rule_paths::{RulePurpose, RulesFlag};
use crate::confinement::warn_unconfined;
use crate::engine::{EngineConfig, OnFailure};
use crate::guard::{EventOutput, InspectionConfig};
use crate::output::OutputDestination;
use crate::output::eve::{EveFormat, EveOptions};
use crate::output::learned_policies::PolicyFileFormat;
use crate::rules::RuleSelection;

/// Limit of `--flow-limit`: the engine allocates an index for that number at the start.
const MOST_FLOWS: u64 = 1 << 26;

/// Rules, verdicts and event outputs of packet inspection.
#[derive(Debug, Args)]
pub(super) struct InspectionFlags {
    #[command(flatten)]
    pub(super) rules: RulesFlag,
    #[command(flatten)]
    pub(super) fingerprints: FingerprintsFlag,

    /// Block traffic that blocking rules match. Without it alerts report what would have been blocked.
    #[arg(long, help_heading = "Verdicts")]
    pub(super) enforce: bool,
    #[command(flatten)]
    pub(super) enforce_only: EnforceOnlyFlag,
    /// Handling of packets that cannot be inspected (full queue, lack of memory, dead guard): open lets them
    /// pass, closed drops them.
    #[arg(long, value_name = "MODE", default_value = "open", help_heading = "Verdicts")]
    pub(super) on_failure: OnFailureFlag,
    #[command(flatten)]
    pub(super) on_anomaly: OnAnomalyFlag,
    /// Inspected part of a persistent HTTP connection: first (the first transaction), requests (every
    /// request, and the first response) or all. With all, every packet is queued except for long bodies of
    /// responses. auto reads every request if --enforce is given and a rule in force blocks requests, so a
    /// second request is no way around it. It reads everything if rules block anything else, too.
    #[arg(long, value_name = "WHICH", default_value = "auto", help_heading = "Verdicts")]
    pub(super) http_inspect: HttpExtent,
    /// Read the SSH key exchange for its fingerprint (HASSH) even if no rule needs it. This costs one or two
    /// packets a connection.
    #[arg(long, help_heading = "Verdicts")]
    pub(super) hassh: bool,
    /// Limit of tracked flows, over all queues.
    #[arg(long, value_name = "N", default_value_t = EngineConfig::default().flow_limit as u64,
          help_heading = "Verdicts", value_parser = clap::value_parser!(u64).range(1..=MOST_FLOWS))]
    flow_limit: u64,

    /// Append events as JSON lines (EVE) to FILE. Events go to stdout, too, only if --format is given.
    #[arg(long, value_name = "FILE", help_heading = "Events")]
    events: Option<PathBuf>,
    /// At the end, write policies to FILE that allow just the observed traffic (ports, networks, protocols
    /// and products), for your review.
    #[arg(long, value_name = "FILE", help_heading = "Events")]
    learn: Option<PathBuf>,
    /// Format of events on stdout [default: text].
    #[arg(long, value_name = "FORMAT", help_heading = "Events")]
    format: Option<FormatName>,
    /// Write to FILE instead of to stdout.
    #[arg(short, long, value_name = "FILE", help_heading = "Events", value_parser = output_file)]
    output: Option<PathBuf>,
    /// Leave out fields of JSON events that are not part of EVE.
    #[arg(long, help_heading = "Events")]
    eve_strict: bool,
    #[command(flatten)]
    pub(super) log_headers: LogHeadersFlag,
    /// Emit an event at the end of each flow: packets and bytes in each direction, protocol, verdict, times.
    /// Packets that the kernel passes by its mark are counted until the offload; --no-offload counts them
    /// all.
    #[arg(long, help_heading = "Events")]
    pub(super) flow_events: bool,
    #[command(flatten)]
    pub(super) inventory: InventoryFlags,
}

impl InspectionFlags {
    /// Returns the policy for a shortage.
    pub(super) fn on_failure(&self) -> OnFailure {
        match self.on_failure {
            OnFailureFlag::Open => OnFailure::Open,
            OnFailureFlag::Closed => OnFailure::Closed,
        }
    }

    /// Returns the rules to load.
    ///
    /// # Errors
    ///
    /// See [`RulesFlag::selection`].
    pub(super) fn selection(&self) -> Result<RuleSelection, CommandFailure> {
        Ok(self.learning(self.rules.selection_with_notice(RulePurpose::Guard)?))
    }

    /// Returns the selection that also alerts about traffic that no policy can allow, if policies are to be
    /// learned.
    pub(super) fn learning(&self, selection: RuleSelection) -> RuleSelection {
        RuleSelection { learns: self.learn.is_some(), ..selection }
    }

    /// Returns the configuration of the inspection, with these rules.
    pub(super) fn config(&self, rules: RuleSelection, no_sandbox: bool) -> InspectionConfig {
        if no_sandbox {
            warn_unconfined("a packet");
        }
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
            is_confined: !no_sandbox,
            writes: self.writes(),
        }
    }

    /// Returns the limit of tracked flows.
    fn flow_limit(&self) -> usize {
        usize::try_from(self.flow_limit).unwrap_or(usize::MAX)
    }

    /// Returns the files to write.
    fn writes(&self) -> Vec<PathBuf> {
        let files = [self.events.as_deref(), self.learn.as_deref(), self.output.as_deref()];
        files.into_iter().flatten().map(Path::to_owned).chain(self.inventory.writes()).collect()
    }

    /// Checks that the files for the end of the run are writable.
    ///
    /// # Errors
    ///
    /// They are not.
    pub(super) fn check_files(&self) -> Result<(), CommandFailure> {
        self.learn.as_deref().map_or(Ok(()), super::check_learn)
    }

    /// Returns the destinations of events: the event file, and stdout or `--output`, unless only the event
    /// file was requested.
    pub(super) fn outputs(&self) -> Vec<EventOutput> {
        let eve = EveOptions { strict: self.eve_strict, headers: self.log_headers.lists() };
        let mut outputs = Vec::new();
        if let Some(file) = &self.events {
            outputs.push(EventOutput {
                destination: OutputDestination::Log(file.clone()),
                format: Box::new(EveFormat(eve)),
            });
        }
        if let Some(file) = &self.learn {
            let destination = OutputDestination::Other(Box::new(std::io::sink()));
            outputs.push(EventOutput { destination, format: Box::new(PolicyFileFormat::new(file.clone())) });
        }
        if self.events.is_some() && self.format.is_none() && self.output.is_none() {
            return outputs;
        }
        let destination = self.output.clone().map_or(OutputDestination::Stdout, OutputDestination::Log);
        let format = self.format.unwrap_or(FormatName::Text).events(eve, &destination);
        outputs.push(EventOutput { destination, format });
        outputs
    }

    /// Returns the first of these flags on the command line, if any, for a command that cannot use them
    /// alone.
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
