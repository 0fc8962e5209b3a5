//! Conformance with Recog: every example of its databases gives the fields that it states.
//!
//! The databases are not part of this repository. Point `BANNERWALL_CORPUS` at a folder that holds
//! `recog/*.xml` (as github.com/rapid7/recog has them in `xml/`); without it the test says so and
//! tries nothing.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use bannerwall_import::recog;
use bannerwall_inspect::rules::fingerprint::{FingerprintFile, FingerprintSet};

/// The corpus's Recog databases; none where there is no corpus.
fn databases() -> Vec<PathBuf> {
    let Some(corpus) = std::env::var_os("BANNERWALL_CORPUS") else {
        // Not eprintln!, which the test harness keeps to itself.
        let note = b"SKIPPED: BANNERWALL_CORPUS is not set, so Recog's examples were not tried\n";
        let _ = std::io::stderr().write_all(note);
        return Vec::new();
    };
    let folder = PathBuf::from(corpus).join("recog");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "xml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no *.xml", folder.display());
    files
}

/// How many of a hundred examples must give their fields.
fn required(matches: &str) -> f64 {
    match matches {
        "ssh.banner" => 100.0,
        _ => 99.0,
    }
}

#[test]
fn every_example_gives_the_fields_that_it_states() {
    for path in databases() {
        let imported = recog::import(&path).expect("it is a Recog database");
        for remark in &imported.remarks {
            println!("{}:{remark}", path.display());
        }
        // What is tried is what users load: the converted file, written and read again.
        let document = FingerprintFile { database: vec![imported.database] };
        let text = toml::to_string_pretty(&document).expect("a document can be written");
        let fingerprints =
            FingerprintSet::parse("converted", &text).expect("the converted file can be loaded");
        let database = &document.database[0];
        let (count, mismatches) = recog::verify(database, &fingerprints);
        for mismatch in &mismatches {
            println!("{}: {mismatch}", path.display());
        }
        let given = count - mismatches.len();
        println!("{}: {given} of {count} examples give their fields", path.display());
        if count == 0 {
            // Some of Recog's databases state none.
            continue;
        }
        let percent = 100.0 * f64::from(u32::try_from(given).unwrap_or(0))
            / f64::from(u32::try_from(count).unwrap_or(1));
        assert!(percent >= required(&database.matches), "{}: only {percent:.2} %", path.display());
    }
}

/// Runs `rules import recog` with `arguments`.
fn import(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bannerwall"));
    command.args(["rules", "import", "recog"]).args(arguments).output().expect("the program starts")
}

#[test]
fn the_program_converts_a_database_and_names_what_it_leaves_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let xml = folder.path().join("own.xml");
    let toml = folder.path().join("own.toml");
    let text = r#"<fingerprints matches="ssh.banner" protocol="ssh">
<fingerprint pattern="^Fnord_(\d+)$" flags="REG_ICASE"><description>Fnord</description>
<example service.version="7">FNORD_7</example><param pos="1" name="service.version"/></fingerprint>
<fingerprint pattern="(a)\1"><description>Backreference</description></fingerprint>
</fingerprints>"#;
    std::fs::write(&xml, text).expect("it can be written");
    let (xml, toml) = (xml.to_str().expect("UTF-8"), toml.to_str().expect("UTF-8"));

    let printed = import(&[xml]);
    assert_eq!(printed.status.code(), Some(0));
    let messages = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(messages.contains("own.xml:4: left out \"Backreference\""), "{messages}");
    assert!(messages.contains("1 fingerprints; 1 of 1 examples give their fields"), "{messages}");

    assert_eq!(import(&[xml, "-o", toml]).status.code(), Some(0));
    let written = std::fs::read_to_string(toml).expect("it was written");
    assert_eq!(written, String::from_utf8_lossy(&printed.stdout));
    let fingerprints = FingerprintSet::load(toml.as_ref()).expect("it can be loaded");
    assert_eq!(fingerprints.ssh(b"fnord_12").and_then(|facts| facts.version).as_deref(), Some("12"));
}

#[test]
fn the_program_refuses_what_is_no_database() {
    let refused = import(&[concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    assert_eq!(refused.status.code(), Some(2));
    let messages = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(messages.contains("Cargo.toml:"), "{messages}");
    assert_eq!(import(&["/nonexistent.xml"]).status.code(), Some(2));
}
