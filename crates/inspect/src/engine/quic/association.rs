//! The state of the connections between two UDP ports.

use std::time::Duration;

use super::flow_datagram::FlowDatagram;
use super::quic_connection::{DatagramContents, HelloState, QuicConnection};
use crate::banner::quic::{self, ConnectionId, InitialKeys, LongPacket, LongPacketType, NextPacket};
use crate::engine::banner_inspector::BannerInspector;
use crate::engine::config::FlowTimeouts;
use crate::engine::outcome::FlowNotes;
use crate::engine::report_limit::ReportLimit;
use crate::event::{Timestamp, TrafficVolume};
use crate::flow::{Anomaly, FlowClass, FlowDecision, KeyEnd};

/// Connections between the same two ports that are followed at once. Decided ones are evicted for others.
pub(super) const ATTEMPTS: usize = 8;

/// Evicted connections whose Initials are still recognised. With more of them no connection starts: an
/// unrecognised Initial could complete a hello of which a part has passed.
const EVICTED: usize = 1 << 10;

/// Initials of a client that are inspected in a datagram. A client may start again in another version, and
/// needs no more than this.
const INITIALS: usize = 4;

/// Time for which an evicted connection is recognised: longer than its server waits for the rest of a hello.
const EVICTED_TIME: Duration = Duration::from_secs(120);

/// Bytes that a pair of ciphers takes, roughly.
const KEYS: usize = 1 << 10;

/// All connections of one UDP flow.
#[derive(Debug, Default)]
pub struct QuicAssociation {
    pub(super) attempts: Vec<QuicConnection>,
    /// The destination ids of the first Initials of evicted connections.
    evicted: Vec<(ConnectionId, Timestamp)>,
    /// Bytes of Initials that were opened while a hello was not whole.
    spent: u64,
    /// True if the other end has said anything to any client.
    answered: bool,
    /// The limit of the flow's reports.
    pub(super) reports: ReportLimit,
    /// Packets of the low and the high end.
    pub(super) volumes: [TrafficVolume; 2],
    pub(super) last: Timestamp,
    pub(super) notes: FlowNotes,
    /// Bytes of memory that were accounted for.
    pub(super) accounted: usize,
}

impl QuicAssociation {
    /// Reads the packets of a datagram, and the contents of Initials.
    pub(super) fn read(
        &mut self,
        octets: &[u8],
        train: bool,
        seen: FlowDatagram<'_>,
        room: &mut Vec<u8>,
    ) -> DatagramContents {
        let mut found =
            DatagramContents { short: octets.len() < quic::FIRST_DATAGRAM, ..DatagramContents::default() };
        self.read_one(octets, seen, room, &mut found);
        if train {
            for (number, behind) in quic::trains(octets).enumerate() {
                if number == quic::TRAIN_LIMIT {
                    found.anomalies.insert(Anomaly::QuicUnreadable);
                    break;
                }
                found.initials = 0;
                self.read_one(behind, seen, room, &mut found);
            }
        }
        found
    }

    fn read_one(
        &mut self,
        mut octets: &[u8],
        seen: FlowDatagram<'_>,
        room: &mut Vec<u8>,
        found: &mut DatagramContents,
    ) {
        loop {
            match quic::next_packet(octets) {
                NextPacket::Long(packet, rest) => {
                    found.packets += 1;
                    if !self.take(&packet, seen, room, found) {
                        return;
                    }
                    octets = rest;
                }
                NextPacket::Unknown(version) => {
                    found.unknown.get_or_insert(version);
                    return;
                }
                NextPacket::Other => return,
            }
        }
    }

    /// Reads one packet. Returns true if the packets after it are to be read.
    fn take(
        &mut self,
        packet: &LongPacket<'_>,
        seen: FlowDatagram<'_>,
        room: &mut Vec<u8>,
        found: &mut DatagramContents,
    ) -> bool {
        // Only the keys of Initial packets follow from what is on the wire (RFC 9001 section 5.2).
        if self.is_answer(packet, seen.from, room) || packet.kind != LongPacketType::Initial {
            return true;
        }
        found.initials += 1;
        // A server discards it (RFC 9000 section 14.1), so it must not become a part of the judged hello.
        if found.short || found.initials > INITIALS {
            found.anomalies.insert(Anomaly::QuicUnreadable);
            return false;
        }
        let at = match self.open(packet, seen, room) {
            InitialResult::Opened(at, range) => {
                let frames = room.get(range).unwrap_or_default();
                if let Some(attempt) = self.attempts.get_mut(at) {
                    let undecided = attempt.state == HelloState::Undecided;
                    self.spent += if undecided { frames.len() as u64 } else { 0 };
                    attempt.take(frames, found);
                }
                at
            }
            InitialResult::NoRoom => {
                found.anomalies.insert(Anomaly::QuicCrowd);
                return false;
            }
            // Most likely an acknowledgement: both ends continue with the handshake.
            InitialResult::Settled => return true,
            InitialResult::Late => {
                found.condemned = true;
                return true;
            }
            InitialResult::Unreadable => {
                found.anomalies.insert(Anomaly::QuicUnreadable);
                return false;
            }
        };
        found.condemned |=
            self.attempts.get(at).is_some_and(|attempt| attempt.state == HelloState::Condemned);
        true
    }

    /// True if a packet goes to a client. Records what it shows.
    ///
    /// A client may use the same ID in many connections. The keys show which of them the server answers.
    fn is_answer(&mut self, packet: &LongPacket<'_>, from: KeyEnd, room: &mut Vec<u8>) -> bool {
        let mut answers = false;
        for attempt in &mut self.attempts {
            if attempt.client != from && attempt.source == packet.destination {
                answers = true;
                attempt.observe_answer(packet, room);
            }
        }
        self.answered |= answers;
        answers
    }

    /// Opens an Initial with the keys of its connection, which it may start.
    fn open(&mut self, packet: &LongPacket<'_>, seen: FlowDatagram<'_>, room: &mut Vec<u8>) -> InitialResult {
        let from = seen.from;
        let goes_on = |attempt: &&mut QuicConnection| {
            attempt.client == from && attempt.handshaken && attempt.server == Some(packet.destination)
        };
        if let Some(attempt) = self.attempts.iter_mut().find(goes_on) {
            // A client that uses the server's connection ID has its answer, and sends no other hello.
            if attempt.state == HelloState::Judged {
                attempt.settle();
            }
            return InitialResult::Settled;
        }
        let own = |attempt: &QuicConnection| attempt.client == from && attempt.original == packet.destination;
        if let Some(at) = self.attempts.iter().position(own) {
            return match self.attempts.get_mut(at) {
                Some(attempt) if attempt.keys.is_none() => InitialResult::Late,
                attempt => match attempt.and_then(|attempt| attempt.open(packet, room)) {
                    Some(range) => InitialResult::Opened(at, range),
                    None => InitialResult::Unreadable,
                },
            };
        }
        // Its connection was evicted after its decision, and must not get a second one.
        if self.evicted.iter().any(|(evicted, _)| *evicted == packet.destination) {
            return InitialResult::Late;
        }
        let begun = InitialKeys::new(packet.version, &packet.destination);
        if let Some(keys) = begun
            && let Some((number, range)) = keys.open(packet, 0, room)
        {
            // After a Retry, the client begins again with the connection ID of the server, and so with other
            // keys (RFC 9001 section 5.2).
            let before = self.attempts.iter().find(|attempt| attempt.retries_to(packet, from));
            let before = before.and_then(|attempt| attempt.facts.clone());
            let attempt = QuicConnection::new(packet, keys, number, before, seen);
            if self.attempts.len() >= ATTEMPTS && !self.evict_settled(seen.packet.now) {
                return InitialResult::NoRoom;
            }
            self.attempts.push(attempt);
            return InitialResult::Opened(self.attempts.len() - 1, range);
        }
        // The client uses the server's connection ID from the first answer on (RFC 9000 section 7.2), but the
        // keys remain those of its own first one.
        for at in (0..self.attempts.len()).rev() {
            if let Some(attempt) = self.attempts.get_mut(at).filter(|attempt| attempt.client == from)
                && let Some(range) = attempt.open(packet, room)
            {
                return InitialResult::Opened(at, range);
            }
        }
        InitialResult::Unreadable
    }

    /// Evicts a decided connection. Returns false if there is none.
    fn evict_settled(&mut self, now: Timestamp) -> bool {
        self.evicted.retain(|(_, since)| now.since(*since) < EVICTED_TIME);
        let of = |state: HelloState| self.attempts.iter().position(|attempt| attempt.state == state);
        let goes =
            of(HelloState::Settled).or_else(|| of(HelloState::Condemned)).or_else(|| of(HelloState::Judged));
        let Some(at) = goes.filter(|_| self.evicted.len() < EVICTED) else { return false };
        let gone = self.attempts.remove(at);
        self.evicted.push((gone.original, now));
        true
    }

    /// True if no connection has started.
    pub(super) const fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// True if the other end has answered any client.
    pub(super) const fn is_answered(&self) -> bool {
        self.answered
    }

    /// Returns the client of the connection that started last, or `otherwise` if there is none.
    pub(super) fn client(&self, otherwise: KeyEnd) -> KeyEnd {
        self.attempts.last().map_or(otherwise, |attempt| attempt.client)
    }

    /// True if a hello is not whole.
    pub(super) fn is_amid(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.state == HelloState::Undecided)
    }

    /// True if a hello was not complete within the budget of time or bytes.
    pub(super) fn is_late(&self, judge: &BannerInspector<'_>) -> bool {
        let config = &judge.settings.config;
        let late = |since| judge.packet.now.since(since) > config.time_budget;
        let mut unfinished = self.attempts.iter().filter(|attempt| attempt.state == HelloState::Undecided);
        unfinished.any(|attempt| self.spent > config.stream_budget || late(attempt.since))
    }

    /// Returns the flow's class and decision.
    pub(super) fn standing(&self) -> (FlowClass, FlowDecision) {
        let passes =
            |attempt: &QuicConnection| matches!(attempt.state, HelloState::Judged | HelloState::Settled);
        let passes = self.attempts.iter().any(passes);
        // A server may wait for the rest of a hello of which a part has passed. It must not get it later.
        let waits = |attempt: &QuicConnection| attempt.state == HelloState::Condemned && attempt.parted;
        let amid = self.is_amid() || self.attempts.iter().any(waits);
        let class = match (amid, self.answered) {
            (true, _) => FlowClass::Undecided,
            (false, true) if passes => FlowClass::Passed,
            (false, _) => FlowClass::Unconfirmed,
        };
        (class, if passes { FlowDecision::Passed } else { FlowDecision::Undecided })
    }

    /// True if the server has answered a connection whose hello is to be stopped.
    pub(super) fn has_answered_suspect(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.state == HelloState::Suspect && attempt.server.is_some())
    }

    /// Records that a part of each incomplete hello has passed.
    pub(super) fn remember_partial_hellos(&mut self) {
        let undecided = self.attempts.iter_mut().filter(|attempt| attempt.state == HelloState::Undecided);
        undecided.for_each(|attempt| attempt.parted = true);
    }

    /// Blocks the forbidden hellos from now on.
    pub(super) fn block_hellos(&mut self) {
        self.all_of(HelloState::Suspect, HelloState::Condemned);
    }

    /// Stops incomplete hellos, too.
    pub(super) fn suspect_unfinished(&mut self) {
        self.all_of(HelloState::Undecided, HelloState::Suspect);
    }

    /// Passes everything that is undecided.
    pub(super) fn pass_unfinished(&mut self) {
        self.all_of(HelloState::Undecided, HelloState::Judged);
        self.all_of(HelloState::Suspect, HelloState::Judged);
    }

    fn all_of(&mut self, from: HelloState, to: HelloState) {
        self.attempts
            .iter_mut()
            .filter(|attempt| attempt.state == from)
            .for_each(|attempt| attempt.state = to);
        self.spent = 0;
    }

    /// Forgets the bytes of hellos: nothing more passes.
    pub(super) fn forget_hellos(&mut self) {
        self.attempts.iter_mut().for_each(QuicConnection::settle);
    }

    pub(super) fn volume(&mut self, from: KeyEnd) -> &mut TrafficVolume {
        let [low, high] = &mut self.volumes;
        if from == KeyEnd::Low { low } else { high }
    }

    /// Bytes of memory held, roughly.
    pub(super) fn memory(&self) -> usize {
        let attempts = self.attempts.iter().map(|attempt| {
            let keys = if attempt.keys.is_some() { KEYS } else { 0 };
            attempt.hellos.memory() + keys
        });
        let evicted = self.evicted.capacity() * size_of::<(ConnectionId, Timestamp)>();
        size_of::<Self>()
            + evicted
            + self.attempts.capacity() * size_of::<QuicConnection>()
            + attempts.sum::<usize>()
    }

    /// Returns the time that a silent flow is remembered, by its class.
    pub(super) const fn timeout(class: FlowClass, timeouts: &FlowTimeouts, budget: Duration) -> Duration {
        match class {
            FlowClass::Undecided => budget,
            FlowClass::Unconfirmed | FlowClass::Opening => timeouts.unconfirmed,
            FlowClass::Passed | FlowClass::Blocked | FlowClass::Closed => timeouts.datagrams,
        }
    }
}

/// The result of opening an Initial.
enum InitialResult {
    /// It belongs to the connection with this index; the range of its frames.
    Opened(usize, std::ops::Range<usize>),
    /// It starts a connection, and there is no room for another one.
    NoRoom,
    /// The server of its connection has the hello already.
    Settled,
    /// It starts an earlier connection again: the server has the hello, or a part of it has passed.
    Late,
    /// It can't be opened.
    Unreadable,
}
