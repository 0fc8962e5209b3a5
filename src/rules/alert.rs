//! What is told of a match: the one place where an alert is made, whoever judges.

use super::Match;
use crate::event::{AlertFacts, Application, ProductFacts, Side};

/// What of an alert only the judge knows.
#[derive(Debug)]
pub struct Occasion<'o> {
    /// Who sent the banner.
    pub from: Side,
    /// The banner's deciding line, as events may show it.
    pub line: String,
    /// What a fingerprint names the software.
    pub product: Option<&'o ProductFacts>,
    /// What the banner was, in full.
    pub application: Application,
    /// Whether a rule that blocks really does.
    pub enforced: bool,
}

impl Match<'_> {
    /// The alert about this match. What the rule captured goes before what a fingerprint says.
    pub fn alert(&self, occasion: Occasion<'_>) -> AlertFacts {
        let rule = self.rule;
        let mut product = occasion.product.cloned().unwrap_or_default();
        product.product = self.product.clone().or(product.product);
        product.version = self.version.clone().or(product.version);
        AlertFacts {
            rule: rule.id().to_owned(),
            title: rule.title().to_owned(),
            category: rule.category().to_owned(),
            action: self.action(),
            blocked: self.action().blocks() && occasion.enforced,
            severity: self.severity(),
            references: rule.references().to_vec(),
            product,
            from: occasion.from,
            banner: occasion.line,
            application: occasion.application,
            resets: None,
            verdict: self.finding.map(|finding| Box::new(finding.facts())),
        }
    }
}
