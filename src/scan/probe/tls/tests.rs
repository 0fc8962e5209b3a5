//! Handshakes with the library's own server and with old ones, in pieces of any size.

use std::net::SocketAddr;

use bannerwall_test_support::hello::{CERTIFICATE, KEY, alert, certificates, records, server_hello};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion, version};

use super::*;
use crate::banner::disclosure::DisclosureLimits;
use crate::event::{ApplicationFacts, Event, EventKind};
use crate::scan::probe::ConnectProbe;
use crate::scan::tls::{TrustedAuthorities, client_config};
use crate::terms::CertificateVerification;

/// In January 2027, in nanoseconds since the Unix epoch.
const NOW: u64 = 1_800_000_000_000_000_000;

/// One connection of a probe, and what it told.
struct Stage {
    probe: TlsProbe<ConnectProbe>,
    session: TlsSession<()>,
    channel: TlsConnection<()>,
    out: Vec<u8>,
    events: Vec<Event>,
    target: Target,
}

impl Stage {
    fn new(name: &'static str) -> Self {
        let judge = ResponseMatcher::new(Arc::default(), None, DisclosureLimits::default());
        let options = TlsOptions {
            name: Some(DnsName::try_from(name).unwrap()),
            alpn: vec!["h2".to_owned()],
            second: Vec::new(),
            with: TlsTargets::All,
            starttls: None,
            authorities: TrustedAuthorities::of_system(),
        };
        let probe = TlsProbe::new(ConnectProbe, judge, client_config().unwrap(), &options);
        let address = SocketAddr::from(([192, 0, 2, 1], 443));
        let target = Target { address, index: 0, host: None };
        let (session, channel) = (TlsSession::default(), TlsConnection::default());
        let mut stage = Self { probe, session, channel, out: Vec::new(), events: Vec::new(), target };
        let Self { probe, session, channel, out, target, .. } = &mut stage;
        probe.begin(session, target);
        probe.open(session, channel, target, Timestamp::default(), out);
        assert!(out.is_empty(), "nothing is said before there is somebody");
        probe.accepted(session, channel, Timestamp::default(), out);
        stage
    }

    /// Shows the probe octets in pieces; false once it has seen enough.
    fn show(&mut self, octets: &[u8], size: usize) -> bool {
        let Self { probe, session, channel, out, events, target } = self;
        octets.chunks(size).all(|piece| {
            let mut scene =
                ProbeContext { sink: events, now: Timestamp::from_nanos(NOW), target, matches: &mut 0 };
            probe.receive(session, channel, piece, out, &mut scene) == ProbeStep::More
        })
    }

    /// Ends the connection: how the talk went, and what was told of the handshake.
    fn end(mut self, how: CloseReason) -> (ExchangeOutcome, Option<Arc<TlsFacts>>) {
        let Self { probe, session, channel, events, target, .. } = &mut self;
        let now = Timestamp::from_nanos(NOW);
        let mut scene = ProbeContext { sink: events, now, target, matches: &mut 0 };
        probe.closed(session, channel, how, &mut scene);
        if probe.wanted(session) > 0 {
            // It is silent to the hello for old servers.
            let mut out = Vec::new();
            probe.open(session, channel, target, now, &mut out);
            probe.accepted(session, channel, now, &mut out);
            assert!(out.starts_with(&[0x16, 3, 1]) && channel.tls.is_none(), "{out:?}");
            probe.closed(session, channel, CloseReason::Silent, &mut scene);
        }
        assert_eq!(probe.wanted(session), 0);
        let told: Vec<_> = self
            .events
            .iter()
            .map(|event| match &event.kind {
                EventKind::Application(ApplicationFacts::Tls(facts)) => Arc::clone(facts),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(told.len() <= 1, "{told:?}");
        (self.probe.result(&self.session).0, told.into_iter().next())
    }
}

fn server(version: &'static SupportedProtocolVersion) -> ServerConnection {
    let certificate = CertificateDer::from(STANDARD.decode(CERTIFICATE).unwrap());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(STANDARD.decode(KEY).unwrap()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    ServerConnection::new(Arc::new(config)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_handshake_is_told_whole_however_it_is_cut(
        newer in any::<bool>(), right in any::<bool>(), size in 1_usize..2000
    ) {
        let mut stage = Stage::new(if right { "www.example" } else { "other.example" });
        let mut server = server(if newer { &version::TLS13 } else { &version::TLS12 });
        let mut goes_on = true;
        for _ in 0..4 {
            while !stage.out.is_empty() {
                let count = server.read_tls(&mut &stage.out[..]).unwrap();
                stage.out.drain(..count);
                server.process_new_packets().unwrap();
            }
            let mut said = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut said).unwrap();
            }
            goes_on = goes_on && stage.show(&said, size);
        }
        prop_assert!(!goes_on);
        let (conversation, told) = stage.end(CloseReason::Here);
        prop_assert_eq!(conversation, ExchangeOutcome::Complete);
        let told = told.unwrap();
        let (client, shown) = (told.client.as_ref().unwrap(), told.server.as_ref().unwrap());
        prop_assert_eq!(shown.version.name(), if newer { "TLS 1.3" } else { "TLS 1.2" });
        prop_assert_eq!(shown.alpn.as_deref(), Some("h2"));
        prop_assert_eq!(client.names.len(), 1);
        prop_assert_eq!(shown.certificates.len(), 1);
        prop_assert_eq!(&shown.certificates[0].subject, "CN=www.example");
        let mut expected = vec![CertificateVerification::SelfSigned];
        expected.extend((!right).then_some(CertificateVerification::WrongName));
        prop_assert_eq!(&told.verification, &expected);
    }

    #[test]
    fn a_server_of_an_older_version_is_told_by_what_it_chose(
        record in 1_usize..200, size in 1_usize..200, alerts in any::<bool>()
    ) {
        let mut stage = Stage::new("www.example");
        let mut hello = server_hello(0xc02f, "h2");
        // TLS 1.0.
        (hello[4], hello[5]) = (3, 1);
        let der = STANDARD.decode(CERTIFICATE).unwrap();
        let said = match alerts {
            true => alert(70),
            false => records(&[hello, certificates(&[&der])].concat(), record),
        };
        let goes_on = stage.show(&said, size);
        prop_assert!(!goes_on);
        let (conversation, told) = stage.end(CloseReason::Here);
        prop_assert_eq!(conversation, ExchangeOutcome::Refused);
        let told = told.unwrap();
        match alerts {
            true => prop_assert_eq!(told.alert.unwrap().code.name(), "protocol_version"),
            false => {
                let server = told.server.as_ref().unwrap();
                prop_assert_eq!(server.version.name(), "TLSv1");
                prop_assert_eq!(&server.certificates[0].subject, "CN=www.example");
            }
        }
    }

    #[test]
    fn octets_of_any_kind_never_panic(
        octets in proptest::collection::vec(any::<u8>(), 0..400), size in 1_usize..50, record in any::<bool>()
    ) {
        let mut stage = Stage::new("www.example");
        let said = if record { records(&octets, 100) } else { octets };
        stage.show(&said, size);
        let (conversation, _) = stage.end(CloseReason::Finished);
        prop_assert!(conversation != ExchangeOutcome::Complete);
    }
}

#[test]
fn who_speaks_no_tls_or_nothing_is_told_apart() {
    for (said, how, expected) in [
        (&b""[..], CloseReason::Silent, ExchangeOutcome::Silent),
        (b"", CloseReason::Finished, ExchangeOutcome::Ended),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", CloseReason::Finished, ExchangeOutcome::Foreign),
        (b"\x16\x03\x03\x00\x40", CloseReason::Silent, ExchangeOutcome::TimedOut),
        (b"\x16\x03\x03\x00\x40", CloseReason::Reset, ExchangeOutcome::Reset),
    ] {
        let mut stage = Stage::new("www.example");
        stage.show(said, 100);
        assert_eq!(stage.end(how), (expected, None), "{said:?}");
    }
}
