//! How much there is, what is new, what was stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use futures_util::future::join;
use tokio::sync::Mutex;

use crate::inventory::{Count, Database, Overview, PastRun, StoreError, Time};
use crate::serve::answer::{Fault, page};
use crate::serve::plot::{Column, HEIGHT, STEP, columns, percent};
use crate::serve::reader::Reader;
use crate::serve::text::term;

/// Values of a field that are shown.
const VALUES: usize = 12;

/// How long the page is the same for all.
const FRESH: Duration = Duration::from_secs(5);

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
#[derive(Debug, Clone)]
pub(in crate::serve) struct Facts {
    now: Time,
    overview: Overview,
    products: Vec<Count>,
    versions: Vec<Count>,
    runs: Vec<PastRun>,
}

/// Facts that were asked for, and when.
pub(in crate::serve) type Recent = Mutex<Option<(Instant, Facts)>>;

pub(super) async fn show(State(reader): State<Arc<Reader>>) -> Result<Response, Fault> {
    let facts = recent(&reader).await?;
    let now = facts.now;
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

/// The facts of now, or of a moment ago: of a million services they take a while, and many may want to see them.
async fn recent(reader: &Arc<Reader>) -> Result<Facts, Fault> {
    let mut recent = reader.overview.lock().await;
    if let Some((_, facts)) = recent.as_ref().filter(|(asked, _)| asked.elapsed() < FRESH) {
        return Ok(facts.clone());
    }
    let now = Time::now();
    // Two questions that take as long as each other, at the same time.
    let counts = reader.ask(|inventory| inventory.products(VALUES));
    let rest = reader.ask(move |inventory| -> Result<_, StoreError> {
        Ok((inventory.overview(now)?, last_runs(inventory)?))
    });
    let (counts, rest) = join(counts, rest).await;
    let ((products, versions), (overview, runs)) = (counts?, rest?);
    let facts = Facts { now, overview, products, versions, runs };
    *recent = Some((Instant::now(), facts.clone()));
    Ok(facts)
}

/// The runs that began last, the latest first.
fn last_runs(inventory: &Database) -> Result<Vec<PastRun>, StoreError> {
    let mut runs = inventory.runs()?;
    runs.reverse();
    runs.truncate(RUNS);
    Ok(runs)
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
