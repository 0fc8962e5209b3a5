//! Parameters of a request to the programs' interface.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;

use super::pages::ListQuery;
use super::response::{JsonError, RequestError};

/// Parameters of a request, without unknown ones: a program with `?port=22` gets an error instead of all
/// rows.
pub(super) struct StrictParameters(pub(super) ListQuery);

impl<S: Send + Sync> FromRequestParts<S> for StrictParameters {
    type Rejection = JsonError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, JsonError> {
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Query(pairs) = pairs.map_err(|refused| RequestError::Bad(refused.body_text()))?;
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !ListQuery::NAMES.contains(&name.as_str())) {
            return Err(
                RequestError::bad(format_args!("{name}: may be {}", ListQuery::NAMES.join(", "))).into()
            );
        }
        let asked = Query::<ListQuery>::from_request_parts(parts, state).await;
        Ok(Self(asked.map_err(|refused| RequestError::Bad(refused.body_text()))?.0))
    }
}
