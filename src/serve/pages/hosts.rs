//! Pages of all hosts, and of one host.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;

use super::{ListQuery, ROWS};
use crate::inventory::{HostRecord, HostRow, InventoryTime, query};
use crate::serve::api::rest;
use crate::serve::database_reader::DatabaseReader;
use crate::serve::plot::{LINE, PlotTimeline, TimelineSpan};
use crate::serve::response::{RequestError, page};

/// Limit of items in each list of a host's page.
const SHOWN: usize = 50;

#[derive(Template)]
#[template(path = "hosts.html")]
struct HostListPage {
    here: &'static str,
    q: String,
    hosts: Vec<HostRow>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "host.html")]
struct HostPage {
    here: &'static str,
    host: HostRecord,
    line: PlotTimeline,
    first_seen: InventoryTime,
    last_seen: InventoryTime,
}

pub(super) async fn list(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let (filter, after, most) = (asked.filter()?, asked.after_host()?, asked.most(ROWS)?);
    let mut hosts =
        reader.ask(move |inventory| query::hosts_behind(inventory, &filter, after, most + 1)).await?;
    let next = rest(&mut hosts, most).map(|host| host.address.clone());
    Ok(page(&HostListPage { here: "hosts", q: asked.q, hosts, next }))
}

pub(super) async fn show(
    State(reader): State<Arc<DatabaseReader>>,
    Path(address): Path<String>,
) -> Result<Response, RequestError> {
    let address: IpAddr =
        address.parse().map_err(|_| RequestError::bad(format!("{address} is not an address")))?;
    let found = reader.ask(move |inventory| query::host(inventory, address)).await?;
    let host = found.ok_or_else(|| RequestError::Missing(format!("No record of {address}.")))?;
    let times = host.services.iter().map(|history| history.service.last_seen);
    let last_seen = times.chain(host.visited.iter().map(|contact| contact.last_seen)).max();
    let last_seen = last_seen.unwrap_or(host.first_seen);
    // Imported files may contain earlier sightings than the first one.
    let first_seen = host.services.iter().map(|history| history.service.first_seen).min();
    let first_seen = first_seen.map_or(host.first_seen, |time| time.min(host.first_seen));
    let line = PlotTimeline::new(first_seen, last_seen);
    Ok(page(&HostPage { here: "hosts", host, line, first_seen, last_seen }))
}

impl HostPage {
    /// Returns the position of a time span on the page's timeline.
    fn span(&self, from: &InventoryTime, to: &InventoryTime) -> TimelineSpan {
        self.line.span(*from, *to)
    }

    /// Returns the timeline's width.
    fn width(&self) -> i64 {
        LINE
    }

    /// Returns the number of items beyond the limit.
    fn more(&self, count: usize) -> usize {
        count.saturating_sub(SHOWN)
    }
}
