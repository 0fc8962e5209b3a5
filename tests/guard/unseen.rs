//! A guard that sees no packets, or not all: `hook status`, doctor, `/readyz` and metrics name the cause.

use std::fs::read_link;
use std::os::fd::AsFd as _;

use bannerwall::testing::guard::source::SourceConfig;
use bannerwall_test_support::{Guard, NO_SQLMAP, Namespace, Nginx, Signal, as_root, eventually};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const METRICS: &str = "127.0.0.1:9464";

/// A network with a web server and a guard that shows its metrics.
struct Scene {
    namespace: Namespace,
    guard: Guard,
    _server: Nginx,
}

impl Scene {
    fn start(flags: &str) -> Self {
        let namespace = Namespace::new();
        let server = Nginx::start(&namespace, 80, "");
        let guard =
            Guard::start(&namespace, PROGRAM, NO_SQLMAP, &format!("--enforce --metrics {METRICS} {flags}"));
        Self { namespace, guard, _server: server }
    }

    fn get(&self, path: &str) -> String {
        let output =
            self.namespace.output(&format!("curl -s --max-time 20 -w %{{http_code}} http://{METRICS}{path}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn metric(&self, series: &str) -> Option<u64> {
        self.get("/metrics").lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// Waits until `/readyz` names what is wrong, or is 200 if that is nothing.
    fn is_told(&self, fault: Option<&str>) {
        let is_it = |told: &str| match fault {
            Some(fault) => told.ends_with("503") && told.contains(fault),
            None => told.ends_with("200"),
        };
        eventually(&format!("{fault:?} at /readyz"), || is_it(&self.get("/readyz")).then_some(()));
    }

    /// Exit code and text of `hook status`.
    fn status(&self) -> (Option<i32>, String) {
        let output = self.namespace.output(&format!("{PROGRAM} hook status"));
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn doctor(&self) -> String {
        let output = self.namespace.output(&format!("{PROGRAM} doctor"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn iptables(&self, rule: &str) {
        self.namespace.run(&format!("iptables -w -t mangle {rule}"));
    }

    /// Whether a forbidden request is served.
    fn serves_forbidden(&self) -> bool {
        self.namespace.output("curl -s -m 5 -A sqlmap/1.7 http://127.0.0.1/").status.success()
    }
}

#[test]
fn rules_that_let_packets_pass_before_the_jump_are_named_and_their_packets_counted() {
    as_root(|| {
        let scene = Scene::start("--hook input,output --hook-repair off");
        scene.iptables("-N LETS-PASS");
        scene.iptables("-A LETS-PASS -s 127.0.0.0/8 -j ACCEPT");
        scene.iptables("-N EMPTY");
        assert!(!scene.serves_forbidden());
        let uninspected = "bannerwall_uninspected_packets_total ";
        for rule in [
            "INPUT -p tcp -m tcp --dport 80 -j ACCEPT",
            "INPUT -p tcp -m tcp --dport 80 -j RETURN",
            "INPUT -p tcp -m tcp --dport 80 -j NFQUEUE --queue-num 5 --queue-bypass",
            "INPUT -p tcp -m tcp --dport 80 -j LETS-PASS",
            "INPUT -p tcp -m tcp --dport 80 -g EMPTY",
        ] {
            scene.is_told(None);
            let before = eventually("the metric", || scene.metric(uninspected));
            scene.iptables(&format!("-I {rule}"));
            let shown = rule.trim_start_matches("INPUT ");
            scene.is_told(Some(&format!(
                "rules before the jump in INPUT let packets pass uninspected: {shown}"
            )));
            assert_eq!(scene.metric("bannerwall_hook_up{family=\"ipv4\"} "), Some(0), "{rule}");
            assert!(scene.serves_forbidden(), "{rule}");
            eventually("uninspected packets", || (scene.metric(uninspected)? >= before + 4).then_some(()));
            let (code, text) = scene.status();
            assert_eq!(code, Some(1), "{text}");
            assert!(text.contains("let packets pass uninspected"), "{text}");
            assert!(scene.doctor().contains("let packets pass uninspected"), "{}", scene.doctor());
            scene.iptables(&format!("-D {rule}"));
        }
        scene.is_told(None);
        assert!(!scene.serves_forbidden());
    });
}

#[test]
fn the_guard_puts_its_jump_before_rules_that_let_packets_pass_and_never_behind_them() {
    as_root(|| {
        let scene = Scene::start("--hook input,output");
        scene.iptables("-I INPUT -p tcp --dport 80 -j ACCEPT");
        eventually("the jump to be first", || (!scene.serves_forbidden()).then_some(()));
        scene.is_told(None);
        // What else makes it change the hook leaves that so.
        for change in ["-D INPUT -p tcp -j BANNERWALL", "-A INPUT -p tcp -j ACCEPT", "-F BANNERWALL"] {
            let repairs = scene.metric("bannerwall_hook_repairs_total ");
            scene.iptables(change);
            if !change.ends_with("ACCEPT") {
                eventually(change, || {
                    (scene.metric("bannerwall_hook_repairs_total ") > repairs).then_some(())
                });
            }
            scene.is_told(None);
            assert!(!scene.serves_forbidden(), "{change}");
        }
        assert_eq!(scene.status().0, Some(0), "{}", scene.status().1);
    });
}

#[test]
fn a_guard_that_is_stopped_and_a_queue_of_another_program_are_named() {
    as_root(|| {
        let scene = Scene::start("--hook input,output");
        assert_eq!(scene.status().0, Some(0), "{}", scene.status().1);
        scene.guard.process.signal(Signal::STOP);
        let told = eventually("the stopped guard", || {
            Some(scene.status()).filter(|(code, _)| *code == Some(5)).map(|(_, text)| text)
        });
        assert!(told.contains("queue 0: its guard, process ") && told.contains("is stopped"), "{told}");
        assert!(
            scene.doctor().contains("FAULT hook: it leads to queue 0: its guard, process"),
            "{}",
            scene.doctor()
        );
        scene.guard.process.signal(Signal::CONT);
        eventually("the guard to go on", || (scene.status().0 == Some(0)).then_some(()));

        let namespace = Namespace::new();
        namespace.run(&format!("{PROGRAM} hook up --queue 3"));
        let _other = namespace.inside(|| SourceConfig::new(3).open()).expect("a queue");
        let output = namespace.output(&format!("{PROGRAM} hook status"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(5), "{text}");
        let fault = format!("queue 3: process {} (", std::process::id());
        assert!(text.contains(&fault) && text.contains("is not a guard"), "{text}");
        let doctor = namespace.output(&format!("{PROGRAM} doctor"));
        let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(text.contains("FAULT hook: it leads to queue 3: process"), "{text}");
    });
}

#[test]
fn a_guard_whose_queue_is_taken_from_it_says_so() {
    as_root(|| {
        let scene = Scene::start("--hook input,output --on-failure open");
        scene.is_told(None);
        // A program that has got hold of its socket gives the queue back, and binds it by one of its own.
        let guard = scene.guard.process.id();
        let sockets = scene.namespace.run("cat /proc/net/netlink");
        let table = scene.namespace.run("cat /proc/net/netfilter/nfnetlink_queue");
        let address = table.split_whitespace().nth(1).expect("a bound queue").to_owned();
        let inode = sockets.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[1..3] == ["12", &address]).then(|| words[9].to_owned())
        });
        let inode = format!("socket:[{}]", inode.expect("its socket"));
        let links = std::fs::read_dir(format!("/proc/{guard}/fd")).expect("it runs");
        let mut links = links.map(|link| link.expect("a link").path());
        let link = links.find(|link| read_link(link).is_ok_and(|to| to.as_os_str() == &*inode));
        let number = link.and_then(|link| link.file_name()?.to_str()?.parse().ok()).expect("its socket");
        let process = Pid::from_raw(guard.cast_signed()).expect("a process");
        let handle = pidfd_open(process, PidfdFlags::empty()).expect("it runs");
        let socket = pidfd_getfd(handle.as_fd(), number, PidfdGetfdFlags::empty()).expect("we are root");
        // The guard reads from the same socket: while it runs it may take the kernel's answer to the close.
        scene.guard.process.signal(Signal::STOP);
        eventually("all threads to stop", || {
            let threads = std::fs::read_dir(format!("/proc/{guard}/task")).expect("it runs");
            let mut states = threads.map(|thread| {
                std::fs::read_to_string(thread.expect("a thread").path().join("stat")).expect("it runs")
            });
            states.all(|state| state.contains(") T ")).then_some(())
        });
        let _other = scene.namespace.inside(|| {
            SourceConfig::new(0).adopt(socket, false).expect("its socket").close().expect("it is given back");
            SourceConfig::new(0).open().expect("the queue is free")
        });
        scene.guard.process.signal(Signal::CONT);
        scene
            .guard
            .process
            .wait_stderr("the loss", |text| text.contains("another program has bound queue 0").then_some(()));
        assert_eq!(scene.status().0, Some(5), "{}", scene.status().1);
    });
}

#[test]
fn an_inventory_whose_folder_is_gone_is_named() {
    as_root(|| {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("kept");
        std::fs::create_dir(&folder).expect("the folder is ours");
        let flags = format!("--hook input,output --inventory {}", folder.join("inventory.db").display());
        let scene = Scene::start(&flags);
        scene.is_told(None);
        // One that is only deleted is made again.
        std::fs::remove_file(folder.join("inventory.db")).expect("the file is there");
        eventually("another file", || folder.join("inventory.db").exists().then_some(()));
        scene.is_told(None);
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
        scene.is_told(Some("events: cannot write the inventory: "));
    });
}
