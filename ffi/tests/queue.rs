//! A queue on a real kernel: by event loop, from queue to queue, and with other octets than the packet came
//! with.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use bannerwall_ffi::queue::{KernelCounters, Queue, QueueConfig, Verdict};
use bannerwall_test_support::{Namespace, as_root};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// Headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// Where UDP's checksum stands; zero is none.
const CHECKSUM: std::ops::Range<usize> = 26..28;

fn bind(number: u16) -> Queue {
    Queue::bind(&QueueConfig { owners: true, ..QueueConfig::new(number) }).expect("a queue of this namespace")
}

/// Waits by `poll`, and answers what is there.
fn answer(queue: &mut Queue, mut judge: impl FnMut(bannerwall_ffi::queue::Packet<'_>)) {
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ready =
        poll(&mut [PollFd::new(&queue.as_fd(), PollFlags::IN)], Some(&patience)).expect("it is polled");
    assert_eq!(ready, 1, "no packet came");
    let mut batch = queue.receive_waiting().expect("packets");
    while let Some(packet) = batch.next_packet() {
        judge(packet);
    }
    batch.finish().expect("the kernel takes the verdicts");
}

#[test]
fn a_packet_goes_by_a_second_queue_and_arrives_with_other_octets() {
    as_root(|| {
        let namespace = Namespace::new();
        namespace.run("iptables -A OUTPUT -p udp --dport 9 -j NFQUEUE --queue-num 5");
        namespace.inside(|| {
            let (mut first, mut second) = (bind(5), bind(6));
            assert!(first.receive_waiting().expect("nothing is there").is_empty());
            let server = UdpSocket::bind("127.0.0.1:9").expect("a socket");
            server.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            client.send_to(b"asked", "127.0.0.1:9").expect("loopback is up");
            let owner = rustix::process::geteuid().as_raw();
            answer(&mut first, |packet| {
                assert_eq!(packet.payload().get(HEADERS..), Some(&b"asked"[..]));
                assert_eq!(packet.message().user, Some(owner));
                packet.verdict(Verdict::Queue(6), None, None);
            });
            answer(&mut second, |packet| {
                let mut octets = packet.payload().to_vec();
                octets[HEADERS..].copy_from_slice(b"heard");
                octets[CHECKSUM].fill(0);
                packet.replace(Verdict::Accept, None, &octets);
            });
            let mut buffer = [0; 16];
            let length = server.recv(&mut buffer).expect("it arrives");
            assert_eq!(&buffer[..length], b"heard");
            for queue in [first, second] {
                let counters = queue.unbind().expect("it is ours");
                assert_eq!((counters.packets, counters.refused, counters.late_verdicts), (1, 0, 0));
            }
        });
    });
}

#[test]
fn what_waits_in_a_queue_is_answered_by_whoever_has_its_socket() {
    as_root(|| {
        let namespace = Namespace::new();
        namespace.run("iptables -A OUTPUT -p udp --dport 9 -j NFQUEUE --queue-num 5");
        namespace.inside(|| {
            let (first, other) = (bind(5), bind(6));
            let server = UdpSocket::bind("127.0.0.1:9").expect("a socket");
            server.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            client.send_to(b"waits", "127.0.0.1:9").expect("loopback is up");
            let duplicate = |socket: std::os::fd::BorrowedFd<'_>| socket.try_clone_to_owned().expect("room");
            let config = QueueConfig { copy_range: 128, ..QueueConfig::new(5) };
            for stranger in [duplicate(other.as_fd()), duplicate(server.as_fd())] {
                assert!(Queue::adopt(stranger, &config, false).is_err());
            }
            let mut second =
                Queue::adopt(duplicate(first.as_fd()), &config, true).expect("it is this queue's");
            assert!(second.marks_connections() && second.portid() == first.portid());
            drop(first);
            second.resume(&config, 2048).expect("the kernel hears");
            assert_eq!(second.copy_range(), 2048, "what waits was copied by the range before");
            for text in ["waits", "later"] {
                if text == "later" {
                    client.send_to(text.as_bytes(), "127.0.0.1:9").expect("loopback is up");
                }
                answer(&mut second, |packet| packet.verdict(Verdict::Accept, None, None));
                let mut buffer = [0; 16];
                let length = server.recv(&mut buffer).expect("it arrives");
                assert_eq!(&buffer[..length], text.as_bytes());
            }
            // Another process that has the socket gives the queue back.
            let third = Queue::adopt(duplicate(second.as_fd()), &config, true).expect("it is this queue's");
            third.unbind().expect("it is ours, too");
            assert!(!second.is_lost());
            second.resume(&config, 128).expect("the kernel hears, and answers");
            let lost = Instant::now() + Duration::from_secs(60);
            while !second.is_lost() {
                assert!(Instant::now() < lost, "it says so");
                drop(second.receive().expect("an answer is no failure"));
            }
            second.bind_again(&config).expect("nobody has it");
            assert!(!second.is_lost() && second.bind_again(&config).is_err(), "it is bound");
            client.send_to(b"again", "127.0.0.1:9").expect("loopback is up");
            answer(&mut second, |packet| packet.verdict(Verdict::Accept, None, None));
            assert_eq!(server.recv(&mut [0; 16]).expect("it arrives"), 5);
            let counters = second.unbind().expect("it is ours");
            assert_eq!(
                (counters.packets, counters.missed, counters.refused),
                (3, 0, 2),
                "of the queue that was gone"
            );
        });
    });
}

#[test]
fn what_somebody_has_read_and_does_not_answer_any_more_is_answered_and_nothing_else() {
    as_root(|| {
        let namespace = Namespace::new();
        namespace.run("iptables -A OUTPUT -p udp --dport 9 -j NFQUEUE --queue-num 5");
        namespace.inside(|| {
            let server = UdpSocket::bind("127.0.0.1:9").expect("a socket");
            server.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let send =
                |text: &str| _ = client.send_to(text.as_bytes(), "127.0.0.1:9").expect("loopback is up");
            let waiting = || KernelCounters::of(5).expect("the table is ours").expect("it is bound").waiting;
            let config = QueueConfig::new(5);
            // Whoever has the queue reads, is killed before an answer, and somebody goes on in its place.
            let killed = |mut first: Queue, read: usize, later: &[&str]| {
                let batch = first.receive_waiting().expect("packets");
                assert_eq!(batch.len(), read);
                std::mem::forget(batch);
                later.iter().for_each(|text| send(text));
                let socket = first.as_fd().try_clone_to_owned().expect("room");
                Queue::adopt(socket, &config, true).expect("it is this queue's")
            };
            let first = bind(5);
            ["one", "two"].into_iter().for_each(send);
            let mut second = killed(first, 2, &["three"]);
            assert_eq!(waiting(), 3);
            assert_eq!(second.answer_read(Verdict::Accept).expect("the kernel hears"), Some(2));
            assert_eq!(waiting(), 1, "the last one can still be read");
            answer(&mut second, |packet| packet.verdict(Verdict::Accept, None, None));
            for text in ["one", "two", "three"] {
                let mut buffer = [0; 16];
                let length = server.recv(&mut buffer).expect("it arrives");
                assert_eq!(&buffer[..length], text.as_bytes());
            }
            // Nothing can be read any more.
            send("four");
            let mut third = killed(second, 1, &[]);
            assert_eq!(third.answer_read(Verdict::Drop).expect("the kernel hears"), Some(1));
            assert_eq!(waiting(), 0);
            assert_eq!(third.answer_read(Verdict::Drop).expect("nothing is to be said"), Some(0));
            // Nothing was read, and what waits stays.
            send("five");
            assert_eq!(third.answer_read(Verdict::Drop).expect("the kernel hears"), Some(0));
            answer(&mut third, |packet| packet.verdict(Verdict::Accept, None, None));
            assert_eq!(server.recv(&mut [0; 16]).expect("it arrives"), 4);
            assert!(third.receive_waiting().expect("what the kernel says").next_packet().is_none());
            let counters = third.unbind().expect("it is ours");
            assert_eq!((counters.refused, counters.late_verdicts), (0, 0));
        });
    });
}

#[test]
fn what_nobody_has_found_out_of_a_kernel_is_found_out_by_whoever_goes_on() {
    as_root(|| {
        Namespace::new().inside(|| {
            let first = bind(5);
            let duplicate = first.as_fd().try_clone_to_owned().expect("room");
            let second = Queue::adopt(duplicate, &QueueConfig::new(5), false).expect("it is this queue's");
            assert_eq!(second.marks_connections(), first.marks_connections());
            assert_eq!(first.counters().refused, 0);
        });
    });
}

#[test]
fn a_socket_of_another_network_is_not_gone_on_with() {
    as_root(|| {
        let first = Namespace::new().inside(|| bind(5));
        let (config, duplicate) = (QueueConfig::new(5), first.as_fd().try_clone_to_owned().expect("room"));
        let refused = Namespace::new().inside(|| Queue::adopt(duplicate, &config, false));
        let refused = refused.expect_err("another network").to_string();
        assert!(refused.contains("SO_NETNS_COOKIE"), "{refused}");
    });
}

#[test]
fn the_library_is_linked_where_it_is_asked_for_and_nowhere_else() {
    let mapped = std::fs::read_to_string("/proc/self/maps").expect("a process may look at itself");
    let is_linked = mapped.contains("libnetfilter_queue") || mapped.contains("libmnl");
    assert_eq!(is_linked, cfg!(feature = "libnetfilter_queue"));
}

#[test]
fn security_contexts_are_told_or_the_kernel_says_that_it_has_none() {
    as_root(|| {
        Namespace::new().inside(|| {
            let asked = Queue::bind(&QueueConfig { security_contexts: true, ..QueueConfig::new(7) });
            if let Err(error) = asked {
                assert!(error.is_unsupported(), "{error}");
            }
        });
    });
}
