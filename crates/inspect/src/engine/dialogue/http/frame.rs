//! Where messages end: what is kept of them until then, and what is odd about it.

use crate::banner::framing::{self, BodyBuffer, Framing, Message};
use crate::banner::http::KeptHead;
use crate::banner::{Anomalies, Anomaly, Request};
use crate::engine::dialogue::finding::ReadContext;
use crate::event::Side;
use crate::rules::Stage;

/// Why a head never ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// Its sender said no more.
    Ended,
    /// The rest of it was not seen.
    Unseen,
}

/// A message that is framed so; its head is kept where rules wait for its body.
///
/// Behind a head that `is_cut` another framing may come.
pub(super) fn open(
    framing: Framing,
    is_cut: bool,
    head: impl FnOnce() -> KeptHead,
    context: &ReadContext<'_>,
) -> Message {
    let foreign = framing.is_foreign();
    let limit = if foreign { 0 } else { context.settings.body_limit };
    let mut message = Message::new(framing, BodyBuffer::new(limit));
    if context.settings.body_rules && (is_cut || !message.is_done()) && !foreign {
        message.keep(head());
    }
    message
}

/// What a version of RTSP begins with, whose messages frames of films may stand between, of both sides (RFC
/// 2326 section 10.12).
pub(super) const RTSP: &[u8] = b"RTSP/";

/// True if a body without an end follows a request that announces none: a source sends its film so to
/// Icecast.
pub(super) fn streams(request: &Request<'_>) -> bool {
    let unframed = || !request.headers.iter().any(|field| framing::is_framing(field.name));
    request.version.starts_with(b"ICE/") || (matches!(request.method, b"SOURCE" | b"PUT") && unframed())
}

/// Which rules are asked at the head of a message.
pub(super) const fn stage(message: &Message) -> Stage {
    if message.head().is_some() { Stage::Head } else { Stage::Whole }
}

/// An end that a capture lacks is nobody's trick.
pub(super) fn note_unfinished(anomalies: Anomalies, why: Unfinished, context: &mut ReadContext<'_>) {
    if why == Unfinished::Ended {
        context.note_all(anomalies);
    }
}

/// Notes what is odd about where a message ends. A request whose end is anybody's guess hides what follows
/// it, where that is to be read.
pub(super) fn note_hostile(hostile: Option<Anomaly>, from: Side, context: &mut ReadContext<'_>) {
    let Some(hostile) = hostile else { return };
    if hostile != Anomaly::FramingLost {
        context.note(hostile);
    }
    let reads_on = context.settings.reads_on();
    if from == Side::Client && reads_on && framing::is_lost(hostile) {
        context.note(Anomaly::FramingLost);
    }
}
