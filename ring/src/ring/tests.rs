//! The ring against the running kernel, over loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::FromRawFd as _;
use std::rc::Rc;
use std::time::Duration;

use io_uring::{opcode, types};

use super::*;

const SOCKET: DirectSocket = DirectSocket(0);
const OPTIONS: RingOptions =
    RingOptions { submissions: 8, operations: 8, sockets: 4, buffers: 4, buffer_size: 64, no_delay: false };

fn ring<T>() -> Ring<T> {
    Ring::new(&OPTIONS).expect("io_uring works here")
}

/// The next completion of an operation, waited for.
fn complete<T>(ring: &mut Ring<T>) -> Completion<T> {
    for _ in 0..100 {
        match ring.pop() {
            Some(RingCompletion::Operation(completion)) => return completion,
            Some(RingCompletion::Failed { .. }) => {}
            None => ring.submit_and_wait(1, Duration::from_millis(100)).expect("enter works"),
        }
    }
    panic!("no completion in ten seconds");
}

fn connect(ring: &mut Ring<u32>, address: SocketAddr, link: OperationLink) -> OperationKey {
    ring.push_detached(DetachedOperation::Open { socket: SOCKET, family: SocketFamily::of(&address) }, true)
        .expect("room");
    ring.push(Operation::Connect { socket: SOCKET, address }, link, 7).expect("room")
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

#[test]
fn connects_and_receives_exactly_what_was_sent() {
    let (listener, address) = listener();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(b"SSH-2.0-x\r\n").expect("sent");
        let mut request = [0; 4];
        stream.read_exact(&mut request).expect("a request");
        stream.write_all(b"ok").expect("sent");
        request
    });
    let mut ring = ring();
    connect(&mut ring, address, OperationLink::Success);
    ring.push(Operation::Receive { socket: SOCKET }, OperationLink::End, 8).expect("room");
    assert!(matches!(complete(&mut ring), Completion { state: 7, result: Ok(0), .. }));
    assert!(matches!(complete(&mut ring), Completion { state: 8, result: Ok(11), .. }));
    assert_eq!(ring.received(), b"SSH-2.0-x\r\n");
    let octets = b"..ping".to_vec();
    ring.push(Operation::Send { socket: SOCKET, octets, from: 2 }, OperationLink::Success, 9).expect("room");
    ring.push(Operation::Receive { socket: SOCKET }, OperationLink::End, 10).expect("room");
    let sent = complete(&mut ring);
    assert_eq!((sent.state, sent.result, sent.octets), (9, Ok(4), b"..ping".to_vec()));
    assert_eq!(ring.received(), b"", "a send brings nothing");
    assert_eq!(complete(&mut ring).result, Ok(2));
    assert_eq!(ring.received(), b"ok", "a shorter answer shows nothing of the longer one before");
    assert_eq!(&server.join().expect("served"), b"ping");
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn a_refused_connect_cancels_what_is_linked_behind_it() {
    let (listener, address) = listener();
    drop(listener);
    let mut ring = ring();
    connect(&mut ring, address, OperationLink::Success);
    ring.push(Operation::Receive { socket: SOCKET }, OperationLink::End, 8).expect("room");
    let refused = complete(&mut ring);
    assert_eq!((refused.state, refused.result), (7, Err(libc::ECONNREFUSED)));
    let cancelled = complete(&mut ring);
    assert_eq!((cancelled.state, cancelled.result), (8, Err(libc::ECANCELED)));
}

#[test]
fn a_socket_is_used_again_after_a_disconnect() {
    let (listener, address) = listener();
    let mut ring = ring();
    connect(&mut ring, address, OperationLink::End);
    assert_eq!(complete(&mut ring).result, Ok(0));
    let (mut first, _) = listener.accept().expect("a client");
    ring.push_detached(DetachedOperation::Disconnect { socket: SOCKET }, true).expect("room");
    ring.push(Operation::Connect { socket: SOCKET, address }, OperationLink::End, 8).expect("room");
    assert_eq!(complete(&mut ring).result, Ok(0));
    assert!(listener.accept().is_ok());
    let ended = first.read(&mut [0; 1]).expect_err("the first connection was reset");
    assert_eq!(ended.raw_os_error(), Some(libc::ECONNRESET));
}

/// A direct socket as a descriptor like others, to ask what its options are.
fn installed(ring: &mut Ring<u32>) -> TcpStream {
    let entry = opcode::FixedFdInstall::new(types::Fixed(SOCKET.0), 0).build().user_data(u64::MAX >> 1);
    ring.enqueue(&entry).expect("room");
    ring.submit_and_wait(1, Duration::from_secs(9)).expect("enter works");
    let entry = ring.ring.0.completion().next().expect("a completion");
    assert!(entry.result() >= 0, "error {}", -entry.result());
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    unsafe { TcpStream::from_raw_fd(entry.result()) }
}

#[test]
fn a_socket_that_sends_at_once_does_so_after_a_disconnect_too() {
    let (_listener, address) = listener();
    let mut ring = Ring::new(&RingOptions { no_delay: true, ..OPTIONS }).expect("io_uring works here");
    if !ring.has_no_delay() {
        eprintln!("left out: this kernel has no setsockopt for direct sockets (Linux 6.7)");
        return;
    }
    ring.push_detached(DetachedOperation::Open { socket: SOCKET, family: SocketFamily::Inet }, true)
        .expect("room");
    ring.push_detached(DetachedOperation::NoDelay { socket: SOCKET }, true).expect("room");
    ring.push(Operation::Connect { socket: SOCKET, address }, OperationLink::End, 7).expect("room");
    assert_eq!(complete(&mut ring).result, Ok(0));
    assert!(installed(&mut ring).nodelay().expect("an option"));
    ring.push_detached(DetachedOperation::Disconnect { socket: SOCKET }, true).expect("room");
    ring.push(Operation::Connect { socket: SOCKET, address }, OperationLink::End, 8).expect("room");
    assert_eq!(complete(&mut ring).result, Ok(0));
    assert!(installed(&mut ring).nodelay().expect("an option"));
}

#[test]
fn a_ring_that_was_not_made_for_it_leaves_sockets_as_they_are() {
    let (_listener, address) = listener();
    let mut ring = ring();
    assert!(!ring.has_no_delay());
    ring.push_detached(DetachedOperation::Open { socket: SOCKET, family: SocketFamily::Inet }, true)
        .expect("room");
    ring.push_detached(DetachedOperation::NoDelay { socket: SOCKET }, true).expect("room");
    ring.push(Operation::Connect { socket: SOCKET, address }, OperationLink::End, 7).expect("room");
    let connected = complete(&mut ring);
    assert_eq!((connected.state, connected.result), (7, Ok(0)));
}

#[test]
fn an_option_that_cannot_be_set_is_no_failure() {
    let mut ring = Ring::<u32>::new(&RingOptions { no_delay: true, ..OPTIONS }).expect("io_uring works here");
    ring.push_detached(DetachedOperation::NoDelay { socket: DirectSocket(3) }, false).expect("room");
    ring.submit_and_wait(1, Duration::from_millis(50)).expect("enter works");
    assert!(ring.pop().is_none());
}

#[test]
fn an_operation_in_flight_is_cancelled_by_its_key_and_by_no_older_one() {
    let (_listener, address) = listener();
    let mut ring = ring();
    let connected = connect(&mut ring, address, OperationLink::End);
    assert_eq!(complete(&mut ring).result, Ok(0));
    let receive = ring.push(Operation::Receive { socket: SOCKET }, OperationLink::End, 8).expect("room");
    ring.push_detached(DetachedOperation::Cancel { operation: connected }, false).expect("room");
    ring.submit_and_wait(1, Duration::from_millis(50)).expect("enter works");
    assert!(ring.pop().is_none(), "the key of a finished operation cancels nothing");
    ring.push_detached(DetachedOperation::Cancel { operation: receive }, false).expect("room");
    assert_eq!(complete(&mut ring).result, Err(libc::ECANCELED));
}

#[test]
fn failures_that_nobody_waits_for_are_told() {
    let mut ring = ring::<u32>();
    ring.push_detached(DetachedOperation::Disconnect { socket: DirectSocket(3) }, false).expect("room");
    ring.submit_and_wait(1, Duration::from_secs(1)).expect("enter works");
    let failed = ring.pop().expect("a failure");
    let RingCompletion::Failed { socket, error } = failed else { panic!("not a failure: {failed:?}") };
    assert_eq!((socket, error), (DirectSocket(3), libc::EBADF));
}

#[test]
fn values_in_flight_are_dropped_with_the_ring_and_not_before() {
    let (_listener, address) = listener();
    let witness = Rc::new(());
    let mut ring = ring();
    ring.push_detached(DetachedOperation::Open { socket: SOCKET, family: SocketFamily::Inet }, true)
        .expect("room");
    ring.push(Operation::Connect { socket: SOCKET, address }, OperationLink::Success, witness.clone())
        .expect("room");
    ring.push(Operation::Receive { socket: SOCKET }, OperationLink::End, witness.clone()).expect("room");
    drop(complete(&mut ring));
    assert_eq!(Rc::strong_count(&witness), 2, "the receive still holds one");
    drop(ring);
    assert_eq!(Rc::strong_count(&witness), 1, "and the kernel let go of it in time");
}

#[test]
fn more_operations_than_asked_for_are_refused() {
    let (_listener, address) = listener();
    let mut ring =
        Ring::new(&RingOptions { operations: 1, sockets: 1, ..OPTIONS }).expect("io_uring works here");
    connect(&mut ring, address, OperationLink::Success);
    let refused = ring.push(Operation::Receive { socket: SOCKET }, OperationLink::End, 8);
    assert!(matches!(refused, Err(RingError::Full)));
}

#[test]
fn a_socket_outside_the_table_is_refused() {
    let mut ring = ring();
    for place in [OPTIONS.sockets, u32::MAX] {
        let socket = DirectSocket(place);
        let opened =
            ring.push_detached(DetachedOperation::Open { socket, family: SocketFamily::Inet }, false);
        assert!(matches!(opened, Err(RingError::NoSocket { socket }) if socket == place));
        let received = ring.push(Operation::Receive { socket }, OperationLink::End, 8);
        assert!(matches!(received, Err(RingError::NoSocket { socket }) if socket == place));
    }
    assert_eq!((ring.queued(), ring.in_flight()), (0, 0));
}

#[test]
fn a_ring_that_cannot_have_its_sockets_is_not_made() {
    let options = RingOptions { sockets: u32::MAX, ..OPTIONS };
    let error = Ring::<u32>::new(&options).expect_err("more sockets than the kernel allows");
    assert!(matches!(error, RingError::Call { call: "io_uring_register(FILES2)", .. }), "{error}");
}

#[test]
fn buffers_that_the_kernel_refuses_are_freed_again() {
    let options = RingOptions { buffers: 3, ..OPTIONS };
    assert!(Ring::<u32>::new(&options).is_err(), "three is not a power of two");
}

#[test]
fn buffers_are_given_back_again_and_again() {
    let (listener, address) = listener();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        for octet in 0..64_u8 {
            stream.write_all(&[octet; 100]).expect("sent");
        }
    });
    let mut ring = ring();
    connect(&mut ring, address, OperationLink::End);
    assert_eq!(complete(&mut ring).result, Ok(0));
    let mut collected = Vec::new();
    while collected.len() < 6400 {
        ring.push(Operation::Receive { socket: SOCKET }, OperationLink::End, 8).expect("room");
        let octets = complete(&mut ring).result.expect("received");
        assert_eq!(usize::try_from(octets).expect("small"), ring.received().len());
        collected.extend_from_slice(ring.received());
    }
    assert!(collected.chunks(100).zip(0..).all(|(chunk, octet)| chunk == [octet; 100]));
    server.join().expect("served");
}

#[test]
fn ipv6_addresses_connect() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
    let mut ring = ring();
    connect(&mut ring, listener.local_addr().expect("bound"), OperationLink::End);
    assert_eq!(complete(&mut ring).result, Ok(0));
}

/// Two connections whose servers say nothing, each with a receive in flight.
fn silent<T>(states: [T; 2]) -> (Ring<T>, Vec<TcpStream>) {
    let (listener, address) = listener();
    let mut ring = ring();
    let mut peers = Vec::new();
    for (socket, state) in [DirectSocket(0), DirectSocket(1)].into_iter().zip(states) {
        let family = SocketFamily::of(&address);
        ring.push_detached(DetachedOperation::Open { socket, family }, true).expect("room");
        ring.push(Operation::Connect { socket, address }, OperationLink::End, state).expect("room");
        let Completion { state, result, .. } = complete(&mut ring);
        assert_eq!(result, Ok(0));
        peers.push(listener.accept().expect("a client").0);
        ring.push(Operation::Receive { socket }, OperationLink::End, state).expect("room");
    }
    ring.submit().expect("enter works");
    (ring, peers)
}

#[test]
fn what_was_in_flight_is_dropped_only_when_nothing_is_any_more() {
    let witness = Rc::new(());
    let (mut ring, _peers) = silent([Rc::clone(&witness), Rc::clone(&witness)]);
    let mut states = Vec::new();
    assert!(ring.drain(&mut states));
    assert_eq!((states.len(), ring.in_flight()), (2, 0));
    assert_eq!(Rc::strong_count(&witness), 3, "none was dropped meanwhile");
}

#[test]
fn a_value_that_panics_when_it_is_dropped_keeps_no_other_from_being_dropped() {
    struct Panics(#[expect(dead_code, reason = "only counted")] Rc<()>, bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.1, "as the test wants");
        }
    }
    let witness = Rc::new(());
    let (ring, _peers) = silent([true, false].map(|panics| Panics(Rc::clone(&witness), panics)));
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(ring)));
    assert!(dropped.is_err());
    assert_eq!(Rc::strong_count(&witness), 1);
}

#[test]
fn a_ring_submits_no_operation_but_its_own() {
    let mut ring: Ring<u32> = ring();
    // A file could be opened so, past every filter of calls.
    let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), c"/etc/passwd".as_ptr()).build();
    ring.enqueue(&entry.user_data(u64::MAX >> 1)).expect("room");
    ring.submit_and_wait(1, Duration::from_secs(9)).expect("enter works");
    let entry = ring.ring.0.completion().next().expect("a completion");
    assert_eq!(entry.result(), -libc::EACCES);
}
