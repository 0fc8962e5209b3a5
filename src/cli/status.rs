//! `bannerwall status`: prints the state of a running guard, with an exit code for its health.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;

use super::control::{GuardSocketFlags, ReplyFormat, ago};
use super::{CliExitCode, CommandFailure, print_lines};
use crate::event::{OverrideFacts, Timestamp};
use crate::guard::control::{ControlError, ControlRequest};
use crate::guard::{GuardStatus, LossTotals, QueueOwner, QueueStatus};
use crate::output::EscapedText;
use crate::output::text::ColourMode;

/// Remaining time from which an override's end is announced.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// Flags of `bannerwall status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall status
  bannerwall status --queue 4:7 --format json

Exit code 0 if all is well, 1 with faults, 2 if no guard listens, 3 if this user may not use the
guard's socket.")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    guard: GuardSocketFlags,
    #[command(flatten)]
    format: ReplyFormat,
}

/// Runs `bannerwall status`.
pub(super) fn run(arguments: &StatusArgs) -> Result<CliExitCode, CommandFailure> {
    let status: GuardStatus = match arguments.guard.ask(&ControlRequest::Status) {
        Ok(status) => status,
        Err(error @ (ControlError::Silent { .. } | ControlError::Refused(_))) => {
            print_lines(&format!("{}: {error}\n", fault_word()))?;
            return Ok(CliExitCode::Findings);
        }
        Err(error) => return Err(error.into()),
    };
    arguments.format.print(&status, || describe(&status, Timestamp::from(std::time::SystemTime::now())))?;
    Ok(if status.faults.is_empty() { CliExitCode::Done } else { CliExitCode::Findings })
}

fn describe(status: &GuardStatus, now: Timestamp) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "guard: bannerwall {}, process {}, started {}{}; {}, on failure {}",
        status.version,
        status.process,
        ago(status.started, now),
        if status.continues { " and continues the run before it" } else { "" },
        if status.enforcing { "enforcing" } else { "monitoring only" },
        status.on_failure
    );
    for queue in &status.queues {
        describe_queue(&mut text, queue);
    }
    let rules = &status.rules;
    let _ = writeln!(
        text,
        "rules: {} in force, {} switched off, {} policies; loaded {}; SHA-256 {}",
        rules.in_force,
        rules.switched_off,
        rules.policies,
        ago(rules.loaded, now),
        rules.sha256
    );
    if let Some(file) = &status.configuration {
        let path = file.path.display().to_string();
        let _ = writeln!(text, "configuration: {}; SHA-256 {}", EscapedText(&path), file.sha256);
    }
    let _ = match &status.last_reload {
        None => writeln!(text, "last reload: none since the start"),
        Some(reload) => match &reload.error {
            None => writeln!(text, "last reload: {}, done", ago(reload.at, now)),
            Some(why) => {
                writeln!(
                    text,
                    "last reload: {}, refused: {}",
                    ago(reload.at, now),
                    EscapedText(why.trim_end())
                )
            }
        },
    };
    describe_overrides(&mut text, &status.overrides, now);
    describe_gaps(&mut text, &status.gaps);
    for fault in &status.faults {
        let _ = writeln!(text, "{}: {}", fault_word(), EscapedText(fault));
    }
    text
}

/// Returns the word before a fault, in red on a terminal.
fn fault_word() -> String {
    ColourMode::for_stream(&std::io::stdout()).judgement(false, "fault")
}

fn describe_queue(text: &mut String, queue: &QueueStatus) {
    let worker = match queue.last_turn {
        Some(seconds) => format!("its worker last ran {seconds} s ago"),
        None => "its worker has not started".to_owned(),
    };
    let owner = match &queue.owner {
        QueueOwner::Guard => "this guard".to_owned(),
        QueueOwner::Other(port_id) => format!("another program (netlink port id {port_id})"),
        QueueOwner::Nobody => "no process".to_owned(),
        QueueOwner::Unknown(why) => format!("unknown ({why})"),
    };
    let waiting = queue.waiting.map_or("an unknown number of".to_owned(), |waiting| waiting.to_string());
    let _ = writeln!(text, "queue {}: {worker}; owner {owner}; waiting packets: {waiting}", queue.queue);
}

/// Lists the overrides that have ended, or end soon.
fn describe_overrides(text: &mut String, overrides: &[OverrideFacts], now: Timestamp) {
    for one in overrides.iter().filter(|one| !one.is_in_force(now.after(SOON))) {
        let word = if one.is_in_force(now) { "ends soon" } else { "has ended" };
        let _ = writeln!(text, "override {word}: {}", EscapedText(&one.to_string()));
    }
}

fn describe_gaps(text: &mut String, gaps: &LossTotals) {
    let uninspected = gaps.uninspected.map_or("unknown".to_owned(), |count| count.to_string());
    let _ = writeln!(text, "packets that passed uninspected: {uninspected}");
    let dropped = [
        (gaps.queue_full, "the queue was full"),
        (gaps.socket_overrun, "its socket was full"),
        (gaps.no_listener, "no guard listened"),
        (gaps.overdue, "they waited longer than --max-wait"),
    ];
    for (count, why) in dropped.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(text, "packets dropped because {why}: {count}");
    }
    if gaps.abandoned > 0 {
        let _ = writeln!(text, "packets that a killed guard did not answer: {}", gaps.abandoned);
    }
    if gaps.events > 0 {
        let _ = writeln!(text, "events lost: {}", gaps.events);
    }
}
