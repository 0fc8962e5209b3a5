//! Rules in versions from an outside source: fetched before the start, then polled on a separate thread.
//! Other modules implement the source.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use super::config::GuardConfig;
use super::event_reader::AttachedError;
use super::{GuardError, GuardMessage};
use crate::diagnostics::log_line;
use crate::metrics::GuardMetrics;
use crate::privileges::{FILES, UnprivilegedUser, keep_or_warn};
use crate::rules::RuleSelection;

/// A source of rule versions.
pub trait RuleSource: Send {
    /// Fetches the rules to start with.
    ///
    /// # Errors
    ///
    /// The source has no rules.
    fn first(&mut self) -> Result<RuleSelection, AttachedError>;

    /// Creates what the source needs as `user`, while the process still has all its privileges.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn prepare(&self, _user: Option<&UnprivilegedUser>) -> Result<(), AttachedError> {
        Ok(())
    }

    /// Returns the version in force.
    fn version(&self) -> Option<i64>;

    /// Returns the time between two polls.
    fn interval(&self) -> Duration;

    /// Returns the totals since the start.
    fn counts(&self) -> PollCounts;

    /// Polls for newer versions and enforces the newest one. Returns false if the guard has stopped.
    fn poll(&mut self, enforce: &mut Enforce<'_>) -> bool;
}

/// Puts rules in force, or returns the reason for their refusal; returns nothing if the guard has stopped.
pub type Enforce<'a> = dyn FnMut(&RuleSelection) -> Option<Result<(), String>> + 'a;

/// Totals of a source of rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PollCounts {
    /// Number of refused versions.
    pub refusals: u64,
    /// Number of successful polls.
    pub polls: u64,
    /// Number of failed polls.
    pub failures: u64,
}

/// Returns the settings with the rules to start with.
pub(super) fn with_first_rules(
    config: &GuardConfig,
    source: &mut Option<Box<dyn RuleSource>>,
) -> Result<GuardConfig, GuardError> {
    let mut config = config.clone();
    if let Some(source) = source {
        config.inspection.rules = source.first().map_err(GuardError::Attached)?;
    }
    Ok(config)
}

/// Polls at intervals, and on each message through the returned channel, until the channel is closed.
pub(super) fn start_polling(
    mut source: Box<dyn RuleSource>,
    messages: Sender<GuardMessage>,
    metrics: GuardMetrics,
) -> io::Result<Sender<()>> {
    let (sender, asked) = bounded(1);
    if let Some(version) = source.version() {
        log_line(format_args!("bannerwall: rules: version {version} is in force"));
    }
    std::thread::Builder::new().name("rules".to_owned()).spawn(move || {
        keep_or_warn("rules", FILES);
        let mut enforce = |selection: &RuleSelection| {
            let (asker, answer) = bounded(1);
            messages.send(GuardMessage::TakeRules(Box::new(selection.clone()), asker)).ok()?;
            Some(answer.recv().ok()?.map(drop))
        };
        // The metrics may continue from another process, so only differences are added.
        let mut shown = PollCounts::default();
        // Part of a second counts as a whole one.
        let seconds = source.interval().as_millis().div_ceil(1_000);
        metrics.rules_poll_interval.set(i64::try_from(seconds).unwrap_or(i64::MAX));
        loop {
            // Also before the poll, which may take long.
            metrics.rules_version.set(source.version().unwrap_or_default());
            let goes_on = poll_catching_panics(&metrics, || source.poll(&mut enforce));
            metrics.rules_version.set(source.version().unwrap_or_default());
            let counts = source.counts();
            metrics.rules_refused.inc_by(counts.refusals.saturating_sub(shown.refusals));
            metrics.rules_poll_failures.inc_by(counts.failures.saturating_sub(shown.failures));
            if counts.polls > shown.polls {
                metrics.note_rules_answer();
            }
            metrics.rules_polls.inc_by(counts.polls.saturating_sub(shown.polls));
            shown = counts;
            if !goes_on || asked.recv_timeout(source.interval()) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    })?;
    Ok(sender)
}

/// Polls, and continues after a panic. Otherwise the guard would run on without taking new rules, and look
/// healthy.
fn poll_catching_panics(metrics: &GuardMetrics, look: impl FnOnce() -> bool) -> bool {
    // The next poll repeats whatever files and numbers are incomplete.
    catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_told| {
        metrics.rules_poll_failures.inc();
        log_line(
            "bannerwall: rules: a fault of this program (above): the rules in force stay, and the \
                  guard polls again",
        );
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::control::RulesInForce;
    use crate::metrics::MetricsRegistry;

    /// A source that has one version, and offers it until it is in force.
    #[derive(Default)]
    struct OneVersion {
        version: Option<i64>,
        counts: PollCounts,
    }

    impl RuleSource for OneVersion {
        fn first(&mut self) -> Result<RuleSelection, AttachedError> {
            Err("no rules".into())
        }

        fn version(&self) -> Option<i64> {
            self.version
        }

        fn interval(&self) -> Duration {
            Duration::from_secs(3_600)
        }

        fn counts(&self) -> PollCounts {
            self.counts
        }

        fn poll(&mut self, enforce: &mut Enforce<'_>) -> bool {
            self.counts.polls += 1;
            match enforce(&RuleSelection::default()) {
                Some(Ok(())) => self.version = Some(7),
                Some(Err(_)) => self.counts.refusals += 1,
                None => return false,
            }
            true
        }
    }

    #[test]
    fn versions_are_offered_until_the_guard_is_gone() {
        let metrics = GuardMetrics::new(&MetricsRegistry::new().unwrap()).unwrap();
        let (sender, messages) = crossbeam_channel::unbounded();
        let wake = start_polling(Box::new(OneVersion::default()), sender, metrics.clone()).unwrap();
        for answer in [Err("bad".to_owned()), Ok(RulesInForce { rules: 1 })] {
            let Ok(GuardMessage::TakeRules(_, asker)) = messages.recv() else { panic!("no version") };
            asker.send(answer).unwrap();
            wake.send(()).unwrap();
        }
        drop(messages);
        while wake.send(()).is_ok() {}
        assert_eq!((metrics.rules_refused.get(), metrics.rules_version.get()), (1, 7));
    }

    #[test]
    fn a_panic_is_counted_and_is_not_the_end() {
        let metrics = GuardMetrics::new(&MetricsRegistry::new().unwrap()).unwrap();
        assert!(poll_catching_panics(&metrics, || panic!("a fault")));
        assert_eq!(metrics.rules_poll_failures.get(), 1);
        assert!(!poll_catching_panics(&metrics, || false));
        assert!(poll_catching_panics(&metrics, || true));
        assert_eq!(metrics.rules_poll_failures.get(), 1);
    }
}
