//! What a running guard may still do, seen from outside, and that it needs no more.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use bannerwall_test_support::{
    Namespace, Nginx, Running, Signal, as_root, eventually, forbids, json_lines_so_far,
};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_NET_ADMIN`, `CAP_NET_RAW` as bits of a set.
const FILES: u64 = 1 << 1 | 1 << 2;
const ADMIN: u64 = 1 << 12;
const RAW: u64 = 1 << 13;
/// The user of [`Place::as_nobody`].
const NOBODY: u32 = 65534;

/// The number of the packages' user in [`Place::start_with_package_user`].
const PACKAGE_USER: &str = "64242";

/// A guard of a network with an nginx, whose rules forbid the user agent `first`.
struct Place {
    network: Namespace,
    folder: TempDir,
    _nginx: Nginx,
}

impl Place {
    fn new() -> Self {
        let network = Namespace::new();
        let nginx = Nginx::start(&network, 8080, "");
        let folder = TempDir::new().expect("a temporary folder");
        for name in ["rules", "events"] {
            fs::create_dir(folder.path().join(name)).expect("the folder is ours");
        }
        let place = Self { network, folder, _nginx: nginx };
        place.write("rules/a.toml", &forbids("first"));
        place
    }

    fn write(&self, name: &str, text: &str) {
        // As editors do: another file in the place of the old one.
        let new = self.folder.path().join("new");
        fs::write(&new, text).expect("the folder is ours");
        fs::rename(new, self.folder.path().join(name)).expect("the folder is ours");
    }

    fn start(&self, flags: &str) -> Running {
        let mut command = self.network.command(PROGRAM);
        command.args(["guard", "--no-local", "--hook", "output", "--ports", "8080"]);
        command.arg("--rules").arg(self.folder.path().join("rules"));
        command.arg("--events").arg(self.events()).args(flags.split_whitespace());
        let process = Running::start(command);
        process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        process
    }

    /// Starts the program as root on a machine that has the packages' user.
    fn start_with_package_user(&self, words: &str) -> Running {
        let line = format!("bannerwall:x:{PACKAGE_USER}:");
        let entries = [("passwd", format!("{line}{PACKAGE_USER}::/:/usr/sbin/nologin")), ("group", line)];
        let mut mounts = String::new();
        for (name, line) in entries {
            let path = self.folder.path().join(name);
            let known = fs::read_to_string(format!("/etc/{name}")).expect("every machine has it");
            let others = known.lines().filter(|line| !line.starts_with("bannerwall:"));
            let text: Vec<&str> = others.chain([line.as_str()]).collect();
            fs::write(&path, text.join("\n") + "\n").expect("the folder is ours");
            mounts += &format!("mount --bind {} /etc/{name} && ", path.display());
        }
        let mut command = self.network.command("unshare");
        command.args(["--mount", "sh", "-c", &format!("{mounts} exec {PROGRAM} {words}")]);
        Running::start(command)
    }

    fn is_open_to_nobody(&self) {
        chown(self.folder.path().join("events"), Some(NOBODY), None).expect("we are root");
        for path in ["", "rules", "rules/a.toml"] {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(self.folder.path().join(path), mode).expect("ours");
        }
    }

    /// The program as nobody with ambient capabilities, as a unit with `User=` starts it.
    fn as_nobody(&self) -> Command {
        self.is_open_to_nobody();
        let capabilities = "-all,+net_admin,+net_raw";
        self.network.command_as_nobody(PROGRAM, self.folder.path(), capabilities)
    }

    /// Its guard.
    fn guard_of_nobody(&self, flags: &str) -> Command {
        let mut command = self.as_nobody();
        command.args(["guard", "--no-local", "--hook", "output", "--ports", "8080", "--rules"]);
        let folder = self.folder.path();
        command.arg(folder.join("rules")).arg("--events").arg(folder.join("events/nobody.json"));
        command.env("RUNTIME_DIRECTORY", self.folder.path().join("events"));
        command.args(flags.split_whitespace());
        command
    }

    fn metrics(&self) -> String {
        self.network.run("curl -sS -m 20 http://127.0.0.1:9464/metrics")
    }

    fn events(&self) -> std::path::PathBuf {
        self.folder.path().join("events/eve.json")
    }

    fn reload(&self) -> Output {
        self.network.output(&format!("{PROGRAM} reload"))
    }

    fn is_served(&self, agent: &str) -> bool {
        let page = format!("curl -sS -o /dev/null -m 20 -A {agent} http://127.0.0.1:8080/");
        self.network.output(&page).status.success()
    }

    /// The hook is taken away by somebody, and put back.
    fn loses_its_hook(&self) {
        self.network.run("iptables -t mangle -F");
        eventually("the hook to be put back", || {
            self.network.run("iptables -t mangle -S OUTPUT").contains("-j BANNERWALL").then_some(())
        });
        eventually("`first` to be blocked again", || (!self.is_served("first")).then_some(()));
    }

    fn stop(&self, mut guard: Running) {
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
        let left = self.network.run("iptables -t mangle -S");
        assert!(!left.contains("BANNERWALL"), "{left}");
    }
}

/// A line of each thread's `status`.
fn of_threads(process: &Running, name: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs");
    let status = |path: &Path| fs::read_to_string(path.join("status")).unwrap_or_default();
    let line = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().to_owned())
    };
    threads.filter_map(|thread| line(status(&thread.ok()?.path()))).collect()
}

/// Capabilities that any thread has.
fn capabilities(process: &Running) -> u64 {
    let sets = of_threads(process, "CapPrm");
    sets.iter().map(|set| u64::from_str_radix(set, 16).expect("hexadecimal")).fold(0, |all, set| all | set)
}

/// The processes that a process has started.
fn children(process: &Running) -> Vec<String> {
    let list = fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.id()));
    list.expect("it runs").split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_guard_is_held_to_its_own_files_and_does_its_work() {
    as_root(|| {
        let place = Place::new();
        let guard = place.start("--enforce");
        assert!(of_threads(&guard, "Seccomp").iter().all(|mode| mode == "2"));
        assert!(of_threads(&guard, "NoNewPrivs").iter().all(|set| set == "1"));
        let held = capabilities(&guard);
        assert_eq!(held & !(FILES | ADMIN | RAW), 0, "{held:x}");
        let runner = children(&guard);
        assert_eq!(runner.len(), 1, "it runs no program itself");
        assert!(!place.is_served("first") && place.is_served("second"));
        place.loses_its_hook();

        // Rules are read again, also from a file that was not there.
        place.write("rules/b.toml", &forbids("second"));
        assert!(place.reload().status.success());
        eventually("`second` to be blocked", || (!place.is_served("second")).then_some(()));
        // What was put elsewhere since is out of reach, and the rules stay.
        let elsewhere = TempDir::new().expect("a temporary folder");
        fs::write(elsewhere.path().join("c.toml"), forbids("third")).expect("the folder is ours");
        symlink(elsewhere.path().join("c.toml"), place.folder.path().join("rules/c.toml")).expect("ours");
        let refused = place.reload();
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{why}");
        assert!(why.contains("c.toml") && why.contains("ermission denied"), "{why}");
        assert!(!place.is_served("second") && place.is_served("third"));

        // Event files are made anew.
        fs::rename(place.events(), place.folder.path().join("events/old.json")).expect("ours");
        guard.signal(Signal::USR1);
        eventually("a new event file", || place.events().exists().then_some(()));
        place.stop(guard);
        assert!(!Path::new(&format!("/proc/{}", runner.concat())).exists(), "it ends with the guard");
    });
}

#[test]
fn no_thread_is_root_s_or_without_a_filter_once_a_guard_or_a_page_runs() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        let inventory = place.folder.path().join("net.db");
        let database = inventory.display();
        let guard = place.start_with_package_user(&format!(
            "guard --no-local --hook output --ports 8080 --rules {rules} --events {events} --enforce --inventory {database} \
             --serve 127.0.0.1:8642",
            rules = place.folder.path().join("rules").display(),
            events = place.events().display(),
        ));
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        assert!(!place.is_served("first") && place.is_served("second"));
        let page = place.start_with_package_user(&format!(
            "serve --listen 127.0.0.1:8643 --scan-allow 127.7.0.0/24 --inventory {database}"
        ));
        page.wait_stderr("ready", |text| text.contains("the page is at").then_some(()));
        assert!(place.network.run("curl -sS -m 20 http://127.0.0.1:8643/").contains("<html"));
        for process in [&guard, &page] {
            let users = of_threads(process, "Uid");
            assert!(
                users.len() > 1 && users.iter().all(|ids| *ids == [PACKAGE_USER; 4].join("\t")),
                "{users:?}"
            );
            assert!(of_threads(process, "Seccomp").iter().all(|mode| mode == "2"));
            let [runner] = <[String; 1]>::try_from(children(process)).expect("one helper process");
            // The page's worker reads the certificate authorities first.
            eventually("the helper process to be confined", || {
                let status = fs::read_to_string(format!("/proc/{runner}/status")).expect("it runs");
                let is_confined =
                    status.contains(&format!("Uid:\t{PACKAGE_USER}\t")) && status.contains("Seccomp:\t2");
                is_confined.then_some(())
            });
        }
        place.loses_its_hook();
        assert!(place.reload().status.success());
        drop(page);
        place.stop(guard);
    });
}

#[test]
fn a_program_that_is_notified_has_no_rights_and_its_guard_stays_confined() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        place.is_open_to_nobody();
        let user: u32 = PACKAGE_USER.parse().expect("a number");
        chown(place.folder.path().join("events"), Some(user), None).expect("we are root");
        let noted = place.folder.path().join("events/status");
        let guard = place.start_with_package_user(&format!(
            "guard --no-local --hook output --ports 8080 --rules {rules} --inventory {database} \
             --notify-command 'cat /proc/self/status > {part}; mv {part} {noted}'",
            rules = place.folder.path().join("rules").display(),
            database = place.folder.path().join("net.db").display(),
            part = noted.with_extension("part").display(),
            noted = noted.display(),
        ));
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        assert!(place.is_served("second"));
        let status = eventually("the program to run", || fs::read_to_string(&noted).ok());
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        let same = [PACKAGE_USER; 4].join("\t");
        assert_eq!((line("Uid:\t"), line("Gid:\t")), (&*same, &*same));
        for set in ["CapInh:\t", "CapPrm:\t", "CapEff:\t", "CapAmb:\t"] {
            assert_eq!(line(set), "0000000000000000", "{set}");
        }
        assert_eq!((line("NoNewPrivs:\t"), line("Seccomp:\t")), ("1", "2"));
        assert!(of_threads(&guard, "Seccomp").iter().all(|mode| mode == "2"));
        assert!(of_threads(&guard, "Uid").iter().all(|users| *users == same));
        place.stop(guard);
    });
}

#[test]
fn a_replay_and_a_scan_leave_root_and_their_files_do_not() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        let path = |name: &str| place.folder.path().join(name);
        let left = |process: &Running| {
            eventually("all threads to leave root", || {
                let users = of_threads(process, "Uid");
                users.iter().all(|ids| *ids == [PACKAGE_USER; 4].join("\t")).then_some(())
            });
        };
        // As in /tmp, where only its owner may replace a file.
        let sticky = path("sticky");
        fs::create_dir(&sticky).expect("the folder is ours");
        fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).expect("ours");
        fs::write(sticky.join("learnt.toml"), "old").expect("the folder is ours");
        place.network.run(&format!("mkfifo {}", path("capture").display()));
        let words = |mode: &str| {
            let (results, inventory) = (path(mode).display().to_string(), path("net.db"));
            format!("-o {results} --inventory {}", inventory.display())
        };
        let mut replay = place.start_with_package_user(&format!(
            "replay {} {} --learn {}/learnt.toml",
            path("capture").display(),
            words("replay.json"),
            sticky.display()
        ));
        // It reads, so that it has been confined.
        let mut capture = fs::File::options().write(true).open(path("capture")).expect("it reads");
        left(&replay);
        // Of no packets.
        let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1].map(u32::to_le_bytes);
        capture.write_all(header.as_flattened()).expect("it reads");
        drop(capture);
        assert_eq!(replay.wait_exit().code(), Some(0), "{}", replay.stderr());
        assert_ne!(fs::read_to_string(sticky.join("learnt.toml")).expect("it is there"), "old");

        let silent = place.network.listen((std::net::Ipv4Addr::LOCALHOST, 2200));
        let mut scan = place.start_with_package_user(&format!(
            "scan ssh 127.0.0.1 -p 2200 --read-timeout 90s --total-timeout 90s -q --resume {}/state {}",
            sticky.display(),
            words("scan.json")
        ));
        let _connection = silent.accept().expect("it asks");
        left(&scan);
        // It finishes what is under way, unless it hears that again.
        eventually("the scan to be given up", || {
            scan.signal(Signal::INT);
            std::thread::sleep(std::time::Duration::from_millis(100));
            scan.has_exited().then_some(())
        });
        assert_eq!(scan.wait_exit().code(), Some(130), "{}", scan.stderr());
        let state = fs::read_to_string(sticky.join("state")).expect("it is kept");
        assert!(state.contains("\"cursor\":1"), "{state}");
        for name in ["replay.json", "scan.json", "net.db", "sticky/learnt.toml", "sticky/state"] {
            let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(path(name)).expect("it is made"));
            assert_eq!(owner, 0, "{name}");
        }
        assert_eq!(fs::read_dir(sticky).expect("it is there").count(), 2, "nothing is left beside them");
    });
}

#[test]
fn a_guard_that_blocks_nothing_has_no_raw_socket_to_open() {
    as_root(|| {
        let place = Place::new();
        let guard = place.start("");
        assert_eq!(capabilities(&guard) & !(FILES | ADMIN), 0);
        assert!(place.is_served("first"));
        place.stop(guard);
    });
}

/// Where root is one within a namespace alone.
fn has_no_other_user() -> bool {
    let mapped = fs::read_to_string("/proc/self/uid_map").expect("it is there");
    let none = mapped.split_whitespace().nth(2) == Some("1");
    if none {
        eprintln!("skipped: this namespace has no other user");
    }
    none
}

#[test]
fn a_guard_goes_on_as_another_user() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        let user = place.network.run("id -u nobody").trim().to_owned();
        let number: u32 = user.parse().expect("a number");
        chown(place.folder.path().join("events"), Some(number), None).expect("we are root");
        for path in ["", "rules", "rules/a.toml"] {
            let path = place.folder.path().join(path);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
        }
        for sandbox in ["", "--no-sandbox"] {
            let guard = place.start(&format!("--enforce --user nobody {sandbox}"));
            let all = [user.as_str(); 4].join("\t");
            assert!(of_threads(&guard, "Uid").iter().all(|users| *users == all));
            assert_eq!(capabilities(&guard) & !(ADMIN | RAW), 0);
            assert!(!place.is_served("first") && place.is_served("second"));
            place.loses_its_hook();
            let reloaded = place.reload();
            assert!(reloaded.status.success(), "{reloaded:?} {}", guard.stderr());
            // They are read from files of root's.
            eventually("accounts", || {
                guard.signal(Signal::USR1);
                let events = json_lines_so_far(&fs::read(place.events()).ok()?);
                let told = events.iter().any(|event| {
                    event["event_type"] == "stats"
                        && event["stats"]["capture"]["kernel_packets"].as_u64() > Some(0)
                });
                told.then_some(())
            });
            place.stop(guard);
        }
    });
}

/// Numbers of namespaces are given out again: what a guard of root's has left when it was killed in an
/// earlier one may bear this one's name.
#[test]
fn a_guard_of_another_user_is_found_where_a_killed_one_of_root_s_has_left_its_socket() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        // The hook stays up, and is the next guard's.
        let mut killed = place.start("");
        killed.signal(Signal::KILL);
        killed.wait_exit();
        let number = place.network.run("stat --dereference --format %i /proc/self/ns/net");
        let left = format!("/run/bannerwall/guard-0-{}.sock", number.trim());
        fs::remove_file(place.events()).expect("it was made by root");

        place.is_open_to_nobody();
        let guard = place.start("--user nobody");
        let reloaded = place.reload();
        assert!(reloaded.status.success(), "{reloaded:?} {}", guard.stderr());
        // Accounts are named by the namespace's cookie, which is never given out again.
        let cookie = place.network.inside(bannerwall_ffi::namespace::cookie).expect("Linux 5.14");
        let accounts = [String::new(), "65534/".to_owned()]
            .map(|user| format!("/run/bannerwall/{user}accounts-0.{cookie}"));
        eventually("accounts", || accounts.iter().any(|file| Path::new(file).exists()).then_some(()));
        place.stop(guard);
        // A guard of another user may not; another guard of root's may have done so.
        let _ = fs::remove_file(left);
    });
}

const UNINSPECTED: &str = "\nbannerwall_uninspected_packets_total ";

#[test]
fn what_the_kernel_dropped_is_not_told_by_a_guard_that_may_not_read_it() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        let flags = "--metrics 127.0.0.1:9464 --on-failure closed --queue-length 1";
        let guard = Running::start(place.guard_of_nobody(flags));
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        // More than the queue holds: the kernel drops the rest.
        guard.signal(Signal::STOP);
        let asks = "for i in 1 2 3 4; do curl -sS -m 1 http://127.0.0.1:8080/ & done; wait";
        place.network.command("sh").args(["-c", asks]).output().expect("sh starts");
        guard.signal(Signal::CONT);
        eventually("it to judge again", || place.is_served("second").then_some(()));
        place.network.run("iptables -t mangle -F");
        eventually("a look at the hook", || guard.stderr().contains("set up again").then_some(()));
        let (shown, by_kernel) = (place.metrics(), ["queue_full", "socket_overrun"]);
        assert!(!shown.contains(UNINSPECTED), "{shown}");
        assert!(by_kernel.iter().all(|reason| !shown.contains(&format!("reason=\"{reason}\""))), "{shown}");
        assert!(
            shown.contains("reason=\"overdue\"") && !shown.contains("bannerwall_queue_depth{"),
            "{shown}"
        );
        guard.signal(Signal::USR1);
        eventually("a stats event without what the kernel has dropped", || {
            let events = fs::read_to_string(place.folder.path().join("events/nobody.json")).ok()?;
            let stats = events.lines().find(|line| line.contains("\"event_type\":\"stats\""))?;
            assert!(stats.contains("kernel_packets") && !stats.contains("kernel_drops"), "{stats}");
            Some(())
        });
        let told = guard.stderr().matches("cannot read /proc/net/netfilter/nfnetlink_queue").count();
        assert_eq!(told, 1, "{}", guard.stderr());
        place.stop(guard);

        // As the unit has it done before the guard.
        place.network.run("chgrp 65534 /proc/net/netfilter/nfnetlink_queue");
        let guard = Running::start(place.guard_of_nobody("--metrics 127.0.0.1:9464"));
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        eventually("accounts", || place.metrics().contains(&format!("{UNINSPECTED}0\n")).then_some(()));
        eventually("what the kernel drops", || {
            let shown = place.metrics();
            (shown.contains("reason=\"queue_full\"} 0") && shown.contains("queue_depth{")).then_some(())
        });
        assert!(!guard.stderr().contains("may not read"), "{}", guard.stderr());
        place.stop(guard);
    });
}

#[test]
fn a_hook_that_another_guard_may_have_is_left_to_it() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        let first = place.start("--queue 5");
        // One that takes the hook goes on guarding: it is not waited for.
        let mut second = Running::start(place.guard_of_nobody("--queue 6"));
        second.wait_stderr("a refusal", |told| {
            assert!(!told.contains("ready: queue"), "{told}");
            told.contains("leads to queue 5").then_some(())
        });
        let status = second.wait_exit();
        let why = second.stderr();
        assert_eq!(status.code(), Some(2), "{why}");
        assert!(why.contains("leads to queue 5") && why.contains("cannot check"), "{why}");
        let rules = place.network.run("iptables-save -t mangle");
        assert!(rules.contains("--queue-num 5") && !rules.contains("--queue-num 6"), "{rules}");
        place.stop(first);
    });
}

#[test]
fn a_hook_of_the_other_iptables_is_taken_down_by_who_may_not_read_that_it_is_there() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        let up = place.network.output(&format!("{PROGRAM} hook up --iptables legacy"));
        if !up.status.success() {
            eprintln!("skipped: {}", String::from_utf8_lossy(&up.stderr));
            return;
        }
        let mut down = place.as_nobody();
        down.args(["hook", "down"]).env("XTABLES_LOCKFILE", place.folder.path().join("events/lock"));
        let down = down.output().expect("setpriv starts");
        assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
        assert!(!place.network.run("iptables-legacy-save -t mangle").contains("NFQUEUE"));
    });
}

#[test]
fn a_guard_ends_with_the_process_that_runs_iptables_for_it() {
    as_root(|| {
        let place = Place::new();
        let mut guard = place.start("");
        let [runner] = children(&guard).try_into().expect("one process");
        place.network.run(&format!("kill -9 {runner}"));
        assert_eq!(guard.wait_exit().code(), Some(2));
        assert!(guard.stderr().contains("bannerwall-run"), "{}", guard.stderr());
    });
}

#[test]
fn events_go_where_a_link_leads() {
    as_root(|| {
        let place = Place::new();
        let elsewhere = TempDir::new().expect("a temporary folder");
        let real = elsewhere.path().join("real.json");
        fs::write(&real, "").expect("ours");
        symlink(&real, place.events()).expect("ours");
        let guard = place.start("");
        assert!(place.is_served("first"));
        eventually("an alert", || (!json_lines_so_far(&fs::read(&real).ok()?).is_empty()).then_some(()));
        place.stop(guard);
    });
}

#[test]
fn a_file_out_of_the_users_reach_is_told_of_at_the_start() {
    as_root(|| {
        if has_no_other_user() {
            return;
        }
        let place = Place::new();
        let folder = place.folder.path();
        let flags =
            format!("--user nobody --no-local --rules {0}/rules --learn {0}/x.toml", folder.display());
        let output = place.network.output(&format!("{PROGRAM} guard {flags}"));
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && why.contains("x.toml"), "{why}");
    });
}

#[test]
fn a_user_that_is_not_there_is_refused() {
    let refused = |name: &str| {
        let output = std::process::Command::new(PROGRAM).args(["guard", "--user", name]).output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = refused("nobody-of-this-name");
    assert!(unknown.contains("--user") && unknown.contains("no such user"), "{unknown}");
    assert!(refused("root").contains("root cannot be used here"));
}
