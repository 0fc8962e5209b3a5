//! Impact of rules and policies: the observed connections that they would block, before they are put in
//! force.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use super::database::InventoryDatabase;
use super::database::query::{self, ClientContact, PeerBanner, ServiceRecord};
use super::error::StoreError;
use super::filter::ServiceFilter;
use super::inventory_time::InventoryTime;
use super::sighting::{OLDEST_HTTP, UNKNOWN};
use crate::event::{Endpoint, FlowEndpoints, Protocol, Side};
use crate::rules::{AssumedConnection, BannerSender, Policy, PolicyProtocol, Rule, RuleExample, RuleSet};

/// Largest number of banners whose judgement is cached.
const REMEMBERED: usize = 1 << 16;

/// Connections with one banner of a service or client that one rule or policy would block.
#[derive(Debug, Clone, Serialize)]
pub struct RuleImpact {
    /// The rule or policy.
    pub rule: String,
    /// `rule` or `policy`.
    pub kind: &'static str,
    /// `drop` or `reject`.
    pub action: &'static str,
    /// The host.
    pub address: String,
    /// The TCP port, 0 for a client.
    pub port: u16,
    /// The protocol of the service.
    pub protocol: String,
    /// `server` or `client`.
    pub side: String,
    /// The banner in these connections.
    pub banner: String,
    /// `banner`: by the banner; `told`: a rule of this name has matched them; `protocol`: by the
    /// protocol; `client`: by the clients' protocol, without an answer.
    pub evidence: &'static str,
    /// The other ends that would be cut off.
    pub peers: Vec<String>,
    /// Number of connections with this banner. Each counts once for a banner, and again for each sensor
    /// that saw it.
    pub connections: i64,
    /// Time of the last one.
    pub last_seen: InventoryTime,
    /// The sensors that saw the service or client, `guard/edge`.
    pub sensors: Vec<String>,
}

/// Judges the observed connections of the services that a filter selects.
///
/// # Errors
/// Errors of the database or of `show`.
pub fn impact<E: From<StoreError>>(
    inventory: &InventoryDatabase,
    rules: &RuleSet,
    filter: &ServiceFilter,
    mut show: impl FnMut(RuleImpact) -> Result<(), E>,
) -> Result<(), E> {
    let mut judge = ImpactEvaluator { inventory, rules, stoppable: HashMap::new() };
    query::services(inventory, filter, |service| -> Result<(), E> {
        if service.state == "open" {
            judge.service(&service)?.into_iter().try_for_each(&mut show)?;
        }
        Ok(())
    })?;
    judge.unanswered(filter, show)
}

/// Judges services and clients one after the other.
struct ImpactEvaluator<'a> {
    inventory: &'a InventoryDatabase,
    rules: &'a RuleSet,
    /// Banners by protocol, side and text, with true if a rule may block them somewhere.
    stoppable: HashMap<(String, String, String), bool>,
}

/// Connections with one peer and one banner.
struct ObservedConnections<'a> {
    banner: &'a str,
    /// The other end; none if no connection was seen.
    peer: Option<SocketAddr>,
    connections: i64,
    last_seen: InventoryTime,
}

impl<'a> From<&'a PeerBanner> for ObservedConnections<'a> {
    fn from(said: &'a PeerBanner) -> Self {
        let PeerBanner { banner, peer, connections, last_seen, .. } = said;
        Self { banner, peer: Some(*peer), connections: *connections, last_seen: *last_seen }
    }
}

impl ImpactEvaluator<'_> {
    fn service(&mut self, service: &ServiceRecord) -> Result<Vec<RuleImpact>, StoreError> {
        let all = query::said_to(self.inventory, service)?;
        let (said, told): (Vec<&PeerBanner>, Vec<&PeerBanner>) =
            all.iter().partition(|it| it.rule.is_empty());
        let mut said: Vec<ObservedConnections<'_>> =
            said.into_iter().map(ObservedConnections::from).collect();
        if said.iter().all(|it| it.banner != service.banner) {
            let last_seen = service.last_seen;
            said.push(ObservedConnections { banner: &service.banner, peer: None, connections: 0, last_seen });
        }
        let mut gathered = ServiceImpacts { service, impacts: Vec::new() };
        for seen in &said {
            // A policy blocks a connection before it sends anything that rules could judge, and the first
            // policy does so before all others.
            if self.refuses_all(service, seen.peer) {
                continue;
            }
            if let Some(rule) = self.blocking_rules(service, seen).first() {
                gathered.add(BlockCause::rule(rule, "banner"), seen);
            }
        }
        self.add_by_peer(&told, &mut gathered);
        if side(service) == Side::Server && !self.rules.policies().is_empty() {
            self.policies(&said, &mut gathered)?;
        }
        Ok(gathered.impacts)
    }

    /// Returns the rules that would block these connections because of their banner.
    fn blocking_rules(&mut self, service: &ServiceRecord, seen: &ObservedConnections<'_>) -> Vec<&Rule> {
        let Some(said) = example(service, seen.banner) else { return Vec::new() };
        let (rules, side) = (self.rules, side(service));
        let key = (service.protocol.clone(), service.side.clone(), seen.banner.to_owned());
        if self.stoppable.len() >= REMEMBERED {
            self.stoppable.clear();
        }
        let judged = || !rules.would_stop(&said, side, AssumedConnection::default()).is_empty();
        if !*self.stoppable.entry(key).or_insert_with(judged) {
            return Vec::new();
        }
        rules.would_stop(&said, side, ends(service, seen.peer))
    }

    /// Adds the connections that rules would block for more than a banner: those that a rule of the same
    /// name has matched before.
    fn add_by_peer(&self, told: &[&PeerBanner], gathered: &mut ServiceImpacts<'_>) {
        let service = gathered.service;
        for rule in self.rules.unforeseen() {
            let mut seen: Vec<ObservedConnections<'_>> = told
                .iter()
                .filter(|it| it.rule == rule.id())
                .map(|it| ObservedConnections::from(*it))
                .collect();
            let found = service.findings.iter().find(|it| it.rule == rule.id() && it.state == "open");
            if let (true, Some(found)) = (seen.is_empty(), found) {
                let last_seen = found.last_seen;
                seen.push(ObservedConnections {
                    banner: &service.banner,
                    peer: None,
                    connections: 0,
                    last_seen,
                });
            }
            // Connections that the banner decides are counted already.
            seen.retain(|it| rule.admits(ends(service, it.peer)) && !gathered.blocks(rule, it));
            seen.retain(|it| !self.refuses_all(service, it.peer));
            for seen in &seen {
                gathered.add(BlockCause::rule(rule, "told"), seen);
            }
        }
    }

    /// Adds the connections that policies would block.
    fn policies(
        &self,
        said: &[ObservedConnections<'_>],
        gathered: &mut ServiceImpacts<'_>,
    ) -> Result<(), StoreError> {
        let service = gathered.service;
        let clients = query::clients(self.inventory, service)?;
        let met = |client: &ClientContact| {
            let address = client.address.parse::<IpAddr>().ok()?;
            let (banner, peer) = (service.banner.as_str(), Some(SocketAddr::new(address, 0)));
            Some(ObservedConnections { banner, peer, connections: client.count, last_seen: client.last_seen })
        };
        let mut all: Vec<ObservedConnections<'_>> = clients.iter().filter_map(met).collect();
        // An open port that only a scan has seen may speak any protocol.
        if all.is_empty() && service.protocol != UNKNOWN {
            let (banner, last_seen) = (service.banner.as_str(), service.last_seen);
            all.push(ObservedConnections { banner, peer: None, connections: 0, last_seen });
        }
        for seen in &all {
            let Some(policy) = self.refusing(service, seen.peer) else { continue };
            let cause = BlockCause::policy(policy, "protocol");
            let is_allowed = |it: &ObservedConnections<'_>| {
                example(service, it.banner).is_some_and(|said| self.rules.is_allowed_by(policy, &said))
            };
            let mut of_peer = said.iter().filter(|it| it.peer == seen.peer).peekable();
            if policy.allow_rules().next().is_none() || of_peer.peek().is_none() {
                gathered.add(cause, seen);
                continue;
            }
            of_peer.filter(|it| !is_allowed(it)).for_each(|it| gathered.add(cause, it));
        }
        Ok(())
    }

    /// Reports the connections in which only the client spoke and that policies would block, service by
    /// service.
    fn unanswered<E: From<StoreError>>(
        &self,
        filter: &ServiceFilter,
        mut show: impl FnMut(RuleImpact) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut held: Vec<RuleImpact> = Vec::new();
        if self.rules.policies().is_empty() {
            return Ok(());
        }
        query::unanswered(self.inventory, filter, |service, client, connections| -> Result<(), E> {
            let place = |it: &RuleImpact| (it.address.clone(), it.port, it.protocol.clone());
            let own = (service.address.clone(), service.port, service.protocol.clone());
            if held.first().is_some_and(|it| place(it) != own) {
                held.drain(..).try_for_each(&mut show)?;
            }
            let peer = Some(SocketAddr::new(client, 0));
            let policy = self.refusing(&service, peer).filter(|_| self.refuses_all(&service, peer));
            let mut gathered = ServiceImpacts { service: &service, impacts: std::mem::take(&mut held) };
            if let Some(policy) = policy {
                let seen =
                    ObservedConnections { banner: "", peer, connections, last_seen: service.last_seen };
                gathered.add(BlockCause::policy(policy, "client"), &seen);
            }
            held = gathered.impacts;
            Ok(())
        })?;
        held.into_iter().try_for_each(show)
    }

    /// True if a policy would block every connection of a service with a peer.
    fn refuses_all(&self, service: &ServiceRecord, peer: Option<SocketAddr>) -> bool {
        self.refusing(service, peer).is_some_and(|policy| policy.allow_rules().next().is_none())
    }

    /// Returns the policy that would block a service's connections with a client, unless an allow rule of
    /// it matches.
    fn refusing(&self, service: &ServiceRecord, peer: Option<SocketAddr>) -> Option<&Policy> {
        // An unknown end gets an address that no policy's network contains.
        let end = |known: Option<IpAddr>, port| Endpoint {
            address: known.unwrap_or(IpAddr::from([0, 0, 0, 0])),
            port,
        };
        let AssumedConnection { source, destination, port } = ends(service, peer);
        let both = FlowEndpoints { client: end(source, 0), server: end(destination, port?) };
        let policy = self.rules.policy(&both)?;
        let lets_pass = policy.allows_any()
            || policy.allow().iter().any(|allowed: &PolicyProtocol| allowed.name() == service.protocol);
        (policy.otherwise().blocks() && !lets_pass).then_some(policy.as_ref())
    }
}

/// The reason why connections would be blocked.
#[derive(Clone, Copy)]
struct BlockCause<'a> {
    kind: &'static str,
    id: &'a str,
    action: &'static str,
    evidence: &'static str,
}

impl<'a> BlockCause<'a> {
    fn rule(rule: &'a Rule, evidence: &'static str) -> Self {
        Self { kind: "rule", id: rule.id(), action: rule.action().name(), evidence }
    }

    fn policy(policy: &'a Policy, evidence: &'static str) -> Self {
        Self { kind: "policy", id: policy.id(), action: policy.otherwise().name(), evidence }
    }
}

/// The blocked connections of one service or client, by rule and banner.
struct ServiceImpacts<'a> {
    service: &'a ServiceRecord,
    impacts: Vec<RuleImpact>,
}

impl ServiceImpacts<'_> {
    /// True if a rule would block these connections because of their banner.
    fn blocks(&self, rule: &Rule, seen: &ObservedConnections<'_>) -> bool {
        let peer = self.peer(seen);
        self.impacts.iter().any(|it| {
            let is_of_peer = peer.as_ref().is_none_or(|peer| it.peers.contains(peer));
            it.rule == rule.id() && it.banner == seen.banner && is_of_peer
        })
    }

    fn add(&mut self, cause: BlockCause<'_>, seen: &ObservedConnections<'_>) {
        let peer = self.peer(seen);
        let is_it =
            |it: &RuleImpact| it.kind == cause.kind && it.rule == cause.id && it.banner == seen.banner;
        let at = self.impacts.iter().position(is_it).unwrap_or_else(|| {
            self.impacts.push(RuleImpact {
                rule: cause.id.to_owned(),
                kind: cause.kind,
                action: cause.action,
                address: self.service.address.clone(),
                port: self.service.port,
                protocol: self.service.protocol.clone(),
                side: self.service.side.clone(),
                banner: seen.banner.to_owned(),
                evidence: cause.evidence,
                peers: Vec::new(),
                connections: 0,
                last_seen: seen.last_seen,
                sensors: self.service.sensors.clone(),
            });
            self.impacts.len() - 1
        });
        let Some(impact) = self.impacts.get_mut(at) else { return };
        impact.last_seen = impact.last_seen.max(seen.last_seen);
        impact.connections += seen.connections;
        for sensor in &self.service.sensors {
            if !impact.sensors.contains(sensor) {
                impact.sensors.push(sensor.clone());
            }
        }
        impact.peers.extend(peer.filter(|peer| !impact.peers.contains(peer)));
    }

    fn peer(&self, seen: &ObservedConnections<'_>) -> Option<String> {
        let peer = seen.peer?;
        Some(super::place(&peer.ip().to_string(), peer.port()))
    }
}

fn side(service: &ServiceRecord) -> Side {
    if service.side == "client" { Side::Client } else { Side::Server }
}

/// Returns the connection of a service or client with a peer.
fn ends(service: &ServiceRecord, peer: Option<SocketAddr>) -> AssumedConnection {
    let own: Option<IpAddr> = service.address.parse().ok();
    let other = peer.map(|peer| peer.ip());
    match side(service) {
        Side::Server => AssumedConnection { source: other, destination: own, port: Some(service.port) },
        Side::Client => {
            AssumedConnection { source: own, destination: other, port: peer.map(|peer| peer.port()) }
        }
    }
}

/// Returns a banner as an example for rules; none if rules cannot judge it.
fn example(service: &ServiceRecord, banner: &str) -> Option<RuleExample> {
    if banner.is_empty() {
        return None;
    }
    let (protocol, side) = (Protocol::named(&service.protocol)?, side(service));
    let text = match (protocol, side) {
        (Protocol::Http, Side::Server) => format!("HTTP/1.1 200 OK\r\nServer: {banner}\r\n\r\n"),
        (Protocol::Http, Side::Client) if banner == OLDEST_HTTP => "GET /\r\n".to_owned(),
        (Protocol::Http, Side::Client) => {
            format!("GET / HTTP/1.1\r\nHost: unknown\r\nUser-Agent: {banner}\r\n\r\n")
        }
        _ => banner.to_owned(),
    };
    let sender = if side == Side::Client { BannerSender::Client } else { BannerSender::Server };
    RuleExample::from_text(&text, protocol, sender).ok()
}
