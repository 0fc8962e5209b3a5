//! The shipped rule packs: well-formed, and right about real banners.

use std::path::PathBuf;

use bannerwall::banner::{Banner, Progress, Side, SshBanner, ssh};
use bannerwall::rules::fingerprint::{Document, Fingerprints};
use bannerwall::rules::{Context, RuleSet, recog};

/// The packs as the repository ships them.
fn shipped() -> RuleSet {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rules");
    let loaded = RuleSet::check(&[folder]).unwrap_or_else(|error| panic!("{error}"));
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.is_empty(), "{}", warnings.join("\n"));
    loaded.rules
}

/// The ids of the rules that match an SSH identification line of `from`.
fn matching<'r>(rules: &'r RuleSet, line: &str, from: Side) -> Vec<&'r str> {
    let octets = format!("{line}\r\n");
    let Progress::Done { value, .. } = ssh::identify(from, octets.as_bytes()) else { panic!("{line}") };
    let banner = Banner::Ssh(SshBanner { from, identification: value.identification, kex: None });
    rules.evaluate(&banner, &Context::default()).iter().map(|found| found.rule.id()).collect()
}

#[test]
fn the_packs_hold_at_least_eighty_rules_with_references_and_examples() {
    let rules = shipped();
    assert!(rules.rules().len() >= 80, "{} rules", rules.rules().len());
    for rule in rules.rules() {
        assert!(!rule.references().is_empty(), "{} names no reference", rule.id());
        assert!(!rule.category().is_empty(), "{} has no category", rule.id());
    }
}

#[test]
fn every_example_matches_its_rule_and_no_counterexample_does() {
    let rules = shipped();
    let failed: Vec<_> = rules
        .trials()
        .filter(|trial| !trial.passed())
        .map(|trial| format!("{}: {}", trial.rule.id(), trial.example.summary()))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    for rule in rules.rules() {
        for expected in [true, false] {
            let count =
                rules.trials().filter(|trial| trial.rule.id() == rule.id() && trial.expected == expected);
            assert!(count.count() > 0, "{} lacks examples that should give {expected}", rule.id());
        }
    }
}

/// The fenced blocks of the guide that open with `fence`.
fn guide_blocks(fence: &str) -> Vec<&'static str> {
    let guide = include_str!("../rules/README.md");
    let opening = format!("\n{fence}\n");
    let blocks = guide.split(opening.as_str()).skip(1);
    blocks.filter_map(|behind| behind.split_once("\n```").map(|(block, _)| block)).collect()
}

#[test]
fn the_guide_s_worked_examples_hold() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("admins.txt"), "# ours\n192.0.2.0/24\n").expect("it can be written");
    let blocks = guide_blocks("```toml");
    assert_eq!(blocks.len(), 5);
    for (number, block) in blocks.iter().enumerate() {
        let file = folder.path().join(format!("{number}.toml"));
        std::fs::write(&file, block).expect("it can be written");
        let loaded = RuleSet::check(&[file]).unwrap_or_else(|error| panic!("{error}"));
        assert!(loaded.warnings.is_empty(), "{block}");
        for trial in loaded.rules.trials() {
            assert!(trial.passed(), "{}: {}", trial.rule.id(), trial.example.summary());
        }
    }
}

#[test]
fn the_guide_s_fingerprints_hold() {
    let blocks = guide_blocks("```toml fingerprints");
    assert_eq!(blocks.len(), 1);
    for block in blocks {
        let document: Document = toml::from_str(block).expect("the guide's file is well-formed");
        let fingerprints = Fingerprints::parse("README.md", block).expect("it compiles");
        let (count, mismatches) = recog::verify(&document.database[0], &fingerprints);
        assert_eq!((count, mismatches), (1, Vec::new()));
    }
}

#[test]
fn terrapin_is_judged_by_the_package_where_a_banner_names_it() {
    let rules = shipped();
    for (line, vulnerable) in [
        ("SSH-2.0-OpenSSH_7.9p1 Debian-10+deb10u2", true),
        ("SSH-2.0-OpenSSH_7.9p1 Debian-10+deb10u4", false),
        ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.9", true),
        ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.10", false),
        ("SSH-2.0-OpenSSH_7.6p1 Ubuntu-4ubuntu0.7", true),
        ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3", true),
        ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3.6", false),
        ("SSH-2.0-OpenSSH_9.6p1 Debian-1", false),
    ] {
        assert_eq!(matching(&rules, line, Side::Server).contains(&"openssh-terrapin"), vulnerable, "{line}");
    }
}

/// What the security trackers of Debian and Ubuntu say of CVE-2024-6387, for the package behind
/// each banner: true where it is vulnerable.
///
/// Debian: bullseye and older not affected, fixed in 1:9.2p1-2+deb12u3 (DSA-5724-1) and 1:9.7p1-7.
/// Ubuntu: focal and older not affected, fixed in 1:8.9p1-3ubuntu0.10, 1:9.3p1-1ubuntu3.6 and
/// 1:9.6p1-3ubuntu13.3 (USN-6859-1); impish had 8.4p1; kinetic and lunar ended before the fix.
const REGRESSHION: &[(&str, bool)] = &[
    ("SSH-2.0-OpenSSH_6.7p1 Debian-5+deb8u4", false),
    ("SSH-2.0-OpenSSH_6.7p1 Debian-5+deb8u5", false),
    ("SSH-2.0-OpenSSH_6.7p1 Debian-5+deb8u8", false),
    ("SSH-2.0-OpenSSH_7.4p1 Debian-10+deb9u2", false),
    ("SSH-2.0-OpenSSH_7.4p1 Debian-10+deb9u3", false),
    ("SSH-2.0-OpenSSH_7.4p1 Debian-10+deb9u4", false),
    ("SSH-2.0-OpenSSH_7.4p1 Debian-10+deb9u5", false),
    ("SSH-2.0-OpenSSH_7.4p1 Debian-10+deb9u6", false),
    ("SSH-2.0-OpenSSH_7.4p1 Debian-10+deb9u7", false),
    ("SSH-2.0-OpenSSH_7.9p1 Debian-10", false),
    ("SSH-2.0-OpenSSH_7.9p1 Debian-10+deb10u1", false),
    ("SSH-2.0-OpenSSH_7.9p1 Debian-10+deb10u2", false),
    ("SSH-2.0-OpenSSH_7.9p1 Debian-10+deb10u3", false),
    ("SSH-2.0-OpenSSH_7.9p1 Debian-10+deb10u4", false),
    ("SSH-2.0-OpenSSH_7.9p1 Debian-10~bpo9+1", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-5", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-5+deb11u1", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-5+deb11u2", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-5+deb11u3", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-5+deb11u4", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-5+deb11u5", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-5~bpo10+1", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-2~bpo10+1", false),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2", true),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u1", true),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2", true),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2~bpo11+1", true),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3", false),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u4", false),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u5", false),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u6", false),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u7", false),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u8", false),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u10", false),
    ("SSH-2.0-OpenSSH_10.0p2 Debian-5", false),
    ("SSH-2.0-OpenSSH_10.0p2 Debian-7", false),
    ("SSH-2.0-OpenSSH_10.0p2 Debian-7+deb13u1", false),
    ("SSH-2.0-OpenSSH_10.0p1 Debian-7", false),
    ("SSH-2.0-OpenSSH_7.6p1 Debian-3", false),
    ("SSH-2.0-OpenSSH_7.6p1 Debian-5", false),
    ("SSH-2.0-OpenSSH_7.7p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_7.7p1 Debian-4", false),
    ("SSH-2.0-OpenSSH_7.8p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_7.9p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_8.0p1 Debian-3", false),
    ("SSH-2.0-OpenSSH_8.1p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_8.1p1 Debian-5", false),
    ("SSH-2.0-OpenSSH_8.2p1 Debian-4", false),
    ("SSH-2.0-OpenSSH_8.3p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-2", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-3", false),
    ("SSH-2.0-OpenSSH_8.4p1 Debian-6", false),
    ("SSH-2.0-OpenSSH_8.7p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_8.7p1 Debian-2", true),
    ("SSH-2.0-OpenSSH_8.7p1 Debian-4", true),
    ("SSH-2.0-OpenSSH_8.8p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_8.9p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_8.9p1 Debian-3", true),
    ("SSH-2.0-OpenSSH_9.0p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.1p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.1p1 Debian-2", true),
    ("SSH-2.0-OpenSSH_9.2p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.3p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.3p2 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.4p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.5p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.5p1 Debian-2", true),
    ("SSH-2.0-OpenSSH_9.6p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.6p1 Debian-2", true),
    ("SSH-2.0-OpenSSH_9.6p1 Debian-3", true),
    ("SSH-2.0-OpenSSH_9.6p1 Debian-4", true),
    ("SSH-2.0-OpenSSH_9.6p1 Debian-5", true),
    ("SSH-2.0-OpenSSH_9.7p1 Debian-1", true),
    ("SSH-2.0-OpenSSH_9.7p1 Debian-2", true),
    ("SSH-2.0-OpenSSH_9.7p1 Debian-4", true),
    ("SSH-2.0-OpenSSH_9.7p1 Debian-5", true),
    ("SSH-2.0-OpenSSH_9.7p1 Debian-6", true),
    ("SSH-2.0-OpenSSH_9.7p1 Debian-7", false),
    ("SSH-2.0-OpenSSH_9.8p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_9.8p1 Debian-2", false),
    ("SSH-2.0-OpenSSH_9.8p1 Debian-3", false),
    ("SSH-2.0-OpenSSH_9.8p1 Debian-8", false),
    ("SSH-2.0-OpenSSH_9.9p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_9.9p1 Debian-3", false),
    ("SSH-2.0-OpenSSH_9.9p2 Debian-1", false),
    ("SSH-2.0-OpenSSH_9.9p2 Debian-2", false),
    ("SSH-2.0-OpenSSH_10.0p2 Debian-1", false),
    ("SSH-2.0-OpenSSH_10.0p2 Debian-8", false),
    ("SSH-2.0-OpenSSH_10.2p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_10.2p1 Debian-2", false),
    ("SSH-2.0-OpenSSH_10.3p1 Debian-1", false),
    ("SSH-2.0-OpenSSH_9.9p1 Debian-3~bpo12+1", false),
    ("SSH-2.0-OpenSSH_7.9p1 Raspbian-10+deb10u2+rpt1", false),
    ("SSH-2.0-OpenSSH_8.4p1 Raspbian-5+deb11u3", false),
    ("SSH-2.0-OpenSSH_9.2p1 Raspbian-2+deb12u2", true),
    ("SSH-2.0-OpenSSH_9.2p1 Raspbian-2+deb12u3", false),
    ("SSH-2.0-OpenSSH_6.6.1p1 Ubuntu-2ubuntu2.10", false),
    ("SSH-2.0-OpenSSH_6.6.1p1 Ubuntu-2ubuntu2.13", false),
    ("SSH-2.0-OpenSSH_6.6.1p1 Ubuntu-2ubuntu2.13+esm1", false),
    ("SSH-2.0-OpenSSH_7.2p2 Ubuntu-4ubuntu2.4", false),
    ("SSH-2.0-OpenSSH_7.2p2 Ubuntu-4ubuntu2.8", false),
    ("SSH-2.0-OpenSSH_7.2p2 Ubuntu-4ubuntu2.10", false),
    ("SSH-2.0-OpenSSH_7.2p2 Ubuntu-4ubuntu2.10+esm5", false),
    ("SSH-2.0-OpenSSH_7.2p2 Ubuntu-4ubuntu2.fips.2.10.4", false),
    ("SSH-2.0-OpenSSH_7.6p1 Ubuntu-4", false),
    ("SSH-2.0-OpenSSH_7.6p1 Ubuntu-4ubuntu0.1", false),
    ("SSH-2.0-OpenSSH_7.6p1 Ubuntu-4ubuntu0.3", false),
    ("SSH-2.0-OpenSSH_7.6p1 Ubuntu-4ubuntu0.5", false),
    ("SSH-2.0-OpenSSH_7.6p1 Ubuntu-4ubuntu0.7", false),
    ("SSH-2.0-OpenSSH_7.6p1 Ubuntu-4ubuntu0.7+esm3", false),
    ("SSH-2.0-OpenSSH_7.5p1 Ubuntu-10", false),
    ("SSH-2.0-OpenSSH_7.5p1 Ubuntu-10ubuntu0.1", false),
    ("SSH-2.0-OpenSSH_7.7p1 Ubuntu-4", false),
    ("SSH-2.0-OpenSSH_7.7p1 Ubuntu-4ubuntu0.2", false),
    ("SSH-2.0-OpenSSH_7.9p1 Ubuntu-10", false),
    ("SSH-2.0-OpenSSH_7.9p1 Ubuntu-10ubuntu0.1", false),
    ("SSH-2.0-OpenSSH_8.0p1 Ubuntu-6build1", false),
    ("SSH-2.0-OpenSSH_8.0p1 Ubuntu-6ubuntu0.1", false),
    ("SSH-2.0-OpenSSH_7.9p1 Ubuntu-10~ubuntu18.04.fips.0.8", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.1", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.2", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.3", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.4", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.5", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.9", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.10", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.11", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.12", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.13", false),
    ("SSH-2.0-OpenSSH_8.2p1 Ubuntu-4ubuntu0.13+esm1", false),
    ("SSH-2.0-OpenSSH_8.3p1 Ubuntu-1", false),
    ("SSH-2.0-OpenSSH_8.3p1 Ubuntu-1ubuntu0.1", false),
    ("SSH-2.0-OpenSSH_8.4p1 Ubuntu-5ubuntu1", false),
    ("SSH-2.0-OpenSSH_8.4p1 Ubuntu-5ubuntu1.2", false),
    ("SSH-2.0-OpenSSH_8.4p1 Ubuntu-6ubuntu2", false),
    ("SSH-2.0-OpenSSH_8.4p1 Ubuntu-6ubuntu2.1", false),
    ("SSH-2.0-OpenSSH_8.7p1 Ubuntu-2build1", true),
    ("SSH-2.0-OpenSSH_8.7p1 Ubuntu-4", true),
    ("SSH-2.0-OpenSSH_8.8p1 Ubuntu-1", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.1", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.3", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.4", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.5", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.6", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.7", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.9", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.6+Fips1", true),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.10", false),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.11", false),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.13", false),
    ("SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.10+Fips1", false),
    ("SSH-2.0-OpenSSH_9.0p1 Ubuntu-1ubuntu7", true),
    ("SSH-2.0-OpenSSH_9.0p1 Ubuntu-1ubuntu7.1", true),
    ("SSH-2.0-OpenSSH_9.0p1 Ubuntu-1ubuntu7.3", true),
    ("SSH-2.0-OpenSSH_9.0p1 Ubuntu-1ubuntu8", true),
    ("SSH-2.0-OpenSSH_9.0p1 Ubuntu-1ubuntu8.4", true),
    ("SSH-2.0-OpenSSH_9.0p1 Ubuntu-1ubuntu8.5", true),
    ("SSH-2.0-OpenSSH_9.0p1 Ubuntu-1ubuntu8.6", true),
    ("SSH-2.0-OpenSSH_9.0p1 Ubuntu-1ubuntu8.7", true),
    ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3", true),
    ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3.1", true),
    ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3.2", true),
    ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3.3", true),
    ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3.4", true),
    ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3.5", true),
    ("SSH-2.0-OpenSSH_9.3p1 Ubuntu-1ubuntu3.6", false),
    ("SSH-2.0-OpenSSH_9.4p1 Ubuntu-1ubuntu1", true),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu1", true),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu2", true),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu11", true),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu12", true),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13", true),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.1", true),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.2", true),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.3", false),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.4", false),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.5", false),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.8", false),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.11", false),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.14", false),
    ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.19", false),
    ("SSH-2.0-OpenSSH_9.7p1 Ubuntu-7ubuntu1", false),
    ("SSH-2.0-OpenSSH_9.7p1 Ubuntu-7ubuntu4", false),
    ("SSH-2.0-OpenSSH_9.7p1 Ubuntu-7ubuntu4.3", false),
    ("SSH-2.0-OpenSSH_9.9p1 Ubuntu-3ubuntu3", false),
    ("SSH-2.0-OpenSSH_9.9p1 Ubuntu-3ubuntu3.2", false),
    ("SSH-2.0-OpenSSH_10.0p2 Ubuntu-5ubuntu5", false),
    ("SSH-2.0-OpenSSH_10.0p1 Ubuntu-5ubuntu5", false),
    ("SSH-2.0-OpenSSH_10.2p1 Ubuntu-2ubuntu1", false),
];

#[test]
fn the_regresshion_rule_agrees_with_the_distributions_trackers() {
    let rules = shipped();
    for (line, vulnerable) in REGRESSHION {
        let found = matching(&rules, line, Side::Server).contains(&"openssh-regresshion");
        assert_eq!(found, *vulnerable, "{line}");
    }
}
