//! Reactions to anomalies.

use std::fmt;
use std::str::FromStr;

use crate::event::AnomalyLayer;
use crate::flow::{Anomaly, AnomalySet};

/// The reaction to traffic that could mislead an inspector. The engine applies it if it enforces; otherwise
/// it only reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnomalyAction {
    /// Report it.
    #[default]
    Alert,
    /// Report it and drop it: the packet, or the flow where a message is odd.
    Drop,
}

/// The reaction to each kind of anomaly. By default the engine drops what no honest software sends, and
/// reports messages that servers and clients accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnomalyPolicy {
    drops: AnomalySet,
}

impl Default for AnomalyPolicy {
    fn default() -> Self {
        let mut policy = Self::all(AnomalyAction::Alert);
        for anomaly in Anomaly::ALL.iter().filter(|anomaly| anomaly.is_hostile()) {
            policy.drops.insert(*anomaly);
        }
        policy
    }
}

impl AnomalyPolicy {
    /// The same for all.
    pub fn all(action: AnomalyAction) -> Self {
        let mut policy = Self { drops: AnomalySet::NONE };
        for anomaly in Anomaly::ALL {
            policy.set(*anomaly, action);
        }
        policy
    }

    /// True if packets or flows with this anomaly are dropped.
    pub const fn drops(&self, anomaly: Anomaly) -> bool {
        self.drops.contains(anomaly)
    }

    /// True if flows are stopped for messages that are merely odd: responses are read for that, too.
    pub(super) fn drops_messages(&self) -> bool {
        let odd = |anomaly: &&Anomaly| anomaly.layer() == AnomalyLayer::Application && !anomaly.is_hostile();
        Anomaly::ALL.iter().filter(odd).any(|anomaly| self.drops(*anomaly))
    }

    const fn set(&mut self, anomaly: Anomaly, action: AnomalyAction) {
        match action {
            AnomalyAction::Alert => self.drops.remove(anomaly),
            AnomalyAction::Drop => _ = self.drops.insert(anomaly),
        }
    }

    /// The class that an anomaly is named with on the command line.
    pub const fn class_of(anomaly: Anomaly) -> &'static str {
        match (anomaly, anomaly.layer()) {
            (Anomaly::BudgetSpent, _) => "budget",
            (
                Anomaly::QuicUnknownVersion
                | Anomaly::QuicUnreadable
                | Anomaly::QuicMalformed
                | Anomaly::QuicConflict
                | Anomaly::QuicCrowd,
                _,
            ) => "quic",
            (_, AnomalyLayer::Decode) => "packet",
            (_, AnomalyLayer::Stream) => "tcp",
            (_, AnomalyLayer::Application) => "banner",
        }
    }

    /// Sets a class or a single anomaly; false where there is none of this name.
    fn set_named(&mut self, name: &str, action: AnomalyAction) -> bool {
        let mut known = false;
        for anomaly in Anomaly::ALL {
            if name == anomaly.name() || name == Self::class_of(*anomaly) {
                known = true;
                self.set(*anomaly, action);
            }
        }
        known
    }
}

/// A policy that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Neither alert nor drop.
    #[error("`{0}` is neither alert nor drop")]
    Action(String),
    /// No anomaly or class of this name.
    #[error("there is no anomaly `{0}`; classes are packet, tcp, quic, banner and budget")]
    Name(String),
}

impl FromStr for AnomalyAction {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text {
            "alert" => Ok(Self::Alert),
            "drop" => Ok(Self::Drop),
            _ => Err(PolicyError::Action(text.to_owned())),
        }
    }
}

/// `alert`, `drop`, or a list of changes to the default: `tcp=alert,banner=drop,urgent_data=alert`.
impl FromStr for AnomalyPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut policy = Self::default();
        for item in text.split(',').map(str::trim) {
            match item.split_once('=') {
                None if item == "default" => policy = Self::default(),
                None => policy = Self::all(item.parse()?),
                Some((name, action)) => {
                    let action = action.parse()?;
                    if !policy.set_named(name, action) {
                        return Err(PolicyError::Name(name.to_owned()));
                    }
                }
            }
        }
        Ok(policy)
    }
}

impl fmt::Display for AnomalyAction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Alert => "alert",
            Self::Drop => "drop",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_one_word_or_changes_to_the_default_in_order() {
        let parse = |text: &str| text.parse::<AnomalyPolicy>().unwrap();
        assert_eq!(parse("drop"), AnomalyPolicy::all(AnomalyAction::Drop));
        assert_eq!(parse("alert"), AnomalyPolicy::all(AnomalyAction::Alert));
        assert_eq!(parse("default"), AnomalyPolicy::default());
        let some = parse("tcp=alert,urgent_data=drop,banner=drop");
        assert!(some.drops(Anomaly::UrgentData) && !some.drops(Anomaly::OutOfWindow));
        assert!(some.drops(Anomaly::BadChecksum) && some.drops(Anomaly::BudgetSpent));
        assert!(some.drops(Anomaly::HostConflict) && !AnomalyPolicy::default().drops(Anomaly::HostConflict));
        assert!(!parse("drop,budget=alert").drops(Anomaly::BudgetSpent));
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_named() {
        let parse = |text: &str| text.parse::<AnomalyPolicy>().unwrap_err().to_string();
        assert!(parse("dorp").contains("dorp"));
        assert!(parse("tcp=maybe").contains("maybe"));
        assert!(parse("udp=drop").contains("udp"));
    }
}
