//! The flags by which commands find a running guard, and its errors as exit codes.

use std::path::PathBuf;

use clap::Args;
use serde::de::DeserializeOwned;

use super::Failure;
use crate::guard::control::{self, ControlError, Request};
use crate::hook::Queues;

/// Which guard is asked.
#[derive(Debug, Args)]
pub(super) struct GuardSocketFlags {
    /// The queues of the guard.
    #[arg(long, value_name = "N|A:B", default_value = "0")]
    queue: Queues,
    /// The guard's control socket, if it was started with `--control`.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl GuardSocketFlags {
    /// Sends the guard a request, and waits for the result.
    pub(super) fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, ControlError> {
        let places = match &self.control {
            Some(path) => vec![path.clone()],
            None => control::places(self.queue.first),
        };
        control::ask(&places, request)
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NotPermitted { .. } => Self::unsupported(error),
            _ => Self::usage(error),
        }
    }
}
