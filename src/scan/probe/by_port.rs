//! Two probes in one scan: one for a port, the other for all other ports.

use super::{CloseReason, Probe, ProbeContext, ProbeStep};
use crate::event::Timestamp;
use crate::scan::{ExchangeOutcome, Target};

/// Probes targets at `port` with `first`, and all others with `other`.
pub(in crate::scan) struct ProbeByPort<A, B> {
    pub(in crate::scan) port: u16,
    pub(in crate::scan) first: A,
    pub(in crate::scan) other: B,
}

/// State of a target: that of the probe in use.
#[derive(Debug, Default)]
pub(in crate::scan) struct SessionByPort<A, B> {
    is_first: bool,
    first: A,
    other: B,
}

/// State of a connection: that of the probe in use.
#[derive(Debug, Default)]
pub(in crate::scan) struct ConnectionByPort<A, B> {
    first: A,
    other: B,
}

impl<A: Probe, B: Probe> Probe for ProbeByPort<A, B> {
    type Session = SessionByPort<A::Session, B::Session>;
    type Connection = ConnectionByPort<A::Connection, B::Connection>;

    const TALKS: bool = A::TALKS || B::TALKS;

    fn sends_in_parts(&self) -> bool {
        self.first.sends_in_parts() || self.other.sends_in_parts()
    }

    fn begin(&mut self, session: &mut Self::Session, target: &Target) {
        session.is_first = target.address.port() == self.port;
        match session.is_first {
            true => self.first.begin(&mut session.first, target),
            false => self.other.begin(&mut session.other, target),
        }
    }

    fn open(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        target: &Target,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        match session.is_first {
            true => self.first.open(&mut session.first, &mut connection.first, target, now, out),
            false => self.other.open(&mut session.other, &mut connection.other, target, now, out),
        }
    }

    fn receive(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        match session.is_first {
            true => self.first.receive(&mut session.first, &mut connection.first, octets, out, scene),
            false => self.other.receive(&mut session.other, &mut connection.other, octets, out, scene),
        }
    }

    fn closed(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        how: CloseReason,
        scene: &mut ProbeContext<'_>,
    ) {
        match session.is_first {
            true => self.first.closed(&mut session.first, &mut connection.first, how, scene),
            false => self.other.closed(&mut session.other, &mut connection.other, how, scene),
        }
    }

    fn accepted(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> bool {
        match session.is_first {
            true => self.first.accepted(&mut session.first, &mut connection.first, now, out),
            false => self.other.accepted(&mut session.other, &mut connection.other, now, out),
        }
    }

    fn negotiated(&mut self, session: &mut Self::Session, target: &Target, protocol: Option<&[u8]>) {
        match session.is_first {
            true => self.first.negotiated(&mut session.first, target, protocol),
            false => self.other.negotiated(&mut session.other, target, protocol),
        }
    }

    fn is_unanswered(&self, session: &Self::Session) -> bool {
        match session.is_first {
            true => self.first.is_unanswered(&session.first),
            false => self.other.is_unanswered(&session.other),
        }
    }

    fn is_nudged(&self) -> bool {
        self.first.is_nudged() || self.other.is_nudged()
    }

    fn on_idle(&mut self, session: &mut Self::Session, connection: &mut Self::Connection, out: &mut Vec<u8>) {
        match session.is_first {
            true => self.first.on_idle(&mut session.first, &mut connection.first, out),
            false => self.other.on_idle(&mut session.other, &mut connection.other, out),
        }
    }

    fn on_sibling_closed(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> ProbeStep {
        match session.is_first {
            true => self.first.on_sibling_closed(&mut session.first, &mut connection.first, now, out),
            false => self.other.on_sibling_closed(&mut session.other, &mut connection.other, now, out),
        }
    }

    fn watch(
        &mut self,
        session: &mut Self::Session,
        connection: &mut Self::Connection,
        now: Timestamp,
    ) -> ProbeStep {
        match session.is_first {
            true => self.first.watch(&mut session.first, &mut connection.first, now),
            false => self.other.watch(&mut session.other, &mut connection.other, now),
        }
    }

    fn wanted(&self, session: &Self::Session) -> usize {
        match session.is_first {
            true => self.first.wanted(&session.first),
            false => self.other.wanted(&session.other),
        }
    }

    fn result<'s>(&self, session: &'s Self::Session) -> (ExchangeOutcome, &'s [u8]) {
        match session.is_first {
            true => self.first.result(&session.first),
            false => self.other.result(&session.other),
        }
    }
}
