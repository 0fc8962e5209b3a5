//! What real clients take for a server's banner, against a guard that forbids it.
//!
//! A server says every row of `banners` in the name of forbidden and of allowed software, once without a
//! guard and once behind one, and real SSH and HTTP clients say what they took. A row is valid for a
//! client that takes the forbidden banner without a guard; behind the guard's defaults it must not, and
//! it must take the allowed one wherever it does so without a guard.
//!
//! `BANNERWALL_CLIENTS_ONLY` is a part of the names of the rows to play, `BANNERWALL_CLIENTS_FLAGS` gives the
//! guard other flags, `BANNERWALL_CLIENTS_ACTION` is what its rules do (default `reject`, where clients need
//! not wait for their time limit), and `BANNERWALL_CLIENTS_REPORT` names a file for all that came through.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bannerwall_test_support::raw::Cargo;
use bannerwall_test_support::{Guard, JUDGES_ALL, Line, Namespace, Nginx, as_root};

use crate::banners::{IDENTIFICATIONS, Manner, RESPONSES, Row};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Programs of a client that run at once.
const LANES: usize = 4;

/// Between the parts of a banner.
const PAUSE: Duration = Duration::from_millis(30);

/// How long a server waits for a client.
const PATIENCE: Duration = Duration::from_secs(8);

/// What of a kind of banner may come through, in percent of what is valid.
const TOLERANCE: usize = 2;

/// What comes through without an event about it: what no other client does, as the page on evasion says.
const SILENT: [(&str, &str); 1] = [("HTTP::Tiny", "trailer")];

/// A kind of banner with what speaks and hears it.
struct Kind {
    name: &'static str,
    rows: &'static [Row],
    first_port: u16,
    forbidden: &'static str,
    allowed: &'static str,
    is_ssh: bool,
}

const SSH: Kind = Kind {
    name: "SSH identifications",
    rows: IDENTIFICATIONS,
    first_port: 20_000,
    forbidden: "dropbear_2022.83",
    allowed: "OpenSSH_9.2p1",
    is_ssh: true,
};

const HTTP: Kind = Kind {
    name: "HTTP responses",
    rows: RESPONSES,
    first_port: 25_000,
    forbidden: "BadHttpd/1.0",
    allowed: "OkHttpd/1.0",
    is_ssh: false,
};

impl Kind {
    fn software(&self, is_forbidden: bool) -> &'static str {
        if is_forbidden { self.forbidden } else { self.allowed }
    }

    fn port(&self, row: usize, is_forbidden: bool) -> u16 {
        self.first_port + u16::try_from(row * 2).expect("a row") + u16::from(is_forbidden)
    }

    fn row(&self, port: u16) -> (&'static Row, bool) {
        let place = port - self.first_port;
        (&self.rows[usize::from(place / 2)], place % 2 == 1)
    }

    fn ports(&self) -> Vec<u16> {
        let only = std::env::var("BANNERWALL_CLIENTS_ONLY").unwrap_or_default();
        let rows = (0..self.rows.len()).filter(|row| self.rows[*row].name.contains(&only));
        rows.flat_map(|row| [self.port(row, false), self.port(row, true)]).collect()
    }

    /// One server a row and software, for as long as the process lives.
    fn serve(&'static self, namespace: &Namespace) {
        for port in self.ports() {
            let (row, is_forbidden) = self.row(port);
            let listener = namespace.listen(server(port));
            let parts = (row.parts)(self.software(is_forbidden));
            std::thread::spawn(move || accept(&listener, row, &parts, self.is_ssh));
        }
    }
}

fn server(port: u16) -> SocketAddr {
    SocketAddr::new(Line::SERVER_V4.parse().expect("an address"), port)
}

fn accept(listener: &TcpListener, row: &'static Row, parts: &[Vec<u8>], is_ssh: bool) {
    std::thread::scope(|scope| {
        while let Ok((stream, _)) = listener.accept() {
            // A client that leaves early has said so itself.
            scope.spawn(move || say(stream, row.manner, parts, is_ssh).is_ok());
        }
    });
}

/// Says a row on one connection.
fn say(mut stream: TcpStream, manner: Manner, parts: &[Vec<u8>], is_ssh: bool) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    if manner != Manner::Greets {
        read_head(&mut stream)?;
    }
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            // Octet by octet the time between segments does not matter.
            std::thread::sleep(if parts.len() > 8 { Duration::from_millis(1) } else { PAUSE });
        }
        stream.write_all(part)?;
    }
    if is_ssh {
        stream.write_all(&key_exchange())?;
    }
    if manner == Manner::Answers {
        stream.shutdown(std::net::Shutdown::Write)?;
    }
    let mut rest = [0; 4096];
    while stream.read(&mut rest)? > 0 {}
    Ok(())
}

fn read_head(stream: &mut TcpStream) -> std::io::Result<()> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => break,
            count => head.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(())
}

/// A `SSH_MSG_KEXINIT` (RFC 4253 section 7.1) whose algorithms nobody has: who says so has taken the
/// identification before it.
fn key_exchange() -> Vec<u8> {
    let mut payload = vec![20];
    payload.extend_from_slice(&[7; 16]);
    for _ in 0..10 {
        let name = b"none-such@example.com";
        payload.extend_from_slice(&u32::try_from(name.len()).expect("a name").to_be_bytes());
        payload.extend_from_slice(name);
    }
    payload.extend_from_slice(&[0; 5]);
    let padding = 4 + (8 - (payload.len() + 9) % 8) % 8;
    let length = u32::try_from(1 + payload.len() + padding).expect("a packet");
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(u8::try_from(padding).expect("a padding"));
    packet.extend_from_slice(&payload);
    packet.extend(vec![0; padding]);
    packet
}

/// How a client is run.
enum Program {
    /// Once, for all ports: it prints a line for each.
    All(Vec<String>),
    /// As `All`, many times at once, each with a part of the ports.
    Parts(Vec<String>),
    /// Once a port: the words, with `@` for the port, and what its output says in front of the software.
    Each(&'static str, &'static str),
}

struct Client {
    name: &'static str,
    program: Program,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/clients").join(name);
    path.display().to_string()
}

/// Builds one of Go's clients; the compiler's cache stays with the tests' other files. One is built after the
/// other, for what they have in common.
fn go(name: &str) -> String {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program: PathBuf = folder.join(format!("client-{name}"));
    let output = Command::new("go")
        // Go's own packages as well: to optimise them takes longer than all that they do here.
        .args(["build", "-gcflags=all=-N -l", "-o"])
        .arg(&program)
        .arg(data(&format!("{name}.go")))
        .env("GOCACHE", folder.join("go"))
        .env("GO111MODULE", "off")
        // Where Debian keeps Go's packages.
        .env("GOPATH", "/usr/share/gocode")
        .output()
        .expect("go is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program.display().to_string()
}

fn ssh_clients() -> Vec<Client> {
    let python = |name| Program::All(words(&["/usr/bin/python3", &data("ssh.py"), name, Line::SERVER_V4]));
    vec![
        Client {
            name: "OpenSSH",
            program: Program::Each(
                "timeout 6 ssh -v -F none -o BatchMode=yes -o StrictHostKeyChecking=no \
                 -o UserKnownHostsFile=/dev/null -p @ -l a 198.51.100.2",
                "remote software version ",
            ),
        },
        Client {
            name: "ssh-keyscan",
            program: Program::Each("timeout 6 ssh-keyscan -T 3 -p @ 198.51.100.2", "# 198.51.100.2:"),
        },
        // It says nothing of the server's version.
        Client {
            name: "dbclient",
            program: Program::Each("timeout 6 dbclient -y -y -p @ -l a 198.51.100.2", "No matching algo"),
        },
        Client {
            name: "plink",
            program: Program::Each("timeout 6 plink -v -batch -P @ -l a 198.51.100.2", "Remote version: "),
        },
        Client { name: "paramiko", program: python("paramiko") },
        Client { name: "asyncssh", program: python("asyncssh") },
        Client { name: "x/crypto/ssh", program: Program::All(words(&[&go("ssh"), Line::SERVER_V4])) },
    ]
}

fn http_clients() -> Vec<Client> {
    let python = |name| Client {
        name,
        program: Program::All(words(&["/usr/bin/python3", &data("web.py"), name, Line::SERVER_V4])),
    };
    let mut clients: Vec<Client> =
        ["http.client", "requests", "aiohttp", "httplib2", "tornado"].map(python).into();
    clients.extend([
        Client {
            name: "curl",
            program: Program::Each(
                "curl -s -o /dev/null -m 3 -w field:%header{server} http://198.51.100.2:@/",
                "field:",
            ),
        },
        Client {
            name: "wget",
            program: Program::Each(
                "wget -S -O /dev/null --max-redirect=0 -T 3 -t 1 http://198.51.100.2:@/",
                // A folded line has more spaces before it.
                "\n  Server: ",
            ),
        },
        Client { name: "node", program: Program::All(words(&["node", &data("web.js"), Line::SERVER_V4])) },
        Client { name: "Go", program: Program::All(words(&[&go("web"), Line::SERVER_V4])) },
        Client { name: "PHP", program: Program::Parts(words(&["php", &data("web.php"), Line::SERVER_V4])) },
        Client {
            name: "HTTP::Tiny",
            program: Program::Parts(words(&["perl", &data("web.pl"), Line::SERVER_V4])),
        },
        Client {
            name: "nginx as a proxy",
            program: Program::Each(
                "curl -s -o /dev/null -m 4 -w field:%header{server} http://127.0.0.1:8090/@",
                "field:",
            ),
        },
    ]);
    clients
}

/// Asks a proxy for a server by its port.
const PROXY: &str = "location ~ ^/(?<origin>[0-9]+)$ { proxy_pass http://198.51.100.2:$origin/; \
    proxy_pass_header Server; proxy_connect_timeout 3s; proxy_read_timeout 3s; }";

impl Client {
    /// What the client took of each port.
    fn run(&self, namespace: &Namespace, ports: &[u16]) -> HashMap<u16, Vec<u8>> {
        match &self.program {
            Program::All(words) => told(namespace, words, ports),
            Program::Parts(words) => {
                let parts = ports.chunks(ports.len().div_ceil(LANES * 2).max(1));
                std::thread::scope(|scope| {
                    let lanes: Vec<_> =
                        parts.map(|part| scope.spawn(|| told(namespace, words, part))).collect();
                    lanes.into_iter().flat_map(|lane| lane.join().expect("a client ends")).collect()
                })
            }
            Program::Each(words, before) => each(namespace, words, before, ports),
        }
    }

    /// Whether the client took this software's banner.
    fn took(&self, said: Option<&Vec<u8>>, row: &Row, software: &str) -> bool {
        let Some(said) = said else { return false };
        if said != b"?" {
            // Octets that no rule's `^` leaves out stand for another software's name.
            let odd = |place: usize| {
                place.checked_sub(1).is_some_and(|before| !matches!(said[before], b'\t' | b' '..=b'~'))
            };
            let mut places = said.windows(software.len()).enumerate();
            return places.any(|(place, window)| window == software.as_bytes() && !odd(place));
        }
        let mut sent = (row.parts)(software).concat();
        if self.name == "dbclient" {
            sent.retain(|octet| *octet != b'\r');
        }
        contains(&sent, software.as_bytes())
    }
}

fn contains(octets: &[u8], wanted: &[u8]) -> bool {
    octets.windows(wanted.len()).any(|window| window == wanted)
}

/// What a program prints: lines of ports and hexadecimal digits.
fn told(namespace: &Namespace, words: &[String], ports: &[u16]) -> HashMap<u16, Vec<u8>> {
    let mut command = namespace.command(&words[0]);
    command.args(&words[1..]).args(ports.iter().map(u16::to_string)).stdin(Stdio::null());
    let output = command.output().expect("nsenter starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: HashMap<u16, Vec<u8>> = text.lines().filter_map(line).collect();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(lines.len(), ports.len(), "{words:?} answers for every port: {text}\n{stderr}");
    lines
}

fn line(line: &str) -> Option<(u16, Vec<u8>)> {
    let (port, word) = line.split_once(' ')?;
    let digits = word.trim_end_matches('-').as_bytes();
    let octets = digits.chunks(2).filter_map(|two| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok());
    Some((port.parse().ok()?, octets.collect()))
}

/// What a program says of one port at a time: what follows `before` on a line.
fn each(namespace: &Namespace, words: &str, before: &str, ports: &[u16]) -> HashMap<u16, Vec<u8>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(HashMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(port) = ports.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let said = one(namespace, &words.replace('@', &port.to_string()), before);
                    found.lock().expect("no lane panics").insert(*port, said);
                }
            });
        }
    });
    found.into_inner().expect("no lane panics")
}

fn one(namespace: &Namespace, words: &str, before: &str) -> Vec<u8> {
    let mut words = words.split_whitespace();
    let mut command = namespace.command(words.next().expect("a program"));
    let output = command.args(words).stdin(Stdio::null()).output().expect("nsenter starts");
    let said = [output.stdout, output.stderr].concat();
    let mut taken = Vec::new();
    let mut at = 0;
    while let Some(place) = said[at..].windows(before.len()).position(|window| window == before.as_bytes()) {
        at += place + before.len();
        let end = said[at..].iter().position(|octet| *octet == b'\n').map_or(said.len(), |end| at + end);
        taken.extend_from_slice(&said[at..end]);
    }
    if before == "No matching algo" && !taken.is_empty() { b"?".to_vec() } else { taken }
}

/// What came of a client's rows.
#[derive(Debug, Default)]
struct Tally {
    valid: usize,
    allowed: usize,
    /// Rows whose forbidden banner the client took behind the guard, and whether an event tells of it.
    through: Vec<(&'static str, bool)>,
    broken: Vec<&'static str>,
}

/// The two lines, without a guard and with one.
struct Field {
    without: Line,
    with: Line,
    guard: Guard,
    _proxies: [Nginx; 2],
}

impl Field {
    fn new(kinds: &[&'static Kind]) -> Self {
        let (without, with) = (Line::new(), Line::new());
        for line in [&without, &with] {
            kinds.iter().for_each(|kind| kind.serve(&line.server));
        }
        let flags = std::env::var("BANNERWALL_CLIENTS_FLAGS").unwrap_or_default();
        let flags = format!("--hook forward --enforce {JUDGES_ALL} {flags}");
        let action = std::env::var("BANNERWALL_CLIENTS_ACTION").unwrap_or_else(|_| "reject".to_owned());
        let rules = Cargo::RULES.replace("\"drop\"", &format!("\"{action}\""));
        let guard = Guard::start(&with.router, PROGRAM, &rules, &flags);
        let proxies = [&without, &with].map(|line| Nginx::start(&line.client, 8090, PROXY));
        Self { without, with, guard, _proxies: proxies }
    }

    fn judge(&self, kind: &Kind, client: &Client) -> Tally {
        let ports = kind.ports();
        let [without, with] = std::thread::scope(|scope| {
            [&self.without, &self.with]
                .map(|line| scope.spawn(|| client.run(&line.client, &ports)))
                .map(|thread| thread.join().expect("a client ends"))
        });
        let mut tally = Tally::default();
        for port in ports {
            let (row, is_forbidden) = kind.row(port);
            let took =
                |said: &HashMap<u16, Vec<u8>>| client.took(said.get(&port), row, kind.software(is_forbidden));
            match (is_forbidden, took(&without), took(&with)) {
                (true, true, taken) => {
                    tally.valid += 1;
                    if taken {
                        tally.through.push((row.name, self.tells(port)));
                    }
                }
                (false, true, taken) => {
                    tally.allowed += 1;
                    if !taken {
                        tally.broken.push(row.name);
                    }
                }
                (_, false, _) => {}
            }
        }
        // What a busy machine lost once comes through when it is asked again.
        tally.broken.retain(|name| !self.comes_through(kind, client, name));
        tally
    }

    fn comes_through(&self, kind: &Kind, client: &Client, name: &str) -> bool {
        let row = kind.rows.iter().position(|row| row.name == name).expect("a row");
        let port = kind.port(row, false);
        (0..10).any(|_| {
            let said = client.run(&self.with.client, &[port]);
            client.took(said.get(&port), &kind.rows[row], kind.allowed)
        })
    }

    /// Whether an event tells something odd of the server at this port; it may come behind the client's end.
    fn tells(&self, port: u16) -> bool {
        let is_told = || {
            self.guard.events().iter().any(|event| {
                let is_odd = event["event_type"] == "anomaly" || event["event_type"] == "alert";
                is_odd && (event["dest_port"] == port || event["src_port"] == port)
            })
        };
        (0..50).any(|look| {
            if look > 0 {
                std::thread::sleep(Duration::from_millis(100));
            }
            is_told()
        })
    }
}

fn describe(kind: &Kind, tallies: &BTreeMap<&'static str, Tally>) -> String {
    let sum = |count: fn(&Tally) -> usize| tallies.values().map(count).sum::<usize>();
    let mut text = format!(
        "{}: {} valid, {} through; {} allowed, {} broken\n",
        kind.name,
        sum(|tally| tally.valid),
        sum(|tally| tally.through.len()),
        sum(|tally| tally.allowed),
        sum(|tally| tally.broken.len())
    );
    for (name, tally) in tallies {
        text.push_str(&format!("  {name}: {} of {} rows\n", tally.valid, kind.rows.len()));
        for (row, is_told) in &tally.through {
            text.push_str(&format!("    THROUGH{}: {row}\n", if *is_told { ", told" } else { ", silent" }));
        }
        tally.broken.iter().for_each(|row| text.push_str(&format!("    BROKEN: {row}\n")));
    }
    text
}

fn hold(kind: &'static Kind, clients: &[Client]) {
    let field = Field::new(&[kind]);
    let tallies: BTreeMap<&'static str, Tally> = std::thread::scope(|scope| {
        let (field, judge) =
            (&field, |field: &Field, client: &Client| (client.name, field.judge(kind, client)));
        let threads: Vec<_> =
            clients.iter().map(|client| scope.spawn(move || judge(field, client))).collect();
        threads.into_iter().map(|thread| thread.join().expect("judging does not panic")).collect()
    });
    let text = describe(kind, &tallies);
    println!("{text}");
    if let Some(file) = std::env::var_os("BANNERWALL_CLIENTS_REPORT") {
        std::fs::write(file, &text).expect("the file can be written");
        return;
    }
    let valid: usize = tallies.values().map(|tally| tally.valid).sum();
    let through = tallies.values().map(|tally| tally.through.len()).sum::<usize>();
    let silent = tallies.iter().flat_map(|(client, tally)| {
        let rows =
            tally.through.iter().filter(|(row, is_told)| !is_told && !SILENT.contains(&(*client, *row)));
        rows.map(|(row, _)| *row)
    });
    let silent: Vec<&str> = silent.collect();
    assert!(tallies.values().all(|tally| tally.valid > 0), "every client takes something:\n{text}");
    assert!(through * 100 <= valid * TOLERANCE, "{text}");
    assert!(silent.is_empty(), "what comes through is told: {silent:?}\n{text}");
    assert!(tallies.values().all(|tally| tally.broken.is_empty()), "{text}");
}

#[test]
fn no_ssh_client_takes_a_forbidden_identification() {
    as_root(|| hold(&SSH, &ssh_clients()));
}

#[test]
fn no_http_client_takes_a_forbidden_response() {
    as_root(|| hold(&HTTP, &http_clients()));
}
