//! The flow of an event.

use crate::event::{FlowEndpoints, Side, Timestamp, TransportProtocol};
use crate::flow::{Flow, FlowKey, KeyEnd};

/// The flow, and its client.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowFacts {
    key: FlowKey,
    started: Timestamp,
    client: KeyEnd,
    transport: TransportProtocol,
    confirmed: bool,
    established: bool,
    midstream: bool,
}

impl FlowFacts {
    pub(super) const fn new(key: FlowKey, started: Timestamp, client: KeyEnd) -> Self {
        let transport = TransportProtocol::Tcp;
        Self { key, started, client, transport, confirmed: false, established: false, midstream: false }
    }

    /// The same of a flow of UDP.
    pub(super) const fn of_datagrams(key: FlowKey, started: Timestamp, client: KeyEnd) -> Self {
        Self { transport: TransportProtocol::Udp, confirmed: true, ..Self::new(key, started, client) }
    }

    /// Returns the transport protocol.
    pub(super) const fn transport(&self) -> TransportProtocol {
        self.transport
    }

    /// Its two ends.
    pub(super) const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The client's end.
    pub(super) const fn client(&self) -> KeyEnd {
        self.client
    }

    /// Its number for events.
    pub(super) fn id(&self) -> u64 {
        self.key.flow_id(self.started.as_nanos())
    }

    /// Client and server.
    pub(super) fn endpoints(&self) -> FlowEndpoints {
        FlowEndpoints {
            client: self.key.endpoint(self.client),
            server: self.key.endpoint(self.client.other()),
        }
    }

    /// True once one end has acknowledged what was seen of the other; of UDP always.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// True once each end has acknowledged what the other sent: neither address is forged.
    pub(super) const fn is_established(&self) -> bool {
        self.established
    }

    /// True if neither end's SYN was seen.
    pub(super) const fn is_midstream(&self) -> bool {
        self.midstream
    }

    /// The same flow with its server as the client.
    pub(super) fn mirrored(self) -> Self {
        Self { client: self.client.other(), ..self }
    }

    /// The server's port.
    pub(super) const fn server_port(&self) -> u16 {
        self.key.port(self.client.other())
    }
}

impl<C> From<&Flow<C>> for FlowFacts {
    fn from(flow: &Flow<C>) -> Self {
        let facts = Self::new(*flow.key(), flow.started(), flow.end(Side::Client));
        Self {
            confirmed: flow.is_confirmed(),
            established: flow.is_established(),
            midstream: !flow.is_from_start(),
            ..facts
        }
    }
}
