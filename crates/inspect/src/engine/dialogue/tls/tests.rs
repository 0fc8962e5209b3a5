//! Handshakes over hand-made conversations: every cut of records and segments.

use std::collections::VecDeque;

use std::sync::Arc;

use bannerwall_test_support::hello::{alert, certificates, client_hello, records, server_hello};
use proptest::prelude::*;

use crate::engine::testing::{Conversation, Setup};
use crate::engine::{Decision, HttpInspect, TrackingMode};
use crate::event::{ApplicationFacts, Event, EventKind, TlsFacts};

const FORBIDDEN: &str = "[[rule]]\nid = \"sni\"\nprotocol = \"tls\"\nfrom = \"client\"\nmatch.sni = '^forbidden\\.example$'\naction = \"drop\"\n";

/// `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`.
const CIPHER: u16 = 0xc02f;

/// The handshakes that were told.
fn told(events: &[Event]) -> Vec<Arc<TlsFacts>> {
    let facts = |event: &Event| match &event.kind {
        EventKind::Application(ApplicationFacts::Tls(facts)) => Some(Arc::clone(facts)),
        _ => None,
    };
    events.iter().filter_map(facts).collect()
}

/// What was told, by protocol or rule.
fn kinds(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| match &event.kind {
        EventKind::Application(said) => said.protocol().name().to_owned(),
        EventKind::Alert(facts) => format!("alert/{}", facts.rule),
        EventKind::Drop(facts) => format!("drop/{}", facts.rule.as_deref().unwrap_or_default()),
        EventKind::Anomaly(facts) => facts.name.to_owned(),
        _ => "else".to_owned(),
    };
    events.iter().map(name).collect()
}

/// A conversation that a capture began to record in its middle, of which every transaction is read.
fn captured_midstream() -> Conversation {
    let mut setup = Setup::monitoring("");
    setup.config.http_inspect = HttpInspect::All;
    setup.config.tracking = TrackingMode::Lossy;
    setup.midstream()
}

#[test]
fn hellos_of_a_capture_without_the_handshake_of_tcp_are_told() {
    for segment in [200, 1400] {
        let mut talk = captured_midstream();
        say(&mut talk, true, &records(&client_hello("allowed.example", 1500), 1 << 14), segment);
        say(&mut talk, false, &records(&server_hello(CIPHER, "h2"), 1 << 14), segment);
        talk.engine.finish(talk.now, &mut talk.events);
        let told = told(&talk.events);
        let [facts] = told.as_slice() else { panic!("{segment}: {:?}", kinds(&talk.events)) };
        assert_eq!(facts.client.as_ref().unwrap().names, ["allowed.example"]);
        assert_eq!(facts.server.as_ref().unwrap().version.name(), "TLS 1.2");
    }
}

/// Says bytes in pieces; how many were let through.
fn say(talk: &mut Conversation, from_client: bool, octets: &[u8], size: usize) -> usize {
    let mut through = 0;
    for piece in octets.chunks(size) {
        let decision = if from_client { talk.client(piece) } else { talk.server(piece) };
        if decision == Decision::Block {
            break;
        }
        through += piece.len();
    }
    through
}

#[test]
fn both_hellos_are_told_however_they_are_cut() {
    for (record, segment) in [(1, 1), (1, 1400), (3, 7), (100, 1), (1 << 14, 1400), (1 << 14, 1)] {
        let mut talk = Setup::enforcing(FORBIDDEN).open();
        let hello = records(&client_hello("allowed.example", 1500), record);
        let answer = [server_hello(CIPHER, "h2"), certificates(&[b"one", b"two"])].concat();
        let answer = records(&answer, record);
        assert_eq!(say(&mut talk, true, &hello, segment), hello.len(), "{record} {segment}");
        assert_eq!(say(&mut talk, false, &answer, segment), answer.len());
        let told = told(&talk.events);
        let [facts] = told.as_slice() else { panic!("{record} {segment}: {:?}", kinds(&talk.events)) };
        let (client, server) = (facts.client.as_ref().unwrap(), facts.server.as_ref().unwrap());
        assert_eq!(client.names, ["allowed.example"]);
        assert_eq!((client.version.name(), server.version.name()), ("TLS 1.3", "TLS 1.2"));
        assert_eq!((client.alpn.as_slice(), server.alpn.as_deref()), (&["h2".to_owned()][..], Some("h2")));
        assert_eq!(server.certificates.len(), 2);
        assert_eq!(server.cipher.name(), "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
        talk.acknowledge(true);
        assert_eq!(talk.acknowledge(false), Decision::Pass);
        talk.engine.finish(talk.now, &mut talk.events);
        assert_eq!(kinds(&talk.events), ["tls"]);
    }
}

/// Hellos that some server takes although they are unusual.
fn unusual_hellos(name: &str) -> Vec<(String, Vec<u8>)> {
    let plain = client_hello(name, 0);
    let (fixed, rest) = plain[4..].split_at(34);
    let message = |body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1], &length[1..], body].concat()
    };
    let mut hellos = Vec::new();
    for version in [[3, 0x7f], [3, 0xff], [0, 0], [2, 0], [0x0f, 0xff]] {
        let mut hello = records(&plain, 200);
        hello[1..3].copy_from_slice(&version);
        hellos.push((format!("record of version {version:?}"), hello));
    }
    for version in [[3, 4], [3, 0x7f], [4, 4], [0x7f, 0xff]] {
        let body = [&version, &fixed[2..], rest].concat();
        hellos.push((format!("hello of version {version:?}"), records(&message(&body), 1 << 14)));
    }
    for length in [1, 33, 200, 255] {
        let body = [fixed, &[length], &vec![b's'; length.into()], &rest[1..]].concat();
        hellos.push((format!("session id of {length}"), records(&message(&body), 1 << 14)));
    }
    let body = [fixed, rest, b"behind"].concat();
    hellos.push(("bytes behind the extensions".to_owned(), records(&message(&body), 1 << 14)));
    hellos
}

#[test]
fn hellos_are_read_as_leniently_as_by_any_server() {
    for (what, hello) in unusual_hellos("forbidden.example") {
        for before in [&b""[..], b"\0\0\0\x08\x04\xd2\x16\x2f"] {
            for segment in [1, 1400] {
                let mut talk = Setup::enforcing(FORBIDDEN).open();
                assert!(!talk.sends(true, before, segment));
                assert!(talk.sends(true, &hello, segment), "{what}: {:?}", kinds(&talk.events));
            }
        }
    }
    for (what, hello) in unusual_hellos("allowed.example") {
        let mut talk = Setup::enforcing(FORBIDDEN).open();
        assert!(!talk.sends(true, &hello, 1400), "{what}: {:?}", kinds(&talk.events));
    }
}

#[test]
fn a_requested_name_is_judged_as_servers_look_it_up() {
    for name in ["Forbidden.EXAMPLE", "forbidden.example.", "forbidden.example:443", "FORBIDDEN.example.:443"]
    {
        let mut talk = Setup::enforcing(FORBIDDEN).open();
        assert!(talk.sends(true, &records(&client_hello(name, 0), 1 << 14), 1400), "{name}");
    }
    let mut talk = Setup::monitoring(&FORBIDDEN.replace("forbidden", "FORBIDDEN")).open();
    talk.client(&records(&client_hello("FORBIDDEN.example", 0), 1 << 14));
    talk.engine.finish(talk.now, &mut talk.events);
    assert!(kinds(&talk.events).contains(&"alert/sni".to_owned()), "as it was sent, too");
    assert_eq!(told(&talk.events)[0].name(), Some("FORBIDDEN.example"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_forbidden_hello_never_passes_whole_and_an_allowed_one_always_does(
        padding in 0_usize..3000,
        cuts in proptest::collection::vec(1_usize..2000, 1..12),
        record in 1_usize..3000,
        forbidden in any::<bool>(),
        empty in 0_usize..32,
        reversed in any::<bool>(),
    ) {
        let name = if forbidden { "forbidden.example" } else { "allowed.example" };
        let hello = records(&client_hello(name, padding), record);
        let hello = [b"\x16\x03\x01\0\0".repeat(empty), hello].concat();
        let mut talk = Setup::enforcing(FORBIDDEN).open();
        let start = talk.client_next();
        let mut pieces = Vec::new();
        let (mut at, mut sizes) = (0, cuts.iter().cycle());
        while at < hello.len() {
            let end = hello.len().min(at + sizes.next().unwrap());
            pieces.push((at, &hello[at..end]));
            at = end;
        }
        if reversed {
            pieces.reverse();
        }
        let (mut passed, mut waiting) = (0, VecDeque::from(pieces));
        while let Some((at, piece)) = waiting.pop_front() {
            let sequence = start.wrapping_add(u32::try_from(at).unwrap());
            let segment = talk.segment(true).sequence(sequence).payload(piece);
            match talk.show(&segment) {
                Decision::Block => break,
                // Too many came before their turn: it comes again, behind the others.
                Decision::Drop => waiting.push_back((at, piece)),
                _ => passed += piece.len(),
            }
        }
        prop_assert_eq!(passed == hello.len(), !forbidden);
        prop_assert_eq!(kinds(&talk.events).contains(&"alert/sni".to_owned()), forbidden);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_forbidden_certificate_never_passes_whole_and_an_allowed_one_always_does(
        forbidden in any::<bool>(),
        others in 0_usize..3,
        record in 1_usize..300,
        segment in 1_usize..300,
    ) {
        // SHA-256 of `one`.
        let rules = "[[rule]]\nid = \"c\"\nprotocol = \"tls\"\naction = \"drop\"\n\
                     match.sha256 = '^7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed$'\n";
        let chain = [&[if forbidden { &b"one"[..] } else { b"two" }][..], &vec![&[7; 90][..]; others]].concat();
        let mut talk = Setup::enforcing(rules).open();
        say(&mut talk, true, &records(&client_hello("allowed.example", 0), 1 << 14), 1400);
        let answer = [server_hello(CIPHER, "h2"), certificates(&chain)].concat();
        let answer = records(&answer, record);
        prop_assert_eq!(say(&mut talk, false, &answer, segment) == answer.len(), !forbidden);
    }
}

#[test]
fn a_server_that_answers_an_older_hello_by_tls_is_judged() {
    // SSL 2's hello for TLS 1.0, RFC 5246 appendix E.2, without and with a line end in its challenge.
    for challenge in [[b'c'; 16], [b'\n'; 16]] {
        let hello = [&b"\x80\x1c\x01\x03\x01\0\x03\0\0\0\x10\0\0\x2f"[..], &challenge].concat();
        let rule = "[[rule]]\nid = \"v\"\nprotocol = \"tls\"\nmatch.version = '1\\.2'\naction = \"drop\"\n";
        let mut talk = Setup::enforcing(rule).open();
        assert_eq!(talk.client(&hello), Decision::Undecided);
        assert_eq!(talk.server(&records(&server_hello(CIPHER, "h2"), 1 << 14)), Decision::Block);
    }
}

#[test]
fn a_session_that_is_resumed_shows_no_certificate() {
    let mut talk = Setup::enforcing(FORBIDDEN).open();
    talk.client(&records(&client_hello("allowed.example", 0), 1 << 14));
    talk.server(&records(&server_hello(CIPHER, "h2"), 1 << 14));
    assert_eq!(kinds(&talk.events), Vec::<String>::new());
    talk.server(b"\x14\x03\x03\x00\x01\x01");
    assert_eq!(kinds(&talk.events), ["tls"]);
}

/// A handshake behind the server's request to try again.
fn retried() -> Conversation {
    let mut talk = Setup::enforcing(FORBIDDEN).open();
    talk.client(&records(&client_hello("allowed.example", 0), 1 << 14));
    let mut retry = server_hello(0x1301, "h2");
    retry[6..38].copy_from_slice(&[
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
        0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ]);
    assert_eq!(talk.server(&records(&retry, 1 << 14)), Decision::Undecided);
    // OpenSSL's server says that behind the retry, and its client before the second hello.
    let change = b"\x14\x03\x03\x00\x01\x01";
    assert_eq!(talk.server(change), Decision::Undecided);
    talk.client(change);
    talk
}

#[test]
fn the_second_hello_is_judged_too() {
    let mut talk = retried();
    assert_eq!(talk.client(&records(&client_hello("forbidden.example", 0), 1 << 14)), Decision::Block);
    talk.engine.finish(talk.now, &mut talk.events);
    let told = told(&talk.events);
    assert!(told[0].retried && told[0].server.is_none());
    assert_eq!(told[0].name(), Some("allowed.example"));
}

#[test]
fn the_servers_hello_behind_a_retry_is_told() {
    let mut talk = retried();
    talk.client(&records(&client_hello("allowed.example", 0), 1 << 14));
    talk.server(&records(&server_hello(CIPHER, "h2"), 1 << 14));
    talk.engine.finish(talk.now, &mut talk.events);
    let told = told(&talk.events);
    assert!(told[0].retried && told[0].server.is_some(), "{:?}", kinds(&talk.events));
}

#[test]
fn an_alert_is_told_and_judged() {
    let rule =
        "[[rule]]\nid = \"a\"\nprotocol = \"tls\"\nmatch.alert = '^unrecognized_name$'\naction = \"alert\"\n";
    let mut talk = Setup::enforcing(rule).open();
    talk.client(&records(&client_hello("allowed.example", 0), 1 << 14));
    talk.server(&alert(112));
    assert_eq!(kinds(&talk.events), ["alert/a", "tls"]);
    assert_eq!(told(&talk.events)[0].alert.unwrap().code.name(), "unrecognized_name");
}

#[test]
fn what_answers_otherwise_has_the_hello_read_as_anything_else() {
    // TLS to a port where HTTP is spoken: the client's half, and the server's.
    let mut talk = Setup::enforcing("").open();
    talk.client(&records(&client_hello("allowed.example", 0), 1 << 14));
    talk.server(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    talk.engine.finish(talk.now, &mut talk.events);
    let told = kinds(&talk.events);
    assert!(told.contains(&"http".to_owned()) && told.contains(&"tls".to_owned()), "{told:?}");
    // An SSH identification within what looks like a hello is one, for some servers.
    let rule = "[[rule]]\nid = \"r\"\nprotocol = \"ssh\"\nfrom = \"client\"\nmatch.software = 'Evil'\naction = \"drop\"\n";
    for segment in [1, 10, 1400] {
        let mut talk = Setup::enforcing(rule).open();
        let hello = records(&client_hello("a\nSSH-2.0-Evil\r\n", 0), 1 << 14);
        assert!(say(&mut talk, true, &hello, segment) < hello.len(), "{segment}");
    }
}

#[test]
fn a_hello_that_is_something_else_for_others_is_stopped_unjudged() {
    let hello = records(&client_hello("forbidden.example\nSSH-", 0), 1 << 14);
    for segment in [1, 10, 1400] {
        let mut talk = Setup::enforcing(FORBIDDEN).open();
        assert!(say(&mut talk, true, &hello, segment) < hello.len(), "{segment}");
        assert!(kinds(&talk.events).contains(&"tls_disputed_hello".to_owned()), "{:?}", talk.events);
    }
}

#[test]
fn rules_about_the_first_octets_see_tls_as_they_did() {
    for (from, first) in [("client", true), ("server", false)] {
        let rule = format!(
            "[[rule]]\nid = \"o\"\nprotocol = \"other\"\nfrom = \"{from}\"\nmatch.name = '^tls$'\naction = \"drop\"\n"
        );
        let mut talk = Setup::enforcing(&rule).open();
        let hello = talk.client(&records(&client_hello("allowed.example", 0), 1 << 14));
        assert_eq!(hello == Decision::Block, first);
        let answer = talk.server(&records(&server_hello(CIPHER, "h2"), 1 << 14));
        assert_eq!(answer, Decision::Block, "{from}");
    }
}

#[test]
fn a_policy_may_name_a_rule_about_tls() {
    let rules = "[[policy]]\nport = 22\nallow_rules = [\"ours\"]\n[[rule]]\nid = \"ours\"\nprotocol = \"tls\"\n\
                 from = \"client\"\nmatch.sni = '^allowed\\.'\naction = \"allow\"\n";
    for (name, passes) in [("allowed.example", true), ("forbidden.example", false)] {
        for segment in [1, 1400] {
            let mut talk = Setup::enforcing(rules).open();
            let hello = records(&client_hello(name, 0), 1 << 14);
            assert_eq!(say(&mut talk, true, &hello, segment) == hello.len(), passes, "{name} {segment}");
        }
    }
}

#[test]
fn a_hello_that_contradicts_itself_is_odd() {
    let mut hello = client_hello("allowed.example", 0);
    let last = hello.len() - 1;
    hello[last] = 0xff;
    let mut talk = Setup::monitoring("").open();
    talk.client(&records(&hello, 1 << 14));
    assert_eq!(kinds(&talk.events), ["tls_malformed"]);
}
