//! The service of a package under a systemd of its own: process 1 of namespaces over a layer of this
//! machine's files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bannerwall_test_support::{Namespace, Running, as_root, eventually};
use tempfile::TempDir;

use crate::packages::{name, package};

/// How long a systemd may take to start before it is taken for one that cannot here.
const START: Duration = Duration::from_secs(60);

/// How long one end of a connection waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);

/// The layer, with nothing of this machine's own that starts, or that would change its kernel.
const BOOT: &str = include_str!("boot.sh");

/// A systemd, and all that it runs.
struct Machine {
    network: Namespace,
    /// `unshare`, with which its one child ends.
    systemd: Option<Running>,
    /// The control group that is the root of the machine's own.
    group: PathBuf,
    _folder: TempDir,
}

impl Machine {
    /// With these packages in `/mnt`; none where systemd does not start in namespaces.
    fn new(packages: &Path) -> Option<Self> {
        let skipped = |why: &str| eprintln!("skipped: no systemd can be started here: {why}");
        let all_users = fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.contains("4294967295"));
        if !all_users || !Path::new("/lib/systemd/systemd").exists() {
            skipped("it takes root and a program");
            return None;
        }
        let mounts = fs::read_to_string("/proc/self/mounts").expect("it is there");
        let of_groups = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let groups = mounts.lines().find(of_groups).and_then(|line| line.split(' ').nth(1));
        let Some(groups) = groups else {
            skipped("there are no control groups of version 2");
            return None;
        };
        let group = Path::new(groups).join(format!("bannerwall-test-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&group) {
            skipped(&format!("{}: {error}", group.display()));
            return None;
        }
        let folder = TempDir::new().expect("a temporary folder");
        let network = Namespace::new();
        let mut command = network.command("sh");
        command.args(["-c", "echo $$ >\"$1\" && shift && exec \"$@\"", "sh"]);
        command.arg(group.join("cgroup.procs")).args(["setpriv", "--pdeathsig=KILL", "unshare", "--mount"]);
        command.args(["--propagation=private", "--pid", "--uts", "--ipc", "--cgroup", "--fork"]);
        command.args(["--kill-child", "sh", "-c", BOOT, "sh"]).arg(folder.path()).arg(packages);
        let systemd = Some(Running::start(command));
        let mut machine = Self { network, systemd, group, _folder: folder };
        let until = Instant::now() + START;
        // Before the layer is the root, it is the machine's own systemd that answers.
        let asked = "test -e /etc/systemd/system/only-this.target && systemctl is-system-running";
        while machine.output(asked).stdout != b"running\n" {
            let systemd = machine.systemd.as_mut().expect("started above");
            if systemd.has_exited() || Instant::now() > until {
                skipped(&systemd.stderr());
                return None;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(machine)
    }

    fn output(&self, words: &str) -> Output {
        let unshare = self.systemd.as_ref().expect("it runs").id();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
        let first = children.unwrap_or_default().split_whitespace().next().unwrap_or("0").to_owned();
        let mut command = self.network.command("nsenter");
        command.args(["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--target", &first]);
        command.args(["env", "-i", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER="]);
        command.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c"]).arg(format!("cd / && {words}"));
        command.output().expect("nsenter starts")
    }

    fn run(&self, words: &str) -> String {
        let output = self.output(words);
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(
            output.status.success(),
            "`{words}`: {}\n{stdout}{stderr}\n{}",
            output.status,
            self.journal()
        );
        stdout
    }

    fn journal(&self) -> String {
        let output = self.output("journalctl --unit bannerwall --lines 60 --output cat");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What systemd knows of the service.
    fn show(&self, property: &str) -> String {
        self.run(&format!("systemctl show bannerwall --property {property} --value")).trim_end().to_owned()
    }

    fn main_process(&self) -> String {
        self.show("MainPID")
    }

    /// Waits for a guard that is another one than `before`.
    fn is_started_again(&self, before: &str) {
        eventually("another guard", || {
            let is_another = ![before, "0"].contains(&self.main_process().as_str());
            (is_another && self.show("ActiveState") == "active").then_some(())
        });
        self.is_ready();
    }

    fn is_ready(&self) {
        let told = self.show("StatusText");
        assert!(told.starts_with("ready: queue 0"), "{told}\n{}", self.journal());
    }

    fn configure(&self, lines: &str) {
        self.run(&format!("printf '{lines}' >>/etc/bannerwall/guard.toml"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.systemd.take());
        // The processes that end leave it a moment later.
        let gone = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            remove_groups(&self.group)
        });
        assert!(gone || std::thread::panicking(), "{} stays", self.group.display());
    }
}

/// Takes a control group and those below it away, if nobody is in them.
fn remove_groups(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    fs::remove_dir(group).is_ok()
}

#[test]
fn systemd_starts_watches_restarts_and_stops_the_guard_of_a_package() {
    as_root(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let (first, second) = (package("deb", "1", folder.path()), package("deb", "2", folder.path()));
        let Some(machine) = Machine::new(folder.path()) else { return };
        machine.run(&format!("dpkg --install /mnt/{}", name(&first)));
        assert_eq!(machine.output("systemctl is-enabled bannerwall").stdout, b"disabled\n");
        machine.run("systemctl enable --now bannerwall");
        machine.is_ready();
        machine.run("systemd-analyze security --threshold=20 bannerwall");
        its_rules_are_read_again(&machine);
        it_is_started_again_where_it_hangs_or_dies(&machine);
        restarts_cut_nothing(&machine, name(&second));
        advisories_become_rules_without_rights(&machine);

        machine.run("systemctl start bannerwall-advisories.timer");
        machine.run("dpkg --remove bannerwall");
        assert!(!machine.run("iptables-save").contains("NFQUEUE"), "a hook outlived its program");
        let units = machine.run("systemctl list-units --all --no-legend");
        assert!(!units.contains("bannerwall"), "{units}");
        machine.run("dpkg --purge bannerwall");
        let left = machine.run(
            "find /etc/systemd /var/lib/systemd /var/cache /run -name '*bannerwall*' -not -path '*journal*'",
        );
        assert_eq!(left, "");
    });
}

fn its_rules_are_read_again(machine: &Machine) {
    let guard = machine.main_process();
    machine.run("systemctl reload bannerwall");
    machine.run("echo '[[rule' >/etc/bannerwall/rules/bad.toml");
    assert!(!machine.output("systemctl reload bannerwall").status.success(), "{}", machine.journal());
    machine.run("rm /etc/bannerwall/rules/bad.toml && systemctl reload bannerwall");
    assert_eq!(machine.main_process(), guard, "{}", machine.journal());
}

fn it_is_started_again_where_it_hangs_or_dies(machine: &Machine) {
    // Nobody but the watchdog ends the one that is stopped.
    for signal in ["STOP", "KILL"] {
        let guard = machine.main_process();
        machine.run(&format!("kill -{signal} {guard}"));
        machine.is_started_again(&guard);
        assert!(machine.run("iptables-save").contains("NFQUEUE"), "{}", machine.journal());
    }
    // Its second process is the only one that can change the hook.
    let guard = machine.main_process();
    machine.run(&format!("kill -KILL $(cat /proc/{guard}/task/{guard}/children)"));
    machine.is_started_again(&guard);
}

/// With queues in systemd's own store.
fn restarts_cut_nothing(machine: &Machine, upgrade: &str) {
    machine.configure("max-wait = \"off\"\\nmetrics = \"127.0.0.1:9464\"\\n");
    machine.run(
        "sed -i 's,^events = .*,events = \"/var/log/bannerwall/store.json\",' /etc/bannerwall/guard.toml",
    );
    machine.run("systemctl stop bannerwall");
    assert!(!machine.run("iptables-save").contains("NFQUEUE"), "a stop takes an open hook down");
    machine.run("systemctl start bannerwall");
    let store = machine.show("NFileDescriptorStore");
    assert_eq!(store, "2", "a queue and the metrics: {}", machine.journal());
    let listener = machine.network.listen(([127, 0, 0, 1], 2222));
    let [is_over, is_served] = [(); 2].map(|()| AtomicBool::new(false));
    listener.set_nonblocking(true).expect("it can be asked");
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &is_served));
        let client = scope.spawn(|| {
            let _over = Over(&is_served);
            machine.network.inside(|| ask_until(&is_over))
        });
        let over = Over(&is_over);
        for _ in 0..4 {
            let before = machine.main_process();
            machine.run("systemctl restart bannerwall");
            assert_ne!(machine.main_process(), before);
            std::thread::sleep(Duration::from_millis(300));
        }
        machine.run(&format!("dpkg --install /mnt/{upgrade}"));
        drop(over);
        client.join().expect("every connection is served")
    });
    let shown = machine.run("curl --silent --show-error --max-time 20 http://127.0.0.1:9464/metrics");
    for line in ["takeovers_total{result=\"success\"} 5", "uninspected_packets_total 0"] {
        assert!(shown.contains(&format!("\nbannerwall_{line}\n")), "{line}: {shown}\n{}", machine.journal());
    }
    eventually("each connection to be told once", || {
        let told = machine.run("grep -c '\"event_type\":\"ssh\"' /var/log/bannerwall/store.json || true");
        (told.trim().parse() == Ok(asked)).then_some(())
    });
}

/// A `curl` that copies a file, and records what it may do.
const CURL: &str = r"#!/bin/sh -e
cd /var/cache/bannerwall
cp /opt/tracker.json tracker.json
grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs)' /proc/self/status >rights
for folder in /etc/bannerwall/rules /var/lib/bannerwall /usr/local; do ! touch $folder/planted 2>&1; done
";

fn advisories_become_rules_without_rights(machine: &Machine) {
    let tracker = include_str!("../data/advisories/debian.json");
    for (path, text) in [("/opt/tracker.json", tracker), ("/opt/curl", CURL)] {
        machine.run(&format!("cat >{path} <<'EOF'\n{text}EOF"));
    }
    machine.run("chmod 755 /opt/curl && mount --bind /opt/curl /usr/bin/curl");
    machine.run("systemd-analyze security --threshold=20 bannerwall-advisories");
    let guard = machine.main_process();
    machine.run("systemctl start bannerwall-advisories.service || { journalctl --unit bannerwall-advisories; false; }");
    let rights = machine.run("cat /var/cache/bannerwall/rights");
    assert!(
        rights.contains("CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1"),
        "{rights}"
    );
    assert!(!rights.contains("Uid:\t0"), "{rights}");
    assert_eq!(machine.run("find / -xdev -name planted"), "", "it wrote outside of its cache");
    let rules = "/etc/bannerwall/rules/debian.toml";
    assert_eq!(machine.run(&format!("stat -c '%U %a' {rules}")), "root 644\n");
    let imported = machine.run(&format!("grep -c '^\\[\\[rule' {rules}"));
    let status = machine.run("bannerwall status --format json || true");
    assert!(imported.trim() != "0" && status.contains("\"last_reload\""), "{imported}{status}");
    assert_eq!(machine.main_process(), guard, "{}", machine.journal());

    let before = machine.run(&format!("sha256sum {rules}"));
    machine.run("printf '#!/bin/sh\nexit 22\n' >/opt/curl");
    assert!(!machine.output("systemctl start bannerwall-advisories.service").status.success());
    assert_eq!(machine.run(&format!("sha256sum {rules}")), before, "yesterday's rules stay");
    machine.run("systemctl reset-failed bannerwall-advisories.service");
    machine.run("umount /usr/bin/curl && rm /opt/curl /opt/tracker.json");
}

const SERVER: &[u8] = b"SSH-2.0-OpenSSH_9.2p1\r\n";
const CLIENT: &[u8] = b"SSH-2.0-OpenSSH_9.3\r\n";

/// Ends an end of the load, also where the test fails amid it.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves one connection after the other.
fn serve(listener: &TcpListener, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut said = vec![0; CLIENT.len()];
        // A client that fails says so itself.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.write_all(SERVER).and_then(|()| stream.read_exact(&mut said));
    }
}

/// Asks again and again until the end; gives how often.
///
/// # Panics
/// Where a connection fails.
fn ask_until(is_over: &AtomicBool) -> u64 {
    let address = SocketAddr::from(([127, 0, 0, 1], 2222));
    let mut asked = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("it takes one");
        let mut said = vec![0; SERVER.len()];
        stream.read_exact(&mut said).expect("a banner");
        assert_eq!(said, SERVER);
        stream.write_all(CLIENT).expect("the server reads");
        assert_eq!(stream.read_to_end(&mut said).expect("its end"), 0);
        asked += 1;
    }
    asked
}
