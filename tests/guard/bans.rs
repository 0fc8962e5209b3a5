//! Bans and enforcement in steps, by a real guard between a real client and a real server.

use std::net::IpAddr;
use std::time::Duration;

use bannerwall_test_support::{Guard, Line, NO_SQLMAP, Namespace, Nginx, Signal, as_root, eventually};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const METRICS: &str = "127.0.0.1:9464";
/// Addresses of the client, and of the server that it asks.
const FAMILIES: [(&str, &str); 2] = [("192.0.2.2", "198.51.100.2"), ("2001:db8:1::2", "[2001:db8:2::2]")];

/// A rule that bans sqlmap for so long.
fn bans(time: &str) -> String {
    format!("{}ban = \"{time}\"\n", NO_SQLMAP.replace("\"reject\"", "\"ban\""))
}

/// True if a client that calls itself so gets an answer.
fn gets(client: &Namespace, agent: &str, server: &str) -> bool {
    let mut curl = client.command("curl");
    curl.args(["--silent", "--globoff", "--max-time", "2", "--user-agent", agent]);
    curl.arg(format!("http://{server}/")).output().expect("curl starts").status.success()
}

/// True if the kernel of the router holds this ban.
fn is_banned(router: &Namespace, client: &str) -> bool {
    let listed = router.output("nft list table inet bannerwall");
    String::from_utf8_lossy(&listed.stdout).contains(&format!(" {client} timeout"))
}

fn wait_banned(router: &Namespace, client: &str) {
    eventually("the ban", || is_banned(router, client).then_some(()));
}

/// What is reported of bans: who, what, and the detail.
fn reported(guard: &Guard) -> Vec<(String, String, Option<String>)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let of = |event: Value| {
        let own = &event["bannerwall"];
        Some((text(&own["ban"]["address"])?, text(&own["ban"]["state"])?, text(&own["detail"])))
    };
    guard.events().into_iter().filter(|event| event["event_type"] == "ban").filter_map(of).collect()
}

fn wait_reported(guard: &Guard, address: &str, state: &str, detail: Option<&str>) {
    let wanted = (address.to_owned(), state.to_owned(), detail.map(str::to_owned));
    eventually(&format!("{wanted:?}"), || reported(guard).contains(&wanted).then_some(()));
}

fn metric(namespace: &Namespace, name: &str) -> u64 {
    let shown = namespace.run(&format!("curl --silent http://{METRICS}/metrics"));
    let line = shown.lines().find_map(|line| line.strip_prefix(&format!("bannerwall_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {shown}")).parse().expect("a number")
}

/// What `bannerwall bans` prints, and its exit code.
fn command(namespace: &Namespace, words: &str) -> (String, Option<i32>) {
    let output = namespace.output(&format!("{PROGRAM} bans {words}"));
    let printed = [output.stdout, output.stderr].map(|part| String::from_utf8_lossy(&part).into_owned());
    (printed.concat(), output.status.code())
}

fn stop(mut guard: Guard) {
    guard.process.signal(Signal::TERM);
    assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
}

#[test]
fn a_client_of_a_forbidden_connection_is_kept_out_for_a_time() {
    as_root(|| {
        let line = Line::new();
        let _nginx = Nginx::start(&line.server, 80, "");
        let flags = format!("--hook forward --enforce --metrics {METRICS}");
        let guard = Guard::start(&line.router, PROGRAM, &bans("8s"), &flags);
        for (client, server) in FAMILIES {
            assert!(gets(&line.client, "curl/8.0", server), "{client} is not banned yet");
            assert!(!gets(&line.client, "sqlmap/1.7", server));
            wait_banned(&line.router, client);
            assert!(!gets(&line.client, "curl/8.0", server), "{client} is banned");
            wait_reported(&guard, client, "banned", None);
        }
        assert_eq!(metric(&line.router, "bans_total{result=\"banned\"}"), 2);
        for (client, server) in FAMILIES {
            wait_reported(&guard, client, "unbanned", Some("expired"));
            assert!(!is_banned(&line.router, client));
            assert!(gets(&line.client, "curl/8.0", server), "the ban of {client} is over");
        }
        let banned = guard.events().into_iter().find(|event| event["event_type"] == "ban").expect("a ban");
        assert_eq!(banned["bannerwall"]["rule"], "no-sqlmap");
        assert_eq!(banned["bannerwall"]["banner"], "GET / HTTP/1.1");
        let seconds = banned["bannerwall"]["ban"]["seconds"].as_u64().expect("the time");
        assert!((1..=8).contains(&seconds), "{seconds}");
        eventually("the count", || (metric(&line.router, "banned_packets_total") > 0).then_some(()));
        assert_eq!(metric(&line.router, "bans"), 0);
        stop(guard);
        let tables = line.router.run("nft list tables");
        assert!(!tables.contains("bannerwall"), "it goes with the hook: {tables}");
    });
}

#[test]
fn exempt_networks_and_the_machine_itself_are_never_banned() {
    as_root(|| {
        let line = Line::new();
        let _nginx = Nginx::start(&line.server, 80, "");
        let flags = format!(
            "--hook input,output,forward --enforce --ban-exempt 192.0.2.0/24,203.0.113.1 --metrics {METRICS}"
        );
        let guard = Guard::start(&line.router, PROGRAM, &bans("1h"), &flags);
        let [(client_v4, server_v4), (client_v6, server_v6)] = FAMILIES;
        assert!(!gets(&line.client, "sqlmap/1.7", server_v4));
        assert!(!gets(&line.router, "sqlmap/1.7", server_v6), "blocked");
        eventually("two exemptions", || {
            (metric(&line.router, "bans_total{result=\"exempt\"}") == 2).then_some(())
        });
        assert!(!gets(&line.client, "sqlmap/1.7", server_v6));
        wait_banned(&line.router, client_v6);
        assert!(gets(&line.client, "curl/8.0", server_v4), "{client_v4} is exempt");
        assert!(gets(&line.router, "curl/8.0", server_v6), "the guard's own machine");
        for (address, why) in [
            ("192.0.2.9", "--ban-exempt names 192.0.2.0/24"),
            ("198.51.100.1", "an address of this machine"),
            ("127.0.0.1", "loopback"),
        ] {
            let (said, code) = command(&line.router, &format!("add {address}"));
            assert!(said.contains(why) && code == Some(2), "{address}: {said}");
        }
        stop(guard);
    });
}

#[test]
fn an_administrator_bans_lists_and_unbans() {
    as_root(|| {
        let line = Line::new();
        let _nginx = Nginx::start(&line.server, 80, "");
        let guard = Guard::start(&line.router, PROGRAM, &bans("1h"), "--hook forward --enforce");
        assert_eq!(command(&line.router, "list"), (String::new(), Some(0)));
        for (client, server) in FAMILIES {
            let (said, code) = command(&line.router, &format!("add {client} --for 90m"));
            assert!(said.contains("is banned for 1h 30m") && code == Some(0), "{said}");
            assert!(!gets(&line.client, "curl/8.0", server), "{client} is banned");
            let (text, _) = command(&line.router, "list");
            assert!(text.contains(client) && text.contains("1h 29m") && text.contains("manual"), "{text}");
            let (json, _) = command(&line.router, "list --format json");
            let ban: Value = serde_json::from_str(&json).expect("one ban");
            assert_eq!((&ban["address"], &ban["rule"]), (&Value::from(client), &Value::Null));
            assert!((5390..=5400).contains(&ban["seconds"].as_u64().expect("a number")), "{ban}");
            let (said, code) = command(&line.router, &format!("remove {client}"));
            assert!(said.contains("no longer banned") && code == Some(0), "{said}");
            wait_reported(&guard, client, "unbanned", Some("removed"));
            assert!(gets(&line.client, "curl/8.0", server), "{client} is not banned any more");
            let (said, code) = command(&line.router, &format!("remove {client}"));
            assert!(said.contains("is not banned") && code == Some(2), "{said}");
        }
        // A ban by a rule is shown with its banner, and an earlier end does not shorten it.
        assert!(!gets(&line.client, "sqlmap/1.7", FAMILIES[0].1));
        wait_banned(&line.router, FAMILIES[0].0);
        command(&line.router, &format!("add {} --for 1m", FAMILIES[0].0));
        let (text, _) = command(&line.router, "list");
        assert!(text.contains("no-sqlmap  GET / HTTP/1.1") && text.contains("59m"), "{text}");
        stop(guard);
        let (said, code) = command(&line.router, "list");
        assert!(said.contains("no guard listens") && code == Some(2), "{said}");
    });
}

#[test]
fn bans_outlive_a_reload_a_restart_and_a_takeover_and_go_with_the_hook() {
    as_root(|| {
        let line = Line::new();
        let _nginx = Nginx::start(&line.server, 80, "");
        line.router.run(&format!("{PROGRAM} hook up --chains forward"));
        let folder = tempfile::tempdir().expect("a folder");
        let flags = format!("--enforce --takeover {}/takeover", folder.path().display());
        let guard = Guard::start(&line.router, PROGRAM, &bans("1h"), &flags);
        let [(client, server), _] = FAMILIES;
        assert!(!gets(&line.client, "sqlmap/1.7", server));
        wait_banned(&line.router, client);
        guard.process.signal(Signal::HUP);
        guard.process.wait_stderr("a reload", |text| text.contains("reloaded").then_some(()));
        let kept = |what: &str| {
            assert!(!gets(&line.client, "curl/8.0", server), "banned after {what}");
            let (text, _) = command(&line.router, "list");
            assert!(text.contains(client) && text.contains("no-sqlmap  GET / HTTP/1.1"), "{what}: {text}");
        };
        kept("a reload");
        let successor = Guard::start(&line.router, PROGRAM, &bans("1h"), &flags);
        let mut guard = guard;
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        kept("a takeover");
        stop(successor);
        assert!(!gets(&line.client, "curl/8.0", server), "banned while no guard runs");
        let restarted = Guard::start(&line.router, PROGRAM, &bans("1h"), &flags);
        kept("a restart");
        command(&line.router, &format!("remove {client}"));
        assert!(gets(&line.client, "curl/8.0", server), "a ban of another run is removed");
        command(&line.router, "add 203.0.113.9");
        stop(restarted);
        assert!(is_banned(&line.router, "203.0.113.9"));
        line.router.run(&format!("{PROGRAM} hook down"));
        assert!(!line.router.run("nft list tables").contains("bannerwall"), "nothing is left");
    });
}

#[test]
fn a_removed_table_is_put_back() {
    as_root(|| {
        let line = Line::new();
        let guard = Guard::start(&line.router, PROGRAM, &bans("1h"), "--hook forward --enforce");
        for address in ["203.0.113.7", "2001:db8:3::7"] {
            let (said, code) = command(&line.router, &format!("add {address}"));
            assert_eq!(code, Some(0), "{said}");
        }
        line.router.run("nft delete table inet bannerwall");
        for address in ["203.0.113.7", "2001:db8:3::7"] {
            wait_banned(&line.router, address);
        }
        stop(guard);
    });
}

#[test]
fn a_connection_whose_beginning_was_not_seen_bans_nobody() {
    as_root(|| {
        let line = Line::new();
        let _nginx = Nginx::start(&line.server, 80, "");
        let [(client, server), _] = FAMILIES;
        let stream = line.client.connect((server.parse::<IpAddr>().expect("an address"), 80));
        let mut stream = stream.expect("it is open");
        stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        let guard = Guard::start(&line.router, PROGRAM, &bans("1h"), "--hook forward --enforce");
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n\r\n";
        std::io::Write::write_all(&mut stream, request).expect("the kernel takes it");
        assert!(std::io::Read::read(&mut stream, &mut [0; 64]).is_err(), "blocked");
        assert!(gets(&line.client, "curl/8.0", server));
        assert!(!is_banned(&line.router, client) && reported(&guard).is_empty());
        stop(guard);
    });
}

#[test]
fn a_monitor_bans_nobody() {
    as_root(|| {
        let line = Line::new();
        let _nginx = Nginx::start(&line.server, 80, "");
        let guard = Guard::start(&line.router, PROGRAM, &bans("1h"), "--hook forward");
        assert!(gets(&line.client, "sqlmap/1.7", FAMILIES[0].1));
        let (said, code) = command(&line.router, "add 203.0.113.7");
        assert!(said.contains("only monitors") && code == Some(2), "{said}");
        assert!(!line.router.run("nft list tables").contains("inet bannerwall"));
        stop(guard);
    });
}

#[test]
fn only_a_part_of_the_flows_is_enforced() {
    as_root(|| {
        let line = Line::new();
        let _nginx = Nginx::start(&line.server, 80, "");
        let [(_, server_v4), (_, server_v6)] = FAMILIES;
        let flags = "--hook forward --enforce --enforce-only 192.0.2.0/24";
        let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, flags);
        assert!(guard.process.stderr().contains("enforcing only 192.0.2.0/24"), "{}", guard.process.stderr());
        assert!(!gets(&line.client, "sqlmap/1.7", server_v4), "within");
        assert!(gets(&line.client, "sqlmap/1.7", server_v6), "outside");
        let alerts = eventually("both alerts", || {
            let alerts: Vec<Value> =
                guard.events().into_iter().filter(|event| event["event_type"] == "alert").collect();
            (alerts.len() == 2).then_some(alerts)
        });
        let enforced = alerts.iter().map(|alert| alert["bannerwall"]["enforced"].as_bool());
        assert_eq!(enforced.collect::<Vec<_>>(), [Some(true), Some(false)]);
        stop(guard);
        for (flags, why) in
            [("--enforce --enforce-only 0%", "1% to 100%"), ("--enforce-only 10%", "--enforce")]
        {
            let output = line.router.output(&format!("{PROGRAM} guard {flags}"));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(2) && said.contains(why), "{flags}: {said}");
        }
    });
}
