//! Policies over hand-made conversations: every order, every cut.

use std::time::Duration;

use crate::engine::testing::{Conversation, Setup};
use crate::engine::{Decision, OnFailure};
use crate::event::{ApplicationFacts, Event, EventKind, Side};
use crate::packet::TcpFlags;

const ONLY_SSH: &str = "[[policy]]\nport = 22\nallow = \"ssh\"\n";

const TLS: &[u8] = b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03 and so on";

/// What is said, in order.
type Said = &'static [(Side, &'static [u8])];

/// What was told: names of other protocols as they are, `alert`, `drop`, or the protocol.
fn kinds(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| match &event.kind {
        EventKind::Application(ApplicationFacts::Other(facts)) => format!("other/{}", facts.name),
        EventKind::Application(said) => said.protocol().name().to_owned(),
        EventKind::Alert(facts) => format!("alert/{}", facts.rule),
        EventKind::Drop(facts) => format!("drop/{}", facts.rule.as_deref().unwrap_or_default()),
        EventKind::Anomaly(facts) => facts.name.to_owned(),
        _ => "else".to_owned(),
    };
    events.iter().map(name).collect()
}

fn count(events: &[Event], what: &str) -> usize {
    kinds(events).iter().filter(|kind| kind.starts_with(what)).count()
}

/// Says bytes in pieces; gives how many of them were let through before one was stopped.
fn say(talk: &mut Conversation, from: Side, octets: &[u8], size: usize) -> (usize, Decision) {
    let mut through = 0;
    for piece in octets.chunks(size) {
        let decision = if from == Side::Client { talk.client(piece) } else { talk.server(piece) };
        if !matches!(decision, Decision::Undecided | Decision::Pass) {
            return (through, decision);
        }
        through += piece.len();
    }
    (through, Decision::Undecided)
}

#[test]
fn nothing_that_a_receiver_could_use_of_a_forbidden_protocol_passes_however_it_is_cut() {
    use Side::{Client, Server};
    // What is said, in order, and how many bytes of the last of it may be something allowed.
    let talks: &[(Said, usize)] = &[
        (&[(Server, b"RFB 003.008\n")], 0),
        (&[(Client, TLS)], 0),
        (&[(Client, b"SSH-2.0-x\r\n"), (Server, b"RFB 003.008\n")], 0),
        (&[(Server, b"SSH-2.0-x\r\n"), (Client, b"GET / HTTP/1.1\r\n\r\n")], 0),
        (&[(Server, b"SMTP is not SSH\r\n")], 1),
        (&[(Server, b"220 mail ESMTP\r\n")], 0),
        (&[(Server, b"Welcome\r\nSSH-2.0-x\r\n")], 0),
        (&[(Client, b"PING\r\n")], 0),
        (&[(Client, b"\x00\x00\x00\x08\x04\xd2\x16\x2f")], 0),
    ];
    for (said, allowed) in talks {
        for size in [1, 2, 3, 7, 1000] {
            let mut talk = Setup::enforcing(ONLY_SSH).open();
            let (last, before) = said.split_last().unwrap();
            for (from, octets) in before {
                assert_eq!(say(&mut talk, *from, octets, size).0, octets.len());
            }
            let (through, decision) = say(&mut talk, last.0, last.1, size);
            assert_eq!(decision, Decision::Block, "{said:?} {size}");
            assert!(through <= *allowed, "{through} octets of {said:?} at {size}");
            // And nothing behind it.
            assert_eq!(talk.server(b"more"), Decision::Block);
            assert_eq!(talk.client(b"more"), Decision::Block);
            assert_eq!(count(&talk.events, "alert/policy-22"), 1);
            assert_eq!(count(&talk.events, "drop/policy-22"), 1);
            let told = kinds(&talk.events);
            let (about, other) = (told.len() - 2, count(&talk.events, "other/"));
            assert!(about == 1 || (about > 1 && other == 0), "{said:?} {size} {told:?}");
        }
    }
}

#[test]
fn what_is_allowed_passes_in_either_order_and_however_it_is_cut() {
    use Side::{Client, Server};
    const SSH: &str = "SSH-2.0-OpenSSH_9.8\r\n";
    for first in [Client, Server] {
        for size in [1, 2, 3, 7, 1000] {
            let mut talk = Setup::enforcing(ONLY_SSH).open();
            for from in [first, first.other()] {
                assert_eq!(say(&mut talk, from, SSH.as_bytes(), size).0, SSH.len(), "{size}");
            }
            talk.acknowledge(true);
            assert_eq!(talk.acknowledge(false), Decision::Pass);
            assert_eq!(kinds(&talk.events), ["ssh"]);
        }
    }
    let rules = "[[policy]]\nport = 22\nallow = [\"http\", \"smtp\", \"tls\"]\n";
    let long = [b"GET /", &[b'a'; 5000][..], b" HTTP/1.1\r\nHost: example\r\n\r\n"].concat();
    let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let talks: &[&[(Side, &[u8])]] = &[
        &[(Client, &long), (Server, answer)],
        &[(Server, b"220-mail\r\n220 ESMTP Postfix\r\n"), (Client, b"EHLO x\r\n")],
        &[(Client, TLS), (Server, b"\x16\x03\x03\x00\x40\x02\x00\x00\x3c")],
    ];
    for said in talks {
        for size in [1, 2, 7, 1000] {
            let mut talk = Setup::enforcing(rules).open();
            for (from, octets) in *said {
                assert_eq!(say(&mut talk, *from, octets, size).0, octets.len(), "{said:?} {size}");
            }
            assert_eq!(count(&talk.events, "alert") + count(&talk.events, "drop"), 0);
        }
    }
}

#[test]
fn a_monitor_says_what_would_be_stopped_and_stops_nothing() {
    let mut talk = Setup::monitoring(ONLY_SSH).open();
    for size in [1, 1000] {
        assert_eq!(say(&mut talk, Side::Server, b"RFB 003.008\n", size).0, 12);
    }
    say(&mut talk, Side::Client, b"RFB 003.008\n", 1000);
    talk.engine.finish(talk.now, &mut talk.events);
    assert_eq!(kinds(&talk.events), ["alert/policy-22", "other/rfb"]);
}

#[test]
fn silence_is_ended_in_its_time_and_only_silence() {
    let rules = "[[policy]]\nport = 22\nallow = \"ssh\"\nsilent_after = \"10s\"\n";
    let mut talk = Setup::enforcing(rules).open();
    talk.wait(Duration::from_secs(9));
    assert_eq!(kinds(&talk.events), Vec::<String>::new());
    talk.wait(Duration::from_secs(2));
    assert_eq!(kinds(&talk.events), ["alert/policy-22", "drop/policy-22"]);
    assert_eq!(talk.server(b"SSH-2.0-x\r\n"), Decision::Block);
    let mut talk = Setup::enforcing(rules).open();
    talk.server(b"S");
    talk.wait(Duration::from_secs(20));
    assert_eq!(kinds(&talk.events), Vec::<String>::new());
    // A handshake that nobody has answered is no connection.
    let mut talk = Setup::enforcing(rules).midstream();
    talk.other().syn();
    talk.wait(Duration::from_secs(20));
    assert_eq!(kinds(&talk.events), Vec::<String>::new());
}

#[test]
fn a_silent_connection_is_reset_by_its_next_packet() {
    let rules = "[[policy]]\nport = 22\nallow = \"ssh\"\nsilent_after = \"10s\"\notherwise = \"reject\"\n";
    for from in [Side::Client, Side::Server] {
        let mut talk = Setup::enforcing(rules).open();
        let (client, server) = (talk.client_next(), talk.server_next());
        talk.wait(Duration::from_secs(11));
        assert_eq!(kinds(&talk.events), ["alert/policy-22"]);
        let (_, Decision::Reject(resets)) = say(&mut talk, from, b"SSH-2.0-x\r\n", 1000) else {
            panic!("not rejected")
        };
        let number = |packet: &[u8]| u32::from_be_bytes(packet[24..28].try_into().unwrap());
        let (to_receiver, to_sender) = if from == Side::Client { (client, server) } else { (server, client) };
        assert_eq!((number(&resets.to_receiver), number(&resets.to_sender)), (to_receiver, to_sender));
        assert_eq!(kinds(&talk.events), ["alert/policy-22", "drop/policy-22"]);
        assert_eq!(talk.server(b"SSH-2.0-x\r\n"), Decision::Block);
        assert_eq!(talk.engine.counters().flows_rejected, 1);
    }
}

#[test]
fn flows_that_were_not_seen_from_their_start_are_judged_where_the_policy_says_so() {
    let mut talk = Setup::enforcing(ONLY_SSH).picked_up();
    assert_eq!(talk.server(b"\x8f\x13 the middle of something"), Decision::Undecided);
    assert_eq!(talk.client(b"\x01\x02"), Decision::Undecided);
    let mut talk = Setup::enforcing(&format!("{ONLY_SSH}midstream = \"judge\"\n")).picked_up();
    assert_eq!(talk.server(b"\x8f\x13 the middle of something"), Decision::Block);
}

#[test]
fn data_in_a_syn_is_held_against_the_policy() {
    let mut talk = Setup::enforcing(ONLY_SSH).midstream();
    let syn = talk.segment(true).sequence(talk.client_next().wrapping_sub(1)).flags(TcpFlags::SYN);
    assert_eq!(talk.show(&syn.payload(TLS)), Decision::Drop);
    let mut talk = Setup::enforcing(ONLY_SSH).midstream();
    let syn = talk.segment(true).sequence(talk.client_next().wrapping_sub(1)).flags(TcpFlags::SYN);
    assert_eq!(talk.show(&syn.payload(b"SSH-2.0-x\r\n")), Decision::Undecided);
}

#[test]
fn policies_and_rules_stand_beside_each_other() {
    let rule = |action: &str| {
        format!(
            "[[rule]]\nid = \"r\"\nprotocol = \"ssh\"\nmatch.software = \"^Open\"\naction = \"{action}\"\n"
        )
    };
    let drop_all = "[[rule]]\nid = \"d\"\nprotocol = \"ssh\"\nmatch.software = \".\"\naction = \"drop\"\n";
    let nothing = "[[policy]]\nport = 22\nallow = \"http\"\n";
    let named = "[[policy]]\nport = 22\nallow_rules = [\"r\"]\n";
    let any = "[[policy]]\nport = 22\nallow = \"any\"\n";
    let alerting = "[[policy]]\nport = 22\nallow = \"http\"\notherwise = \"alert\"\n";
    // Policy, the action of a rule about the server, whether all of it is dropped by another rule, and
    // whether the server's identification passes.
    for (policy, action, dropped, passes) in [
        ("", "alert", false, true),
        ("", "drop", false, false),
        ("", "accept", true, true),
        (ONLY_SSH, "alert", false, true),
        (ONLY_SSH, "accept", false, true),
        (ONLY_SSH, "drop", false, false),
        (ONLY_SSH, "accept", true, true),
        (ONLY_SSH, "allow", true, false),
        (nothing, "accept", false, false),
        (nothing, "alert", false, false),
        (nothing, "allow", false, false),
        (named, "accept", false, true),
        (named, "alert", false, true),
        (named, "allow", false, true),
        (named, "allow", true, false),
        (named, "drop", false, false),
        (any, "alert", false, true),
        (any, "drop", false, false),
        (alerting, "alert", false, true),
        (alerting, "drop", false, false),
    ] {
        for on_failure in [OnFailure::Open, OnFailure::Closed] {
            let rules = [policy, &rule(action), if dropped { drop_all } else { "" }].concat();
            let mut setup = Setup::enforcing(&rules);
            setup.config.on_failure = on_failure;
            let mut talk = setup.open();
            let decision = talk.server(b"SSH-2.0-OpenSSH_9.8\r\n");
            assert_eq!(decision != Decision::Block, passes, "{policy} {action} {dropped} {decision:?}");
        }
    }
}

#[test]
fn a_rule_that_a_policy_names_lets_pass_what_it_matches_and_nothing_else() {
    let rules = r#"
[[policy]]
port = 22
allow_rules = ["new", "web", "names"]
otherwise = "reject"

[[rule]]
id = "new"
protocol = "ssh"
match.software = '^OpenSSH_(?<version>\d+\.\d+)'
version = ">=9.8"
action = "allow"

[[rule]]
id = "web"
protocol = "http"
match."header.server" = '^nginx'
action = "allow"

[[rule]]
id = "names"
protocol = "other"
match.name = '^tls$'
action = "allow"
"#;
    use Side::{Client, Server};
    let talks: &[(Said, bool)] = &[
        (&[(Client, b"SSH-2.0-x\r\n"), (Server, b"SSH-2.0-OpenSSH_9.8\r\n")], true),
        (&[(Client, b"SSH-2.0-x\r\n"), (Server, b"SSH-2.0-OpenSSH_9.7\r\n")], false),
        (
            &[
                (Client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                (Server, b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 0\r\n\r\n"),
            ],
            true,
        ),
        (
            &[
                (Client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                (Server, b"HTTP/1.1 200 OK\r\nServer: Apache\r\nContent-Length: 0\r\n\r\n"),
            ],
            false,
        ),
        (&[(Client, TLS), (Server, b"\x16\x03\x03\x00\x40\x02\x00\x00\x3c")], true),
        (&[(Server, b"RFB 003.008\n")], false),
        (&[(Client, b"EHLO x\r\n")], false),
    ];
    for (said, passes) in talks {
        for size in [1, 5, 1000] {
            let mut talk = Setup::enforcing(rules).open();
            let mut stopped = false;
            for (from, octets) in *said {
                stopped |= matches!(say(&mut talk, *from, octets, size).1, Decision::Reject(_));
            }
            assert_eq!(!stopped, *passes, "{said:?} {size}");
            assert_eq!(count(&talk.events, "alert"), usize::from(stopped), "{:?}", kinds(&talk.events));
        }
    }
}

#[test]
fn what_comes_to_no_decision_within_the_budget_is_not_allowed() {
    let rules = "[[policy]]\nport = 22\nallow = \"http\"\nbudget = 100\n";
    let mut talk = Setup::enforcing(rules).open();
    let endless = [b"GET /", &[b'a'; 500][..]].concat();
    let (through, decision) = say(&mut talk, Side::Client, &endless, 10);
    assert_eq!((through, decision), (100, Decision::Block));
}

#[test]
fn an_upload_may_be_longer_than_the_budget_before_its_answer_comes() {
    let product = "[[rule]]\nid = \"n\"\nprotocol = \"http\"\nfrom = \"server\"\nmatch.\"header.server\" = '^nginx'\n\
                   action = \"allow\"\n[[policy]]\nport = 22\nallow_rules = [\"n\"]\nbudget = 1000\n";
    let upload =
        [b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n", &[b'x'; 300_000][..]].concat();
    for rules in ["[[policy]]\nport = 22\nallow = \"http\"\nbudget = 1000\n", product] {
        for size in [700, 1400] {
            let mut talk = Setup::enforcing(rules).open();
            for piece in upload.chunks(size) {
                assert_eq!(talk.client(piece), Decision::Undecided);
                talk.acknowledge(false);
            }
            let answer = b"HTTP/1.1 201 Created\r\nServer: nginx\r\nContent-Length: 0\r\n\r\n";
            assert_eq!(say(&mut talk, Side::Server, answer, 5).0, answer.len());
            assert_eq!(count(&talk.events, "alert") + count(&talk.events, "drop"), 0);
        }
        let mut talk = Setup::enforcing(rules).open();
        assert_eq!(say(&mut talk, Side::Client, &upload, 1400).0, upload.len());
        assert_eq!(talk.server(b"RFB 003.008\n"), Decision::Block, "an answer of something else");
    }
}

#[test]
fn each_flow_that_is_not_read_is_told_once_with_or_without_a_policy() {
    use Side::{Client, Server};
    let talks: &[(Said, &str)] = &[
        (&[(Client, TLS), (Server, b"\x16\x03\x03\x00\x40\x02\x00\x00\x3c\x03\x03")], "other/tls"),
        (&[(Client, TLS)], "other/tls"),
        (&[(Server, b"RFB 003.008\n"), (Client, b"RFB 003.008\n"), (Server, b"\x01\x01")], "other/rfb"),
        (&[(Server, b"RFB 003.008\n")], "other/rfb"),
        (&[(Client, b"hello\r\n"), (Server, b"world\r\n")], "other/unknown"),
        (&[(Server, b"login: ")], "other/unknown"),
        (&[(Client, b"\x05\x01\x00")], "other/socks"),
    ];
    for (said, told) in talks {
        for size in [1, 3, 1000] {
            let mut talk = Setup::enforcing("").open();
            for (from, octets) in *said {
                assert_eq!(say(&mut talk, *from, octets, size).0, octets.len());
            }
            talk.wait(Duration::from_secs(3600));
            talk.engine.finish(talk.now, &mut talk.events);
            assert_eq!(count(&talk.events, "other/"), 1, "{:?}", kinds(&talk.events));
            assert_eq!(count(&talk.events, told), 1, "{said:?} {:?}", kinds(&talk.events));
        }
    }
}

#[test]
fn rules_about_what_is_not_read_stop_the_segment_that_tells_it() {
    let rule =
        |about: &str| format!("[[rule]]\nid = \"o\"\nprotocol = \"other\"\n{about}\naction = \"drop\"\n");
    for (about, from, octets) in [
        ("match.name = '^tls$'", Side::Client, TLS),
        ("match.first = '^RFB '\nfrom = \"server\"", Side::Server, b"RFB 003.008\n"),
        ("match.name = '^rfb$'\nport = 22", Side::Server, b"RFB 003.008\n"),
    ] {
        let mut talk = Setup::enforcing(&rule(about)).open();
        assert_eq!(say(&mut talk, from, octets, 1000).1, Decision::Block, "{about}");
        assert_eq!(count(&talk.events, "alert/o"), 1);
    }
    let mut talk = Setup::enforcing(&rule("match.name = '^unknown$'")).open();
    assert_eq!(talk.client(b"hello\r\n"), Decision::Undecided);
    assert_eq!(talk.server(b"world\r\n"), Decision::Block);
}
