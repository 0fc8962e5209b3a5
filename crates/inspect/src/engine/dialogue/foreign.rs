//! What is none of the protocols that are read here: the one place where that is decided.

use super::{Dialogue, Reading};
use crate::banner::Reason;
use crate::event::Side;

/// Why nothing more of a side is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    /// Both ends have spoken, and neither said anything that is known.
    Unknown,
    /// The other end speaks HTTP, and what this one said is neither a message nor an identification.
    BesideHttp,
    /// It was greeted with, or followed a greeting, as far as that is read.
    BehindGreeting,
    /// It looked like a message of HTTP.
    NotHttp(Reason),
    /// It looked like an SSH identification.
    NotSsh,
}

impl Dialogue {
    /// What is left of a side that speaks nothing that is read here.
    ///
    /// Whoever wants to name such a protocol, or to stop it, does so here: every direction comes by once,
    /// with its reason, when that is certain and not before.
    pub(super) const fn foreign(&mut self, _from: Side, why: Foreign) -> Reading {
        Reading::Foreign(why)
    }
}
