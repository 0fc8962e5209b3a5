//! The HTTP scan as users run it, against real servers: every answer, octet for octet, is what `curl`
//! gets for the same page when it asks for that alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use bannerwall_test_support::{Apache, Namespace, Nginx, PythonHttp, json_lines};

/// Pages of many sizes, some missing: more than Apache answers on one connection, and bodies beyond
/// one buffer, one segment and one TCP window.
const PAGES: usize = 230;

/// One answer: status line, header fields but for the date, and body.
type Answer = (String, Vec<(String, String)>, String);

fn path(number: usize) -> String {
    match number {
        0 => "/".to_owned(),
        _ if number.is_multiple_of(11) => format!("/missing-{number}"),
        _ => format!("/page-{number}.html"),
    }
}

/// The body of a page; printable, so that it goes through JSON as it is.
fn body(number: usize) -> String {
    let line = format!("<p>This is page {number} and no other.</p>\n");
    let lines = match number % 23 {
        5 => 0,
        7 => 120,
        13 => 2000,
        rest => rest,
    };
    format!("<title>page {number}</title>\n{}", line.repeat(lines))
}

fn write_pages(root: &Path) {
    let write = |name: String, body: String| {
        let mut file = fs::File::create(root.join(name)).expect("the folder is ours");
        file.write_all(body.as_bytes()).expect("there is room");
        // Apache calls the tag of what is younger than a second a weak one.
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).expect("a time");
    };
    for number in (1..PAGES).filter(|number| !number.is_multiple_of(11)) {
        write(format!("page-{number}.html"), body(number));
    }
    write("index.html".to_owned(), body(0));
}

/// Rules that catch every body, and ask for half of the pages: a third of those that the command line
/// asks for too, so that they are asked once for both.
fn write_rules(folder: &Path) -> PathBuf {
    let mut rules = String::from(
        "[[rule]]\nid = \"body\"\ntitle = \"body\"\nprotocol = \"http\"\nfrom = \"server\"\n\
         match.body = '(?s)^(?<version>.*)$'\naction = \"alert\"\n",
    );
    for number in (0..PAGES).step_by(2) {
        let path = path(number);
        write!(
            rules,
            "[[rule]]\nid = \"asks-{number}\"\ntitle = \"asks\"\nprotocol = \"http\"\nfrom = \"server\"\n\
             request = {{ method = \"GET\", path = \"{path}\" }}\nmatch.status = '.'\naction = \"alert\"\n"
        )
        .expect("text can be written");
    }
    let file = folder.join("rules.toml");
    fs::write(&file, rules).expect("the folder is ours");
    file
}

/// What curl gets, one connection a page.
fn by_curl(namespace: &Namespace, folder: &Path, port: u16) -> BTreeMap<String, Answer> {
    let mut config = String::new();
    for number in 0..PAGES {
        let path = path(number);
        let file = folder.join(format!("answer-{number}"));
        writeln!(
            config,
            "next\nurl = \"http://127.0.0.1:{port}{path}\"\noutput = \"{}\"\n\
             header = \"Connection: close\"\nheader = \"User-Agent: bannerwall/{}\"\ninclude\nsilent\npath-as-is",
            file.display(),
            env!("CARGO_PKG_VERSION"),
        )
        .expect("text can be written");
    }
    let file = folder.join("curl.conf");
    fs::write(&file, config.trim_start_matches("next\n")).expect("the folder is ours");
    let output = namespace.command("curl").arg("--config").arg(&file).output().expect("curl starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = |number| {
        let octets = fs::read(folder.join(format!("answer-{number}"))).expect("curl wrote it");
        (path(number), split(&String::from_utf8(octets).expect("text")))
    };
    (0..PAGES).map(answer).collect()
}

fn split(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    let status = lines.next().expect("a status line");
    let field = |line: &str| {
        let (name, value) = line.split_once(':').expect("a field");
        (name.to_owned(), value.trim().to_owned())
    };
    (status.to_owned(), comparable(lines.map(field)), body.to_owned())
}

/// Fields that are the same whenever and on whatever connection a page is asked for.
fn comparable(fields: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    fields.filter(|(name, _)| !["Date", "Connection", "Keep-Alive"].contains(&name.as_str())).collect()
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What the scan gets, and how many answers each page had.
fn by_scan(
    namespace: &Namespace,
    folder: &Path,
    port: u16,
    flags: &[&str],
) -> (BTreeMap<String, Answer>, BTreeMap<String, u32>) {
    let mut command: Command = namespace.command(env!("CARGO_BIN_EXE_bannerwall"));
    command.args(["scan", "http", "127.0.0.1", "--format", "json", "--body-limit", "1000000"]);
    command.args(["-p", &port.to_string(), "--total-timeout", "60s", "--rules"]).arg(write_rules(folder));
    for number in (0..PAGES).filter(|number| !number.is_multiple_of(2) || number.is_multiple_of(3)) {
        command.args(["--path", &path(number)]);
    }
    let output = command.args(flags).output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let (mut answers, mut times) = (BTreeMap::<String, Answer>::new(), BTreeMap::new());
    for event in json_lines(&output.stdout) {
        let http = &event["http"];
        match event["event_type"].as_str() {
            Some("http") => {
                *times.entry(text(&http["url"])).or_default() += 1;
                let answer = answers.entry(text(&http["url"])).or_default();
                let fields = http["response_headers"].as_array().expect("fields");
                answer.1 =
                    comparable(fields.iter().map(|field| (text(&field["name"]), text(&field["value"]))));
            }
            Some("alert") if event["bannerwall"]["rule"] == "body" => {
                let answer = answers.entry(text(&http["url"])).or_default();
                answer.0 = text(&event["bannerwall"]["banner"]);
                answer.2 = text(&event["bannerwall"]["version"]);
            }
            _ => {}
        }
    }
    (answers, times)
}

fn assert_same(namespace: &Namespace, port: u16) {
    let folder = tempfile::tempdir().expect("a folder");
    let expected = by_curl(namespace, folder.path(), port);
    assert_eq!(expected.len(), PAGES);
    for flags in [&[][..], &["--host-connections", "4"], &["--no-pipeline"]] {
        let (answers, times) = by_scan(namespace, folder.path(), port, flags);
        for (path, answer) in &expected {
            assert_eq!(answers.get(path), Some(answer), "{path} {flags:?}");
        }
        assert_eq!(answers.len(), PAGES, "{flags:?}");
        assert!(times.values().all(|times| *times == 1), "each is asked once: {times:?}");
    }
}

#[test]
fn nginx_gives_curl_and_the_scan_the_same() {
    let namespace = Namespace::new();
    let nginx = Nginx::start(&namespace, 8001, "etag on;");
    write_pages(nginx.root());
    assert_same(&namespace, 8001);
}

#[test]
fn apache_gives_curl_and_the_scan_the_same() {
    let namespace = Namespace::new();
    let apache = Apache::start(&namespace, 8002);
    write_pages(apache.root());
    assert_same(&namespace, 8002);
}

#[test]
fn python_gives_curl_and_the_scan_the_same() {
    let namespace = Namespace::new();
    let python = PythonHttp::start(&namespace, 8003);
    write_pages(python.root());
    assert_same(&namespace, 8003);
}
