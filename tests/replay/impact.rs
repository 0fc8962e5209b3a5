//! What `inventory impact` says of captures, held against what `replay --enforce` drops of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::json_lines;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Rules that are judged by what the inventory has of a capture that was read without them.
const BY_BANNER: [(&str, &str); 7] = [
    ("user agents", "protocol = \"http\"\nfrom = \"client\"\nmatch.\"header.user-agent\" = '.'"),
    ("servers", "protocol = \"http\"\nfrom = \"server\"\nmatch.\"header.server\" = '.'"),
    ("one server", "protocol = \"http\"\nfrom = \"server\"\nmatch.\"header.server\" = '^Apache'"),
    ("SSH clients", "protocol = \"ssh\"\nfrom = \"client\"\nmatch.software = '.'"),
    ("SSH servers", "protocol = \"ssh\"\nfrom = \"server\"\nmatch.software = '.'"),
    ("greetings", "protocol = \"smtp\"\nmatch.text = '.'"),
    ("policy", ""),
];

/// Rules that ask more than a banner: the capture is read with them before.
const TOLD: [(&str, &str); 2] = [
    ("statuses", "protocol = \"http\"\nfrom = \"server\"\nmatch.status = '^200'"),
    ("key exchanges", "protocol = \"ssh\"\nfrom = \"server\"\nmatch.kex = '.'"),
];

/// Two rules about each server of Apache, and a policy beside a rule about the same servers: no connection
/// counts twice, whatever stops it first.
const SEVERAL: &str = r#"
[[policy]]
id = "only-smtp-on-80"
port = 80
allow = "smtp"

[[rule]]
id = "one"
protocol = "http"
from = "server"
match."header.server" = '^Apache'
action = "drop"

[[rule]]
id = "two"
protocol = "http"
from = "server"
match."header.server" = '.'
action = "drop"

[[rule]]
id = "three"
protocol = "ssh"
from = "server"
match.software = '.'
action = "drop"
"#;

const NOTHING: &str =
    "[[rule]]\nid = \"none\"\nprotocol = \"ssh\"\nmatch.software = '^$'\naction = \"alert\"\n";

fn rule(body: &str) -> String {
    if body.is_empty() {
        return "[[policy]]\nid = \"it\"\nallow = \"smtp\"\n".to_owned();
    }
    format!("[[rule]]\nid = \"it\"\n{body}\naction = \"drop\"\n")
}

/// Connections by rule, and by client or service.
type Counts = BTreeMap<(String, String), u64>;

/// The same, whatever rule stops them.
fn by_place(counts: Counts) -> Counts {
    let mut summed = Counts::new();
    for ((_, place), count) in counts {
        *summed.entry((String::new(), place)).or_default() += count;
    }
    summed
}

struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn run(&self, words: &[&str], rules: &str, last: &[&Path]) -> Vec<Value> {
        let file = self.folder.path().join("rules.toml");
        std::fs::write(&file, rules).expect("the folder is ours");
        let mut command = Command::new(PROGRAM);
        command.args(words).args(["--no-local", "--format", "json", "--rules"]).arg(&file).args(last);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{words:?} {last:?} {rules}: {output:?}");
        json_lines(&output.stdout)
    }

    /// Reads a capture into a new inventory.
    fn record(&self, capture: &Path, rules: &str) -> PathBuf {
        let inventory = self.folder.path().join("net.db");
        let _ = std::fs::remove_file(&inventory);
        self.run(&["replay"], rules, &[Path::new("--inventory"), &inventory, capture]);
        inventory
    }

    /// What `impact` says.
    fn foreseen(&self, inventory: &Path, rules: &str) -> Counts {
        let mut counts = Counts::new();
        for impact in self.run(&["inventory", "impact"], rules, &[Path::new("--inventory"), inventory]) {
            let text = |key: &str| impact[key].as_str().unwrap_or_default().to_owned();
            let place = match text("side").as_str() {
                "client" => text("address"),
                _ => format!("{} {}", text("address"), impact["port"]),
            };
            *counts.entry((text("rule"), place)).or_default() +=
                impact["connections"].as_u64().expect("a count");
        }
        counts
    }

    /// What `--enforce` drops; of clients where a rule is about these.
    fn dropped(&self, capture: &Path, rules: &str) -> Counts {
        let mut flows = BTreeSet::new();
        let mut counts = Counts::new();
        let by_client = rules.contains("from = \"client\"");
        for event in self.run(&["replay", "--enforce"], rules, &[capture]) {
            if event["event_type"] != "drop" || !flows.insert(event["flow_id"].as_u64()) {
                continue;
            }
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            let (client, server) = match text("direction").as_str() {
                "to_server" => ("src", "dest"),
                _ => ("dest", "src"),
            };
            let place = if by_client {
                text(&format!("{client}_ip"))
            } else {
                format!("{} {}", text(&format!("{server}_ip")), event[format!("{server}_port")])
            };
            let rule = event["bannerwall"]["rule"].as_str().unwrap_or_default().to_owned();
            *counts.entry((rule, place)).or_default() += 1;
        }
        counts
    }
}

/// Captures of others, where `BANNERWALL_CORPUS` names them.
#[test]
fn impact_is_what_enforcing_drops() {
    let Some(corpus) = std::env::var_os("BANNERWALL_CORPUS") else {
        eprintln!("skipped: BANNERWALL_CORPUS is not set");
        return;
    };
    let captures: Vec<PathBuf> = ["http", "ssh"]
        .into_iter()
        .flat_map(|kind| std::fs::read_dir(Path::new(&corpus).join("pcap").join(kind)).expect("the corpus"))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(captures.len() > 30, "{} captures", captures.len());
    let scratch = Scratch { folder: tempfile::tempdir().expect("a temporary folder") };
    let mut drops: BTreeMap<&str, u64> = BTreeMap::new();
    let mut differences = Vec::new();
    for capture in &captures {
        let mut compare = |name, foreseen: Counts, dropped: Counts| {
            *drops.entry(name).or_default() += dropped.values().sum::<u64>();
            if foreseen != dropped {
                differences.push(format!("{name}, {}: {foreseen:?}, but {dropped:?}", capture.display()));
            }
        };
        let inventory = scratch.record(capture, NOTHING);
        for (name, body) in BY_BANNER {
            let rules = rule(body);
            compare(name, scratch.foreseen(&inventory, &rules), scratch.dropped(capture, &rules));
        }
        let (foreseen, dropped) = (scratch.foreseen(&inventory, SEVERAL), scratch.dropped(capture, SEVERAL));
        compare("several", by_place(foreseen), by_place(dropped));
        for (name, body) in TOLD {
            let rules = rule(body);
            let inventory = scratch.record(capture, &rules);
            compare(name, scratch.foreseen(&inventory, &rules), scratch.dropped(capture, &rules));
        }
    }
    assert_eq!(differences, Vec::<String>::new(), "{drops:?}");
    let without: Vec<&&str> = drops.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name).collect();
    assert_eq!(without, Vec::<&&str>::new(), "{drops:?}");
    eprintln!("connections dropped, and foreseen: {drops:?}");
}
