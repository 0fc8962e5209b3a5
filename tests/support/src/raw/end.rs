//! One end of a conversation, played packet by packet.

use std::net::SocketAddr;
use std::time::Duration;

use super::packet::{Flags, Packet, Received};

/// Which end of the connection is raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It opens the connection to a real server.
    Client,
    /// A real client opens the connection to it.
    Server,
}

/// What carries packets between a raw end and its peer.
pub trait Medium {
    /// Sends one IP packet.
    fn transmit(&mut self, packet: &[u8]);
    /// The next packet for this end, waiting for one no longer than `wait`.
    fn receive(&mut self, wait: Duration) -> Option<Vec<u8>>;
    /// Lets time go by.
    fn pause(&mut self, time: Duration);
}

/// An end over any medium.
pub type AnyEnd<'m> = RawEnd<Box<dyn Medium + 'm>>;

impl<M: Medium + ?Sized> Medium for &mut M {
    fn transmit(&mut self, packet: &[u8]) {
        (**self).transmit(packet);
    }

    fn receive(&mut self, wait: Duration) -> Option<Vec<u8>> {
        (**self).receive(wait)
    }

    fn pause(&mut self, time: Duration) {
        (**self).pause(time);
    }
}

impl<M: Medium + ?Sized> Medium for Box<M> {
    fn transmit(&mut self, packet: &[u8]) {
        (**self).transmit(packet);
    }

    fn receive(&mut self, wait: Duration) -> Option<Vec<u8>> {
        (**self).receive(wait)
    }

    fn pause(&mut self, time: Duration) {
        (**self).pause(time);
    }
}

/// What a stack in its ordinary state waits for an answer; the model answers at once.
const ROUND_TRIP: Duration = Duration::from_millis(15);

/// One end of a conversation, played packet by packet.
#[derive(Debug)]
pub struct RawEnd<M> {
    /// Carries the packets.
    pub medium: M,
    /// Which end this is.
    pub role: Role,
    /// This end.
    pub local: SocketAddr,
    /// The other end; a raw server learns it from the SYN.
    pub remote: SocketAddr,
    /// Sequence number of the first octet of data.
    pub start: u32,
    /// Where the other end's data begins.
    pub peer_start: u32,
    /// The options of the other end's SYN.
    pub peer_options: Vec<u8>,
    /// What the other end sends next, as far as it came in order.
    pub peer_next: u32,
    /// The last acknowledgement of the other end.
    pub acknowledged: u32,
    /// What the other end said, in order.
    pub heard: Vec<u8>,
    /// Whether the other end has reset the connection.
    pub was_reset: bool,
    /// Whether the other end has acknowledged this end's SYN.
    is_confirmed: bool,
    /// Hop limit of everything that says nothing else.
    pub hop_limit: u8,
    /// Value of the timestamp option, if the connection has it, and what is echoed.
    timestamps: Option<(u32, u32)>,
    trace: Option<Vec<String>>,
}

impl<M: Medium> RawEnd<M> {
    /// An end that has sent nothing; its data begins at sequence number `start`.
    pub fn new(medium: M, role: Role, local: SocketAddr, remote: SocketAddr, start: u32) -> Self {
        Self {
            medium,
            role,
            local,
            remote,
            start,
            peer_start: 0,
            peer_options: Vec::new(),
            peer_next: 0,
            acknowledged: start,
            heard: Vec::new(),
            was_reset: false,
            is_confirmed: false,
            hop_limit: 64,
            timestamps: None,
            trace: Some(Vec::new()),
        }
    }

    /// Forgets the connection, so that the same ports may open another whose data begins at `start`.
    pub fn begin_anew(&mut self, start: u32) {
        self.take(ROUND_TRIP);
        (self.start, self.acknowledged) = (start, start);
        (self.peer_start, self.peer_next) = (0, 0);
        (self.was_reset, self.is_confirmed) = (false, false);
        self.heard.clear();
        self.remark("the same port again");
    }

    /// Opens the connection by an ordinary handshake; tells whether that worked.
    pub fn open(&mut self) -> bool {
        self.open_by(false, |_| {})
    }

    /// Opens the connection, with the timestamp option if asked for; `between` is called when the
    /// other end has answered (or asked) and this end's next step would finish the handshake.
    pub fn open_by(&mut self, timestamps: bool, between: impl FnOnce(&mut Self)) -> bool {
        self.timestamps = timestamps.then_some((1_000_000, 0));
        match self.role {
            Role::Client => {
                let syn = self.opening(Flags::SYN);
                if !self.answered(&syn) {
                    return false;
                }
                between(self);
                self.acknowledge();
                self.settle();
                !self.was_reset
            }
            Role::Server => {
                if !self.await_syn() {
                    return false;
                }
                between(self);
                let answer = self.opening(Flags::SYN | Flags::ACK);
                self.answered(&answer)
            }
        }
    }

    /// A raw server's wait for its client's SYN.
    pub fn await_syn(&mut self) -> bool {
        for _ in 0..400 {
            self.take(ROUND_TRIP);
            if self.peer_start != 0 {
                return true;
            }
        }
        false
    }

    /// Sends `packet` until the other end acknowledges this end's SYN.
    pub fn answered(&mut self, packet: &Packet) -> bool {
        for _ in 0..40 {
            self.send(packet);
            for _ in 0..4 {
                self.settle();
                if self.peer_start != 0 && self.is_confirmed {
                    return true;
                }
            }
        }
        false
    }

    /// A SYN or SYN-ACK of this end.
    pub fn opening(&self, flags: u8) -> Packet {
        let mut packet = self.segment(0, b"").flags(flags).option(&[2, 4, 4, 0xb0]);
        packet.sequence = self.start.wrapping_sub(1);
        if flags & Flags::ACK == 0 {
            packet.acknowledgement = 0;
        }
        if let Some(value) = self.timestamps {
            packet.options = [&[2, 4, 4, 0xb0], timestamp_option(value).as_slice()].concat();
        }
        packet
    }

    /// A segment of this end with `payload` at `offset` from the start of its data.
    pub fn segment(&self, offset: i64, payload: &[u8]) -> Packet {
        let mut packet = Packet::new(self.local, self.remote);
        packet.sequence = shift(self.start, offset);
        packet.acknowledgement = self.peer_next;
        packet.payload = payload.to_vec();
        packet.hop_limit = self.hop_limit;
        if let Some(value) = self.timestamps {
            packet.options = timestamp_option(value);
        }
        packet
    }

    /// As [`RawEnd::segment`], with a timestamp that is `by` milliseconds old.
    pub fn aged(&self, offset: i64, payload: &[u8], by: u32) -> Packet {
        let mut packet = self.segment(offset, payload);
        if let Some((value, echo)) = self.timestamps {
            packet.options = timestamp_option((value.wrapping_sub(by), echo));
        }
        packet
    }

    /// Sends one packet.
    pub fn send(&mut self, packet: &Packet) {
        self.send_octets(&packet.build());
    }

    /// Sends what is an IP packet already.
    pub fn send_octets(&mut self, octets: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.push(sent(octets, self.start, self.peer_start));
        }
        if let Some((value, _)) = &mut self.timestamps {
            *value = value.wrapping_add(1);
        }
        self.medium.transmit(octets);
    }

    /// Sends a plain acknowledgement.
    pub fn acknowledge(&mut self) {
        let offset = i64::from(self.acknowledged.wrapping_sub(self.start).cast_signed());
        let packet = self.segment(offset.max(0), b"").flags(Flags::ACK);
        self.send(&packet);
    }

    /// Takes in what comes within a round trip, and acknowledges data.
    pub fn settle(&mut self) {
        self.take(ROUND_TRIP);
    }

    /// Takes in what comes until nothing has come for `wait`.
    pub fn take(&mut self, wait: Duration) {
        let before = self.peer_next;
        while let Some(octets) = self.medium.receive(wait) {
            let Some(packet) = Received::parse(&octets) else { continue };
            self.note(&packet);
        }
        if self.peer_next != before && self.peer_start != 0 && !self.heard.is_empty() {
            self.acknowledge();
        }
    }

    fn note(&mut self, packet: &Received) {
        let peer_start = packet.sequence.wrapping_add(1);
        if packet.has(Flags::SYN) && self.peer_start != peer_start {
            (self.peer_start, self.peer_next) = (peer_start, peer_start);
            self.peer_options.clone_from(&packet.options);
            self.remote = packet.source;
        }
        if let Some(trace) = &mut self.trace {
            trace.push(format!("< {}", packet.describe(self.peer_start, self.start)));
        }
        if packet.has(Flags::RST) {
            self.was_reset = true;
        }
        if packet.has(Flags::ACK) && !packet.has(Flags::RST) {
            self.acknowledged = packet.acknowledgement;
            self.is_confirmed |= packet.acknowledgement == self.start;
        }
        if let (Some((_, echo)), Some(value)) = (&mut self.timestamps, packet.timestamp()) {
            *echo = value;
        }
        if packet.sequence == self.peer_next && !packet.has(Flags::SYN) {
            let length = u32::try_from(packet.payload.len()).unwrap_or(0);
            self.peer_next = self.peer_next.wrapping_add(length + u32::from(packet.has(Flags::FIN)));
            self.heard.extend_from_slice(&packet.payload);
        }
    }

    /// Whether the other end has acknowledged `count` octets of data.
    pub fn has_delivered(&self, count: usize) -> bool {
        let acknowledged = self.acknowledged.wrapping_sub(self.start).cast_signed();
        usize::try_from(acknowledged).is_ok_and(|acknowledged| acknowledged >= count)
    }

    /// Sends `octets` as an honest end does: whole, and again what is not acknowledged, `tries` times.
    /// Tells whether all was acknowledged.
    pub fn deliver(&mut self, octets: &[u8], tries: u32) -> bool {
        for number in 0..tries {
            let done = usize::try_from(self.acknowledged.wrapping_sub(self.start).cast_signed()).unwrap_or(0);
            let rest = octets.get(done..).unwrap_or_default();
            if rest.is_empty() || self.was_reset {
                break;
            }
            let offset = i64::try_from(done).unwrap_or(0);
            for (at, part) in (offset..).step_by(1000).zip(rest.chunks(1000)) {
                let packet = self.segment(at, part);
                self.send(&packet);
            }
            self.settle();
            if !self.has_delivered(octets.len()) {
                self.medium.pause(Duration::from_millis(20 << number.min(4)));
                self.settle();
            }
        }
        self.has_delivered(octets.len())
    }

    /// Keeps no trace, for runs of many sequences.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.trace = None;
        self
    }

    /// Everything that was sent (`>`) and received (`<`), a line a packet.
    pub fn trace(&self) -> String {
        self.trace.as_ref().map(|trace| trace.join("\n")).unwrap_or_default()
    }

    /// A line of words within the trace.
    pub fn remark(&mut self, text: &str) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("# {text}"));
        }
    }
}

/// A packet that is sent, in words.
fn sent(octets: &[u8], start: u32, peer_start: u32) -> String {
    let Some(packet) = Received::parse(octets) else {
        return format!("> {} octets of a fragment or of no TCP", octets.len());
    };
    let text = packet.describe(start, peer_start);
    match octets {
        [first, _, _, _, _, _, next, ..] if first >> 4 == 6 && *next != 6 => {
            format!("> next header {next} {text}")
        }
        _ => format!("> {text}"),
    }
}

fn shift(number: u32, by: i64) -> u32 {
    // Sequence numbers are modulo 2^32.
    let by = by.rem_euclid(1 << 32);
    number.wrapping_add(u32::try_from(by).expect("below 2^32"))
}

fn timestamp_option((value, echo): (u32, u32)) -> Vec<u8> {
    let mut option = vec![1, 1, 8, 10];
    option.extend_from_slice(&value.to_be_bytes());
    option.extend_from_slice(&echo.to_be_bytes());
    option
}
