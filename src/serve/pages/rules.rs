//! Pages of one rule, and of one CVE.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;

use crate::inventory::{
    InventoryDatabase, InventoryTime, RuleSummary, ServiceFilter, ServiceRecord, StoreError, query,
};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::html_escape::term;
use crate::serve::page_frame::PageFrame;
use crate::serve::plot::{TrendPath, trend};
use crate::serve::response::{RequestError, page};
use crate::serve::rule_advice::{RuleAdvice, advice};
use crate::serve::rule_catalog::{RuleCatalog, RuleDetails, RuleText};

/// Limit of affected services on a rule's page.
const SHOWN: usize = 50;

/// Limit of rules on a CVE's page.
const RULES: usize = 100;

#[derive(Template)]
#[template(path = "rule.html")]
struct RulePage {
    frame: PageFrame,
    id: String,
    /// The rule, if a file of the page has it.
    details: Option<RuleDetails>,
    text: RuleText,
    advice: Option<RuleAdvice>,
    /// Its findings, if there are any.
    sum: Option<RuleSummary>,
    trend: Option<TrendPath>,
    services: Vec<ServiceRecord>,
    /// Filter of the affected services.
    term: Option<String>,
}

#[derive(Template)]
#[template(path = "cve.html")]
struct CvePage {
    frame: PageFrame,
    id: String,
    rules: Vec<(RuleLine, i64)>,
}

/// A rule in a list.
#[derive(Debug, Clone)]
pub(super) struct RuleLine {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) severity: String,
}

pub(super) async fn show(
    State(reader): State<Arc<DatabaseReader>>,
    Path(id): Path<String>,
) -> Result<Response, RequestError> {
    let frame = PageFrame::new("findings");
    let details = reader.rules.rule(&id).cloned();
    let term = term("finding", &id);
    let (known, own, words) = (details.clone(), id.clone(), term.clone());
    let (sum, days, services, text) = reader
        .ask(move |inventory| -> Result<_, StoreError> {
            let sum = query::rule(inventory, &own)?;
            let open = sum.as_ref().map_or(0, |sum| sum.services);
            let days = query::rule_trend(inventory, &own, open, frame.now)?;
            let filter = words.and_then(|words| ServiceFilter::from_text(&words).ok());
            let services = filter.filter(|_| open > 0);
            let services =
                services.map(|filter| query::services_behind(inventory, &filter, None, SHOWN)).transpose()?;
            let text = known.and_then(|rule| rule.read_text()).unwrap_or_default();
            Ok((sum, days, services.unwrap_or_default(), text))
        })
        .await?;
    if sum.is_none() && details.is_none() {
        return Err(RequestError::Missing(format!("No rule and no finding has the name {id}.")));
    }
    let advice = details.as_ref().and_then(|rule| advice(&rule.category));
    let trend = trend(&days);
    Ok(page(&RulePage { frame, id, details, text, advice, sum, trend, services, term }))
}

pub(super) async fn cve(
    State(reader): State<Arc<DatabaseReader>>,
    Path(id): Path<String>,
) -> Result<Response, RequestError> {
    let id = id.to_uppercase();
    if !is_cve(&id) {
        return Err(RequestError::bad("a CVE has the form CVE-2024-6387"));
    }
    let (catalog, own) = (Arc::clone(&reader.rules), id.clone());
    let rules = reader.ask(move |inventory| rules_about(inventory, &catalog, &own, RULES)).await?;
    Ok(page(&CvePage { frame: PageFrame::new("findings"), id, rules }))
}

/// True for the number of a CVE.
pub(super) fn is_cve(text: &str) -> bool {
    let parts = text.to_uppercase().strip_prefix("CVE-").map(str::to_owned);
    let parts = parts.as_deref().and_then(|rest| rest.split_once('-'));
    let is_number = |part: &str| (4..=8).contains(&part.len()) && part.bytes().all(|it| it.is_ascii_digit());
    parts.is_some_and(|(year, number)| is_number(year) && is_number(number))
}

/// Returns the rules about a text, of the page's files and of the inventory, with the number of affected
/// services and clients, the most affected first.
///
/// # Errors
///
/// Error of the database.
pub(super) fn rules_about(
    inventory: &InventoryDatabase,
    catalog: &RuleCatalog,
    text: &str,
    most: usize,
) -> Result<Vec<(RuleLine, i64)>, StoreError> {
    let lower = text.to_lowercase();
    let sums = query::rules(inventory, &ServiceFilter::default())?;
    let mut rules: BTreeMap<String, (RuleLine, i64)> = BTreeMap::new();
    for rule in catalog.about(text) {
        let line =
            RuleLine { id: rule.id.clone(), title: rule.title.clone(), severity: rule.severity.to_owned() };
        rules.insert(rule.id.clone(), (line, 0));
    }
    for sum in sums {
        let says = |text: &str| text.to_lowercase().contains(&lower);
        if let Some((_, services)) = rules.get_mut(&sum.rule) {
            *services = sum.services;
        } else if says(&sum.rule) || says(&sum.title) {
            let line = RuleLine { id: sum.rule.clone(), title: sum.title, severity: sum.severity };
            rules.insert(sum.rule, (line, sum.services));
        }
    }
    let mut rules: Vec<(RuleLine, i64)> = rules.into_values().collect();
    rules.sort_by_key(|(_, services)| std::cmp::Reverse(*services));
    rules.truncate(most);
    Ok(rules)
}

impl RulePage {
    fn title(&self) -> String {
        let known = self.details.as_ref().map(|rule| rule.title.clone());
        known.or_else(|| self.sum.as_ref().map(|sum| sum.title.clone())).unwrap_or_default()
    }

    fn severity(&self) -> String {
        let known = self.details.as_ref().map(|rule| rule.severity.to_owned());
        known.or_else(|| self.sum.as_ref().map(|sum| sum.severity.clone())).unwrap_or_default()
    }

    /// Says what the rule is about.
    fn meaning(&self, details: &RuleDetails) -> String {
        let who = match details.sender {
            "server" => format!("{} servers", details.protocol.to_uppercase()),
            "client" => format!("{} clients", details.protocol.to_uppercase()),
            _ => format!("{} servers and clients", details.protocol.to_uppercase()),
        };
        match &self.text.version {
            Some(version) => format!("The rule matches {who} whose banner names a version {version}."),
            None => format!("The rule matches {who} by their banner."),
        }
    }

    /// Returns the time since which a service has the finding.
    fn since(&self, service: &ServiceRecord) -> InventoryTime {
        let own = service.findings.iter().find(|found| found.rule == self.id);
        own.map_or(service.first_seen, |found| found.first_seen)
    }

    /// Returns the number of affected services that are not listed.
    fn hidden(&self) -> i64 {
        let listed = i64::try_from(self.services.len()).unwrap_or(i64::MAX);
        self.sum.as_ref().map_or(0, |sum| sum.services.saturating_sub(listed))
    }
}

#[cfg(test)]
mod tests {
    use super::is_cve;

    #[test]
    fn a_cve_is_recognized() {
        assert!(is_cve("CVE-2024-6387") && is_cve("cve-2021-44228"));
        for other in ["CVE-2024", "CVE-20-6387", "CVE-2024-63x7", "CVE-2024-", "openssh"] {
            assert!(!is_cve(other), "{other}");
        }
    }
}
