//! Calls of `nft` on the table of bans.

use std::io;
use std::net::IpAddr;
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::program_calls::{ProgramOutput, run_with_input};

pub(super) const FAMILY: &str = "inet";
pub(super) const TABLE: &str = "bannerwall";
/// Family and name of the table.
pub const OWN_TABLE: (&str, &str) = (FAMILY, TABLE);
const SETS: [&str; 2] = ["banned4", "banned6"];
const CHAIN: &str = "banned";
/// `ICMPv6` messages that a banned neighbour may still send, as ARP works in IPv4. Without them it would stay
/// unreachable for a while after its ban.
const NEIGHBOUR_DISCOVERY: [&str; 2] = ["nd-neighbor-solicit", "nd-neighbor-advert"];
pub(super) const COUNTER: &str = "dropped";
/// Limit of banned addresses. The kernel's sets hold twice as many, as it removes expired elements late.
pub const CAPACITY: usize = 1 << 16;
/// Limit of a comment in bytes (`NFTNL_UDATA_COMMENT_MAXLEN` is 128, with its final zero).
pub(super) const COMMENT: usize = 127;
/// Longest ban: 365 days.
pub const LONGEST: u64 = 365 * 86_400;

/// One run of `nft` on the table of bans, and the only permitted kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum BanCall {
    /// Create the table if it is missing, then remove and add elements, all in one transaction.
    Change {
        /// Addresses to remove; missing ones are ignored.
        remove: Vec<IpAddr>,
        /// Elements to add or replace.
        add: Vec<BanElement>,
    },
    /// Read the table.
    Read {
        /// Read the elements, too.
        elements: bool,
    },
    /// Remove the table, if it exists.
    Remove,
    /// Let the kernel check that it could create the table, without creating it.
    Try,
}

/// Banned address, as the kernel stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BanElement {
    /// Banned address.
    pub(crate) address: IpAddr,
    /// Remaining time.
    pub(crate) seconds: u64,
    /// Rule and banner behind the ban.
    pub(crate) comment: String,
}

impl BanCall {
    /// Runs `nft`, and waits for its exit.
    ///
    /// # Errors
    ///
    /// `nft` cannot be run.
    pub(super) fn run(&self) -> io::Result<ProgramOutput> {
        let mut nft = std::process::Command::new("nft");
        // The error text is evaluated, so it must not be translated.
        nft.env("LC_ALL", "C");
        let commands = match self {
            Self::Read { elements } => {
                let terse: &[&str] = if *elements { &[] } else { &["-t"] };
                let list = nft.arg("-j").args(terse).args(["list", "table", FAMILY, TABLE]);
                return Ok(ProgramOutput::of(&list.stdin(Stdio::null()).output()?));
            }
            Self::Change { remove, add } => {
                let mut commands = creation();
                commands.extend(changes(remove, add));
                commands
            }
            // Deleting a missing table is an error, so it is added first.
            Self::Remove => vec![json!({"add": table()}), json!({"delete": table()})],
            Self::Try => {
                // The kernel checks and rejects the whole batch as it would on a real run (nft(8), --check).
                nft.arg("-c");
                creation()
            }
        };
        nft.args(["-j", "-f", "-"]);
        run_with_input(&mut nft, json!({"nftables": commands}).to_string().as_bytes())
    }
}

fn table() -> Value {
    json!({"table": {"family": FAMILY, "name": TABLE}})
}

/// Returns commands that create the table, and change nothing of an existing one.
fn creation() -> Vec<Value> {
    let chain = json!({"family": FAMILY, "table": TABLE, "name": CHAIN});
    let mut base = chain.clone();
    if let Some(base) = base.as_object_mut() {
        let hook = [("type", json!("filter")), ("hook", json!("prerouting")), ("prio", json!(-310))];
        base.extend(hook.map(|(key, value)| (key.to_owned(), value)));
        base.insert("policy".to_owned(), json!("accept"));
    }
    let mut commands = vec![json!({"add": table()})];
    commands.extend(SETS.iter().zip(["ipv4_addr", "ipv6_addr"]).map(|(name, kind)| {
        let set = json!({"family": FAMILY, "table": TABLE, "name": name, "type": kind, "flags": ["timeout"],
                         "size": 2 * CAPACITY});
        json!({"add": {"set": set}})
    }));
    commands.push(json!({"add": {"counter": {"family": FAMILY, "table": TABLE, "name": COUNTER}}}));
    commands.push(json!({"add": {"chain": base}}));
    // The rules are replaced; the chain and its counter stay.
    commands.push(json!({"flush": {"chain": chain}}));
    commands.push(rule(&[
        json!({"match": {"op": "==", "left": {"payload": {"protocol": "icmpv6", "field": "type"}},
               "right": {"set": NEIGHBOUR_DISCOVERY}}}),
        // Ends this chain only: later chains of the hook still see the message.
        json!({"accept": null}),
    ]));
    commands.extend(SETS.iter().zip(["ip", "ip6"]).map(|(set, protocol)| {
        let source = json!({"payload": {"protocol": protocol, "field": "saddr"}});
        let matched = json!({"match": {"op": "==", "left": source, "right": format!("@{set}")}});
        rule(&[matched, json!({"counter": COUNTER}), json!({"drop": null})])
    }));
    commands
}

fn rule(expressions: &[Value]) -> Value {
    json!({"add": {"rule": {"family": FAMILY, "table": TABLE, "chain": CHAIN, "expr": expressions}}})
}

/// Returns commands that remove and add elements. A deletion needs an existing element, and a new timeout
/// needs a missing one. So each step starts with the one before.
fn changes(remove: &[IpAddr], add: &[BanElement]) -> Vec<Value> {
    let gone = remove.iter().copied().chain(add.iter().map(|element| element.address));
    let gone: Vec<(IpAddr, Value)> =
        gone.map(|address| (address, json!({"elem": {"val": address, "timeout": LONGEST}}))).collect();
    let new: Vec<(IpAddr, Value)> = add.iter().map(|element| (element.address, element.json())).collect();
    let mut commands = Vec::new();
    for (name, is_v4) in SETS.iter().zip([true, false]) {
        for (verb, elements) in [("add", &gone), ("delete", &gone), ("add", &new)] {
            let of_family = elements.iter().filter(|(address, _)| address.is_ipv4() == is_v4);
            let of_family: Vec<&Value> = of_family.map(|(_, element)| element).collect();
            if !of_family.is_empty() {
                let element = json!({"family": FAMILY, "table": TABLE, "name": name, "elem": of_family});
                commands.push(json!({verb: {"element": element}}));
            }
        }
    }
    commands
}

impl BanElement {
    /// Returns an element with the comment shortened to the kernel's limit and to ASCII.
    pub(crate) fn new(address: IpAddr, seconds: u64, comment: &str) -> Self {
        let plain = |character: char| if matches!(character, ' '..='~') { character } else { '?' };
        let comment = comment.chars().take(COMMENT).map(plain).collect();
        Self { address, seconds: seconds.clamp(1, LONGEST), comment }
    }

    fn json(&self) -> Value {
        let mut element = json!({"val": self.address, "timeout": self.seconds});
        if let Some(element) = element.as_object_mut().filter(|_| !self.comment.is_empty()) {
            element.insert("comment".to_owned(), json!(self.comment));
        }
        json!({"elem": element})
    }

    /// Parses an element of `nft -j`.
    pub(super) fn parse(element: &Value) -> Option<Self> {
        let element = element.get("elem").unwrap_or(element);
        // An element that somebody else added may have no timeout: it counts as the longest ban.
        let seconds = element.get("expires").and_then(Value::as_u64).unwrap_or(LONGEST);
        let text = element.get("val").unwrap_or(element).as_str()?;
        let comment = element.get("comment").and_then(Value::as_str).unwrap_or_default();
        Some(Self { address: text.parse().ok()?, seconds, comment: comment.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_what_the_kernel_takes() {
        let element = BanElement::new("192.0.2.1".parse().unwrap(), 0, &"é\n\u{1b}[31mx".repeat(100));
        assert!(element.comment.len() == COMMENT && element.comment.starts_with("??"), "{element:?}");
        assert_eq!(element.seconds, 1);
    }
}
