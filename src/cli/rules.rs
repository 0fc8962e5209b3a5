//! `bannerwall rules`: checks, lists and tests rule files; imports fingerprints and advisories.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;

use super::explain::explain;
use super::flags::{FormatName, check_output};
use super::flow_test;
use super::import::{self, RulesImportArgs};
use super::inspection_extent::{self, ExplainArgs};
use super::result_table::ResultTable;
use super::rule_flags::{RuleFilesArgs, TestArgs};
use super::rule_paths::RulePurpose;
use super::{CliExitCode, CommandFailure};
use crate::diagnostics::several;
use crate::event::signature_id;
use crate::output::text::ColourMode;
use crate::rules::{ExampleResult, LoadedRules, Policy, Rule, RuleDiagnostic, RuleSet};

/// Flags of `bannerwall rules`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall rules check mine.toml
  bannerwall rules test mine.toml --banner 'SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2'
  bannerwall rules list")]
pub(super) struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// Check rule files for errors and suspicious rules; exit code 1 if there are warnings, 2 if a file is
    /// refused.
    #[command(
        after_help = "Examples:\n  bannerwall rules check\n  bannerwall rules check mine.toml --format json"
    )]
    Check(RuleFilesArgs),
    /// List the rules in the order of evaluation.
    #[command(after_help = "Example:\n  bannerwall rules list --format csv > rules.csv")]
    List(RuleFilesArgs),
    /// Test every example and counterexample, or explain the result of each rule for one banner.
    #[command(after_help = "Examples:
  bannerwall rules test rules/
  bannerwall rules test --banner 'SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2'
  bannerwall rules test --protocol http --banner 'HTTP/1.1 200 OK\\r\\nServer: Apache/2.4.49'
  bannerwall rules test --protocol http --from client --banner 'GET /.env HTTP/1.1'
  bannerwall rules test --banner 'SSH-2.0-OpenSSH_7.4' --source 192.0.2.7 \\
      --destination 198.51.100.2
  bannerwall rules test debian.toml --banner SSH-2.0-OpenSSH_9.2p1 --kexinit said
  bannerwall rules test --flow '203.0.113.7 > 192.0.2.1:22' \\
      --say 'server: RFB 003.008\\n' --expect drop")]
    Test(TestArgs),
    /// Explain how much traffic a guard reads for the rules in force.
    #[command(after_help = "Example:\n  bannerwall rules explain --inspection")]
    Explain(ExplainArgs),
    /// Turn other projects' databases into our formats.
    #[command(after_help = "Example:\n  bannerwall rules import recog ssh_banners.xml -o fingerprints.toml")]
    Import(RulesImportArgs),
}

/// Runs `bannerwall rules`.
pub(super) fn run(arguments: &RulesArgs, quiet: bool, verbose: u8) -> Result<CliExitCode, CommandFailure> {
    if let RulesCommand::Check(files)
    | RulesCommand::List(files)
    | RulesCommand::Explain(ExplainArgs { files, .. })
    | RulesCommand::Test(TestArgs { files, .. }) = &arguments.command
    {
        check_output(files.output.file(), files.paths.iter().map(PathBuf::as_path))?;
    }
    match &arguments.command {
        RulesCommand::Check(files) => check(files, quiet),
        RulesCommand::List(files) => list(files, quiet),
        RulesCommand::Test(arguments) => match &arguments.banner {
            Some(banner) => explain(arguments, banner, quiet),
            None if arguments.flow.is_some() => test_flow(arguments, quiet),
            None => test(&arguments.files, quiet, verbose),
        },
        RulesCommand::Explain(arguments) => inspection_extent::explain(arguments, quiet),
        RulesCommand::Import(arguments) => import::run(arguments, quiet),
    }
}

fn check(files: &RuleFilesArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let checked = RuleSet::check(&files.flag().selection(RulePurpose::Rules)?);
    let now = std::time::SystemTime::now().into();
    let ended: Vec<RuleDiagnostic> = checked.iter().flat_map(|loaded| loaded.rules.ended(now)).collect();
    let findings = match &checked {
        Ok(LoadedRules { warnings, .. }) => warnings.as_slice(),
        // A machine reads the faults as results; a person on stderr, like those of every subcommand.
        Err(error) if files.output.format() != FormatName::Text => error.diagnostics.as_slice(),
        Err(_) => &[],
    };
    let mut table = ResultTable::new(&["level", "file", "line", "column", "rule", "message", "help"]);
    for one in findings.iter().chain(&ended) {
        table.add(finding(one), format!("{one}\n"));
    }
    if let (Ok(loaded), false) = (&checked, quiet) {
        table.say(format!(
            "{}, {}",
            counted(&loaded.rules),
            several(findings.len() + ended.len(), "warning")
        ));
    }
    table.write(&files.output)?;
    match checked {
        Ok(_) if !table.is_empty() => Ok(CliExitCode::Findings),
        Ok(_) => Ok(CliExitCode::Done),
        Err(error) => Err(CommandFailure::usage(error)),
    }
}

/// Formats `120 rules, 3 changed by overrides, 2 not in force`.
fn counted(set: &RuleSet) -> String {
    let all = || set.rules().iter().chain(set.rules_off());
    let mut text = several(all().count(), "rule");
    match set.policies().len() {
        0 => {}
        1 => text.push_str(", 1 policy"),
        count => text.push_str(&format!(", {count} policies")),
    }
    let changed = all().filter(|rule| !rule.changes().is_empty()).count();
    if changed > 0 {
        text.push_str(&format!(", {changed} changed by overrides"));
    }
    if !set.rules_off().is_empty() {
        text.push_str(&format!(", {} not in force", set.rules_off().len()));
    }
    text
}

fn finding(one: &RuleDiagnostic) -> serde_json::Value {
    json!({
        "level": one.level.name(),
        "file": one.file,
        "line": one.place.map(|place| place.line),
        "column": one.place.map(|place| place.column),
        "rule": one.rule,
        "message": one.message,
        "help": one.help,
    })
}

fn list(files: &RuleFilesArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let set = files.flag().load(RulePurpose::Rules, quiet)?;
    let mut table = ResultTable::new(&[
        "id",
        "action",
        "severity",
        "protocol",
        "from",
        "title",
        "category",
        "references",
        "signature_id",
        "file",
        "line",
        "tags",
        "profiles",
        "off",
        "changes",
        "kind",
        "allow",
        "silent_after",
        "budget",
        "midstream",
    ]);
    let all = || set.rules().iter().chain(set.rules_off());
    let width = |length: fn(&Rule) -> usize| all().map(length).max().unwrap_or(0);
    let widths = (width(|rule| rule.id().len()), width(|rule| profiles(rule).len()));
    for policy in set.policies() {
        table.add(listed_policy(policy), listed_policy_text(policy, widths.0));
    }
    for rule in all() {
        table.add(listed(rule), listed_text(rule, widths, files.output.colour()));
    }
    table.write(&files.output)?;
    Ok(CliExitCode::Done)
}

/// Formats a rule as one line, with the changes by overrides below.
fn listed_text(rule: &Rule, (width, profiles_width): (usize, usize), colour: ColourMode) -> String {
    let action = if rule.off().is_some() { "off" } else { rule.action().name() };
    let about = format!("{} {}", rule.protocol().name(), rule.from().name());
    let mut text = format!(
        "{:<width$}  {action:<6}  {}  {about:<11}  {:<profiles_width$}  {}",
        rule.id(),
        colour.severity(rule.severity().name(), 8),
        profiles(rule),
        rule.title()
    );
    let made_for = rule.off().filter(|_| rule.changes().is_empty());
    for said in made_for.map(str::to_owned).into_iter().chain(rule.changes().iter().map(ToString::to_string))
    {
        text.push_str(&format!("\n{:width$}  {said}", ""));
    }
    text
}

/// Formats the profiles of a rule: `scan`, or `all` if it has none.
fn profiles(rule: &Rule) -> String {
    if rule.profiles().is_empty() { "all".to_owned() } else { rule.profiles().join(",") }
}

fn listed(rule: &Rule) -> serde_json::Value {
    json!({
        "id": rule.id(),
        "action": rule.action().name(),
        "severity": rule.severity().name(),
        "protocol": rule.protocol().name(),
        "from": rule.from().name(),
        "title": rule.title(),
        "category": rule.category(),
        "references": rule.references(),
        "signature_id": rule.signature_id(),
        "file": rule.file(),
        "line": rule.place().line,
        "tags": rule.tags().collect::<Vec<_>>(),
        "profiles": rule.profiles(),
        "off": rule.off(),
        "changes": rule.changes().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "kind": "rule",
    })
}

/// Formats a policy as one line of the list of rules.
fn listed_policy_text(policy: &Policy, width: usize) -> String {
    let mut text =
        format!("{:<width$}  {:<6}  policy    {}", policy.id(), policy.otherwise().name(), policy.title());
    if let Some(patience) = policy.silent_after() {
        text.push_str(&format!(", silent no longer than {} s", patience.as_secs()));
    }
    text
}

fn listed_policy(policy: &Policy) -> serde_json::Value {
    json!({
        "id": policy.id(),
        "action": policy.otherwise().name(),
        "severity": "medium",
        "title": policy.title(),
        "category": "policy",
        "references": [],
        "signature_id": signature_id(policy.id()),
        "file": policy.file(),
        "line": policy.place().line,
        "kind": "policy",
        "allow": policy.allows(),
        "silent_after": policy.silent_after().map(|patience| patience.as_secs()),
        "budget": policy.budget(),
        "midstream": if policy.judges_midstream() { "judge" } else { "pass" },
    })
}

fn test(files: &RuleFilesArgs, quiet: bool, verbose: u8) -> Result<CliExitCode, CommandFailure> {
    let set = files.flag().load(RulePurpose::Rules, quiet)?;
    let mut table =
        ResultTable::new(&["rule", "example", "expected", "matches", "passed", "reason", "file", "line"]);
    let (mut tried, mut failed) = (0_usize, 0_usize);
    for trial in set.trials() {
        tried += 1;
        failed += usize::from(!trial.passed());
        if !trial.passed() || verbose > 0 || files.output.format() != FormatName::Text {
            table.add(example_result_json(&trial), example_result_text(&trial));
        }
    }
    if !quiet {
        let (examples, rules) = (several(tried, "example"), several(set.rules().len(), "rule"));
        table.say(format!("{examples} of {rules}, {failed} failed"));
    }
    table.write(&files.output)?;
    Ok(if failed > 0 { CliExitCode::Findings } else { CliExitCode::Done })
}

fn example_result_json(trial: &ExampleResult<'_>) -> serde_json::Value {
    json!({
        "rule": trial.rule.id(),
        "example": trial.example.summary(),
        "expected": trial.expected,
        "matches": trial.explanation.matches,
        "passed": trial.passed(),
        "reason": trial.explanation.reason,
        "file": trial.rule.file(),
        "line": trial.example.place().line,
    })
}

fn example_result_text(trial: &ExampleResult<'_>) -> String {
    let verdict = if trial.passed() { "ok    " } else { "FAILED" };
    let kind = if trial.expected { "example" } else { "counterexample" };
    let said = if trial.explanation.matches { "matches" } else { "does not match" };
    format!(
        "{verdict} {} {kind} {}:{} {:?}\n       {said}: {}",
        trial.rule.id(),
        trial.rule.file(),
        trial.example.place(),
        trial.example.summary(),
        trial.explanation.reason,
    )
}

/// Runs one connection through policies and rules, as in an enforcing guard.
fn test_flow(arguments: &TestArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let Some(ends) = &arguments.flow else { return Ok(CliExitCode::Done) };
    let set = Arc::new(arguments.files.flag().load(RulePurpose::Rules, quiet)?);
    let trial = flow_test::run(&set, ends, &arguments.say);
    let mut table = ResultTable::new(&["step", "octets", "passed", "decision", "because"]);
    for step in &trial.steps {
        let object = json!({
            "step": step.said, "octets": step.octets, "passed": step.passed,
            "decision": step.decision, "because": step.because,
        });
        let because = step.because.iter().map(|line| format!("\n           {line}")).collect::<String>();
        table.add(object, format!("{:<9}  {}{because}", step.decision, step.said));
    }
    if !quiet {
        let policy = match trial.policy {
            Some(policy) => format!("under the policy {policy}"),
            None => "under no policy".to_owned(),
        };
        table.say(format!("verdict: {}, {policy}", trial.verdict.name()));
    }
    table.write(&arguments.files.output)?;
    Ok(if arguments.expect.is_none_or(|wanted| wanted == trial.verdict) {
        CliExitCode::Done
    } else {
        CliExitCode::Findings
    })
}
