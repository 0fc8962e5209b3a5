//! Published rules of a guard: it polls for newer versions, verifies them, puts them in force, stores them,
//! and reports the result. A failure changes nothing.

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

/// Interval at which a guard without news reports its state.
const HEARD: Duration = Duration::from_secs(300);

/// Maximum number of bytes of a reported reason.
const REASON: usize = 4 << 10;

/// Source of a guard's rules.
#[derive(Debug, Clone)]
pub struct FleetRulesConfig {
    /// The database.
    pub place: DatabaseLocation,
    /// Trusted signers.
    pub keys: PublicKeys,
    /// The file in which the rules are stored.
    pub state: PathBuf,
    /// Interval between polls.
    pub poll: Duration,
    /// Profiles whose rules are loaded.
    pub profiles: ProfileFilter,
    /// True to alert about connections that no policy could allow.
    pub learns: bool,
}

/// A version of the rules, verified and read.
#[derive(Debug, Clone)]
pub struct FetchedRules {
    /// The number of the version.
    pub version: i64,
    /// The rules to load.
    pub selection: RuleSelection,
}

/// The reason why a version did not come into force.
#[derive(Debug)]
pub enum ApplyRulesError {
    /// The version is refused.
    Refused(String),
    /// The receiver is gone.
    Gone,
}

/// Puts a version into force.
pub type ApplyRules<'a> = dyn FnMut(&FetchedRules) -> Result<(), ApplyRulesError> + 'a;

/// Error: there are no rules to start with.
#[derive(Debug, thiserror::Error)]
pub enum FetchRulesError {
    /// The server is away, and no file is stored.
    #[error("--rules-from {error}; and {} holds no rules", state.display())]
    Away {
        /// The server's error.
        error: StoreError,
        /// The file of stored rules.
        state: PathBuf,
    },
    /// The server has no version for this sensor.
    #[error(
        "--rules-from {0}: no version of the rules is published for this sensor; see `bannerwall fleet \
         rules status`"
    )]
    None(DatabaseLocation),
    /// The server has only versions older than the one that was in force.
    #[error(
        "--rules-from {place}: version {version} of the rules was in force here and is no longer \
         published, and the guard takes no older one: publish a newer one, or remove {} to accept an older \
         one", file.display()
    )]
    Older {
        /// The database.
        place: DatabaseLocation,
        /// The version that was in force.
        version: i64,
        /// The file with that version's number.
        file: PathBuf,
    },
    /// All versions of the server are refused.
    #[error("--rules-from {0}: version {1} of the rules is refused: {2}")]
    Refused(DatabaseLocation, i64, String),
}

/// Fetches versions, each newer than the one before.
#[derive(Debug)]
pub struct RulePoller {
    from: FleetRulesConfig,
    version: Option<i64>,
    /// The newest version that was in force, by the files; older ones are not taken.
    floor: Option<i64>,
    /// The number in the file.
    noted: Option<i64>,
    /// Refused versions above it, by number and publisher, with their signature and the reason.
    refused: BTreeMap<(i64, String), (String, String)>,
    counts: RulePollCounts,
    /// The version in force, if it is not stored yet.
    unkept: Option<Vec<u8>>,
    /// The last report to the server.
    told: Option<ReportedRules>,
    /// True for each kind of fault that was reported and still exists.
    complaints: [bool; 3],
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RulePollCounts {
    /// Versions that were refused.
    pub refusals: u64,
    /// Successful polls.
    pub polls: u64,
    /// Failed polls.
    pub failures: u64,
}

/// A report to the server: the version in force, the refused one and the reason, and the time.
#[derive(Debug)]
struct ReportedRules {
    version: Option<i64>,
    refused: Option<(i64, String)>,
    when: Instant,
}

/// A fault that may last, and is reported once.
#[derive(Debug, Clone, Copy)]
enum PollFaultKind {
    Server,
    File,
    Telling,
}

impl RulePoller {
    /// Creates a poller without rules.
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

    /// Returns the stored version, or else the server's.
    ///
    /// # Errors
    ///
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

    /// Returns the version in force.
    pub const fn version(&self) -> Option<i64> {
        self.version
    }

    /// Returns the counts since the start.
    pub const fn counts(&self) -> RulePollCounts {
        self.counts
    }

    /// Returns the database.
    pub const fn place(&self) -> &DatabaseLocation {
        &self.from.place
    }

    /// Returns the interval between polls.
    pub const fn poll(&self) -> Duration {
        self.from.poll
    }

    /// Polls for newer versions, and puts the newest valid one for this sensor into force. Returns false if
    /// the receiver of rules is gone.
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

    /// Returns the stored version, if it is valid and not older than the one that was in force.
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

    /// Returns the number that a version must exceed.
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

    /// Verifies a version, reads it, and puts it into force.
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

    /// Stores the version in force, and its number.
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

    /// Reports the state if it is new, or if the last report is old.
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

    /// Clears a fault. Returns true if it was reported.
    fn clear_fault(&mut self, about: PollFaultKind) -> bool {
        std::mem::take(&mut self.complaints[about as usize])
    }

    fn report_fault_once(&mut self, about: PollFaultKind, what: std::fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.complaints[about as usize], true) {
            log_line(format_args!("bannerwall: rules: {what}"));
        }
    }
}
