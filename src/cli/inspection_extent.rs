//! `bannerwall rules explain --inspection`: the inspected part of HTTP connections under the rules in force,
//! and the rules that need it.

use clap::Args;
use serde_json::json;

use super::result_table::ResultTable;
use super::rule_flags::RuleFilesArgs;
use super::rule_paths::RulePurpose;
use super::{CliExitCode, CommandFailure};
use crate::rules::{BODY_OCTETS, Rule, RuleSet};

/// Limit of rules in a list; the rest is only counted.
const NAMED: usize = 3;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Report how much of HTTP connections a guard with --enforce reads, and which rules need it.
    #[arg(long, required = true)]
    inspection: bool,
    #[command(flatten)]
    pub(super) files: RuleFilesArgs,
}

/// Inspected part of one direction.
struct DirectionExtent {
    direction: &'static str,
    read: &'static str,
    reason: String,
}

/// Prints the inspected parts of both directions.
pub(super) fn explain(arguments: &ExplainArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let set = arguments.files.flag().load(RulePurpose::Rules, quiet)?;
    let mut table = ResultTable::new(&["direction", "read", "reason"]);
    for DirectionExtent { direction, read, reason } in [of_client(&set), of_server(&set)] {
        table.add(
            json!({"direction": direction, "read": read, "reason": reason}),
            format!("{direction}: {read}: {reason}"),
        );
    }
    table.write(&arguments.files.output)?;
    Ok(CliExitCode::Done)
}

fn of_client(set: &RuleSet) -> DirectionExtent {
    let blocking = named(set, Rule::blocks_requests);
    let (read, reason) = match blocking {
        Some(rules) => (
            "every request",
            format!("{rules} can block one (--http-inspect first reads one for each connection)"),
        ),
        None => (
            "the first request",
            "no rule in force can block a later one (--http-inspect all reads all)".to_owned(),
        ),
    };
    DirectionExtent { direction: "from the client", read, reason }
}

fn of_server(set: &RuleSet) -> DirectionExtent {
    let direction = "from the server";
    if !set.needs().every_request {
        let reason = "the kernel passes the rest once both ends have the first response".to_owned();
        return DirectionExtent { direction, read: "the first response", reason };
    }
    let Some(blocking) = named(set, Rule::blocks_beside_requests) else {
        let reason = "no rule in force can block anything but a request, so later responses pass in the kernel \
                      (--http-inspect all reads them, and so does --on-anomaly if it drops malformed messages)";
        return DirectionExtent { direction, read: "the first response", reason: reason.to_owned() };
    };
    match named(set, Rule::needs_body) {
        Some(rules) => {
            let reason = format!(
                "{blocking} can block more than requests, and {rules} need the first {BODY_OCTETS} bytes of a body; the rest \
                 of a long one passes in the kernel"
            );
            DirectionExtent { direction, read: "every response up to there", reason }
        }
        None => {
            let reason = format!(
                "{blocking} can block more than requests; no rule needs bodies, so long ones pass in the kernel"
            );
            DirectionExtent { direction, read: "the head of every response", reason }
        }
    }
}

/// Lists the rules in force for which `asks` is true, the first of them by name.
fn named(set: &RuleSet, asks: impl Fn(&Rule) -> bool) -> Option<String> {
    let rules: Vec<&str> = set.rules().iter().filter(|rule| asks(rule)).map(Rule::id).collect();
    let (first, others) = rules.split_at(rules.len().min(NAMED));
    match (first, others.len()) {
        ([], _) => None,
        (first, 0) => Some(first.join(", ")),
        (first, count) => Some(format!("{} and {count} more", first.join(", "))),
    }
}
