//! Who may see the page, and whose requests are taken.
//!
//! On a loopback address nobody logs in, so that a request must name a loopback host: a foreign page that
//! has its own name resolve to 127.0.0.1 sees nothing. Elsewhere each request carries a token or a password
//! (`Authorization: Bearer` or `Basic`). What is not a mere question must come from the page itself.

mod htpasswd;

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

use crate::web::{Failures, Peer, Rates, Users, credentials, names_this_machine};

/// Requests of one address: so many at once, and a second.
const REQUESTS: (f64, f64) = (200.0, 40.0);

/// The longest that a request is worked on.
const PATIENCE: Duration = Duration::from_secs(30);

/// Characters that a token has at least.
const TOKEN: usize = 16;

/// What is asked of those who want to see the page.
#[derive(Debug)]
pub(super) enum Login {
    /// Nothing: who reaches a loopback address is on this machine.
    Local,
    /// This token, whose digest is kept.
    Token([u8; 32]),
    /// A user's name and password.
    Users(Users),
}

/// Why a login cannot be asked for.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A token that could be guessed.
    #[error("{}: a token has at least {TOKEN} characters, as `openssl rand -hex 32` makes one", .0.display())]
    Token(PathBuf),
    /// A line of an htpasswd file.
    #[error("{}:{line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// An htpasswd file without anybody.
    #[error("{}: nobody stands in it; `htpasswd -B -c FILE NAME` makes one", .0.display())]
    Nobody(PathBuf),
}

/// Judges requests.
#[derive(Debug)]
pub(super) struct Access {
    login: Login,
    /// The address that is listened on.
    own: IpAddr,
    requests: Rates,
    /// Those of logins that have proved right: nobody else's are counted among them.
    proven: Rates,
    failures: Failures,
}

/// Who has sent a request, for the journal.
#[derive(Debug, Clone)]
pub(super) struct Who(pub(super) String);

impl Login {
    /// The token that stands in a file.
    ///
    /// # Errors
    /// It cannot be read, or is too short.
    pub(super) fn token(path: &Path) -> Result<Self, AccessError> {
        let text = read(path)?;
        let token = text.trim();
        if token.chars().count() < TOKEN {
            return Err(AccessError::Token(path.to_owned()));
        }
        Ok(Self::Token(Sha256::digest(token).into()))
    }

    /// The users of an htpasswd file.
    ///
    /// # Errors
    /// It cannot be read, or a line is none that is understood.
    pub(super) fn users(path: &Path) -> Result<Self, AccessError> {
        htpasswd::read(path, &read(path)?).map(Self::Users)
    }
}

fn read(path: &Path) -> Result<String, AccessError> {
    std::fs::read_to_string(path).map_err(|error| AccessError::File { path: path.to_owned(), error })
}

impl Access {
    pub(super) fn new(login: Login, own: IpAddr) -> Self {
        let (requests, proven) = (Rates::new(REQUESTS), Rates::new(REQUESTS));
        Self { login, own, requests, proven, failures: Failures::new() }
    }

    /// Why a request is refused, if it is.
    async fn refusal(&self, peer: IpAddr, request: &Parts) -> Option<Response> {
        let now = Instant::now();
        let secret = request.secret();
        let is_proven =
            secret.as_ref().is_some_and(|(name, secret)| self.has_proved(name.as_deref(), secret));
        let requests = if is_proven { &self.proven } else { &self.requests };
        // A page of another site can send any number of these in the name of who looks at it.
        if request.is_question && !is_own(&request.headers) && !is_navigation(&request.headers) {
            return Some(refuse(StatusCode::FORBIDDEN, "another site's page may only link to this one\n"));
        }
        if !requests.admits(peer, now) {
            return Some(refuse(StatusCode::TOO_MANY_REQUESTS, "too many requests\n"));
        }
        if !request.is_question && !is_own(&request.headers) {
            return Some(refuse(StatusCode::FORBIDDEN, "a request of another site is not taken\n"));
        }
        match (&self.login, secret) {
            (Login::Local, _) if !names_this_machine(&request.headers, self.own) => Some(refuse(
                StatusCode::MISDIRECTED_REQUEST,
                "this page is on localhost; ask for it by that name\n",
            )),
            (Login::Local, _) => None,
            _ if is_proven => None,
            (Login::Token(_) | Login::Users(_), None) => Some(challenge()),
            (login, Some((name, secret))) => {
                let digest = Users::digest(name.as_deref().unwrap_or_default(), &secret);
                if !self.failures.may_try(peer, digest, now) {
                    let why = "too many wrong logins; wait a minute\n";
                    return Some(refuse(StatusCode::TOO_MANY_REQUESTS, why));
                }
                if let (Login::Users(users), Some(name)) = (login, name)
                    && users.admit(name, secret).await
                {
                    return None;
                }
                self.failures.count(peer, Instant::now());
                Some(challenge())
            }
        }
    }

    /// True if a login is known to be right, for next to nothing: the token, or a password that was right
    /// before.
    fn has_proved(&self, name: Option<&str>, secret: &str) -> bool {
        match &self.login {
            Login::Local => false,
            Login::Token(digest) => Sha256::digest(secret).as_slice().ct_eq(digest).into(),
            Login::Users(users) => name.is_some_and(|name| users.has_seen(&Users::digest(name, secret))),
        }
    }

    /// Who has sent a request that is admitted.
    fn who(&self, peer: IpAddr, request: &Parts) -> Who {
        let name = match &self.login {
            Login::Users(_) => request.secret().and_then(|(name, _)| name).unwrap_or_default(),
            Login::Token(_) => "who has the token".to_owned(),
            Login::Local => "somebody".to_owned(),
        };
        Who(format!("{name} at {}", peer.to_canonical()))
    }
}

/// Asks for a login.
fn challenge() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"bannerwall\", charset=\"UTF-8\"")];
    let what = "log in: any name and the token, or your name and password\n";
    (StatusCode::UNAUTHORIZED, challenge, what).into_response()
}

fn refuse(status: StatusCode, why: &'static str) -> Response {
    (status, why).into_response()
}

/// True if a request comes from a page of this very origin, or from no page at all. A browser says so itself
/// (`Sec-Fetch-Site`); an older one names the origin.
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

/// True if a browser follows a link: the request is not for a part of another site's page (Fetch Metadata,
/// `Sec-Fetch-Mode`, `Sec-Fetch-Dest`).
fn is_navigation(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_none_or(|field| field == value);
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// What of a request decides.
struct Parts {
    headers: HeaderMap,
    is_question: bool,
}

impl Parts {
    /// The user's name, where there is one, and the token or password.
    fn secret(&self) -> Option<(Option<String>, String)> {
        credentials(&self.headers)
    }
}

/// Lets a request pass, or answers it.
pub(super) async fn check(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
    let is_question = matches!(*request.method(), Method::GET | Method::HEAD);
    let parts = Parts { headers: request.headers().clone(), is_question };
    if let Some(refused) = access.refusal(peer, &parts).await {
        return refused;
    }
    if !is_question {
        request.extensions_mut().insert(access.who(peer, &parts));
    }
    match tokio::time::timeout(PATIENCE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "this takes too long\n"),
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
