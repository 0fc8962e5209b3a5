//! Messages, progress bar and signals of a scan on a terminal.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::progress::bar;
use super::{ModeFlagValues, ProgressName};
use crate::cli::{CommandFailure, GlobalFlags, leave_root_owning};
use crate::confinement::{Confinement, warn_unconfined};
use crate::diagnostics::log_line;
use crate::privileges::{FILES, REPLACE_FILES};
use crate::scan::session::{ObserverDecision, ScanObserver, ScanSession};
use crate::scan::targets::{SkippedReserved, TargetCounts};

/// Interval of progress lines for programs.
const SECOND: Duration = Duration::from_secs(1);

/// Observer of a scan that reports to the terminal.
pub(super) struct ScanTerminal {
    pub(super) bar: ProgressBar,
    quiet: bool,
    verbose: bool,
    /// Time of the last progress line, if `--progress lines` was given.
    lines: Option<Instant>,
    total: u64,
    signals: Arc<AtomicUsize>,
    /// Number of handled signals.
    seen: usize,
    /// Confinement of the scan; none with `--no-sandbox`.
    confinement: Option<Confinement>,
    /// Files to create before the scan leaves root.
    made: Vec<PathBuf>,
    /// Capabilities that the scan keeps.
    needed: CapabilitySet,
}

impl ScanTerminal {
    pub(super) fn new(request: &ModeFlagValues<'_>, global: &GlobalFlags) -> Self {
        let wanted = request.common.progress == ProgressName::Auto && !global.quiet;
        Self {
            bar: bar(wanted && std::io::stderr().is_terminal()),
            quiet: global.quiet,
            verbose: global.verbose > 0,
            lines: (request.common.progress == ProgressName::Lines).then(Instant::now),
            total: 0,
            signals: Arc::default(),
            seen: 0,
            confinement: confinement(request),
            made: made(request),
            needed: needed(request),
        }
    }

    /// Starts the display of a session. From here on signals stop the session instead of the process.
    pub(super) fn begin(&mut self, session: &ScanSession) -> Result<(), CommandFailure> {
        count_signals(Arc::clone(&self.signals))?;
        self.total = session.plan().total();
        self.bar.set_length(self.total);
        if self.verbose {
            let (seed, remaining) = (session.seed(), session.plan().remaining());
            let (threads, window) = (session.threads(), session.window());
            self.say(format_args!("seed {seed}, {remaining} targets, {threads} threads, {window} at once"));
        }
        Ok(())
    }

    fn say(&self, message: impl Display) {
        self.bar.suspend(|| log_line(message));
    }
}

/// Returns the files that stay root's after the scan leaves root.
fn made(request: &ModeFlagValues<'_>) -> Vec<PathBuf> {
    let common = request.common;
    common.outputs().chain(common.inventory.path().map(Path::to_owned)).collect()
}

/// Returns the capabilities that the scan keeps.
fn needed(request: &ModeFlagValues<'_>) -> CapabilitySet {
    // FILES is for results in folders of other users, IPC_LOCK for the ring's buffers in memory.
    let needed = FILES | CapabilitySet::IPC_LOCK;
    if request.common.resume.is_some() { needed | REPLACE_FILES } else { needed }
}

/// Returns the confinement of the scan.
fn confinement(request: &ModeFlagValues<'_>) -> Option<Confinement> {
    let common = request.common;
    if common.no_sandbox {
        warn_unconfined("an answer");
    }
    let all = common.outputs().chain(common.resume.clone()).chain(common.inventory.writes());
    let mut confined =
        all.fold(Confinement::default().speaking().submitting(), |confined, path| confined.writing(&path));
    if common.inventory.is_of_server() {
        confined = confined.finding_servers();
    }
    (!common.no_sandbox).then_some(confined)
}

impl ScanObserver for ScanTerminal {
    fn unresolved(&mut self, name: &str) {
        if !self.quiet {
            self.say(format_args!("bannerwall: {name}"));
        }
    }

    fn left_out(&mut self, out: &SkippedReserved) {
        if !self.quiet {
            self.say(format_args!(
                "bannerwall: left out {} ({} addresses in {}); --include-reserved probes them, too",
                out.what, out.addresses, out.range
            ));
        }
    }

    fn knows_targets(&mut self) {
        if let Some(confinement) = &self.confinement {
            // Names are resolved and lists are read by now. From here on the scan reads data of other
            // machines.
            leave_root_owning(self.needed, self.made.iter().map(PathBuf::as_path));
            confinement.apply_or_warn(self.quiet);
        }
    }

    /// The first signal stops new targets, the second abandons those under way.
    fn poll_decision(&mut self, counts: &TargetCounts) -> ObserverDecision {
        self.bar.set_position(counts.finished());
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("open {}  matched {}", counts.open, counts.matched));
        }
        if let Some(told) = self.lines.as_mut().filter(|told| told.elapsed() >= SECOND) {
            *told = Instant::now();
            let TargetCounts { open, matched, .. } = counts;
            log_line(format_args!(
                "progress: {}/{}, open {open}, matched {matched}",
                counts.finished(),
                self.total
            ));
        }
        let seen = self.signals.load(Relaxed);
        // Two signals at once abandon the targets, and then this promise would be wrong.
        if std::mem::replace(&mut self.seen, seen) == 0 && seen == 1 {
            self.say("bannerwall: finishing targets under way; interrupt again to abandon them");
        }
        match seen {
            0 => ObserverDecision::GoOn,
            1 => ObserverDecision::Finish,
            _ => ObserverDecision::GiveUp,
        }
    }

    fn report_error(&mut self, fault: &dyn Display) {
        self.say(format_args!("bannerwall: {fault}"));
    }

    fn kept(&mut self, file: &Path, interrupted: bool) {
        let how = if interrupted { "interrupted" } else { "stopped" };
        self.say(format_args!(
            "bannerwall: {how}; run the same command, or only with `--resume {}`, to continue",
            file.display()
        ));
    }
}

/// Counts SIGINT and SIGTERM on a separate thread.
fn count_signals(counter: Arc<AtomicUsize>) -> Result<(), CommandFailure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            counter.fetch_add(1, Relaxed);
        }
    })?;
    Ok(())
}
