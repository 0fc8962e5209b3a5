//! EVE's `flow` and `tcp` objects: the traffic of a flow.

use serde::Serialize;

use crate::event::FlowRecord;
use crate::output::time::EveTime;

/// The counts of a flow.
#[derive(Debug, Serialize)]
pub(super) struct EveFlow {
    pkts_toserver: u64,
    pkts_toclient: u64,
    bytes_toserver: u64,
    bytes_toclient: u64,
    start: EveTime,
    end: EveTime,
    age: u64,
    state: &'static str,
    reason: &'static str,
    alerted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
}

/// The flags that were seen, and the state of the connection.
#[derive(Debug, Default, Serialize)]
pub(super) struct EveTcp {
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_flags: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_flags_ts: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_flags_tc: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    syn: bool,
    #[serde(skip_serializing_if = "is_false")]
    fin: bool,
    #[serde(skip_serializing_if = "is_false")]
    rst: bool,
    #[serde(skip_serializing_if = "is_false")]
    psh: bool,
    #[serde(skip_serializing_if = "is_false")]
    ack: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

impl EveFlow {
    pub(super) fn new(facts: &FlowRecord) -> Self {
        Self {
            pkts_toserver: facts.to_server.packets,
            pkts_toclient: facts.to_client.packets,
            bytes_toserver: facts.to_server.octets,
            bytes_toclient: facts.to_client.octets,
            start: EveTime(facts.start),
            end: EveTime(facts.last),
            age: facts.age(),
            state: facts.state.name(),
            reason: facts.end.name(),
            alerted: facts.alerted,
            action: facts.verdict.action(),
        }
    }
}

impl EveTcp {
    /// Returns an object with only the state of a port.
    pub(super) fn with_state(state: &'static str) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    pub(super) fn of(facts: &FlowRecord) -> Self {
        let (to_server, to_client) = (facts.flags_to_server, facts.flags_to_client);
        let all = to_server | to_client;
        let flag = |bit: u8| all & bit != 0;
        let spelled = |flags: u8| Some(format!("{flags:02x}"));
        Self {
            tcp_flags: spelled(all),
            tcp_flags_ts: spelled(to_server),
            tcp_flags_tc: spelled(to_client),
            syn: flag(0x02),
            fin: flag(0x01),
            rst: flag(0x04),
            psh: flag(0x08),
            ack: flag(0x10),
            state: None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
