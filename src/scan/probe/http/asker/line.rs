//! One connection as the asker sees it, and what can happen on it.

use std::collections::VecDeque;

/// What follows an answer on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Behind {
    /// Perhaps another one.
    Another,
    /// Nothing, as behind any answer of this server: it says so.
    Nothing,
    /// Nothing, because of this very answer: an error, an endless body, framing that is not trusted.
    Cut,
}

/// How a connection ended on which requests were unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Ended {
    /// The server closed it, or it was closed for what the server sent.
    Closed,
    /// The server was silent for as long as the user waits.
    Stalled,
    /// It was silent for longer than before, and was not waited for.
    Hurried,
}

/// The requests on one connection.
#[derive(Debug, Default)]
pub(in super::super) struct Line {
    /// Sent and not answered, in order.
    pub(super) in_flight: VecDeque<u16>,
    pub(super) asked: u16,
    pub(super) answered: u16,
    /// Those that were sent together when nothing was unanswered; 0 until then.
    pub(super) together: usize,
    /// Its front request is the first of those: the server knows of it, if of any.
    pub(super) leading: bool,
    /// How often requests were sent when nothing was unanswered.
    pub(super) batches: u16,
    /// No more can be sent.
    pub(super) last: bool,
    /// An error that may have been any one's ended it.
    pub(super) doubted: bool,
}

impl Line {
    /// The request that is answered next.
    pub(in super::super) fn front(&self) -> Option<u16> {
        self.in_flight.front().copied()
    }

    /// Nothing is unanswered.
    pub(in super::super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Its front request was sent behind others that came with it: the server may not know of it.
    pub(in super::super) fn is_behind_others(&self) -> bool {
        !self.leading
    }

    /// Requests behind the front one are unanswered, too.
    pub(in super::super) fn is_contended(&self) -> bool {
        self.in_flight.len() > 1
    }

    /// Several requests are or were on it.
    pub(in super::super) fn is_shared(&self) -> bool {
        self.asked > 1
    }
}
