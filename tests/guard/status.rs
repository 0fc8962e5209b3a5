//! What a running guard says of itself, and of what it blocked.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use bannerwall_test_support::{
    Namespace, Running, Signal, as_root, eventually, json_lines, json_lines_so_far,
};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const RULE: &str = r#"
[[rule]]
id = "old-ssh"
title = "OldSSH is forbidden"
protocol = "ssh"
match.software = '^OldSSH_'
action = "drop"
"#;

/// A guard of a network, with its files.
struct Guard<'a> {
    network: &'a Namespace,
    folder: TempDir,
    process: Running,
}

impl<'a> Guard<'a> {
    fn start(network: &'a Namespace, flags: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("rules")).expect("the folder is ours");
        std::fs::create_dir(folder.path().join("local")).expect("the folder is ours");
        std::fs::write(folder.path().join("rules/a.toml"), RULE).expect("the folder is ours");
        std::fs::write(folder.path().join("guard.toml"), "[guard]\nenforce = true\n").expect("it is ours");
        let process = Running::start(Self::command(network, &folder, flags));
        let guard = Self { network, folder, process };
        guard.wait_ready();
        guard
    }

    fn command(network: &Namespace, folder: &TempDir, flags: &str) -> Command {
        let path = |name: &str| folder.path().join(name);
        let mut command = network.command(PROGRAM);
        command.arg("guard").arg("--rules").arg(path("rules")).arg("--local").arg(path("local"));
        command.arg("--config").arg(path("guard.toml")).args(flags.split_whitespace());
        command
    }

    fn wait_ready(&self) {
        self.process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ask(&self, words: &str) -> Output {
        self.network.output(&format!("{PROGRAM} {words}"))
    }

    fn status(&self) -> (Option<i32>, Value) {
        let output = self.ask("status --format json");
        let lines = json_lines(&output.stdout);
        (output.status.code(), lines.into_iter().next().unwrap_or_default())
    }

    /// What `bannerwall why` says of an address, as JSON: the blocks.
    fn why(&self, address: &str) -> Vec<Value> {
        let output = self.ask(&format!("why {address} --format json"));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        json_lines(&output.stdout)[0]["blocks"].as_array().cloned().unwrap_or_default()
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Whether a client with this address is greeted by the server.
fn is_greeted(network: &Namespace, client: IpAddr, server: SocketAddr) -> bool {
    network.inside(|| {
        let domain = socket2::Domain::for_address(server);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(client, 0).into()).expect("an address of loopback");
        socket.connect(&server.into()).expect("the server listens");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        let mut octets = [0; 64];
        TcpStream::from(socket).read(&mut octets).is_ok_and(|length| length > 0)
    })
}

/// Serves old SSH servers at these addresses for as long as the test runs.
fn serve(network: &Namespace, addresses: &[&str], banner: &'static [u8]) {
    for address in addresses {
        let address: SocketAddr = address.parse().expect("an address");
        let listener = network.listen(address);
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let _ = connection.write_all(banner);
            }
        });
    }
}

#[test]
fn status_names_what_is_wrong_and_only_that() {
    as_root(|| {
        let network = Namespace::new();
        let mut guard = Guard::start(&network, "--hook input");
        let (code, status) = guard.status();
        assert_eq!((code, &status["faults"]), (Some(0), &serde_json::json!([])), "{status}");
        assert_eq!(status["queues"][0]["owner"], "guard", "{status}");
        assert_eq!(status["rules"]["in_force"], 1);
        assert_eq!(status["last_reload"], Value::Null);
        let digest = status["rules"]["sha256"].as_str().expect("a digest").to_owned();
        assert_eq!(digest.len(), 64);
        let shown = text(&guard.ask("status").stdout);
        assert!(shown.contains("owner this guard") && shown.contains(&digest), "{shown}");

        // Drift: of rules, of the configuration, and of a local file that is new.
        std::fs::write(guard.path("rules/a.toml"), format!("{RULE}# changed\n")).expect("it is ours");
        std::fs::write(guard.path("local/b.toml"), "# new\n").expect("it is ours");
        std::fs::write(guard.path("guard.toml"), "[guard]\nenforce = false\n").expect("it is ours");
        let (code, status) = guard.status();
        assert_eq!(code, Some(1));
        let drift: Vec<(String, &Value, &Value)> = status["drift"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|file| {
                let path = PathBuf::from(file["path"].as_str().expect("a path"));
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                (name, &file["change"], &file["by_reload"])
            })
            .collect();
        let (changed, added) = (&Value::from("changed"), &Value::from("added"));
        let (yes, no) = (&Value::Bool(true), &Value::Bool(false));
        let expected = [("a.toml", changed, yes), ("b.toml", added, yes), ("guard.toml", changed, no)];
        let expected = expected.map(|(name, change, by)| (name.to_owned(), change, by));
        assert_eq!(drift, expected, "{status}");

        // A refused reload, then a good one.
        std::fs::write(guard.path("rules/a.toml"), "[[rule]]\n").expect("it is ours");
        assert_eq!(guard.ask("reload").status.code(), Some(2));
        let shown = text(&guard.ask("status").stdout);
        assert!(shown.contains("fault: the last reload was refused"), "{shown}");
        std::fs::write(guard.path("rules/a.toml"), format!("{RULE}# changed\n")).expect("it is ours");
        std::fs::write(guard.path("guard.toml"), "[guard]\nenforce = true\n").expect("it is ours");
        assert_eq!(guard.ask("reload").status.code(), Some(0));
        let (code, status) = guard.status();
        assert_eq!((code, &status["faults"]), (Some(0), &serde_json::json!([])), "{status}");
        assert_ne!(status["rules"]["sha256"], digest.as_str());
        assert_eq!(status["last_reload"]["error"], Value::Null);

        guard.process.signal(Signal::STOP);
        let stopped = guard.ask("status");
        assert_eq!(stopped.status.code(), Some(1), "{stopped:?}");
        assert!(text(&stopped.stdout).contains("it is stopped or hangs"), "{stopped:?}");
        guard.process.signal(Signal::CONT);
        guard.process.signal(Signal::TERM);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let gone = guard.ask("status");
        assert_eq!(gone.status.code(), Some(2));
        assert!(text(&gone.stderr).contains("start one with `bannerwall guard`"), "{gone:?}");
    });
}

#[test]
fn the_socket_is_for_root_and_the_guard_s_group() {
    as_root(|| {
        let network = Namespace::new();
        let guard = Guard::start(&network, "--hook input --user nobody --queue 3");
        assert_eq!(guard.ask("status --queue 3").status.code(), Some(0));
        let group = text(&network.output("id -g nobody").stdout).trim().to_owned();
        let asks_as = |group: &str| {
            let words =
                format!("setpriv --reuid 12345 --regid {group} --clear-groups {PROGRAM} status --queue 3");
            guard.network.output(&words)
        };
        assert_eq!(asks_as(&group).status.code(), Some(0));
        let stranger = asks_as("12345");
        assert_eq!(stranger.status.code(), Some(3), "{stranger:?}");
        assert!(text(&stranger.stderr).contains("run this as root"), "{stranger:?}");
    });
}

#[test]
fn why_names_rule_and_banner_and_its_override_lets_the_connection_pass() {
    as_root(|| {
        let network = Namespace::new();
        network.run("ip -6 address add 2001:db8::1/128 dev lo nodad");
        let servers = ["127.0.0.2:2222", "[2001:db8::1]:2222"];
        serve(&network, &servers, b"SSH-2.0-OldSSH_1.0\x1b[2J\r\n");
        let guard = Guard::start(&network, "--hook input");
        assert_eq!(guard.why("127.0.0.2"), Vec::<Value>::new());
        for (client, server) in [("127.0.0.9", servers[0]), ("::1", servers[1])] {
            let (client, server): (IpAddr, SocketAddr) = (client.parse().unwrap(), server.parse().unwrap());
            assert!(!is_greeted(&network, client, server) && !is_greeted(&network, client, server));
            let block = eventually("two blocks", || {
                let blocks = guard.why(&client.to_string());
                (blocks.len() == 1 && blocks[0]["count"] == 2).then(|| blocks[0].clone())
            });
            assert_eq!(block["rule"], "old-ssh", "{block}");
            assert_eq!(block["server"], server.to_string());
            assert_eq!(block["place"]["file"], guard.path("rules/a.toml").display().to_string());
            assert_eq!(block["place"]["line"], 2);
            assert_eq!(block["matched"]["field"], "software");
            assert!(block["matched"]["text"].as_str().is_some_and(|text| text.starts_with("OldSSH_1.0")));
            // The server's side, with its port; another port has none.
            assert_eq!(guard.why(&server.to_string()).len(), 1);
            assert_eq!(guard.why(&SocketAddr::new(server.ip(), 2223).to_string()).len(), 0);
            let shown = text(&guard.ask(&format!("why {client}")).stdout);
            assert!(shown.contains("OldSSH_1.0\\x1b[2J") && !shown.contains('\x1b'), "{shown}");
            // The override, pasted as it is.
            let toml: String = shown
                .lines()
                .skip_while(|line| !line.contains("[[override]]"))
                .map(|line| format!("{line}\n"))
                .collect();
            let name = format!("local/{}.toml", if client.is_ipv4() { "four" } else { "six" });
            std::fs::write(guard.path(&name), toml).expect("it is ours");
            let reloaded = guard.ask("reload");
            assert_eq!(reloaded.status.code(), Some(0), "{reloaded:?}");
            eventually("the exempt client to be greeted", || {
                is_greeted(&network, client, server).then_some(())
            });
        }
        assert!(
            !is_greeted(&network, "127.0.0.8".parse().unwrap(), servers[0].parse().unwrap()),
            "another client"
        );
    });
}

#[test]
fn a_guard_that_takes_over_remembers_what_was_blocked() {
    as_root(|| {
        let network = Namespace::new();
        serve(&network, &["127.0.0.2:2222"], b"SSH-2.0-OldSSH_1.0\r\n");
        let socket = TempDir::new().expect("a temporary folder");
        let flags =
            format!("--hook input --hook-keep --takeover {}", socket.path().join("takeover").display());
        let mut first = Guard::start(&network, &flags);
        assert!(!is_greeted(&network, "127.0.0.9".parse().unwrap(), "127.0.0.2:2222".parse().unwrap()));
        eventually("the block", || (first.why("127.0.0.9").len() == 1).then_some(()));
        let second = Running::start(Guard::command(&network, &first.folder, &flags));
        second.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        assert_eq!(first.process.wait_exit().code(), Some(0), "{}", first.process.stderr());
        assert_eq!(first.why("127.0.0.9").len(), 1, "the new guard replies");
        assert_eq!(first.status().1["continues"], true);
    });
}

#[test]
fn an_exemption_ends_without_a_reload_and_what_it_let_pass_is_reported() {
    as_root(|| {
        let network = Namespace::new();
        serve(&network, &["127.0.0.2:2222"], b"SSH-2.0-OldSSH_1.0\r\n");
        let folder = TempDir::new().expect("a temporary folder");
        let events = folder.path().join("events.json");
        let guard = Guard::start(&network, &format!("--hook input --events {}", events.display()));
        let (client, server) = ("127.0.0.9".parse().unwrap(), "127.0.0.2:2222".parse().unwrap());
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(20);
        let exempt = format!(
            "[[override]]\nrule = \"old-ssh\"\nexempt = [\"127.0.0.9\"]\nowner = \"netops\"\nuntil = {until:.0}\n"
        );
        std::fs::write(guard.path("local/a.toml"), exempt).expect("it is ours");
        assert_eq!(guard.ask("reload").status.code(), Some(0));
        eventually("the exempt client to be greeted", || is_greeted(&network, client, server).then_some(()));
        let shown = text(&guard.ask("status").stdout);
        assert!(shown.contains("override ends soon") && shown.contains("netops"), "{shown}");
        eventually("the exemption to end", || (!is_greeted(&network, client, server)).then_some(()));
        let shown = text(&guard.ask("status").stdout);
        assert!(shown.contains("override has ended"), "{shown}");
        let local = guard.path("local").display().to_string();
        let rules = guard.path("rules").display().to_string();
        let checked = guard.ask(&format!("rules check {rules} --local {local}"));
        assert_eq!(checked.status.code(), Some(1), "{checked:?}");
        assert!(text(&checked.stdout).contains("has had no effect since"), "{checked:?}");
        let reported = eventually("both alerts", || {
            let alerts = json_lines_so_far(&std::fs::read(&events).ok()?);
            let alerts: Vec<Value> =
                alerts.into_iter().filter(|event| event["event_type"] == "alert").collect();
            alerts.iter().any(|alert| alert["alert"]["action"] == "blocked").then_some(alerts)
        });
        let allowed = reported.iter().find(|alert| alert["alert"]["action"] == "allowed");
        let allowed = allowed.expect("what the exemption let pass");
        let by = &allowed["bannerwall"]["override"];
        assert_eq!(
            (&by["kind"], &by["owner"]),
            (&Value::from("exemption"), &Value::from("netops")),
            "{allowed}"
        );
        assert_eq!((&by["line"], &allowed["bannerwall"]["rule"]), (&Value::from(1), &Value::from("old-ssh")));
    });
}

#[test]
fn a_guard_removes_what_killed_guards_have_left() {
    as_root(|| {
        let network = Namespace::new();
        let mut killed = Guard::start(&network, "--queue 7");
        killed.process.signal(Signal::KILL);
        killed.process.wait_exit();
        let number = network.run("stat --dereference --format %i /proc/self/ns/net");
        let place = PathBuf::from("/run/bannerwall");
        let socket = place.join(format!("guard-7-{}.sock", number.trim()));
        let accounts = place.join(format!("accounts-7.of-{}", number.trim()));
        std::fs::write(&accounts, "").expect("the folder is ours");
        let age = || {
            network.output(&format!(
                "touch -c -d yesterday-1hour {} {}",
                socket.display(),
                accounts.display()
            ))
        };
        assert!(age().status.success());
        let _guard = Guard::start(&network, "--queue 8");
        assert!(!socket.exists() && !accounts.exists());
    });
}
