//! A guard on a bridge without an address, a bump in the wire: both ends of what it rejects are reset,
//! whatever VLAN they are in, and events tell what became of the resets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bannerwall_ffi::packet_socket::{BpfInstruction, FrameSocket};
use bannerwall_test_support::{Guard, Line, Namespace, Signal, as_root, eventually, forbids};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// What a forbidden server says.
const FORBIDDEN: &[u8] = b"SSH-2.0-OldSSH_1.0\r\n";

const RULES: &str = r#"
[[rule]]
id = "old-ssh"
title = "A forbidden server"
protocol = "ssh"
from = "server"
match.software = '^OldSSH_'
action = "reject"
severity = "high"
examples = ["SSH-2.0-OldSSH_1.0"]
counterexamples = ["SSH-2.0-OpenSSH_9.8"]
"#;

/// Blocked flows for each family: less than a guard resets at once, together.
const FLOWS: usize = 104;

/// How long an end waits for its reset before it counts as one that got none.
const PATIENCE: Duration = Duration::from_secs(10);

const ENDS: [(&str, &str); 2] = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];

/// Lets every frame by, whole.
const EVERYTHING: [BpfInstruction; 1] = [BpfInstruction(0x06, 0, 0, u32::MAX)];

/// client — bridge — server: one network, with a bridge between that has no address.
struct Bump {
    client: Namespace,
    bridge: Namespace,
    server: Namespace,
    /// Between the ends and the bridge, where there is something.
    wires: Option<Namespace>,
}

impl Bump {
    /// The ends at the ports themselves.
    fn new() -> Option<Self> {
        let bump = Self::unwired(None)?;
        for (end, port) in [(&bump.client, "left"), (&bump.server, "right")] {
            bump.bridge.run(&format!("ip link add {port} type veth peer name eth0 netns {}", end.id()));
        }
        bump.bring_up();
        Some(bump)
    }

    /// The ends behind wires that have to be soldered: `left-end` and `left-port`, `right-end` and
    /// `right-port`.
    fn with_open_wires() -> Option<Self> {
        let bump = Self::unwired(Some(Namespace::new()))?;
        let wires = bump.wires.as_ref().expect("made above");
        for (end, port) in [(&bump.client, "left"), (&bump.server, "right")] {
            wires.run(&format!("ip link add {port}-end type veth peer name eth0 netns {}", end.id()));
            wires.run(&format!(
                "ip link add {port}-port type veth peer name {port} netns {}",
                bump.bridge.id()
            ));
            // What is copied by a program has to have its checksums, and to be no larger than a frame.
            end.run("ethtool -K eth0 tx off tso off gso off");
            for wire in ["end", "port"] {
                wires.run(&format!("ip link set {port}-{wire} up"));
            }
        }
        bump.bring_up();
        Some(bump)
    }

    fn unwired(wires: Option<Namespace>) -> Option<Self> {
        let bump =
            Self { client: Namespace::new(), bridge: Namespace::new(), server: Namespace::new(), wires };
        if !bump.bridge.inside(|| Path::new("/proc/sys/net/bridge").is_dir()) {
            eprintln!("skipped: this kernel has no br_netfilter");
            return None;
        }
        for setting in ["iptables", "ip6tables"] {
            bump.bridge.set(&format!("bridge/bridge-nf-call-{setting}"), "1");
        }
        // Not even one of its own making: the bridge has no address at all.
        bump.bridge.set("ipv6/conf/default/disable_ipv6", "1");
        Some(bump)
    }

    fn bring_up(&self) {
        self.bridge.run("ip link add br0 type bridge");
        self.bridge.run("ip link set br0 up");
        for port in ["left", "right"] {
            self.bridge.run(&format!("ip link set {port} master br0 up"));
        }
        for (end, [v4, v6]) in
            [(&self.client, [ENDS[0].0, ENDS[1].0]), (&self.server, [ENDS[0].1, ENDS[1].1])]
        {
            end.run("ip link set eth0 up");
            end.run(&format!("ip address add {v4}/24 dev eth0"));
            end.run(&format!("ip address add {v6}/64 dev eth0 nodad"));
        }
        assert!(!self.bridge.run("ip address show dev br0").contains("inet"), "a bridge without an address");
    }

    fn guard(&self, flags: &str) -> Guard {
        Guard::start(&self.bridge, PROGRAM, RULES, &format!("--hook forward --enforce {flags}"))
    }

    /// A connection, both ends of it.
    fn connect(&self, server: &str) -> [TcpStream; 2] {
        self.connect_to(server, 0)
    }

    fn connect_to(&self, server: &str, port: u16) -> [TcpStream; 2] {
        let address = SocketAddr::new(server.parse().expect("an address"), port);
        let listener = self.server.listen(address);
        let address = listener.local_addr().expect("it is bound");
        let client = self.client.connect(address).expect("the bridge lets it by");
        let (server, _) = listener.accept().expect("the client has connected");
        [client, server]
    }

    /// Has `flows` servers of each family say what is forbidden, and looks that both ends are reset.
    fn assert_reset(&self, guard: &Guard, flows: usize) {
        let served = ENDS.iter().flat_map(|(_, server)| (0..flows).map(|_| self.connect(server)));
        for mut ends in served.collect::<Vec<_>>() {
            say_forbidden(&mut ends);
        }
        let told = eventually("an event for each flow", || {
            let drops: Vec<_> = guard.events().into_iter().filter(|it| it["event_type"] == "drop").collect();
            (drops.len() >= 2 * flows).then_some(drops)
        });
        assert_eq!(told.len(), 2 * flows);
        for event in told {
            assert_eq!(event["verdict"]["reject_target"], "both", "{event}");
            assert_eq!(event["in_iface"], "right", "the port of the server: {event}");
            let resets = &event["bannerwall"]["resets"];
            assert_eq!([&resets["to_client"], &resets["to_server"]], ["bridged", "bridged"], "{event}");
        }
    }
}

/// Has the server of a connection say what is forbidden; both ends are reset.
fn say_forbidden(ends: &mut [TcpStream; 2]) {
    say(FORBIDDEN, ends);
}

/// Has the server say this, which is the last of what is forbidden.
fn say(octets: &[u8], ends: &mut [TcpStream; 2]) {
    ends[1].write_all(octets).expect("the connection is up");
    for (end, name) in ends.iter_mut().zip(["client", "server"]) {
        end.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let error = end.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(error, Err(ErrorKind::ConnectionReset), "the {name}'s end");
    }
}

fn stop(mut guard: Guard) {
    guard.process.signal(Signal::TERM);
    assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
}

#[test]
fn both_ends_of_all_blocked_flows_are_reset_over_a_bridge_without_an_address() {
    as_root(|| {
        for backend in ["libnetfilter_queue", "nfq"] {
            let Some(bump) = Bump::new() else { return };
            let guard = bump.guard(&format!("--backend {backend}"));
            let status = std::fs::read_to_string(format!("/proc/{}/status", guard.process.id()));
            assert!(status.expect("it runs").contains("Seccomp:\t2"), "it is confined");
            bump.assert_reset(&guard, FLOWS);
            // What tracks connections has seen no reset: it is told, or the ports would stay blocked.
            let tracked = bump.bridge.run("conntrack -L -p tcp");
            assert!(!tracked.contains("ESTABLISHED"), "{tracked}");
            stop(guard);
        }
    });
}

#[test]
fn flows_that_new_rules_reject_are_reset_over_a_bridge_without_an_address() {
    as_root(|| {
        let Some(bump) = Bump::new() else { return };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let flags = format!(
            "--hook forward --enforce --no-offload --hook-keep --takeover {}/next.sock",
            folder.path().display()
        );
        let old = Guard::start(&bump.bridge, PROGRAM, &forbids("other"), &flags);
        let mut connections = ENDS.map(|(_, server)| bump.connect(server));
        let half = b"GET / HTTP/1.1\r\nUser-Agent: nosy\r\n";
        for [client, server] in &mut connections {
            client.write_all(half).expect("it is connected");
            server.read_exact(&mut [0; 34]).expect("half of it passes");
        }
        let next = Guard::start(&bump.bridge, PROGRAM, &forbids("nosy"), &flags);
        for (end, name) in connections.iter_mut().flatten().zip(["client", "server"].iter().cycle()) {
            end.set_read_timeout(Some(PATIENCE)).expect("not zero");
            let error = end.read(&mut [0; 64]).map_err(|error| error.kind());
            assert_eq!(error, Err(ErrorKind::ConnectionReset), "the {name}'s end");
        }
        drop(old);
        stop(next);
    });
}

#[test]
fn a_reset_has_the_ethernet_addresses_of_the_two_ends() {
    as_root(|| {
        let Some(bump) = Bump::new() else { return };
        let address = |end: &Namespace| {
            let link = end.run("ip -json link show dev eth0");
            let link: serde_json::Value = serde_json::from_str(&link).expect("ip prints JSON");
            let text = link[0]["address"].as_str().expect("a veth has one").to_owned();
            let octets = text.split(':').map(|octet| u8::from_str_radix(octet, 16).expect("hexadecimal"));
            octets.collect::<Vec<u8>>()
        };
        let (client, server) = (address(&bump.client), address(&bump.server));
        let watch = |end: &Namespace| {
            end.inside(|| {
                let index = std::fs::read_to_string("/proc/thread-self/net/dev_mcast").expect("it is there");
                let line = index.lines().find(|line| line.contains("eth0")).expect("eth0 is there");
                let index = line.split_whitespace().next().and_then(|it| it.parse().ok());
                FrameSocket::watching(index.expect("a number"), &EVERYTHING).expect("we are root")
            })
        };
        let watched = [(watch(&bump.client), &client, &server), (watch(&bump.server), &server, &client)];
        let guard = bump.guard("");
        for (_, server) in ENDS {
            say_forbidden(&mut bump.connect(server));
        }
        for (socket, own, other) in watched {
            let (mut buffer, mut resets) = ([0; 2048], 0);
            while let Ok(Some(seen)) = socket.receive(&mut buffer) {
                let flags = if seen.octets[12..14] == [0x08, 0x00] { 14 + 20 + 13 } else { 14 + 40 + 13 };
                if seen.octets.get(flags).is_some_and(|flags| *flags == 0x14) {
                    assert_eq!((&seen.octets[..6], &seen.octets[6..12]), (&own[..], &other[..]));
                    assert_eq!(seen.tag, None);
                    resets += 1;
                }
            }
            assert_eq!(resets, 2, "one for each family");
        }
        stop(guard);
    });
}

#[test]
fn a_connection_older_than_the_guard_is_reset_at_both_ends() {
    as_root(|| {
        let Some(bump) = Bump::new() else { return };
        // The port tells who is the server of a connection that was not seen to be opened.
        let mut older: Vec<_> = ENDS.iter().map(|(_, server)| bump.connect_to(server, 22)).collect();
        let guard = bump.guard("");
        for ends in &mut older {
            let (start, rest) = FORBIDDEN.split_at(10);
            ends[1].write_all(start).expect("the connection is up");
            // The acknowledgement shows where the client is.
            ends[0].read_exact(&mut [0; 10]).expect("the bridge lets it by");
            say(rest, ends);
        }
        stop(guard);
    });
}

/// One VLAN tag, and two.
const TAG: &[u8] = &[0x81, 0, 0, 10];
const TAGS: &[u8] = &[0x88, 0xa8, 0, 20, 0x81, 0, 0, 10];

/// Copies frames between an end's wire and a port's; on the port's side they carry these tags, and what comes
/// without them is lost, as it is with a switch.
fn solder(wires: &Namespace, side: &str, tags: &[u8], stop: &AtomicBool) {
    wires.inside(|| {
        let index = |name: &str| {
            let list = wires.run("ip -json link");
            let list: serde_json::Value = serde_json::from_str(&list).expect("ip prints JSON");
            let found = list.as_array().into_iter().flatten().find(|link| link["ifname"] == *name);
            u32::try_from(found.expect("it is there")["ifindex"].as_u64().expect("a number")).expect("small")
        };
        let [end, port] = ["end", "port"].map(|wire| index(&format!("{side}-{wire}")));
        let [from_end, from_port] =
            [end, port].map(|index| FrameSocket::watching(index, &EVERYTHING).expect("we are root"));
        let mut buffer = vec![0; 1 << 16];
        while !stop.load(Ordering::Relaxed) {
            let mut idle = true;
            while let Ok(Some(seen)) = from_end.receive(&mut buffer) {
                idle = false;
                let frame = [&seen.octets[..12], tags, &seen.octets[12..]].concat();
                from_end.send(port, &frame).expect("the wire is up");
            }
            while let Ok(Some(seen)) = from_port.receive(&mut buffer) {
                idle = false;
                let (addresses, rest) = seen.octets.split_at(12);
                let outer = seen.tag.map_or(vec![], |tag| {
                    [tag.protocol.to_be_bytes(), (tag.control & 0xfff).to_be_bytes()].concat()
                });
                let (outer_wanted, inner) = tags.split_at(4);
                if outer == outer_wanted
                    && let Some(rest) = rest.strip_prefix(inner)
                {
                    from_port.send(end, &[addresses, rest].concat()).expect("the wire is up");
                }
            }
            if idle {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
}

#[test]
fn both_ends_are_reset_in_the_vlan_that_they_are_in() {
    as_root(|| {
        let Some(bump) = Bump::with_open_wires() else { return };
        let wires = bump.wires.as_ref().expect("they are open");
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for side in ["left", "right"] {
                scope.spawn(|| solder(wires, side, TAG, &stopped));
            }
            let _end = OnDrop(&stopped);
            let guard = bump.guard("");
            // The kernel's default: what has a tag is not shown, which is told.
            let mut ends = bump.connect(ENDS[0].1);
            ends[1].write_all(FORBIDDEN).expect("the connection is up");
            let mut heard = [0; FORBIDDEN.len()];
            ends[0].read_exact(&mut heard).expect("it passes by");
            guard.process.wait_stderr("a warning", |text| {
                text.contains("bridge-nf-filter-vlan-tagged=1").then_some(())
            });
            bump.bridge.set("bridge/bridge-nf-filter-vlan-tagged", "1");
            bump.assert_reset(&guard, 20);
            stop(guard);
        });
    });
}

#[test]
fn frames_with_two_tags_pass_unseen() {
    as_root(|| {
        let Some(bump) = Bump::with_open_wires() else { return };
        let wires = bump.wires.as_ref().expect("they are open");
        bump.bridge.set("bridge/bridge-nf-filter-vlan-tagged", "1");
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for side in ["left", "right"] {
                scope.spawn(|| solder(wires, side, TAGS, &stopped));
            }
            let _end = OnDrop(&stopped);
            let guard = bump.guard("");
            let mut ends = bump.connect(ENDS[0].1);
            ends[1].write_all(FORBIDDEN).expect("the connection is up");
            ends[0].read_exact(&mut [0; FORBIDDEN.len()]).expect("it passes by");
            assert!(guard.events().is_empty());
            stop(guard);
        });
    });
}

/// Sets a flag even where a test fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_reset_that_cannot_be_sent_is_told_as_that() {
    as_root(|| {
        let line = Line::new();
        let guard = Guard::start(&line.router, PROGRAM, RULES, "--hook forward --enforce");
        // What the router itself sends finds no way to the client; what it forwards does.
        line.router.run("ip rule add iif lo to 192.0.2.0/24 unreachable");
        let listener = line.server.listen(SocketAddr::new(Line::SERVER_V4.parse().expect("an address"), 0));
        let _client = line.client.connect(listener.local_addr().expect("it is bound")).expect("it is routed");
        let (mut server, _) = listener.accept().expect("the client has connected");
        server.write_all(FORBIDDEN).expect("the connection is up");
        server.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let error = server.read(&mut [0; 1]).expect_err("this end is reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let told = eventually("both events", || {
            let events = guard.events();
            let of = |kind: &str| events.iter().find(|event| event["event_type"] == *kind).cloned();
            Some([of("alert")?, of("drop")?])
        });
        for event in &told {
            assert_eq!(event["verdict"]["reject_target"], "to_server", "{event}");
        }
        let resets = &told[1]["bannerwall"]["resets"];
        assert_eq!([&resets["to_client"], &resets["to_server"]], ["failed", "routed"], "{resets}");
        assert!(resets["reason"].as_str().is_some_and(|it| it.starts_with("no reset to the client: ")));
        stop(guard);
    });
}
