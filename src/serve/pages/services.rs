//! Pages of services and clients, and of findings.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;

use super::{ListQuery, ROWS};
use crate::inventory::{RuleSummary, ServiceRecord, query};
use crate::serve::api::rest;
use crate::serve::database_reader::DatabaseReader;
use crate::serve::html_escape::term;
use crate::serve::response::{RequestError, page};

#[derive(Template)]
#[template(path = "services.html")]
struct ServiceListPage {
    here: &'static str,
    q: String,
    services: Vec<ServiceRecord>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "findings.html")]
struct FindingsPage {
    here: &'static str,
    q: String,
    rules: Vec<(RuleSummary, Option<String>)>,
}

pub(super) async fn list(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let (filter, after, most) = (asked.filter()?, asked.after_service()?, asked.most(ROWS)?);
    let mut services = reader
        .ask(move |inventory| query::services_behind(inventory, &filter, after.as_ref(), most + 1))
        .await?;
    let next = rest(&mut services, most).and_then(ServiceRecord::cursor).map(|next| next.to_string());
    Ok(page(&ServiceListPage { here: "services", q: asked.q, services, next }))
}

pub(super) async fn findings(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let filter = asked.filter()?;
    let rules = reader.ask(move |inventory| query::rules(inventory, &filter)).await?;
    let rules = rules.into_iter().map(|rule| {
        let query = term("finding", &rule.rule);
        (rule, query)
    });
    Ok(page(&FindingsPage { here: "findings", q: asked.q, rules: rules.collect() }))
}
