//! Page of changes, the latest first.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;

use super::list::ListState;
use super::{ListQuery, ROWS};
use crate::inventory::{InventoryChange, StoreError, query};
use crate::serve::api::rest;
use crate::serve::csv_response::{self, CSV_ROWS};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::page_frame::PageFrame;
use crate::serve::response::{RequestError, page};

#[derive(Template)]
#[template(path = "changes.html")]
struct ChangeListPage {
    frame: PageFrame,
    list: ListState,
    changes: Vec<InventoryChange>,
}

pub(super) async fn list(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let (filter, before, most) = (asked.filter()?, asked.after_row()?, asked.most(ROWS)?);
    let mut list = ListState::new(&asked, Some("changes.csv"));
    let mut changes =
        reader.ask(move |inventory| query::changes_before(inventory, &filter, before, most + 1)).await?;
    list.next = rest(&mut changes, most).map(|change| change.id.to_string());
    Ok(page(&ChangeListPage { frame: PageFrame::new("changes"), list, changes }))
}

pub(super) async fn csv(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let filter = asked.filter()?;
    let changes =
        reader.ask(move |inventory| query::changes_before(inventory, &filter, None, CSV_ROWS)).await?;
    let columns = ["time", "change", "address", "port", "protocol", "rule", "old", "new", "reason", "sensor"];
    let rows = changes.into_iter().map(|it| {
        let [rule, old, new, why] = [it.rule, it.old, it.new, it.why].map(Option::unwrap_or_default);
        let (at, port) = (it.at.to_string(), it.port.to_string());
        [at, it.kind, it.address, port, it.protocol, rule, old, new, why, it.sensor]
    });
    Ok(csv_response::csv("changes.csv", columns, rows))
}

/// Number of changes at the start of the live page.
const LATEST: usize = 50;

#[derive(Template)]
#[template(path = "live.html")]
struct LiveChangesPage {
    frame: PageFrame,
    list: ListState,
    changes: Vec<InventoryChange>,
    /// Number of the last change; later ones arrive as events.
    latest: i64,
}

pub(super) async fn live(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let filter = asked.filter()?;
    let (latest, changes) = reader
        .ask(move |inventory| -> Result<_, StoreError> {
            // Changes between the two queries appear twice rather than not at all.
            Ok((query::latest_change(inventory)?, query::changes_before(inventory, &filter, None, LATEST)?))
        })
        .await?;
    let list = ListState::new(&asked, None);
    Ok(page(&LiveChangesPage { frame: PageFrame::new("live"), list, changes, latest }))
}
