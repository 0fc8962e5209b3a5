//! One ring and the connections on it: takes targets up, follows each to its end, accounts for it
//! exactly once.
//!
//! A connection is a direct socket that is used again: `connect(AF_UNSPEC)`, which resets what is
//! left of the one before, is hard-linked to the next `connect`, both in one submission; a socket
//! whose connect was refused needs not even that. Nothing is allocated for a target but what its
//! banner needs beyond one receive buffer.
//!
//! Of this machine's shortages (no port, no descriptor, no memory) the target knows nothing: it is
//! tried again later, ever more slowly, and no further target is taken up until then ([`ending`]).

mod ending;
mod talking;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bannerwall_ring::{
    Completed, Completion, Family, Link, Operation, Options, Ring, RingError, Socket, Unattended,
};

use super::outcome::{Reason, Report};
use super::probe::{Closed, Probe};
use super::table::{Connection, Fitness, Session};
use super::window::Answers;
use super::{Close, Config, Target};
use crate::event::{PortState, Timestamp};
use bannerwall_ring::timers::{Nanos, Timers};

/// Operations handed to the kernel in one call. A small batch keeps both sides' entries in cache;
/// 4,096 costs up to 30 % more.
const SUBMISSIONS: u32 = 256;
/// The longest chain: socket and its option, or disconnect; connect, send, receive.
const CHAIN: usize = 5;
/// The first pause after a shortage; doubled each time, up to the last.
const FIRST_PAUSE: Nanos = 5_000_000;
const LAST_PAUSE: Nanos = 1_000_000_000;
/// Receive buffers of a ring: as many completions as may be unread at once before the kernel has
/// to be asked again.
const BUFFERS: u16 = 256;
const BUFFER_SIZE: u32 = 4096;
/// Time for which a target may be silent before a probe may speak to it.
const NUDGE: Duration = Duration::from_millis(500);
/// Interval at which a probe looks at talks that it watches.
const WATCH: Duration = Duration::from_millis(10);

/// Names an operation in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    connection: u32,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connect,
    Send,
    Receive,
}

/// The time, as the loop read it last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Since the worker started.
    pub(super) nanos: Nanos,
    /// For events.
    pub(super) wall: Timestamp,
}

/// One ring with its connections.
#[derive(Debug)]
pub(super) struct Lane<P: Probe> {
    ring: Ring<Token>,
    capacity: usize,
    close: Close,
    shortages: u32,
    /// How often who did not answer is asked again, where that was said.
    retries: Option<u32>,
    /// Connection requests seem to get lost.
    lossy: bool,
    connections: Vec<Connection<P::Connection>>,
    /// Free connections that still have to be disconnected; used before the others.
    used: Vec<u32>,
    /// Free connections in order.
    fresh: Vec<u32>,
    sessions: Vec<Session<P::Session>>,
    free_sessions: Vec<u32>,
    /// Sessions that wait for a shortage to pass, soonest first.
    waiting: BinaryHeap<Reverse<(Nanos, u32)>>,
    connecting: Timers,
    silent: Timers,
    whole: Timers,
    /// When the probe looks at its talks again.
    watched: Timers,
    /// When who said nothing is spoken to.
    nudged: Timers,
    /// Targets that were asked again since this was asked last.
    asked_again: u32,
    /// Who answered, and how quickly, since it was asked last.
    answers: Answers,
    probe: P,
}

impl<P: Probe> Lane<P> {
    /// A lane of `capacity` connections.
    pub(super) fn new(config: &Config, capacity: usize, probe: P) -> Result<Self, RingError> {
        let sockets = u32::try_from(capacity).unwrap_or(u32::MAX);
        let ring = Ring::new(&Options {
            submissions: SUBMISSIONS,
            operations: sockets.saturating_mul(if P::TALKS { 3 } else { 1 }),
            sockets,
            buffers: if P::TALKS { BUFFERS } else { 0 },
            buffer_size: BUFFER_SIZE,
            no_delay: probe.sends_in_parts(),
        })?;
        Ok(Self {
            ring,
            capacity,
            close: config.close,
            shortages: config.shortages,
            retries: config.retries,
            lossy: false,
            connections: Vec::with_capacity(capacity),
            used: Vec::with_capacity(capacity),
            fresh: Vec::with_capacity(capacity),
            sessions: Vec::with_capacity(capacity),
            free_sessions: Vec::with_capacity(capacity),
            waiting: BinaryHeap::new(),
            connecting: Timers::new(config.connect_timeout, capacity),
            silent: Timers::new(config.first_byte_timeout, capacity),
            whole: Timers::new(config.total_timeout, capacity),
            watched: Timers::new(WATCH, 0),
            nudged: Timers::new(NUDGE.min(config.first_byte_timeout / 2), 0),
            asked_again: 0,
            answers: Answers::default(),
            probe,
        })
    }

    /// The ring, to submit and to wait.
    pub(super) fn ring(&mut self) -> &mut Ring<Token> {
        &mut self.ring
    }

    /// The ring, where it has something to submit.
    pub(super) fn queued_ring(&mut self) -> Option<&mut Ring<Token>> {
        if self.ring.queued() > 0 { Some(&mut self.ring) } else { None }
    }

    /// The ring, to wait for it together with others.
    pub(super) fn ring_ref(&self) -> &Ring<Token> {
        &self.ring
    }

    /// Targets under way.
    pub(super) fn under_way(&self) -> usize {
        self.sessions.len() - self.free_sessions.len()
    }

    /// True when nothing is under way, nor a connection left to end.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way() == 0 && self.ring.in_flight() == 0
    }

    /// Who answered since this was asked last.
    pub(super) fn take_answers(&mut self) -> Answers {
        std::mem::take(&mut self.answers)
    }

    /// Targets that were asked again since this was asked last.
    pub(super) fn take_asked_again(&mut self) -> u32 {
        std::mem::take(&mut self.asked_again)
    }

    /// Whether connection requests seem to get lost: who does not answer then is asked again.
    pub(super) fn doubt(&mut self, lossy: bool) {
        self.lossy = lossy;
    }

    /// Room for another target in this submission.
    pub(super) fn has_batch_room(&mut self) -> bool {
        self.ring.room() >= CHAIN
    }

    /// Room for another target at all, and no shortage to wait for.
    pub(super) fn has_window_room(&self) -> bool {
        !self.is_short() && self.has_connection()
    }

    /// A target waits for a shortage of this machine to pass.
    pub(super) fn is_short(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn has_connection(&self) -> bool {
        !(self.used.is_empty() && self.fresh.is_empty() && self.connections.len() >= self.capacity)
    }

    /// When something has to be done though nothing came.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let waiting = self.waiting.peek().map(|Reverse((due, _))| *due);
        let timers = [&self.connecting, &self.silent, &self.whole, &self.watched, &self.nudged];
        timers.into_iter().filter_map(Timers::deadline).chain(waiting).min()
    }

    /// Takes up a target.
    pub(super) fn begin(&mut self, target: Target, now: Now) -> Result<(), RingError> {
        let number = match self.free_sessions.pop() {
            Some(number) => number,
            None => {
                self.sessions.push(Session::new());
                u32::try_from(self.sessions.len() - 1).unwrap_or(u32::MAX)
            }
        };
        if let Some(session) = self.sessions.get_mut(at(number)) {
            self.probe.begin(&mut session.probe, &target);
            session.take_up(target);
            self.whole.start(number, now.nanos);
        }
        self.connect(number, now)?;
        self.widen(number, now)
    }

    /// Tries those again whose pause is over, as far as there is room.
    pub(super) fn resume(&mut self, now: Now) -> Result<(), RingError> {
        while let Some(Reverse((due, number))) = self.waiting.peek().copied() {
            if due > now.nanos || !self.has_connection() {
                break;
            }
            self.waiting.pop();
            self.connect(number, now)?;
        }
        Ok(())
    }

    /// Starts a connection of session `number`. There must be a free one.
    fn connect(&mut self, number: u32, now: Now) -> Result<(), RingError> {
        self.ring.reserve(CHAIN)?;
        let place = self.free_connection();
        let Self { ring, connections, sessions, probe, connecting, .. } = self;
        let (Some(connection), Some(session)) =
            (connections.get_mut(at(place)), sessions.get_mut(at(number)))
        else {
            return Ok(());
        };
        let Some(target) = &session.target else { return Ok(()) };
        connection.session = number;
        connection.ending = None;
        connection.failure = 0;
        session.started = now.nanos;
        session.connections.push(place);
        connecting.start(place, now.nanos);

        // One chain of linked operations: the kernel begins each when the one before has succeeded, so that a
        // target costs one submission, and what is to be said is sent in the moment of the acceptance.
        let socket = Socket(place);
        let family = Family::of(&target.address);
        match connection.fitness {
            // A socket is kept for the next target: to disconnect it costs less than to close and open one.
            Fitness::Fresh(other) if other == family => {}
            Fitness::Used(other) if other == family => {
                ring.push_unattended(Unattended::Disconnect { socket }, true)?;
            }
            _ => {
                ring.push_unattended(Unattended::Open { socket, family }, true)?;
                // The ring knows whether the probe needs it.
                ring.push_unattended(Unattended::NoDelay { socket }, true)?;
            }
        }
        connection.fitness = Fitness::Used(family);
        let token = |phase| Token { connection: place, phase };
        let link = if P::TALKS { Link::Success } else { Link::End };
        let operation = Operation::Connect { socket, address: target.address };
        connection.connect = Some(ring.push(operation, link, token(Phase::Connect))?);
        connection.pending = 1;
        if P::TALKS {
            connection.out.clear();
            probe.open(&mut session.probe, &mut connection.probe, target, now.wall, &mut connection.out);
            if !connection.out.is_empty() {
                let octets = std::mem::take(&mut connection.out);
                let operation = Operation::Send { socket, octets, from: 0 };
                connection.send = Some(ring.push(operation, Link::Success, token(Phase::Send))?);
                connection.pending += 1;
            }
            let operation = Operation::Receive { socket };
            connection.receive = Some(ring.push(operation, Link::End, token(Phase::Receive))?);
            connection.pending += 1;
        }
        Ok(())
    }

    /// A free connection's number, preferably one whose disconnect can ride along.
    fn free_connection(&mut self) -> u32 {
        self.used.pop().or_else(|| self.fresh.pop()).unwrap_or_else(|| {
            self.connections.push(Connection::new());
            u32::try_from(self.connections.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Ends the connections that no further target ended by taking their socket.
    pub(super) fn tidy(&mut self) -> Result<(), RingError> {
        while let Some(place) = self.used.pop() {
            self.ring.reserve(1)?;
            self.ring.push_unattended(Unattended::Disconnect { socket: Socket(place) }, false)?;
            if let Some(connection) = self.connections.get_mut(at(place))
                && let Fitness::Used(family) = connection.fitness
            {
                connection.fitness = Fitness::Fresh(family);
            }
            self.fresh.push(place);
        }
        Ok(())
    }

    /// Takes every completion that is there.
    pub(super) fn complete(&mut self, now: Now, report: &mut impl Report) -> Result<(), RingError> {
        while let Some(completed) = self.ring.pop() {
            match completed {
                Completed::Operation(completion) => self.advance(completion, now, report)?,
                Completed::Failed { socket: Socket(place), error } => {
                    if let Some(connection) = self.connections.get_mut(at(place)) {
                        connection.failure = error;
                        connection.fitness = Fitness::Absent;
                    }
                }
            }
        }
        Ok(())
    }

    fn advance(
        &mut self,
        completion: Completion<Token>,
        now: Now,
        report: &mut impl Report,
    ) -> Result<(), RingError> {
        let Completion { state: Token { connection: place, phase }, result, octets } = completion;
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        connection.pending = connection.pending.saturating_sub(1);
        match phase {
            Phase::Connect => self.connected(place, result, now)?,
            Phase::Send => self.sent(place, result, octets)?,
            Phase::Receive => self.received(place, result, now, report)?,
        }
        match self.connections.get(at(place)) {
            Some(connection) if connection.pending == 0 && connection.ending.is_some() => {
                self.release(place, now, report)
            }
            _ => Ok(()),
        }
    }

    /// A connect is over.
    fn connected(&mut self, place: u32, result: Result<u32, i32>, now: Now) -> Result<(), RingError> {
        self.connecting.stop(place);
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        connection.connect = None;
        let Some(session) = self.sessions.get_mut(at(connection.session)) else { return Ok(()) };
        // A kernel accepts for a server that is overrun long before; what it says itself tells more.
        if result == Err(libc::ECONNREFUSED) || (result.is_ok() && !P::TALKS) {
            self.answers.add(now.nanos.saturating_sub(session.started));
        }
        match result {
            Ok(_) => {
                if session.found.is_none() {
                    session.found = Some((PortState::Open, Reason::Accepted));
                    session.accepted = Some(now.nanos);
                    session.round_trip =
                        Some(Duration::from_nanos(now.nanos.saturating_sub(session.started)));
                }
                if !P::TALKS {
                    connection.ending = Some(Closed::Here);
                } else if connection.ending.is_none() {
                    self.silent.start(place, now.nanos);
                    if self.probe.is_nudged() {
                        self.nudged.start(place, now.nanos);
                    }
                    let (probe, out) = (&mut connection.probe, &mut connection.out);
                    if self.probe.accepted(&mut session.probe, probe, now.wall, out) {
                        self.watched.start(place, now.nanos);
                    }
                    return self.send(place);
                }
            }
            Err(error) => {
                // Without a socket the connect says EBADF; why there is none came before it.
                let error = if connection.failure != 0 { connection.failure } else { error };
                if let (libc::ECONNREFUSED, Fitness::Used(family)) = (error, connection.fitness) {
                    connection.fitness = Fitness::Fresh(family);
                } else if matches!(error, libc::EISCONN | libc::EALREADY | libc::EBADF) {
                    connection.fitness = Fitness::Absent;
                }
                connection.ending = Some(Closed::Failed(error));
            }
        }
        Ok(())
    }
}

/// Marks a connection's end, unless one is marked already.
fn end<C>(connection: &mut Connection<C>, how: Closed) {
    connection.ending.get_or_insert(how);
}

/// A number as an index.
fn at(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
