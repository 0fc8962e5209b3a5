//! What rules and policies would stop of what was seen, before they are put in force.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::Serialize;

use super::database::{Contact, Database, Service, Time};
use super::filter::Filter;
use super::store::StoreError;
use crate::event::{Endpoint, Endpoints, Protocol, Side};
use crate::rules::{Allowed, Ends, Example, Policy, Rule, RuleSet, Sender};

/// Services whose banner is judged once, at most.
const REMEMBERED: usize = 1 << 16;

/// What would be stopped at a service, or of a client.
#[derive(Debug, Clone, Serialize)]
pub struct Impact {
    /// The rule or policy.
    pub rule: String,
    /// `rule` or `policy`.
    pub kind: &'static str,
    /// `drop` or `reject`.
    pub action: &'static str,
    /// The host.
    pub address: String,
    /// The TCP port, 0 of a client.
    pub port: u16,
    /// What is spoken there.
    pub protocol: String,
    /// `server` or `client`.
    pub side: String,
    /// What it says.
    pub banner: String,
    /// `banner`: by what it says; `told`: a rule of this name has told of it; `protocol`: by what is spoken.
    pub evidence: &'static str,
    /// The other ends that would be cut off.
    pub peers: Vec<String>,
    /// How often they came; without any, how often the banner was seen.
    pub connections: i64,
    /// When that was last.
    pub last_seen: Time,
}

/// Judges what was seen of the services that a filter is about.
///
/// # Errors
/// What the database says, or `show`.
pub fn impact<E: From<StoreError>>(
    inventory: &Database,
    rules: &RuleSet,
    filter: &Filter,
    mut show: impl FnMut(Impact) -> Result<(), E>,
) -> Result<(), E> {
    let mut judge = Judge { inventory, rules, clean: HashMap::new() };
    inventory.services(filter, |service| {
        if service.state == "open" {
            judge.service(&service)?.into_iter().try_for_each(&mut show)?;
        }
        Ok(())
    })
}

struct Judge<'a> {
    inventory: &'a Database,
    rules: &'a RuleSet,
    /// Banners by protocol and side, and whether a rule may stop them somewhere.
    clean: HashMap<(String, String, String), bool>,
}

/// One connection that was seen, or may be.
struct Talk {
    ends: Ends,
    peer: Option<Contact>,
}

impl Judge<'_> {
    fn service(&mut self, service: &Service) -> Result<Vec<Impact>, StoreError> {
        let side = if service.side == "client" { Side::Client } else { Side::Server };
        let said = example(service, side);
        let asks_rules = said.as_ref().is_some_and(|said| self.may_stop(service, said, side));
        let asks_policies = side == Side::Server && !self.rules.policies().is_empty();
        let blocking =
            |id: &str| self.rules.rules().iter().find(|rule| rule.id() == id && rule.action().blocks());
        let told: Vec<&Rule> = service
            .findings
            .iter()
            .filter(|it| it.state == "open")
            .filter_map(|it| blocking(&it.rule))
            .collect();
        if !asks_rules && !asks_policies && told.is_empty() {
            return Ok(Vec::new());
        }
        let mut gathered: Vec<Impact> = Vec::new();
        for talk in self.talks(service, side)? {
            let by_banner =
                said.iter().filter(|_| asks_rules).flat_map(|it| self.rules.would_stop(it, side, talk.ends));
            let by_banner: Vec<&Rule> = by_banner.collect();
            for rule in &by_banner {
                gather(&mut gathered, service, ("rule", rule.id(), rule.action().name(), "banner"), &talk);
            }
            if let Some(policy) =
                asks_policies.then(|| self.policy(service, said.as_ref(), talk.ends)).flatten()
            {
                gather(
                    &mut gathered,
                    service,
                    ("policy", policy.id(), policy.otherwise().name(), "protocol"),
                    &talk,
                );
            }
            let others = told.iter().filter(|rule| by_banner.iter().all(|known| known.id() != rule.id()));
            for rule in others.filter(|rule| rule.admits(talk.ends)) {
                gather(&mut gathered, service, ("rule", rule.id(), rule.action().name(), "told"), &talk);
            }
        }
        Ok(gathered)
    }

    /// Whether some rule may stop this banner somewhere.
    fn may_stop(&mut self, service: &Service, said: &Example, side: Side) -> bool {
        let key = (service.protocol.clone(), service.side.clone(), service.banner.clone());
        if self.clean.len() >= REMEMBERED {
            self.clean.clear();
        }
        let judged = || !self.rules.would_stop(said, side, Ends::default()).is_empty();
        *self.clean.entry(key).or_insert_with(judged)
    }

    /// The connections that were seen; where none was, one of which only this end is known.
    fn talks(&self, service: &Service, side: Side) -> Result<Vec<Talk>, StoreError> {
        let own: Option<IpAddr> = service.address.parse().ok();
        let peers = match side {
            Side::Server => self.inventory.clients(service)?,
            Side::Client => self.inventory.visited(service)?,
        };
        let ends = |peer: Option<&Contact>| {
            let other = peer.and_then(|peer| peer.address.parse().ok());
            match side {
                Side::Server => Ends { source: other, destination: own, port: Some(service.port) },
                Side::Client => Ends { source: own, destination: other, port: peer.map(|peer| peer.port) },
            }
        };
        if peers.is_empty() {
            return Ok(vec![Talk { ends: ends(None), peer: None }]);
        }
        Ok(peers.into_iter().map(|peer| Talk { ends: ends(Some(&peer)), peer: Some(peer) }).collect())
    }

    /// The policy that would stop a service's connections.
    fn policy(&self, service: &Service, said: Option<&Example>, ends: Ends) -> Option<&Policy> {
        // What is not known is an address of no network that somebody would name.
        let nobody = |known: Option<IpAddr>| known.unwrap_or(IpAddr::from([0, 0, 0, 0]));
        let both = Endpoints {
            client: Endpoint { address: nobody(ends.source), port: 0 },
            server: Endpoint { address: nobody(ends.destination), port: service.port },
        };
        let policy = self.rules.policy(&both)?;
        let lets_pass = policy.allows_any()
            || policy.allow().iter().any(|allowed: &Allowed| allowed.name() == service.protocol)
            || said.is_some_and(|said| self.rules.is_allowed_by(policy, said));
        (policy.otherwise().blocks() && !lets_pass && service.protocol != super::sighting::UNKNOWN)
            .then_some(policy.as_ref())
    }
}

fn gather(
    gathered: &mut Vec<Impact>,
    service: &Service,
    (kind, rule, action, evidence): (&'static str, &str, &'static str, &'static str),
    talk: &Talk,
) {
    let at = gathered.iter().position(|it| it.kind == kind && it.rule == rule).unwrap_or_else(|| {
        gathered.push(Impact {
            rule: rule.to_owned(),
            kind,
            action,
            address: service.address.clone(),
            port: service.port,
            protocol: service.protocol.clone(),
            side: service.side.clone(),
            banner: service.banner.clone(),
            evidence,
            peers: Vec::new(),
            connections: 0,
            last_seen: service.last_seen,
        });
        gathered.len() - 1
    });
    let (Some(impact), Some(peer)) = (gathered.get_mut(at), &talk.peer) else { return };
    if impact.peers.is_empty() {
        impact.last_seen = peer.last_seen;
    }
    impact.last_seen = impact.last_seen.max(peer.last_seen);
    impact.connections += peer.count;
    impact.peers.push(match service.side.as_str() {
        "client" => super::place(&peer.address, peer.port),
        _ => peer.address.clone(),
    });
}

/// What a service says, as rules judge it; none where it says nothing that they could.
fn example(service: &Service, side: Side) -> Option<Example> {
    if service.banner.is_empty() {
        return None;
    }
    let protocol = Protocol::named(&service.protocol)?;
    let text = match (protocol, side) {
        (Protocol::Http, Side::Server) => format!("HTTP/1.1 200 OK\r\nServer: {}\r\n\r\n", service.banner),
        (Protocol::Http, Side::Client) => {
            format!("GET / HTTP/1.1\r\nHost: unknown\r\nUser-Agent: {}\r\n\r\n", service.banner)
        }
        _ => service.banner.clone(),
    };
    let sender = if side == Side::Client { Sender::Client } else { Sender::Server };
    Example::from_text(&text, protocol, sender).ok()
}
