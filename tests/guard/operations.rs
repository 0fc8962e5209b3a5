//! The guard among other software, as the how-to guides describe it: log rotation, other users, firewalls, NAT,
//! bridges, policy routing and path MTU, each on the real thing.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::{
    Line, NO_SQLMAP, Namespace, Nginx, Running, Signal, as_root, eventually, json_lines,
};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// A guard with its rules and its event file in a folder that everybody may read.
struct Guard {
    folder: TempDir,
    process: Running,
}

impl Guard {
    fn start(namespace: &Namespace, action: &str, flags: &str) -> Self {
        Self::start_as(namespace.command(PROGRAM), action, flags)
    }

    /// Starts the guard by a command that ends with the program's name.
    fn start_as(command: Command, action: &str, flags: &str) -> Self {
        Self::start_in(open_folder(), command, action, flags)
    }

    /// The same in a folder that has something in it already.
    fn start_in(folder: TempDir, mut command: Command, action: &str, flags: &str) -> Self {
        std::fs::write(folder.path().join("rules.toml"), NO_SQLMAP.replace("reject", action))
            .expect("the folder is ours");
        command.current_dir(folder.path());
        command.args(["guard", "--rules", "rules.toml", "--events", "events.json"]);
        let process = Running::start({
            command.args(flags.split_whitespace());
            command
        });
        process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        Self { folder, process }
    }

    fn events(&self) -> PathBuf {
        self.folder.path().join("events.json")
    }

    fn stop(mut self) -> TempDir {
        self.process.signal(Signal::TERM);
        let status = self.process.wait_exit();
        assert_eq!(status.code(), Some(0), "{}", self.process.stderr());
        self.folder
    }
}

/// A folder that everybody may read and write.
fn open_folder() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("it is ours");
    folder
}

/// Asks for a page as a client of this name; the body, or none where no answer comes.
fn ask(client: &Namespace, agent: &str, url: &str) -> Option<Vec<u8>> {
    let mut command = client.command("curl");
    command.args(["--silent", "--show-error", "--globoff", "--max-time", "20", "--user-agent", agent, url]);
    let output = command.output().expect("curl starts");
    output.status.success().then_some(output.stdout)
}

/// The same of a client that gives up soon: for one that is to be blocked.
fn is_blocked(client: &Namespace, url: &str) -> bool {
    let mut command = client.command("curl");
    command.args(["--silent", "--globoff", "--max-time", "3", "--user-agent", "sqlmap/1.7", url]);
    !command.output().expect("curl starts").status.success()
}

fn assert_judged(client: &Namespace, url: &str, what: &str) {
    assert_eq!(ask(client, "curl/8.0", url).as_deref(), Some(&b"hello world"[..]), "{what}: {url}");
    assert!(is_blocked(client, url), "{what}: {url}");
    assert_eq!(ask(client, "curl/8.0", url).as_deref(), Some(&b"hello world"[..]), "{what}: {url}");
}

/// Whether this very process is root of the whole machine, not of a user namespace.
fn is_first_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").expect("this kernel has user namespaces");
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The paths that were asked for, by the `http` events of a file; a line that is being written is not there
/// yet.
fn asked_paths(file: &Path) -> Vec<String> {
    let text = std::fs::read(file).unwrap_or_default();
    let whole = text.iter().rposition(|octet| *octet == b'\n').map_or(0, |last| last + 1);
    let events = json_lines(&text[..whole]);
    let paths = events.iter().filter(|event| event["event_type"] == "http");
    paths.filter_map(|event| event["http"]["url"].as_str().map(str::to_owned)).collect()
}

#[test]
fn logrotate_loses_no_line_by_either_way() {
    as_root(|| {
        for (way, script) in [("create", "postrotate\nkill -USR1 PID\nendscript"), ("copytruncate", "")] {
            let namespace = Namespace::new();
            let _nginx = Nginx::start(&namespace, 80, "");
            let guard = Guard::start(&namespace, "drop", "--hook input");
            let (old, new) = (guard.folder.path().join("events.json.1"), guard.events());
            let ask_for = |path: &str| ask(&namespace, "curl/8.0", &format!("http://127.0.0.1/{path}"));
            ask_for("before");
            eventually("an event in the file", || asked_paths(&new).first().map(drop));
            let script = script.replace("PID", &guard.process.id().to_string());
            let configuration = guard.folder.path().join("logrotate.conf");
            // Rotation in a folder that others may write needs a user to do it as.
            let text = format!("{} {{\nsu root root\nrotate 3\n{way}\n{script}\n}}\n", new.display());
            std::fs::write(&configuration, text).expect("it is ours");
            let state = guard.folder.path().join("state");
            let output = Command::new("logrotate")
                .arg("--force")
                .arg("--state")
                .args([&state, &configuration])
                .output();
            let output = output.expect("logrotate is installed");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let mut asked = 0;
            eventually("the new file to be used", || {
                ask_for("after");
                asked += 1;
                asked_paths(&new).contains(&"/after".to_owned()).then_some(())
            });
            let folder = guard.stop();
            let rotated = asked_paths(&old);
            let kept = asked_paths(&folder.path().join("events.json"));
            assert_eq!(rotated.first().map(String::as_str), Some("/before"), "{way}");
            assert_eq!(rotated.len() + kept.len(), 1 + asked, "{way}: {rotated:?} {kept:?}");
            assert!(kept.iter().all(|path| path == "/after"), "{way}: {kept:?}");
        }
    });
}

#[test]
fn a_reader_of_a_fifo_comes_late_is_killed_and_gets_events_again() {
    as_root(|| {
        let folder = open_folder();
        let namespace = Namespace::new();
        let _nginx = Nginx::start(&namespace, 80, "");
        let fifo = folder.path().join("events.json");
        namespace.run(&format!("mkfifo {}", fifo.display()));
        // Nobody reads it: the guard is ready all the same.
        let mut guard = Guard::start_in(folder, namespace.command(PROGRAM), "drop", "--hook input");
        for path in ["/first", "/second"] {
            let read = guard.folder.path().join("read");
            let output = std::fs::File::create(&read).expect("the folder is ours");
            let mut reader = Command::new("cat").arg(&fifo).stdout(output).spawn().expect("cat starts");
            eventually("the reader to get an event", || {
                ask(&namespace, "curl/8.0", &format!("http://127.0.0.1{path}"));
                asked_paths(&read).contains(&path.to_owned()).then_some(())
            });
            reader.kill().expect("it runs");
            reader.wait().expect("it is ours");
            eventually("the loss of the reader to be told", || {
                ask(&namespace, "curl/8.0", "http://127.0.0.1/between");
                let told = guard.process.stderr().matches("events.json has no reader any more; lost").count();
                (told == if path == "/first" { 1 } else { 2 }).then_some(())
            });
        }
        // And nobody reads it at the end.
        guard.process.signal(Signal::TERM);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let told = guard.process.stderr();
        for part in ["events.json has no reader yet; events are lost", "events.json again;", "events lost: "]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
    });
}

/// Holds a thousand half requests to the metrics server open, from one address.
const HALF_REQUESTS: &str = "trap '' PIPE; ulimit -n 2048; for i in {1..1000}; do \
     exec {half}<>/dev/tcp/127.0.0.1/9464 && printf 'GET /metrics HTTP/1.1\\r\\n' >&$half; done; echo held; exec sleep 600";

#[test]
fn half_requests_for_metrics_leave_a_guard_its_descriptors() {
    as_root(|| {
        let namespace = Namespace::new();
        let mut command = namespace.command("prlimit");
        command.args(["--nofile=256:256", PROGRAM]);
        let flags = "--hook input --enforce --metrics 127.0.0.1:9464";
        let guard = Guard::start_as(command, "drop", flags);
        let mut client = Running::start({
            let mut command = namespace.command("bash");
            command.args(["-c", HALF_REQUESTS]);
            command
        });
        client.wait_stdout("a thousand half requests", |text| text.contains("held").then_some(()));
        guard.process.signal(Signal::HUP);
        guard
            .process
            .wait_stderr("a reload", |text| text.contains("reloaded: 1 rule in force").then_some(()));
        // Somebody else is answered.
        let health = namespace.output("curl --silent --interface 127.0.0.2 http://127.0.0.1:9464/healthz");
        assert_eq!(String::from_utf8_lossy(&health.stdout), "ok\n");
        guard.stop();
        let status = namespace.output(&format!("{PROGRAM} hook status"));
        assert_eq!(status.status.code(), Some(4), "its hook is gone");
        client.signal(Signal::TERM);
        client.wait_exit();
    });
}

#[test]
fn another_user_with_two_capabilities_guards_and_one_is_enough_to_watch() {
    as_root(|| {
        if !is_first_user_namespace() {
            eprintln!("skipped: other users need root");
            return;
        }
        let folder = open_folder();
        let namespace = Namespace::new();
        let _nginx = Nginx::start(&namespace, 80, "");
        namespace.run(&format!("{PROGRAM} hook up --chains input"));
        let watching = namespace.command_as_nobody(PROGRAM, folder.path(), "-all,+net_admin");
        let guard = Guard::start_as(watching, "drop", "");
        assert!(ask(&namespace, "sqlmap/1.7", "http://127.0.0.1/").is_some(), "it only watches");
        eventually("an alert", || {
            let text = std::fs::read_to_string(guard.events()).unwrap_or_default();
            text.contains("no-sqlmap").then_some(())
        });
        guard.stop();
        namespace.run(&format!("{PROGRAM} hook down"));
        let enforcing = namespace.command_as_nobody(PROGRAM, folder.path(), "-all,+net_admin,+net_raw");
        let guard = Guard::start_as(enforcing, "drop", "--hook input --enforce");
        assert_judged(&namespace, "http://127.0.0.1/", "as nobody, with its own hook");
        guard.stop();
        assert_eq!(
            namespace.output(&format!("{PROGRAM} hook status")).status.code(),
            Some(4),
            "no hook is left"
        );
    });
}

#[test]
fn another_user_is_told_of_the_lock_of_legacy_iptables_and_may_name_another() {
    as_root(|| {
        if !is_first_user_namespace() {
            eprintln!("skipped: other users need root");
            return;
        }
        let folder = open_folder();
        let namespace = Namespace::new();
        // Makes the lock, as root.
        namespace.run("iptables-legacy -w -t mangle -S");
        let hook = |lock: Option<&Path>| {
            let mut command = namespace.command_as_nobody(PROGRAM, folder.path(), "-all,+net_admin,+net_raw");
            if let Some(lock) = lock {
                command.env("XTABLES_LOCKFILE", lock);
            }
            let output = command.args(["hook", "up", "--iptables", "legacy"]).output().expect("it starts");
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, told) = hook(None);
        assert_eq!(code, Some(3), "{told}");
        assert!(told.contains("/run/xtables.lock, which belongs to root"), "{told}");
        assert!(told.contains("XTABLES_LOCKFILE") && !told.contains("needs CAP_NET_ADMIN"), "{told}");
        let own = folder.path().join("lock");
        assert_eq!(hook(Some(&own)).0, Some(0));
        assert!(namespace.run("iptables-legacy-save -t mangle").contains("NFQUEUE"));
    });
}

#[test]
fn ufw_reload_leaves_the_hook_alone() {
    as_root(|| {
        let namespace = Namespace::new();
        let _nginx = Nginx::start(&namespace, 80, "");
        let guard = Guard::start(&namespace, "drop", "--hook input --enforce");
        let folder = TempDir::new().expect("a temporary folder");
        let copy = |from: &str, to: &str| {
            let to = folder.path().join(to);
            let status = Command::new("cp").arg("--recursive").arg(from).arg(&to).status();
            assert!(status.expect("cp starts").success(), "{from}");
            to.display().to_string()
        };
        let (settings, defaults) = (copy("/etc/ufw", "ufw"), copy("/etc/default/ufw", "default"));
        // In a mount namespace of its own, so that this machine's settings stay as they are.
        let script = format!(
            "mount --bind {settings} /etc/ufw && mount --bind {defaults} /etc/default/ufw && \
             ufw allow 80/tcp && ufw --force enable && ufw reload && ufw status"
        );
        let output = namespace.command("unshare").args(["--mount", "sh", "-ec", &script]).output();
        let output = output.expect("unshare starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("Status: active"), "{text}{:?}", output.stderr);
        assert_eq!(
            namespace.output(&format!("{PROGRAM} hook status")).status.code(),
            Some(0),
            "up and served"
        );
        assert_judged(&namespace, "http://127.0.0.1/", "behind ufw");
        guard.stop();
    });
}

#[test]
fn routed_traffic_is_judged_behind_every_kind_of_nat() {
    let to_router =
        ("PREROUTING -d 192.0.2.1 -p tcp --dport 8080 -j DNAT --to 198.51.100.2:80", "192.0.2.1:8080");
    let masquerade = "POSTROUTING -o right -j MASQUERADE";
    let source = "POSTROUTING -o right -j SNAT --to-source 198.51.100.1";
    let cases = [
        (vec![masquerade], "198.51.100.2"),
        (vec![source], "198.51.100.2"),
        (vec![to_router.0], to_router.1),
        // As docker publishes a port.
        (vec![to_router.0, masquerade], to_router.1),
    ];
    as_root(|| {
        for (rules, place) in cases {
            for action in ["drop", "reject"] {
                let line = Line::new();
                let _nginx = Nginx::start(&line.server, 80, "");
                for rule in &rules {
                    line.router.run(&format!("iptables -w -t nat -A {rule}"));
                }
                let guard = Guard::start(&line.router, action, "--hook forward --enforce");
                assert_judged(&line.client, &format!("http://{place}/"), &format!("{action} with {rules:?}"));
                guard.stop();
            }
        }
    });
}

#[test]
fn a_bridge_is_judged_where_the_kernel_hands_its_frames_over() {
    as_root(|| {
        let line = Line::new();
        let router = &line.router;
        router.run("ip link add br0 type bridge");
        for port in ["left", "right"] {
            router.run(&format!("ip link set {port} master br0"));
        }
        router.run("ip link set br0 up");
        line.client.run("ip address add 203.0.113.2/24 dev eth0");
        line.server.run("ip address add 203.0.113.3/24 dev eth0");
        if !router.inside(|| Path::new("/proc/sys/net/bridge").is_dir()) {
            eprintln!("skipped: this kernel has no br_netfilter");
            return;
        }
        let _nginx = Nginx::start(&line.server, 80, "");
        let guard = Guard::start(router, "drop", "--hook forward --enforce");
        let url = "http://203.0.113.3/";
        router.set("bridge/bridge-nf-call-iptables", "1");
        assert_judged(&line.client, url, "bridged");
        router.set("bridge/bridge-nf-call-iptables", "0");
        assert!(ask(&line.client, "sqlmap/1.7", url).is_some(), "it passes by");
        guard.stop();
    });
}

#[test]
fn policy_routing_by_marks_keeps_its_uplink() {
    as_root(|| {
        route_by_marks("2/0xff", "0x0/0xff", "0x2/0xff", " --nfmask 0xff --ctmask 0xff");
        // The textbook's form, which copies our bits as well.
        route_by_marks("2", "0x0", "0x2", "");
    });
}

/// A router whose way to the server only packets with mark 2 find.
fn route_by_marks(chosen: &str, none: &str, set: &str, masks: &str) {
    let line = Line::new();
    let router = &line.router;
    let nginx = Nginx::start(&line.server, 80, "");
    let page = vec![b'x'; 4 << 20];
    std::fs::write(nginx.root().join("page"), &page).expect("the folder is ours");
    // Only what carries mark 2 finds the way to the server.
    router.run("ip route add 198.51.100.0/24 dev right table 100");
    router.run(&format!("ip rule add fwmark {chosen} table 100"));
    router.run("ip route del 198.51.100.0/24 dev right");
    router.set("ipv4/conf/all/rp_filter", "0");
    router.set("ipv4/conf/right/rp_filter", "0");
    for rule in [
        format!("-j CONNMARK --restore-mark{masks}"),
        format!("-i left -m mark --mark {none} -j MARK --set-xmark {set}"),
        format!("-j CONNMARK --save-mark{masks}"),
    ] {
        router.run(&format!("iptables -w -t mangle -A PREROUTING {rule}"));
    }
    let guard = Guard::start(router, "drop", "--hook forward --enforce");
    assert_judged(&line.client, "http://198.51.100.2/", "by the marked uplink");
    let page_url = "http://198.51.100.2/page";
    assert!(ask(&line.client, "curl/8.0", page_url).is_some_and(|got| got == page), "a long download");
    let doctor = router.output(&format!("{PROGRAM} doctor"));
    let doctor = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.contains("ok    mark: "), !masks.is_empty(), "{doctor}");
    guard.stop();
}

#[test]
fn a_narrow_way_is_found_by_path_mtu_discovery() {
    as_root(|| {
        let line = Line::new();
        let nginx = Nginx::start(&line.server, 80, "");
        let page = vec![b'x'; 1 << 20];
        std::fs::write(nginx.root().join("page"), &page).expect("the folder is ours");
        // The server learns of it by ICMP alone.
        line.router.run("ip link set left mtu 1280");
        let guard = Guard::start(&line.router, "drop", "--hook forward --enforce");
        for server in ["198.51.100.2", "[2001:db8:2::2]"] {
            let got = ask(&line.client, "curl/8.0", &format!("http://{server}/page"));
            assert!(got.is_some_and(|got| got == page), "{server}");
        }
        guard.stop();
    });
}
