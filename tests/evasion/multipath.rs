//! Multipath TCP between a raw end and the kernel's own: its mappings may put bytes into another order than that in
//! which they are sent.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use bannerwall_test_support::raw::{AnyEnd as End, Battlefield, Cargo, Flags, Packet, Role};
use bannerwall_test_support::{Guard, JUDGES_ALL, Talk, as_root};
use socket2::{Domain, Protocol, Socket, Type};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// How long a message has to arrive behind the last packet.
const PATIENCE: Duration = Duration::from_secs(1);

/// Its kind, and what a SYN or its answer says first: version 1, HMAC-SHA256 (RFC 8684 section 3.1).
const KIND: u8 = 30;
const CAPABLE: [u8; 2] = [0x01, 0x01];

/// The raw end's key, and the data sequence number that follows from it: the end of its SHA-256.
const KEY: [u8; 8] = *b"multipat";
const INITIAL: u64 = 0xef31_431b_27be_e85a;

/// How many bytes of a message come first: Linux takes others out of order only behind some in order.
const FIRST: usize = 3;

/// How many bytes the end of a message has that is sent before its middle.
const END: usize = 13;

fn capable(key: &[u8]) -> Vec<u8> {
    let length = u8::try_from(2 + CAPABLE.len() + key.len()).expect("few bytes");
    [&[KIND, length], &CAPABLE[..], key].concat()
}

/// `payload` at `sent` bytes behind the first one, which the other end is to read at `read` (section 3.3.1).
fn mapped(end: &End, (sent, read): (usize, usize), payload: &[u8]) -> Packet {
    let data = (INITIAL + 1 + read as u64).to_be_bytes();
    let place = u32::try_from(1 + sent).expect("few bytes").to_be_bytes();
    let length = u16::try_from(payload.len()).expect("few bytes").to_be_bytes();
    // An acknowledgement of data long ago, by which the other end knows that this one speaks the protocol.
    let option = [&[KIND, 26, 0x20, 0x0f], &[0; 8][..], &data, &place, &length, &[1, 1]].concat();
    end.segment(i64::try_from(sent).expect("few bytes"), payload).option(&option)
}

/// Opens the connection; where the other end does not agree it is one of TCP.
fn open(end: &mut End) {
    match end.role {
        Role::Client => {
            let syn = end.opening(Flags::SYN).option(&capable(b""));
            end.answered(&syn);
            let place = end.peer_options.windows(4).position(|four| four[..3] == [KIND, 12, CAPABLE[0]]);
            let theirs = place.map(|place| end.peer_options[place + 4..place + 12].to_vec());
            let keys = [&KEY[..], &theirs.unwrap_or_default()].concat();
            let packet = end.segment(0, b"").flags(Flags::ACK).option(&capable(&keys));
            end.send(&packet);
        }
        Role::Server => {
            end.await_syn();
            let answer = end.opening(Flags::SYN | Flags::ACK).option(&capable(&KEY));
            end.answered(&answer);
        }
    }
    end.settle();
}

/// Sends the end of a message before its middle; whether the application reads it in its own order.
fn arrives(field: &Battlefield, role: Role, v6: bool) -> (bool, String) {
    let cargo = if role == Role::Client { Cargo::Http } else { Cargo::Ssh };
    let message = cargo.message(role, true);
    let (first, rest) = message.split_at(FIRST);
    let (middle, last) = rest.split_at(rest.len() - END);
    // An end that says something gets an acknowledgement of TCP, and falls back to that.
    let (mut end, application) = field.pair_by(Protocol::MPTCP, role, v6, Talk::default());
    open(&mut end);
    let sent = [((0, 0), first), ((FIRST, FIRST + middle.len()), last), ((FIRST + END, FIRST), middle)];
    for _ in 0..4 {
        for (places, payload) in sent {
            let packet = mapped(&end, places, payload);
            end.send(&packet);
            end.settle();
        }
    }
    let software = cargo.software(role, message);
    let arrived = application.has_read(PATIENCE, |read| cargo.software(role, read) == software);
    (arrived, format!("{}\n{:?}", end.trace(), application.reads()))
}

#[test]
fn bytes_that_multipath_tcp_puts_into_another_order_are_read_as_they_were_judged() {
    as_root(|| {
        let (without, with) = (Battlefield::new(), Battlefield::new());
        let flags = format!("--hook forward --enforce {JUDGES_ALL}");
        let _guard = Guard::start(&with.router, PROGRAM, Cargo::RULES, &flags);
        for role in [Role::Client, Role::Server] {
            for v6 in [false, true] {
                let (arrived, trace) = arrives(&without, role, v6);
                assert!(arrived, "the kernel puts them into order: {trace}");
                let (arrived, trace) = arrives(&with, role, v6);
                assert!(!arrived, "{role:?}, IPv6: {v6}\n{trace}");
            }
        }
    });
}

/// Two ends of the kernel's that offer each other Multipath TCP: what the server reads, and how many of its
/// connections agreed.
fn read_of_honest(field: &Battlefield) -> (Vec<u8>, String) {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).expect("a socket");
    let (listener, mut client) = (field.real.inside(socket), field.raw_namespace().inside(socket));
    let address = std::net::SocketAddr::new(Battlefield::real_address(false), 0);
    listener.bind(&address.into()).expect("the address is there");
    listener.listen(1).expect("it is bound");
    client.connect(&listener.local_addr().expect("it is bound")).expect("the handshake passes");
    let (mut server, _) = listener.accept().expect("the handshake passes");
    client.write_all(Cargo::Http.message(Role::Client, false)).expect("the connection is open");
    client.shutdown(std::net::Shutdown::Write).expect("the connection is open");
    let mut read = Vec::new();
    server.read_to_end(&mut read).expect("the connection is open");
    let agreed = field.real.run("nstat -asz MPTcpExtMPCapableACKRX");
    let count = agreed.lines().last().and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default();
    (read, count.to_owned())
}

#[test]
fn ends_that_offer_multipath_tcp_fall_back_to_tcp() {
    as_root(|| {
        let message = Cargo::Http.message(Role::Client, false).to_vec();
        let field = Battlefield::new();
        assert_eq!(read_of_honest(&field), (message.clone(), "1".to_owned()));
        let field = Battlefield::new();
        let flags = format!("--hook forward --enforce {JUDGES_ALL}");
        let _guard = Guard::start(&field.router, PROGRAM, Cargo::RULES, &flags);
        assert_eq!(read_of_honest(&field), (message, "0".to_owned()));
    });
}
