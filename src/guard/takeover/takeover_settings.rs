//! Settings that two guards must share for a takeover.

use bannerwall_ffi::namespace::cookie;
use serde::{Deserialize, Serialize};

use crate::guard::config::GuardConfig;

/// Settings that two guards must share for a takeover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::guard) struct TakeoverSettings {
    /// The program's version, for messages.
    version: String,
    queues: String,
    /// The bits of the mark that bannerwall uses.
    mark: u32,
    /// Cookie of the network namespace, in which the kernel numbers the queues.
    network: Option<u64>,
}

impl TakeoverSettings {
    /// Returns the settings of a guard.
    pub(in crate::guard) fn of(config: &GuardConfig) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            queues: config.queues.to_string(),
            mark: config.mark.mask(),
            network: cookie().ok(),
        }
    }

    /// Returns the reason why a guard of `other` settings cannot take over from one of these.
    pub(super) fn differs_from(&self, other: &Self) -> Option<String> {
        if self.queues != other.queues {
            return Some(format!("this guard serves queue {}, not {}", self.queues, other.queues));
        }
        if self.mark != other.mark {
            return Some(
                "this guard uses other bits of the mark: start both with the same --mark".to_owned(),
            );
        }
        let networks = self.network.zip(other.network);
        networks
            .filter(|(own, its)| own != its)
            .map(|_| "this guard is in another network namespace".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_queues_marks_and_network_fit() {
        let own = TakeoverSettings {
            version: "1".into(),
            queues: "0:3".into(),
            mark: 0xC000_0000,
            network: Some(4026),
        };
        let newer = TakeoverSettings { version: "2".into(), network: None, ..own.clone() };
        assert_eq!(own.differs_from(&newer), None);
        for (other, said) in [
            (TakeoverSettings { queues: "0".into(), ..own.clone() }, "serves queue 0:3, not 0"),
            (TakeoverSettings { mark: 3, ..own.clone() }, "--mark"),
            (TakeoverSettings { network: Some(1), ..own.clone() }, "another network namespace"),
        ] {
            assert!(own.differs_from(&other).is_some_and(|why| why.contains(said)), "{said}");
        }
    }
}
