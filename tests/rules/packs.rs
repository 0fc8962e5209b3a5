//! The shipped rule packs: well-formed, and right about real banners.

use std::path::PathBuf;

use bannerwall_import::recog;
use bannerwall_inspect::banner::{Banner, ParseProgress, Side, SshBanner, ssh};
use bannerwall_inspect::rules::fingerprint::{FingerprintFile, FingerprintSet};
use bannerwall_inspect::rules::{BannerContext, ProfileFilter, RuleSelection, RuleSet};

/// The packs as the repository ships them.
fn shipped() -> RuleSet {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rules");
    let loaded = RuleSet::check(&RuleSelection::of(vec![folder])).unwrap_or_else(|error| panic!("{error}"));
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.is_empty(), "{}", warnings.join("\n"));
    loaded.rules
}

/// The ids of the rules that match an SSH identification line of `from`.
fn matching<'r>(rules: &'r RuleSet, line: &str, from: Side) -> Vec<&'r str> {
    let octets = format!("{line}\r\n");
    let ParseProgress::Done { value, .. } = ssh::identify(from, octets.as_bytes()) else { panic!("{line}") };
    let banner = Banner::Ssh(SshBanner { from, identification: value.identification, kex: None });
    rules.evaluate(&banner, &BannerContext::default()).iter().map(|found| found.rule.id()).collect()
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

/// The fenced blocks of a page that open with `fence`.
fn blocks(page: &'static str, fence: &str) -> Vec<&'static str> {
    let opening = format!("\n{fence}\n");
    let blocks = page.split(opening.as_str()).skip(1);
    blocks.filter_map(|behind| behind.split_once("\n```").map(|(block, _)| block)).collect()
}

/// Loads the rule file `text`, which has no faults and whose examples hold.
fn sound(text: &str) -> RuleSet {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("admins.txt"), "# ours\n192.0.2.0/24\n").expect("it can be written");
    let file = folder.path().join("rules.toml");
    std::fs::write(&file, text).expect("it can be written");
    let loaded =
        RuleSet::check(&RuleSelection::of(vec![file])).unwrap_or_else(|error| panic!("{text}\n{error}"));
    assert!(loaded.warnings.is_empty(), "{text}\n{:?}", loaded.warnings);
    for trial in loaded.rules.trials() {
        assert!(trial.passed(), "{}: {}", trial.rule.id(), trial.example.summary());
    }
    loaded.rules
}

#[test]
fn the_book_s_rules_hold() {
    let examples = blocks(include_str!("../../docs/src/rules/examples.md"), "```toml");
    assert_eq!(examples.len(), 8);
    let first = blocks(include_str!("../../docs/src/rules/index.md"), "```toml")[0];
    for rules in examples.into_iter().chain([first]).map(sound) {
        assert!(rules.trials().count() >= 2);
    }
}

#[test]
fn the_book_s_policies_hold_and_so_does_the_one_of_three_lines() {
    let blocks = blocks(include_str!("../../docs/src/rules/policies.md"), "```toml");
    let shipped = include_str!("../../rules/policies/only-ssh-on-22.toml");
    assert_eq!((blocks.len(), shipped.lines().count()), (2, 3));
    assert_eq!(blocks[0], shipped.trim_end(), "the page shows it");
    for text in blocks {
        assert!(!sound(text).policies().is_empty());
    }
    assert!(include_str!("../../README.md").contains(shipped), "the README shows it");
}

#[test]
fn the_book_s_advisory_holds() {
    let blocks = blocks(include_str!("../../docs/src/rules/advisories.md"), "```toml");
    assert_eq!(blocks.len(), 1);
    assert_eq!(sound(blocks[0]).trials().count(), 4);
}

#[test]
fn the_book_s_overrides_hold() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let local = folder.path().join("local.toml");
    let blocks = blocks(include_str!("../../docs/src/rules/overrides.md"), "```toml");
    assert_eq!(blocks.len(), 1);
    std::fs::write(&local, blocks[0]).expect("it can be written");
    let rules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rules");
    let profiles = ProfileFilter::Named(vec!["guard".to_owned()]);
    let selection =
        RuleSelection { rules: vec![rules], local: vec![local], profiles, ..RuleSelection::default() };
    let loaded = RuleSet::load(&selection).unwrap_or_else(|error| panic!("{error}"));
    assert!(loaded.warnings.is_empty());
    let rule = |id: &str| loaded.rules.rules().iter().find(|rule| rule.id() == id);
    assert!(rule("http-framing-allowed").is_some(), "an override wins over a profile");
    assert!(rule("http-no-content-security-policy").is_none());
    assert_eq!(rule("ssh-terrapin-cbc").expect("it is there").changes().len(), 1);
    assert_eq!(rule("jenkins-cli-file-read").expect("it is there").action().name(), "alert");
}

#[test]
fn the_book_s_fingerprints_hold() {
    let blocks = blocks(include_str!("../../docs/src/rules/fingerprints.md"), "```toml");
    let document: FingerprintFile = toml::from_str(blocks[0]).expect("the page's file is well-formed");
    let fingerprints = FingerprintSet::parse("fingerprints.md", blocks[0]).expect("it compiles");
    let (count, mismatches) = recog::verify(&document.database[0], &fingerprints);
    assert_eq!((count, mismatches), (1, Vec::new()));
}

/// What the security trackers of Debian and Ubuntu say of the two weaknesses, for every package of
/// OpenSSH from 2018 on that they list: `affected`, `no`, or `?` where they say nothing.
///
/// Packages are those of the `debian/changelog` of unstable, trixie, bookworm and bullseye, and of
/// Ubuntu's OSV records (`UBUNTU-CVE-2024-6387`, `UBUNTU-CVE-2025-61984`), FIPS builds included.
/// CVE-2024-6387: Debian fixed it in 1:9.2p1-2+deb12u3 (DSA-5724-1) and 1:9.7p1-7, bullseye and older
/// are not affected; Ubuntu in 1:8.9p1-3ubuntu0.10, 1:9.3p1-1ubuntu3.6 and 1:9.6p1-3ubuntu13.3
/// (USN-6859-1), focal and older are not affected; what ended before stays as it was.
const PACKAGES: &str = include_str!("../data/openssh-packages.csv");

/// The line with which a package's server introduces itself.
fn banner(distribution: &str, package: &str) -> String {
    let version = package.strip_prefix("1:").expect("OpenSSH's epoch");
    let (upstream, revision) = version.rsplit_once('-').expect("a revision");
    // What these two releases say of themselves is not what they are called.
    let shown = match upstream {
        "10.0p1" => "10.0p2",
        "6.6p1" => "6.6.1p1",
        other => other,
    };
    format!("SSH-2.0-OpenSSH_{shown} {distribution}-{revision}")
}

#[test]
fn weaknesses_of_openssh_are_judged_as_the_distributions_trackers_do() {
    let rules = shipped();
    let mut reader = csv::Reader::from_reader(PACKAGES.as_bytes());
    let (mut judged, mut wrong) = (0, Vec::new());
    for row in reader.records() {
        let row = row.expect("a well-formed table");
        let line = banner(&row[0], &row[1]);
        let found = matching(&rules, &line, Side::Server);
        for (rule, expected) in [("openssh-regresshion", &row[2]), ("openssh-terrapin", &row[3])] {
            let said = if found.contains(&rule) { "affected" } else { "no" };
            judged += 1;
            if expected != "?" && expected != said {
                wrong.push(format!("{rule} says {said} of {line}"));
            }
        }
    }
    assert!(judged >= 600, "only {judged} judgements");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Packages that others made of the distributions', and what no distribution made: true where
/// CVE-2024-6387 is in it.
const REGRESSHION: &[(&str, bool)] = &[
    ("SSH-2.0-OpenSSH_7.9p1 Raspbian-10+deb10u2+rpt1", false),
    ("SSH-2.0-OpenSSH_8.4p1 Raspbian-5+deb11u3", false),
    ("SSH-2.0-OpenSSH_9.2p1 Raspbian-2+deb12u2", true),
    ("SSH-2.0-OpenSSH_9.2p1 Raspbian-2+deb12u3", false),
    ("SSH-2.0-OpenSSH_8.4p1", false),
    // No distribution speaks, so nobody knows.
    ("SSH-2.0-OpenSSH_8.5p1", false),
    ("SSH-2.0-OpenSSH_9.7p1", false),
    ("SSH-2.0-OpenSSH_9.2p1 zoo keeper", false),
    ("SSH-2.0-OpenSSH_9.7p1 Debian-5+bananapi1", true),
    ("SSH-2.0-OpenSSH_9.8p1", false),
    ("SSH-2.0-OpenSSH_10.0p2 Debian-7+deb13u1", false),
    // OpenBSD's own sshd and the one of Windows are not affected.
    ("SSH-2.0-OpenSSH_9.6", false),
    ("SSH-2.0-OpenSSH_for_Windows_8.6", false),
];

#[test]
fn regresshion_is_told_apart_where_no_distribution_speaks() {
    let rules = shipped();
    for (line, vulnerable) in REGRESSHION {
        let found = matching(&rules, line, Side::Server).contains(&"openssh-regresshion");
        assert_eq!(found, *vulnerable, "{line}");
    }
}

/// A rule that stops connections says what tells a fixed package from others: `rules check` warns of
/// those that don't, and the packs have no warning. Here the warning itself is tried.
#[test]
fn a_rule_that_stops_what_a_distribution_may_have_mended_is_warned_of() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("rule.toml");
    let warnings = |more: &str, example: &str| {
        let text = format!(
            "[[rule]]\nid = \"a\"\nprotocol = \"ssh\"\nmatch.software = '^x_(?<version>[0-9.]+)'\nversion = \"<2\"\n\
             references = [\"CVE-2025-32433\"]\nexamples = [{example}]\n{more}\n"
        );
        std::fs::write(&file, &text).expect("it can be written");
        let loaded =
            RuleSet::check(&RuleSelection::of(vec![file.clone()])).unwrap_or_else(|error| panic!("{error}"));
        loaded.warnings.len()
    };
    let named = "\"SSH-2.0-x_1.0 Debian-2+deb12u1\"";
    let bare = "\"SSH-2.0-x_1.0\"";
    assert_eq!(warnings("action = \"drop\"", bare), 1);
    assert_eq!(warnings("action = \"reject\"", named), 1);
    assert_eq!(warnings("action = \"alert\"", bare), 0);
    assert_eq!(warnings("action = \"drop\"\ncertain = \"nobody packages it\"", bare), 0);
    let fixed = "action = \"drop\"\nfixed_in = [\"1.0 Debian-2+deb12u2\"]";
    assert_eq!((warnings(fixed, named), warnings(fixed, bare)), (0, 1));
    let kex = "{ banner = \"SSH-2.0-x_1.0\", kex = \"a\" }";
    assert_eq!(warnings("action = \"drop\"\nunless.kex = 'kex-strict'", kex), 0);
}
