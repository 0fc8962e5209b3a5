//! Rules that are published for many guards: had before the start, and asked for on a thread of its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use super::config::GuardConfig;
use super::{GuardError, Message};
use crate::diagnostics::tell;
use crate::fleet::rules::{Counts, Taker, Unenforced};
use crate::metrics::GuardMetrics;
use crate::privileges::{FILES, keep_or_tell};

/// The settings with the rules to begin with, and who asks for newer ones.
pub(super) fn begin(config: &GuardConfig) -> Result<(GuardConfig, Option<Taker>), GuardError> {
    let mut config = config.clone();
    let Some(from) = config.rules_from.clone() else { return Ok((config, None)) };
    let (taker, taken) = Taker::begin(from)?;
    config.rules = taken.selection;
    Ok((config, Some(taker)))
}

/// Asks now and then, and when something comes by the channel that this gives; until that is gone.
pub(super) fn start(
    mut taker: Taker,
    messages: Sender<Message>,
    metrics: GuardMetrics,
) -> io::Result<Sender<()>> {
    let (sender, asked) = bounded(1);
    if let Some(version) = taker.version() {
        tell(format_args!("bannerwall: rules: version {version} is in force"));
    }
    std::thread::Builder::new().name("rules".to_owned()).spawn(move || {
        keep_or_tell("rules", FILES);
        let mut enforce = |taken: &_| {
            let (asker, answer) = bounded(1);
            let message = Message::TakeRules(Box::new(Clone::clone(taken)), asker);
            messages.send(message).map_err(|_| Unenforced::Gone)?;
            let answer = answer.recv().map_err(|_| Unenforced::Gone)?;
            answer.map(drop).map_err(Unenforced::Refused)
        };
        // Counts go on from another process's.
        let mut shown = Counts::default();
        // A part of a second is one.
        let seconds = taker.poll().as_millis().div_ceil(1_000);
        metrics.rules_poll_interval.set(i64::try_from(seconds).unwrap_or(i64::MAX));
        loop {
            metrics.rules_version.set(taker.version().unwrap_or_default());
            let goes_on = whatever_happens(&metrics, || taker.look(&mut enforce));
            metrics.rules_version.set(taker.version().unwrap_or_default());
            let counts = taker.counts();
            metrics.rules_refused.inc_by(counts.refusals.saturating_sub(shown.refusals));
            metrics.rules_poll_failures.inc_by(counts.failures.saturating_sub(shown.failures));
            if counts.polls > shown.polls {
                metrics.note_rules_answer();
            }
            metrics.rules_polls.inc_by(counts.polls.saturating_sub(shown.polls));
            shown = counts;
            if !goes_on || asked.recv_timeout(taker.poll()) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    })?;
    Ok(sender)
}

/// Asks, and goes on where that panics: a guard that takes no rules any more is not to look like one that does.
fn whatever_happens(metrics: &GuardMetrics, look: impl FnOnce() -> bool) -> bool {
    // What is half done of numbers and files is done again by the next one.
    catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_told| {
        metrics.rules_poll_failures.inc();
        tell("bannerwall: rules: a fault of this program (above): the rules in force stay so, and it is asked again");
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Registry;

    #[test]
    fn a_panic_is_counted_and_is_not_the_end() {
        let metrics = GuardMetrics::new(&Registry::new().unwrap()).unwrap();
        assert!(whatever_happens(&metrics, || panic!("a fault")));
        assert_eq!(metrics.rules_poll_failures.get(), 1);
        assert!(!whatever_happens(&metrics, || false));
        assert!(whatever_happens(&metrics, || true));
        assert_eq!(metrics.rules_poll_failures.get(), 1);
    }
}
