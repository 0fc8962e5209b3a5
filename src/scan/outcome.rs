//! Result of one target, and the trait that receives it.

use std::time::{Duration, Instant};

use super::Target;
use crate::event::{ConnectFacts, EventSink, PortState};

/// Receiver of a thread's results.
///
/// Events (`ssh`, `http`, `alert`, anomalies) arrive through [`EventSink::emit`] while a target is under way.
/// Then [`OutcomeSink::finished`] is called exactly once for each target from [`super::TargetSource`], unless
/// the scan was stopped before. A resumed scan probes such a target again.
pub trait OutcomeSink: EventSink {
    /// Receives the result of a target.
    fn finished(&mut self, outcome: &TargetOutcome<'_>);

    /// Called after the loop handled all pending completions, at least ten times a second.
    fn turn(&mut self, _now: Instant) {}

    /// Called at the end of the scan.
    fn end(&mut self) {}
}

/// Result of one target.
#[derive(Debug, Clone, Copy)]
pub struct TargetOutcome<'a> {
    /// Target of this result.
    pub target: &'a Target,
    /// State of the port.
    pub state: PortState,
    /// Reason of the state.
    pub reason: PortStateReason,
    /// Time from the connection request to its completion, if it completed.
    pub round_trip: Option<Duration>,
    /// Time from the accepted connection to the end of an incomplete exchange.
    pub waited: Option<Duration>,
    /// Progress of the exchange after the connect.
    pub conversation: ExchangeOutcome,
    /// Number of matching rules.
    pub matches: u32,
    /// First bytes that this target sent (a banner, or a part of it), never another target's. Empty for the
    /// connect probe.
    pub banner: &'a [u8],
}

impl TargetOutcome<'_> {
    /// Returns the facts of a `connect` event.
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

/// Reason of a port's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortStateReason {
    /// The connection was accepted.
    Accepted,
    /// The connection was accepted, and reset at once.
    Reset,
    /// The connection was refused with a reset.
    Refused,
    /// No answer within the connect timeout.
    NoResponse,
    /// Error number of the network or of this machine.
    Errno(i32),
}

impl PortStateReason {
    /// Returns a stable name: `accepted`, `refused`, `no-response`, or the error's C name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::NoResponse => "no-response",
            Self::Errno(number) => errno_name(number),
        }
    }

    /// Returns the port's state for a connect with error `number`, after all retries.
    pub fn of_errno(number: i32) -> (PortState, Self) {
        match number {
            libc::ECONNREFUSED => (PortState::Closed, Self::Refused),
            libc::ETIMEDOUT => (PortState::Filtered, Self::NoResponse),
            // A reset during the handshake is ECONNREFUSED, so this reset came after the SYN-ACK.
            libc::ECONNRESET => (PortState::Open, Self::Reset),
            // These come from ICMP messages: the target, or a router near it, answered.
            libc::ECONNABORTED | libc::EHOSTUNREACH | libc::EHOSTDOWN | libc::ENOPROTOOPT | libc::EPROTO => {
                (PortState::Filtered, Self::Errno(number))
            }
            _ => (PortState::Error, Self::Errno(number)),
        }
    }
}

/// Progress of the exchange with an open port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExchangeOutcome {
    /// No exchange: the port is not open, or the probe only connects.
    None,
    /// The banner, or every requested response, arrived.
    Complete,
    /// No data within the first-byte timeout.
    Silent,
    /// The target closed the connection too early.
    Ended,
    /// The target reset the connection too early.
    Reset,
    /// The total timeout passed too early.
    TimedOut,
    /// The data was not the expected protocol.
    Foreign,
    /// The target speaks TLS but refused the handshake, or refused to start TLS.
    Refused,
    /// The byte limit was reached too early.
    TooLong,
    /// Error of this machine during the exchange.
    Failed(i32),
}

impl ExchangeOutcome {
    /// True if the target did not complete the exchange in time.
    pub fn is_cut_short(self) -> bool {
        matches!(self, Self::Silent | Self::Ended | Self::Reset | Self::TimedOut | Self::Failed(_))
    }

    /// Returns a stable name for summaries and results.
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

/// Returns the C name of a socket's error number.
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
