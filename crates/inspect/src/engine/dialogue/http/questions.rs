//! What the rules are asked about one transaction.

use std::sync::Arc;

use super::transactions::Transaction;
use crate::banner::{Banner, Request, Response};
use crate::engine::judge::{Judge, Question};
use crate::event::Application;
use crate::rules::Stage;

/// Asks the rules about a request.
pub(super) fn ask_request(
    request: Request<'_>,
    stage: Stage,
    transaction: &mut Transaction,
    judge: &mut Judge<'_>,
) {
    let banner = Banner::Request(request);
    let question = Question {
        banner: &banner,
        stage,
        request: None,
        product: None,
        transaction: Some(transaction.number),
    };
    let Transaction { facts, matched, .. } = transaction;
    judge.ask(&question, matched, || Application::Http(Arc::clone(facts)));
}

/// Asks the rules about a response, with the request that it answers.
pub(super) fn ask_response(
    response: Response<'_>,
    stage: Stage,
    transaction: &mut Transaction,
    judge: &mut Judge<'_>,
) {
    let ruled = !judge.law.rules.rules().is_empty();
    let Transaction { number, head, facts, matched } = transaction;
    let request = if ruled { head.request() } else { None };
    let product = facts.response.as_ref().and_then(|response| response.fingerprint.as_ref());
    let banner = Banner::Response(response);
    let question =
        Question { banner: &banner, stage, request: request.as_ref(), product, transaction: Some(*number) };
    judge.ask(&question, matched, || Application::Http(Arc::clone(facts)));
}

/// A page's title may name a product that the header fields don't.
pub(super) fn name_by_title(response: &Response<'_>, transaction: &mut Transaction, judge: &Judge<'_>) {
    let (Some(known), Some(facts)) =
        (judge.law.fingerprints(), &mut Arc::make_mut(&mut transaction.facts).response)
    else {
        return;
    };
    facts.fingerprint = known.http_response(response, facts.title.as_deref().map(str::as_bytes));
}
