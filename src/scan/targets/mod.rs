//! Targets of a scan: addresses and names, without exclusions, times ports.
//!
//! All sets are sorted lists of ranges, so a /8 costs no more than an address. This module parses the user's
//! words and resolves names. Other modules decide the order and the rate.

mod feed;
mod intervals;
mod ports;
mod reserved;
mod resolve;
mod scanner_results;
mod set;
mod spec;

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use intervals::{IndexedRanges, RangeSet};
use reserved::ReservedRange;
use scanner_results::ResultsParser;
use spec::TargetSpec;

pub use feed::{FeedSnapshot, FinishedTarget, Shard, TargetCounts, TargetPlan, TargetTracker};
#[cfg(test)]
pub use feed::{ShortageCounts, TargetFeed};
pub use ports::PortSet;
pub use set::TargetSet;

/// Limit of targets in one scan: 2^62.
const MOST: u64 = 1 << 62;

/// Error of reading targets.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Invalid word.
    #[error("{place}: `{}`: {reason}", word.escape_debug())]
    Word {
        /// Place of the word.
        place: TargetOrigin,
        /// Word.
        word: String,
        /// Reason.
        reason: String,
    },
    /// A file could not be read.
    #[error("{flag} {file}: {error}")]
    File {
        /// Flag that named it.
        flag: &'static str,
        /// Path of the file.
        file: String,
        /// Error of the system.
        error: std::io::Error,
    },
    /// Neither the target nor the command has a port.
    #[error("a target has no port: pass --ports, or targets as host:port")]
    NoPorts,
    /// More targets than a scan can number.
    #[error("more than 2^62 targets: pass a smaller network")]
    TooMany,
}

/// Place of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetOrigin {
    /// Flag or argument on the command line.
    Flag(&'static str),
    /// Line of a file: the flag that named it, its path and the line, counted from 1.
    Line(&'static str, String, usize),
}

impl fmt::Display for TargetOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Line(flag, file, line) => write!(f, "{flag} {file}, line {line}"),
        }
    }
}

/// Returns the first and last address of a word; none for a host name.
///
/// # Errors
///
/// The word is not a valid target.
pub fn addresses(word: &str) -> Result<Option<(IpAddr, IpAddr)>, String> {
    Ok(match spec::parse(word)? {
        TargetSpec::V4(first, last) => {
            Some((Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(last).into()))
        }
        TargetSpec::V6(first, last) => {
            Some((Ipv6Addr::from_bits(first).into(), Ipv6Addr::from_bits(last).into()))
        }
        TargetSpec::Name(_) => None,
    })
}

/// Collects words into a [`TargetSet`].
#[derive(Debug, Default)]
pub struct TargetSetBuilder {
    wanted: ParsedTargets,
    excluded: ParsedTargets,
    /// Targets with their own ports.
    endpoints: Vec<NamedEndpoint>,
    /// Names to resolve, in the given order.
    names: Vec<NamedHost>,
    unresolved: Vec<String>,
    /// Number of unresolved names with their own ports.
    unresolved_endpoints: u128,
}

/// Address with its port, and the name that resolved to it.
pub type NamedEndpoint = (SocketAddr, Option<Arc<str>>);

/// Host name and its place.
#[derive(Debug)]
struct NamedHost {
    place: TargetOrigin,
    name: String,
    port: Option<u16>,
    exclude: bool,
}

/// Parsed words, with resolved names.
#[derive(Debug, Default)]
struct ParsedTargets {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    named: Vec<(IpAddr, Arc<str>)>,
}

/// Options of a target set.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetOptions {
    /// True to keep reserved and multicast addresses.
    pub include_reserved: bool,
    /// True to probe an address once for each of its names, since the name is part of the request.
    pub ask_each_name: bool,
}

impl TargetSetBuilder {
    /// Adds a target from the command line.
    ///
    /// # Errors
    ///
    /// The word is invalid.
    pub fn target(&mut self, word: &str) -> Result<(), TargetError> {
        self.add(word, TargetOrigin::Flag("TARGET"), false)
    }

    /// Adds an exclusion from the command line.
    ///
    /// # Errors
    ///
    /// The word is invalid.
    pub fn exclude(&mut self, word: &str) -> Result<(), TargetError> {
        self.add(word, TargetOrigin::Flag("--exclude"), true)
    }

    /// Adds the targets in a file or, for `-`, on standard input.
    ///
    /// # Errors
    ///
    /// The file is unreadable or has an invalid word.
    pub fn target_file(&mut self, file: &str) -> Result<(), TargetError> {
        self.file("-i", file, false)
    }

    /// Adds the exclusions in a file.
    ///
    /// # Errors
    ///
    /// The file is unreadable or has an invalid word.
    pub fn exclude_file(&mut self, file: &str) -> Result<(), TargetError> {
        self.file("--exclude-file", file, true)
    }

    /// Adds an address with the name that resolved to it.
    pub fn named_target(&mut self, address: IpAddr, name: &str) {
        self.wanted.named.push((address, name.into()));
    }

    /// Adds an address with its own port, and the name that resolved to it.
    pub fn endpoint(&mut self, address: SocketAddr, name: Option<&str>) {
        self.endpoints.push((address, name.map(Arc::from)));
    }

    /// Resolves all names, many at once.
    ///
    /// # Errors
    ///
    /// A name in an exclusion has no address: ignoring it would probe the host.
    pub fn resolve(&mut self) -> Result<(), TargetError> {
        let names = std::mem::take(&mut self.names);
        let looked_up = resolve::all(names.iter().map(|name| name.name.as_str()));
        for (NamedHost { place, name, port, exclude }, addresses) in names.into_iter().zip(looked_up) {
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

    /// Returns names without an address, with the resolver's errors.
    pub fn unresolved(&self) -> &[String] {
        &self.unresolved
    }

    /// Builds the set of all targets.
    ///
    /// # Errors
    ///
    /// The set is too large, or as [`TargetSetBuilder::resolve`], if that was not called.
    pub fn build(mut self, ports: &PortSet, options: SetOptions) -> Result<TargetSet, TargetError> {
        self.resolve()?;
        let named = self.named(options.ask_each_name);
        // An address with a name is probed with the name, and not once more without.
        let (mut taken_v4, mut taken_v6) = (Vec::new(), Vec::new());
        for (address, _) in &named {
            match address {
                IpAddr::V4(address) => taken_v4.push((address.to_bits(), address.to_bits())),
                IpAddr::V6(address) => taken_v6.push((address.to_bits(), address.to_bits())),
            }
        }
        let v4 = FamilyFilter::new(self.wanted.v4, &taken_v4, self.excluded.v4, &reserved::V4);
        let v6 = FamilyFilter::new(self.wanted.v6, &taken_v6, self.excluded.v6, &reserved::V6);
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
            v4: IndexedRanges::new(v4).ok_or(TargetError::TooMany)?,
            v6: IndexedRanges::new(v6).ok_or(TargetError::TooMany)?,
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

    /// Returns the named targets without duplicates, in the given order.
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
        let mut results = ResultsParser::default();
        for (number, line) in text.lines().enumerate() {
            let place = || TargetOrigin::Line(flag, file.to_owned(), number + 1);
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

    fn add(&mut self, word: &str, place: TargetOrigin, exclude: bool) -> Result<(), TargetError> {
        let words = if exclude { &mut self.excluded } else { &mut self.wanted };
        let read =
            if exclude { spec::parse(word).map(|spec| (spec, None)) } else { spec::parse_endpoint(word) };
        match read {
            Ok((TargetSpec::V4(address, _), Some(port))) => {
                self.endpoints.push(((Ipv4Addr::from_bits(address), port).into(), None));
            }
            Ok((TargetSpec::V6(address, _), Some(port))) => {
                self.endpoints.push(((Ipv6Addr::from_bits(address), port).into(), None));
            }
            Ok((TargetSpec::V4(first, last), None)) => words.v4.push((first, last)),
            Ok((TargetSpec::V6(first, last), None)) => words.v6.push((first, last)),
            Ok((TargetSpec::Name(name), port)) => self.names.push(NamedHost { place, name, port, exclude }),
            Err(reason) => return Err(TargetError::Word { place, word: word.to_owned(), reason }),
        }
        Ok(())
    }
}

impl ParsedTargets {
    fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.v4.push((address.to_bits(), address.to_bits())),
            IpAddr::V6(address) => self.v6.push((address.to_bits(), address.to_bits())),
        }
    }
}

/// One address family, from requested to allowed addresses.
struct FamilyFilter<N: 'static> {
    wanted: RangeSet<N>,
    excluded: RangeSet<N>,
    table: &'static [ReservedRange<N>],
}

impl<N: intervals::RangeNumber> FamilyFilter<N> {
    fn new(
        wanted: Vec<(N, N)>,
        named: &[(N, N)],
        excluded: Vec<(N, N)>,
        table: &'static [ReservedRange<N>],
    ) -> Self {
        let wanted = RangeSet::new(wanted).without(&RangeSet::new(named.to_vec()));
        Self { wanted, excluded: RangeSet::new(excluded), table }
    }

    fn passes(&self, address: N, include_reserved: bool) -> bool {
        let reserved = !include_reserved && reserved::set(self.table).contains(address);
        !reserved && !self.excluded.contains(address)
    }

    /// Returns the excluded part of the reserved ranges, and the remaining addresses.
    fn finish(self, include_reserved: bool, show: fn(N, N) -> String) -> (Vec<SkippedReserved>, RangeSet<N>) {
        let allowed = self.wanted.without(&self.excluded);
        if include_reserved {
            return (Vec::new(), allowed);
        }
        let left_out = self.table.iter().filter_map(|reserved| {
            let hit = allowed.intersection(&RangeSet::new(vec![(reserved.first, reserved.last)]));
            let (first, last) = (hit.ranges().first()?.0, hit.ranges().last()?.1);
            Some(SkippedReserved { addresses: hit.count(), what: show(first, last), range: reserved.name })
        });
        (left_out.collect(), allowed.without(&reserved::set(self.table)))
    }
}

/// Reserved addresses among the targets, which are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedReserved {
    /// Number of addresses.
    pub addresses: u128,
    /// Range of addresses.
    pub what: String,
    /// Reserved range that contains them.
    pub range: &'static str,
}

/// Numbers of named targets that are skipped. A name without an address counts once for each port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SkippedTargets {
    /// Excluded by the user.
    pub excluded: u128,
    /// Excluded as reserved.
    pub reserved: u128,
    /// Names without an address.
    pub unresolved: u128,
}

/// Formats a range as a word.
fn word(first: IpAddr, last: IpAddr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests;
