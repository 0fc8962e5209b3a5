//! Every request of a kept-alive connection is judged while the bodies of long responses go by in the kernel.
//!
//! How much is queued is counted, not timed: by the numbers that the kernel gives to queued packets.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use bannerwall_test_support::raw::{Battlefield, Role};
use bannerwall_test_support::{
    Guard, JUDGES_ALL, Line, NO_SQLMAP, Namespace, Nginx, Signal, Talk, as_root, eventually,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long what is blocked is waited for.
const HASTE: Duration = Duration::from_secs(2);

const MIB: usize = 1 << 20;

fn get(path: &str, agent: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {agent}\r\n\r\n").into_bytes()
}

/// A client's end of a kept-alive connection.
struct Client {
    stream: TcpStream,
    /// What was read and belongs to the next response.
    rest: Vec<u8>,
}

impl Client {
    fn connect(namespace: &Namespace, address: SocketAddr) -> Self {
        let stream = namespace.connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self { stream, rest: Vec::new() }
    }

    fn send(&mut self, octets: &[u8]) {
        // What was blocked before may have been reset.
        let _ = self.stream.write_all(octets);
    }

    /// The octets of the next response's body, if it comes.
    fn read(&mut self) -> Option<usize> {
        let mut buffer = vec![0; 1 << 18];
        let head = loop {
            if let Some(at) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let count = self.stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
            self.rest.extend_from_slice(&buffer[..count]);
        };
        let text = String::from_utf8_lossy(&self.rest[..head]).to_ascii_lowercase();
        let length = text.split("content-length: ").nth(1)?.split("\r\n").next()?.parse::<usize>().ok()?;
        self.rest.drain(..head);
        let mut left = length.saturating_sub(self.rest.len());
        self.rest.drain(..length.min(self.rest.len()));
        while left > 0 {
            let room = buffer.len().min(left);
            let count = self.stream.read(&mut buffer[..room]).ok().filter(|count| *count > 0)?;
            left -= count;
        }
        Some(length)
    }

    /// Whether a forbidden request gets no answer.
    fn is_blocked(&mut self) -> bool {
        self.hasten();
        self.read().is_none()
    }

    /// Waits no longer for what is not to come.
    fn hasten(&self) {
        self.stream.set_read_timeout(Some(HASTE)).expect("a socket");
    }
}

/// A server with a page of a MiB, `/long`, and one of 11 octets.
fn serve(namespace: &Namespace) -> Nginx {
    let nginx = Nginx::start(namespace, 80, "keepalive_requests 100000;");
    std::fs::write(nginx.root().join("long"), vec![b'x'; MIB]).expect("the folder is ours");
    nginx
}

fn addresses() -> [SocketAddr; 2] {
    [Line::SERVER_V4, Line::SERVER_V6].map(|text| (text.parse::<IpAddr>().expect("an address"), 80).into())
}

/// Links that carry no packets of many segments.
fn segment_early(line: &Line) {
    for (namespace, interface) in
        [(&line.client, "eth0"), (&line.server, "eth0"), (&line.router, "left"), (&line.router, "right")]
    {
        namespace.run(&format!("ip link set dev {interface} gso_max_segs 1"));
    }
}

/// Packets that are queued for each of some downloads.
fn queued_a_download(line: &Line, address: SocketAddr, (page, length): (&str, usize), times: u64) -> u64 {
    let mut client = Client::connect(&line.client, address);
    let mut ask = || {
        client.send(&get(page, "curl/8"));
        assert_eq!(client.read(), Some(length));
    };
    // The first ones open the congestion window.
    (0..3).for_each(|_| ask());
    let before = line.router.queued_packets();
    (0..times).for_each(|_| ask());
    (line.router.queued_packets() - before).div_ceil(times)
}

/// What the server sends before the first acknowledgement of the head has come back is queued, which between
/// namespaces may be a MiB, and two where nothing is put together.
#[test]
fn a_long_body_costs_few_packets_and_all_of_them_without_offload() {
    const LONG: (&str, usize) = ("/long", MIB);
    const LONGEST: (&str, usize) = ("/longest", 32 * MIB);
    as_root(|| {
        for (gso, flags) in [(true, ""), (true, "--backend nfq"), (false, "")] {
            let line = Line::new();
            let server = serve(&line.server);
            std::fs::write(server.root().join("longest"), vec![b'x'; 32 * MIB]).expect("the folder is ours");
            if !gso {
                segment_early(&line);
            }
            let flags = format!("--hook forward --enforce --http-inspect all {JUDGES_ALL} {flags}");
            let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
            for address in addresses() {
                let what = format!("GSO {gso}, {address}, {flags}");
                // As many as the window lets out at once, up to all.
                let count = queued_a_download(&line, address, LONG, 20);
                println!("{count} packets a MiB, {what}");
                let count = queued_a_download(&line, address, LONGEST, 2);
                println!("{count} packets for 32 MiB, {what}");
                // All of them would be 1,000 and 30,000.
                assert!(count <= if gso { 800 } else { 20_000 }, "{count} packets, {what}");
            }
            drop(guard);
            let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &format!("{flags} --no-offload"));
            let count = queued_a_download(&line, addresses()[0], LONG, 5);
            println!("{count} packets a MiB without offload, GSO {gso}, {flags}");
            // 16 packets of 64 KiB are the fewest that carry a MiB.
            assert!(count >= 16, "{count} packets");
            drop(guard);
        }
    });
}

/// A forbidden request in one of the ways that there are to say it, and whether it stays without an answer.
fn forbidden_is_blocked(client: &mut Client, way: &str) -> bool {
    let forbidden = get("/", "sqlmap/1.7");
    for _ in 0..if way == "tenth" { 9 } else { 1 } {
        client.send(&get("/long", "curl/8"));
        if way != "pipelined" {
            assert_eq!(client.read(), Some(MIB), "{way}");
        }
    }
    match way {
        "split" => {
            for part in forbidden.chunks(7) {
                client.send(part);
            }
        }
        "chunked" => {
            let allowed =
                b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n";
            client.send(&[allowed, forbidden.as_slice()].concat());
            client.hasten();
            // nginx answers a POST for a file by 405.
            assert!(client.read().is_none() || client.is_blocked(), "{way}");
            return client.is_blocked();
        }
        "pipelined" => {
            // Amid the body.
            let mut some = vec![0; 100_000];
            client.stream.read_exact(&mut some).expect("a body");
            client.send(&forbidden);
            client.rest = some;
            // What the server has still to send of the body is stopped with the flow.
            client.hasten();
            return client.read() != Some(MIB) || client.is_blocked();
        }
        _ => client.send(&forbidden),
    }
    client.is_blocked()
}

#[test]
fn a_forbidden_request_behind_a_released_body_is_blocked_however_it_is_said() {
    as_root(|| {
        let line = Line::new();
        let _server = serve(&line.server);
        let guard = Guard::start(
            &line.router,
            PROGRAM,
            NO_SQLMAP,
            &format!("--hook forward --enforce --http-inspect all {JUDGES_ALL}"),
        );
        for address in addresses() {
            for way in ["second", "tenth", "split", "chunked", "pipelined"] {
                for _ in 0..5 {
                    let mut client = Client::connect(&line.client, address);
                    assert!(forbidden_is_blocked(&mut client, way), "{way}, {address}");
                }
            }
        }
        let alerts = || guard.events().iter().filter(|event| event["event_type"] == "alert").count();
        eventually("all of them to be told", || (alerts() == 50).then_some(()));
        let status = line.router.run(&format!("{PROGRAM} hook status"));
        assert!(status.contains("passed within bodies"), "{status}");
        assert!(!status.contains("passed within bodies 0,"), "{status}");
    });
}

#[test]
fn clients_and_servers_of_the_guards_own_machine_are_judged_alike() {
    as_root(|| {
        for hook in ["input", "output", "input,output"] {
            let line = Line::new();
            let _server = serve(&line.server);
            let namespace = if hook == "output" { &line.client } else { &line.server };
            let flags = format!("--hook {hook} --enforce --http-inspect all {JUDGES_ALL}");
            let _guard = Guard::start(namespace, PROGRAM, NO_SQLMAP, &flags);
            for address in addresses() {
                let mut client = Client::connect(&line.client, address);
                assert!(forbidden_is_blocked(&mut client, "tenth"), "{hook}, {address}");
            }
        }
    });
}

#[test]
fn a_released_flow_ends_in_the_books_and_its_ports_may_be_used_again() {
    as_root(|| {
        let line = Line::new();
        let _server = serve(&line.server);
        let flags = format!("--hook forward --enforce --http-inspect all --flow-events {JUDGES_ALL}");
        let mut guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
        // One that ends behind a body, one that is reset within it.
        let mut client = Client::connect(&line.client, addresses()[0]);
        client.send(&get("/long", "curl/8"));
        assert_eq!(client.read(), Some(MIB));
        drop(client);
        let mut client = Client::connect(&line.client, addresses()[0]);
        client.send(&get("/long", "curl/8"));
        client.stream.read_exact(&mut [0; 200_000]).expect("a body");
        drop(client);
        guard.process.signal(Signal::TERM);
        guard.process.wait_exit();
        let flows: Vec<_> = guard.events().into_iter().filter(|it| it["event_type"] == "flow").collect();
        assert_eq!(flows.len(), 2, "{flows:?}");
        for flow in &flows {
            assert_eq!(flow["flow"]["state"], "closed", "{flow}");
        }
        let told = |name: &str| flows.iter().any(|flow| flow["bannerwall"]["flow"]["counted"] == name);
        assert!(told("outside of bodies"), "{flows:?}");
        let answers = guard.events().into_iter().filter(|it| it["event_type"] == "http").count();
        assert_eq!(answers, 2);
    });
}

#[test]
fn a_guard_that_comes_anew_amid_a_body_judges_the_next_request() {
    as_root(|| {
        for mode in ["open", "closed"] {
            let line = Line::new();
            let _server = serve(&line.server);
            let flags = format!(
                "--hook forward --hook-keep --enforce --http-inspect all --on-failure {mode} {JUDGES_ALL}"
            );
            let mut guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
            let mut client = Client::connect(&line.client, addresses()[0]);
            client.send(&get("/long", "curl/8"));
            let mut some = vec![0; 100_000];
            client.stream.read_exact(&mut some).expect("a body");
            guard.process.signal(Signal::KILL);
            guard.process.wait_exit();
            drop(guard);
            let _guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
            client.rest = some;
            assert_eq!(client.read(), Some(MIB), "{mode}");
            client.send(&get("/", "curl/8"));
            assert_eq!(client.read(), Some(11), "{mode}");
            client.send(&get("/", "sqlmap/1.7"));
            assert!(client.is_blocked(), "{mode}");
        }
    });
}

/// By default, where the rules can block requests alone.
#[test]
fn every_request_is_judged_while_responses_go_by() {
    const REQUESTS: u64 = 100;
    as_root(|| {
        for (hook, flags) in [("forward", ""), ("forward", "--backend nfq"), ("input", ""), ("output", "")] {
            let line = Line::new();
            let _server = serve(&line.server);
            let namespace = match hook {
                "forward" => &line.router,
                "input" => &line.server,
                _ => &line.client,
            };
            let _guard = Guard::start(
                namespace,
                PROGRAM,
                NO_SQLMAP,
                &format!("--hook {hook} --enforce {JUDGES_ALL} {flags}"),
            );
            for address in addresses() {
                let what = format!("{hook} {flags} {address}");
                let mut client = Client::connect(&line.client, address);
                let mut ask = |times: u64| {
                    for _ in 0..times {
                        client.send(&get("/", "curl/8"));
                        assert_eq!(client.read(), Some(11), "{what}");
                    }
                };
                ask(10);
                let before = namespace.queued_packets();
                ask(REQUESTS);
                let count = namespace.queued_packets() - before;
                println!("{count} packets for {REQUESTS} requests, {what}");
                // With their responses they would be 200 at least.
                assert!(count <= REQUESTS + REQUESTS / 2, "{count} packets, {what}");
                client.send(&get("/", "sqlmap/1.7"));
                assert!(client.is_blocked(), "{what}");
                for way in ["second", "tenth", "split", "chunked", "pipelined"] {
                    let mut client = Client::connect(&line.client, address);
                    assert!(forbidden_is_blocked(&mut client, way), "{way}, {what}");
                }
                let mut client = Client::connect(&line.client, address);
                for upgrade in ["", "", "Connection: Upgrade\r\nUpgrade: websocket\r\n", ""] {
                    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n").as_bytes());
                    assert_eq!(client.read(), Some(11), "{what}");
                }
                client.send(&get("/", "sqlmap/1.7"));
                assert!(client.is_blocked(), "{what}");
            }
        }
    });
}

#[test]
fn a_guard_that_comes_anew_while_responses_go_by_judges_both_sides() {
    as_root(|| {
        for mode in ["open", "closed"] {
            let line = Line::new();
            let _server = serve(&line.server);
            let flags = format!(
                "--hook forward --hook-keep --enforce --http-inspect requests --on-failure {mode} {JUDGES_ALL}"
            );
            let mut guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
            let mut client = Client::connect(&line.client, addresses()[0]);
            for _ in 0..5 {
                client.send(&get("/", "curl/8"));
                assert_eq!(client.read(), Some(11), "{mode}");
            }
            guard.process.signal(Signal::KILL);
            guard.process.wait_exit();
            drop(guard);
            // One that knows nothing of what stands.
            let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
            client.send(&get("/", "curl/8"));
            assert_eq!(client.read(), Some(11), "{mode}");
            eventually("the response to be told", || {
                let told = guard.events().into_iter().find(|it| it["event_type"] == "http");
                told.filter(|it| it["http"]["status"] == 200).map(|_| ())
            });
            client.send(&get("/", "sqlmap/1.7"));
            assert!(client.is_blocked(), "{mode}");
        }
    });
}

/// Why a client's body can't go by on a count of octets: they say nothing of their place. The rule about
/// `sqlmap` stands for whoever judges behind the count.
#[test]
fn a_count_of_octets_is_no_place_in_a_stream() {
    as_root(|| {
        let field = Battlefield::new();
        field.router.set("netfilter/nf_conntrack_acct", "1");
        for rule in [
            "-m connbytes --connbytes 0:4000 --connbytes-dir original --connbytes-mode bytes -j ACCEPT",
            "-m string --algo bm --string sqlmap -j DROP",
        ] {
            field.router.run(&format!("iptables -w -t mangle -A FORWARD -i left -p tcp {rule}"));
        }
        let body = [&b"POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n"[..], &[b'x'; 5000]].concat();
        let whole = [body.clone(), get("/", "sqlmap/1.7")].concat();
        for (ahead, arrives) in [(false, false), (true, true)] {
            let (mut end, application) = field.pair(Role::Client, false, Talk::default());
            assert!(end.open());
            if ahead {
                let offset = i64::try_from(body.len()).expect("short");
                let early = end.segment(offset, &whole[body.len()..]);
                end.send(&early);
            }
            end.deliver(if ahead { &body } else { &whole }, 4);
            let patience = if arrives { PATIENCE } else { HASTE };
            let read = application.has_read(patience, |read| read.ends_with(&whole[body.len()..]));
            assert_eq!(read, arrives, "{}", end.trace());
        }
    });
}
