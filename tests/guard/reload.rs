//! New rules for a running guard, and log rotation, which has nothing to do with them.

use std::path::{Path, PathBuf};
use std::process::Output;

use bannerwall_test_support::{Namespace, Nginx, Running, Signal, as_root, eventually, forbids, json_lines};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// A guard of a network, with a folder of rules and a file of events.
struct Guard<'a> {
    network: &'a Namespace,
    folder: TempDir,
    process: Running,
}

impl<'a> Guard<'a> {
    fn start(network: &'a Namespace, queue: &str, flags: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("rules")).expect("the folder is ours");
        std::fs::write(folder.path().join("rules/a.toml"), forbids("first")).expect("the folder is ours");
        let mut command = network.command(PROGRAM);
        command.args(["guard", "--no-local", "--queue", queue, "--rules"]).arg(folder.path().join("rules"));
        command.arg("--events").arg(folder.path().join("events.json")).args(flags.split_whitespace());
        let process = Running::start(command);
        process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        Self { network, folder, process }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn rule_file(&self, text: &str) {
        std::fs::write(self.path("rules/a.toml"), text).expect("the folder is ours");
    }

    fn reload(&self, flags: &str) -> Output {
        self.network.output(&format!("{PROGRAM} reload {flags}"))
    }

    fn stop(mut self) {
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.wait_exit().code(), Some(0), "{}", self.process.stderr());
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Whether a client that calls itself `agent` gets the page.
fn is_served(network: &Namespace, agent: &str) -> bool {
    network.output(&format!("curl -sS -o /dev/null -m 20 -A {agent} http://127.0.0.1:8080/")).status.success()
}

#[test]
fn reload_tells_what_became_of_it_and_bad_rules_change_nothing() {
    as_root(|| {
        let network = Namespace::new();
        let _nginx = Nginx::start(&network, 8080, "");
        let guard = Guard::start(&network, "0", "--hook output --ports 8080 --enforce");
        assert!(!is_served(&network, "first") && is_served(&network, "second"));

        guard.rule_file(&(forbids("first") + &forbids("second")));
        let good = guard.reload("");
        assert_eq!(good.status.code(), Some(0), "{good:?}");
        assert_eq!(text(&good.stdout), "reloaded: 2 rules in force\n");
        assert!(!is_served(&network, "second"), "the rules that `reload` reported judge the next connection");
        for _ in 0..4 {
            guard.rule_file(&forbids("first"));
            guard.reload("");
            assert!(is_served(&network, "second"), "the new rules allow it");
            guard.rule_file(&(forbids("first") + &forbids("second")));
            guard.reload("");
            assert!(!is_served(&network, "second"), "the new rules forbid it");
        }

        for (bad, said) in [
            (forbids("first").replace("reject", "rejekt"), "did you mean `reject`?"),
            ("[[rule]]\nx = {".repeat(20_000), "nested more than"),
            (String::new(), "no rule is in force"),
        ] {
            guard.rule_file(&bad);
            let refused = guard.reload("");
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            assert!(text(&refused.stderr).contains(said), "{}", text(&refused.stderr));
        }
        std::fs::remove_file(guard.path("rules/a.toml")).expect("it is there");
        let emptied = guard.reload("");
        assert_eq!(emptied.status.code(), Some(2));
        assert!(text(&emptied.stderr).contains("the folder has no *.toml file"), "{emptied:?}");
        guard.process.signal(Signal::HUP);
        guard
            .process
            .wait_stderr("five refusals", |text| (text.matches("not reloaded").count() == 5).then_some(()));
        assert!(
            !is_served(&network, "first") && !is_served(&network, "second"),
            "the old rules are in force"
        );
        guard.stop();
        let gone = network.output(&format!("{PROGRAM} reload"));
        assert_eq!(gone.status.code(), Some(2));
        // A guard of another user's that was killed may have left a socket of this name.
        let said = text(&gone.stderr);
        assert!(
            said.contains("no guard listens at /run/bannerwall/") && said.contains("/guard-0-"),
            "{gone:?}"
        );
    });
}

#[test]
fn log_rotation_leaves_half_edited_rules_alone() {
    as_root(|| {
        let network = Namespace::new();
        let guard = Guard::start(&network, "0", "");
        guard.rule_file("[[rule]]\nhalf edited");
        std::fs::rename(guard.path("events.json"), guard.path("events.json.1")).expect("it is there");
        guard.process.signal(Signal::USR1);
        let events = guard.path("events.json");
        eventually("the new file", || events.exists().then_some(()));
        // The first signal's own event may still have gone to the old file.
        guard.process.signal(Signal::USR1);
        eventually("a stats event in the new file", || {
            let written = std::fs::read(&events).ok()?;
            let lines = written.ends_with(b"\n").then(|| json_lines(&written))?;
            lines.iter().any(|event| event["event_type"] == "stats").then_some(())
        });
        assert!(!guard.process.stderr().contains("reloaded"), "{}", guard.process.stderr());

        guard.rule_file(&forbids("other"));
        guard.process.signal(Signal::USR2);
        guard
            .process
            .wait_stderr("a reload", |text| text.contains("reloaded: 1 rule in force").then_some(()));
        guard.stop();
    });
}

#[test]
fn two_guards_are_told_apart_by_their_queues_and_one_may_have_its_own_socket() {
    as_root(|| {
        let network = Namespace::new();
        let (first, second) = (Guard::start(&network, "0:1", ""), Guard::start(&network, "4", ""));
        second.rule_file(&(forbids("a") + &forbids("b")));
        assert_eq!(text(&first.reload("").stdout), "reloaded: 1 rule in force\n");
        assert_eq!(text(&first.reload("--queue 4").stdout), "reloaded: 2 rules in force\n");
        let path = first.path("own.sock");
        let own = Guard::start(&network, "6", &format!("--control {}", path.display()));
        assert_eq!(own.reload(&format!("--control {}", path.display())).status.code(), Some(0));
        let mut taken = network.command(PROGRAM);
        taken.args(["guard", "--queue", "7", "--control"]).arg(&path).arg("--rules").arg(first.path("rules"));
        let mut taken = Running::start(taken);
        assert_eq!(taken.wait_exit().code(), Some(2));
        assert!(taken.stderr().contains("another guard listens on it"), "{}", taken.stderr());
        own.stop();
        assert!(!Path::new(&path).exists());
        first.stop();
        second.stop();
    });
}
