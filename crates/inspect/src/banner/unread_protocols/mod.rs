//! Names of protocols that bannerwall does not read, by the first bytes of either side.
//!
//! [`signatures::TABLE`] has one row for each protocol, with the first bytes of a client and a server. A
//! signature accepts bytes only if the specification leaves little else that they could be. A protocol
//! without a row stays *unknown*. The result depends on the bytes alone, never on how they were split.

mod database_signatures;
mod signatures;
#[cfg(test)]
mod tests;

use std::fmt;

use self::signatures::TABLE;
use super::first_bytes_cursor::{FirstBytesCursor, FirstBytesMiss};
use crate::banner::ssh;
use crate::terms::Side;

/// Number of bytes of either side that are inspected.
pub const FIRST_OCTETS: usize = 256;

/// Name of a protocol without a row.
pub const UNKNOWN: &str = "unknown";

/// A protocol of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OtherProtocol(u8);

/// Result for one side's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolNaming {
    /// Too few bytes to decide.
    More,
    /// This protocol.
    Named(OtherProtocol),
    /// No protocol of the table, whatever follows.
    Unknown,
}

/// Result of comparing first bytes with one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureFit {
    /// They differ, whatever follows.
    No,
    /// They may fit.
    More,
    /// They fit.
    Yes,
}

/// The first bytes of one side of a flow whose protocol is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherBanner<'a> {
    /// The side that sent them.
    pub from: Side,
    /// Name of the protocol, if it is known.
    pub name: Option<OtherProtocol>,
    /// At most [`FIRST_OCTETS`] of them.
    pub first: &'a [u8],
}

impl<'a> OtherBanner<'a> {
    /// Returns the final result for the first bytes of `from`, which are complete.
    pub fn settled(from: Side, octets: &'a [u8]) -> Self {
        let first = octets.get(..FIRST_OCTETS).unwrap_or(octets);
        Self { from, name: settle(from, first), first }
    }

    /// The name in rules and events.
    pub fn name(&self) -> &'static str {
        self.name.map_or(UNKNOWN, OtherProtocol::name)
    }

    /// The first line, as far as it is known.
    pub fn line(&self) -> &'a [u8] {
        let line = self.first.split(|octet| *octet == b'\n').next().unwrap_or_default();
        line.strip_suffix(b"\r").unwrap_or(line)
    }
}

impl OtherProtocol {
    /// TLS, whether or not it could be read.
    pub const TLS: Self = Self(0);

    /// All of them, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).take(TABLE.len()).map(Self)
    }

    /// Returns the protocol of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|known| known.name() == name)
    }

    /// The name in rules, policies and events.
    pub fn name(self) -> &'static str {
        self.row().map_or(UNKNOWN, |row| row.name)
    }

    /// True if the table has a signature for `side`.
    pub fn is_told_by(self, side: Side) -> bool {
        self.row().is_some_and(|row| row.signature(side).is_some())
    }

    /// Compares `octets` with the first bytes of `side`.
    pub fn fit(self, side: Side, octets: &[u8]) -> SignatureFit {
        let octets = octets.get(..FIRST_OCTETS).unwrap_or(octets);
        match self.row().and_then(|row| row.signature(side)) {
            None => SignatureFit::No,
            Some(signature) => match signature(&mut FirstBytesCursor::new(octets)) {
                Ok(()) => SignatureFit::Yes,
                Err(FirstBytesMiss::More) if octets.len() < FIRST_OCTETS => SignatureFit::More,
                Err(_) => SignatureFit::No,
            },
        }
    }

    fn row(self) -> Option<&'static signatures::SignatureRow> {
        TABLE.get(usize::from(self.0))
    }
}

impl fmt::Debug for OtherProtocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Returns the protocol of `from`, by its first bytes.
///
/// A row counts only once all rows before it are excluded: more specific rows come first.
pub fn name(from: Side, octets: &[u8]) -> ProtocolNaming {
    // Most flows of a guarded port begin like this, and no row does: skip the table.
    if octets.starts_with(ssh::PREFIX) {
        return ProtocolNaming::Unknown;
    }
    for known in OtherProtocol::all().filter(|known| known.is_told_by(from)) {
        match known.fit(from, octets) {
            SignatureFit::No => {}
            SignatureFit::More => return ProtocolNaming::More,
            SignatureFit::Yes => return ProtocolNaming::Named(known),
        }
    }
    ProtocolNaming::Unknown
}

/// Returns the protocol of `from`, given that no more bytes will come.
pub fn settle(from: Side, octets: &[u8]) -> Option<OtherProtocol> {
    OtherProtocol::all().find(|known| known.is_told_by(from) && known.fit(from, octets) == SignatureFit::Yes)
}
