//! The pages. Each has a template and the query for its data.

mod changes;
mod findings;
mod hosts;
mod list;
mod overview;
mod rule_test;
mod rules;
mod scans;
mod search;
mod services;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::database_reader::DatabaseReader;
use super::response::RequestError;
use crate::inventory::{ServiceCursor, ServiceFilter};

/// Default and largest number of rows on a page.
const ROWS: (usize, usize) = (100, 500);

/// Style of all pages.
pub(super) const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/live.js");
const ICON: &str = include_str!("../assets/icon.svg");

pub(super) fn routes() -> Router<Arc<DatabaseReader>> {
    Router::new()
        .route("/", get(overview::show))
        .route("/hosts", get(hosts::list))
        .route("/hosts.csv", get(hosts::csv))
        .route("/hosts/{address}", get(hosts::show))
        .route("/services", get(services::list))
        .route("/services.csv", get(services::csv))
        .route("/findings", get(findings::list))
        .route("/findings.csv", get(findings::csv))
        .route("/rules/{*id}", get(rules::show))
        .route("/cves/{id}", get(rules::cve))
        .route("/search", get(search::show))
        .route("/changes", get(changes::list))
        .route("/changes.csv", get(changes::csv))
        .route("/live", get(changes::live))
        .route("/try", get(rule_test::form).post(rule_test::show))
        .route("/scans", get(scans::show).post(scans::start))
        .route("/scans/{number}/cancel", post(scans::cancel))
        .route("/schedules/{id}/delete", post(scans::unschedule))
        .route("/assets/live.js", get(|| asset("text/javascript", SCRIPT)))
        .route("/assets/style.css", get(|| asset("text/css", STYLE)))
        .route("/assets/icon.svg", get(|| asset("image/svg+xml", ICON)))
}

/// Parameters of a list.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListQuery {
    /// Filter.
    #[serde(default)]
    pub(super) q: String,
    /// Position after which the list continues.
    #[serde(default)]
    after: String,
    /// Number of rows.
    #[serde(default)]
    limit: String,
    /// Order of a page's list.
    #[serde(default)]
    pub(super) sort: String,
    /// Severity of a page's findings.
    #[serde(default)]
    severity: String,
}

impl ListQuery {
    /// Names of the parameters for programs.
    pub(super) const NAMES: [&str; 3] = ["q", "after", "limit"];

    /// Returns the filter of services.
    pub(super) fn filter(&self) -> Result<ServiceFilter, RequestError> {
        ServiceFilter::from_text(&self.q)
            .map_err(|error| RequestError::Filter { text: self.q.clone(), why: error.to_string() })
    }

    /// Returns the number of the row after which the list continues.
    pub(super) fn after_row(&self) -> Result<Option<i64>, RequestError> {
        self.value(&self.after, "after: not a number")
    }

    /// Returns the service after which the list continues.
    pub(super) fn after_service(&self) -> Result<Option<ServiceCursor>, RequestError> {
        self.value(&self.after, "after: not a position in this list")
    }

    /// Returns the host after which the list continues.
    pub(super) fn after_host(&self) -> Result<Option<IpAddr>, RequestError> {
        self.value(&self.after, "after: not an address")
    }

    /// Returns the number of rows of a sorted list before its next part.
    pub(super) fn skip(&self) -> Result<usize, RequestError> {
        Ok(self.value(&self.after, "after: not a number")?.unwrap_or(0))
    }

    /// Returns the order of a list, one of `names`; the first one by default.
    pub(super) fn order<T: Copy>(&self, names: &[(&str, T)]) -> Result<T, RequestError> {
        let found = names.iter().find(|(name, _)| *name == self.sort);
        let names = || names.iter().map(|(name, _)| *name).filter(|name| !name.is_empty());
        let fault =
            || RequestError::bad(format_args!("sort: may be {}", names().collect::<Vec<_>>().join(", ")));
        found.map(|(_, order)| *order).ok_or_else(fault)
    }

    /// Returns the number of rows, given the default and the limit.
    pub(super) fn most(&self, (usual, most): (usize, usize)) -> Result<usize, RequestError> {
        let asked: Option<usize> = self.value(&self.limit, "limit: not a number")?;
        Ok(asked.unwrap_or(usual).clamp(1, most))
    }

    #[expect(clippy::unused_self, reason = "reads one of its fields")]
    fn value<T: std::str::FromStr>(&self, text: &str, why: &str) -> Result<Option<T>, RequestError> {
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| RequestError::bad(why))
    }
}

/// Counts what the overview shows.
pub(super) async fn prepare(reader: &Arc<DatabaseReader>) {
    // The first visitor asks again, and gets the error.
    let _ = overview::count(reader).await;
}

pub(super) async fn nowhere() -> RequestError {
    RequestError::Missing("This page does not exist.".to_owned())
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=3600")], text).into_response()
}
