//! Packets that a hook leads to the queue.

use super::{HookConfig, PortList};

/// Transport protocol of a hook's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookTransport {
    /// TCP.
    Tcp,
    /// UDP, if enabled.
    Udp,
}

impl HookTransport {
    /// Returns the name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Returns IANA's number, which rules may use instead.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// Packets that a hook leads to the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookedTraffic {
    /// Protocol.
    pub carried: HookTransport,
    /// Source or destination ports; any if absent.
    pub ports: Option<PortList>,
}

impl HookedTraffic {
    /// Returns the packets of a hook with these options.
    pub fn by(config: &HookConfig) -> impl Iterator<Item = Self> {
        let udp = config.udp.clone().map(|ports| Self { carried: HookTransport::Udp, ports: Some(ports) });
        [Self { carried: HookTransport::Tcp, ports: config.ports.clone() }].into_iter().chain(udp)
    }

    /// True if packets with this port are led to the queue.
    pub fn has_port(&self, port: u16) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.ranges().iter().any(|range| range.contains(&port)))
    }

    /// True if some of the packets may match a rule, by its protocol and by a single port.
    pub fn may_meet(&self, rule: &str) -> bool {
        let words: Vec<&str> = rule.split(' ').collect();
        let mut asked =
            words.windows(3).filter(|three| matches!(three[1], "--dport" | "--sport") && three[0] != "!");
        let out = |port: u16| !self.has_port(port);
        may_meet(rule, self.carried) && !asked.any(|three| three[2].parse().is_ok_and(out))
    }
}

/// True if a rule's protocol includes this one.
pub(super) fn may_meet(rule: &str, carried: HookTransport) -> bool {
    let words: Vec<&str> = rule.split(' ').collect();
    let asked = words.windows(2).enumerate().find(|(_, pair)| matches!(pair[0], "-p" | "--protocol"));
    let Some((index, pair)) = asked else { return true };
    let inverted = index > 0 && words.get(index - 1) == Some(&"!");
    (pair[1] == "all" || pair[1] == carried.name() || pair[1].parse() == Ok(carried.number())) != inverted
}
