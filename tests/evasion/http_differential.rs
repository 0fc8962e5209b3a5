//! What real servers take for requests against what the engine judges, over bent requests.
//!
//! Each bent request of a forbidden client, by a table or by chance, is sent to real servers, whose
//! application says which agent it was told. A request that an application acted on has to be blocked by
//! an enforcing engine, or to be told as an event where its server is one in fifty; the same request of
//! an allowed client must not be blocked.
//!
//! `BANNERWALL_HTTP_MUTANTS` is the number of mutants (default 500), `BANNERWALL_HTTP_FIRST` the first
//! seed, and `BANNERWALL_HTTP_REPORT` a file for all that came through, instead of a failure.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use bannerwall_inspect::engine::{ChecksumState, Decision, Engine, EngineConfig, PacketInput};
use bannerwall_inspect::event::{Event, EventKind, Timestamp};
use bannerwall_inspect::rules::RuleSet;
use bannerwall_test_support::mutants::{AGENT, mutant};
use bannerwall_test_support::raw::{Cargo, Flags, Packet};
use bannerwall_test_support::{Apache, Namespace, Nginx, Running, as_root, wait_listening};

use crate::requests::REQUESTS;

/// Requests that are under way at once.
const LANES: usize = 96;

/// How long a server may think before the client says that nothing more will come.
const PATIENCE: Duration = Duration::from_millis(300);

/// How long it may think then.
const REST: Duration = Duration::from_millis(700);

/// What of a server's requests may come through unseen, in percent.
const TOLERANCE: usize = 2;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(format!("BANNERWALL_HTTP_{name}")).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("BANNERWALL_HTTP_{name} is a number")))
}

/// The real servers by name and port, for as long as the value lives.
struct Servers {
    ports: Vec<(&'static str, u16)>,
    _processes: Vec<Running>,
    _nginx: Nginx,
    _apache: Apache,
}

impl Servers {
    fn start(namespace: &Namespace) -> Self {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/servers");
        let nginx = Nginx::start(
            namespace,
            8000,
            "location / { return 200 \"saw $request_method $request_uri $http_user_agent\\n\"; }",
        );
        let apache = Apache::start_with(
            namespace,
            8001,
            "LoadModule headers_module /usr/lib/apache2/modules/mod_headers.so\n\
             Header always set X-Saw \"expr=saw %{REQUEST_METHOD} - %{HTTP_USER_AGENT}\"",
        );
        let mut ports = vec![("nginx", 8000), ("apache2", 8001)];
        let mut processes = Vec::new();
        let python = ["http.server", "wsgiref", "gunicorn", "tornado", "aiohttp", "twisted"];
        for (name, port) in python.into_iter().zip(8002..) {
            let mut command = namespace.command("/usr/bin/python3");
            command.arg(data.join("heads.py")).arg(name).arg(port.to_string());
            processes.push(Running::start(command));
            ports.push((name, port));
        }
        let mut node = namespace.command("node");
        node.arg(data.join("heads.js")).arg("8010");
        processes.push(Running::start(node));
        let mut go = namespace.command(go_server(&data));
        go.arg("8011");
        processes.push(Running::start(go));
        ports.extend([("node", 8010), ("go", 8011)]);
        for (_, port) in &ports {
            wait_listening(namespace, *port);
        }
        Self { ports, _processes: processes, _nginx: nginx, _apache: apache }
    }
}

/// Builds Go's server; the compiler's cache stays with the tests' other files.
fn go_server(data: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join("heads");
    let output = Command::new("go")
        // Go's own packages as well: to optimise them takes longer than all that they do here.
        .args(["build", "-gcflags=all=-N -l", "-o"])
        .arg(&program)
        .arg(data.join("heads.go"))
        .env("GOCACHE", folder.join("go"))
        .env("GO111MODULE", "off")
        .output()
        .expect("go is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// When an application acted on a forbidden request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acted {
    AtOnce,
    /// Only when the client had said that nothing more would come.
    AtEnd,
}

/// Sends octets and tells whether the application was told of the forbidden agent.
fn ask(port: u16, octets: &[u8]) -> std::io::Result<Option<Acted>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    // A server may answer and close before it has read all.
    let _ = stream.write_all(octets);
    let mut answer = Vec::new();
    if has_answered(&mut stream, &mut answer, PATIENCE)? {
        return Ok(names_agent(&answer).then_some(Acted::AtOnce));
    }
    let _ = stream.shutdown(Shutdown::Write);
    has_answered(&mut stream, &mut answer, REST)?;
    Ok(names_agent(&answer).then_some(Acted::AtEnd))
}

/// Reads until the application has spoken, or the connection or time ends.
fn has_answered(stream: &mut TcpStream, answer: &mut Vec<u8>, patience: Duration) -> std::io::Result<bool> {
    let deadline = Instant::now() + patience;
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(_) => return Ok(true),
        }
        if saw(answer).is_some() {
            return Ok(true);
        }
    }
}

/// The first line that an application said of a request.
fn saw(answer: &[u8]) -> Option<&[u8]> {
    let start = answer.windows(4).position(|window| window == b"saw ")?;
    let rest = &answer[start..];
    rest.iter().position(|octet| *octet == b'\n').map(|end| &rest[..end])
}

fn names_agent(answer: &[u8]) -> bool {
    // Apache tells of requests that it refuses, too.
    let is_refused = answer.get(9..12).is_some_and(|status| status == b"400" || status[0] == b'5');
    let Some(agent) = saw(answer).and_then(|line| line.splitn(4, |octet| *octet == b' ').nth(3)) else {
        return false;
    };
    let decoded: Option<Vec<u8>> = agent
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect();
    let agent = decoded.filter(|octets| !octets.is_empty()).unwrap_or_else(|| agent.to_vec());
    !is_refused && agent.trim_ascii_start().starts_with(&AGENT[..7])
}

static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    Arc::new(RuleSet::parse("http.toml", Cargo::RULES).expect("rules without errors").rules)
});

/// What an enforcing engine makes of a client's octets.
struct Judged {
    /// Whether it stops them.
    at_once: bool,
    /// Whether it stops them, or what ends them.
    at_end: bool,
    /// Whether it tells anything odd.
    is_told: bool,
}

fn judge(octets: &[u8]) -> Judged {
    let config = EngineConfig { enforce: true, flow_limit: 16, ..EngineConfig::default() };
    let mut engine = Engine::new(config, Arc::clone(&RULES), None);
    let mut events: Vec<Event> = Vec::new();
    let mut now = Timestamp::from_nanos(1_000_000_000_000);
    let client = SocketAddr::from(([192, 0, 2, 1], 40_000));
    let server = SocketAddr::from(([198, 51, 100, 2], 80));
    let mut show = |packet: &Packet| {
        now = now.after(Duration::from_millis(1));
        let ip = packet.build();
        let input = PacketInput {
            now,
            ip: &ip,
            wire_length: ip.len(),
            checksums: ChecksumState::Verify,
            interface: None,
            vlan: &[],
            packet_number: None,
        };
        matches!(engine.inspect(&input, &mut events).decision, Decision::Block | Decision::Reject(_))
    };
    let (mut sent, answered) = (1_001_u32, 5_001_u32);
    let segment = |sequence: u32, flags: u8, payload: &[u8]| {
        let mut packet = Packet::new(client, server).flags(flags);
        (packet.sequence, packet.acknowledgement) = (sequence, answered);
        packet.payload = payload.to_vec();
        packet
    };
    show(&Packet { acknowledgement: 0, ..segment(sent - 1, Flags::SYN, b"") });
    let mut answer = Packet::new(server, client).flags(Flags::SYN | Flags::ACK);
    (answer.sequence, answer.acknowledgement) = (answered - 1, sent);
    show(&answer);
    show(&segment(sent, Flags::ACK, b""));
    let mut is_stopped = false;
    for part in octets.chunks(1_400) {
        is_stopped |= show(&segment(sent, Flags::ACK | Flags::PSH, part));
        sent = sent.wrapping_add(u32::try_from(part.len()).expect("a segment"));
        let mut acknowledgement = Packet::new(server, client).flags(Flags::ACK);
        (acknowledgement.sequence, acknowledgement.acknowledgement) = (answered, sent);
        show(&acknowledgement);
    }
    let at_end = is_stopped || show(&segment(sent, Flags::ACK | Flags::FIN, b""));
    let is_told =
        events.iter().any(|event| matches!(event.kind, EventKind::Anomaly(_) | EventKind::Alert(_)));
    Judged { at_once: is_stopped, at_end, is_told }
}

/// What came of a server's requests.
#[derive(Default)]
struct Tally {
    acted: usize,
    through: Vec<u64>,
    /// Those of which no event tells anything odd.
    silent: Vec<u64>,
    /// By what was done to the request.
    classes: BTreeMap<Vec<&'static str>, usize>,
}

fn allowed(octets: &[u8]) -> Vec<u8> {
    let mut octets = octets.to_vec();
    let mut at = 0;
    while let Some(place) = octets[at..].windows(6).position(|window| window == b"sqlmap") {
        octets[at + place..at + place + 6].copy_from_slice(b"honest");
        at += place + 6;
    }
    octets
}

/// The request of a number, and what was done to it.
type Bent<'a> = &'a (dyn Fn(u64) -> (Vec<u8>, Vec<&'static str>) + Sync);

/// Sends all requests to all servers: tallies by server, and allowed ones that were blocked.
fn compare(
    servers: &Servers,
    bent: Bent<'_>,
    first: u64,
    count: u64,
) -> (BTreeMap<&'static str, Tally>, Vec<u64>) {
    let next = AtomicU64::new(first);
    let results = Mutex::new((BTreeMap::<&'static str, Tally>::new(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let (octets, bends) = bent(seed);
                    let judged = judge(&octets);
                    let is_broken = judge(&allowed(&octets)).at_once;
                    let acted = servers.ports.iter().filter_map(|(name, port)| {
                        let acted = ask(*port, &octets).unwrap_or(None)?;
                        Some((*name, acted))
                    });
                    let acted: Vec<_> = acted.collect();
                    let (tallies, broken) = &mut *results.lock().expect("no lane panics");
                    if is_broken && !acted.is_empty() {
                        broken.push(seed);
                    }
                    for (name, acted) in acted {
                        let tally = tallies.entry(name).or_default();
                        tally.acted += 1;
                        if !(if acted == Acted::AtOnce { judged.at_once } else { judged.at_end }) {
                            tally.through.push(seed);
                            tally.silent.extend((!judged.is_told).then_some(seed));
                            *tally.classes.entry(bends.clone()).or_default() += 1;
                        }
                    }
                }
            });
        }
    });
    results.into_inner().expect("no lane panics")
}

fn describe(tallies: &BTreeMap<&'static str, Tally>, bent: Bent<'_>) -> String {
    let mut text = String::new();
    for (name, tally) in tallies {
        let (through, acted) = (tally.through.len(), tally.acted);
        text.push_str(&format!(
            "{name}: acted on {acted} forbidden requests, {through} of them not blocked, {} silent\n",
            tally.silent.len()
        ));
        let mut classes: Vec<_> = tally.classes.iter().collect();
        classes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (bends, count) in classes.iter().take(12) {
            text.push_str(&format!("    {count} × {}\n", bends.join(" + ")));
        }
        for seed in tally.through.iter().take(6) {
            let (octets, _) = bent(*seed);
            let shown = octets[..octets.len().min(200)].escape_ascii().to_string();
            text.push_str(&format!("    seed {seed}, {} octets: {shown}\n", octets.len()));
        }
    }
    text
}

fn hold(name: &str, bent: Bent<'_>, first: u64, count: u64) {
    let namespace = Namespace::new();
    let servers = Servers::start(&namespace);
    let (tallies, broken) = namespace.inside(|| compare(&servers, bent, first, count));
    let text = describe(&tallies, bent);
    let sum = |count: fn(&Tally) -> usize| tallies.values().map(count).sum::<usize>();
    println!(
        "{count} {name}: {} acted on, {} not blocked; allowed ones blocked: {} {broken:?}\n{text}",
        sum(|tally| tally.acted),
        sum(|tally| tally.through.len()),
        broken.len()
    );
    assert_eq!(tallies.len(), servers.ports.len(), "every server answers:\n{text}");
    if let Some(file) = std::env::var_os("BANNERWALL_HTTP_REPORT") {
        std::fs::write(file, &text).expect("the file can be written");
        return;
    }
    assert!(broken.is_empty(), "allowed requests were blocked: {broken:?}");
    for tally in tallies.values() {
        assert!(tally.through.len() * 100 <= tally.acted * TOLERANCE, "{text}");
        assert!(tally.silent.is_empty(), "{text}");
    }
}

#[test]
fn no_request_that_a_server_acts_on_goes_unseen() {
    let (first, count) = (number("FIRST").unwrap_or(0), number("MUTANTS").unwrap_or(500));
    let bent = |seed| {
        let mutant = mutant(seed);
        (mutant.octets, mutant.bends)
    };
    as_root(|| hold("mutants", &bent, first, count));
}

#[test]
fn no_crooked_request_that_a_server_acts_on_goes_unseen() {
    let bent = |number: u64| {
        let row = REQUESTS[usize::try_from(number).expect("a row")];
        ((row.octets)(), vec![row.name])
    };
    as_root(|| hold("crooked requests", &bent, 0, REQUESTS.len() as u64));
}
