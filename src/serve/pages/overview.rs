//! Overview: what is new, what is worst, and what is on the network.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use futures_util::future::{join, join3};

use crate::diagnostics::several;
use crate::fleet::{SensorState, sensors_of};
use crate::inventory::{
    BlockingRule, FindingTrends, InventoryTotals, PastRun, RecentChanges, RuleSummary, ServiceFilter,
    SeverityTrend, StoreError, ValueCount, query,
};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::html_escape::term;
use crate::serve::overview_facts::{RecentFacts, SensorStates, TimedFacts, TotalFacts};
use crate::serve::page_frame::PageFrame;
use crate::serve::plot::{HEIGHT, PlotColumn, STEP, TrendPath, columns, percent, trend};
use crate::serve::response::{RequestError, page};

/// Limit of listed values of a field.
const VALUES: usize = 8;

/// Limit of listed rules.
const RULES: usize = 8;

/// Time for which facts are cached for all readers.
const FRESH: Duration = Duration::from_secs(5);

/// Duration of a query from which on its earlier result is shown while it runs again.
const SLOW: Duration = Duration::from_millis(100);

/// Length of a day.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Silence of a sensor, in milliseconds, after which it has missed three heartbeats.
const SILENT: i64 = 180_000;

/// Limit of listed runs.
const RUNS: i64 = 6;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: PageFrame,
    trends: FindingTrends,
    worst: Vec<RuleSummary>,
    recent: RecentChanges,
    stopped: Vec<BlockingRule>,
    runs: Vec<PastRun>,
    sensors: SensorStates,
    totals: InventoryTotals,
    columns: Vec<PlotColumn>,
    products: Vec<ValueBar>,
    versions: Vec<ValueBar>,
}

/// Value with its number of services.
pub(super) struct ValueBar {
    pub(super) value: String,
    pub(super) services: i64,
    pub(super) percent: i64,
    /// Filter that finds them.
    pub(super) q: Option<String>,
}

pub(super) async fn show(State(reader): State<Arc<DatabaseReader>>) -> Result<Response, RequestError> {
    let (recent, totals) = join(recent(&reader), totals(&reader)).await;
    let (facts, TotalFacts { totals, products, versions }) = (recent?, totals?);
    let RecentFacts { now, trends, worst, recent, stopped, runs, sensors } = facts;
    Ok(page(&OverviewPage {
        frame: PageFrame { here: "overview", now },
        columns: columns(&recent.hours),
        products: bars(products, |value| term("product", value)),
        versions: bars(versions, |_| None),
        trends,
        worst,
        recent,
        stopped,
        runs,
        sensors,
        totals,
    }))
}

/// Returns current or cached findings and changes.
async fn recent(reader: &Arc<DatabaseReader>) -> Result<RecentFacts, RequestError> {
    let mut cached = reader.overview.recent.lock().await;
    if let Some(known) = cached.as_ref().filter(|known| known.asked.elapsed() < FRESH) {
        return Ok(known.facts.clone());
    }
    let (asked, now) = (Instant::now(), PageFrame::new("").now);
    // These take equally long, so they run in parallel.
    let trends = reader.ask(move |inventory| query::finding_trends(inventory, now, 1, RULES));
    let rules = reader.ask(move |inventory| query::rules(inventory, &ServiceFilter::default()));
    let rest = reader.ask(move |inventory| -> Result<_, StoreError> {
        let sensors = sensors_of(inventory).map(Option::unwrap_or_default).map_err(|error| error.to_string());
        let (recent, stopped) =
            (query::recent_changes(inventory, now.before(DAY))?, query::blocking_rules(inventory)?);
        Ok((recent, stopped, query::latest_runs(inventory, RUNS)?, sensors))
    });
    let (trends, rules, rest) = join3(trends, rules, rest).await;
    let (trends, mut worst, (recent, stopped, runs, sensors)) = (trends?, rules?, rest?);
    worst.retain(|rule| rule.services > 0);
    worst.truncate(RULES);
    let facts = RecentFacts { now, trends, worst, recent, stopped, runs, sensors };
    *cached = Some(TimedFacts { asked, took: asked.elapsed(), facts: facts.clone() });
    Ok(facts)
}

/// Returns current totals. If counting is slow, these are the last ones, and the next reader gets new ones.
async fn totals(reader: &Arc<DatabaseReader>) -> Result<TotalFacts, RequestError> {
    let known = || reader.overview.totals.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match known() {
        Some(known) if known.asked.elapsed() < FRESH => Ok(known.facts),
        Some(known) if known.took >= SLOW => {
            let reader = Arc::clone(reader);
            tokio::spawn(async move {
                if let Ok(_counting) = reader.overview.counting.try_lock() {
                    // The next reader asks again, and gets the error.
                    let _ = count(&reader).await;
                }
            });
            Ok(known.facts)
        }
        _ => {
            let _counting = reader.overview.counting.lock().await;
            match known().filter(|known| known.asked.elapsed() < FRESH) {
                Some(known) => Ok(known.facts),
                None => count(reader).await,
            }
        }
    }
}

/// Counts all services, and caches the result. The server calls it when it starts.
pub(in crate::serve) async fn count(reader: &Arc<DatabaseReader>) -> Result<TotalFacts, RequestError> {
    let asked = Instant::now();
    let totals = reader.ask(query::totals);
    let products = reader.ask(|inventory| query::products(inventory, VALUES));
    let (totals, products) = join(totals, products).await;
    let (totals, (products, versions)) = (totals?, products?);
    let facts = TotalFacts { totals, products, versions };
    let timed = TimedFacts { asked, took: asked.elapsed(), facts: facts.clone() };
    *reader.overview.totals.lock().unwrap_or_else(PoisonError::into_inner) = Some(timed);
    Ok(facts)
}

pub(super) fn bars(counts: Vec<ValueCount>, query: impl Fn(&str) -> Option<String>) -> Vec<ValueBar> {
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
    /// Says what is new and what is worst.
    fn headline(&self) -> String {
        let new: i64 = self.trends.severities.iter().map(|it| it.new).sum();
        let grave = self.trends.severities.iter().find(|it| it.new > 0);
        let news = match grave {
            Some(it) if it.new == new => {
                format!("{} since yesterday.", several(new, &format!("new {} finding", it.severity)))
            }
            Some(it) => format!(
                "{} since yesterday, {} of them {}.",
                several(new, "new finding"),
                it.new,
                it.severity
            ),
            None => "No new findings since yesterday.".to_owned(),
        };
        match self.worst.first() {
            Some(rule) => {
                format!("{news} Worst now: {} ({} affected).", rule.title, rule.services)
            }
            None => format!("{news} Nothing is open."),
        }
    }

    fn trend(&self, it: &SeverityTrend) -> Option<TrendPath> {
        trend(&it.days)
    }

    /// Describes a trend for those who do not see it.
    fn trend_label(&self, it: &SeverityTrend) -> String {
        let first = it.days.first().copied().unwrap_or_default();
        format!("Open {} findings over {} days: from {first} to {}", it.severity, it.days.len(), it.open)
    }

    /// Returns the kinds of changes that are about hosts and services as a whole, with their numbers.
    fn changed(&self) -> Vec<(&'static str, i64)> {
        let names = [
            ("new_host", "new hosts"),
            ("new_service", "new services"),
            ("new_client", "new clients"),
            ("service_gone", "gone"),
        ];
        let count =
            |kind: &str| self.recent.kinds.iter().find(|(name, _)| name == kind).map(|(_, count)| *count);
        names.iter().filter_map(|(kind, words)| Some((*words, count(kind)?))).collect()
    }

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
