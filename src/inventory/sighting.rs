//! Sightings: events in the terms of the inventory.

use std::net::{IpAddr, SocketAddr};

use super::product::named;
use crate::event::{
    AlertFacts, Application, Endpoint, Event, EventKind, FlowContext, HttpFacts, PortState, ProductFacts,
    Side, Signature, Source, SshFacts, SshSide, Timestamp,
};

/// Largest number of characters of a text.
const CHARACTERS: usize = 1_024;

/// Largest number of their bytes in a database: an index of PostgreSQL accepts no row of more than 2,704.
const OCTETS: usize = 2_048;

/// The protocol of an open port that sends nothing.
pub(super) const UNKNOWN: &str = "unknown";

/// Software at an address: a server at its port, or a client, with port 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Asset {
    /// Its address; an IPv4-mapped one as IPv4.
    pub(super) address: IpAddr,
    /// A server's TCP port, 0 for a client.
    pub(super) port: u16,
    /// Server or client.
    pub(super) side: Side,
    /// Its protocol: `ssh`, `http`, `tls`, [`UNKNOWN`].
    pub(super) protocol: &'static str,
}

/// The part of an asset's banner that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Banner {
    /// Its kind.
    pub(super) kind: Kind,
    /// The text; empty if it names no software.
    pub(super) text: String,
}

impl Banner {
    /// Creates a banner; cuts a text that is too long.
    pub(super) fn new(kind: Kind, text: &str) -> Self {
        // The replacement of U+0000 in PostgreSQL has three bytes.
        let octets = |letter: char| if letter == '\0' { 3 } else { letter.len_utf8() };
        let mut room = OCTETS;
        let fitting = text.chars().take(CHARACTERS).take_while(|letter| {
            let left = room.checked_sub(octets(*letter));
            room = left.unwrap_or_default();
            left.is_some()
        });
        Self { kind, text: fitting.collect() }
    }
}

/// Kind of a banner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Text that names the software: an SSH identification, a `Server` or `User-Agent` field, a
    /// greeting's line.
    Banner,
    /// The fingerprint of an SSH key exchange.
    Hassh,
    /// SHA-256 and subject of a server's certificate.
    Certificate,
    /// Fingerprint and type of an SSH server's key.
    HostKey,
}

impl Kind {
    /// The name in the database.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Banner => "banner",
            Self::Hassh => "hassh",
            Self::Certificate => "certificate",
            Self::HostKey => "host_key",
        }
    }
}

/// Match of a rule for a banner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Finding {
    pub(super) rule: String,
    pub(super) title: String,
    pub(super) severity: &'static str,
    pub(super) action: &'static str,
    /// The verdict of the rule's advisory, if it has one.
    pub(super) verdict: Option<&'static str>,
    /// True if the connection was blocked.
    pub(super) blocked: bool,
}

/// Content of a sighting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum What {
    /// The asset sent this banner.
    Said(Banner),
    /// The asset sent this banner, which a rule matched.
    Found(Banner, Finding),
    /// This client connected to it.
    Met(IpAddr),
    /// It sent this banner to a client, whose port is 0, or to a server.
    SaidTo(Banner, SocketAddr, RuleId),
    /// A scan's connection to it was refused.
    Gone,
}

/// Id of the rule that matched a banner; empty without a match.
pub(super) type RuleId = String;

/// The software that a banner names; it does not distinguish sightings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Software {
    /// Vendor, product, version, CPE, operating system.
    pub(super) product: ProductFacts,
    /// The package's revision: `Debian-2+deb12u3`.
    pub(super) patch: Option<String>,
}

/// One sighting.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    pub(super) asset: Asset,
    pub(super) what: What,
    pub(super) software: Software,
    pub(super) at: Timestamp,
    /// The connection; a banner to the same peer counts once in it.
    pub(super) flow: u64,
    /// True if only the client has spoken this protocol.
    pub(super) is_unanswered: bool,
}

/// True if an event holds anything to record.
pub(super) fn concerns(event: &Event) -> bool {
    let kept = match &event.kind {
        EventKind::Application(_) => true,
        // The rule is exempted for this connection: there is nothing to fix.
        EventKind::Alert(facts) => !facts.is_exempt(),
        EventKind::Connect(facts) => facts.state != PortState::Error,
        _ => false,
    };
    kept && event.flow.is_some()
}

/// Returns the sightings of one target's or one packet's events.
///
/// A target with an open port and a banner gives one sighting.
pub(super) fn of_events(events: &[Event]) -> Vec<Sighting> {
    let spoke = events.iter().any(|event| matches!(event.kind, EventKind::Application(_)));
    let mut sightings = Vec::new();
    for event in events {
        let Some(flow) = &event.flow else { continue };
        let mut teller = Teller { event, flow, sightings: &mut sightings };
        match &event.kind {
            EventKind::Application(said) => teller.said(said),
            EventKind::Alert(facts) if !facts.is_exempt() => teller.alert(facts),
            EventKind::Connect(facts) if facts.state == PortState::Open && !spoke => {
                let asset = teller.server(UNKNOWN);
                teller.tell(asset, What::Said(banner("")), Software::default());
            }
            EventKind::Connect(facts) if matches!(facts.state, PortState::Closed | PortState::Filtered) => {
                let asset = teller.server(UNKNOWN);
                teller.tell(asset, What::Gone, Software::default());
            }
            _ => {}
        }
    }
    sightings
}

/// Converts one event.
struct Teller<'a> {
    event: &'a Event,
    flow: &'a FlowContext,
    sightings: &'a mut Vec<Sighting>,
}

impl Teller<'_> {
    fn tell(&mut self, asset: Asset, what: What, software: Software) {
        let (at, flow) = (self.event.timestamp, self.flow.id);
        let is_unanswered = match (&what, &self.event.kind) {
            (What::Met(_), EventKind::Application(said)) => {
                sides(said).iter().all(|(side, ..)| *side == Side::Client)
            }
            _ => false,
        };
        self.sightings.push(Sighting { asset, what, software, at, flow, is_unanswered });
    }

    /// Counts the connection in which an asset sent a banner or a rule matched it. In a scan, the client
    /// is the scan itself.
    fn said_to(&mut self, asset: &Asset, banner: Banner, rule: &str) {
        if self.event.source == Source::Scan {
            return;
        }
        let ends = &self.flow.endpoints;
        let peer = match asset.side {
            Side::Server => SocketAddr::new(canonical(ends.client), 0),
            Side::Client => SocketAddr::new(canonical(ends.server), ends.server.port),
        };
        self.tell(asset.clone(), What::SaidTo(banner, peer, rule.to_owned()), Software::default());
    }

    fn said(&mut self, said: &Application) {
        for (side, text, software) in sides(said) {
            self.side(side, name_of(said), text, software);
        }
        if let Application::Ssh(facts) = said {
            let sides = [(Side::Server, &facts.server), (Side::Client, &facts.client)];
            for (side, hassh) in sides.map(|(side, it)| (side, it.as_ref().and_then(|it| it.hassh.as_ref())))
            {
                let (Some(hassh), Some(asset)) = (hassh, self.asset(side, "ssh")) else { continue };
                let banner = Banner::new(Kind::Hassh, &hassh.hash);
                self.tell(asset, What::Said(banner), Software::default());
            }
            self.host_key(facts);
        }
        if let Application::Tls(facts) = said
            && let Some(shown) = facts.server.as_ref().and_then(|server| server.certificates.first())
            && let Some(asset) = self.asset(Side::Server, "tls")
        {
            let text = format!("{} {}", shown.sha256, shown.subject);
            let banner = Banner::new(Kind::Certificate, &text);
            self.tell(asset, What::Said(banner), Software::default());
        }
        // In a scan, the client is the scan itself.
        if self.event.source != Source::Scan {
            let asset = self.server(name_of(said));
            self.tell(asset, What::Met(canonical(self.flow.endpoints.client)), Software::default());
        }
    }

    /// Adds the key of an SSH server, unless its signature is another key's: anyone can present such a
    /// key.
    fn host_key(&mut self, facts: &SshFacts) {
        if let Some(key) = facts.host_key().filter(|key| key.signature != Signature::Bad)
            && let Some(asset) = self.asset(Side::Server, "ssh")
        {
            let banner = Banner::new(Kind::HostKey, &key.name());
            self.tell(asset, What::Said(banner), Software::default());
        }
    }

    fn side(&mut self, side: Side, protocol: &'static str, text: &str, software: Software) {
        if let Some(asset) = self.asset(side, protocol) {
            self.tell(asset.clone(), What::Said(banner(text)), software);
            self.said_to(&asset, banner(text), "");
        }
    }

    fn alert(&mut self, facts: &AlertFacts) {
        let said = &facts.application;
        let Some(asset) = self.asset(facts.from, name_of(said)) else { return };
        let (text, software) = sides(said)
            .into_iter()
            .find(|(side, ..)| *side == facts.from)
            .map_or(("", Software::default()), |(_, text, software)| (text, software));
        let finding = Finding {
            rule: facts.rule.clone(),
            title: facts.title.clone(),
            severity: facts.severity.name(),
            action: facts.action.name(),
            verdict: facts.verdict.as_ref().map(|told| told.verdict.name()),
            blocked: facts.blocked,
        };
        self.tell(asset.clone(), What::Found(banner(text), finding), software);
        self.said_to(&asset, banner(text), &facts.rule);
    }

    fn server(&self, protocol: &'static str) -> Asset {
        let end = self.flow.endpoints.server;
        Asset { address: canonical(end), port: end.port, side: Side::Server, protocol }
    }

    /// Returns the asset at one end; none for the scan itself.
    fn asset(&self, side: Side, protocol: &'static str) -> Option<Asset> {
        match side {
            Side::Server => Some(self.server(protocol)),
            Side::Client if self.event.source == Source::Scan => None,
            Side::Client => {
                Some(Asset { address: canonical(self.flow.endpoints.client), port: 0, side, protocol })
            }
        }
    }
}

fn canonical(end: Endpoint) -> IpAddr {
    end.address.to_canonical()
}

/// Returns a banner with this text.
pub(super) fn banner(text: &str) -> Banner {
    Banner::new(Kind::Banner, text)
}

fn name_of(said: &Application) -> &'static str {
    match said {
        Application::Other(facts) => facts.name,
        said => said.protocol().name(),
    }
}

/// Returns the banner of each side, with its software.
fn sides(said: &Application) -> Vec<(Side, &str, Software)> {
    match said {
        Application::Ssh(facts) => {
            let sides = [(Side::Server, facts.server.as_ref()), (Side::Client, facts.client.as_ref())];
            let heard = sides.into_iter().filter_map(|(side, said)| said.map(|said| (side, said)));
            heard.map(|(side, said)| (side, said.banner.as_str(), ssh(said))).collect()
        }
        Application::Http(facts) => http(facts),
        Application::Greeting(facts) => {
            let text = facts.lines.first().map_or("", String::as_str);
            let product = facts.fingerprint.clone().unwrap_or_default();
            vec![(Side::Server, text, Software { product, patch: None })]
        }
        // The server's choice depends on the client's offer, and the name is the client's claim.
        Application::Tls(facts) => {
            facts.server.iter().map(|_| (Side::Server, "", Software::default())).collect()
        }
        // First bytes are as often random as they name something.
        Application::Other(_) => vec![(Side::Server, "", Software::default())],
    }
}

fn ssh(said: &SshSide) -> Software {
    let patch = said.software_version.split_once(' ').map(|(_, comments)| comments.trim().to_owned());
    let patch = patch.filter(|comments| !comments.is_empty());
    let product = said.fingerprint.clone().unwrap_or_else(|| named(&said.software_version));
    Software { product, patch }
}

fn http(facts: &HttpFacts) -> Vec<(Side, &str, Software)> {
    let mut sides = Vec::new();
    if let Some(response) = &facts.response {
        let text = response.header("Server").unwrap_or_default();
        let product = response.fingerprint.clone().unwrap_or_else(|| named(text));
        sides.push((Side::Server, text, Software { product, patch: None }));
    }
    if let Some(agent) = facts.request.as_ref().and_then(|request| request.header("User-Agent")) {
        sides.push((Side::Client, agent, Software { product: named(agent), patch: None }));
    }
    sides
}
