//! Fleet scans: converts the flags of `scan` into an order for workers, and back.
//!
//! An order holds flags with their names and values, as `scan` parses them. Only listed flags are allowed.
//! None of them reads or writes a file, or runs a program: everyone who can write to the table controls all
//! workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::builder::Resettable;
use clap::{ArgMatches, Command, FromArgMatches, Parser, Subcommand, parser::ValueSource};

use super::run::options_judged_by;
use super::{ModeFlagValues, ScanMode, request};
use crate::cli::rule_paths::{LOCAL_FLAG, RulePurpose, RulesFlag};
use crate::cli::{CommandFailure, GlobalFlags};
use crate::diagnostics::log_line;
use crate::fleet::{FileKind, RuleFile, ScanOrder, ScanSubmission, ScanTask, leads_down};
use crate::output::eve::EveOptions;
use crate::rules::{RuleSelection, RuleSet, TextSource};
use crate::scan::ProbeOptions;
use crate::scan::pacing::ScanRate;
use crate::scan::session::{self, ObserverDecision, ScanObserver, ScanOptions, TargetOptions};

use crate::scan::targets::{SkippedReserved, TargetCounts};
use crate::serve::ScanPreparer;

/// Flags that an order can hold, by their ids.
const HELD: [&str; 29] = [
    "ports",
    "top_ports",
    "exclude_ports",
    "matches",
    "max_bytes",
    "hassh",
    "host_key",
    "protocol",
    "starttls",
    "alpn",
    "sni",
    "when",
    "method",
    "paths",
    "headers",
    "no_pipeline",
    "host_connections",
    "body_limit",
    "rate",
    "concurrency",
    "connect_timeout",
    "read_timeout",
    "total_timeout",
    "retries",
    "close",
    "log_headers",
    "profile",
    "open",
    "seed",
];

/// Flags that are resolved before submission: the submitter reads the files that they name.
const READ: [&str; 8] =
    ["targets", "input", "exclude", "exclude_file", "include_reserved", "rules", LOCAL_FLAG, "no_local"];

/// Limit of the rules in an order, in bytes.
const RULES: usize = 32 << 20;

/// Fleet scan: the mode and its flags from the command line.
#[derive(Debug)]
pub(in crate::cli) struct FleetScanSpec {
    mode: ScanMode,
    name: String,
    flags: Vec<String>,
}

/// Parser for the flags of a scan alone.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct ScanFlagParser {
    #[command(subcommand)]
    spec: FleetScanSpec,
}

impl FromArgMatches for FleetScanSpec {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mode = ScanMode::from_arg_matches(matches)?;
        let (name, own) = matches.subcommand().unwrap_or(("", matches));
        let command = ScanMode::augment_subcommands(Command::new("scan"));
        let mut flags = Vec::new();
        for argument in command.find_subcommand(name).into_iter().flat_map(Command::get_arguments) {
            let id = argument.get_id().as_str();
            if own.value_source(id) != Some(ValueSource::CommandLine) || READ.contains(&id) {
                continue;
            }
            let flag = argument.get_long().unwrap_or(id);
            if !HELD.contains(&id) {
                let told = format!("--{flag} is not available for a fleet's scan\n");
                return Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, told));
            }
            if !argument.get_action().takes_values() {
                flags.push(format!("--{flag}"));
                continue;
            }
            for value in own.get_raw(id).into_iter().flatten() {
                flags.push(format!("--{flag}={}", value.to_string_lossy()));
            }
        }
        Ok(Self { mode, name: name.to_owned(), flags })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for FleetScanSpec {
    fn augment_subcommands(command: Command) -> Command {
        let names: Vec<String> = ScanMode::augment_subcommands(Command::new("scan"))
            .get_subcommands()
            .map(|mode| mode.get_name().to_owned())
            .collect();
        let command = ScanMode::augment_subcommands(command);
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, as_order))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        ScanMode::has_subcommand(name)
    }
}

/// Hides flags that an order cannot hold from a mode's help, and ignores the environment.
fn as_order(mode: Command) -> Command {
    // A variable belongs to the machine, not to the order. A confined worker could not open the files that a
    // database's address names.
    let mode = mode.mut_args(|argument| argument.env(Resettable::Reset));
    let others: Vec<String> = mode
        .get_arguments()
        .map(|argument| argument.get_id().as_str().to_owned())
        .filter(|id| !HELD.contains(&id.as_str()) && !READ.contains(&id.as_str()))
        .collect();
    let ports = if mode.get_name() == "connect" { " -p 22,80" } else { "" };
    let example = format!(
        "Example:\n  bannerwall fleet submit {} 192.0.2.0/24{ports} --database postgresql://ann@db/net",
        mode.get_name()
    );
    let mode = mode.after_help(example);
    others.into_iter().fold(mode, |mode, id| mode.mut_arg(id, |argument| argument.hide(true)))
}

/// Reports excluded targets, as the scan itself does.
struct ExclusionReporter {
    quiet: bool,
}

impl ScanObserver for ExclusionReporter {
    fn unresolved(&mut self, name: &str) {
        log_line(format_args!("bannerwall: {name}"));
    }

    fn left_out(&mut self, out: &SkippedReserved) {
        if !self.quiet {
            log_line(format_args!(
                "bannerwall: left out {} ({} addresses in {}); --include-reserved probes them, too",
                out.what, out.addresses, out.range
            ));
        }
    }

    fn poll_decision(&mut self, _counts: &TargetCounts) -> ObserverDecision {
        ObserverDecision::GoOn
    }

    fn report_error(&mut self, fault: &dyn std::fmt::Display) {
        log_line(format_args!("bannerwall: {fault}"));
    }

    fn kept(&mut self, _file: &Path, _interrupted: bool) {}
}

impl FleetScanSpec {
    /// Validates the scan, and returns the order, the number of targets and the rate limit.
    pub(in crate::cli) fn order(
        &self,
        global: &GlobalFlags,
    ) -> Result<(ScanOrder, u64, Option<u32>), CommandFailure> {
        let request = request(&self.mode, global)?;
        let judged = load_rules(&request, global)?;
        let rules = judged
            .as_ref()
            .map_or(Ok(Vec::new()), |(rules, flag)| packed(rules, &flag.selection(RulePurpose::Scan)?))?;
        let set = judged.map_or_else(RuleSet::empty, |(rules, _)| rules);
        self.order_with((set, rules), &request, global)
    }

    /// Returns the order with rules that are loaded and packed already, the number of targets and the rate
    /// limit.
    fn order_with(
        &self,
        (set, rules): (RuleSet, Vec<RuleFile>),
        request: &ModeFlagValues<'_>,
        global: &GlobalFlags,
    ) -> Result<(ScanOrder, u64, Option<u32>), CommandFailure> {
        let common = request.common;
        let options = options_judged_by((set, None), request, global)?;
        let targets = session::targets(&options, &mut ExclusionReporter { quiet: global.quiet })?;
        if targets.len() == 0 {
            return Err(CommandFailure::Usage(anyhow!("no targets are left")));
        }
        let named = targets.named().iter().map(|(address, name)| (*address, name.to_string()));
        let endpoints = targets.endpoints().iter();
        let endpoints = endpoints.map(|(address, name)| (*address, name.as_deref().map(str::to_owned)));
        let seed = common.seed.unwrap_or_else(|| {
            use std::hash::{BuildHasher as _, RandomState};
            RandomState::new().hash_one(0)
        });
        let order = ScanOrder {
            mode: self.name.clone(),
            flags: self.flags.clone(),
            targets: targets.ranges(),
            named: named.collect(),
            endpoints: endpoints.collect(),
            fingerprint: targets.fingerprint(),
            seed,
            rules,
            every: false,
            limits: Vec::new(),
            not_at: Vec::new(),
        };
        // Parsing it as a worker does reports errors here, instead of on every worker.
        task(&order).map_err(|why| CommandFailure::Usage(anyhow!(why)))?;
        let rate = if let ScanRate::Limited(rate) = options.rate { Some(rate.get()) } else { None };
        Ok((order, targets.len(), rate))
    }

    /// Describes the order for a person: `ssh 192.0.2.0/24 -p22`.
    pub(in crate::cli) fn about(&self) -> String {
        let common = self.mode.common();
        let file = common.input.iter().map(|file| format!("-i {file}"));
        let words = common.targets.iter().cloned().chain(file).chain(self.flags.iter().cloned());
        let about: Vec<String> = std::iter::once(self.name.clone()).chain(words).collect();
        about.join(" ").chars().take(400).collect()
    }
}

/// Returns what makes submissions of the arguments of a page's scans, by rules that are read once.
pub(in crate::cli) fn preparer(paths: &[PathBuf]) -> Result<ScanPreparer, CommandFailure> {
    let flag = RulesFlag::default().with_paths(paths);
    let rules = match flag.missing()? {
        Some(_) => Vec::new(),
        None => packed(&flag.load(RulePurpose::Scan, true)?, &flag.selection(RulePurpose::Scan)?)?,
    };
    Ok(ScanPreparer(Arc::new(move |words| {
        let global = GlobalFlags { config: None, quiet: true, verbose: 0 };
        let spec = parse(words)?.1;
        let request = request(&spec.mode, &global).map_err(reason)?;
        let is_matched = !matches!(request.probe, ProbeOptions::Connect);
        let rules = if is_matched { rules.clone() } else { Vec::new() };
        let made = spec.order_with((RuleSet::empty(), rules), &request, &global);
        let (order, targets, rate) = made.map_err(reason)?;
        Ok(ScanSubmission::new(spec.about(), order, targets, rate))
    })))
}

/// Parses the flags of a scan; returns them with their sources.
fn parse<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Result<(ArgMatches, FleetScanSpec), String> {
    let command = <ScanFlagParser as clap::CommandFactory>::command();
    let words = words.into_iter().map(|word| word.as_ref().to_owned());
    let matches = command.try_get_matches_from(words).map_err(|error| first_line(&error))?;
    let spec = FleetScanSpec::from_arg_matches(&matches).map_err(|error| first_line(&error))?;
    Ok((matches, spec))
}

fn first_line(error: &clap::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

fn reason(failure: CommandFailure) -> String {
    match failure {
        CommandFailure::Clap(error) | CommandFailure::ClapWithConfig(error) => first_line(&error),
        CommandFailure::Usage(error) | CommandFailure::Unsupported(error) => format!("{error:#}"),
    }
}

/// Returns the rules to match and their flags, or none if banners are only reported.
fn load_rules<'r>(
    request: &ModeFlagValues<'r>,
    global: &GlobalFlags,
) -> Result<Option<(RuleSet, &'r RulesFlag)>, CommandFailure> {
    let flag = &request.common.rules;
    if matches!(request.probe, ProbeOptions::Connect) {
        return Ok(None);
    }
    if let Some(why) = flag.missing()? {
        log_line(format_args!("bannerwall: banners are reported but not matched: {why}"));
        return Ok(None);
    }
    Ok(Some((flag.load(RulePurpose::Scan, global.quiet)?, flag)))
}

/// Returns the files of rules, each in a folder with the number of its source.
pub(in crate::cli) fn packed(
    rules: &RuleSet,
    selection: &RuleSelection,
) -> Result<Vec<RuleFile>, CommandFailure> {
    let roots = selection.rules.iter().map(|root| (root, FileKind::Rules));
    let roots: Vec<(&PathBuf, FileKind)> =
        roots.chain(selection.local.iter().map(|root| (root, FileKind::Local))).collect();
    let mut octets = 0;
    let pack = |file: &PathBuf| {
        let place = roots.iter().enumerate().find_map(|(number, (root, kind))| {
            let base = if root.is_dir() { root.as_path() } else { root.parent()? };
            // A path with `..` or a root would leave the folder of the pack.
            let below = file.strip_prefix(base).ok().filter(|below| leads_down(below))?;
            let is_rules = root == &file || (root.is_dir() && file.extension() == Some("toml".as_ref()));
            let is_list = file.extension() != Some("toml".as_ref());
            let kind = if is_rules { *kind } else { FileKind::List };
            (is_rules || is_list).then(|| (Path::new(&number.to_string()).join(below), kind))
        });
        let shown = file.display();
        let (path, kind) =
            place.with_context(|| format!("{shown}: lists must be in the folder of the rules"))?;
        let text = std::fs::read_to_string(file).with_context(|| shown.to_string())?;
        octets += text.len();
        anyhow::ensure!(octets <= RULES, "the rules are larger than {} MiB", RULES >> 20);
        Ok(RuleFile { path: path.to_string_lossy().into_owned(), text, kind })
    };
    rules.files().map(pack).collect::<anyhow::Result<_>>().map_err(CommandFailure::Usage)
}

/// Returns the task of a worker for an order.
///
/// # Errors
///
/// The order holds a forbidden or unknown flag.
pub(in crate::cli) fn task(order: &ScanOrder) -> Result<ScanTask, String> {
    // This repeats the submitter's checks, since the database's content is not trusted.
    let (matches, FleetScanSpec { mode, .. }) = parse(std::iter::once(&order.mode).chain(&order.flags))?;
    let (name, own) = matches.subcommand().ok_or("no mode")?;
    if let Some(flag) = READ.iter().find(|id| own.value_source(id) == Some(ValueSource::CommandLine)) {
        return Err(format!("`{name}` has {flag}, which an order cannot hold"));
    }
    let global = GlobalFlags { config: None, quiet: true, verbose: 0 };
    let request = request(&mode, &global).map_err(reason)?;
    let rules = unpacked(&order.rules, &request.common.rules).map_err(reason)?;
    let options = options_judged_by((rules, None), &request, &global).map_err(reason)?;
    let eve = EveOptions { strict: false, headers: request.common.log_headers.lists() };
    Ok(ScanTask { options: ScanOptions { targets: TargetOptions::default(), ..options }, eve })
}

/// Loads the rules of an order.
fn unpacked(files: &[RuleFile], flag: &RulesFlag) -> Result<RuleSet, CommandFailure> {
    if files.is_empty() {
        return Ok(RuleSet::empty());
    }
    let of =
        |kind| files.iter().filter(|file| file.kind == kind).map(|file| PathBuf::from(&file.path)).collect();
    let texts = files.iter().map(|file| (PathBuf::from(&file.path), file.text.clone())).collect();
    let selection = RuleSelection {
        texts: TextSource::Given(Arc::new(texts)),
        ..flag.only(of(FileKind::Rules), of(FileKind::Local), RulePurpose::Scan)
    };
    let loaded = RuleSet::load(&selection).map_err(CommandFailure::usage)?;
    Ok(loaded.rules)
}
