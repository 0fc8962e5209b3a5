//! Terms that every module uses: times, sides of a connection, protocols, actions of rules.
//!
//! This module depends on no other: it knows no packet, no rule and no event.

mod anomaly;
mod greeting;
pub mod hash;
mod quic;
mod tls;

pub use self::anomaly::{Anomaly, AnomalyLayer, AnomalySet};
pub use self::greeting::{GreetingDialect, GreetingProtocol};
pub use self::quic::{QuicVersion, TransportProtocol};
pub use self::tls::{AlertCode, CertificateVerification, CipherSuite, TlsVersion, is_grease};

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Returns the first bytes of a text, at most `octets`, cut at a character.
pub fn cut(text: &str, octets: usize) -> &str {
    let whole = (0..=octets.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..whole.unwrap_or_default()).unwrap_or_default()
}

/// Returns bytes as two hexadecimal digits each, in lower case.
pub fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().fold(String::with_capacity(2 * octets.len()), |mut text, octet| {
        for digit in [octet >> 4, octet & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
        text
    })
}

/// Nanoseconds since the Unix epoch: the kernel's, the capture's or the scan's clock.
///
/// Everything below the loops takes a `Timestamp` as an argument instead of reading a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// A time from nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if the clock went backwards.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time `duration` later, saturating.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time `duration` earlier, not before the epoch.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl From<SystemTime> for Timestamp {
    /// Converts a time; one outside of the range becomes its nearest end.
    fn from(time: SystemTime) -> Self {
        Self::default().after(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

/// RFC 3339, in UTC.
impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every 64-bit number of nanoseconds is before the year 2555.
        jiff::Timestamp::from_nanosecond(i128::from(self.0)).unwrap_or_default().fmt(formatter)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self(u64::try_from(time.as_nanosecond().max(0)).unwrap_or(u64::MAX)))
    }
}

/// The application protocols that bannerwall reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// SSH, RFC 4253.
    Ssh,
    /// HTTP/1.x, RFC 9112.
    Http,
    /// TLS up to its encrypted part, RFC 8446.
    Tls,
    /// A protocol whose server speaks first, in lines of text.
    Greeting(GreetingProtocol),
    /// Any other protocol: named by its first bytes, and not read.
    Other,
}

impl Protocol {
    /// Number of protocols: the length of a table by [`Protocol::index`].
    pub const COUNT: usize = 4 + GreetingProtocol::COUNT;

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Ssh, Self::Http, Self::Tls]
            .into_iter()
            .chain(GreetingProtocol::all().map(Self::Greeting))
            .chain([Self::Other])
    }

    /// The protocol of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|protocol| protocol.name() == name)
    }

    /// The name in rules, events and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
            Self::Http => "http",
            Self::Tls => "tls",
            Self::Greeting(greeting) => greeting.name(),
            Self::Other => "other",
        }
    }

    /// The name for people.
    pub fn title(self) -> String {
        self.name().to_ascii_uppercase()
    }

    /// Position in tables with one entry for each protocol, below [`Protocol::COUNT`].
    pub const fn index(self) -> usize {
        match self {
            Self::Ssh => 0,
            Self::Http => 1,
            Self::Tls => 2,
            Self::Greeting(greeting) => 3 + greeting.index(),
            Self::Other => 3 + GreetingProtocol::COUNT,
        }
    }
}

/// One end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The end that opened the connection.
    Client,
    /// The end that accepted it.
    Server,
}

impl Side {
    /// The name in rules and events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// The opposite end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// An address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// IPv4 or IPv6 address.
    pub address: IpAddr,
    /// TCP or UDP port, host byte order.
    pub port: u16,
}

/// The ends of a connection, the same for both directions of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowEndpoints {
    /// The end that opened the connection (or seems to have, if the start was not seen).
    pub client: Endpoint,
    /// The end that accepted it.
    pub server: Endpoint,
}

/// The action of a matching rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleAction {
    /// Allow the flow; no further rule is tried.
    Accept,
    /// Report.
    Alert,
    /// Report and silently drop the flow.
    Drop,
    /// Report, drop the flow and reset both ends.
    Reject,
    /// Like `Drop`, and ban the client of an established connection for a time.
    Ban,
    /// Report and mark the packet, so that other firewall rules can act on it.
    Mark,
    /// Nothing by itself: policies name the rule.
    Allow,
}

impl RuleAction {
    /// The name in rules, events and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Alert => "alert",
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::Ban => "ban",
            Self::Mark => "mark",
            Self::Allow => "allow",
        }
    }

    /// True if it stops the flow when enforced.
    pub const fn blocks(self) -> bool {
        matches!(self, Self::Drop | Self::Reject | Self::Ban)
    }
}

/// Severity of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// A hardening hint.
    Low,
    /// A weakness under conditions.
    Medium,
    /// A serious weakness.
    High,
    /// Remotely exploitable without conditions, or exploited in the wild.
    Critical,
}

impl Severity {
    /// All severities, the most severe last.
    pub const ALL: [Self; 5] = [Self::Info, Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Returns the severity with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name() == name)
    }

    /// The name in rules and text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// The number in EVE, where 1 is the most severe.
    pub const fn eve(self) -> u8 {
        match self {
            Self::Critical | Self::High => 1,
            Self::Medium => 2,
            Self::Low => 3,
            Self::Info => 4,
        }
    }
}

/// The verdict about a package under an advisory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdvisoryVerdict {
    /// The package has the weakness.
    Affected,
    /// The package has the fix, or never had the weakness.
    Fixed,
    /// The evidence does not decide.
    Unknown,
}

impl AdvisoryVerdict {
    /// All verdicts with their names in rules and events.
    pub const NAMES: [(&'static str, Self); 3] =
        [("affected", Self::Affected), ("fixed", Self::Fixed), ("unknown", Self::Unknown)];

    /// The name in rules and events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Affected => "affected",
            Self::Fixed => "fixed",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns `192.0.2.1:22`, `[2001:db8::1]:22`; for a client, whose port is 0, the address.
pub fn place(address: &str, port: u16) -> String {
    match (port, address.contains(':')) {
        (0, _) => address.to_owned(),
        (port, true) => format!("[{address}]:{port}"),
        (port, false) => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_a_name_and_a_place_of_its_own() {
        let places: Vec<usize> = Protocol::all().map(Protocol::index).collect();
        assert_eq!(places, (0..Protocol::COUNT).collect::<Vec<_>>());
        for protocol in Protocol::all() {
            assert_eq!(Protocol::named(protocol.name()), Some(protocol));
        }
    }
}
