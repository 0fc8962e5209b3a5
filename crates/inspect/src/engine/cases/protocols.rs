//! Every protocol that there is, through the engine: packets in; event, verdict and counts out. One that is
//! forgotten somewhere on that way fails here.

use bannerwall_test_support::hello;

use crate::engine::Decision;
use crate::engine::testing::Setup;
use crate::event::{Event, EventKind, Side};
use crate::terms::{GreetingDialect, Protocol};

/// What one side may say in a protocol: before, the banner with `product` in it, and behind.
struct ProtocolSample {
    from: Side,
    before: Vec<u8>,
    banner: Vec<u8>,
    /// What a rule asks for the product.
    field: &'static str,
}

fn samples(protocol: Protocol, product: &str) -> Vec<ProtocolSample> {
    let sample = |from, before: &[u8], banner: Vec<u8>, field| {
        let before = before.to_vec();
        ProtocolSample { from, before, banner, field }
    };
    match protocol {
        Protocol::Ssh => [Side::Client, Side::Server]
            .map(|from| sample(from, b"", format!("SSH-2.0-{product}\r\n").into(), "software"))
            .into(),
        Protocol::Http => vec![
            sample(
                Side::Client,
                b"",
                format!("GET / HTTP/1.1\r\nUser-Agent: {product}\r\n\r\n").into(),
                "\"header.user-agent\"",
            ),
            sample(
                Side::Server,
                b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
                format!("HTTP/1.1 200 OK\r\nServer: {product}\r\nContent-Length: 0\r\n\r\n").into(),
                "\"header.server\"",
            ),
        ],
        Protocol::Tls => {
            let hello = hello::records(&hello::client_hello(product, 0), 1 << 14);
            let answer = hello::records(&hello::server_hello(0xc02f, product), 1 << 14);
            vec![
                sample(Side::Client, b"", hello.clone(), "sni"),
                sample(Side::Server, &hello, answer, "alpn"),
            ]
        }
        Protocol::Greeting(greeting) => {
            let opening = greeting.openings().first().expect("an opening");
            // The word by which those of a dialect are told apart.
            let word = greeting.words().first().copied().unwrap_or_default();
            let line = format!("{opening} {word} {product} ready\r\n");
            let banner = match greeting.dialect() {
                GreetingDialect::Code => format!("{opening}-first\r\n{line}"),
                GreetingDialect::Status | GreetingDialect::Untagged => line,
            };
            vec![sample(Side::Server, b"", banner.into(), "text")]
        }
        Protocol::Other => vec![sample(Side::Server, b"", format!("RFB 003.008\n{product}").into(), "first")],
    }
}

fn rule(protocol: Protocol, sample: &ProtocolSample) -> String {
    let from = match protocol {
        Protocol::Greeting(_) => String::new(),
        _ => format!("from = \"{}\"\n", sample.from.name()),
    };
    format!(
        "[[rule]]\nid = \"r\"\ntitle = \"t\"\nprotocol = \"{}\"\n{from}match.{} = 'Evil'\naction = \"drop\"\n",
        protocol.name(),
        sample.field
    )
}

fn applications(events: &[Event]) -> Vec<Protocol> {
    let protocol = |event: &Event| match &event.kind {
        EventKind::Application(said) => Some(said.protocol()),
        _ => None,
    };
    events.iter().filter_map(protocol).collect()
}

fn alerts(events: &[Event]) -> Vec<(Protocol, Side, bool)> {
    let alert = |event: &Event| match &event.kind {
        EventKind::Alert(alert) => Some((alert.application.protocol(), alert.from, alert.blocked)),
        _ => None,
    };
    events.iter().filter_map(alert).collect()
}

#[test]
fn each_protocol_is_recognised_told_judged_and_counted() {
    for protocol in Protocol::all() {
        for (product, forbidden) in [("Evil", true), ("Good", false)] {
            for sample in samples(protocol, product) {
                for size in [1, 1400] {
                    let shown = format!("{} {product} {size}", protocol.name());
                    let mut talk = Setup::enforcing(&rule(protocol, &sample)).open();
                    if !sample.before.is_empty() {
                        talk.client(&sample.before);
                    }
                    let pieces: Vec<_> = sample.banner.chunks(size).collect();
                    let (last, rest) = pieces.split_last().expect("a banner");
                    let mut send = |piece: &[u8]| match sample.from {
                        Side::Client => talk.client(piece),
                        Side::Server => talk.server(piece),
                    };
                    let early = rest.iter().any(|piece| send(piece) == Decision::Block);
                    let blocked = send(last) == Decision::Block;
                    assert_eq!(early || blocked, forbidden, "{shown}");
                    talk.engine.finish(talk.now, &mut talk.events);
                    let expected = if forbidden { vec![(protocol, sample.from, true)] } else { Vec::new() };
                    assert_eq!(alerts(&talk.events), expected, "{shown}");
                    assert_eq!(applications(&talk.events), [protocol], "{shown}");
                    let counters = talk.engine.counters();
                    assert_eq!(counters.banners(protocol, sample.from), 1, "{shown}");
                    assert_eq!(counters.matches, [u64::from(forbidden)], "{shown}");
                    assert_eq!(counters.flows_dropped, u64::from(forbidden), "{shown}");
                    let others = Protocol::all().filter(|other| *other != protocol);
                    for other in others {
                        let sides = [Side::Client, Side::Server];
                        assert_eq!(sides.map(|side| counters.banners(other, side)), [0, 0], "{shown}");
                    }
                }
            }
        }
    }
}
