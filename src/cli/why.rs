//! `bannerwall why ADDRESS[:PORT]`: shows what a running guard blocked for an address, and how to allow it.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::SystemTime;

use clap::Args;

use super::control::{GuardSocketFlags, ReplyFormat, ago};
use super::{CliExitCode, CommandFailure};
use crate::event::Timestamp;
use crate::guard::control::ControlRequest;
use crate::guard::{ExplainedBlock, WhyReport};
use crate::output::EscapedText;
use crate::output::evidence::MatchedField;

/// Flags of `bannerwall why`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall why 192.0.2.7
  bannerwall why '[2001:db8::1]:22' --format json

The guard keeps the last 8 blocks of each of the last 1024 blocked clients.
Exit code 2 if no guard listens, 3 if this user may not use the guard's socket.")]
pub(super) struct WhyArgs {
    /// Address of a client or a server, with its port if you know it.
    #[arg(value_name = "ADDRESS[:PORT]")]
    subject: AddressQuery,
    #[command(flatten)]
    guard: GuardSocketFlags,
    #[command(flatten)]
    format: ReplyFormat,
}

/// An address, with or without a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AddressQuery {
    address: IpAddr,
    port: Option<u16>,
}

impl FromStr for AddressQuery {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(Self { address, port: None });
        }
        let end: SocketAddr =
            text.parse().map_err(|_| "not an address such as 192.0.2.7 or [2001:db8::1]:22")?;
        Ok(Self { address: end.ip(), port: Some(end.port()) })
    }
}

/// Runs `bannerwall why`.
pub(super) fn run(arguments: &WhyArgs) -> Result<CliExitCode, CommandFailure> {
    let AddressQuery { address, port } = arguments.subject;
    let report: WhyReport = arguments.guard.ask(&ControlRequest::Why { address, port })?;
    arguments.format.print(&report, || describe(&report, address, Timestamp::from(SystemTime::now())))
}

fn describe(report: &WhyReport, address: IpAddr, now: Timestamp) -> String {
    if report.blocks.is_empty() {
        return format!(
            "no traffic of {address} was blocked (the guard started {})\n",
            ago(report.since, now)
        );
    }
    let blocks: Vec<String> = report.blocks.iter().map(|block| describe_block(block, now)).collect();
    blocks.join("\n")
}

fn describe_block(explained: &ExplainedBlock, now: Timestamp) -> String {
    let ExplainedBlock { block, place, remedy } = explained;
    let mut text = String::new();
    let times = if block.count == 1 { "once".to_owned() } else { format!("{} times", block.count) };
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "{} to {} ({}): {} {times}, last {} ({})",
        block.client,
        block.server,
        block.transport,
        if block.action == "reject" { "rejected" } else { "dropped" },
        block.last,
        ago(block.last, now)
    );
    let _ = match (&block.rule, place) {
        (Some(rule), Some(place)) => {
            writeln!(
                text,
                "  by {} ({}:{}): {}",
                EscapedText(rule),
                EscapedText(&place.file),
                place.line,
                EscapedText(&place.title)
            )
        }
        (Some(rule), None) => writeln!(text, "  by {}, which is no longer in force", EscapedText(rule)),
        (None, _) => {
            let reason = block.reason.as_deref().unwrap_or_default();
            writeln!(text, "  without a rule: {}", EscapedText(reason))
        }
    };
    if !block.banner.is_empty() {
        let _ = writeln!(text, "  the {} sent: {}", block.from, EscapedText(&block.banner));
    }
    if let Some(matched) = &block.matched {
        let _ = writeln!(text, "  matched: {}", MatchedField::new(matched));
    }
    match remedy {
        Some(toml) => {
            let _ = writeln!(
                text,
                "  To allow it, put this into a file in /etc/bannerwall/local.d/ and run `bannerwall reload`:\n"
            );
            for line in toml.lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
        None if block.rule.is_none() => {
            let _ = writeln!(text, "  An override cannot allow it: change --on-anomaly or --on-failure.");
        }
        None => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_read_with_and_without_a_port() {
        for (text, address, port) in [
            ("192.0.2.7", "192.0.2.7", None),
            ("192.0.2.7:22", "192.0.2.7", Some(22)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[::1]:22", "::1", Some(22)),
        ] {
            let expected = AddressQuery { address: address.parse().unwrap(), port };
            assert_eq!(text.parse::<AddressQuery>(), Ok(expected), "{text}");
        }
        for text in ["", "x", "192.0.2.7:", "192.0.2.7:70000", "[::1", "host:22"] {
            assert!(text.parse::<AddressQuery>().is_err(), "{text}");
        }
    }
}
