//! Learned policies: a rule file for review whose policies allow exactly the observed traffic.
//!
//! The same events in any order give the same file. The state is bounded; the file says what did not fit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::OutputFormat;
use crate::banner::unread_protocols::UNKNOWN;
use crate::event::{ApplicationFacts, Event, EventKind};
use crate::files::{self, ReplacementFile, folder_of};
use crate::rules::LEARNING_POLICY;

/// Number of distinct ports and server networks.
const PLACES: usize = 4_096;

/// Number of servers of one port and network that are named; if there are more, the network is named.
const SERVERS: usize = 64;

/// Number of client networks that are named; if there are more, any client is allowed.
const SOURCES: usize = 64;

/// Number of protocols and products of one port and network.
const THINGS: usize = 64;

/// Port and network of a server.
type PortAndNetwork = (u16, IpNet);

/// A protocol or product that a server speaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ProtocolOrProduct {
    /// A protocol with a name in policies.
    Protocol(&'static str),
    /// A protocol and the product that speaks it, by the product's own name in lower case.
    Product(&'static str, String),
}

#[derive(Debug, Default)]
struct ObservedTraffic {
    things: BTreeSet<ProtocolOrProduct>,
    servers: BTreeSet<IpAddr>,
    sources: BTreeSet<IpNet>,
    /// True if a further client network did not fit.
    anywhere: bool,
    /// True if a further protocol or product did not fit.
    incomplete: bool,
    /// The first bytes of traffic that no policy can allow. The smallest sample is kept, so that order
    /// does not matter.
    sample: Option<String>,
}

/// Learns policies from events.
#[derive(Debug, Default)]
pub struct PolicyLearner {
    places: BTreeMap<PortAndNetwork, ObservedTraffic>,
    left_out: u64,
}

impl PolicyLearner {
    /// Records the server of an event.
    pub fn take(&mut self, event: &Event) {
        let Some(flow) = &event.flow else { return };
        let (thing, sample) = match &event.kind {
            EventKind::Application(said) => (ProtocolOrProduct::of(said), None),
            EventKind::Alert(facts) if facts.rule == LEARNING_POLICY => (None, Some(&facts.banner)),
            _ => return,
        };
        if thing.is_none() && sample.is_none() {
            return;
        }
        let (client, server) = (flow.endpoints.client.address, flow.endpoints.server);
        let place = (server.port, network(server.address));
        // Traffic to invented addresses must not exhaust the memory.
        if !self.places.contains_key(&place) && self.places.len() >= PLACES {
            self.left_out += 1;
            return;
        }
        let seen = self.places.entry(place).or_default();
        if let Some(sample) = sample.filter(|sample| seen.sample.as_ref().is_none_or(|known| *sample < known))
        {
            seen.sample = Some(sample.clone());
        }
        let Some(thing) = thing else { return };
        if seen.things.len() < THINGS {
            seen.things.insert(thing);
        } else if !seen.things.contains(&thing) {
            seen.incomplete = true;
            self.left_out += 1;
        }
        if seen.servers.len() <= SERVERS {
            seen.servers.insert(server.address.to_canonical());
        }
        seen.sources.insert(network(client));
        if seen.sources.len() > SOURCES {
            seen.sources.pop_last();
            seen.anywhere = true;
        }
    }

    /// Returns the rule file.
    pub fn render(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text =
            format!("# Learned by bannerwall {version}: these policies allow only what was seen.\n");
        text.push_str(
            "# Review it before you use it; test it with `bannerwall rules check` and `rules test`.\n",
        );
        if self.left_out > 0 {
            _ = writeln!(text, "# Sightings left out, because there were too many: {}.", self.left_out);
        }
        for thing in self.products() {
            text.push_str(&thing.rule());
        }
        for ((port, network), seen) in &self.places {
            seen.policy(*port, network, &mut text);
        }
        text
    }

    /// Writes the rule file to `path` and replaces an existing file.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        check(path)?;
        files::replace(path, self.render().as_bytes())
    }

    /// Writes the policies into this file, and puts that in its place.
    ///
    /// # Errors
    /// The system's error.
    pub fn put(&self, file: ReplacementFile) -> io::Result<()> {
        file.put(self.render().as_bytes())
    }

    fn products(&self) -> BTreeSet<&ProtocolOrProduct> {
        let things = self.places.values().flat_map(ObservedTraffic::allowed);
        things.filter(|thing| matches!(thing, ProtocolOrProduct::Product(..))).collect()
    }
}

impl ProtocolOrProduct {
    /// Returns the protocol or product that an event shows.
    fn of(said: &ApplicationFacts) -> Option<Self> {
        let product = |protocol: &'static str, text: &str| {
            let end = text.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(text.len());
            let name = text.get(..end.min(40)).unwrap_or_default();
            if name.is_empty() {
                Self::Protocol(protocol)
            } else {
                Self::Product(protocol, name.to_ascii_lowercase())
            }
        };
        Some(match said {
            ApplicationFacts::Ssh(facts) => product("ssh", &facts.server.as_ref()?.software_version),
            ApplicationFacts::Http(facts) => match facts.response.as_ref()?.header("Server") {
                Some(server) => product("http", server),
                None => Self::Protocol("http"),
            },
            ApplicationFacts::Tls(_) => Self::Protocol("tls"),
            ApplicationFacts::Greeting(facts) => Self::Protocol(facts.greeting.name()),
            ApplicationFacts::Other(facts) if facts.name == UNKNOWN => return None,
            ApplicationFacts::Other(facts) => Self::Protocol(facts.name),
        })
    }

    fn id(&self) -> String {
        match self {
            Self::Product(protocol, name) => format!("learned-{protocol}-{name}"),
            Self::Protocol(name) => (*name).to_owned(),
        }
    }

    /// Returns the rule that matches a product; nothing for a protocol.
    fn rule(&self) -> String {
        let Self::Product(protocol, name) = self else { return String::new() };
        let (field, example) = match *protocol {
            "ssh" => ("match.software", format!("\"SSH-2.0-{name}_1.0\"")),
            _ => (
                "match.\"header.server\"",
                format!("{{ status = 200, headers = {{ Server = \"{name}/1.0\" }} }}"),
            ),
        };
        format!(
            "\n[[rule]]\nid = \"{}\"\ntitle = \"{name}, which was seen\"\nprotocol = \"{protocol}\"\nfrom = \"server\"\n\
             {field} = '(?i)^{name}([^A-Za-z]|$)'\naction = \"allow\"\nseverity = \"info\"\nexamples = [{example}]\n",
            self.id()
        )
    }
}

impl ObservedTraffic {
    /// Returns everything to allow. If a protocol was also seen without a product, its products need no
    /// rules.
    fn allowed(&self) -> impl Iterator<Item = &ProtocolOrProduct> {
        let whole = |protocol: &'static str| self.things.contains(&ProtocolOrProduct::Protocol(protocol));
        self.things.iter().filter(move |thing| match thing {
            ProtocolOrProduct::Product(protocol, _) => !whole(protocol),
            ProtocolOrProduct::Protocol(_) => true,
        })
    }

    fn policy(&self, port: u16, network: &IpNet, text: &mut String) {
        let quoted = |ids: Vec<String>| {
            let quoted: Vec<String> = ids.iter().map(|id| format!("\"{id}\"")).collect();
            quoted.join(", ")
        };
        let named = |products: bool| {
            let is =
                move |thing: &&ProtocolOrProduct| matches!(thing, ProtocolOrProduct::Product(..)) == products;
            let mut ids: Vec<String> = self.allowed().filter(is).map(ProtocolOrProduct::id).collect();
            ids.dedup();
            ids
        };
        if let Some(sample) = &self.sample {
            let sample: String = sample.chars().take(120).collect();
            _ = writeln!(
                text,
                "\n# Seen at {network} port {port}, but nothing that a policy can allow: {sample}"
            );
        }
        let (protocols, products) = (named(false), named(true));
        if protocols.is_empty() && products.is_empty() {
            return;
        }
        let servers = match self.servers.len() {
            0..=SERVERS => self.servers.iter().map(ToString::to_string).collect(),
            _ => vec![network.to_string()],
        };
        let place = network.addr().to_string().replace(':', ".");
        _ = writeln!(text, "\n[[policy]]\nid = \"learned-{port}-{place}\"\nport = {port}");
        if !self.anywhere {
            let sources = self.sources.iter().map(ToString::to_string).collect();
            _ = writeln!(text, "source = [{}]", quoted(sources));
        }
        _ = writeln!(text, "destination = [{}]", quoted(servers));
        if !protocols.is_empty() {
            _ = writeln!(text, "allow = [{}]", quoted(protocols));
        }
        if !products.is_empty() {
            _ = writeln!(text, "allow_rules = [{}]", quoted(products));
        }
        if self.sample.is_some() || self.incomplete {
            text.push_str("# Else it would block some of what was seen.\notherwise = \"alert\"\n");
        }
    }
}

/// Returns the network of an address: 24 bits of IPv4, 64 of IPv6.
fn network(address: IpAddr) -> IpNet {
    let address = address.to_canonical();
    let length = if address.is_ipv4() { 24 } else { 64 };
    IpNet::new(address, length).map_or_else(|_| IpNet::from(address), |network| network.trunc())
}

/// Checks that `path` may be replaced: only a regular file may.
///
/// # Errors
/// Returns the reason if it may not.
pub fn check(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a regular file"))
        }
        _ if path.file_name().is_none() => Err(io::ErrorKind::InvalidInput.into()),
        _ => std::fs::metadata(folder_of(path)).map(|_| ()),
    }
}

/// A format that writes no line for an event, but the file of policies at its end.
#[derive(Debug)]
pub struct PolicyFileFormat {
    learner: PolicyLearner,
    path: PathBuf,
}

impl PolicyFileFormat {
    /// Creates the format; it will write to `path`.
    pub fn new(path: PathBuf) -> Self {
        Self { learner: PolicyLearner::default(), path }
    }
}

impl OutputFormat for PolicyFileFormat {
    fn event(&mut self, event: &Event, _out: &mut Vec<u8>) -> io::Result<()> {
        self.learner.take(event);
        Ok(())
    }

    fn end(&mut self, _out: &mut Vec<u8>) -> io::Result<()> {
        self.learner.write(&self.path).map_err(|error| {
            let path = self.path.display();
            io::Error::new(error.kind(), format!("cannot write policies to {path}: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::{
        AlertFacts, Endpoint, EventSource, FlowContext, FlowEndpoints, GreetingFacts, OtherFacts,
        ProductFacts, RuleAction, Severity, Side, SshFacts, SshSide, Timestamp, TransportProtocol,
    };
    use crate::rules::RuleSet;

    fn event(client: &str, server: &str, said: ApplicationFacts) -> Event {
        let end = |text: &str| {
            let address: std::net::SocketAddr = text.parse().unwrap();
            Endpoint { address: address.ip(), port: address.port() }
        };
        let flow = FlowContext {
            id: 1,
            transport: TransportProtocol::Tcp,
            endpoints: FlowEndpoints { client: end(client), server: end(server) },
            from: None,
            interface: None,
            vlan: Vec::new(),
            packet_number: None,
            transaction: None,
            protocol: Some(said.protocol()),
            established: None,
            midstream: false,
        };
        let kind = EventKind::Application(said);
        Event { timestamp: Timestamp::default(), source: EventSource::Replay, flow: Some(flow), kind }
    }

    fn ssh(software: &str) -> ApplicationFacts {
        let side = SshSide { software_version: software.to_owned(), ..SshSide::default() };
        ApplicationFacts::Ssh(Arc::new(SshFacts { client: None, server: Some(side.into()) }))
    }

    /// The alert of a connection that no policy can allow.
    fn unlisted(client: &str, server: &str, octets: &[u8]) -> Event {
        let alert = AlertFacts {
            rule: LEARNING_POLICY.to_owned(),
            title: String::new(),
            category: "policy".to_owned(),
            action: RuleAction::Alert,
            blocked: false,
            enforced: false,
            severity: Severity::Medium,
            references: Vec::new(),
            product: ProductFacts::default(),
            from: Side::Client,
            resets: None,
            verdict: None,
            banner: OtherFacts::text(octets),
            matched: None,
            let_pass: None,
            application: other(UNKNOWN, octets),
        };
        Event { kind: EventKind::Alert(alert.into()), ..event(client, server, other(UNKNOWN, octets)) }
    }

    fn other(name: &'static str, octets: &[u8]) -> ApplicationFacts {
        let from = Some(crate::event::Side::Client);
        ApplicationFacts::Other(Arc::new(OtherFacts {
            name,
            from,
            client: octets.to_vec(),
            server: Vec::new(),
        }))
    }

    fn samples() -> Vec<Event> {
        let greeting = GreetingFacts {
            greeting: crate::terms::GreetingProtocol::named("smtp").unwrap(),
            code: "220".to_owned(),
            lines: vec!["220 x".to_owned()],
            texts: vec!["x".to_owned()],
            welcome: true,
            fingerprint: None,
        };
        vec![
            event("192.0.2.7:4000", "198.51.100.1:22", ssh("OpenSSH_9.2p1 Debian-2")),
            event("192.0.2.9:4000", "198.51.100.2:22", ssh("OpenSSH_9.8")),
            event("[2001:db8::7]:4000", "[2001:db8::1]:22", ssh("dropbear_2022.83")),
            event("192.0.2.7:4000", "198.51.100.1:443", other("tls", b"\x16")),
            unlisted("192.0.2.7:4000", "198.51.100.1:9000", b"']]]\"\nx = 1 \x1b"),
            event("192.0.2.7:4000", "198.51.100.1:25", ApplicationFacts::Greeting(Arc::new(greeting))),
            unlisted("192.0.2.7:4000", "198.51.100.1:2222", b"GET /b"),
            unlisted("192.0.2.7:4000", "198.51.100.1:2222", b"GET /a"),
            event("192.0.2.7:4000", "198.51.100.1:2222", ssh("\"'\n[[rule]]")),
        ]
    }

    #[test]
    fn the_file_is_the_same_whatever_the_order_and_holds_what_was_seen() {
        let learn = |events: &mut dyn Iterator<Item = Event>| {
            let mut learner = PolicyLearner::default();
            events.for_each(|event| learner.take(&event));
            learner.render()
        };
        let text = learn(&mut samples().into_iter());
        assert_eq!(text, learn(&mut samples().into_iter().rev().chain(samples())));
        for sample in
            ["port 2222, but nothing that a policy can allow: GET /a\n", "port 9000, but nothing that"]
        {
            assert!(text.contains(sample), "{text}");
        }
        let set =
            RuleSet::parse("learned.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}")).rules;
        assert!(set.trials().all(|trial| trial.passed()));
        let said: Vec<String> =
            set.policies().iter().map(|policy| format!("{}{}", policy.allows(), policy.about())).collect();
        let blocking = set.policies().iter().map(|policy| policy.otherwise().blocks());
        assert!(blocking.eq([true, true, true, true, false]), "what was seen on port 2222 only alerts");
        assert_eq!(
            said,
            [
                "rule learned-ssh-openssh to port 22 from 192.0.2.0/24 at 198.51.100.1, 198.51.100.2",
                "rule learned-ssh-dropbear to port 22 from 2001:db8::/64 at 2001:db8::1",
                "smtp to port 25 from 192.0.2.0/24 at 198.51.100.1",
                "tls to port 443 from 192.0.2.0/24 at 198.51.100.1",
                "ssh to port 2222 from 192.0.2.0/24 at 198.51.100.1",
            ]
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut learner = PolicyLearner::default();
        for number in 0..u32::try_from(2 * PLACES).unwrap() {
            let [_, a, b, c] = number.to_be_bytes();
            let client = format!("10.{a}.{b}.{c}:4000");
            let server = format!("198.51.100.{}:{}", number % 200, 1 + number);
            learner.take(&event(&client, &server, ssh("OpenSSH_9.8")));
            let client = format!("10.{b}.{c}.1:4000");
            let server = format!("203.0.113.{}:1", number % 250);
            learner.take(&event(&client, &server, ssh("OpenSSH_9.8")));
        }
        assert_eq!(learner.places.len(), PLACES);
        let text = learner.render();
        assert!(text.contains("Sightings left out") && text.contains("destination = [\"203.0.113.0/24\"]"));
        RuleSet::parse("learned.toml", &text).unwrap();
    }

    #[test]
    fn the_file_takes_its_place_at_once() {
        let folder = tempfile::tempdir().unwrap();
        // Nothing but a file is replaced: `--learn /dev/null` must not make one of that.
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(
            PolicyLearner::default().write(&pipe).is_err() && check(&folder.path().join("no/such")).is_err()
        );
        std::fs::remove_file(&pipe).unwrap();
        let path = folder.path().join("learned.toml");
        std::fs::write(&path, "old").unwrap();
        let mut learning = PolicyFileFormat::new(path.clone());
        samples().iter().for_each(|event| learning.event(event, &mut Vec::new()).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        learning.end(&mut Vec::new()).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("[[policy]]"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
