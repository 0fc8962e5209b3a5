//! QUIC of a real client and a real server with a router between them that judges: a forbidden name never
//! comes to a handshake, an allowed one does, and its later packets do not pass the guard.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bannerwall_test_support::{Guard, Line, Namespace, as_root, eventually};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::rustls::pki_types::pem::PemObject as _;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::rustls::{self, RootCertStore};
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, TokioRuntime, TransportConfig,
};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const PORT: u16 = 443;

const RULES: &str = r#"
[[rule]]
id = "forbidden-name"
title = "A forbidden name"
protocol = "tls"
from = "client"
match.sni = '^forbidden\.example$'
action = "reject"
examples = ["forbidden.example"]
counterexamples = ["allowed.example"]
"#;

/// Octets that are sent over a connection, many datagrams.
const UPLOAD: usize = 200_000;

/// A certificate for both names.
struct Certified {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Certified {
    fn new(network: &Namespace, folder: &Path) -> Self {
        let path = folder.display();
        network.run(&format!(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test \
             -addext basicConstraints=critical,CA:FALSE \
             -addext subjectAltName=DNS:allowed.example,DNS:forbidden.example -keyout {path}/key -out {path}/cert"
        ));
        Self {
            certificate: CertificateDer::from_pem_file(folder.join("cert")).expect("a certificate"),
            key: PrivateKeyDer::from_pem_file(folder.join("key")).expect("a key"),
        }
    }
}

fn socket(namespace: &Namespace, address: SocketAddr) -> UdpSocket {
    namespace.inside(|| UdpSocket::bind(address)).expect("a free port")
}

fn impatient() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(Duration::from_secs(4).try_into().expect("a short time")));
    Arc::new(transport)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A server that takes what it is sent and counts its connections.
fn serve(
    namespace: &Namespace,
    address: SocketAddr,
    certified: &Certified,
    met: &Arc<AtomicUsize>,
) -> Endpoint {
    let chain = vec![certified.certificate.clone()];
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, certified.key.clone_key())
        .expect("a key that fits");
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = QuicServerConfig::try_from(tls).expect("a cipher for Initials");
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(impatient());
    let socket = socket(namespace, address);
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime));
    let endpoint = endpoint.expect("a socket");
    let (server, met) = (endpoint.clone(), Arc::clone(met));
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            let met = Arc::clone(&met);
            tokio::spawn(async move {
                let connection = incoming.await?;
                met.fetch_add(1, Ordering::Relaxed);
                let (mut answer, mut upload) = connection.accept_bi().await?;
                let said = upload.read_to_end(UPLOAD).await.unwrap_or_default();
                let _ = answer.write_all(&said.len().to_be_bytes()).await;
                let _ = answer.finish();
                connection.closed().await;
                Ok::<(), ConnectionError>(())
            });
        }
    });
    endpoint
}

/// A client whose hello is one of many octets where `long`.
fn client(namespace: &Namespace, address: SocketAddr, certified: &Certified, long: bool) -> Endpoint {
    let mut roots = RootCertStore::empty();
    roots.add(certified.certificate.clone()).expect("a certificate");
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    if long {
        // As long as a hello with a key share for after quantum computers, and more.
        tls.alpn_protocols.extend((0..16).map(|number| vec![b'a' + number; 100]));
    }
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("a cipher")));
    config.transport_config(impatient());
    let socket = socket(namespace, address);
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime));
    let mut endpoint = endpoint.expect("a socket");
    endpoint.set_default_client_config(config);
    endpoint
}

async fn upload(connection: &Connection) {
    let (mut upload, mut answer) = connection.open_bi().await.expect("a stream");
    upload.write_all(&vec![7; UPLOAD]).await.expect("an open connection");
    upload.finish().expect("an open stream");
    let told = answer.read_to_end(8).await.expect("an answer");
    assert_eq!(told, UPLOAD.to_be_bytes());
}

async fn connect(endpoint: &Endpoint, server: SocketAddr, name: &str) -> Result<Connection, ConnectionError> {
    endpoint.connect(server, name).expect("a name").await
}

/// What the hook has counted as passed without the guard.
fn passed(line: &Line) -> u64 {
    let status = line.router.output(&format!("{PROGRAM} hook status"));
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    let counts = text.lines().filter_map(|line| line.split("passed by mark ").nth(1));
    counts.filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok()).sum()
}

async fn talk(line: &Line, certified: &Certified, server: &str, own: &str) {
    let server: SocketAddr = format!("{server}:{PORT}").parse().expect("an address");
    let met = Arc::new(AtomicUsize::new(0));
    let _server = serve(&line.server, server, certified, &met);
    for long in [false, true] {
        let endpoint = client(&line.client, own.parse().expect("an address"), certified, long);
        let refused = connect(&endpoint, server, "forbidden.example").await;
        assert!(matches!(refused, Err(ConnectionError::TimedOut)), "{refused:?}");
        assert_eq!(met.swap(0, Ordering::Relaxed), 0, "the server has met nobody");
        let endpoint = client(&line.client, own.parse().expect("an address"), certified, long);
        let before = passed(line);
        let connection = connect(&endpoint, server, "allowed.example").await.expect("a connection");
        upload(&connection).await;
        // Of trains of datagrams the kernel counts each once.
        let by_the_kernel = passed(line) - before;
        assert!(by_the_kernel > 10, "the kernel passes what is decided: {by_the_kernel}");
        // From the same port to the same server.
        let refused = connect(&endpoint, server, "forbidden.example").await;
        assert!(refused.is_err(), "another connection of the same ports is judged, too");
        assert_eq!(met.swap(0, Ordering::Relaxed), 1);
    }
}

#[test]
fn a_forbidden_name_never_comes_to_a_handshake_and_an_allowed_one_does() {
    as_root(|| {
        let line = Line::new();
        let folder = TempDir::new().expect("a temporary folder");
        let certified = Certified::new(&line.client, folder.path());
        let flags = format!("--hook forward --ports {PORT} --hook-udp {PORT} --enforce");
        let guard = Guard::start(&line.router, PROGRAM, RULES, &flags);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            talk(&line, &certified, Line::SERVER_V4, "192.0.2.2:0").await;
            talk(&line, &certified, &format!("[{}]", Line::SERVER_V6), "[2001:db8:1::2]:0").await;
        });
        let events = eventually("the events", || {
            let events = guard.events();
            let names = events.iter().filter(|event| event["event_type"] == "quic").count();
            (names >= 12).then_some(events)
        });
        let blocked = events.iter().filter(|event| event["alert"]["action"] == "blocked").count();
        assert!(blocked >= 8, "{blocked}");
        let dropped = events.iter().find(|event| event["event_type"] == "drop").expect("a drop");
        assert!(dropped["drop"]["udplen"].as_u64() > Some(1200) && dropped["proto"] == "UDP", "{dropped}");
    });
}
