//! Pages of all hosts, and of one host.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;

use super::list::{ListState, SEVERITIES};
use super::{ListQuery, ROWS};
use crate::inventory::{HostRecord, HostRow, InventoryTime, query};
use crate::serve::api::rest;
use crate::serve::csv_response;
use crate::serve::database_reader::DatabaseReader;
use crate::serve::page_frame::PageFrame;
use crate::serve::plot::{LINE, PlotTimeline, TimelineSpan};
use crate::serve::response::{RequestError, page};

/// Limit of services on a host's page, and of items in each of its lists.
const SHOWN: (usize, usize) = (100, 50);

/// Largest number of hosts as CSV: each takes a few queries.
const CSV_HOSTS: usize = 2_000;

/// Order of hosts.
#[derive(Debug, Clone, Copy)]
enum HostOrder {
    Address,
    Worst,
    FirstSeen,
}

const ORDERS: [(&str, HostOrder); 3] =
    [("", HostOrder::Address), ("worst", HostOrder::Worst), ("first", HostOrder::FirstSeen)];

#[derive(Template)]
#[template(path = "hosts.html")]
struct HostListPage {
    frame: PageFrame,
    list: ListState,
    hosts: Vec<HostRow>,
}

#[derive(Template)]
#[template(path = "host.html")]
struct HostPage {
    frame: PageFrame,
    host: HostRecord,
    line: PlotTimeline,
    first_seen: InventoryTime,
    last_seen: InventoryTime,
}

pub(super) async fn list(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let mut list = ListState::new(&asked, Some("hosts.csv"));
    let hosts = part(&reader, &asked, asked.most(ROWS)?, &mut list).await?;
    Ok(page(&HostListPage { frame: PageFrame::new("hosts"), list, hosts }))
}

pub(super) async fn csv(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let hosts = part(&reader, &asked, CSV_HOSTS, &mut ListState::default()).await?;
    let columns = ["address", "worst_finding", "services", "first_seen", "last_seen"];
    let rows = hosts.into_iter().map(|it| {
        let [first, last] = [it.first_seen, it.last_seen].map(|time| time.to_string());
        [it.address, it.severity.unwrap_or_default(), it.count.to_string(), first, last]
    });
    Ok(csv_response::csv("hosts.csv", columns, rows))
}

/// Returns a part of the list, and notes in `list` how it goes on.
async fn part(
    reader: &Arc<DatabaseReader>,
    asked: &ListQuery,
    most: usize,
    list: &mut ListState,
) -> Result<Vec<HostRow>, RequestError> {
    let (filter, order) = (asked.filter()?, asked.order(&ORDERS)?);
    if matches!(order, HostOrder::Address) {
        let after = asked.after_host()?;
        let mut hosts =
            reader.ask(move |inventory| query::hosts_behind(inventory, &filter, after, most + 1)).await?;
        list.next = rest(&mut hosts, most).map(|host| host.address.clone());
        return Ok(hosts);
    }
    let skip = asked.skip()?;
    let sorted = reader
        .ask(move |inventory| match order {
            HostOrder::Worst => query::hosts_by_severity(inventory, &filter, skip, most),
            _ => query::newest_hosts(inventory, &filter, skip, most),
        })
        .await?;
    list.next = sorted.more.then(|| (skip + most).to_string());
    Ok(sorted.rows)
}

pub(super) async fn show(
    State(reader): State<Arc<DatabaseReader>>,
    Path(address): Path<String>,
) -> Result<Response, RequestError> {
    let address: IpAddr =
        address.parse().map_err(|_| RequestError::bad(format!("{address} is not an address")))?;
    let found = reader.ask(move |inventory| query::host_within(inventory, address, SHOWN)).await?;
    let host = found.ok_or_else(|| RequestError::Missing(format!("No record of {address}.")))?;
    let times = host.services.iter().map(|history| history.service.last_seen);
    let last_seen = times.chain(host.visited.iter().map(|contact| contact.last_seen)).max();
    let last_seen = last_seen.unwrap_or(host.first_seen);
    // Imported files may contain earlier sightings than the first one.
    let first_seen = host.services.iter().map(|history| history.service.first_seen).min();
    let first_seen = first_seen.map_or(host.first_seen, |time| time.min(host.first_seen));
    let line = PlotTimeline::new(first_seen, last_seen);
    Ok(page(&HostPage { frame: PageFrame::new("hosts"), host, line, first_seen, last_seen }))
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

    /// Returns the limit of services.
    fn most(&self) -> usize {
        SHOWN.0
    }

    /// Returns a note about a list that has reached its limit.
    fn limit_note(&self, count: usize) -> &'static str {
        if count < SHOWN.1 { "" } else { "<p class=\"note\">Only the latest 50 are shown.</p>" }
    }

    /// Counts open findings by severity, the most severe first.
    fn severities(&self) -> Vec<(&'static str, usize)> {
        let open = || {
            let all = self.host.services.iter().flat_map(|history| &history.service.findings);
            all.filter(|found| found.is_open())
        };
        let count = |name: &'static str| (name, open().filter(|found| found.severity == name).count());
        SEVERITIES.map(count).into_iter().filter(|(_, count)| *count > 0).collect()
    }
}
