//! The poller of a guard's published rules: it requests newer versions, verifies them, applies them, stores
//! them, and reports the result. A failure changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::key::PublicKeys;
use super::pack::RulePack;
use super::{PackError, stored_pack};
use crate::database::DatabaseLocation;
use crate::diagnostics::log_line;
use crate::fleet::database::{RulesClient, RulesOffer};
use crate::inventory::StoreError;
use crate::rules::{ProfileFilter, RuleSelection, RuleSet};
use crate::terms::cut;

/// Interval at which a guard that has nothing new to say is heard of.
const HEARD: Duration = Duration::from_secs(300);

/// Octets of a reason that are told.
const REASON: usize = 4 << 10;

/// The source of a guard's published rules.
#[derive(Debug, Clone)]
pub struct FleetRulesConfig {
    /// The database.
    pub place: DatabaseLocation,
    /// The keys that may have signed them.
    pub keys: PublicKeys,
    /// The file that they are kept in.
    pub state: PathBuf,
    /// Interval at which newer ones are asked for.
    pub poll: Duration,
    /// The uses whose rules are in force.
    pub profiles: ProfileFilter,
    /// True to alert of connections that no policy could allow.
    pub learns: bool,
}

/// A version of the rules, verified and read.
#[derive(Debug, Clone)]
pub struct FetchedRules {
    /// Its number.
    pub version: i64,
    /// The rules to load.
    pub selection: RuleSelection,
}

/// Why a version did not come in force.
#[derive(Debug)]
pub enum ApplyRulesError {
    /// It is refused.
    Refused(String),
    /// Nobody puts anything in force any more.
    Gone,
}

/// Function that puts a version in force.
pub type ApplyRules<'a> = dyn FnMut(&FetchedRules) -> Result<(), ApplyRulesError> + 'a;

/// Why there are no rules to begin with.
#[derive(Debug, thiserror::Error)]
pub enum FetchRulesError {
    /// The server cannot be asked, and no file is kept.
    #[error("--rules-from {error}; and {} holds no rules", state.display())]
    Away {
        /// The server's message.
        error: StoreError,
        /// The file that would hold them.
        state: PathBuf,
    },
    /// It has none.
    #[error(
        "--rules-from {0}: no version of the rules is published for this sensor; see `bannerwall fleet \
         rules status`"
    )]
    None(DatabaseLocation),
    /// It has none that is not older than what was in force.
    #[error(
        "--rules-from {place}: version {version} of the rules was in force here and is no longer \
         published, and the guard takes no older one: publish a newer one, or remove {} to accept an older \
         one", file.display()
    )]
    Older {
        /// The database that was asked.
        place: DatabaseLocation,
        /// The version that was in force.
        version: i64,
        /// The file that says so.
        file: PathBuf,
    },
    /// None of those that it has is taken.
    #[error("--rules-from {0}: version {1} of the rules is refused: {2}")]
    Refused(DatabaseLocation, i64, String),
}

/// Takes versions, each newer than the one before.
#[derive(Debug)]
pub struct RulePoller {
    from: FleetRulesConfig,
    version: Option<i64>,
    /// The newest version that was in force by the files; nothing below it is taken.
    floor: Option<i64>,
    /// The number in its file.
    noted: Option<i64>,
    /// Versions above it that were refused, by number and publisher: the signature that they had, and why.
    refused: BTreeMap<(i64, String), (String, String)>,
    counts: RulePollCounts,
    /// The version in force that is not written to the file yet.
    unkept: Option<Vec<u8>>,
    /// The last report to the server.
    told: Option<ReportedRules>,
    /// The last complaints about server and file.
    complaints: [bool; 3],
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RulePollCounts {
    /// Versions that were refused.
    pub refusals: u64,
    /// Times that newer versions were asked for, and an answer came.
    pub polls: u64,
    /// Times that none came.
    pub failures: u64,
}

/// The report to the server: the version in force, the refused version with its reason, and the time.
#[derive(Debug)]
struct ReportedRules {
    version: Option<i64>,
    refused: Option<(i64, String)>,
    when: Instant,
}

/// Faults that may last, and are reported once.
#[derive(Debug, Clone, Copy)]
enum PollFaultKind {
    Server,
    File,
    Telling,
}

impl RulePoller {
    /// Has nothing in force yet.
    pub fn new(from: FleetRulesConfig) -> Self {
        Self {
            version: None,
            floor: None,
            noted: None,
            refused: BTreeMap::new(),
            counts: RulePollCounts::default(),
            unkept: None,
            told: None,
            complaints: [false; 3],
            from,
        }
    }

    /// Starts with the version that is kept, else with the one that the server has.
    ///
    /// # Errors
    /// There is none.
    pub fn load_initial(&mut self) -> Result<FetchedRules, FetchRulesError> {
        self.noted = stored_pack::number(&self.from.state).unwrap_or_else(|error| {
            let file = stored_pack::number_file(&self.from.state);
            log_line(format_args!("bannerwall: {}: ignored: {error}", file.display()));
            None
        });
        self.floor = self.noted;
        if let Some(taken) = self.read_stored() {
            self.version = Some(taken.version);
            return Ok(taken);
        }
        let mut first = None;
        let mut enforce = |taken: &FetchedRules| {
            RuleSet::load(&taken.selection).map_err(|error| ApplyRulesError::Refused(error.to_string()))?;
            first = Some(taken.clone());
            Ok(())
        };
        // Nothing is written yet, here or there: this may be a trial, and another user's file.
        let looked = RulesClient::open(&self.from.place).and_then(|shelf| self.ask(&shelf, &mut enforce));
        let (place, state) = (self.from.place.clone(), self.from.state.clone());
        match (looked, first) {
            (_, Some(taken)) => Ok(taken),
            (Err(error), None) => Err(FetchRulesError::Away { error, state }),
            (Ok(_), None) => Err(match self.refused.pop_last() {
                Some(((version, _), (_, reason))) => FetchRulesError::Refused(place, version, reason),
                None => match self.floor {
                    Some(version) => FetchRulesError::Older {
                        place,
                        version,
                        file: stored_pack::number_file(&self.from.state),
                    },
                    None => FetchRulesError::None(place),
                },
            }),
        }
    }

    /// The version in force.
    pub const fn version(&self) -> Option<i64> {
        self.version
    }

    /// Returns the counts since the start.
    pub const fn counts(&self) -> RulePollCounts {
        self.counts
    }

    /// Returns the database that the poller asks.
    pub const fn place(&self) -> &DatabaseLocation {
        &self.from.place
    }

    /// Interval at which newer versions are to be asked for.
    pub const fn poll(&self) -> Duration {
        self.from.poll
    }

    /// Asks for newer versions, and takes the newest that is meant for this sensor and good; whether there is
    /// anybody who puts it in force.
    pub fn poll_and_apply(&mut self, enforce: &mut ApplyRules<'_>) -> bool {
        let before = self.version;
        let asked =
            RulesClient::open(&self.from.place).and_then(|shelf| Ok((self.ask(&shelf, enforce)?, shelf)));
        if let Some(version) = self.version.filter(|_| self.version != before) {
            log_line(format_args!("bannerwall: rules: version {version} is in force"));
        }
        self.keep();
        match asked {
            Ok((goes_on, shelf)) => {
                self.counts.polls += 1;
                if self.clear_fault(PollFaultKind::Server) {
                    log_line("bannerwall: rules: the database is back");
                }
                self.report(&shelf);
                goes_on
            }
            Err(error) => {
                self.counts.failures += 1;
                let what = format_args!("{error}: the rules in force stay, and the guard polls again");
                self.report_fault_once(PollFaultKind::Server, what);
                true
            }
        }
    }

    /// Reads the file's version, if it is valid and not older than the one that was in force.
    fn read_stored(&mut self) -> Option<FetchedRules> {
        let kept = stored_pack::read(&self.from.state, &self.from.keys).and_then(|pack| {
            let Some(pack) = pack else { return Ok(None) };
            if let Some(newer) = self.floor.filter(|floor| *floor > pack.version) {
                return Err(format!("it is version {}, and version {newer} was in force", pack.version));
            }
            // Also of one that does not load.
            self.floor = Some(pack.version);
            let taken = self.taken(&pack);
            RuleSet::load(&taken.selection).map(|_| Some(taken)).map_err(|error| error.to_string())
        });
        kept.unwrap_or_else(|error| {
            let state = self.from.state.display();
            log_line(format_args!("bannerwall: --rules-state {state}: ignored: {error}"));
            None
        })
    }

    /// Returns the version in force, or the one just below the oldest that is allowed.
    fn above(&self) -> i64 {
        self.version.or(self.floor.map(|floor| floor - 1)).unwrap_or_default()
    }

    fn taken(&self, pack: &RulePack) -> FetchedRules {
        let selection = pack.selection(self.from.profiles.clone());
        FetchedRules {
            version: pack.version,
            selection: RuleSelection { learns: self.from.learns, ..selection },
        }
    }

    fn ask(&mut self, shelf: &RulesClient, enforce: &mut ApplyRules<'_>) -> Result<bool, StoreError> {
        let sensor = shelf.sensor()?;
        let above = self.above();
        let mut offers = shelf.offers(above)?;
        // Whatever the server says of their numbers.
        offers.retain(|offer| offer.serial > above && offer.is_meant_for(&sensor));
        // A refusal is forgotten once its offer is withdrawn, so the table of refusals cannot grow.
        self.refused.retain(|key, _| offers.iter().any(|offer| offer.key() == *key));
        for offer in offers {
            // A refused version is not fetched again, unless it was signed again.
            if self.refused.get(&offer.key()).is_some_and(|(signature, _)| *signature == offer.signature) {
                continue;
            }
            let octets = shelf.pack(&offer)?;
            match self.take(&offer, octets, enforce) {
                Ok(()) => break,
                Err(ApplyRulesError::Gone) => return Ok(false),
                Err(ApplyRulesError::Refused(reason)) => self.refuse(&offer, &reason),
            }
        }
        Ok(true)
    }

    /// Verifies a version, reads it, and has it put in force.
    fn take(
        &mut self,
        offer: &RulesOffer,
        octets: Option<Vec<u8>>,
        enforce: &mut ApplyRules<'_>,
    ) -> Result<(), ApplyRulesError> {
        let refused = |error: String| ApplyRulesError::Refused(error);
        let octets = octets.ok_or_else(|| refused(PackError::Large.to_string()))?;
        // Nothing of it is read before.
        self.from.keys.verify(&octets, &offer.signature).map_err(|error| refused(error.to_string()))?;
        let pack = RulePack::parse(&octets).map_err(|error| refused(error.to_string()))?;
        // The signature does not cover the number in the table. Without this check a database could
        // offer an old pack as new.
        if pack.version != offer.serial {
            return Err(refused(format!(
                "it was signed as version {}, and is published as version {}",
                pack.version, offer.serial
            )));
        }
        // The version counts as in force only after the workers use it.
        enforce(&self.taken(&pack))?;
        self.version = Some(pack.version);
        self.refused.retain(|(serial, _), _| *serial > pack.version);
        self.unkept = Some(stored_pack::written(&octets, &offer.signature));
        Ok(())
    }

    fn refuse(&mut self, offer: &RulesOffer, reason: &str) {
        let stays =
            self.version.map_or_else(String::new, |version| format!("; version {version} stays in force"));
        log_line(format_args!("bannerwall: rules: version {} is refused{stays}: {reason}", offer.serial));
        let reason = cut(reason, REASON).to_owned();
        self.counts.refusals += 1;
        self.refused.insert(offer.key(), (offer.signature.clone(), reason));
    }

    /// Writes what is in force to the file, and its number beside it.
    fn keep(&mut self) {
        if self.unkept.is_none() && self.noted >= self.version {
            return;
        }
        match self.write() {
            Ok(()) => {
                let _ = self.clear_fault(PollFaultKind::File);
            }
            Err(error) => {
                let state = self.from.state.display().to_string();
                self.report_fault_once(
                    PollFaultKind::File,
                    format_args!("--rules-state {state}: cannot store the rules in force: {error}"),
                );
            }
        }
    }

    fn write(&mut self) -> std::io::Result<()> {
        if let Some(octets) = &self.unkept {
            crate::files::replace(&self.from.state, octets)?;
            self.unkept = None;
        }
        // Behind it: a number without its pack would keep a start from what is there.
        if let Some(version) = self.version.filter(|version| self.noted < Some(*version)) {
            crate::files::replace(
                &stored_pack::number_file(&self.from.state),
                format!("{version}\n").as_bytes(),
            )?;
            self.noted = Some(version);
        }
        Ok(())
    }

    /// Says how it stands, where that is new or was said long ago.
    fn report(&mut self, shelf: &RulesClient) {
        let refused =
            self.refused.last_key_value().map(|((serial, _), (_, reason))| (*serial, reason.clone()));
        let is_told = |told: &ReportedRules| (told.version, &told.refused) == (self.version, &refused);
        if self.told.as_ref().is_some_and(|told| is_told(told) && told.when.elapsed() < HEARD) {
            return;
        }
        match shelf.report_state(self.version, refused.as_ref()) {
            Ok(()) => {
                self.told = Some(ReportedRules { version: self.version, refused, when: Instant::now() });
                let _ = self.clear_fault(PollFaultKind::Telling);
            }
            Err(error) => {
                self.report_fault_once(
                    PollFaultKind::Telling,
                    format_args!("cannot report the version in force: {error}"),
                );
            }
        }
    }

    /// True if something is well that was not.
    fn clear_fault(&mut self, about: PollFaultKind) -> bool {
        std::mem::take(&mut self.complaints[about as usize])
    }

    fn report_fault_once(&mut self, about: PollFaultKind, what: std::fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.complaints[about as usize], true) {
            log_line(format_args!("bannerwall: rules: {what}"));
        }
    }
}
