//! The HTTP scan against servers that take their time, close where they please, or answer many requests
//! at once with one error: what can be asked is asked, and nobody gets another one's answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use bannerwall_test_support::{Namespace, Nginx, Running, Sshd, as_root, json_lines, serve_by};

/// A page of `/slow…` takes 300 ms.
const APPLICATION: &str = r#"
import time
def application(environment, start):
    path = environment["PATH_INFO"]
    if path.startswith("/slow"):
        time.sleep(0.3)
    start("200 OK", [("Content-Length", str(len(path)))])
    return [path.encode()]
if __name__ == "__main__":
    from wsgiref.simple_server import make_server
    make_server("127.0.0.1", 8021, application).serve_forever()
"#;

const NO_RULES: &str = "[[rule]]\nid = \"none\"\ntitle = \"none\"\nprotocol = \"http\"\nfrom = \"server\"\n\
                        match.status = '^999$'\naction = \"alert\"\n";

/// The status of every path that was answered, and how often each was.
struct Answers(BTreeMap<String, Vec<u64>>);

impl Answers {
    fn paths(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    fn status(&self, path: &str) -> Option<u64> {
        // Of a long one events show the beginning.
        let shown = |url: &str| url == path || url.strip_suffix('…').is_some_and(|cut| path.starts_with(cut));
        match self.0.iter().find(|(url, _)| shown(url)).map(|(_, statuses)| statuses.as_slice()) {
            Some([status]) => Some(*status),
            Some(more) => panic!("{path} was answered {} times", more.len()),
            None => None,
        }
    }

    fn assert_all(&self, paths: &[String], what: &str) {
        let missing: Vec<_> = paths.iter().filter(|path| self.status(path) != Some(200)).collect();
        assert!(missing.is_empty(), "{what}: {} of {} not answered: {missing:?}", missing.len(), paths.len());
    }
}

/// Asks a server for `paths`, and for what `rules` need.
fn scan(namespace: &Namespace, port: u16, rules: &Path, paths: &[String], flags: &str) -> Answers {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_bannerwall"));
    command.args(["scan", "http", "127.0.0.1", "--format", "json", "-p", &port.to_string()]);
    command.args(["--total-timeout", "30s", "--rules"]).arg(rules).args(flags.split_whitespace());
    paths.iter().for_each(|path| {
        command.args(["--path", path]);
    });
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut answers = BTreeMap::<String, Vec<u64>>::new();
    for event in json_lines(&output.stdout).iter().filter(|event| event["event_type"] == "http") {
        let path = event["http"]["url"].as_str().unwrap_or_default().to_owned();
        answers.entry(path).or_default().push(event["http"]["status"].as_u64().unwrap_or_default());
    }
    Answers(answers)
}

fn no_rules(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("none.toml");
    fs::write(&file, NO_RULES).expect("the folder is ours");
    file
}

fn paths(names: impl IntoIterator<Item = &'static str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn numbered(count: usize) -> Vec<String> {
    std::iter::once("/".to_owned()).chain((1..count).map(|number| format!("/page-{number}"))).collect()
}

/// Starts `program` in `folder`.
fn start(namespace: &Namespace, port: u16, folder: &Path, program: &str, arguments: &[&str]) -> Running {
    let mut command: Command = namespace.command("env");
    command.arg("-C").arg(folder).arg(program).args(arguments);
    serve_by(namespace, port, command)
}

#[test]
fn slow_pages_of_one_thread_are_waited_for() {
    let (namespace, folder) = (Namespace::new(), tempfile::tempdir().expect("a folder"));
    fs::write(folder.path().join("slow.py"), APPLICATION).expect("the folder is ours");
    let rules = no_rules(folder.path());
    let pages = ["/", "/slow1", "/slow2", "/slow3", "/slow4", "/slow5", "/slow6", "/g1", "/g2"];
    let pages = paths(pages);
    let gunicorn = ["--bind", "127.0.0.1:8020", "--log-level", "error", "slow:application"];
    let _gunicorn = start(&namespace, 8020, folder.path(), "/usr/bin/gunicorn", &gunicorn);
    let _wsgiref = start(&namespace, 8021, folder.path(), "/usr/bin/python3", &["slow.py"]);
    for (port, name) in [(8020, "gunicorn"), (8021, "wsgiref")] {
        for flags in ["", "--host-connections 4", "--no-pipeline"] {
            scan(&namespace, port, &rules, &pages, flags).assert_all(&pages, &format!("{name} {flags}"));
        }
    }
}

#[test]
fn paths_at_which_a_server_closes_are_their_own_affair() {
    let namespace = Namespace::new();
    let nginx = Nginx::start(&namespace, 8022, r"location ~ /\. { return 444; }");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let mut seen = Vec::new();
    for flags in ["", "--no-pipeline", "--host-connections 4"] {
        let answers = scan(&namespace, 8022, &shipped, &paths(["/"]), flags);
        // What the shipped rules ask for grows; these are among it.
        for path in ["/", "/actuator/env", "/phpinfo.php", "/server-status"] {
            assert!(answers.paths().contains(path), "{flags}: {path} of {:?}", answers.0);
        }
        seen.push(answers.paths().into_iter().map(str::to_owned).collect::<BTreeSet<_>>());
    }
    assert!(seen.iter().all(|paths| *paths == seen[0]), "however it is asked: {seen:?}");
    // More of them in a row than a host is given chances.
    let rules = no_rules(nginx.root());
    let mut names = numbered(20);
    names.splice(1..1, (0..20).map(|number| format!("/.hidden-{number}")));
    let answers = scan(&namespace, 8022, &rules, &names, "");
    assert_eq!(answers.paths().len(), 20, "{:?}", answers.0);
}

#[test]
fn several_connections_lose_no_server_that_closes_on_a_pipeline() {
    let (namespace, folder) = (Namespace::new(), tempfile::tempdir().expect("a folder"));
    fs::write(folder.path().join("index.php"), "<?php echo $_SERVER['REQUEST_URI'];").expect("ours");
    let rules = no_rules(folder.path());
    let arguments = ["-q", "-S", "127.0.0.1:8023", "index.php"];
    let _php = start(&namespace, 8023, folder.path(), "/usr/bin/php", &arguments);
    for connections in ["1", "2", "4", "8"] {
        for count in [6, 62] {
            let flags = format!("--host-connections {connections}");
            scan(&namespace, 8023, &rules, &numbered(count), &flags).assert_all(&numbered(count), &flags);
        }
    }
}

#[test]
fn an_error_for_a_whole_batch_is_credited_to_the_request_that_it_is_for() {
    let (namespace, folder) = (Namespace::new(), tempfile::tempdir().expect("a folder"));
    let application = "from aiohttp import web\n\
         async def page(request): return web.Response(text=request.path)\n\
         application = web.Application()\n\
         application.router.add_get('/{tail:.*}', page)\n\
         web.run_app(application, host='127.0.0.1', port=8024, print=None)\n";
    fs::write(folder.path().join("page.py"), application).expect("the folder is ours");
    let rules = no_rules(folder.path());
    let _aiohttp = start(&namespace, 8024, folder.path(), "/usr/bin/python3", &["page.py"]);
    let good = numbered(12);
    let long = format!("/{}", "x".repeat(9000));
    for place in [0, 6, 12] {
        let mut all = good.clone();
        all.insert(place, long.clone());
        for flags in ["", "--host-connections 3", "--no-pipeline"] {
            let answers = scan(&namespace, 8024, &rules, &all, flags);
            answers.assert_all(&good, flags);
            assert_eq!(answers.status(&long), Some(400), "{flags}");
        }
    }
}

#[test]
fn an_ssh_server_behind_a_multiplexer_is_found_with_its_key_exchange() {
    as_root(|| {
        let namespace = Namespace::new();
        let _sshd = Sshd::start(&namespace, 8026);
        let mut sslh = namespace.command("/usr/sbin/sslh-select");
        // One process, which ends with the test. It waits for its clients to speak for longer than the scan
        // waits for it.
        sslh.args(["--foreground", "--timeout", "30", "--listen", "127.0.0.1:8025"]);
        sslh.args(["--ssh", "127.0.0.1:8026", "--http", "127.0.0.1:1"]);
        let _sslh = serve_by(&namespace, 8025, sslh);
        for (flags, hassh) in [("", false), ("--hassh", true)] {
            let mut command = namespace.command(env!("CARGO_BIN_EXE_bannerwall"));
            command.args(["scan", "ssh", "127.0.0.1", "-p", "8025", "--format", "json"]);
            command.args(["--read-timeout", "20s", "--total-timeout", "40s", "--rules"]);
            let folder = tempfile::tempdir().expect("a folder");
            command.arg(no_rules(folder.path())).args(flags.split_whitespace());
            let output = command.output().expect("the program runs");
            let events = json_lines(&output.stdout);
            let [event] = events.as_slice() else { panic!("{events:?}") };
            let text = command.args(["--format", "text"]).output().expect("the program runs").stdout;
            assert_eq!(String::from_utf8_lossy(&text).contains(" hassh "), hassh);
            let server = &event["ssh"]["server"];
            assert!(
                server["software_version"].as_str().is_some_and(|text| text.starts_with("OpenSSH_")),
                "{event}"
            );
            assert_eq!(
                server["hassh"]["hash"].as_str().is_some_and(|hash| hash.len() == 32),
                hassh,
                "{event}"
            );
        }
    });
}
