//! The traffic of each flow, for the record at its end; kept only if records are requested.

use super::decision::PacketInput;
use super::outcome::FlowNotes;
use crate::event::{FlowEnd, FlowRecord, FlowState, FlowVerdict, Side, Timestamp, TrafficVolume};
use crate::flow::{Flow, FlowClass, FlowDecision, FlowId, KeyEnd};
use crate::packet::{Segment, TcpFlags};

/// One flow's account.
#[derive(Debug, Default)]
struct FlowAccount {
    /// Time at which the flow began, which tells it from others in its place; zero where there is none.
    started: Timestamp,
    last: Timestamp,
    volumes: [TrafficVolume; 2],
    flags: [u8; 2],
    /// SYNs that may turn out to have been the next connection's.
    reopening: Option<(KeyEnd, TrafficVolume)>,
    notes: FlowNotes,
    told: bool,
}

/// The accounts, in the order of the flow table's places.
#[derive(Debug, Default)]
pub(super) struct FlowAccounts(Vec<FlowAccount>);

impl FlowAccounts {
    /// Counts a packet of a flow.
    pub(super) fn count<C>(
        &mut self,
        (id, flow): (FlowId, &Flow<C>),
        from: KeyEnd,
        segment: &Segment<'_>,
        packet: &PacketInput<'_>,
    ) {
        let account = self.of(id, flow);
        // Not what Ethernet fills its shortest frames with.
        let octets = segment.wire_length() as u64;
        let flags = segment.flags();
        // One that is sent again begins nothing: its sender has said nothing else yet.
        if flags.syn() && !flags.ack() && account.flags[from as usize] & !TcpFlags::SYN != 0 {
            let (_, volume) = account.reopening.get_or_insert((from, TrafficVolume::default()));
            volume.add(octets);
        }
        account.volumes[from as usize].add(octets);
        account.flags[from as usize] |= flags.bits();
        account.last = packet.now;
    }

    /// Adds what was observed of a flow.
    pub(super) fn observe<C>(&mut self, id: FlowId, flow: &Flow<C>, notes: FlowNotes) {
        self.of(id, flow).notes.add(notes);
    }

    /// True if the flow's record was told before its end.
    pub(super) fn is_told<C>(&mut self, id: FlowId, flow: &Flow<C>) -> bool {
        self.of(id, flow).told
    }

    /// True if the flow's record was told before its end; where records are not kept, none was.
    pub(super) fn was_reported<C>(&self, id: FlowId, flow: &Flow<C>) -> bool {
        let account = self.0.get(id.place());
        account.is_some_and(|account| account.started == flow.started() && account.told)
    }

    /// Notes that somebody else has told the flow's record.
    pub(super) fn set_reported<C>(&mut self, id: FlowId, flow: &Flow<C>) {
        self.of(id, flow).told = true;
    }

    /// The record of a flow that goes on without being counted.
    pub(super) fn record<C>(&mut self, id: FlowId, flow: &Flow<C>, terms: RecordContext) -> FlowRecord {
        let account = self.of(id, flow);
        account.told = true;
        account.record(flow, terms)
    }

    /// The record of a flow that is about to be forgotten; none where it was told.
    pub(super) fn close<C>(
        &mut self,
        id: FlowId,
        flow: &Flow<C>,
        terms: RecordContext,
    ) -> Option<FlowRecord> {
        let account = std::mem::take(self.of(id, flow));
        (!account.told).then(|| account.record(flow, terms))
    }

    /// The record of a flow whose ends begin another one; the SYNs of that are its own.
    pub(super) fn reopen<C>(
        &mut self,
        id: FlowId,
        flow: &Flow<C>,
        terms: RecordContext,
    ) -> (Option<FlowRecord>, UnassignedSyns) {
        let account = self.of(id, flow);
        let reopened = UnassignedSyns(account.reopening.take());
        if let Some((from, volume)) = reopened.0 {
            account.volumes[from as usize].take(volume);
        }
        (self.close(id, flow, terms), reopened)
    }

    /// Counts what belongs to the flow that began in another one's place.
    pub(super) fn start_next_flow<C>(
        &mut self,
        id: FlowId,
        flow: &Flow<C>,
        UnassignedSyns(opening): UnassignedSyns,
    ) {
        let account = self.of(id, flow);
        if let Some((from, volume)) = opening {
            account.volumes[from as usize] = volume;
            account.flags[from as usize] = TcpFlags::SYN;
        }
    }

    fn of<C>(&mut self, id: FlowId, flow: &Flow<C>) -> &mut FlowAccount {
        let place = id.place();
        if self.0.len() <= place {
            self.0.resize_with(place + 1, FlowAccount::default);
        }
        let account = &mut self.0[place];
        if account.started != flow.started() {
            *account =
                FlowAccount { started: flow.started(), last: flow.started(), ..FlowAccount::default() };
        }
        account
    }
}

/// SYNs that were counted before it was known whose they are.
#[derive(Debug)]
pub(super) struct UnassignedSyns(Option<(KeyEnd, TrafficVolume)>);

/// The parts of a record besides the account.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordContext {
    pub(super) end: FlowEnd,
    /// True if decided flows go by without being seen here.
    pub(super) hands_over: bool,
}

impl FlowAccount {
    fn record<C>(&self, flow: &Flow<C>, RecordContext { end, hands_over }: RecordContext) -> FlowRecord {
        let [client, server] = [Side::Client, Side::Server].map(|side| flow.end(side) as usize);
        let blocked = flow.ruling.blocks();
        let handed_over = hands_over && flow.ruling == FlowDecision::Passed && flow.label == 0;
        let (reason, rule) = match self.notes.dropped.clone().filter(|_| blocked) {
            Some((reason, rule)) => (Some(reason), rule),
            None => (None, None),
        };
        let state = match flow.class() {
            _ if flow.is_closed() => FlowState::Closed,
            _ if handed_over => FlowState::Bypassed,
            FlowClass::Opening | FlowClass::Unconfirmed => FlowState::New,
            _ => FlowState::Established,
        };
        FlowRecord {
            start: self.started,
            last: self.last,
            to_server: self.volumes[client],
            to_client: self.volumes[server],
            flags_to_server: self.flags[client],
            flags_to_client: self.flags[server],
            state,
            end,
            verdict: match flow.ruling {
                FlowDecision::Undecided => FlowVerdict::Undecided,
                FlowDecision::Passed => FlowVerdict::Passed,
                FlowDecision::Blocked | FlowDecision::Refused => FlowVerdict::Blocked,
                FlowDecision::Rejected => FlowVerdict::Rejected,
            },
            reason,
            rule,
            protocol: self.notes.protocol,
            alerted: self.notes.alerted,
            whole: !handed_over && end != FlowEnd::Stopped,
            unseen: self.notes.unseen,
        }
    }
}

#[cfg(test)]
mod tests;
