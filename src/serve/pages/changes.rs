//! Page of changes, the latest first.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;

use super::{ListQuery, ROWS};
use crate::inventory::{InventoryChange, StoreError, query};
use crate::serve::api::rest;
use crate::serve::database_reader::DatabaseReader;
use crate::serve::response::{RequestError, page};

#[derive(Template)]
#[template(path = "changes.html")]
struct ChangeListPage {
    here: &'static str,
    q: String,
    changes: Vec<InventoryChange>,
    next: Option<i64>,
}

pub(super) async fn list(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let (filter, before, most) = (asked.filter()?, asked.after_row()?, asked.most(ROWS)?);
    let mut changes =
        reader.ask(move |inventory| query::changes_before(inventory, &filter, before, most + 1)).await?;
    let next = rest(&mut changes, most).map(|change| change.id);
    Ok(page(&ChangeListPage { here: "changes", q: asked.q, changes, next }))
}

/// Number of changes at the start of the live page.
const LATEST: usize = 50;

#[derive(Template)]
#[template(path = "live.html")]
struct LiveChangesPage {
    here: &'static str,
    q: String,
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
    Ok(page(&LiveChangesPage { here: "live", q: asked.q, changes, latest }))
}
