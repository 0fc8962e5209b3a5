//! Connections to this machine that close while their packets wait in the queue.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};

use bannerwall_test_support::{Guard, Line, NO_SQLMAP, Signal, as_root, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Has the client acknowledge each segment at once, and send none again.
fn send_once(line: &Line) {
    line.client.run("ip route change default via 192.0.2.1 rto_min 1000s quickack 1");
    line.client.run("ip -6 route change default via 2001:db8:1::1 rto_min 1000s quickack 1");
    line.client.set("ipv4/tcp_early_retrans", "0");
}

#[test]
fn a_fin_that_waits_behind_the_acknowledgement_of_the_servers_fin_arrives() {
    as_root(|| {
        let line = Line::new();
        send_once(&line);
        let guard = Guard::start(&line.server, PROGRAM, NO_SQLMAP, "--hook input");
        for address in [Line::SERVER_V4, Line::SERVER_V6] {
            let address: IpAddr = address.parse().expect("an address");
            let listener = line.server.listen(SocketAddr::new(address, 80));
            let mut client = line.client.connect(SocketAddr::new(address, 80)).expect("it listens");
            let (mut server, from) = listener.accept().expect("the handshake is over");
            let request = b"GET / HTTP/1.0\r\n\r\n";
            client.write_all(request).expect("it is open");
            server.read_exact(&mut [0; 18]).expect("it is open");
            guard.process.stop();
            server.write_all(b"HTTP/1.0 204 No Content\r\n\r\n").expect("it is open");
            drop(server);
            client.read_to_end(&mut Vec::new()).expect("the server has closed");
            let waits = |count| move |waiting: u64| (waiting >= count).then_some(());
            eventually("both acknowledgements to wait", || waits(2)(line.server.waiting_packets()));
            drop(client);
            eventually("the FIN to wait", || waits(3)(line.server.waiting_packets()));
            guard.process.signal(Signal::CONT);
            let states = || line.server.run(&format!("ss -Htan dport = :{}", from.port()));
            eventually("the server to have the FIN", || states().contains("TIME-WAIT").then_some(()));
            assert_eq!(line.client.run("ss -Htan state last-ack"), "", "{address}");
        }
    });
}
