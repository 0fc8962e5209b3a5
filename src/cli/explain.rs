//! `bannerwall rules test --banner`: explains the result of each rule for one banner.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::json;

use super::result_table::ResultTable;
use super::rule_flags::{SideName, TestArgs};
use super::rule_paths::RulePurpose;
use super::{CliExitCode, CommandFailure};
use crate::diagnostics::{log_line, several};
use crate::event::Protocol;
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::{AssumedConnection, BannerSender, RuleExample, RuleExplanation};

/// Columns for each rule.
const COLUMNS: &[&str] =
    &["rule", "matches", "action", "reason", "verdict", "fixed", "source", "date", "marker"];

/// Limit of a KEXINIT file, in bytes; real ones have 1 to 3 KiB.
const KEXINIT_OCTETS: u64 = 1 << 20;

/// Prints the result of each rule for one banner.
pub(super) fn explain(
    arguments: &TestArgs,
    banner: &str,
    quiet: bool,
) -> Result<CliExitCode, CommandFailure> {
    let set = arguments.files.flag().load(RulePurpose::Rules, quiet)?;
    let told = arguments.protocol.or_else(|| RuleExample::protocol_of(banner));
    if told.is_none() && !quiet {
        log_line("--banner starts like no known protocol: tested as `other`; pass --protocol to change that");
    }
    let protocol = told.unwrap_or(Protocol::Other);
    let from = match arguments.from {
        Some(SideName::Server) => BannerSender::Server,
        Some(SideName::Client) => BannerSender::Client,
        None if protocol == Protocol::Http && !banner.starts_with("HTTP/") => BannerSender::Client,
        // For TLS, bare text is a client's SNI name.
        None if protocol == Protocol::Tls => BannerSender::Client,
        None => BannerSender::Server,
    };
    // HTTP heads and unknown bytes need line ends, which a shell argument can only give as escapes.
    let escaped = matches!(protocol, Protocol::Http | Protocol::Other);
    let text = if escaped { unescape(banner) } else { banner.to_owned() };
    let example = RuleExample::from_text(&text, protocol, from)
        .map_err(|reason| CommandFailure::Usage(anyhow!("--banner is not a valid banner: {reason}")))?;
    let example = match &arguments.fingerprints {
        Some(path) => example.identified(from, &FingerprintSet::load(path).map_err(CommandFailure::usage)?),
        None => example,
    };
    let example = match &arguments.kexinit {
        Some(path) => with_kexinit(example, path)?,
        None => example,
    };
    let mut table = ResultTable::new(COLUMNS);
    let mut foreign = 0;
    let ends = AssumedConnection {
        source: arguments.source,
        destination: arguments.destination,
        port: arguments.port,
    };
    for explanation in set.explain(&example, from, ends) {
        if explanation.rule.protocol() == protocol {
            table.add(explained(&explanation), explanation_text(&explanation));
        } else {
            foreign += 1;
            table.add_machine_only(explained(&explanation));
        }
    }
    if foreign > 0 && !quiet {
        let verb = if foreign == 1 { "was" } else { "were" };
        table.say(format!("{} about other protocols {verb} not tested", several(foreign, "rule")));
    }
    table.write(&arguments.files.output)?;
    Ok(CliExitCode::Done)
}

fn with_kexinit(example: RuleExample, path: &Path) -> Result<RuleExample, CommandFailure> {
    let mut octets = Vec::new();
    let read = File::open(path).and_then(|file| file.take(KEXINIT_OCTETS).read_to_end(&mut octets));
    read.with_context(|| format!("cannot read {}", path.display())).map_err(CommandFailure::Usage)?;
    example
        .with_kexinit(&octets)
        .map_err(|reason| CommandFailure::Usage(anyhow!("{}: {reason}", path.display())))
}

fn explained(explanation: &RuleExplanation<'_>) -> serde_json::Value {
    let told = explanation.verdict.as_ref();
    json!({
        "rule": explanation.rule.id(),
        "matches": explanation.matches,
        "action": explanation.action.name(),
        "reason": explanation.reason,
        "verdict": told.map(|told| told.verdict.name()),
        "fixed": told.and_then(|told| told.fixed.as_deref()),
        "source": told.map(|told| told.source.as_str()),
        "date": told.and_then(|told| told.date.as_deref()),
        "marker": told.and_then(|told| told.marker),
    })
}

fn explanation_text(explanation: &RuleExplanation<'_>) -> String {
    let rule = explanation.rule;
    let mark = if explanation.matches { explanation.action.name() } else { "-" };
    format!("{mark:<7} {}: {}", rule.id(), explanation.reason)
}

/// `\r`, `\n` and `\t` as a shell's single quotes hand them over.
fn unescape(text: &str) -> String {
    text.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t")
}
