//! A thousand connections on a few sockets: each is asked once, and each ends once, whatever its server does.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bannerwall_ring::timers::{Nanos, TimeoutList};
use bannerwall_ring::{
    Completion, DetachedOperation, DirectSocket, Operation, OperationKey, OperationLink, Ring,
    RingCompletion, RingOptions, SocketFamily,
};

const CONNECTIONS: u32 = 1000;
const SOCKETS: u32 = 64;
/// One of so many is never answered.
const SILENT: u32 = 20;
/// One of so many is reset instead of being answered.
const RESET: u32 = 7;

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Reset,
    Silent,
}

fn expected(number: u32) -> Fate {
    match number {
        number if number % SILENT == 0 => Fate::Silent,
        number if number % RESET == 0 => Fate::Reset,
        _ => Fate::Answered,
    }
}

/// Answers four octets, the client's number, by itself and its double; some get a reset, some nothing.
fn serve(listener: &TcpListener) {
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut number = [0; 4];
        stream.read_exact(&mut number).expect("a number");
        let number = u32::from_be_bytes(number);
        match expected(number) {
            Fate::Silent => silent.push(stream),
            Fate::Reset => reset(stream),
            Fate::Answered => {
                let answer = [number.to_be_bytes(), (number * 2).to_be_bytes()].concat();
                stream.write_all(&answer).expect("answered");
            }
        }
    }
    // Those without an answer have to be given up by the client.
    for mut stream in silent {
        let _reset_or_end = stream.read(&mut [0; 1]);
    }
}

/// Ends a connection with a reset: octets that the client sent after its number are still unread.
fn reset(mut stream: TcpStream) {
    stream.read_exact(&mut [0; 1]).expect("the first octet more");
    drop(stream);
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Connect,
    Send,
    Receive,
}

struct Client {
    ring: Ring<(DirectSocket, Phase)>,
    address: SocketAddr,
    /// The connection on each socket, with its receive.
    on: Vec<Option<(u32, OperationKey)>>,
    /// Operations in flight on each socket.
    pending: Vec<u32>,
    silent: TimeoutList,
    epoch: Instant,
    next: u32,
    fates: Vec<Vec<Fate>>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let options = RingOptions {
            submissions: 32,
            operations: SOCKETS * 3,
            sockets: SOCKETS,
            buffers: 8,
            buffer_size: 64,
            no_delay: false,
        };
        Self {
            ring: Ring::new(&options).expect("io_uring works here"),
            address,
            on: vec![None; SOCKETS as usize],
            pending: vec![0; SOCKETS as usize],
            silent: TimeoutList::new(Duration::from_secs(5), 0),
            epoch: Instant::now(),
            next: 0,
            fates: vec![Vec::new(); CONNECTIONS as usize],
        }
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.epoch.elapsed().as_nanos()).expect("small")
    }

    /// Takes up the next connection on a socket that is free.
    fn begin(&mut self, socket: DirectSocket) {
        let (number, address) = (self.next, self.address);
        self.next += 1;
        let mut octets = number.to_be_bytes().to_vec();
        if expected(number) == Fate::Reset {
            octets.extend_from_slice(b"more than is read");
        }
        let ring = &mut self.ring;
        ring.reserve(4).expect("enter works");
        ring.push_detached(DetachedOperation::Open { socket, family: SocketFamily::of(&address) }, true)
            .expect("room");
        ring.push(Operation::Connect { socket, address }, OperationLink::Success, (socket, Phase::Connect))
            .expect("room");
        let send = Operation::Send { socket, octets, from: 0 };
        ring.push(send, OperationLink::Success, (socket, Phase::Send)).expect("room");
        let receive = ring.push(Operation::Receive { socket }, OperationLink::End, (socket, Phase::Receive));
        let at = socket.0 as usize;
        self.on[at] = Some((number, receive.expect("room")));
        self.pending[at] = 3;
        let now = self.now();
        self.silent.start(socket.0, now);
    }

    fn told(&mut self, completion: &Completion<(DirectSocket, Phase)>) {
        let (socket, phase) = completion.state;
        let at = socket.0 as usize;
        self.pending[at] -= 1;
        let (number, _) = self.on[at].expect("a connection");
        match (phase, completion.result) {
            (Phase::Connect | Phase::Send, Ok(_)) => {}
            // All buffers wait to be read.
            (Phase::Receive, Err(libc::ENOBUFS)) => {
                let again = Operation::Receive { socket };
                self.ring.reserve(1).expect("enter works");
                let key = self.ring.push(again, OperationLink::End, (socket, Phase::Receive)).expect("room");
                self.on[at] = Some((number, key));
                self.pending[at] += 1;
            }
            (Phase::Receive, result) => {
                let fate = match result {
                    Ok(8) => Fate::Answered,
                    Err(libc::ECONNRESET) => Fate::Reset,
                    Err(libc::ECANCELED) => Fate::Silent,
                    other => panic!("{number}: {other:?}"),
                };
                if fate == Fate::Answered {
                    let answer = [number.to_be_bytes(), (number * 2).to_be_bytes()].concat();
                    assert_eq!(self.ring.received(), answer, "its own answer, and nothing of another's");
                }
                self.silent.stop(socket.0);
                self.fates[number as usize].push(fate);
            }
            (_, Err(error)) => panic!("{number}: {phase:?} {}", std::io::Error::from_raw_os_error(error)),
        }
        if self.pending[at] == 0 {
            self.on[at] = None;
        }
    }

    fn run(&mut self) {
        loop {
            for place in 0..SOCKETS {
                if self.on[place as usize].is_none() && self.next < CONNECTIONS {
                    self.begin(DirectSocket(place));
                }
            }
            if self.ring.in_flight() == 0 {
                return;
            }
            self.ring.submit_and_wait(1, Duration::from_millis(20)).expect("enter works");
            while let Some(completed) = self.ring.pop() {
                match completed {
                    RingCompletion::Operation(completion) => self.told(&completion),
                    RingCompletion::Failed { socket, error } => panic!("{socket:?}: {error}"),
                }
            }
            let now = self.now();
            while let Some(late) = self.silent.expired(now) {
                let (_, operation) = self.on[late as usize].expect("a connection");
                self.ring.reserve(1).expect("enter works");
                self.ring.push_detached(DetachedOperation::Cancel { operation }, false).expect("room");
            }
        }
    }
}

#[test]
fn a_thousand_connections_on_a_few_sockets_end_once_each() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let mut client = Client::new(listener.local_addr().expect("bound"));
    let server = std::thread::spawn(move || serve(&listener));
    client.run();
    for (number, fates) in (0..).zip(&client.fates) {
        assert_eq!(fates.as_slice(), [expected(number)], "connection {number}");
    }
    drop(client);
    server.join().expect("served");
}
