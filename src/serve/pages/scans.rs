//! Page of scans: start, stop and schedule them.

use std::sync::Arc;

use askama::Template;
use axum::extract::rejection::FormRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::{Extension, Form};
use serde::Deserialize;

use crate::serve::access::RequestUser;
use crate::serve::database_reader::DatabaseReader;
use crate::serve::page_frame::PageFrame;
use crate::serve::response::{RequestError, page};
use crate::serve::scans::{PageScanMode, PageScanOrder, PageScans, ScanBoard, on, parse_when};

#[derive(Template)]
#[template(path = "scans.html")]
struct ScansPage {
    frame: PageFrame,
    /// None if this page may not start scans.
    board: Option<ScanBoard>,
    sent: ScanForm,
    refused: Option<String>,
    modes: [PageScanMode; 6],
    watches: bool,
}

/// Form data.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScanForm {
    mode: PageScanMode,
    targets: String,
    #[serde(default)]
    ports: String,
    rate: String,
    /// True if the box is checked.
    #[serde(default)]
    host_key: bool,
    /// Empty to start at once.
    #[serde(default)]
    when: String,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ScansQuery {
    #[serde(default)]
    watch: String,
}

impl ScanForm {
    /// Returns the initial content of the form.
    fn usual(reader: &DatabaseReader) -> Self {
        let rate =
            reader.scans().map_or_else(|_| String::new(), |scans| scans.bounds().usual_rate().to_string());
        let [targets, ports, when] = [(); 3].map(|()| String::new());
        Self { mode: PageScanMode::Ssh, targets, ports, rate, host_key: false, when }
    }

    fn order(&self) -> Result<PageScanOrder, RequestError> {
        let rate = self
            .rate
            .trim()
            .parse()
            .map_err(|_| RequestError::bad("rate: not a number of targets a second"))?;
        let (targets, ports) = (self.targets.clone(), self.ports.clone());
        Ok(PageScanOrder { mode: self.mode, targets, ports, rate, host_key: self.host_key })
    }
}

pub(super) async fn show(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<ScansQuery>,
) -> Result<Response, RequestError> {
    filled(&reader, ScanForm::usual(&reader), None, !asked.watch.is_empty()).await
}

pub(super) async fn start(
    State(reader): State<Arc<DatabaseReader>>,
    Extension(who): Extension<RequestUser>,
    sent: Result<Form<ScanForm>, FormRejection>,
) -> Result<Response, RequestError> {
    let scans = reader.scans()?;
    let Form(sent) = sent.map_err(|refused| RequestError::Bad(refused.body_text()))?;
    let outcome = match (sent.order(), sent.when.trim()) {
        (Err(fault), _) => Err(fault),
        (Ok(order), "") => on(&scans, move |scans| scans.submit(&order, &who.0)).await,
        (Ok(order), when) => match parse_when(when) {
            Ok(cron) => on(&scans, move |scans| scans.schedule(&order, &cron, &who.0)).await,
            Err(fault) => Err(fault),
        },
    };
    match outcome {
        Ok(_) => Ok(Redirect::to("/scans?watch=1").into_response()),
        Err(fault @ (RequestError::Bad(_) | RequestError::Busy(_) | RequestError::Gone(_))) => {
            let status = fault.status();
            let shown = filled(&reader, sent, Some(fault.why()), false).await?;
            Ok((status, shown).into_response())
        }
        Err(fault) => Err(fault),
    }
}

pub(super) async fn cancel(
    State(reader): State<Arc<DatabaseReader>>,
    Extension(who): Extension<RequestUser>,
    Path(number): Path<i64>,
) -> Result<Response, RequestError> {
    on(&reader.scans()?, move |scans| scans.cancel(number, &who.0)).await?;
    Ok(Redirect::to("/scans?watch=1").into_response())
}

pub(super) async fn unschedule(
    State(reader): State<Arc<DatabaseReader>>,
    Extension(who): Extension<RequestUser>,
    Path(id): Path<i64>,
) -> Result<Response, RequestError> {
    on(&reader.scans()?, move |scans| scans.unschedule(id, &who.0)).await?;
    Ok(Redirect::to("/scans").into_response())
}

async fn filled(
    reader: &DatabaseReader,
    sent: ScanForm,
    refused: Option<String>,
    watches: bool,
) -> Result<Response, RequestError> {
    let board = match reader.scans() {
        Ok(scans) => Some(on(&scans, PageScans::board).await?),
        Err(_) => None,
    };
    let watches =
        watches && board.as_ref().is_some_and(|board| board.scans.iter().any(|it| it.ended.is_none()));
    Ok(page(&ScansPage {
        frame: PageFrame::new("scans"),
        board,
        sent,
        refused,
        modes: PageScanMode::ALL,
        watches,
    }))
}
