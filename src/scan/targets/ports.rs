//! Ports of every target.

use std::fmt;
use std::sync::LazyLock;

use super::intervals::RangeSet;
use super::spec;

/// Usual TCP ports of servers, the most usual first.
static USUAL: LazyLock<Vec<u16>> = LazyLock::new(|| {
    let lines = include_str!("top_ports.txt").lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).filter_map(|port| port.parse().ok()).collect()
});

/// Set of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSet(pub(super) RangeSet<u16>);

impl PortSet {
    /// Returns the most usual ports of servers; `text` is their number.
    ///
    /// # Errors
    ///
    /// It is no number, or there are not so many ports in the list.
    pub fn most_usual(text: &str) -> Result<Self, String> {
        let ports = text.parse().ok().filter(|count| *count > 0).and_then(|count| USUAL.get(..count));
        let named = ports.map(|ports| Self::from_iter(ports.iter().copied()));
        named.ok_or_else(|| {
            format!("must be a number from 1 to {}; `-p -` asks at all 65535 ports", USUAL.len())
        })
    }

    /// Returns the ports that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.without(&other.0))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_usual_ports_are_the_first_of_a_list_without_repetitions() {
        let unique: std::collections::HashSet<&u16> = USUAL.iter().collect();
        assert_eq!((unique.len(), USUAL.len()), (1000, 1000));
        assert!(!unique.contains(&0));
        let words = include_str!("top_ports.txt").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(words.flat_map(str::split_whitespace).count(), 1000, "each word is a port");
        assert_eq!(PortSet::most_usual("3"), "22,80,443".parse());
        assert_eq!(PortSet::most_usual("1000").map(|ports| ports.count()), Ok(1000));
        assert!(["0", "1001", "-1", "", "ten"].iter().all(|text| PortSet::most_usual(text).is_err()));
        let ports: PortSet = "1-9".parse().expect("ports");
        assert_eq!("1-9,12".parse::<PortSet>().map(|all| all.without(&ports)), "12".parse());
        assert_eq!("-".parse::<PortSet>().map(|ports| ports.count()), Ok(65535));
    }
}
