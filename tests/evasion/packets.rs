//! Packet tricks against an enforcing guard, with the kernel's own sockets as the judge.
//!
//! Every row of `tricks` is played as client and as server, over IPv4 and IPv6, with a forbidden and
//! with an allowed message, once without a guard and once through one. A row is valid where the
//! message arrives without a guard; then a forbidden one must not arrive through the guard's
//! defaults, and an allowed one must.
//!
//! `BANNERWALL_EVASION_FLAGS` gives the guard other flags, `BANNERWALL_EVASION_REPORT` names a file for
//! the traces of what failed, `BANNERWALL_EVASION_ONLY` a part of the names of the rows to play, and with
//! `BANNERWALL_EVASION_ALL` the pending rows have to hold, too.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bannerwall_test_support::raw::{Battlefield, Cargo, Flags, Role};
use bannerwall_test_support::{Guard, JUDGES_ALL, Line, as_root, eventually};

use crate::tricks::{PENDING, SLOW, Shot, TOO_SLOW, TRICKS, Trick};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Rows that are played at once.
const LANES: usize = 24;

/// How long an allowed message may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a forbidden message has to arrive behind the last packet.
const HASTE: Duration = Duration::from_millis(200);

/// A trick as one end plays it.
#[derive(Clone, Copy)]
struct Row {
    trick: &'static Trick,
    role: Role,
    v6: bool,
}

impl Row {
    fn name(self) -> String {
        let version = if self.v6 { 6 } else { 4 };
        format!("{} ({:?}, IPv{version})", self.trick.name, self.role)
    }

    fn cargo(self) -> Cargo {
        if self.role == Role::Client { Cargo::Http } else { Cargo::Ssh }
    }

    /// Plays the row and tells whether its message arrived, with a trace.
    fn play(self, field: &Battlefield, is_forbidden: bool, patience: Duration) -> (bool, String) {
        let cargo = self.cargo();
        let truth = cargo.message(self.role, is_forbidden);
        let decoy = cargo.message(self.role, false);
        let (mut end, application) = field.pair(self.role, self.v6, cargo.talk(self.role));
        (self.trick.play)(&mut end, Shot { truth, decoy });
        let software = cargo.software(self.role, truth);
        let arrived = application.has_read(patience, |read| cargo.software(self.role, read) == software);
        let reads: Vec<String> =
            application.reads().iter().map(|read| format!("= \"{}\"", read.escape_ascii())).collect();
        (arrived, format!("{}\n{}", end.trace(), reads.join("\n")))
    }
}

fn rows(tricks: &'static [Trick]) -> Vec<Row> {
    let only = std::env::var("BANNERWALL_EVASION_ONLY").unwrap_or_default();
    let mut rows = Vec::new();
    for trick in tricks.iter().filter(|trick| trick.name.contains(&only)) {
        for role in [Role::Client, Role::Server] {
            for v6 in [false, true] {
                if trick.ends.includes(role) && (v6 || !trick.v6_only) {
                    rows.push(Row { trick, role, v6 });
                }
            }
        }
    }
    rows
}

/// What became of a row.
#[derive(Debug, Default)]
struct Outcome {
    /// Whether the forbidden message arrives without a guard.
    is_valid: bool,
    /// The trace of a forbidden message that arrived through the guard.
    bypass: Option<String>,
    /// The trace of an allowed message that did not.
    broken: Option<String>,
}

fn judge(row: Row, without: &Battlefield, with: &Battlefield) -> Outcome {
    let play = |field, is_forbidden, patience| move || row.play(field, is_forbidden, patience);
    let [valid, allowed_valid, forbidden, allowed] = std::thread::scope(|scope| {
        let threads = [
            scope.spawn(play(without, true, PATIENCE / 5)),
            scope.spawn(play(without, false, PATIENCE / 5)),
            scope.spawn(play(with, true, HASTE)),
            scope.spawn(play(with, false, PATIENCE)),
        ];
        threads.map(|thread| thread.join().expect("playing does not panic"))
    });
    let mut outcome = Outcome { is_valid: valid.0, ..Outcome::default() };
    let (arrived, trace) = forbidden;
    if arrived {
        outcome.bypass = Some(trace);
    }
    if allowed_valid.0 {
        // One that is late for want of a processor comes the next time.
        let again = (0..2).map(|_| row.play(with, false, PATIENCE));
        let last =
            std::iter::once(allowed).chain(again).take_while(|(arrived, _)| !arrived).collect::<Vec<_>>();
        outcome.broken = (last.len() == 3).then(|| last[2].1.clone());
    }
    outcome
}

fn judge_all(rows: &[Row], without: &Battlefield, with: &Battlefield) -> Vec<(Row, Outcome)> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = judge(*row, without, with);
                    outcomes.lock().expect("no lane panics").push((*row, outcome));
                }
            });
        }
    });
    outcomes.into_inner().expect("no lane panics")
}

fn report(outcomes: &[(Row, Outcome)], with_pending: bool) -> String {
    let mut text = String::new();
    for (row, outcome) in outcomes {
        if !with_pending && PENDING.contains(&row.trick.name) {
            continue;
        }
        for (what, trace) in [("BYPASS", &outcome.bypass), ("BROKEN", &outcome.broken)] {
            let is_due = what == "BROKEN" && TOO_SLOW.contains(&row.trick.name);
            if let Some(trace) = trace.as_ref().filter(|_| !is_due) {
                text.push_str(&format!("## {what} {}\n\n```\n{trace}\n```\n\n", row.name()));
            }
        }
    }
    text
}

fn play_all(tricks: &'static [Trick]) {
    let rows = rows(tricks);
    let (without, with) = (Battlefield::new(), Battlefield::new());
    let flags = std::env::var("BANNERWALL_EVASION_FLAGS").unwrap_or_default();
    let flags = format!("--hook forward --enforce {JUDGES_ALL} {flags}");
    let _guard = Guard::start(&with.router, PROGRAM, Cargo::RULES, &flags);
    let outcomes = judge_all(&rows, &without, &with);
    let count = |of: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, outcome)| of(outcome)).count();
    let valid = count(|outcome| outcome.is_valid);
    let bypasses = count(|outcome| outcome.bypass.is_some());
    let is_broken =
        |(row, outcome): &&(Row, Outcome)| outcome.broken.is_some() && !TOO_SLOW.contains(&row.trick.name);
    let broken = outcomes.iter().filter(is_broken).count();
    let invalid = outcomes.iter().filter(|(_, outcome)| !outcome.is_valid).map(|(row, _)| row.name());
    let invalid: Vec<_> = invalid.collect();
    let figures = format!(
        "{} rows, {valid} valid: {bypasses} delivered a forbidden message, {broken} broke an allowed one\nnot valid: {}\n",
        rows.len(),
        invalid.join("; "),
    );
    println!("{figures}");
    if let Some(file) = std::env::var_os("BANNERWALL_EVASION_REPORT") {
        let text = report(&outcomes, true);
        std::fs::write(file, format!("# {figures}\n{text}")).expect("the file can be written");
    }
    assert!(valid * 10 >= rows.len() * 9, "most rows work without a guard: {figures}");
    let text = report(&outcomes, std::env::var_os("BANNERWALL_EVASION_ALL").is_some());
    assert!(text.is_empty(), "{figures}{text}");
}

#[test]
fn no_packet_trick_brings_a_forbidden_message_past_an_enforcing_guard() {
    as_root(|| play_all(TRICKS));
}

#[test]
#[ignore = "takes more than five minutes; scripts/evasion runs it"]
fn no_waiting_brings_a_forbidden_message_past_an_enforcing_guard() {
    as_root(|| play_all(SLOW));
}

/// What a real client reads of a server's identification in which one octet is marked urgent.
fn read_of_urgent(field: &Battlefield, v6: bool) -> (Vec<u8>, &'static [u8]) {
    let text = Cargo::Ssh.message(Role::Server, false);
    let (mut end, application) = field.pair(Role::Server, v6, Cargo::Ssh.talk(Role::Server));
    end.open();
    end.deliver(&text[..10], 7);
    let mut packet = end.segment(10, &text[10..]);
    (packet.flags, packet.urgent_pointer) = (packet.flags | Flags::URG, 3);
    end.send(&packet);
    end.settle();
    end.deliver(text, 7);
    application.has_read(PATIENCE, |read| read.ends_with(b"\n"));
    (application.read(), text)
}

#[test]
fn an_octet_marked_urgent_is_read_as_it_was_judged() {
    as_root(|| {
        let without = Battlefield::new();
        let (read, text) = read_of_urgent(&without, false);
        assert_eq!(read.len(), text.len() - 1, "the kernel takes an urgent octet out of what is read");
        for backend in ["libnetfilter_queue", "nfq"] {
            let field = Battlefield::new();
            let flags = format!("--hook forward --enforce --backend {backend}");
            let guard = Guard::start(&field.router, PROGRAM, Cargo::RULES, &flags);
            for v6 in [false, true] {
                let (read, text) = read_of_urgent(&field, v6);
                assert_eq!(read, text, "{backend}, IPv6: {v6}");
            }
            let is_urgent = |event: &serde_json::Value| event["anomaly"]["event"] == "urgent_data";
            let told = eventually("an event of urgent data", || {
                let told = guard.events();
                told.iter().any(is_urgent).then_some(told)
            });
            assert!(told.iter().all(|event| event["event_type"] != "drop"), "{told:?}");
        }
    });
}

/// Whether a server whose greeting is blocked learns that its client has given up.
fn learns_of_the_end(flags: &str) -> bool {
    let line = Line::new();
    let _guard = Guard::start(
        &line.router,
        PROGRAM,
        Cargo::RULES,
        &format!("--hook forward --enforce --max-wait off {flags}"),
    );
    let any: SocketAddr = (Line::SERVER_V4.parse::<IpAddr>().expect("an address"), 0).into();
    let listener = line.server.listen(any);
    let address = listener.local_addr().expect("it is bound");
    let client = line.client.connect(address).expect("the handshake passes");
    let (mut server, _) = listener.accept().expect("the handshake passes");
    server.write_all(Cargo::Ssh.message(Role::Server, true)).expect("the connection is open");
    client.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    assert!((&client).read(&mut [0; 100]).is_err(), "the greeting is blocked");
    // Closing ends it by a reset.
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(client);
    server.set_read_timeout(Some(PATIENCE)).expect("a time");
    server.read(&mut [0; 100]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn a_reset_of_a_blocked_connection_reaches_the_other_end() {
    as_root(|| {
        for flags in ["", "--no-offload", "--backend nfq"] {
            assert!(learns_of_the_end(flags), "{flags}");
        }
    });
}
