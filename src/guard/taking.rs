//! Rules that are published for many guards: had before the start, and asked for on a thread of its own.

use std::io;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use super::config::GuardConfig;
use super::{GuardError, Message};
use crate::diagnostics::tell;
use crate::fleet::rules::{Taker, Unenforced};
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
            answer.error.map_or(Ok(()), |error| Err(Unenforced::Refused(error)))
        };
        // Counts go on from another process's.
        let mut shown = 0;
        loop {
            metrics.rules_version.set(taker.version().unwrap_or_default());
            let goes_on = taker.look(&mut enforce);
            metrics.rules_version.set(taker.version().unwrap_or_default());
            metrics.rules_refused.inc_by(taker.refusals().saturating_sub(shown));
            shown = taker.refusals();
            if !goes_on || asked.recv_timeout(taker.poll()) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    })?;
    Ok(sender)
}
