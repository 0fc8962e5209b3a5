//! `--rules` and related flags: the sources of rules, for every subcommand that matches banners.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::anyhow;
use clap::Args;

use super::CommandFailure;
use crate::diagnostics::log_line;
use crate::rules::{LoadedRules, ProfileFilter, RuleSelection, RuleSet};

/// Default folders of rules: the administrator's, then the installed ones.
const DEFAULT_FOLDERS: &[&str] =
    &["/etc/bannerwall/rules", "/usr/local/share/bannerwall/rules", "/usr/share/bannerwall/rules"];

/// Folder in the working directory, the last default.
const WORKING_FOLDER: &str = "rules";

/// Default folder of overrides.
const LOCAL_FOLDER: &str = "/etc/bannerwall/local.d";

/// Clap id of `--local PATH`, for a command with another flag of that name.
pub(super) const LOCAL_FLAG: &str = "local_rules";

/// `--rules PATH`, `--local PATH`, `--profile NAME`.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct RulesFlag {
    /// Rule file, or folder of *.toml files; can be given several times [default: the first existing of
    /// /etc/bannerwall/rules, /usr/local/share/bannerwall/rules, /usr/share/bannerwall/rules and ./rules].
    #[arg(long, value_name = "PATH", help_heading = "Rules")]
    pub(super) rules: Vec<PathBuf>,
    /// Local file, or folder of *.toml files, with overrides and custom rules, read after the rules; can be
    /// given several times [default: /etc/bannerwall/local.d].
    #[arg(id = LOCAL_FLAG, long = "local", value_name = "PATH", conflicts_with = "no_local", help_heading = "Rules")]
    local: Vec<PathBuf>,
    /// Leave out /etc/bannerwall/local.d.
    #[arg(long, help_heading = "Rules")]
    no_local: bool,
    /// Load only rules with this profile, and rules without a profile; can be given several times. By default
    /// guard and replay load `guard`, scan loads `scan`, and the subcommands of `rules` load all (`all`).
    #[arg(long, value_name = "NAME", help_heading = "Rules")]
    profile: Vec<String>,
}

/// Use of the rules, which selects the default profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RulePurpose {
    /// Traffic, live or from captures.
    Guard,
    /// Servers under a scan.
    Scan,
    /// Work on the rules themselves.
    Rules,
}

impl RulesFlag {
    /// Returns these flags with `paths` added to the rules.
    pub(super) fn with_paths(&self, paths: &[PathBuf]) -> Self {
        Self { rules: paths.iter().chain(&self.rules).cloned().collect(), ..self.clone() }
    }

    /// True if any of these flags was given.
    pub(super) fn is_given(&self) -> bool {
        self.no_local || !self.rules.is_empty() || !self.local.is_empty() || !self.profile.is_empty()
    }

    /// Returns the rules to load.
    ///
    /// # Errors
    ///
    /// None were given and none of the default folders exists.
    pub(super) fn selection(&self, by: RulePurpose) -> Result<RuleSelection, CommandFailure> {
        let local = match self.local.as_slice() {
            [] if !self.no_local && Path::new(LOCAL_FOLDER).is_dir() => vec![PathBuf::from(LOCAL_FOLDER)],
            named => named.to_vec(),
        };
        Ok(RuleSelection {
            rules: self.paths()?,
            // The machine's overrides cover all installed rules; with --rules some of those may be missing.
            partial: self.local.is_empty() && !self.rules.is_empty(),
            local,
            profiles: self.profiles(by),
            // Packets carry their own time.
            now: (by != RulePurpose::Guard).then(|| SystemTime::now().into()),
            ..RuleSelection::default()
        })
    }

    /// Returns a selection of only these files, with the profiles of these flags.
    pub(super) fn only(&self, rules: Vec<PathBuf>, local: Vec<PathBuf>, by: RulePurpose) -> RuleSelection {
        RuleSelection { rules, local, partial: true, profiles: self.profiles(by), ..RuleSelection::default() }
    }

    /// Returns the paths of the rules, or an error if there are none.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, CommandFailure> {
        if !self.rules.is_empty() {
            return Ok(self.rules.clone());
        }
        let installed = DEFAULT_FOLDERS.iter().map(Path::new).find(|folder| folder.is_dir());
        if let Some(folder) = installed {
            return Ok(vec![folder.to_owned()]);
        }
        let working = Path::new(WORKING_FOLDER);
        if working.is_dir() {
            own(working)?;
            return Ok(vec![working.to_owned()]);
        }
        let folders = DEFAULT_FOLDERS.join(", ");
        Err(CommandFailure::Usage(anyhow!(
            "no rules: none of {folders} and ./{WORKING_FOLDER} exists; say where with --rules PATH"
        )))
    }

    /// Returns the reason for a lack of rules, if no flag named any: the command then reports banners without
    /// matching.
    ///
    /// # Errors
    ///
    /// There are no rules, but other flags refer to them.
    pub(super) fn missing(&self) -> Result<Option<anyhow::Error>, CommandFailure> {
        match self.paths() {
            Err(CommandFailure::Usage(why)) if self.rules.is_empty() => {
                let asked = !self.local.is_empty() || !self.profile.is_empty();
                if asked { Err(CommandFailure::Usage(why)) } else { Ok(Some(why)) }
            }
            _ => Ok(None),
        }
    }

    fn profiles(&self, by: RulePurpose) -> ProfileFilter {
        let own = |name: &str| ProfileFilter::Named(vec![name.to_owned()]);
        match (self.profile.is_empty(), by) {
            (false, _) if self.profile.iter().any(|name| name == "all") => ProfileFilter::All,
            (false, _) => ProfileFilter::Named(self.profile.clone()),
            (true, RulePurpose::Guard) => own("guard"),
            (true, RulePurpose::Scan) => own("scan"),
            (true, RulePurpose::Rules) => ProfileFilter::All,
        }
    }

    /// Returns the rules to load for a long-running process of root. It warns about rules in the working
    /// directory, since everyone who can write there controls them.
    ///
    /// # Errors
    ///
    /// As [`RulesFlag::selection`].
    pub(super) fn selection_with_notice(&self, by: RulePurpose) -> Result<RuleSelection, CommandFailure> {
        let selection = self.selection(by)?;
        if let Some(local) = selection.rules.iter().find(|path| self.rules.is_empty() && path.is_relative()) {
            let here = std::env::current_dir().unwrap_or_default().join(local);
            log_line(format_args!("bannerwall: no rules are installed; using those in {}", here.display()));
        }
        Ok(selection)
    }

    /// Loads the rules; warnings go to stderr unless `quiet`.
    ///
    /// # Errors
    ///
    /// There are none, or they are refused: the message names every fault.
    pub(super) fn load(&self, by: RulePurpose, quiet: bool) -> Result<RuleSet, CommandFailure> {
        load(&self.selection(by)?, quiet)
    }
}

/// Loads rules; warnings go to stderr unless `quiet`.
///
/// # Errors
///
/// They are refused: the message names every fault.
pub(super) fn load(selection: &RuleSelection, quiet: bool) -> Result<RuleSet, CommandFailure> {
    let LoadedRules { rules, warnings } = RuleSet::load(selection).map_err(CommandFailure::usage)?;
    if !quiet {
        for warning in &warnings {
            log_line(format_args!("{warning}\n"));
        }
    }
    Ok(rules)
}

/// Checks that an unnamed folder in the working directory is trustworthy. Another user could put one where
/// root happens to work (/tmp, a home). Git refuses such repositories, too (`safe.directory`).
fn own(folder: &Path) -> Result<(), CommandFailure> {
    use std::os::unix::fs::MetadataExt as _;
    let user = rustix::process::geteuid().as_raw();
    let shown = folder.display();
    let metadata = std::fs::metadata(folder)
        .map_err(|error| CommandFailure::Usage(anyhow!("cannot read ./{shown}: {error}")))?;
    let writable = metadata.mode() & 0o002 != 0;
    if !writable && (user != 0 || metadata.uid() == 0 || invoked_by() == Some(metadata.uid())) {
        return Ok(());
    }
    Err(CommandFailure::Usage(anyhow!(
        "no rules: another user owns ./{shown} or can write to it; if you trust it, pass --rules {shown}"
    )))
}

/// Returns the user behind sudo: root may well work in that user's clone of the repository.
fn invoked_by() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}
