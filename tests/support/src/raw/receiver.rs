//! A model of how Linux 6.18 takes TCP segments (`net/ipv4/tcp_input.c`), for runs without a kernel.
//!
//! It knows what decides which octets an application reads: the checks of `tcp_validate_incoming` and
//! `tcp_ack`, the order within `tcp_data_queue_ofo`, and what `tcp_recvmsg` leaves out as urgent. Its
//! application reads at once. There is no congestion control, no timer, and the window stays open.

use std::net::SocketAddr;
use std::time::Duration;

use super::end::Role;
use super::packet::{Flags, Packet, Received};
use crate::Talk;

/// What it offers as its receive window.
const WINDOW: u32 = 64_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Listen,
    SynSent,
    SynReceived,
    Established,
    Closed,
}

/// Octets that came ahead of others.
#[derive(Debug, Clone)]
struct Piece {
    sequence: u32,
    octets: Vec<u8>,
    fin: bool,
}

impl Piece {
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(length(&self.octets)).wrapping_add(u32::from(self.fin))
    }
}

/// What a kernel does now one way and now the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moods {
    /// Neighbours out of order become one buffer; that depends on how its memory lies.
    pub coalesces: bool,
    /// A segment as expected is taken by the shortest path; that is left for a while now and then.
    pub predicts: bool,
}

impl Moods {
    /// Every combination.
    pub const ALL: [Self; 4] = [
        Self { coalesces: false, predicts: false },
        Self { coalesces: false, predicts: true },
        Self { coalesces: true, predicts: false },
        Self { coalesces: true, predicts: true },
    ];
}

/// A host with one socket and one application that reads it.
#[derive(Debug)]
pub struct Receiver {
    state: State,
    address: SocketAddr,
    peer: SocketAddr,
    talk: Talk,
    has_answered: bool,
    moods: Moods,
    read: Vec<u8>,
    /// Whether its server's application was never told of the connection: Linux wakes it only where
    /// the segment that completes the handshake is taken whole (`tcp_child_process`).
    is_unheard: bool,
    is_server: bool,
    // What it receives: names as in `struct tcp_sock`.
    rcv_nxt: u32,
    irs: u32,
    ts_recent: Option<u32>,
    out_of_order: Vec<Piece>,
    urg_seq: Option<u32>,
    // What it sends.
    snd_una: u32,
    snd_nxt: u32,
    snd_wnd: u16,
    bytes_acked: u32,
    max_window: u32,
    replies: Vec<Packet>,
}

/// Whether sequence number `a` lies before `b`.
fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

fn length(octets: &[u8]) -> u32 {
    u32::try_from(octets.len()).unwrap_or(u32::MAX)
}

impl Receiver {
    /// A host that the raw end in `role` will talk with.
    pub fn new(role: Role, address: SocketAddr, peer: SocketAddr, talk: Talk, moods: Moods) -> Self {
        let start = 5_000_000;
        Self {
            state: if role == Role::Client { State::Listen } else { State::SynSent },
            address,
            peer,
            talk,
            has_answered: false,
            moods,
            read: Vec::new(),
            is_unheard: false,
            is_server: role == Role::Client,
            rcv_nxt: 0,
            irs: 0,
            ts_recent: None,
            out_of_order: Vec::new(),
            urg_seq: None,
            snd_una: start,
            snd_nxt: start,
            snd_wnd: 0,
            bytes_acked: 0,
            max_window: 0,
            replies: Vec::new(),
        }
    }

    /// What its application has read.
    pub fn read(&self) -> &[u8] {
        &self.read
    }

    /// True if nothing of what was sent to its application has come, in order or ahead of its turn.
    pub fn is_untouched(&self) -> bool {
        self.read.is_empty() && self.out_of_order.is_empty()
    }

    /// How long it may say nothing: without an answer Linux sends its SYN again, at the latest 64 s after the
    /// one before.
    pub fn patience(&self) -> Duration {
        match self.state {
            State::SynSent | State::SynReceived => Duration::from_secs(64),
            _ => Duration::MAX,
        }
    }

    /// A client's first SYN.
    pub fn connect(&mut self) -> Vec<Packet> {
        let mut syn = self.packet(Flags::SYN);
        syn.acknowledgement = 0;
        syn.options = vec![2, 4, 4, 0xd8, 1, 1, 8, 10, 0, 0, 9, 9, 0, 0, 0, 0];
        self.snd_nxt = self.snd_nxt.wrapping_add(1);
        vec![syn]
    }

    /// Takes a packet and gives what the host sends because of it.
    pub fn take(&mut self, packet: &Received) -> Vec<Packet> {
        // `tcp_inbound_hash`: an unexpected signature, or a list of options that can't be searched for one.
        let is_unsigned = packet.option(19).is_none() && packet.has_whole_options();
        if packet.checksum_valid && !packet.refused_by_ip && is_unsigned {
            match self.state {
                State::Listen => self.listen(packet),
                State::SynSent => self.syn_sent(packet),
                State::SynReceived => self.syn_received(packet),
                State::Established => self.established(packet),
                State::Closed => {}
            }
        }
        std::mem::take(&mut self.replies)
    }

    fn packet(&self, flags: u8) -> Packet {
        let mut packet = Packet::new(self.address, self.peer).flags(flags);
        packet.sequence = self.snd_nxt;
        packet.acknowledgement = self.rcv_nxt;
        packet.window = u16::try_from(WINDOW).unwrap_or(u16::MAX);
        if let Some(echo) = self.ts_recent {
            packet.options = [&[1, 1, 8, 10, 0, 0, 9, 9], echo.to_be_bytes().as_slice()].concat();
        }
        packet
    }

    fn acknowledge(&mut self) {
        let packet = self.packet(Flags::ACK);
        self.replies.push(packet);
    }

    fn say(&mut self, octets: &[u8]) {
        if !octets.is_empty() {
            let mut packet = self.packet(Flags::ACK | Flags::PSH);
            packet.payload = octets.to_vec();
            self.snd_nxt = self.snd_nxt.wrapping_add(length(octets));
            self.replies.push(packet);
        }
    }

    fn refuse(&mut self, packet: &Received) {
        if !packet.has(Flags::RST) {
            let mut reset = self.packet(Flags::RST);
            reset.sequence = packet.acknowledgement;
            self.replies.push(reset);
        }
    }

    fn synchronise(&mut self, packet: &Received) {
        self.peer = packet.source;
        self.irs = packet.sequence;
        self.rcv_nxt = packet.sequence.wrapping_add(1);
        self.ts_recent = packet.timestamp();
    }

    fn answer_syn(&mut self) {
        let mut answer = self.packet(Flags::SYN | Flags::ACK);
        answer.sequence = self.snd_una;
        answer.options.splice(0..0, [2, 4, 4, 0xd8]);
        self.snd_nxt = self.snd_una.wrapping_add(1);
        self.replies.push(answer);
    }

    /// `tcp_rcv_state_process`, `TCP_LISTEN`: what comes with the SYN is not kept.
    fn listen(&mut self, packet: &Received) {
        if packet.has(Flags::SYN) && packet.flags & (Flags::ACK | Flags::RST | Flags::FIN) == 0 {
            self.synchronise(packet);
            self.answer_syn();
            self.state = State::SynReceived;
        }
    }

    /// `tcp_rcv_synsent_state_process`: what comes with the SYN is not kept, but urgent pointers are.
    fn syn_sent(&mut self, packet: &Received) {
        let acknowledges = packet.has(Flags::ACK);
        if acknowledges && packet.acknowledgement != self.snd_nxt {
            self.refuse(packet);
            return;
        }
        if packet.has(Flags::RST) {
            if acknowledges {
                self.state = State::Closed;
            }
            return;
        }
        if !packet.has(Flags::SYN) {
            return;
        }
        self.synchronise(packet);
        if acknowledges {
            self.snd_una = packet.acknowledgement;
            self.bytes_acked = 1;
            self.establish(packet);
            self.note_urgent(packet);
            self.acknowledge();
        } else {
            // Simultaneous open.
            self.state = State::SynReceived;
            self.answer_syn();
        }
    }

    fn establish(&mut self, packet: &Received) {
        self.state = State::Established;
        self.snd_wnd = packet.window;
        self.max_window = u32::from(self.snd_wnd);
        let greeting = self.talk.greeting.clone();
        self.say(&greeting);
    }

    /// `tcp_check_req`, and what follows for the new connection.
    fn syn_received(&mut self, packet: &Received) {
        let is_syn = packet.has(Flags::SYN);
        if is_syn && packet.sequence == self.irs && !packet.has(Flags::ACK) {
            self.answer_syn();
            return;
        }
        if packet.has(Flags::ACK) && packet.acknowledgement != self.snd_una.wrapping_add(1) {
            self.refuse(packet);
            return;
        }
        if self.is_too_old(packet) || !self.is_in_window(packet) {
            self.acknowledge();
            return;
        }
        if packet.has(Flags::RST) && packet.sequence != self.rcv_nxt {
            self.acknowledge();
            return;
        }
        if packet.has(Flags::RST) || (is_syn && packet.sequence != self.irs) {
            self.state = State::Closed;
            return;
        }
        if !packet.has(Flags::ACK) {
            return;
        }
        // Of two clients that open at once each takes the other's SYN-ACK, if nothing is in it.
        if is_syn && !self.is_server && (packet.sequence != self.irs || !packet.payload.is_empty()) {
            self.acknowledge();
            return;
        }
        self.snd_una = packet.acknowledgement;
        self.establish(packet);
        if is_syn {
            self.is_unheard = self.is_server;
            self.acknowledge();
            return;
        }
        self.note_urgent(packet);
        self.queue(packet);
    }

    /// `tcp_rcv_established`.
    fn established(&mut self, packet: &Received) {
        if self.is_predicted(packet) {
            self.note_acknowledgement(packet);
            self.queue(packet);
            return;
        }
        if packet.flags & (Flags::ACK | Flags::RST | Flags::SYN) == 0 {
            return;
        }
        if self.is_too_old(packet) && !packet.has(Flags::RST) || !self.is_in_window(packet) {
            self.acknowledge();
            return;
        }
        if packet.has(Flags::RST) {
            if packet.sequence == self.rcv_nxt {
                self.state = State::Closed;
            } else {
                self.acknowledge();
            }
            return;
        }
        if packet.has(Flags::SYN) {
            self.acknowledge();
            return;
        }
        if !packet.has(Flags::ACK) || !self.note_acknowledgement(packet) {
            return;
        }
        self.note_urgent(packet);
        self.queue(packet);
    }

    /// Header prediction, which looks at little: the data of a segment with an old acknowledgement is
    /// taken here and dropped elsewhere.
    fn is_predicted(&self, packet: &Received) -> bool {
        let timestamp = packet.timestamp();
        let options = if self.ts_recent.is_some() { 12 } else { 0 };
        self.moods.predicts
            && packet.flags & !Flags::PSH == Flags::ACK
            && packet.sequence == self.rcv_nxt
            && !packet.payload.is_empty()
            && self.out_of_order.is_empty()
            && self.urg_seq.is_none()
            && packet.options.len() == options
            && !before(self.snd_nxt, packet.acknowledgement)
            && packet.window == self.snd_wnd
            && !matches!((self.ts_recent, timestamp), (Some(recent), Some(value)) if before(value, recent))
    }

    /// `tcp_paws_discard`.
    fn is_too_old(&self, packet: &Received) -> bool {
        matches!((self.ts_recent, packet.timestamp()), (Some(recent), Some(value)) if before(value, recent))
    }

    /// `tcp_sequence`.
    fn is_in_window(&self, packet: &Received) -> bool {
        let end = packet
            .sequence
            .wrapping_add(length(&packet.payload))
            .wrapping_add(u32::from(packet.has(Flags::SYN)) + u32::from(packet.has(Flags::FIN)));
        !before(end, self.rcv_nxt) && !before(self.rcv_nxt.wrapping_add(WINDOW), packet.sequence)
    }

    /// `tcp_ack`: whether the segment may be looked at further.
    fn note_acknowledgement(&mut self, packet: &Received) -> bool {
        let number = packet.acknowledgement;
        if before(self.snd_nxt, number) {
            return false;
        }
        if before(number, self.snd_una) {
            let reach = self.max_window.min(self.bytes_acked);
            return !before(number, self.snd_una.wrapping_sub(reach));
        }
        self.bytes_acked += number.wrapping_sub(self.snd_una);
        self.snd_una = number;
        self.snd_wnd = packet.window;
        self.max_window = self.max_window.max(u32::from(packet.window));
        if let Some(value) = packet.timestamp()
            && !before(self.rcv_nxt, packet.sequence)
            && self.ts_recent.is_some_and(|recent| !before(value, recent))
        {
            self.ts_recent = Some(value);
        }
        true
    }

    /// `tcp_check_urg`: the pointer is one behind the octet, unless it is zero.
    fn note_urgent(&mut self, packet: &Received) {
        if !packet.has(Flags::URG) {
            return;
        }
        let pointer = u32::from(packet.urgent_pointer.saturating_sub(1));
        let place = packet.sequence.wrapping_add(pointer);
        let is_newer = self.urg_seq.is_none_or(|urgent| before(urgent, place));
        if !before(place, self.rcv_nxt) && is_newer {
            self.urg_seq = Some(place);
        }
    }

    /// `tcp_data_queue`.
    fn queue(&mut self, packet: &Received) {
        // A SYN that was taken counts for one number.
        let sequence = packet.sequence.wrapping_add(u32::from(packet.has(Flags::SYN)));
        let piece = Piece { sequence, octets: packet.payload.clone(), fin: packet.has(Flags::FIN) };
        if piece.end() == sequence {
            return;
        }
        if before(self.rcv_nxt, sequence) {
            self.hold(piece);
        } else if before(self.rcv_nxt, piece.end()) {
            self.read_piece(&piece);
            self.read_held();
        }
        self.acknowledge();
        let is_whole = crate::application::is_whole(&self.read);
        if is_whole && !self.has_answered && self.state == State::Established {
            self.has_answered = true;
            let answer = self.talk.answer.clone();
            self.say(&answer);
        }
    }

    fn read_piece(&mut self, piece: &Piece) {
        if self.state == State::Closed {
            return;
        }
        let known = usize::try_from(self.rcv_nxt.wrapping_sub(piece.sequence)).unwrap_or(usize::MAX);
        for octet in piece.octets.iter().skip(known) {
            if self.urg_seq == Some(self.rcv_nxt) {
                self.urg_seq = None;
            } else if !self.is_unheard {
                self.read.push(*octet);
            }
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        }
        if piece.fin {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
            self.state = State::Closed;
        }
    }

    /// `tcp_ofo_queue`.
    fn read_held(&mut self) {
        while self.out_of_order.first().is_some_and(|first| !before(self.rcv_nxt, first.sequence)) {
            let piece = self.out_of_order.remove(0);
            if before(self.rcv_nxt, piece.end()) {
                self.read_piece(&piece);
            }
        }
    }

    /// `tcp_data_queue_ofo`: what is covered by held pieces is dropped, and covers held pieces.
    fn hold(&mut self, piece: Piece) {
        if let Some(last) = self.out_of_order.last_mut()
            && self.moods.coalesces
            && last.end() == piece.sequence
            && !last.fin
        {
            last.octets.extend_from_slice(&piece.octets);
            last.fin = piece.fin;
            return;
        }
        let mut place = self.out_of_order.len();
        for (index, held) in self.out_of_order.iter_mut().enumerate() {
            if before(piece.sequence, held.sequence) {
                place = index;
                break;
            }
            if before(piece.sequence, held.end()) {
                if !before(held.end(), piece.end()) {
                    return;
                }
                if piece.sequence == held.sequence {
                    place = index;
                    break;
                }
            }
        }
        if self.moods.coalesces
            && let Some(held) = place.checked_sub(1).and_then(|index| self.out_of_order.get_mut(index))
            && held.end() == piece.sequence
            && !held.fin
        {
            held.octets.extend_from_slice(&piece.octets);
            held.fin = piece.fin;
            place -= 1;
        } else {
            self.out_of_order.insert(place, piece);
        }
        let end = self.out_of_order[place].end();
        while self.out_of_order.get(place + 1).is_some_and(|next| !before(end, next.end())) {
            self.out_of_order.remove(place + 1);
        }
    }
}
