//! Rules read, and put in the place of those in force.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::GuardError;
use super::control::RulesInForce;
use crate::diagnostics::tell;
use crate::metrics::{GuardMetrics, ReloadResult};
use crate::rules::{RuleSet, Selection};

/// Puts new rules in force; bad ones change nothing, and none at all are bad where there are some.
pub(super) fn exchange_rules(
    selection: &Selection,
    in_force: &ArcSwap<RuleSet>,
    metrics: &GuardMetrics,
) -> Result<RulesInForce, String> {
    let before = in_force.load().rules().len();
    let selection = Selection { complete: before > 0, ..selection.clone() };
    let (result, answer) = match load_rules(&selection) {
        Ok(rules) => {
            let count = rules.rules().len();
            metrics.rules.set(i64::try_from(count).unwrap_or(i64::MAX));
            in_force.store(Arc::new(rules));
            tell(format_args!("bannerwall: reloaded: {count} rules are in force"));
            (ReloadResult::Success, Ok(RulesInForce { rules: count }))
        }
        Err(error) => {
            tell(format_args!("{error}\nbannerwall: not reloaded: the old rules stay in force"));
            (ReloadResult::Failure, Err(error.to_string()))
        }
    };
    metrics.reloads(result).inc();
    metrics.note_rules(result);
    answer
}

/// Reads the rules; warnings go to stderr.
pub(super) fn load_rules(selection: &Selection) -> Result<RuleSet, GuardError> {
    let loaded = RuleSet::load(selection)?;
    for warning in &loaded.warnings {
        tell(warning);
    }
    Ok(loaded.rules)
}
