//! `bannerwall serve`: who may see the page, what it shows, and that nothing of what the network says runs in
//! a browser.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bannerwall_test_support::page::{curl, get_json, status};
use bannerwall_test_support::{
    Dropbear, Guard, Line, PATIENT, Running, Signal, as_root, eventually, ssh_servers,
};
use serde_json::{Value, json};

use crate::browser::Browser;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Tells of everything, with a title that is markup.
const RULES: &str = r#"
[[rule]]
id = "any-ssh"
title = "<script>own()</script> An SSH server"
protocol = "ssh"
from = "server"
match.software = '.'
action = "alert"
severity = "high"

[[rule]]
id = "any-http"
title = "An HTTP server"
protocol = "http"
from = "server"
match."header.server" = '.'
action = "alert"
severity = "low"
"#;

/// An inventory and the files beside it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("the folder is ours");
        self.path(name)
    }

    fn scan(&self, words: &str) {
        let mut command = Command::new(PROGRAM);
        command.arg("scan").args(words.split_whitespace()).args(["--rate", "max", "-q", "--sensor", "edge"]);
        command.args(PATIENT.split(' '));
        command.arg("--rules").arg(self.path("rules.toml")).arg("--inventory").arg(self.path("net.db"));
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn serve(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("serve")
            .arg("--inventory")
            .arg(self.path("net.db"))
            .args(flags)
            .current_dir(self.0.path());
        command
    }

    /// Enters attacks into the queue of the page's scans, wherever it keeps text: as scans, as their errors, as
    /// schedules, as who gave them.
    fn fill_hostile_queue(&self) {
        let queue = rusqlite::Connection::open(self.path("net.db")).expect("an inventory");
        queue.busy_timeout(Duration::from_secs(30)).expect("sets");
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let pool = format!("{} 127.0.0.1:0", machine.trim());
        for number in 0..24 {
            let text = String::from_utf8_lossy(&hostile(number)).into_owned();
            let scan = "INSERT INTO fleet_scans (schedule, about, who, what, targets, shards, attempts, state, ended, pool)
                 VALUES (?1, ?2, ?2, '{}', 1, 1, 1, 'done', 1, ?3)";
            queue.execute(scan, (i64::try_from(number).expect("few"), &text, &pool)).expect("a row");
            let shard = "UPDATE fleet_shards SET state = 'parked', error = ?1 WHERE state = 'ready'";
            queue.execute(shard, (&text,)).expect("a row");
            let far = i64::from(i32::MAX) * 1_000;
            let schedule = "INSERT INTO fleet_schedules
                 (about, who, cron, what, targets, shards, attempts, due, gap, longest, pool)
                 VALUES (?1, ?1, ?1, '{}', 1, 1, 1, ?2, 1, 1, ?3)";
            queue.execute(schedule, (&text, far, &pool)).expect("a row");
        }
    }

    /// A running page; its address ends with a slash.
    fn site(&self, flags: &[&str]) -> (Running, String) {
        let process = Running::start(self.serve(flags));
        let url = process.wait_stderr("the address", |said| {
            said.lines().find_map(|line| line.strip_prefix("bannerwall: the page is at ").map(str::to_owned))
        });
        (process, url)
    }
}

#[test]
fn pages_and_api_show_what_was_seen() {
    let place = Place::new();
    let port = ssh_servers(|number| format!("SSH-2.0-OpenSSH_9.{}p1 Debian\r\n", number % 10).into_bytes());
    place.scan(&format!("ssh 127.6.0.0/26 -p {port}"));
    let (mut process, url) = place.site(&["--listen", "127.0.0.1:0"]);
    let page = |path: &str| {
        let (status, body) = curl(&[&format!("{url}{path}")]);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(body.starts_with("<!doctype html>") && body.ends_with("</html>"), "{path}: {body}");
        body
    };
    assert!(page("").contains("OpenSSH 9.3p1"));
    assert!(page("hosts").contains("<a href=\"/hosts/127.6.0.63\">127.6.0.63</a>"));
    assert!(page("hosts/127.6.0.7").contains("SSH-2.0-OpenSSH_9.7p1 Debian"));
    let old = page("services?q=product:openssh+version:%3C9.2");
    assert_eq!(old.matches("OpenSSH_9.").count(), 14, "versions 9.0 and 9.1 of 64");
    assert!(page("findings").contains("any-ssh"));
    assert_eq!(page("changes?q=net:127.6.0.0/28").matches("new service").count(), 16);
    assert!(page("live").contains("new service"));
    assert_eq!(status(&[&format!("{url}nowhere")]), 404);
    assert_eq!(status(&[&format!("{url}hosts/192.0.2.1")]), 404);
    for bad in ["services?q=colour:red", "hosts?after=x", "services?after=x", "changes?limit=x", "hosts/here"]
    {
        assert_eq!(status(&[&format!("{url}{bad}")]), 400, "{bad}");
        assert_eq!(status(&[&format!("{url}api/{bad}")]), 400, "{bad}");
    }

    // Piece by piece each is told once, in order.
    for (kind, row) in [("services", "address"), ("hosts", "address"), ("changes", "id")] {
        let (mut told, mut after) = (Vec::new(), String::new());
        loop {
            let answer = get_json(&format!("{url}api/{kind}?limit=7&after={after}"));
            let rows = answer[kind].as_array().expect("rows");
            told.extend(rows.iter().map(|it| it[row].to_string()));
            match &answer["next"] {
                Value::Null => break,
                Value::String(next) => after.clone_from(next),
                next => after = next.to_string(),
            }
        }
        let mut once = told.clone();
        once.sort();
        once.dedup();
        assert_eq!((once.len(), told.len() >= 64), (told.len(), true), "{kind}: {told:?}");
    }

    // Every path that is described is there.
    let described = get_json(&format!("{url}api/openapi.json"));
    for (path, methods) in described["paths"].as_object().expect("paths") {
        let path = path.replace("{address}", "127.6.0.7").replace("{field}", "version");
        if methods.get("get").is_some() && path != "/api/events" {
            // No network is allowed to be scanned here.
            let expected = if path.starts_with("/api/scans") { 404 } else { 200 };
            assert_eq!(status(&[&format!("{url}{}", &path[1..])]), expected, "{path}");
        }
    }
    assert_eq!(
        get_json(&format!("{url}api/top/version"))["values"][0],
        json!({"value": "OpenSSH 9.0p1", "services": 7})
    );
    assert_eq!(get_json(&format!("{url}api/overview"))["servers"], 64);
    let rules = "[[rule]]\nid = \"no\"\ntitle = \"t\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
                 match.software = '^OpenSSH_9.[01]p1'\naction = \"drop\"\nseverity = \"low\"\n";
    let (told, body) =
        curl(&["--data-binary", rules, "-H", "Content-Type: text/plain", &format!("{url}api/impact")]);
    let impact: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((told, &impact["sums"][0]["assets"]), (200, &json!(14)), "{body}");
    let form = format!("rules={}", "[[rule]]%0Aid%20=%203");
    let (told, body) = curl(&["-d", &form, &format!("{url}try")]);
    assert!(
        told == 200 && body.contains("The rules are refused") && body.contains("rules:2"),
        "{told} {body}"
    );

    process.signal(Signal::INT);
    assert_eq!(process.wait_exit().code(), Some(0), "{}", process.stderr());
}

#[test]
fn changes_are_told_while_they_are_written() {
    let place = Place::new();
    let port = ssh_servers(|number| format!("SSH-2.0-OpenSSH_9.{}p1\r\n", number % 10).into_bytes());
    place.scan(&format!("ssh 127.6.1.1 -p {port}"));
    let (_process, url) = place.site(&["--listen", "127.0.0.1:0"]);
    let mut command = Command::new("curl");
    command.args(["-sSN", "--max-time", "60", &format!("{url}api/events?q=net:127.6.3.0/24")]);
    let events = Running::start(command);
    let mut hosts = 1..=254;
    let told = eventually("the change", || {
        // Once it listens it is told of whatever comes; what was there before is no change.
        let host = hosts.next().expect("it listens by then");
        place.scan(&format!("ssh 127.6.3.{host} 127.6.4.{host} -p {port}"));
        Some(events.stdout()).filter(|told| told.contains("\"address\":\"127.6.3."))
    });
    assert!(told.contains("event: change") && !told.contains("127.6.4."), "{told}");
}

#[test]
fn others_see_the_page_by_tls_and_with_a_login_alone() {
    let place = Place::new();
    let port = ssh_servers(|_| b"SSH-2.0-test\r\n".to_vec());
    place.scan(&format!("ssh 127.6.2.1 -p {port}"));
    let token = "0123456789abcdef0123";
    place.file("token", &format!("{token}\n"));
    place.file("short", "secret\n");
    let users = format!("basic_auth_users:\n  ann: {}\n", bcrypt::hash("right", 4).expect("a hash"));
    let tls = "tls_server_config:\n  cert_file: cert\n  key_file: key\n";
    place.file("users.yml", &users);
    place.file("tls.yml", tls);
    place.file("web.yml", &format!("{tls}{users}"));
    place.file("old.yml", "basic_auth_users:\n  ann: $apr1$abc$def\n");
    let certificate = Command::new("openssl")
        .args(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key -out cert"
                .split(' '),
        )
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .current_dir(place.0.path())
        .output()
        .expect("openssl is installed");
    assert!(certificate.status.success());
    for (flags, said) in [
        ("--listen 192.0.2.1:0", "pass --token-file, or --web-config with basic_auth_users"),
        ("--listen 0.0.0.0:0 --token-file token", "pass --web-config with tls_server_config"),
        ("--listen 0.0.0.0:0 --web-config users.yml", "pass --web-config with tls_server_config"),
        ("--listen [::]:0 --web-config tls.yml", "pass --token-file, or --web-config with basic_auth_users"),
        ("--token-file short", "--token-file short: a token needs at least 16 characters"),
        ("--token-file nowhere", "--token-file nowhere: No such file"),
        ("--web-config old.yml", "--web-config: old.yml:2: basic_auth_users: ann: not a bcrypt hash"),
        ("--web-config nowhere", "--web-config: nowhere: No such file"),
        ("--token-file token --web-config users.yml", "exclude each other"),
    ] {
        let output = place.serve(&flags.split(' ').collect::<Vec<_>>()).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(said)), (Some(2), true), "{flags}: {stderr}");
    }
    let output =
        Command::new(PROGRAM).args(["serve", "--inventory", "/nowhere.db"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));

    // Whoever is on this machine sees the page by this machine's names.
    let (_process, url) = place.site(&["--listen", "127.0.0.1:0"]);
    assert_eq!(status(&[&url]), 200);
    assert_eq!(status(&["-H", "Host: rebound.example", &url]), 421);
    // No other page has it do anything.
    let attempt = format!("{url}try");
    assert_eq!(status(&["-d", "rules=", "-H", "Origin: http://evil.example", &attempt]), 403);
    assert_eq!(status(&["-d", "rules=", "-H", "Sec-Fetch-Site: cross-site", &attempt]), 403);
    assert_eq!(status(&["-d", "rules=", "-H", "Sec-Fetch-Site: same-origin", &attempt]), 200);
    let (_, head) = curl(&["-D", "-", "-o", "/dev/null", &url]);
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{head}");
    // Too much of one client is refused until it rests.
    let many = format!("{url}assets/icon.svg?[1-2000]");
    let output = Command::new("curl").args(["-s", "-o", "/dev/null", "-w", "%{http_code}\n", &many]).output();
    let codes = String::from_utf8(output.expect("it runs").stdout).expect("text");
    assert!(codes.contains("200") && codes.contains("429"), "{codes}");

    let (_process, url) = place.site(&["--listen", "127.0.0.1:0", "--token-file", "token"]);
    assert_eq!(status(&[&url]), 401);
    assert_eq!(status(&["-H", &format!("Authorization: Bearer {token}"), &url]), 200);
    assert_eq!(status(&["-u", &format!("any:{token}"), &url]), 200);
    assert_eq!(status(&["-u", "any:wrong", &url]), 401);
    eventually("guesses to be refused", || (status(&["-u", "any:wrong", &url]) == 429).then_some(()));
    assert_eq!(
        status(&["-u", &format!("any:{token}"), &url]),
        200,
        "who has the token is of the same address"
    );

    let flags = ["--listen", "0.0.0.0:0", "--web-config", "web.yml"];
    let (_process, url) = place.site(&flags);
    let port = url.trim_end_matches('/').rsplit(':').next().expect("a port").to_owned();
    let url = format!("https://localhost:{port}/api/overview");
    let cert = place.path("cert").display().to_string();
    let by = |secret: &str| status(&["-4", "--cacert", &cert, "-u", secret, &url]);
    assert_eq!((by("ann:right"), by("ann:wrong"), by("eve:right"), by("ann:right")), (200, 401, 401, 200));
    assert_eq!(status(&["-4", "--cacert", &cert, &url]), 401);
    // Who guesses has to wait.
    eventually("guesses to be refused", || (by("ann:guess") == 429).then_some(()));
    assert_eq!(by("ann:right"), 200, "who has logged in before is of the same address");
}

#[test]
fn a_page_that_nobody_may_see_leaves_no_inventory_behind() {
    let place = Place::new();
    let rules = place.path("rules.toml");
    let refused = |more: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .arg("guard")
            .arg("--rules")
            .arg(&rules)
            .arg("--inventory")
            .arg(place.path("net.db"))
            .args(more);
        let output = command.current_dir(place.0.path()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), said.contains("--serve-token-file")),
            (Some(2), true),
            "{more:?}: {said}"
        );
        assert!(!place.path("net.db").exists(), "{more:?}");
    };
    refused(&["--check", "--serve", "0.0.0.0:8642"]);
    // Where it is bound before the rest fails is another matter.
    as_root(|| refused(&["--queue", "4711", "--no-sandbox", "--serve", "0.0.0.0:8642"]));
    let output = place.serve(&["--listen", "0.0.0.0:8642", "--scan-allow", "192.0.2.0/24"]).output();
    assert_eq!(output.expect("it runs").status.code(), Some(2));
    assert!(!place.path("net.db").exists());
}

#[test]
fn a_guard_shows_its_inventory_and_its_alerts_as_they_come() {
    as_root(|| {
        let (place, line) = (Place::new(), Line::new());
        place.file("token", "0123456789abcdef0123\n");
        let _dropbear = Dropbear::start(&line.server, 2223);
        let rules = RULES.replace("\"alert\"\nseverity = \"high\"", "\"drop\"\nseverity = \"high\"");
        let inventory = format!(
            "--hook forward --enforce --sensor router --inventory {}",
            place.path("net.db").display()
        );
        for (flags, said) in [
            ("--serve", "--inventory"),
            (
                &format!("{inventory} --serve 192.0.2.1:0"),
                "--serve 192.0.2.1:0: other machines can reach this address: pass --serve-token-file",
            ),
            (
                &format!("{inventory} --serve 127.0.0.1:0 --serve-token-file /nowhere"),
                "--serve-token-file /nowhere: No such",
            ),
            (&format!("{inventory} --serve-token-file /nowhere"), "--serve"),
        ] {
            let mut command = line.router.command(PROGRAM);
            command.args(["guard", "--rules"]).arg(place.path("rules.toml")).args(flags.split(' '));
            let output = command.output().expect("it runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), stderr.contains(said)), (Some(2), true), "{flags}: {stderr}");
        }
        let flags = format!("{inventory} --serve 127.0.0.1:0");
        let mut guard = Guard::start(&line.router, PROGRAM, &rules, &flags);
        let url = guard.process.wait_stderr("the address", |said| {
            said.lines().find_map(|line| line.strip_prefix("bannerwall: the page is at ").map(str::to_owned))
        });
        let curl = |path: &str| {
            let mut command = line.router.command("curl");
            command.args(["-sSN", "--max-time", "60", &format!("{url}{path}")]);
            Running::start(command)
        };
        let all = curl("api/events?q=port:2223");
        let other = curl("api/events?q=port:22");
        let mut stream =
            line.client.connect((Ipv4Addr::new(198, 51, 100, 2), 2223)).expect("the handshake passes");
        stream.set_read_timeout(Some(Duration::from_millis(500))).expect("sets");
        assert!(stream.read(&mut [0; 64]).is_err(), "it is stopped");
        let told =
            all.wait_stdout("the alert", |told| told.contains("\"blocked\":true").then(|| told.to_owned()));
        assert!(told.contains("\"rule\":\"any-ssh\"") && told.contains("\"blocked\":true"), "{told}");
        assert!(
            told.contains("\"peer\":\"192.0.2.2:") && told.contains("\"sensor\":\"guard/router\""),
            "{told}"
        );
        all.wait_stdout("the change", |told| told.contains("event: change").then_some(()));
        assert!(!other.stdout().contains("event: alert"), "{}", other.stdout());
        // Whoever comes later sees the last ones, and who comes back what came meanwhile.
        curl("api/events").wait_stdout("the alert", |told| told.contains("event: alert").then_some(()));
        let page = curl("findings");
        page.wait_stdout("the page", |told| told.contains("any-ssh").then_some(()));
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
    });
}

/// What would be seen if something ran.
const OWN: &str = "document.documentElement.setAttribute('owned','1')";

/// What servers say to those who show it.
fn hostile(number: usize) -> Vec<u8> {
    let attack = match number % 16 {
        0 => format!("<img src=x onerror=\"{OWN}\">"),
        1 => format!("<script>{OWN}</script>"),
        2 => format!("</script><script>{OWN}</script>"),
        3 => format!("\"><svg onload={OWN}>"),
        4 => format!("'onmouseover='{OWN}'autofocus='"),
        5 => format!("</textarea></title></code></bdi><script>{OWN}</script>"),
        6 => format!("javascript:{OWN}"),
        7 => format!("{{{{constructor.constructor('{OWN}')()}}}}"),
        8 => "\u{202e}txt.exe\u{2066}\u{200f}".to_owned(),
        9 => format!("<iframe srcdoc=\"<script>{OWN}</script>\">"),
        10 => format!("&lt;script&gt;{OWN}&#x3c;/script>"),
        11 => "<style>*{display:none}</style><meta http-equiv=refresh content=0;url=//x>".to_owned(),
        12 => format!("<a href=javascript:{OWN}>x</a><base href=//x>"),
        13 => format!("--><!--<script>{OWN}</script>"),
        14 => "\u{1b}[2J\u{9b}31m\u{7}".to_owned(),
        _ => format!("${{{OWN}}}`\\u003cscript>"),
    };
    let mut said = format!("{attack} {number}").into_bytes();
    if number.is_multiple_of(3) {
        said.extend([0xff, 0xfe, b'<', 0xc0, 0xaf]);
    }
    said
}

fn says_ssh(number: usize) -> Vec<u8> {
    [b"SSH-2.0-".as_slice(), &hostile(number), b"\r\n"].concat()
}

fn says_http(number: usize) -> Vec<u8> {
    let said = hostile(number);
    let long = if number.is_multiple_of(16) { "A".repeat(65_536 - 1_000) } else { String::new() };
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\nServer: ";
    [head.as_slice(), &said, long.as_bytes(), b"\r\n\r\n"].concat()
}

#[test]
fn nothing_that_the_network_says_runs_in_a_browser() {
    let place = Place::new();
    let ssh = ssh_servers(says_ssh);
    let http = {
        let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let Ok(SocketAddr::V4(own)) = connection.local_addr() else { continue };
                let [.., high, low] = own.ip().octets();
                let _ = connection.read(&mut [0; 4_096]);
                let _ = connection.write_all(&says_http(usize::from(high) * 256 + usize::from(low)));
            }
        });
        port
    };
    place.scan(&format!("ssh 127.7.0.0/21 -p {ssh}"));
    place.scan(&format!("http 127.7.0.0/24 -p {http}"));
    let (_process, url) = place.site(&["--listen", "127.0.0.1:0", "--scan-allow", "127.7.0.0/24"]);
    place.fill_hostile_queue();
    let mut browser = Browser::start();

    // The trap closes where something does run.
    let control =
        place.file("control.html", &format!("<title>x</title>{}", String::from_utf8_lossy(&hostile(1))));
    browser.go(&format!("file://{}", control.display()));
    assert_eq!(browser.evaluate("document.documentElement.getAttribute('owned')"), "1");

    let mut pages: Vec<String> = [
        "",
        "findings",
        "live",
        "try",
        "scans",
        "hosts?limit=500",
        "rules/any-ssh",
        "rules/any-http",
        "cves/CVE-2024-6387",
    ]
    .map(str::to_owned)
    .to_vec();
    pages.extend(["img", "%3Cscript%3E", "txt.exe", "{{"].map(|word| format!("search?q={word}")));
    pages.extend((0..16).map(|number| format!("hosts/127.7.0.{number}")));
    let mut after = String::new();
    for _ in 0..5 {
        let answer = get_json(&format!("{url}api/services?limit=500&after={after}"));
        pages.push(format!("services?limit=500&after={after}"));
        after = answer["next"].as_str().unwrap_or_default().to_owned();
    }
    pages.push("changes?limit=500".to_owned());
    pages.push(format!("services?q=%22%3Cscript%3E{OWN}%3C/script%3E"));
    pages.push("changes?q=%22%22%3E%3Csvg+onload=alert(1)%3E%22".to_owned());
    pages.push("services?limit=500&sort=product".to_owned());
    pages.push("hosts?limit=500&sort=worst".to_owned());
    let mut said = 0;
    for path in &pages {
        let complaints = browser.go(&format!("{url}{path}"));
        assert!(complaints.is_empty(), "{path}: {complaints:?}");
        let seen = browser.evaluate(
            "({ owned: document.documentElement.hasAttribute('owned'),
                foreign: [...document.querySelectorAll('script, iframe, style, base, img, object, embed')]
                  .filter(it => it.outerHTML !== '<script src=\"/assets/live.js\" defer=\"\"></script>').length,
                handlers: [...document.querySelectorAll('*')]
                  .filter(it => it.getAttributeNames().some(name => name.startsWith('on'))).length,
                links: [...document.querySelectorAll('a')].filter(it => it.origin !== location.origin
                  && !(it.relList.contains('external') && it.origin === 'https://www.cve.org')).length,
                turned: /[\\u202a-\\u202e\\u2066-\\u2069\\u200f\\u001b]/.test(document.body.innerText),
                said: (document.body.innerText.match(/setAttribute\\('owned'/g) ?? []).length,
                visible: document.querySelector('footer').getBoundingClientRect().height > 0 })",
        );
        let harmless = json!({ "owned": false, "foreign": 0, "handlers": 0, "links": 0, "turned": false, "visible": true });
        for (key, value) in harmless.as_object().expect("pairs") {
            assert_eq!(&seen[key], value, "{path}: {key}: {seen}");
        }
        said += seen["said"].as_u64().expect("a number");
        assert_eq!(browser.faults(), Vec::<String>::new(), "{path}");
    }
    assert!(said > 1_500, "attacks are shown as text, {said} times");

    // What comes while one watches is shown as text, too.
    browser.go(&format!("{url}live?q=net:127.7.16.0/24"));
    eventually("the page to listen", || {
        let state = browser.evaluate("document.querySelector('#state').textContent");
        state.as_str().is_some_and(|state| state.starts_with("This page shows")).then_some(())
    });
    place.scan(&format!("ssh 127.7.16.0/28 -p {ssh}"));
    eventually("changes to appear", || {
        let rows = browser.evaluate("document.querySelectorAll('#live tr:not(.nothing)').length");
        (rows.as_u64() >= Some(32)).then_some(())
    });
    let seen = browser.evaluate(
        "[document.documentElement.hasAttribute('owned'), document.querySelectorAll('#live :is(img, script, svg, iframe)').length,
          /[\\u202a-\\u202e\\u001b]/.test(document.body.innerText)]",
    );
    assert_eq!(seen, json!([false, 0, false]));
}

/// Answers each connection with the hostile banner of the next number, after a request where one is waited
/// for.
fn answer_all(listener: TcpListener, waits: bool, says: impl Fn(usize) -> Vec<u8> + Send + 'static) {
    std::thread::spawn(move || {
        for (number, mut connection) in listener.incoming().flatten().enumerate() {
            if waits {
                let _ = connection.read(&mut [0; 4_096]);
            }
            let _ = connection.write_all(&says(number));
            let _ = connection.shutdown(std::net::Shutdown::Write);
            let _ = connection.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = connection.read_to_end(&mut Vec::new());
        }
    });
}

#[test]
fn nothing_that_a_guard_tells_of_runs_in_a_browser_that_watches() {
    const BANNERS: usize = 1_000;
    as_root(|| {
        let (place, line) = (Place::new(), Line::new());
        let at = |port: u16| (Ipv4Addr::new(198, 51, 100, 2), port);
        answer_all(line.server.listen(at(2223)), false, says_ssh);
        answer_all(line.server.listen(at(8080)), true, |number| {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\nServer: ";
            [head.as_slice(), &hostile(number), b"\r\n\r\n"].concat()
        });
        let flags =
            format!("--hook forward --inventory {} --serve 127.0.0.1:0", place.path("net.db").display());
        let mut guard = Guard::start(&line.router, PROGRAM, RULES, &flags);
        let url = guard.process.wait_stderr("the address", |said| {
            said.lines().find_map(|line| line.strip_prefix("bannerwall: the page is at ").map(str::to_owned))
        });
        let mut browser = Browser::by(line.router.command("/usr/bin/python3"));
        assert_eq!(browser.go(&format!("{url}live")), Vec::<Value>::new());
        // The page keeps its last rows alone: what it shows is looked at as it comes.
        browser.evaluate(
            "globalThis.seen = new Set(); globalThis.strange = [];
             new MutationObserver(records => {
               for (const row of records.flatMap(record => [...record.addedNodes])) {
                 const all = [...row.querySelectorAll('*')];
                 if (all.some(it => !/^(td|bdi|span|ins|del|a|time)$/i.test(it.tagName)
                     || it.getAttributeNames().some(name => name.startsWith('on'))
                     || (it.tagName === 'A' && it.origin !== location.origin))
                     || /[\\u202a-\\u202e\\u2066-\\u2069\\u200f\\u001b]/.test(row.innerText)) strange.push(row.outerHTML);
                 if (row.className === 'alert') {
                   const said = row.querySelector('ins').textContent;
                   seen.add(row.querySelector('a').textContent + ' ' + (said.match(/ (\\d+)[^ ]*$/) ?? [])[1]);
                 }
               }
             }).observe(document.querySelector('#live'), { childList: true }); true",
        );
        let mut told = 0;
        for number in 0..BANNERS {
            for port in [2223, 8080] {
                let mut stream = line.client.connect(at(port)).expect("the handshake passes");
                stream.set_read_timeout(Some(Duration::from_secs(20))).expect("sets");
                if port == 8080 {
                    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it listens");
                }
                let mut said = Vec::new();
                stream.read_to_end(&mut said).expect("the server answers");
                told += usize::from(!said.is_empty());
            }
            // Who is told too much at once sees the last of it.
            if number % 100 == 99 {
                eventually("the page to show them", || {
                    let seen = browser.evaluate("seen.size").as_u64().expect("a number");
                    (seen >= told as u64).then_some(())
                });
            }
        }
        assert_eq!(told, 2 * BANNERS);
        let seen = browser.evaluate("[seen.size, strange, document.documentElement.hasAttribute('owned')]");
        assert_eq!(seen, json!([2 * BANNERS, [], false]));
        assert_eq!(browser.go(&format!("{url}live")), Vec::<Value>::new(), "it has complained of nothing");
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
    });
}
