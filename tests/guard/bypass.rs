//! Decided flows that go by below netfilter (`guard --bypass`): client, gateway and server, each in a network
//! of its own.
//!
//! Skipped, saying so, where the kernel takes no program of eBPF on an interface at all (no tcx, or no right
//! to load it), which [`KERNEL`] finds out without the guard.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use bannerwall_test_support::{Line, Running, Signal, as_root, eventually, json_lines_so_far};
use rustix::net::sockopt::set_socket_linger;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const RULES: &str = r#"
[[rule]]
id = "no-libssh"
title = "A forbidden client"
protocol = "ssh"
from = "client"
severity = "low"
match.software = '^libssh'
action = "drop"
"#;

const ALLOWED: &[u8] = b"SSH-2.0-OpenSSH_9.9\r\n";
const FORBIDDEN: &[u8] = b"SSH-2.0-libssh_0.11\r\n";
const ANSWER: &[u8] = b"SSH-2.0-OpenSSH_9.8\r\n";

/// Asks the kernel by itself: `put` has a program that lets all go on stand on an interface, as tcx has it;
/// `count` tells how many stand there. Debian's bpftool is too old for that.
const KERNEL: &str = r"
import ctypes, errno, platform, socket, struct, sys
NUMBER = {'x86_64': 321, 'aarch64': 280}[platform.machine()]
LOAD, QUERY, LINK, CLASSIFIER, TCX_INGRESS = 5, 16, 28, 3, 46
libc = ctypes.CDLL(None, use_errno=True)

def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    return libc.syscall(NUMBER, command, buffer, 128), buffer

def put(interface):
    # r0 = -1; exit
    code = ctypes.create_string_buffer(bytes.fromhex('b7000000ffffffff9500000000000000'), 16)
    terms = ctypes.create_string_buffer(b'GPL')
    pointers = (ctypes.addressof(code), ctypes.addressof(terms))
    program, _ = bpf(LOAD, struct.pack('=IIQQ', CLASSIFIER, 2, *pointers))
    if program >= 0 and bpf(LINK, struct.pack('=IIII', program, interface, TCX_INGRESS, 0))[0] >= 0:
        return 'it does'
    sys.exit('bpf: ' + errno.errorcode[ctypes.get_errno()])

def count(interface):
    result, buffer = bpf(QUERY, struct.pack('=IIIIQI', interface, TCX_INGRESS, 0, 0, 0, 0))
    assert result >= 0 or ctypes.get_errno() == errno.ENOENT, errno.errorcode[ctypes.get_errno()]
    return struct.unpack_from('=I', buffer, 24)[0] if result >= 0 else 0

print({'put': put, 'count': count}[sys.argv[1]](socket.if_nametoindex(sys.argv[2])))
";

/// How long nothing comes where something was stopped.
const SILENCE: Duration = Duration::from_millis(700);
/// Metrics are brought up to date each second.
const SHOWN: Duration = Duration::from_millis(1500);
/// Octets of much.
const MUCH: usize = 4 << 20;

struct Scene {
    line: Line,
    guard: Running,
    folder: TempDir,
}

impl Scene {
    /// None where the kernel can't.
    fn start(flags: &str) -> Option<Self> {
        Some(Self::on(line()?, flags))
    }

    fn on(line: Line, flags: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
        // A user other than root is to read it, too.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("the folder is ours");
        let guard = Running::start(Self::command(&line, &folder, flags));
        guard.wait_stderr("the guard to be ready", |text| text.contains("ready: queue").then_some(()));
        Self { line, guard, folder }
    }

    fn command(line: &Line, folder: &TempDir, flags: &str) -> Command {
        Self::told(line.router.command(PROGRAM), folder, flags)
    }

    fn told(mut command: Command, folder: &TempDir, flags: &str) -> Command {
        command.arg("guard").arg("--rules").arg(folder.path().join("rules.toml"));
        command.args(["--enforce", "--format", "json", "--hook", "forward", "--metrics", "127.0.0.1:9464"]);
        command.args(["--bypass", "tc:left,right"]).args(flags.split_whitespace());
        command
    }

    fn metric(&self, series: &str) -> u64 {
        let output = self.line.router.output("curl -s http://127.0.0.1:9464/metrics");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{series}: {text}"))
    }

    /// Packets that came to the hook, both families.
    fn hooked(&self) -> u64 {
        let count = |program: &str| {
            let saved = self.line.router.run(&format!("{program}-save -c -t mangle"));
            let jump = saved.lines().find(|line| line.contains("-A FORWARD -p tcp -j BANNERWALL"));
            let count = jump.and_then(|line| line.strip_prefix('[')?.split(':').next()?.parse::<u64>().ok());
            count.expect("the hook is up")
        };
        count("iptables") + count("ip6tables")
    }

    fn connect(&self, listener: &TcpListener, port: u16) -> (TcpStream, TcpStream) {
        let address = listener.local_addr().expect("it listens");
        let client = self.line.client.inside(|| connect_from(port, address)).expect("the way is open");
        let (server, _) = listener.accept().expect("a client");
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("a socket");
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        }
        (client, server)
    }

    /// A connection whose both sides have said what is allowed.
    fn decided(&self, listener: &TcpListener, port: u16) -> (TcpStream, TcpStream) {
        let (mut client, mut server) = self.connect(listener, port);
        say(&mut client, &mut server, ALLOWED);
        say(&mut server, &mut client, ANSWER);
        (client, server)
    }

    /// Whether a forbidden client is not heard, and nothing of what it and its server say goes by.
    fn blocks(&self, listener: &TcpListener, port: u16) -> bool {
        let before = self.bypassed();
        let (mut client, mut server) = self.connect(listener, port);
        server.write_all(ANSWER).expect("it is open");
        client.write_all(FORBIDDEN).expect("it is open");
        client.write_all(&[7; 1000]).expect("it is open");
        let silent = is_silent(&mut server);
        let after = self.bypassed();
        for stream in [client, server] {
            vanish(stream);
        }
        silent && after == before
    }

    /// Packets that went by, as they are shown a while later.
    fn bypassed(&self) -> u64 {
        std::thread::sleep(SHOWN);
        self.metric("bannerwall_bypass_packets_total")
    }

    /// Sends much each way, and waits for the bypass to have taken all but the least; how many packets met
    /// the hook.
    fn goes_by(&self, client: &mut TcpStream, server: &mut TcpStream) -> u64 {
        let series = "bannerwall_bypass_bytes_total";
        let before = (self.metric(series), self.hooked());
        much(client, server);
        much(server, client);
        let hooked = self.hooked() - before.1;
        let most = 2 * MUCH as u64 * 9 / 10;
        eventually("octets by the bypass", || (self.metric(series) - before.0 > most).then_some(()));
        hooked
    }
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SILENCE)).expect("a socket");
    let heard = stream.read_exact(&mut [0]);
    heard.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn kernel(line: &Line, what: &str, interface: &str) -> Result<String, String> {
    let mut command = line.router.command("python3");
    let output = command.args(["-c", KERNEL, what, interface]).output().expect("nsenter starts");
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Programs on the gateway's interfaces.
fn attached(line: &Line) -> [String; 2] {
    ["left", "right"].map(|interface| kernel(line, "count", interface).expect("it can be counted"))
}

/// Three networks, where the kernel can what the bypass needs.
fn line() -> Option<Line> {
    let line = Line::new();
    match kernel(&line, "put", "left") {
        Ok(_) => return Some(line),
        Err(why) if why.starts_with("bpf: ") => {
            eprintln!("skipped: this kernel takes no program on an interface: {}", why.trim());
        }
        Err(why) => panic!("the question itself failed: {why}"),
    }
    None
}

/// What is sent comes to the other end.
fn say(from: &mut TcpStream, to: &mut TcpStream, octets: &[u8]) {
    from.write_all(octets).expect("it is open");
    let mut heard = vec![0; octets.len()];
    to.read_exact(&mut heard).expect("it comes");
    assert_eq!(heard, octets);
}

fn much(from: &mut TcpStream, to: &mut TcpStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![5; MUCH]).expect("it is open"));
        let mut heard = vec![0; MUCH];
        to.read_exact(&mut heard).expect("all of it comes");
        assert!(heard.iter().all(|octet| *octet == 5));
    });
}

fn connect_from(port: u16, to: SocketAddr) -> std::io::Result<TcpStream> {
    let domain = if to.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    let from: SocketAddr = if to.is_ipv4() { ([0; 4], port).into() } else { ([0u16; 8], port).into() };
    socket.bind(&from.into())?;
    socket.connect_timeout(&to.into(), Duration::from_secs(20))?;
    Ok(socket.into())
}

/// Ends by a reset.
fn vanish(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
    drop(stream);
}

fn closes_cleanly(mut client: TcpStream, mut server: TcpStream) {
    client.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert_eq!(server.read(&mut [0; 8]).expect("an end"), 0);
    say(&mut server, &mut client, b"the last word");
    drop(server);
    assert_eq!(client.read(&mut [0; 8]).expect("an end"), 0);
}

const V4: ([u8; 4], u16) = ([198, 51, 100, 2], 22);

#[test]
fn decided_flows_go_by_below_netfilter_and_end_cleanly() {
    as_root(|| {
        for flags in ["", "--user nobody", "--no-sandbox"] {
            let Some(mut scene) = Scene::start(flags) else { return };
            let v6: SocketAddr = format!("[{}]:22", Line::SERVER_V6).parse().expect("an address");
            for address in [V4.into(), v6] {
                let listener = scene.line.server.listen(address);
                let (mut client, mut server) = scene.decided(&listener, 0);
                let hooked = scene.goes_by(&mut client, &mut server);
                assert!(hooked < 60, "{flags} {address}: {hooked} packets met the hook");
                closes_cleanly(client, server);
                assert!(scene.blocks(&listener, 0), "{flags} {address}");
            }
            assert_eq!(scene.metric("bannerwall_bypass_flows_total"), 2);
            assert_eq!(scene.metric("bannerwall_bypass_up"), 1);
            assert_eq!(attached(&scene.line), ["1", "1"]);
            scene.guard.signal(Signal::TERM);
            assert_eq!(scene.guard.wait_exit().code(), Some(0), "{}", scene.guard.stderr());
            assert_eq!(attached(&scene.line), ["0", "0"]);
        }
    });
}

#[test]
fn another_connection_with_the_same_ports_is_judged_anew() {
    as_root(|| {
        let Some(scene) = Scene::start("") else { return };
        let listener = scene.line.server.listen(V4);
        for port in [40_000, 40_001] {
            let (mut client, mut server) = scene.decided(&listener, port);
            scene.goes_by(&mut client, &mut server);
            if port == 40_000 {
                vanish(client);
                vanish(server);
            } else {
                // Nobody between the two learns of the end.
                let mute = |what: &str| {
                    for end in [&scene.line.client, &scene.line.server] {
                        end.run(&format!("iptables -w {what} OUTPUT -p tcp --tcp-flags RST RST -j DROP"));
                    }
                };
                mute("-A");
                vanish(client);
                vanish(server);
                mute("-D");
            }
            assert!(scene.blocks(&listener, port), "{port}");
            let (mut client, mut server) = scene.decided(&listener, port);
            scene.goes_by(&mut client, &mut server);
        }
    });
}

#[test]
fn nothing_of_a_flow_that_is_not_decided_goes_by() {
    as_root(|| {
        let Some(scene) = Scene::start("") else { return };
        let listener = scene.line.server.listen(V4);
        // Half a banner each, and resets with its ports that neither end takes.
        let (mut client, mut server) = scene.connect(&listener, 40_000);
        say(&mut server, &mut client, &ANSWER[..9]);
        say(&mut client, &mut server, &FORBIDDEN[..9]);
        for flags in ["rst", "rst,ack", "ack", "fin,ack"] {
            let words = format!(
                "nping --tcp -g 40000 -p 22 --flags {flags} --seq 5 -c 30 --rate 200 -H -N 198.51.100.2"
            );
            scene.line.client.run(&words);
        }
        server.write_all(&ANSWER[9..]).expect("it is open");
        client.write_all(&FORBIDDEN[9..]).expect("it is open");
        client.write_all(&[7; 1000]).expect("it is open");
        assert!(is_silent(&mut server));
        assert!(scene.blocks(&listener, 40_001));
        assert!(scene.blocks(&listener, 40_001), "the same ports once more");
        assert_eq!(scene.bypassed(), 0);
        assert_eq!(scene.metric("bannerwall_bypass_flows_total"), 0);
    });
}

#[test]
fn only_plain_segments_go_by() {
    as_root(|| {
        let Some(scene) = Scene::start("") else { return };
        let listener = scene.line.server.listen(V4);
        let (mut client, mut server) = scene.decided(&listener, 40_000);
        scene.goes_by(&mut client, &mut server);
        // Nobody answers what is made up, and what comes has taken one hop.
        let count = "INPUT -p tcp --sport 40000 -m ttl --ttl-eq 63 -j DROP";
        scene.line.server.run(&format!("iptables -w -I {count}"));
        let sent = |options: &str| {
            let before = scene.bypassed();
            let words =
                format!("nping --tcp -g 40000 -p 22 --seq 5 -c 20 --rate 200 -H -N {options} 198.51.100.2");
            scene.line.client.run(&words);
            scene.bypassed() - before
        };
        assert_eq!(sent("--flags ack"), 20);
        let listed = scene.line.server.run("iptables -w -nvxL INPUT");
        assert!(listed.lines().any(|line| line.trim().starts_with("20 ")), "{listed}");
        for odd in [
            "--flags ack --ttl 1",
            "--flags ack --ip-options R",
            "--flags ack --data-length 200 --mtu 64",
            "--flags ack,urg",
        ] {
            assert_eq!(sent(odd), 0, "{odd}");
        }
        assert_eq!(sent("--flags ack"), 20, "the flow is still known");
        for odd in ["--flags syn", "--flags rst", "--flags fin,ack"] {
            assert_eq!(sent(odd), 0, "{odd}");
        }
        assert_eq!(sent("--flags ack"), 0, "an end has taken it away");
    });
}

#[test]
fn a_narrower_way_is_found_by_what_goes_by() {
    as_root(|| {
        let Some(scene) = Scene::start("") else { return };
        let listener = scene.line.server.listen(V4);
        let (mut client, mut server) = scene.decided(&listener, 0);
        scene.goes_by(&mut client, &mut server);
        scene.line.server.run("ip link set eth0 mtu 1000");
        scene.line.router.run("ip link set right mtu 1000");
        scene.goes_by(&mut client, &mut server);
        closes_cleanly(client, server);
    });
}

#[test]
fn forged_resets_cost_a_flow_nothing_but_its_short_way() {
    as_root(|| {
        let Some(scene) = Scene::start("") else { return };
        let listener = scene.line.server.listen(V4);
        let (mut client, mut server) = scene.decided(&listener, 40_000);
        scene.goes_by(&mut client, &mut server);
        let flood = "nping --tcp -g 40000 -p 22 --flags rst --seq 5 -c 400 --rate 400 -H -N 198.51.100.2";
        let mut flood_command = scene.line.client.command("sh");
        flood_command.args(["-c", flood]);
        let mut flood = Running::start(flood_command);
        for _ in 0..4 {
            much(&mut client, &mut server);
            much(&mut server, &mut client);
        }
        assert!(scene.blocks(&listener, 0));
        assert!(flood.wait_exit().success(), "{}", flood.stderr());
        closes_cleanly(client, server);
        assert!(scene.blocks(&listener, 40_000), "its own ports");
    });
}

#[test]
fn flows_that_find_no_room_go_by_the_hook() {
    as_root(|| {
        let Some(scene) = Scene::start("--bypass-flows 1") else { return };
        let listener = scene.line.server.listen(V4);
        let mut flows: Vec<_> = (0..12).map(|_| scene.decided(&listener, 0)).collect();
        for (client, server) in &mut flows {
            much(client, server);
            much(server, client);
        }
        assert!(scene.blocks(&listener, 0));
        flows.into_iter().for_each(|(client, server)| closes_cleanly(client, server));
    });
}

#[test]
fn rules_that_are_read_again_leave_decided_flows_alone_and_are_in_force_for_others() {
    as_root(|| {
        let Some(scene) = Scene::start("") else { return };
        let listener = scene.line.server.listen(V4);
        let (mut client, mut server) = scene.decided(&listener, 40_000);
        let rules = RULES.replace("'^libssh'", "'^(libssh|OpenSSH_9.9)'");
        std::fs::write(scene.folder.path().join("rules.toml"), rules).expect("the folder is ours");
        scene.guard.signal(Signal::HUP);
        scene.guard.wait_stderr("the new rules", |text| text.contains("reloaded").then_some(()));
        // As with those that the kernel lets by for their mark.
        scene.goes_by(&mut client, &mut server);
        vanish(client);
        vanish(server);
        for port in [0, 40_000] {
            let before = scene.bypassed();
            let (mut client, mut server) = scene.connect(&listener, port);
            server.write_all(ANSWER).expect("it is open");
            client.write_all(ALLOWED).expect("it is open");
            assert!(is_silent(&mut server), "it is forbidden now");
            assert_eq!(scene.bypassed(), before);
        }
    });
}

#[test]
fn a_killed_guard_leaves_nothing_and_its_flows_stay_decided() {
    as_root(|| {
        // Who is not decided does not get through where nobody judges.
        let Some(mut scene) = Scene::start("--hook-keep --on-failure closed") else { return };
        let listener = scene.line.server.listen(V4);
        let (mut client, mut server) = scene.decided(&listener, 0);
        scene.goes_by(&mut client, &mut server);
        assert_eq!(attached(&scene.line), ["1", "1"]);
        scene.guard.signal(Signal::KILL);
        scene.guard.wait_exit();
        eventually("the programs to be gone", || (attached(&scene.line) == ["0", "0"]).then_some(()));
        much(&mut client, &mut server);
        much(&mut server, &mut client);
        let again =
            Running::start(Scene::command(&scene.line, &scene.folder, "--hook-keep --on-failure closed"));
        again.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        much(&mut server, &mut client);
        closes_cleanly(client, server);
        scene.guard = again;
        assert!(scene.blocks(&listener, 0));
        let (mut client, mut server) = scene.decided(&listener, 0);
        scene.goes_by(&mut client, &mut server);
    });
}

#[test]
fn a_guard_that_takes_over_has_its_own_bypass_and_the_flows_of_the_old_one_go_on() {
    as_root(|| {
        let sockets = TempDir::new().expect("a temporary folder");
        let flags = format!("--takeover {}", sockets.path().join("next.sock").display());
        let Some(mut scene) = Scene::start(&flags) else { return };
        let listener = scene.line.server.listen(V4);
        let (mut client, mut server) = scene.decided(&listener, 0);
        scene.goes_by(&mut client, &mut server);
        let next = Running::start(Scene::command(&scene.line, &scene.folder, &flags));
        next.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        let mut old = std::mem::replace(&mut scene.guard, next);
        assert_eq!(old.wait_exit().code(), Some(0), "{}", old.stderr());
        assert_eq!(attached(&scene.line), ["1", "1"]);
        much(&mut client, &mut server);
        much(&mut server, &mut client);
        closes_cleanly(client, server);
        assert!(scene.blocks(&listener, 0));
        let (mut client, mut server) = scene.decided(&listener, 0);
        scene.goes_by(&mut client, &mut server);
    });
}

#[test]
fn another_user_has_a_bypass_by_two_capabilities_more() {
    as_root(|| {
        let Some(Scene { line, mut guard, folder }) = Scene::start("") else { return };
        guard.signal(Signal::TERM);
        assert!(guard.wait_exit().success(), "{}", guard.stderr());
        // Whether there are legacy rules; a kernel without them has no such file.
        line.router.output("chmod 444 /proc/net/ip_tables_names /proc/net/ip6_tables_names");
        let as_nobody = |capabilities: &str| {
            let mut command = line.router.command("setpriv");
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
            for set in ["inh", "ambient"] {
                command.arg(format!("--{set}-caps=-all,+net_admin,+net_raw{capabilities}"));
            }
            command.arg(PROGRAM);
            Running::start(Scene::told(command, &folder, ""))
        };
        let mut refused = as_nobody("");
        assert_eq!(refused.wait_exit().code(), Some(3), "{}", refused.stderr());
        assert!(refused.stderr().contains("CAP_BPF"), "{}", refused.stderr());
        let guard = as_nobody(",+bpf,+perfmon");
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        assert_eq!(attached(&line), ["1", "1"]);
    });
}

#[test]
fn the_object_is_what_its_source_makes() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/bypass-object");
    let output = Command::new(script).arg("--check").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.starts_with("skipped") {
        eprintln!("{said}");
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_bypass_is_refused_where_it_would_skip_others() {
    as_root(|| {
        for (neighbour, told) in [
            ("iptables -w -t nat -A POSTROUTING -o right -j MASQUERADE", "address translation"),
            (
                "iptables-legacy -w -t nat -A POSTROUTING -o right -j MASQUERADE",
                "iptables-legacy's table nat",
            ),
            ("ip6tables -w -A FORWARD -s 2001:db8:7::/64 -j DROP", "chain FORWARD"),
            ("ip rule add fwmark 7 table 7", "routing rules"),
            ("ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir fwd", "IPsec"),
            ("tc qdisc add dev left clsact", "filters of `tc`"),
            ("ip link add br0 type bridge", "which interface left belongs to"),
        ] {
            let Some(line) = line() else { return };
            if !line.router.output(neighbour).status.success() {
                eprintln!("skipped: this kernel has none of `{neighbour}`");
                continue;
            }
            if neighbour.contains("bridge") {
                line.router.run("ip link set left master br0");
            }
            let folder = TempDir::new().expect("a temporary folder");
            std::fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
            let output = Scene::command(&line, &folder, "").output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{neighbour}: {said}");
            assert!(said.contains(told), "{neighbour}: {said}");
            let doctor = line.router.output(&format!("{PROGRAM} doctor"));
            let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
            let told_there = doctor.lines().any(|line| line.contains("bypass") && line.contains("refused"));
            assert!(
                told_there || neighbour.contains("left") || neighbour.contains("br0"),
                "{neighbour}: {doctor}"
            );
        }
    });
}

#[test]
fn a_connection_that_is_translated_goes_by_the_hook_though_the_rule_is_gone() {
    as_root(|| {
        let Some(line) = line() else { return };
        line.router.run("iptables -w -t nat -A POSTROUTING -o right -j MASQUERADE");
        let listener = line.server.listen(V4);
        let to = listener.local_addr().expect("it listens");
        let mut client = line.client.inside(|| connect_from(0, to)).expect("the way is open");
        let (mut server, _) = listener.accept().expect("a client");
        line.router.run("iptables -w -t nat -F POSTROUTING");
        let scene = Scene::on(line, "");
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        }
        say(&mut client, &mut server, ALLOWED);
        say(&mut server, &mut client, ANSWER);
        much(&mut client, &mut server);
        much(&mut server, &mut client);
        assert_eq!(scene.bypassed(), 0);
        // Another one is not.
        let (mut client, mut server) = scene.decided(&listener, 0);
        scene.goes_by(&mut client, &mut server);
    });
}

#[test]
fn a_bypass_ends_when_a_neighbour_comes() {
    as_root(|| {
        let Some(scene) = Scene::start("--user nobody") else { return };
        let listener = scene.line.server.listen(V4);
        let (mut client, mut server) = scene.decided(&listener, 0);
        scene.goes_by(&mut client, &mut server);
        scene.line.router.run("iptables -w -A FORWARD -s 203.0.113.7 -j DROP");
        scene.guard.wait_stdout("an event", |text| text.contains("\"state\":\"bypass_off\"").then_some(()));
        assert_eq!(scene.metric("bannerwall_bypass_up"), 0);
        assert_eq!(attached(&scene.line), ["0", "0"]);
        let events = json_lines_so_far(scene.guard.stdout().as_bytes());
        assert!(events.iter().any(|event| event["event_type"] == "hook"));
        let before = (scene.bypassed(), scene.hooked());
        much(&mut client, &mut server);
        much(&mut server, &mut client);
        assert_eq!(scene.bypassed(), before.0);
        assert!(scene.hooked() > before.1 + 20);
        assert!(scene.blocks(&listener, 0));
        closes_cleanly(client, server);
    });
}

#[test]
fn a_bypass_ends_when_an_interface_is_another_one() {
    as_root(|| {
        let Some(scene) = Scene::start("") else { return };
        assert_eq!(scene.metric("bannerwall_bypass_up"), 1);
        // Nobody looks between the two.
        scene.guard.signal(Signal::STOP);
        scene.line.router.run("ip link delete left");
        scene.line.router.run("ip link add left type veth peer name other");
        scene.guard.signal(Signal::CONT);
        let told = |text: &str| text.contains("\"state\":\"bypass_off\"").then_some(());
        scene.guard.wait_stdout("an event", told);
        let said = scene.guard.stdout();
        assert!(said.contains("interface left, which was recreated"), "{said}");
        eventually("the metric", || (scene.metric("bannerwall_bypass_up") == 0).then_some(()));
    });
}
