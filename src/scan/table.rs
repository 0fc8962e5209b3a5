//! What a lane remembers of its connections and of the targets behind them.

use std::time::Duration;

use bannerwall_ring::{Family, Key};

use super::outcome::Reason;
use super::probe::Closed;
use super::{HttpOptions, Target};
use crate::event::PortState;
use bannerwall_ring::timers::Nanos;

/// Connections that a session has at most.
pub(super) const SESSION_CONNECTIONS: usize = HttpOptions::MOST_CONNECTIONS;

/// What a socket needs before its next connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fitness {
    /// To be made.
    Absent,
    /// Nothing.
    Fresh(Family),
    /// To be disconnected.
    Used(Family),
}

/// One direct socket and what happens on it.
#[derive(Debug)]
pub(super) struct Connection<C> {
    /// Whose it is.
    pub(super) session: u32,
    /// Operations in flight; it is released when none is left.
    pub(super) pending: u8,
    /// What its socket is good for.
    pub(super) fitness: Fitness,
    /// Set when it is to end: no operation is started any more.
    pub(super) ending: Option<Closed>,
    /// The last error of an operation on its socket that nobody waited for; 0 for none.
    pub(super) failure: i32,
    /// Operations in flight, to cancel them.
    pub(super) connect: Option<Key>,
    pub(super) receive: Option<Key>,
    pub(super) send: Option<Key>,
    /// What is to be sent next.
    pub(super) out: Vec<u8>,
    /// The probe's.
    pub(super) probe: C,
}

impl<C: Default> Connection<C> {
    pub(super) fn new() -> Self {
        Self {
            session: u32::MAX,
            pending: 0,
            fitness: Fitness::Absent,
            ending: None,
            failure: 0,
            connect: None,
            receive: None,
            send: None,
            out: Vec::new(),
            probe: C::default(),
        }
    }
}

/// One target under way.
#[derive(Debug)]
pub(super) struct Session<S> {
    /// Whom; absent while the place is free.
    pub(super) target: Option<Target>,
    /// What the port was found to be.
    pub(super) found: Option<(PortState, Reason)>,
    /// When its last connect was asked for.
    pub(super) started: Nanos,
    /// It has said something.
    pub(super) heard: bool,
    /// How long the first accepted connect took.
    pub(super) round_trip: Option<Duration>,
    /// When that was.
    pub(super) accepted: Option<Nanos>,
    /// How often a shortage of this machine came between.
    pub(super) shortages: u32,
    /// How often it was asked again for want of an answer.
    pub(super) retries: u32,
    /// Rules that matched.
    pub(super) matches: u32,
    /// Its connections.
    pub(super) connections: Numbers,
    /// Its whole time is over.
    pub(super) expired: bool,
    /// The probe's.
    pub(super) probe: S,
}

impl<S: Default> Session<S> {
    pub(super) fn new() -> Self {
        Self {
            target: None,
            found: None,
            started: 0,
            heard: false,
            round_trip: None,
            accepted: None,
            shortages: 0,
            retries: 0,
            matches: 0,
            connections: Numbers::default(),
            expired: false,
            probe: S::default(),
        }
    }

    /// Makes the place another target's.
    pub(super) fn take_up(&mut self, target: Target) {
        self.target = Some(target);
        self.found = None;
        self.heard = false;
        self.round_trip = None;
        self.accepted = None;
        self.shortages = 0;
        self.retries = 0;
        self.matches = 0;
        self.expired = false;
    }
}

/// The numbers of a session's connections.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Numbers {
    numbers: [u32; SESSION_CONNECTIONS],
    length: usize,
}

impl Numbers {
    pub(super) fn push(&mut self, number: u32) {
        if let Some(place) = self.numbers.get_mut(self.length) {
            *place = number;
            self.length += 1;
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(place) = self.as_slice().iter().position(|other| *other == number) {
            self.length -= 1;
            self.numbers.swap(place, self.length);
        }
    }

    pub(super) fn as_slice(&self) -> &[u32] {
        self.numbers.get(..self.length).unwrap_or_default()
    }
}
