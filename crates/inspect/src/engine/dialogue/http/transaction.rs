//! One request with its response, and what the rules are asked about them.

use std::sync::Arc;

use crate::banner::disclosure::Disclosure;
use crate::banner::http::KeptHead;
use crate::banner::{Banner, Headers, Request, Response};
use crate::engine::dialogue::finding::{Finding, FoundBanner, Matched, ReadContext};
use crate::event::{Application, HeaderField, HttpFacts};
use crate::rules::Stage;

/// A request and its response.
#[derive(Debug, Default)]
pub struct Transaction {
    pub(super) number: u32,
    /// The request's head; empty where it was not seen.
    pub(super) head: KeptHead,
    /// Shared with the alerts about it.
    pub(super) facts: Arc<HttpFacts>,
    /// Rules that matched: each is told once.
    pub(super) matched: Matched,
}

/// What is left of a request that was told: enough not to take its response for another one's.
#[derive(Debug)]
pub struct Overdue {
    pub(super) number: u32,
    pub(super) method: Method,
}

/// Methods whose responses are framed in another way (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy)]
pub enum Method {
    Head,
    Connect,
    Other,
}

impl Method {
    pub(super) fn of(transaction: &Transaction) -> Self {
        match transaction.facts.request.as_ref().map(|request| request.method.as_str()) {
            Some("HEAD") => Self::Head,
            Some("CONNECT") => Self::Connect,
            _ => Self::Other,
        }
    }

    pub(super) const fn name(self) -> &'static [u8] {
        match self {
            Self::Head => b"HEAD",
            Self::Connect => b"CONNECT",
            Self::Other => b"GET",
        }
    }
}

/// Asks the rules about a request.
pub(super) fn ask_request(
    request: Request<'_>,
    stage: Stage,
    transaction: &mut Transaction,
    context: &mut ReadContext<'_>,
) {
    let Transaction { number, facts, matched, .. } = transaction;
    context.find(Finding::Banner(FoundBanner {
        banner: &Banner::Request(request),
        stage,
        request: None,
        product: None,
        transaction: Some(*number),
        matched,
        facts: &|| Application::Http(Arc::clone(facts)),
    }));
}

/// Asks the rules about a response, with the request that it answers.
pub(super) fn ask_response(
    response: Response<'_>,
    stage: Stage,
    transaction: &mut Transaction,
    context: &mut ReadContext<'_>,
) {
    let Transaction { number, head, facts, matched } = transaction;
    let request = if context.settings.any_rules { head.request() } else { None };
    let product = facts.response.as_ref().and_then(|response| response.fingerprint.as_ref());
    context.find(Finding::Banner(FoundBanner {
        banner: &Banner::Response(response),
        stage,
        request: request.as_ref(),
        product,
        transaction: Some(*number),
        matched,
        facts: &|| Application::Http(Arc::clone(facts)),
    }));
}

/// A page's title may name a product that the header fields don't.
pub(super) fn name_by_title(
    response: &Response<'_>,
    transaction: &mut Transaction,
    context: &ReadContext<'_>,
) {
    let (Some(known), Some(facts)) =
        (context.settings.fingerprints(), &mut Arc::make_mut(&mut transaction.facts).response)
    else {
        return;
    };
    facts.fingerprint = known.http_response(response, facts.title.as_deref().map(str::as_bytes));
}

/// Tells fields that came later, as many as events tell of one head.
pub(super) fn add_fields(
    told: &mut Vec<HeaderField>,
    left_out: &mut u32,
    more: &Headers<'_>,
    disclosure: &Disclosure,
) {
    for field in more.iter() {
        if told.len() < disclosure.fields {
            told.push(disclosure.field(field));
        } else {
            *left_out += 1;
        }
    }
}
