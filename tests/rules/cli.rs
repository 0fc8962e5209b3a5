//! `bannerwall rules` as its users meet it: what it says, where, and how it ends.

use std::path::Path;
use std::process::{Command, Output};

use bannerwall_test_support::json_lines;

fn bannerwall(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bannerwall")).arg("rules").args(arguments).output().unwrap()
}

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rules").join(name).display().to_string()
}

/// Line and column of every fault of `twenty-faults.toml`.
const FAULTS: &[&str] = &[
    "2:1", "5:9", "8:6", "10:7", "15:16", "17:28", "18:10", "23:7", "24:1", "27:1", "28:6", "31:7", "32:12",
    "40:22", "41:13", "42:10", "43:13", "44:19", "44:31", "50:36", "51:11", "52:13", "53:6", "56:1", "59:10",
];

#[test]
fn every_fault_of_a_file_is_named_with_line_and_column() {
    let file = data("twenty-faults.toml");
    let output = bannerwall(&["check", &file]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    let mut shown: Vec<&str> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("error: ") {
            let place = lines.next().and_then(|line| line.trim().strip_prefix("--> ")).unwrap();
            shown.push(place.strip_prefix(&file).and_then(|place| place.strip_prefix(':')).unwrap());
        }
    }
    assert_eq!(shown, FAULTS);
    assert!(text.contains("did you mean `software`?") && text.contains("did you mean `drop`?"), "{text}");
    assert!(text.contains("match.sofware = 'OpenSSH'"), "the line is quoted: {text}");
}

#[test]
fn json_names_the_same_places() {
    let output = bannerwall(&["check", "--format", "json", &data("twenty-faults.toml")]);
    assert_eq!(output.status.code(), Some(2));
    let shown: Vec<String> = json_lines(&output.stdout)
        .iter()
        .filter(|finding| finding["level"] == "error")
        .map(|finding| format!("{}:{}", finding["line"], finding["column"]))
        .collect();
    assert_eq!(shown, FAULTS);
}

#[test]
fn warnings_are_findings() {
    let output = bannerwall(&["check", &data("suspicious.toml")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for expected in [
        "no version can be all of this",
        "the rule has no example",
        "the accept rule `allow-all-openssh`",
        "nothing can match its pattern for `status`",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_banner_is_explained_rule_by_rule() {
    let banner = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3";
    let output = bannerwall(&["test", &data("regresshion.toml"), "--protocol", "ssh", "--banner", banner]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("regresshion: Debian-2+deb12u3 is fixed"), "{text}");
}

#[test]
fn rules_about_the_other_protocol_are_summed_up_for_a_person_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let http = |id: &str| {
        format!("[[rule]]\nid = '{id}'\nprotocol = 'http'\naction = 'alert'\nmatch.status = '2'\n")
    };
    std::fs::write(&file, rule(SSH) + &http("b") + &http("c")).unwrap();
    let explain = |banner: &str, format: &str| {
        let file = file.display().to_string();
        let output = bannerwall(&["test", &file, "--banner", banner, "--format", format]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = explain("SSH-2.0-x", "text");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("alert   a: "), "{text}");
    assert_eq!(lines[1], "2 rules about other protocols were not tested");
    let text = explain("HTTP/1.1 200 OK", "text");
    assert!(
        text.ends_with("1 rule about other protocols was not tested\n") && text.lines().count() == 3,
        "{text}"
    );
    assert_eq!(explain("SSH-2.0-x", "json").lines().count(), 3, "a machine is told of each");
    assert_eq!(explain("SSH-2.0-x", "csv").lines().count(), 4);
}

#[test]
fn a_text_that_is_no_banner_is_judged_as_what_it_is_and_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let http =
        "[[rule]]\nid = 'h'\nprotocol = 'http'\nfrom = 'client'\naction = 'alert'\nmatch.method = '.'\n";
    let other = "[[rule]]\nid = 'o'\nprotocol = 'other'\naction = 'alert'\nmatch.name = '^rfb$'\n";
    std::fs::write(&file, format!("{http}{other}")).unwrap();
    let explain = |flags: &[&str]| {
        let file = file.display().to_string();
        let output = bannerwall(&[&["test", &file, "--banner"], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (said, told) = explain(&["RFB 003.008\\n"]);
    assert!(said.starts_with("alert   o: "), "{said}");
    assert!(told.contains("tested as `other`") && told.contains("--protocol"), "{told}");
    for known in [&["GET / HTTP/1.1"][..], &["SSH-2.0-x"], &["RFB 003.008\\n", "--protocol", "other"]] {
        assert_eq!(explain(known).1, "", "{known:?}");
    }
    assert!(explain(&["GET / HTTP/1.1"]).0.starts_with("alert   h: "));
}

#[test]
fn a_banner_is_explained_with_the_product_that_fingerprints_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rules = "[[rule]]\nid = 'dropbear'\nprotocol = 'ssh'\naction = 'alert'\nmatch.product = '^Dropbear'\nversion = '<2022.83'\n";
    std::fs::write(&file, rules).unwrap();
    let fingerprints = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fingerprints.toml");
    let explain = |banner: &str, flags: &[&str]| {
        let file = file.display().to_string();
        let output = bannerwall(&[["test", &file, "--banner", banner].as_slice(), flags].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let flags = ["--fingerprints", fingerprints];
    assert!(explain("SSH-2.0-dropbear_2020.81", &flags).starts_with("alert "));
    let fixed = explain("SSH-2.0-dropbear_2024.85", &flags);
    assert!(fixed.contains("the version 2024.85 is not <2022.83"), "{fixed}");
    let unnamed = explain("SSH-2.0-dropbear_2020.81", &[]);
    assert!(unnamed.contains("the banner has no `product`"), "{unnamed}");
}

#[test]
fn a_failing_example_is_a_finding() {
    let output = bannerwall(&["test", &data("regresshion.toml")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = bannerwall(&["test", &data("failing-example.toml")]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("FAILED wrong example") && text.contains("1 failed"), "{text}");
}

/// Runs `rules check` on the files of `contents` in a folder of their own; exit code and both outputs.
fn check(contents: &[(&str, &[u8])]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, octets) in contents {
        std::fs::write(folder.path().join(name), octets).unwrap();
    }
    let output = bannerwall(&["check", &folder.path().display().to_string()]);
    let text = [output.stdout, output.stderr].map(|octets| String::from_utf8(octets).unwrap()).concat();
    (output.status.code(), text.replace(&format!("{}/", folder.path().display()), ""))
}

/// A rule whose keys beside `id` are `keys`, from line 2 on.
fn rule(keys: &str) -> String {
    format!("[[rule]]\n{keys}\n")
}

const SSH: &str = "id = 'a'\nprotocol = 'ssh'\naction = 'alert'\nmatch.software = 'x'\n";

#[test]
fn faults_of_every_kind_are_marked_where_they_stand() {
    for (keys, place, message) in [
        ("id = 5", "2:6", "`id` must be a string, not a number"),
        (&*format!("{SSH}serverity = 'low'"), "6:1", "did you mean `severity`?"),
        (&*format!("{SSH}unless.banner = '^(x'"), "6:19", "unclosed group"),
        (&*format!("{SSH}unless.banner = 'a{{5,2}}'"), "6:19", "start must be <= the end"),
        (&*format!("{SSH}unless.banner = 'x{{90000}}{{90000}}'"), "6:17", "larger than 256 KiB"),
        (&*format!("{SSH}unless.banner = ''"), "6:17", "an empty pattern matches every value"),
        (&*format!("{SSH}source = ['192.0.2.0/33']"), "6:11", "not an address, a network or a list"),
        (&*format!("{SSH}destination = '!@nobody'"), "6:15", "no list is named `nobody`"),
        (&*format!("{SSH}port = [22, 70000]"), "6:13", "from 0 to 65535"),
        (&*format!("{SSH}version = '>=1.0 <2.0'"), "6:17", "joined by a comma"),
        (&*format!("{SSH}fixed_in = ['9.2p1']"), "6:13", "write it as banners do"),
        (&*format!("{SSH}severity = 'urgent'"), "6:12", "must be one of `info`"),
        (&*format!("{SSH}count = {{ times = 0, within = '60s' }}"), "6:19", "from 1 to 10000"),
        (&*format!("{SSH}match.status = '2'"), "6:7", "a field of http rules"),
        (&*format!("{SSH}absent = ['Server']"), "6:10", "SSH has none"),
        (&*format!("{SSH}id = 'b'"), "6:1", "duplicate key"),
        (&*format!("{SSH}title = 'no end"), "6:16", "invalid literal string"),
        (&*format!("{SSH}[[rule]]\n{SSH}"), "7:6", "the id `a` was given before"),
        ("id = 'a'\nprotocol = 'ssh'\naction = 'block'\nmatch.software = 'x'", "4:10", "must be one of"),
        ("id = 'a'\nprotocol = 'shs'\naction = 'drop'\nmatch.software = 'x'", "3:12", "did you mean `ssh`?"),
        ("protocol = 'ssh'\naction = 'drop'\nmatch.software = 'x'", "1:1", "the rule has no `id`"),
        ("id = 'a'\nprotocol = 'http'\naction = 'drop'\nmatch.url = 'x'", "5:7", "only a client sends"),
    ] {
        let text = rule(keys);
        let (code, shown) = check(&[("faulty.toml", text.as_bytes())]);
        assert_eq!(code, Some(2), "{keys}: {shown}");
        assert!(shown.contains(&format!("--> faulty.toml:{place}\n")), "{keys}: {shown}");
        assert!(shown.contains(message) && shown.contains(" | "), "{keys}: {shown}");
        let line = place.split_once(':').and_then(|(line, _)| line.parse::<usize>().ok()).unwrap();
        let quoted = text.lines().nth(line - 1).unwrap();
        assert!(shown.contains(&format!("{line} | {quoted}")), "{keys}: {shown}");
    }
}

#[test]
fn files_that_are_no_text_or_too_large_are_named() {
    let good = rule(&format!("{SSH}examples = ['SSH-2.0-x']"));
    let broken = [good.as_bytes(), b"# caf\xe9\n"].concat();
    let (code, shown) = check(&[("good.toml", good.as_bytes()), ("latin.toml", &broken)]);
    assert_eq!(code, Some(2));
    assert!(shown.contains("the byte 0xe9 is not UTF-8\n --> latin.toml:7:6"), "{shown}");
    assert!(!shown.contains("good.toml"), "{shown}");

    let (code, shown) = check(&[("huge.toml", &vec![b'#'; 17 << 20])]);
    assert_eq!(code, Some(2));
    assert!(shown.contains("cannot read huge.toml: larger than 16 MiB"), "{shown}");

    let nowhere = bannerwall(&["check", "/nonexistent/rules.toml"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("/nonexistent/rules.toml"));
}

#[test]
fn what_holds_no_rule_is_suspicious() {
    let (code, shown) = check(&[("notes.txt", b"not a rule file")]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("the folder has no *.toml file"), "{shown}");
    let (code, shown) = check(&[("empty.toml", b"# nothing yet\n")]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("the file holds no rule") && shown.contains("0 rules, 1 warning\n"), "{shown}");
}

#[test]
fn what_a_guard_reads_is_told_with_the_rules_that_ask_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let rule = |id: &str, from: &str, field: &str, action: &str| {
        format!(
            "[[rule]]\nid = \"{id}\"\ntitle = \"t\"\nprotocol = \"http\"\nfrom = \"{from}\"\nmatch.{field} = 'x'\n\
             action = \"{action}\"\nseverity = \"low\"\n"
        )
    };
    let alert = rule("watched", "client", "user_agent", "alert");
    let block = rule("forbidden", "client", "user_agent", "drop");
    let body = rule("page", "server", "body", "alert");
    let of_server = rule("old", "server", "\"header.server\"", "drop");
    for (rules, client, server) in [
        (alert.clone(), "the first request", "the first response"),
        (
            format!("{alert}{body}{block}"),
            "every request: forbidden can block one",
            "the first response: no rule",
        ),
        (
            format!("{of_server}{block}"),
            "every request: forbidden can",
            "the head of every response: old can",
        ),
        (
            format!("{of_server}{body}{block}"),
            "every request: forbidden can",
            "every response up to there: old can block more than requests, and page need",
        ),
    ] {
        let file = folder.path().join("rules.toml");
        std::fs::write(&file, rules).unwrap();
        let output = bannerwall(&["explain", "--inspection", file.to_str().unwrap()]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("from the client: {client}")), "{text}");
        assert!(text.contains(&format!("from the server: {server}")), "{text}");
        let output = bannerwall(&["explain", "--inspection", "--format", "json", file.to_str().unwrap()]);
        assert_eq!(json_lines(&output.stdout).len(), 2);
    }
}
