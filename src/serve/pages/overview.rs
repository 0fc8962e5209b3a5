//! Overview: totals, new changes, and blocks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use futures_util::future::join;

use crate::fleet::{SensorState, sensors_of};
use crate::inventory::{
    InventoryDatabase, InventoryOverview, InventoryTime, PastRun, StoreError, ValueCount, query,
};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::html_escape::term;
use crate::serve::overview_facts::{OverviewFacts, SensorStates};
use crate::serve::plot::{HEIGHT, PlotColumn, STEP, columns, percent};
use crate::serve::response::{RequestError, page};

/// Limit of listed values of a field.
const VALUES: usize = 12;

/// Time for which the facts are cached for all readers.
const FRESH: Duration = Duration::from_secs(5);

/// Silence of a sensor, in milliseconds, after which it has missed three heartbeats.
const SILENT: i64 = 180_000;

/// Limit of listed runs.
const RUNS: usize = 8;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    here: &'static str,
    now: InventoryTime,
    overview: InventoryOverview,
    columns: Vec<PlotColumn>,
    products: Vec<ValueBar>,
    versions: Vec<ValueBar>,
    severities: Vec<ValueBar>,
    runs: Vec<PastRun>,
    sensors: SensorStates,
}

/// Value with its number of services.
struct ValueBar {
    value: String,
    services: i64,
    percent: i64,
    /// Filter that finds them.
    q: Option<String>,
}

pub(super) async fn show(State(reader): State<Arc<DatabaseReader>>) -> Result<Response, RequestError> {
    let facts = recent(&reader).await?;
    let now = facts.now;
    let count = |(value, services): &(String, i64)| ValueCount { value: value.clone(), services: *services };
    let severities = facts.overview.severities.iter().map(count).collect();
    let columns = columns(&facts.overview.hours);
    Ok(page(&OverviewPage {
        here: "overview",
        now,
        columns,
        products: bars(facts.products, |value| term("product", value)),
        versions: bars(facts.versions, |_| None),
        severities: bars(severities, |value| term("finding", value)),
        overview: facts.overview,
        runs: facts.runs,
        sensors: facts.sensors,
    }))
}

/// Returns current or cached facts: with a million services the queries take a while, and many readers may
/// ask.
async fn recent(reader: &Arc<DatabaseReader>) -> Result<OverviewFacts, RequestError> {
    let mut recent = reader.overview.lock().await;
    if let Some((_, facts)) = recent.as_ref().filter(|(asked, _)| asked.elapsed() < FRESH) {
        return Ok(facts.clone());
    }
    let now = InventoryTime::now();
    // Both queries take equally long, so they run in parallel.
    let counts = reader.ask(|inventory| query::products(inventory, VALUES));
    let rest = reader.ask(move |inventory| -> Result<_, StoreError> {
        let sensors = sensors_of(inventory).map(Option::unwrap_or_default).map_err(|error| error.to_string());
        Ok((query::overview(inventory, now)?, last_runs(inventory)?, sensors))
    });
    let (counts, rest) = join(counts, rest).await;
    let ((products, versions), (overview, runs, sensors)) = (counts?, rest?);
    let facts = OverviewFacts { now, overview, products, versions, runs, sensors };
    *recent = Some((Instant::now(), facts.clone()));
    Ok(facts)
}

/// Returns the latest runs, newest first.
fn last_runs(inventory: &InventoryDatabase) -> Result<Vec<PastRun>, StoreError> {
    let mut runs = query::runs(inventory)?;
    runs.reverse();
    runs.truncate(RUNS);
    Ok(runs)
}

fn bars(counts: Vec<ValueCount>, query: impl Fn(&str) -> Option<String>) -> Vec<ValueBar> {
    let most = counts.iter().map(|count| count.services).max().unwrap_or_default();
    let bar = |count: ValueCount| ValueBar {
        q: query(&count.value),
        percent: percent(count.services, most),
        services: count.services,
        value: count.value,
    };
    counts.into_iter().map(bar).collect()
}

impl OverviewPage {
    /// Returns the plot's width and height.
    fn size(&self) -> (usize, i64) {
        (self.columns.len() * STEP, HEIGHT)
    }

    /// Formats a kind of change for a person.
    fn words(&self, kind: &str) -> String {
        kind.replace('_', " ")
    }

    /// Returns the number of batches that wait to be merged, and the age of the oldest.
    fn behind(&self) -> Option<(i64, String)> {
        let sensors = self.sensors.as_deref().unwrap_or_default();
        let oldest = sensors.iter().filter_map(|sensor| sensor.behind).max()?;
        Some((sensors.iter().map(|sensor| sensor.inbox).sum(), span(oldest)))
    }

    /// Returns the silence of a sensor, if it is too long.
    fn silent(&self, sensor: &SensorState) -> Option<String> {
        sensor.silent.filter(|silent| *silent > SILENT).map(span)
    }

    /// Describes the problems of a sensor's batches.
    fn troubles(&self, sensor: &SensorState) -> String {
        let counts =
            [(sensor.waiting, "waiting"), (sensor.refused, "set aside"), (sensor.lost, "sightings lost")];
        let told = counts.iter().filter(|(count, _)| *count > 0);
        told.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    }

    /// Formats a time for a person.
    fn span(&self, millis: &i64) -> String {
        span(*millis)
    }

    /// Returns the number of changes in the last day.
    fn changed(&self) -> i64 {
        self.overview.changes.iter().map(|(_, count)| count).sum()
    }
}

/// Formats a time in the largest unit with at least two of it.
fn span(millis: i64) -> String {
    let seconds = millis.max(0) / 1_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_time_is_shown_in_a_unit_that_fits() {
        let shown = [-5, 0, 119_999, 120_000, 7_199_999, 7_200_000, 172_800_000].map(super::span);
        assert_eq!(shown, ["0 s", "0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }
}
