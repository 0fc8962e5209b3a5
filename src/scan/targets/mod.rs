//! What a scan asks: addresses and names, less what is excluded, times ports.
//!
//! Everything is a sorted list of ranges, so that a /8 costs no more than an address. This module
//! reads what users write and looks names up; the order and the pace are others' concern.

mod feed;
mod intervals;
mod ports;
mod reserved;
mod resolve;
mod results;
mod set;
mod spec;

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use intervals::{Indexed, Intervals};
use reserved::Reserved;
use results::Results;
use spec::Spec;

pub use feed::{Counts, Finished, Plan, Shard, Snapshot, Tracker};
#[cfg(test)]
pub use feed::{Feed, Shortages};
pub use ports::Ports;
pub use set::TargetSet;

/// The most targets that one scan can have: 2^62.
const MOST: u64 = 1 << 62;

/// Why targets could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A word is none.
    #[error("{place}: `{}`: {reason}", word.escape_debug())]
    Word {
        /// Where it stood.
        place: Place,
        /// The word.
        word: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read.
    #[error("{flag} {file}: {error}")]
    File {
        /// The flag that named it.
        flag: &'static str,
        /// Its name.
        file: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A target names no port, and neither does the command.
    #[error("a target names no port: give --ports, or targets as host:port")]
    NoPorts,
    /// More than can be counted.
    #[error("more than 2^62 targets: a network of that size cannot be scanned whole")]
    TooMany,
}

/// Where a word stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On the command line: the flag or argument.
    Flag(&'static str),
    /// In a file: the flag that named it, its name and the line, counted from 1.
    Line(&'static str, String, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Line(flag, file, line) => write!(f, "{flag} {file}, line {line}"),
        }
    }
}

/// The first and the last address that a word names; none where it is a host's name.
///
/// # Errors
/// It is none that a scan takes.
pub fn addresses(word: &str) -> Result<Option<(IpAddr, IpAddr)>, String> {
    Ok(match spec::parse(word)? {
        Spec::V4(first, last) => Some((Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(last).into())),
        Spec::V6(first, last) => Some((Ipv6Addr::from_bits(first).into(), Ipv6Addr::from_bits(last).into())),
        Spec::Name(_) => None,
    })
}

/// Gathers words into a [`TargetSet`].
#[derive(Debug, Default)]
pub struct Builder {
    wanted: Words,
    excluded: Words,
    /// Targets with a port of their own.
    endpoints: Vec<NamedEndpoint>,
    /// Names to look up, in the order they were given.
    names: Vec<Name>,
    unresolved: Vec<String>,
    /// How many of those have a port of their own.
    unresolved_endpoints: u128,
}

/// An address with its port, and the name that it was found by.
pub type NamedEndpoint = (SocketAddr, Option<Arc<str>>);

/// A host name and where it stood.
#[derive(Debug)]
struct Name {
    place: Place,
    name: String,
    port: Option<u16>,
    exclude: bool,
}

/// What words name, names looked up.
#[derive(Debug, Default)]
struct Words {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    named: Vec<(IpAddr, Arc<str>)>,
}

/// How a set is made of what was gathered.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetOptions {
    /// Keep reserved and multicast addresses.
    pub include_reserved: bool,
    /// Ask an address once for each name that it has, since the name goes into the request.
    pub ask_each_name: bool,
}

impl Builder {
    /// Adds a target from the command line.
    ///
    /// # Errors
    /// The word is none.
    pub fn target(&mut self, word: &str) -> Result<(), TargetError> {
        self.add(word, Place::Flag("TARGET"), false)
    }

    /// Adds an exclusion from the command line.
    ///
    /// # Errors
    /// The word is none.
    pub fn exclude(&mut self, word: &str) -> Result<(), TargetError> {
        self.add(word, Place::Flag("--exclude"), true)
    }

    /// Adds the targets in a file or, for `-`, on standard input.
    ///
    /// # Errors
    /// The file cannot be read or holds a word that is no target.
    pub fn target_file(&mut self, file: &str) -> Result<(), TargetError> {
        self.file("-i", file, false)
    }

    /// Adds the exclusions in a file.
    ///
    /// # Errors
    /// The file cannot be read or holds a word that is no target.
    pub fn exclude_file(&mut self, file: &str) -> Result<(), TargetError> {
        self.file("--exclude-file", file, true)
    }

    /// Adds an address by the name that was found to have it.
    pub fn named_target(&mut self, address: IpAddr, name: &str) {
        self.wanted.named.push((address, name.into()));
    }

    /// Adds an address with a port of its own, by the name that was found to have it.
    pub fn endpoint(&mut self, address: SocketAddr, name: Option<&str>) {
        self.endpoints.push((address, name.map(Arc::from)));
    }

    /// Looks all names up, many at once.
    ///
    /// # Errors
    /// A name to exclude cannot be looked up: it must not be taken for nothing.
    pub fn resolve(&mut self) -> Result<(), TargetError> {
        let names = std::mem::take(&mut self.names);
        let looked_up = resolve::all(names.iter().map(|name| name.name.as_str()));
        for (Name { place, name, port, exclude }, addresses) in names.into_iter().zip(looked_up) {
            match addresses {
                Ok(addresses) if exclude => {
                    addresses.into_iter().for_each(|address| self.excluded.address(address));
                }
                Ok(addresses) => {
                    let host: Arc<str> = name.as_str().into();
                    for address in addresses {
                        match port {
                            Some(port) => {
                                self.endpoints
                                    .push((SocketAddr::new(address, port), Some(Arc::clone(&host))));
                            }
                            None => self.wanted.named.push((address, Arc::clone(&host))),
                        }
                    }
                }
                Err(reason) if exclude => return Err(TargetError::Word { place, word: name, reason }),
                Err(reason) => {
                    self.unresolved.push(format!("{place}: `{name}`: {reason}"));
                    self.unresolved_endpoints += u128::from(port.is_some());
                }
            }
        }
        Ok(())
    }

    /// Names that no address was found for, with what the resolver said.
    pub fn unresolved(&self) -> &[String] {
        &self.unresolved
    }

    /// The set of all that was gathered.
    ///
    /// # Errors
    /// It is too large, or as [`Builder::resolve`], where that was not called.
    pub fn build(mut self, ports: &Ports, options: SetOptions) -> Result<TargetSet, TargetError> {
        self.resolve()?;
        let named = self.named(options.ask_each_name);
        // A named address is asked by its name, not once more without.
        let (mut taken_v4, mut taken_v6) = (Vec::new(), Vec::new());
        for (address, _) in &named {
            match address {
                IpAddr::V4(address) => taken_v4.push((address.to_bits(), address.to_bits())),
                IpAddr::V6(address) => taken_v6.push((address.to_bits(), address.to_bits())),
            }
        }
        let v4 = Sieve::new(self.wanted.v4, &taken_v4, self.excluded.v4, &reserved::V4);
        let v6 = Sieve::new(self.wanted.v6, &taken_v6, self.excluded.v6, &reserved::V6);
        let unresolved = (self.unresolved.len() as u128).saturating_sub(self.unresolved_endpoints);
        let input = v4.wanted.count().saturating_add(v6.wanted.count());
        let input = input.saturating_add(named.len() as u128).saturating_add(unresolved);
        let passes = |address: IpAddr| match address {
            IpAddr::V4(address) => v4.passes(address.to_bits(), options.include_reserved),
            IpAddr::V6(address) => v6.passes(address.to_bits(), options.include_reserved),
        };
        let named: Vec<_> = named.into_iter().filter(|(address, _)| passes(*address)).collect();
        let (allowed, barred): (Vec<_>, Vec<_>) =
            self.endpoints.into_iter().partition(|(address, _)| passes(address.ip()));
        let (left_out, v4) = v4.finish(options.include_reserved, spec::show_v4);
        let (left_out_v6, v6) = v6.finish(options.include_reserved, spec::show_v6);
        let ports: Vec<u16> = ports.0.ranges().iter().flat_map(|(first, last)| *first..=*last).collect();
        if ports.is_empty() && input > 0 {
            return Err(TargetError::NoPorts);
        }
        let each = ports.len() as u128;
        let mut set = TargetSet {
            v4: Indexed::new(v4).ok_or(TargetError::TooMany)?,
            v6: Indexed::new(v6).ok_or(TargetError::TooMany)?,
            named,
            endpoints: Vec::new(),
            input: input.saturating_mul(each).saturating_add(self.unresolved_endpoints),
            unresolved: unresolved.saturating_mul(each).saturating_add(self.unresolved_endpoints),
            left_out: left_out.into_iter().chain(left_out_v6).collect(),
            ports,
        };
        set.endpoints = set.further(allowed, options.ask_each_name);
        let barred = set.further(barred, options.ask_each_name).len();
        set.input = set.input.saturating_add((set.endpoints.len() + barred) as u128);
        set.checked_len().filter(|count| *count <= MOST).ok_or(TargetError::TooMany)?;
        Ok(set)
    }

    /// The named targets without duplicates, in the order they were given.
    fn named(&mut self, ask_each_name: bool) -> Vec<(IpAddr, Arc<str>)> {
        let mut seen = HashSet::new();
        let mut named = std::mem::take(&mut self.wanted.named);
        named.retain(|(address, name)| seen.insert((*address, ask_each_name.then(|| Arc::clone(name)))));
        named
    }

    fn file(&mut self, flag: &'static str, file: &str, exclude: bool) -> Result<(), TargetError> {
        let failed = |error| TargetError::File { flag, file: file.to_owned(), error };
        let text = match file {
            "-" => std::io::read_to_string(std::io::stdin()).map_err(failed)?,
            _ => std::fs::read_to_string(file).map_err(failed)?,
        };
        let mut results = Results::default();
        for (number, line) in text.lines().enumerate() {
            let place = || Place::Line(flag, file.to_owned(), number + 1);
            if let Some(read) = results.read(line).filter(|_| !exclude) {
                let wrong = |reason| TargetError::Word { place: place(), word: line.to_owned(), reason };
                read.map_err(wrong)?.iter().try_for_each(|word| self.add(word, place(), false))?;
                continue;
            }
            let words = line.split('#').next().unwrap_or_default();
            for word in words.split([' ', '\t', ',', '\r']).filter(|word| !word.is_empty()) {
                self.add(word, place(), exclude)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, word: &str, place: Place, exclude: bool) -> Result<(), TargetError> {
        let words = if exclude { &mut self.excluded } else { &mut self.wanted };
        let read =
            if exclude { spec::parse(word).map(|spec| (spec, None)) } else { spec::parse_endpoint(word) };
        match read {
            Ok((Spec::V4(address, _), Some(port))) => {
                self.endpoints.push(((Ipv4Addr::from_bits(address), port).into(), None));
            }
            Ok((Spec::V6(address, _), Some(port))) => {
                self.endpoints.push(((Ipv6Addr::from_bits(address), port).into(), None));
            }
            Ok((Spec::V4(first, last), None)) => words.v4.push((first, last)),
            Ok((Spec::V6(first, last), None)) => words.v6.push((first, last)),
            Ok((Spec::Name(name), port)) => self.names.push(Name { place, name, port, exclude }),
            Err(reason) => return Err(TargetError::Word { place, word: word.to_owned(), reason }),
        }
        Ok(())
    }
}

impl Words {
    fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.v4.push((address.to_bits(), address.to_bits())),
            IpAddr::V6(address) => self.v6.push((address.to_bits(), address.to_bits())),
        }
    }
}

/// One address family on its way from what is wanted to what is asked.
struct Sieve<N: 'static> {
    wanted: Intervals<N>,
    excluded: Intervals<N>,
    table: &'static [Reserved<N>],
}

impl<N: intervals::Number> Sieve<N> {
    fn new(
        wanted: Vec<(N, N)>,
        named: &[(N, N)],
        excluded: Vec<(N, N)>,
        table: &'static [Reserved<N>],
    ) -> Self {
        let wanted = Intervals::new(wanted).without(&Intervals::new(named.to_vec()));
        Self { wanted, excluded: Intervals::new(excluded), table }
    }

    fn passes(&self, address: N, include_reserved: bool) -> bool {
        let reserved = !include_reserved && reserved::set(self.table).contains(address);
        !reserved && !self.excluded.contains(address)
    }

    /// What is left, and what of the reserved ranges was wanted but is left out.
    fn finish(self, include_reserved: bool, show: fn(N, N) -> String) -> (Vec<LeftOut>, Intervals<N>) {
        let allowed = self.wanted.without(&self.excluded);
        if include_reserved {
            return (Vec::new(), allowed);
        }
        let left_out = self.table.iter().filter_map(|reserved| {
            let hit = allowed.intersection(&Intervals::new(vec![(reserved.first, reserved.last)]));
            let (first, last) = (hit.ranges().first()?.0, hit.ranges().last()?.1);
            Some(LeftOut { addresses: hit.count(), what: show(first, last), range: reserved.name })
        });
        (left_out.collect(), allowed.without(&reserved::set(self.table)))
    }
}

/// Reserved addresses that were named as targets but aren't asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// How many.
    pub addresses: u128,
    /// From where to where.
    pub what: String,
    /// The reserved range that they are in.
    pub range: &'static str,
}

/// Targets that were named but are not asked. A name without an address counts as one target a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Skipped {
    /// By the user's exclusions.
    pub excluded: u128,
    /// In reserved ranges.
    pub reserved: u128,
    /// Names without an address.
    pub unresolved: u128,
}

/// A range, as a word.
fn word(first: IpAddr, last: IpAddr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests;
