//! Page of changes, the latest first.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;

use super::{Asked, ROWS};
use crate::inventory::{Change, StoreError};
use crate::serve::answer::{Fault, page};
use crate::serve::api::rest;
use crate::serve::reader::Reader;

#[derive(Template)]
#[template(path = "changes.html")]
struct List {
    here: &'static str,
    q: String,
    changes: Vec<Change>,
    next: Option<i64>,
}

pub(super) async fn list(
    State(reader): State<Arc<Reader>>,
    Query(asked): Query<Asked>,
) -> Result<Response, Fault> {
    let (filter, before, most) = (asked.filter()?, asked.after_row()?, asked.most(ROWS)?);
    let mut changes =
        reader.ask(move |inventory| inventory.changes_before(&filter, before, most + 1)).await?;
    let next = rest(&mut changes, most).map(|change| change.id);
    Ok(page(&List { here: "changes", q: asked.q, changes, next }))
}

/// Number of changes at the start of the live page.
const LATEST: usize = 50;

#[derive(Template)]
#[template(path = "live.html")]
struct Live {
    here: &'static str,
    q: String,
    changes: Vec<Change>,
    /// Number of the last change; later ones arrive as events.
    latest: i64,
}

pub(super) async fn live(
    State(reader): State<Arc<Reader>>,
    Query(asked): Query<Asked>,
) -> Result<Response, Fault> {
    let filter = asked.filter()?;
    let (latest, changes) = reader
        .ask(move |inventory| -> Result<_, StoreError> {
            // Changes between the two queries appear twice rather than not at all.
            Ok((inventory.latest_change()?, inventory.changes_before(&filter, None, LATEST)?))
        })
        .await?;
    Ok(page(&Live { here: "live", q: asked.q, changes, latest }))
}
