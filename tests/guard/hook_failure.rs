//! What becomes of the hook, and of packets, when something fails: closed stays closed, and want of
//! memory or of descriptors ends nothing.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use bannerwall_test_support::{Namespace, Running, Signal, as_root, eventually};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const BACKENDS: [&str; 2] = ["libnetfilter_queue", "nfq"];

struct Guard {
    _rules: TempDir,
    process: Running,
}

fn guard(namespace: &Namespace, flags: &str) -> Guard {
    let folder = TempDir::new().expect("a temporary folder");
    let rules = folder.path().join("rules.toml");
    let rule = "[[rule]]\nid = \"a\"\ntitle = \"b\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
                match.software = '^x'\naction = \"alert\"\nseverity = \"low\"\n\
                examples = [\"SSH-2.0-x\"]\ncounterexamples = [\"SSH-2.0-y\"]\n";
    std::fs::write(&rules, rule).expect("the folder is ours");
    let mut command = namespace.command(PROGRAM);
    command.arg("guard").arg("--rules").arg(&rules).args(flags.split_whitespace());
    let process = Running::start(command);
    process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
    Guard { _rules: folder, process }
}

/// strace that makes the worker's call fail as told, from when it says that it is attached.
fn fail(process: &Running, injection: &str) -> Running {
    let worker = std::fs::read_dir(format!("/proc/{}/task", process.id()))
        .expect("it runs")
        .filter_map(Result::ok)
        .find(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "queue-0")
        });
    let thread = worker.expect("a worker").file_name().into_string().expect("a number");
    let mut command = Command::new("strace");
    command.args([
        "-p",
        &thread,
        "-e",
        &format!("trace={}", injection.split(':').next().unwrap_or_default()),
    ]);
    let strace = Running::start({
        command.args(["-e", &format!("inject={injection}")]);
        command
    });
    strace.wait_stderr("strace to attach", |text| text.contains("attached").then_some(()));
    strace
}

fn rules(namespace: &Namespace) -> usize {
    let table = |program: &str| namespace.run(&format!("{program}-save -t mangle"));
    (table("iptables") + &table("ip6tables")).matches("-A BANNERWALL").count()
}

fn connect(namespace: &Namespace, address: SocketAddr) -> bool {
    namespace.inside(|| TcpStream::connect_timeout(&address, Duration::from_secs(3))).is_ok()
}

#[test]
fn want_of_memory_ends_nothing() {
    as_root(|| {
        for backend in BACKENDS {
            let (receive, send) = match backend {
                "nfq" => ("recvfrom", "sendto"),
                _ => ("recvmmsg", "sendto"),
            };
            let namespace = Namespace::new();
            let guard = guard(
                &namespace,
                &format!("--hook input,output --on-failure closed --enforce --backend {backend}"),
            );
            let listener = namespace.listen(([127, 0, 0, 1], 0));
            let address = listener.local_addr().expect("it is bound");
            let mut process = guard.process;
            for injection in [
                format!("{receive}:error=ENOMEM:when=1..9"),
                format!("{send}:error=ENOBUFS:when=1..9"),
                format!("{send}:error=ENOMEM:when=1..9"),
            ] {
                let strace = fail(&process, &injection);
                eventually(&format!("a connection in spite of {injection}"), || {
                    connect(&namespace, address).then_some(())
                });
                assert!(strace.stderr().contains("INJECTED"), "{injection} happened: {}", strace.stderr());
                drop(strace);
                assert!(!process.has_exited(), "{backend}: {}", process.stderr());
            }
            process.signal(Signal::TERM);
            assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
            assert_eq!(rules(&namespace), 0);
        }
    });
}

#[test]
fn a_failed_worker_leaves_a_closed_hook_up_and_takes_an_open_one_down() {
    as_root(|| {
        for (mode, passes) in [("closed", false), ("open", true)] {
            let namespace = Namespace::new();
            let guard = guard(&namespace, &format!("--hook input,output --on-failure {mode}"));
            let mut process = guard.process;
            let listener = namespace.listen(([127, 0, 0, 1], 0));
            let address = listener.local_addr().expect("it is bound");
            let _strace = fail(&process, "recvmmsg:error=EBADF");
            assert_eq!(process.wait_exit().code(), Some(2), "{}", process.stderr());
            assert_eq!(rules(&namespace) == 0, passes, "{mode}");
            assert_eq!(connect(&namespace, address), passes, "{mode}: {}", process.stderr());
            assert_eq!(process.stderr().contains("the hook stays up"), !passes, "{}", process.stderr());
        }
    });
}

#[test]
fn a_kept_hook_outlives_the_run_and_only_an_open_one_goes_with_the_service() {
    as_root(|| {
        for (mode, passes) in [("closed", false), ("open", true)] {
            let namespace = Namespace::new();
            let guard = guard(&namespace, &format!("--hook input,output --hook-keep --on-failure {mode}"));
            let mut process = guard.process;
            let listener = namespace.listen(([127, 0, 0, 1], 0));
            let address = listener.local_addr().expect("it is bound");
            process.signal(Signal::TERM);
            assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
            assert!(rules(&namespace) > 0, "{mode}");
            assert_eq!(connect(&namespace, address), passes, "{mode}");
            namespace.run(&format!("{PROGRAM} hook down --unless-closed"));
            assert_eq!(rules(&namespace) == 0, passes, "{mode}");
            namespace.run(&format!("{PROGRAM} hook down"));
            assert!(connect(&namespace, address), "{mode}");
        }
    });
}

#[test]
fn without_descriptors_the_hook_is_put_back_and_taken_down() {
    as_root(|| {
        let namespace = Namespace::new();
        let guard = guard(&namespace, "--hook input,output --on-failure closed --queue 0:3");
        let mut process = guard.process;
        let id = process.id();
        let highest = std::fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").count();
        assert!(highest > 12, "{highest}");
        process.limit_descriptors(12);
        let repaired = rules(&namespace);
        namespace.run(&format!("{PROGRAM} hook down"));
        eventually("the hook to be back", || (rules(&namespace) == repaired).then_some(()));
        let listener = namespace.listen(([127, 0, 0, 1], 0));
        // Under closed whatever passes was judged.
        assert!(connect(&namespace, listener.local_addr().expect("it is bound")));
        process.signal(Signal::TERM);
        assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
        assert_eq!(rules(&namespace), 0);
    });
}

#[test]
fn one_family_that_fails_leaves_nothing_of_the_other() {
    as_root(|| {
        let namespace = Namespace::new();
        let folder = TempDir::new().expect("a temporary folder");
        for program in ["iptables", "iptables-save", "iptables-restore"] {
            let here = format!("/usr/sbin/{program}");
            std::os::unix::fs::symlink(here, folder.path().join(program)).expect("the folder is ours");
        }
        let hook = |words: &str| {
            let mut command = namespace.command("env");
            command.arg(format!("PATH={}", folder.path().display())).arg(PROGRAM).arg("hook");
            let output = command.args(words.split_whitespace()).output().expect("it starts");
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, told) = hook("up --on-failure closed");
        assert_eq!(code, Some(3), "{told}");
        assert!(told.contains("cannot run `ip6tables` (IPv6)") && told.contains("--family"), "{told}");
        assert_eq!(rules(&namespace), 0, "all or nothing");
        assert_eq!(hook("up --family ipv4").0, Some(0));
        assert!(rules(&namespace) > 0);
        let (code, told) = hook("down");
        assert_eq!(code, Some(3), "{told}");
        assert_eq!(rules(&namespace), 0, "the family that works is rid of it");
    });
}

#[test]
fn no_signal_but_those_that_end_it_ends_it_and_a_held_lock_does_not_disturb() {
    as_root(|| {
        let namespace = Namespace::new();
        let guard = guard(&namespace, "--hook input,output --iptables legacy");
        let mut process = guard.process;
        process.signal(Signal::USR2);
        process.signal(Signal::USR1);
        process.signal(Signal::PIPE);
        let reloads = |text: &str, count: usize| (text.matches("reloaded").count() >= count).then_some(());
        process.wait_stderr("a reload", |text| reloads(text, 1));
        let lock = Running::start({
            let mut command = Command::new("flock");
            command.args(["/run/xtables.lock", "sh", "-c", "echo held; sleep 3"]);
            command
        });
        lock.wait_stdout("the lock", |text| text.contains("held").then_some(()));
        process.signal(Signal::HUP);
        process.wait_stderr("a second reload", |text| reloads(text, 2));
        process.signal(Signal::TERM);
        assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
        assert_eq!(rules(&namespace), 0);
    });
}
