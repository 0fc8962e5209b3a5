//! A guard that hangs: a real SIGSTOP, a loop that gets no further, and a service manager that looks on.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use bannerwall_test_support::{Namespace, Running, Signal, as_root, eventually, json_lines_so_far};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// How long the manager of the test waits for the next feed; a guard feeds four times as often.
const WATCHDOG: Duration = Duration::from_secs(4);

/// The socket of a service manager.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("the folder is ours");
        socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
        Self { folder, socket }
    }

    /// What it was told next; none where the watchdog has waited in vain.
    fn told(&self) -> Option<String> {
        let mut buffer = [0; 4096];
        let octets = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..octets]).into_owned())
    }

    fn wait(&self, what: &str) {
        eventually(what, || self.told().filter(|told| told.contains(what)));
    }
}

/// A network with a listener on loopback and a guard of its own hook.
struct Scene {
    namespace: Namespace,
    listener: TcpListener,
    guard: Running,
    _folder: TempDir,
}

impl Scene {
    fn start(flags: &str, manager: Option<&Manager>) -> Self {
        let namespace = Namespace::new();
        let listener = namespace.listen(([127, 0, 0, 1], 0));
        let folder = TempDir::new().expect("a temporary folder");
        let guard = start(&namespace, &folder, flags, manager);
        Self { namespace, listener, guard, _folder: folder }
    }

    fn connects(&self, patience: Duration) -> bool {
        let address = self.listener.local_addr().expect("it is bound");
        connects(&self.namespace, address, patience)
    }

    fn metric(&self, series: &str) -> Option<u64> {
        let output = self.namespace.output("curl --silent --max-time 5 http://127.0.0.1:9464/metrics");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    fn hook_stands(&self) -> bool {
        self.namespace.run("iptables-save -t mangle").contains("BANNERWALL")
    }
}

fn start(namespace: &Namespace, folder: &TempDir, flags: &str, manager: Option<&Manager>) -> Running {
    let rules = folder.path().join("rules.toml");
    let rule = "[[rule]]\nid = \"a\"\ntitle = \"b\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
                match.software = '^x'\naction = \"alert\"\nseverity = \"low\"\n\
                examples = [\"SSH-2.0-x\"]\ncounterexamples = [\"SSH-2.0-y\"]\n\
                [[rule]]\nid = \"c\"\ntitle = \"d\"\nprotocol = \"http\"\nfrom = \"client\"\n\
                match.\"header.user-agent\" = '^sqlmap'\naction = \"drop\"\nseverity = \"low\"\n";
    std::fs::write(&rules, rule).expect("the folder is ours");
    let mut command = namespace.command(PROGRAM);
    command.arg("guard").arg("--rules").arg(&rules).args(flags.split_whitespace());
    if let Some(manager) = manager {
        command.env("NOTIFY_SOCKET", manager.folder.path().join("notify"));
        command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    }
    let guard = Running::start(command);
    guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
    guard
}

fn connects(namespace: &Namespace, address: SocketAddr, patience: Duration) -> bool {
    namespace.inside(|| TcpStream::connect_timeout(&address, patience)).is_ok()
}

const SOON: Duration = Duration::from_secs(1);
const AT_LAST: Duration = Duration::from_secs(20);

#[test]
fn a_stopped_guard_starves_its_watchdog_and_what_ends_it_frees_the_network() {
    as_root(|| {
        for (mode, passes) in [("open", true), ("closed", false)] {
            let manager = Manager::new();
            let flags = format!("--hook input --hook-keep --on-failure {mode} --queue 0:1");
            let mut scene = Scene::start(&flags, Some(&manager));
            manager.wait("READY=1\nSTATUS=ready: queue 0,1");
            (0..3).for_each(|_| manager.wait("WATCHDOG=1"));
            assert!(scene.connects(AT_LAST));
            scene.guard.stop();
            assert!(!scene.connects(SOON), "{mode}: whatever is queued waits");
            // Fed or not fed before the signal came, at last the manager waits in vain.
            while manager.told().is_some() {}
            scene.guard.signal(Signal::KILL);
            scene.guard.wait_exit();
            assert_eq!(scene.connects(if passes { AT_LAST } else { SOON }), passes, "{mode}");
            let folder = TempDir::new().expect("a temporary folder");
            let mut next = start(&scene.namespace, &folder, &flags, Some(&manager));
            assert!(scene.connects(AT_LAST), "{mode}: the manager has started it again");
            next.signal(Signal::TERM);
            manager.wait("STOPPING=1");
            assert_eq!(next.wait_exit().code(), Some(0), "{}", next.stderr());
        }
    });
}

#[test]
fn a_queue_that_a_stopped_guard_fills_lets_packets_by_or_drops_them_as_told() {
    as_root(|| {
        for (mode, passes) in [("open", true), ("closed", false)] {
            let scene = Scene::start(&format!("--hook input --queue-length 4 --on-failure {mode}"), None);
            scene.guard.stop();
            eventually("the queue to be full", || {
                scene.connects(Duration::from_millis(10));
                (scene.namespace.waiting_packets() >= 4).then_some(())
            });
            assert_eq!(scene.connects(if passes { AT_LAST } else { SOON }), passes, "{mode}");
            scene.guard.signal(Signal::CONT);
            assert!(scene.connects(AT_LAST), "{mode}: it goes on");
        }
    });
}

/// Answers requests of a connection, one after the other.
fn answer(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

/// One request, and its answer within so long.
fn exchanges(stream: &mut TcpStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).expect("it is open");
    let mut buffer = [0; 4096];
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: honest/1\r\n\r\n").is_ok()
        && stream.read(&mut buffer).is_ok_and(|count| count > 0)
}

#[test]
fn a_connection_of_which_packets_went_by_uninspected_goes_on() {
    as_root(|| {
        let flags = "--hook input --queue-length 4 --on-failure open --enforce --http-inspect all";
        let scene = Scene::start(flags, None);
        let address = scene.listener.local_addr().expect("it is bound");
        let mut kept =
            scene.namespace.inside(|| TcpStream::connect_timeout(&address, AT_LAST)).expect("it listens");
        kept.set_nodelay(true).expect("it is open");
        let (accepted, _) = scene.listener.accept().expect("the client is there");
        std::thread::spawn(move || answer(accepted));
        assert!(exchanges(&mut kept, AT_LAST));
        scene.guard.stop();
        eventually("the queue to be full", || {
            scene.connects(Duration::from_millis(10));
            (scene.namespace.waiting_packets() >= 4).then_some(())
        });
        for _ in 0..3 {
            assert!(exchanges(&mut kept, AT_LAST), "it goes by");
        }
        scene.guard.signal(Signal::CONT);
        // What it repeats is taken once the hook's counters have told, which are read every few seconds.
        for _ in 0..3 {
            assert!(exchanges(&mut kept, 3 * AT_LAST), "{}", scene.guard.stderr());
        }
    });
}

#[test]
fn what_waited_too_long_gets_the_verdict_of_a_failure_and_is_counted() {
    as_root(|| {
        for (mode, series, told) in [
            ("open", "bannerwall_uninspected_packets_total ", "they passed uninspected"),
            ("closed", "bannerwall_queue_dropped_total{reason=\"overdue\"} ", "they were dropped"),
        ] {
            let flags = format!("--hook input --on-failure {mode} --max-wait 400ms --metrics 127.0.0.1:9464");
            let mut scene = Scene::start(&flags, None);
            // A busy machine may have kept packets waiting before.
            let before = eventually(series, || scene.metric(series));
            scene.guard.stop();
            assert!(!scene.connects(SOON), "{mode}");
            assert!(!scene.connects(SOON), "{mode}");
            let waiting = scene.namespace.waiting_packets();
            assert!(waiting >= 2, "{mode}: {waiting}");
            scene.guard.signal(Signal::CONT);
            scene.guard.wait_stderr(told, |text| text.contains(told).then_some(()));
            assert!(scene.guard.stderr().contains("packets that waited longer than 0.4 s"));
            eventually(series, || (scene.metric(series)? >= before + 2).then_some(()));
            assert!(scene.connects(AT_LAST), "{mode}: what is new is judged");
            scene.guard.signal(Signal::TERM);
            assert_eq!(scene.guard.wait_exit().code(), Some(0), "{}", scene.guard.stderr());
        }
        let mut scene = Scene::start("--hook input --max-wait off", None);
        scene.guard.stop();
        assert!(!scene.connects(SOON));
        scene.guard.signal(Signal::CONT);
        assert!(scene.connects(AT_LAST));
        scene.guard.signal(Signal::TERM);
        scene.guard.wait_exit();
        assert!(!scene.guard.stderr().contains("waited longer"), "{}", scene.guard.stderr());
    });
}

/// Bytes that a server reads of a request by sqlmap, which the rules forbid; `before` and `behind` are called
/// before and behind its sending.
fn reads_of_sqlmap(scene: &Scene, before: impl FnOnce(), behind: impl FnOnce()) -> (SocketAddr, usize) {
    let address = scene.listener.local_addr().expect("it is bound");
    let mut client = scene.namespace.connect(address).expect("the handshake passes");
    let (mut server, from) = scene.listener.accept().expect("the handshake passes");
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1\r\n\r\n";
    before();
    client.write_all(request).expect("it is open");
    behind();
    server.set_read_timeout(Some(Duration::from_secs(3))).expect("a time");
    (from, server.read(&mut [0; 200]).unwrap_or_default())
}

#[test]
fn a_banner_that_passed_for_it_waited_too_long_is_no_alert_and_no_drop() {
    as_root(|| {
        let scene = Scene::start("--hook input --enforce --format json --max-wait 400ms", None);
        let hangs = || {
            // The kernel sends it again: some of the copies have not waited for too long.
            std::thread::sleep(Duration::from_millis(900));
            scene.guard.signal(Signal::CONT);
        };
        let (overdue, read) = reads_of_sqlmap(&scene, || scene.guard.stop(), hangs);
        assert!(read > 0, "what waited too long passes");
        let (judged, read) = reads_of_sqlmap(&scene, || (), || ());
        assert_eq!(read, 0, "what comes in time is judged");
        let events = eventually("the drop", || {
            let events = json_lines_so_far(scene.guard.stdout().as_bytes());
            events.iter().any(|event| event["src_port"] == judged.port()).then_some(events)
        });
        let is_stop = |event: &&serde_json::Value| {
            event["src_port"] == overdue.port()
                && ["alert", "drop"].iter().any(|it| event["event_type"] == *it)
        };
        assert!(!events.iter().any(|event| is_stop(&event)), "{events:?}");
    });
}

#[test]
fn a_loop_that_hangs_ends_the_run_with_the_hook_as_failures_leave_it() {
    as_root(|| {
        for (mode, passes) in [("open", true), ("closed", false)] {
            let mut scene = Scene::start(&format!("--hook input --on-failure {mode} --queue 0:1"), None);
            let tasks = std::fs::read_dir(format!("/proc/{}/task", scene.guard.id())).expect("it runs");
            let is_worker = |task: &std::fs::DirEntry| {
                std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "queue-1")
            };
            let worker = tasks.filter_map(Result::ok).find(is_worker).expect("a worker");
            let mut command = Command::new("strace");
            command.arg("-p").arg(worker.file_name());
            command.args(["-e", "trace=recvmmsg", "-e", "inject=recvmmsg:delay_enter=1000000000"]);
            let strace = Running::start(command);
            let hangs = "the worker of queue 1 hangs";
            scene.guard.wait_stderr(hangs, |text| text.contains(hangs).then_some(()));
            // It would hold the thread that it delays beyond the end of the process.
            drop(strace);
            assert_eq!(scene.guard.wait_exit().code(), Some(2), "{}", scene.guard.stderr());
            let told = scene.guard.stderr();
            assert_eq!(scene.hook_stands(), !passes, "{mode}: {told}");
            assert_eq!(scene.connects(if passes { AT_LAST } else { SOON }), passes, "{mode}: {told}");
        }
    });
}
