//! Overrides, profiles and hostile rule files, as their users meet them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use bannerwall_test_support::{Namespace, Running, as_root, end_capture, json_lines};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const RULES: &str = r#"
[pack]
tags = ["ours"]

[[rule]]
id = "old-ssh"
protocol = "ssh"
match.software = '^OldSSH_'
action = "drop"
category = "weak"
examples = ["SSH-2.0-OldSSH_1.0"]

[[rule]]
id = "old-client"
protocol = "ssh"
from = "client"
match.software = '^OldSSH_'
action = "alert"
profiles = ["scan"]
examples = ["SSH-2.0-OldSSH_1.0"]
"#;

/// A rule file and a local one.
struct Files(TempDir);

impl Files {
    fn new(local: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
        std::fs::write(folder.path().join("local.toml"), local).expect("the folder is ours");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn rules(&self, subcommand: &str, flags: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(["rules", subcommand, "--rules"]).arg(self.path("rules.toml"));
        command.arg("--local").arg(self.path("local.toml")).args(flags).output().expect("the program runs")
    }

    /// What `rules list` says of a rule.
    fn listed(&self, id: &str, flags: &[&str]) -> serde_json::Value {
        let output = self.rules("list", &[&["--format", "json"], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        json_lines(&output.stdout).into_iter().find(|rule| rule["id"] == id).expect("each rule is listed")
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn overrides_are_applied_in_order_and_explained() {
    let files = Files::new(
        "[[override]]\nrule = \"old-*\"\naction = \"alert\"\nreason = \"until March\"\n\
         [[override]]\ntag = \"ours\"\nenabled = false\n\
         [[override]]\nrule = [\"old-ssh\"]\ntag = [\"weak\"]\nenabled = true\nseverity = \"low\"\nexempt = [\"192.0.2.0/24\"]\n",
    );
    let rule = files.listed("old-ssh", &[]);
    assert_eq!((&rule["action"], &rule["severity"]), (&"alert".into(), &"low".into()), "{rule}");
    assert!(rule["off"].is_null());
    let changes: Vec<String> = serde_json::from_value(rule["changes"].clone()).expect("texts");
    let expected = [
        "action drop to alert",
        "switched off",
        "switched on",
        "severity medium to low",
        "exempt 192.0.2.0/24",
    ];
    assert_eq!(changes.len(), expected.len(), "{changes:?}");
    for (change, expected) in changes.iter().zip(expected) {
        assert!(change.starts_with(expected) && change.contains("local.toml:"), "{change}");
    }
    assert!(changes[0].contains("local.toml:1: until March"), "{changes:?}");
    assert_eq!(files.listed("old-client", &[])["off"], "switched off");
    let listed = text(&files.rules("list", &[]).stdout);
    assert!(listed.contains("until March") && listed.contains(" off "), "{listed}");
    let checked = files.rules("check", &[]);
    assert!(
        text(&checked.stdout).starts_with("2 rules, 2 changed by overrides, 1 not in force"),
        "{checked:?}"
    );
    let tested = text(&files.rules("test", &["--banner", "SSH-2.0-OldSSH_1.0"]).stdout);
    assert!(tested.starts_with("alert   old-ssh:") && tested.contains("until March"), "{tested}");
}

#[test]
fn an_override_of_nothing_is_an_error_with_the_nearest_name() {
    for (local, place, said) in [
        ("[[override]]\nrule = \"old-shh\"\nenabled = false\n", "local.toml:2:8", "did you mean `old-ssh`?"),
        ("[[override]]\ntag = \"weaq\"\nenabled = false\n", "local.toml:2:7", "did you mean `weak`?"),
        ("[[override]]\nrule = \"new-*\"\nenabled = false\n", "local.toml:2:8", "no rule is named like"),
        ("[[override]]\nrule = \"old-ssh\"\n", "local.toml:1:1", "the override changes nothing"),
        ("[[override]]\nenabled = false\n", "local.toml:1:1", "does not say what it is about"),
        (
            "[[override]]\nrule = \"old-ssh\"\nexempt = [\"!192.0.2.1\"]\n",
            "local.toml:3:10",
            "`!` has no meaning here",
        ),
        (
            "[[override]]\nrule = \"old-ssh\"\naction = \"mark\"\n",
            "local.toml:3:10",
            "needs the value to set",
        ),
        (
            "[[override]]\nrule = \"old-ssh\"\nenable = false\nseverity = \"low\"\n",
            "local.toml:3:1",
            "did you mean `enabled`?",
        ),
    ] {
        let output = Files::new(local).rules("check", &[]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{local}{errors}");
        assert!(errors.contains(place) && errors.contains(said), "{local}{errors}");
    }
    let optional = Files::new("[[override]]\nrule = \"old-shh\"\nenabled = false\noptional = true\n");
    assert_eq!(optional.rules("check", &[]).status.code(), Some(1), "a warning");
    let files = Files::new("");
    std::fs::write(files.path("rules.toml"), "[[override]]\nrule = \"a\"\nenabled = false\n").expect("ours");
    let output = files.rules("check", &[]);
    assert!(text(&output.stderr).contains("a rule file holds no overrides"), "{output:?}");
}

#[test]
fn profiles_choose_rules_and_unknown_ones_are_refused() {
    let files = Files::new("");
    assert_eq!(files.listed("old-client", &["--profile", "guard"])["off"], "made for scan");
    for flags in [[].as_slice(), &["--profile", "scan"], &["--profile", "all"]] {
        assert!(files.listed("old-client", flags)["off"].is_null(), "{flags:?}");
    }
    let output = files.rules("list", &["--profile", "scam"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `scan`?"), "{output:?}");
}

#[test]
fn an_exempt_server_is_not_alerted_about() {
    as_root(|| {
        let files = Files::new("[[override]]\nrule = \"old-ssh\"\nexempt.destination = [\"127.0.0.2\"]\n");
        let network = Namespace::new();
        let listener = network.listen((Ipv4Addr::UNSPECIFIED, 2222));
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let _ = connection.write_all(b"SSH-2.0-OldSSH_1.0\r\n");
            }
        });
        let mut command = network.command(PROGRAM);
        command.args([
            "scan",
            "ssh",
            "127.0.0.1-127.0.0.3",
            "-p",
            "2222",
            "--read-timeout",
            "9s",
            "--format",
            "json",
        ]);
        command.arg("--rules").arg(files.path("rules.toml")).arg("--local").arg(files.path("local.toml"));
        let output = command.output().expect("the program runs");
        let events = json_lines(&output.stdout);
        let mut found: Vec<&str> = events
            .iter()
            .filter(|event| event["event_type"] == "alert")
            .filter_map(|event| event["src_ip"].as_str())
            .collect();
        found.sort_unstable();
        assert_eq!(found, ["127.0.0.1", "127.0.0.3"], "{}", text(&output.stderr));
    });
}

/// The machine's own overrides, in a mount namespace where they are `/etc/bannerwall/local.d`.
struct Etc(TempDir);

impl Etc {
    fn new(local: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let own = folder.path().join("upper/bannerwall/local.d");
        std::fs::create_dir_all(&own).expect("the folder is ours");
        std::fs::create_dir(folder.path().join("work")).expect("the folder is ours");
        std::fs::write(own.join("site.toml"), local).expect("the folder is ours");
        Self(folder)
    }

    /// The program where they are there.
    fn command(&self, network: &Namespace) -> Command {
        let mut command = network.command("unshare");
        let script =
            "mount -t overlay overlay -o lowerdir=/etc,upperdir=$0/upper,workdir=$0/work /etc; exec \"$@\"";
        command.args(["--mount", "sh", "-ec", script]).arg(self.0.path()).arg(PROGRAM);
        command
    }
}

/// What a client with this address is greeted with by a server of this one.
fn greeting(network: &Namespace, client: [u8; 4], server: [u8; 4]) -> Option<String> {
    let octets = network.inside(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).ok()?;
        socket.bind(&SocketAddr::from((client, 0)).into()).ok()?;
        socket.connect(&SocketAddr::from((server, 2222)).into()).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
        let mut octets = [0; 64];
        let length = TcpStream::from(socket).read(&mut octets).ok()?;
        Some(octets[..length].to_vec())
    });
    octets.filter(|octets| !octets.is_empty()).map(|octets| text(&octets))
}

/// Who is exempt: a server, and the client 127.0.0.9.
const EXEMPTIONS: &str = "[[override]]\nrule = \"old-ssh\"\nexempt.destination = [\"127.0.0.2\"]\n\
                          [[override]]\ntag = \"ours\"\nexempt.source = [\"127.0.0.9\"]\nreason = \"audited\"\nowner = \"netops\"\n";
/// Clients and servers, and whether the server's banner is let through.
const CONNECTIONS: [([u8; 4], [u8; 4], bool); 4] = [
    ([127, 0, 0, 1], [127, 0, 0, 2], true),
    ([127, 0, 0, 1], [127, 0, 0, 3], false),
    ([127, 0, 0, 9], [127, 0, 0, 3], true),
    ([127, 0, 0, 8], [127, 0, 0, 3], false),
];

#[test]
fn whom_a_local_file_exempts_is_let_through_by_the_guard_and_not_told_of_by_replay() {
    as_root(|| {
        let (files, etc) = (Files::new(EXEMPTIONS), Etc::new(EXEMPTIONS));
        for by_flag in [true, false] {
            let network = Namespace::new();
            let listener = network.listen((Ipv4Addr::UNSPECIFIED, 2222));
            std::thread::spawn(move || {
                for mut connection in listener.incoming().flatten() {
                    let _ = connection.write_all(b"SSH-2.0-OldSSH_1.0\r\n");
                }
            });
            let program = |subcommand: &str| {
                let mut command = if by_flag { network.command(PROGRAM) } else { etc.command(&network) };
                command.arg(subcommand).arg("--rules").arg(files.path("rules.toml"));
                if by_flag {
                    command.arg("--local").arg(files.path("local.toml"));
                }
                command
            };
            let capture = files.path("capture.pcap");
            let mut tcpdump = network.command("tcpdump");
            tcpdump.args(["-i", "lo", "-U", "-w"]).arg(&capture).arg("tcp port 2222 or udp port 9");
            let tcpdump = Running::start(tcpdump);
            tcpdump.wait_stderr("the capture", |text| text.contains("listening on lo").then_some(()));
            let mut guard = program("guard");
            let guard = Running::start({
                guard.args(["--hook", "input", "--enforce"]);
                guard
            });
            guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
            for (client, server, passes) in CONNECTIONS {
                let greeted = greeting(&network, client, server);
                assert_eq!(greeted.is_some(), passes, "{by_flag} {client:?} {server:?}: {greeted:?}");
            }
            // The guard keeps blocked banners from the client; the capture, taken before it, holds them.
            end_capture(tcpdump, &capture, &network, Ipv4Addr::LOCALHOST);
            let output =
                program("replay").args(["--format", "json"]).arg(&capture).output().expect("it runs");
            let events = json_lines(&output.stdout);
            let (exempt, alerts): (Vec<_>, Vec<_>) = events
                .iter()
                .filter(|event| event["event_type"] == "alert")
                .partition(|event| event["bannerwall"]["override"].is_object());
            let ends =
                |event: &serde_json::Value| (event["dest_ip"].to_string(), event["src_ip"].to_string());
            let mut told: Vec<(String, String)> = alerts.into_iter().map(ends).collect();
            told.sort_unstable();
            let quoted = |last: u8| format!("\"127.0.0.{last}\"");
            assert_eq!(told, [(quoted(1), quoted(3)), (quoted(8), quoted(3))], "{}", text(&output.stderr));
            let mut passed: Vec<_> = exempt.into_iter().map(|event| (ends(event), event)).collect();
            passed.sort_by(|one, other| one.0.cmp(&other.0));
            let [(to_server, _), (of_client, event)] = &passed[..] else { panic!("two: {passed:?}") };
            assert_eq!(*to_server, (quoted(1), quoted(2)));
            assert_eq!(*of_client, (quoted(9), quoted(3)));
            assert_eq!(event["alert"]["action"], "allowed");
            assert_eq!(event["bannerwall"]["override"]["kind"], "exemption");
            assert_eq!(event["bannerwall"]["override"]["reason"], "audited");
            assert_eq!(event["bannerwall"]["override"]["owner"], "netops");
        }
    });
}

#[test]
fn a_banner_is_tried_for_the_addresses_that_are_told() {
    let files = Files::new(EXEMPTIONS);
    let tried = |flags: &[&str]| {
        let flags = [&["--banner", "SSH-2.0-OldSSH_1.0"], flags].concat();
        text(&files.rules("test", &flags).stdout).lines().next().unwrap_or_default().to_owned()
    };
    for flags in [&["--source", "127.0.0.9"], &["--destination", "127.0.0.2"]] {
        assert_eq!(tried(flags), "-       old-ssh: an override exempts the address", "{flags:?}");
    }
    let both = tried(&["--source", "127.0.0.1", "--destination", "127.0.0.3"]);
    assert!(both.starts_with("drop    old-ssh: all its conditions hold; exempt"), "{both}");
    let none = tried(&[]);
    assert!(none.contains("were not tested (--source, --destination, --port)"), "{none}");
    assert_eq!(files.rules("test", &["--source", "127.0.0.1"]).status.code(), Some(2), "of no banner");
}

#[test]
fn a_file_of_brackets_is_a_fault_and_no_crash() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("deep.toml");
    for unit in ["[[rule]]\nx = {", "x = [", "x = { a = [", "[[[["] {
        std::fs::write(&file, unit.repeat(20_000)).expect("the folder is ours");
        let checked = Command::new(PROGRAM).args(["rules", "check"]).arg(&file).output().expect("it runs");
        assert_eq!(checked.status.code(), Some(2), "{unit}: {}", text(&checked.stderr));
        let mut command = Command::new(PROGRAM);
        command.args(["rules", "test", "--banner", "SSH-2.0-a", "--fingerprints"]).arg(&file);
        let named = command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/rules")).output().expect("it runs");
        assert_eq!(named.status.code(), Some(2), "{unit}: {}", text(&named.stderr));
        for flags in [&["replay", "-", "--config"][..], &["rules", "import", "debian", "-", "--products"]] {
            let refused = Command::new(PROGRAM).args(flags).arg(&file).output().expect("it runs");
            assert_eq!(refused.status.code(), Some(2), "{flags:?}, {unit}: {}", text(&refused.stderr));
            assert!(text(&refused.stderr).contains("nested too deeply"), "{}", text(&refused.stderr));
        }
    }
}

#[test]
fn rules_that_anybody_may_write_are_not_taken_by_default() {
    if std::path::Path::new("/etc/bannerwall/rules").is_dir() {
        eprintln!("skipped: this machine has rules installed");
        return;
    }
    let folder = TempDir::new().expect("a temporary folder");
    let rules = folder.path().join("rules");
    std::fs::create_dir(&rules).expect("the folder is ours");
    std::fs::write(rules.join("a.toml"), RULES).expect("the folder is ours");
    let list = || {
        Command::new(PROGRAM).args(["rules", "list"]).current_dir(folder.path()).output().expect("it runs")
    };
    assert_eq!(list().status.code(), Some(0));
    std::fs::set_permissions(&rules, std::fs::Permissions::from_mode(0o777)).expect("it is ours");
    let output = list();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--rules rules"), "{output:?}");
}
