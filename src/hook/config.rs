//! The options of a hook, parsed once; nothing below checks them again.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::MarkField;
#[cfg(doc)]
use super::MarkState;

/// What to hook, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookConfig {
    /// The chains that lead to the queue, without duplicates.
    pub chains: Vec<Chain>,
    /// Only TCP packets with one of these as source or destination port; all where absent.
    pub ports: Option<Ports>,
    /// UDP packets with one of these as source or destination port; no UDP where absent.
    pub udp: Option<Ports>,
    /// The queues that packets are balanced over.
    pub queues: Queues,
    /// Let packets pass while nobody listens on the queue (`--on-failure open`).
    pub bypass: bool,
    /// Our two bits of packet and connection mark.
    pub mark: MarkField,
    /// Let the bodies of released flows by ([`MarkState::RELEASED`]), for which the kernel needs the matches
    /// `bpf` and `conntrack`.
    pub releases: bool,
}

impl HookConfig {
    /// True if a hook with `other`'s options does what one with these does, if perhaps more slowly.
    pub(super) fn is_served_by(&self, other: &Self) -> bool {
        *self == Self { releases: self.releases, ..other.clone() }
    }
}

/// Every chain, every port, queue 0, open on failure: an inspector that recognises protocols by
/// their bytes is of most use where it sees all, and decided flows cost next to nothing.
impl Default for HookConfig {
    fn default() -> Self {
        Self {
            chains: Chain::ALL.to_vec(),
            ports: None,
            udp: None,
            queues: Queues::default(),
            bypass: true,
            mark: MarkField::default(),
            releases: true,
        }
    }
}

/// A base chain of the kernel that can lead to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chain {
    /// Packets for this machine.
    Input,
    /// Packets that this machine sends.
    Output,
    /// Packets that this machine routes.
    Forward,
}

impl Chain {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Input, Self::Output, Self::Forward];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Forward => "forward",
        }
    }

    /// The base chain's name in iptables.
    pub(super) const fn base(self) -> &'static str {
        match self {
            Self::Input => "INPUT",
            Self::Output => "OUTPUT",
            Self::Forward => "FORWARD",
        }
    }
}

impl FromStr for Chain {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|chain| chain.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| ConfigError::Chain(text.to_owned()))
    }
}

/// The most queues of one guard: each has a thread with buffers of its own, and machines have fewer cores.
pub const MOST_QUEUES: u16 = 256;

/// Neighbouring queue numbers, one worker each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Queues {
    /// The first number.
    pub first: u16,
    /// The last number, not below the first.
    pub last: u16,
}

impl Queues {
    /// The numbers in order.
    pub fn numbers(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl FromStr for Queues {
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

impl fmt::Display for Queues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(formatter, "{}", self.first)
        } else {
            write!(formatter, "{}:{}", self.first, self.last)
        }
    }
}

/// A list of TCP ports and ranges of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(Vec<RangeInclusive<u16>>);

impl Ports {
    /// Single ports (as ranges of one) and ranges, in the order given.
    pub fn ranges(&self) -> &[RangeInclusive<u16>] {
        &self.0
    }
}

impl FromStr for Ports {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = |part: &str| {
            let wrong = || ConfigError::Ports(part.to_owned());
            // Nothing is sent from or to port 0.
            let number =
                |digits: &str| digits.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
            let (start, end) = part.split_once(['-', ':']).unwrap_or((part, part));
            let range = number(start)?..=number(end)?;
            if range.is_empty() { Err(wrong()) } else { Ok(range) }
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Ports {
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

/// Text that is no option of a hook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not the name of a chain.
    #[error("`{0}` is not a chain: use input, output or forward")]
    Chain(String),
    /// Neither a queue number nor a range of them.
    #[error("`{0}` is not a queue: use a number from 0 to 65535 or a range A:B of them, A not above B")]
    Queues(String),
    /// Not so many queues.
    #[error("`{0}` is more than {MOST_QUEUES} queues")]
    TooManyQueues(String),
    /// Neither a port nor a range of them.
    #[error("`{0}` is not a port: use a number from 1 to 65535 or a range A-B of them, A not above B")]
    Ports(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_a_number_or_a_range() {
        assert_eq!("7".parse(), Ok(Queues { first: 7, last: 7 }));
        assert_eq!("65280:65535".parse(), Ok(Queues { first: 65280, last: 65535 }));
        let wide = "0:256".to_owned();
        assert_eq!(wide.parse::<Queues>(), Err(ConfigError::TooManyQueues(wide)));
        for wrong in ["", "x", "3:2", "1:", ":1", "65536", "-1", "1-2"] {
            assert_eq!(wrong.parse::<Queues>(), Err(ConfigError::Queues(wrong.to_owned())));
        }
    }

    #[test]
    fn ports_are_a_list_of_numbers_and_ranges() {
        let ports: Ports = "22,80,8000-8010".parse().expect("ports");
        assert_eq!(ports.ranges(), [22..=22, 80..=80, 8000..=8010]);
        assert_eq!(ports.to_string(), "22,80,8000-8010");
        assert_eq!("8000:8010".parse::<Ports>().expect("colon").to_string(), "8000-8010");
        for wrong in ["", "22,", "ssh", "10-9", "70000", "0", "443,0", "0-1023"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
    }
}
