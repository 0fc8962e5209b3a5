//! How much there is, what is new, what was stopped.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use crate::inventory::{Count, Filter, Overview, PastRun, Sqlite, StoreError, Time};
use crate::serve::answer::{Fault, page};
use crate::serve::plot::{Column, HEIGHT, STEP, columns, percent};
use crate::serve::reader::Reader;
use crate::serve::text::term;

/// Values of a field that are shown.
const VALUES: usize = 12;

/// Runs that are shown.
const RUNS: usize = 8;

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    here: &'static str,
    now: Time,
    overview: Overview,
    columns: Vec<Column>,
    products: Vec<Bar>,
    versions: Vec<Bar>,
    severities: Vec<Bar>,
    runs: Vec<PastRun>,
}

/// A value, and how many services have it.
struct Bar {
    value: String,
    services: i64,
    percent: i64,
    /// The words that find them.
    q: Option<String>,
}

/// What the page is made of.
struct Facts {
    overview: Overview,
    products: Vec<Count>,
    versions: Vec<Count>,
    runs: Vec<PastRun>,
}

pub(super) async fn show(State(reader): State<Arc<Reader>>) -> Result<Response, Fault> {
    let now = Time::now();
    let facts = reader.ask(move |inventory| facts(inventory, now)).await?;
    let count = |(value, services): &(String, i64)| Count { value: value.clone(), services: *services };
    let severities = facts.overview.severities.iter().map(count).collect();
    let columns = columns(&facts.overview.hours);
    Ok(page(&Page {
        here: "overview",
        now,
        columns,
        products: bars(facts.products, |value| term("product", value)),
        versions: bars(facts.versions, |_| None),
        severities: bars(severities, |value| term("finding", value)),
        overview: facts.overview,
        runs: facts.runs,
    }))
}

fn facts(inventory: &Sqlite, now: Time) -> Result<Facts, StoreError> {
    let servers = Filter::default();
    let mut runs = inventory.runs()?;
    runs.reverse();
    runs.truncate(RUNS);
    Ok(Facts {
        overview: inventory.overview(now)?,
        products: inventory.top("product", &servers, VALUES)?,
        versions: inventory.top("version", &servers, VALUES)?,
        runs,
    })
}

fn bars(counts: Vec<Count>, query: impl Fn(&str) -> Option<String>) -> Vec<Bar> {
    let most = counts.iter().map(|count| count.services).max().unwrap_or_default();
    let bar = |count: Count| Bar {
        q: query(&count.value),
        percent: percent(count.services, most),
        services: count.services,
        value: count.value,
    };
    counts.into_iter().map(bar).collect()
}

impl Page {
    /// The plot's width and height.
    fn size(&self) -> (usize, i64) {
        (self.columns.len() * STEP, HEIGHT)
    }

    /// A kind of change as a person reads it.
    fn words(&self, kind: &str) -> String {
        kind.replace('_', " ")
    }

    /// Changes of the last day.
    fn changed(&self) -> i64 {
        self.overview.changes.iter().map(|(_, count)| count).sum()
    }
}
