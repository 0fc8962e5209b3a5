//! All that a scan found out about one target, gathered from the events that were emitted together.

use std::borrow::Cow;
use std::net::SocketAddr;

use super::identity::Identity;
use crate::event::{
    AlertFacts, Application, ConnectFacts, Endpoint, Event, EventKind, HostKey, HttpFacts, HttpResponseFacts,
    PortState, ProductFacts, SshSide, Timestamp, TlsFacts,
};

/// A borrowed view of one target's events.
#[derive(Debug)]
pub(super) struct Finding<'a> {
    pub(super) timestamp: Timestamp,
    pub(super) target: SocketAddr,
    pub(super) connect: Option<&'a ConnectFacts>,
    /// What was said, in order: several answers of an HTTP server, else one banner.
    pub(super) said: Vec<&'a Application>,
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
            said: Vec::new(),
            alerts: Vec::new(),
        };
        for event in events {
            match &event.kind {
                EventKind::Connect(facts) => finding.connect = Some(facts),
                EventKind::Application(said) => finding.said.push(said),
                EventKind::Alert(facts) => finding.alert(facts),
                EventKind::Drop(_)
                | EventKind::Anomaly(_)
                | EventKind::Flow(_)
                | EventKind::Stats(_)
                | EventKind::Hook(_)
                | EventKind::Ban(_)
                | EventKind::Change(_) => {}
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

    /// What the fingerprint database calls the software.
    pub(super) fn named(&self) -> Option<&'a ProductFacts> {
        let facts = self.said.iter().find_map(|said| said.summary().product);
        facts.filter(|facts| facts.product.is_some())
    }

    /// What the software calls itself, as far as that can be told apart.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.said.iter().find_map(|said| Identity::of(said))
    }

    /// What the fingerprint database calls the software, else what a rule captured.
    pub(super) fn product(&self) -> Option<&'a ProductFacts> {
        let named = self.said.iter().find_map(|said| said.summary().product);
        let captured =
            || self.alerts.iter().map(|alert| &alert.product).find(|product| product.product.is_some());
        named.or_else(captured)
    }

    /// The service's name as nmap would give it.
    pub(super) fn service(&self) -> Option<&'static str> {
        let within = self.said.iter().find(|said| !matches!(said, Application::Tls(_)));
        within.or(self.said.first()).map(|said| said.protocol().name())
    }

    /// True if that is said within TLS.
    pub(super) fn is_within_tls(&self) -> bool {
        self.said.len() > 1 && matches!(self.said.first(), Some(Application::Tls(_)))
    }

    /// Handshakes of TLS.
    pub(super) fn tls(&self) -> impl Iterator<Item = &'a TlsFacts> {
        self.said.iter().filter_map(|said| match said {
            Application::Tls(facts) => Some(facts.as_ref()),
            _ => None,
        })
    }

    /// What the server says that it is: the software of an identification, the first `Server` field, the
    /// text of a greeting.
    pub(super) fn software(&self) -> Option<Cow<'a, str>> {
        self.said.iter().find_map(|said| said.summary().software)
    }

    /// What the server said on its own, whatever it was asked.
    pub(super) fn banner(&self) -> Option<Cow<'a, str>> {
        match self.said.first()? {
            Application::Http(_) => None,
            said => said.summary().banner,
        }
    }

    /// The key of an SSH server.
    pub(super) fn host_key(&self) -> Option<&'a HostKey> {
        self.ssh().and_then(|side| side.host_key.as_ref())
    }

    /// The identification of an SSH server.
    pub(super) fn ssh(&self) -> Option<&'a SshSide> {
        self.said.iter().find_map(|said| match said {
            Application::Ssh(facts) => facts.server.as_deref(),
            _ => None,
        })
    }

    /// Answers of an HTTP server.
    pub(super) fn responses(&self) -> impl Iterator<Item = &'a HttpResponseFacts> {
        self.http().filter_map(|http| http.response.as_ref())
    }

    /// HTTP transactions.
    pub(super) fn http(&self) -> impl Iterator<Item = &'a HttpFacts> {
        self.said.iter().filter_map(|said| match said {
            Application::Http(facts) => Some(facts.as_ref()),
            _ => None,
        })
    }
}
