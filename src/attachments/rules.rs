//! Published rules as a source of the guard's rules.

use std::time::Duration;

use crate::fleet::rules::{ApplyRulesError, RulePollCounts, RulePoller};
use crate::guard::{AttachedError, Enforce, PollCounts, RuleSource};
use crate::privileges::UnprivilegedUser;
use crate::rules::RuleSelection;

/// Versions of the rules in a database.
pub(super) struct PublishedRules(pub(super) RulePoller);

impl RuleSource for PublishedRules {
    fn first(&mut self) -> Result<RuleSelection, AttachedError> {
        Ok(self.0.load_initial()?.selection)
    }

    fn prepare(&self, user: Option<&UnprivilegedUser>) -> Result<(), AttachedError> {
        let started = self.0.place().start_helpers(user);
        Ok(started.map_err(|error| format!("--rules-from {}: {error}", self.0.place()))?)
    }

    fn version(&self) -> Option<i64> {
        self.0.version()
    }

    fn interval(&self) -> Duration {
        self.0.poll()
    }

    fn counts(&self) -> PollCounts {
        let RulePollCounts { refusals, polls, failures } = self.0.counts();
        PollCounts { refusals, polls, failures }
    }

    fn poll(&mut self, enforce: &mut Enforce<'_>) -> bool {
        self.0.poll_and_apply(&mut |taken| {
            enforce(&taken.selection).ok_or(ApplyRulesError::Gone)?.map_err(ApplyRulesError::Refused)
        })
    }
}
