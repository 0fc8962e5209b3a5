//! A server of SSH identifications for measuring scanners: it greets on accept, reads until the other
//! side ends, and keeps tens of thousands of connections open by one thread and `epoll(7)`.
//!
//! usage: `answers PORT`; it says `ready` on stderr.

use std::env;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::Context as _;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

const BANNER: &[u8] = b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2\r\n";
/// Connections that wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;
/// Connections accepted before others are looked at.
const ACCEPTED: usize = 256;
/// The listening socket among the others.
const LISTENER: u64 = u64::MAX;

fn main() -> anyhow::Result<()> {
    let port = env::args().nth(1).context("usage: answers PORT")?.parse().context("PORT is a number")?;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let listener = listen(port)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    eprintln!("ready");

    // By descriptor: the kernel gives the lowest that is free, so that the table stays dense.
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => greet_all(&listener, &epoll, &mut connections)?,
                descriptor => {
                    let place = usize::try_from(descriptor).ok().and_then(|at| connections.get_mut(at));
                    let Some(place) = place else { continue };
                    if place.as_mut().is_some_and(is_over) {
                        // Closing it takes it out of the epoll as well.
                        *place = None;
                    }
                }
            }
        }
    }
}

fn listen(port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Accepts and greets who waits, up to [`ACCEPTED`].
fn greet_all(
    listener: &Socket,
    epoll: impl std::os::fd::AsFd,
    connections: &mut Vec<Option<TcpStream>>,
) -> io::Result<()> {
    for _ in 0..ACCEPTED {
        // Nobody waits, gave up meanwhile, or there is no descriptor: whoever waits is asked for again.
        let Ok((socket, _)) = listener.accept() else { break };
        socket.set_nonblocking(true)?;
        let mut stream = TcpStream::from(socket);
        if stream.write_all(BANNER).is_err() {
            continue;
        }
        let descriptor = stream.as_raw_fd();
        epoll::add(
            &epoll,
            stream.as_fd(),
            EventData::new_u64(u64::try_from(descriptor).unwrap_or(LISTENER)),
            EventFlags::IN | EventFlags::RDHUP,
        )?;
        let place = usize::try_from(descriptor).unwrap_or_default();
        if connections.len() <= place {
            connections.resize_with(place + 1, || None);
        }
        if let Some(free) = connections.get_mut(place) {
            *free = Some(stream);
        }
    }
    Ok(())
}

/// Reads what came; true at the end.
fn is_over(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(count) => count == 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}
