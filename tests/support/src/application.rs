//! Applications on ordinary sockets: what they read is the measure of what a guard let through.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::Namespace;

/// How long a client waits for its connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an application says.
#[derive(Debug, Clone, Default)]
pub struct Talk {
    /// At once, when the connection is open.
    pub greeting: Vec<u8>,
    /// When it has read a whole SSH identification or HTTP head.
    pub answer: Vec<u8>,
}

/// An application that reads connections to their end, on ordinary sockets of the kernel.
#[derive(Debug)]
pub struct Application {
    /// Its own address.
    pub address: SocketAddr,
    /// What was read, a list a connection.
    reads: Arc<Mutex<Vec<Vec<u8>>>>,
    socket: Arc<Mutex<Option<Socket>>>,
    first: Socket,
    thread: Option<JoinHandle<()>>,
}

impl Application {
    /// A server of one connection after the other.
    ///
    /// # Panics
    /// When the address cannot be had.
    pub fn serve(namespace: &Namespace, address: IpAddr, protocol: Protocol, talk: Talk) -> Self {
        let listener = namespace.inside(|| bound(address, protocol));
        listener.listen(8).expect("it is bound");
        Self::start(listener, move |listener| listener.accept().ok().map(|(socket, _)| socket), true, talk)
    }

    /// A client of `server`.
    ///
    /// # Panics
    /// When the address cannot be had.
    pub fn connect(
        namespace: &Namespace,
        address: IpAddr,
        server: SocketAddr,
        protocol: Protocol,
        talk: Talk,
    ) -> Self {
        let socket = namespace.inside(|| bound(address, protocol));
        Self::start(
            socket,
            move |socket| {
                let connected = socket.connect_timeout(&server.into(), PATIENCE);
                connected.ok().and_then(|()| socket.try_clone().ok())
            },
            false,
            talk,
        )
    }

    fn start(
        first: Socket,
        open: impl Fn(&Socket) -> Option<Socket> + Send + 'static,
        repeats: bool,
        talk: Talk,
    ) -> Self {
        let address = first.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound");
        let reads = Arc::new(Mutex::new(Vec::new()));
        let socket = Arc::new(Mutex::new(None));
        let opener = first.try_clone().expect("a descriptor");
        let thread = {
            let (reads, socket) = (Arc::clone(&reads), Arc::clone(&socket));
            std::thread::spawn(move || {
                while let Some(mut connection) = open(&opener) {
                    // Ends at once with a reset, leaving nothing behind.
                    let _ = connection.set_linger(Some(Duration::ZERO));
                    let clone = connection.try_clone().ok();
                    *socket.lock().unwrap_or_else(PoisonError::into_inner) = clone;
                    reads.lock().unwrap_or_else(PoisonError::into_inner).push(Vec::new());
                    // Whatever ends the conversation, what was read counts.
                    let _ = converse(&mut connection, &talk, &reads);
                    if !repeats {
                        break;
                    }
                }
            })
        };
        Self { address, reads, socket, first, thread: Some(thread) }
    }

    /// What it has read so far, a list a connection.
    pub fn reads(&self) -> Vec<Vec<u8>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it has read so far of the last connection.
    pub fn read(&self) -> Vec<u8> {
        self.reads().pop().unwrap_or_default()
    }

    /// Waits up to `patience` until a connection's octets are as `wanted`; tells whether they are.
    pub fn has_read(&self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> bool {
        let start = std::time::Instant::now();
        loop {
            let is_there = self.reads().iter().any(|read| wanted(read));
            if is_there || start.elapsed() > patience {
                return is_there;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // Wakes the thread, whatever it waits for.
        let _ = self.first.shutdown(Shutdown::Both);
        if let Some(socket) = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        // A thread that is still connecting ends by itself.
        if let Some(thread) = self.thread.take().filter(|_| !self.reads().is_empty()) {
            let _ = thread.join();
        }
    }
}

fn bound(address: IpAddr, protocol: Protocol) -> Socket {
    let address = SocketAddr::new(address, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol)).expect("a socket");
    let _ = socket.set_linger(Some(Duration::ZERO));
    socket.bind(&address.into()).expect("the address is there");
    socket
}

fn converse(connection: &mut Socket, talk: &Talk, reads: &Mutex<Vec<Vec<u8>>>) -> std::io::Result<()> {
    connection.write_all(&talk.greeting)?;
    let mut buffer = vec![0; 1 << 16];
    let mut has_answered = false;
    loop {
        let count = connection.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        let is_whole = {
            let mut reads = reads.lock().unwrap_or_else(PoisonError::into_inner);
            let read = reads.last_mut().expect("pushed when the connection came");
            read.extend_from_slice(&buffer[..count]);
            is_whole(read)
        };
        if is_whole && !has_answered {
            has_answered = true;
            connection.write_all(&talk.answer)?;
        }
    }
}

/// Whether octets hold a whole identification line, or the whole head of a message.
pub(crate) fn is_whole(octets: &[u8]) -> bool {
    (octets.starts_with(b"SSH-") && octets.contains(&b'\n'))
        || octets.windows(4).any(|window| window == b"\r\n\r\n")
}
