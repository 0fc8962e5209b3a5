//! What the rules are asked about one transaction.

use std::sync::Arc;

use super::transactions::Transaction;
use crate::banner::{Banner, Request, Response};
use crate::engine::dialogue::finding::{Finding, FoundBanner, ReadContext};
use crate::event::Application;
use crate::rules::Stage;

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
        indifferent: false,
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
        indifferent: false,
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
