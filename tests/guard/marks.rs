//! Marks of others beside ours: a router with two uplinks that are chosen by whole, unmasked marks, as the
//! textbook has them, and what that does to the guard's decisions and resets; and what translated addresses
//! do.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::Output;
use std::time::Duration;

use bannerwall_test_support::{Guard, Line, NO_SQLMAP, Namespace, Nginx, Signal, as_root, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const SERVER: &str = "203.0.113.7";

/// A client, a router with the uplinks `one` (by default) and `two` (for mark 2), and a server behind both.
struct Uplinks {
    client: Namespace,
    router: Namespace,
    server: Nginx,
    _far: Namespace,
    /// `nft` or `legacy`.
    variant: &'static str,
}

impl Uplinks {
    fn new(variant: &'static str) -> Self {
        let [client, router, far] = [(); 3].map(|()| Namespace::new());
        for (end, name, peer, sides) in [
            (&client, "left", "eth0", ["192.0.2.1/24", "192.0.2.2/24"]),
            (&far, "one", "eth1", ["198.51.100.1/25", "198.51.100.2/25"]),
            (&far, "two", "eth2", ["198.51.100.129/25", "198.51.100.130/25"]),
        ] {
            router.run(&format!("ip link add {name} type veth peer name {peer} netns {}", end.id()));
            for (namespace, interface, address) in [(&router, name, sides[0]), (end, peer, sides[1])] {
                namespace.set(&format!("ipv4/conf/{interface}/rp_filter"), "0");
                namespace.run(&format!("ip address add {address} dev {interface}"));
                namespace.run(&format!("ip link set {interface} up"));
            }
        }
        for namespace in [&router, &far] {
            namespace.set("ipv4/conf/all/rp_filter", "0");
        }
        router.set("ipv4/ip_forward", "1");
        client.run("ip route add default via 192.0.2.1");
        far.run("ip route add default via 198.51.100.1");
        far.run(&format!("ip address add {SERVER}/32 dev lo"));
        router.run("ip route add 203.0.113.0/24 via 198.51.100.2");
        router.run("ip route add 203.0.113.0/24 via 198.51.100.130 table 100");
        router.run("ip rule add fwmark 2 table 100");
        let server = Nginx::start(&far, 80, "");
        std::fs::write(server.root().join("page"), vec![b'x'; 20 << 20]).expect("the folder is ours");
        Self { client, router, server, _far: far, variant }
    }

    fn mangle(&self, rule: &str) {
        self.router.run(&format!("iptables-{} -w -t mangle {rule}", self.variant));
    }

    fn guard(&self, flags: &str) -> Guard {
        let flags = format!("--enforce --hook input,output,forward --iptables {} {flags}", self.variant);
        Guard::start(&self.router, PROGRAM, NO_SQLMAP, &flags)
    }

    /// What counts TCP packets to the server by uplink, behind all else.
    fn count(&self) {
        for uplink in ["one", "two"] {
            self.mangle(&format!("-A POSTROUTING -o {uplink} -p tcp"));
            self.router.run(&format!("iptables-{} -w -t filter -A FORWARD -o {uplink} -p tcp", self.variant));
        }
    }

    /// TCP packets that left by `uplink`: those that were routed (FORWARD), or all (POSTROUTING).
    fn left_by(&self, uplink: &str, chain: &str) -> u64 {
        let listed = self.router.run(&format!("iptables-{}-save -c", self.variant));
        let rules = listed.lines().filter(|line| line.contains(&format!("-A {chain} -o {uplink} ")));
        rules.filter_map(|line| line.strip_prefix('[')?.split(':').next()?.parse::<u64>().ok()).sum()
    }

    fn ask(&self, from: &Namespace, agent: &str, path: &str) -> Output {
        let url = format!("http://{SERVER}/{path}");
        let mut command = from.command("curl");
        command.args(["--silent", "--max-time", "60", "--output", "-", "--user-agent", agent, &url]);
        command.output().expect("curl starts")
    }

    /// A long download, and a rejected request whose reset comes (curl: 56, failure in receiving).
    fn assert_judged(&self, from: &Namespace, what: &str) {
        let page = std::fs::read(self.server.root().join("page")).expect("it was written");
        assert!(self.ask(from, "curl/8.0", "page").stdout == page, "{what}: a long download");
        assert_eq!(self.ask(from, "sqlmap/1.7", "").status.code(), Some(56), "{what}: the reset comes");
    }

    fn doctor(&self) -> String {
        let output = self.router.output(&format!("{PROGRAM} doctor"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn stop(mut guard: Guard) -> String {
    guard.process.signal(Signal::TERM);
    assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
    guard.process.stderr()
}

const AGAIN: &str = "keeps queueing packets of decided connections";

#[test]
fn whole_marks_that_choose_among_two_uplinks_keep_doing_so() {
    as_root(|| {
        for variant in ["nft", "legacy"] {
            let net = Uplinks::new(variant);
            net.mangle("-A PREROUTING -j CONNMARK --restore-mark");
            net.mangle("-A PREROUTING -i left -m mark --mark 0 -j MARK --set-mark 2");
            net.mangle("-A PREROUTING -j CONNMARK --save-mark");
            net.count();
            let guard = net.guard("");
            net.assert_judged(&net.client, "restored and saved whole");
            assert_eq!(net.left_by("one", "FORWARD"), 0, "all of it goes by uplink two");
            assert!(net.left_by("two", "FORWARD") > 0, "acknowledgements are joined as the kernel likes");
            assert!(net.doctor().contains("the whole mark"), "{}", net.doctor());
            let told = stop(guard);
            assert!(!told.contains(AGAIN), "the decisions stay: {told}");
        }
    });
}

#[test]
fn a_restore_of_whole_marks_in_output_does_not_stop_the_guards_resets() {
    as_root(|| {
        for variant in ["nft", "legacy"] {
            let net = Uplinks::new(variant);
            net.mangle("-A PREROUTING -j CONNMARK --restore-mark");
            net.mangle("-A OUTPUT -j CONNMARK --restore-mark");
            net.mangle("-A OUTPUT -m mark --mark 0 -j MARK --set-mark 2");
            net.mangle("-A OUTPUT -j CONNMARK --save-mark");
            net.mangle("-A PREROUTING -i left -m mark --mark 0 -j MARK --set-mark 2");
            net.mangle("-A PREROUTING -j CONNMARK --save-mark");
            net.count();
            for flags in ["", "--no-offload"] {
                let guard = net.guard(flags);
                net.assert_judged(&net.client, &format!("routed, {flags}"));
                net.assert_judged(&net.router, &format!("the router's own, {flags}"));
                stop(guard);
            }
            if variant == "legacy" {
                // With nf_tables a packet that is queued in OUTPUT was routed before its mark was set.
                assert_eq!(net.left_by("one", "POSTROUTING"), 0, "all of it goes by uplink two, resets too");
            }
            assert!(net.left_by("two", "POSTROUTING") > 0, "acknowledgements are joined as the kernel likes");
        }
    });
}

#[test]
fn a_save_of_whole_marks_that_takes_decisions_away_is_told_and_blocks_nothing_less() {
    as_root(|| {
        for variant in ["nft", "legacy"] {
            let net = Uplinks::new(variant);
            net.mangle("-A PREROUTING -j CONNMARK --restore-mark");
            net.mangle("-A PREROUTING -i left -m mark --mark 0 -j MARK --set-mark 2");
            // The packet has lost our bits by then, and so does the connection.
            net.mangle("-A POSTROUTING -j CONNMARK --save-mark");
            net.count();
            let guard = net.guard("--http-inspect first");
            net.assert_judged(&net.client, "saved behind us");
            eventually("the loss of decisions to be told", || {
                net.ask(&net.client, "curl/8.0", "page");
                guard.process.stderr().contains(AGAIN).then_some(())
            });
            assert_eq!(net.left_by("one", "FORWARD"), 0, "all of it goes by uplink two");
            assert!(net.doctor().contains("-A POSTROUTING -j CONNMARK --save-mark"), "{}", net.doctor());
            stop(guard);
        }
    });
}

#[test]
fn resets_reach_both_ends_behind_every_translation() {
    as_root(|| {
        for masquerades in [false, true] {
            let line = Line::new();
            let any: SocketAddr = (Line::SERVER_V4.parse::<IpAddr>().expect("an address"), 80).into();
            let listener = line.server.listen(any);
            let nat = |rule: &str| line.router.run(&format!("iptables -w -t nat -A {rule}"));
            nat("PREROUTING -d 192.0.2.1 -p tcp --dport 8080 -j DNAT --to 198.51.100.2:80");
            if masquerades {
                nat("POSTROUTING -o right -j MASQUERADE");
            }
            let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, "--enforce --hook forward");
            let published: SocketAddr = "192.0.2.1:8080".parse().expect("an address");
            for _ in 0..2 {
                let mut client = line.client.connect(published).expect("the handshake passes");
                let (server, _) = listener.accept().expect("the handshake passes");
                let request = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n\r\n";
                client.write_all(request).expect("it is open");
                for mut end in [&client, &server] {
                    end.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
                    let ended = end.read(&mut [0; 9]).expect_err("it is reset");
                    assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "masquerades: {masquerades}");
                }
            }
            stop(guard);
        }
    });
}
