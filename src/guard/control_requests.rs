//! The work for each request to the control socket of a running guard.
//!
//! The main thread does it, so a reply also shows that the main thread works.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::block_log::BlockEntry;
use super::control::ControlRequest;
use super::forward_request::ReplySender;
use super::supervise::GuardRun;
use crate::event::Timestamp;
use crate::rules::RuleSet;

/// Blocked connections of an address, the latest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyReport {
    /// Start of the guard that answers. Blocks that it took over may be older.
    pub since: Timestamp,
    /// The blocks.
    pub blocks: Vec<ExplainedBlock>,
}

/// A block with the rule that caused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedBlock {
    /// The block.
    #[serde(flatten)]
    pub block: BlockEntry,
    /// The rule or policy; absent if it is no longer in force.
    pub place: Option<RulePlace>,
    /// TOML for a local file that exempts the address; absent if only a flag can.
    pub remedy: Option<String>,
}

/// A rule or policy in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulePlace {
    /// Its title.
    pub title: String,
    /// Its file.
    pub file: String,
    /// The line of its `[[rule]]` or `[[policy]]`, from 1.
    pub line: usize,
}

/// Validity of a suggested override, from the last block on.
const REMEDY: Duration = Duration::from_secs(30 * 86_400);

impl GuardRun {
    /// Executes a request, or passes it to the thread that manages bans. Error texts are for the user.
    pub(super) fn answer(&mut self, request: &ControlRequest, client: ReplySender) {
        let reply = match request {
            ControlRequest::Reload => self.reload().and_then(value),
            ControlRequest::Status => value(self.status()),
            ControlRequest::Why { address, port } => value(self.why(*address, *port)),
            ControlRequest::Bans { order } => {
                // The thread of the bans replies by itself, because it may have to wait for nft.
                if let Some(bans) = &self.bans {
                    bans.handle.command(*order, client);
                }
                return;
            }
        };
        // A client that has disconnected needs no reply.
        let _ = client.send(reply);
    }

    fn why(&self, address: IpAddr, port: Option<u16>) -> WhyReport {
        let rules = self.host.rules.load();
        let blocks = self.blocks.of(address, port);
        let blocks = blocks.into_iter().map(|block| explain(block, address, &rules)).collect();
        WhyReport { since: self.started, blocks }
    }
}

fn value(result: impl Serialize) -> Result<Value, String> {
    serde_json::to_value(result).map_err(|error| error.to_string())
}

/// Returns the date of a time, in UTC: `2026-12-31`.
fn day(time: Timestamp) -> String {
    time.to_string().chars().take_while(|character| *character != 'T').collect()
}

fn explain(block: BlockEntry, address: IpAddr, rules: &RuleSet) -> ExplainedBlock {
    let address = address.to_canonical();
    let end = if block.client.ip() == address { "source" } else { "destination" };
    let id = block.rule.as_deref().unwrap_or_default();
    let rule = rules.rules().iter().find(|rule| rule.id() == id);
    let policy = rules.policies().iter().find(|policy| policy.id() == id);
    let (place, remedy) = match (rule, policy) {
        (Some(rule), _) => (
            Some(RulePlace {
                title: rule.title().to_owned(),
                file: rule.file().to_owned(),
                line: rule.place().line,
            }),
            Some(format!(
                "[[override]]\nrule = {}\nexempt.{end} = [\"{address}\"]\nuntil = {}\n",
                toml::Value::from(id.to_owned()),
                day(block.last.after(REMEDY))
            )),
        ),
        (None, Some(policy)) => (
            Some(RulePlace {
                title: policy.title(),
                file: policy.file().to_owned(),
                line: policy.place().line,
            }),
            Some(format!(
                "[[policy]]\nport = {}\n{end} = \"{address}\"\nallow = \"any\"\n",
                block.server.port()
            )),
        ),
        (None, None) => (None, None),
    };
    ExplainedBlock { block, place, remedy }
}
