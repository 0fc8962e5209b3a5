//! One request with its response, and what the rules are asked about them.

use std::sync::Arc;

use crate::banner::disclosure::DisclosureLimits;
use crate::banner::framing;
use crate::banner::http::KeptHead;
use crate::banner::{Banner, HttpHeaders, RequestHead, ResponseHead};
use crate::engine::dialogue::finding::{DialogueFinding, FoundBanner, MatchedRules, ReadContext};
use crate::event::{ApplicationFacts, HeaderField, HttpFacts};
use crate::rules::BannerStage;

/// A request and its response.
#[derive(Debug, Default)]
pub struct HttpTransaction {
    pub(super) number: u32,
    /// The request's head; empty where it was not seen.
    pub(super) head: KeptHead,
    /// Shared with the alerts about it.
    pub(super) facts: Arc<HttpFacts>,
    /// Rules that matched: each is told once.
    pub(super) matched: MatchedRules,
}

/// The rest of a reported request: enough to match its response to it.
#[derive(Debug)]
pub struct OverdueRequest {
    pub(super) number: u32,
    pub(super) method: RequestMethod,
}

/// Methods whose responses are framed in another way (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy)]
pub enum RequestMethod {
    Head,
    Connect,
    Other,
}

impl RequestMethod {
    pub(super) fn of(transaction: &HttpTransaction) -> Self {
        let request = transaction.facts.request.as_ref();
        match request.map(|request| request.method.as_str()) {
            Some("HEAD") => Self::Head,
            Some(method) if framing::is_connect(method.as_bytes()) => Self::Connect,
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
    request: RequestHead<'_>,
    stage: BannerStage,
    transaction: &mut HttpTransaction,
    context: &mut ReadContext<'_>,
) {
    let HttpTransaction { number, facts, matched, .. } = transaction;
    context.find(DialogueFinding::Banner(FoundBanner {
        banner: &Banner::Request(request),
        stage,
        request: None,
        product: None,
        transaction: Some(*number),
        matched,
        facts: &|| ApplicationFacts::Http(Arc::clone(facts)),
    }));
}

/// Asks the rules about a response, with the request that it answers.
pub(super) fn ask_response(
    response: ResponseHead<'_>,
    stage: BannerStage,
    transaction: &mut HttpTransaction,
    context: &mut ReadContext<'_>,
) {
    let HttpTransaction { number, head, facts, matched } = transaction;
    let request = if context.settings.any_rules { head.request() } else { None };
    let product = facts.response.as_ref().and_then(|response| response.fingerprint.as_ref());
    context.find(DialogueFinding::Banner(FoundBanner {
        banner: &Banner::Response(response),
        stage,
        request: request.as_ref(),
        product,
        transaction: Some(*number),
        matched,
        facts: &|| ApplicationFacts::Http(Arc::clone(facts)),
    }));
}

/// A page's title may name a product that the header fields don't.
pub(super) fn name_by_title(
    response: &ResponseHead<'_>,
    transaction: &mut HttpTransaction,
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
    more: &HttpHeaders<'_>,
    disclosure: &DisclosureLimits,
) {
    for field in more.iter() {
        if told.len() < disclosure.fields {
            told.push(disclosure.field(field));
        } else {
            *left_out += 1;
        }
    }
}
