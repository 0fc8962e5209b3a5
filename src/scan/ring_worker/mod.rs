//! One ring with its connections: starts targets, follows each to its end, and reports it exactly once.
//!
//! A connection is a direct socket that is reused. `connect(AF_UNSPEC)` resets the old connection and is
//! hard-linked to the next `connect`, both in one submission. A refused socket does not even need that. A
//! target needs no allocation unless its banner is larger than one receive buffer.
//!
//! Shortages of this machine (ports, descriptors, memory) do not count against a target. It is retried with
//! exponential back-off, and no further target starts until then ([`closing`]).

mod closing;
mod send_receive;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bannerwall_ring::{
    Completion, DetachedOperation, DirectSocket, Operation, OperationLink, Ring, RingCompletion, RingError,
    RingOptions, SocketFamily,
};

use super::concurrency::ReplyStatistics;
use super::connection_table::{ScanConnection, SocketState, TargetSession};
use super::outcome::{OutcomeSink, PortStateReason};
use super::probe::{CloseReason, Probe};
use super::{CloseMethod, ScannerConfig, Target};
use crate::backoff::Backoff;
use crate::event::{PortState, Timestamp};
use bannerwall_ring::timers::{Nanos, TimeoutList};

/// Limit of operations in one submission. A small batch keeps the entries in both sides' caches; 4,096 costs
/// up to 30 % more.
const SUBMISSIONS: u32 = 256;
/// Longest chain: socket and its option, or disconnect; connect, send, receive.
const CHAIN: usize = 5;
/// Pauses after shortages of this machine.
const SHORTAGE_PAUSES: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));
/// Receive buffers of a ring: the limit of unread completions before the kernel needs new buffers.
const BUFFERS: u16 = 256;
const BUFFER_SIZE: u32 = 4096;
/// Silence of a target after which a probe may send data.
const NUDGE: Duration = Duration::from_millis(500);
/// Interval at which a probe checks its watched exchanges.
const WATCH: Duration = Duration::from_millis(10);

/// User data of an operation in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperationToken {
    connection: u32,
    phase: OperationKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationKind {
    Connect,
    Send,
    Receive,
}

/// Time of the loop's last clock reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoopTime {
    /// Nanoseconds since the worker started.
    pub(super) nanos: Nanos,
    /// Wall clock, for events.
    pub(super) wall: Timestamp,
}

/// One ring with its connections.
#[derive(Debug)]
pub(super) struct RingWorker<P: Probe> {
    ring: Ring<OperationToken>,
    capacity: usize,
    close: CloseMethod,
    shortages: u32,
    /// Retries of silent targets, if the user set them.
    retries: Option<u32>,
    /// True while connection requests seem to get lost.
    lossy: bool,
    connections: Vec<ScanConnection<P::Connection>>,
    /// Free connections that must be disconnected first; reused before the others.
    used: Vec<u32>,
    /// Free connections that are ready.
    fresh: Vec<u32>,
    sessions: Vec<TargetSession<P::Session>>,
    free_sessions: Vec<u32>,
    /// Sessions that wait for a shortage to pass, soonest first.
    waiting: BinaryHeap<Reverse<(Nanos, u32)>>,
    connecting: TimeoutList,
    silent: TimeoutList,
    whole: TimeoutList,
    /// Next checks of watched exchanges.
    watched: TimeoutList,
    /// Times at which silent targets are sent data.
    nudged: TimeoutList,
    /// Number of retries since the last query.
    asked_again: u32,
    /// Replies and their round trips since the last query.
    answers: ReplyStatistics,
    probe: P,
}

impl<P: Probe> RingWorker<P> {
    /// Returns a ring worker with `capacity` connections.
    pub(super) fn new(config: &ScannerConfig, capacity: usize, probe: P) -> Result<Self, RingError> {
        let sockets = u32::try_from(capacity).unwrap_or(u32::MAX);
        let ring = Ring::new(&RingOptions {
            submissions: SUBMISSIONS,
            // A talking connection has a connect, a send and a receive under way at once.
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
            connecting: TimeoutList::new(config.connect_timeout, capacity),
            silent: TimeoutList::new(config.first_byte_timeout, capacity),
            whole: TimeoutList::new(config.total_timeout, capacity),
            watched: TimeoutList::new(WATCH, 0),
            nudged: TimeoutList::new(NUDGE.min(config.first_byte_timeout / 2), 0),
            asked_again: 0,
            answers: ReplyStatistics::default(),
            probe,
        })
    }

    /// Returns the ring, to submit and to wait.
    pub(super) fn ring(&mut self) -> &mut Ring<OperationToken> {
        &mut self.ring
    }

    /// Returns the ring if it has operations to submit.
    pub(super) fn queued_ring(&mut self) -> Option<&mut Ring<OperationToken>> {
        if self.ring.queued() > 0 { Some(&mut self.ring) } else { None }
    }

    /// Returns the ring, to wait for it together with others.
    pub(super) fn ring_ref(&self) -> &Ring<OperationToken> {
        &self.ring
    }

    /// Returns the number of targets under way.
    pub(super) fn under_way(&self) -> usize {
        self.sessions.len() - self.free_sessions.len()
    }

    /// True if no target is under way and no operation is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way() == 0 && self.ring.in_flight() == 0
    }

    /// Takes the replies since the last call.
    pub(super) fn take_answers(&mut self) -> ReplyStatistics {
        std::mem::take(&mut self.answers)
    }

    /// Takes the number of retries since the last call.
    pub(super) fn take_asked_again(&mut self) -> u32 {
        std::mem::take(&mut self.asked_again)
    }

    /// Sets whether connection requests seem to get lost, which enables retries.
    pub(super) fn doubt(&mut self, lossy: bool) {
        self.lossy = lossy;
    }

    /// True if the submission queue has room for another target.
    pub(super) fn has_batch_room(&mut self) -> bool {
        self.ring.room() >= CHAIN
    }

    /// True if there is a free connection for another target, and no shortage.
    pub(super) fn has_window_room(&self) -> bool {
        !self.is_short() && self.has_connection()
    }

    /// True if a target waits for a shortage of this machine to pass.
    pub(super) fn is_short(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn has_connection(&self) -> bool {
        !(self.used.is_empty() && self.fresh.is_empty() && self.connections.len() >= self.capacity)
    }

    /// Returns the time of the next timeout.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let waiting = self.waiting.peek().map(|Reverse((due, _))| *due);
        let timers = [&self.connecting, &self.silent, &self.whole, &self.watched, &self.nudged];
        timers.into_iter().filter_map(TimeoutList::deadline).chain(waiting).min()
    }

    /// Starts a target.
    pub(super) fn begin(&mut self, target: Target, now: LoopTime) -> Result<(), RingError> {
        let number = match self.free_sessions.pop() {
            Some(number) => number,
            None => {
                self.sessions.push(TargetSession::new());
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

    /// Retries the sessions whose pause has passed, as far as connections are free.
    pub(super) fn resume(&mut self, now: LoopTime) -> Result<(), RingError> {
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
    fn connect(&mut self, number: u32, now: LoopTime) -> Result<(), RingError> {
        // Space for the whole chain: a link must not be cut by a submission in its middle.
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

        // One chain of linked operations: the kernel starts each when the one before has succeeded. A target
        // costs one submission, and the first bytes are sent at the moment of acceptance.
        let socket = DirectSocket(place);
        let family = SocketFamily::of(&target.address);
        match connection.fitness {
            // The socket is reused for the next target: a disconnect costs less than closing and opening one.
            SocketState::Fresh(other) if other == family => {}
            SocketState::Used(other) if other == family => {
                ring.push_detached(DetachedOperation::Disconnect { socket }, true)?;
            }
            _ => {
                ring.push_detached(DetachedOperation::Open { socket, family }, true)?;
                // The ring skips this unless the probe needs it.
                ring.push_detached(DetachedOperation::NoDelay { socket }, true)?;
            }
        }
        connection.fitness = SocketState::Used(family);
        let token = |phase| OperationToken { connection: place, phase };
        let link = if P::TALKS { OperationLink::Success } else { OperationLink::End };
        let operation = Operation::Connect { socket, address: target.address };
        connection.connect = Some(ring.push(operation, link, token(OperationKind::Connect))?);
        connection.pending = 1;
        if P::TALKS {
            connection.out.clear();
            probe.open(&mut session.probe, &mut connection.probe, target, now.wall, &mut connection.out);
            if !connection.out.is_empty() {
                let octets = std::mem::take(&mut connection.out);
                let operation = Operation::Send { socket, octets, from: 0 };
                connection.send =
                    Some(ring.push(operation, OperationLink::Success, token(OperationKind::Send))?);
                connection.pending += 1;
            }
            let operation = Operation::Receive { socket };
            connection.receive =
                Some(ring.push(operation, OperationLink::End, token(OperationKind::Receive))?);
            connection.pending += 1;
        }
        Ok(())
    }

    /// Returns a free connection, preferably one whose disconnect joins the next submission.
    fn free_connection(&mut self) -> u32 {
        // Used sockets first: they still hold a connection to an earlier target, which the disconnect
        // ends.
        self.used.pop().or_else(|| self.fresh.pop()).unwrap_or_else(|| {
            self.connections.push(ScanConnection::new());
            u32::try_from(self.connections.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Disconnects sockets that no further target has reused.
    pub(super) fn tidy(&mut self) -> Result<(), RingError> {
        while let Some(place) = self.used.pop() {
            self.ring.reserve(1)?;
            self.ring.push_detached(DetachedOperation::Disconnect { socket: DirectSocket(place) }, false)?;
            if let Some(connection) = self.connections.get_mut(at(place))
                && let SocketState::Used(family) = connection.fitness
            {
                connection.fitness = SocketState::Fresh(family);
            }
            self.fresh.push(place);
        }
        Ok(())
    }

    /// Handles every available completion.
    pub(super) fn complete(&mut self, now: LoopTime, report: &mut impl OutcomeSink) -> Result<(), RingError> {
        while let Some(completed) = self.ring.pop() {
            match completed {
                RingCompletion::Operation(completion) => self.advance(completion, now, report)?,
                RingCompletion::Failed { socket: DirectSocket(place), error } => {
                    // The reason of the failure comes with the detached operation; the linked connect only
                    // reports EBADF.
                    if let Some(connection) = self.connections.get_mut(at(place)) {
                        connection.failure = error;
                        connection.fitness = SocketState::Absent;
                    }
                }
            }
        }
        Ok(())
    }

    fn advance(
        &mut self,
        completion: Completion<OperationToken>,
        now: LoopTime,
        report: &mut impl OutcomeSink,
    ) -> Result<(), RingError> {
        let Completion { state: OperationToken { connection: place, phase }, result, octets } = completion;
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        connection.pending = connection.pending.saturating_sub(1);
        match phase {
            OperationKind::Connect => self.connected(place, result, now)?,
            OperationKind::Send => self.sent(place, result, octets)?,
            OperationKind::Receive => self.received(place, result, now, report)?,
        }
        match self.connections.get(at(place)) {
            // The slot is free only after its last operation, which could otherwise act on the next target.
            Some(connection) if connection.pending == 0 && connection.ending.is_some() => {
                self.release(place, now, report)
            }
            _ => Ok(()),
        }
    }

    /// Handles a completed connect.
    fn connected(&mut self, place: u32, result: Result<u32, i32>, now: LoopTime) -> Result<(), RingError> {
        self.connecting.stop(place);
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        connection.connect = None;
        let Some(session) = self.sessions.get_mut(at(connection.session)) else { return Ok(()) };
        // A kernel accepts connections long before its overrun server reads them, so only the server's own
        // data counts as a reply.
        if result == Err(libc::ECONNREFUSED) || (result.is_ok() && !P::TALKS) {
            self.answers.add(now.nanos.saturating_sub(session.started));
        }
        match result {
            Ok(_) => {
                if session.found.is_none() {
                    session.found = Some((PortState::Open, PortStateReason::Accepted));
                    session.accepted = Some(now.nanos);
                    session.round_trip =
                        Some(Duration::from_nanos(now.nanos.saturating_sub(session.started)));
                }
                if !P::TALKS {
                    connection.ending = Some(CloseReason::Here);
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
                // Without a socket the connect fails with EBADF; `failure` has the actual error.
                let error = if connection.failure != 0 { connection.failure } else { error };
                // A refused connect leaves the socket unconnected, so it needs no disconnect.
                if let (libc::ECONNREFUSED, SocketState::Used(family)) = (error, connection.fitness) {
                    connection.fitness = SocketState::Fresh(family);
                } else if matches!(error, libc::EISCONN | libc::EALREADY | libc::EBADF) {
                    connection.fitness = SocketState::Absent;
                }
                connection.ending = Some(CloseReason::Failed(error));
            }
        }
        Ok(())
    }
}

/// Marks the end of a connection, unless it is already marked.
fn end<C>(connection: &mut ScanConnection<C>, how: CloseReason) {
    connection.ending.get_or_insert(how);
}

/// Returns a number as an index.
fn at(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
