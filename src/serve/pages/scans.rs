//! Page of scans: start, stop and schedule them.

use std::sync::Arc;

use askama::Template;
use axum::extract::rejection::FormRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::{Extension, Form};
use serde::Deserialize;

use crate::serve::access::Who;
use crate::serve::answer::{Fault, page};
use crate::serve::reader::Reader;
use crate::serve::scans::{Board, Mode, Order, Rhythm, on};

#[derive(Template)]
#[template(path = "scans.html")]
struct Page {
    here: &'static str,
    /// None if this page may not start scans.
    board: Option<Board>,
    sent: Sent,
    refused: Option<String>,
    modes: [Mode; 6],
    watches: bool,
}

/// Form data.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sent {
    mode: Mode,
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
pub(super) struct Asked {
    #[serde(default)]
    watch: String,
}

impl Sent {
    /// Returns the initial content of the form.
    fn usual(reader: &Reader) -> Self {
        let rate =
            reader.scans().map_or_else(|_| String::new(), |scans| scans.bounds.usual_rate().to_string());
        let [targets, ports, when] = [(); 3].map(|()| String::new());
        Self { mode: Mode::Ssh, targets, ports, rate, host_key: false, when }
    }

    fn order(&self) -> Result<Order, Fault> {
        let rate =
            self.rate.trim().parse().map_err(|_| Fault::bad("rate: not a number of targets a second"))?;
        let (targets, ports) = (self.targets.clone(), self.ports.clone());
        Ok(Order { mode: self.mode, targets, ports, rate, host_key: self.host_key })
    }
}

pub(super) async fn show(
    State(reader): State<Arc<Reader>>,
    Query(asked): Query<Asked>,
) -> Result<Response, Fault> {
    filled(&reader, Sent::usual(&reader), None, !asked.watch.is_empty()).await
}

pub(super) async fn start(
    State(reader): State<Arc<Reader>>,
    Extension(who): Extension<Who>,
    sent: Result<Form<Sent>, FormRejection>,
) -> Result<Response, Fault> {
    let scans = reader.scans()?;
    let Form(sent) = sent.map_err(|refused| Fault::Bad(refused.body_text()))?;
    let outcome = match (sent.order(), sent.when.trim()) {
        (Err(fault), _) => Err(fault),
        (Ok(order), "") => on(&scans, move |scans| scans.begin(&order, &who.0)).await,
        (Ok(order), when) => match when.parse::<Rhythm>() {
            Ok(rhythm) => on(&scans, move |scans| scans.schedule(&order, rhythm, &who.0)).await,
            Err(why) => Err(Fault::bad(why)),
        },
    };
    match outcome {
        Ok(_) => Ok(Redirect::to("/scans?watch=1").into_response()),
        Err(fault @ (Fault::Bad(_) | Fault::Busy(_) | Fault::Gone(_))) => {
            let status = fault.status();
            let shown = filled(&reader, sent, Some(fault.why()), false).await?;
            Ok((status, shown).into_response())
        }
        Err(fault) => Err(fault),
    }
}

pub(super) async fn cancel(
    State(reader): State<Arc<Reader>>,
    Extension(who): Extension<Who>,
    Path(number): Path<i64>,
) -> Result<Response, Fault> {
    on(&reader.scans()?, move |scans| scans.cancel(number, &who.0)).await?;
    Ok(Redirect::to("/scans?watch=1").into_response())
}

pub(super) async fn unschedule(
    State(reader): State<Arc<Reader>>,
    Extension(who): Extension<Who>,
    Path(id): Path<i64>,
) -> Result<Response, Fault> {
    on(&reader.scans()?, move |scans| scans.unschedule(id, &who.0)).await?;
    Ok(Redirect::to("/scans").into_response())
}

async fn filled(
    reader: &Reader,
    sent: Sent,
    refused: Option<String>,
    watches: bool,
) -> Result<Response, Fault> {
    let board = match reader.scans() {
        Ok(scans) => Some(reader.ask(move |inventory| scans.board(inventory)).await?),
        Err(_) => None,
    };
    let watches =
        watches && board.as_ref().is_some_and(|board| board.scans.iter().any(|it| it.state == "running"));
    Ok(page(&Page { here: "scans", board, sent, refused, modes: Mode::ALL, watches }))
}
