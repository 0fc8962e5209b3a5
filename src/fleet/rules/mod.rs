//! Rules from one place: whoever publishes makes a pack of rule files, numbers and signs it, and enters it
//! into the database; guards take the newest one that is meant for them, and keep it for a start without the
//! server.
//!
//! The database is not trusted with what is in a pack: its number is under the signature, a guard takes none
//! that is not newer than what it has, and reads nothing of one before the signature is verified. Who can
//! write the table may withhold a version, and not make one. A way back is a newer version with older texts.
//!
//! | module | what it owns |
//! |---|---|
//! | [`key`] | signatures in minisign's format |
//! | [`stored_pack`] | the file that a guard keeps its rules in |
//! | [`pack`] | the texts of rule files and lists, as they are signed |
//! | [`poller`] | what a guard does |

mod key;
mod pack;
mod poller;
mod stored_pack;

pub use key::{PublicKeys, SecretKey, SigningKeyError, read_public};
pub use pack::{LARGEST, PackError, RulePack};
pub use poller::{ApplyRulesError, FleetRulesConfig, RulePollCounts, RulePoller};

/// True if a sensor is among the so many in a hundred that take a version: with a higher share it still is,
/// and for each version others come first.
pub(super) fn is_in_rollout(sensor: &str, serial: i64, percent: i64) -> bool {
    use sha2::{Digest as _, Sha256};
    let digest = Sha256::new().chain_update(serial.to_be_bytes()).chain_update(sensor).finalize();
    let first = digest.first_chunk::<8>().copied().unwrap_or_default();
    i64::try_from(u64::from_be_bytes(first) % 100).is_ok_and(|place| place < percent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::is_in_rollout;

    proptest! {
        #[test]
        fn a_higher_share_only_adds_sensors(sensor in ".{0,20}", serial in 1_i64.., percent in 0_i64..=100) {
            prop_assert!(!is_in_rollout(&sensor, serial, 0));
            prop_assert!(is_in_rollout(&sensor, serial, 100));
            if is_in_rollout(&sensor, serial, percent) {
                prop_assert!((percent..=100).all(|more| is_in_rollout(&sensor, serial, more)));
            }
        }
    }

    #[test]
    fn a_share_of_sensors_is_about_as_large_as_it_says_and_not_always_the_same() {
        let among = |serial| {
            let names = (0..10_000).map(|number| format!("gw-{number}"));
            names.filter(|name| is_in_rollout(name, serial, 10)).collect::<Vec<_>>()
        };
        let (first, second) = (among(1), among(2));
        assert!((850..1_150).contains(&first.len()) && (850..1_150).contains(&second.len()));
        let both = first.iter().filter(|name| second.contains(name)).count();
        assert!((50..200).contains(&both), "{both}");
    }
}
