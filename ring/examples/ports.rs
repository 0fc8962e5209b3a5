//! Tells which TCP ports of an address accept connections.
//!
//! ```sh
//! cargo run --release --example ports 127.0.0.1 1 1000
//! ```

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bannerwall_ring::timers::{Nanos, TimeoutList};
use bannerwall_ring::{
    DetachedOperation, DirectSocket, Operation, OperationKey, OperationLink, Ring, RingCompletion, RingError,
    RingOptions, SocketFamily,
};

/// Connections under way at most: as many as the usual limit of open files allows with ease.
const SOCKETS: u32 = 256;
/// How long a port may keep silent.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, first, last] = words.as_slice() else {
        return Err("usage: ports ADDRESS FIRST LAST".into());
    };
    let (address, first, last): (IpAddr, u16, u16) = (address.parse()?, first.parse()?, last.parse()?);
    let started = Instant::now();
    let mut scan = Scan::new()?;
    scan.run((first..=last).map(|port| SocketAddr::new(address, port)))?;
    scan.open.sort_unstable();
    for port in &scan.open {
        println!("{port} accepts connections");
    }
    let open = scan.open.len();
    println!("{open} open, {} refused, {} silent, {} others", scan.refused, scan.silent, scan.others);
    println!("{:.3} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// A connect under way.
struct Asked {
    socket: DirectSocket,
    port: u16,
}

/// What is asked, and what came of it.
struct Scan {
    ring: Ring<Asked>,
    /// Sockets that nobody uses.
    free: Vec<DirectSocket>,
    /// The connect under way on each socket.
    connects: Vec<Option<OperationKey>>,
    patience: TimeoutList,
    epoch: Instant,
    open: Vec<u16>,
    refused: u32,
    silent: u32,
    others: u32,
}

impl Scan {
    fn new() -> Result<Self, RingError> {
        let ring = Ring::new(&RingOptions {
            submissions: SOCKETS,
            operations: SOCKETS,
            sockets: SOCKETS,
            buffers: 0,
            buffer_size: 0,
            no_delay: false,
        })?;
        Ok(Self {
            ring,
            free: (0..SOCKETS).map(DirectSocket).collect(),
            connects: (0..SOCKETS).map(|_| None).collect(),
            patience: TimeoutList::new(PATIENCE, 0),
            epoch: Instant::now(),
            open: Vec::new(),
            refused: 0,
            silent: 0,
            others: 0,
        })
    }

    /// Asks all of them, as many at a time as there are sockets.
    fn run(&mut self, mut addresses: impl Iterator<Item = SocketAddr>) -> Result<(), RingError> {
        loop {
            while let Some(socket) = self.free.pop() {
                match addresses.next() {
                    Some(address) => self.ask(socket, address)?,
                    None => {
                        self.free.push(socket);
                        break;
                    }
                }
            }
            if self.ring.in_flight() == 0 {
                return Ok(());
            }
            let wait = self.patience.deadline().map_or(0, |deadline| deadline.saturating_sub(self.now()));
            self.ring.submit_and_wait(1, Duration::from_nanos(wait))?;
            while let Some(completed) = self.ring.pop() {
                if let RingCompletion::Operation(completion) = completed {
                    self.told(&completion.state, completion.result);
                }
            }
            let now = self.now();
            while let Some(late) = self.patience.expired(now) {
                if let Some(operation) = self.connects[late as usize] {
                    self.ring.reserve(1)?;
                    self.ring.push_detached(DetachedOperation::Cancel { operation }, false)?;
                }
            }
        }
    }

    fn ask(&mut self, socket: DirectSocket, address: SocketAddr) -> Result<(), RingError> {
        self.ring.reserve(2)?;
        self.ring
            .push_detached(DetachedOperation::Open { socket, family: SocketFamily::of(&address) }, true)?;
        let asked = Asked { socket, port: address.port() };
        let key = self.ring.push(Operation::Connect { socket, address }, OperationLink::End, asked)?;
        self.connects[socket.0 as usize] = Some(key);
        let now = self.now();
        self.patience.start(socket.0, now);
        Ok(())
    }

    fn told(&mut self, asked: &Asked, result: Result<u32, i32>) {
        let Asked { socket, port } = *asked;
        self.patience.stop(socket.0);
        self.connects[socket.0 as usize] = None;
        self.free.push(socket);
        match result {
            Ok(_) => self.open.push(port),
            Err(libc::ECONNREFUSED) => self.refused += 1,
            Err(libc::ECANCELED) => self.silent += 1,
            Err(_) => self.others += 1,
        }
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
