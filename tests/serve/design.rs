//! The page's design: it fits narrow and wide windows, each control has a label, and text has contrast, dark and
//! light. The report reads and prints.

use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::Running;
use bannerwall_test_support::page::curl;

use crate::browser::Browser;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// A folder with an inventory of some tens of hosts, with weeks of findings.
fn inventory() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("net.db");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/sample-inventory");
    let made =
        Command::new("/usr/bin/python3").arg(script).arg(&file).status().expect("python3 is installed");
    assert!(made.success());
    (folder, file)
}

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")
}

/// A page that knows the shipped rules; its address ends with a slash.
fn site(inventory: &Path) -> (Running, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--no-local", "--inventory"]).arg(inventory);
    command.arg("--rules").arg(rules());
    let process = Running::start(command);
    let url = process.wait_stderr("the address", |said| {
        said.lines().find_map(|line| line.strip_prefix("bannerwall: the page is at ").map(str::to_owned))
    });
    (process, url)
}

#[test]
fn each_page_fits_and_reads_at_both_widths_dark_and_light() {
    let (_folder, file) = inventory();
    let (_process, url) = site(&file);
    let mut browser = Browser::start();
    for path in [
        "",
        "findings",
        "findings?severity=critical&sort=affected",
        "rules/openssh-regresshion",
        "cves/CVE-2024-6387",
        "hosts",
        "hosts?sort=worst",
        "hosts/198.51.100.18",
        "hosts/192.0.2.11",
        "services",
        "services?sort=last",
        "changes",
        "live",
        "try",
        "try?rule=openssh-terrapin",
        "try?port=22&allow=ssh",
        "scans",
        "search?q=openssh",
        "search?q=nothing-of-this-name",
        "nowhere",
    ] {
        let complaints = browser.go(&format!("{url}{path}"));
        assert!(path == "nowhere" || complaints.is_empty(), "{path}: {complaints:?}");
        // Folded parts are looked at, too.
        browser.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true; })");
        assert_eq!(browser.faults(), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn findings_rules_hosts_and_cves_lead_to_each_other() {
    let (_folder, file) = inventory();
    let (_process, url) = site(&file);
    let page = |path: &str| {
        let (status, body) = curl(&[&format!("{url}{path}")]);
        assert_eq!(status, 200, "{path}: {body}");
        body
    };
    let overview = page("");
    assert!(overview.contains("Worst now: "), "{overview}");
    for link in ["/findings?severity=critical", "/rules/openssh-regresshion", "/hosts/198.51.100."] {
        assert!(overview.contains(&format!("href=\"{link}")), "{link}: {overview}");
    }
    assert!(page("findings").contains("href=\"/rules/openssh-regresshion\""));
    let rule = page("rules/openssh-regresshion");
    for part in [
        "Why it matters",
        "How to fix it",
        "9.2p1 Debian-2+deb12u3",
        "href=\"/cves/CVE-2024-6387\"",
        "href=\"/hosts/198.51.100.18\"",
        "Try this rule",
    ] {
        assert!(rule.contains(part), "{part}: {rule}");
    }
    assert!(page("cves/CVE-2024-6387").contains("href=\"/rules/openssh-regresshion\""));
    assert!(page("hosts/198.51.100.18").contains("href=\"/rules/openssh-regresshion\""));

    // A rule is tried where it is explained, although it only alerts.
    let (status, tried) = curl(&["-d", "rule=openssh-terrapin", &format!("{url}try")]);
    assert!(status == 200 && tried.contains("These rules would cut off"), "{status} {tried}");
    assert!(tried.contains("action = &#34;drop&#34;"), "{tried}");
    assert!(page("try?port=22&allow=ssh").contains("id = &#34;only-ssh-on-22&#34;"));

    // One box finds what a text names.
    let found = |text: &str| {
        let (_, location) = curl(&[
            "-o",
            "/dev/null",
            "-w",
            "%{redirect_url}\n%{http_code}",
            "-G",
            "--data-urlencode",
            &format!("q={text}"),
            &format!("{url}search"),
        ]);
        location
    };
    for (text, path) in [
        ("198.51.100.18", "hosts/198.51.100.18"),
        ("cve-2024-6387", "cves/CVE-2024-6387"),
        ("openssh-regresshion", "rules/openssh%2Dregresshion"),
        ("product:nginx", "services?q=product%3Anginx"),
    ] {
        assert!(found(text).contains(&format!("{url}{path}")), "{text}: {}", found(text));
    }
    assert!(page("search?q=dropbear").contains("product%3A%22Dropbear%22"));
}

#[test]
fn tables_are_sorted_divided_and_exported() {
    let (_folder, file) = inventory();
    let (_process, url) = site(&file);
    let page = |path: &str| curl(&[&format!("{url}{path}")]);
    let (_, worst) = page("hosts?sort=worst&limit=3");
    assert!(worst.matches("severity critical").count() == 3 && worst.contains("after=3"), "{worst}");
    let (_, second) = page("hosts?sort=worst&limit=3&after=3");
    assert!(second.contains("after=6"), "{second}");
    for bad in ["hosts?sort=x", "services?sort=x", "findings?sort=x", "findings?severity=x", "cves/x"] {
        assert_eq!(page(bad).0, 400, "{bad}");
    }
    // A wrong filter stays in its field, to be corrected.
    for list in ["services", "hosts", "findings", "changes"] {
        let (status, wrong) = page(&format!("{list}?q=colour%3Ared"));
        assert!(status == 400 && wrong.contains("value=\"colour:red\""), "{list}: {status} {wrong}");
    }
    // Programs that pass an order get an error instead of another order.
    assert_eq!(page("api/services?sort=last").0, 400);
    let (_, csv) = page("services.csv?q=product:dropbear");
    assert!(csv.starts_with("address,port,protocol,side,state,product,version"), "{csv}");
    assert_eq!(csv.matches("Dropbear").count(), 6, "{csv}");
    let (_, csv) = page("findings.csv?severity=critical&sort=affected");
    let affected = csv.lines().skip(1).map(|line| line.rsplit(',').nth(5).expect("a column"));
    let affected: Vec<u32> = affected.map(|count| count.parse().expect("a number")).collect();
    assert!(affected.len() > 3 && affected.is_sorted_by(|one, other| one >= other), "{csv}");
    assert!(
        page("changes.csv").1.contains("finding_new")
            && page("hosts.csv").1.contains("198.51.100.18,critical")
    );
}

#[test]
fn a_report_is_one_file_that_reads_and_prints() {
    let (folder, file) = inventory();
    let report = folder.path().join("report.html");
    let mut command = Command::new(PROGRAM);
    command.args(["inventory", "report", "--no-local", "--inventory"]).arg(&file).arg("--rules").arg(rules());
    let output = command.arg("-o").arg(&report).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&report).expect("it was written");
    for part in [
        "Findings by severity",
        "What to do first",
        "What changed in 7 days",
        "Who is affected",
        "Upgrade the software",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("href=\"/") && !text.contains("src="), "it needs nothing else");
    let mut browser = Browser::start();
    assert_eq!(browser.go(&format!("file://{}", report.display())), Vec::<serde_json::Value>::new());
    assert_eq!(browser.faults(), Vec::<String>::new());
    let pdf = folder.path().join("report.pdf");
    browser.obey(&serde_json::json!({ "pdf": pdf }));
    let printed = std::fs::read(&pdf).expect("it was printed");
    assert!(printed.starts_with(b"%PDF-") && printed.len() > 10_000, "{}", printed.len());
    // A4, in points.
    assert!(String::from_utf8_lossy(&printed).contains("/MediaBox [0 0 59"), "the style sets the size");
}
