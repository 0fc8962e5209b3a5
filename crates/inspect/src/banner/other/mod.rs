//! Names for what bannerwall does not read: a protocol told by the first octets of either side.
//!
//! One row of [`table::TABLE`] a protocol, each with what a client and a server begin with. A signature
//! takes octets for its protocol's only where the specification leaves little else that they could be;
//! what no row knows stays *unknown*. The answer depends on the octets alone, never on how they came.

mod databases;
mod start;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use self::start::{Miss, Start};
use self::table::TABLE;
use crate::banner::ssh;
use crate::terms::Side;

/// Octets of either side that are looked at.
pub const FIRST_OCTETS: usize = 256;

/// What a protocol is called that no row knows.
pub const UNKNOWN: &str = "unknown";

/// A protocol of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(u8);

/// What one side's first octets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Too few octets to tell.
    More,
    /// This.
    Named(Name),
    /// Nothing of the table, whatever follows.
    Unknown,
}

/// Whether first octets are those of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// They are not, whatever follows.
    No,
    /// They may be.
    More,
    /// They are.
    Yes,
}

/// The first octets of one side of a flow that speaks nothing that bannerwall reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherBanner<'a> {
    /// Who sent them.
    pub from: Side,
    /// What they are, where that is known.
    pub name: Option<Name>,
    /// At most [`FIRST_OCTETS`] of them.
    pub first: &'a [u8],
}

impl<'a> OtherBanner<'a> {
    /// What `from` said first, of which there will be no more.
    pub fn settled(from: Side, octets: &'a [u8]) -> Self {
        let first = octets.get(..FIRST_OCTETS).unwrap_or(octets);
        Self { from, name: settle(from, first), first }
    }

    /// The name in rules and events.
    pub fn name(&self) -> &'static str {
        self.name.map_or(UNKNOWN, Name::name)
    }

    /// The first line, as far as it is there.
    pub fn line(&self) -> &'a [u8] {
        let line = self.first.split(|octet| *octet == b'\n').next().unwrap_or_default();
        line.strip_suffix(b"\r").unwrap_or(line)
    }
}

impl Name {
    /// What begins like TLS, whether or not it could be read.
    pub const TLS: Self = Self(0);

    /// All of them, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).take(TABLE.len()).map(Self)
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|known| known.name() == name)
    }

    /// The name in rules, policies and events.
    pub fn name(self) -> &'static str {
        self.row().map_or(UNKNOWN, |row| row.name)
    }

    /// True if it is known what `side` begins with.
    pub fn is_told_by(self, side: Side) -> bool {
        self.row().is_some_and(|row| row.signature(side).is_some())
    }

    /// Whether `octets` are what `side` begins with.
    pub fn fit(self, side: Side, octets: &[u8]) -> Fit {
        let octets = octets.get(..FIRST_OCTETS).unwrap_or(octets);
        match self.row().and_then(|row| row.signature(side)) {
            None => Fit::No,
            Some(signature) => match signature(&mut Start::new(octets)) {
                Ok(()) => Fit::Yes,
                Err(Miss::More) if octets.len() < FIRST_OCTETS => Fit::More,
                Err(_) => Fit::No,
            },
        }
    }

    fn row(self) -> Option<&'static table::Row> {
        TABLE.get(usize::from(self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What `from` speaks, by its first octets.
///
/// A row has a say once those before it are out: rows that know more of a protocol stand first.
pub fn name(from: Side, octets: &[u8]) -> Naming {
    // What most flows of a guarded port say need not be held against every row: none begins like it.
    if octets.starts_with(ssh::PREFIX) {
        return Naming::Unknown;
    }
    for known in Name::all().filter(|known| known.is_told_by(from)) {
        match known.fit(from, octets) {
            Fit::No => {}
            Fit::More => return Naming::More,
            Fit::Yes => return Naming::Named(known),
        }
    }
    Naming::Unknown
}

/// What `from` speaks, where no more octets will come.
pub fn settle(from: Side, octets: &[u8]) -> Option<Name> {
    Name::all().find(|known| known.is_told_by(from) && known.fit(from, octets) == Fit::Yes)
}
