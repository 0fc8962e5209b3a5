//! `--rules` and its companions: where rules come from, for every subcommand that judges by them.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::anyhow;
use clap::Args;

use super::Failure;
use crate::diagnostics::tell;
use crate::rules::{Loaded, Profiles, RuleSet, Selection};

/// Where rules are looked for when nobody says where: the administrator's own, then the installed ones.
const DEFAULT_FOLDERS: &[&str] =
    &["/etc/bannerwall/rules", "/usr/local/share/bannerwall/rules", "/usr/share/bannerwall/rules"];

/// The folder in the working directory that is taken last.
const WORKING_FOLDER: &str = "rules";

/// Where overrides are looked for when nobody says where.
const LOCAL_FOLDER: &str = "/etc/bannerwall/local.d";

/// The id of `--local PATH`, for the command that means something else by that.
pub(super) const LOCAL_FLAG: &str = "local_rules";

/// `--rules PATH`, `--local PATH`, `--profile NAME`.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct RulesFlag {
    /// Rule file, or folder of *.toml files; may be given several times. By default the first that
    /// exists of /etc/bannerwall/rules, /usr/local/share/bannerwall/rules,
    /// /usr/share/bannerwall/rules and ./rules.
    #[arg(long, value_name = "PATH")]
    pub(super) rules: Vec<PathBuf>,
    /// Local file, or folder of *.toml files, with overrides and rules of one's own;
    /// read after the rules; may be given several times [default: /etc/bannerwall/local.d].
    #[arg(id = LOCAL_FLAG, long = "local", value_name = "PATH", conflicts_with = "no_local")]
    local: Vec<PathBuf>,
    /// Leave /etc/bannerwall/local.d out.
    #[arg(long)]
    no_local: bool,
    /// Take only rules that are made for this use, or for none in particular; may be given several
    /// times. By default guard and replay take those for `guard`, scan those for `scan`, and the
    /// subcommands of `rules` all of them (`all`).
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
}

/// The uses whose rules are taken where `--profile` does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Traffic that is seen, live or in captures.
    Guard,
    /// Servers that are asked.
    Scan,
    /// Work on the rules themselves.
    Rules,
}

impl RulesFlag {
    /// The rules at `paths`, as these flags say besides.
    pub(super) fn with_paths(&self, paths: &[PathBuf]) -> Self {
        Self { rules: paths.iter().chain(&self.rules).cloned().collect(), ..self.clone() }
    }

    /// True if any of these flags was given.
    pub(super) fn is_given(&self) -> bool {
        self.no_local || !self.rules.is_empty() || !self.local.is_empty() || !self.profile.is_empty()
    }

    /// Which rules to load.
    ///
    /// # Errors
    ///
    /// None were given and none of the default folders exists.
    pub(super) fn selection(&self, by: Use) -> Result<Selection, Failure> {
        let local = match self.local.as_slice() {
            [] if !self.no_local && Path::new(LOCAL_FOLDER).is_dir() => vec![PathBuf::from(LOCAL_FOLDER)],
            named => named.to_vec(),
        };
        Ok(Selection {
            rules: self.paths()?,
            // The machine's own overrides are about all its rules; who names some may leave others out.
            partial: self.local.is_empty() && !self.rules.is_empty(),
            local,
            profiles: self.profiles(by),
            // Traffic has times of its own.
            now: (by != Use::Guard).then(|| SystemTime::now().into()),
            ..Selection::default()
        })
    }

    /// These files and no others, for the uses that these flags say.
    pub(super) fn only(&self, rules: Vec<PathBuf>, local: Vec<PathBuf>, by: Use) -> Selection {
        Selection { rules, local, partial: true, profiles: self.profiles(by), ..Selection::default() }
    }

    /// Whether there are rules to load.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
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
        Err(Failure::Usage(anyhow!(
            "no rules: none of {folders} and ./{WORKING_FOLDER} exists; say where with --rules PATH"
        )))
    }

    /// Why there are no rules to judge by, where nobody asked for any: what is seen is told all the same.
    ///
    /// # Errors
    ///
    /// There are none, and other flags are about them.
    pub(super) fn missing(&self) -> Result<Option<anyhow::Error>, Failure> {
        match self.paths() {
            Err(Failure::Usage(why)) if self.rules.is_empty() => {
                let asked = !self.local.is_empty() || !self.profile.is_empty();
                if asked { Err(Failure::Usage(why)) } else { Ok(Some(why)) }
            }
            _ => Ok(None),
        }
    }

    fn profiles(&self, by: Use) -> Profiles {
        let own = |name: &str| Profiles::Named(vec![name.to_owned()]);
        match (self.profile.is_empty(), by) {
            (false, _) if self.profile.iter().any(|name| name == "all") => Profiles::All,
            (false, _) => Profiles::Named(self.profile.clone()),
            (true, Use::Guard) => own("guard"),
            (true, Use::Scan) => own("scan"),
            (true, Use::Rules) => Profiles::All,
        }
    }

    /// As [`RulesFlag::selection`] for what runs as root for long: where the working directory's own rules
    /// are taken, that is said, since whoever may write there decides about them.
    ///
    /// # Errors
    ///
    /// As [`RulesFlag::selection`].
    pub(super) fn selection_told(&self, by: Use) -> Result<Selection, Failure> {
        let selection = self.selection(by)?;
        if let Some(local) = selection.rules.iter().find(|path| self.rules.is_empty() && path.is_relative()) {
            let here = std::env::current_dir().unwrap_or_default().join(local);
            tell(format_args!("bannerwall: no rules are installed, those in {} are read", here.display()));
        }
        Ok(selection)
    }

    /// Loads the rules; warnings go to stderr unless `quiet`.
    ///
    /// # Errors
    ///
    /// There are none, or they are refused: the message names every fault.
    pub(super) fn load(&self, by: Use, quiet: bool) -> Result<RuleSet, Failure> {
        load(&self.selection(by)?, quiet)
    }
}

/// Loads rules; warnings go to stderr unless `quiet`.
///
/// # Errors
///
/// They are refused: the message names every fault.
pub(super) fn load(selection: &Selection, quiet: bool) -> Result<RuleSet, Failure> {
    let Loaded { rules, warnings } = RuleSet::load(selection).map_err(Failure::usage)?;
    if !quiet {
        for warning in &warnings {
            tell(format_args!("{warning}\n"));
        }
    }
    Ok(rules)
}

/// Whether a folder that nobody named may say what is blocked: one that another user put where root
/// happens to stand (/tmp, a home) may not. Git refuses such repositories, too (`safe.directory`).
fn own(folder: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt as _;
    let user = rustix::process::geteuid().as_raw();
    let shown = folder.display();
    let metadata = std::fs::metadata(folder)
        .map_err(|error| Failure::Usage(anyhow!("cannot read ./{shown}: {error}")))?;
    let writable = metadata.mode() & 0o002 != 0;
    if !writable && (user != 0 || metadata.uid() == 0 || invoked_by() == Some(metadata.uid())) {
        return Ok(());
    }
    Err(Failure::Usage(anyhow!(
        "no rules: ./{shown} belongs to somebody else or may be written by anybody; if you trust it, name it: --rules {shown}"
    )))
}

/// The user behind sudo, whose clone of the repository root may well stand in.
fn invoked_by() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}
