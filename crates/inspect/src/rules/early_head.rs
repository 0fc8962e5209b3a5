//! The parts of an HTTP head that blocking rules need, so that the engine judges them before the
//! head ends.
//!
//! Client and server act on a header line as soon as it is complete: nginx logs it, curl shows it.
//! So the engine evaluates a rule at that moment if a part of the head can meet all its conditions.
//! Rules that require a field to be absent, or that need data after the head, wait.

use super::field::BannerField;
use super::rule::{Rule, RuleCondition};
use crate::banner::same_name;
use crate::event::{Protocol, Side};

/// The parts of one side's heads that are judged as soon as they are complete.
#[derive(Debug, Clone, Default)]
pub struct EarlyHeadParts {
    /// The first line.
    pub first_line: bool,
    /// True if every header field is judged, because a fingerprint may use any of them.
    every_field: bool,
    /// Names of the header fields that are judged, in lower case.
    names: Vec<String>,
}

/// The early parts of both sides' heads.
#[derive(Debug, Default)]
pub(super) struct EarlySides {
    pub(super) client: EarlyHeadParts,
    pub(super) server: EarlyHeadParts,
}

impl EarlySides {
    pub(super) fn new(rules: &[Rule]) -> Self {
        Self {
            client: EarlyHeadParts::new(rules, Side::Client),
            server: EarlyHeadParts::new(rules, Side::Server),
        }
    }
}

impl EarlyHeadParts {
    fn new(rules: &[Rule], side: Side) -> Self {
        let mut early = Self::default();
        let asked = |rule: &&Rule| is_http(rule, side) && rule.action.blocks() && is_partial(rule);
        for rule in rules.iter().filter(asked) {
            let names = rule.present.iter().chain(rule.all.iter().filter_map(header_of));
            let before = early.names.len();
            early.names.extend(names.cloned());
            early.every_field |= rule.fingerprint;
            early.first_line |= early.names.len() == before && !rule.fingerprint;
        }
        early.names.sort();
        early.names.dedup();
        early
    }

    /// Returns true if a rule is about the header line `line`.
    pub fn is_about(&self, line: &[u8]) -> bool {
        if self.every_field {
            return true;
        }
        if self.names.is_empty() {
            return false;
        }
        // Some readers take a CR as the end of a line, so a field may begin after it.
        line.split(|octet| *octet == b'\r').any(|part| {
            let end = memchr::memchr(b':', part).unwrap_or(0);
            let name = part.get(..end).unwrap_or_default().trim_ascii();
            self.names.iter().any(|known| same_name(name, known))
        })
    }
}

pub(super) fn is_http(rule: &Rule, side: Side) -> bool {
    rule.protocol == Protocol::Http && rule.from.includes(side)
}

/// Returns true if a part of a head may satisfy the whole rule.
const fn is_partial(rule: &Rule) -> bool {
    !rule.later && rule.absent.is_empty() && rule.unless.is_empty()
}

const fn header_of(condition: &RuleCondition) -> Option<&String> {
    match &condition.field {
        BannerField::Header(name) => Some(name),
        _ => None,
    }
}
