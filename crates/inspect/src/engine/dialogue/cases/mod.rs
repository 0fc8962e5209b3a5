//! Dialogues by themselves, as files: what two ends say, and what is found in it. No rules, no packets.
//!
//! Every case is read with each thing said at once and byte by byte: what is found must be the same.
//! Characters stand for bytes, `\u0085` for 0x85.

use bannerwall_test_support::hello::{alert, certificates, client_hello, records, server_hello};
use serde::Deserialize;

use super::{Dialogue, DialogueFinding, DialogueSettings, FindingSink, ReadContext, UnfinishedReason};
use crate::banner::disclosure::DisclosureLimits;
use crate::engine::config::HttpInspect;
use crate::event::{ApplicationFacts, Side};
use crate::flow::TrackingMode;
use crate::rules::EarlyHeadParts;

const FILES: [&str; 5] = ["greeting.toml", "http.toml", "opening.toml", "ssh.toml", "tls.toml"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DialogueCaseFile {
    case: Vec<DialogueCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DialogueCase {
    name: String,
    /// The KEXINIT is read.
    #[serde(default)]
    kex: bool,
    /// Every transaction is read.
    #[serde(default)]
    all: bool,
    #[serde(default = "ssh_port")]
    port: u16,
    say: Vec<DialogueCaseStep>,
    finds: Vec<String>,
    /// Which sides nothing more is read of.
    #[serde(default)]
    done: Vec<String>,
}

/// What is said next, or happens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum DialogueCaseStep {
    Client(String),
    Server(String),
    /// The client's hello with this server name.
    ClientHello(String),
    /// The server's hello of TLS 1.2 with this protocol.
    ServerHello(String),
    /// The server's certificate message, with this in place of a certificate.
    Certificates(String),
    /// A fatal alert of the server.
    Alert(u8),
    /// So many bytes of the server's are missing.
    ServerLacks(u64),
    /// Both sides have said all.
    End,
}

const fn ssh_port() -> u16 {
    22
}

/// A sink that only collects.
#[derive(Default)]
struct FindingCollector {
    findings: Vec<String>,
    bytes: usize,
}

impl FindingSink for FindingCollector {
    fn take(&mut self, finding: DialogueFinding<'_>) {
        let side = |side: Side| if side == Side::Client { "client" } else { "server" };
        let text = match finding {
            DialogueFinding::Seen(protocol, from) => format!("seen {} {}", protocol.name(), side(from)),
            DialogueFinding::Banner(found) => {
                let stage = format!("{:?}", found.stage).to_lowercase();
                let line = found.banner.line().escape_ascii().to_string();
                format!("banner {} {stage} {line}", side(found.banner.from()))
            }
            DialogueFinding::Odd(anomaly) => format!("odd {}", anomaly.name()),
            DialogueFinding::Exchange(said, number) => {
                let number = number.map(|number| format!(" {number}")).unwrap_or_default();
                format!("exchange {}{number}{}", said.protocol().name(), sides(&said))
            }
            DialogueFinding::Bytes(count) => return self.bytes += count,
            DialogueFinding::Preamble(_) => return,
        };
        self.findings.push(text);
    }
}

/// Whose part of an exchange is known.
fn sides(said: &ApplicationFacts) -> &'static str {
    let (client, server) = match said {
        ApplicationFacts::Ssh(facts) => (facts.client.is_some(), facts.server.is_some()),
        ApplicationFacts::Http(facts) => (facts.request.is_some(), facts.response.is_some()),
        ApplicationFacts::Tls(facts) => (facts.client.is_some(), facts.server.is_some()),
        _ => return "",
    };
    match (client, server) {
        (true, true) => " of both",
        (true, false) => " of client",
        (false, true) => " of server",
        (false, false) => " of neither",
    }
}

/// Two ends that speak, and what of it is unread.
struct DialoguePlay {
    dialogue: Dialogue,
    settings: DialogueSettings,
    port: u16,
    unread: [Vec<u8>; 2],
    found: FindingCollector,
}

impl DialoguePlay {
    fn new(case: &DialogueCase) -> Self {
        let settings = DialogueSettings {
            tracking: TrackingMode::Inline,
            http_inspect: if case.all { HttpInspect::All } else { HttpInspect::First },
            kex: case.kex,
            body_limit: 0,
            body_rules: false,
            any_rules: false,
            product_rules: false,
            stops_unexpected: false,
            early: [EarlyHeadParts::default(), EarlyHeadParts::default()],
            disclosure: DisclosureLimits::default(),
            fingerprints: None,
        };
        let (dialogue, unread) = (Dialogue::default(), <[Vec<u8>; 2]>::default());
        Self { dialogue, settings, port: case.port, unread, found: FindingCollector::default() }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Dialogue, [&[u8]; 2], &mut ReadContext<'_>) -> T) -> T {
        let Self { dialogue, settings, port, unread: [client, server], found } = self;
        let mut context =
            ReadContext { settings, server_port: *port, enforced: true, asks_policy: false, sink: found };
        act(dialogue, [client, server], &mut context)
    }

    fn say(&mut self, from: Side, octets: &[u8], size: usize) {
        let [own, other] = if from == Side::Client { [0, 1] } else { [1, 0] };
        for piece in octets.chunks(size.max(1)) {
            self.unread[own].extend_from_slice(piece);
            let used = self
                .with(|dialogue, unread, context| dialogue.read(from, unread[own], unread[other], context));
            self.unread[own].drain(..used);
        }
    }

    fn lack(&mut self, count: u64) {
        self.with(|dialogue, [client, server], context| {
            dialogue.read_unfinished(Side::Server, server, UnfinishedReason::Unseen, context);
            dialogue.pass_over(Side::Server, count, client, context);
        });
        self.unread[1].clear();
    }

    fn end(&mut self) {
        self.with(|dialogue, [client, server], context| {
            for (from, unread) in [(Side::Client, client), (Side::Server, server)] {
                dialogue.read_unfinished(from, unread, UnfinishedReason::Ended, context);
                dialogue.end(from, context);
            }
            dialogue.emit_rest(context);
        });
    }

    fn act(&mut self, said: &DialogueCaseStep, size: usize) {
        use Side::{Client, Server};
        match said {
            DialogueCaseStep::Client(text) => self.say(Client, &octets(text), size),
            DialogueCaseStep::Server(text) => self.say(Server, &octets(text), size),
            DialogueCaseStep::ClientHello(name) => {
                self.say(Client, &records(&client_hello(name, 0), 1 << 14), size);
            }
            DialogueCaseStep::ServerHello(protocol) => {
                self.say(Server, &records(&server_hello(0xc02f, protocol), 1 << 14), size);
            }
            DialogueCaseStep::Certificates(text) => {
                self.say(Server, &records(&certificates(&[&octets(text)]), 1 << 14), size);
            }
            DialogueCaseStep::Alert(code) => self.say(Server, &alert(*code), size),
            DialogueCaseStep::ServerLacks(count) => self.lack(*count),
            DialogueCaseStep::End => self.end(),
        }
    }
}

fn octets(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(character).expect("characters up to U+00FF")).collect()
}

/// Plays a case; says what was found where that is not what its file says.
fn play(case: &DialogueCase, size: usize) -> Option<String> {
    let mut talk = DialoguePlay::new(case);
    case.say.iter().for_each(|said| talk.act(said, size));
    let sides = [("client", Side::Client), ("server", Side::Server)];
    let done = sides.iter().filter(|(_, side)| talk.dialogue.is_read_out(*side));
    let done: Vec<&str> = done.map(|(name, _)| *name).collect();
    let found = &talk.found.findings;
    let same = *found == case.finds && done == case.done;
    (!same).then(|| format!("{} ({size})\nfinds = {found:#?}\ndone = {done:?}", case.name))
}

#[test]
fn what_is_found_is_what_the_files_say_however_it_is_cut() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine/dialogue/cases");
    let mut faults = Vec::new();
    for file in FILES {
        let text = std::fs::read_to_string(folder.join(file)).expect("a file of cases");
        let cases: DialogueCaseFile = toml::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let plays = cases.case.iter().flat_map(|case| [usize::MAX, 1].map(|size| play(case, size)));
        faults.extend(plays.flatten().map(|fault| format!("{file}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
