//! The end of connections and targets: timeouts, shortages of this machine, and one result for each target.

use std::cmp::Reverse;
use std::time::Duration;

use bannerwall_ring::{DetachedOperation, DirectSocket, RingError};

use super::{LoopTime, RingWorker, SHORTAGE_PAUSES, at, end};
use crate::event::PortState;
use crate::scan::connection_table::{ConnectionNumbers, SocketState};
use crate::scan::outcome::{ExchangeOutcome, OutcomeSink, PortStateReason, TargetOutcome};
use crate::scan::probe::{CloseReason, Probe, ProbeContext, ProbeStep};
use crate::scan::{CloseMethod, ScannerConfig};

impl<P: Probe> RingWorker<P> {
    /// Cancels the operations in flight on a connection.
    pub(super) fn cancel(&mut self, place: u32) -> Result<(), RingError> {
        let Some(connection) = self.connections.get(at(place)) else { return Ok(()) };
        let keys = [connection.connect, connection.receive, connection.send];
        // Each operation needs its own cancellation: a link does not carry it over once the first one
        // has completed.
        for operation in keys.into_iter().flatten() {
            self.ring.reserve(1)?;
            self.ring.push_detached(DetachedOperation::Cancel { operation }, false)?;
        }
        Ok(())
    }

    /// Ends connections and targets whose timeout passed.
    pub(in super::super) fn expire(&mut self, now: LoopTime) -> Result<(), RingError> {
        while let Some(place) = self.connecting.expired(now.nanos) {
            // The connection does not end yet: its answer may arrive before the cancellation.
            self.cancel(place)?;
        }
        while let Some(place) = self.silent.expired(now.nanos) {
            if let Some(connection) = self.connections.get_mut(at(place)) {
                end(connection, CloseReason::Silent);
            }
            self.cancel(place)?;
        }
        while let Some(place) = self.nudged.expired(now.nanos) {
            self.nudge(place)?;
        }
        while let Some(place) = self.watched.expired(now.nanos) {
            self.watch(place, now)?;
        }
        while let Some(number) = self.whole.expired(now.nanos) {
            let mut places = ConnectionNumbers::default();
            if let Some(session) = self.sessions.get_mut(at(number)) {
                session.expired = true;
                places = session.connections;
            }
            for place in places.as_slice() {
                if let Some(connection) = self.connections.get_mut(at(*place)) {
                    end(connection, CloseReason::Expired);
                }
                self.cancel(*place)?;
            }
        }
        Ok(())
    }

    /// Lets the probe send data to a silent target.
    fn nudge(&mut self, place: u32) -> Result<(), RingError> {
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        let Some(session) = self.sessions.get_mut(at(connection.session)) else { return Ok(()) };
        self.probe.on_idle(&mut session.probe, &mut connection.probe, &mut connection.out);
        self.send(place)
    }

    /// Lets the probe check an exchange without progress.
    fn watch(&mut self, place: u32, now: LoopTime) -> Result<(), RingError> {
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        let Some(session) = self.sessions.get_mut(at(connection.session)) else { return Ok(()) };
        if self.probe.watch(&mut session.probe, &mut connection.probe, now.wall) == ProbeStep::More {
            self.watched.start(place, now.nanos);
            return Ok(());
        }
        end(connection, CloseReason::Silent);
        self.cancel(place)
    }

    /// Frees a connection without operations in flight, and continues its session.
    pub(super) fn release(
        &mut self,
        place: u32,
        now: LoopTime,
        report: &mut impl OutcomeSink,
    ) -> Result<(), RingError> {
        self.silent.stop(place);
        self.watched.stop(place);
        self.nudged.stop(place);
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        let number = connection.session;
        let how = connection.ending.take().unwrap_or(CloseReason::Here);
        let Some(session) = self.sessions.get_mut(at(number)) else { return Ok(()) };
        session.connections.remove(place);
        if P::TALKS
            // The probe never saw the connection of a target that did not accept.
            && (session.found.is_some() || !session.connections.as_slice().is_empty())
            && let Some(target) = &session.target
        {
            let mut scene =
                ProbeContext { sink: report, now: now.wall, target, matches: &mut session.matches };
            self.probe.closed(&mut session.probe, &mut connection.probe, how, &mut scene);
        }
        // The siblings may need this slot for the work that they take over.
        self.free(place)?;
        if P::TALKS {
            self.notify_siblings(number, now)?;
        }
        self.proceed(number, how, now, report)
    }

    /// Lets the session's other connections take over the work of an ended one.
    fn notify_siblings(&mut self, number: u32, now: LoopTime) -> Result<(), RingError> {
        let Some(session) = self.sessions.get(at(number)) else { return Ok(()) };
        let others = session.connections;
        for place in others.as_slice() {
            let Self { connections, sessions, probe, .. } = self;
            let (Some(connection), Some(session)) =
                (connections.get_mut(at(*place)), sessions.get_mut(at(number)))
            else {
                continue;
            };
            if connection.ending.is_some() || connection.connect.is_some() {
                continue;
            }
            let step = probe.on_sibling_closed(
                &mut session.probe,
                &mut connection.probe,
                now.wall,
                &mut connection.out,
            );
            match step {
                ProbeStep::More => self.send(*place)?,
                ProbeStep::Close => {
                    end(connection, CloseReason::Here);
                    self.cancel(*place)?;
                }
            }
        }
        Ok(())
    }

    /// Returns a connection to the pool.
    fn free(&mut self, place: u32) -> Result<(), RingError> {
        let Some(connection) = self.connections.get_mut(at(place)) else { return Ok(()) };
        match (connection.fitness, self.close) {
            (SocketState::Used(_), CloseMethod::Reset) => self.used.push(place),
            // An orderly close cannot reuse the socket: the kernel still needs it to send the FIN.
            (SocketState::Used(_), CloseMethod::Finish) => {
                connection.fitness = SocketState::Absent;
                self.ring.reserve(1)?;
                self.ring.push_detached(DetachedOperation::Close { socket: DirectSocket(place) }, false)?;
                self.fresh.push(place);
            }
            _ => self.fresh.push(place),
        }
        Ok(())
    }

    /// Continues a session after a connection ended: reconnects, waits, or ends it.
    fn proceed(
        &mut self,
        number: u32,
        how: CloseReason,
        now: LoopTime,
        report: &mut impl OutcomeSink,
    ) -> Result<(), RingError> {
        let unanswered = matches!(how, CloseReason::Failed(libc::ECANCELED | libc::ETIMEDOUT));
        let again = unanswered && self.asks_again(number);
        let Some(session) = self.sessions.get_mut(at(number)) else { return Ok(()) };
        let open = !session.connections.as_slice().is_empty();
        let wanted = self.probe.wanted(&session.probe);
        match (how, session.found) {
            // A shortage says nothing about the target, so the session waits with exponential back-off.
            (CloseReason::Failed(error), found) if is_shortage(error) && !open && !session.expired => {
                if (found.is_none() || wanted > 0) && session.shortages < self.shortages {
                    let pause = SHORTAGE_PAUSES.delay(session.shortages).as_nanos();
                    let pause = u64::try_from(pause).unwrap_or(u64::MAX);
                    session.shortages += 1;
                    if let (None, Some(target)) = (found, &session.target) {
                        self.probe.begin(&mut session.probe, target);
                    }
                    self.waiting.push(Reverse((now.nanos + pause, number)));
                    return Ok(());
                }
                session.found.get_or_insert(PortStateReason::of_errno(error));
            }
            // Another connection of the session may still be accepted.
            (_, None) if unanswered && open => {}
            (_, None) if again => return self.ask_again(number, now),
            (CloseReason::Failed(libc::ECANCELED), None) => {
                session.found = Some((PortState::Filtered, PortStateReason::NoResponse));
            }
            (CloseReason::Failed(error), None) => session.found = Some(PortStateReason::of_errno(error)),
            (CloseReason::Expired | CloseReason::Silent, None) => {
                session.found = Some((PortState::Filtered, PortStateReason::NoResponse));
            }
            (_, Some((PortState::Open, _))) if wanted > 0 => self.widen(number, now)?,
            _ => {}
        }
        self.finish_if_over(number, now, report);
        Ok(())
    }

    /// True if a silent target is retried: if the user said so, or if connection requests seem to get lost.
    fn asks_again(&self, number: u32) -> bool {
        let most = self.retries.unwrap_or(if self.lossy { ScannerConfig::RETRIES } else { 0 });
        self.sessions.get(at(number)).is_some_and(|session| session.retries < most && !session.expired)
    }

    /// Retries a target from another port. It keeps its slot in the window, which bounds retries, too.
    fn ask_again(&mut self, number: u32, now: LoopTime) -> Result<(), RingError> {
        let Some(session) = self.sessions.get_mut(at(number)) else { return Ok(()) };
        session.retries += 1;
        self.asked_again += 1;
        if let Some(target) = &session.target {
            self.probe.begin(&mut session.probe, target);
        }
        self.connect(number, now)?;
        self.widen(number, now)
    }

    fn finish_if_over(&mut self, number: u32, now: LoopTime, report: &mut impl OutcomeSink) {
        let Some(session) = self.sessions.get_mut(at(number)) else { return };
        if !session.connections.as_slice().is_empty() {
            return;
        }
        self.whole.stop(number);
        let (Some(target), Some((state, reason))) = (&session.target, session.found) else { return };
        let (conversation, banner) = match state {
            _ if reason == PortStateReason::Reset => (ExchangeOutcome::Reset, &[][..]),
            PortState::Open => self.probe.result(&session.probe),
            _ => (ExchangeOutcome::None, &[][..]),
        };
        let since = session.accepted.filter(|_| conversation.is_cut_short());
        report.finished(&TargetOutcome {
            target,
            state,
            reason,
            round_trip: session.round_trip,
            waited: since.map(|accepted| Duration::from_nanos(now.nanos.saturating_sub(accepted))),
            conversation,
            matches: session.matches,
            banner,
        });
        session.target = None;
        self.free_sessions.push(number);
    }
}

/// True for a temporary shortage of this machine, which says nothing about the target.
fn is_shortage(error: i32) -> bool {
    matches!(
        error,
        libc::EADDRNOTAVAIL
            | libc::EADDRINUSE
            | libc::EAGAIN
            | libc::EMFILE
            | libc::ENFILE
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EISCONN
            | libc::EALREADY
            | libc::EBADF
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever this machine lacks is tried again or told as an error; it is never the target's doing.
    #[test]
    fn a_shortage_is_never_taken_for_a_closed_port() {
        let shortages = [
            libc::EADDRNOTAVAIL,
            libc::EADDRINUSE,
            libc::EAGAIN,
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
        ];
        let for_good = [libc::ENETUNREACH, libc::ENETDOWN, libc::EACCES, libc::EPERM, libc::EAFNOSUPPORT];
        assert!(shortages.into_iter().all(is_shortage));
        assert!(!for_good.into_iter().any(is_shortage));
        for error in shortages.into_iter().chain(for_good) {
            assert_eq!(PortStateReason::of_errno(error), (PortState::Error, PortStateReason::Errno(error)));
            assert_ne!(PortStateReason::of_errno(error).1.name(), "EOTHER");
        }
    }
}
