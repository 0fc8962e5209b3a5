//! What came of one target, and the sink that takes it.

use std::time::{Duration, Instant};

use super::Target;
use crate::event::{ConnectFacts, EventSink, PortState};

/// Where a thread's results go.
///
/// Events (`ssh`, `http`, `alert`, anomalies) come through [`EventSink::emit`] while a target is
/// under way. Then [`Report::finished`] is called, exactly once for each target that was taken
/// from [`super::Targets`], unless the scan was stopped before it was over: such a target is to be
/// asked again when the scan is resumed.
pub trait Report: EventSink {
    /// A target is over.
    fn finished(&mut self, outcome: &Outcome<'_>);

    /// The loop has taken all completions that there were; called ten times a second at least.
    fn turn(&mut self, _now: Instant) {}

    /// Nothing will come any more.
    fn end(&mut self) {}
}

/// What came of one target.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// Which.
    pub target: &'a Target,
    /// What the port was.
    pub state: PortState,
    /// Why it was that.
    pub reason: Reason,
    /// From the connect request to its completion, where it completed.
    pub round_trip: Option<Duration>,
    /// From the acceptance to the end of a talk that did not come to its own.
    pub waited: Option<Duration>,
    /// How far the conversation behind the connect went.
    pub conversation: Conversation,
    /// Number of rules that matched.
    pub matches: u32,
    /// The first octets that the target sent (a banner, or the part of one that came), never a
    /// neighbour's; empty for the connect probe.
    pub banner: &'a [u8],
}

impl Outcome<'_> {
    /// The facts of a `connect` event.
    pub fn facts(&self) -> ConnectFacts {
        ConnectFacts {
            state: self.state,
            reason: self.reason.name().into(),
            said: String::new(),
            round_trip: self.round_trip,
            waited_ms: self.waited.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
        }
    }
}

/// Why a port was found as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The connection was accepted.
    Accepted,
    /// The connection was accepted, and reset at once.
    Reset,
    /// It was refused with a reset.
    Refused,
    /// Nobody answered within the connect timeout.
    NoResponse,
    /// The system gave this error number, of the network or of this machine.
    Errno(i32),
}

impl Reason {
    /// A stable name: `accepted`, `refused`, `no-response`, or the error's C name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::NoResponse => "no-response",
            Self::Errno(number) => errno_name(number),
        }
    }

    /// What a connect that ended with error `number` says of the port, once retries are over.
    pub fn of_errno(number: i32) -> (PortState, Self) {
        match number {
            libc::ECONNREFUSED => (PortState::Closed, Self::Refused),
            libc::ETIMEDOUT => (PortState::Filtered, Self::NoResponse),
            // A reset before the handshake is over is ECONNREFUSED: this one came behind the SYN-ACK.
            libc::ECONNRESET => (PortState::Open, Self::Reset),
            // An ICMP message on the way: the target (or its network) answered.
            libc::ECONNABORTED | libc::EHOSTUNREACH | libc::EHOSTDOWN | libc::ENOPROTOOPT | libc::EPROTO => {
                (PortState::Filtered, Self::Errno(number))
            }
            _ => (PortState::Error, Self::Errno(number)),
        }
    }
}

/// How far the talk with an open port went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conversation {
    /// There was none: the port is not open, or the probe only connects.
    None,
    /// The banner, or every answer that was asked for, came.
    Complete,
    /// Nothing came within the first-byte timeout.
    Silent,
    /// The target closed before it had said enough.
    Ended,
    /// The target reset the connection before it had said enough.
    Reset,
    /// The whole timeout passed before enough was seen.
    TimedOut,
    /// What came was not the protocol.
    Foreign,
    /// The target speaks TLS, but not with us; or it was asked for TLS and would not.
    Refused,
    /// The octet limit was reached before enough was seen.
    TooLong,
    /// This machine's error during the talk.
    Failed(i32),
}

impl Conversation {
    /// The target was waited for, and has not said all that it was to say.
    pub fn is_cut_short(self) -> bool {
        matches!(self, Self::Silent | Self::Ended | Self::Reset | Self::TimedOut | Self::Failed(_))
    }

    /// A stable name for summaries and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Complete => "complete",
            Self::Silent => "silent",
            Self::Ended => "ended",
            Self::Reset => "reset",
            Self::TimedOut => "timed-out",
            Self::Foreign => "foreign",
            Self::Refused => "tls-refused",
            Self::TooLong => "too-long",
            Self::Failed(number) => errno_name(number),
        }
    }
}

/// The C name of the error numbers that sockets give.
fn errno_name(number: i32) -> &'static str {
    match number {
        libc::EACCES => "EACCES",
        libc::EADDRINUSE => "EADDRINUSE",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::EAGAIN => "EAGAIN",
        libc::EALREADY => "EALREADY",
        libc::EBADF => "EBADF",
        libc::ECANCELED => "ECANCELED",
        libc::ECONNABORTED => "ECONNABORTED",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::ECONNRESET => "ECONNRESET",
        libc::EHOSTDOWN => "EHOSTDOWN",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::EINVAL => "EINVAL",
        libc::EISCONN => "EISCONN",
        libc::EMFILE => "EMFILE",
        libc::ENETDOWN => "ENETDOWN",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ENFILE => "ENFILE",
        libc::ENOBUFS => "ENOBUFS",
        libc::ENOMEM => "ENOMEM",
        libc::ENOPROTOOPT => "ENOPROTOOPT",
        libc::EPERM => "EPERM",
        libc::EPIPE => "EPIPE",
        libc::EPROTO => "EPROTO",
        libc::ETIMEDOUT => "ETIMEDOUT",
        _ => "EOTHER",
    }
}
