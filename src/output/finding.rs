//! All that a scan found out about one target, gathered from the events that were emitted together.

use std::net::SocketAddr;

use crate::event::{
    AlertFacts, ConnectFacts, Endpoint, Event, EventKind, HttpFacts, PortState, ProductFacts, SshSide,
    Timestamp,
};

/// A borrowed view of one target's events.
#[derive(Debug)]
pub(super) struct Finding<'a> {
    pub(super) timestamp: Timestamp,
    pub(super) target: SocketAddr,
    pub(super) connect: Option<&'a ConnectFacts>,
    pub(super) ssh: Option<&'a SshSide>,
    pub(super) http: Vec<&'a HttpFacts>,
    /// The first alert of each rule: a rule may match several answers of one target.
    pub(super) alerts: Vec<&'a AlertFacts>,
}

impl<'a> Finding<'a> {
    /// What `events` say; none where they are of no target.
    pub(super) fn new(events: &'a [Event]) -> Option<Self> {
        let last = events.last()?;
        let Endpoint { address, port } =
            events.iter().find_map(|event| event.flow.as_ref())?.endpoints.server;
        let mut finding = Self {
            timestamp: last.timestamp,
            target: SocketAddr::new(address, port),
            connect: None,
            ssh: None,
            http: Vec::new(),
            alerts: Vec::new(),
        };
        for event in events {
            match &event.kind {
                EventKind::Connect(facts) => finding.connect = Some(facts),
                EventKind::Ssh(facts) => finding.ssh = facts.server.as_ref(),
                EventKind::Http(facts) => finding.http.push(facts),
                EventKind::Alert(facts) => finding.alert(facts),
                EventKind::Drop(_) | EventKind::Anomaly(_) | EventKind::Stats(_) => {}
            }
        }
        Some(finding)
    }

    fn alert(&mut self, facts: &'a AlertFacts) {
        if self.alerts.iter().all(|earlier| earlier.rule != facts.rule) {
            self.alerts.push(facts);
        }
    }

    /// What the port was; one that talked was open.
    pub(super) fn state(&self) -> PortState {
        self.connect.map_or(PortState::Open, |facts| facts.state)
    }

    /// What the fingerprint database calls the software, else what a rule captured.
    pub(super) fn product(&self) -> Option<&'a ProductFacts> {
        let ssh = self.ssh.and_then(|side| side.fingerprint.as_ref());
        let http = || self.responses().find_map(|response| response.fingerprint.as_ref());
        let captured =
            || self.alerts.iter().map(|alert| &alert.product).find(|product| product.product.is_some());
        ssh.or_else(http).or_else(captured)
    }

    /// The service's name as nmap would give it.
    pub(super) fn service(&self) -> Option<&'static str> {
        if self.ssh.is_some() { Some("ssh") } else { (!self.http.is_empty()).then_some("http") }
    }

    /// The `Server` field of the first answer that has one.
    pub(super) fn server(&self) -> Option<&'a str> {
        self.responses().find_map(|response| {
            let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("server"))?;
            Some(field.value.as_str())
        })
    }

    pub(super) fn responses(&self) -> impl Iterator<Item = &'a crate::event::HttpResponseFacts> {
        self.http.iter().filter_map(|http| http.response.as_ref())
    }
}
