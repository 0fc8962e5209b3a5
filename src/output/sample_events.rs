//! A scan's results for the tests of its formats: one group of events a target.

use std::sync::Arc;
use std::time::Duration;

use crate::event::*;

/// An hour of a day: 2026-01-31 12:00:00 UTC.
pub(super) const NOON: Timestamp = Timestamp::from_nanos(1_769_860_800_000_000_000);

fn event(server: (&str, u16), kind: EventKind) -> Event {
    let address = server.0.parse().expect("an address");
    let here = if server.0.contains(':') { "2001:db8::1" } else { "192.0.2.1" };
    let flow = FlowContext {
        id: 0,
        transport: TransportProtocol::Tcp,
        endpoints: FlowEndpoints {
            client: Endpoint { address: here.parse().expect("an address"), port: 0 },
            server: Endpoint { address, port: server.1 },
        },
        from: Some(Side::Server),
        interface: None,
        vlan: Vec::new(),
        packet_number: None,
        transaction: None,
        protocol: None,
        established: None,
        midstream: false,
    };
    Event { timestamp: NOON, source: EventSource::Scan, flow: Some(flow), kind }
}

fn connect(state: PortState, reason: &'static str, said: &str) -> EventKind {
    let round_trip = Some(Duration::from_micros(1250));
    EventKind::Connect(ConnectFacts {
        state,
        reason: reason.into(),
        said: said.to_owned(),
        round_trip,
        waited_ms: None,
    })
}

/// A port of each state; the open one said something that no terminal should see.
pub(super) fn ports() -> [Vec<Event>; 4] {
    [
        vec![event(("192.0.2.7", 25), connect(PortState::Open, "foreign", "220 <mail>\r\n\x1b[2J\u{fffe}"))],
        vec![event(("192.0.2.8", 22), connect(PortState::Closed, "refused", ""))],
        vec![event(("2001:db8::9", 22), connect(PortState::Filtered, "no-response", ""))],
        vec![event(("192.0.2.10", 22), connect(PortState::Error, "EADDRNOTAVAIL", ""))],
    ]
}

/// An SSH server with an alert, its banner hostile.
pub(super) fn ssh() -> Vec<Event> {
    let server = ("192.0.2.20", 2222);
    let banner = "SSH-2.0-OpenSSH_9.2p1 <&\"'>\x07/x";
    let side = SshSide {
        protocol_version: "2.0".to_owned(),
        software_version: "OpenSSH_9.2p1 <&\"'>\x07/x".to_owned(),
        banner: banner.to_owned(),
        fingerprint: Some(ProductFacts {
            product: Some("OpenSSH".to_owned()),
            version: Some("9.2p1".to_owned()),
            cpe: Some("cpe:/a:openbsd:openssh:9.2p1".to_owned()),
            ..ProductFacts::default()
        }),
        host_key: Some(HostKey {
            algorithm: "ssh-ed25519",
            fingerprint: "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU".to_owned(),
            signature: SignatureResult::Good,
        }),
        ..SshSide::default()
    };
    let facts = SshFacts { client: None, server: Some(side.into()) };
    let alert = AlertFacts {
        rule: "openssh-regresshion".to_owned(),
        title: "OpenSSH 8.5p1 to 9.7p1".to_owned(),
        category: String::new(),
        action: RuleAction::Drop,
        blocked: false,
        enforced: false,
        severity: Severity::High,
        references: vec!["CVE-2024-6387".to_owned()],
        product: ProductFacts::default(),
        from: Side::Server,
        banner: banner.to_owned(),
        application: ApplicationFacts::Ssh(Arc::new(facts.clone())),
        matched: None,
        let_pass: None,
        resets: None,
        verdict: None,
    };
    vec![
        event(server, connect(PortState::Open, "complete", "")),
        event(server, EventKind::Application(ApplicationFacts::Ssh(Arc::new(facts)))),
        event(server, EventKind::Alert(Arc::new(alert))),
    ]
}

/// An HTTP server that was asked twice.
pub(super) fn http() -> Vec<Event> {
    let server = ("2001:db8::20", 8080);
    let answer = |url: &str, status: u16, title: Option<&str>| {
        let response = HttpResponseFacts {
            version: "HTTP/1.1".into(),
            status,
            reason: "Fine".into(),
            headers: vec![HeaderField { name: "Server".into(), value: "nginx/1.22".into() }],
            title: title.map(str::to_owned),
            ..HttpResponseFacts::default()
        };
        let request =
            HttpRequestFacts { method: "GET".into(), url: url.to_owned(), ..HttpRequestFacts::default() };
        let facts = HttpFacts { request: Some(request), response: Some(response) };
        event(server, EventKind::Application(ApplicationFacts::Http(Arc::new(facts))))
    };
    vec![
        event(server, connect(PortState::Open, "complete", "")),
        answer("/", 200, Some("Welcome & <so on>")),
        answer("/server-status", 404, None),
    ]
}

/// All of them.
pub(super) fn all() -> Vec<Vec<Event>> {
    ports().into_iter().chain([ssh(), http()]).collect()
}

/// Returns the output of `format` for a whole scan.
pub(super) fn spelled(mut format: impl super::OutputFormat, groups: &[Vec<Event>]) -> String {
    let mut out = Vec::new();
    format.begin(&mut out).expect("memory");
    groups.iter().for_each(|group| format.group(group, &mut out).expect("memory"));
    while format.rest(&mut out).expect("memory") {}
    format.end(&mut out).expect("memory");
    String::from_utf8(out).expect("UTF-8")
}
