//! `--rules-from` and its companions: rules that are published for many guards.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use minisign_verify::PublicKey;

use super::flags::{duration, inventory_place};
use super::rule_paths::LOCAL_FLAG;
use crate::fleet::rules::{KeyError, PublicKeys, RulesFrom, read_public};
use crate::inventory::Place;
use crate::rules::Selection;

/// The shortest time between two questions.
const SHORTEST: Duration = Duration::from_millis(100);

/// `--rules-from URL`, `--rules-key KEY`, `--rules-state FILE`, `--rules-poll TIME`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Published rules")]
pub(super) struct RulesFromFlags {
    /// Take the rules that `bannerwall fleet rules publish` has put into this database, and newer ones as
    /// they come; `postgresql://sensor@host/database?sslmode=verify-full`, the password may stand in
    /// PGPASSWORD.
    #[arg(long, value_name = "URL", value_parser = inventory_place(), requires = "rules_key",
          conflicts_with_all = ["rules", LOCAL_FLAG, "no_local"])]
    rules_from: Option<Place>,
    /// Who may have signed them: a public key of minisign, or a file of it; may be given several times.
    #[arg(long, value_name = "KEY|FILE", value_parser = public_key, requires = "rules_from")]
    rules_key: Vec<PublicKey>,
    /// Keep the rules in force in this file, for a start without the database; a guard each.
    #[arg(long, value_name = "FILE", default_value = "/var/lib/bannerwall/rules.pack")]
    rules_state: PathBuf,
    /// Ask for newer ones so often.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    rules_poll: Duration,
}

/// Reads a public key.
pub(super) fn public_key(text: &str) -> Result<PublicKey, KeyError> {
    read_public(text)
}

impl RulesFromFlags {
    /// Where rules come from, where these flags say so.
    pub(super) fn config(&self, rules: &Selection) -> Option<RulesFrom> {
        let place = self.rules_from.clone()?;
        Some(RulesFrom {
            place,
            keys: PublicKeys(self.rules_key.clone()),
            state: self.rules_state.clone(),
            poll: self.rules_poll.max(SHORTEST),
            profiles: rules.profiles.clone(),
            learns: rules.learns,
        })
    }
}
