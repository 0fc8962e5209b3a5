//! What is told of a match: the one place where an alert is made, whoever judges.

use std::sync::Arc;

use super::Match;
use super::field::Field;
use crate::banner::Header;
use crate::banner::disclosure::Disclosure;
use crate::event::{AlertFacts, Application, LetPass, MatchedText, ProductFacts, Side};

/// What of an alert only the judge knows.
#[derive(Debug)]
pub struct Occasion<'o> {
    /// Who sent the banner.
    pub from: Side,
    /// The banner's deciding line.
    pub line: &'o [u8],
    /// How much of it events show.
    pub disclosure: &'o Disclosure,
    /// What a fingerprint names the software.
    pub product: Option<&'o ProductFacts>,
    /// What the banner was, in full.
    pub application: Application,
    /// True if a rule that blocks really does.
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
            banner: occasion.disclosure.line(occasion.line),
            matched: self.matched.as_ref().map(|(field, value)| {
                let text = match field {
                    Field::Header(name) => {
                        let header = Header { name: name.as_bytes(), value };
                        occasion.disclosure.field(&header).value.into()
                    }
                    _ => occasion.disclosure.line(value),
                };
                Box::new(MatchedText { field: field.to_string(), text })
            }),
            application: occasion.application,
            let_pass: match (self.exemption, &rule.weakened_by) {
                (Some(by), _) => Some(LetPass::Exemption(Arc::clone(by))),
                (None, Some(by)) => Some(LetPass::Action(Arc::clone(by))),
                (None, None) => None,
            },
            resets: None,
            verdict: self.finding.map(|finding| Box::new(finding.facts())),
        }
    }
}
