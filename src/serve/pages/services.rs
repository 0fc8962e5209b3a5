//! Page of services and clients.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;

use super::list::ListState;
use super::{ListQuery, ROWS};
use crate::inventory::{ServiceOrder, ServiceRecord, query};
use crate::serve::api::rest;
use crate::serve::csv_response::{self, CSV_ROWS};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::page_frame::PageFrame;
use crate::serve::response::{RequestError, page};

/// Orders of services; none is that of addresses.
const ORDERS: [(&str, Option<ServiceOrder>); 4] = [
    ("", None),
    ("product", Some(ServiceOrder::Product)),
    ("first", Some(ServiceOrder::FirstSeen)),
    ("last", Some(ServiceOrder::LastSeen)),
];

#[derive(Template)]
#[template(path = "services.html")]
struct ServiceListPage {
    frame: PageFrame,
    list: ListState,
    services: Vec<ServiceRecord>,
}

pub(super) async fn list(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let mut list = ListState::new(&asked, Some("services.csv"));
    let services = part(&reader, &asked, asked.most(ROWS)?, &mut list).await?;
    Ok(page(&ServiceListPage { frame: PageFrame::new("services"), list, services }))
}

pub(super) async fn csv(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ListQuery>,
) -> Result<Response, RequestError> {
    let services = part(&reader, &asked, CSV_ROWS, &mut ListState::default()).await?;
    let columns = [
        "address",
        "port",
        "protocol",
        "side",
        "state",
        "product",
        "version",
        "patch",
        "banner",
        "findings",
        "first_seen",
        "last_seen",
        "sensors",
    ];
    let rows = services.into_iter().map(|it| {
        let [product, version, patch] = [it.product, it.version, it.patch].map(Option::unwrap_or_default);
        let findings: Vec<String> = it.findings.into_iter().map(|found| found.rule).collect();
        let (port, first, last) = (it.port.to_string(), it.first_seen.to_string(), it.last_seen.to_string());
        let (findings, sensors) = (findings.join(" "), it.sensors.join(" "));
        [
            it.address,
            port,
            it.protocol,
            it.side,
            it.state,
            product,
            version,
            patch,
            it.banner,
            findings,
            first,
            last,
            sensors,
        ]
    });
    Ok(csv_response::csv("services.csv", columns, rows))
}

/// Returns a part of the list, and notes in `list` how it goes on.
async fn part(
    reader: &Arc<DatabaseReader>,
    asked: &ListQuery,
    most: usize,
    list: &mut ListState,
) -> Result<Vec<ServiceRecord>, RequestError> {
    let filter = asked.filter()?;
    let Some(order) = asked.order(&ORDERS)? else {
        let after = asked.after_service()?;
        let mut services = reader
            .ask(move |inventory| query::services_behind(inventory, &filter, after.as_ref(), most + 1))
            .await?;
        let next = rest(&mut services, most).and_then(ServiceRecord::cursor);
        list.next = next.map(|next| next.to_string());
        return Ok(services);
    };
    let skip = asked.skip()?;
    let sorted =
        reader.ask(move |inventory| query::services_sorted(inventory, &filter, order, skip, most)).await?;
    list.is_cut = sorted.cut;
    list.next = sorted.more.then(|| (skip + most).to_string());
    Ok(sorted.rows)
}
