//! Selection of rules: their files, and the profiles in force.

use std::path::PathBuf;

use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::rule::Rule;
use super::suggest;
use super::text_source::TextSource;
use crate::event::Timestamp;

/// The files of rules, and the profiles in force.
#[derive(Debug, Clone, Default)]
pub struct RuleSelection {
    /// Rule files, and directories of `*.toml` files.
    pub rules: Vec<PathBuf>,
    /// Local files (and directories of them), whose overrides change the rules.
    pub local: Vec<PathBuf>,
    /// The source of the texts behind these paths.
    pub texts: TextSource,
    /// True if the rules are a part of those that the local files name: then an override of an
    /// unknown rule is only a warning.
    pub partial: bool,
    /// Overrides that ended by this time are left out. If it is `None`, each banner's own time
    /// decides.
    pub now: Option<Timestamp>,
    /// The uses whose rules are in force.
    pub profiles: ProfileFilter,
    /// True to alert about connections that no policy could allow, with a policy behind all others.
    pub learns: bool,
    /// True if an empty rule set, or a directory without a rule file, is an error. Most likely a
    /// mount failed or a copy is under way.
    pub complete: bool,
}

/// The profiles whose rules are in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProfileFilter {
    /// All.
    #[default]
    All,
    /// Rules that name one of these, or none at all.
    Named(Vec<String>),
}

/// Profiles that exist without a rule: the program's own commands.
const OWN: &[&str] = &["guard", "scan"];

impl RuleSelection {
    /// Returns a selection of every rule of `rules`.
    pub fn of(rules: Vec<PathBuf>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Switches off the rules that are made for other profiles, and reports unknown profiles.
    pub(super) fn switch_off(&self, rules: &mut [Rule], report: &mut DiagnosticCollector) {
        let ProfileFilter::Named(wanted) = &self.profiles else { return };
        let known =
            || OWN.iter().copied().chain(rules.iter().flat_map(|rule| &rule.profiles).map(String::as_str));
        for name in wanted.iter().filter(|name| !known().any(|known| known == *name)) {
            let message = format!("no rule has the profile `{name}`");
            let diagnostic = RuleDiagnostic::of_file(DiagnosticLevel::Error, "--profile", message);
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

    /// Reports an empty rule set if `complete` is set.
    pub(super) fn refuse_nothing(&self, nothing: bool, report: &mut DiagnosticCollector) {
        if self.complete && nothing && report.errors() == 0 {
            let names: Vec<String> = self.rules.iter().map(|path| path.display().to_string()).collect();
            report.push(RuleDiagnostic::of_file(
                DiagnosticLevel::Error,
                names.join(" "),
                "no rule is in force",
            ));
        }
    }
}
