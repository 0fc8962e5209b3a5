//! A hook that something changes under a running guard: noticed, told, and put back.

use std::path::PathBuf;
use std::process::Command;

use bannerwall_test_support::{NO_SQLMAP, Namespace, Nginx, Running, Signal, as_root, eventually};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// A network with a web server and a guard that shows its metrics.
struct Scene {
    namespace: Namespace,
    folder: TempDir,
    guard: Running,
    _server: Nginx,
}

impl Scene {
    fn start(flags: &str) -> Self {
        Self::after(flags, |_| {})
    }

    /// As [`Scene::start`], with something done to the network before the guard comes.
    fn after(flags: &str, prepare: impl FnOnce(&Namespace)) -> Self {
        let namespace = Namespace::new();
        prepare(&namespace);
        let server = Nginx::start(&namespace, 80, "");
        let folder = TempDir::new().expect("a temporary folder");
        let rules = folder.path().join("rules.toml");
        std::fs::write(&rules, NO_SQLMAP).expect("the folder is ours");
        let mut command = namespace.command(PROGRAM);
        command.arg("guard").arg("--rules").arg(&rules).args(["--enforce", "--format", "json"]);
        command.args(["--metrics", "127.0.0.1:9464"]).args(flags.split_whitespace());
        let guard = Running::start(command);
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        Self { namespace, folder, guard, _server: server }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn shell(&self, script: &str) {
        let output = self.namespace.command("sh").args(["-ec", script]).output().expect("sh");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn get(&self, path: &str) -> (String, String) {
        let url = format!("http://127.0.0.1:9464{path}");
        let output = self.namespace.output(&format!("curl -s -w %{{http_code}} {url}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.split_at(text.len().saturating_sub(3));
        (code.to_owned(), body.to_owned())
    }

    fn metric(&self, series: &str) -> Option<u64> {
        let (_, text) = self.get("/metrics");
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    fn wait_ready(&self, code: &str) {
        eventually(&format!("/readyz to be {code}"), || (self.get("/readyz").0 == code).then_some(()));
    }

    /// Whether the guard sees and blocks a forbidden client.
    fn blocks(&self) -> bool {
        let client = self.namespace.output("curl -s -m 5 -A sqlmap/1.7 http://127.0.0.1/");
        !client.status.success()
    }

    fn waits_to_block(&self, after: &str) {
        eventually(&format!("the hook to be back after {after}"), || self.blocks().then_some(()));
    }

    fn told(&self, what: &str) {
        self.guard.wait_stderr(what, |text| text.contains(what).then_some(()));
    }

    fn told_as_event(&self, state: &str) {
        self.guard.wait_stdout(state, |text| {
            let is_told = |line: &str| {
                line.contains("\"event_type\":\"hook\"") && line.contains(&format!("\"state\":\"{state}\""))
            };
            text.lines().any(is_told).then_some(())
        });
    }

    /// Our rules of both families, in an order of their own.
    fn our_rules(&self, variant: &str) -> Vec<String> {
        let list = |program: &str| self.namespace.run(&format!("{program}-{variant} -w -t mangle -S"));
        let mut rules = Vec::new();
        for program in ["iptables", "ip6tables"] {
            let list = list(program);
            let ours = list.lines().filter(|line| line.contains("BANNERWALL"));
            rules.extend(ours.map(|line| format!("{program} {line}")));
        }
        rules.sort();
        rules
    }

    fn stop(mut self) -> String {
        self.guard.signal(Signal::TERM);
        let status = self.guard.wait_exit();
        assert_eq!(status.code(), Some(0), "{}", self.guard.stderr());
        self.guard.stderr()
    }
}

#[test]
fn what_takes_the_hook_away_or_changes_it_is_told_and_undone() {
    as_root(|| {
        for variant in ["nft", "legacy"] {
            let scene = Scene::start(&format!("--hook input,output --iptables {variant}"));
            assert!(scene.blocks());
            let program = format!("{PROGRAM} hook");
            let mangle = format!("iptables-{variant} -w -t mangle");
            let saved = scene.file("saved").display().to_string();
            let bare = "*mangle\\n:INPUT ACCEPT [0:0]\\nCOMMIT\\n";
            scene.shell(&format!("printf '{bare}' > {saved}"));
            let changes = [
                ("gone", format!("{program} down --iptables {variant}")),
                ("gone", format!("iptables-{variant}-restore < {saved}")),
                ("led_away", format!("{program} up --iptables {variant} --chains input,output --queue 7")),
                ("changed", format!("{program} up --iptables {variant} --chains input")),
                ("damaged", format!("{mangle} -F BANNERWALL")),
                (
                    "damaged",
                    format!("{mangle} -D OUTPUT -p tcp -m mark ! --mark 0x0/0xc0000000 -j BANNERWALL-CLEAN"),
                ),
                ("doubled", format!("{mangle} -A INPUT -p tcp -j BANNERWALL")),
                ("not_last", format!("{mangle} -A INPUT -p tcp --dport 1 -j TTL --ttl-set 7")),
                ("skipped", format!("{mangle} -I INPUT 2 -p tcp --dport 80 -j ACCEPT")),
            ];
            let rules = scene.our_rules(variant);
            assert!(!rules.is_empty());
            for (state, change) in changes {
                let before = scene.metric("bannerwall_hook_repairs_total ");
                assert!(before.is_some(), "the repairs are counted");
                scene.shell(&change);
                scene.told_as_event(state);
                eventually(&format!("a repair after `{change}`"), || {
                    (scene.metric("bannerwall_hook_repairs_total ") > before).then_some(())
                });
                scene.waits_to_block(&change);
                // A change of both families may ask for two repairs, of which the first counts already.
                eventually(&format!("every rule to be back after `{change}`"), || {
                    (scene.our_rules(variant) == rules).then_some(())
                });
                scene.wait_ready("200");
                assert_eq!(scene.metric("bannerwall_hook_up{family=\"ipv4\"} "), Some(1), "{change}");
            }
            scene.told("hook (IPv4): gone: packets pass uninspected");
            scene.told("set up again");
            scene.told_as_event("restored");
            scene.stop();
        }
    });
}

#[test]
fn flushing_every_rule_of_nft_is_told_and_undone() {
    as_root(|| {
        let scene = Scene::start("--hook input,output --iptables nft");
        for round in 1..=3 {
            scene.shell("nft flush ruleset");
            scene.waits_to_block("nft flush ruleset");
            eventually("the repair to be counted", || {
                (scene.metric("bannerwall_hook_repairs_total ")? >= round).then_some(())
            });
        }
        scene.wait_ready("200");
        let told = scene.stop();
        assert!(told.contains("hook (IPv6): gone"), "{told}");
    });
}

#[test]
fn without_repair_the_guard_only_tells_until_the_hook_is_back() {
    as_root(|| {
        let scene = Scene::start("--hook input,output --iptables nft --hook-repair off");
        scene.wait_ready("200");
        scene.shell("nft flush ruleset");
        scene.told("hook (IPv4): gone");
        scene.wait_ready("503");
        assert!(scene.get("/readyz").1.contains("hook: IPv4: gone"), "{:?}", scene.get("/readyz"));
        assert_eq!(scene.metric("bannerwall_hook_up{family=\"ipv4\"} "), Some(0));
        assert_eq!(scene.metric("bannerwall_hook_repairs_total "), Some(0));
        assert!(!scene.blocks(), "nobody has put it back");
        scene.shell(&format!("{PROGRAM} hook up --iptables nft --chains input,output"));
        scene.wait_ready("200");
        scene.told_as_event("up");
        assert!(scene.blocks());
        scene.stop();
    });
}

#[test]
fn a_guard_without_a_hook_of_its_own_watches_the_one_that_leads_to_it() {
    as_root(|| {
        for variant in ["nft", "legacy"] {
            let up = format!("{PROGRAM} hook up --iptables {variant} --chains input,output");
            let scene = Scene::after(&format!("--iptables {variant}"), |namespace| {
                namespace.run(&up);
            });
            scene.wait_ready("200");
            scene.shell(&format!("{PROGRAM} hook down --iptables {variant}"));
            scene.wait_ready("503");
            scene.told("hook (IPv6): gone");
            scene.shell(&up);
            scene.wait_ready("200");
            scene.stop();
        }
        let scene = Scene::start("");
        scene.wait_ready("503");
        assert!(
            scene.get("/readyz").1.contains("hook: no hook leads packets here"),
            "{:?}",
            scene.get("/readyz")
        );
        assert_eq!(scene.metric("bannerwall_hook_up{family=\"ipv4\"} "), Some(0));
        // A hook made by hand: what comes tells of it.
        scene.shell("iptables-nft -w -t mangle -A INPUT -p tcp -j NFQUEUE --queue-num 0 --queue-bypass");
        scene.wait_ready("200");
        assert_eq!(scene.metric("bannerwall_hook_up{family=\"ipv4\"} "), None);
        scene.stop();
    });
}

#[test]
fn a_program_that_keeps_taking_the_hook_away_is_not_fought() {
    as_root(|| {
        let scene = Scene::start("--hook input,output --iptables nft");
        let script = "for i in $(seq 60); do nft flush ruleset; sleep 0.2; done";
        let _foe = Running::start({
            let mut command = scene.namespace.command("sh");
            command.args(["-c", script]);
            command
        });
        scene.told("another program keeps changing the hook; the guard restores it in");
        let repairs = scene.metric("bannerwall_hook_repairs_total ").expect("it is shown");
        assert!(repairs <= 8, "{repairs}");
        scene.stop();
    });
}

/// dbus and firewalld in a network of their own, with their own settings.
struct Firewalld {
    _bus: Running,
    _daemon: Running,
    folder: TempDir,
}

impl Firewalld {
    fn start(namespace: &Namespace, backend: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let bus = format!(
            "<busconfig><type>system</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/>\
             <allow eavesdrop=\"true\"/><allow own=\"*\"/><allow user=\"*\"/></policy></busconfig>",
            path("bus")
        );
        std::fs::write(path("bus.conf"), bus).expect("the folder is ours");
        std::fs::create_dir(path("etc")).expect("the folder is ours");
        let settings = std::fs::read_to_string("/etc/firewalld/firewalld.conf").expect("firewalld");
        let settings: String = settings
            .lines()
            .map(|line| if line.starts_with("FirewallBackend=") { "" } else { line })
            .map(|line| format!("{line}\n"))
            .collect();
        let settings = format!("{settings}FirewallBackend={backend}\n");
        std::fs::write(path("etc/firewalld.conf"), settings).expect("the folder is ours");
        let mut command = namespace.command("dbus-daemon");
        command.args(["--nofork", "--nopidfile", "--config-file", &path("bus.conf")]);
        let bus = Running::start(command);
        eventually("dbus", || folder.path().join("bus").exists().then_some(()));
        let mut command = namespace.command("firewalld");
        command.env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", path("bus")));
        command.args(["--nofork", "--nopid", "--system-config", &path("etc"), "--log-file", &path("log")]);
        let daemon = Running::start(command);
        let firewalld = Self { _bus: bus, _daemon: daemon, folder };
        eventually("firewalld", || {
            let state = firewalld.client(namespace, "--state").output().expect("firewall-cmd");
            state.status.success().then_some(())
        });
        firewalld
    }

    fn client(&self, namespace: &Namespace, words: &str) -> Command {
        let mut command = namespace.command("firewall-cmd");
        let bus = self.folder.path().join("bus");
        command.env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", bus.display()));
        command.args(words.split_whitespace());
        command
    }
}

#[test]
fn a_reload_of_firewalld_leaves_the_guard_in_charge() {
    as_root(|| {
        for backend in ["nftables", "iptables"] {
            let mut firewalld = None;
            let scene = Scene::after("--hook input,output", |namespace| {
                firewalld = Some(Firewalld::start(namespace, backend));
            });
            let firewalld = firewalld.expect("it was started");
            assert!(scene.blocks(), "{backend}");
            for round in 1..=2 {
                let before = scene.metric("bannerwall_hook_repairs_total ");
                let reload = firewalld.client(&scene.namespace, "--reload").output().expect("firewall-cmd");
                assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
                eventually(&format!("{backend}: a repair in round {round}"), || {
                    (scene.metric("bannerwall_hook_repairs_total ") > before).then_some(())
                });
                // One reload may flush more than once, and so ask for more than one repair.
                scene.waits_to_block(&format!("a reload of firewalld ({backend})"));
                scene.wait_ready("200");
            }
            scene.told("hook (IPv4): gone");
            scene.stop();
        }
    });
}

#[test]
fn ufw_leaves_the_hook_alone() {
    as_root(|| {
        let scene = Scene::start("--hook input,output");
        // Its settings are copied: enabling it would be remembered for the machine's next start.
        let own = scene.file("ufw").display().to_string();
        let script = format!(
            "cp -r /etc/ufw {own}; mount --bind {own} /etc/ufw; \
             ufw allow 80/tcp; ufw --force enable; ufw reload; ufw --force disable; ufw --force reset"
        );
        let output = scene.namespace.command("unshare").args(["--mount", "sh", "-ec", &script]).output();
        let output = output.expect("unshare starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(scene.blocks());
        assert_eq!(scene.metric("bannerwall_hook_repairs_total "), Some(0));
        scene.stop();
    });
}
