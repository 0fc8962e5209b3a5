//! `bannerwall doctor` on networks that are broken in one way each: the fault is named, what cannot be
//! seen is never called well, and the exit code says which of these it was.

use std::process::Command;

use bannerwall_test_support::{Guard, Line, NO_SQLMAP, Namespace, Running, as_root};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Runs doctor; gives the exit code and its lines.
fn doctor(mut command: Command, flags: &str) -> (Option<i32>, String) {
    let output = command.arg("doctor").args(flags.split_whitespace()).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.is_empty(), "{stderr}");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn doctor_in(namespace: &Namespace) -> (Option<i32>, String) {
    doctor(namespace.command(PROGRAM), "")
}

/// The fault that one change makes: it was not there before, and its line holds all of `parts`.
fn assert_fault(namespace: &Namespace, what: &str, check: &str, parts: &[&str]) {
    let (code, text) = doctor_in(namespace);
    assert_eq!(code, Some(1), "{what}: {text}");
    let wanted = |line: &&str| {
        line.starts_with(&format!("FAULT {check}:")) && parts.iter().all(|part| line.contains(part))
    };
    assert!(text.lines().any(|line| wanted(&line)), "{what}: {parts:?} in\n{text}");
}

/// Whether this very process is root of the whole machine, not of a user namespace.
fn is_first_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").expect("this kernel has user namespaces");
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[test]
fn a_sound_network_is_well_in_every_line() {
    as_root(|| {
        let namespace = Namespace::new();
        let (code, text) = doctor_in(&namespace);
        let count = text.lines().last().expect("a count");
        assert!(count.contains(" ok, ") && count.contains(" nothing to check"), "{text}");
        let well = |line: &&str| line.starts_with("ok ") || line.starts_with("- ");
        let unwell = text.lines().filter(|line| !well(line) && *line != count);
        if is_first_user_namespace() {
            assert_eq!((code, unwell.count()), (Some(0), 0), "{text}");
        } else {
            assert!(unwell.clone().all(|line| line.contains("receive buffer")), "{text}");
        }
        assert!(text.contains("-     hook: no hook is up"), "{text}");
        namespace.run(&format!("{PROGRAM} hook up --queue 3"));
        let _guard = Guard::start(&namespace, PROGRAM, NO_SQLMAP, "--queue 3");
        let (_, text) = doctor_in(&namespace);
        assert!(text.contains("ok    hook: up, in its place and served: IPv4"), "{text}");
    });
}

#[test]
fn findings_as_json_are_one_object_a_line() {
    as_root(|| {
        let namespace = Namespace::new();
        namespace.run("ip rule add fwmark 2 table 100");
        let (code, text) = doctor(namespace.command(PROGRAM), "--format json");
        assert_eq!(code, Some(1), "{text}");
        let findings = bannerwall_test_support::json_lines(text.as_bytes());
        let mark = findings.iter().find(|finding| finding["check"] == "mark").expect("a finding");
        assert_eq!(mark["state"], "fault");
        assert!(mark["message"].as_str().is_some_and(|said| said.contains("fwmark 0x2")), "{mark}");
    });
}

#[test]
fn what_is_not_permitted_is_not_checked_and_never_well() {
    as_root(|| {
        let namespace = Namespace::new();
        let (code, text) = doctor(namespace.command_without_net_admin(PROGRAM), "");
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("DENIED capabilities: missing CAP_NET_ADMIN"), "{text}");
        for check in ["netfilter queue", "iptables", "hook", "mark", "conntrack", "flowtables"] {
            assert!(text.contains(&format!("?     {check}: not checked: ")), "{check}: {text}");
            assert!(!text.contains(&format!("ok    {check}:")), "{check}: {text}");
        }
    });
}

#[test]
fn without_the_programs_that_show_rules_nothing_is_called_well() {
    as_root(|| {
        let namespace = Namespace::new();
        let _guard = Guard::start(&namespace, PROGRAM, NO_SQLMAP, "");
        let mut command = namespace.command("env");
        command.args(["PATH=/nowhere", PROGRAM]);
        let (code, text) = doctor(command, "");
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("FAULT iptables: cannot run `iptables`"), "{text}");
        assert!(text.contains("?     guards: not checked: hook of the guards"), "{text}");
        for (check, program) in [
            ("mark", "iptables-nft-save"),
            ("mark", "nft"),
            ("mark", "ip"),
            ("conntrack", "nft"),
            ("flowtables", "nft"),
            ("bridges", "ip"),
        ] {
            let line = text.lines().find(|line| {
                line.starts_with(&format!("?     {check}: not checked:"))
                    && line.contains(&format!("no `{program}` on PATH"))
            });
            assert!(line.is_some(), "{check} without {program}: {text}");
        }
    });
}

/// Changes to a network, and what must be told of each.
const FOREIGN: [(&str, &str, &[&str]); 12] = [
    ("ip rule add fwmark 2 table 100", "mark", &["the whole mark", "fwmark 0x2 lookup"]),
    (
        "ip -6 rule add fwmark 0xc0000000/0xc0000000 table 100",
        "mark",
        &["choose others", "0xc0000000/0xc0000000"],
    ),
    (
        "iptables-nft -w -t mangle -A PREROUTING -j CONNMARK --restore-mark",
        "mark",
        &["the whole mark", "IPv4 (iptables-nft -t mangle): -A PREROUTING -j CONNMARK --restore-mark"],
    ),
    ("ip6tables-nft -w -t mangle -A PREROUTING -j CONNMARK --save-mark", "mark", &["IPv6 (ip6tables-nft"]),
    (
        "iptables-nft -w -t mangle -A INPUT -j MARK --set-xmark 0x80000000/0x80000000",
        "mark",
        &["other rules use bits 0xc0000000: IPv4", "-A INPUT -j MARK", "choose others"],
    ),
    (
        "iptables-legacy -w -t mangle -A INPUT -j MARK --set-xmark 0x80000000/0x80000000",
        "mark",
        &["IPv4 (iptables-legacy -t mangle): -A INPUT"],
    ),
    (
        "ip6tables-legacy -w -t nat -A PREROUTING -m mark --mark 0x2 -j ACCEPT",
        "mark",
        &["the whole mark", "IPv6 (ip6tables-legacy -t nat)"],
    ),
    ("nft add rule inet t c meta mark set 0xc0000000", "mark", &["nft rule inet t c handle"]),
    ("nft add rule inet t c ct mark set meta mark", "mark", &["nft rule inet t c handle"]),
    (
        "nft add rule inet t c tcp dport 80 notrack",
        "conntrack",
        &["never offloaded", "nft rule inet t c handle"],
    ),
    (
        "iptables-nft -w -t raw -A PREROUTING -p tcp -j CT --notrack",
        "conntrack",
        &["IPv4 (iptables-nft -t raw): -A PREROUTING -p tcp -j CT --notrack"],
    ),
    (
        "ip6tables-legacy -w -t raw -A OUTPUT -j CT --notrack",
        "conntrack",
        &["IPv6 (ip6tables-legacy -t raw)"],
    ),
];

#[test]
fn rules_of_others_that_harm_the_guard_are_named() {
    as_root(|| {
        for (change, check, parts) in FOREIGN {
            let namespace = Namespace::new();
            namespace.run("nft add table inet t");
            namespace.run("nft add chain inet t c { type filter hook prerouting priority raw ; }");
            namespace.run(change);
            assert_fault(&namespace, change, check, parts);
        }
    });
}

#[test]
fn what_leaves_out_what_the_hook_leads_is_a_fault_and_nothing_else() {
    as_root(|| {
        let namespace = Namespace::new();
        namespace.run(&format!("{PROGRAM} hook up --queue 3 --ports 22 --hook-udp 443"));
        let _guard = Guard::start(&namespace, PROGRAM, NO_SQLMAP, "--queue 3");
        namespace.run("iptables-nft -w -t raw -A PREROUTING -p udp --dport 53 -j CT --notrack");
        namespace.run("iptables-nft -w -t raw -A PREROUTING -p tcp --dport 80 -j CT --notrack");
        let (_, text) = doctor_in(&namespace);
        assert!(text.contains("ok    conntrack:"), "{text}");
        let quic = "-A PREROUTING -p udp -m udp --dport 443 -j CT --notrack";
        namespace.run(&format!("iptables-nft -w -t raw {quic}"));
        assert_fault(&namespace, quic, "conntrack", &["never offloaded", quic]);
    });
}

#[test]
fn rules_of_others_that_keep_to_their_bits_are_well() {
    as_root(|| {
        let namespace = Namespace::new();
        for change in [
            "nft add table inet t",
            "nft add chain inet t c { type filter hook prerouting priority raw ; }",
            "ip rule add fwmark 2/0xff table 100",
            "iptables-nft -w -t mangle -A PREROUTING -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff",
            "iptables-legacy -w -t mangle -A PREROUTING -m mark --mark 0x2/0xff -j MARK --set-xmark 0x4/0xff",
            "nft add rule inet t c meta mark and 0xff == 0x2 accept",
            "nft add rule inet t c ct mark set ct mark or 0x10",
            "nft add rule inet t c udp dport 53 notrack",
            "iptables-nft -w -t raw -A PREROUTING -p udp -j CT --notrack",
        ] {
            namespace.run(change);
        }
        let (_, text) = doctor_in(&namespace);
        for check in ["mark", "conntrack"] {
            assert!(text.contains(&format!("ok    {check}:")), "{text}");
        }
        let (code, text) = doctor(namespace.command(PROGRAM), "--mark 1");
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("FAULT mark: other rules use bits 0x6: "), "{text}");
    });
}

#[test]
fn a_hook_that_does_not_do_its_work_is_a_fault() {
    as_root(|| {
        let breaks: [(&str, &[&str]); 7] = [
            (
                "iptables -w -t mangle -I FORWARD -p tcp --dport 80 -j ACCEPT",
                &["rules before the jump in FORWARD let packets pass uninspected", "--dport 80 -j ACCEPT"],
            ),
            ("ip6tables -w -t mangle -D FORWARD 1", &["IPv6", "damaged"]),
            ("ip6tables -w -t mangle -D BANNERWALL 2", &["IPv6", "damaged"]),
            ("iptables -w -t mangle -A FORWARD -p tcp -j BANNERWALL", &["IPv4", "FORWARD has 2 jumps to it"]),
            (
                "iptables -w -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1000",
                &["rules after the jump in FORWARD", "TCPMSS --set-mss 1000"],
            ),
            (&format!("{PROGRAM} hook up --iptables legacy --queue 3"), &["both variants of iptables"]),
            (&format!("{PROGRAM} hook up --queue 7"), &["leads to queue 7", "pass uninspected"]),
        ];
        for (change, parts) in breaks {
            let namespace = Namespace::new();
            namespace.run(&format!("{PROGRAM} hook up --queue 3 --chains forward"));
            let _guard = Guard::start(&namespace, PROGRAM, NO_SQLMAP, "--queue 3");
            let (_, text) = doctor_in(&namespace);
            assert!(text.contains("ok    hook:"), "{change}: {text}");
            namespace.run(change);
            assert_fault(&namespace, change, "hook", parts);
        }
    });
}

#[test]
fn a_hook_of_one_family_is_well_if_that_is_the_one_asked_for() {
    as_root(|| {
        let namespace = Namespace::new();
        let _guard = Guard::start(&namespace, PROGRAM, NO_SQLMAP, "--hook input --family ipv6");
        let (_, text) = doctor_in(&namespace);
        assert!(text.contains("FAULT hook: IPv4 has no complete hook"), "{text}");
        let (_, text) = doctor(namespace.command(PROGRAM), "--family ipv6");
        assert!(text.contains("ok    hook: up, in its place and served: IPv6"), "{text}");
        namespace.run(&format!("{PROGRAM} hook status --family ipv6"));
    });
}

#[test]
fn a_closed_hook_that_nobody_serves_drops_all_tcp_and_is_a_fault() {
    as_root(|| {
        let namespace = Namespace::new();
        namespace.run(&format!("{PROGRAM} hook up --on-failure closed"));
        assert_fault(&namespace, "closed", "hook", &["leads to queue 0", "no guard listens", "are dropped"]);
    });
}

#[test]
fn a_guard_that_its_hook_contradicts_is_a_fault() {
    as_root(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let rules = folder.path().join("rules.toml");
        std::fs::copy("tests/data/rules/suspicious.toml", &rules).expect("the folder is ours");
        std::fs::write(folder.path().join("guard.toml"), "[guard]\nmark = 4\n").expect("the folder is ours");
        let cases: [(&str, &str, &[&str]); 4] = [
            ("--queue 0", "--queue 3", &["serves queue 3, but no hook leads there"]),
            ("--queue 0", "--queue 0:2", &["serves queue 1, 2, but no hook leads there"]),
            ("--queue 0", "--config guard.toml", &["writes mark 0x30, but the hook reads 0xc0000000"]),
            ("--queue 0", "--on-failure closed", &["has --on-failure closed, but its hook open"]),
        ];
        for (hook, guard, parts) in cases {
            let namespace = Namespace::new();
            namespace.run(&format!("{PROGRAM} hook up {hook}"));
            let mut command = namespace.command(PROGRAM);
            command.current_dir(folder.path()).args(["guard", "--rules", "rules.toml"]);
            command.args(guard.split_whitespace());
            let guard = Running::start(command);
            guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
            assert_fault(&namespace, hook, "guards", parts);
        }
    });
}

#[test]
fn a_bridge_whose_frames_pass_by_iptables_is_a_fault() {
    as_root(|| {
        let line = Line::new();
        let router = &line.router;
        router.run("ip link add br0 type bridge");
        for port in ["left", "right"] {
            router.run(&format!("ip link set {port} master br0"));
        }
        let switches = ["bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"];
        // Without br_netfilter the switches are not there, which is as good as off.
        let has_switches = router.inside(|| std::path::Path::new("/proc/sys/net/bridge").is_dir());
        if has_switches {
            switches.iter().for_each(|switch| router.set(switch, "0"));
        }
        assert_fault(router, "a bridge", "bridges", &["frames that br0 forwards", "br_netfilter"]);
        if has_switches {
            switches.iter().for_each(|switch| router.set(switch, "1"));
            let (_, text) = doctor_in(router);
            assert!(text.contains("ok    bridges:"), "{text}");
            assert!(text.contains("except for frames with VLAN tags"), "{text}");
        }
    });
}

#[test]
fn root_of_a_user_namespace_is_not_told_that_it_gets_a_large_buffer() {
    as_root(|| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", PROGRAM]);
        let (code, text) = doctor(command, "");
        assert_ne!(code, Some(0), "{text}");
        assert!(text.contains("SO_RCVBUFFORCE"), "{text}");
        assert!(!text.contains("ok    receive buffer"), "{text}");
    });
}
