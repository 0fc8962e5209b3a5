//! Responses: a page, JSON or an error, with security headers for browsers.

use askama::Template;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;

use super::page_frame::PageFrame;
use crate::fleet::FleetError;
use crate::inventory::StoreError;

/// Content security policy: only this server's scripts, styles, images and connections; no frame around a
/// page, and no form to another site.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Header fields of each response.
const FIELDS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Error of a request.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The request is invalid.
    Bad(String),
    /// The filter of a list is invalid; its page shows it again, to correct.
    Filter { text: String, why: String },
    /// The object does not exist.
    Missing(String),
    /// The request conflicts with the current state.
    Busy(String),
    /// The service is no longer available.
    Gone(&'static str),
    /// The inventory takes too long.
    TooLong,
    /// The inventory cannot be read.
    Store(StoreError),
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<FleetError> for RequestError {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::Store(error) => Self::Store(error),
            FleetError::NoScan(_) | FleetError::NoSchedule(_) => Self::Missing(error.to_string()),
            FleetError::Over(..) | FleetError::NeverDue => Self::Bad(error.to_string()),
            error => Self::Busy(error.to_string()),
        }
    }
}

impl RequestError {
    /// Returns the error of an invalid request.
    pub(super) fn bad(why: impl std::fmt::Display) -> Self {
        Self::Bad(why.to_string())
    }

    /// Returns the HTTP status.
    pub(super) fn status(&self) -> StatusCode {
        self.told().0
    }

    /// Returns the message.
    pub(super) fn why(&self) -> String {
        self.told().1
    }

    fn told(&self) -> (StatusCode, String) {
        match self {
            Self::Bad(why) | Self::Filter { why, .. } => (StatusCode::BAD_REQUEST, why.clone()),
            Self::Busy(why) => (StatusCode::CONFLICT, why.clone()),
            Self::Gone(why) => (StatusCode::SERVICE_UNAVAILABLE, (*why).to_owned()),
            Self::Missing(what) => (StatusCode::NOT_FOUND, what.clone()),
            Self::TooLong => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The request takes too long; use a narrower filter.".to_owned(),
            ),
            Self::Store(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        }
    }
}

#[derive(Template)]
#[template(path = "fault.html")]
struct ErrorPage {
    frame: PageFrame,
    /// The filter to correct.
    filter: Option<String>,
    why: String,
}

/// Renders the error as a page.
impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let (status, why) = self.told();
        let filter = match self {
            Self::Filter { text, .. } => Some(text),
            _ => None,
        };
        (status, page(&ErrorPage { frame: PageFrame::new(""), filter, why })).into_response()
    }
}

/// [`RequestError`] as JSON.
#[derive(Debug)]
pub(super) struct JsonError(RequestError);

impl<E> From<E> for JsonError
where
    RequestError: From<E>,
{
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for JsonError {
    fn into_response(self) -> Response {
        let (status, why) = self.0.told();
        (status, json(&serde_json::json!({ "error": why }))).into_response()
    }
}

/// Renders a page.
pub(super) fn page(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => ([(header::CACHE_CONTROL, "no-store")], Html(text)).into_response(),
        // This would need a failing `Display`, and the templates use none.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Returns a value as JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => {
            let fields = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
            (fields, text).into_response()
        }
        // The serialized types have no failing implementation.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Adds the security headers to each response.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in FIELDS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
