//! What is shipped for Prometheus and Grafana, against a real Prometheus that watches a real guard.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::{Banner, Guard, Namespace, Running, as_root, eventually};
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
                .filter(|text| text.contains("bannerwall_hook_up"))
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
