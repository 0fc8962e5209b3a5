//! Connections that reuse the ports of a blocked one.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bannerwall_test_support::{Guard, Line, as_root, eventually, forbids};
use socket2::{Domain, Socket, Type};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const PORT: u16 = 40_000;

/// Less than a client waits by itself before it gives up, and than a verdict is remembered.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client's rule that keeps its resets from going out.
const NO_RESETS: &str = "OUTPUT -p tcp --tcp-flags RST RST -j DROP";

fn connect(line: &Line, to: SocketAddr) -> io::Result<TcpStream> {
    line.client.inside(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
        // Closing it resets the connection.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Ok(socket.into())
    })
}

fn request(agent: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n").into_bytes()
}

#[test]
fn the_ports_of_a_dropped_connection_are_of_use_again_at_once() {
    as_root(|| {
        for server_learns_of_the_end in [true, false] {
            let line = Line::new();
            let any: SocketAddr = (Line::SERVER_V4.parse::<IpAddr>().expect("an address"), 0).into();
            let listener = line.server.listen(any);
            let address = listener.local_addr().expect("it is bound");
            let rules = forbids("forbidden").replace("reject", "drop");
            let guard = Guard::start(&line.router, PROGRAM, &rules, "--hook forward --enforce");
            let mut blocked = connect(&line, address).expect("the handshake passes");
            let (mut deaf, _) = listener.accept().expect("the handshake passes");
            blocked.write_all(&request("forbidden")).expect("it is open");
            eventually("the drop", || {
                guard.events().iter().any(|event| event["event_type"] == "drop").then_some(())
            });
            let may_reset = |may: bool| {
                let verb = if may { "-D" } else { "-A" };
                line.client.run(&format!("iptables -w {verb} {NO_RESETS}"));
            };
            if server_learns_of_the_end {
                drop(blocked);
                assert!(deaf.read(&mut [0; 9]).is_err(), "it is reset");
            } else {
                may_reset(false);
                drop(blocked);
                may_reset(true);
            }
            let mut again = connect(&line, address).expect("a handshake with the same ports");
            let (mut server, from) = listener.accept().expect("a handshake with the same ports");
            assert_eq!(from.port(), PORT);
            let allowed = request("allowed");
            again.write_all(&allowed).expect("it is open");
            let mut read = vec![0; allowed.len()];
            server.set_read_timeout(Some(PATIENCE)).expect("a time");
            server.read_exact(&mut read).expect("what is allowed arrives");
            assert_eq!(read, allowed);
        }
    });
}
