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

/// Connections between the same two ports that are told apart. Those that were judged give way to others.
pub(super) const ATTEMPTS: usize = 8;

/// Connections that gave way to others and whose Initials are still known as theirs. Behind that none is
/// begun any more: what was let through of one of them could be made whole unseen.
const OVER: usize = 1 << 10;

/// Initials of a client that are looked at in a datagram: it may have begun anew in another version, and no
/// more.
const INITIALS: usize = 4;

/// Time for which a connection is known that gave way to others: longer than its server waits for the rest of
/// a hello.
const OVER_TIME: Duration = Duration::from_secs(120);

/// Bytes that a pair of ciphers takes, roughly.
const KEYS: usize = 1 << 10;

/// All connections of one UDP flow.
#[derive(Debug, Default)]
pub struct QuicAssociation {
    pub(super) attempts: Vec<QuicConnection>,
    /// The destination ids of the first Initials of evicted connections.
    over: Vec<(ConnectionId, Timestamp)>,
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
    /// Goes over the packets of a datagram and takes what Initials hold.
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

    /// Takes what a packet holds; whether what follows it is worth a look.
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
        // What a server throws away must be no part of what is judged, RFC 9000 section 14.1.
        if found.short || found.initials > INITIALS {
            found.anomalies.insert(Anomaly::QuicUnreadable);
            return false;
        }
        let at = match self.open(packet, seen, room) {
            InitialResult::By(at, range) => {
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
            // Between two ends that go on with the handshake: an acknowledgement, most likely.
            InitialResult::Settled => return true,
            InitialResult::Late => {
                found.condemned = true;
                return true;
            }
            InitialResult::No => {
                found.anomalies.insert(Anomaly::QuicUnreadable);
                return false;
            }
        };
        found.condemned |=
            self.attempts.get(at).is_some_and(|attempt| attempt.state == HelloState::Condemned);
        true
    }

    /// True if a packet goes to a client; takes note of what it shows.
    ///
    /// Clients may go by the same ID in many connections: which of them a server answers its keys tell.
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

    /// Opens an Initial with the keys of the connection that it is of, or of one that it begins.
    fn open(&mut self, packet: &LongPacket<'_>, seen: FlowDatagram<'_>, room: &mut Vec<u8>) -> InitialResult {
        let from = seen.from;
        let goes_on = |attempt: &&mut QuicConnection| {
            attempt.client == from && attempt.handshaken && attempt.server == Some(packet.destination)
        };
        if let Some(attempt) = self.attempts.iter_mut().find(goes_on) {
            // Who knows the server's name for the connection begins it no more.
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
                    Some(range) => InitialResult::By(at, range),
                    None => InitialResult::No,
                },
            };
        }
        // Its connection was evicted after its decision, and must not get a second one.
        if self.over.iter().any(|(over, _)| *over == packet.destination) {
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
            return InitialResult::By(self.attempts.len() - 1, range);
        }
        // The client uses the server's connection ID from the first answer on (RFC 9000 section 7.2), but the
        // keys remain those of its own first one.
        for at in (0..self.attempts.len()).rev() {
            if let Some(attempt) = self.attempts.get_mut(at).filter(|attempt| attempt.client == from)
                && let Some(range) = attempt.open(packet, room)
            {
                return InitialResult::By(at, range);
            }
        }
        InitialResult::No
    }

    /// Makes room for a connection in the place of one that was judged; false where there is none.
    fn evict_settled(&mut self, now: Timestamp) -> bool {
        self.over.retain(|(_, since)| now.since(*since) < OVER_TIME);
        let of = |state: HelloState| self.attempts.iter().position(|attempt| attempt.state == state);
        let goes =
            of(HelloState::Settled).or_else(|| of(HelloState::Condemned)).or_else(|| of(HelloState::Judged));
        let Some(at) = goes.filter(|_| self.over.len() < OVER) else { return false };
        let gone = self.attempts.remove(at);
        self.over.push((gone.original, now));
        true
    }

    /// True if nobody has begun a connection.
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

    /// True if a hello was not whole in time, or within the bytes that are looked at.
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
        // A server may wait for the rest of what was let through, and is not to get it a little later.
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

    /// Remembers whose hellos were let through in part.
    pub(super) fn remember_partial_hellos(&mut self) {
        let undecided = self.attempts.iter_mut().filter(|attempt| attempt.state == HelloState::Undecided);
        undecided.for_each(|attempt| attempt.parted = true);
    }

    /// Lets nothing more of the hellos through that were found to be forbidden.
    pub(super) fn block_hellos(&mut self) {
        self.all_of(HelloState::Suspect, HelloState::Condemned);
    }

    /// Has unfinished hellos stopped, too.
    pub(super) fn suspect_unfinished(&mut self) {
        self.all_of(HelloState::Undecided, HelloState::Suspect);
    }

    /// Lets everything through that is not decided.
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

    /// Forgets what hellos were made of: nothing more gets by.
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
        let over = self.over.capacity() * size_of::<(ConnectionId, Timestamp)>();
        size_of::<Self>()
            + over
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

/// The result of an Initial.
enum InitialResult {
    /// It is of this connection, and where its frames are.
    By(usize, std::ops::Range<usize>),
    /// It begins one that there is no room for.
    NoRoom,
    /// It is of one whose hello its server has.
    Settled,
    /// It begins once more what is past: its server has the hello, or nobody remembers what of it was let
    /// through.
    Late,
    No,
}
