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

use super::answer::{Fault, JsonFault};
use super::api::Strict;
use super::reader::Reader;
use crate::inventory::{Alert, Change, Database, Filter};

/// Interval between two queries of the inventory.
const PAUSE: Duration = Duration::from_millis(500);

/// Limit of changes in one query.
const AT_ONCE: usize = 200;

/// State of one watching browser.
struct Watch {
    reader: Arc<Reader>,
    filter: Filter,
    /// Position of the last sent change and alert.
    behind: Mark,
    /// Position of the last queued change and alert.
    reached: Mark,
    waiting: VecDeque<Told>,
}

/// Position in the streams: `change` or `change.alert` as text.
#[derive(Debug, Clone, Copy)]
struct Mark {
    change: i64,
    alert: u64,
}

/// Item of the stream.
enum Told {
    Change(Box<Change>),
    Alert(u64, Arc<Alert>),
}

/// `/api/events`: changes from now on, or after `Last-Event-ID`.
pub(super) async fn events(
    State(reader): State<Arc<Reader>>,
    Strict(asked): Strict,
    headers: HeaderMap,
) -> Result<Response, JsonFault> {
    let filter = asked.filter()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let behind = match last {
        Some(id) => id.parse().map_err(|()| Fault::bad("Last-Event-ID: not a number"))?,
        None => Mark {
            change: match asked.after_row()? {
                Some(behind) => behind,
                None => reader.ask(Database::latest_change).await?,
            },
            alert: 0,
        },
    };
    let watch = Watch { reader, filter, behind, reached: behind, waiting: VecDeque::new() };
    Ok(Sse::new(stream(watch)).keep_alive(KeepAlive::default()).into_response())
}

/// Returns the stream. It stops if the inventory becomes unreadable; browsers then reconnect.
fn stream(watch: Watch) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold(watch, |mut watch| async move {
        loop {
            if let Some(told) = watch.waiting.pop_front() {
                return Some((Ok(watch.event(&told)?), watch));
            }
            if !watch.look().await? {
                watch.rest().await;
            }
        }
    })
}

impl Watch {
    /// Looks for alerts and changes; returns true if there are any, and none if the inventory is unreadable.
    async fn look(&mut self) -> Option<bool> {
        self.hear();
        if !self.waiting.is_empty() {
            return Some(true);
        }
        let (filter, behind) = (self.filter.clone(), self.reached.change);
        let asked =
            self.reader.ask(move |inventory| inventory.changes_behind(&filter, behind, AT_ONCE)).await;
        let (changes, reached) = asked.ok()?;
        self.reached.change = reached;
        self.waiting.extend(changes.into_iter().map(Box::new).map(Told::Change));
        Some(!self.waiting.is_empty())
    }

    /// Queues new alerts.
    fn hear(&mut self) {
        let Some(board) = &self.reader.board else { return };
        for (number, alert) in board.behind(self.reached.alert) {
            self.reached.alert = number;
            if self.filter.takes(&alert) {
                self.waiting.push_back(Told::Alert(number, alert));
            }
        }
    }

    /// Waits until the next query is worthwhile. Filtered alerts cause no query, since each would load the
    /// inventory.
    async fn rest(&mut self) {
        let pause = tokio::time::sleep(PAUSE);
        tokio::pin!(pause);
        let Some(board) = self.reader.board.clone() else { return pause.await };
        while self.waiting.is_empty() {
            tokio::select! {
                () = &mut pause => return,
                () = board.news() => self.hear(),
            }
        }
    }

    /// Formats an item as an event.
    fn event(&mut self, told: &Told) -> Option<Event> {
        // JSON has no line ends, which would split the event.
        let (name, data) = match told {
            Told::Change(change) => {
                self.behind.change = change.id;
                ("change", serde_json::to_string(change))
            }
            Told::Alert(number, alert) => {
                self.behind.alert = *number;
                ("alert", serde_json::to_string(alert))
            }
        };
        Some(Event::default().id(self.behind.to_string()).event(name).data(data.ok()?))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.change, self.alert)
    }
}

impl FromStr for Mark {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (change, alert) = text.split_once('.').unwrap_or((text, "0"));
        Ok(Self { change: change.parse().map_err(drop)?, alert: alert.parse().map_err(drop)? })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::alerts::Board;
    use super::super::alerts::tests::alert;
    use super::*;

    #[test]
    fn alerts_that_a_filter_hides_wake_nobody() {
        let board = Arc::<Board>::default();
        let place = std::path::Path::new("/nowhere.db").into();
        let mark = Mark { change: 0, alert: 0 };
        let mut watch = Watch {
            reader: Arc::new(Reader::new(place, Some(Arc::clone(&board)), None)),
            filter: Filter::parse(["finding:shown"]).unwrap(),
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
            runtime.block_on(watch.rest());
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            crier.join().unwrap();
            (begun.elapsed() < PAUSE, watch.waiting.is_empty())
        };
        assert_eq!(rest("hidden"), (false, true));
        assert_eq!(rest("shown"), (true, false));
    }
}
