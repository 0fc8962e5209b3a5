//! Conformance with Recog: every example of its databases gives the fields that it states.
//!
//! The databases are not part of this repository. Point `BANNERWALL_CORPUS` at a folder that holds
//! `recog/*.xml` (as github.com/rapid7/recog has them in `xml/`); without it the test says so and
//! tries nothing.

use std::path::PathBuf;

use bannerwall::rules::fingerprint::{Document, Fingerprints};
use bannerwall::rules::recog;

/// The corpus's Recog databases; none where there is no corpus.
fn databases() -> Vec<PathBuf> {
    let Some(corpus) = std::env::var_os("BANNERWALL_CORPUS") else {
        eprintln!("SKIPPED: BANNERWALL_CORPUS is not set, so Recog's examples were not tried");
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
        let document = Document { database: vec![imported.database] };
        let text = toml::to_string_pretty(&document).expect("a document can be written");
        let fingerprints = Fingerprints::parse("converted", &text).expect("the converted file can be loaded");
        let database = &document.database[0];
        let (count, mismatches) = recog::verify(database, &fingerprints);
        for mismatch in &mismatches {
            println!("{}: {mismatch}", path.display());
        }
        let given = count - mismatches.len();
        println!("{}: {given} of {count} examples give their fields", path.display());
        assert!(count > 0, "{} has no examples", path.display());
        let percent = 100.0 * f64::from(u32::try_from(given).unwrap_or(0))
            / f64::from(u32::try_from(count).unwrap_or(1));
        assert!(percent >= required(&database.matches), "{}: only {percent:.2} %", path.display());
    }
}
