//! Sets of targets against what their words mean.

use std::io::Write as _;

use super::*;

fn set(targets: &[&str], excluded: &[&str], ports: &str, options: SetOptions) -> TargetSet {
    let mut builder = TargetSetBuilder::default();
    targets.iter().for_each(|word| builder.target(word).unwrap());
    excluded.iter().for_each(|word| builder.exclude(word).unwrap());
    builder.build(&ports.parse().unwrap(), options).unwrap()
}

fn all(set: &TargetSet) -> Vec<String> {
    (0..set.len()).map(|number| set.at(number).unwrap().0.to_string()).collect()
}

#[test]
fn each_address_and_port_once_however_often_it_is_named() {
    let set = set(&["192.0.2.0/30", "192.0.2.2-5", "192.0.2.3"], &[], "80,22,80-81", SetOptions::default());
    let listed = all(&set);
    assert_eq!((set.len(), set.input()), (18, 18));
    assert_eq!(listed.iter().collect::<HashSet<_>>().len(), 18);
    assert!(listed.contains(&"192.0.2.5:81".to_owned()));
    assert!(set.at(18).is_none());
}

#[test]
fn both_families_and_exclusions() {
    let set = set(
        &["192.0.2.0/29", "2001:db8::/126", "127.0.0.1"],
        &["192.0.2.1-6", "2001:db8::2/127"],
        "22",
        SetOptions::default(),
    );
    assert_eq!(
        all(&set),
        ["127.0.0.1:22", "192.0.2.0:22", "192.0.2.7:22", "[2001:db8::]:22", "[2001:db8::1]:22"]
    );
    assert_eq!(set.input(), 13, "the input counts what was excluded");
    assert!(set.left_out().is_empty());
}

#[test]
fn reserved_addresses_are_left_out_and_told_unless_asked_for() {
    let words = ["224.0.0.1", "239.255.255.255", "255.255.255.255", "0.0.0.0/8", "ff02::1", "192.0.2.1"];
    let set_of =
        |include_reserved| set(&words, &[], "22", SetOptions { include_reserved, ..Default::default() });
    let left = set_of(false);
    assert_eq!(all(&left), ["192.0.2.1:22"]);
    let told: Vec<_> = left.left_out().iter().map(|out| (out.addresses, out.what.as_str())).collect();
    assert_eq!(
        told,
        [
            (1 << 24, "0.0.0.0-0.255.255.255"),
            (2, "224.0.0.1-239.255.255.255"),
            (1, "255.255.255.255"),
            (1, "ff02::1"),
        ]
    );
    assert_eq!(left.input(), (1 << 24) + 5);
    let kept = set_of(true);
    assert_eq!(kept.len() as u128, kept.input());
    assert!(kept.left_out().is_empty());
}

#[test]
fn names_are_asked_by_name_and_an_address_of_theirs_not_again() {
    let options = SetOptions { ask_each_name: true, ..SetOptions::default() };
    let mut builder = TargetSetBuilder::default();
    builder.target("127.0.0.0/30").unwrap();
    builder.wanted.named.push(("127.0.0.1".parse().unwrap(), "a.example".into()));
    builder.wanted.named.push(("127.0.0.1".parse().unwrap(), "b.example".into()));
    builder.wanted.named.push(("127.0.0.1".parse().unwrap(), "a.example".into()));
    builder.wanted.named.push(("127.0.0.9".parse().unwrap(), "c.example".into()));
    builder.exclude("127.0.0.9").unwrap();
    let set = builder.build(&"80".parse().unwrap(), options).unwrap();
    let hosts: Vec<_> = (0..set.len())
        .map(|number| set.at(number).unwrap())
        .map(|(address, host)| (address.ip().to_string(), host.map(|host| host.to_string())))
        .collect();
    let plain = |address: &str| (address.to_owned(), None);
    let named = |host: &str| ("127.0.0.1".to_owned(), Some(host.to_owned()));
    let expected =
        [plain("127.0.0.0"), plain("127.0.0.2"), plain("127.0.0.3"), named("a.example"), named("b.example")];
    assert_eq!(hosts, expected);
    assert_eq!(set.input(), 6);
}

#[test]
fn localhost_is_looked_up() {
    let set = set(&["localhost"], &[], "22", SetOptions::default());
    assert!((1..=2).contains(&set.len()));
    let (address, host) = set.at(0).unwrap();
    assert!(address.ip().is_loopback());
    assert_eq!(host.as_deref(), Some("localhost"));
}

#[test]
fn files_have_comments_and_errors_have_lines() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "# routers\n192.0.2.1, 192.0.2.2\t192.0.2.3 # three\r\n\n192.0.2.4").unwrap();
    let name = file.path().to_str().unwrap().to_owned();
    let mut builder = TargetSetBuilder::default();
    builder.target_file(&name).unwrap();
    let set = builder.build(&"22".parse().unwrap(), SetOptions::default()).unwrap();
    assert_eq!(set.len(), 4);

    writeln!(file, "192.0.2.300").unwrap();
    let error = TargetSetBuilder::default().target_file(&name).unwrap_err().to_string();
    assert_eq!(error, format!("-i {name}, line 5: `192.0.2.300`: not an IPv4 address, CIDR or range"));
    let missing = TargetSetBuilder::default().exclude_file("/nonexistent").unwrap_err().to_string();
    assert!(missing.starts_with("--exclude-file /nonexistent: "), "{missing}");
}

#[test]
fn networks_too_large_to_count_are_refused() {
    for (word, ports) in [("::/0", "22"), ("2001:db8::/64", "22"), ("2001:db8::/66", "22,23")] {
        let mut builder = TargetSetBuilder::default();
        builder.target(word).unwrap();
        let result = builder
            .build(&ports.parse().unwrap(), SetOptions { include_reserved: true, ..Default::default() });
        assert!(matches!(result, Err(TargetError::TooMany)), "{word}");
    }
    assert_eq!(set(&["2001:db8::/66"], &[], "22", SetOptions::default()).len(), 1 << 62);
}

#[test]
fn the_fingerprint_is_of_the_targets_not_of_their_spelling() {
    let of = |targets: &[&str], ports| set(targets, &[], ports, SetOptions::default()).fingerprint();
    assert_eq!(of(&["192.0.2.0/31"], "22"), of(&["192.0.2.1", "192.0.2.0"], "22"));
    assert_ne!(of(&["192.0.2.0/31"], "22"), of(&["192.0.2.0/31"], "23"));
    assert_ne!(of(&["192.0.2.0/31"], "22"), of(&["192.0.2.0"], "22"));
}

#[test]
fn targets_with_a_port_are_asked_there_alone_and_once() {
    let of = |words: &[&str], ports| set(words, &["192.0.2.9"], ports, SetOptions::default());
    let words = ["192.0.2.1:2222", "192.0.2.8/31", "192.0.2.8:22", "[2001:db8::1]:80", "192.0.2.1:2222"];
    let targets =
        of(&[&words[..], &["https://192.0.2.1/", "192.0.2.9:443", "224.0.0.1:1"]].concat(), "22,80");
    let expected = ["192.0.2.8:22", "192.0.2.8:80", "192.0.2.1:443", "192.0.2.1:2222", "[2001:db8::1]:80"];
    assert_eq!(all(&targets), expected);
    assert!(targets.at(5).is_none());
    assert_eq!((targets.len(), targets.input(), targets.skipped().excluded), (5, 9, 4));
    assert_ne!(targets.fingerprint(), of(&["192.0.2.8:22"], "22,80").fingerprint());
    assert_eq!(all(&of(&["192.0.2.1:7"], "22")), ["192.0.2.1:7"], "the usual ports are of others");
    let none: PortSet = PortSet::from_iter([]);
    let with = |word: &str| {
        let mut builder = TargetSetBuilder::default();
        builder.target(word).unwrap();
        builder.build(&none, SetOptions::default())
    };
    assert_eq!(all(&with("192.0.2.1:7").unwrap()), ["192.0.2.1:7"]);
    assert!(matches!(with("192.0.2.1"), Err(TargetError::NoPorts)));
    let refused = TargetSetBuilder::default().exclude("192.0.2.1:22").unwrap_err().to_string();
    assert!(refused.starts_with("--exclude: `192.0.2.1:22`: "), "{refused}");
}

#[test]
fn names_of_targets_with_a_port_count_where_they_are_asked_for() {
    for (ask_each_name, expected) in [(true, 3), (false, 1)] {
        let mut builder = TargetSetBuilder::default();
        for name in [Some("a.example"), Some("b.example"), Some("a.example"), None] {
            builder.endpoint("127.0.0.1:8080".parse().unwrap(), name);
        }
        builder.named_target("127.0.0.1".parse().unwrap(), "c.example");
        let set = builder.build(&"8080".parse().unwrap(), SetOptions { ask_each_name, ..Default::default() });
        let hosts: Vec<_> = (0..expected).map(|number| set.as_ref().unwrap().at(number).unwrap().1).collect();
        assert_eq!(set.unwrap().len(), expected, "{hosts:?}");
        assert_eq!(hosts.first().unwrap().as_deref(), Some("c.example"));
    }
}

#[test]
fn results_of_scanners_are_targets_and_errors_name_the_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{{\"ip\":\"192.0.2.1\",\"port\":8080}}\nopen tcp 22 192.0.2.2 1\n192.0.2.3:1, 192.0.2.4")
        .unwrap();
    let name = file.path().to_str().unwrap().to_owned();
    let mut builder = TargetSetBuilder::default();
    builder.target_file(&name).unwrap();
    let set = builder.build(&"23".parse().unwrap(), SetOptions::default()).unwrap();
    assert_eq!(all(&set), ["192.0.2.4:23", "192.0.2.1:8080", "192.0.2.2:22", "192.0.2.3:1"]);
    writeln!(file, "{{\"ip\":\"192.0.2.1\",\"port\":70000}}").unwrap();
    let error = TargetSetBuilder::default().target_file(&name).unwrap_err().to_string();
    let expected = format!("-i {name}, line 4: `192.0.2.1:70000`: `70000` is not a port from 1 to 65535");
    assert_eq!(error, expected);
}
