//! Connections that are older than an enforcing guard.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use bannerwall_test_support::raw::{Battlefield, Cargo, Role};
use bannerwall_test_support::{Guard, JUDGES_ALL, Line, as_root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const BACKENDS: [&str; 2] = ["libnetfilter_queue", "nfq"];
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a forbidden message has to arrive behind the last packet.
const HASTE: Duration = Duration::from_millis(500);

/// What a real end reads of a connection that was open before the guard: of a decoy at `offset` from its next
/// byte, and of a message that is sent again until it is acknowledged.
fn reads_behind_a_decoy(role: Role, v6: bool, offset: i64, is_forbidden: bool) -> bool {
    let field = Battlefield::new();
    let cargo = if role == Role::Client { Cargo::Http } else { Cargo::Ssh };
    let [truth, decoy] = [is_forbidden, false].map(|forbidden| cargo.message(role, forbidden));
    let (mut end, application) = field.pair(role, v6, cargo.talk(role));
    assert!(end.open(), "the handshake passes");
    end.settle();
    let flags = format!("--hook forward --enforce {JUDGES_ALL}");
    let _guard = Guard::start(&field.router, PROGRAM, Cargo::RULES, &flags);
    // The second one comes when the receiver has answered a probe.
    for _ in 0..2 {
        let decoy = end.segment(offset, decoy);
        end.send(&decoy);
        end.settle();
    }
    end.deliver(truth, 5);
    let patience = if is_forbidden { HASTE } else { PATIENCE };
    let software = cargo.software(role, truth);
    application.has_read(patience, |read| cargo.software(role, read) == software)
}

#[test]
fn a_decoy_that_was_acknowledged_before_the_guard_came_brings_nothing_past_it() {
    as_root(|| {
        for (role, v6) in [(Role::Client, false), (Role::Client, true), (Role::Server, false)] {
            let cargo = if role == Role::Client { Cargo::Http } else { Cargo::Ssh };
            let length = i64::try_from(cargo.message(role, false).len()).expect("a few bytes");
            for offset in [-length, -10_000] {
                assert!(!reads_behind_a_decoy(role, v6, offset, true), "{role:?}, IPv6: {v6}, {offset}");
            }
            assert!(reads_behind_a_decoy(role, v6, -length, false), "{role:?}, IPv6: {v6}");
        }
    });
}

/// A connection that is open before a guard is.
struct Older {
    client: TcpStream,
    server: TcpStream,
}

impl Older {
    fn open(line: &Line, address: &str) -> Self {
        // Of a connection whose SYN was not seen the lower port is taken for the server's.
        let place: SocketAddr = (address.parse::<IpAddr>().expect("an address"), 22).into();
        let listener = line.server.listen(place);
        let client = line.client.connect(listener.local_addr().expect("it is bound")).expect("no guard");
        let (server, _) = listener.accept().expect("no guard");
        for end in [&client, &server] {
            end.set_read_timeout(Some(PATIENCE)).expect("a time");
        }
        Self { client, server }
    }

    /// Sends from the server to the client and back.
    fn exchange(&mut self, octets: &[u8]) {
        let ends = [(&self.server, &self.client), (&self.client, &self.server)];
        for (mut from, mut to) in ends {
            std::thread::scope(|scope| {
                scope.spawn(move || from.write_all(octets).expect("it is open"));
                let mut read = vec![0; octets.len()];
                to.read_exact(&mut read).expect("what is allowed arrives");
                assert!(read == octets, "as it was sent");
            });
        }
    }
}

#[test]
fn idle_connections_that_are_older_than_the_guard_go_on() {
    as_root(|| {
        for backend in BACKENDS {
            let line = Line::new();
            let mut older: Vec<_> = [Line::SERVER_V4, Line::SERVER_V6]
                .into_iter()
                .flat_map(|address| [0, 1, 2].map(|_| Older::open(&line, address)))
                .collect();
            let flags = format!("--hook forward --enforce --backend {backend} {JUDGES_ALL}");
            let _guard = Guard::start(&line.router, PROGRAM, Cargo::RULES, &flags);
            let long = vec![0x8f; 300_000];
            for (number, connection) in older.iter_mut().enumerate() {
                match number % 3 {
                    0 => connection.exchange(b"SSH-2.0-OpenSSH_9.9\r\n"),
                    // More than one segment at once.
                    1 => connection.exchange(&long),
                    _ => {
                        connection.server.write_all(Cargo::Ssh.message(Role::Server, true)).expect("open");
                        connection.client.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
                        let mut read = [0; 100];
                        assert!(
                            connection.client.read(&mut read).is_err(),
                            "a forbidden greeting is stopped"
                        );
                    }
                }
            }
        }
    });
}
