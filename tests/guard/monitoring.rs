//! What is shipped for Prometheus and Grafana, against a real Prometheus that watches a real guard.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::{Banner, Guard, Line, Namespace, Running, Signal, as_root, eventually};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const RULES: &str = r#"
[[rule]]
id = "ssh"
title = "A server of SSH"
protocol = "ssh"
match.software = '^OpenSSH'
action = "alert"
examples = ["SSH-2.0-OpenSSH_9.8"]
counterexamples = ["SSH-2.0-dropbear"]
"#;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn dashboard() -> Value {
    let text = fs::read_to_string(shipped("scripts/grafana-dashboard.json")).expect("it is shipped");
    serde_json::from_str(&text).expect("a dashboard is JSON")
}

/// What each panel asks, with Grafana's variables filled in.
fn questions() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().expect("a title").to_owned();
        let targets = panel["targets"].as_array().expect("targets").clone();
        targets.into_iter().map(move |target| {
            let asked = target["expr"].as_str().expect("an expression");
            (title.clone(), asked.replace("$instance", ".*").replace("$__rate_interval", "30s"))
        })
    };
    panels.iter().flat_map(of_panel).collect()
}

/// The families that a text names, histograms by their own names.
fn families(text: &str) -> BTreeSet<String> {
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let names = text.split(|it| !is_name(it)).filter(|word| word.starts_with("bannerwall_"));
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn the_alerts_are_such_and_wake_nobody_without_need() {
    for arguments in [
        ["check", "rules", "scripts/prometheus-alerts.yml"],
        ["test", "rules", "tests/data/monitoring/alerts.test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        let output = promtool.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let output = output.expect("promtool is installed with prometheus");
        let told = [output.stdout, output.stderr].map(|told| String::from_utf8_lossy(&told).into_owned());
        assert!(output.status.success(), "{told:?}");
    }
}

#[test]
fn a_real_prometheus_answers_what_the_dashboard_and_the_alerts_ask() {
    as_root(|| {
        let namespace = Namespace::new();
        let flags = "--hook input --enforce --max-wait off --metrics 127.0.0.1:9464";
        let guard = Guard::start(&namespace, PROGRAM, RULES, flags);
        let at = std::net::SocketAddr::from(([127, 0, 0, 1], 2222));
        let server = Banner::start(&namespace, at, b"SSH-2.0-OpenSSH_9.8\r\n", 100);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join("prometheus.yml");
        let alerts = shipped("scripts/prometheus-alerts.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{}]\n\
             scrape_configs:\n  - {{ job_name: bannerwall, static_configs: [{{ targets: ['127.0.0.1:9464'] }}] }}\n",
            alerts.display()
        );
        fs::write(&config, text).expect("the folder is ours");
        let mut command = namespace.command("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("tsdb").display()));
        command.arg("--web.listen-address=127.0.0.1:9090");
        let _prometheus = Running::start(command);
        let ask = |path: &str, query: &str| -> Option<Value> {
            let mut curl = namespace.command("curl");
            curl.args(["-sS", "-G", "--max-time", "10", "--data-urlencode"]).arg(format!("query={query}"));
            let output =
                curl.arg(format!("http://127.0.0.1:9090/api/v1/{path}")).output().expect("curl starts");
            serde_json::from_slice(&output.stdout).ok()
        };
        let exposition = eventually("metrics", || {
            let text = namespace.output("curl -sS --max-time 10 http://127.0.0.1:9464/metrics").stdout;
            Some(String::from_utf8_lossy(&text).into_owned())
                // What the kernel counts is looked at once a second.
                .filter(|text| text.contains("bannerwall_hook_up") && text.contains("bannerwall_queue_depth"))
        });
        let known: BTreeSet<String> = exposition
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned))
            .collect();
        let asked =
            families(&(dashboard().to_string() + &fs::read_to_string(&alerts).expect("it is shipped")));
        // Families without a series yet say nothing of themselves.
        let silent = [
            "bannerwall_policy_refusals_total",
            "bannerwall_events_suppressed_total",
            "bannerwall_anomalies_total",
        ];
        for family in asked.iter().filter(|family| !silent.contains(&family.as_str())) {
            assert!(known.contains(family), "{family} is asked for and not told: {known:?}");
        }
        eventually("two looks at the guard", || {
            drop(namespace.connect(server.address));
            let seen = ask("query", "min(count_over_time(bannerwall_hook_up[30s])) > 1")?;
            (!seen["data"]["result"].as_array()?.is_empty()).then_some(())
        });
        for (panel, question) in questions() {
            let answer = ask("query", &question).expect("it answers");
            assert_eq!(answer["status"], "success", "{panel}: {question}: {answer}");
        }
        let answered = |question: &str| {
            let answer = ask("query", question)?;
            (!answer["data"]["result"].as_array()?.is_empty()).then_some(())
        };
        for question in ["bannerwall_rules == 1", "sum(rate(bannerwall_packets_total[30s])) > 0"] {
            eventually(question, || answered(question));
        }
        eventually("rules of alerts", || {
            let rules = ask("rules", "")?;
            let rules = rules["data"]["groups"][0]["rules"].as_array()?.clone();
            let healthy = |rule: &Value| rule["health"] == "ok" && rule["state"] == "inactive";
            (rules.len() > 5 && rules.iter().all(healthy)).then_some(())
        });
        drop(guard);
        eventually("the alert that the guard is gone", || answered("ALERTS{alertname=\"BannerwallDown\"}"));
    });
}

/// A folder with certificates of an authority of its own, for a server at 127.0.0.1 and for a client.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = "set -e
        new() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \"$@\"; }
        new -keyout ca.key -out ca.pem -subj /CN=authority
        new -keyout server.key -out server.pem -subj /CN=metrics -CA ca.pem -CAkey ca.key \
            -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE
        new -keyout client.key -out client.pem -subj /CN=prometheus -CA ca.pem -CAkey ca.key \
            -addext basicConstraints=critical,CA:FALSE
        chmod 600 *.key";
    let output = Command::new("sh").args(["-c", script]).current_dir(folder.path()).output();
    let output = output.expect("sh and openssl are installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

/// TLS and one user, `prometheus` with the password `open`.
fn web_config(folder: &Path, more: &str) -> PathBuf {
    let hash = bcrypt::hash("open", 10).expect("a hash");
    let file = folder.join("web.yml");
    let text = format!(
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n{more}\
         basic_auth_users:\n  prometheus: {hash}\n"
    );
    fs::write(&file, text).expect("the folder is ours");
    file
}

/// Asks for a path and tells the status, `000` where there is no answer by HTTP.
fn status(namespace: &Namespace, folder: &Path, flags: &str, url: &str) -> String {
    let mut curl = namespace.command("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20"]);
    curl.args(flags.split_whitespace()).arg(url).current_dir(folder);
    String::from_utf8_lossy(&curl.output().expect("curl starts").stdout).into_owned()
}

const METRICS: &str = "https://127.0.0.1:9464/metrics";

#[test]
fn a_real_prometheus_scrapes_by_tls_with_a_password_and_nobody_else_sees_anything() {
    as_root(|| {
        let namespace = Namespace::new();
        let folder = certificates();
        let file = web_config(folder.path(), "");
        // Once it is another user the guard can't read root's key any more.
        let flags = format!("--user nobody --metrics 127.0.0.1:9464 --metrics-web-config {}", file.display());
        let guard = Guard::start(&namespace, PROGRAM, RULES, &flags);
        let status = |flags: &str, url: &str| status(&namespace, folder.path(), flags, url);
        for path in ["metrics", "healthz", "readyz", "nothing"] {
            let url = format!("https://127.0.0.1:9464/{path}");
            assert_eq!(status("--cacert ca.pem", &url), "401", "{path}");
        }
        assert_eq!(status("--cacert ca.pem -u prometheus:open", METRICS), "200");
        assert_eq!(status("--cacert ca.pem -u prometheus:wrong", METRICS), "401");
        assert_eq!(status("--cacert ca.pem -u nobody:open", METRICS), "401");
        assert_eq!(status("-u prometheus:open", METRICS), "000", "its authority is unknown");
        assert_eq!(status("-u prometheus:open", "http://127.0.0.1:9464/metrics"), "000", "in the clear");
        let scrape = |job: &str, password: &str| {
            format!(
                "  - job_name: {job}\n    scheme: https\n    tls_config: {{ ca_file: {} }}\n    \
                 basic_auth: {{ username: prometheus, password: {password} }}\n    \
                 static_configs: [{{ targets: ['127.0.0.1:9464'] }}]\n",
                folder.path().join("ca.pem").display()
            )
        };
        let config = folder.path().join("prometheus.yml");
        let scrapes = scrape("bannerwall", "open") + &scrape("stranger", "wrong");
        fs::write(&config, format!("global: {{ scrape_interval: 1s }}\nscrape_configs:\n{scrapes}"))
            .expect("the folder is ours");
        let mut command = namespace.command("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("tsdb").display()));
        command.arg("--web.listen-address=127.0.0.1:9090");
        let _prometheus = Running::start(command);
        for (question, what) in [
            (
                "up{job=\"bannerwall\"} == 1 and on() bannerwall_rules == 1",
                "who knows the password sees the guard",
            ),
            ("up{job=\"stranger\"} == 0", "who does not, does not"),
        ] {
            eventually(what, || {
                let mut curl = namespace.command("curl");
                curl.args(["-sS", "-G", "--max-time", "10", "--data-urlencode"]);
                let output = curl.arg(format!("query={question}")).arg("http://127.0.0.1:9090/api/v1/query");
                let output = output.output().expect("curl starts");
                let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
                (!answer["data"]["result"].as_array()?.is_empty()).then_some(())
            });
        }
        drop(guard);
    });
}

#[test]
fn clients_certificates_and_versions_are_asked_for_and_guessing_is_bounded() {
    as_root(|| {
        let namespace = Namespace::new();
        let folder = certificates();
        let more = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n  \
                    min_version: TLS13\n";
        let file = web_config(folder.path(), more);
        let flags = format!("--metrics 127.0.0.1:9464 --metrics-web-config {}", file.display());
        let _guard = Guard::start(&namespace, PROGRAM, RULES, &flags);
        let status = |flags: &str| status(&namespace, folder.path(), flags, METRICS);
        let shown = "--cacert ca.pem --cert client.pem --key client.key";
        assert_eq!(status(&format!("{shown} -u prometheus:open")), "200");
        assert_eq!(status("--cacert ca.pem -u prometheus:open"), "000", "no certificate");
        let foreign = certificates();
        let client = |name: &str| foreign.path().join(name).display().to_string();
        let other = format!("--cert {} --key {}", client("client.pem"), client("client.key"));
        assert_eq!(
            status(&format!("--cacert ca.pem {other} -u prometheus:open")),
            "000",
            "another authority's"
        );
        assert_eq!(status(&format!("{shown} --tls-max 1.2 -u prometheus:open")), "000", "TLS 1.2");
        let guesses: Vec<String> =
            (0..12).map(|word| status(&format!("{shown} -u prometheus:{word}"))).collect();
        assert!(guesses[..10].iter().all(|status| status == "401"), "{guesses:?}");
        assert_eq!(guesses[11], "429", "{guesses:?}");
        // Whoever has logged in before is of the same address, and sees what it asks for.
        assert_eq!(status(&format!("{shown} -u prometheus:open")), "200");
    });
}

#[test]
fn who_begins_to_ask_amid_the_guesses_of_its_own_address_is_let_in_when_it_asks_again() {
    as_root(|| {
        let namespace = Namespace::new();
        let folder = certificates();
        let file = web_config(folder.path(), "");
        let flags = format!("--metrics 127.0.0.1:9464 --metrics-web-config {}", file.display());
        let _guard = Guard::start(&namespace, PROGRAM, RULES, &flags);
        let mut guess = 0;
        let mut status = |password: Option<&str>| {
            guess += 1;
            let password = password.map_or(format!("guess-{guess}"), str::to_owned);
            status(&namespace, folder.path(), &format!("--cacert ca.pem -u prometheus:{password}"), METRICS)
        };
        eventually("guesses to be refused", || (status(None) == "429").then_some(()));
        eventually("the one who knows the password to be let in", || {
            status(None);
            (status(Some("open")) == "200").then_some(())
        });
        eventually("guesses to be refused again", || (status(None) == "429").then_some(()));
        assert_eq!(status(Some("open")), "200");
    });
}

#[test]
fn a_bad_web_configuration_is_refused_by_every_command_with_metrics() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("the folder is ours");
    };
    place("bad.yml", "basic_auth_users:\n  ann: $apr1$abc$def\n");
    place("unknown.yml", "# ours\ntls_server_config:\n  cert: x\n");
    place("comments.yml", "# nobody yet\n");
    place("rules.toml", RULES);
    let run = |words: &str| {
        let mut command = Command::new(PROGRAM);
        let output = command.args(words.split_whitespace()).current_dir(folder.path()).output();
        let output = output.expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for command in [
        "guard --check --rules rules.toml",
        "scan connect 127.0.0.1 -p 9",
        "scan ssh 127.0.0.1",
        "tunnel --local 127.0.0.1:7 --peer 127.0.0.1:8 --device bw0",
    ] {
        for (file, said) in [
            ("bad.yml", "--metrics-web-config: bad.yml:2: basic_auth_users: ann: not a bcrypt hash"),
            ("unknown.yml", "--metrics-web-config: unknown.yml:3: unknown field `cert`"),
            ("nowhere.yml", "--metrics-web-config: nowhere.yml: No such file"),
        ] {
            let (code, told) = run(&format!("{command} --metrics 127.0.0.1:0 --metrics-web-config {file}"));
            assert_eq!((code, told.contains(said)), (Some(2), true), "{command}: {told}");
        }
        let (code, told) = run(&format!("{command} --metrics-web-config comments.yml"));
        assert_eq!((code, told.contains("--metrics <ADDR:PORT>")), (Some(2), true), "{command}: {told}");
    }
    let asked = "guard --check --rules rules.toml --metrics 127.0.0.1:0 --metrics-web-config comments.yml";
    assert_eq!(run(asked).0, Some(0), "{}", run(asked).1);
}

#[test]
fn scrapes_of_the_guards_own_metrics_and_page_are_neither_events_nor_in_the_inventory() {
    as_root(|| {
        let line = Line::new();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inventory = folder.path().join("inventory.db");
        let flags = format!(
            "--hook input,output --metrics [::]:9464 --serve 127.0.0.1:0 --inventory {}",
            inventory.display()
        );
        let mut guard = Guard::start(&line.server, PROGRAM, RULES, &flags);
        let page = guard.process.wait_stderr("the address", |said| {
            said.lines().find_map(|line| line.strip_prefix("bannerwall: the page is at ").map(str::to_owned))
        });
        for (from, url) in [
            (&line.server, "http://127.0.0.1:9464/metrics"),
            (&line.server, "http://[::1]:9464/metrics"),
            (&line.server, &*page),
            (&line.client, "http://198.51.100.2:9464/metrics"),
            (&line.client, "http://[2001:db8:2::2]:9464/metrics"),
        ] {
            from.run(&format!("curl -sS -g -o /dev/null --max-time 20 {url}"));
        }
        // Another machine's server on the same port is none of the guard's, nor is another one here.
        for (server, address) in [(&line.client, [192, 0, 2, 2]), (&line.server, [127, 0, 0, 1])] {
            let port = if address == [127, 0, 0, 1] { 2222 } else { 9464 };
            let at = std::net::SocketAddr::from((address, port));
            let banner = Banner::start(server, at, b"SSH-2.0-OpenSSH_9.8\r\n", 100);
            let mut stream = line.server.connect(banner.address).expect("it passes");
            stream.read_exact(&mut [0; 21]).expect("it passes");
        }
        let told = eventually("both servers", || {
            let events = guard.events();
            let alerts = events.iter().filter(|event| event["event_type"] == "alert").count();
            (alerts == 2).then_some(events)
        });
        let http: Vec<_> = told.iter().filter(|event| event["event_type"] == "http").collect();
        assert!(http.is_empty(), "{http:?}");
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let output = Command::new(PROGRAM)
            .args(["inventory", "list", "--format", "json", "--inventory"])
            .arg(&inventory)
            .output()
            .expect("it runs");
        let kept = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(kept.contains("9464") && !kept.contains("curl"), "{kept}");
        assert!(!kept.contains("198.51.100.2\",\"port\":9464"), "{kept}");
    });
}
