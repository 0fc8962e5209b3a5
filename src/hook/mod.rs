//! The netfilter hook: iptables and ip6tables rules that lead TCP packets to the guard's queues.
//!
//! This module owns the chains `BANNERWALL`, `BANNERWALL-PASS`, `BANNERWALL-BLOCK` and `BANNERWALL-CLEAN` of
//! table `mangle`, and the jumps to them. It changes no other rule and no base chain (unregistering one would
//! flush every queue of the network namespace). It handles no packets.
//!
//! # Path of a packet
//!
//! ```text
//! INPUT, OUTPUT, FORWARD ──tcp──► BANNERWALL
//!   connection mark PASS, no SYN → RETURN          decided before: never queued again
//!   neither packet mark nor connection mark
//!                           → NFQUEUE              most packets of undecided connections
//!   connection mark RELEASED, from the server, or from the client without octets
//!                           → RETURN               a body that need not be read, and what acknowledges it
//!   SYN, connection mark PASS → take it off        what opens a connection is judged
//!   RST, packet mark OURS   → RETURN               a reset that the guard sent
//!   RST, connection mark BLOCK → RETURN            one whose mark others took off, or an end's own
//!   packet mark BLOCK       → BANNERWALL-BLOCK     save to the connection, DROP
//!   SYN-ACK, connection mark BLOCK → take it off   the ends open another connection
//!   SYN, or an empty segment of the server, connection mark BLOCK
//!                           → NFQUEUE              they may be about to do so
//!   connection mark BLOCK   → DROP                 decided before: the kernel drops by itself
//!   packet mark PASS        → BANNERWALL-PASS      save to the connection, clear our bits, return
//!   packet mark RELEASED, from the client, without octets
//!                           → BANNERWALL-PASS      save to the connection
//!   connection mark RELEASED → take it off         the client says more, or something ends
//!   all else                → NFQUEUE
//! PREROUTING, OUTPUT ──tcp, any packet mark──► BANNERWALL-CLEAN
//!                                                  clear PASS and BLOCK, which others restored
//! ```
//!
//! The guard answers the packet that decides a flow with `NF_REPEAT` and a mark. The packet runs through the
//! same base chain again, and the rules above save the mark to its connection. This needs only the kernel's
//! `mark` and `connmark` modules. Setting the connection mark with the verdict (`NFQA_CT`) is silently
//! ignored by kernels without `NETFILTER_NETLINK_GLUE_CT`.
//!
//! The jumps stand *after* the existing rules of a base chain. `NF_ACCEPT` ends the chain that queued the
//! packet, so rules after the jump (a `TCPMSS` clamp, for example) would miss the first packets of a
//! connection. They stand *before* the first rule that lets packets leave the chain (`ACCEPT`, `RETURN`,
//! another program's `NFQUEUE`, a chain with such a rule), since its packets would pass uninspected.
//! [`status()`] and [`HookMonitor`] detect misplaced rules that are added later, and the next [`up`] moves
//! the jumps.
//!
//! # Bodies
//!
//! If every request is read, the flow stays undecided, and the guard releases it while the body of a response
//! passes (`crates/inspect/src/engine/body_offload.rs` decides when). A connection does not use the fourth
//! value of the two bits otherwise, and a packet only for a reset, so no further bit is needed. The kernel
//! decides which end sends (`--ctdir`). If its tracking mistook the server for the client (after a flush amid
//! the connection), the mark is not saved. A classic BPF program decides whether a segment has data
//! (`src/hook/release_rules.rs`). A kernel without these matches gets the hook without these rules, and
//! queues everything.
//!
//! The client's next data is queued, and its packet clears the mark first: no verdict has to return for that,
//! and no reply can be there yet. Such a packet carries the value in its own mark to the queue. The guard
//! thereby recognizes a packet that came before the release was in force, and repeats it.
//!
//! # Third-party marks
//!
//! The decision is stored in two bits of the connection mark, and is cleared from the packet mark before the
//! packet leaves the chain. Third-party rules that copy a connection's whole mark to its packets bring it
//! back. `BANNERWALL-CLEAN` is the last rule in the two base chains before routing, and clears it again. So
//! `ip rule fwmark 2` matches as without the hook.
//!
//! # Why iptables, and not a table of our own
//!
//! A table that only bannerwall writes (`inet bannerwall`) would survive `iptables-restore`, and would need
//! no place among other rules. But it needs the `queue` expression (`CONFIG_NFT_QUEUE`). Kernels with
//! iptables' `NFQUEUE` may lack it, and `nft` does not accept an iptables target instead. `nft flush ruleset`
//! would remove it all the same. So there is one form of the hook, and it is watched.
pub(crate) mod ban_call;
pub(crate) mod bans;
mod config;
pub(crate) mod early_demux;
pub mod hook_state;
mod hooked_traffic;
mod iptables;
mod listeners;
mod mark;
mod monitor;
mod program_calls;
pub(crate) mod program_helper;
mod programs;
mod release_rules;
mod rule_changes;
mod rule_text;
mod status;
mod table_listing;
mod third_party_rules;

use std::fmt;

pub use config::{BaseChain, HookConfig, PortList, QueueRange};
pub use early_demux::turn_off_early_demux;
pub use listeners::{QueueListener, listeners};
pub use mark::{MarkField, MarkState};
pub use monitor::{FamilyHookState, HookCheckResult, HookMonitor};
pub(crate) use program_calls::MachineQuery;
pub use programs::ProgramRunner;
pub use rule_changes::{RuleChangeSocket, WakeReason};
pub use status::{FamilyStatus, HookCounters, InstalledHook};

use iptables::IptablesInstance;
use serde::{Deserialize, Serialize};
use table_listing::TableListing;

/// Address family, which iptables keeps apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IpFamily {
    /// `iptables`.
    V4,
    /// `ip6tables`.
    V6,
}

impl IpFamily {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    const fn program(self, variant: IptablesVariant) -> &'static str {
        match (self, variant) {
            (Self::V4, IptablesVariant::System) => "iptables",
            (Self::V4, IptablesVariant::Legacy) => "iptables-legacy",
            (Self::V4, IptablesVariant::Nft) => "iptables-nft",
            (Self::V6, IptablesVariant::System) => "ip6tables",
            (Self::V6, IptablesVariant::Legacy) => "ip6tables-legacy",
            (Self::V6, IptablesVariant::Nft) => "ip6tables-nft",
        }
    }

    /// True if this kernel supports the family (`ipv6.disable=1` removes IPv6).
    fn is_enabled(self) -> bool {
        self == Self::V4 || std::path::Path::new("/proc/net/if_inet6").exists()
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Implementation of iptables; their rules do not see one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum IptablesVariant {
    /// The machine's `iptables`.
    #[default]
    System,
    /// `iptables-legacy`, over the kernel's old interface.
    Legacy,
    /// `iptables-nft`, over `nf_tables`.
    Nft,
}

impl fmt::Display for IptablesVariant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::System => "system",
            Self::Legacy => "legacy",
            Self::Nft => "nf_tables",
        })
    }
}

/// Error of putting the hook up, taking it down or reading it.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The program is missing or cannot be run.
    #[error(
        "cannot run `{program}` ({family}): {message} (Debian: apt install iptables; or exclude the family: --family)"
    )]
    Program {
        /// Address family of the program.
        family: IpFamily,
        /// Program.
        program: String,
        /// Reason.
        message: String,
    },
    /// The kernel refuses for lack of privilege.
    #[error(
        "not permitted: `{command}` needs CAP_NET_ADMIN: run as root, or give this program the ambient capability (a file capability, from setcap, does not reach the programs it runs): {message}"
    )]
    NotPermitted {
        /// Whole command.
        command: String,
        /// Output of iptables.
        message: String,
    },
    /// The shared lock of the legacy iptables programs is not available.
    #[error(
        "`{command}` cannot lock /run/xtables.lock, which belongs to root: use the nf_tables variant (--iptables nft), set XTABLES_LOCKFILE to another file, or run as root: {message}"
    )]
    Lock {
        /// Whole command.
        command: String,
        /// Output of iptables.
        message: String,
    },
    /// The kernel does not support this address family.
    #[error("this kernel does not support {family}: {message}")]
    NoFamily {
        /// Address family.
        family: IpFamily,
        /// Output of iptables.
        message: String,
    },
    /// iptables refused a command.
    #[error(
        "`{command}` failed (status {code}): {message}; `bannerwall doctor` shows the missing kernel option"
    )]
    Refused {
        /// Whole command.
        command: String,
        /// Exit status of iptables.
        code: i32,
        /// Output of iptables.
        message: String,
    },
    /// The table of bans could not be removed.
    #[error("cannot remove the table of bans: {0}")]
    Bans(String),
    /// iptables did not answer in time, or the thread that runs it has failed.
    #[error("iptables did not finish in time: check with `bannerwall hook status`")]
    Unanswered,
    /// Third-party rules lead to one of the hook's chains, so it cannot be removed.
    #[error("third-party rules still lead to bannerwall's chain; remove them first: {0}")]
    Referenced(String),
}

impl HookError {
    /// True if a privilege or a feature of this machine is missing, instead of valid input.
    pub fn is_unsupported(&self) -> bool {
        !matches!(self, Self::Referenced(_))
    }
}

/// Result of [`up`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookUpResult {
    /// The same hook existed already.
    Unchanged,
    /// A hook with other options was replaced, without a gap.
    Replaced,
    /// The hook was created.
    Created,
}

/// Implementation of iptables and address families.
#[derive(Debug, Clone)]
pub struct IptablesScope {
    /// Implementation of iptables.
    pub variant: IptablesVariant,
    /// Address families; those that this kernel does not support are left out.
    pub families: Vec<IpFamily>,
    /// Runner of the programs.
    pub programs: ProgramRunner,
}

impl IptablesScope {
    fn families(&self) -> impl Iterator<Item = IpFamily> {
        self.families.iter().copied().filter(|family| family.is_enabled())
    }

    /// Opens the tables of the requested variant for every family; fails if one is missing.
    fn open(&self) -> Result<Vec<IptablesInstance>, HookError> {
        self.families().map(|family| IptablesInstance::open(family, self.variant, &self.programs)).collect()
    }

    /// Returns every place that may hold a hook: the requested variant and, if that is the system's choice,
    /// the other one as well.
    fn places(&self) -> impl Iterator<Item = (IpFamily, Result<IptablesInstance, HookError>)> {
        self.families().flat_map(|family| {
            let tables = IptablesInstance::open(family, self.variant, &self.programs);
            let other = match (&tables, self.variant) {
                (Ok(tables), IptablesVariant::System) => tables.other(),
                _ => None,
            };
            [Some(tables), other.map(Ok)].into_iter().flatten().map(move |place| (family, place))
        })
    }
}

/// All families.
impl From<IptablesVariant> for IptablesScope {
    fn from(variant: IptablesVariant) -> Self {
        Self { variant, families: IpFamily::ALL.to_vec(), programs: ProgramRunner::Here }
    }
}

/// Returns the commands that put the hook up on a machine without one, for every requested family.
///
/// Needs no privilege.
pub fn print(config: &HookConfig, scope: impl Into<IptablesScope>) -> String {
    let IptablesScope { variant, families, .. } = scope.into();
    let settings = config.chains.contains(&BaseChain::Input).then(|| format!("{}\n", early_demux::TURN_OFF));
    let rules = families.iter().map(|family| print_family(config, family.program(variant)));
    settings.into_iter().chain(rules).collect()
}

fn print_family(config: &HookConfig, program: &str) -> String {
    use fmt::Write as _;
    let table = rule_text::TABLE;
    let mut text = String::new();
    for (chain, rules) in rule_text::chains(config) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{program} -w -t {table} -N {chain}");
        for rule in rules {
            let _ = writeln!(text, "{program} -w -t {table} -A {chain} {rule}");
        }
    }
    for (base, rule) in rule_text::jumps(config) {
        let _ = writeln!(text, "{program} -w -t {table} -A {base} {rule}");
    }
    text
}

/// Puts the hook up for every requested family, or adapts an existing one to `config`.
///
/// All or nothing: each family's rules are one transaction, and if the second family's fails, the first one's
/// is reverted.
///
/// # Errors
///
/// iptables is missing or refuses; everything is then as before.
pub fn up(config: &HookConfig, scope: impl Into<IptablesScope>) -> Result<HookUpResult, HookError> {
    let places = scope.into().open()?;
    // Listed before any change: this is what a failed run returns to.
    let listings = places.iter().map(IptablesInstance::list).collect::<Result<Vec<TableListing>, _>>()?;
    let mut done = HookUpResult::Unchanged;
    for (index, (tables, listing)) in places.iter().zip(&listings).enumerate() {
        match up_family(tables, listing, config) {
            Ok(HookUpResult::Unchanged) => {}
            Ok(up) => done = up,
            // Each family is a transaction of its own, so the ones that succeeded are reverted by hand.
            Err(error) => {
                for (tables, before) in places.iter().zip(&listings).take(index) {
                    put_back(tables, before);
                }
                return Err(error);
            }
        }
    }
    Ok(done)
}

/// Puts the hook up with all matches that the kernel has.
fn up_family(
    tables: &IptablesInstance,
    there: &TableListing,
    config: &HookConfig,
) -> Result<HookUpResult, HookError> {
    match change_family(tables, there, config) {
        // iptables does not name the match that the kernel lacks. The two of the release rules are the
        // optional ones, so the hook is tried without them.
        Err(HookError::Refused { .. }) if config.releases => {
            let plain = HookConfig { releases: false, ..config.clone() };
            change_family(tables, there, &plain)
        }
        done => done,
    }
}

fn change_family(
    tables: &IptablesInstance,
    there: &TableListing,
    config: &HookConfig,
) -> Result<HookUpResult, HookError> {
    let changes = rule_text::changes(config, there);
    if changes.is_empty() {
        return Ok(HookUpResult::Unchanged);
    }
    tables.apply(&changes)?;
    Ok(if there.has_chain(rule_text::MAIN) { HookUpResult::Replaced } else { HookUpResult::Created })
}

/// Restores a family's hook; the first error is the one to report, so errors here are ignored.
fn put_back(tables: &IptablesInstance, before: &TableListing) {
    let _ = match status::read_config(before) {
        Some(config) => tables.list().and_then(|now| up_family(tables, &now, &config)).map(drop),
        None => down_family(tables).map(drop),
    };
}

/// True if a chain belongs to bannerwall.
pub fn is_our_chain(name: &str) -> bool {
    rule_text::CHAINS.contains(&name)
}

/// True if a rule, as `iptables-save` prints it (`-A CHAIN …`), belongs to bannerwall.
pub fn is_ours(line: &str) -> bool {
    let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) else {
        return false;
    };
    is_our_chain(chain) || rule_text::is_jump(rule)
}

/// Removes all of bannerwall's rules, chains and bans, in every requested family and both variants of
/// iptables, and nothing else. Returns true if there was anything.
///
/// # Errors
///
/// iptables is missing or refuses, or third-party rules lead to our chains. The other families are removed
/// all the same.
pub fn down(scope: impl Into<IptablesScope>) -> Result<bool, HookError> {
    let mut removed = false;
    let mut failed = None;
    let scope = scope.into();
    for (_, tables) in scope.places() {
        match tables.and_then(|tables| down_family(&tables)) {
            Ok(was_there) => removed |= was_there,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match bans::remove(&scope.programs) {
        Ok(was_there) => removed |= was_there,
        Err(error) => failed = failed.or(Some(HookError::Bans(error.to_string()))),
    }
    failed.map_or(Ok(removed), Err)
}

fn down_family(tables: &IptablesInstance) -> Result<bool, HookError> {
    let listing = tables.list()?;
    let (mut jumps, chains) = rule_text::removal(&listing);
    if jumps.is_empty() && chains.is_empty() {
        return Ok(false);
    }
    // Our own jumps are removed first within the transaction, so only other references keep a chain from
    // being deleted.
    let ours: Vec<(&'static str, String)> = rule_text::BASES
        .into_iter()
        .flat_map(|base| rule_text::our_jumps(&listing, base).map(move |rule| (base, rule.to_owned())))
        .collect();
    let foreign: Vec<String> = rule_text::CHAINS
        .iter()
        .flat_map(|chain| listing.references(chain, &rule_text::CHAINS, &ours))
        .collect();
    if foreign.is_empty() {
        jumps.extend(chains);
        return tables.apply(&jumps).map(|()| true);
    }
    // The chains cannot go, but without jumps no packet reaches them.
    if !jumps.is_empty() {
        tables.apply(&jumps)?;
    }
    Err(HookError::Referenced(foreign.join("; ")))
}

/// Returns the hook's state, one entry for every family and variant of this machine. A place that cannot be
/// inspected is [`InstalledHook::Unknown`].
///
/// # Errors
///
/// No place can be inspected.
pub fn status(scope: impl Into<IptablesScope>) -> Result<Vec<FamilyStatus>, HookError> {
    let scope = scope.into();
    let mut places = Vec::new();
    let mut failed = None;
    for (family, tables) in scope.places() {
        match tables.and_then(|tables| status::of(&tables)) {
            Ok(place) => places.push(place),
            Err(error) => {
                places.push(FamilyStatus::unknown(family, scope.variant, &error));
                failed.get_or_insert(error);
            }
        }
    }
    let all_failed = places.iter().all(|place| matches!(place.installed, InstalledHook::Unknown(_)));
    failed.filter(|_| all_failed).map_or(Ok(places), Err)
}
