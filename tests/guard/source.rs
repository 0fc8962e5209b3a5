//! Both backends on a real queue: one body a behaviour, run over each of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bannerwall::testing::guard::source::{
    BatchCounts, MAXIMUM_COPY_RANGE, PacketAnswer, PacketSource, PacketVerdict, QueueBackend, QueuedPacket,
    SourceConfig,
};
use bannerwall_ffi::queue::KernelCounters;
use bannerwall_test_support::{Namespace, as_root};

/// Plenty on a busy machine; no test waits this long when it passes.
const PATIENCE: Duration = Duration::from_secs(20);
const QUEUE: u16 = 7;

/// Runs `body` with a source of each backend, each in a network of its own, and sees to it that
/// nothing is left waiting.
fn over_both(configure: impl Fn(&mut SourceConfig) + Sync, body: impl Fn(&mut dyn PacketSource) + Sync) {
    for backend in QueueBackend::ALL {
        eprintln!("backend {}", backend.name());
        Namespace::new().inside(|| {
            let mut config = SourceConfig { backend, ..SourceConfig::new(QUEUE) };
            configure(&mut config);
            let mut source = config.open().expect("the queue binds");
            body(source.as_mut());
            assert_eq!(source.statistics().waiting, 0, "packets were left without a verdict");
            source.close().expect("the queue unbinds");
            assert_eq!(KernelCounters::of(QUEUE).expect("readable"), None, "the queue is free again");
        });
    }
}

/// Runs words in the calling thread's network and gives their stdout.
fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    let output = Command::new(program).args(words).output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Judges until `wanted` packets came.
fn judge(
    source: &mut dyn PacketSource,
    wanted: usize,
    mut answer: impl FnMut(&QueuedPacket<'_>) -> PacketAnswer,
) {
    let deadline = Instant::now() + PATIENCE;
    let mut seen = 0;
    while seen < wanted {
        assert!(Instant::now() < deadline, "only {seen} of {wanted} packets came");
        seen += source.next_batch(&mut answer).expect("the queue is readable").packets;
    }
}

fn udp_pair(address: &str) -> (UdpSocket, UdpSocket, SocketAddr) {
    let receiver = UdpSocket::bind((address, 0)).expect("binds");
    receiver.set_read_timeout(Some(PATIENCE)).expect("sets");
    let target = receiver.local_addr().expect("has an address");
    (UdpSocket::bind((address, 0)).expect("binds"), receiver, target)
}

fn queue_udp(program: &str, port: u16) {
    run(&format!("{program} -A OUTPUT -p udp --dport {port} -j NFQUEUE --queue-num {QUEUE}"));
}

/// Packets that the first rule of `mangle`'s `INPUT` counted.
fn input_counter() -> u64 {
    let listing = run("iptables -t mangle -nvxL INPUT 1");
    listing.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a counter")
}

#[test]
fn accept_passes_and_drop_does_not() {
    as_root(|| {
        over_both(
            |_config| {},
            |source| {
                let (sender, receiver, target) = udp_pair("127.0.0.1");
                queue_udp("iptables", target.port());
                for text in ["drop", "pass"] {
                    sender.send_to(text.as_bytes(), target).expect("sends");
                }
                judge(source, 2, |packet| {
                    assert_eq!(packet.hardware_protocol, 0x0800);
                    assert_eq!(packet.hook, 3, "the output hook");
                    assert_ne!(packet.output_interface, 0);
                    assert_eq!(packet.wire_length, packet.payload.len());
                    let drop = packet.payload.ends_with(b"drop");
                    PacketAnswer::new(if drop { PacketVerdict::Drop } else { PacketVerdict::Accept })
                });
                let mut buffer = [0; 16];
                let length = receiver.recv(&mut buffer).expect("one packet passes");
                assert_eq!(&buffer[..length], b"pass");
                let statistics = source.statistics();
                assert_eq!(statistics.received, 2);
                assert_eq!((statistics.missed, statistics.unanswered, statistics.malformed), (0, 0, 0));
            },
        );
    });
}

#[test]
fn ipv6_is_queued_alike() {
    as_root(|| {
        over_both(
            |_config| {},
            |source| {
                let (sender, receiver, target) = udp_pair("::1");
                queue_udp("ip6tables", target.port());
                sender.send_to(b"six", target).expect("sends");
                judge(source, 1, |packet| {
                    assert_eq!(packet.hardware_protocol, 0x86dd);
                    assert_eq!(packet.payload.first().map(|octet| octet >> 4), Some(6));
                    PacketAnswer::new(PacketVerdict::Accept)
                });
                assert_eq!(receiver.recv(&mut [0; 16]).expect("passes"), 3);
            },
        );
    });
}

#[test]
fn a_mark_reaches_later_rules() {
    as_root(|| {
        over_both(
            |_config| {},
            |source| {
                let (sender, receiver, target) = udp_pair("127.0.0.1");
                run("iptables -t mangle -A INPUT -m mark --mark 0x40000000/0xc0000000");
                queue_udp("iptables", target.port());
                for text in ["plain", "marked"] {
                    sender.send_to(text.as_bytes(), target).expect("sends");
                }
                judge(source, 2, |packet| {
                    if packet.payload.ends_with(b"marked") {
                        PacketAnswer::with_mark(PacketVerdict::Accept, 0x4000_0001)
                    } else {
                        PacketAnswer::new(PacketVerdict::Accept)
                    }
                });
                for _packet in 0..2 {
                    receiver.recv(&mut [0; 16]).expect("passes");
                }
                assert_eq!(input_counter(), 1);
            },
        );
    });
}

#[test]
fn a_repeated_packet_enters_its_hook_again_with_its_mark() {
    as_root(|| {
        over_both(
            |_config| {},
            |source| {
                let (sender, receiver, target) = udp_pair("127.0.0.1");
                queue_udp("iptables", target.port());
                sender.send_to(b"again", target).expect("sends");
                let mut rounds = 0;
                judge(source, 3, |packet| {
                    rounds += 1;
                    assert_eq!(packet.mark, rounds - 1);
                    let verdict = if rounds < 3 { PacketVerdict::Repeat } else { PacketVerdict::Accept };
                    PacketAnswer::with_mark(verdict, rounds)
                });
                assert_eq!(receiver.recv(&mut [0; 16]).expect("passes"), 5);
            },
        );
    });
}

#[test]
fn a_short_copy_range_truncates_and_grows_for_a_repeated_packet() {
    as_root(|| {
        const OCTETS: usize = 40_000;
        over_both(
            |config| config.copy_range = 64,
            |source| {
                let (sender, receiver, target) = udp_pair("127.0.0.1");
                queue_udp("iptables", target.port());
                sender.send_to(&[b'x'; OCTETS], target).expect("sends");
                let whole = 20 + 8 + OCTETS;
                let range = usize::try_from(source.copy_range()).expect("small");
                let packets = if range < whole { 2 } else { 1 };
                let mut lengths = Vec::new();
                judge(source, packets, |packet| {
                    assert_eq!(packet.wire_length, whole);
                    lengths.push(packet.payload.len());
                    let short = packet.payload.len() < whole;
                    if short {
                        PacketAnswer::again_with(65_000)
                    } else {
                        PacketAnswer::new(PacketVerdict::Accept)
                    }
                });
                assert_eq!(lengths.last(), Some(&whole));
                assert!(packets == 1 || lengths.first() == Some(&64));
                assert!(source.copy_range() >= 65_000 && source.copy_range() <= MAXIMUM_COPY_RANGE);
                assert_eq!(receiver.recv(&mut [0; OCTETS]).expect("passes"), OCTETS);
                assert_eq!(source.statistics().refused, 0);
            },
        );
    });
}

#[test]
fn a_packet_that_a_panic_left_gets_the_failure_verdict() {
    as_root(|| {
        for fail_open in [true, false] {
            over_both(
                |config| config.fail_open = fail_open,
                |source| {
                    let (sender, receiver, target) = udp_pair("127.0.0.1");
                    queue_udp("iptables", target.port());
                    sender.send_to(b"orphan", target).expect("sends");
                    let deadline = Instant::now() + PATIENCE;
                    let mut unwound = false;
                    while !unwound && Instant::now() < deadline {
                        let batch =
                            AssertUnwindSafe(|| source.next_batch(&mut |_packet| panic!("on purpose")));
                        unwound = catch_unwind(batch).is_err();
                    }
                    assert!(unwound, "the packet came");
                    assert_eq!(source.statistics().unanswered, 1);
                    run("iptables -F");
                    sender.send_to(b"later", target).expect("sends");
                    let mut buffer = [0; 16];
                    let length = receiver.recv(&mut buffer).expect("something passes");
                    let expected: &[u8] = if fail_open { b"orphan" } else { b"later" };
                    assert_eq!(&buffer[..length], expected);
                },
            );
        }
    });
}

#[test]
fn a_second_listener_is_told_who_owns_the_queue() {
    as_root(|| {
        over_both(
            |_config| {},
            |_source| {
                let owner = KernelCounters::of(QUEUE).expect("readable").expect("bound").portid;
                for backend in QueueBackend::ALL {
                    let config = SourceConfig { backend, ..SourceConfig::new(QUEUE) };
                    let error = config.open().err().expect("the queue is taken");
                    assert!(
                        error.to_string().contains(&format!("already bound by portid {owner}")),
                        "{error}"
                    );
                    assert!(!error.is_unsupported());
                }
            },
        );
    });
}

#[test]
fn without_the_capability_the_error_names_it() {
    as_root(|| {
        Namespace::new().inside(|| {
            for backend in QueueBackend::ALL {
                // A thread of its own, which loses its capabilities alone.
                let refused = thread::spawn(move || {
                    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
                    let none = CapabilitySet::empty();
                    set_capabilities(
                        None,
                        CapabilitySets { effective: none, permitted: none, inheritable: none },
                    )
                    .expect("capabilities can be given up");
                    SourceConfig { backend, ..SourceConfig::new(QUEUE) }.open().err().expect("not permitted")
                });
                let error = refused.join().expect("the thread ends");
                assert!(error.is_unsupported(), "{error}");
                assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
            }
        });
    });
}

#[test]
fn an_idle_queue_returns_soon_and_counts_nothing() {
    as_root(|| {
        over_both(
            |_config| {},
            |source| {
                let received = source
                    .next_batch(&mut |_packet| unreachable!("nothing is queued"))
                    .expect("the queue is readable");
                assert_eq!(received, BatchCounts::default());
                // What the kernel counts can be read, and it has counted nothing.
                let mut counted = source.statistics();
                assert!(std::mem::take(&mut counted.knows_kernel));
                assert_eq!(counted, Default::default());
            },
        );
    });
}

#[test]
fn a_full_queue_is_counted_when_it_drops_and_passes_when_it_fails_open() {
    as_root(|| {
        const SENT: u64 = 50;
        const ROOM: u32 = 10;
        for fail_open in [true, false] {
            over_both(
                |config| {
                    config.fail_open = fail_open;
                    config.maximum_length = ROOM;
                },
                |source| {
                    let (sender, receiver, target) = udp_pair("127.0.0.1");
                    queue_udp("iptables", target.port());
                    for _packet in 0..SENT {
                        // Under closed failure the sender is told of its loss (EPERM).
                        let _ = sender.send_to(b"flood", target);
                    }
                    judge(source, ROOM as usize, |_packet| PacketAnswer::new(PacketVerdict::Accept));
                    let statistics = source.statistics();
                    assert_eq!(statistics.received, u64::from(ROOM));
                    let lost = SENT - u64::from(ROOM);
                    assert_eq!(statistics.dropped_queue_full, if fail_open { 0 } else { lost });
                    for _packet in 0..if fail_open { SENT } else { u64::from(ROOM) } {
                        receiver.recv(&mut [0; 16]).expect("passes");
                    }
                },
            );
        }
    });
}

#[test]
fn an_overrun_socket_is_counted() {
    as_root(|| {
        over_both(
            |config| {
                config.fail_open = false;
                config.receive_buffer = 1;
            },
            |source| {
                let (sender, _receiver, target) = udp_pair("127.0.0.1");
                queue_udp("iptables", target.port());
                for _packet in 0..500 {
                    let _ = sender.send_to(&[0; 400], target);
                }
                let mut received = 0;
                loop {
                    let batch = source
                        .next_batch(&mut |_packet| PacketAnswer::new(PacketVerdict::Accept))
                        .expect("readable");
                    received += batch.packets as u64;
                    if batch.packets == 0 {
                        break;
                    }
                }
                // One more, behind the gap, tells how many are missing.
                sender.send_to(b"last", target).expect("sends");
                judge(source, 1, |_packet| PacketAnswer::new(PacketVerdict::Accept));
                let statistics = source.statistics();
                assert!(received < 500);
                assert_eq!(statistics.missed, 500 - received);
                assert_eq!(statistics.dropped_socket_full, statistics.missed);
                assert_eq!(statistics.socket_drops, statistics.missed);
            },
        );
    });
}

#[test]
fn a_verdict_that_comes_too_late_is_counted() {
    as_root(|| {
        over_both(
            |_config| {},
            |source| {
                run("ip link add name fleeting type veth peer name other");
                run("ip address add 192.0.2.1/24 dev fleeting");
                run("ip link set fleeting up");
                run("ip link set other up");
                run("ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev fleeting");
                run(&format!("iptables -A OUTPUT -d 192.0.2.2 -j NFQUEUE --queue-num {QUEUE}"));
                let sender = UdpSocket::bind("192.0.2.1:0").expect("binds");
                sender.send_to(b"lost", "192.0.2.2:9").expect("sends");
                judge(source, 1, |_packet| {
                    // The kernel gives up what is queued for an interface that goes down.
                    run("ip link delete fleeting");
                    PacketAnswer::new(PacketVerdict::Accept)
                });
                let received = source.next_batch(&mut |_packet| PacketAnswer::new(PacketVerdict::Accept));
                assert_eq!(received.expect("a late verdict is no error").packets, 0);
                assert_eq!(source.statistics().late_verdicts, 1);
            },
        );
    });
}

#[test]
fn a_drain_answers_what_is_in_hand() {
    as_root(|| {
        over_both(
            |_config| {},
            |source| {
                let (sender, receiver, target) = udp_pair("127.0.0.1");
                queue_udp("iptables", target.port());
                for _packet in 0..200 {
                    sender.send_to(b"in hand", target).expect("sends");
                }
                assert_eq!(source.statistics().waiting, 200);
                let drained = source.drain(PATIENCE, &mut |_packet| PacketAnswer::new(PacketVerdict::Accept));
                assert_eq!(drained.expect("readable").packets, 200);
                for _packet in 0..200 {
                    receiver.recv(&mut [0; 16]).expect("passes");
                }
            },
        );
    });
}

#[test]
fn a_connection_with_large_segments_passes_unharmed() {
    as_root(|| {
        const OCTETS: usize = 8 << 20;
        over_both(
            |_config| {},
            |source| {
                let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
                let address = listener.local_addr().expect("has an address");
                run(&format!(
                    "iptables -A OUTPUT -p tcp --sport {0} -j NFQUEUE --queue-num {QUEUE}",
                    address.port()
                ));
                run(&format!(
                    "iptables -A OUTPUT -p tcp --dport {0} -j NFQUEUE --queue-num {QUEUE}",
                    address.port()
                ));
                let server = thread::spawn(move || {
                    let (mut stream, _peer) = listener.accept().expect("accepts");
                    let data: Vec<u8> = (0..OCTETS).map(|at| at.to_le_bytes()[0]).collect();
                    stream.write_all(&data).expect("writes");
                });
                let client = thread::spawn(move || {
                    let mut data = Vec::new();
                    TcpStream::connect(address).expect("connects").read_to_end(&mut data).expect("reads");
                    data
                });
                let deadline = Instant::now() + PATIENCE;
                let mut large = 0_usize;
                while !(client.is_finished() && server.is_finished()) {
                    assert!(Instant::now() < deadline, "the transfer hangs");
                    let mut accept = |packet: &QueuedPacket<'_>| {
                        large += usize::from(packet.wire_length > 1500 && !packet.checksum_ready);
                        PacketAnswer::new(PacketVerdict::Accept)
                    };
                    source.next_batch(&mut accept).expect("readable");
                }
                server.join().expect("the server ends");
                let data = client.join().expect("the client ends");
                assert_eq!(data.len(), OCTETS);
                assert!(data.iter().enumerate().all(|(at, octet)| *octet == at.to_le_bytes()[0]));
                assert!(large > 0, "segments came whole, with checksums to be filled in later");
                source
                    .drain(PATIENCE, &mut |_packet| PacketAnswer::new(PacketVerdict::Accept))
                    .expect("what the ends still send is answered");
            },
        );
    });
}
