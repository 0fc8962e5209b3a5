//! Access to the page: logins, and the origin of requests.
//!
//! On a loopback address there is no login. A request must therefore name a loopback host, so that a page of
//! another site whose name resolves to 127.0.0.1 sees nothing. On other addresses each request carries a
//! token or a password (`Authorization: Bearer` or `Basic`). Requests that change something must come from
//! the page itself.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::web::{AddressRateLimits, LoginFailures, PeerAddress, WebUsers, credentials, names_this_machine};

/// Rate limit of one address: burst and requests a second.
const REQUESTS: (f64, f64) = (200.0, 40.0);

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Least number of characters in a token.
const TOKEN: usize = 16;

/// Required login.
#[derive(Debug)]
pub(super) enum LoginMethod {
    /// None: only this machine reaches a loopback address.
    Local,
    /// Token, stored as a digest.
    Token([u8; 32]),
    /// User name and password.
    Users(Arc<WebUsers>),
}

/// Error of reading a login.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file is unreadable.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The token could be guessed.
    #[error("{}: a token needs at least {TOKEN} characters: create one with `openssl rand -hex 32`", .0.display())]
    Token(PathBuf),
}

/// Access control of requests.
#[derive(Debug)]
pub(super) struct AccessControl {
    login: LoginMethod,
    /// Listening address.
    own: IpAddr,
    requests: AddressRateLimits,
    /// Rates of successful logins, unaffected by requests without a login.
    proven: AddressRateLimits,
    failures: LoginFailures,
}

/// Sender of a request, for messages and the queue of scans.
#[derive(Debug, Clone)]
pub(super) struct RequestUser(pub(super) String);

impl LoginMethod {
    /// Reads the token of a file.
    ///
    /// # Errors
    ///
    /// The file is unreadable, or the token too short.
    pub(super) fn token(path: &Path) -> Result<Self, AccessError> {
        let text = read(path)?;
        let token = text.trim();
        if token.chars().count() < TOKEN {
            return Err(AccessError::Token(path.to_owned()));
        }
        // Only a hash stays in memory, and hashes have one length, as a comparison in constant time
        // requires.
        Ok(Self::Token(Sha256::digest(token).into()))
    }
}

fn read(path: &Path) -> Result<String, AccessError> {
    std::fs::read_to_string(path).map_err(|error| AccessError::File { path: path.to_owned(), error })
}

impl AccessControl {
    pub(super) fn new(login: LoginMethod, own: IpAddr) -> Self {
        let (requests, proven) = (AddressRateLimits::new(REQUESTS), AddressRateLimits::new(REQUESTS));
        Self { login, own, requests, proven, failures: LoginFailures::new() }
    }

    /// Returns the refusal of a request, if it is refused.
    async fn refusal(&self, peer: IpAddr, request: &RequestParts) -> Option<Response> {
        let now = Instant::now();
        let secret = request.secret();
        let is_proven =
            secret.as_ref().is_some_and(|(name, secret)| self.has_proved(name.as_deref(), secret));
        let requests = if is_proven { &self.proven } else { &self.requests };
        // A page of another site could send any number of requests in the name of its visitor.
        if request.is_question && !is_own(&request.headers) && !is_navigation(&request.headers) {
            return Some(refuse(StatusCode::FORBIDDEN, "another site's page may only link to this one\n"));
        }
        if !requests.admits(peer, now) {
            return Some(refuse(StatusCode::TOO_MANY_REQUESTS, "too many requests\n"));
        }
        if !request.is_question && !is_own(&request.headers) {
            return Some(refuse(StatusCode::FORBIDDEN, "requests from another site are not allowed\n"));
        }
        match (&self.login, secret) {
            (LoginMethod::Local, _) if !names_this_machine(&request.headers, self.own) => {
                Some(refuse(StatusCode::MISDIRECTED_REQUEST, "use the host name localhost for this page\n"))
            }
            (LoginMethod::Local, _) => None,
            _ if is_proven => None,
            (LoginMethod::Token(_) | LoginMethod::Users(_), None) => Some(challenge()),
            (login, Some((name, secret))) => {
                let digest = WebUsers::digest(name.as_deref().unwrap_or_default(), &secret);
                if !self.failures.may_try(peer, digest, now) {
                    let why = "too many wrong logins; wait a minute\n";
                    return Some(refuse(StatusCode::TOO_MANY_REQUESTS, why));
                }
                if let (LoginMethod::Users(users), Some(name)) = (login, name)
                    && users.admit(name, secret).await
                {
                    return None;
                }
                self.failures.count(peer, Instant::now());
                Some(challenge())
            }
        }
    }

    /// True if a login is known to be correct without an expensive hash: the token, or a password that was
    /// correct before.
    fn has_proved(&self, name: Option<&str>, secret: &str) -> bool {
        match &self.login {
            LoginMethod::Local => false,
            LoginMethod::Token(digest) => Sha256::digest(secret).as_slice().ct_eq(digest).into(),
            LoginMethod::Users(users) => {
                name.is_some_and(|name| users.has_seen(&WebUsers::digest(name, secret)))
            }
        }
    }

    /// Returns the sender of a permitted request.
    fn who(&self, peer: IpAddr, request: &RequestParts) -> RequestUser {
        let name = match &self.login {
            LoginMethod::Users(_) => request.secret().and_then(|(name, _)| name).unwrap_or_default(),
            LoginMethod::Token(_) => "a holder of the token".to_owned(),
            LoginMethod::Local => "a local user".to_owned(),
        };
        RequestUser(format!("{name} at {}", peer.to_canonical()))
    }
}

/// Requests a login.
fn challenge() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"bannerwall\", charset=\"UTF-8\"")];
    let what = "log in: any name and the token, or your name and password\n";
    (StatusCode::UNAUTHORIZED, challenge, what).into_response()
}

fn refuse(status: StatusCode, why: &'static str) -> Response {
    (status, why).into_response()
}

/// True if a request comes from a page of this origin, or from no page. Browsers say so (`Sec-Fetch-Site`);
/// older ones name the origin.
fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = text("sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    match (text("origin"), text("host")) {
        (None, _) => true,
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, own)| own == host),
        (Some(_), None) => false,
    }
}

/// True if a browser follows a link, instead of loading a part of another site's page (Fetch Metadata,
/// `Sec-Fetch-Mode`, `Sec-Fetch-Dest`).
fn is_navigation(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_none_or(|field| field == value);
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// Parts of a request for access control.
struct RequestParts {
    headers: HeaderMap,
    is_question: bool,
}

impl RequestParts {
    /// Returns the user's name, if there is one, and the token or password.
    fn secret(&self) -> Option<(Option<String>, String)> {
        credentials(&self.headers)
    }
}

/// Passes a request on, or refuses it.
pub(super) async fn check(
    State(access): State<Arc<AccessControl>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<PeerAddress>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
    let is_question = matches!(*request.method(), Method::GET | Method::HEAD);
    let parts = RequestParts { headers: request.headers().clone(), is_question };
    if let Some(refused) = access.refusal(peer, &parts).await {
        return refused;
    }
    if !is_question {
        request.extensions_mut().insert(access.who(peer, &parts));
    }
    match tokio::time::timeout(PATIENCE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "the request takes too long\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_request_that_changes_something_comes_from_the_page_itself() {
        for (told, own) in [
            (&[("host", "a:1"), ("origin", "https://a:1")][..], true),
            (&[("host", "a:1"), ("origin", "https://b:1")], false),
            (&[("host", "a:1"), ("origin", "null")], false),
            (&[("origin", "https://a")], false),
            (&[("host", "a:1")], true),
            (&[("host", "a:1"), ("origin", "https://a:1"), ("sec-fetch-site", "cross-site")], false),
            (&[("host", "a:1"), ("sec-fetch-site", "same-site")], false),
            (&[("host", "a:1"), ("sec-fetch-site", "same-origin")], true),
        ] {
            assert_eq!(is_own(&headers(told)), own, "{told:?}");
        }
    }

    #[test]
    fn a_page_of_another_site_may_link_and_embed_nothing() {
        let link = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let image = [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")];
        let frame = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        assert!(is_navigation(&headers(&link)) && is_navigation(&headers(&[])));
        assert!(!is_navigation(&headers(&image)) && !is_navigation(&headers(&frame)));
    }
}
