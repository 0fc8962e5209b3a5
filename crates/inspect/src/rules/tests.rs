//! The format of `design.md`, judged end to end.

use super::banner_view::BannerView;
use super::evaluate_rule::{PatternMemo, ScopeCheck, judge};
use super::*;
use crate::banner::{
    Banner, KexInit, ParseProgress, RequestHead, ResponseHead, SshBanner, SshIdentification, http, ssh,
};
use crate::event::Side;

const DESIGN: &str = r#"
[[rule]]
id = "openssh-regresshion"
title = "OpenSSH 8.5p1 to 9.7p1 (CVE-2024-6387)"
protocol = "ssh"                       # ssh | http
from = "server"                        # server | client | either
match.software = '^OpenSSH_(?<version>\d+\.\d+(p\d+)?)'
version = ">=8.5p1, <9.8p1"            # of the capture named version
unless.comments = 'Debian-2\+deb12u([3-9]|\d\d)|Ubuntu-1ubuntu3\.[6-9]'
action = "drop"                        # alert | drop | reject | mark
severity = "high"
references = ["CVE-2024-6387"]
examples = ["SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2"]
counterexamples = ["SSH-2.0-OpenSSH_9.8p1", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3"]

[[rule]]
id = "http-no-hsts"
title = "Answer without Strict-Transport-Security"
protocol = "http"
from = "server"
match.status = '^200$'
absent = ["Strict-Transport-Security"]
action = "alert"

[[rule]]
id = "apache-server-status-open"
title = "Apache mod_status is public"
protocol = "http"
from = "server"
request = { method = "GET", path = "/server-status" }   # what a scan must ask to see it
match.status = '^200$'
match."header.server" = '^Apache'
action = "alert"
"#;

fn ids(set: &RuleSet, banner: &Banner<'_>, context: &BannerContext<'_>) -> Vec<String> {
    set.evaluate(banner, context).iter().map(|found| found.rule.id().to_owned()).collect()
}

fn load(text: &str) -> RuleSet {
    RuleSet::parse("test.toml", text).map_err(|error| panic!("{error}")).unwrap().rules
}

fn server(line: &str) -> Banner<'_> {
    let identification: SshIdentification<'_> = ssh::parse_line(line.as_bytes()).0;
    Banner::Ssh(SshBanner { from: Side::Server, identification, kex: None })
}

fn response(head: &[u8]) -> ResponseHead<'_> {
    let ParseProgress::Done { value, .. } = http::parse_response(head) else { panic!("no response") };
    value.message
}

fn request(head: &[u8]) -> RequestHead<'_> {
    let ParseProgress::Done { value, .. } = http::parse_request(head) else { panic!("no request") };
    value.message
}

#[test]
fn the_design_s_rules_judge_ssh() {
    let set = load(DESIGN);
    for (line, expected) in [
        ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2", Some("9.2p1")),
        ("SSH-2.0-OpenSSH_8.5p1", Some("8.5p1")),
        ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3", None),
        ("SSH-2.0-OpenSSH_9.8p1", None),
        ("SSH-2.0-dropbear_2022.83", None),
    ] {
        let banner = server(line);
        let matches = set.evaluate(&banner, &BannerContext::default());
        assert_eq!(matches.first().and_then(|one| one.version.as_deref()), expected, "{line}");
        assert_eq!(matches.len(), usize::from(expected.is_some()));
    }
    let identification = ssh::parse_line(b"SSH-2.0-OpenSSH_9.2p1").0;
    let client = Banner::Ssh(SshBanner { from: Side::Client, identification, kex: None });
    assert!(set.evaluate(&client, &BannerContext::default()).is_empty(), "the rule is about servers");
}

#[test]
fn the_design_s_rules_judge_http() {
    let set = load(DESIGN);
    let head = b"HTTP/1.1 200 OK\r\nServer: Apache/2.4.62\r\nServer: x\r\n\r\n";
    let banner = Banner::Response(response(head));
    assert_eq!(ids(&set, &banner, &BannerContext::default()), ["http-no-hsts"]);
    for (line, asked) in [
        ("GET /server-status HTTP/1.1", true),
        ("GET /server%2Dstatus?auto HTTP/1.1", true),
        ("GET http://a/server-status HTTP/1.1", true),
        ("GET /server-statuses HTTP/1.1", false),
        ("HEAD /server-status HTTP/1.1", false),
    ] {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        let request = request(head.as_bytes());
        let context = BannerContext { request: Some(&request), ..BannerContext::default() };
        let found = ids(&set, &banner, &context);
        assert_eq!(found.contains(&"apache-server-status-open".to_owned()), asked, "{line}");
    }
    assert_eq!(set.needs().requests.len(), 1);
    assert!(!set.needs().kex && set.needs().body == 0);
}

#[test]
fn each_greeting_protocol_has_rules_of_its_own() {
    for greeting in crate::terms::GreetingProtocol::all() {
        let (name, port) = (greeting.name(), greeting.ports()[0]);
        let opening = greeting.openings()[0];
        let line = format!("{opening} mail.example Evil {name} 1.2.3 ready");
        let set = load(&format!(
            "[[rule]]\nid = 'evil'\nprotocol = '{name}'\naction = 'drop'\nversion = '<2'\n\
             match.text = 'Evil .* (?<version>[0-9.]+)'\nmatch.code = '^{}$'\nexamples = ['{line}']\n",
            opening.replace('+', "\\+").replace('*', "\\*"),
        ));
        assert!(set.trials().count() == 1 && set.trials().all(|trial| trial.passed()), "{name}");
        let octets = format!("{line}\r\n");
        let ParseProgress::Done { value, .. } = crate::banner::greeting::parse(octets.as_bytes(), port)
        else {
            panic!("{name} is no greeting")
        };
        assert_eq!(ids(&set, &Banner::Greeting(value), &BannerContext::default()), ["evil"]);
    }
    let report = RuleSet::parse(
        "t",
        "[[rule]]\nid='a'\nprotocol='smtp'\nfrom='client'\naction='drop'\nmatch.software='x'",
    );
    let told = report.expect_err("two faults").to_string();
    assert!(told.contains("only a server greets") && told.contains("a field of ssh rules"), "{told}");
}

#[test]
fn the_first_accept_that_matches_ends_the_evaluation() {
    let text = "
[[rule]]
id = 'drop'
protocol = 'ssh'
match.software = 'OpenSSH'
action = 'drop'
[[rule]]
id = 'alert'
protocol = 'ssh'
match.software = 'SSH'
action = 'alert'
[[rule]]
id = 'accept'
protocol = 'ssh'
match.software = 'OpenSSH'
source = ['192.0.2.0/24', '!192.0.2.7']
action = 'accept'
";
    let set = load(text);
    let banner = server("SSH-2.0-OpenSSH_9.2p1");
    let from = |address: &str| BannerContext { source: address.parse().ok(), ..BannerContext::default() };
    assert_eq!(ids(&set, &banner, &from("192.0.2.1")), ["accept"]);
    assert_eq!(ids(&set, &banner, &from("192.0.2.7")), ["drop", "alert"]);
    assert_eq!(ids(&set, &banner, &BannerContext::default()), ["drop", "alert"]);
}

#[test]
fn stages_judge_each_rule_once() {
    let text = "
[[rule]]
id = 'head'
protocol = 'http'
match.status = '200'
action = 'alert'
[[rule]]
id = 'rest'
protocol = 'http'
match.status = '200'
unless.title = 'Good'
action = 'alert'
";
    let set = load(text);
    let mut message = response(b"HTTP/1.1 200 OK\r\n\r\n");
    let at = |stage| BannerContext { stage, ..BannerContext::default() };
    assert_eq!(ids(&set, &Banner::Response(message.clone()), &at(BannerStage::Head)), ["head"]);
    assert_eq!(ids(&set, &Banner::Response(message.clone()), &at(BannerStage::Rest)), ["rest"]);
    message.body = b"<title>Good</title>";
    assert_eq!(ids(&set, &Banner::Response(message.clone()), &at(BannerStage::Rest)), Vec::<String>::new());
    assert_eq!(ids(&set, &Banner::Response(message), &at(BannerStage::Whole)), ["head"]);
}

#[test]
fn what_an_identification_leaves_open_is_told_with_the_kexinit_and_the_rest_before() {
    let text = "
[[rule]]
id = 'weighed'
protocol = 'ssh'
match.software = '^OpenSSH_(?<version>\\d+\\.\\d+p\\d+)'
action = 'drop'
advisory.source = 'x'
advisory.packages = [
    { distribution = 'Debian', release = '12', newest = '9.2p1-2+deb12u9', fixed = '9.2p1-2+deb12u3' },
    { distribution = 'Debian', release = 'sid', newest = '9.7p1-7', fixed = '9.7p1-7' },
]
advisory.fixed_if = ['strict-kex-server']
advisory.affected_if = ['terrapin-chacha20']
[[rule]]
id = 'field'
protocol = 'ssh'
match.marker = '^terrapin-'
action = 'alert'
";
    let set = load(text);
    assert!(set.needs().kex);
    let chacha20 = b"chacha20-poly1305@openssh.com";
    let said = |line: &'static str, kex: Option<&'static [u8]>, stage| {
        let identification = ssh::parse_line(line.as_bytes()).0;
        let kex = kex.map(|kex| KexInit { kex, encryption_client_to_server: chacha20, ..KexInit::default() });
        let banner = Banner::Ssh(SshBanner { from: Side::Server, identification, kex });
        let matches = set.evaluate(&banner, &BannerContext { stage, ..BannerContext::default() });
        matches.iter().map(|found| (found.rule.id().to_owned(), found.action().blocks())).collect::<Vec<_>>()
    };
    let (weighed, field) = ("weighed".to_owned(), "field".to_owned());
    let hidden = "SSH-2.0-OpenSSH_9.2p1";
    assert_eq!(said(hidden, None, BannerStage::Head), []);
    assert_eq!(said(hidden, None, BannerStage::Rest), [(weighed.clone(), false)]);
    assert_eq!(said(hidden, None, BannerStage::Whole), [(weighed.clone(), false)]);
    assert_eq!(said(hidden, Some(b"a"), BannerStage::Rest), [(weighed, true), (field.clone(), false)]);
    assert_eq!(said(hidden, Some(b"kex-strict-s-v00@openssh.com"), BannerStage::Rest), []);
    // What the package tells is denied: nobody can tell, and nothing is stopped.
    let (fixed, old) = ("SSH-2.0-OpenSSH_9.7p1 Debian-7", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2");
    assert_eq!(said(fixed, None, BannerStage::Head), []);
    assert_eq!(said(fixed, None, BannerStage::Rest), []);
    assert_eq!(
        said(fixed, Some(b"a"), BannerStage::Rest),
        [("weighed".to_owned(), false), (field.clone(), false)]
    );
    assert_eq!(said(old, None, BannerStage::Head), []);
    assert_eq!(said(old, None, BannerStage::Rest), [("weighed".to_owned(), true)]);
    let strict = Some(b"kex-strict-s-v00@openssh.com".as_slice());
    assert_eq!(said(old, strict, BannerStage::Rest), [("weighed".to_owned(), false)]);
}

#[test]
fn markers_of_one_s_own_and_unknown_ones_are_warned_of() {
    let warned = |text: &str| -> Vec<String> {
        let loaded = RuleSet::parse("a.toml", text).unwrap_or_else(|error| panic!("{error}"));
        loaded.warnings.iter().map(|warning| warning.message.clone()).collect()
    };
    let rule = |pattern: &str| {
        format!("[[rule]]\nid = 'a'\nprotocol = 'ssh'\nmatch.marker = '{pattern}'\naction = 'alert'\n")
    };
    assert_eq!(warned(&rule("^terrapin-")), Vec::<String>::new());
    let unknown = warned(&rule("^strict-kex-sever$"));
    assert_eq!(unknown, ["the rule never matches: nothing can match its pattern for `marker`"]);
    let own = warned(&format!("{}[[marker]]\nname = 'mine'\n", rule("^aes-gcm$")));
    assert_eq!(own, ["markers are built in: these are not read"]);
    assert!(warned(&format!("{}\n", include_str!("../../shipped/markers.toml"))).len() == 1);
}

#[test]
fn a_kexinit_costs_as_many_judgements_as_there_are_rules_that_wait_for_it() {
    let open = |number: usize| {
        format!(
            "
[[rule]]
id = 'weighed-{number}'
protocol = 'ssh'
match.software = '^OpenSSH_(?<version>9\\.2p1)$'
action = 'drop'
advisory.source = 'x'
advisory.packages = [{{ distribution = 'Debian', release = 'sid', newest = '9.7p1-7', fixed = '9.7p1-7' }}]
advisory.fixed_if = ['strict-kex-server']
"
        )
    };
    let accept =
        "[[rule]]\nid = 'ours'\nprotocol = 'ssh'\nmatch.software = 'p1'\nport = 22\naction = 'accept'\n";
    let judged = |rules: usize| {
        let set = load(&(accept.to_owned() + &(0..rules).map(open).collect::<String>()));
        let identification = ssh::parse_line(b"SSH-2.0-OpenSSH_9.2p1").0;
        let kex = Some(KexInit { kex: b"a", ..KexInit::default() });
        let banner = Banner::Ssh(SshBanner { from: Side::Server, identification, kex });
        let context = BannerContext { stage: BannerStage::Rest, ..BannerContext::default() };
        let before = evaluate_rule::JUDGED.get();
        assert_eq!(set.evaluate(&banner, &context).len(), rules);
        evaluate_rule::JUDGED.get() - before
    };
    assert!(judged(64) <= 70, "{}", judged(64));
    assert!(judged(128) <= 134, "{}", judged(128));
}

mod index {
    //! The index may only leave out rules that do not match: it is compared with asking every rule.

    use proptest::prelude::*;

    use super::*;

    fn pattern() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "[ab1]{1,3}",
            Just("\\d".to_owned()),
            Just(".".to_owned()),
            Just("[a-c]".to_owned()),
            Just("\\b".to_owned()),
            Just("\\x{ff}".to_owned()),
        ];
        let tree = leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
                prop::collection::vec(inner.clone(), 1..4)
                    .prop_map(|parts| format!("(?:{})", parts.join("|"))),
                (inner.clone(), "[*+?]|\\{1,2\\}|\\{2\\}")
                    .prop_map(|(part, times)| format!("(?:{part}){times}")),
                inner.clone().prop_map(|part| format!("(?i:{part})")),
                inner.prop_map(|part| format!("(?<version>{part})")),
            ]
        });
        let ends = (prop::bool::ANY, prop::bool::ANY);
        (tree, ends).prop_filter_map("a group has one name only once", |(tree, (start, end))| {
            let once = tree.matches("version").count() <= 1;
            let (start, end) = (if start { "^" } else { "" }, if end { "$" } else { "" });
            once.then(|| format!("{start}{tree}{end}"))
        })
    }

    fn rule(number: usize, conditions: &[(usize, String)], absent: bool) -> String {
        let fields = ["status", "\"header.server\"", "\"header.x-a\"", "body"];
        let mut text = format!("[[rule]]\nid = 'r{number}'\nprotocol = 'http'\naction = 'alert'\n");
        let mut seen = Vec::new();
        for (field, pattern) in conditions {
            if !seen.contains(field) {
                text.push_str(&format!("match.{} = '{pattern}'\n", fields[*field]));
                seen.push(*field);
            }
        }
        text.push_str(if absent { "absent = ['x-b']\n" } else { "present = ['server']\n" });
        text
    }

    /// A package's version of a few numbers, so that many are neighbours.
    fn package() -> impl Strategy<Value = String> {
        (
            "(1:)?",
            "[89](\\.[0-3]{1,2}){0,2}",
            "(p1|~rc1|\\+dfsg|b)?",
            "(-[1-3](\\+deb1[23]u[1-3]|ubuntu0\\.[1-3])?)?",
        )
            .prop_map(|(epoch, upstream, word, revision)| epoch + &upstream + word.as_str() + &revision)
    }

    fn advisory() -> impl Strategy<Value = String> {
        let state = prop_oneof![
            4 => package().prop_map(|version| format!("fixed = '{version}'")),
            1 => prop::sample::select(vec!["not-affected", "open", "undetermined", "not-listed"])
                .prop_map(|status| format!("status = '{status}'")),
        ];
        let release = prop::sample::select(vec![
            "Debian', release = '12",
            "Debian', release = '13",
            "Ubuntu', release = '22.04",
        ]);
        let line = (release, package(), prop::collection::vec(package(), 0..3), state);
        let next = prop::option::weighted(0.8, (package(), package()));
        let report =
            prop::sample::select(vec!["'affected'", "'affected', 'unknown'", "'unknown'", "'fixed'"]);
        let markers = prop::sample::select(vec![
            "",
            "affected_if = ['terrapin-chacha20'], ",
            "fixed_if = ['strict-kex-server'], affected_if = ['terrapin-chacha20'], ",
            "fixed_if = ['strict-kex-server'], ",
        ]);
        let said = (report, markers, prop::collection::vec(line, 0..3), next);
        said.prop_filter_map("something is said", |(report, markers, lines, next)| {
            let mut seen = std::collections::BTreeSet::new();
            let lines = lines.into_iter().filter(|(release, ..)| seen.insert(*release));
            let lines = lines.map(|(release, newest, affected, state)| {
                let affected =
                    if affected.is_empty() { String::new() } else { format!("affected = {affected:?}, ") };
                format!("{{ distribution = '{release}', newest = '{newest}', {affected}{state} }}")
            });
            let next = next.map(|(newest, fixed)| {
                format!(
                    "{{ distribution = 'Debian', release = 'sid', newest = '{newest}', fixed = '{fixed}' }}"
                )
            });
            let lines: Vec<String> = lines.chain(next).collect();
            let text = format!(
                "advisory = {{ source = 's', report = [{report}], {markers}packages = [{}] }}\n",
                lines.join(", ")
            );
            (!lines.is_empty()).then_some(text)
        })
    }

    fn shown() -> impl Strategy<Value = String> {
        let upstream = "[789](\\.[0-3]{1,2}){0,2}(p1|~rc1|\\+dfsg|b)?";
        let behind = "( Debian-[1-3](\\+deb1[234]u[1-3])?| Ubuntu-[1-3]ubuntu0\\.[1-3]|)";
        (upstream, behind).prop_map(|(upstream, behind)| format!("SSH-2.0-a_{upstream}{behind}"))
    }

    proptest! {
        #[test]
        fn it_leaves_out_no_advisory_that_has_something_to_say(
            advisories in prop::collection::vec(advisory(), 2..8),
            banners in prop::collection::vec((shown(), prop::option::of(any::<bool>())), 8),
        ) {
            let rule = |(number, advisory): (usize, &String)| format!(
                "[[rule]]\nid = 'r{number}'\nprotocol = 'ssh'\naction = 'alert'\n\
                 match.software = '^a_(?<version>[0-9a-z.~+]+)'\n{advisory}"
            );
            let set = load(&advisories.iter().enumerate().map(rule).collect::<String>());
            for (text, is_strict) in banners {
                let Banner::Ssh(mut banner) = server(&text) else { panic!("one of SSH") };
                let encryption = b"chacha20-poly1305@openssh.com".as_slice();
                banner.kex = is_strict.map(|is_strict| KexInit {
                    kex: if is_strict { b"kex-strict-s-v00@openssh.com" } else { b"a" },
                    encryption_client_to_server: encryption,
                    encryption_server_to_client: encryption,
                    ..KexInit::default()
                });
                let (banner, context) = (Banner::Ssh(banner), BannerContext::default());
                let view = BannerView::new(&banner, &context);
                let expected: Vec<String> = set
                    .rules()
                    .iter()
                    .filter(|rule| judge(rule, &set.patterns, &view, &PatternMemo::default(), ScopeCheck::Yes).is_ok())
                    .map(|rule| rule.id().to_owned())
                    .collect();
                prop_assert_eq!(ids(&set, &banner, &context), expected, "{} {:?}", text, is_strict);
            }
        }
    }

    proptest! {
        #[test]
        fn it_leaves_out_no_rule_that_matches(
            rules in prop::collection::vec(
                (prop::collection::vec((0_usize..4, pattern()), 0..3), any::<bool>()), 1..12),
            server in "[ab1AB ]{0,8}",
            other in "[ab1Bc]{0,4}",
            body in "[ab1A]{0,8}",
        ) {
            let text: String = rules
                .iter()
                .enumerate()
                .map(|(number, (conditions, absent))| rule(number, conditions, *absent))
                .collect();
            let set = load(&text);
            let head = format!("HTTP/1.1 111 OK\r\nSeRVer: {server}\r\nX-A: {other}\r\nServer: {other}\r\n\r\n");
            let mut message = response(head.as_bytes());
            message.body = body.as_bytes();
            let banner = Banner::Response(message);
            let context = BannerContext::default();
            let view = BannerView::new(&banner, &context);
            let expected: Vec<String> = set
                .rules()
                .iter()
                .filter(|rule| judge(rule, &set.patterns, &view, &PatternMemo::default(), ScopeCheck::Yes).is_ok())
                .map(|rule| rule.id().to_owned())
                .collect();
            prop_assert_eq!(ids(&set, &banner, &context), expected);
        }
    }
}

#[test]
fn what_matches_anywhere_takes_effect_by_its_scope() {
    let rule = |id: &str, keys: &str| {
        format!("[[rule]]\nid = '{id}'\nprotocol = 'ssh'\nmatch.software = '^x'\n{keys}\n")
    };
    let set = load(
        &[
            rule("first", "action = 'alert'\nport = 22"),
            rule("trusted", "action = 'accept'\ndestination = '192.0.2.1'"),
            rule("elsewhere", "action = 'alert'\ndestination = '!198.51.100.0/24'"),
            rule("all", "action = 'drop'"),
        ]
        .concat(),
    );
    let banner = server("SSH-2.0-x");
    let anywhere = set.evaluate_anywhere(&banner, &BannerContext::default());
    assert_eq!(anywhere.len(), 4, "nothing is hidden by the rule that accepts");
    for address in ["192.0.2.1", "192.0.2.2", "198.51.100.7"] {
        for port in [22, 2222] {
            let destination = address.parse().ok();
            let context = BannerContext { destination, port: Some(port), ..BannerContext::default() };
            let in_scope = anywhere.iter().filter(|matched| matched.rule.is_in_scope(&context));
            let mut expected: Vec<_> = in_scope.map(|matched| matched.rule.id().to_owned()).collect();
            if let Some(accepts) = expected.iter().position(|id| id == "trusted") {
                expected.truncate(accepts + 1);
            }
            assert_eq!(ids(&set, &banner, &context), expected, "{address}:{port}");
        }
    }
}

mod hostile {
    //! No rule file, however strange, ends the process.

    use proptest::prelude::*;

    use super::*;

    /// Pieces that rule files are made of, and some that they are not.
    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("[[rule]]\n".to_owned()),
            Just("[lists]\na = '/dev/null'\n".to_owned()),
            "(id|title|protocol|from|action|version|fixed_in|mark|request|source|port|count|examples|match|unless|absent|match\\.[a-z]{1,6}|match\\.software|match\\.\"header\\.[a-z]{1,3}\") = ",
            "('ssh'|'http'|'server'|'either'|'alert'|'mark'|1|-1|0x7f|\\['a'\\]|\\[1, 'x'\\]|\\{ a = 1 \\}|\\{ times = 1, within = '1s' \\}|'@a'|'!@a')\n",
            "'[(a-c|)*+?{}0-9\\[\\]\\\\^$.]{0,12}'\n",
            ".{0,6}",
            Just("\"\"\"".to_owned()),
            Just("'''".to_owned()),
            Just("\n".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn no_rule_file_panics(pieces in prop::collection::vec(piece(), 0..30)) {
            let text = pieces.concat();
            match RuleSet::parse("x.toml", &text) {
                Ok(loaded) => {
                    let banner = server("SSH-2.0-abc_1.2p1 Debian-1");
                    loaded.rules.evaluate(&banner, &BannerContext::default());
                }
                Err(error) => {
                    prop_assert!(error.errors().count() > 0);
                    let _ = error.to_string();
                }
            }
        }
    }

    #[test]
    fn a_file_of_nothing_but_faults_is_told_within_bounds() {
        let text = "[[rule]]\nid = \n".repeat(20_000);
        let error = RuleSet::parse("x.toml", &text).unwrap_err();
        assert!(error.diagnostics.len() <= 2 * limits::DIAGNOSTICS);
        assert!(error.to_string().len() < 1 << 20);
    }
}
