//! Connections between the ports of blocked ones.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use bannerwall_test_support::{Guard, JUDGES_ALL, Line, NO_SQLMAP, as_root, eventually};
use socket2::{Domain, SockRef, Socket, Type};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 40_000);
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 2), 80);

/// Connects from a port that a connection before has used.
fn connect(line: &Line) -> std::io::Result<TcpStream> {
    line.client.inside(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from(CLIENT).into())?;
        socket.connect(&SocketAddr::from(SERVER).into())?;
        Ok(socket.into())
    })
}

fn request(agent: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n")
}

/// Blocks a connection, ends it on the client's side, and opens another one between the same ports. `loses`:
/// the client's reset gets lost, so that the server keeps the connection.
fn reopen(action: &str, loses: bool) {
    let line = Line::new();
    // The kernel's tracking must not forget the connection by itself. The rule loads it.
    line.router.run("iptables -A FORWARD -m conntrack --ctstate INVALID");
    line.router.set("netfilter/nf_conntrack_tcp_timeout_close", "100000");
    let rules = NO_SQLMAP.replace("\"reject\"", &format!("\"{action}\""));
    let guard =
        Guard::start(&line.router, PROGRAM, &rules, &format!("--hook forward --enforce {JUDGES_ALL}"));
    let listener = line.server.listen(SERVER);
    let mut client = connect(&line).expect("it listens");
    let (_kept, _) = listener.accept().expect("the client is there");
    client.write_all(request("sqlmap/1.7").as_bytes()).expect("it is open");
    let is_drop = |event: &serde_json::Value| event["event_type"] == "drop";
    eventually("the drop", || guard.events().iter().any(is_drop).then_some(()));
    let reset = "OUTPUT -p tcp --tcp-flags RST RST -j DROP";
    if loses {
        line.client.run(&format!("iptables -A {reset}"));
    }
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("it is open");
    drop(client);
    if loses {
        line.client.run(&format!("iptables -D {reset}"));
    }
    let mut client = connect(&line).unwrap_or_else(|error| panic!("{action}, {loses}: {error}"));
    let (mut server, _) = listener.accept().expect("the client is there");
    let honest = request("curl/8.0");
    client.write_all(honest.as_bytes()).expect("it is open");
    let mut read = vec![0; honest.len()];
    server.read_exact(&mut read).expect("an honest request passes");
    client.write_all(request("sqlmap/1.7").as_bytes()).expect("it is open");
    eventually("the second drop", || {
        (guard.events().iter().filter(|it| is_drop(it)).count() >= 2).then_some(())
    });
}

#[test]
fn the_ports_of_a_blocked_connection_are_free_at_once() {
    as_root(|| {
        for (action, loses) in [("drop", false), ("drop", true), ("reject", false)] {
            reopen(action, loses);
        }
    });
}
