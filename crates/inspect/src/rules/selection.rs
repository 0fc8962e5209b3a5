//! Where rules come from, and which of them are in force.

use std::path::PathBuf;

use super::diagnostic::{Diagnostic, Level, Report};
use super::rule::Rule;
use super::source::Texts;
use super::suggest;
use crate::event::Timestamp;

/// Where rules come from, and which of them are in force.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Rule files, and folders of `*.toml` files.
    pub rules: Vec<PathBuf>,
    /// Local files (and folders of them), whose overrides change the rules.
    pub local: Vec<PathBuf>,
    /// What these paths lead to.
    pub texts: Texts,
    /// The rules are a part of those that the local files speak of: an override of a rule that is not
    /// there is worth a warning only.
    pub partial: bool,
    /// Overrides that ended by this time are left out. Without it, each banner's own time decides.
    pub now: Option<Timestamp>,
    /// The uses whose rules are in force.
    pub profiles: Profiles,
    /// True to alert of connections that no policy could allow, behind all policies.
    pub learns: bool,
    /// No rule at all, or a folder without a rule file, is an error: it is more likely a mount that
    /// failed or a copy that is under way than what somebody wants.
    pub complete: bool,
}

/// Which uses the rules in force are made for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Profiles {
    /// All.
    #[default]
    All,
    /// Rules that name one of these, or none at all.
    Named(Vec<String>),
}

/// Profiles that need no rule to exist: the program's own uses.
const OWN: &[&str] = &["guard", "scan"];

impl Selection {
    /// Every rule of `rules`.
    pub fn of(rules: Vec<PathBuf>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Switches off the rules that are made for other uses, and reports uses that nobody knows.
    pub(super) fn switch_off(&self, rules: &mut [Rule], report: &mut Report) {
        let Profiles::Named(wanted) = &self.profiles else { return };
        let known =
            || OWN.iter().copied().chain(rules.iter().flat_map(|rule| &rule.profiles).map(String::as_str));
        for name in wanted.iter().filter(|name| !known().any(|known| known == *name)) {
            let message = format!("no rule has the profile `{name}`");
            let diagnostic = Diagnostic::of_file(Level::Error, "--profile", message);
            let nearest = suggest::nearest(name, known().chain(["all"]));
            let help = nearest.map(|nearest| format!("did you mean `{nearest}`?"));
            report.push(match help {
                Some(help) => diagnostic.with_help(help),
                None => diagnostic,
            });
        }
        for rule in rules.iter_mut() {
            let meant = rule.profiles.is_empty() || rule.profiles.iter().any(|name| wanted.contains(name));
            if !meant {
                rule.off = Some(format!("made for {}", rule.profiles.join(", ")));
            }
        }
    }

    /// Reports a set without rules, where one is wanted.
    pub(super) fn refuse_nothing(&self, nothing: bool, report: &mut Report) {
        if self.complete && nothing && report.errors() == 0 {
            let names: Vec<String> = self.rules.iter().map(|path| path.display().to_string()).collect();
            report.push(Diagnostic::of_file(Level::Error, names.join(" "), "no rule is in force"));
        }
    }
}
