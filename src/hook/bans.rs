//! nftables table of bans: two sets with element timeouts, and a chain that drops packets of banned
//! addresses.
//!
//! The kernel's set is the record of bans. It outlives the guard, so bans survive a restart or a takeover.
//! The comment of each element holds the rule and the banner. The table is removed with the hook
//! ([`super::down`]).
//!
//! The chain has priority -310, ahead of `raw` and connection tracking, so a banned client costs no tracked
//! connection. The first ban creates the table. It is never recreated while it exists: unregistering a base
//! chain flushes every queue of the namespace.

use std::io;

use serde_json::{Value, json};

use super::ban_call::{BanCall, BanElement, COUNTER, FAMILY, TABLE};
use super::programs::ProgramRunner;

/// Table of bans in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BanTable {
    /// Banned addresses, if requested.
    pub(crate) elements: Vec<BanElement>,
    /// Number of dropped packets since the table was created.
    pub(crate) dropped: u64,
}

/// Error of changing or reading the table of bans.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BanError {
    /// The program is missing or cannot be run.
    #[error("cannot run `nft`: {0} (Debian: apt install nftables)")]
    Program(#[source] io::Error),
    /// The program failed.
    #[error("`nft` failed: {0}; `bannerwall doctor` shows what is missing")]
    Refused(String),
    /// The program's output is invalid.
    #[error("cannot parse the output of `nft -j list table {FAMILY} {TABLE}`")]
    Unreadable,
}

/// Runs `nft` for a change.
///
/// # Errors
///
/// `nft` is missing or refuses; nothing is changed then.
pub(crate) fn change(programs: &ProgramRunner, call: &BanCall) -> Result<(), BanError> {
    let ended = programs.ban(call).map_err(BanError::Program)?;
    if ended.code == Some(0) { Ok(()) } else { Err(BanError::Refused(first_line(&ended.stderr))) }
}

/// Returns the table; none if it does not exist.
///
/// # Errors
///
/// `nft` is missing, refuses, or prints invalid output.
pub(crate) fn read(programs: &ProgramRunner, elements: bool) -> Result<Option<BanTable>, BanError> {
    let ended = programs.ban(&BanCall::Read { elements }).map_err(BanError::Program)?;
    match ended.code {
        Some(0) => parse(&ended.stdout).map(Some).ok_or(BanError::Unreadable),
        // `nft` has one exit status for all errors, so only its text shows that the table is missing.
        _ if ended.stderr.contains("No such file or directory") => Ok(None),
        _ => Err(BanError::Refused(first_line(&ended.stderr))),
    }
}

/// Removes the table with all bans; returns true if it existed.
///
/// # Errors
///
/// `nft` refuses. Without `nft` there is no table.
pub(super) fn remove(programs: &ProgramRunner) -> Result<bool, BanError> {
    match read(programs, false) {
        Ok(Some(_)) => change(programs, &BanCall::Remove).map(|()| true),
        Ok(None) => Ok(false),
        Err(BanError::Program(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn parse(listing: &str) -> Option<BanTable> {
    let listing: Value = serde_json::from_str(listing).ok()?;
    let mut table = BanTable::default();
    for entry in listing.get("nftables")?.as_array()? {
        if let Some(counter) = entry.get("counter").filter(|it| it.get("name") == Some(&json!(COUNTER))) {
            table.dropped = counter.get("packets").and_then(Value::as_u64).unwrap_or_default();
        }
        let elements = entry.get("set").and_then(|set| set.get("elem")).and_then(Value::as_array);
        table.elements.extend(elements.into_iter().flatten().filter_map(BanElement::parse));
    }
    Some(table)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("no reason given").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::ban_call::LONGEST;

    #[test]
    fn a_listing_is_read_with_what_is_left_of_each_ban() {
        let listing = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"table": {"family": "inet", "name": "bannerwall", "handle": 1}},
            {"counter": {"family": "inet", "name": "dropped", "table": "bannerwall", "packets": 7, "bytes": 420}},
            {"set": {"family": "inet", "name": "banned4", "type": "ipv4_addr", "flags": ["timeout"], "elem": [
                {"elem": {"val": "192.0.2.1", "timeout": 600, "expires": 599, "comment": "old-ssh SSH-2.0-\"x\""}}]}},
            {"set": {"family": "inet", "name": "banned6", "type": "ipv6_addr", "flags": ["timeout"],
                "elem": ["2001:db8::1"]}}]}"#;
        let table = parse(listing).expect("a table");
        assert_eq!(table.dropped, 7);
        assert_eq!(
            table.elements,
            [
                BanElement::new("192.0.2.1".parse().unwrap(), 599, "old-ssh SSH-2.0-\"x\""),
                BanElement::new("2001:db8::1".parse().unwrap(), LONGEST, ""),
            ]
        );
        assert_eq!(parse("{}"), None);
        assert_eq!(parse("nonsense"), None);
    }
}
