//! Probes: the data that a scan mode sends, and the end of its exchange.
//!
//! A probe does no input or output and reads no clock. The loop passes it exactly the bytes of a connection,
//! and follows its decision. A target is a *session*, which may have several connections, one after the other
//! or at once; most have one.

mod any;
mod connect;
mod greeting;
mod http;
mod ssh;
mod tls;

pub(super) use any::AnyProbe;
pub(super) use connect::ConnectProbe;
pub(super) use greeting::GreetingProbe;
pub(super) use http::HttpProbe;
pub(super) use ssh::SshProbe;
pub(super) use tls::TlsProbe;

use super::{ExchangeOutcome, Target};
use crate::event::{EventSink, Timestamp};
use crate::terms::GreetingProtocol;

/// One scan mode.
pub(super) trait Probe {
    /// State of a target.
    type Session: Default;
    /// State of one connection.
    type Connection: Default;

    /// False if an accepted connection completes the probe.
    const TALKS: bool;

    /// True if small segments may follow one another without a reply in between. Nagle's algorithm would hold
    /// them back for a round trip.
    fn sends_in_parts(&self) -> bool {
        false
    }

    /// Starts a target; `session` may hold another target's state.
    fn begin(&mut self, session: &mut Self::Session, target: &Target);

    /// Starts a connection; bytes to send at once are appended to `out`.
    fn open(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        target: &Target,
        now: Timestamp,
        out: &mut Vec<u8>,
    );

    /// Handles received `octets`; bytes to send next are appended to `out`.
    fn receive(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep;

    /// Handles the end of a connection: by the target, by a timeout, or on request of `receive`.
    fn closed(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        how: CloseReason,
        scene: &mut ProbeContext<'_>,
    );

    /// Handles an accepted connection, and returns true to enable [`Probe::watch`]. Bytes that are expensive
    /// to compute are appended to `out` only now.
    fn accepted(
        &mut self,
        _session: &mut Self::Session,
        _connection: &mut Self::Connection,
        _now: Timestamp,
        _out: &mut Vec<u8>,
    ) -> bool {
        false
    }

    /// Handles a completed TLS handshake with its application protocol, before the first connection opens.
    fn negotiated(&mut self, _session: &mut Self::Session, _target: &Target, _protocol: Option<&[u8]>) {}

    /// Takes the layer of TLS in which the target may continue, once its exchange is over.
    fn take_tls_layer(&self, _session: &mut Self::Session) -> Option<TlsLayer> {
        None
    }

    /// True if a target got a request and answered nothing.
    fn is_unanswered(&self, _session: &Self::Session) -> bool {
        false
    }

    /// True if [`Probe::on_idle`] should be called for a silent target.
    fn is_nudged(&self) -> bool {
        false
    }

    /// Called after a silence on a connection; bytes to send are appended to `out`.
    fn on_idle(
        &mut self,
        _session: &mut Self::Session,
        _connection: &mut Self::Connection,
        _out: &mut Vec<u8>,
    ) {
    }

    /// Called when another connection of the session ended; bytes to send instead of it are appended to
    /// `out`.
    fn on_sibling_closed(
        &mut self,
        _session: &mut Self::Session,
        _connection: &mut Self::Connection,
        _now: Timestamp,
        _out: &mut Vec<u8>,
    ) -> ProbeStep {
        ProbeStep::More
    }

    /// Called periodically on a watched connection, and returns whether to continue.
    fn watch(
        &mut self,
        _session: &mut Self::Session,
        _connection: &mut Self::Connection,
        _now: Timestamp,
    ) -> ProbeStep {
        ProbeStep::More
    }

    /// Returns the number of connections that the session needs now; 0 when it is over.
    fn wanted(&self, session: &Self::Session) -> usize;

    /// Returns the result of the exchange and its first bytes, once the session is over.
    fn result<'s>(&self, session: &'s Self::Session) -> (ExchangeOutcome, &'s [u8]);
}

/// Beginning of TLS on a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsLayer {
    /// With the first byte.
    Whole,
    /// With a command of this protocol.
    Upgrade(GreetingProtocol),
}

/// Decision about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeStep {
    /// Continue to read.
    More,
    /// Close the connection.
    Close,
}

/// End of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// [`Probe::receive`] closed it.
    Here,
    /// The target sent FIN.
    Finished,
    /// The target sent RST.
    Reset,
    /// The target was silent for too long.
    Silent,
    /// The target's total timeout passed.
    Expired,
    /// The connect failed with this error number.
    Failed(i32),
    /// The connection failed with this error number.
    Broke(i32),
}

/// Context of a probe while it handles bytes.
pub(super) struct ProbeContext<'a> {
    /// Receiver of events.
    pub(super) sink: &'a mut dyn EventSink,
    /// Current time.
    pub(super) now: Timestamp,
    /// Target that sent the bytes.
    pub(super) target: &'a Target,
    /// Counter of matching rules.
    pub(super) matches: &'a mut u32,
}
