//! Servers that speak HTTP/2 within TLS, alone or beside other versions.

use std::sync::atomic::{AtomicUsize, Ordering};

use bannerwall_test_support::hello::{CERTIFICATE, KEY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::scan::tls::{TlsOptions, TlsTargets, TrustedAuthorities};

/// Types of frames, RFC 9113 section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;

/// `:status: 200` and a field, RFC 7541.
const HEAD: &[u8] = b"\x88\x00\x06server\x07two/1.0";

fn frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// Serves HTTP/2 to whoever agrees on `alpn`; each connection answers `limit` requests.
fn two(alpn: &'static [&'static str], limit: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let certificate = CertificateDer::from(STANDARD.decode(CERTIFICATE).expect("base64"));
    let key = STANDARD.decode(KEY).expect("base64");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    let builder = builder.expect("versions").with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certificate], key).expect("its key");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let (config, connections) = (Arc::new(config), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    let address = server(move |stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        // Whoever has seen enough, or has not agreed, ends it.
        let _ = talk(StreamOwned::new(connection, stream), limit);
    });
    (address, connections)
}

fn talk(mut stream: StreamOwned<ServerConnection, TcpStream>, limit: usize) -> std::io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface)?;
    if !preface.starts_with(b"PRI * HTTP/2.0") {
        return Ok(());
    }
    stream.write_all(&frame(SETTINGS, 0, [0; 4], &[]))?;
    let mut answered = 0;
    while answered < limit {
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        let [high, middle, low, kind, flags, id @ ..] = header;
        let mut payload =
            vec![0; usize::try_from(u32::from_be_bytes([0, high, middle, low])).expect("a length")];
        stream.read_exact(&mut payload)?;
        if kind == SETTINGS && flags == 0 {
            stream.write_all(&frame(SETTINGS, 1, [0; 4], &[]))?;
        }
        if kind == HEADERS {
            answered += 1;
            let body = frame(DATA, 1, id, b"<title>Two</title>");
            stream.write_all(&[frame(HEADERS, 4, id, HEAD), body].concat())?;
        }
    }
    stream.conn.send_close_notify();
    stream.flush()
}

fn ask(alpn: &[&str], second: &[&str], requests: usize, address: SocketAddr) -> Seen {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let tls = TlsOptions {
        name: None,
        alpn: names(alpn),
        second: names(second),
        with: TlsTargets::All,
        starttls: None,
        authorities: TrustedAuthorities::of_system(),
    };
    let config = ScannerConfig {
        first_byte_timeout: Duration::from_secs(19),
        ..config(ProbeOptions::Https(http(requests), tls))
    };
    scan(&config, vec![address])
}

/// Status, field and title of each answer, by path.
fn answers(seen: &Seen) -> Vec<(String, String)> {
    let answer = |event: &Event| match &event.kind {
        EventKind::Application(ApplicationFacts::Http(facts)) => {
            let response = facts.response.as_ref()?;
            let told = format!(
                "{} {} {} {}",
                response.version,
                response.status,
                response.header("Server").unwrap_or_default(),
                response.title.as_deref().unwrap_or_default()
            );
            Some((facts.request.as_ref()?.url.clone(), told))
        }
        _ => None,
    };
    let mut answers: Vec<_> = seen.events.iter().filter_map(answer).collect();
    answers.sort();
    answers
}

fn expected(requests: usize) -> Vec<(String, String)> {
    let mut all: Vec<_> =
        (0..requests).map(|number| (format!("/{number}"), "HTTP/2 200 two/1.0 Two".to_owned())).collect();
    all.sort();
    all
}

fn handshakes(seen: &Seen) -> usize {
    let is_tls = |event: &&Event| matches!(event.kind, EventKind::Application(ApplicationFacts::Tls(_)));
    seen.events.iter().filter(is_tls).count()
}

#[test]
fn a_server_that_speaks_only_http_2_is_asked_in_it() {
    // One that refuses who offers anything else, and one that has never heard of offers.
    let (address, connections) = two(&["h2"], 1000);
    let seen = ask(&["http/1.1"], &["h2"], 30, address);
    assert_eq!(answers(&seen), expected(30));
    assert_eq!(seen.one(), (PortState::Open, ExchangeOutcome::Complete));
    assert_eq!((handshakes(&seen), connections.load(Ordering::Relaxed)), (1, 2));
}

#[test]
fn what_a_connection_does_not_answer_is_asked_on_the_next() {
    let (address, connections) = two(&["h2", "http/1.1"], 12);
    let seen = ask(&["h2", "http/1.1"], &[], 30, address);
    assert_eq!(answers(&seen), expected(30));
    assert_eq!(seen.one(), (PortState::Open, ExchangeOutcome::Complete));
    assert_eq!((handshakes(&seen), connections.load(Ordering::Relaxed)), (1, 3));
}

#[test]
fn a_server_that_answers_in_no_version_is_given_up() {
    let (address, connections) = two(&[], 1000);
    let seen = ask(&["http/1.1"], &["h2"], 3, address);
    assert_eq!(answers(&seen), []);
    assert_eq!(seen.one(), (PortState::Open, ExchangeOutcome::Ended));
    assert_eq!(handshakes(&seen), 1);
    assert!(connections.load(Ordering::Relaxed) < 20);
}
