//! The pages. Each is a template and the question that fills it.

mod attempt;
mod changes;
mod hosts;
mod overview;
mod scans;
mod services;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

pub(super) use self::overview::Recent;
use super::answer::Fault;
use super::reader::Reader;
use crate::inventory::{Cursor, Filter};

/// Rows of a page that says nothing else, and at most.
const ROWS: (usize, usize) = (100, 500);

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/live.js");
const ICON: &str = include_str!("../assets/icon.svg");

pub(super) fn routes() -> Router<Arc<Reader>> {
    Router::new()
        .route("/", get(overview::show))
        .route("/hosts", get(hosts::list))
        .route("/hosts/{address}", get(hosts::show))
        .route("/services", get(services::list))
        .route("/findings", get(services::findings))
        .route("/changes", get(changes::list))
        .route("/live", get(changes::live))
        .route("/try", get(attempt::form).post(attempt::show))
        .route("/scans", get(scans::show).post(scans::start))
        .route("/scans/{number}/cancel", post(scans::cancel))
        .route("/schedules/{id}/delete", post(scans::unschedule))
        .route("/assets/live.js", get(|| asset("text/javascript", SCRIPT)))
        .route("/assets/style.css", get(|| asset("text/css", STYLE)))
        .route("/assets/icon.svg", get(|| asset("image/svg+xml", ICON)))
}

/// What a listing is asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    /// The filter's words.
    #[serde(default)]
    pub(super) q: String,
    /// Where the listing goes on.
    #[serde(default)]
    after: String,
    /// How many rows.
    #[serde(default)]
    limit: String,
}

impl Asked {
    /// What can be asked.
    pub(super) const NAMES: [&str; 3] = ["q", "after", "limit"];

    /// What the services must be.
    pub(super) fn filter(&self) -> Result<Filter, Fault> {
        Filter::from_text(&self.q).map_err(Fault::bad)
    }

    /// The number of the row that the listing goes on behind.
    pub(super) fn after_row(&self) -> Result<Option<i64>, Fault> {
        self.value(&self.after, "after: no number")
    }

    /// The service that the listing goes on behind.
    pub(super) fn after_service(&self) -> Result<Option<Cursor>, Fault> {
        self.value(&self.after, "after: no place in this listing")
    }

    /// The host that the listing goes on behind.
    pub(super) fn after_host(&self) -> Result<Option<IpAddr>, Fault> {
        self.value(&self.after, "after: no address")
    }

    /// How many rows, by default and at most.
    pub(super) fn most(&self, (usual, most): (usize, usize)) -> Result<usize, Fault> {
        let asked: Option<usize> = self.value(&self.limit, "limit: no number")?;
        Ok(asked.unwrap_or(usual).clamp(1, most))
    }

    #[expect(clippy::unused_self, reason = "reads one of its fields")]
    fn value<T: std::str::FromStr>(&self, text: &str, why: &str) -> Result<Option<T>, Fault> {
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| Fault::bad(why))
    }
}

pub(super) async fn nowhere() -> Fault {
    Fault::Missing("There is no such page.".to_owned())
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=3600")], text).into_response()
}
