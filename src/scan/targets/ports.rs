//! Ports of every target.

use std::fmt;

use super::intervals::RangeSet;
use super::spec;

/// Set of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSet(pub(super) RangeSet<u16>);

impl PortSet {
    /// Returns the number of ports.
    pub fn count(&self) -> usize {
        usize::try_from(self.0.count()).unwrap_or(usize::MAX)
    }
}

impl std::str::FromStr for PortSet {
    type Err = String;

    /// Parses `22,80,8000-8010`.
    fn from_str(text: &str) -> Result<Self, String> {
        spec::ports(text).map(Self)
    }
}

impl FromIterator<u16> for PortSet {
    fn from_iter<I: IntoIterator<Item = u16>>(ports: I) -> Self {
        Self(RangeSet::new(ports.into_iter().map(|port| (port, port)).collect()))
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.ranges().iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}
