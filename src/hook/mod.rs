//! The netfilter hook: iptables and ip6tables rules that lead TCP packets to the guard's queues.
//!
//! Owned here: the chains `BANNERWALL`, `BANNERWALL-PASS`, `BANNERWALL-BLOCK` and `BANNERWALL-CLEAN` of table
//! `mangle` and the jumps to them; never another rule, and never a base chain (unregistering one would flush
//! every queue of the network namespace). No packet is seen here.
//!
//! # How a packet runs
//!
//! ```text
//! INPUT, OUTPUT, FORWARD ──tcp──► BANNERWALL
//!   connection mark PASS, no SYN → RETURN          decided before: never queued again
//!   connection mark RELEASED, from the server, or from the client without octets
//!                           → RETURN               a body that need not be read, and what acknowledges it
//!   SYN, connection mark PASS → take it off        what opens a connection is judged
//!   RST, packet mark OURS   → RETURN               a reset that the guard sent
//!   RST, connection mark BLOCK → RETURN            one whose mark others took off, or an end's own
//!   connection mark BLOCK   → DROP                 decided before: the kernel drops by itself
//!   packet mark BLOCK       → BANNERWALL-BLOCK     save to the connection, DROP
//!   packet mark PASS        → BANNERWALL-PASS      save to the connection, clear our bits, return
//!   packet mark RELEASED, from the client, without octets
//!                           → BANNERWALL-PASS      save to the connection
//!   connection mark RELEASED → take it off         the client says more, or something ends
//!   all else                → NFQUEUE
//! PREROUTING, OUTPUT ──tcp──► BANNERWALL-CLEAN   clear PASS and BLOCK, which others restored
//! ```
//!
//! The guard answers the packet that decides a flow with `NF_REPEAT` and a mark: the packet runs
//! through the same base chain once more, and the rules above save the mark to its connection. That
//! needs nothing of the kernel but the `mark` and `connmark` modules; setting the connection mark
//! with the verdict (`NFQA_CT`) is silently ignored by kernels without `NETFILTER_NETLINK_GLUE_CT`.
//!
//! The jumps stand *behind* the rules that a base chain has already: `NF_ACCEPT` ends the chain that queued
//! the packet, so rules behind the jump (a `TCPMSS` clamp, say) would not see the first packets of a
//! connection. They stand *before* the first rule that lets packets leave the chain (`ACCEPT`, `RETURN`,
//! another program's `NFQUEUE`, a chain that holds one): its packets would pass unseen. [`status()`] and
//! [`Lookout`] see rules that are added later on the wrong side, and the next [`up`] moves the jumps.
//!
//! # Bodies
//!
//! Where every request is read, the flow stays undecided, and the guard releases it for as long as the body
//! of a response passes (`crates/inspect/src/engine/release.rs` says when). A connection has no use for the fourth value of
//! our two bits otherwise, and a packet only where it is a reset, so that this takes no further bit. Which
//! end sends is the kernel's word (`--ctdir`): where its tracking took the server for the opener (it was
//! flushed amid a connection), the mark is not saved. Whether a segment has octets is told by a program of
//! classic BPF (`src/hook/release.rs`). A kernel without these matches gets the hook without these rules:
//! then all is queued.
//!
//! What the client says next is queued, and the mark is off before it is: no verdict has to come back for
//! that, and what answers it can't be there yet. Such a packet carries the value in its own mark to the
//! queue; by that the guard knows one that came before the release was in force, and sends it around.
//!
//! # Marks of others
//!
//! The decision is kept in two bits of the connection mark, and leaves the packet mark before the packet
//! leaves the chain. Rules of others that copy a connection's whole mark to its packets bring it back;
//! `BANNERWALL-CLEAN`, last in the two base chains behind which packets are routed, takes it off again,
//! so that `ip rule fwmark 2` is met as without the hook.
//!
//! # Why iptables, and not a table of our own
//!
//! A table that only bannerwall writes (`inet bannerwall`) would outlast `iptables-restore` and need no
//! place among the rules of others. But it takes the `queue` expression (`CONFIG_NFT_QUEUE`), which
//! kernels that run iptables' `NFQUEUE` need not have, and `nft` takes no iptables target in its stead;
//! `nft flush ruleset` would take it away all the same. So there is one form of the hook, and it is
//! watched.
pub(crate) mod bans;
mod config;
pub mod inspect;
mod listeners;
mod lookout;
mod mark;
mod notices;
mod passing;
mod plan;
mod programs;
mod release;
pub(crate) mod runner;
mod status;
mod tables;

use std::fmt;

pub use config::{Chain, HookConfig, Ports, Queues};
pub use listeners::{Listener, listeners};
pub use lookout::{Look, Lookout, Standing};
pub use mark::{MarkField, MarkState};
pub use notices::{Notice, Notices};
pub use programs::Programs;
pub(crate) use programs::Question;
pub use status::{Counters, FamilyStatus, Installed};

use serde::{Deserialize, Serialize};
use tables::{Listing, Tables};

/// An address family, which iptables keeps apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Family {
    /// `iptables`.
    V4,
    /// `ip6tables`.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    const fn program(self, variant: Variant) -> &'static str {
        match (self, variant) {
            (Self::V4, Variant::System) => "iptables",
            (Self::V4, Variant::Legacy) => "iptables-legacy",
            (Self::V4, Variant::Nft) => "iptables-nft",
            (Self::V6, Variant::System) => "ip6tables",
            (Self::V6, Variant::Legacy) => "ip6tables-legacy",
            (Self::V6, Variant::Nft) => "ip6tables-nft",
        }
    }

    /// True if this kernel runs the family at all (`ipv6.disable=1` takes IPv6 out).
    fn is_enabled(self) -> bool {
        self == Self::V4 || std::path::Path::new("/proc/net/if_inet6").exists()
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Which of the two iptables implementations is meant; their rules do not see one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Variant {
    /// What `iptables` is on this machine.
    #[default]
    System,
    /// `iptables-legacy`, over the kernel's old interface.
    Legacy,
    /// `iptables-nft`, over `nf_tables`.
    Nft,
}

impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::System => "system",
            Self::Legacy => "legacy",
            Self::Nft => "nf_tables",
        })
    }
}

/// Why the hook could not be put up, taken down or read.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The program is not there or cannot be run.
    #[error(
        "cannot run `{program}` ({family}): {message} (Debian: apt install iptables; or leave the family out: --family)"
    )]
    Program {
        /// Whose rules it makes.
        family: Family,
        /// Its name.
        program: String,
        /// Why.
        message: String,
    },
    /// The kernel refuses for lack of privilege.
    #[error(
        "not permitted: `{command}` needs CAP_NET_ADMIN: run as root, or give this program the capability as an ambient one (that of a file, by setcap, does not reach the programs it runs): {message}"
    )]
    NotPermitted {
        /// The whole command.
        command: String,
        /// What iptables said.
        message: String,
    },
    /// The lock that the legacy iptables programs share cannot be had.
    #[error(
        "`{command}` cannot lock /run/xtables.lock, which belongs to root: use the nf_tables variant (--iptables nft), name another file by XTABLES_LOCKFILE, or run as root: {message}"
    )]
    Lock {
        /// The whole command.
        command: String,
        /// What iptables said.
        message: String,
    },
    /// The kernel does not run this address family.
    #[error("{family} is not supported by this kernel: {message}")]
    NoFamily {
        /// Which.
        family: Family,
        /// What iptables said.
        message: String,
    },
    /// iptables refused a command.
    #[error(
        "`{command}` failed (status {code}): {message}; `bannerwall doctor` tells which kernel option is missing"
    )]
    Refused {
        /// The whole command.
        command: String,
        /// iptables' exit status.
        code: i32,
        /// What iptables said.
        message: String,
    },
    /// The table of bans could not be removed.
    #[error("the table of bans stays: {0}")]
    Bans(String),
    /// iptables did not answer in time, or the thread that runs it has failed.
    #[error("iptables does not answer: look with `bannerwall hook status`")]
    Unanswered,
    /// Somebody else's rules lead to a chain of ours, so that it cannot be removed.
    #[error("rules that bannerwall did not make still lead to its chain; remove them first: {0}")]
    Referenced(String),
}

impl HookError {
    /// True if privilege or a feature of this machine is missing, rather than good input.
    pub fn is_unsupported(&self) -> bool {
        !matches!(self, Self::Referenced(_))
    }
}

/// What [`up`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Up {
    /// Nothing: the very same hook was there.
    Unchanged,
    /// A hook of ours with other options was replaced, without a moment in which packets go by.
    Replaced,
    /// Made anew.
    Created,
}

/// Whose rules are meant: which iptables, and which address families.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Which iptables.
    pub variant: Variant,
    /// Which families; those that this kernel does not run are left out by themselves.
    pub families: Vec<Family>,
    /// Who runs it.
    pub programs: Programs,
}

impl Scope {
    fn families(&self) -> impl Iterator<Item = Family> {
        self.families.iter().copied().filter(|family| family.is_enabled())
    }

    /// The tables of the variant that was asked for, for every family; all are there, or it fails.
    fn open(&self) -> Result<Vec<Tables>, HookError> {
        self.families().map(|family| Tables::open(family, self.variant, &self.programs)).collect()
    }

    /// Every place that may hold a hook of ours: the variant asked for and, where that is the system's
    /// choice, the other one as well.
    fn places(&self) -> impl Iterator<Item = (Family, Result<Tables, HookError>)> {
        self.families().flat_map(|family| {
            let tables = Tables::open(family, self.variant, &self.programs);
            let other = match (&tables, self.variant) {
                (Ok(tables), Variant::System) => tables.other(),
                _ => None,
            };
            [Some(tables), other.map(Ok)].into_iter().flatten().map(move |place| (family, place))
        })
    }
}

/// Every family.
impl From<Variant> for Scope {
    fn from(variant: Variant) -> Self {
        Self { variant, families: Family::ALL.to_vec(), programs: Programs::Here }
    }
}

/// The commands that put the hook up on a machine that has none, for every family asked for.
///
/// Needs no privilege.
pub fn print(config: &HookConfig, scope: impl Into<Scope>) -> String {
    let Scope { variant, families, .. } = scope.into();
    families.iter().map(|family| print_family(config, family.program(variant))).collect()
}

fn print_family(config: &HookConfig, program: &str) -> String {
    use fmt::Write as _;
    let table = plan::TABLE;
    let mut text = String::new();
    for (chain, rules) in plan::chains(config) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{program} -w -t {table} -N {chain}");
        for rule in rules {
            let _ = writeln!(text, "{program} -w -t {table} -A {chain} {rule}");
        }
    }
    for (base, rule) in plan::jumps(config) {
        let _ = writeln!(text, "{program} -w -t {table} -A {base} {rule}");
    }
    text
}

/// Puts the hook up for every family asked for, or makes what is there agree with `config`.
///
/// All or nothing: each family's rules are one transaction, and where the second family's fails the first
/// one's is taken back.
///
/// # Errors
/// Where iptables is missing or refuses; everything is then as it was.
pub fn up(config: &HookConfig, scope: impl Into<Scope>) -> Result<Up, HookError> {
    let places = scope.into().open()?;
    let listings = places.iter().map(Tables::list).collect::<Result<Vec<Listing>, _>>()?;
    let mut done = Up::Unchanged;
    for (index, (tables, listing)) in places.iter().zip(&listings).enumerate() {
        match up_family(tables, listing, config) {
            Ok(Up::Unchanged) => {}
            Ok(up) => done = up,
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

/// Puts the hook up with all that the kernel has matches for.
fn up_family(tables: &Tables, there: &Listing, config: &HookConfig) -> Result<Up, HookError> {
    match change_family(tables, there, config) {
        Err(HookError::Refused { .. }) if config.releases => {
            let plain = HookConfig { releases: false, ..config.clone() };
            change_family(tables, there, &plain)
        }
        done => done,
    }
}

fn change_family(tables: &Tables, there: &Listing, config: &HookConfig) -> Result<Up, HookError> {
    let changes = plan::changes(config, there);
    if changes.is_empty() {
        return Ok(Up::Unchanged);
    }
    tables.apply(&changes)?;
    Ok(if there.has_chain(plan::MAIN) { Up::Replaced } else { Up::Created })
}

/// Makes a family what it was before; the failure that led here is the one to tell.
fn put_back(tables: &Tables, before: &Listing) {
    let _ = match status::read_config(before) {
        Some(config) => tables.list().and_then(|now| up_family(tables, &now, &config)).map(drop),
        None => down_family(tables).map(drop),
    };
}

/// True if a chain is one of ours.
pub fn is_our_chain(name: &str) -> bool {
    plan::CHAINS.contains(&name)
}

/// True if a rule as `iptables-save` prints it (`-A CHAIN …`) is one that we make.
pub fn is_ours(line: &str) -> bool {
    let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) else {
        return false;
    };
    is_our_chain(chain) || plan::jump_forms().iter().any(|form| form == rule)
}

/// Removes all that bannerwall ever made, bans included, in every family asked for and both variants of
/// iptables, and nothing else; says whether there was anything.
///
/// # Errors
/// Where iptables is missing or refuses, or where rules of others lead to our chains; the other families
/// are rid of it even so.
pub fn down(scope: impl Into<Scope>) -> Result<bool, HookError> {
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

fn down_family(tables: &Tables) -> Result<bool, HookError> {
    let listing = tables.list()?;
    let (mut jumps, chains) = plan::removal(&listing);
    if jumps.is_empty() && chains.is_empty() {
        return Ok(false);
    }
    let ours: Vec<(&'static str, String)> = plan::BASES
        .into_iter()
        .flat_map(|base| plan::our_jumps(&listing, base).map(move |rule| (base, rule.to_owned())))
        .collect();
    let foreign: Vec<String> =
        plan::CHAINS.iter().flat_map(|chain| listing.references(chain, &plan::CHAINS, &ours)).collect();
    if foreign.is_empty() {
        jumps.extend(chains);
        return tables.apply(&jumps).map(|()| true);
    }
    if !jumps.is_empty() {
        tables.apply(&jumps)?;
    }
    Err(HookError::Referenced(foreign.join("; ")))
}

/// What of the hook is there, one entry for every family and variant that runs here; a place that cannot
/// be looked at is [`Installed::Unknown`].
///
/// # Errors
/// Where no place at all can be looked at.
pub fn status(scope: impl Into<Scope>) -> Result<Vec<FamilyStatus>, HookError> {
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
    let all_failed = places.iter().all(|place| matches!(place.installed, Installed::Unknown(_)));
    failed.filter(|_| all_failed).map_or(Ok(places), Err)
}
