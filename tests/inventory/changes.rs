//! Changes of the inventory as events, and for those who want to be notified.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use bannerwall_test_support::{Guard, Line, Signal, Sshd, as_root, eventually, json_lines};
use serde_json::{Value, json};

use super::open_to_all;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const RULES: &str = "[[rule]]\nid = \"old\"\ntitle = \"Old\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
                     match.software = '^old'\naction = \"alert\"\nseverity = \"high\"\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn scan(&self, words: &str, more: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(["scan", "ssh", "-q"]).args(words.split(' ')).args(more);
        command.args(["--rules", "rules.toml", "--inventory", "net.db"]).current_dir(self.0.path());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

/// An SSH server that says what it is told to; its port.
fn server(says: &Arc<Mutex<&'static str>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let says = Arc::clone(says);
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = write!(connection, "SSH-2.0-{}\r\n", says.lock().expect("nobody panics"));
        }
    });
    port
}

/// Answers requests with these states, one after the other, the last for ever; what was posted.
fn receiver(states: &'static [u16]) -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let taken = Arc::new(Mutex::new(Vec::new()));
    let posted = Arc::clone(&taken);
    std::thread::spawn(move || {
        for (at, connection) in listener.incoming().flatten().enumerate() {
            let state = states.get(at).or(states.last()).copied().unwrap_or(200);
            let mut reader = BufReader::new(connection);
            let (mut length, mut line) = (0, String::new());
            while reader.read_line(&mut line).is_ok_and(|octets| octets > 2) {
                let field = line.to_ascii_lowercase();
                if let Some(octets) = field.strip_prefix("content-length:") {
                    length = octets.trim().parse().expect("a number");
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body is whole");
            if state == 200 {
                posted.lock().expect("nobody panics").push(serde_json::from_slice(&body).expect("JSON"));
            }
            let _ = write!(
                reader.get_mut(),
                "HTTP/1.1 {state} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
    });
    (address, taken)
}

fn changes(output: &Output) -> Vec<Value> {
    let events = json_lines(&output.stdout);
    events
        .into_iter()
        .filter(|event| event["event_type"] == "change")
        .map(|mut it| it["bannerwall"]["change"].take())
        .collect()
}

fn kinds(changes: &[Value]) -> Vec<&str> {
    changes.iter().map(|change| change["kind"].as_str().expect("a kind")).collect()
}

#[test]
fn what_changes_is_an_event_in_every_output() {
    let place = Place::new();
    let says = Arc::new(Mutex::new("old_1"));
    let port = server(&says);
    let words = format!("127.0.0.1 -p {port} --sensor edge --change-events");
    let told = changes(&place.scan(&format!("{words} --format json"), &[]));
    assert_eq!(kinds(&told), ["new_host", "new_service", "finding_new"]);
    assert_eq!(
        told[1],
        json!({"kind": "new_service", "address": "127.0.0.1", "port": port, "protocol": "ssh", "new": "SSH-2.0-old_1",
               "sensor": "scan/edge"})
    );
    assert_eq!(told[2]["rule"], "old");
    assert!(changes(&place.scan(&format!("{words} --format json"), &[])).is_empty(), "nothing is new");

    *says.lock().unwrap() = "new_2";
    let text = String::from_utf8(place.scan(&words, &[]).stdout).expect("text");
    assert!(text.contains("ssh banner changed  SSH-2.0-old_1 -> SSH-2.0-new_2"), "{text}");
    assert!(text.contains("finding gone  old"), "{text}");
    *says.lock().unwrap() = "new_3";
    let csv = String::from_utf8(place.scan(&format!("{words} --format csv"), &[]).stdout).expect("text");
    assert!(csv.lines().any(|line| line.contains(",change,") && line.contains("banner_changed")), "{csv}");
    // A young inventory is learned.
    *says.lock().unwrap() = "new_4";
    assert!(changes(&place.scan(&format!("{words} --format json --learn-for 7d"), &[])).is_empty());
    *says.lock().unwrap() = "new_5";
    assert_eq!(
        kinds(&changes(&place.scan(&format!("{words} --format json --learn-for 0s"), &[]))),
        ["banner_changed"]
    );
}

#[test]
fn others_are_notified_again_where_they_refuse() {
    let place = Place::new();
    let says = Arc::new(Mutex::new("old_1"));
    let port = server(&says);
    let (address, taken) = receiver(&[503, 200]);
    let url = format!("http://{address}/hook");
    let open = open_to_all(place.0.path());
    let (told, user) = (open.join("told.json"), open.join("user"));
    let command = format!("cat > '{}'; id -u > '{}'", told.display(), user.display());
    let words = format!("127.0.0.1 -p {port} --sensor edge");
    place.scan(&words, &["--notify", &url, "--notify-command", &command]);
    let posted = taken.lock().unwrap().clone();
    assert_eq!((posted.len(), &posted[0]["sensor"], &posted[0]["lost"]), (1, &json!("edge"), &json!(0)));
    assert_eq!(
        kinds(posted[0]["changes"].as_array().expect("rows")),
        ["new_host", "new_service", "finding_new"]
    );
    let handed: Value = serde_json::from_slice(&std::fs::read(told).expect("it was run")).expect("JSON");
    assert_eq!(handed, posted[0]);
    let users = std::fs::read_to_string("/proc/self/uid_map").expect("it is there");
    if users.split_whitespace().nth(2) != Some("1") {
        assert_ne!(std::fs::read_to_string(user).expect("it was run"), "0\n");
    }

    *says.lock().unwrap() = "new_2";
    let output = place.scan(&words, &["--notify", "http://127.0.0.1:1/", "--notify-command", "exit 7"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("--notify 127.0.0.1: cannot notify") && told.contains("that reached no receiver"),
        "{told}"
    );
    let mut refused = Command::new(PROGRAM);
    let refused = refused
        .args(["scan", "ssh", "127.0.0.1", "--inventory", "x", "--notify", "here"])
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), told.contains("begins with http://")), (Some(2), true), "{told}");
}

#[test]
fn a_guard_tells_of_a_new_service_while_it_runs() {
    as_root(|| {
        let (place, line) = (Place::new(), Line::new());
        let _sshd = Sshd::start(&line.server, 2222);
        let events = place.path("events.json");
        let flags = format!(
            "--hook forward --change-events --inventory {} --events {}",
            place.path("net.db").display(),
            events.display()
        );
        let mut guard = Guard::start(&line.router, PROGRAM, RULES, &flags);
        let scan =
            line.client.command("ssh-keyscan").args(["-T", "10", "-p", "2222", "198.51.100.2"]).output();
        assert!(scan.expect("it runs").status.success());
        let told = eventually("the change to be told", || {
            let text = std::fs::read(&events).ok().filter(|text| text.ends_with(b"\n"))?;
            let events = json_lines(&text);
            events.into_iter().find(|it| it["bannerwall"]["change"]["kind"] == "new_service")
        });
        assert_eq!(told["bannerwall"]["change"]["address"], "198.51.100.2");
        assert_eq!(told["bannerwall"]["change"]["port"], 2222);
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
    });
}
