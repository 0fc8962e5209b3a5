//! The results of a scan for one target, gathered from events that were emitted together.

use std::borrow::Cow;
use std::net::SocketAddr;

use super::service_identity::ServiceIdentity;
use crate::event::{
    AlertFacts, ApplicationFacts, ConnectFacts, Endpoint, Event, EventKind, HostKey, HttpFacts,
    HttpResponseFacts, PortState, ProductFacts, SshSide, Timestamp, TlsFacts,
};

/// A borrowed view of one target's events.
#[derive(Debug)]
pub(super) struct TargetReport<'a> {
    pub(super) timestamp: Timestamp,
    pub(super) target: SocketAddr,
    pub(super) connect: Option<&'a ConnectFacts>,
    /// The exchanges in order: several responses of an HTTP server, else one banner.
    pub(super) said: Vec<&'a ApplicationFacts>,
    /// The first alert of each rule: a rule may match several responses of one target.
    pub(super) alerts: Vec<&'a AlertFacts>,
}

impl<'a> TargetReport<'a> {
    /// Gathers `events`; returns none if they are not about a target.
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

    /// Returns the alerts, the most severe first.
    pub(super) fn by_severity(&self) -> Vec<&'a AlertFacts> {
        let mut alerts = self.alerts.clone();
        alerts.sort_by_key(|facts| std::cmp::Reverse(facts.severity));
        alerts
    }

    /// Returns the state of the port; a port that sent a banner is open.
    pub(super) fn state(&self) -> PortState {
        self.connect.map_or(PortState::Open, |facts| facts.state)
    }

    /// Returns the product that the fingerprint database names.
    pub(super) fn named(&self) -> Option<&'a ProductFacts> {
        let facts = self.said.iter().find_map(|said| said.summary().product);
        facts.filter(|facts| facts.product.is_some())
    }

    /// Returns the product that the software itself names, if its banner has a known form.
    pub(super) fn identity(&self) -> Option<ServiceIdentity> {
        self.said.iter().find_map(|said| ServiceIdentity::of(said))
    }

    /// Returns the product that the fingerprint database names, else the one that a rule captured.
    pub(super) fn product(&self) -> Option<&'a ProductFacts> {
        let named = self.said.iter().find_map(|said| said.summary().product);
        let captured =
            || self.alerts.iter().map(|alert| &alert.product).find(|product| product.product.is_some());
        named.or_else(captured)
    }

    /// Returns nmap's name of the service.
    pub(super) fn service(&self) -> Option<&'static str> {
        let within = self.said.iter().find(|said| !matches!(said, ApplicationFacts::Tls(_)));
        within.or(self.said.first()).map(|said| said.protocol().name())
    }

    /// True if the exchange was within TLS.
    pub(super) fn is_within_tls(&self) -> bool {
        self.said.len() > 1 && matches!(self.said.first(), Some(ApplicationFacts::Tls(_)))
    }

    /// Handshakes of TLS.
    pub(super) fn tls(&self) -> impl Iterator<Item = &'a TlsFacts> {
        self.said.iter().filter_map(|said| match said {
            ApplicationFacts::Tls(facts) => Some(facts.as_ref()),
            _ => None,
        })
    }

    /// Returns the server's own name for its software: the software of an identification, the first
    /// `Server` field, the text of a greeting.
    pub(super) fn software(&self) -> Option<Cow<'a, str>> {
        self.said.iter().find_map(|said| said.summary().software)
    }

    /// Returns the banner that the server sent unasked.
    pub(super) fn banner(&self) -> Option<Cow<'a, str>> {
        match self.said.first()? {
            ApplicationFacts::Http(_) => None,
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
            ApplicationFacts::Ssh(facts) => facts.server.as_deref(),
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
            ApplicationFacts::Http(facts) => Some(facts.as_ref()),
            _ => None,
        })
    }
}
