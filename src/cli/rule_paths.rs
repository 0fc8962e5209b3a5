//! `--rules`: where rules come from, for every subcommand that judges by them.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;

use super::Failure;
use crate::diagnostics::tell;
use crate::rules::{Loaded, RuleSet};

/// Where rules are looked for when nobody says where: the administrator's own, the installed ones,
/// then the working directory's.
const DEFAULT_FOLDERS: &[&str] =
    &["/etc/bannerwall/rules", "/usr/local/share/bannerwall/rules", "/usr/share/bannerwall/rules", "rules"];

/// `--rules PATH`.
#[derive(Debug, Clone, Args)]
pub(super) struct RulesFlag {
    /// Rule file, or folder of *.toml files; may be given several times. By default the first that
    /// exists of /etc/bannerwall/rules, /usr/local/share/bannerwall/rules,
    /// /usr/share/bannerwall/rules and ./rules.
    #[arg(long, value_name = "PATH")]
    pub(super) rules: Vec<PathBuf>,
}

impl RulesFlag {
    /// The files and folders to load.
    ///
    /// # Errors
    ///
    /// None were given and none of the default folders exists.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
        if !self.rules.is_empty() {
            return Ok(self.rules.clone());
        }
        let found = DEFAULT_FOLDERS.iter().map(Path::new).find(|folder| folder.is_dir());
        found.map(|folder| vec![folder.to_owned()]).ok_or_else(|| {
            let folders = DEFAULT_FOLDERS.join(", ");
            Failure::Usage(anyhow!("no rules: none of {folders} exists; say where with --rules PATH"))
        })
    }

    /// As [`RulesFlag::paths`] for what runs as root for long: where the working directory's own rules are
    /// taken, that is said, since whoever may write there decides about them.
    ///
    /// # Errors
    ///
    /// As [`RulesFlag::paths`].
    pub(super) fn paths_told(&self) -> Result<Vec<PathBuf>, Failure> {
        let paths = self.paths()?;
        if let Some(local) = paths.iter().find(|path| self.rules.is_empty() && path.is_relative()) {
            let here = std::env::current_dir().unwrap_or_default().join(local);
            tell(format_args!("bannerwall: no rules are installed, those in {} are read", here.display()));
        }
        Ok(paths)
    }

    /// Loads the rules; warnings go to stderr unless `quiet`.
    ///
    /// # Errors
    ///
    /// There are none, or they are refused: the message names every fault.
    pub(super) fn load(&self, quiet: bool) -> Result<RuleSet, Failure> {
        let Loaded { rules, warnings } = RuleSet::load(&self.paths()?).map_err(Failure::usage)?;
        if !quiet {
            for warning in &warnings {
                tell(format_args!("{warning}\n"));
            }
        }
        Ok(rules)
    }
}
