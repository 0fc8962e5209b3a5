//! The hook's chains on the real kernel, with a judge that decides by hand: what `NF_REPEAT` with a
//! mark does, what later packets meet, and that others' marks survive.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bannerwall::testing::guard::source::{
    PacketAnswer, PacketVerdict, QueueBackend, QueuedPacket, SourceConfig,
};
use bannerwall::testing::hook::{
    self, BaseChain, HookConfig, HookCounters, InstalledHook, IptablesVariant, MarkField, MarkState,
};
use bannerwall_test_support::{Line, Namespace, as_root, eventually};

const VARIANTS: [IptablesVariant; 2] = [IptablesVariant::Legacy, IptablesVariant::Nft];
const LOOPBACKS: [&str; 2] = ["127.0.0.1", "::1"];

/// What the judge saw of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    hook: u8,
    syn: bool,
    data: bool,
}

fn look(queued: &QueuedPacket<'_>) -> Seen {
    let packet = queued.payload;
    let (ip, total) = match packet[0] >> 4 {
        4 => (usize::from(packet[0] & 15) * 4, queued.wire_length),
        _ => (40, queued.wire_length),
    };
    let tcp = &packet[ip..];
    let header = usize::from(tcp[12] >> 4) * 4;
    Seen { hook: queued.hook, syn: tcp[13] & 0x12 == 2, data: total > ip + header }
}

/// A guard that lets everything pass but gives `decision` to every packet with data.
struct Judge {
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Judge {
    fn start(namespace: &Namespace, backend: QueueBackend, decision: MarkState) -> Self {
        let (seen, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let mut source =
            namespace.inside(|| SourceConfig { backend, ..SourceConfig::new(0) }.open()).expect("a queue");
        let (log, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mark = MarkField::default();
            while !stopped.load(Ordering::Relaxed) {
                let mut judge = |queued: &QueuedPacket<'_>| {
                    let seen = look(queued);
                    log.lock().expect("no panic").push(seen);
                    if seen.data {
                        PacketAnswer::with_mark(PacketVerdict::Repeat, mark.write(queued.mark, decision))
                    } else {
                        PacketAnswer::new(PacketVerdict::Accept)
                    }
                };
                source.next_batch(&mut judge).expect("the queue works");
            }
            source.close().expect("the queue was ours");
        });
        Self { seen, stop, thread: Some(thread) }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn up(namespace: &Namespace, variant: IptablesVariant, chains: &[BaseChain]) {
    let config = HookConfig { chains: chains.to_vec(), ..HookConfig::default() };
    namespace.inside(|| hook::up(&config, variant)).expect("the hook goes up");
}

/// The counters of both families together.
fn counters(namespace: &Namespace, variant: IptablesVariant) -> HookCounters {
    let mut sum = HookCounters::default();
    for place in namespace.inside(|| hook::status(variant)).expect("the hook can be read") {
        let InstalledHook::Complete(_, counters) = place.installed else { panic!("{place:?}") };
        sum.queued += counters.queued;
        sum.passed += counters.passed;
        sum.blocked += counters.blocked;
    }
    sum
}

/// A connected pair within `namespace`, over loopback.
fn connect(namespace: &Namespace, address: &str) -> (TcpStream, TcpStream) {
    pair(namespace, namespace, address)
}

fn pair(client: &Namespace, server: &Namespace, address: &str) -> (TcpStream, TcpStream) {
    let address = SocketAddr::new(address.parse().expect("an address"), 0);
    let listener = server.listen(address);
    let client = client.connect(listener.local_addr().expect("it is bound")).expect("it listens");
    (client, listener.accept().expect("it connected").0)
}

fn send(from: &mut TcpStream, to: &mut TcpStream, octets: &[u8]) {
    from.write_all(octets).expect("it is connected");
    let mut received = vec![0; octets.len()];
    to.read_exact(&mut received).expect("it arrives");
    assert_eq!(received, octets);
}

#[test]
fn a_passed_connection_is_never_queued_again() {
    as_root(|| {
        for (variant, backend) in VARIANTS.into_iter().zip(QueueBackend::ALL) {
            for address in LOOPBACKS {
                let namespace = Namespace::new();
                up(&namespace, variant, &BaseChain::ALL);
                let judge = Judge::start(&namespace, backend, MarkState::Pass);
                let (mut client, mut server) = connect(&namespace, address);
                send(&mut server, &mut client, b"first");
                let decided = counters(&namespace, variant);
                for _ in 0..20 {
                    send(&mut client, &mut server, b"later");
                    send(&mut server, &mut client, b"later still");
                }
                let after = counters(&namespace, variant);
                assert_eq!(after.queued, decided.queued, "{variant} {address}");
                assert!(after.passed >= decided.passed + 40, "{variant} {address}: {after:?}");
                assert!(judge.seen().iter().any(|packet| packet.data));
            }
        }
    });
}

#[test]
fn loopback_is_queued_once_although_input_and_output_are_hooked() {
    as_root(|| {
        for address in LOOPBACKS {
            let namespace = Namespace::new();
            up(&namespace, IptablesVariant::System, &BaseChain::ALL);
            let judge = Judge::start(&namespace, QueueBackend::default(), MarkState::Pass);
            let (mut client, mut server) = connect(&namespace, address);
            send(&mut client, &mut server, b"first");
            let seen = judge.seen();
            assert!(seen.iter().any(|packet| packet.syn), "{seen:?}");
            assert!(seen.iter().all(|packet| packet.hook == 1), "{seen:?}");
        }
    });
}

#[test]
fn routed_packets_are_queued_once_and_offloaded() {
    as_root(|| {
        let line = Line::new();
        up(&line.router, IptablesVariant::System, &BaseChain::ALL);
        let judge = Judge::start(&line.router, QueueBackend::default(), MarkState::Pass);
        for address in [Line::SERVER_V4, Line::SERVER_V6] {
            let (mut client, mut server) = pair(&line.client, &line.server, address);
            send(&mut server, &mut client, b"first");
            let decided = counters(&line.router, IptablesVariant::System);
            send(&mut client, &mut server, b"later");
            assert_eq!(counters(&line.router, IptablesVariant::System).queued, decided.queued);
        }
        let seen = judge.seen();
        assert!(seen.iter().any(|packet| packet.syn), "{seen:?}");
        assert!(seen.iter().all(|packet| packet.hook == 2), "{seen:?}");
    });
}

#[test]
fn a_blocked_connection_is_dropped_by_the_kernel_and_others_live_on() {
    as_root(|| {
        for variant in VARIANTS {
            for address in LOOPBACKS {
                let namespace = Namespace::new();
                up(&namespace, variant, &[BaseChain::Input, BaseChain::Output]);
                let judge = Judge::start(&namespace, QueueBackend::default(), MarkState::Block);
                let (mut client, mut server) = connect(&namespace, address);
                let (_other_client, _other_server) = connect(&namespace, address);
                server.write_all(b"banner").expect("it is connected");
                // The server sends again what is not acknowledged, and the kernel answers for itself.
                let dropped_more_than = |before: u64| {
                    eventually("packets that the kernel dropped", || {
                        let blocked = counters(&namespace, variant).blocked;
                        (blocked > before).then_some(blocked)
                    })
                };
                let blocked = dropped_more_than(0);
                let queued = counters(&namespace, variant).queued;
                dropped_more_than(blocked);
                assert_eq!(counters(&namespace, variant).queued, queued, "{variant} {address}");
                client.set_nonblocking(true).expect("a socket");
                let error = client.read(&mut [0; 16]).expect_err("nothing arrives");
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{variant} {address}");
                assert!(judge.seen().iter().any(|packet| packet.data));
                connect(&namespace, address);
            }
        }
    });
}

#[test]
fn marks_of_others_survive_on_packet_and_connection() {
    as_root(|| {
        for variant in VARIANTS {
            let namespace = Namespace::new();
            let suffix = if variant == IptablesVariant::Legacy { "legacy" } else { "nft" };
            let iptables = |rule: &str| namespace.run(&format!("iptables-{suffix} -w -t {rule}"));
            iptables("mangle -A OUTPUT -p tcp -j MARK --set-xmark 0x5/0xff");
            iptables("mangle -A OUTPUT -p tcp -j CONNMARK --set-xmark 0x700/0xff00");
            // Packets that still carry a bit of ours behind the hook, and those with just their mark.
            iptables("filter -A INPUT -p tcp -m mark ! --mark 0x0/0xc0000000");
            iptables("filter -A INPUT -p tcp");
            iptables("filter -A INPUT -p tcp -m mark --mark 0x5");
            iptables("filter -A INPUT -p tcp -m connmark --mark 0x40000700");
            up(&namespace, variant, &BaseChain::ALL);
            let _judge = Judge::start(&namespace, QueueBackend::default(), MarkState::Pass);
            let (mut client, mut server) = connect(&namespace, "127.0.0.1");
            send(&mut client, &mut server, b"first");
            send(&mut server, &mut client, b"later");
            let listed = iptables("filter -v -S INPUT");
            let counted: Vec<u64> = listed
                .lines()
                .filter_map(|line| line.split(" -c ").nth(1)?.split(' ').next()?.parse().ok())
                .collect();
            let [.., leaked, all, marked, saved] = counted.as_slice() else { panic!("{listed}") };
            assert_eq!(*leaked, 0, "our bits stay within the hook: {listed}");
            assert!(*all >= 4 && marked == all, "the packet's mark survives: {listed}");
            assert!(*saved >= 2, "the connection has both marks: {listed}");
        }
    });
}

#[test]
fn a_reset_of_our_own_is_not_queued_and_nothing_else_goes_by_with_its_mark() {
    as_root(|| {
        let namespace = Namespace::new();
        up(&namespace, IptablesVariant::System, &BaseChain::ALL);
        let judge = Judge::start(&namespace, QueueBackend::default(), MarkState::Pass);
        let listener = namespace.listen(([127, 0, 0, 1], 0));
        let address = listener.local_addr().expect("it is bound");
        let ours = MarkField::default().value(MarkState::Ours);
        let socket = namespace.inside(|| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            socket.set_mark(ours)?;
            socket.connect(&address.into()).map(|()| socket)
        });
        let socket = socket.expect("it listens");
        let (mut server, _) = listener.accept().expect("a client");
        let handshake = eventually("a handshake", || Some(judge.seen()).filter(|seen| seen.len() == 3));
        assert!(handshake.iter().any(|packet| packet.syn), "{handshake:?}");
        // A reset with the socket's mark.
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
        drop(socket);
        let end = server.read(&mut [0]).expect_err("it is reset");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        assert_eq!(judge.seen(), handshake, "the reset is not queued");
    });
}
