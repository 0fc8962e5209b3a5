//! The inventory as JSON: the data of the pages, for programs. `openapi.json` describes it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use serde::Deserialize;
use serde_json::json;

use super::access::RequestUser;
use super::database_reader::DatabaseReader;
use super::response::{JsonError, RequestError, json};
use super::scans::{PageScanMode, PageScanOrder, PageScans, on, parse_when};
use super::strict_parameters::StrictParameters;
use super::{event_stream, rule_test};
use crate::fleet::sensors_of;
use crate::inventory::{InventoryTime, ServiceRecord, StoreError, query};

/// Description of this interface.
const OPENAPI: &str = include_str!("openapi.json");

/// Default and largest number of rows in a response.
const ROWS: (usize, usize) = (100, 1_000);

pub(super) fn routes() -> Router<Arc<DatabaseReader>> {
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/overview", get(overview))
        .route("/hosts", get(hosts))
        .route("/hosts/{address}", get(host))
        .route("/services", get(services))
        .route("/top/{field}", get(top))
        .route("/findings", get(findings))
        .route("/changes", get(changes))
        .route("/runs", get(runs))
        .route("/sensors", get(sensors))
        .route("/events", get(event_stream::events))
        .route("/impact", post(impact))
        .route("/scans", get(scans).post(scan))
        .route("/scans/{number}", delete(end_scan))
        .route("/schedules/{id}", delete(unschedule))
        .fallback(nowhere)
}

type ApiResult = Result<Response, JsonError>;

async fn nowhere() -> JsonError {
    RequestError::Missing("unknown path; /api/openapi.json lists the paths".to_owned()).into()
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn overview(State(reader): State<Arc<DatabaseReader>>) -> ApiResult {
    let overview = reader.ask(|inventory| query::overview(inventory, InventoryTime::now())).await?;
    Ok(json(&overview))
}

async fn hosts(
    State(reader): State<Arc<DatabaseReader>>,
    StrictParameters(asked): StrictParameters,
) -> ApiResult {
    let (filter, after, most) = (asked.filter()?, asked.after_host()?, asked.most(ROWS)?);
    let mut hosts =
        reader.ask(move |inventory| query::hosts_behind(inventory, &filter, after, most + 1)).await?;
    let next = rest(&mut hosts, most).map(|host| host.address.clone());
    Ok(json(&json!({ "hosts": hosts, "next": next })))
}

async fn host(State(reader): State<Arc<DatabaseReader>>, Path(address): Path<String>) -> ApiResult {
    let address: IpAddr = address.parse().map_err(|_| RequestError::bad("not an address"))?;
    match reader.ask(move |inventory| query::host(inventory, address)).await? {
        Some(host) => Ok(json(&host)),
        None => Err(RequestError::Missing(format!("no record of {address}")).into()),
    }
}

async fn services(
    State(reader): State<Arc<DatabaseReader>>,
    StrictParameters(asked): StrictParameters,
) -> ApiResult {
    let (filter, after, most) = (asked.filter()?, asked.after_service()?, asked.most(ROWS)?);
    let mut services = reader
        .ask(move |inventory| query::services_behind(inventory, &filter, after.as_ref(), most + 1))
        .await?;
    let next = rest(&mut services, most).and_then(ServiceRecord::cursor).map(|next| next.to_string());
    Ok(json(&json!({ "services": services, "next": next })))
}

async fn top(
    State(reader): State<Arc<DatabaseReader>>,
    Path(field): Path<String>,
    StrictParameters(asked): StrictParameters,
) -> ApiResult {
    if query::fields().all(|known| known != field) {
        let fields: Vec<&str> = query::fields().collect();
        return Err(RequestError::Missing(format!("fields are {}", fields.join(", "))).into());
    }
    let (filter, most) = (asked.filter()?, asked.most(ROWS)?);
    let counts = reader.ask(move |inventory| query::top(inventory, &field, &filter, most)).await?;
    Ok(json(&json!({ "values": counts })))
}

async fn findings(
    State(reader): State<Arc<DatabaseReader>>,
    StrictParameters(asked): StrictParameters,
) -> ApiResult {
    let filter = asked.filter()?;
    let rules = reader.ask(move |inventory| query::rules(inventory, &filter)).await?;
    Ok(json(&json!({ "rules": rules })))
}

async fn changes(
    State(reader): State<Arc<DatabaseReader>>,
    StrictParameters(asked): StrictParameters,
) -> ApiResult {
    let (filter, before, most) = (asked.filter()?, asked.after_row()?, asked.most(ROWS)?);
    let mut changes =
        reader.ask(move |inventory| query::changes_before(inventory, &filter, before, most + 1)).await?;
    let next = rest(&mut changes, most).map(|change| change.id);
    Ok(json(&json!({ "changes": changes, "next": next })))
}

async fn runs(State(reader): State<Arc<DatabaseReader>>) -> ApiResult {
    let runs = reader.ask(query::runs).await?;
    Ok(json(&json!({ "runs": runs })))
}

/// Sensors of the fleet in the inventory's database, if there is a fleet.
async fn sensors(State(reader): State<Arc<DatabaseReader>>) -> ApiResult {
    let sensors = reader.ask(|inventory| Ok::<_, StoreError>(sensors_of(inventory))).await?;
    let sensors = sensors.map_err(|error| RequestError::Busy(format!("sensors cannot be read: {error}")))?;
    Ok(json(&json!({ "sensors": sensors.unwrap_or_default() })))
}

/// Takes rules, and returns the services and clients that they would block.
async fn impact(
    State(reader): State<Arc<DatabaseReader>>,
    StrictParameters(asked): StrictParameters,
    rules: String,
) -> ApiResult {
    let filter = asked.filter()?;
    let outcome = reader.ask(move |inventory| rule_test::run(inventory, &rules, &filter)).await?;
    match outcome {
        rule_test::RuleTestOutcome::Refused(why) => Err(RequestError::Bad(why).into()),
        rule_test::RuleTestOutcome::Judged(judged) => Ok(json(&judged)),
    }
}

/// Requested scan, with its schedule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScanRequest {
    mode: PageScanMode,
    targets: String,
    #[serde(default)]
    ports: String,
    rate: Option<u32>,
    #[serde(default)]
    host_key: bool,
    /// Schedule; without it the scan starts at once.
    #[serde(default)]
    when: Option<String>,
}

async fn scans(State(reader): State<Arc<DatabaseReader>>) -> ApiResult {
    let scans = reader.scans()?;
    Ok(json(&on(&scans, PageScans::board).await?))
}

async fn scan(
    State(reader): State<Arc<DatabaseReader>>,
    Extension(RequestUser(who)): Extension<RequestUser>,
    wanted: String,
) -> ApiResult {
    let scans = reader.scans()?;
    let ScanRequest { mode, targets, ports, rate, host_key, when } =
        serde_json::from_str(&wanted).map_err(RequestError::bad)?;
    let rate = rate.unwrap_or_else(|| scans.bounds().usual_rate());
    let order = PageScanOrder { mode, targets, ports, rate, host_key };
    let Some(when) = when else {
        let number = on(&scans, move |scans| scans.submit(&order, &who)).await?;
        return Ok(json(&json!({ "scan": number })));
    };
    let cron = parse_when(&when)?;
    let id = on(&scans, move |scans| scans.schedule(&order, &cron, &who)).await?;
    Ok(json(&json!({ "schedule": id })))
}

async fn end_scan(
    State(reader): State<Arc<DatabaseReader>>,
    Extension(RequestUser(who)): Extension<RequestUser>,
    Path(number): Path<i64>,
) -> ApiResult {
    on(&reader.scans()?, move |scans| scans.cancel(number, &who)).await?;
    Ok(json(&json!({ "ended": number })))
}

async fn unschedule(
    State(reader): State<Arc<DatabaseReader>>,
    Extension(RequestUser(who)): Extension<RequestUser>,
    Path(id): Path<i64>,
) -> ApiResult {
    on(&reader.scans()?, move |scans| scans.unschedule(id, &who)).await?;
    Ok(json(&json!({ "deleted": id })))
}

/// Truncates the rows to `most`, and returns the last one if there are more: the next page starts after it.
pub(super) fn rest<T>(rows: &mut Vec<T>, most: usize) -> Option<&T> {
    let is_more = rows.len() > most;
    rows.truncate(most);
    rows.last().filter(|_| is_more)
}
