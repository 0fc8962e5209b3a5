//! Page of findings, by rule.

use std::cmp::Reverse;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;

use super::list::{ListState, SEVERITIES};
use super::{ListQuery, ROWS};
use crate::inventory::{RuleSummary, query};
use crate::serve::csv_response::{self, CSV_ROWS};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::page_frame::PageFrame;
use crate::serve::response::{RequestError, page};

/// Order of rules.
#[derive(Debug, Clone, Copy)]
enum RuleOrder {
    Severity,
    Affected,
    Blocked,
    FirstSeen,
    LastSeen,
}

const ORDERS: [(&str, RuleOrder); 5] = [
    ("", RuleOrder::Severity),
    ("affected", RuleOrder::Affected),
    ("blocked", RuleOrder::Blocked),
    ("first", RuleOrder::FirstSeen),
    ("last", RuleOrder::LastSeen),
];

#[derive(Template)]
#[template(path = "findings.html")]
struct FindingsPage {
    frame: PageFrame,
    list: ListState,
    rules: Vec<RuleSummary>,
}

pub(super) async fn list(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let (skip, most) = (asked.skip()?, asked.most(ROWS)?);
    let mut list = ListState::new(&asked, Some("findings.csv"));
    let rules = sorted(&reader, &asked).await?;
    list.next = (rules.len() > skip.saturating_add(most)).then(|| (skip + most).to_string());
    let rules = rules.into_iter().skip(skip).take(most).collect();
    Ok(page(&FindingsPage { frame: PageFrame::new("findings"), list, rules }))
}

pub(super) async fn csv(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let rules = sorted(&reader, &asked).await?;
    let columns =
        ["severity", "rule", "title", "affected", "closed", "alerts", "blocked", "first_seen", "last_seen"];
    let rows = rules.into_iter().take(CSV_ROWS).map(|it| {
        let [affected, closed, alerts, blocked] =
            [it.services, it.gone, it.count, it.blocked].map(|count| count.to_string());
        let [first, last] = [it.first_seen, it.last_seen].map(|time| time.to_string());
        [it.severity, it.rule, it.title, affected, closed, alerts, blocked, first, last]
    });
    Ok(csv_response::csv("findings.csv", columns, rows))
}

async fn sorted(reader: &Arc<DatabaseReader>, asked: &ListQuery) -> Result<Vec<RuleSummary>, RequestError> {
    let (filter, order) = (asked.filter()?, asked.order(&ORDERS)?);
    let severity = asked.severity.clone();
    if !severity.is_empty() && !SEVERITIES.contains(&severity.as_str()) {
        return Err(RequestError::bad(format_args!("severity: may be {}", SEVERITIES.join(", "))));
    }
    let mut rules = reader.ask(move |inventory| query::rules(inventory, &filter)).await?;
    rules.retain(|rule| severity.is_empty() || rule.severity == severity);
    // Stable: equal ones stay in the order of severities.
    match order {
        RuleOrder::Severity => {}
        RuleOrder::Affected => rules.sort_by_key(|rule| Reverse(rule.services)),
        RuleOrder::Blocked => rules.sort_by_key(|rule| Reverse(rule.blocked)),
        RuleOrder::FirstSeen => rules.sort_by_key(|rule| Reverse(rule.first_seen)),
        RuleOrder::LastSeen => rules.sort_by_key(|rule| Reverse(rule.last_seen)),
    }
    Ok(rules)
}

impl FindingsPage {
    /// Returns the severities, the most severe first.
    fn severities(&self) -> [&'static str; 5] {
        SEVERITIES
    }
}
