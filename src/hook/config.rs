//! Options of a hook, parsed once; the code below does not check them again.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::MarkField;
#[cfg(doc)]
use super::MarkState;

/// Options of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookConfig {
    /// Chains with a jump, without duplicates.
    pub chains: Vec<BaseChain>,
    /// Source or destination ports of TCP packets to queue; all if absent.
    pub ports: Option<PortList>,
    /// Source or destination ports of UDP packets to queue; no UDP if absent.
    pub udp: Option<PortList>,
    /// Queues that share the packets.
    pub queues: QueueRange,
    /// Let packets pass while no guard listens (`--on-failure open`).
    pub bypass: bool,
    /// The two bits of the packet and connection mark.
    pub mark: MarkField,
    /// Let the bodies of released flows pass ([`MarkState::RELEASED`]). The kernel needs the matches `bpf`
    /// and `conntrack` for that.
    pub releases: bool,
}

impl HookConfig {
    /// True if a hook with `other`'s options has the same effect, perhaps more slowly.
    pub(super) fn is_served_by(&self, other: &Self) -> bool {
        *self == Self { releases: self.releases, ..other.clone() }
    }
}

/// Every chain, every port, queue 0, open on failure. The guard recognizes protocols by their bytes, so it
/// should see all traffic, and decided flows cost almost nothing.
impl Default for HookConfig {
    fn default() -> Self {
        Self {
            chains: BaseChain::ALL.to_vec(),
            ports: None,
            udp: None,
            queues: QueueRange::default(),
            bypass: true,
            mark: MarkField::default(),
            releases: true,
        }
    }
}

/// Base chain of the kernel that can lead to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BaseChain {
    /// Packets for this machine.
    Input,
    /// Packets that this machine sends.
    Output,
    /// Packets that this machine routes.
    Forward,
}

impl BaseChain {
    /// All chains.
    pub const ALL: [Self; 3] = [Self::Input, Self::Output, Self::Forward];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Forward => "forward",
        }
    }

    /// Returns the base chain's name in iptables.
    pub(super) const fn base(self) -> &'static str {
        match self {
            Self::Input => "INPUT",
            Self::Output => "OUTPUT",
            Self::Forward => "FORWARD",
        }
    }
}

impl FromStr for BaseChain {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|chain| chain.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| ConfigError::Chain(text.to_owned()))
    }
}

/// Limit of queues of one guard: each has a thread with its own buffers, and machines have fewer cores.
pub const MOST_QUEUES: u16 = 256;

/// Range of queue numbers, with one worker each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct QueueRange {
    /// First number.
    pub first: u16,
    /// Last number, not below the first.
    pub last: u16,
}

impl QueueRange {
    /// Returns the numbers in order.
    pub fn numbers(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl FromStr for QueueRange {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ConfigError::Queues(text.to_owned());
        let number = |part: &str| part.parse::<u16>().map_err(|_| wrong());
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let queues = Self { first: number(first)?, last: number(last)? };
        match queues.last.checked_sub(queues.first) {
            None => Err(wrong()),
            Some(more) if more >= MOST_QUEUES => Err(ConfigError::TooManyQueues(text.to_owned())),
            Some(_) => Ok(queues),
        }
    }
}

impl fmt::Display for QueueRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(formatter, "{}", self.first)
        } else {
            write!(formatter, "{}:{}", self.first, self.last)
        }
    }
}

/// List of TCP ports and ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortList(Vec<RangeInclusive<u16>>);

impl PortList {
    /// Returns the ranges in the given order; a single port is a range of one.
    pub fn ranges(&self) -> &[RangeInclusive<u16>] {
        &self.0
    }
}

impl FromStr for PortList {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = |part: &str| {
            let wrong = || ConfigError::Ports(part.to_owned());
            // Port 0 is reserved and never used.
            let number =
                |digits: &str| digits.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
            let (start, end) = part.split_once(['-', ':']).unwrap_or((part, part));
            let range = number(start)?..=number(end)?;
            if range.is_empty() { Err(wrong()) } else { Ok(range) }
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for PortList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            if range.start() == range.end() {
                write!(formatter, "{separator}{}", range.start())?;
            } else {
                write!(formatter, "{separator}{}-{}", range.start(), range.end())?;
            }
        }
        Ok(())
    }
}

/// Error of parsing an option of a hook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Unknown chain.
    #[error("`{0}` is not a chain: use input, output or forward")]
    Chain(String),
    /// Invalid queue number or range.
    #[error("`{0}` is not a queue: use a number from 0 to 65535 or a range A:B of them, A not above B")]
    Queues(String),
    /// Too many queues.
    #[error("`{0}` has more than {MOST_QUEUES} queues: use a smaller range")]
    TooManyQueues(String),
    /// Invalid port or range.
    #[error("`{0}` is not a port: use a number from 1 to 65535 or a range A-B of them, A not above B")]
    Ports(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_a_number_or_a_range() {
        assert_eq!("7".parse(), Ok(QueueRange { first: 7, last: 7 }));
        assert_eq!("65280:65535".parse(), Ok(QueueRange { first: 65280, last: 65535 }));
        let wide = "0:256".to_owned();
        assert_eq!(wide.parse::<QueueRange>(), Err(ConfigError::TooManyQueues(wide)));
        for wrong in ["", "x", "3:2", "1:", ":1", "65536", "-1", "1-2"] {
            assert_eq!(wrong.parse::<QueueRange>(), Err(ConfigError::Queues(wrong.to_owned())));
        }
    }

    #[test]
    fn ports_are_a_list_of_numbers_and_ranges() {
        let ports: PortList = "22,80,8000-8010".parse().expect("ports");
        assert_eq!(ports.ranges(), [22..=22, 80..=80, 8000..=8010]);
        assert_eq!(ports.to_string(), "22,80,8000-8010");
        assert_eq!("8000:8010".parse::<PortList>().expect("colon").to_string(), "8000-8010");
        for wrong in ["", "22,", "ssh", "10-9", "70000", "0", "443,0", "0-1023"] {
            assert!(wrong.parse::<PortList>().is_err(), "{wrong}");
        }
    }
}
