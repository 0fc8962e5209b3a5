//! Tunnels between two networks: what goes through, what does not, and how they end.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, UdpSocket};
use std::process::Command;

use bannerwall_test_support::{Namespace, Running, Signal, as_root, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// The addresses of the two ends outside, and of the devices inside, in both families.
const OUTSIDE: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["[2001:db8:1::1]", "[2001:db8:1::2]"]];
const INSIDE: [[&str; 2]; 2] = [["203.0.113.1", "203.0.113.2"], ["2001:db8:3::1", "2001:db8:3::2"]];

/// Two networks on one wire.
struct Ends([Namespace; 2]);

impl Ends {
    fn new() -> Self {
        let ends = [Namespace::new(), Namespace::new()];
        for end in &ends {
            // An address that is still being probed for duplicates answers nobody.
            end.set("ipv6/conf/default/accept_dad", "0");
        }
        ends[0].run(&format!("ip link add eth0 type veth peer name eth0 netns {}", ends[1].id()));
        for (side, end) in ends.iter().enumerate() {
            end.run(&format!("ip address add {}/24 dev eth0", OUTSIDE[0][side]));
            let v6 = OUTSIDE[1][side].trim_matches(['[', ']']);
            end.run(&format!("ip address add {v6}/64 dev eth0 nodad"));
            end.run("ip link set eth0 up");
        }
        Self(ends)
    }

    fn command(&self, side: usize, flags: &str) -> Command {
        let mut command = self.0[side].command(PROGRAM);
        command.arg("tunnel").args(flags.split_whitespace());
        command
    }

    /// Starts one end, over IPv4 or IPv6, and waits until it carries packets.
    fn start(&self, side: usize, family: usize, flags: &str) -> Running {
        let [local, peer] = [OUTSIDE[family][side], OUTSIDE[family][1 - side]];
        let flags = format!("--local {local}:7777 --peer {peer}:7777 --device bw0 {flags}");
        let running = Running::start(self.command(side, &flags));
        running.wait_stderr("ready", |text| text.contains("ready: bw0").then_some(()));
        running
    }

    /// Gives the device of one end its addresses, and puts it up.
    fn configure(&self, side: usize) {
        let end = &self.0[side];
        end.run(&format!("ip address add {}/24 dev bw0", INSIDE[0][side]));
        end.run(&format!("ip address add {}/64 dev bw0 nodad", INSIDE[1][side]));
        end.run("ip link set bw0 up");
    }

    fn both(&self, family: usize, flags: &str) -> [Running; 2] {
        let tunnels = [self.start(0, family, flags), self.start(1, family, flags)];
        self.configure(0);
        self.configure(1);
        tunnels
    }

    /// A number that one end shows at port 9464.
    fn metric(&self, side: usize, name: &str) -> u64 {
        let shown = self.0[side].run("curl -s http://127.0.0.1:9464/metrics");
        let name = format!("bannerwall_tunnel_{name} ");
        let value = shown.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} in {shown}"))
    }

    /// Sends `octets` through and back again, and gives what came back.
    fn echo(&self, family: usize, octets: &[u8]) -> Vec<u8> {
        let address: IpAddr = INSIDE[family][1].parse().expect("an address");
        let listener = self.0[1].listen((address, 8000));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client comes");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("the client ends");
            stream.write_all(&received).expect("the client listens");
        });
        let mut client = self.0[0].connect((address, 8000)).expect("the tunnel is there");
        client.write_all(octets).expect("the server listens");
        client.shutdown(Shutdown::Write).expect("it is open");
        let mut back = Vec::new();
        client.read_to_end(&mut back).expect("the server answers");
        server.join().expect("no panic");
        back
    }
}

/// Octets that differ everywhere.
fn octets(count: u32) -> Vec<u8> {
    (0..count / 4).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// Ends a tunnel and gives its account.
fn end(mut tunnel: Running) -> String {
    tunnel.signal(Signal::TERM);
    assert!(tunnel.wait_exit().success(), "{}", tunnel.stderr());
    tunnel.wait_stderr("the account", |text| {
        text.lines().last().filter(|line| line.contains("; dropped: ")).map(str::to_owned)
    })
}

#[test]
fn everything_comes_through_unchanged_by_either_family_in_either() {
    as_root(|| {
        for (outside, flags) in
            [(0, "--plain"), (1, "--plain"), (0, "--plain --no-offload"), (1, "--plain --no-offload")]
        {
            let ends = Ends::new();
            let tunnels = ends.both(outside, flags);
            let sent = octets(3 << 20);
            for inside in [0, 1] {
                assert!(ends.echo(inside, &sent) == sent, "outside {outside}, inside {inside}, {flags}");
            }
            for account in tunnels.map(end) {
                for fault in ["malformed", "contradictory", "incomplete", "offload", "too_long", "unfinished"]
                {
                    assert!(!account.contains(fault), "{flags}: {account}");
                }
            }
        }
    });
}

#[test]
fn super_packets_go_as_trains_and_segments_one_by_one() {
    as_root(|| {
        for (flags, are_long) in [("--plain", true), ("--plain --no-offload", false)] {
            let ends = Ends::new();
            let _tunnels = ends.both(0, &format!("{flags} --metrics 127.0.0.1:9464"));
            let sent = octets(4 << 20);
            assert!(ends.echo(0, &sent) == sent);
            // A packet that comes between two looks must not make datagrams more than packets.
            let [datagrams, packets, octets] = ["datagrams", "packets", "bytes"]
                .map(|what| ends.metric(0, &format!("{what}_total{{way=\"sent\"}}")));
            assert!(octets > 4 << 20, "{octets}");
            assert_eq!(datagrams > 2 * packets, are_long, "{packets} packets, {datagrams} datagrams");
            assert!(are_long || datagrams <= packets, "{packets} packets, {datagrams} datagrams");
            assert_eq!(ends.metric(0, "path_mtu_bytes"), 1500);
        }
    });
}

#[test]
fn a_path_that_becomes_narrower_is_followed() {
    as_root(|| {
        let ends = Ends::new();
        let _tunnels = ends.both(0, "--plain");
        let sent = octets(1 << 20);
        assert!(ends.echo(0, &sent) == sent);
        for end in &ends.0 {
            end.run("ip link set eth0 mtu 1280");
        }
        for inside in [0, 1] {
            assert!(
                ends.echo(inside, &sent) == sent,
                "packets no longer fit into one datagram, and go as two"
            );
        }
    });
}

#[test]
fn a_path_that_changes_under_load_corrupts_nothing() {
    as_root(|| {
        let keys = KeyFiles::new();
        for cover in Cover::ALL {
            let ends = Ends::new();
            let tunnels = cover.both(&ends, &keys, "");
            // Cut elsewhere than its pieces are, a train would have datagrams without their numbers.
            let mut changes = ends.0[0].command("sh");
            changes.args(["-c", "while :; do for mtu in 1280 1500 1400 1500; do ip link set eth0 mtu $mtu; sleep 0.02; done; done"]);
            let changes = Running::start(changes);
            let sent = octets(32 << 20);
            assert!(ends.echo(0, &sent) == sent, "{cover:?}");
            drop(changes);
            for account in tunnels.map(end) {
                for fault in ["malformed", "contradictory", "forged", "replayed", "not_sent"] {
                    assert!(!account.contains(fault), "{cover:?}: {account}");
                }
            }
        }
    });
}

#[test]
fn where_trains_are_lost_segments_go_by_themselves() {
    as_root(|| {
        let keys = KeyFiles::new();
        for cover in Cover::ALL {
            let ends = Ends::new();
            let _tunnels = cover.both(&ends, &keys, "--metrics 127.0.0.1:9464");
            assert_eq!(ends.metric(0, "super_packets"), 1);
            // Trains become datagrams before they are on the wire, of which one of fifty is lost.
            ends.0[0].run("ethtool -K eth0 tx-udp-segmentation off");
            ends.0[1].run("nft add table inet loss");
            ends.0[1].run("nft add chain inet loss in { type filter hook prerouting priority -300 ; }");
            ends.0[1].run("nft add rule inet loss in udp dport 7777 numgen inc mod 50 0 drop");
            let sent = octets(2 << 20);
            assert!(ends.echo(0, &sent) == sent, "{cover:?}");
            assert_eq!(ends.metric(0, "super_packets"), 0, "{cover:?}");
            assert_eq!(ends.metric(1, "super_packets"), 1, "{cover:?}: nothing is lost on this way");
            ends.0[1].run("nft delete table inet loss");
            eventually("trains again", || (ends.metric(0, "super_packets") == 1).then_some(()));
            assert!(ends.echo(0, &sent) == sent, "{cover:?}");
            assert_eq!(ends.metric(0, "super_packets"), 1, "{cover:?}");
        }
    });
}

#[test]
fn garbage_is_counted_and_does_no_harm() {
    as_root(|| {
        let ends = Ends::new();
        let tunnel = ends.start(0, 0, "--plain --metrics 127.0.0.1:9464");
        ends.configure(0);
        let to = format!("{}:7777", OUTSIDE[0][0]);
        let stranger = ends.0[1].inside(|| UdpSocket::bind("192.0.2.2:7776")).expect("a free port");
        let peer = ends.0[1].inside(|| UdpSocket::bind("192.0.2.2:7777")).expect("a free port");
        let header = |packet: u8, piece: u8| [1, 0, 0, 0, 0, 0, packet, piece];
        let mut garbage: Vec<Vec<u8>> = (0..64).map(|length| vec![length; usize::from(length)]).collect();
        // Pieces without a packet, headers without a packet, packets that are none, ends without a start.
        garbage.extend((0..=255).map(|octet| [&header(octet, 1)[..], &[octet; 40]].concat()));
        garbage.extend((0..=255).map(|octet| [&header(1, octet)[..], &[octet; 9]].concat()));
        garbage.push(
            [&header(9, 1)[..], &[1, 1, 0xff, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x45], &[0; 30]].concat(),
        );
        for datagram in &garbage {
            stranger.send_to(datagram, &to).expect("the way is there");
            peer.send_to(datagram, &to).expect("the way is there");
        }
        eventually("all of the peer's datagrams, and none of the stranger's", || {
            let received = ends.metric(0, "datagrams_total{way=\"received\"}");
            (received == garbage.len() as u64).then_some(())
        });
        drop(peer);
        let _other = ends.start(1, 0, "--plain");
        ends.configure(1);
        let sent = octets(1 << 20);
        assert!(ends.echo(0, &sent) == sent);
        let account = end(tunnel);
        assert!(account.contains("malformed") && account.contains("contradictory"), "{account}");
    });
}

#[test]
fn a_deleted_device_ends_the_run() {
    as_root(|| {
        let ends = Ends::new();
        let mut tunnel = ends.start(0, 0, "--plain");
        ends.0[0].run("ip link delete bw0");
        assert_eq!(tunnel.wait_exit().code(), Some(0));
        tunnel.wait_stderr("why", |text| text.contains("bw0 was deleted").then_some(()));
    });
}

#[test]
fn a_device_that_is_there_is_taken_over_and_left_there() {
    as_root(|| {
        let ends = Ends::new();
        ends.0[0].run("ip tuntap add dev bw0 mode tun");
        ends.0[0].run("ip link set bw0 mtu 1300");
        let tunnel = ends.start(0, 0, "--plain");
        assert!(tunnel.stderr().contains("taken over"), "{}", tunnel.stderr());
        let again =
            ends.command(0, "--local 192.0.2.1:7778 --peer 192.0.2.2:7778 --device bw0 --plain").output();
        let again = again.expect("it starts");
        assert_eq!(again.status.code(), Some(2));
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(said.contains("--device bw0: another program uses this device"), "{said}");
        end(tunnel);
        assert!(ends.0[0].run("ip link show bw0").contains("mtu 1300"));
        let _again = ends.start(0, 0, "--plain --no-offload --mtu 1200");
        assert!(ends.0[0].run("ip link show bw0").contains("mtu 1200"));
    });
}

#[test]
fn what_cannot_be_is_told_with_the_flag() {
    as_root(|| {
        let ends = Ends::new();
        ends.0[0].run("ip link add dummy0 type veth peer name dummy1");
        for (flags, code, expected) in [
            (
                "--local 192.0.2.1:1 --peer 192.0.2.2:1 --device bw0",
                2,
                "pass --key and --peer-key, or --plain",
            ),
            (
                "--local 192.0.2.1:1 --peer [2001:db8:1::2]:1 --device bw0 --plain",
                2,
                "both IPv4 or both IPv6",
            ),
            ("--local 192.0.2.9:1 --peer 192.0.2.2:1 --device bw0 --plain", 2, "--local 192.0.2.9:1"),
            ("--local 0.0.0.0:1 --peer 198.51.100.1:1 --device bw0 --plain", 2, "--peer 198.51.100.1:1"),
            (
                "--local 192.0.2.1:1 --peer 192.0.2.2:1 --device eth0 --plain",
                2,
                "--device eth0: invalid name, or",
            ),
            (
                "--local 192.0.2.1:1 --peer 192.0.2.2:1 --device much-too-long-a-name --plain",
                2,
                "the device is not a tun device",
            ),
            ("--local 192.0.2.1:1 --peer host:1 --device bw0 --plain", 2, "--peer"),
        ] {
            let output = ends.command(0, flags).output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(code), "{flags}: {said}");
            assert!(said.contains(expected), "{flags}: {said}");
        }
        let mut powerless = ends.0[0].command_without_net_admin(PROGRAM);
        powerless.args("tunnel --local 127.0.0.1:1 --peer 127.0.0.1:2 --device bw0".split_whitespace());
        let output = powerless.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("CAP_NET_ADMIN"), "{said}");
    });
}

/// The keys of both ends, in a folder of their own, and the flags by which each end has them.
struct KeyFiles {
    folder: tempfile::TempDir,
}

impl KeyFiles {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["0", "1"] {
            let private = folder.path().join(name);
            let output = Command::new(PROGRAM).args(["tunnel", "keygen"]).arg(&private).output();
            let output = output.expect("it starts");
            assert!(output.status.success(), "{output:?}");
            let again = Command::new(PROGRAM).args(["tunnel", "public"]).arg(&private).output();
            assert_eq!(again.expect("it starts").stdout, output.stdout);
            std::fs::write(private.with_extension("pub"), output.stdout).expect("the folder is ours");
        }
        Self { folder }
    }

    fn flags(&self, side: usize) -> String {
        let folder = self.folder.path().display();
        format!("--key {folder}/{side} --peer-key {folder}/{}.pub", 1 - side)
    }
}

/// How packets go.
#[derive(Debug, Clone, Copy)]
enum Cover {
    Plain,
    Sealed,
}

impl Cover {
    const ALL: [Self; 2] = [Self::Plain, Self::Sealed];

    /// Both ends, by IPv4 outside.
    fn both(self, ends: &Ends, keys: &KeyFiles, flags: &str) -> [Running; 2] {
        match self {
            Self::Plain => ends.both(0, &format!("--plain {flags}")),
            Self::Sealed => sealed(ends, keys, 0, flags),
        }
    }
}

/// Both ends with keys, agreed.
fn sealed(ends: &Ends, keys: &KeyFiles, family: usize, flags: &str) -> [Running; 2] {
    let tunnels = [0, 1].map(|side| {
        let tunnel = ends.start(side, family, &format!("{} {flags}", keys.flags(side)));
        ends.configure(side);
        tunnel
    });
    for tunnel in &tunnels {
        tunnel.wait_stderr("agreed keys", |text| text.contains("keys are agreed on").then_some(()));
    }
    tunnels
}

#[test]
fn with_keys_everything_comes_through_unchanged_and_nobody_reads_it() {
    as_root(|| {
        let keys = KeyFiles::new();
        for (outside, flags) in [(0, ""), (1, "--no-offload")] {
            let ends = Ends::new();
            let tunnels = sealed(&ends, &keys, outside, flags);
            let mut dump = ends.0[1].command("tcpdump");
            dump.args("-i eth0 -A -s 0 -c 400 -U udp".split_whitespace());
            let dump = Running::start(dump);
            dump.wait_stderr("the start", |text| text.contains("listening on").then_some(()));
            let sent = "attack at dawn ".repeat(100_000).into_bytes();
            for inside in [0, 1] {
                assert!(ends.echo(inside, &sent) == sent, "outside {outside}, inside {inside}, {flags}");
            }
            dump.wait_stdout("datagrams", |text| (text.len() > 10_000).then_some(()));
            assert!(!dump.stdout().contains("attack"));
            for account in tunnels.map(end) {
                for fault in ["malformed", "forged", "replayed", "incomplete", "offload", "too_long"] {
                    assert!(!account.contains(fault), "{flags}: {account}");
                }
            }
        }
    });
}

#[test]
fn replayed_changed_and_foreign_datagrams_are_refused_and_counted() {
    as_root(|| {
        let keys = KeyFiles::new();
        let ends = Ends::new();
        let [_tunnel, other] = sealed(&ends, &keys, 0, "--metrics 127.0.0.1:9464");
        let mut dump = ends.0[0].command("tcpdump");
        let capture = keys.folder.path().join("capture");
        dump.args("-i eth0 -Z root -U -s 0 -w".split_whitespace()).arg(&capture);
        dump.args("udp and src host 192.0.2.2 and less 1400".split_whitespace());
        let dump = Running::start(dump);
        dump.wait_stderr("the start", |text| text.contains("listening on").then_some(()));
        let sent = octets(1 << 20);
        assert!(ends.echo(0, &sent) == sent);
        let datagrams = eventually("datagrams in the capture", || {
            let datagrams = payloads(&std::fs::read(&capture).unwrap_or_default());
            (datagrams.len() >= 4).then_some(datagrams)
        });
        drop((dump, other));
        let peer = ends.0[1].inside(|| UdpSocket::bind("192.0.2.2:7777")).expect("a free port");
        let to = format!("{}:7777", OUTSIDE[0][0]);
        let received = || ends.metric(0, "datagrams_total{way=\"received\"}");
        let before = received();
        let mut sent = 0;
        let mut send = |datagram: &[u8]| {
            peer.send_to(datagram, &to).expect("the way is there");
            sent += 1;
        };
        let taken = datagrams.len().min(50);
        for datagram in datagrams.iter().take(taken) {
            send(datagram);
            for at in [0, 1, 7, 8, 11, 12, datagram.len() - 1] {
                let mut changed = datagram.clone();
                changed[at] ^= 8;
                send(&changed);
            }
            send(&[1; 200]);
        }
        eventually("all of them", || (received() == before + sent).then_some(()));
        let dropped = |reason: &str| ends.metric(0, &format!("dropped_total{{reason=\"{reason}\"}}"));
        let taken = taken as u64;
        // Of the seven changes one is of the kind; a datagram of another tunnel's kind is none of ours,
        // either.
        assert_eq!(["replayed", "malformed", "forged"].map(dropped), [taken, 2 * taken, 6 * taken]);
    });
}

/// The payloads of UDP datagrams over IPv4 in a capture of Ethernet frames.
fn payloads(capture: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = capture.get(24..).unwrap_or_default();
    let mut payloads = Vec::new();
    while let Some(header) = rest.first_chunk::<16>() {
        let length = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some(frame) = rest.get(16..16 + length) else { break };
        payloads.extend(frame.get(14 + 20 + 8..).map(<[u8]>::to_vec));
        rest = &rest[16 + length..];
    }
    payloads
}

#[test]
fn an_end_that_starts_anew_is_met_again_and_one_with_other_keys_is_not() {
    as_root(|| {
        let (keys, others) = (KeyFiles::new(), KeyFiles::new());
        let ends = Ends::new();
        let [_tunnel, other] = sealed(&ends, &keys, 1, "--metrics 127.0.0.1:9464");
        drop(other);
        let forged = || ends.metric(0, "dropped_total{reason=\"forged\"}");
        let before = forged();
        let stranger = ends.start(1, 1, &others.flags(1));
        ends.configure(1);
        eventually("its initiation", || (forged() > before).then_some(()));
        assert!(!stranger.stderr().contains("agreed"), "{}", stranger.stderr());
        let account = end(stranger);
        assert!(account.contains("received: packets 0, bytes 0"), "{account}");
        let again = ends.start(1, 1, &keys.flags(1));
        ends.configure(1);
        again.wait_stderr("agreed keys", |text| text.contains("keys are agreed on").then_some(()));
        let sent = octets(1 << 20);
        assert!(ends.echo(0, &sent) == sent);
    });
}

#[test]
fn faults_of_keys_are_told() {
    let keys = KeyFiles::new();
    let folder = keys.folder.path().display();
    for (flags, expected) in [
        (format!("--key {folder}/0 --peer-key {folder}/0.pub"), "public key of --key"),
        (format!("--key {folder}/2 --peer-key {folder}/0.pub"), "cannot read"),
        (format!("--key {folder}/0 --peer-key {PROGRAM}"), "not a key"),
        (format!("--key {folder}/0"), "--peer-key"),
        (format!("--plain --key {folder}/0 --peer-key {folder}/1.pub"), "cannot be used with"),
    ] {
        let flags = format!("--local 127.0.0.1:1 --peer 127.0.0.1:2 --device bw0 {flags}");
        let output =
            Command::new(PROGRAM).arg("tunnel").args(flags.split_whitespace()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {said}");
        assert!(said.contains(expected), "{flags}: {said}");
    }
}

/// Rules that reject servers that call themselves Dropbear, and drop clients that call themselves sqlmap.
const FORBIDDEN: &str = r#"
[[rule]]
id = "no-dropbear"
title = "A forbidden server"
protocol = "ssh"
from = "server"
match.software = '^dropbear'
action = "reject"
severity = "high"

[[rule]]
id = "no-sqlmap"
title = "A forbidden client"
protocol = "http"
from = "client"
match."header.user-agent" = '^sqlmap/'
action = "drop"
severity = "high"
"#;

/// Lets a server in the second network say `said`, so many octets a segment, and gives what a client in the
/// first one gets of it.
fn hear(ends: &Ends, family: usize, said: &'static [u8], each: usize) -> Vec<u8> {
    let address: IpAddr = INSIDE[family][1].parse().expect("an address");
    let listener = ends.0[1].listen((address, 2222));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client comes");
        // A socket that was reset already has no delay, either.
        let _ = stream.set_nodelay(true);
        for piece in said.chunks(each) {
            // Whom a reset ends says no more.
            if stream.write_all(piece).is_err() {
                return;
            }
        }
    });
    let mut heard = Vec::new();
    // A reset ends it as well as the server does, at once where the banner came with the handshake.
    let _ = ends.0[0].connect((address, 2222)).and_then(|mut client| client.read_to_end(&mut heard));
    server.join().expect("no panic");
    heard
}

#[test]
fn a_guarded_tunnel_stops_what_rules_forbid_at_either_end() {
    as_root(|| {
        let keys = KeyFiles::new();
        let rules = keys.folder.path().join("rules.toml");
        std::fs::write(&rules, FORBIDDEN).expect("the folder is ours");
        let guard = format!("--guard --enforce --rules {} --no-local --format json", rules.display());
        let (bad, good) = (&b"SSH-2.0-dropbear_2022.83\r\n"[..], &b"SSH-2.0-OpenSSH_9.2p1\r\n"[..]);
        for (guarded, outside, flags) in [(0, 0, ""), (1, 1, ""), (0, 1, "--no-offload")] {
            let ends = Ends::new();
            let tunnels = [0, 1].map(|side| {
                let guard = if side == guarded { guard.as_str() } else { "" };
                let tunnel = ends.start(side, outside, &format!("{} {flags} {guard}", keys.flags(side)));
                ends.configure(side);
                tunnel
            });
            for tunnel in &tunnels {
                tunnel.wait_stderr("agreed keys", |text| text.contains("agreed on").then_some(()));
            }
            for inside in [0, 1] {
                for each in [1, 5, 100] {
                    let what = format!("guard {guarded}, outside {outside}, inside {inside}, each {each}");
                    assert_eq!(hear(&ends, inside, good, each), good, "{what}");
                    let heard = hear(&ends, inside, bad, each);
                    assert!(heard.len() < bad.len() && bad.starts_with(&heard), "{what}: {heard:?}");
                }
            }
            let sent = octets(1 << 20);
            assert!(ends.echo(0, &sent) == sent, "what no rule is about goes through");
            let [one, other] = tunnels;
            let judging = if guarded == 0 { one } else { other };
            let drops = judging.wait_stdout("drop events", |text| {
                let events = bannerwall_test_support::json_lines(&text.as_bytes()[..text.rfind('\n')? + 1]);
                let drops: Vec<_> =
                    events.into_iter().filter(|event| event["event_type"] == "drop").collect();
                (drops.len() >= 6).then_some(drops)
            });
            for event in drops {
                let resets = &event["bannerwall"]["resets"];
                assert_eq!(
                    resets["to_client"]["result"].as_str().or(resets["to_client"].as_str()),
                    Some("routed"),
                    "{event}"
                );
                assert_eq!(event["in_iface"], "bw0", "{event}");
            }
            let account = end(judging);
            assert!(account.contains(" judged"), "{account}");
        }
    });
}

#[test]
fn a_monitoring_tunnel_tells_and_stops_nothing_and_reads_new_rules() {
    as_root(|| {
        let keys = KeyFiles::new();
        let rules = keys.folder.path().join("rules.toml");
        std::fs::write(&rules, FORBIDDEN.replace("dropbear", "tinyssh")).expect("the folder is ours");
        let ends = Ends::new();
        let inventory = keys.folder.path().join("net.db");
        let flags = format!(
            "--plain --guard --rules {} --no-local --format json --metrics 127.0.0.1:9464 --inventory {} --serve",
            rules.display(),
            inventory.display()
        );
        let tunnel = ends.start(0, 0, &flags);
        // Each of its threads is held to its own files and calls: no program, and no file but those.
        for thread in std::fs::read_dir(format!("/proc/{}/task", tunnel.id())).expect("it runs").flatten() {
            let status = std::fs::read_to_string(thread.path().join("status")).expect("it runs");
            assert!(status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n"), "{status}");
        }
        let _other = ends.start(1, 0, "--plain");
        ends.configure(0);
        ends.configure(1);
        let bad = b"SSH-2.0-dropbear_2022.83\r\n";
        assert_eq!(hear(&ends, 0, bad, 100), bad);
        std::fs::write(&rules, FORBIDDEN).expect("the folder is ours");
        tunnel.signal(Signal::HUP);
        tunnel.wait_stderr("new rules", |text| text.contains("reloaded: 2 rules").then_some(()));
        eventually("new rules in force", || {
            assert_eq!(hear(&ends, 1, bad, 100), bad, "it is told, and goes through");
            tunnel.stdout().contains("no-dropbear").then_some(())
        });
        // Its page, with the alerts of this very tunnel.
        eventually("the server on the page", || {
            let shown = ends.0[0].run("curl -s http://127.0.0.1:8642/api/services");
            shown.contains("SSH-2.0-dropbear_2022.83").then_some(())
        });
        let told =
            ends.0[0].output("curl -sN --max-time 3 -H Last-Event-ID:0.0 http://127.0.0.1:8642/api/events");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.lines().any(|line| line.starts_with("data:") && line.contains("no-dropbear")), "{told}");
        eventually("the match in the metrics", || {
            let shown = ends.0[0].run("curl -s http://127.0.0.1:9464/metrics");
            let line = shown.lines().find(|line| line.starts_with("bannerwall_rule_matches_total"));
            let matches = shown.lines().any(|line| {
                line.starts_with("bannerwall_rule_matches_total{action=\"reject\",rule=\"no-dropbear\"}")
                    && !line.ends_with(" 0")
            });
            assert!(line.is_some(), "{shown}");
            matches.then_some(())
        });
        // What was put elsewhere since is out of its reach, and the rules stay.
        let elsewhere = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(elsewhere.path().join("rules.toml"), FORBIDDEN).expect("the folder is ours");
        std::fs::remove_file(&rules).expect("the folder is ours");
        std::os::unix::fs::symlink(elsewhere.path().join("rules.toml"), &rules).expect("the folder is ours");
        tunnel.signal(Signal::HUP);
        tunnel.wait_stderr("a refusal", |text| text.contains("Permission denied").then_some(()));
        let printed = end(tunnel);
        assert!(!printed.contains("judged"), "{printed}");
    });
}

#[test]
fn flags_of_the_guard_take_the_guard() {
    for flag in [
        "--enforce",
        "--on-failure closed",
        "--on-anomaly drop",
        "--http-inspect all",
        "--hassh",
        "--flow-limit 1000",
        "--events e.json",
        "--log-headers all",
        "--rules rules",
        "--inventory i.db",
        "--learn l.toml",
    ] {
        let flags = format!("tunnel --local 127.0.0.1:1 --peer 127.0.0.1:2 --device bw0 {flag}");
        let output = Command::new(PROGRAM).args(flags.split_whitespace()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {said}");
        assert!(said.contains("pass --guard"), "{flags}: {said}");
    }
}
