//! Heads that come piece by piece: each byte is gone over once, and what blocking rules are about is
//! judged with the line that holds it.

use std::ops::Range;

use super::message_end::UnfinishedReason;
use super::transactions::{HttpProgress, HttpTransactions};
use crate::banner::http::{self, HEAD_LIMIT, HeadLine, HeadSearch};
use crate::banner::{Banner, ssh};
use crate::engine::dialogue::finding::ReadContext;
use crate::event::Side;
use crate::rules::BannerStage;

/// Fields that are judged again beside new ones, where a rule asks for several. Rules about fields that are
/// further apart wait for the head's end.
const REMEMBERED: usize = 16;

/// The progress in a head that is not complete.
#[derive(Debug, Default)]
pub struct PartialHead {
    search: HeadSearch,
    /// The range of the first line.
    first: Range<usize>,
    /// The ranges of the fields that rules need.
    fields: Vec<Range<usize>>,
    /// Some of it was not judged yet.
    fresh: bool,
    /// The last line was the first one: white space before the next one folds nothing.
    behind_first: bool,
    /// Its parts say other things than the whole: it waits for its end.
    disputed: bool,
}

/// The state after the lines so far.
enum HeadAdvance {
    /// The head goes on.
    More,
    /// It has ended, or is too long to be kept.
    Whole,
    /// An SSH identification begins here.
    Ssh(usize),
}

impl PartialHead {
    /// Goes over the lines that are new in `input`.
    fn advance(
        &mut self,
        from: Side,
        input: &[u8],
        may_speak_ssh: bool,
        context: &ReadContext<'_>,
    ) -> HeadAdvance {
        let early = context.settings.early(from);
        // What is all there is judged whole.
        let in_parts = context.enforced && !input.ends_with(b"\r\n\r\n");
        while let Some(line) = self.search.next_line(input) {
            match line {
                HeadLine::End => return HeadAdvance::Whole,
                HeadLine::First(range) => {
                    let line = input.get(range.clone()).unwrap_or_default();
                    self.first = range;
                    self.behind_first = true;
                    self.fresh |= early.first_line;
                    if from == Side::Client && http::is_simple_request(line) {
                        return HeadAdvance::Whole;
                    }
                }
                HeadLine::Field(range) => {
                    let line = input.get(range.clone()).unwrap_or_default();
                    if may_speak_ssh && line.starts_with(ssh::PREFIX) {
                        return HeadAdvance::Ssh(range.start);
                    }
                    let folds = matches!(line.first(), Some(b' ' | b'\t')) && !self.behind_first;
                    self.behind_first = false;
                    if in_parts && !folds && early.is_about(line) {
                        self.fields.push(range);
                        self.fresh = true;
                    }
                }
            }
        }
        let kept = input.len().saturating_sub(self.first.start);
        if kept >= HEAD_LIMIT { HeadAdvance::Whole } else { HeadAdvance::More }
    }

    /// Returns the limit in bytes of an incomplete head.
    pub(super) const fn limit(&self) -> usize {
        self.first.start.saturating_add(HEAD_LIMIT)
    }

    /// Bytes of memory held.
    pub(super) const fn memory(&self) -> usize {
        self.fields.capacity() * size_of::<Range<usize>>()
    }

    /// The first line and the fields that are to be judged now, if any are new.
    fn take_fresh<'i>(&mut self, input: &'i [u8]) -> Option<(&'i [u8], Vec<&'i [u8]>)> {
        if !std::mem::take(&mut self.fresh) || self.disputed {
            return None;
        }
        let first = input.get(self.first.clone())?;
        let lines = self.fields.iter().filter_map(|range| input.get(range.clone())).collect();
        let old = self.fields.len().saturating_sub(REMEMBERED);
        self.fields.drain(..old);
        Some((first, lines))
    }
}

impl HttpTransactions {
    /// Reads on in a request head that begins where `input` does.
    pub(super) fn request(
        &mut self,
        head: &mut PartialHead,
        input: &[u8],
        context: &mut ReadContext<'_>,
    ) -> HttpProgress {
        match head.advance(Side::Client, input, false, context) {
            HeadAdvance::Whole => self.whole_request(input, context),
            _ if self.stops_request(head, input, context) => HttpProgress::Stopped,
            _ => HttpProgress::More,
        }
    }

    /// Reads on in a response head that begins where `input` does. Where the client `may_speak_ssh`, lines
    /// like a response's may precede an identification.
    pub(super) fn response(
        &mut self,
        head: &mut PartialHead,
        input: &[u8],
        may_speak_ssh: bool,
        context: &mut ReadContext<'_>,
    ) -> HttpProgress {
        match head.advance(Side::Server, input, may_speak_ssh, context) {
            HeadAdvance::Whole => self.whole_response(input, context),
            HeadAdvance::Ssh(at) => {
                // It may be a response all the same.
                let before = input.get(..at).unwrap_or_default();
                self.unfinished(Side::Server, before, UnfinishedReason::Unseen, context);
                HttpProgress::Ssh(at)
            }
            HeadAdvance::More if self.stops_response(head, input, context) => HttpProgress::Stopped,
            HeadAdvance::More => HttpProgress::More,
        }
    }

    /// True if what there is of a request is enough to block; then it is judged as it is.
    fn stops_request(&mut self, head: &mut PartialHead, input: &[u8], context: &mut ReadContext<'_>) -> bool {
        let Some((first, lines)) = head.take_fresh(input).filter(|_| context.enforced) else { return false };
        let Some(request) = http::part_of_request(first, &lines) else { return false };
        if !context.sink.would_stop(&Banner::Request(request), None, None) {
            return false;
        }
        let Some(read) = http::parse_unfinished_request(input, false) else { return false };
        let banner = Banner::Request(read.message);
        head.disputed = !context.sink.would_stop(&banner, None, None);
        let (Banner::Request(message), false) = (banner, head.disputed) else { return false };
        self.take_request(message, input, BannerStage::Part, context);
        true
    }

    /// True if what there is of a response is enough to block; then it is judged as it is.
    fn stops_response(
        &mut self,
        head: &mut PartialHead,
        input: &[u8],
        context: &mut ReadContext<'_>,
    ) -> bool {
        let Some((first, lines)) = head.take_fresh(input).filter(|_| context.enforced) else { return false };
        let Some(response) = http::part_of_response(first, &lines) else { return false };
        let request = self.waiting.front().and_then(|waiting| waiting.head.request());
        let known = context.settings.fingerprints().filter(|_| context.settings.product_rules);
        let product = known.and_then(|known| known.http_response(&response, None));
        if !context.sink.would_stop(&Banner::Response(response), request.as_ref(), product.as_ref()) {
            return false;
        }
        let Some(read) = http::parse_unfinished_response(input, false) else { return false };
        let banner = Banner::Response(read.message);
        head.disputed = !context.sink.would_stop(&banner, request.as_ref(), product.as_ref());
        let (Banner::Response(message), false) = (banner, head.disputed) else { return false };
        let transaction = self.take_response(message, BannerStage::Part, context);
        self.answering = Some(transaction);
        true
    }
}
