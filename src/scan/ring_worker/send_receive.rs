//! Sending and receiving on an established connection.

use bannerwall_ring::{DirectSocket, Operation, OperationLink, RingError};

use super::{LoopTime, OperationKind, OperationToken, RingWorker, at, end};
use crate::scan::connection_table::SESSION_CONNECTIONS;
use crate::scan::outcome::OutcomeSink;
use crate::scan::probe::{CloseReason, Probe, ProbeContext, ProbeStep};

impl<P: Probe> RingWorker<P> {
    /// Handles a completed send: sends the rest, and new data.
    pub(super) fn sent(
        &mut self,
        place: u32,
        result: Result<u32, i32>,
        mut octets: Vec<u8>,
    ) -> Result<(), RingError> {
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        connection.send = None;
        // A failed send does not end the connection: a reply may have arrived before. The receive decides.
        let count = result.map_or(octets.len(), |count| usize::try_from(count).unwrap_or(usize::MAX));
        octets.drain(..count.min(octets.len()));
        // The rest of a short send goes before data that the probe has added meanwhile.
        octets.append(&mut connection.out);
        connection.out = octets;
        if result.is_err() {
            connection.out.clear();
        }
        self.send(place)
    }

    /// Sends pending bytes, unless a send is in flight.
    pub(super) fn send(&mut self, place: u32) -> Result<(), RingError> {
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        if connection.out.is_empty() || connection.send.is_some() || connection.ending.is_some() {
            return Ok(());
        }
        self.ring.reserve(1)?;
        let octets = std::mem::take(&mut connection.out);
        let token = OperationToken { connection: place, phase: OperationKind::Send };
        let operation = Operation::Send { socket: DirectSocket(place), octets, from: 0 };
        connection.send = Some(self.ring.push(operation, OperationLink::End, token)?);
        connection.pending += 1;
        Ok(())
    }

    /// Handles a completed receive: passes exactly the received bytes to the probe.
    pub(super) fn received(
        &mut self,
        place: u32,
        result: Result<u32, i32>,
        now: LoopTime,
        report: &mut impl OutcomeSink,
    ) -> Result<(), RingError> {
        self.nudged.stop(place);
        let Self { ring, connections, sessions, probe, silent, answers, .. } = self;
        let Some(connection) = connections.get_mut(at(place)) else { return Ok(()) };
        connection.receive = None;
        let Some(session) = sessions.get_mut(at(connection.session)) else { return Ok(()) };
        match result {
            Ok(0) => end(connection, CloseReason::Finished),
            Ok(_) => {
                // The timeout is for a silent target, so its other connections restart theirs, too.
                silent.start(place, now.nanos);
                for other in session.connections.as_slice().iter().filter(|other| **other != place) {
                    silent.restart(*other, now.nanos);
                }
                if !std::mem::replace(&mut session.heard, true) {
                    answers.add(now.nanos.saturating_sub(session.started));
                }
                let Some(target) = &session.target else { return Ok(()) };
                let mut scene =
                    ProbeContext { sink: report, now: now.wall, target, matches: &mut session.matches };
                let step = probe.receive(
                    &mut session.probe,
                    &mut connection.probe,
                    ring.received(),
                    &mut connection.out,
                    &mut scene,
                );
                if step == ProbeStep::Close {
                    connection.ending = Some(CloseReason::Here);
                }
            }
            // All buffers were unread, or the send before it in the chain was short: receive again.
            Err(libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {}
            Err(libc::ECONNRESET | libc::EPIPE) => end(connection, CloseReason::Reset),
            Err(libc::ETIMEDOUT) => end(connection, CloseReason::Silent),
            Err(error) => end(connection, CloseReason::Broke(error)),
        }
        if connection.ending.is_none() {
            ring.reserve(1)?;
            let token = OperationToken { connection: place, phase: OperationKind::Receive };
            connection.receive = Some(ring.push(
                Operation::Receive { socket: DirectSocket(place) },
                OperationLink::End,
                token,
            )?);
            connection.pending += 1;
            return self.send_more(place, now);
        }
        self.cancel(place)
    }

    fn send_more(&mut self, place: u32, now: LoopTime) -> Result<(), RingError> {
        let Some(connection) = self.connections.get(at(place)) else { return Ok(()) };
        let number = connection.session;
        self.send(place)?;
        self.widen(number, now)
    }

    /// Opens the further connections that the probe wants, as far as any are free.
    pub(super) fn widen(&mut self, number: u32, now: LoopTime) -> Result<(), RingError> {
        loop {
            let Some(session) = self.sessions.get(at(number)) else { return Ok(()) };
            let wanted = self.probe.wanted(&session.probe).min(SESSION_CONNECTIONS);
            let open = session.connections.as_slice().len();
            if session.expired || open >= wanted || !self.has_connection() {
                return Ok(());
            }
            self.connect(number, now)?;
        }
    }
}
