//! New changes, and live alerts of the guard that serves this page, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use futures_util::stream::unfold;

use super::database_reader::DatabaseReader;
use super::response::{JsonError, RequestError};
use super::strict_parameters::StrictParameters;
use crate::inventory::{InventoryChange, LiveAlert, ServiceFilter, query};

/// Interval between two queries of the inventory.
const PAUSE: Duration = Duration::from_millis(500);

/// Limit of changes in one query.
const AT_ONCE: usize = 200;

/// State of one watching browser.
struct WatchingBrowser {
    reader: Arc<DatabaseReader>,
    filter: ServiceFilter,
    /// Position of the last sent change and alert.
    behind: StreamPosition,
    /// Position of the last queued change and alert.
    reached: StreamPosition,
    waiting: VecDeque<StreamItem>,
}

/// Position in the streams: `change` or `change.alert` as text.
#[derive(Debug, Clone, Copy)]
struct StreamPosition {
    change: i64,
    alert: u64,
}

/// Item of the stream.
enum StreamItem {
    Change(Box<InventoryChange>),
    Alert(u64, Arc<LiveAlert>),
}

/// `/api/events`: changes from now on, or after `Last-Event-ID`.
pub(super) async fn events(
    State(reader): State<Arc<DatabaseReader>>,
    StrictParameters(asked): StrictParameters,
    headers: HeaderMap,
) -> Result<Response, JsonError> {
    let filter = asked.filter()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let behind = match last {
        Some(id) => id.parse().map_err(|()| RequestError::bad("Last-Event-ID: not a number"))?,
        // A new reader gets only later changes. The page shows the earlier ones itself.
        None => StreamPosition {
            change: match asked.after_row()? {
                Some(behind) => behind,
                None => reader.ask(query::latest_change).await?,
            },
            alert: 0,
        },
    };
    let watch = WatchingBrowser { reader, filter, behind, reached: behind, waiting: VecDeque::new() };
    Ok(Sse::new(stream(watch)).keep_alive(KeepAlive::default()).into_response())
}

/// Returns the stream. It stops if the inventory becomes unreadable; browsers then reconnect.
fn stream(watch: WatchingBrowser) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold(watch, |mut watch| async move {
        loop {
            if let Some(told) = watch.waiting.pop_front() {
                return Some((Ok(watch.event(&told)?), watch));
            }
            if !watch.poll().await? {
                watch.wait_for_news().await;
            }
        }
    })
}

impl WatchingBrowser {
    /// Looks for alerts and changes; returns true if there are any, and none if the inventory is unreadable.
    async fn poll(&mut self) -> Option<bool> {
        self.queue_alerts();
        // Alerts do not wait for the database.
        if !self.waiting.is_empty() {
            return Some(true);
        }
        let (filter, behind) = (self.filter.clone(), self.reached.change);
        let asked = self
            .reader
            .ask(move |inventory| query::changes_behind(inventory, &filter, behind, AT_ONCE))
            .await;
        let (changes, reached) = asked.ok()?;
        self.reached.change = reached;
        self.waiting.extend(changes.into_iter().map(Box::new).map(StreamItem::Change));
        Some(!self.waiting.is_empty())
    }

    /// Queues new alerts.
    fn queue_alerts(&mut self) {
        let Some(board) = &self.reader.board else { return };
        for (number, alert) in board.behind(self.reached.alert) {
            self.reached.alert = number;
            if self.filter.selects(&alert) {
                self.waiting.push_back(StreamItem::Alert(number, alert));
            }
        }
    }

    /// Waits until the next query is worthwhile. Filtered alerts cause no query, since each would load the
    /// inventory.
    async fn wait_for_news(&mut self) {
        // Other processes write changes without notice, so the database is polled.
        let pause = tokio::time::sleep(PAUSE);
        tokio::pin!(pause);
        let Some(board) = self.reader.board.clone() else { return pause.await };
        while self.waiting.is_empty() {
            tokio::select! {
                () = &mut pause => return,
                () = board.news() => self.queue_alerts(),
            }
        }
    }

    /// Formats an item as an event.
    fn event(&mut self, told: &StreamItem) -> Option<Event> {
        // JSON has no line ends, which would split the event.
        let (name, data) = match told {
            StreamItem::Change(change) => {
                self.behind.change = change.id;
                ("change", serde_json::to_string(change))
            }
            StreamItem::Alert(number, alert) => {
                self.behind.alert = *number;
                ("alert", serde_json::to_string(alert))
            }
        };
        Some(Event::default().id(self.behind.to_string()).event(name).data(data.ok()?))
    }
}

impl fmt::Display for StreamPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.change, self.alert)
    }
}

impl FromStr for StreamPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (change, alert) = text.split_once('.').unwrap_or((text, "0"));
        Ok(Self { change: change.parse().map_err(drop)?, alert: alert.parse().map_err(drop)? })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::live_alerts::RecentAlerts;
    use super::super::live_alerts::tests::alert;
    use super::*;

    #[test]
    fn alerts_that_a_filter_hides_wake_nobody() {
        let board = Arc::<RecentAlerts>::default();
        let place = std::path::Path::new("/nowhere.db").into();
        let mark = StreamPosition { change: 0, alert: 0 };
        let mut watch = WatchingBrowser {
            reader: Arc::new(DatabaseReader::new(place, Arc::default(), Some(Arc::clone(&board)), None)),
            filter: ServiceFilter::parse(["finding:shown"]).unwrap(),
            behind: mark,
            reached: mark,
            waiting: VecDeque::new(),
        };
        let mut rest = |rule: &str| {
            let over = Arc::<std::sync::atomic::AtomicBool>::default();
            let (seen, shown, rule) = (Arc::clone(&over), Arc::clone(&board), rule.to_owned());
            let crier = std::thread::spawn(move || {
                while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                    shown.put(alert(&rule));
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let begun = Instant::now();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(watch.wait_for_news());
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            crier.join().unwrap();
            (begun.elapsed() < PAUSE, watch.waiting.is_empty())
        };
        assert_eq!(rest("hidden"), (false, true));
        assert_eq!(rest("shown"), (true, false));
    }
}
