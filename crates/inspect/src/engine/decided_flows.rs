//! The decided flows that an engine passes to its successor, so that they stay decided.
//!
//! Undecided flows are not told here: the other engine is shown their packets again.

use std::time::Duration;

use super::context::{EngineContext, MarkTable};
use super::offload_state::BodyOffload;
use super::quic::QuicFlows;
use super::tcp_flows::TcpFlows;
use crate::event::{Side, Timestamp, TransportProtocol};
use crate::flow::{Flow, FlowClass, FlowDecision, FlowId, FlowKey, FlowTable, KeyEnd, OpeningSyn};
use crate::rules::PacketMark;

/// A decided flow: which one, what was decided, and since when nothing of it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidedFlow {
    /// The transport protocol.
    pub transport: TransportProtocol,
    /// The flow.
    pub key: FlowKey,
    /// The end that is the client.
    pub client: KeyEnd,
    /// The decision; never [`FlowDecision::Undecided`].
    pub ruling: FlowDecision,
    /// The sequence positions of both ends, the low end first. They distinguish it from another connection of
    /// the same ports.
    pub positions: [Option<u32>; 2],
    /// A SYN that may yet begin another connection of the same ports.
    pub reopening: Option<OpeningSyn>,
    /// The mark that rules asked for, for each of its packets.
    pub mark: Option<PacketMark>,
    /// True if the record of it was told: there is one of each flow.
    pub told: bool,
    /// Time since the last packet.
    pub age: Duration,
}

/// An undecided flow whose body goes by unseen: what an engine that is shown its packets again may not find
/// out, as it may have been told other things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnseenBody {
    /// The flow.
    pub key: FlowKey,
    /// Sequence number behind the body's last byte.
    pub until: u32,
}

/// Undecided flows whose bodies go by unseen.
pub(super) fn offloaded_flows(flows: &TcpFlows) -> Vec<UnseenBody> {
    let table = &flows.table;
    let released = table.by_age(FlowClass::Undecided).filter_map(|id| {
        let flow = table.get(id);
        let release = flow.conversation.as_ref()?.body_offload?;
        Some(UnseenBody { key: *flow.key(), until: release.until })
    });
    released.collect()
}

/// Takes note that the kernel may let a flow's body by.
pub(super) fn expect_offload(flows: &mut TcpFlows, unseen: &UnseenBody) {
    let Some(id) = flows.table.find(&unseen.key) else { return };
    let flow = flows.table.get_mut(id);
    let server = flow.end(Side::Server);
    let Some(conversation) = &mut flow.conversation else { return };
    let UnseenBody { until, .. } = *unseen;
    conversation.body_offload.get_or_insert(BodyOffload { until, stands: true });
    flow.stream_mut(server).allow(until);
}

/// Decided flows as of `now`, `limit` at most: those that are blocked first, then those that were seen last.
pub(super) fn decided_flows(
    flows: &TcpFlows,
    datagrams: &QuicFlows,
    marks: &MarkTable,
    now: Timestamp,
    limit: usize,
) -> Vec<DecidedFlow> {
    let mut told: Vec<DecidedFlow> = Vec::new();
    // What matters most comes first, since the number is limited: a forgotten block would let a connection
    // pass.
    for class in [FlowClass::Blocked, FlowClass::Closed, FlowClass::Passed] {
        let left = limit.saturating_sub(told.len());
        let lasts = |flow: &Flow<_>| class != FlowClass::Closed || flow.ruling.blocks();
        let lasting = decided(&flows.table, class, left).filter(|(_, flow)| lasts(flow));
        told.extend(lasting.map(|(id, flow)| DecidedFlow {
            told: flows.accounts.was_reported(id, flow),
            ..of(TransportProtocol::Tcp, flow, marks, now)
        }));
        if class == FlowClass::Blocked {
            // Only blocked flows of UDP are remembered.
            let left = limit.saturating_sub(told.len());
            let blocked = decided(datagrams.table(), class, left);
            told.extend(blocked.map(|(_, flow)| of(TransportProtocol::Udp, flow, marks, now)));
        }
    }
    told
}

/// Takes a decided flow over, unless it is known or there is no room for it.
pub(super) fn restore(
    flow: &DecidedFlow,
    flows: &mut TcpFlows,
    datagrams: &mut QuicFlows,
    context: &mut EngineContext,
    now: Timestamp,
) {
    let class = match flow.ruling {
        FlowDecision::Undecided => return,
        FlowDecision::Passed => FlowClass::Passed,
        FlowDecision::Blocked | FlowDecision::Refused | FlowDecision::Rejected => FlowClass::Blocked,
    };
    let seen = now.before(flow.age);
    let marks = &mut context.shared.marks;
    match flow.transport {
        TransportProtocol::Tcp => {
            let Some(id) = insert_decided(&mut flows.table, flow, class, seen) else { return };
            marks.add(&mut flows.table.get_mut(id).label, flow.mark);
            if flow.told && context.settings.config.flow_events {
                flows.accounts.set_reported(id, flows.table.get(id));
            }
        }
        TransportProtocol::Udp => {
            let Some(id) = insert_decided(datagrams.table_mut(), flow, class, seen) else { return };
            marks.add(&mut datagrams.table_mut().get_mut(id).label, flow.mark);
        }
    }
}

fn of<C>(transport: TransportProtocol, flow: &Flow<C>, marks: &MarkTable, now: Timestamp) -> DecidedFlow {
    DecidedFlow {
        transport,
        key: *flow.key(),
        client: flow.end(Side::Client),
        ruling: flow.ruling,
        positions: flow.positions(),
        reopening: flow.reopening(),
        mark: marks.of(flow.label),
        told: false,
        age: now.since(flow.last_seen()),
    }
}

/// Decided flows of a class, the `limit` of them that were seen last.
fn decided<C>(
    table: &FlowTable<C>,
    class: FlowClass,
    limit: usize,
) -> impl Iterator<Item = (FlowId, &Flow<C>)> {
    let older = table.count(class).saturating_sub(limit);
    let flows = table.by_age(class).skip(older).map(|id| (id, table.get(id)));
    flows.filter(|(_, flow)| flow.ruling != FlowDecision::Undecided)
}

/// Puts a decided flow into a table in which it is not yet.
fn insert_decided<C>(
    table: &mut FlowTable<C>,
    flow: &DecidedFlow,
    class: FlowClass,
    seen: Timestamp,
) -> Option<FlowId> {
    // Packets that came in the meantime say more about the flow than the handed-over state.
    if table.find(&flow.key).is_some() {
        return None;
    }
    let id = table.insert(flow.key, flow.client, seen).ok()?;
    let entry = table.get_mut(id);
    entry.set_client(flow.client);
    entry.ruling = flow.ruling;
    entry.set_positions(flow.positions);
    entry.set_reopening(flow.reopening);
    table.set_class(id, class, seen);
    Some(id)
}

/// True if a flow is known and not decided yet.
pub(super) fn is_undecided<C>(table: &FlowTable<C>, key: &FlowKey) -> bool {
    table.find(key).is_some_and(|id| table.get(id).ruling == FlowDecision::Undecided)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Decision;
    use crate::engine::testing::{Conversation, Setup};
    use crate::event::EventKind;
    use crate::packet::TcpFlags;

    const RULE: &str = "[[rule]]\nid = \"old\"\ntitle = \"Old\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
                        match.software = '^OpenSSH_7'\naction = \"drop\"\n";

    /// Another engine goes on in the place of a conversation's.
    fn carry_over(talk: &mut Conversation, limit: usize) -> usize {
        let told = talk.engine.decided_flows(talk.now, limit);
        talk.engine = Setup::enforcing(RULE).midstream().engine;
        told.iter().for_each(|flow| talk.engine.restore_decided(flow, talk.now));
        told.len()
    }

    fn blocked() -> Conversation {
        let mut talk = Setup::enforcing(RULE).open();
        assert_eq!(talk.server(b"SSH-2.0-OpenSSH_7.2\r\n"), Decision::Block);
        talk
    }

    fn passed() -> Conversation {
        let mut talk = Setup::enforcing(RULE).open();
        talk.server(b"SSH-2.0-OpenSSH_9.9\r\n");
        talk.client(b"SSH-2.0-PuTTY\r\n");
        talk.acknowledge(false);
        assert_eq!(talk.acknowledge(true), Decision::Pass);
        talk
    }

    #[test]
    fn decided_flows_stay_decided_in_another_engine() {
        let mut talk = blocked();
        assert_eq!(carry_over(&mut talk, 10), 1);
        assert_eq!(talk.client(b"SSH-2.0-x\r\n"), Decision::Block);
        assert_eq!(talk.server(b"more"), Decision::Block);
        assert_eq!(carry_over(&mut talk, 10), 1, "and in the next");
        assert_eq!(talk.server(b"more"), Decision::Block);
        let mut talk = passed();
        assert_eq!(carry_over(&mut talk, 10), 1);
        assert_eq!(talk.server(b"SSH-2.0-OpenSSH_7.2\r\n"), Decision::Pass, "it is none of a banner's");
        assert_eq!(carry_over(&mut talk, 0), 0, "no more than is asked for");
    }

    #[test]
    fn the_record_of_a_flow_is_told_once_by_whoever_saw_its_end() {
        let setup = || {
            let mut setup = Setup::enforcing(RULE);
            setup.config.flow_events = true;
            setup
        };
        let records = |talk: &Conversation| {
            talk.events.iter().filter(|event| matches!(event.kind, EventKind::Flow(_))).count()
        };
        let mut talk = setup().open();
        assert_eq!(talk.server(b"SSH-2.0-OpenSSH_7.2\r\n"), Decision::Block);
        assert_eq!(records(&talk), 1);
        let told = talk.engine.decided_flows(talk.now, 10);
        for (flow, more) in [(told[0], 0), (DecidedFlow { told: false, ..told[0] }, 1)] {
            talk.engine = setup().midstream().engine;
            talk.engine.restore_decided(&flow, talk.now);
            assert_eq!(talk.server(b"more"), Decision::Block);
            talk.engine.finish(talk.now, &mut talk.events);
            assert_eq!(records(&talk), 1 + more, "{flow:?}");
        }
    }

    #[test]
    fn another_connection_of_the_same_ports_is_judged_by_itself() {
        for mut talk in [blocked(), passed()] {
            carry_over(&mut talk, 10);
            // Numbers of its own.
            talk.lose_of_client(1 << 20);
            talk.lose_of_server(1 << 21);
            talk.handshake();
            assert_eq!(talk.server(b"SSH-2.0-OpenSSH_7.2\r\n"), Decision::Block);
        }
        let mut talk = blocked();
        carry_over(&mut talk, 10);
        assert_eq!(talk.send(true, TcpFlags::RST, b""), Decision::Undecided, "who gives up may say so");
    }

    #[test]
    fn a_connection_whose_handshake_is_under_way_is_judged_by_itself() {
        for mut talk in [blocked(), passed()] {
            talk.lose_of_client(1 << 20);
            talk.lose_of_server(1 << 21);
            let [client, server] = talk.next;
            let syn = talk.segment(true).sequence(client.wrapping_sub(1)).flags(TcpFlags::SYN);
            let answer = talk.segment(false).sequence(server.wrapping_sub(1)).acknowledgement(client);
            assert_eq!(talk.show(&syn), Decision::Undecided);
            assert_eq!(carry_over(&mut talk, 10), 1);
            assert_eq!(talk.show(&answer.flags(TcpFlags::SYN | TcpFlags::ACK)), Decision::Undecided);
            let open = talk.segment(true);
            assert_eq!(talk.show(&open), Decision::Undecided);
            assert_eq!(talk.server(b"SSH-2.0-OpenSSH_7.2\r\n"), Decision::Block);
        }
    }

    #[test]
    fn what_was_silent_for_longest_is_forgotten_first_and_what_is_known_stays() {
        let mut talk = blocked();
        talk.wait(Duration::from_secs(5));
        let told = talk.engine.decided_flows(talk.now, 10);
        assert!(told[0].age >= Duration::from_secs(5), "{told:?}");
        let passed = DecidedFlow { ruling: FlowDecision::Passed, ..told[0] };
        talk.engine.restore_decided(&passed, talk.now);
        assert_eq!(talk.server(b"more"), Decision::Block);
        let octets = told[0].key.octets();
        assert_eq!(FlowKey::from_octets(&octets), Some(told[0].key));
        let [low, high] = [&octets[..16], &octets[16..32]];
        let turned = [high, low, &octets[32..]].concat();
        assert_eq!(FlowKey::from_octets(&turned.try_into().unwrap()), None);
    }
}
