//! Findings of a scan as people read them: what matched, the worst first, a summary and an exit code.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Output;

use bannerwall_test_support::{Namespace, Running, as_root, json_lines, serve_by};

/// A web server on five ports that says what it is, hands out its repository and asks for a password.
const SERVERS: &str = r#"
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def version_string(self): return "Apache/2.4.49 (Unix)"
    def log_message(self, *ignored): pass
    def do_GET(self):
        known = {"/": b"hello", "/.git/config": b"[core] the body's text"}
        body = known.get(self.path)
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("Set-Cookie", "session=swordfish")
        self.end_headers()
        self.wfile.write(body or b"")
for port in range(8031, 8036):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever).start()
"#;

const RULES: &str = r#"
[[rule]]
id = "cookie"
title = "A cookie"
protocol = "http"
from = "server"
match."header.set-cookie" = '^session='
action = "alert"
severity = "low"

[[rule]]
id = "repository"
title = "A repository"
protocol = "http"
from = "server"
request = { method = "GET", path = "/.git/config" }
match.body = '^\[core\]'
action = "alert"
severity = "medium"

[[rule]]
id = "old-apache"
title = "An old Apache"
protocol = "http"
from = "server"
match."header.server" = '^Apache/2\.4\.49'
action = "alert"
severity = "critical"
"#;

/// Servers to scan, and the rules about them.
struct Scene {
    namespace: Namespace,
    folder: tempfile::TempDir,
    _servers: Running,
}

impl Scene {
    fn new() -> Self {
        let (namespace, folder) = (Namespace::new(), tempfile::tempdir().expect("a folder"));
        fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
        fs::write(folder.path().join("servers.py"), SERVERS).expect("the folder is ours");
        let mut command = namespace.command("/usr/bin/python3");
        command.arg(folder.path().join("servers.py"));
        // The last port listens after all others.
        let servers = serve_by(&namespace, 8035, command);
        Self { namespace, folder, _servers: servers }
    }

    fn scan(&self, flags: &str) -> Output {
        let mut command = self.namespace.command(env!("CARGO_BIN_EXE_bannerwall"));
        command.args(["scan", "http", "127.0.0.1", "-p", "8031-8035", "--path", "/", "--path", "/none"]);
        command.args(["--total-timeout", "60s", "--read-timeout", "30s", "--rules"]);
        command.arg(self.folder.path().join("rules.toml")).args(flags.split_whitespace());
        command.output().expect("the program runs")
    }

    fn text(&self, flags: &str) -> String {
        String::from_utf8(self.scan(flags).stdout).expect("text")
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_person_reads_what_matched_the_worst_first_and_no_list_of_requests() {
    let scene = Scene::new();
    let output = scene.scan("");
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 20, "five servers with three findings each: {text}");
    for server in lines.chunks(4) {
        assert!(server[0].contains("  open      HTTP/1.1 200 OK  Apache/2.4.49 (Unix)"), "{text}");
        assert!(server[1].ends_with("old-apache: An old Apache  server: \"Apache/2.4.49 (Unix)\""), "{text}");
        assert!(server[2].ends_with("repository: A repository  at /.git/config  body"), "{text}");
        assert!(server[3].ends_with("cookie: A cookie  set-cookie: \"session=***\""), "{text}");
    }
    let told = errors(&output);
    let mut end = told.lines().rev();
    let counters = end.next().expect("counters");
    assert!(counters.starts_with("targets 5, open 5, ") && !counters.contains(" 0,"), "{told}");
    assert_eq!(end.next(), Some("5 servers, 5 with findings: 5 critical, 5 medium, 5 low"));
    assert!(scene.text("-v").contains("GET /none: HTTP/1.1 404"), "with -v each request has a line");
}

#[test]
fn programs_get_the_evidence_once_for_each_server_and_no_secret() {
    let scene = Scene::new();
    let (json, csv, xml) =
        (scene.scan("--format json"), scene.text("--format csv"), scene.text("--format xml"));
    let events = json_lines(&json.stdout);
    let alerts = events.iter().filter(|event| event["event_type"] == "alert");
    assert_eq!(alerts.count(), 15, "one for each rule and server");
    assert_eq!(csv.matches("\"server: \"\"Apache/2.4.49 (Unix)\"\"\"").count(), 5, "{csv}");
    assert!(xml.contains("<elem key=\"matched\">server: &quot;Apache/2.4.49 (Unix)&quot;</elem>"), "{xml}");
    for written in [String::from_utf8_lossy(&json.stdout).as_ref(), &csv, &xml] {
        assert!(!written.contains("swordfish") && !written.contains("the body's text"), "{written}");
    }
}

#[test]
fn a_severity_to_fail_on_is_the_exit_code() {
    let scene = Scene::new();
    assert_eq!(scene.scan("").status.code(), Some(0));
    assert_eq!(scene.scan("--fail-on critical").status.code(), Some(1));
    let none = scene.folder.path().join("rules.toml");
    fs::write(Path::new(&none), RULES.replace("critical", "low")).expect("the folder is ours");
    assert_eq!(scene.scan("--fail-on high").status.code(), Some(0));
    assert_eq!(scene.scan("--fail-on medium").status.code(), Some(1));
    let wrong = scene.scan("--fail-on grave");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(errors(&wrong).contains("critical"), "{}", errors(&wrong));
}

#[test]
fn targets_without_a_mode_are_asked_for_the_usual_protocols() {
    as_root(|| {
        let (namespace, folder) = (Namespace::new(), tempfile::tempdir().expect("a folder"));
        let ssh = namespace.listen((std::net::Ipv4Addr::LOCALHOST, 22));
        std::thread::spawn(move || {
            for mut connection in ssh.incoming().flatten() {
                let _ = connection.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n");
            }
        });
        fs::write(folder.path().join("servers.py"), SERVERS.replace("range(8031, 8036)", "[80]"))
            .expect("ours");
        let mut command = namespace.command("/usr/bin/python3");
        command.arg(folder.path().join("servers.py"));
        let _web = serve_by(&namespace, 80, command);
        let rules = folder.path().join("rules.toml");
        fs::write(&rules, RULES).expect("the folder is ours");
        let mut command = namespace.command(env!("CARGO_BIN_EXE_bannerwall"));
        command.args(["scan", "127.0.0.1", "--total-timeout", "60s", "--read-timeout", "30s", "--rules"]);
        let output = command.arg(rules).output().expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(text.contains("127.0.0.1:22           open      SSH-2.0-OpenSSH_9.2p1"), "{text}");
        assert!(text.contains("127.0.0.1:80           open      HTTP/1.1 200 OK"), "{text}");
        assert!(text.contains("127.0.0.1:443          closed"), "{text}");
        assert!(
            errors(&output).contains("2 servers, 1 with findings: 1 critical, 1 medium, 1 low"),
            "{text}"
        );
    });
}

#[test]
fn a_severity_to_fail_on_counts_hidden_servers_and_every_format_is_written_at_once() {
    let scene = Scene::new();
    let hidden = scene.scan("--match server:nginx --fail-on critical");
    assert!(hidden.stdout.is_empty(), "no server matches");
    assert_eq!(hidden.status.code(), Some(1), "{}", errors(&hidden));

    let base = scene.folder.path().join("all").display().to_string();
    let text = scene.text(&format!("--output-all {base}"));
    let read = |ending: &str| fs::read_to_string(format!("{base}.{ending}")).expect("written");
    assert_eq!(read("txt"), text, "the same as on stdout");
    let events = json_lines(read("jsonl").as_bytes());
    let alone = json_lines(&scene.scan("--format json").stdout);
    assert_eq!(events.len(), alone.len(), "the same as alone");
    assert_eq!(read("csv").lines().count(), scene.text("--format csv").lines().count());
    assert_eq!(read("xml").matches("<port ").count(), 5, "{}", read("xml"));
    assert_eq!(read("gnmap").matches("/open/tcp/").count(), 5, "{}", read("gnmap"));
}
