//! `bannerwall rules` as its users meet it: what it says, where, and how it ends.

use std::path::Path;
use std::process::{Command, Output};

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
    let text = String::from_utf8(output.stdout).unwrap();
    let shown: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
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
fn a_failing_example_is_a_finding() {
    let output = bannerwall(&["test", &data("regresshion.toml")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = bannerwall(&["test", &data("failing-example.toml")]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("FAILED wrong example") && text.contains("1 failed"), "{text}");
}
