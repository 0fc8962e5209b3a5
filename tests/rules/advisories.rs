//! Advisories of distributions as rules: what `rules import` makes of them, and what the rules then say.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bannerwall_test_support::json_lines;
use serde_json::Value;

fn bannerwall(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bannerwall")).arg("rules").args(arguments).output().unwrap()
}

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/advisories").join(name).display().to_string()
}

/// Rules that were imported, in a folder of their own.
struct Rules {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Rules {
    fn import(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("imported.toml");
        let output = bannerwall(&[&["import"], arguments, &["-o", file.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { _folder: folder, file }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }

    /// What each rule says of a banner that it was asked about.
    fn say(&self, banner: &str) -> Vec<Value> {
        self.ask(&["--banner", banner])
    }

    fn ask(&self, question: &[&str]) -> Vec<Value> {
        let file = self.file.to_str().unwrap();
        let output = bannerwall(&[&["test", file, "--format", "json"], question].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json_lines(&output.stdout).into_iter().filter(|said| !said["verdict"].is_null()).collect()
    }

    /// The verdict and the fix that one rule gives.
    fn verdict(&self, rule: &str, banner: &str) -> Option<(String, Option<String>)> {
        let said = self.say(banner).into_iter().find(|said| said["rule"] == rule)?;
        let text = |key: &str| said[key].as_str().map(str::to_owned);
        Some((text("verdict")?, text("fixed")))
    }
}

fn imported() -> Rules {
    let report = ["--report", "affected,unknown"];
    Rules::import(&[&["debian", &data("debian.json"), "--date", "2026-11-20"], &report[..]].concat())
}

#[test]
fn a_package_is_judged_by_its_own_release_and_the_fix_is_named() {
    let rules = imported();
    let (race, terrapin) = ("debian-openssh-cve-2024-6387", "debian-openssh-cve-2023-48795");
    let bookworm = Some("1:9.2p1-2+deb12u3");
    let sid = Some("1:9.7p1-7");
    for (rule, banner, verdict, fixed) in [
        (race, "9.2p1 Debian-2+deb12u2", "affected", bookworm),
        (race, "9.2p1 Debian-2+deb12u3", "fixed", bookworm),
        (race, "9.2p1 Debian-2+deb12u10", "fixed", bookworm),
        (race, "9.2p1 Debian-2", "affected", bookworm),
        (race, "9.2p1 Debian-2~bpo11+1", "affected", bookworm),
        (race, "9.2p1 Raspbian-2+deb12u2+rpt1", "affected", bookworm),
        (race, "9.2p1 Debian-2+deb12u2.example1", "unknown", bookworm),
        (race, "8.4p1 Debian-5+deb11u1", "fixed", None),
        (race, "8.4p1 Debian-5", "fixed", None),
        // Of a release that the data do not know: older than any that is affected, or begun with the fix.
        (race, "7.9p1 Debian-10+deb10u4", "unknown", sid),
        (race, "9.8p1 Debian-1+deb99u1", "fixed", sid),
        (race, "9.3p1 Debian-1", "affected", sid),
        (race, "9.7p1 Debian-7", "fixed", sid),
        (race, "10.0p2 Debian-7+deb13u1", "fixed", sid),
        (race, "8.9p1 Debian-1", "unknown", sid),
        // No revision: the upstream version may tell.
        (race, "9.2p1", "unknown", bookworm),
        (race, "9.2p1 a word", "unknown", bookworm),
        (race, "8.7", "unknown", sid),
        (race, "9.8p1", "fixed", sid),
        (terrapin, "8.4p1 Debian-5+deb11u2", "affected", Some("1:8.4p1-5+deb11u3")),
        (terrapin, "9.2p1 Debian-2+deb12u2", "fixed", Some("1:9.2p1-2+deb12u2")),
        ("debian-openssh-cve-2099-1001", "9.2p1 Debian-2+deb12u7", "affected", None),
        ("debian-openssh-cve-2099-1001", "9.2p1 Debian-2+deb12u8", "unknown", None),
        ("debian-openssh-cve-2099-1001", "8.4p1 Debian-5+deb11u3", "unknown", None),
        ("debian-openssh-cve-2099-1001", "10.0p2 Debian-7", "unknown", None),
    ] {
        let said = rules.verdict(rule, &format!("SSH-2.0-OpenSSH_{banner}"));
        assert_eq!(said, Some((verdict.to_owned(), fixed.map(str::to_owned))), "{rule} of {banner}");
    }
    // Another distribution's package is no affair of Debian's data.
    assert_eq!(rules.verdict(race, "SSH-2.0-OpenSSH_8.9p1 Ubuntu-3ubuntu0.7"), None);
    assert_eq!(rules.verdict(race, "SSH-2.0-OpenSSH_9.6 FreeBSD-20240318"), None);
}

/// A KEXINIT with these lists of key exchanges and ciphers, as it is sent.
fn kexinit(kex: &str, encryption: &str) -> Vec<u8> {
    let mac = "hmac-sha2-256,hmac-sha2-256-etm@openssh.com";
    let lists = [kex, "ssh-ed25519", encryption, encryption, mac, mac, "none", "none", "", ""];
    let mut payload = [vec![20], vec![0; 16]].concat();
    for list in lists {
        payload.extend_from_slice(&u32::try_from(list.len()).unwrap().to_be_bytes());
        payload.extend_from_slice(list.as_bytes());
    }
    payload.extend_from_slice(&[0; 5]);
    let padding = 16 - (payload.len() + 5) % 8;
    let length = u32::try_from(payload.len() + padding + 1).unwrap();
    let head = [&length.to_be_bytes()[..], &[u8::try_from(padding).unwrap()]].concat();
    [head, payload, vec![0; padding]].concat()
}

/// A strict key exchange, ciphers that Terrapin attacks, and others.
const STRICT: &str = "kex-strict-s-v00@openssh.com";
const CHACHA20: &str = "chacha20-poly1305@openssh.com";
const COUNTER: &str = "aes128-ctr";

#[test]
fn the_key_exchange_tells_what_the_banner_hides_and_no_more() {
    let rules = imported();
    let (race, terrapin) = ("debian-openssh-cve-2024-6387", "debian-openssh-cve-2023-48795");
    let (open, dropbear) = ("debian-openssh-cve-2099-1001", "debian-dropbear-cve-2023-48795");
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    let bound = "sntrup761x25519-sha512";
    for (rule, banner, kex, encryption, verdict, marker) in [
        (terrapin, "OpenSSH_9.2p1", STRICT, CHACHA20, "fixed", Some("strict-kex-server")),
        (terrapin, "OpenSSH_9.2p1", "curve25519-sha256", CHACHA20, "affected", Some("terrapin-chacha20")),
        (terrapin, "OpenSSH_9.2p1", "curve25519-sha256", "aes128-cbc", "affected", Some("terrapin-cbc")),
        // Neither of the ciphers: the package may be fixed or not.
        (terrapin, "OpenSSH_9.2p1", "curve25519-sha256", COUNTER, "unknown", None),
        (terrapin, "OpenSSH_9.2p1", "kex-strict-s-v00@openssh.com.example", COUNTER, "unknown", None),
        (
            terrapin,
            "OpenSSH_8.4p1 Debian-5+deb11u2.example1",
            STRICT,
            CHACHA20,
            "fixed",
            Some("strict-kex-server"),
        ),
        // A package that tells for itself is not overruled; where it is denied, nobody can tell.
        (terrapin, "OpenSSH_9.2p1 Debian-2+deb12u1", "curve25519-sha256", CHACHA20, "affected", None),
        (terrapin, "OpenSSH_9.2p1 Debian-2+deb12u1", "curve25519-sha256", COUNTER, "affected", None),
        (terrapin, "OpenSSH_9.2p1 Debian-2+deb12u2", STRICT, CHACHA20, "fixed", None),
        (terrapin, "OpenSSH_9.2p1 Debian-2+deb12u1", STRICT, CHACHA20, "unknown", Some("strict-kex-server")),
        (
            terrapin,
            "OpenSSH_9.2p1 Debian-2+deb12u2",
            "curve25519-sha256",
            "aes128-cbc",
            "unknown",
            Some("terrapin-cbc"),
        ),
        (terrapin, "OpenSSH_9.2p1", bound, COUNTER, "fixed", Some("debian-12-openssh-sntrup761")),
        (terrapin, "OpenSSH_9.2p1", bound, CHACHA20, "unknown", Some("debian-12-openssh-sntrup761")),
        (dropbear, "dropbear_2022.83", STRICT, CHACHA20, "fixed", Some("strict-kex-server")),
        (dropbear, "dropbear_2022.83", "curve25519-sha256", CHACHA20, "affected", Some("terrapin-chacha20")),
        // One patch proves no other.
        (race, "OpenSSH_9.2p1", STRICT, CHACHA20, "unknown", None),
        (race, "OpenSSH_9.2p1", bound, CHACHA20, "fixed", Some("debian-12-openssh-sntrup761")),
        (race, "OpenSSH_9.3p1", bound, CHACHA20, "unknown", None),
        (race, "OpenSSH_9.2p1 Debian-2+deb12u2.example1", bound, CHACHA20, "unknown", None),
        (open, "OpenSSH_9.2p1", bound, CHACHA20, "unknown", None),
    ] {
        let banner = format!("SSH-2.0-{banner}");
        fs::write(&said, [banner.as_bytes(), b"\r\n", &kexinit(kex, encryption)].concat()).unwrap();
        let rows = rules.ask(&["--banner", &banner, "--kexinit", said.to_str().unwrap()]);
        let row = rows.iter().find(|row| row["rule"] == rule).unwrap();
        assert_eq!(
            (row["verdict"].as_str(), row["marker"].as_str()),
            (Some(verdict), marker),
            "{banner} {kex}: {row}"
        );
        let reason = row["reason"].as_str().unwrap();
        let strict = "offers kex-strict-s-v00@openssh.com, which came with the patch";
        match (marker, verdict) {
            (Some("strict-kex-server"), "fixed") => {
                assert!(reason.starts_with(&format!("fixed: {strict}")), "{reason}");
            }
            (Some("strict-kex-server"), _) => {
                let denied = "which contradicts this: Debian 12 is fixed from 1:9.2p1-2+deb12u2 on";
                assert!(reason.contains(strict) && reason.contains(denied), "{reason}");
            }
            _ => {}
        }
    }
    // The same from a text, which says the fields in words.
    fs::write(&said, format!("kex = \"{STRICT}\"\nencryption = \"{CHACHA20}\"\n")).unwrap();
    let rows = rules.ask(&["--banner", "SSH-2.0-OpenSSH_9.2p1", "--kexinit", said.to_str().unwrap()]);
    assert!(rows.iter().any(|row| row["rule"] == terrapin && row["verdict"] == "fixed"), "{rows:?}");
}

#[test]
fn a_file_without_a_kexinit_is_refused_with_the_reason() {
    let rules = imported();
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    for (text, word) in [
        (&b"kex = 7\n"[..], "invalid type"),
        (b"lists = \"a\"\n", "unknown field"),
        (b"SSH-2.0-x\r\n\0\0", "cut off"),
        (b"SSH-2.0-x\r\n\0\0\0\x08\x04\x05", "kexinit"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u7\r\n", "no KEXINIT behind the identification"),
        (b"Welcome\r\nSSH-2.0-x\r\n", "no KEXINIT behind the identification"),
        (b"", "empty"),
        (b"# nothing\n", "empty"),
    ] {
        fs::write(&said, text).unwrap();
        let file = rules.file.to_str().unwrap();
        let output =
            bannerwall(&["test", file, "--banner", "SSH-2.0-x", "--kexinit", said.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{}", text.escape_ascii());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(said.to_str().unwrap()) && told.contains(word), "{told}");
    }
}

#[test]
fn a_marker_of_packages_says_nothing_of_what_was_mended_later() {
    let folder = tempfile::tempdir().unwrap();
    let (tracker, said) = (folder.path().join("tracker.json"), folder.path().join("said"));
    let weakness = |name: &str, fixed: &str| {
        format!(
            r#""{name}": {{"scope": "remote", "releases": {{"bookworm": {{"status": "resolved", "repositories": {{"bookworm": "1:9.2p1-2+deb12u7"}}, "fixed_version": "{fixed}", "urgency": "high"}}, "sid": {{"status": "resolved", "repositories": {{"sid": "1:10.0p1-7"}}, "fixed_version": "1:9.9p2-1", "urgency": "high"}}}}}}"#
        )
    };
    let (in_it, later) = ("1:9.2p1-2+deb12u4", "1:9.2p1-2+deb12u5");
    let text = [weakness("CVE-2099-1004", in_it), weakness("CVE-2099-1005", later)].join(", ");
    fs::write(&tracker, format!("{{\"openssh\": {{{text}}}}}")).unwrap();
    let rules = Rules::import(&["debian", tracker.to_str().unwrap()]);
    fs::write(&said, kexinit("sntrup761x25519-sha512", CHACHA20)).unwrap();
    let rows = rules.ask(&["--banner", "SSH-2.0-OpenSSH_9.2p1", "--kexinit", said.to_str().unwrap()]);
    let verdicts: Vec<_> = rows.iter().map(|row| (row["rule"].as_str(), row["verdict"].as_str())).collect();
    let of = |rule, verdict| (Some(rule), Some(verdict));
    let expected =
        [of("debian-openssh-cve-2099-1004", "fixed"), of("debian-openssh-cve-2099-1005", "unknown")];
    assert!(expected.iter().all(|row| verdicts.contains(row)), "{rows:?}");
}

#[test]
fn a_guard_judges_by_the_key_exchange_once_it_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let tracker = data("debian.json");
    let choice = ["debian", &tracker, "--since", "2023", "--action", "drop", "--report", "affected,unknown"];
    let blocking = Rules::import(&choice);
    let expect_of = |software: &str, rules: &[&Path], octets: &[u8], verdict: &str| {
        let said = format!(
            "server: SSH-2.0-{software}\\r\\n{}",
            octets.iter().map(|octet| format!("\\x{octet:02x}")).collect::<String>()
        );
        let files: Vec<&str> = rules.iter().map(|file| file.to_str().unwrap()).collect();
        let flow = ["--flow", "22", "--say", &said, "--expect", verdict];
        let output = bannerwall(&[&["test"], &files[..], &flow[..]].concat());
        assert!(output.status.success(), "{verdict}: {}", String::from_utf8_lossy(&output.stdout));
    };
    let expect = |rules: &[&Path], octets: &[u8], verdict: &str| {
        expect_of("OpenSSH_9.2p1", rules, octets, verdict);
    };
    let weak = kexinit("curve25519-sha256", CHACHA20);
    expect(&[&blocking.file], &kexinit("curve25519-sha256", CHACHA20), "drop");
    expect(&[&blocking.file], &kexinit(STRICT, CHACHA20), "alert");
    expect(&[&blocking.file], &kexinit("curve25519-sha256", COUNTER), "alert");
    // No KEXINIT will come: nobody can tell.
    expect(&[&blocking.file], b"\0\0\0\x0c\x0a\x63\0\0\0\0\0\0\0\0\0\0", "alert");
    // What a package tells stands, unless the key exchange denies it.
    let only = Rules::import(&[&choice[..], &["--product", "openssh"]].concat());
    let terrapin = folder.path().join("terrapin.toml");
    let text = only.text();
    let rule = text.split("[[rule]]").find(|rule| rule.contains("cve-2023-48795\"")).unwrap();
    fs::write(&terrapin, format!("[[rule]]{rule}")).unwrap();
    let package = "OpenSSH_9.2p1 Debian-2+deb12u1";
    expect_of(package, &[&terrapin], &weak, "drop");
    expect_of(package, &[&terrapin], &kexinit(STRICT, CHACHA20), "alert");
    expect_of(package, &[&terrapin], b"\0\0\0\x0c\x0a\x63\0\0\0\0\0\0\0\0\0\0", "drop");
    expect_of("OpenSSH_9.2p1 Debian-2+deb12u2", &[&terrapin], &weak, "alert");
    let accept = folder.path().join("accept.toml");
    let text =
        "[[rule]]\nid = \"ours\"\nprotocol = \"ssh\"\nmatch.software = '^OpenSSH_9'\naction = \"accept\"\n";
    fs::write(&accept, text).unwrap();
    expect(&[&accept, &blocking.file], &weak, "pass");
}

#[test]
fn a_banner_that_hides_its_package_is_told_so() {
    let rules = imported();
    let answer = |server: &str| {
        let banner = format!("HTTP/1.1 200 OK\\r\\nServer: {server}");
        rules.verdict("debian-nginx-cve-2099-2002", &banner).map(|(verdict, _)| verdict)
    };
    for (server, verdict) in [
        ("nginx/1.22.1 (Debian)", Some("unknown")),
        ("nginx/1.22.1", Some("unknown")),
        ("nginx/1.18.0 (Debian)", Some("fixed")),
        ("nginx/1.18.0", Some("unknown")),
        ("nginx/1.28.0", Some("fixed")),
        ("nginx/1.26.0", Some("unknown")),
        ("nginx/1.22.1 (Ubuntu)", None),
        ("openresty/1.22.1", None),
    ] {
        assert_eq!(answer(server).as_deref(), verdict, "{server}");
    }
    let fix =
        rules.verdict("debian-nginx-cve-2099-2002", "HTTP/1.1 200 OK\\r\\nServer: nginx/1.22.1 (Debian)");
    assert_eq!(fix, Some(("unknown".to_owned(), Some("1.22.1-9+deb12u2".to_owned()))));
    let dropbear = rules.verdict("debian-dropbear-cve-2023-48795", "SSH-2.0-dropbear_2022.83");
    assert_eq!(dropbear, Some(("unknown".to_owned(), Some("2022.83-1+deb12u1".to_owned()))));
}

/// What the security tracker says of every package of OpenSSH from 2018 on.
const PACKAGES: &str = include_str!("../data/openssh-packages.csv");

#[test]
fn no_package_is_called_what_it_is_not() {
    let ubuntu = Rules::import(&["osv", &data("ubuntu")]);
    no_wrong_answer("Debian", &imported(), 140);
    no_wrong_answer("Ubuntu", &ubuntu, 170);
}

fn no_wrong_answer(distribution: &str, rules: &Rules, least: usize) {
    let mut reader = csv::Reader::from_reader(PACKAGES.as_bytes());
    let (mut told, mut wrong) = (0, Vec::new());
    for row in reader.records().map(|row| row.unwrap()).filter(|row| &row[0] == distribution) {
        let (upstream, revision) = row[1].strip_prefix("1:").unwrap().rsplit_once('-').unwrap();
        let shown = match upstream {
            "10.0p1" => "10.0p2",
            "6.6p1" => "6.6.1p1",
            other => other,
        };
        let banner = format!("SSH-2.0-OpenSSH_{shown} {distribution}-{revision}");
        for said in rules.say(&banner) {
            let truth = match said["rule"].as_str() {
                Some(rule) if rule.ends_with("-openssh-cve-2024-6387") => &row[2],
                Some(rule) if rule.ends_with("-openssh-cve-2023-48795") => &row[3],
                _ => continue,
            };
            told += usize::from(said["verdict"] != "unknown");
            if matches!(
                (said["verdict"].as_str(), truth),
                (Some("affected"), "no") | (Some("fixed"), "affected")
            ) {
                wrong.push(format!("{banner}: {said}"));
            }
        }
    }
    assert!(told >= least, "only {told} answers");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ubuntu_s_packages_are_judged_by_the_list_and_newer_ones_by_the_fix() {
    let rules = Rules::import(&["osv", &data("ubuntu"), "--severity", "info"]);
    let (race, terrapin) = ("osv-openssh-cve-2024-6387", "osv-openssh-cve-2023-48795");
    let jammy = Some("1:8.9p1-3ubuntu0.10");
    for (rule, banner, verdict, fixed) in [
        (race, "8.9p1 Ubuntu-3ubuntu0.9", "affected", jammy),
        (race, "8.9p1 Ubuntu-3ubuntu0.10", "fixed", jammy),
        (race, "8.9p1 Ubuntu-3ubuntu0.99", "fixed", jammy),
        (race, "8.9p1 Ubuntu-3ubuntu0.13+Fips1", "fixed", jammy),
        (race, "8.9p1 Ubuntu-3ubuntu0.4+Fips1", "unknown", None),
        (race, "8.9p1 Ubuntu-3", "affected", jammy),
        // A number that never was: the list does not hold it.
        (race, "8.9p1 Ubuntu-3ubuntu0.8", "unknown", jammy),
        (race, "9.6p1 Ubuntu-3ubuntu13.2", "affected", Some("1:9.6p1-3ubuntu13.3")),
        // Known and not listed.
        (race, "8.2p1 Ubuntu-4ubuntu0.5", "fixed", None),
        (race, "8.2p1 Ubuntu-4ubuntu0.99", "unknown", None),
        (race, "9.7p1 Ubuntu-7ubuntu4.2", "fixed", None),
        (race, "12.0p1 Ubuntu-1ubuntu1", "unknown", None),
        (race, "9.2p1 Ubuntu-2+deb12u3", "unknown", None),
        (terrapin, "6.6.1p1 Ubuntu-2ubuntu2.13", "affected", None),
        (terrapin, "7.2p2 Ubuntu-4ubuntu2.10+esm4", "affected", Some("1:7.2p2-4ubuntu2.10+esm5")),
        (terrapin, "7.2p2 Ubuntu-4ubuntu2.10+esm7", "fixed", Some("1:7.2p2-4ubuntu2.10+esm5")),
        (terrapin, "7.2p2 Ubuntu-4ubuntu2.fips.2.10.7", "unknown", None),
        ("osv-openssh-cve-2099-3003", "9.9p1 Ubuntu-3ubuntu3", "affected", None),
        ("osv-openssh-cve-2099-3003", "9.9p1 Ubuntu-3ubuntu3.1", "unknown", None),
        // No longer maintained when this was published: nobody says that it is not affected.
        ("osv-openssh-cve-2099-3003", "9.3p1 Ubuntu-1ubuntu3.6", "unknown", None),
        ("osv-openssh-cve-2099-3003", "8.9p1 Ubuntu-3ubuntu0.7", "fixed", None),
        (race, "8.9p1", "unknown", jammy),
    ] {
        let said = rules.verdict(rule, &format!("SSH-2.0-OpenSSH_{banner}"));
        assert_eq!(said, Some((verdict.to_owned(), fixed.map(str::to_owned))), "{rule} of {banner}");
    }
    assert_eq!(rules.verdict(race, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2"), None);
    assert_eq!(rules.verdict(race, "SSH-2.0-OpenSSH_9.9"), None, "the data name no such version");
}

#[test]
fn upstream_s_own_packages_are_mended_outside_of_the_ranges() {
    let rules = Rules::import(&["osv", &data("pypi")]);
    assert_eq!(rules.text().matches("[[rule]]").count(), 1, "what was withdrawn is no weakness");
    for (version, verdict, fixed) in [
        ("2.2.2", "unknown", Some("2.2.3")),
        ("2.2.3", "fixed", None),
        ("3.0.1", "unknown", None),
        ("3.0.2", "fixed", None),
    ] {
        let banner = format!("HTTP/1.1 200 OK\\r\\nServer: Werkzeug/{version} Python/3.11.2");
        let said = rules.verdict("osv-PyPI:werkzeug-cve-2099-4004", &banner);
        assert_eq!(said, Some((verdict.to_owned(), fixed.map(str::to_owned))), "{version}");
    }
}

#[test]
fn the_national_database_tells_what_upstream_mended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nvd.toml");
    let output = bannerwall(&["import", "nvd", &data("nvd.json"), "-o", file.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("1 rule\n") && said.contains("left out: 1 "), "{said}");
    let rules = Rules { _folder: folder, file };
    let text = rules.text();
    assert!(text.contains("severity = \"high\"") && text.contains("An example in a range"), "{text}");
    for (banner, verdict, fixed) in [
        ("9.7p1 Debian-7", "unknown", Some("9.8")),
        ("9.7", "unknown", Some("9.8")),
        ("9.8p1", "fixed", None),
        ("8.5p1", "unknown", None),
        ("8.5p2", "fixed", None),
        ("8.4p1 Ubuntu-6ubuntu2", "fixed", None),
        ("4.3p2", "unknown", Some("4.4")),
    ] {
        let said = rules.verdict("nvd-openssh-cve-2099-5005", &format!("SSH-2.0-OpenSSH_{banner}"));
        assert_eq!(said, Some((verdict.to_owned(), fixed.map(str::to_owned))), "{banner}");
    }
}

#[test]
fn distributions_whose_banners_show_no_package_name_what_mends() {
    let alpine = Rules::import(&["alpine", &data("alpine.json")]);
    let redhat = Rules::import(&["redhat", &data("redhat.json"), "--severity", "high"]);
    let unknown = |fixed: &str| Some(("unknown".to_owned(), Some(fixed.to_owned())));
    let fixed = "9.3_p2-r0";
    assert_eq!(alpine.verdict("alpine-openssh-cve-2099-6006", "SSH-2.0-OpenSSH_9.3"), unknown(fixed));
    assert_eq!(alpine.verdict("alpine-openssh-cve-2099-6006", "SSH-2.0-OpenSSH_9.2p1 Debian-2"), None);
    assert_eq!(alpine.verdict("alpine-openssh-cve-2099-6007", "SSH-2.0-OpenSSH_9.3"), None);
    let fixed = "0:8.7p1-38.el9_4.1";
    assert_eq!(redhat.verdict("redhat-openssh-cve-2099-7007", "SSH-2.0-OpenSSH_8.7"), unknown(fixed));
    assert_eq!(redhat.verdict("redhat-openssh-cve-2099-7007", "SSH-2.0-OpenSSH_8.0"), None);
    for rules in [alpine, redhat] {
        let output = bannerwall(&["check", rules.file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn other_formats_are_refused_with_their_place_too() {
    let folder = tempfile::tempdir().unwrap();
    let (file, rules) = (folder.path().join("data.json"), folder.path().join("rules.toml"));
    let nvd = |criteria: &str| {
        format!(
            "{{\"vulnerabilities\": [\n{{\"cve\": {{\"id\": \"CVE-2099-1\", \"configurations\": [{{\"nodes\": [{{\"cpeMatch\": [{{\"vulnerable\": true, \"criteria\": {criteria}}}]}}]}}]}}}}]}}"
        )
    };
    let deep = format!("{{\"vulnerabilities\": {}", "[".repeat(1 << 16));
    for (source, text, word) in [
        ("nvd", "{}".to_owned(), "missing field `vulnerabilities`"),
        ("nvd", nvd("\"cpe:/a:b:c\""), "data.json:2:"),
        ("nvd", nvd("\"cpe:/a:b:c\""), "is no CPE 2.3 name"),
        ("nvd", nvd("7"), "invalid type"),
        ("nvd", deep, "nested deeper"),
        ("alpine", "{\"distroversion\": \"v3\"}".to_owned(), "data.json:1:"),
        ("alpine", "{\"distroversion\": \"v3\", \"packages\": [{\"pkg\": {\"name\": \"openssh\", \"secfixes\": {\"x y\": []}}}]}".to_owned(), "no package version"),
        ("redhat", "[]".to_owned(), "data.json:1:"),
        ("redhat", "{\"document\": {}, \"vulnerabilities\": [{\"cve\": \"a b\"}]}".to_owned(), "is not a vulnerability's name"),
    ] {
        fs::write(&file, &text).unwrap();
        let output = bannerwall(&["import", source, file.to_str().unwrap(), "-o", rules.to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word) && !rules.exists(), "{source}, {word}: {said}");
    }
}

/// Real data, where there are any: `tracker.json` and whatever `*.zip` of OSV records lies beside it.
#[test]
fn real_data_give_rules_that_hold() {
    let Some(folder) = std::env::var_os("BANNERWALL_ADVISORIES").map(PathBuf::from) else { return };
    let path = |name: &str| folder.join(name).display().to_string();
    let osv = |entry: fs::DirEntry| {
        entry.path().extension().is_some_and(|ending| ending == "zip").then(|| entry.path())
    };
    let archives: Vec<PathBuf> = fs::read_dir(&folder).unwrap().flatten().filter_map(osv).collect();
    let mut imports: Vec<Rules> =
        archives.iter().map(|zip| Rules::import(&["osv", zip.to_str().unwrap()])).collect();
    if folder.join("tracker.json").exists() {
        imports.push(Rules::import(&["debian", &path("tracker.json")]));
    }
    for rules in imports {
        let output = bannerwall(&["test", rules.file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn archives_give_what_folders_do_and_a_bomb_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("all.zip");
    let mut writer = zip::ZipWriter::new(fs::File::create(&archive).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    let mut records: Vec<_> =
        fs::read_dir(data("ubuntu")).unwrap().map(|entry| entry.unwrap().path()).collect();
    records.reverse();
    for record in &records {
        writer.start_file(record.file_name().unwrap().to_str().unwrap(), options).unwrap();
        writer.write_all(&fs::read(record).unwrap()).unwrap();
    }
    writer.start_file("README.txt", options).unwrap();
    writer.finish().unwrap();
    let date = ["--date", "2026-11-20"];
    let packed = Rules::import(&[&["osv", archive.to_str().unwrap()], &date[..]].concat());
    let plain = Rules::import(&[&["osv", &data("ubuntu")], &date[..]].concat());
    assert_eq!(packed.text(), plain.text());
    let rules = folder.path().join("rules.toml");
    let refuse = |path: &Path| {
        let output = bannerwall(&["import", "osv", path.to_str().unwrap(), "-o", rules.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(!rules.exists());
        String::from_utf8(output.stderr).unwrap()
    };
    let bomb = folder.path().join("bomb.zip");
    let mut writer = zip::ZipWriter::new(fs::File::create(&bomb).unwrap());
    writer.start_file("a.json", options).unwrap();
    let blanks = vec![b' '; 1 << 20];
    (0..100).for_each(|_| writer.write_all(&blanks).unwrap());
    writer.finish().unwrap();
    let said = refuse(&bomb);
    assert!(said.contains("bomb.zip:a.json: ") && said.contains("more than 16 MiB"), "{said}");
    // One member too many, and one that says so of ever so many.
    let many = folder.path().join("many.zip");
    let count = 500_001_u32;
    let member = [&b"PK\x01\x02"[..], &[0; 24], &[1, 0], &[0; 16], b"a"].concat();
    let large = |count: u64, octets: usize| {
        let sizes = [count, count, octets as u64, 0].map(u64::to_le_bytes).concat();
        let end = [&b"PK\x06\x06"[..], &44_u64.to_le_bytes(), &[45, 0, 45, 0], &[0; 8], &sizes].concat();
        let at = [&b"PK\x06\x07"[..], &[0; 4], &(octets as u64).to_le_bytes(), &[1, 0, 0, 0]].concat();
        [end, at, [&b"PK\x05\x06"[..], &[0; 4], &[0xff; 12], &[0; 2]].concat()].concat()
    };
    let members = member.repeat(count as usize);
    fs::write(&many, [&members[..], &large(count.into(), members.len())].concat()).unwrap();
    let said = refuse(&many);
    assert!(said.contains("many.zip: 500001 members, more than the 500000"), "{said}");
    fs::write(&many, large(1 << 40, 0)).unwrap();
    assert!(refuse(&many).contains("many.zip: 1099511627776 members"));
    let broken = folder.path().join("broken.zip");
    let whole = fs::read(&archive).unwrap();
    fs::write(&broken, &whole[..whole.len() / 2]).unwrap();
    assert!(refuse(&broken).contains("broken.zip: "));
    let record = folder.path().join("record.json");
    for (text, word) in [
        ("{\"id\": 7}", "record.json:1:9: invalid type"),
        (
            "{\"id\": \"CVE-2024-1\", \"affected\": [{\"package\": {\"ecosystem\": \"Ubuntu:22.04:LTS\", \"name\": \"openssh\"}, \"versions\": [\"1_2\"]}]}",
            "no package version",
        ),
        ("{\"id\": \"a\\nb\", \"affected\": []}", "is not a vulnerability's name"),
    ] {
        fs::write(&record, text).unwrap();
        let said = refuse(&record);
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn rules_are_of_the_day_that_the_data_tell_and_else_of_that_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let day = |arguments: &[&str]| {
        let rules = Rules::import(arguments);
        let days: std::collections::BTreeSet<String> = rules
            .text()
            .lines()
            .filter_map(|line| {
                line.strip_prefix("advisory.date = ").map(|day| day.trim_matches('"').to_owned())
            })
            .collect();
        days.into_iter().collect::<Vec<_>>().join(" ")
    };
    let record = |name: &str, modified: &str| {
        let path = folder.path().join(name);
        let affected = r#"{"package": {"ecosystem": "PyPI", "name": "werkzeug"}, "ranges": [{"type": "ECOSYSTEM",
            "events": [{"introduced": "0"}, {"fixed": "2.3.8"}]}]}"#;
        let grave = r#""database_specific": {"severity": "HIGH"}"#;
        let text =
            format!(r#"{{"id": "{name}", "modified": "{modified}", "affected": [{affected}], {grave}}}"#);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (old, new) =
        (record("CVE-2023-1", "2024-02-29T12:00:00Z"), record("CVE-2023-2", "2025-07-01T00:00:00Z"));
    assert_eq!(day(&["osv", &old]), "2024-02-29");
    assert_eq!(day(&["osv", &new, &old]), "2025-07-01");
    assert_eq!(day(&["osv", &old, "--date", "2026-11-20"]), "2026-11-20");
    // What tells nothing, and what tells no day.
    let touched =
        Command::new("touch").args(["-d", "2022-03-04T05:06:07Z"]).arg(record("CVE-2023-3", "late")).status();
    assert!(touched.unwrap().success());
    assert_eq!(day(&["osv", folder.path().join("CVE-2023-3").to_str().unwrap()]), "2022-03-04");
}

#[test]
fn a_guard_stops_what_is_vulnerable_and_what_cannot_be_told_only_by_choice() {
    let expect = |rules: &Rules, banner: &str, verdict: &str| {
        let end = if banner.contains("\\r\\n") { "" } else { "\\r\\n" };
        let said = format!("server: SSH-2.0-OpenSSH_{banner}{end}");
        let file = rules.file.to_str().unwrap();
        let output = bannerwall(&["test", file, "--flow", "22", "--say", &said, "--expect", verdict]);
        assert!(output.status.success(), "{banner}: {}", String::from_utf8_lossy(&output.stdout));
    };
    let tracker = data("debian.json");
    let usual = ["debian", &tracker, "--since", "2024", "--action", "drop"];
    let blocking = Rules::import(&[&usual[..], &["--report", "affected,unknown"]].concat());
    expect(&blocking, "9.2p1 Debian-2+deb12u2", "drop");
    expect(&Rules::import(&usual), "9.2p1 Debian-2+deb12u2", "drop");
    expect(&Rules::import(&usual), "9.2p1 Debian-2+deb12u8", "pass");
    expect(&blocking, "9.2p1 Debian-2+deb12u8", "alert");
    let strict: String = kexinit(STRICT, CHACHA20).iter().map(|octet| format!("\\x{octet:02x}")).collect();
    let hidden = format!("9.2p1\\r\\n{strict}");
    expect(&blocking, &hidden, "alert");
    expect(&blocking, "9.6p1 Ubuntu-3ubuntu13", "pass");
    let choice = ["debian", &data("debian.json"), "--since", "2024", "--action", "drop", "--block-unknown"];
    expect(&Rules::import(&choice), &hidden, "drop");
    let told = ["debian", &data("debian.json"), "--since", "2024", "--action", "drop", "--report", "fixed"];
    expect(&Rules::import(&told), "9.2p1 Debian-2+deb12u3", "alert");
}

#[test]
fn a_scan_tells_the_verdict_in_every_format() {
    let rules = imported();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for mut client in server.incoming().flatten() {
            let _ = client.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2\r\n");
        }
    });
    let scan = |format: &str| {
        let file = rules.file.to_str().unwrap();
        let arguments = ["scan", "ssh", "127.0.0.1", "-p", &port, "--rules", file, "--format", format];
        let output = Command::new(env!("CARGO_BIN_EXE_bannerwall")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let events = json_lines(&scan("json"));
    let rule = "debian-openssh-cve-2024-6387";
    let alert = events.iter().find(|event| event["bannerwall"]["rule"] == rule).unwrap();
    let advisory = &alert["bannerwall"]["advisory"];
    assert_eq!(advisory["verdict"], "affected");
    assert_eq!(advisory["fixed"], "1:9.2p1-2+deb12u3");
    assert_eq!(
        (&advisory["source"], &advisory["date"]),
        (&"Debian security tracker".into(), &"2026-11-20".into())
    );
    let reason = advisory["reason"].as_str().unwrap();
    assert_eq!(reason, "Debian 12 is fixed from 1:9.2p1-2+deb12u3 on");
    for (format, wanted) in [
        ("text", format!("affected: {reason}")),
        ("csv", format!("affected,{}", "1:9.2p1-2+deb12u3")),
        ("xml", "<elem key=\"verdict\">affected</elem>".to_owned()),
        ("grepable", format!("{rule}(high, affected)")),
    ] {
        let text = String::from_utf8(scan(format)).unwrap();
        assert!(text.contains(&wanted) && text.contains(rule), "{format}: {text}");
    }
}

#[test]
fn a_scan_names_the_marker_that_decided_in_formats_for_machines() {
    let rules = imported();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for mut client in server.incoming().flatten() {
            let said = [b"SSH-2.0-OpenSSH_9.2p1\r\n", &kexinit(STRICT, CHACHA20)[..]].concat();
            let _ = client.write_all(&said);
            // Until the scan has read it.
            let _ = std::io::copy(&mut client, &mut std::io::sink());
        }
    });
    // A fixed one is worth a match by choice alone.
    let text = rules.text().replace("[\"affected\", \"unknown\"]", "[\"fixed\"]");
    let text: String =
        text.lines().filter(|line| !line.contains("examples = ")).map(|line| format!("{line}\n")).collect();
    let file = rules.file.with_file_name("fixed.toml");
    fs::write(&file, text).unwrap();
    let scan = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bannerwall"));
        command.args(["scan", "ssh", "127.0.0.1", "-p", &port, "--format", format, "--rules"]).arg(&file);
        let output = command.args(["--read-timeout", "20s", "--total-timeout", "60s"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let (rule, marker) = ("debian-openssh-cve-2023-48795", "strict-kex-server");
    let octets = scan("csv");
    let mut table = csv::Reader::from_reader(&octets[..]);
    let column = |headers: &csv::StringRecord, name: &str| headers.iter().position(|it| it == name).unwrap();
    let headers = table.headers().unwrap().clone();
    let rows: Vec<_> = table.records().map(Result::unwrap).collect();
    let row = rows.iter().find(|row| row.iter().any(|cell| cell == rule)).unwrap();
    let cells = ["verdict", "marker"].map(|name| row.get(column(&headers, name)).unwrap());
    assert_eq!(cells, ["fixed", marker], "{row:?}");
    let xml = String::from_utf8(scan("xml")).unwrap();
    let script = xml
        .split("<script ")
        .find(|script| script.starts_with(&format!("id=\"bannerwall-{rule}\"")))
        .unwrap();
    for (key, value) in [("verdict", "fixed"), ("marker", marker)] {
        assert!(script.contains(&format!("<elem key=\"{key}\">{value}</elem>")), "{script}");
    }
}

#[test]
fn an_import_takes_little_more_room_than_its_rules() {
    let folder = tempfile::tempdir().unwrap();
    let (data, rules) = (folder.path().join("tracker.json"), folder.path().join("rules.toml"));
    let releases: serde_json::Map<String, Value> = [("bullseye", 11), ("bookworm", 12), ("trixie", 13)]
        .map(|(name, number)| {
            let [newest, fixed] = [7, 2].map(|update| format!("1:9.2p1-2+deb{number}u{update}"));
            let said = serde_json::json!({ "status": "resolved", "repositories": { name: newest },
                                           "fixed_version": fixed, "urgency": "high" });
            (name.to_owned(), said)
        })
        .into_iter()
        .collect();
    let about = "a weakness that is told in some words, as they mostly are ".repeat(3);
    let issue = serde_json::json!({ "description": about, "releases": releases });
    let all: serde_json::Map<String, Value> =
        (0..6_000).map(|number| (format!("CVE-2024-{}", 10_000 + number), issue.clone())).collect();
    fs::write(&data, serde_json::json!({ "openssh": all }).to_string()).unwrap();
    // Addresses, of which the program's own are the most: to read all rules at once would take 200 MiB of
    // them and more.
    let limited = "ulimit -v 122880 && exec \"$0\" rules import debian \"$1\" -o \"$2\"";
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_bannerwall")])
        .args([&data, &rules])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(&rules).unwrap().matches("[[rule]]").count(), 6_000);
}

#[test]
fn choices_that_would_be_without_effect_are_refused() {
    for (flags, why) in [
        (&["--block-unknown"][..], "pass --action drop"),
        (&["--block-unknown", "--action", "drop", "--report", "affected"], "add it to --report"),
    ] {
        let output = bannerwall(&[&["import", "debian", &data("debian.json")], flags].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.contains(why)), (Some(2), true), "{flags:?}: {said}");
    }
}

#[test]
fn the_rules_hold_their_own_examples_and_have_no_warning() {
    let rules = imported();
    let file = rules.file.to_str().unwrap();
    for command in ["check", "test"] {
        let output = bannerwall(&[command, file]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let text = rules.text();
    assert!(text.contains("examples = [\"SSH-2.0-OpenSSH_9.2p1 Debian-2\"]"), "{text}");
    assert!(text.contains("from the Debian security tracker of 2026-11-20"), "{text}");
}

#[test]
fn the_same_file_gives_the_same_rules_and_options_choose_among_them() {
    let count = |more: &[&str]| {
        let rules = Rules::import(&[&["debian", &data("debian.json")], more].concat());
        (rules.text().matches("[[rule]]").count(), rules.text())
    };
    assert_eq!(count(&[]), count(&[]));
    for (options, rules) in [
        (&[][..], 5),
        (&["--severity", "info"], 6),
        (&["--severity", "high"], 1),
        (&["--product", "openssh"], 3),
        (&["--product", "openssh", "--product", "nginx"], 4),
        (&["--since", "2024"], 3),
        (&["--since", "2099-05-01"], 2),
    ] {
        assert_eq!(count(options).0, rules, "{options:?}");
    }
    let kev = data("kev.json");
    let (rules, text) = count(&["--kev", &kev, "--severity", "critical"]);
    assert_eq!(rules, 1, "{text}");
    assert!(text.contains("cve-2099-1001") && text.contains("tags = [\"openssh\", \"kev\"]"), "{text}");
    let unimportant = Rules::import(&["debian", &data("debian.json"), "--severity", "info"]);
    let said = unimportant.verdict("debian-openssh-cve-2007-9999", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u7");
    assert_eq!(said, Some(("unknown".to_owned(), None)), "what is unimportant may not be in the package");
}

#[test]
fn what_is_no_data_is_refused_with_its_place_and_no_rule_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tracker.json");
    let rules = folder.path().join("rules.toml");
    let release = |status: &str, fixed: &str| {
        format!(
            "{{\"openssh\": {{\"CVE-2024-1\": {{\n\"releases\": {{\"sid\": {{\"status\": \"{status}\", \"repositories\": {{}},\n\"fixed_version\": {fixed}}}}}}}}}}}"
        )
    };
    let whole = fs::read_to_string(data("debian.json")).unwrap();
    for (text, place, word) in [
        (whole[..whole.len() / 2].to_owned(), ":", "ends too early"),
        ("[]".to_owned(), ":1:", "object of source packages"),
        (release("resolved", "7"), ":3:", "invalid type"),
        (release("resolved", "\"1_2\""), ":3:", "no package version"),
        (release("sleeping", "\"1.0\""), ":2:", "unknown variant"),
        (format!("{{\"linux\": {}", "[".repeat(1 << 20)), ": byte 74:", "nested deeper"),
        (format!("{whole} x"), ":", "trailing"),
        ("{}".to_owned(), "no weakness", "fits the selection"),
        ("{\"openssh\": {\"CVE 1\": {\"releases\": {}}}}".to_owned(), ":1:", "is not a vulnerability's name"),
    ] {
        fs::write(&file, text).unwrap();
        let arguments = ["import", "debian", file.to_str().unwrap(), "-o", rules.to_str().unwrap()];
        let output = bannerwall(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word) && said.contains(place), "{word}: {said}");
        assert!(!rules.exists(), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
}

/// A record of OSV about one Debian package, with ratings of any kind.
fn osv_record(number: u32, more: &str) -> (String, String) {
    let id = format!("CVE-2024-{number}");
    let affected = r#"{"package": {"ecosystem": "Debian:12", "name": "openssh"},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1:9.2p1-2+deb12u9"}]}]"#;
    (format!("{id}.json"), format!(r#"{{"id": "{id}", "affected": [{affected}}}]{more}}}"#))
}

#[test]
fn scores_become_severities_and_what_is_left_out_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let score =
        |kind: &str, vector: &str| format!(r#", "severity": [{{"type": "{kind}", "score": "{vector}"}}]"#);
    for (number, more) in [
        (10_001, score("CVSS_V3", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H")),
        (10_002, score("CVSS_V4", "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:N/VA:N/SC:N/SI:N/SA:N")),
        (10_003, score("CVSS_V3", "CVSS:3.0/AV:P/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N")),
        (10_004, score("CVSS_V3", "no vector")),
        (10_005, String::new()),
        (10_006, score("Ubuntu", "negligible")),
        (10_007, r#", "withdrawn": "2024-02-02T00:00:00Z""#.to_owned()),
    ] {
        let (name, record) = osv_record(number, &more);
        fs::write(folder.path().join(name), record).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let output = bannerwall(&["import", "osv", path, "--severity", "medium"]);
    let (text, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let rated: Vec<(String, String)> = text
        .split("[[rule]]")
        .skip(1)
        .map(|rule| {
            let value = |key: &str| {
                let (_, rest) = rule.split_once(&format!("\n{key} = \"")).unwrap_or_else(|| panic!("{rule}"));
                rest.split('"').next().unwrap_or_default().to_owned()
            };
            (value("id"), value("severity"))
        })
        .collect();
    let id = |number: u32| format!("osv-openssh-cve-2024-{number}");
    let expected = [(10_001, "critical"), (10_002, "high"), (10_004, "medium"), (10_005, "medium")];
    assert_eq!(rated, expected.map(|(number, severity)| (id(number), severity.to_owned())));
    assert!(told.contains("4 rules") && told.contains("left out: 2 below --severity"), "{told}");
    assert!(text.contains("advisory.report = [\"affected\"]"), "{text}");
}

#[test]
fn a_tracker_made_to_fill_memory_takes_no_more_than_its_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let (tracker, rules) = (folder.path().join("tracker.json"), folder.path().join("rules.toml"));
    let import = |releases: &str, count: u32| {
        // What is not kept costs nothing; what is kept ends at the bound of a rule file.
        let mut text = "{\"openssh\": {".to_owned();
        for number in 0..count {
            let comma = if number == 0 { "" } else { "," };
            text.push_str(&format!("{comma}\"CVE-1-{number}\":{{\"releases\":{{{releases}}}}}"));
        }
        fs::write(&tracker, text + "}}").unwrap();
        let limited = "ulimit -v 262144 && exec \"$0\" rules import debian \"$1\" -o \"$2\"";
        let program = env!("CARGO_BIN_EXE_bannerwall");
        let output =
            Command::new("sh").args(["-c", limited, program]).args([&tracker, &rules]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = import("", 600_000);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("600000 without versions"), "{told}");
    let (code, told) = import("\"sid\":{\"status\":\"open\"}", 600_000);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("more rules than one file may hold"), "{told}");
    let many: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":{{\"status\":\"open\"}}")).collect();
    let (code, told) = import(&many.join(","), 1);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("tracker.json:1:") && told.contains("more than 64 entries"), "{told}");
}
