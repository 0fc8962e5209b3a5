//! Heads that servers read on in where this engine keeps no more of them: those without a version (HTTP/0.9),
//! and those beyond the limit. Each line is judged by itself; what says where the message ends is kept.

use std::sync::Arc;

use super::late_head::LateHead;
use super::message_end::note_hostile;
use super::transaction;
use super::transactions::HttpTransactions;
use crate::banner::framing::{self, FramedMessage};
use crate::banner::http;
use crate::banner::recognise;
use crate::banner::{Anomaly, HttpHeader, HttpHeaders, RequestHead, ResponseHead};
use crate::engine::dialogue::finding::ReadContext;
use crate::event::Side;
use crate::rules::BannerStage;

/// The kind of a line after a head.
pub enum LateLine {
    /// A field, or nothing.
    Field,
    /// The empty line that ends the fields.
    End,
    /// The beginning of another message.
    Message,
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
