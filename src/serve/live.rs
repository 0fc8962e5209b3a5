//! Changes as they are written, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use futures_util::stream::unfold;

use super::answer::{Fault, JsonFault};
use super::pages::Asked;
use super::reader::Reader;
use crate::inventory::{Change, Database, Filter};

/// How often the inventory is looked into.
const PAUSE: Duration = Duration::from_millis(500);

/// Changes that are read at a time.
const AT_ONCE: usize = 200;

/// Who watches.
struct Watch {
    reader: Arc<Reader>,
    filter: Filter,
    /// What was told.
    behind: i64,
    waiting: VecDeque<Change>,
}

/// `/api/events`: what changes from now on, or behind `Last-Event-ID`.
pub(super) async fn events(
    State(reader): State<Arc<Reader>>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response, JsonFault> {
    let filter = asked.filter()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let behind = match last {
        Some(id) => id.parse().map_err(|_| Fault::bad("Last-Event-ID: no number"))?,
        None => match asked.after_row()? {
            Some(behind) => behind,
            None => reader.ask(Database::latest_change).await?,
        },
    };
    let watch = Watch { reader, filter, behind, waiting: VecDeque::new() };
    Ok(Sse::new(stream(watch)).keep_alive(KeepAlive::default()).into_response())
}

/// Ends where the inventory can no longer be read; browsers ask anew.
fn stream(watch: Watch) -> impl Stream<Item = Result<Event, Infallible>> {
    unfold(watch, |mut watch| async move {
        loop {
            if let Some(change) = watch.waiting.pop_front() {
                // JSON is one line: it holds no line ends.
                let data = serde_json::to_string(&change).ok()?;
                let event = Event::default().id(change.id.to_string()).event("change").data(data);
                return Some((Ok(event), watch));
            }
            if !watch.look().await? {
                tokio::time::sleep(PAUSE).await;
            }
        }
    })
}

impl Watch {
    /// Looks for changes; whether there are any, and nothing where that cannot be told.
    async fn look(&mut self) -> Option<bool> {
        let (filter, behind) = (self.filter.clone(), self.behind);
        let asked =
            self.reader.ask(move |inventory| inventory.changes_behind(&filter, behind, AT_ONCE)).await;
        let (changes, reached) = asked.ok()?;
        self.behind = reached;
        self.waiting.extend(changes);
        Some(!self.waiting.is_empty())
    }
}
