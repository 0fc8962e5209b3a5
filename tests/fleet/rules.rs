//! Rules from one place: signed packs in a database, guards that take them and refuse what they must not
//! take.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bannerwall_test_support::{
    Namespace, Nginx, Postgres, Running, Signal, as_root, eventually, forbids, json_lines, json_lines_so_far,
    psql,
};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// The same database by another role.
fn by(url: &str, role: &str) -> String {
    url.replace("user=postgres", &format!("user={role}"))
}

/// A fleet with sensors `east` and `west`, and a folder with keys and rules of those who publish.
struct Site {
    url: String,
    folder: TempDir,
}

impl Site {
    fn new(server: &Postgres) -> Self {
        let site = Self { url: server.database(), folder: TempDir::new().expect("a folder") };
        let words =
            ["init", "--sensor", "east", "--sensor", "west", "--reader", "page", "--publisher", "ann"];
        site.told(&[&words[..], &["--database", &site.url]].concat());
        for name in ["ours", "theirs"] {
            let public = site.told(&["rules", "keygen", &site.word(&format!("{name}.key"))]);
            std::fs::write(site.path(&format!("{name}.pub")), public).expect("the folder is ours");
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn word(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(PROGRAM).arg("fleet").args(words).current_dir("/").output().expect("it runs")
    }

    /// What it prints, where that is well.
    fn told(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What it says where it refuses.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{words:?}");
        text(&output.stderr)
    }

    /// `fleet rules` by the publisher.
    fn rules(&self, words: &[&str]) -> String {
        self.told(&[&["rules"], words, &["--database", &by(&self.url, "ann")]].concat())
    }

    /// Publishes rules; the version's number.
    fn publish(&self, rules: &str, words: &[&str]) -> i64 {
        std::fs::write(self.path("rules.toml"), rules).expect("the folder is ours");
        let (file, key) = (self.word("rules.toml"), self.word("ours.key"));
        self.rules(&[&["publish", &file, "--key", &key], words].concat()).trim().parse().expect("a number")
    }

    /// What is known of a sensor.
    fn status(&self, sensor: &str) -> serde_json::Value {
        let all = self.told(&["rules", "status", "--format", "json", "--database", &by(&self.url, "page")]);
        let mut all = json_lines(all.as_bytes()).into_iter();
        all.find(|row| row["sensor"] == sensor).expect("it is listed")
    }

    fn wait_refused(&self, sensor: &str, version: i64, reason: &str) {
        eventually(&format!("version {version} to be refused: {reason}"), || {
            let status = self.status(sensor);
            let said = status["reason"].as_str().unwrap_or_default();
            (status["refused"] == version && said.contains(reason)).then_some(())
        });
    }

    fn command(&self, network: &Namespace, sensor: &str, words: &[&str]) -> Command {
        self.command_with(network, sensor, &self.word(&format!("{sensor}.pack")), words)
    }

    fn command_with(&self, network: &Namespace, sensor: &str, state: &str, words: &[&str]) -> Command {
        let mut command = network.command(PROGRAM);
        command
            .args(["guard", "--rules-from", &by(&self.url, sensor), "--rules-key"])
            .arg(self.path("ours.pub"));
        command.args(["--rules-state", state]);
        command.args(["--rules-poll", "200ms", "--hook", "output", "--ports", "8080", "--enforce"]);
        command.args(["--metrics", "127.0.0.1:9464", "--format", "json"]).args(words);
        command
    }

    fn guard(&self, network: &Namespace, sensor: &str) -> Running {
        let process = Running::start(self.command(network, sensor, &[]));
        process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        process
    }
}

/// The processes of a guard that start connections to its databases.
fn starters(guard: &Running) -> usize {
    let list = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", guard.id()));
    let is_one = |process: &&str| {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
        name.is_ok_and(|name| name.trim_end() == "bannerwall-db")
    };
    list.expect("it runs").split_whitespace().filter(is_one).count()
}

fn stop(mut guard: Running) {
    guard.signal(Signal::TERM);
    assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
}

/// Whether a client that calls itself `agent` gets the page.
fn is_served(network: &Namespace, agent: &str) -> bool {
    network.output(&format!("curl -sS -o /dev/null -m 20 -A {agent} http://127.0.0.1:8080/")).status.success()
}

fn eventually_blocked(network: &Namespace, agent: &str) {
    eventually(&format!("{agent} to be blocked"), || (!is_served(network, agent)).then_some(()));
}

fn eventually_served(network: &Namespace, agent: &str) {
    eventually(&format!("{agent} to be served"), || is_served(network, agent).then_some(()));
}

/// A counter of the guard's.
fn metric(network: &Namespace, name: &str) -> u64 {
    let metrics = network.run("curl -sS http://127.0.0.1:9464/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {metrics}"))
}

/// Waits until the guard has asked for newer versions: from the beginning of a question to its end, from now
/// on.
fn wait_asked(network: &Namespace) {
    let asked = || metric(network, "bannerwall_rules_polls_total");
    // One may be under way.
    let enough = asked() + 2;
    eventually("the guard to ask", || {
        std::thread::sleep(Duration::from_millis(100));
        (asked() >= enough).then_some(())
    });
}

#[test]
fn a_guard_takes_what_is_published_and_refuses_what_it_must_not_take() {
    as_root(|| {
        let Some(server) = Postgres::start() else { return };
        let site = Site::new(&server);
        let network = Namespace::new();
        let _nginx = Nginx::start(&network, 8080, "");

        // Nothing is published, and nothing kept.
        let output = site.command(&network, "east", &[]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains("no version of the rules is published"),
            "{}",
            text(&output.stderr)
        );

        assert_eq!(site.publish(&forbids("first"), &["--note", "the first"]), 1);
        let checked = site.command(&network, "east", &["--check"]).output().expect("it runs");
        assert!(checked.status.success() && !site.path("east.pack").exists(), "{}", text(&checked.stderr));
        assert!(site.status("east")["version"].is_null(), "a trial is none");
        let guard = site.guard(&network, "east");
        assert!(!is_served(&network, "first") && is_served(&network, "second"));
        assert_eq!(site.publish(&(forbids("first") + &forbids("second")), &[]), 2);
        eventually_blocked(&network, "second");
        eventually("it to be told", || (site.status("east")["version"] == 2).then_some(()));
        // What the alert asks for; a part of a second is one.
        assert_eq!(metric(&network, "bannerwall_rules_poll_interval_seconds"), 1);
        assert!(metric(&network, "bannerwall_rules_last_poll_timestamp_seconds") > 1_700_000_000);

        // Somebody who can write the table, and has no key that is trusted.
        let ours = by(&site.url, "ann");
        let (file, theirs) = (site.word("rules.toml"), site.word("theirs.key"));
        std::fs::write(&file, forbids("curl")).expect("the folder is ours");
        site.told(&["rules", "publish", &file, "--key", &theirs, "--database", &ours]);
        site.wait_refused("east", 3, "with another key");
        // A pack that was signed, offered once more as a newer one.
        psql(
            &site.url,
            "INSERT INTO fleet_rules (serial, pack, signature, percent, rules, note)
                         SELECT 4, pack, signature, 100, 1, '' FROM fleet_rules WHERE serial = 1",
        );
        site.wait_refused("east", 4, "it was signed as version 1, and is published as version 4");
        // One octet of it is another one.
        psql(&site.url, "INSERT INTO fleet_rules (serial, pack, signature, percent, rules, note)
                         SELECT 5, set_byte(pack, 30, 32), signature, 100, 1, '' FROM fleet_rules WHERE serial = 2");
        site.wait_refused("east", 5, "does not match these rules");
        assert!(is_served(&network, "third") && !is_served(&network, "second"), "version 2 is in force");

        // Signed by us, and not to be loaded: as rules of a newer program are.
        let bad = r#"{"bannerwall_rules":1,"version":6,"note":"","files":[{"path":"0/a.toml","text":"[[rule]]\nidd = 1\n","kind":"rules"}]}"#;
        enter_signed(&site, 6, bad);
        site.wait_refused("east", 6, "0/a.toml:2:1");
        let outside = bad.replace("0/a.toml", "/etc/passwd").replace("\"version\":6", "\"version\":7");
        enter_signed(&site, 7, &outside);
        site.wait_refused("east", 7, "leads out of it");
        assert!(is_served(&network, "third") && !is_served(&network, "second"), "version 2 is in force");
        let said = guard.stderr();
        assert!(said.contains("version 7 is refused; version 2 stays in force"), "{said}");

        // The way back is a newer version with the older rules.
        let key = site.word("ours.key");
        assert_eq!(site.rules(&["rollback", "--to", "1", "--key", &key]).trim(), "8");
        eventually_served(&network, "second");
        assert!(!is_served(&network, "first"));
        eventually("refusals to be over", || site.status("east")["refused"].is_null().then_some(()));
        let words = ["rules", "rollback", "--to", "3", "--key", &key, "--database", &ours];
        assert!(site.refused(&words).contains("with another key"), "nobody has it sign what was not signed");
        assert!(site.rules(&["list"]).contains("back to version 1"));
        assert_eq!(site.rules(&["show", "8", "--file", "0/rules.toml"]), forbids("first"));
        let metrics = network.run("curl -sS http://127.0.0.1:9464/metrics");
        for series in ["bannerwall_rules_version 8\n", "bannerwall_rules_refused_total 5\n"] {
            assert!(metrics.contains(series), "{metrics}");
        }
        guard.signal(Signal::USR1);
        let stats = guard.wait_stdout("a stats event", |text| {
            let events = json_lines_so_far(text.as_bytes());
            events.into_iter().find(|event| event["event_type"] == "stats")
        });
        assert_eq!(stats["bannerwall"]["stats"]["rules"], serde_json::json!({"version": 8, "refused": 5}));
        stop(guard);
    });
}

#[test]
fn one_process_starts_the_connections_of_the_inventory_and_of_published_rules() {
    as_root(|| {
        let Some(server) = Postgres::start() else { return };
        let site = Site::new(&server);
        let network = Namespace::new();
        let _nginx = Nginx::start(&network, 8080, "");
        assert_eq!(site.publish(&forbids("first"), &[]), 1);
        let database = by(&site.url, "east");
        let words = ["--inventory", &database, "--sensor", "east"];
        let guard = Running::start(site.command(&network, "east", &words));
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        assert_eq!(starters(&guard), 1);
        assert!(!is_served(&network, "first") && is_served(&network, "second"));
        let entered = "SELECT count(*) FROM fleet_inbox";
        eventually("a batch of the inventory", || (psql(&site.url, entered) != "0").then_some(()));
        stop(guard);
    });
}

#[test]
fn a_guard_starts_without_the_database_and_takes_nothing_older() {
    as_root(|| {
        let Some(mut server) = Postgres::start() else { return };
        let site = Site::new(&server);
        let network = Namespace::new();
        let _nginx = Nginx::start(&network, 8080, "");
        site.publish(&forbids("first"), &[]);
        let guard = site.guard(&network, "east");
        site.publish(&forbids("second"), &[]);
        eventually_blocked(&network, "second");
        // It is kept before it is told.
        eventually("it to be told", || (site.status("east")["version"] == 2).then_some(()));
        stop(guard);
        server.stop();

        let guard = site.guard(&network, "east");
        guard.wait_stderr("the server to be away", |text| {
            text.contains("and the guard polls again").then_some(())
        });
        assert!(!is_served(&network, "second") && is_served(&network, "first"), "{}", guard.stderr());
        // As it can be there again, put back to what it was long ago, and gone on with.
        server.go_on();
        guard.wait_stderr("the server to be there", |text| {
            text.contains("the database is back").then_some(())
        });
        psql(&site.url, "DELETE FROM fleet_rules WHERE serial = 2");
        assert_eq!(site.publish(&forbids("third"), &[]), 2);
        assert_eq!(site.publish(&forbids("fourth"), &["--percent", "0"]), 3);
        let before = psql(&site.url, "SELECT count(*) FROM fleet_rules WHERE serial <= 2");
        wait_asked(&network);
        assert!(before == "2" && is_served(&network, "third") && !is_served(&network, "second"));
        site.rules(&["rollout", "3", "--percent", "100"]);
        eventually_blocked(&network, "fourth");
        assert!(is_served(&network, "third"));
        eventually("it to be told", || (site.status("east")["version"] == 3).then_some(()));
        // Asking for a reload is no way around.
        assert_eq!(text(&network.output(&format!("{PROGRAM} reload")).stdout), "reloaded: 1 rule in force\n");
        assert!(!is_served(&network, "fourth"));
        stop(guard);

        // As a user without rights over the files of others, who comes to no server, what was had before is
        // kept all the same.
        let state = site.path("state");
        std::fs::create_dir(&state).expect("the folder is ours");
        for (folder, mode) in [(state.as_path(), 0o777), (site.folder.path(), 0o755)] {
            std::fs::set_permissions(folder, Permissions::from_mode(mode)).expect("it is ours");
        }
        let own = state.join("rules.pack");
        let own = own.to_str().expect("a text");
        let mut guard = Running::start(site.command_with(&network, "east", own, &["--user", "nobody"]));
        eventually("it to be kept", || std::fs::metadata(own).ok().filter(|file| file.uid() != 0));
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());

        // What does not load any more is none to go back behind, whatever the server has.
        let number = site.path("east.pack.version");
        assert_eq!(std::fs::read_to_string(&number).expect("it is kept"), "3\n");
        let good = std::fs::read(site.path("east.pack")).expect("it is kept");
        std::fs::write(site.path("east.pack"), b"bannerwall rules 1\ndamaged").expect("the folder is ours");
        psql(&site.url, "UPDATE fleet_rules SET percent = 0 WHERE serial = 3");
        let output = site.command(&network, "east", &[]).output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("version 3 of the rules was in force here"), "{said}");
        site.rules(&["rollout", "3", "--percent", "100"]);
        let guard = site.guard(&network, "east");
        assert!(!is_served(&network, "fourth") && is_served(&network, "third"), "{}", guard.stderr());
        eventually("it to be kept", || (std::fs::read(site.path("east.pack")).ok()? == good).then_some(()));
        stop(guard);
        std::fs::write(&number, "4\n").expect("the folder is ours");
        let said = text(&site.command(&network, "east", &["--check"]).output().expect("it runs").stderr);
        assert!(said.contains("it is version 3, and version 4 was in force"), "{said}");
        std::fs::remove_file(&number).expect("it is there");

        // What is kept is trusted no more than the server.
        server.stop();
        let kept = std::fs::read(site.path("east.pack")).expect("it is kept");
        let changed = text(&kept).replace("fourth", "fifth_");
        std::fs::write(site.path("east.pack"), changed).expect("the folder is ours");
        let output = site.command(&network, "east", &[]).output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("ignored: the signature does not match these rules"), "{said}");
        assert!(said.contains("holds no rules"), "{said}");
    });
}

#[test]
fn a_version_is_rolled_out_to_some_first_and_each_sees_its_own_row() {
    as_root(|| {
        let Some(server) = Postgres::start() else { return };
        let site = Site::new(&server);
        let networks = [Namespace::new(), Namespace::new()];
        let _nginx = networks.each_ref().map(|network| Nginx::start(network, 8080, ""));
        site.publish(&forbids("first"), &[]);
        let sensors = ["east", "west"];
        let guards = [0, 1].map(|at| site.guard(&networks[at], sensors[at]));
        assert_eq!(site.publish(&forbids("second"), &["--percent", "0"]), 2);
        let meant = |sensor: &str| site.status(sensor)["meant"].as_i64().expect("a version");
        assert_eq!(sensors.map(meant), [1, 1]);
        let share = (1..=100).find(|percent| {
            site.rules(&["rollout", "2", "--percent", &percent.to_string()]);
            sensors.map(meant) != [1, 1]
        });
        let (early, late) = if meant("east") == 2 { (0, 1) } else { (1, 0) };
        assert_eq!(meant(sensors[late]), 1, "at {share:?} %");
        eventually_blocked(&networks[early], "second");
        wait_asked(&networks[late]);
        assert!(is_served(&networks[late], "second") && !is_served(&networks[late], "first"));
        // With fewer nobody gives up what it has; with all it is everybody's.
        site.rules(&["rollout", "2", "--percent", "0"]);
        wait_asked(&networks[early]);
        assert!(!is_served(&networks[early], "second"));
        site.rules(&["rollout", "2", "--percent", "100"]);
        eventually_blocked(&networks[late], "second");
        assert!(!is_served(&networks[early], "second"));
        for sensor in sensors {
            eventually("it to be told", || (site.status(sensor)["version"] == 2).then_some(()));
        }
        guards.into_iter().for_each(stop);

        let shown = site.told(&["rules", "status", "--database", &by(&site.url, "page")]);
        assert!(
            shown.contains("east  version 2 since") && shown.contains("west  version 2 since"),
            "{shown}"
        );
        // What each role may not do.
        let east = by(&site.url, "east");
        assert_eq!(psql(&east, "SELECT sensor, serial FROM fleet_rules_taken"), "east|2");
        assert_eq!(psql(&east, "UPDATE fleet_rules_taken SET serial = 9 RETURNING sensor"), "east");
        for (role, query) in [
            ("east", "INSERT INTO bannerwall.fleet_rules_taken (sensor, serial) VALUES ('west', 1)"),
            ("east", "DELETE FROM bannerwall.fleet_rules_taken"),
            ("east", "UPDATE bannerwall.fleet_rules SET percent = 1"),
            ("east", "INSERT INTO bannerwall.fleet_rules (serial) VALUES (99)"),
            ("page", "INSERT INTO bannerwall.fleet_rules (serial) VALUES (99)"),
            ("ann", "UPDATE bannerwall.fleet_rules SET pack = ''"),
            ("ann", "DELETE FROM bannerwall.fleet_rules"),
            ("ann", "UPDATE bannerwall.fleet_rules_taken SET serial = 1"),
            ("ann", "SELECT * FROM bannerwall.services"),
            ("ann", "SELECT * FROM bannerwall.fleet_scans"),
        ] {
            let words = ["-XAtqd", &by(&site.url, role), "-c", query];
            let output = Command::new("psql").args(words).output().expect("psql is installed");
            let said = text(&output.stderr);
            assert!(said.contains("permission denied"), "{role}: {query}: {said}");
        }
        psql(&site.url, "GRANT INSERT ON fleet_rules_taken TO east");
        let words =
            ["-XAtqd", &east, "-c", "INSERT INTO bannerwall.fleet_rules_taken (sensor) VALUES ('north')"];
        let output = Command::new("psql").args(words).output().expect("psql is installed");
        assert!(text(&output.stderr).contains("row-level security"), "{}", text(&output.stderr));
    });
}

#[test]
fn a_publisher_without_the_key_neither_blocks_nor_hides_a_version() {
    as_root(|| {
        let Some(server) = Postgres::start() else { return };
        let site = Site::new(&server);
        site.told(&["init", "--publisher", "eve", "--database", &site.url]);
        let eve = by(&site.url, "eve");
        let enter = |serials: &str| {
            let query = format!(
                "INSERT INTO bannerwall.fleet_rules (serial, pack, signature, percent, rules, note)
                 SELECT i, 'junk', 'junk', 100, 1, '' FROM {serials} i"
            );
            Command::new("psql").args(["-XAtqd", &eve, "-c", &query]).output().expect("psql is installed")
        };
        assert_eq!(site.publish(&forbids("first"), &[]), 1);
        let said = enter("generate_series(9223372036854775807, 9223372036854775807)");
        assert!(
            text(&said.stderr).contains("more than 100000000 above the newest"),
            "{}",
            text(&said.stderr)
        );
        assert!(enter("generate_series(1, 40)").status.success());
        assert_eq!(
            psql(
                &eve,
                "WITH u AS (UPDATE fleet_rules SET percent = 0 WHERE who = 'ann' RETURNING 1) SELECT count(*) FROM u"
            ),
            "0"
        );
        assert_eq!(site.rules(&["show", "1", "--file", "0/rules.toml"]), forbids("first"));
        // Among 40 newer ones of another publisher.
        let network = Namespace::new();
        let checked = site.command(&network, "east", &["--check"]).output().expect("it runs");
        assert!(checked.status.success(), "{}", text(&checked.stderr));
        // Signed elsewhere with a number that another one has taken, and by the next number.
        let (file, key) = (site.word("rules.toml"), site.word("ours.key"));
        let (pack, signature) = (site.word("9.pack"), site.word("9.minisig"));
        site.told(&["rules", "pack", &file, "--number", "9", "-o", &pack]);
        std::fs::write(&signature, signed(&site, &std::fs::read(&pack).expect("it was written")))
            .expect("ours");
        let public = site.word("ours.pub");
        let nine =
            site.rules(&["publish", "--pack", &pack, "--signature", &signature, "--rules-key", &public]);
        assert_eq!(nine, "9\n");
        assert_eq!(site.rules(&["publish", &file, "--key", &key]), "41\n");
    });
}

#[test]
fn of_those_who_publish_at_once_each_has_a_number_of_its_own_or_is_refused() {
    let Some(server) = Postgres::start() else { return };
    let site = Site::new(&server);
    let (file, key, database) = (site.word("rules.toml"), site.word("ours.key"), by(&site.url, "ann"));
    std::fs::write(&file, forbids("first")).expect("the folder is ours");
    let publish = || {
        let mut command = Command::new(PROGRAM);
        command.args(["fleet", "rules", "publish", &file, "--key", &key, "--database", &database]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    let all: Vec<_> = (0..6).map(|_| publish()).collect();
    let mut numbers = Vec::new();
    for child in all {
        let output = child.wait_with_output().expect("it ends");
        let said = text(&output.stderr);
        match output.status.code() {
            Some(0) => numbers.push(text(&output.stdout).trim().to_owned()),
            code => assert!(
                code == Some(2) && said.contains("is not newer than the published ones"),
                "{code:?}: {said}"
            ),
        }
    }
    numbers.sort();
    assert!(!numbers.is_empty());
    assert_eq!(psql(&site.url, "SELECT serial FROM fleet_rules ORDER BY serial"), numbers.join("\n"));

    // A role is a sensor's or a publisher's.
    for (flag, name, told) in [
        ("--publisher", "east", "--publisher east: this role is a sensor"),
        ("--worker", "west", "--worker west: this role is a sensor"),
        ("--sensor", "ann", "member of bannerwall_test0_publisher"),
    ] {
        let said = site.refused(&["init", flag, name, "--database", &site.url]);
        assert!(said.contains(told), "{flag} {name}: {said}");
    }
}

#[test]
fn what_is_published_is_checked_first_and_may_be_signed_elsewhere() {
    let Some(server) = Postgres::start() else { return };
    let site = Site::new(&server);
    let database = by(&site.url, "ann");
    let (file, key) = (site.word("rules.toml"), site.word("ours.key"));
    let list = "[lists]\nbad = \"bad.txt\"\n\n[[rule]]\nid = \"listed\"\nprotocol = \"ssh\"\nmatch.software = \"@bad\"\naction = \"alert\"\n";
    std::fs::write(&file, list.replace("alert", "alrt")).expect("the folder is ours");
    std::fs::write(site.path("bad.txt"), "OpenSSH_7.4\n").expect("the folder is ours");
    let said = site.refused(&["rules", "publish", &file, "--key", &key, "--database", &database]);
    assert!(said.contains("rules.toml:8:") && said.contains("did you mean `alert`?"), "{said}");
    assert_eq!(psql(&site.url, "SELECT count(*) FROM fleet_rules"), "0");

    // A list goes with the rules that name it.
    assert_eq!(site.publish(list, &["--note", "one\ntwo"]), 1);
    let shown = site.rules(&["show", "1"]);
    assert!(shown.contains("12  0/bad.txt") && shown.contains("0/rules.toml"), "{shown}");
    let rows = json_lines(site.rules(&["list", "--format", "json"]).as_bytes());
    assert_eq!((&rows[0]["note"], &rows[0]["who"]), (&"one\ntwo".into(), &"ann".into()));
    // The same texts and number are the same octets.
    let pack = site.word("1.pack");
    site.told(&["rules", "pack", &file, "--number", "1", "--note", "one\ntwo", "-o", &pack]);
    let octets = std::fs::read(&pack).expect("it was written");
    assert_eq!(psql(&site.url, "SELECT encode(sha256(pack), 'hex') FROM fleet_rules"), {
        use sha2::Digest as _;
        sha2::Sha256::digest(&octets).iter().map(|octet| format!("{octet:02x}")).collect::<String>()
    });

    // Signed by minisign itself, where the secret key is.
    let (pack, signature, public) = (site.word("5.pack"), site.word("5.pack.minisig"), site.word("ours.pub"));
    site.told(&["rules", "pack", &file, "--number", "5", "-o", &pack]);
    std::fs::write(&signature, signed(&site, &std::fs::read(&pack).expect("it was written"))).expect("ours");
    let words = ["rules", "publish", "--pack", &pack, "--signature", &signature, "--database", &database];
    let theirs = site.word("theirs.pub");
    let said = site.refused(&[&words[..], &["--rules-key", &theirs]].concat());
    assert!(said.contains("with another key"), "{said}");
    assert_eq!(site.told(&[&words[..], &["--rules-key", &public]].concat()), "5\n");
    let said = site.refused(&[&words[..], &["--rules-key", &public]].concat());
    assert!(said.contains("version 5 of the rules is not newer"), "{said}");
    assert_eq!(site.publish(list, &[]), 6);

    for (words, said) in [
        (&["rules", "publish", "--key", &key, "--database", &database][..], "no rules: pass files"),
        (&["rules", "publish", &file, "--database", &database], "--key"),
        (&["rules", "publish", &file, "--key", &public, "--database", &database], "not a secret key"),
        (&["rules", "publish", &file, "--key", &key, "--percent", "101", "--database", &database], "101"),
        (&["rules", "publish", "--pack", &file, "--database", &database], "--signature"),
        (&["rules", "rollout", "9", "--percent", "1", "--database", &database], "there is no version 9"),
        (&["rules", "show", "9", "--database", &database], "there is no version 9"),
        (&["rules", "show", "6", "--file", "x", "--database", &database], "has no file"),
        (
            &["rules", "rollback", "--key", &key, "--to", "9", "--database", &database],
            "there is no version 9",
        ),
        (&["rules", "keygen", &key], "File exists"),
        (&["rules", "list", "--database", &by(&site.url, "east")], "permission denied"),
    ] {
        let told = site.refused(words);
        assert!(told.contains(said), "{words:?}: {told}");
    }
    let guard = |words: &[&str]| {
        let output = Command::new(PROGRAM).arg("guard").args(words).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let from = ["--rules-from", &database, "--rules-key"];
    let wrong = ["--rules-from", "postgresql://ann:s3cret@db:port/net", "--rules-key", &public];
    assert!(guard(&wrong).contains("'--rules-from': no URL") && !guard(&wrong).contains("s3cret"));
    assert!(guard(&["--rules-from", &database]).contains("--rules-key"));
    assert!(guard(&[&from[..], &["nonsense"]].concat()).contains("neither a public key"));
    assert!(guard(&[&from[..], &[&public, "--rules", &file]].concat()).contains("cannot be used with"));
    let file =
        guard(&["--rules-from", "/a/file", "--rules-key", &public, "--rules-state", &site.word("kept")]);
    assert!(file.contains("a PostgreSQL server"), "{file}");
}

/// A signature by our key, as minisign writes it.
fn signed(site: &Site, octets: &[u8]) -> String {
    let key = std::fs::read_to_string(site.path("ours.key")).expect("it was made");
    let key = minisign::SecretKeyBox::from_string(&key)
        .and_then(minisign::SecretKeyBox::into_unencrypted_secret_key)
        .expect("a key");
    minisign::sign(None, &key, octets, None, None).expect("it signs").into_string()
}

/// Enters what our key has signed, whatever that is.
fn enter_signed(site: &Site, version: i64, pack: &str) {
    let signed = signed(site, pack.as_bytes());
    psql(
        &site.url,
        &format!(
            "INSERT INTO fleet_rules (serial, pack, signature, percent, rules, note)
             VALUES ({version}, convert_to($q${pack}$q$, 'UTF8'), $q${signed}$q$, 100, 1, '')"
        ),
    );
}
