//! How much there is, what is new, what was stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use futures_util::future::join;
use tokio::sync::Mutex;

use crate::fleet::{SensorState, sensors_of};
use crate::inventory::{Count, Database, Overview, PastRun, StoreError, Time};
use crate::serve::answer::{Fault, page};
use crate::serve::plot::{Column, HEIGHT, STEP, columns, percent};
use crate::serve::reader::Reader;
use crate::serve::text::term;

/// Values of a field that are shown.
const VALUES: usize = 12;

/// How long the page is the same for all.
const FRESH: Duration = Duration::from_secs(5);

/// A sensor that was not heard of for so long, in milliseconds, has missed to say three times that it is
/// there.
const SILENT: i64 = 180_000;

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
    sensors: Sensors,
}

/// Sensors of the fleet beside the inventory; none where there is no fleet, and why they cannot be read.
type Sensors = Result<Vec<SensorState>, String>;

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
    sensors: Sensors,
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
        sensors: facts.sensors,
    }))
}

/// The facts of now, or of a moment ago: of a million services they take a while, and many may want to see
/// them.
async fn recent(reader: &Arc<Reader>) -> Result<Facts, Fault> {
    let mut recent = reader.overview.lock().await;
    if let Some((_, facts)) = recent.as_ref().filter(|(asked, _)| asked.elapsed() < FRESH) {
        return Ok(facts.clone());
    }
    let now = Time::now();
    // Two questions that take as long as each other, at the same time.
    let counts = reader.ask(|inventory| inventory.products(VALUES));
    let rest = reader.ask(move |inventory| -> Result<_, StoreError> {
        let sensors = sensors_of(inventory).map(Option::unwrap_or_default).map_err(|error| error.to_string());
        Ok((inventory.overview(now)?, last_runs(inventory)?, sensors))
    });
    let (counts, rest) = join(counts, rest).await;
    let ((products, versions), (overview, runs, sensors)) = (counts?, rest?);
    let facts = Facts { now, overview, products, versions, runs, sensors };
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

    /// Batches that wait to be merged, and how long the oldest of them has.
    fn behind(&self) -> Option<(i64, String)> {
        let sensors = self.sensors.as_deref().unwrap_or_default();
        let oldest = sensors.iter().filter_map(|sensor| sensor.behind).max()?;
        Some((sensors.iter().map(|sensor| sensor.inbox).sum(), span(oldest)))
    }

    /// How long a sensor was not heard of, where that is longer than it should be.
    fn silent(&self, sensor: &SensorState) -> Option<String> {
        sensor.silent.filter(|silent| *silent > SILENT).map(span)
    }

    /// What is not as it should be with a sensor's batches.
    fn troubles(&self, sensor: &SensorState) -> String {
        let counts =
            [(sensor.waiting, "wait there"), (sensor.refused, "set aside"), (sensor.lost, "sightings lost")];
        let told = counts.iter().filter(|(count, _)| *count > 0);
        told.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    }

    /// A time as a person reads it.
    fn span(&self, millis: &i64) -> String {
        span(*millis)
    }

    /// Changes of the last day.
    fn changed(&self) -> i64 {
        self.overview.changes.iter().map(|(_, count)| count).sum()
    }
}

/// A time in the largest unit of which there are at least two.
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
