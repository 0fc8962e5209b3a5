//! Login for every path of a router.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::{LoginFailures, PeerAddress, WebUsers, credentials};

/// Layer that passes requests with a correct login (`Authorization: Basic`).
#[derive(Debug)]
pub(crate) struct LoginLayer {
    users: Arc<WebUsers>,
    failures: LoginFailures,
}

impl LoginLayer {
    /// Returns a gate for these users.
    pub(crate) fn new(users: Arc<WebUsers>) -> Self {
        Self { users, failures: LoginFailures::new() }
    }

    /// Passes a request on, or refuses it.
    pub(crate) async fn check(State(gate): State<Arc<Self>>, request: Request, next: Next) -> Response {
        let peer =
            request.extensions().get::<PeerAddress>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
        let told = credentials(request.headers());
        if let Some((Some(name), password)) = told {
            let login = WebUsers::digest(&name, &password);
            let is_proven = gate.users.has_seen(&login);
            if !is_proven && !gate.failures.may_try(peer, login, Instant::now()) {
                let why = "too many wrong logins; wait a minute\n";
                return (StatusCode::TOO_MANY_REQUESTS, why).into_response();
            }
            if is_proven || gate.users.admit(name, password).await {
                return next.run(request).await;
            }
            gate.failures.count(peer, Instant::now());
        }
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"bannerwall\", charset=\"UTF-8\"")];
        (StatusCode::UNAUTHORIZED, challenge, "log in: your name and password\n").into_response()
    }
}
