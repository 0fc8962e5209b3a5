//! Packages: what is in them, and what they leave, by the package managers themselves over a copy of this
//! machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use bannerwall_test_support::raw::{Flags, Packet};
use bannerwall_test_support::{Namespace, Running, Signal, as_root};
use tempfile::TempDir;

use crate::packages::{name, package};

/// This machine's files with a layer of our own on top, which all that is done here goes to.
const LAYER: &str = "set -e
mount -t tmpfs tmpfs $1
mkdir $1/upper $1/work $1/root
mount -t overlay overlay -o lowerdir=/,upperdir=$1/upper,workdir=$1/work $1/root
for folder in dev proc sys; do mount --rbind /$folder $1/root/$folder; done
for folder in run tmp; do mount -t tmpfs -o mode=1777 tmpfs $1/root/$folder; done
mount --bind $2 $1/root/mnt
echo up
exec cat";

/// What a package manager and the tools for users write for themselves.
const OWN: [&str; 11] = [
    "/root/.rpmdb",
    "/var/cache/man/",
    "/var/lib/dpkg/",
    "/var/lib/rpm/",
    "/var/log/",
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/.pwd.lock",
    "/etc/sub",
];

/// A machine to install packages on, in a network of its own.
struct Machine {
    network: Namespace,
    folder: TempDir,
    /// `cat` on a pipe of ours: mounts and layer are gone when it ends.
    anchor: Child,
}

impl Machine {
    /// With these packages in `/mnt`; none where this machine does not let us.
    fn new(packages: &Path) -> Option<Self> {
        let all_users = fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.contains("4294967295"));
        if !all_users {
            eprintln!("skipped: packages are installed by root alone");
            return None;
        }
        let folder = TempDir::new().expect("a temporary folder");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private", "sh", "-c", LAYER, "sh"]);
        command.arg(folder.path()).arg(packages);
        let mut anchor =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare starts");
        let mut line = String::new();
        let stdout = anchor.stdout.as_mut().expect("piped above");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        assert_eq!(line, "up\n", "a layer over this machine's files");
        Some(Self { network: Namespace::new(), folder, anchor })
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A command on the machine.
    fn command(&self, words: &str) -> Command {
        let mut command = self.network.command("nsenter");
        command.arg("--mount").arg(format!("--target={}", self.anchor.id())).arg("chroot").arg(self.root());
        command.args(["env", "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.args(["sh", "-c", words]);
        command
    }

    fn output(&self, words: &str) -> Output {
        self.command(words).output().expect("nsenter starts")
    }

    fn run(&self, words: &str) -> String {
        let output = self.output(words);
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "`{words}`: {}\n{stdout}{stderr}", output.status);
        stdout
    }

    fn fails(&self, words: &str) {
        assert!(!self.output(words).status.success(), "`{words}` succeeded");
    }

    /// What was made or changed, but for what the tools write for themselves.
    fn left(&self) -> BTreeSet<String> {
        let mut command = Command::new("nsenter");
        command.arg("--mount").arg(format!("--target={}", self.anchor.id())).arg("find");
        command.arg(self.folder.path().join("upper")).args(["-mindepth", "1", "-printf", "/%P\n"]);
        let output = command.output().expect("nsenter starts");
        let is_new = |path: &&str| {
            !Path::new(path).is_dir() && !OWN.iter().any(|own| path.starts_with(own))
                || path.contains("bannerwall")
        };
        let paths = String::from_utf8(output.stdout).expect("names of ours");
        let dpkg = |path: &&str| !path.starts_with("/var/lib/dpkg/info/bannerwall.");
        paths.lines().filter(is_new).filter(dpkg).map(str::to_owned).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.anchor.kill();
        let _ = self.anchor.wait();
    }
}

/// A systemd that runs, as far as scripts see: its `systemctl` tells in `/run/stub/log` what it was asked
/// for, and of all units that they are (0) or are not active.
fn let_systemd_seem_to_run(machine: &Machine) {
    let stub = "#!/bin/sh\necho \"$*\" >>/run/stub/log\n\
        case \"$*\" in *is-active*) exit \"$(cat /run/stub/active)\" ;; esac\n";
    machine.run("mkdir -p /run/systemd/system /run/stub && echo 0 >/run/stub/active && : >/run/stub/log");
    machine.run(&format!("printf '%s' '{stub}' >/run/stub/systemctl && chmod 755 /run/stub/systemctl"));
    // rpm has a PATH of its own.
    machine.run("mount --bind /run/stub/systemctl /usr/bin/systemctl");
}

/// What `systemctl` was asked for since it was last read.
fn asked(machine: &Machine) -> String {
    machine.run("cat /run/stub/log; : >/run/stub/log")
}

/// What `systemctl enable` makes of both units that can be enabled.
const ENABLED: [&str; 2] = [
    "/etc/systemd/system/multi-user.target.wants/bannerwall.service",
    "/etc/systemd/system/timers.target.wants/bannerwall-advisories.timer",
];

/// As `systemctl enable` does, where that is a stub.
fn is_enabled_by_hand(machine: &Machine) {
    for link in ENABLED {
        machine.run(&format!("mkdir -p $(dirname {link})"));
        machine.run(&format!("ln -s /usr/lib/systemd/system/$(basename {link}) {link}"));
    }
}

/// Which of [`ENABLED`] are there, whether they lead anywhere or not.
fn enabled(machine: &Machine) -> Vec<&'static str> {
    ENABLED.into_iter().filter(|link| machine.output(&format!("test -L {link}")).status.success()).collect()
}

#[test]
fn a_debian_package_is_installed_upgraded_removed_and_purged_and_nothing_stays() {
    as_root(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let (first, second) = (package("deb", "1", folder.path()), package("deb", "2", folder.path()));
        let Some(machine) = Machine::new(folder.path()) else { return };
        machine.run(&format!("dpkg --install /mnt/{}", name(&first)));
        holds_what_it_should(&machine);
        its_service_is_held_tight(&machine);
        its_guard_starts_by_its_configuration(&machine);
        assert_eq!(enabled(&machine), [""; 0], "nobody enables it but the administrator");
        machine.run("systemctl enable bannerwall.service bannerwall-advisories.timer");

        machine.run("echo 'quiet = true' >> /etc/bannerwall/guard.toml");
        machine.run("echo 'own' > /etc/bannerwall/local.d/own.toml");
        machine.run(&format!("dpkg --install /mnt/{}", name(&second)));
        assert!(machine.run("dpkg-query -W bannerwall").trim_end().ends_with("-2"));
        machine.run("grep -q quiet /etc/bannerwall/guard.toml");
        assert_eq!(enabled(&machine), ENABLED, "an upgrade keeps what was chosen");

        machine.run("bannerwall hook up");
        // As systemd does once the timer has run.
        machine.run("mkdir -p /var/lib/systemd/timers");
        machine.run(": >/var/lib/systemd/timers/stamp-bannerwall-advisories.timer");
        machine.run("dpkg --remove bannerwall");
        machine.fails("command -v bannerwall");
        assert!(!machine.run("iptables-save").contains("NFQUEUE"), "a hook outlived its program");
        machine.run("test -e /var/log/bannerwall/events.json && test ! -e /run/bannerwall");
        machine.run("grep -q quiet /etc/bannerwall/guard.toml");
        assert_eq!(enabled(&machine), [""; 0], "links to units that are gone");

        // One that is not enabled is not after a further installation or upgrade.
        for package in [&first, &second] {
            machine.run(&format!("dpkg --install /mnt/{}", name(package)));
            assert_eq!(enabled(&machine), [""; 0]);
        }
        machine.run("systemctl enable bannerwall.service bannerwall-advisories.timer");
        machine.run("dpkg --purge bannerwall");
        machine.fails("getent passwd bannerwall || getent group bannerwall");
        // systemd's own, and empty.
        machine.run("rmdir /var/lib/systemd/timers");
        assert_eq!(machine.left(), BTreeSet::new());
    });
}

#[test]
fn scripts_leave_a_guard_that_works_and_never_a_closed_hook_without_a_program() {
    as_root(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let (first, second) = (package("deb", "1", folder.path()), package("deb", "2", folder.path()));
        let Some(machine) = Machine::new(folder.path()) else { return };
        let_systemd_seem_to_run(&machine);
        machine.run(&format!("dpkg --install /mnt/{}", name(&first)));
        let told = asked(&machine);
        assert!(!told.contains("start") && !told.contains("enable"), "{told}");

        machine.run(&format!("dpkg --install /mnt/{}", name(&second)));
        let told = asked(&machine);
        assert!(told.contains("try-restart bannerwall.service\n"), "{told}");
        // The new version does not know a key.
        machine.run(
            "cp /etc/bannerwall/guard.toml /run/kept && echo 'nonsense = 3' >> /etc/bannerwall/guard.toml",
        );
        let upgrade = machine.output(&format!("dpkg --install /mnt/{}", name(&first)));
        let why = String::from_utf8_lossy(&upgrade.stderr).into_owned();
        assert!(upgrade.status.success() && why.contains("nonsense") && why.contains("GOES ON"), "{why}");
        let told = asked(&machine);
        assert!(!told.contains("restart bannerwall.service"), "{told}");
        machine.run("cp /run/kept /etc/bannerwall/guard.toml");

        is_enabled_by_hand(&machine);
        machine.run("bannerwall hook up --on-failure closed");
        let iptables = "/usr/sbin/xtables-nft-multi";
        machine.run(&format!(
            "printf '#!/bin/sh\nexit 4\n' >/run/stub/fails && chmod 755 /run/stub/fails && \
            mount --bind /run/stub/fails {iptables}"
        ));
        let removal = machine.output("dpkg --remove bannerwall");
        let why = String::from_utf8_lossy(&removal.stderr).into_owned();
        assert!(!removal.status.success() && why.contains("bannerwall hook down &&"), "{why}");
        machine.run("command -v bannerwall");
        let told = asked(&machine);
        let (stopped, started) =
            (told.find("stop bannerwall.service"), told.find("\nstart bannerwall.service"));
        assert!(stopped.is_some() && stopped < started, "{told}");
        machine.run(&format!("umount {iptables}"));
        assert!(machine.run("iptables-save").contains("NFQUEUE"), "it is closed still");
        assert_eq!(enabled(&machine), ENABLED, "it stays enabled, as it stays");

        machine.run("dpkg --remove bannerwall");
        assert!(!machine.run("iptables-save").contains("NFQUEUE"), "a closed hook outlived its program");
        let told = asked(&machine);
        assert!(told.contains("bannerwall-advisories.service") && !told.contains("\nstart"), "{told}");
        assert_eq!(enabled(&machine), [""; 0], "links to units that are gone");
        machine.run("dpkg --purge bannerwall");
        machine.fails("getent passwd bannerwall || getent group bannerwall");
        machine.run("test ! -e /run/xtables.lock || test \"$(stat -c '%U:%G %a' /run/xtables.lock)\" = 'root:root 600'");
        machine.run("umount /usr/bin/systemctl");
        assert_eq!(machine.left(), BTreeSet::new());
    });
}

#[test]
fn a_package_that_was_never_configured_stops_its_guard_and_takes_its_hook_down_without_the_program() {
    as_root(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let (first, second) = (package("deb", "1", folder.path()), package("deb", "2", folder.path()));
        let Some(machine) = Machine::new(folder.path()) else { return };
        let_systemd_seem_to_run(&machine);
        machine.run(&format!("dpkg --install /mnt/{}", name(&first)));
        machine.run("iptables -t mangle -A FORWARD -p tcp -j TCPMSS --set-mss 1000 --tcp-flags SYN,RST SYN");
        for variant in ["nft", "legacy"] {
            machine
                .run(&format!("bannerwall hook up --iptables {variant} --on-failure closed --hook-udp 443"));
        }
        machine.run(&format!("dpkg --unpack /mnt/{}", name(&second)));
        asked(&machine);
        machine.run("dpkg --remove bannerwall");
        assert!(asked(&machine).contains("stop bannerwall.service"));
        for program in ["iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"] {
            let rules = machine.run(&format!("{program} -w -t mangle -S"));
            assert!(!rules.contains("BANNERWALL"), "{program}: {rules}");
        }
        assert!(machine.run("iptables -w -t mangle -S").contains("TCPMSS"), "a rule of others stays");
        machine.run("umount /usr/bin/systemctl");
    });
}

fn holds_what_it_should(machine: &Machine) {
    let shipped: BTreeSet<String> =
        machine.run("dpkg --listfiles bannerwall").lines().map(str::to_owned).collect();
    let is_file = |path: &&String| {
        path.starts_with("/etc/") && !machine.run(&format!("stat -c %F {path}")).contains("dir")
    };
    let configuration = machine.run("dpkg-query -W -f '${Conffiles}' bannerwall");
    for file in shipped.iter().filter(is_file) {
        assert!(configuration.contains(&format!(" {file} ")), "{file} would be overwritten");
    }
    let rules = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")).expect("rules are shipped");
    for rules in rules
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|it| it == "toml"))
    {
        assert!(shipped.contains(&format!("/etc/bannerwall/rules/{}", name(&rules))), "{}", rules.display());
    }
    machine.run("cd / && bannerwall rules check");
    for page in [
        "bannerwall.1",
        "bannerwall-guard.8",
        "bannerwall-hook-up.1",
        "bannerwall-scan-ssh.1",
        "bannerwall-rules.1",
        "bannerwall-rules.5",
        "bannerwall-configuration.5",
    ] {
        let section = page.rsplit('.').next().expect("a section");
        machine.run(&format!("gzip -dc /usr/share/man/man{section}/{page}.gz | grep -q '^.SH NAME'"));
    }
    machine.run("bash -n /usr/share/bash-completion/completions/bannerwall");
    machine.run("getent passwd bannerwall | grep -q nologin");
    assert_eq!(machine.run("stat -c '%U %a' /run/bannerwall"), "bannerwall 755\n");
    machine.run("sed 's/[.]deb$//' /var/lib/dpkg/info/bannerwall.md5sums | md5sum --check --quiet");
}

fn its_service_is_held_tight(machine: &Machine) {
    let unit = "/usr/lib/systemd/system/bannerwall.service";
    let text = machine.run(&format!("cat {unit}"));
    for line in ["Type=notify", "WatchdogSec=5s", "User=bannerwall"] {
        assert!(text.lines().any(|told| told == line), "{line}");
    }
    for unit in ["bannerwall.service", "bannerwall-advisories.service", "bannerwall-advisories.timer"] {
        let path = format!("/usr/lib/systemd/system/{unit}");
        if unit.ends_with(".service") {
            machine.run(&format!("systemd-analyze security --no-pager --offline=true --threshold=20 {path}"));
        }
        let verified = machine.output(&format!("systemd-analyze verify --man=no {path}"));
        let told = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(!told.contains("bannerwall"), "{told}");
    }
}

/// By the unit's own command, user, capabilities and folders.
fn its_guard_starts_by_its_configuration(machine: &Machine) {
    machine.run("install -d -o bannerwall -g bannerwall -m 750 /var/log/bannerwall");
    let unit = machine.run("cat /usr/lib/systemd/system/bannerwall.service");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let capabilities = "+net_admin,+net_raw";
    let as_user = format!(
        "exec setpriv --reuid=bannerwall --regid=bannerwall --clear-groups --no-new-privs \
         --bounding-set=-all,{capabilities} --inh-caps=-all,{capabilities} --ambient-caps=-all,{capabilities} \
         env RUNTIME_DIRECTORY=/run/bannerwall {command}"
    );
    let mut guard = Running::start(machine.command(&as_user));
    guard.wait_stderr("the guard", |text| text.contains("ready: queue 0").then_some(()));
    machine.run("bannerwall hook status");
    machine.run("bannerwall reload");
    its_events_are_rotated(machine);
    guard.signal(Signal::TERM);
    assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
    machine.run("bannerwall hook down");
}

/// By logrotate itself, whatever systemd says of the service.
fn its_events_are_rotated(machine: &Machine) {
    let_systemd_seem_to_run(machine);
    // Absent, not active, active.
    for active in [127, 1, 0] {
        machine.run(&format!("echo {active} >/run/stub/active; : >/run/stub/log"));
        machine.run("echo {} >> /var/log/bannerwall/events.json");
        machine.run("logrotate --force --state /tmp/state /etc/logrotate.d/bannerwall");
        let told = asked(machine);
        assert_eq!(
            told.contains("kill --signal=USR1 --kill-who=main bannerwall.service"),
            active == 0,
            "{told}"
        );
        let rotated =
            machine.run("stat -c '%U %a' /var/log/bannerwall/events.json /var/log/bannerwall/events.json.1");
        assert_eq!(rotated, "bannerwall 640\nbannerwall 640\n");
    }
    machine.run("umount /usr/bin/systemctl && rm -r /run/stub /run/systemd");
}

#[test]
fn an_rpm_holds_the_same_and_is_erased_whole() {
    as_root(|| {
        if Command::new("rpmbuild").arg("--version").output().is_err() {
            eprintln!("skipped: rpmbuild is not installed");
            return;
        }
        let folder = TempDir::new().expect("a temporary folder");
        let (rpm, deb) = (package("rpm", "1", folder.path()), package("deb", "1", folder.path()));
        let of_rpm = listed(&["rpm", "--query", "--list", "--package"], &rpm);
        // Folders of dpkg-deb's list have a slash at the end.
        let of_deb = listed(&["dpkg-deb", "--contents"], &deb);
        // Files for Debian's tools stand in its package alone.
        let is_debian = |name: &str| name.contains("Debian") || name.contains("/lintian/");
        let of_deb: Vec<_> = of_deb.iter().filter(|name| !name.ends_with('/') && !is_debian(name)).collect();
        assert!(of_deb.len() > 60, "{of_deb:?}");
        let missing: Vec<_> = of_deb.iter().filter(|name| !of_rpm.contains(**name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let Some(machine) = Machine::new(folder.path()) else { return };
        let path = format!("/mnt/{}", name(&rpm));
        // The names of packages are Fedora's.
        machine.run(&format!("rpm --install --nodeps {path}"));
        machine.run("rpm --query --configfiles bannerwall | grep -q /etc/bannerwall/guard.toml");
        machine.run("rpm --query --licensefiles bannerwall | grep -q LICENSE");
        machine.run("bannerwall --version && getent passwd bannerwall");
        let_systemd_seem_to_run(&machine);
        machine.run(&format!("rpm --upgrade --force --nodeps {path}"));
        let told = asked(&machine);
        assert!(told.contains("try-restart bannerwall.service\n"), "{told}");
        machine.run("bannerwall hook up --on-failure closed");
        is_enabled_by_hand(&machine);
        machine.run("rpm --erase bannerwall && userdel bannerwall");
        assert_eq!(enabled(&machine), [""; 0], "links to units that are gone");
        let told = asked(&machine);
        assert!(told.contains("--no-reload disable --now bannerwall.service"), "{told}");
        assert!(!machine.run("iptables-save").contains("NFQUEUE"), "a closed hook outlived its program");
        machine.run("umount /usr/bin/systemctl");
        // Fedora has this folder; it has to be empty.
        machine.run("rmdir /usr/share/licenses");
        assert_eq!(machine.left(), BTreeSet::new());
    });
}

/// The program of `scripts/package static`, where it was run, or one that `BANNERWALL_STATIC` names.
fn static_program() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/x86_64-unknown-linux-musl");
    let places = ["release", "debug"].map(|profile| built.join(profile).join("bannerwall"));
    let named = std::env::var_os("BANNERWALL_STATIC").map(PathBuf::from);
    named.into_iter().chain(places).find(|path| path.exists())
}

/// A capture of a server that says this, and of its client's handshake.
fn capture(said: &[u8]) -> Vec<u8> {
    let (client, server) = ("192.0.2.1:40000".parse().unwrap(), "198.51.100.1:22".parse().unwrap());
    let packet = |source, destination, sequence, acknowledgement, flags, payload: &[u8]| {
        let payload = payload.to_vec();
        Packet { sequence, acknowledgement, payload, ..Packet::new(source, destination) }.flags(flags).build()
    };
    let packets = [
        packet(client, server, 99, 0, Flags::SYN, b""),
        packet(server, client, 499, 100, Flags::SYN | Flags::ACK, b""),
        packet(client, server, 100, 500, Flags::ACK, b""),
        packet(server, client, 500, 100, Flags::ACK | Flags::PSH, said),
    ];
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101]);
    for (number, packet) in (0_u32..).zip(packets) {
        let length = u32::try_from(packet.len()).expect("a short packet");
        file.extend(words(&[1_700_000_000, number, length, length]));
        file.extend(packet);
    }
    file
}

#[test]
fn a_static_program_scans_and_replays_where_there_is_nothing_else() {
    const SAID: &[u8] = b"SSH-2.0-OpenSSH_7.2\r\n";
    as_root(|| {
        let Some(program) = static_program() else {
            eprintln!("skipped: `scripts/package static` was not run, which takes a compiler for musl");
            return;
        };
        let folder = TempDir::new().expect("a temporary folder");
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("the folder is ours");
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/package"));
        command.arg("static").arg("--program").arg(&program).arg("--output").arg(folder.path());
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let package = String::from_utf8(output.stdout).expect("a path of ours");
        let mut command = Command::new("tar");
        command.args([
            "--extract",
            "--gzip",
            "--strip-components=1",
            "--file",
            package.trim(),
            "--directory",
        ]);
        assert!(command.arg(&root).status().expect("tar starts").success());
        let old = "[[rule]]\nid = \"old\"\nprotocol = \"ssh\"\nfrom = \"server\"\naction = \"alert\"\n\
                   match.software = '^OpenSSH_7'\n";
        fs::write(root.join("old.toml"), old).expect("the folder is ours");
        fs::write(root.join("one.pcap"), capture(SAID)).expect("the folder is ours");
        let network = Namespace::new();
        let told = |words: &str| {
            let mut command = network.command("chroot");
            command.arg(&root).arg("/bannerwall").args(words.split_whitespace());
            let output = command.output().expect("chroot starts");
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
        };
        assert!(told("--version").starts_with("bannerwall "), "{}", told("--version"));
        assert!(told("rules list --rules /rules").lines().count() > 100, "the shipped rules are there");
        let replayed = told("replay --rules /old.toml --format json /one.pcap");
        let listener = network.inside(|| TcpListener::bind("127.0.0.1:2222")).expect("a port of its own");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(SAID).expect("it listens");
            let _whatever_it_says = stream.read(&mut [0; 64]);
        });
        let scanned = told("scan ssh 127.0.0.1 -p 2222 --rules /old.toml --format json");
        for said in [replayed, scanned] {
            assert!(said.contains("\"event_type\":\"alert\"") && said.contains("OpenSSH_7.2"), "{said}");
        }
    });
}

/// The last word of each line: names of files, as they are called in every package.
fn listed(words: &[&str], package: &Path) -> BTreeSet<String> {
    let output = Command::new(words[0]).args(&words[1..]).arg(package).output().expect("it is installed");
    let text = String::from_utf8(output.stdout).expect("names of ours");
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    let name = |name: &str| format!("/{}", name.trim_start_matches(['.', '/']));
    names.map(name).map(|name| name.replace("vendor-completions", "site-functions")).collect()
}

#[test]
fn what_the_container_is_made_of_is_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    // What is left out by podman, and by docker.
    let [podman, docker] = [".containerignore", "packaging/Containerfile.dockerignore"]
        .map(|list| fs::read_to_string(folder.join(list)).expect("it is shipped"));
    assert_eq!(podman, docker);
    let text = fs::read_to_string(folder.join("packaging/Containerfile")).expect("it is shipped");
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known = ["FROM", "RUN", "WORKDIR", "COPY", "ENTRYPOINT", "CMD"];
    for line in lines {
        let (word, rest) = line.split_once(' ').expect("an instruction and what it is about");
        assert!(known.contains(&word), "{line}");
        if word == "COPY" && !rest.starts_with("--from") {
            let from = rest.split_whitespace().next().expect("a source");
            assert!(folder.join(from).exists(), "{line}");
        }
        if matches!(word, "ENTRYPOINT" | "CMD") {
            serde_json::from_str::<Vec<String>>(rest).expect("a list of words");
        }
    }
}
