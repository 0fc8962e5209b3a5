//! Heads that servers read on in where this engine keeps no more of them: those without a version (HTTP/0.9),
//! and those beyond the limit. Each line is judged by itself; what says where the message ends is kept.

use std::sync::Arc;

use super::message_end::note_hostile;
use super::transaction;
use super::transactions::HttpTransactions;
use crate::banner::framing::{self, DisputedFraming, FramedMessage};
use crate::banner::http::{self, HEAD_LIMIT};
use crate::banner::recognise::{self, empty_lines};
use crate::banner::{Anomaly, HttpHeader, HttpHeaders, RequestHead, ResponseHead};
use crate::engine::dialogue::finding::ReadContext;
use crate::event::Side;
use crate::rules::BannerStage;

/// The stored part of such a head.
#[derive(Debug)]
pub struct LateHead {
    /// Its first line.
    first: Vec<u8>,
    /// The method of the request that it answers, where that was seen.
    method: Option<Vec<u8>>,
    /// Names and values of the fields that say where its message ends.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of those.
    octets: usize,
    /// The last line held one of them, which the next one may go on with.
    behind_framing: bool,
    /// Lines held some that were not within the limit.
    has_grown: bool,
    /// Such fields that some readers see and others do not.
    disputed: DisputedFraming,
    /// The message as what was within the limit frames it.
    message: FramedMessage,
}

/// The kind of a line after a head.
pub enum LateLine {
    /// A field, or nothing.
    Field,
    /// The empty line that ends the fields.
    End,
    /// The beginning of another message.
    Message,
}

impl LateHead {
    /// `head` is what was read of it, with these fields, and frames the message.
    pub(super) fn new(
        head: &[u8],
        headers: &HttpHeaders<'_>,
        method: Option<Vec<u8>>,
        message: FramedMessage,
    ) -> Self {
        let mut late = Self {
            first: first_line(head).to_vec(),
            method,
            fields: Vec::new(),
            octets: 0,
            behind_framing: false,
            has_grown: false,
            disputed: DisputedFraming::default(),
            message,
        };
        late.disputed.search(head);
        headers.iter().for_each(|field| late.take(field));
        late
    }

    /// The message, whatever frames it.
    pub(super) fn into_message(self) -> FramedMessage {
        self.message
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.first.capacity() + self.octets + self.message.memory()
    }

    fn take(&mut self, HttpHeader { name, value }: &HttpHeader<'_>) {
        if framing::is_framing(name) {
            self.octets += name.len() + value.len();
            self.fields.push((name.to_vec(), value.to_vec()));
            self.behind_framing = true;
        }
    }

    /// Takes what a further line says of where the message ends.
    fn note(&mut self, line: &[u8]) {
        let folds = self.behind_framing && matches!(line.first(), Some(b' ' | b'\t'));
        if let Some((_, value)) = self.fields.last_mut().filter(|_| folds) {
            let more = line.trim_ascii();
            self.octets += 1 + more.len();
            value.push(b'\n');
            value.extend_from_slice(more);
            self.has_grown = true;
            return;
        }
        self.behind_framing = false;
        self.disputed.search(line);
        http::fields_of_line(line).for_each(|field| self.take(&field));
        self.has_grown |= self.behind_framing;
    }

    /// True if more was said of it than anybody says.
    const fn is_over_limit(&self) -> bool {
        self.octets > HEAD_LIMIT
    }

    /// True if a request is so old that another one may follow its line.
    fn has_no_version(&self) -> bool {
        http::part_of_request(&self.first, &[]).is_some_and(|request| request.version.is_empty())
    }
}

impl HttpTransactions {
    /// Takes a line behind such a head.
    pub(super) fn late_line(
        &mut self,
        from: Side,
        late: &mut LateHead,
        line: &[u8],
        context: &mut ReadContext<'_>,
    ) -> LateLine {
        if line.iter().all(|octet| matches!(octet, b'\r' | b'\n')) {
            return LateLine::End;
        }
        let known = match from {
            Side::Client => self.late_request_field(&late.first, line, context),
            Side::Server => self.late_response_field(&late.first, line, context),
        };
        let is_request = from == Side::Client && recognise::is_request_line(line);
        if !known.unwrap_or_default() && is_request && late.has_no_version() {
            return LateLine::Message;
        }
        if !late.is_over_limit() {
            late.note(line);
        }
        LateLine::Field
    }

    /// The message behind the end of such a head.
    pub(super) fn late_end(
        &mut self,
        from: Side,
        late: LateHead,
        context: &mut ReadContext<'_>,
    ) -> FramedMessage {
        let is_disputed = late.disputed.is_found();
        note_hostile(is_disputed.then_some(Anomaly::FramingLost), from, context);
        if !late.has_grown {
            return late.message;
        }
        let fields = late.fields.iter().map(|(name, value)| HttpHeader { name, value });
        let headers = HttpHeaders::new(fields.collect());
        let framed = match from {
            Side::Client => http::part_of_request(&late.first, &[])
                .map(|request| framing::of_request(&RequestHead { headers, ..request })),
            Side::Server => http::part_of_response(&late.first, &[]).map(|response| {
                framing::of_response(&ResponseHead { headers, ..response }, late.method.as_deref())
            }),
        };
        let Some(framed) = framed else { return late.message };
        let beyond = late.is_over_limit().then_some(Anomaly::ContentLengthConflict);
        let hostile = framed.hostile.or(beyond);
        note_hostile(hostile, from, context);
        if from == Side::Server {
            self.dispute(hostile.is_some() || is_disputed);
        }
        late.message.framed(framed.framing)
    }

    /// Returns true if the line holds a field, or none if no request waits for it.
    fn late_request_field(
        &mut self,
        first: &[u8],
        line: &[u8],
        context: &mut ReadContext<'_>,
    ) -> Option<bool> {
        let request = http::part_of_request(first, &[line])?;
        let known = request.headers.iter().next().is_some();
        let transaction = self.waiting.back_mut()?;
        let facts = Arc::make_mut(&mut transaction.facts).request.as_mut()?;
        let disclosure = &context.settings.disclosure;
        transaction::add_fields(&mut facts.headers, &mut facts.left_out, &request.headers, disclosure);
        if context.settings.early(Side::Client).is_about(line) {
            transaction::ask_request(request, BannerStage::Part, transaction, context);
        }
        Some(known)
    }

    fn late_response_field(
        &mut self,
        first: &[u8],
        line: &[u8],
        context: &mut ReadContext<'_>,
    ) -> Option<bool> {
        let response = http::part_of_response(first, &[line])?;
        let transaction = self.answering.as_mut()?;
        let facts = Arc::make_mut(&mut transaction.facts).response.as_mut()?;
        let disclosure = &context.settings.disclosure;
        transaction::add_fields(&mut facts.headers, &mut facts.left_out, &response.headers, disclosure);
        if context.settings.early(Side::Server).is_about(line) {
            transaction::ask_response(response, BannerStage::Part, transaction, context);
        }
        Some(true)
    }
}

/// The first line of a head, empty lines before it left out: where its message begins may be anywhere in
/// a segment.
fn first_line(head: &[u8]) -> &[u8] {
    let head = head.get(empty_lines(head)..).unwrap_or_default();
    let end = memchr::memchr(b'\n', head).map_or(head.len(), |end| end + 1);
    head.get(..end).unwrap_or_default()
}
