//! What `replay` reads in captures of others against what tshark reads in them.
//!
//! `BANNERWALL_CORPUS` names the folder that holds `pcap/`. Both ways: whatever tshark reports must be in our
//! events, and whatever we report in tshark's; each deliberate difference stands in [`DIFFERENCES`] with
//! its reason.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bannerwall::testing::replay::input::CaptureInput;
use bannerwall::testing::replay::{CaptureReplay, ReplayConfig};
use bannerwall_inspect::engine::{ChecksumState, EngineConfig, HttpInspect};
use bannerwall_inspect::event::{ApplicationFacts, Event, EventKind, FlowContext, HeaderField};
use bannerwall_inspect::rules::RuleSet;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event as Xml};

use crate::differences::{DIFFERENCES, Whose};

/// One fact about a capture, in words that both readers share: ports, then what was said.
type Facts = BTreeMap<String, usize>;

fn note(facts: &mut Facts, ports: (u16, u16), words: &[&str]) {
    let said: Vec<String> = words.iter().map(|word| plain(word)).collect();
    *facts.entry(format!("{}>{} {}", ports.0, ports.1, said.join(" | "))).or_default() += 1;
}

/// Printable ASCII only: the two readers show other octets in different ways.
fn plain(text: &str) -> String {
    text.chars().filter(|character| character.is_ascii_graphic() && *character != '\\').collect()
}

fn first<'a>(headers: &'a [HeaderField], name: &str) -> &'a str {
    let field = headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    field.map_or("", |field| field.value.as_str())
}

fn ours(capture: &Path) -> Facts {
    let engine = EngineConfig { http_inspect: HttpInspect::All, ..EngineConfig::default() };
    let config = ReplayConfig { engine, checksums: ChecksumState::NotReady };
    let mut replay = CaptureReplay::new(config, Arc::new(RuleSet::empty()), None);
    let mut events: Vec<Event> = Vec::new();
    let outcome =
        replay.read(CaptureInput::open(capture).unwrap(), &mut events, || ControlFlow::Continue(()));
    if let Err(error) = outcome {
        println!("{}: {error}", capture.display());
    }
    replay.finish(&mut events);
    let mut facts = Facts::new();
    for event in &events {
        if let Some(flow) = &event.flow {
            note_event(&mut facts, flow, &event.kind);
        }
    }
    facts
}

fn note_event(facts: &mut Facts, flow: &FlowContext, kind: &EventKind) {
    let (client, server) = (flow.endpoints.client.port, flow.endpoints.server.port);
    match kind {
        EventKind::Application(ApplicationFacts::Ssh(ssh)) => {
            for (side, ports) in [(&ssh.client, (client, server)), (&ssh.server, (server, client))] {
                if let Some(side) = side {
                    note(facts, ports, &["ssh", &side.banner]);
                }
            }
        }
        EventKind::Application(ApplicationFacts::Http(http)) => {
            if let Some(request) = &http.request {
                let host = first(&request.headers, "host");
                note(facts, (client, server), &["request", &request.method, &request.url, host]);
            }
            if let Some(response) = &http.response {
                let server_name = first(&response.headers, "server");
                note(facts, (server, client), &["response", &response.status.to_string(), server_name]);
            }
        }
        _ => {}
    }
}

/// What tshark says, from its PDML: the one form in which several messages of a frame stay apart.
fn theirs(capture: &Path) -> Facts {
    let output = Command::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(["-Y", "http || ssh", "-T", "pdml", "-J", "tcp http ssh"])
        .output()
        .expect("tshark is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut reader = Reader::from_str(&text);
    let mut pdml = Pdml::default();
    loop {
        match reader.read_event().expect("tshark writes XML") {
            Xml::Start(element) => pdml.open(&element),
            Xml::Empty(element) => {
                pdml.open(&element);
                pdml.close(element.name().as_ref());
            }
            Xml::End(element) => pdml.close(element.name().as_ref()),
            Xml::Eof => break,
            _ => {}
        }
    }
    pdml.facts
}

#[derive(Default)]
struct Pdml {
    facts: Facts,
    ports: (u16, u16),
    /// The protocols that are open, outermost first.
    protocols: Vec<Protocol>,
}

/// A protocol in a frame: its name, and the first value of each field within it.
#[derive(Default)]
struct Protocol {
    name: String,
    fields: BTreeMap<String, String>,
}

impl Pdml {
    fn open(&mut self, element: &BytesStart<'_>) {
        let attribute = |name: &str| {
            let found = element.try_get_attribute(name).expect("attributes");
            found
                .map(|found| {
                    found.normalized_value(quick_xml::XmlVersion::Implicit1_0).expect("a value").into_owned()
                })
                .unwrap_or_default()
        };
        match element.name().as_ref() {
            "proto" => {
                self.protocols.push(Protocol { name: attribute("name"), ..Protocol::default() });
            }
            "field" => {
                let name = attribute("name");
                match name.as_str() {
                    "tcp.srcport" => self.ports.0 = attribute("show").parse().unwrap_or_default(),
                    "tcp.dstport" => self.ports.1 = attribute("show").parse().unwrap_or_default(),
                    _ => {
                        if let Some(open) = self.protocols.last_mut() {
                            open.fields.entry(name).or_insert_with(|| attribute("show"));
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, element: &str) {
        if element != "proto" {
            return;
        }
        let Protocol { name, fields } = self.protocols.pop().expect("what closes was opened");
        let field = |name: &str| fields.get(name).map_or("", String::as_str);
        match name.as_str() {
            "ssh" if fields.contains_key("ssh.protocol") => {
                note(&mut self.facts, self.ports, &["ssh", field("ssh.protocol")]);
            }
            "http" if fields.contains_key("http.request.method") => {
                let words =
                    ["request", field("http.request.method"), field("http.request.uri"), field("http.host")];
                note(&mut self.facts, self.ports, &words);
            }
            "http" if fields.contains_key("http.response.code") => {
                let words = ["response", field("http.response.code"), field("http.server")];
                note(&mut self.facts, self.ports, &words);
            }
            _ => {}
        }
    }
}

/// What is in `one` more often than in `other`.
fn missing(one: &Facts, other: &Facts) -> Vec<String> {
    let lacks =
        |(fact, count): (&String, &usize)| count.saturating_sub(other.get(fact).copied().unwrap_or(0));
    one.iter().flat_map(|entry| std::iter::repeat_n(entry.0.clone(), lacks(entry))).collect()
}

fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(captures(&path));
        } else if path
            .extension()
            .is_some_and(|kind| ["pcap", "pcapng", "cap", "trace", "gz"].iter().any(|k| kind == *k))
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn captures_of_others_are_read_as_tshark_reads_them() {
    let Some(corpus) = std::env::var_os("BANNERWALL_CORPUS") else {
        eprintln!("SKIPPED: conformance needs BANNERWALL_CORPUS, a folder with pcap/");
        return;
    };
    let folder = Path::new(&corpus).join("pcap");
    let (mut agreed, mut told, mut unexplained) = (0, 0, Vec::new());
    let files = captures(&folder);
    assert!(!files.is_empty(), "{} holds no captures", folder.display());
    for file in files {
        let name = file.strip_prefix(&folder).unwrap().display().to_string();
        let (ours, theirs) = (ours(&file), theirs(&file));
        let facts = theirs.values().sum::<usize>();
        told += facts;
        agreed += facts - missing(&theirs, &ours).len();
        for (whose, facts) in
            [(Whose::Theirs, missing(&theirs, &ours)), (Whose::Ours, missing(&ours, &theirs))]
        {
            let explained =
                |fact: &String| DIFFERENCES.iter().any(|known| known.explains(&name, whose, fact));
            unexplained.extend(
                facts
                    .into_iter()
                    .filter(|fact| !explained(fact))
                    .map(|fact| format!("{name}: only {whose:?}: {fact}")),
            );
        }
    }
    println!("{agreed} of {told} facts that tshark tells are told by us");
    assert!(
        unexplained.is_empty(),
        "{} unexplained differences, {agreed} facts agree:\n{}",
        unexplained.len(),
        unexplained.join("\n")
    );
}
