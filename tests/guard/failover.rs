//! Two gateways of which the second takes over: what becomes of connections that the first has decided, and
//! of those that it has not, where conntrackd carries the marks, and where nobody does.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bannerwall_test_support::{Guard, Namespace, Running, as_root, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const SERVER: ([u8; 4], u16) = ([198, 51, 100, 2], 22);

/// The configuration that the guide for two gateways uses.
const CONNTRACKD: &str = include_str!("../../packaging/conntrackd.conf");

const RULES: &str = r#"
[[rule]]
id = "no-libssh"
title = "A forbidden client"
protocol = "ssh"
from = "client"
match.software = '^libssh'
action = "drop"
"#;

const ALLOWED: &[u8] = b"SSH-2.0-OpenSSH_9.9\r\n";
const FORBIDDEN: &[u8] = b"SSH-2.0-libssh_0.11\r\n";

/// How long nothing comes where something was stopped.
const SILENCE: Duration = Duration::from_millis(700);

/// Client and server, and two gateways between them: both have an interface on either side, one at a time the
/// addresses.
struct Pair {
    client: Namespace,
    server: Namespace,
    gateways: [Namespace; 2],
    listener: TcpListener,
    guards: [Guard; 2],
    daemons: Vec<Daemon>,
    _switch: Namespace,
    _folder: tempfile::TempDir,
}

impl Pair {
    /// The first gateway leads; `syncs` says whether conntrackd tells the second one of its connections.
    fn new(rules: &str, flags: &str, syncs: bool) -> Self {
        let [client, server, first, second, switch] = [(); 5].map(|()| Namespace::new());
        for bridge in ["left", "right"] {
            switch.run(&format!("ip link add {bridge} type bridge"));
            switch.run(&format!("ip link set {bridge} up"));
        }
        plug(&switch, "left", &client, "eth0", "client");
        plug(&switch, "right", &server, "eth0", "server");
        for (gateway, name) in [(&first, "a"), (&second, "b")] {
            gateway.set("ipv4/ip_forward", "1");
            plug(&switch, "left", gateway, "left", &format!("{name}-left"));
            plug(&switch, "right", gateway, "right", &format!("{name}-right"));
        }
        first.run(&format!("ip link add sync type veth peer name sync netns {}", second.id()));
        for (gateway, own) in [(&first, 1), (&second, 2)] {
            gateway.run(&format!("ip address add 203.0.113.{own}/24 dev sync"));
            gateway.run("ip link set sync up");
        }
        client.run("ip address add 192.0.2.2/24 dev eth0");
        client.run("ip route add default via 192.0.2.1");
        server.run("ip address add 198.51.100.2/24 dev eth0");
        server.run("ip route add default via 198.51.100.1");
        lead(&first);
        let guards = [&first, &second].map(|gateway| {
            let flags = format!("--hook forward --enforce {flags}");
            Guard::start(gateway, PROGRAM, rules, &flags)
        });
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut daemons = Vec::new();
        if syncs {
            for (gateway, own, other) in [(&first, 1, 2), (&second, 2, 1)] {
                daemons.push(Daemon::start(gateway, folder.path(), own, other));
            }
        }
        let listener = server.listen(SERVER);
        Self {
            client,
            server,
            gateways: [first, second],
            listener,
            guards,
            daemons,
            _switch: switch,
            _folder: folder,
        }
    }

    /// A connection, and both of its ends.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let client = self.client.connect(SERVER).expect("the gateway leads to the server");
        let (server, _) = self.listener.accept().expect("a client");
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("a socket");
        }
        (client, server)
    }

    /// The first gateway is gone and the second has its addresses, as by keepalived.
    fn fail_over(&self) {
        for interface in ["left", "right", "sync"] {
            self.gateways[0].run(&format!("ip link set {interface} down"));
        }
        lead(&self.gateways[1]);
        // As gratuitous ARP does.
        for end in [&self.client, &self.server] {
            end.run("ip neigh flush all");
        }
    }

    /// The kernel tells of a changed mark with the next packet that goes on, and of what is blocked none
    /// does: conntrackd reads all marks anew and sends them.
    fn tell_blocked(&self) {
        for what in ["-R", "-B"] {
            assert!(self.daemons[0].ask(&self.gateways[0], what), "conntrackd {what}");
        }
    }

    /// Waits until the second gateway knows of the connection with this mark.
    fn wait_known(&self, client: &TcpStream, mark: &str) {
        let port = client.local_addr().expect("it is open").port();
        let port = format!("sport={port} ");
        eventually(&format!("the second gateway to know {mark}"), || {
            let table = self.gateways[1].output("conntrack -L -p tcp").stdout;
            let table = String::from_utf8_lossy(&table).into_owned();
            table.lines().any(|line| line.contains(&port) && line.contains(mark)).then_some(())
        });
    }

    /// What the second guard has reported of the connection: types of events, and names of anomalies.
    fn told(&self, client: &TcpStream) -> Vec<String> {
        let port = client.local_addr().expect("it is open").port();
        let events = self.guards[1].events().into_iter();
        let of = |event: &serde_json::Value| {
            event["src_port"].as_u64() == Some(port.into())
                || event["dest_port"].as_u64() == Some(port.into())
        };
        let name = |event: serde_json::Value| {
            let name = event["anomaly"]["event"].as_str().or(event["event_type"].as_str());
            name.unwrap_or_default().to_owned()
        };
        events.filter(of).map(name).collect()
    }
}

/// Joins a namespace's interface to a bridge.
fn plug(switch: &Namespace, bridge: &str, end: &Namespace, interface: &str, port: &str) {
    switch.run(&format!("ip link add {port} type veth peer name {interface} netns {}", end.id()));
    switch.run(&format!("ip link set {port} master {bridge} up"));
    end.run(&format!("ip link set {interface} up"));
}

/// Gives a gateway the addresses that both ends send to.
fn lead(gateway: &Namespace) {
    gateway.run("ip address add 192.0.2.1/24 dev left");
    gateway.run("ip address add 198.51.100.1/24 dev right");
}

/// conntrackd on a gateway.
struct Daemon {
    config: PathBuf,
    _process: Running,
}

impl Daemon {
    /// Starts it by the shipped configuration, with this gateway's addresses and files.
    fn start(gateway: &Namespace, folder: &Path, own: u8, other: u8) -> Self {
        let file = |name: &str| folder.join(format!("{own}.{name}")).display().to_string();
        let text = CONNTRACKD
            .replace("203.0.113.1", "OWN")
            .replace("203.0.113.2", &format!("203.0.113.{other}"))
            .replace("OWN", &format!("203.0.113.{own}"))
            .replace("/run/lock/conntrackd.lock", &file("lock"))
            .replace("/run/conntrackd.ctl", &file("ctl"));
        let config = PathBuf::from(file("conf"));
        std::fs::write(&config, text).expect("the folder is ours");
        let mut command = gateway.command("/usr/sbin/conntrackd");
        command.arg("-C").arg(&config);
        let daemon = Self { config, _process: Running::start(command) };
        eventually("conntrackd to answer", || daemon.ask(gateway, "-s").then_some(()));
        daemon
    }

    fn ask(&self, gateway: &Namespace, what: &str) -> bool {
        let mut command = gateway.command("/usr/sbin/conntrackd");
        let output = command.arg("-C").arg(&self.config).arg(what).output();
        output.is_ok_and(|output| output.status.success())
    }
}

/// What comes until nothing has come for a while.
fn heard(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(SILENCE)).expect("a socket");
    let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        heard.extend_from_slice(&buffer[..length]);
    }
    heard
}

/// Reports of a connection that was stopped: what its other end has not acknowledged to the second guard is
/// no `drop`.
const STOPPED: [&str; 2] = ["drop", "unconfirmed_match"];

/// What came of a connection that was at some point when the second gateway took over.
#[derive(Debug)]
struct Outcome {
    /// What the server heard after it.
    heard: String,
    /// What the second guard told.
    told: Vec<String>,
}

/// Says `before`, has the second gateway take over, and says `after`.
fn across(rules: &str, flags: &str, syncs: bool, before: &[u8], after: &[u8]) -> Outcome {
    let pair = Pair::new(rules, flags, syncs);
    let (mut client, mut server) = pair.connect();
    client.write_all(before).expect("it is open");
    if !before.is_empty() {
        heard(&mut server);
    }
    if syncs {
        pair.wait_known(&client, "ESTABLISHED");
    }
    pair.fail_over();
    client.write_all(after).expect("it is open");
    let heard = String::from_utf8_lossy(&heard(&mut server)).into_owned();
    let mut told = pair.told(&client);
    if heard.is_empty() {
        // What was lost on the way is sent again, ever more rarely.
        told = eventually("the second guard to stop it", || {
            Some(pair.told(&client)).filter(|told| told.iter().any(|kind| STOPPED.contains(&kind.as_str())))
        });
    }
    Outcome { heard, told }
}

#[test]
fn decided_connections_stay_decided_where_marks_travel() {
    as_root(|| {
        for mode in ["open", "closed"] {
            let pair = Pair::new(RULES, &format!("--on-failure {mode}"), true);
            let (mut passed, mut server) = pair.connect();
            passed.write_all(ALLOWED).expect("it is open");
            assert_eq!(heard(&mut server), ALLOWED);
            server.write_all(ALLOWED).expect("it is open");
            assert_eq!(heard(&mut passed), ALLOWED);
            let (mut blocked, mut deaf) = pair.connect();
            blocked.write_all(FORBIDDEN).expect("it is open");
            assert_eq!(heard(&mut deaf), b"", "it is forbidden");
            // Ours are the two highest bits: 01 is passed, 10 is blocked.
            pair.wait_known(&passed, "mark=1073741824");
            pair.tell_blocked();
            pair.wait_known(&blocked, "mark=2147483648");
            let begun = Instant::now();
            pair.fail_over();
            passed.write_all(b"goes on").expect("it is open");
            let mut rest = [0; 7];
            server.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
            server.read_exact(&mut rest).expect("what was allowed goes on");
            let took = begun.elapsed();
            println!("{mode}: an allowed connection goes on {:.2} s after the failover", took.as_secs_f64());
            // What is sent again, and what comes new.
            blocked.write_all(b"\r\nSSH-2.0-OpenSSH_9.9\r\n").expect("it is open");
            std::thread::sleep(Duration::from_secs(3));
            assert_eq!(heard(&mut deaf), b"", "{mode}: what was blocked stays blocked");
            for (stream, what) in [(&passed, "passed"), (&blocked, "blocked")] {
                assert_eq!(
                    pair.told(stream),
                    [""; 0],
                    "{mode}: the second guard has not seen what was {what}"
                );
            }
        }
    });
}

/// How far a connection is when the second gateway takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Handshake,
    HalfABanner,
    /// Its mark has not been told.
    Blocked,
}

/// Whether the server hears what is said after the failover.
fn passes(at: At, is_forbidden: bool, judges_midstream: bool) -> bool {
    match at {
        // Nothing of the banner was missed.
        At::Handshake => !is_forbidden,
        At::HalfABanner => !judges_midstream,
        // The client sends its banner again, as nobody has acknowledged it.
        At::Blocked => false,
    }
}

#[test]
fn what_was_undecided_is_as_policies_say_of_connections_that_nobody_saw_begin() {
    as_root(|| {
        let judging = format!("{RULES}\n[[policy]]\nport = 22\nallow = \"ssh\"\nmidstream = \"judge\"\n");
        let mut cases = Vec::new();
        for (rules, judges_midstream) in [(RULES, false), (judging.as_str(), true)] {
            for flags in ["--on-failure open", "--on-failure closed"] {
                for syncs in [true, false] {
                    for (at, before, after) in [
                        (At::Handshake, &b""[..], FORBIDDEN),
                        (At::Handshake, b"", ALLOWED),
                        (At::HalfABanner, &FORBIDDEN[..12], &FORBIDDEN[12..]),
                        (At::HalfABanner, &ALLOWED[..12], &ALLOWED[12..]),
                        (At::Blocked, FORBIDDEN, b"more\r\n"),
                    ] {
                        cases.push((rules, judges_midstream, flags, syncs, at, before, after));
                    }
                }
            }
        }
        for chunk in cases.chunks(5) {
            std::thread::scope(|scope| {
                for (rules, judges_midstream, flags, syncs, at, before, after) in chunk.iter().copied() {
                    scope.spawn(move || {
                        let outcome = across(rules, flags, syncs, before, after);
                        let is_forbidden = [before, after].concat().starts_with(FORBIDDEN);
                        let said = String::from_utf8_lossy(after);
                        let heard = if passes(at, is_forbidden, judges_midstream) { &*said } else { "" };
                        let told = outcome.told.join(" ");
                        let stops = told.starts_with("alert drop");
                        let case =
                            format!("{at:?}, {said:?}, {flags}, marks travel: {syncs}, {judges_midstream}");
                        assert_eq!(outcome.heard, heard, "{case}");
                        assert!(if heard.is_empty() { stops } else { told.is_empty() }, "{case}: {told}");
                    });
                }
            });
        }
    });
}
