//! Dialogues by themselves, as files: what two ends say, and what is found in it. No rules, no packets.
//!
//! Every case is read with each thing said at once and byte by byte: what is found must be the same.
//! Characters stand for bytes, `\u0085` for 0x85.

use bannerwall_test_support::hello::{alert, certificates, client_hello, records, server_hello};
use serde::Deserialize;

use super::{Dialogue, DialogueSettings, Finding, FindingSink, ReadContext, Unfinished};
use crate::banner::disclosure::Disclosure;
use crate::engine::config::HttpInspect;
use crate::event::{Application, Side};
use crate::flow::Tracking;
use crate::rules::Early;

const FILES: [&str; 5] = ["greeting.toml", "http.toml", "opening.toml", "ssh.toml", "tls.toml"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// The KEXINIT is read.
    #[serde(default)]
    kex: bool,
    /// Every transaction is read.
    #[serde(default)]
    all: bool,
    #[serde(default = "ssh_port")]
    port: u16,
    say: Vec<Said>,
    finds: Vec<String>,
    /// Which sides nothing more is read of.
    #[serde(default)]
    done: Vec<String>,
}

/// What is said next, or happens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Said {
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
struct Found {
    findings: Vec<String>,
    bytes: usize,
}

impl FindingSink for Found {
    fn take(&mut self, finding: Finding<'_>) {
        let side = |side: Side| if side == Side::Client { "client" } else { "server" };
        let text = match finding {
            Finding::Seen(protocol, from) => format!("seen {} {}", protocol.name(), side(from)),
            Finding::Banner(found) => {
                let stage = format!("{:?}", found.stage).to_lowercase();
                let line = found.banner.line().escape_ascii().to_string();
                format!("banner {} {stage} {line}", side(found.banner.from()))
            }
            Finding::Odd(anomaly) => format!("odd {}", anomaly.name()),
            Finding::Exchange(said, number) => {
                let number = number.map(|number| format!(" {number}")).unwrap_or_default();
                format!("exchange {}{number}{}", said.protocol().name(), sides(&said))
            }
            Finding::Bytes(count) => return self.bytes += count,
            Finding::Preamble(_) => return,
        };
        self.findings.push(text);
    }
}

/// Whose part of an exchange is known.
fn sides(said: &Application) -> &'static str {
    let (client, server) = match said {
        Application::Ssh(facts) => (facts.client.is_some(), facts.server.is_some()),
        Application::Http(facts) => (facts.request.is_some(), facts.response.is_some()),
        Application::Tls(facts) => (facts.client.is_some(), facts.server.is_some()),
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
struct Talk {
    dialogue: Dialogue,
    settings: DialogueSettings,
    port: u16,
    unread: [Vec<u8>; 2],
    found: Found,
}

impl Talk {
    fn new(case: &Case) -> Self {
        let settings = DialogueSettings {
            tracking: Tracking::Inline,
            http_inspect: if case.all { HttpInspect::All } else { HttpInspect::First },
            kex: case.kex,
            body_limit: 0,
            body_rules: false,
            any_rules: false,
            product_rules: false,
            stops_unexpected: false,
            early: [Early::default(), Early::default()],
            disclosure: Disclosure::default(),
            fingerprints: None,
        };
        let (dialogue, unread) = (Dialogue::default(), <[Vec<u8>; 2]>::default());
        Self { dialogue, settings, port: case.port, unread, found: Found::default() }
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
            dialogue.read_unfinished(Side::Server, server, Unfinished::Unseen, context);
            dialogue.pass_over(Side::Server, count, client, context);
        });
        self.unread[1].clear();
    }

    fn end(&mut self) {
        self.with(|dialogue, [client, server], context| {
            for (from, unread) in [(Side::Client, client), (Side::Server, server)] {
                dialogue.read_unfinished(from, unread, Unfinished::Ended, context);
                dialogue.end(from, context);
            }
            dialogue.tell_rest(context);
        });
    }

    fn act(&mut self, said: &Said, size: usize) {
        use Side::{Client, Server};
        match said {
            Said::Client(text) => self.say(Client, &octets(text), size),
            Said::Server(text) => self.say(Server, &octets(text), size),
            Said::ClientHello(name) => self.say(Client, &records(&client_hello(name, 0), 1 << 14), size),
            Said::ServerHello(protocol) => {
                self.say(Server, &records(&server_hello(0xc02f, protocol), 1 << 14), size);
            }
            Said::Certificates(text) => {
                self.say(Server, &records(&certificates(&[&octets(text)]), 1 << 14), size);
            }
            Said::Alert(code) => self.say(Server, &alert(*code), size),
            Said::ServerLacks(count) => self.lack(*count),
            Said::End => self.end(),
        }
    }
}

fn octets(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(character).expect("characters up to U+00FF")).collect()
}

/// Plays a case; says what was found where that is not what its file says.
fn play(case: &Case, size: usize) -> Option<String> {
    let mut talk = Talk::new(case);
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
        let cases: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let plays = cases.case.iter().flat_map(|case| [usize::MAX, 1].map(|size| play(case, size)));
        faults.extend(plays.flatten().map(|fault| format!("{file}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
