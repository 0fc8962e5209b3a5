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
        text.lines().last().filter(|line| line.contains(" received, dropped: ")).map(str::to_owned)
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
            let metrics = ends.0[0].run("curl -s http://127.0.0.1:9464/metrics");
            let value = |name: &str| {
                let line = metrics.lines().find(|line| line.starts_with(name)).expect(name);
                line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
            };
            let packets = value("bannerwall_tunnel_packets_total{way=\"sent\"}");
            let datagrams = value("bannerwall_tunnel_datagrams_total{way=\"sent\"}");
            let octets = value("bannerwall_tunnel_bytes_total{way=\"sent\"}");
            assert!(octets > f64::from(4 << 20), "{metrics}");
            assert_eq!(datagrams > 2.0 * packets, are_long, "{packets} packets, {datagrams} datagrams");
            assert!(are_long || datagrams <= packets, "{packets} packets, {datagrams} datagrams");
            assert_eq!(value("bannerwall_tunnel_path_mtu_bytes"), 1500.0);
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
        let received = format!("bannerwall_tunnel_datagrams_total{{way=\"received\"}} {}", garbage.len());
        eventually("all of the peer's datagrams, and none of the stranger's", || {
            let metrics = ends.0[0].run("curl -s http://127.0.0.1:9464/metrics");
            metrics.lines().any(|line| line == received).then_some(())
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
        assert!(said.contains("--device bw0: another program has this device"), "{said}");
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
            ("--local 192.0.2.1:1 --peer 192.0.2.2:1 --device bw0", 2, "say --plain"),
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
                "--device eth0: no name for a device",
            ),
            (
                "--local 192.0.2.1:1 --peer 192.0.2.2:1 --device much-too-long-a-name --plain",
                2,
                "no name for a device",
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
