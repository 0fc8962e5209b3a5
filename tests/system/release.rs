//! What is released: packages that are the same each time, with sums, licenses, and without a fault of lintian.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::packages::{PROGRAM, compressed, name, package};

#[test]
fn a_package_is_the_same_to_the_byte_on_every_machine() {
    let folders = [(), ()].map(|()| TempDir::new().expect("a temporary folder"));
    let made = package("deb", "1", folders[0].path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/package");
    let mut strict = Command::new("sh");
    strict.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(script);
    strict.args(["deb", "--program", PROGRAM, "--compress", "none", "--revision", "1", "--output"]);
    assert!(strict.arg(folders[1].path()).status().expect("sh starts").success());
    let again = folders[1].path().join(name(&made));
    assert!(
        fs::read(&made).expect("made") == fs::read(again).expect("made"),
        "two packages of one commit differ"
    );
}

#[test]
fn packages_name_their_version_and_lie_beside_their_sums_without_a_fault_of_lintian() {
    let folder = TempDir::new().expect("a temporary folder");
    let made = ["deb", "rpm"].map(|kind| compressed(kind, "3", "gzip", folder.path()));
    for file in &made {
        assert!(name(file).contains(concat!(env!("CARGO_PKG_VERSION"), "-3")), "{}", file.display());
    }
    // Made again: its line replaces the one before.
    compressed("deb", "3", "gzip", folder.path());
    for file in &made {
        let beside = file.parent().expect("a folder");
        let sums = fs::read_to_string(beside.join("SHA256SUMS")).expect("sums");
        assert_eq!(sums.lines().filter(|line| line.ends_with(name(file))).count(), 1, "{sums}");
        let check =
            Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(beside).status();
        assert!(check.expect("sha256sum starts").success(), "{sums}");
    }
    let output =
        Command::new("lintian").args(["--no-cfg", "--tag-display-limit", "0"]).arg(&made[0]).output();
    let output = output.expect("lintian is installed");
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let faults: Vec<&str> =
        said.lines().filter(|line| !line.starts_with("N:") && !line.contains("running with root")).collect();
    assert!(faults.is_empty(), "{said}");
}

#[test]
fn every_crate_in_the_program_is_named_in_its_package_with_its_license() {
    let folder = TempDir::new().expect("a temporary folder");
    let deb = package("deb", "1", folder.path());
    let script =
        "dpkg-deb --fsys-tarfile \"$1\" | tar -xO ./usr/share/doc/bannerwall/THIRD-PARTY.gz | gunzip";
    let output = Command::new("sh").args(["-c", script, "sh"]).arg(&deb).output().expect("sh starts");
    let notices = String::from_utf8(output.stdout).expect("a text");
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", "bannerwall", "--edges", "normal", "--prefix", "none"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs these tests");
    let tree = String::from_utf8(tree.stdout).expect("names");
    let crates: BTreeSet<String> = tree
        .lines()
        .filter(|line| !line.starts_with("bannerwall"))
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| format!("{name} {}", rest.split(' ').next().unwrap_or_default()))
        .collect();
    assert!(crates.len() > 100, "{tree}");
    let (names, texts) = notices.split_once(&"=".repeat(80)).expect("names and texts");
    for name in &crates {
        let line = names.lines().find(|line| line.starts_with(&format!("{name}: ")));
        assert!(line.is_some_and(|line| line.contains(", https://")), "{name} is not named");
        let is_told_silent =
            names.split_once("no text of their own").is_some_and(|(_, silent)| silent.contains(name));
        assert!(texts.lines().any(|line| line == name) || is_told_silent, "{name} has no text");
    }
    for text in [
        "Permission is hereby granted, free of charge",
        "Apache License",
        "altered source versions must be plainly marked",
    ] {
        assert!(texts.to_lowercase().contains(&text.to_lowercase()), "{text}");
    }
}
