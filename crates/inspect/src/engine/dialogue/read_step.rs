//! One step of reading: the input of one side, and the result.

use super::awaited_input::InputNeed;
use crate::banner::ParseRejection;
use crate::event::Side;

/// The input of one side.
#[derive(Clone, Copy)]
pub struct DialogueInput<'t> {
    pub(super) from: Side,
    /// All that was not read yet.
    pub(super) input: &'t [u8],
    /// The unread bytes of the other side.
    pub(super) peer: &'t [u8],
}

/// The result of one step with a [`DialogueInput`]; an `R` says how to continue.
pub enum ReadStep<R> {
    /// Number of bytes that were read, and the reading of the rest.
    Used(usize, R),
    /// More bytes are needed.
    Wait(InputNeed, R),
    /// Number of bytes that were read; another dialogue starts after them.
    HandsOver(usize, ProtocolSwitch),
}

impl<R> ReadStep<R> {
    /// The same with another way to read on.
    pub(super) fn map<T>(self, then: impl FnOnce(R) -> T) -> ReadStep<T> {
        match self {
            Self::Used(count, reading) => ReadStep::Used(count, then(reading)),
            Self::Wait(need, reading) => ReadStep::Wait(need, then(reading)),
            Self::HandsOver(count, handover) => ReadStep::HandsOver(count, handover),
        }
    }
}

/// Why nothing more of a side is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadReason {
    /// Both ends have spoken, and neither said anything that is known.
    Unknown,
    /// The other end speaks HTTP, and what this one said is neither a message nor an identification.
    BesideHttp,
    /// It was greeted with, or followed a greeting, as far as that is read.
    BehindGreeting,
    /// It looked like a message of HTTP.
    NotHttp(ParseRejection),
    /// It looked like an SSH identification.
    NotSsh,
}

/// The client's request for an upgrade, until the server answers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestedUpgrade {
    #[default]
    Nothing,
    /// A tunnel, by `CONNECT`.
    Tunnel,
    /// Another protocol on the same connection, by a command.
    Upgrade,
}

/// The side that switches to another protocol, and the side that announced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolSwitch {
    /// One side has said all that it says to a SOCKS server, or as one.
    Relayed,
    /// A load balancer has said whose bytes follow.
    Proxied,
    /// The client asks.
    Asked(RequestedUpgrade),
    /// The server grants what was asked for, whether that was seen or not.
    Granted,
}
