//! `--rules-from` and related flags: rules published for many guards.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use minisign_verify::PublicKey;

use super::flags::{duration, inventory_place};
use super::rule_paths::LOCAL_FLAG;
use crate::database::DatabaseLocation;
use crate::fleet::rules::{FleetRulesConfig, PublicKeys, SigningKeyError, read_public};
use crate::rules::RuleSelection;

/// Shortest interval between two polls.
const SHORTEST: Duration = Duration::from_millis(100);

/// `--rules-from URL`, `--rules-key KEY`, `--rules-state FILE`, `--rules-poll TIME`.
#[derive(Debug, Args)]
pub(super) struct RulesFromFlags {
    /// Load the rules that `bannerwall fleet rules publish` wrote into this database, and poll for newer
    /// ones. Use `postgresql://sensor@host/database?sslmode=verify-full`, with the password in PGPASSWORD.
    #[arg(long, value_name = "URL", value_parser = inventory_place(), requires = "rules_key",
          conflicts_with_all = ["rules", LOCAL_FLAG, "no_local"])]
    rules_from: Option<DatabaseLocation>,
    /// Public key of minisign that signs the rules, or a file with it; can be given several times.
    #[arg(long, value_name = "KEY|FILE", value_parser = public_key, requires = "rules_from")]
    rules_key: Vec<PublicKey>,
    /// Save the rules in force to this file, to start without the database. Use one file for each guard.
    #[arg(long, value_name = "FILE", default_value = "/var/lib/bannerwall/rules.pack")]
    rules_state: PathBuf,
    /// Interval between polls for newer rules.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    rules_poll: Duration,
}

/// Parses a public key.
pub(super) fn public_key(text: &str) -> Result<PublicKey, SigningKeyError> {
    read_public(text)
}

impl RulesFromFlags {
    /// Returns the source of published rules, if these flags name one. It shares the process that connects
    /// with the inventory, if both are in the same database.
    pub(super) fn config(
        &self,
        rules: &RuleSelection,
        inventory: Option<&DatabaseLocation>,
    ) -> Option<FleetRulesConfig> {
        let place = self.rules_from.clone()?;
        let place = match inventory {
            Some(inventory) => place.sharing(inventory),
            None => place,
        };
        Some(FleetRulesConfig {
            place,
            keys: PublicKeys(self.rules_key.clone()),
            state: self.rules_state.clone(),
            poll: self.rules_poll.max(SHORTEST),
            profiles: rules.profiles.clone(),
            learns: rules.learns,
        })
    }
}
