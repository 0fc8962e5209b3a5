//! The life of one replay, file after file, for every caller.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::input::CaptureInput;
use super::{CaptureReplay, ReplayConfig};
use crate::event::EventSink;
use crate::rules::RuleSet;
use crate::rules::fingerprint::FingerprintSet;

/// Observer of a replay: receives progress and errors, and can stop it.
pub trait ReplayObserver {
    /// Called for each opened file.
    fn opened(&mut self, input: &CaptureInput);

    /// Called periodically, and returns whether to continue.
    fn should_continue(&mut self) -> ControlFlow<()>;

    /// Called after the last opened file is finished.
    fn closed(&mut self);

    /// Reports a file that is unreadable or truncated; the replay continues with the next one.
    fn report_error(&mut self, file: &Path, fault: &dyn Display);
}

/// One run over some files.
#[derive(Debug)]
pub struct ReplaySession {
    replay: CaptureReplay,
    files: Vec<PathBuf>,
    /// True if the files are parts of one capture.
    join: bool,
}

impl ReplaySession {
    /// Returns a run over `files` in their order; `join` is true if they are parts of one capture.
    pub fn new(
        config: ReplayConfig,
        rules: Arc<RuleSet>,
        fingerprints: Option<Arc<FingerprintSet>>,
        files: Vec<PathBuf>,
        join: bool,
    ) -> Self {
        Self { replay: CaptureReplay::new(config, rules, fingerprints), files, join }
    }

    /// Reads all files, or until the observer stops the run.
    pub fn run(&mut self, sink: &mut impl EventSink, onlooker: &mut impl ReplayObserver) -> ControlFlow<()> {
        let mut outcome = ControlFlow::Continue(());
        for file in std::mem::take(&mut self.files) {
            outcome = self.read(&file, sink, onlooker);
            if outcome.is_break() {
                break;
            }
            // Files of different times or machines may reuse addresses and ports: their flows must not
            // mix.
            if !self.join {
                self.replay.finish(sink);
            }
        }
        self.replay.finish(sink);
        outcome
    }

    /// Returns the replay with its counters.
    pub fn replay(&self) -> &CaptureReplay {
        &self.replay
    }

    fn read(
        &mut self,
        file: &Path,
        sink: &mut impl EventSink,
        onlooker: &mut impl ReplayObserver,
    ) -> ControlFlow<()> {
        let input = match CaptureInput::open(file) {
            Ok(input) => input,
            Err(error) => {
                onlooker.report_error(file, &error);
                return ControlFlow::Continue(());
            }
        };
        onlooker.opened(&input);
        let outcome = self.replay.read(input, sink, || onlooker.should_continue());
        onlooker.closed();
        outcome.unwrap_or_else(|error| {
            onlooker.report_error(file, &error);
            ControlFlow::Continue(())
        })
    }
}
