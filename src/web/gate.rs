//! Users and passwords before everything that a router shows.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::{Peer, Rates, Users, credentials};

/// Wrong logins of one address: so many at once, and a second.
const FAILURES: (f64, f64) = (10.0, 1.0 / 6.0);

/// Lets those pass who log in (`Authorization: Basic`).
#[derive(Debug)]
pub(crate) struct Gate {
    users: Arc<Users>,
    failures: Rates,
}

impl Gate {
    /// For these users.
    pub(crate) fn new(users: Arc<Users>) -> Self {
        Self { users, failures: Rates::new(FAILURES) }
    }

    /// Lets a request pass, or answers it.
    pub(crate) async fn check(State(gate): State<Arc<Self>>, request: Request, next: Next) -> Response {
        let peer = request.extensions().get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
        if !gate.failures.has_room(peer, Instant::now()) {
            return (StatusCode::TOO_MANY_REQUESTS, "too many wrong logins; wait a minute\n").into_response();
        }
        let told = credentials(request.headers());
        let is_told = told.is_some();
        let admitted = match told {
            Some((Some(name), password)) => gate.users.admit(name, password).await,
            _ => false,
        };
        if admitted {
            return next.run(request).await;
        }
        if is_told {
            gate.failures.admits(peer, Instant::now());
        }
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"bannerwall\", charset=\"UTF-8\"")];
        (StatusCode::UNAUTHORIZED, challenge, "log in: your name and password\n").into_response()
    }
}
