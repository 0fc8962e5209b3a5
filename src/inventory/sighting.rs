//! Sightings: events in the terms of the inventory.

use std::net::{IpAddr, SocketAddr};

use super::banner_product::named;
use crate::event::{
    AlertFacts, ApplicationFacts, Endpoint, Event, EventKind, EventSource, FlowContext, HttpFacts, PortState,
    ProductFacts, Side, SignatureResult, SshFacts, SshSide, Timestamp,
};

/// Largest number of characters of a text.
const CHARACTERS: usize = 1_024;

/// Largest number of their bytes in a database: an index of PostgreSQL accepts no row of more than 2,704.
const OCTETS: usize = 2_048;

/// The protocol of an open port that sends nothing.
pub(super) const UNKNOWN: &str = "unknown";

/// Software at an address: a server at its port, or a client, with port 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AssetKey {
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
pub(super) struct AssetBanner {
    /// Its kind.
    pub(super) kind: BannerKind,
    /// The text; empty if it names no software.
    pub(super) text: String,
}

impl AssetBanner {
    /// Creates a banner; cuts a text that is too long.
    pub(super) fn new(kind: BannerKind, text: &str) -> Self {
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
pub(super) enum BannerKind {
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

impl BannerKind {
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
pub(super) struct RuleFinding {
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
pub(super) enum SightingContent {
    /// The asset sent this banner.
    Said(AssetBanner),
    /// The asset sent this banner, which a rule matched.
    Found(AssetBanner, RuleFinding),
    /// This client connected to it.
    Met(IpAddr),
    /// It sent this banner to a client, whose port is 0, or to a server.
    SaidTo(AssetBanner, SocketAddr, RuleId),
    /// A scan's connection to it was refused.
    Gone,
}

/// Id of the rule that matched a banner; empty without a match.
pub(super) type RuleId = String;

/// The software that a banner names; it does not distinguish sightings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NamedSoftware {
    /// Vendor, product, version, CPE, operating system.
    pub(super) product: ProductFacts,
    /// The package's revision: `Debian-2+deb12u3`.
    pub(super) patch: Option<String>,
}

/// One sighting.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    pub(super) asset: AssetKey,
    pub(super) what: SightingContent,
    pub(super) software: NamedSoftware,
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
        let mut teller = SightingExtractor { event, flow, sightings: &mut sightings };
        match &event.kind {
            EventKind::Application(said) => teller.said(said),
            EventKind::Alert(facts) if !facts.is_exempt() => teller.alert(facts),
            EventKind::Connect(facts) if facts.state == PortState::Open && !spoke => {
                let asset = teller.server(UNKNOWN);
                teller.push(asset, SightingContent::Said(banner("")), NamedSoftware::default());
            }
            EventKind::Connect(facts) if matches!(facts.state, PortState::Closed | PortState::Filtered) => {
                let asset = teller.server(UNKNOWN);
                teller.push(asset, SightingContent::Gone, NamedSoftware::default());
            }
            _ => {}
        }
    }
    sightings
}

/// Converts one event.
struct SightingExtractor<'a> {
    event: &'a Event,
    flow: &'a FlowContext,
    sightings: &'a mut Vec<Sighting>,
}

impl SightingExtractor<'_> {
    fn push(&mut self, asset: AssetKey, what: SightingContent, software: NamedSoftware) {
        let (at, flow) = (self.event.timestamp, self.flow.id);
        let is_unanswered = match (&what, &self.event.kind) {
            (SightingContent::Met(_), EventKind::Application(said)) => {
                sides(said).iter().all(|(side, ..)| *side == Side::Client)
            }
            _ => false,
        };
        self.sightings.push(Sighting { asset, what, software, at, flow, is_unanswered });
    }

    /// Counts the connection in which an asset sent a banner or a rule matched it. In a scan, the client
    /// is the scan itself.
    fn record_peer(&mut self, asset: &AssetKey, banner: AssetBanner, rule: &str) {
        if self.event.source == EventSource::Scan {
            return;
        }
        let ends = &self.flow.endpoints;
        let peer = match asset.side {
            Side::Server => SocketAddr::new(canonical(ends.client), 0),
            Side::Client => SocketAddr::new(canonical(ends.server), ends.server.port),
        };
        self.push(
            asset.clone(),
            SightingContent::SaidTo(banner, peer, rule.to_owned()),
            NamedSoftware::default(),
        );
    }

    fn said(&mut self, said: &ApplicationFacts) {
        for (side, text, software) in sides(said) {
            self.side(side, name_of(said), text, software);
        }
        if let ApplicationFacts::Ssh(facts) = said {
            let sides = [(Side::Server, &facts.server), (Side::Client, &facts.client)];
            for (side, hassh) in sides.map(|(side, it)| (side, it.as_ref().and_then(|it| it.hassh.as_ref())))
            {
                let (Some(hassh), Some(asset)) = (hassh, self.asset(side, "ssh")) else { continue };
                let banner = AssetBanner::new(BannerKind::Hassh, &hassh.hash);
                self.push(asset, SightingContent::Said(banner), NamedSoftware::default());
            }
            self.host_key(facts);
        }
        if let ApplicationFacts::Tls(facts) = said
            && let Some(shown) = facts.server.as_ref().and_then(|server| server.certificates.first())
            && let Some(asset) = self.asset(Side::Server, "tls")
        {
            let text = format!("{} {}", shown.sha256, shown.subject);
            let banner = AssetBanner::new(BannerKind::Certificate, &text);
            self.push(asset, SightingContent::Said(banner), NamedSoftware::default());
        }
        // In a scan, the client is the scan itself.
        if self.event.source != EventSource::Scan {
            let asset = self.server(name_of(said));
            self.push(
                asset,
                SightingContent::Met(canonical(self.flow.endpoints.client)),
                NamedSoftware::default(),
            );
        }
    }

    /// Adds the key of an SSH server, unless its signature is another key's: anyone can present such a
    /// key.
    fn host_key(&mut self, facts: &SshFacts) {
        if let Some(key) = facts.host_key().filter(|key| key.signature != SignatureResult::Bad)
            && let Some(asset) = self.asset(Side::Server, "ssh")
        {
            let banner = AssetBanner::new(BannerKind::HostKey, &key.name());
            self.push(asset, SightingContent::Said(banner), NamedSoftware::default());
        }
    }

    fn side(&mut self, side: Side, protocol: &'static str, text: &str, software: NamedSoftware) {
        if let Some(asset) = self.asset(side, protocol) {
            self.push(asset.clone(), SightingContent::Said(banner(text)), software);
            self.record_peer(&asset, banner(text), "");
        }
    }

    fn alert(&mut self, facts: &AlertFacts) {
        let said = &facts.application;
        let Some(asset) = self.asset(facts.from, name_of(said)) else { return };
        let (text, software) = sides(said)
            .into_iter()
            .find(|(side, ..)| *side == facts.from)
            .map_or(("", NamedSoftware::default()), |(_, text, software)| (text, software));
        let finding = RuleFinding {
            rule: facts.rule.clone(),
            title: facts.title.clone(),
            severity: facts.severity.name(),
            action: facts.action.name(),
            verdict: facts.verdict.as_ref().map(|told| told.verdict.name()),
            blocked: facts.blocked,
        };
        self.push(asset.clone(), SightingContent::Found(banner(text), finding), software);
        self.record_peer(&asset, banner(text), &facts.rule);
    }

    fn server(&self, protocol: &'static str) -> AssetKey {
        let end = self.flow.endpoints.server;
        AssetKey { address: canonical(end), port: end.port, side: Side::Server, protocol }
    }

    /// Returns the asset at one end; none for the scan itself.
    fn asset(&self, side: Side, protocol: &'static str) -> Option<AssetKey> {
        match side {
            Side::Server => Some(self.server(protocol)),
            Side::Client if self.event.source == EventSource::Scan => None,
            Side::Client => {
                Some(AssetKey { address: canonical(self.flow.endpoints.client), port: 0, side, protocol })
            }
        }
    }
}

fn canonical(end: Endpoint) -> IpAddr {
    end.address.to_canonical()
}

/// Returns a banner with this text.
pub(super) fn banner(text: &str) -> AssetBanner {
    AssetBanner::new(BannerKind::Banner, text)
}

fn name_of(said: &ApplicationFacts) -> &'static str {
    match said {
        ApplicationFacts::Other(facts) => facts.name,
        said => said.protocol().name(),
    }
}

/// Returns the banner of each side, with its software.
fn sides(said: &ApplicationFacts) -> Vec<(Side, &str, NamedSoftware)> {
    match said {
        ApplicationFacts::Ssh(facts) => {
            let sides = [(Side::Server, facts.server.as_ref()), (Side::Client, facts.client.as_ref())];
            let heard = sides.into_iter().filter_map(|(side, said)| said.map(|said| (side, said)));
            heard.map(|(side, said)| (side, said.banner.as_str(), ssh(said))).collect()
        }
        ApplicationFacts::Http(facts) => http(facts),
        ApplicationFacts::Greeting(facts) => {
            let text = facts.lines.first().map_or("", String::as_str);
            let product = facts.fingerprint.clone().unwrap_or_default();
            vec![(Side::Server, text, NamedSoftware { product, patch: None })]
        }
        // The server's choice depends on the client's offer, and the name is the client's claim.
        ApplicationFacts::Tls(facts) => {
            facts.server.iter().map(|_| (Side::Server, "", NamedSoftware::default())).collect()
        }
        // First bytes are as often random as they name something.
        ApplicationFacts::Other(_) => vec![(Side::Server, "", NamedSoftware::default())],
    }
}

fn ssh(said: &SshSide) -> NamedSoftware {
    let patch = said.software_version.split_once(' ').map(|(_, comments)| comments.trim().to_owned());
    let patch = patch.filter(|comments| !comments.is_empty());
    let product = said.fingerprint.clone().unwrap_or_else(|| named(&said.software_version));
    NamedSoftware { product, patch }
}

/// The name of clients that send requests without a version.
pub const OLDEST_HTTP: &str = "http/0.9";

fn http(facts: &HttpFacts) -> Vec<(Side, &str, NamedSoftware)> {
    let mut sides = Vec::new();
    if let Some(response) = &facts.response {
        let text = response.header("Server").unwrap_or_default();
        let product = response.fingerprint.clone().unwrap_or_else(|| named(text));
        sides.push((Side::Server, text, NamedSoftware { product, patch: None }));
    }
    let Some(request) = &facts.request else { return sides };
    if let Some(agent) = request.header("User-Agent") {
        sides.push((Side::Client, agent, NamedSoftware { product: named(agent), patch: None }));
    } else if request.version.is_empty() {
        // Such a request has no fields, and nothing that names its server answers it. Policies count it.
        sides.push((Side::Client, OLDEST_HTTP, NamedSoftware::default()));
    }
    sides
}
