//! The life of one replay: file after file, whoever looks on.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::input::Input;
use super::{Replay, ReplayConfig};
use crate::event::EventSink;
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;

/// Whoever started a replay: shows how far it is, hears of faults and may end it.
pub trait Onlooker {
    /// A file was opened.
    fn opened(&mut self, input: &Input);

    /// Asked now and then: whether to go on.
    fn look_up(&mut self) -> ControlFlow<()>;

    /// The file that was opened last is done with.
    fn closed(&mut self);

    /// A file cannot be read, or not to its end; the next one is read all the same.
    fn blame(&mut self, file: &Path, fault: &dyn Display);
}

/// One run over some files.
#[derive(Debug)]
pub struct Session {
    replay: Replay,
    files: Vec<PathBuf>,
    /// The files are one capture that was cut into several.
    join: bool,
}

impl Session {
    /// A run over `files` in their order; `join` where they are one capture that was cut into several.
    pub fn new(
        config: ReplayConfig,
        rules: Arc<RuleSet>,
        fingerprints: Option<Arc<Fingerprints>>,
        files: Vec<PathBuf>,
        join: bool,
    ) -> Self {
        Self { replay: Replay::new(config, rules, fingerprints), files, join }
    }

    /// Reads all files; broken off where the onlooker says so.
    pub fn run(&mut self, sink: &mut impl EventSink, onlooker: &mut impl Onlooker) -> ControlFlow<()> {
        let mut outcome = ControlFlow::Continue(());
        for file in std::mem::take(&mut self.files) {
            outcome = self.read(&file, sink, onlooker);
            if outcome.is_break() {
                break;
            }
            if !self.join {
                self.replay.finish(sink);
            }
        }
        self.replay.finish(sink);
        outcome
    }

    /// What was read and counted so far.
    pub fn replay(&self) -> &Replay {
        &self.replay
    }

    fn read(
        &mut self,
        file: &Path,
        sink: &mut impl EventSink,
        onlooker: &mut impl Onlooker,
    ) -> ControlFlow<()> {
        let input = match Input::open(file) {
            Ok(input) => input,
            Err(error) => {
                onlooker.blame(file, &error);
                return ControlFlow::Continue(());
            }
        };
        onlooker.opened(&input);
        let outcome = self.replay.read(input, sink, || onlooker.look_up());
        onlooker.closed();
        outcome.unwrap_or_else(|error| {
            onlooker.blame(file, &error);
            ControlFlow::Continue(())
        })
    }
}
