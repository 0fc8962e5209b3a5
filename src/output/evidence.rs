//! The evidence of an alert: the field that matched, and its text.

use std::fmt;

use super::EscapedText;
use crate::event::{AlertFacts, MatchedText};

/// A matched field as `server: "Apache/2.4.49 (Unix)"`; of a body, the field alone.
#[derive(Debug, Clone, Copy)]
pub struct MatchedField<'a>(&'a MatchedText);

impl<'a> MatchedField<'a> {
    /// Returns the display of a field that matched.
    pub const fn new(matched: &'a MatchedText) -> Self {
        Self(matched)
    }

    /// Returns the evidence of an alert, if a field of the banner matched.
    pub(super) fn of(facts: &'a AlertFacts) -> Option<Self> {
        facts.matched.as_deref().map(Self::new)
    }

    /// Returns the evidence only if the banner's line does not contain it.
    pub(super) fn beyond_line(facts: &'a AlertFacts) -> Option<Self> {
        Self::of(facts).filter(|field| field.0.text.is_empty() || !facts.banner.contains(&field.0.text))
    }
}

impl fmt::Display for MatchedField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatchedText { field, text } = self.0;
        f.write_str(field.strip_prefix("header.").unwrap_or(field))?;
        if text.is_empty() { Ok(()) } else { write!(f, ": \"{}\"", EscapedText(text)) }
    }
}
