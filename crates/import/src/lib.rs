//! Imports distributions' advisories as rules, for `bannerwall rules import`.
//!
//! Each format has a module that reads files into [`PackageWeakness`]es. [`products`] maps packages to
//! banners, and [`write_rules`] makes a rule of both. Files are read as streams, nothing is downloaded, and
//! the same files give the same rules.

mod alpine;
mod archive;
mod bounded_json;
mod debian;
mod kev;
mod nvd;
mod osv;
mod products;
pub mod recog;
mod redhat;
mod ubuntu;
mod write_rules;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use bannerwall_inspect::event::{AdvisoryVerdict, RuleAction, Severity};
use bannerwall_inspect::rules::advisory::ReleaseAdvisory;
use bannerwall_inspect::rules::{LoadError, RuleSet, limits};

pub use self::kev::ExploitedWeaknesses;
pub use self::products::ProductMap;

/// Number of bytes of rules that are parsed at a time, to check them.
const PIECE: usize = 256 << 10;

/// Advice about too many rules.
const LESS: &str = "ask for less (--product, --since, --severity)";

/// The wanted part of the data, and the actions of its rules.
#[derive(Debug, Clone)]
pub struct ImportSelection {
    /// Source packages; empty for all that have a product.
    pub packages: Vec<String>,
    /// Earliest year or day (`2020`, `2020-05-01`) of a weakness's name or publication.
    pub since: Option<String>,
    /// Lowest severity.
    pub severity: Severity,
    /// Weaknesses that are known to be exploited: their rules are critical and tagged `kev`.
    pub exploited: ExploitedWeaknesses,
    /// Action of the rules if a package is affected.
    pub action: RuleAction,
    /// Verdicts that cause a match; by default those of [`ImportSelection::reported`].
    pub report: Option<Vec<AdvisoryVerdict>>,
    /// True if blocking rules also block if the verdict is unknown.
    pub block_unknown: bool,
    /// Date of the data, `2026-11-20`, if the user gave it. Else it is the last change that the data
    /// name.
    pub date: Option<String>,
    /// Date of the files' last change, for data without a date.
    pub changed: String,
}

/// Imported rules, as the text of a rule file.
#[derive(Debug)]
pub struct ImportedRules {
    /// The file's text.
    pub text: String,
    /// Number of its rules.
    pub rules: usize,
    /// Number of weaknesses of wanted packages without a rule.
    pub left_out: OmittedWeaknesses,
}

/// Numbers of weaknesses of wanted packages that became no rule, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OmittedWeaknesses {
    /// Less severe than [`ImportSelection::severity`].
    pub less_grave: usize,
    /// Older than [`ImportSelection::since`].
    pub older: usize,
    /// The data do not name their versions, or not in a form that rules can use.
    pub unclear: usize,
}

impl fmt::Display for OmittedWeaknesses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.less_grave, "below --severity"),
            (self.older, "before --since"),
            (self.unclear, "without versions that a rule can name"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let told: Vec<String> = counts.map(|(count, why)| format!("{count} {why}")).collect();
        formatter.write_str(&told.join(", "))
    }
}

/// Error of an import.
#[derive(Debug, thiserror::Error)]
pub enum AdvisoryImportError {
    /// A file cannot be read.
    #[error("{file}: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// Error of the system.
        error: std::io::Error,
    },
    /// A file has the wrong content.
    #[error("{place}: {message}")]
    Malformed {
        /// The file, with line and column if known.
        place: String,
        /// Description of the fault.
        message: String,
    },
    /// There are no rules to write.
    #[error("{0}")]
    Nothing(String),
    /// The rules that were made are invalid.
    #[error("the rules that were made are refused: {0}")]
    Refused(#[from] LoadError),
}

impl AdvisoryImportError {
    fn unreadable(file: &Path, error: std::io::Error) -> Self {
        Self::Unreadable { file: file.display().to_string(), error }
    }

    /// Returns the error of the JSON reader, with its position.
    fn json(file: &str, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let behind = format!(" at line {} column {}", error.line(), error.column());
        let message = match error.is_eof() {
            true => "the JSON ends too early: the file is empty or cut off",
            false => text.strip_suffix(&behind).unwrap_or(&text),
        };
        let message = message.to_owned();
        let mut place = file.to_owned();
        if error.line() > 0 {
            place.push_str(&format!(":{}:{}", error.line(), error.column()));
        }
        Self::Malformed { place, message }
    }
}

/// One weakness of one source package, from a distribution's data.
#[derive(Debug, Clone)]
struct PackageWeakness {
    package: String,
    /// `CVE-2024-6387`.
    name: String,
    description: String,
    severity: Severity,
    /// Date of its publication, or the year in its name.
    published: String,
    /// Date of the data's last change; empty if they have none.
    changed: String,
    references: Vec<String>,
    lines: Vec<ReleaseAdvisory>,
    /// Ranges of upstream's affected versions, as rules write them.
    upstream: Vec<String>,
    /// True if some of its versions are unknown: then no other version is known to be fixed.
    unclear: bool,
}

impl PackageWeakness {
    fn add_upstream(&mut self, range: &str) {
        if !self.upstream.iter().any(|known| known == range) {
            self.upstream.push(range.to_owned());
        }
    }
}

/// Publisher of the data.
#[derive(Debug, Clone, Copy)]
struct AdvisoryPublisher {
    /// Prefix of the rules' ids.
    prefix: &'static str,
    /// Name for people.
    name: &'static str,
}

impl fmt::Display for AdvisoryPublisher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// Imports Debian's security tracker, as <https://security-tracker.debian.org/tracker/data/json> has it,
/// or another tracker of the same form.
///
/// # Errors
///
/// Returns the fault of the file with its position, or that it gave no rule.
pub fn debian(
    file: &Path,
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<ImportedRules, AdvisoryImportError> {
    let origin = AdvisoryPublisher { prefix: "debian", name: "Debian security tracker" };
    let mut rules = AdvisoryRulesWriter::new(origin, wanted.date_of(&[]), products, wanted);
    debian::read(file, products, wanted, &mut |weakness| rules.take(weakness))?;
    rules.finish()
}

/// Imports OSV records: files, directories of them, and zip archives.
///
/// # Errors
///
/// Returns the fault of a record with its position, or that the records gave no rule.
pub fn osv(
    paths: &[PathBuf],
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<ImportedRules, AdvisoryImportError> {
    let origin = AdvisoryPublisher { prefix: "osv", name: "OSV" };
    finish(origin, osv::read(paths, products, wanted)?, products, wanted)
}

/// Imports records of the National Vulnerability Database, version 2.0 of its API.
///
/// # Errors
///
/// Returns the fault of a file with its position, or that it gave no rule.
pub fn nvd(
    files: &[PathBuf],
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<ImportedRules, AdvisoryImportError> {
    finish(
        AdvisoryPublisher { prefix: "nvd", name: "NVD" },
        nvd::read(files, products, wanted)?,
        products,
        wanted,
    )
}

/// Imports Alpine's secdb, one file for each branch.
///
/// # Errors
///
/// Returns the fault of a file with its position, or that it gave no rule.
pub fn alpine(
    files: &[PathBuf],
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<ImportedRules, AdvisoryImportError> {
    let origin = AdvisoryPublisher { prefix: "alpine", name: "Alpine secdb" };
    finish(origin, alpine::read(files, products, wanted)?, products, wanted)
}

/// Imports Red Hat's statements in CSAF's VEX profile, one file for each weakness.
///
/// # Errors
///
/// Returns the fault of a file with its position, or that it gave no rule.
pub fn redhat(
    files: &[PathBuf],
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<ImportedRules, AdvisoryImportError> {
    let origin = AdvisoryPublisher { prefix: "redhat", name: "Red Hat CSAF VEX" };
    finish(origin, redhat::read(files, products, wanted)?, products, wanted)
}

/// Writes the rules of weaknesses that were all read before.
fn finish(
    origin: AdvisoryPublisher,
    mut weaknesses: Vec<PackageWeakness>,
    products: &ProductMap,
    wanted: &ImportSelection,
) -> Result<ImportedRules, AdvisoryImportError> {
    weaknesses.sort_by(|one, other| (&one.package, &one.name).cmp(&(&other.package, &other.name)));
    let mut rules = AdvisoryRulesWriter::new(origin, wanted.date_of(&weaknesses), products, wanted);
    // Each weakness is freed once its rule is written.
    weaknesses.into_iter().try_for_each(|weakness| rules.take(weakness))?;
    rules.finish()
}

/// Rules of one source, written one by one.
struct AdvisoryRulesWriter<'w> {
    origin: AdvisoryPublisher,
    date: String,
    products: &'w ProductMap,
    wanted: &'w ImportSelection,
    draft: RuleFileDraft,
    left_out: OmittedWeaknesses,
}

impl<'w> AdvisoryRulesWriter<'w> {
    fn new(
        origin: AdvisoryPublisher,
        date: String,
        products: &'w ProductMap,
        wanted: &'w ImportSelection,
    ) -> Self {
        let draft = RuleFileDraft::new(write_rules::head(origin, &date));
        Self { origin, date, products, wanted, draft, left_out: OmittedWeaknesses::default() }
    }

    /// Writes the rule of a weakness if it is wanted.
    fn take(&mut self, mut weakness: PackageWeakness) -> Result<(), AdvisoryImportError> {
        let Self { origin, date, products, wanted, draft, left_out } = self;
        if wanted.exploited.holds(&weakness.name) {
            weakness.severity = Severity::Critical;
        }
        let left_out_for = if weakness.severity < wanted.severity {
            Some(&mut left_out.less_grave)
        } else if !wanted.is_recent(&weakness) {
            Some(&mut left_out.older)
        } else if weakness.unclear || (weakness.lines.is_empty() && weakness.upstream.is_empty()) {
            Some(&mut left_out.unclear)
        } else {
            None
        };
        if let Some(count) = left_out_for {
            *count += 1;
            return Ok(());
        }
        if let Some(product) = products.of(&weakness.package) {
            draft.claim(write_rules::id(*origin, &weakness))?;
            write_rules::rule(&mut draft.text, (*origin, date), &weakness, product, wanted);
            draft.written()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ImportedRules, AdvisoryImportError> {
        if self.draft.ids.is_empty() {
            let mut message = "no weakness in the data fits the selection".to_owned();
            if self.left_out != OmittedWeaknesses::default() {
                message.push_str(&format!(": left out {}", self.left_out));
            }
            return Err(AdvisoryImportError::Nothing(message));
        }
        self.draft.check()?;
        Ok(ImportedRules { text: self.draft.text, rules: self.draft.ids.len(), left_out: self.left_out })
    }
}

/// A rule file that is being written. It is parsed piece by piece, because parsing all of it takes
/// several times its size in memory.
struct RuleFileDraft {
    text: String,
    /// Number of bytes of the head that precedes each parsed piece.
    head: usize,
    /// Start of the part that was not parsed yet.
    unread: usize,
    ids: HashSet<String>,
}

impl RuleFileDraft {
    fn new(head: String) -> Self {
        Self { head: head.len(), unread: head.len(), text: head, ids: HashSet::new() }
    }

    /// Records the id of the next rule; each id must be unique.
    fn claim(&mut self, id: String) -> Result<(), AdvisoryImportError> {
        if self.ids.len() >= limits::RULES {
            return Err(AdvisoryImportError::Nothing(format!("more than {} rules: {LESS}", limits::RULES)));
        }
        if self.ids.contains(&id) {
            return Err(AdvisoryImportError::Nothing(format!(
                "the data contain {id} twice, with other letters"
            )));
        }
        self.ids.insert(id);
        Ok(())
    }

    /// Checks the bounds after each rule.
    fn written(&mut self) -> Result<(), AdvisoryImportError> {
        if u64::try_from(self.text.len()).unwrap_or(u64::MAX) > limits::FILE_OCTETS {
            let most = limits::FILE_OCTETS >> 20;
            let count = self.ids.len();
            return Err(AdvisoryImportError::Nothing(format!(
                "more rules than one file may hold ({most} MiB, full after {count}): {LESS}"
            )));
        }
        if self.text.len() - self.unread >= PIECE { self.check() } else { Ok(()) }
    }

    /// Parses the part that was written since the last check.
    fn check(&mut self) -> Result<(), AdvisoryImportError> {
        let [head, rules] =
            [self.text.get(..self.head), self.text.get(self.unread..)].map(Option::unwrap_or_default);
        if !rules.is_empty() {
            RuleSet::parse("the rules", &format!("{head}{rules}"))?;
        }
        self.unread = self.text.len();
        Ok(())
    }
}

impl ImportSelection {
    /// True if a package is wanted.
    fn names(&self, package: &str) -> bool {
        self.packages.is_empty() || self.packages.iter().any(|wanted| wanted == package)
    }

    /// Returns the date of the data.
    fn date_of(&self, weaknesses: &[PackageWeakness]) -> String {
        let days = weaknesses.iter().filter_map(|weakness| day(&weakness.changed));
        let told = || days.max().map(str::to_owned);
        self.date.clone().or_else(told).unwrap_or_else(|| self.changed.clone())
    }

    /// Returns the verdicts on a weakness that cause a match.
    fn reported(&self, weakness: &PackageWeakness) -> Vec<AdvisoryVerdict> {
        // Only Debian's and Ubuntu's banners show packages, so other data never give the verdict
        // affected.
        let shows_package =
            |line: &ReleaseAdvisory| matches!(line.distribution.as_str(), "Debian" | "Ubuntu");
        match &self.report {
            Some(report) => report.clone(),
            None if self.block_unknown || !weakness.lines.iter().any(shows_package) => {
                vec![AdvisoryVerdict::Affected, AdvisoryVerdict::Unknown]
            }
            None => vec![AdvisoryVerdict::Affected],
        }
    }

    fn is_recent(&self, weakness: &PackageWeakness) -> bool {
        self.since.as_ref().is_none_or(|since| {
            let published = weakness.published.as_str();
            // A year is not before a day in it.
            !published.is_empty() && published >= since.get(..published.len()).unwrap_or(since)
        })
    }
}

/// Returns the day of a time, `2026-11-20T13:14:15Z`; none if it has another form.
fn day(time: &str) -> Option<&str> {
    let day = time.get(..10)?;
    let is_day = day.bytes().enumerate().all(|(at, octet)| match at {
        4 | 7 => octet == b'-',
        _ => octet.is_ascii_digit(),
    });
    is_day.then_some(day)
}

/// Returns the year of a weakness's name, `2024` of `CVE-2024-6387`; empty if it has none.
fn year(name: &str) -> String {
    let year = name.strip_prefix("CVE-").and_then(|rest| rest.split_once('-')).map(|(year, _)| year);
    year.unwrap_or_default().to_owned()
}

/// Returns a severity by the words of distributions, GitHub and CVSS.
fn severity(word: &str) -> Option<Severity> {
    match word.to_ascii_lowercase().trim_end_matches('*') {
        "negligible" | "unimportant" => Some(Severity::Info),
        "low" => Some(Severity::Low),
        "medium" | "moderate" => Some(Severity::Medium),
        "high" | "important" => Some(Severity::High),
        "critical" => Some(Severity::Critical),
        _ => None,
    }
}

/// True if a rule can hold a reference.
fn is_reference(text: &str) -> bool {
    !text.is_empty() && text.len() < limits::NAME_OCTETS && !text.chars().any(char::is_control)
}

/// Checks that a vulnerability's name can stand in a rule's id and on one line.
///
/// # Errors
///
/// It cannot; the message shows the name.
fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(format!("`{}` is not a vulnerability's name", name.escape_default()))
}
