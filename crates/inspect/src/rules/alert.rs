//! The alert about a match: the one place that makes alerts, for scan, guard and replay.

use std::sync::Arc;

use super::field::BannerField;
use super::rule_match::RuleMatch;
use crate::banner::HttpHeader;
use crate::banner::disclosure::DisclosureLimits;
use crate::event::{AlertFacts, ApplicationFacts, LetPass, MatchedText, ProductFacts, Side};

/// Facts of an alert that the match itself does not hold.
#[derive(Debug)]
pub struct AlertContext<'o> {
    /// The side that sent the banner.
    pub from: Side,
    /// The banner's deciding line.
    pub line: &'o [u8],
    /// The limit on what events show of the banner.
    pub disclosure: &'o DisclosureLimits,
    /// The product that a fingerprint names.
    pub product: Option<&'o ProductFacts>,
    /// The whole banner as facts of an event.
    pub application: ApplicationFacts,
    /// True if blocking rules are enforced.
    pub enforced: bool,
}

impl RuleMatch<'_> {
    /// Returns the alert about this match. The captured product and version override the
    /// fingerprint's.
    pub fn alert(&self, occasion: AlertContext<'_>) -> AlertFacts {
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
            enforced: occasion.enforced,
            severity: self.severity(),
            references: rule.references().to_vec(),
            product,
            from: occasion.from,
            banner: occasion.disclosure.line(occasion.line),
            matched: self.matched.as_ref().map(|(field, value)| {
                let text = match field {
                    BannerField::Header(name) => {
                        let header = HttpHeader { name: name.as_bytes(), value };
                        occasion.disclosure.field(&header).value.into()
                    }
                    // A body may hold anything, so no event shows it.
                    BannerField::Body => String::new(),
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
