//! Published rules as a source of the guard's rules.

use std::time::Duration;

use crate::fleet::rules::{Counts, Taker, Unenforced};
use crate::guard::{AttachedError, Enforce, PollCounts, RuleSource};
use crate::privileges::User;
use crate::rules::Selection;

/// Versions of the rules in a database.
pub(super) struct PublishedRules(pub(super) Taker);

impl RuleSource for PublishedRules {
    fn first(&mut self) -> Result<Selection, AttachedError> {
        Ok(self.0.first()?.selection)
    }

    fn prepare(&self, user: Option<&User>) -> Result<(), AttachedError> {
        let started = self.0.place().separate(user);
        Ok(started.map_err(|error| format!("--rules-from {}: {error}", self.0.place()))?)
    }

    fn version(&self) -> Option<i64> {
        self.0.version()
    }

    fn interval(&self) -> Duration {
        self.0.poll()
    }

    fn counts(&self) -> PollCounts {
        let Counts { refusals, polls, failures } = self.0.counts();
        PollCounts { refusals, polls, failures }
    }

    fn poll(&mut self, enforce: &mut Enforce<'_>) -> bool {
        self.0.look(&mut |taken| {
            enforce(&taken.selection).ok_or(Unenforced::Gone)?.map_err(Unenforced::Refused)
        })
    }
}
