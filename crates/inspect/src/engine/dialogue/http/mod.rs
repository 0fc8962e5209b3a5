//! HTTP: how one direction's bytes become messages.
//!
//! Which request a response answers, and what rules say of either, is [`transactions`]'s part.

mod late_fields;
mod late_head;
mod message_end;
mod partial_head;
mod read;
mod transaction;
mod transactions;

use self::late_head::LateHead;
pub use self::message_end::UnfinishedReason;
use self::partial_head::PartialHead;
pub(super) use self::transactions::HttpTransactions;
use crate::banner::framing::{BodyFraming, FramedMessage};

/// The progress in one direction.
#[derive(Debug)]
pub enum HttpReading {
    /// Within a head.
    Head(PartialHead),
    /// Behind as much of a head as is kept, where others may read more fields.
    Late(Box<LateHead>),
    /// Behind a message: another may follow.
    Next,
    /// Within a body.
    Body(Box<FramedMessage>),
}

impl Default for HttpReading {
    fn default() -> Self {
        Self::Head(PartialHead::default())
    }
}

impl HttpReading {
    pub(super) const fn is_body(&self) -> bool {
        matches!(self, Self::Body(_))
    }

    /// True if another message may follow, and nothing of it is read.
    pub(super) const fn is_behind_message(&self) -> bool {
        matches!(self, Self::Next)
    }

    /// True if unread bytes may be the beginning of a head.
    pub(super) const fn is_before_end_of_head(&self) -> bool {
        matches!(self, Self::Head(_) | Self::Next)
    }

    /// True if `count` bytes may be missing without harm.
    pub(super) fn can_spare(&self, count: u64) -> bool {
        match self {
            Self::Body(message) => message.is_satisfied() && message.skippable() >= count,
            _ => false,
        }
    }

    /// True if all that was sent could be read.
    pub(super) const fn goes_on(&self, unread: &[u8]) -> bool {
        match self {
            Self::Body(_) => true,
            Self::Head(_) | Self::Next => unread.is_empty(),
            Self::Late(_) => false,
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Body(message) => message.memory(),
            Self::Late(late) => late.memory(),
            Self::Head(head) => head.memory(),
            Self::Next => 0,
        }
    }
}

/// The rest of a response, according to its head.
#[derive(Debug, Clone, Copy)]
pub struct ResponseRemainder {
    /// Bytes that are to come.
    pub left: u64,
    /// Bytes that were read.
    pub read: u64,
    /// Bytes, from the first on, that were judged.
    pub judged: usize,
}

impl HttpTransactions {
    /// Returns the rest of the server's current response, if its length is certain and it answers the only
    /// request.
    pub(super) fn rest(&self, reading: &HttpReading) -> Option<ResponseRemainder> {
        let HttpReading::Body(message) = reading else { return None };
        let exact = matches!(message.framing(), BodyFraming::Length(_)) && !message.is_done();
        if !exact || !message.is_satisfied() || !self.answers_the_only_request() {
            return None;
        }
        let (left, read) = (message.skippable(), message.content_length());
        Some(ResponseRemainder { left, read, judged: message.body().len() })
    }
}
