//! State of one connection for the asker, and its possible ends.

use std::collections::VecDeque;

/// Expected data after a response on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum AfterResponse {
    /// Possibly another response.
    Another,
    /// No data, as after every response of this server: it announced the close.
    Nothing,
    /// No data because of this response: an error, an endless body, or untrusted framing.
    Cut,
}

/// End of a connection with unanswered requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum PrematureEnd {
    /// The server closed it, or the probe closed it for invalid data.
    Closed,
    /// The server was silent for the user's timeout.
    Stalled,
    /// The server was slower than before, and the probe did not wait for the user's timeout.
    Hurried,
}

/// Requests on one connection.
#[derive(Debug, Default)]
pub(in super::super) struct ConnectionRequests {
    /// Sent and unanswered requests, in order.
    pub(super) in_flight: VecDeque<u16>,
    pub(super) asked: u16,
    pub(super) answered: u16,
    /// Number of requests that were sent together on the idle connection; 0 before that.
    pub(super) together: usize,
    /// True if the front request is the first of those, which the server surely knows.
    pub(super) leading: bool,
    /// Number of batches that were sent on the idle connection.
    pub(super) batches: u16,
    /// True if nothing more can be sent.
    pub(super) last: bool,
    /// True if an ambiguous error ended it.
    pub(super) doubted: bool,
}

impl ConnectionRequests {
    /// Returns the request that is answered next.
    pub(in super::super) fn front(&self) -> Option<u16> {
        self.in_flight.front().copied()
    }

    /// True if no request is unanswered.
    pub(in super::super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// True if the front request was sent behind others of its batch: the server may not know it.
    pub(in super::super) fn is_behind_others(&self) -> bool {
        !self.leading
    }

    /// True if requests behind the front one are unanswered, too.
    pub(in super::super) fn is_contended(&self) -> bool {
        self.in_flight.len() > 1
    }

    /// True if several requests were sent on it.
    pub(in super::super) fn is_shared(&self) -> bool {
        self.asked > 1
    }
}
