//! Flags that locate a running guard, and exit codes for its errors.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CliExitCode, CommandFailure, print, print_lines};
use crate::event::Timestamp;
use crate::guard::control::{self, ControlError, ControlRequest};
use crate::hook::QueueRange;

/// Flags that select the guard.
#[derive(Debug, Args)]
pub(super) struct GuardSocketFlags {
    /// The queues of the guard.
    #[arg(long, value_name = "N|A:B", default_value = "0")]
    queue: QueueRange,
    /// The guard's control socket, if it was started with `--control`.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl GuardSocketFlags {
    /// Sends the guard a request, and waits for the result.
    pub(super) fn ask<T: DeserializeOwned>(&self, request: &ControlRequest) -> Result<T, ControlError> {
        let places = match &self.control {
            Some(path) => vec![path.clone()],
            None => control::places(self.queue.first),
        };
        control::ask(&places, request)
    }
}

impl From<ControlError> for CommandFailure {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NotPermitted { .. } => Self::unsupported(error),
            _ => Self::usage(error),
        }
    }
}

/// Format of the guard's reply.
#[derive(Debug, Args)]
pub(super) struct ReplyFormat {
    /// Output format of the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: ReplyFormatName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplyFormatName {
    /// Readable text for a person.
    Text,
    /// One line of JSON.
    Json,
}

impl ReplyFormat {
    /// Prints a reply as JSON, or as the text that `describe` makes of it.
    pub(super) fn print(
        &self,
        reply: &impl Serialize,
        describe: impl FnOnce() -> String,
    ) -> Result<CliExitCode, CommandFailure> {
        match self.format {
            ReplyFormatName::Text => print_lines(&describe()),
            ReplyFormatName::Json => {
                print((serde_json::to_string(reply).map_err(CommandFailure::usage)? + "\n").as_bytes())
            }
        }
    }
}

/// The time since `then`, in the largest whole unit: `3 h ago`.
pub(super) fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(then).as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(length, _)| seconds >= *length);
    unit.map_or(format!("{seconds} s ago"), |(length, name)| format!("{} {name} ago", seconds / length))
}
