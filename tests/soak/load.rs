//! Connections all the time: allowed and forbidden, short and kept alive, honest and hostile.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use bannerwall_test_support::raw::{Battlefield, Cargo, Hostile};
use bannerwall_test_support::{Application, Talk};
use socket2::{Domain, SockRef, Socket, Type};

use super::place::Place;
use super::variable;

/// Banners that no shipped rule matches.
const SERVER: &[u8] = b"SSH-2.0-OpenSSH_9.9p1 Debian-3\r\n";
const CLIENT: &[u8] = b"SSH-2.0-OpenSSH_10.0p2 Debian-7\r\n";
const FORBIDDEN: &[u8] = b"SSH-2.0-dropbear_2022.83\r\n";

const SSH: u16 = 22;
const DROPBEAR: u16 = 2222;
const HTTP: u16 = 80;

/// The first of 64 ports, below those that the kernel chooses.
const REUSED_PORTS: u16 = 20_000;

/// Threads by what they do.
const ALLOWED: usize = 3;
const KEPT: usize = 3;
const FORBIDDING: usize = 6;
const LANES: u64 = 6;
const SERVERS: usize = 24;

/// How long an allowed connection may take, with a guard that is stopped for five seconds on its way:
/// segments are sent again after 1, 3, 7 and 15 seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long something is waited for that is not to come.
const SHORT: Duration = Duration::from_millis(400);

/// What a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new one in which both say an allowed identification.
    New,
    /// Requests one after the other over one connection.
    KeptAlive,
    /// A server or a client that is forbidden.
    Forbidden,
    /// Random segments of somebody who wants to bring something forbidden through.
    Hostile,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::New, Self::KeptAlive, Self::Forbidden, Self::Hostile];

    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new, allowed",
            Self::KeptAlive => "kept alive, allowed",
            Self::Forbidden => "forbidden",
            Self::Hostile => "hostile segments",
        }
    }
}

/// Something that must not be: an allowed connection that failed, a forbidden one that got through.
#[derive(Debug, Clone)]
pub struct Incident {
    pub kind: Kind,
    pub begun: Instant,
    pub ended: Instant,
    pub what: String,
}

/// What came of all connections, and whether there are to be any.
pub struct Load {
    is_over: AtomicBool,
    pauses: AtomicBool,
    busy: AtomicUsize,
    counts: [AtomicU64; 4],
    /// The longest that an allowed one took, in milliseconds.
    longest: AtomicU64,
    incidents: Mutex<Vec<Incident>>,
    listeners: Mutex<Vec<TcpListener>>,
}

impl Load {
    pub fn new() -> Self {
        Self {
            is_over: AtomicBool::new(false),
            pauses: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            counts: Default::default(),
            longest: AtomicU64::new(0),
            incidents: Mutex::default(),
            listeners: Mutex::default(),
        }
    }

    /// Starts servers and clients.
    pub fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, place: &'s Place) {
        for (port, banner) in [(SSH, SERVER), (DROPBEAR, FORBIDDEN)] {
            let address = SocketAddr::new(Battlefield::real_address(false), port);
            let listener = place.field.real.listen(address);
            for _ in 0..SERVERS {
                let listener = listener.try_clone().expect("a descriptor");
                scope.spawn(move || {
                    while let Ok((stream, _)) = listener.accept() {
                        // A client that went away is the client's to tell.
                        let _ = serve(stream, banner);
                    }
                });
            }
            self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        }
        let raw = place.field.raw_namespace();
        let client = |kind: Kind, once: fn(&Place, u64) -> io::Result<Option<String>>| {
            scope.spawn(move || raw.inside(|| self.repeat(kind, place, once)));
        };
        (0..ALLOWED).for_each(|_| client(Kind::New, |_, number| new(number).map(|()| None)));
        (0..KEPT).for_each(|_| client(Kind::KeptAlive, |_, _| kept_alive().map(|()| None)));
        (0..FORBIDDING).for_each(|_| client(Kind::Forbidden, |_, number| Ok(forbidden(number))));
        let seed: u64 = variable("SEED").map_or(1, |text| text.parse().expect("a seed is a number"));
        for lane in 0..LANES {
            scope.spawn(move || {
                let mut number = seed + lane;
                self.repeat(Kind::Hostile, place, |place, _| {
                    number += LANES;
                    Ok(hostile(place, number))
                });
            });
        }
    }

    /// Does one thing again and again, and notes what must not come of it.
    fn repeat(
        &self,
        kind: Kind,
        place: &Place,
        mut once: impl FnMut(&Place, u64) -> io::Result<Option<String>>,
    ) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.busy.fetch_add(1, Ordering::SeqCst);
            if self.pauses.load(Ordering::SeqCst) {
                self.busy.fetch_sub(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let begun = Instant::now();
            let number = self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
            let what = once(place, number).unwrap_or_else(|error| Some(error.to_string()));
            if matches!(kind, Kind::New) {
                let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.longest.fetch_max(took, Ordering::Relaxed);
            }
            if let Some(what) = what {
                let incident = Incident { kind, begun, ended: Instant::now(), what };
                self.incidents.lock().unwrap_or_else(PoisonError::into_inner).push(incident);
            }
            self.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits until nothing is on its way; false where something does not end.
    pub fn pause(&self) -> bool {
        self.pauses.store(true, Ordering::SeqCst);
        let until = Instant::now() + 2 * PATIENCE;
        while self.busy.load(Ordering::SeqCst) > 0 {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    pub fn go_on(&self) {
        self.pauses.store(false, Ordering::SeqCst);
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // Who waits for a client waits no more.
            let _ = SockRef::from(listener).shutdown(Shutdown::Both);
        }
    }

    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    pub fn incidents(&self) -> Vec<Incident> {
        self.incidents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Greets, hears the client out, and says good-bye.
fn serve(mut stream: TcpStream, banner: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(if banner == FORBIDDEN { SHORT } else { PATIENCE }))?;
    stream.write_all(banner)?;
    let mut line = [0; CLIENT.len()];
    stream.read_exact(&mut line)
}

fn connect(port: u16, patience: Duration) -> io::Result<TcpStream> {
    let address = SocketAddr::new(Battlefield::real_address(false), port);
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection from one of few ports, as a proxy uses them again; from any port if that one is still in use.
fn connect_again(number: u64) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    let port = REUSED_PORTS + u16::try_from(number % 64).unwrap_or(0);
    let used = socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into()).and_then(|()| {
        let address = SocketAddr::new(Battlefield::real_address(false), SSH);
        socket.connect_timeout(&address.into(), PATIENCE)
    });
    match used {
        Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {
            connect(SSH, PATIENCE)
        }
        used => {
            used?;
            let stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
    }
}

/// One connection as any client makes it, by turns from any port and from one that was used before.
fn new(number: u64) -> io::Result<()> {
    let mut stream =
        if number.is_multiple_of(2) { connect(SSH, PATIENCE)? } else { connect_again(number / 2)? };
    stream.write_all(CLIENT)?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    if said == SERVER {
        return Ok(());
    }
    Err(io::Error::other(format!("another banner: {}", said.escape_ascii())))
}

/// A connection over which so many requests go.
fn kept_alive() -> io::Result<()> {
    let mut stream = connect(HTTP, PATIENCE)?;
    for _ in 0..100 {
        stream.write_all(b"GET /index.html HTTP/1.1\r\nHost: a\r\nUser-Agent: honest/1\r\n\r\n")?;
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        while !said.ends_with(b"hello world") {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            said.extend_from_slice(&buffer[..length]);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What is forbidden, by turns a server and a client; what came through of it.
fn forbidden(number: u64) -> Option<String> {
    let (port, said, sign) = if number.is_multiple_of(2) {
        (DROPBEAR, CLIENT.to_vec(), "SSH-2.0-dropbear")
    } else {
        (HTTP, b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n\r\n".to_vec(), "HTTP/1.1 ")
    };
    let mut stream = connect(port, SHORT).ok()?;
    // What is blocked is not sent for minutes after its end.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).ok()?;
    stream.write_all(&said).ok()?;
    let mut buffer = [0; 64];
    let length = stream.read(&mut buffer).ok()?;
    buffer[..length].starts_with(sign.as_bytes()).then(|| format!("{sign}… came through"))
}

/// One hostile sequence; what its victim has read that is forbidden.
fn hostile(place: &Place, seed: u64) -> Option<String> {
    let mut hostile = Hostile::new(seed);
    let talk: Talk = hostile.cargo.talk(hostile.role);
    let (end, application): (_, Application) = place.field.pair(hostile.role, hostile.v6, talk);
    let mut end = end.quiet();
    hostile.play(&mut end, true);
    let truth = hostile.cargo.software(hostile.role, hostile.truth);
    application
        .has_read(Duration::from_millis(50), |read| hostile.cargo.software(hostile.role, read) == truth);
    let reads = application.reads();
    let software = reads.iter().filter_map(|read| hostile.cargo.software(hostile.role, read));
    let mut forbidden = software.filter(|software| Cargo::is_forbidden(software));
    forbidden.next().map(|software| format!("seed {seed}: {} was read", software.escape_ascii()))
}
