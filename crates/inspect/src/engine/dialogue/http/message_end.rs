//! The ends of messages: the state until then, and the anomalies.

use crate::banner::framing::{self, BodyBuffer, BodyFraming, DisputedFraming, FramedMessage};
use crate::banner::http::KeptHead;
use crate::banner::{Anomalies, Anomaly, RequestHead};
use crate::engine::config::HttpInspect;
use crate::engine::dialogue::finding::ReadContext;
use crate::event::Side;
use crate::rules::BannerStage;

/// Why a head never ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfinishedReason {
    /// Its sender said no more.
    Ended,
    /// The rest of it was not seen.
    Unseen,
}

/// A message that is framed so; its head is kept where rules wait for its body.
///
/// Behind a head that `is_cut` another framing may come.
pub(super) fn open(
    framing: BodyFraming,
    is_cut: bool,
    head: impl FnOnce() -> KeptHead,
    context: &ReadContext<'_>,
) -> FramedMessage {
    let foreign = framing.is_foreign();
    let limit = if foreign { 0 } else { context.settings.body_limit };
    let mut message = FramedMessage::new(framing, BodyBuffer::new(limit));
    if context.settings.body_rules && (is_cut || !message.is_done()) && !foreign {
        message.keep(head());
    }
    message
}

/// Start of RTSP's version. Frames of media may stand between its messages, in both directions (RFC 2326
/// section 10.12).
pub(super) const RTSP: &[u8] = b"RTSP/";

/// True if a body without an end follows a request that announces none: a source sends its film so to
/// Icecast.
pub(super) fn streams(request: &RequestHead<'_>) -> bool {
    let unframed = || !request.headers.iter().any(|field| framing::is_framing(field.name));
    request.version.starts_with(b"ICE/") || (matches!(request.method, b"SOURCE" | b"PUT") && unframed())
}

/// Returns the stage of the rules that apply at the head of a message.
pub(super) const fn stage(message: &FramedMessage) -> BannerStage {
    if message.head().is_some() { BannerStage::Head } else { BannerStage::Whole }
}

/// An end that a capture lacks is nobody's trick.
pub(super) fn note_unfinished(anomalies: Anomalies, why: UnfinishedReason, context: &mut ReadContext<'_>) {
    if why == UnfinishedReason::Ended {
        context.note_all(anomalies);
    }
}

/// Notes what is odd about where a message ends. If receivers disagree about that, it hides what follows,
/// where that is to be read.
pub(super) fn note_hostile(hostile: Option<Anomaly>, from: Side, context: &mut ReadContext<'_>) {
    let Some(hostile) = hostile else { return };
    if hostile != Anomaly::FramingLost {
        context.note(hostile);
    }
    let reads_on = match from {
        Side::Client => context.settings.reads_on(),
        Side::Server => context.settings.http_inspect == HttpInspect::All,
    };
    if reads_on && framing::is_lost(hostile, from) {
        context.note(Anomaly::FramingLost);
    }
}

/// Notes a whole head with a field that frames the message only for some; true if there is one. Plain heads
/// have none.
pub(super) fn note_disputed(
    head: &[u8],
    anomalies: Anomalies,
    from: Side,
    context: &mut ReadContext<'_>,
) -> bool {
    if anomalies.is_empty() && head.is_ascii() {
        return false;
    }
    let mut disputed = DisputedFraming::default();
    disputed.search(head);
    note_hostile(disputed.is_found().then_some(Anomaly::FramingLost), from, context);
    disputed.is_found()
}
