//! The netfilter hook: iptables and ip6tables rules that lead TCP packets to the guard's queues.
//!
//! Owned here: the chains `BANNERWALL`, `BANNERWALL-PASS` and `BANNERWALL-BLOCK` of table `mangle`
//! and the jumps to them; never another rule, and never a base chain (unregistering one would flush
//! every queue of the network namespace). No packet is seen here.
//!
//! # How a packet runs
//!
//! ```text
//! INPUT, OUTPUT, FORWARD ──tcp──► BANNERWALL
//!   SYN, connection mark PASS → take it off        what opens a connection is judged
//!   connection mark PASS    → RETURN               decided before: never queued again
//!   packet mark OURS        → RETURN               a reset that the guard sent
//!   connection mark BLOCK   → DROP                 decided before: the kernel drops by itself
//!   packet mark BLOCK       → BANNERWALL-BLOCK     save to the connection, DROP
//!   packet mark PASS        → BANNERWALL-PASS      save to the connection, clear our bits, return
//!   all else                → NFQUEUE
//! ```
//!
//! The guard answers the packet that decides a flow with `NF_REPEAT` and a mark: the packet runs
//! through the same base chain once more, and the rules above save the mark to its connection. That
//! needs nothing of the kernel but the `mark` and `connmark` modules; setting the connection mark
//! with the verdict (`NFQA_CT`) is silently ignored by kernels without `NETFILTER_NETLINK_GLUE_CT`.
//!
//! The jumps stand *behind* the rules that a base chain has already: `NF_ACCEPT` ends the chain that
//! queued the packet, so rules behind the jump (a `TCPMSS` clamp, say) would not see the first
//! packets of a connection.
mod config;
pub mod inspect;
mod mark;
mod plan;
mod status;
mod tables;
mod watch;

use std::fmt;

use crate::diagnostics::tell;

pub use config::{Chain, ConfigError, HookConfig, Ports, Queues};
pub use mark::{MarkField, MarkState};
pub use status::{Counters, FamilyStatus, Installed};
pub use watch::Watch;

use tables::{Listing, Tables};

/// An address family, which iptables keeps apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `iptables`.
    V4,
    /// `ip6tables`.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

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

    /// Whether this kernel runs the family at all (`ipv6.disable=1` takes IPv6 out).
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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
    #[error("cannot run `{program}`: {message} (Debian: apt install iptables)")]
    Program {
        /// Its name.
        program: &'static str,
        /// Why.
        message: String,
    },
    /// The kernel refuses for lack of privilege.
    #[error("not permitted: `{command}` needs CAP_NET_ADMIN, run as root: {message}")]
    NotPermitted {
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
    /// Somebody else's rules lead to a chain of ours, so that it cannot be removed.
    #[error("rules that bannerwall did not make still lead to its chain; remove them first: {0}")]
    Referenced(String),
}

impl HookError {
    /// Whether privilege or a feature of this machine is missing, rather than good input.
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

/// A hook that comes down with this value, however its owner ends: by return, error or panic.
#[derive(Debug)]
pub struct Raised {
    variant: Variant,
    is_up: bool,
}

impl Raised {
    /// Puts the hook up as [`up`] does. One that was there before (left by a guard that was killed)
    /// belongs to this value from then on.
    ///
    /// # Errors
    /// As [`up`].
    pub fn up(config: &HookConfig, variant: Variant) -> Result<Self, HookError> {
        up(config, variant)?;
        Ok(Self { variant, is_up: true })
    }

    /// Takes the hook down now.
    ///
    /// # Errors
    /// As [`down`].
    pub fn down(mut self) -> Result<(), HookError> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), HookError> {
        if std::mem::take(&mut self.is_up) { down(self.variant).map(drop) } else { Ok(()) }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tell(format_args!("bannerwall: the hook is still up: {error}"));
        }
    }
}

/// The commands that put the hook up on a machine that has none, for both families.
///
/// Needs no privilege.
pub fn print(config: &HookConfig, variant: Variant) -> String {
    Family::ALL.iter().map(|family| print_family(config, family.program(variant))).collect()
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

/// Puts the hook up for both families, or makes what is there agree with `config`.
///
/// # Errors
/// Where iptables is missing or refuses; what this call made is taken away again then.
pub fn up(config: &HookConfig, variant: Variant) -> Result<Up, HookError> {
    let mut done = Up::Unchanged;
    let mut made: Vec<Tables> = Vec::new();
    for family in Family::ALL.into_iter().filter(|family| family.is_enabled()) {
        let tables = Tables::open(family, variant)?;
        let outcome = up_family(&tables, config);
        if outcome.as_ref().map_or(true, |up| *up == Up::Created) {
            made.push(tables);
        }
        match outcome {
            Ok(Up::Unchanged) => {}
            Ok(up) => done = up,
            Err(error) => {
                // The first failure is the one to tell.
                for tables in &made {
                    let _ = down_family(tables);
                }
                return Err(error);
            }
        }
    }
    Ok(done)
}

fn up_family(tables: &Tables, config: &HookConfig) -> Result<Up, HookError> {
    let listing = tables.list()?;
    let existed = listing.has_chain(plan::MAIN);
    let mut changed = false;
    let wanted = plan::chains(config);
    for (chain, _) in &wanted {
        if !listing.has_chain(chain) {
            tables.new_chain(chain)?;
            changed = true;
        }
    }
    for (chain, rules) in &wanted {
        changed |= sync_chain(tables, &listing, chain, rules)?;
    }
    changed |= sync_jumps(tables, &listing, &plan::jumps(config))?;
    Ok(match (existed, changed) {
        (false, _) => Up::Created,
        (true, true) => Up::Replaced,
        (true, false) => Up::Unchanged,
    })
}

/// Makes a chain of ours hold `wanted`, rule by rule in place, so that it is never empty.
fn sync_chain(tables: &Tables, listing: &Listing, chain: &str, wanted: &[String]) -> Result<bool, HookError> {
    let mut changed = false;
    let mut present = listing.rules(chain);
    for (index, rule) in wanted.iter().enumerate() {
        match present.next() {
            Some(there) if there == rule => continue,
            Some(_) => tables.replace(chain, index + 1, rule)?,
            None => tables.append(chain, rule)?,
        }
        changed = true;
    }
    for _ in present {
        tables.delete_at(chain, wanted.len() + 1)?;
        changed = true;
    }
    Ok(changed)
}

/// Adds missing jumps first and removes superfluous ones then.
fn sync_jumps(
    tables: &Tables,
    listing: &Listing,
    wanted: &[(&'static str, String)],
) -> Result<bool, HookError> {
    let mut changed = false;
    for (base, rule) in wanted {
        if !listing.rules(base).any(|there| there == rule) {
            tables.append(base, rule)?;
            changed = true;
        }
    }
    for (base, rule) in our_jumps(listing) {
        if !wanted.iter().any(|(chain, wanted)| *chain == base && *wanted == rule) {
            tables.delete(base, &rule)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// The jumps of base chains that we made, as often as they are there.
fn our_jumps(listing: &Listing) -> Vec<(&'static str, String)> {
    inspect::jumps(listing).into_iter().map(|jump| (jump.chain.base(), jump.rule)).collect()
}

/// Whether a chain is one of ours.
pub fn is_our_chain(name: &str) -> bool {
    plan::CHAINS.contains(&name)
}

/// Whether a rule as `iptables-save` prints it (`-A CHAIN …`) is one that we make.
pub fn is_ours(line: &str) -> bool {
    let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) else {
        return false;
    };
    is_our_chain(chain) || plan::jump_forms().iter().any(|form| form == rule)
}

/// Removes all that bannerwall ever made, in both families and both variants of iptables, and
/// nothing else; says whether there was anything.
///
/// # Errors
/// Where iptables is missing or refuses, or where rules of others lead to our chains.
pub fn down(variant: Variant) -> Result<bool, HookError> {
    let mut removed = false;
    for tables in everywhere(variant)? {
        removed |= down_family(&tables)?;
    }
    Ok(removed)
}

/// Every place that may hold a hook of ours: the families that run, in the variant asked for and,
/// where that is the system's choice, in the other one as well.
fn everywhere(variant: Variant) -> Result<Vec<Tables>, HookError> {
    let mut places = Vec::new();
    for family in Family::ALL.into_iter().filter(|family| family.is_enabled()) {
        let tables = Tables::open(family, variant)?;
        let other = if variant == Variant::System { tables.other() } else { None };
        places.push(tables);
        places.extend(other);
    }
    Ok(places)
}

fn down_family(tables: &Tables) -> Result<bool, HookError> {
    let listing = tables.list()?;
    let jumps = our_jumps(&listing);
    for (base, rule) in &jumps {
        tables.delete(base, rule)?;
    }
    let chains: Vec<&str> = plan::CHAINS.into_iter().filter(|chain| listing.has_chain(chain)).collect();
    let listing = tables.list()?;
    let foreign: Vec<&str> =
        chains.iter().flat_map(|chain| listing.references(chain, &plan::CHAINS)).collect();
    if !foreign.is_empty() {
        return Err(HookError::Referenced(foreign.join("; ")));
    }
    for chain in &chains {
        tables.flush_chain(chain)?;
    }
    for chain in &chains {
        tables.delete_chain(chain)?;
    }
    Ok(!jumps.is_empty() || !chains.is_empty())
}

/// What of the hook is there, one entry for every family and variant that runs here.
///
/// # Errors
/// Where iptables is missing or refuses.
pub fn status(variant: Variant) -> Result<Vec<FamilyStatus>, HookError> {
    everywhere(variant)?.iter().map(status::of).collect()
}
