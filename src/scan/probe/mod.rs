//! What one scan mode sends, and when it has seen enough.
//!
//! A probe does no input or output and reads no clock: the loop brings it what came on a
//! connection, exactly those octets, and does what it answers. A target is a *session*, which may
//! have several connections, one after the other or at once; most have one.

mod connect;
mod greeting;
mod http;
mod secure;
mod ssh;

pub(super) use connect::Connect;
pub(super) use greeting::Greetings;
pub(super) use http::Http;
pub(super) use secure::Secure;
pub(super) use ssh::Ssh;

use super::{Conversation, Target};
use crate::event::{EventSink, Timestamp};

/// One scan mode.
pub(super) trait Probe {
    /// What is remembered of a target.
    type Session: Default;
    /// What is remembered of one of its connections.
    type Connection: Default;

    /// False when an accepted connection is all there is to know.
    const TALKS: bool;

    /// True if small segments may follow one another on a connection without an answer in between, so
    /// that Nagle's algorithm would hold them back for a round trip.
    fn sends_in_parts(&self) -> bool {
        false
    }

    /// A target's turn begins; `session` may hold another target's remains.
    fn begin(&mut self, session: &mut Self::Session, target: &Target);

    /// A connection is about to be made: what to send on it at once is appended to `out`.
    fn open(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        target: &Target,
        now: Timestamp,
        out: &mut Vec<u8>,
    );

    /// `octets` came; what to send next is appended to `out`.
    fn receive(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut Scene<'_>,
    ) -> Step;

    /// A connection is over: by the target, by a timeout, or because `receive` said so.
    fn closed(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        how: Closed,
        scene: &mut Scene<'_>,
    );

    /// A connection was accepted: whether [`Probe::watch`] is to be asked now and then. What is dear to make
    /// is only now appended to `out`.
    fn accepted(
        &mut self,
        _session: &mut Self::Session,
        _connection: &mut Self::Connection,
        _now: Timestamp,
        _out: &mut Vec<u8>,
    ) -> bool {
        false
    }

    /// A target speaks TLS, and both have agreed on an application protocol or on none, before the first
    /// connection is opened.
    fn negotiated(&mut self, _session: &mut Self::Session, _target: &Target, _protocol: Option<&[u8]>) {}

    /// True if a target was asked and has answered nothing.
    fn is_unanswered(&self, _session: &Self::Session) -> bool {
        false
    }

    /// True if [`Probe::nudge`] is to be asked where a target says nothing.
    fn is_nudged(&self) -> bool {
        false
    }

    /// Nothing has come on a connection for a while: what to send is appended to `out`.
    fn nudge(
        &mut self,
        _session: &mut Self::Session,
        _connection: &mut Self::Connection,
        _out: &mut Vec<u8>,
    ) {
    }

    /// Another connection of the session has ended: what this one is to send for it is appended to
    /// `out`.
    fn rouse(
        &mut self,
        _session: &mut Self::Session,
        _connection: &mut Self::Connection,
        _now: Timestamp,
        _out: &mut Vec<u8>,
    ) -> Step {
        Step::More
    }

    /// Nothing may have come on a connection for a while: whether to wait on.
    fn watch(
        &mut self,
        _session: &mut Self::Session,
        _connection: &mut Self::Connection,
        _now: Timestamp,
    ) -> Step {
        Step::More
    }

    /// How many connections the session should have now; none when it is over.
    fn wanted(&self, session: &Self::Session) -> usize;

    /// How the talk went, and the first octets of it, once the session is over.
    fn result<'s>(&self, session: &'s Self::Session) -> (Conversation, &'s [u8]);
}

/// What to do with a connection after its octets were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Read on.
    More,
    /// Close it.
    Close,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// [`Probe::receive`] wanted it.
    Here,
    /// The target sent FIN.
    Finished,
    /// The target sent RST.
    Reset,
    /// The target was silent for too long.
    Silent,
    /// The target's whole time is over.
    Expired,
    /// It could not be made; the error number.
    Failed(i32),
    /// It broke; the error number.
    Broke(i32),
}

/// What a probe may use while it looks at octets.
pub(super) struct Scene<'a> {
    /// Takes the events.
    pub(super) sink: &'a mut dyn EventSink,
    /// The time.
    pub(super) now: Timestamp,
    /// Whom the octets came from.
    pub(super) target: &'a Target,
    /// Counts the rules that matched.
    pub(super) matches: &'a mut u32,
}
