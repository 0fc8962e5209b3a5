//! Changes that overrides made to a rule, and the time in which the changed rule is in force.

use std::fmt;
use std::sync::Arc;

use crate::event::{OverrideFacts, Timestamp};

/// A change that an override made to a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleChange {
    /// Description: `action drop to alert`.
    pub what: String,
    /// The override.
    pub by: Arc<OverrideFacts>,
}

impl fmt::Display for RuleChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.what, self.by)
    }
}

/// The time in which a rule is in force, limited by overrides with an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RuleValidity {
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl RuleValidity {
    pub(super) fn includes(self, now: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= now) && self.until.is_none_or(|until| now < until)
    }

    /// Returns the parts before `at` and from `at` on, if it is within.
    pub(super) fn split(self, at: Timestamp) -> Option<(Self, Self)> {
        let is_within = self.from.is_none_or(|from| from < at) && self.until.is_none_or(|until| at < until);
        is_within.then_some((Self { until: Some(at), ..self }, Self { from: Some(at), ..self }))
    }

    pub(super) fn ends_by(self, at: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= at)
    }
}
