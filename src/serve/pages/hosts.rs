//! Pages of all hosts, and of one host.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;

use super::{Asked, ROWS};
use crate::inventory::{HostRecord, HostRow, Time};
use crate::serve::answer::{Fault, page};
use crate::serve::api::rest;
use crate::serve::plot::{LINE, Line, Span};
use crate::serve::reader::Reader;

/// Limit of items in each list of a host's page.
const SHOWN: usize = 50;

#[derive(Template)]
#[template(path = "hosts.html")]
struct List {
    here: &'static str,
    q: String,
    hosts: Vec<HostRow>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "host.html")]
struct Host {
    here: &'static str,
    host: HostRecord,
    line: Line,
    first_seen: Time,
    last_seen: Time,
}

pub(super) async fn list(
    State(reader): State<Arc<Reader>>,
    Query(asked): Query<Asked>,
) -> Result<Response, Fault> {
    let (filter, after, most) = (asked.filter()?, asked.after_host()?, asked.most(ROWS)?);
    let mut hosts = reader.ask(move |inventory| inventory.hosts_behind(&filter, after, most + 1)).await?;
    let next = rest(&mut hosts, most).map(|host| host.address.clone());
    Ok(page(&List { here: "hosts", q: asked.q, hosts, next }))
}

pub(super) async fn show(
    State(reader): State<Arc<Reader>>,
    Path(address): Path<String>,
) -> Result<Response, Fault> {
    let address: IpAddr = address.parse().map_err(|_| Fault::bad(format!("{address} is not an address")))?;
    let found = reader.ask(move |inventory| inventory.host(address)).await?;
    let host = found.ok_or_else(|| Fault::Missing(format!("No record of {address}.")))?;
    let times = host.services.iter().map(|history| history.service.last_seen);
    let last_seen = times.chain(host.visited.iter().map(|contact| contact.last_seen)).max();
    let last_seen = last_seen.unwrap_or(host.first_seen);
    // Imported files may contain earlier sightings than the first one.
    let first_seen = host.services.iter().map(|history| history.service.first_seen).min();
    let first_seen = first_seen.map_or(host.first_seen, |time| time.min(host.first_seen));
    let line = Line::new(first_seen, last_seen);
    Ok(page(&Host { here: "hosts", host, line, first_seen, last_seen }))
}

impl Host {
    /// Returns the position of a time span on the page's timeline.
    fn span(&self, from: &Time, to: &Time) -> Span {
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
