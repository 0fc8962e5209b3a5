//! State of a ring worker's connections and targets.

use std::time::Duration;

use bannerwall_ring::{OperationKey, SocketFamily};

use super::outcome::PortStateReason;
use super::probe::CloseReason;
use super::{HttpOptions, Target};
use crate::event::PortState;
use bannerwall_ring::timers::Nanos;

/// Limit of connections in a session.
pub(super) const SESSION_CONNECTIONS: usize = HttpOptions::MOST_CONNECTIONS;

/// Preparation that a socket needs before its next connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketState {
    /// Needs to be created.
    Absent,
    /// Ready.
    Fresh(SocketFamily),
    /// Needs to be disconnected.
    Used(SocketFamily),
}

/// One direct socket and its operations.
#[derive(Debug)]
pub(super) struct ScanConnection<C> {
    /// Session of the connection.
    pub(super) session: u32,
    /// Number of operations in flight; at 0 the connection is released.
    pub(super) pending: u8,
    /// State of the socket.
    pub(super) fitness: SocketState,
    /// Reason of the end, once no further operation may start.
    pub(super) ending: Option<CloseReason>,
    /// Last error of a detached operation on the socket; 0 for none.
    pub(super) failure: i32,
    /// Operations in flight, for cancellation.
    pub(super) connect: Option<OperationKey>,
    pub(super) receive: Option<OperationKey>,
    pub(super) send: Option<OperationKey>,
    /// Bytes to send next.
    pub(super) out: Vec<u8>,
    /// State of the probe.
    pub(super) probe: C,
}

impl<C: Default> ScanConnection<C> {
    pub(super) fn new() -> Self {
        Self {
            session: u32::MAX,
            pending: 0,
            fitness: SocketState::Absent,
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
pub(super) struct TargetSession<S> {
    /// Target; none if the slot is free.
    pub(super) target: Option<Target>,
    /// State of the port, once known.
    pub(super) found: Option<(PortState, PortStateReason)>,
    /// Time of the last connection request.
    pub(super) started: Nanos,
    /// True once the target sent data.
    pub(super) heard: bool,
    /// Duration of the first accepted connect.
    pub(super) round_trip: Option<Duration>,
    /// Time of the first accepted connect.
    pub(super) accepted: Option<Nanos>,
    /// Number of shortages of this machine.
    pub(super) shortages: u32,
    /// Number of retries after missing answers.
    pub(super) retries: u32,
    /// Number of matching rules.
    pub(super) matches: u32,
    /// Connections of the session.
    pub(super) connections: ConnectionNumbers,
    /// True once the total timeout passed.
    pub(super) expired: bool,
    /// State of the probe.
    pub(super) probe: S,
}

impl<S: Default> TargetSession<S> {
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
            connections: ConnectionNumbers::default(),
            expired: false,
            probe: S::default(),
        }
    }

    /// Assigns the slot to another target.
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

/// Numbers of a session's connections.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ConnectionNumbers {
    numbers: [u32; SESSION_CONNECTIONS],
    length: usize,
}

impl ConnectionNumbers {
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
