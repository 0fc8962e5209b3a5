//! Shows what servers say first.
//!
//! ```sh
//! cargo run --example greetings 127.0.0.1:22 127.0.0.1:25 [::1]:22
//! ```

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bannerwall_ring::{
    DetachedOperation, DirectSocket, Operation, OperationLink, Ring, RingCompletion, RingOptions,
    SocketFamily,
};

/// How long all of them have together.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was asked of a server.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Connect(SocketAddr),
    Receive(SocketAddr),
}

fn main() -> Result<(), Box<dyn Error>> {
    let servers: Vec<SocketAddr> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    if servers.is_empty() {
        return Err("usage: greetings ADDRESS:PORT …".into());
    }
    let sockets = u32::try_from(servers.len())?;
    let mut ring = Ring::new(&RingOptions {
        submissions: 64,
        operations: sockets.saturating_mul(2),
        sockets,
        buffers: 16,
        buffer_size: 1024,
        no_delay: false,
    })?;
    for (place, address) in (0..).zip(servers) {
        // One chain a server; what is behind a connect that fails is cancelled.
        let socket = DirectSocket(place);
        ring.reserve(3)?;
        ring.push_detached(DetachedOperation::Open { socket, family: SocketFamily::of(&address) }, true)?;
        ring.push(Operation::Connect { socket, address }, OperationLink::Success, Asked::Connect(address))?;
        ring.push(Operation::Receive { socket }, OperationLink::End, Asked::Receive(address))?;
    }
    let end = Instant::now() + PATIENCE;
    while ring.in_flight() > 0 && Instant::now() < end {
        ring.submit_and_wait(1, end.saturating_duration_since(Instant::now()))?;
        while let Some(completed) = ring.pop() {
            let RingCompletion::Operation(completion) = completed else { continue };
            match (completion.state, completion.result) {
                (Asked::Connect(_), Ok(_)) | (Asked::Receive(_), Err(libc::ECANCELED)) => {}
                (Asked::Receive(address), Ok(0)) => println!("{address}: closed without a word"),
                (Asked::Receive(address), Ok(_)) => println!("{address}: {}", ring.received().escape_ascii()),
                (Asked::Connect(address) | Asked::Receive(address), Err(error)) => {
                    println!("{address}: {}", io::Error::from_raw_os_error(error));
                }
            }
        }
    }
    // What is still in flight is cancelled when the ring is dropped.
    match ring.in_flight() {
        0 => {}
        silent => println!("{silent} still silent after {} s", PATIENCE.as_secs()),
    }
    Ok(())
}
