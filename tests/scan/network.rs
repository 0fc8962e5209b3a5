//! `bannerwall scan` in networks of its own: what this machine lacks is not the target's fault.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bannerwall_test_support::{Namespace, PATIENT, Running, as_root, json_lines};

const BANNER: &[u8] = b"SSH-2.0-OpenSSH_8.9p1 Ubuntu-3\r\n";

fn scan(network: &Namespace, arguments: &str) -> Command {
    let mut command = network.command(env!("CARGO_BIN_EXE_bannerwall"));
    command.arg("scan").args(arguments.split_whitespace());
    command
}

fn output(network: &Namespace, arguments: &str) -> Output {
    scan(network, arguments).output().expect("the program runs")
}

fn summary(errors: &str) -> &str {
    errors.lines().last().expect("a summary")
}

/// A server that greets on every loopback address of `network`.
fn greeter(network: &Namespace, port: u16) {
    let listener = network.listen((Ipv4Addr::UNSPECIFIED, port));
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.write_all(BANNER);
        }
    });
}

/// Leaves no local port to connect from, or all again.
fn reserve_all_ports(network: &Namespace, reserved: bool) {
    network.set("ipv4/ip_local_reserved_ports", if reserved { "40000-40999" } else { "1" });
}

fn with_few_ports() -> Namespace {
    let network = Namespace::new();
    network.set("ipv4/ip_local_port_range", "40000 40999");
    reserve_all_ports(&network, true);
    network
}

#[test]
fn without_a_free_port_targets_are_errors_and_not_closed() {
    as_root(|| {
        let run = output(&with_few_ports(), "connect 127.0.0.1-127.0.0.3 -p 22 --format json");
        assert_eq!(run.status.code(), Some(0));
        let events = json_lines(&run.stdout);
        assert_eq!(events.len(), 3);
        for event in events {
            assert_eq!(event["state"], "error", "{event}");
            assert_eq!(event["bannerwall"]["reason"], "EADDRNOTAVAIL", "{event}");
        }
        let errors = String::from_utf8_lossy(&run.stderr);
        let expected = "targets 3, open 0, local error 3 (no free port 3), ";
        assert!(summary(&errors).starts_with(expected), "{errors}");
    });
}

#[test]
fn a_scan_goes_on_when_ports_are_free_again() {
    as_root(|| {
        let network = with_few_ports();
        greeter(&network, 22);
        let scan = Running::start(scan(
            &network,
            &format!("ssh 127.0.0.0/24 --rate max --connect-timeout 9s {PATIENT} -v"),
        ));
        scan.wait_stderr("the scan's beginning", |errors| errors.find("256 at once"));
        // Time for the first tries; the last of them comes seconds later.
        std::thread::sleep(Duration::from_millis(200));
        reserve_all_ports(&network, false);
        // Not only its end: what it says comes through a pipe, perhaps a moment later.
        scan.wait_stderr("the summary", |errors| errors.find("targets a second"));
        let errors = scan.stderr();
        assert!(summary(&errors).starts_with("targets 256, open 256, "), "{errors}");
        assert!(!summary(&errors).contains("local error"), "{errors}");
    });
}

#[test]
fn a_low_limit_of_descriptors_makes_a_scan_narrow_and_not_wrong() {
    as_root(|| {
        let network = Namespace::new();
        greeter(&network, 22);
        let program = env!("CARGO_BIN_EXE_bannerwall");
        for threads in [1, 2] {
            let words = format!(
                "prlimit --nofile=40:40 {program} scan ssh 127.0.0.0/22 --rate max --connect-timeout 9s {PATIENT} --threads {threads}"
            );
            let run = network.output(&words);
            let errors = String::from_utf8_lossy(&run.stderr);
            assert_eq!(run.status.code(), Some(0), "{errors}");
            assert!(summary(&errors).starts_with("targets 1024, open 1024, "), "{errors}");
        }
    });
}

#[test]
fn where_no_route_leads_is_told_as_such() {
    as_root(|| {
        let run = output(&Namespace::new(), "connect 192.0.2.0/30 2001:db8::1 -p 80 --format json");
        let events = json_lines(&run.stdout);
        assert_eq!(events.len(), 5);
        for event in events {
            assert_eq!(
                (&event["state"], &event["bannerwall"]["reason"]),
                (&"error".into(), &"ENETUNREACH".into())
            );
        }
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(summary(&errors).contains("local error 5 (no route 5)"), "{errors}");
    });
}

#[test]
fn connections_that_end_in_order_leave_the_scan_enough_ports() {
    as_root(|| {
        let network = Namespace::new();
        network.set("ipv4/ip_local_port_range", "40000 40099");
        greeter(&network, 22);
        // 512 targets by a hundred ports, each of which stays in TIME_WAIT toward its target.
        let run = output(
            &network,
            &format!("ssh 127.0.0.0/23 --rate max --connect-timeout 9s {PATIENT} --close fin"),
        );
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(summary(&errors).starts_with("targets 512, open 512, "), "{errors}");
    });
}

#[test]
fn who_did_not_answer_is_asked_again_as_often_as_users_say() {
    as_root(|| {
        let network = Namespace::new();
        greeter(&network, 22);
        // Every second connection request gets lost.
        let lose = "iptables -A INPUT -p tcp --syn -m statistic --mode nth --every 2 --packet 0 -j DROP";
        network.run(lose);
        let words = "ssh 127.0.0.0/28 --concurrency 1 --connect-timeout 500ms --read-timeout 9s";
        let run = output(&network, &format!("{words} --retries 0"));
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(summary(&errors).contains(" timed out "), "{errors}");
        let run = output(&network, &format!("{words} --retries 9"));
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(summary(&errors).starts_with("targets 16, open 16, "), "counted once each: {errors}");
    });
}

/// What the two ways to end a connection look like from the other side.
#[test]
fn close_decides_whether_a_target_sees_a_reset_or_an_end() {
    as_root(|| {
        for (close, expected) in [("fin", None), ("rst", Some(std::io::ErrorKind::ConnectionReset))] {
            let network = Namespace::new();
            let listener: TcpListener = network.listen((Ipv4Addr::LOCALHOST, 22));
            let server = std::thread::spawn(move || {
                let (mut connection, _) = listener.accept().expect("a client");
                connection.write_all(BANNER).expect("it reads");
                connection.read_to_end(&mut Vec::new()).err().map(|error| error.kind())
            });
            let run = output(&network, &format!("ssh 127.0.0.1 --close {close}"));
            assert_eq!(run.status.code(), Some(0));
            assert_eq!(server.join().expect("no panic"), expected, "--close {close}");
        }
    });
}

#[test]
fn an_endless_sender_is_cut_off() {
    as_root(|| {
        let network = Namespace::new();
        let listener = network.listen((Ipv4Addr::LOCALHOST, 22));
        let sent = std::sync::Arc::new(AtomicUsize::new(0));
        let counter = std::sync::Arc::clone(&sent);
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a client");
            while connection.write_all(&[b'a'; 1024]).is_ok() {
                counter.fetch_add(1024, Relaxed);
            }
        });
        let run = output(&network, "ssh 127.0.0.1 --format json");
        server.join().expect("no panic");
        let event = json_lines(&run.stdout).pop().expect("a result");
        assert_eq!((&event["state"], &event["bannerwall"]["reason"]), (&"open".into(), &"too-long".into()));
        assert!(
            event["bannerwall"]["banner"].as_str().is_some_and(|banner| banner.starts_with("aaaa")),
            "{event}"
        );
        // What socket buffers took beside what was read.
        assert!(sent.load(Relaxed) < 16 << 20, "{}", sent.load(Relaxed));
    });
}
