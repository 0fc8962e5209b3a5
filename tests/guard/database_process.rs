//! The process that speaks to a guard's database: what a hostile server can do to the guard, and what its
//! death does.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bannerwall_test_support::{
    Guard, Line, NO_SQLMAP, Postgres, Running, Signal, Sshd, as_root, eventually, psql,
};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// A socket that leads to a server, or to an endless answer.
struct Door {
    folder: TempDir,
    is_endless: Arc<AtomicBool>,
    /// What has come.
    open: Arc<Mutex<Vec<UnixStream>>>,
}

impl Door {
    /// One in front of the server whose socket lies there.
    fn new(server: PathBuf) -> Self {
        let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir();
        let folder = folder.expect("a folder");
        let path = folder.path().join(".s.PGSQL.5432");
        let listener = UnixListener::bind(&path).expect("it is free");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("ours");
        let door = Self { folder, is_endless: Arc::default(), open: Arc::default() };
        let (is_endless, open) = (Arc::clone(&door.is_endless), Arc::clone(&door.open));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("it listens");
                open.lock().expect("no panic").push(client.try_clone().expect("a descriptor"));
                let (is_endless, server) = (is_endless.load(Ordering::Relaxed), server.clone());
                // The other end may leave at any time.
                std::thread::spawn(
                    move || if is_endless { drop(lie(client)) } else { join(client, &server) },
                );
            }
        });
        door
    }

    /// Leads elsewhere from here on, for those who had come, too.
    fn leads_to_endless_answers(&self, endless: bool) {
        self.is_endless.store(endless, Ordering::Relaxed);
        for client in self.open.lock().expect("no panic").drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

fn join(client: UnixStream, server: &PathBuf) {
    let server = UnixStream::connect(server).expect("it runs");
    let (mut from, mut to) = (client.try_clone().expect("ours"), server.try_clone().expect("ours"));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (server, client);
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

/// Lets whoever comes in, and answers the first question with rows without end.
fn lie(mut client: UnixStream) -> std::io::Result<()> {
    let ready = b"Z\0\0\0\x05I";
    hear(&mut client)?;
    client.write_all(&[&b"R\0\0\0\x08\0\0\0\0"[..], ready].concat())?;
    hear(&mut client)?;
    client.write_all(&[&b"C\0\0\0\x08SET\0"[..], ready].concat())?;
    hear(&mut client)?;
    // Of one column, with 64 bytes of text.
    let row = [&b"D\0\0\0\x4a\0\x01\0\0\0\x40"[..], &[b'a'; 64]].concat();
    loop {
        client.write_all(&row)?;
    }
}

/// Waits for a question, whatever it is.
fn hear(client: &mut UnixStream) -> std::io::Result<()> {
    let count = client.read(&mut [0; 8_192])?;
    if count == 0 { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// A guard that writes into a server's database, through a door.
struct Site {
    _server: Postgres,
    _sshd: Sshd,
    line: Line,
    door: Door,
    url: String,
    guard: Guard,
}

impl Site {
    fn new() -> Option<Self> {
        let server = Postgres::start()?;
        let url = server.database();
        let host = url.split(['?', '&']).find_map(|it| it.strip_prefix("host=")).expect("a socket's folder");
        let door = Door::new(PathBuf::from(host).join(".s.PGSQL.5432"));
        let line = Line::new();
        let sshd = Sshd::start(&line.server, 2222);
        let inventory = url.replace(host, door.folder.path().to_str().expect("UTF-8"));
        let flags = format!("--hook forward --enforce --sensor router --inventory {inventory}");
        let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
        let url = url.clone();
        Some(Self { _server: server, _sshd: sshd, line, door, url, guard })
    }

    /// A connection that passes.
    fn talk(&self, version: &str) {
        let mut stream = self.line.client.connect((Ipv4Addr::new(198, 51, 100, 2), 2222)).expect("it passes");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
        stream.write_all(format!("SSH-2.0-{version}\r\n").as_bytes()).expect("it passes");
        assert!(stream.read(&mut [0; 64]).expect("it passes") > 0);
    }

    /// True if a connection with a forbidden banner is ended.
    fn blocks(&self) -> bool {
        let mut stream = self.line.client.connect((Ipv4Addr::new(198, 51, 100, 2), 2222)).expect("it opens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n\r\n").expect("it is sent");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).is_err()
    }

    fn met(&self, version: &str) -> Option<()> {
        let known = format!("SELECT count(*) FROM banners WHERE text LIKE '%{version}%'");
        (psql(&self.url, &known) != "0").then_some(())
    }

    fn waits_for(&self, said: &str) {
        self.guard.process.wait_stderr(said, |text| text.contains(said).then_some(()));
    }
}

/// A number in a process's `status`, in the unit that it has there.
fn status(process: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("it is there").trim().to_owned()
}

fn children(process: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    list.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

/// The processes of a connection to the database: the parent of the starter, the starter and one that speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Helpers {
    parent: u32,
    starter: u32,
    connection: u32,
}

impl Helpers {
    fn of(guard: &Running) -> Self {
        let is_one = |process: &u32| status(*process, "Name") == "bannerwall-db";
        let parent = children(guard.id()).into_iter().find(is_one).expect("a helper process");
        eventually("a connection", || {
            let starter = children(parent).into_iter().next()?;
            let connection = children(starter).into_iter().next()?;
            Some(Self { parent, starter, connection })
        })
    }
}

#[test]
fn an_answer_without_end_costs_a_connection_and_not_the_guard() {
    as_root(|| {
        let Some(site) = Site::new() else { return };
        let memory = || -> u64 {
            let most = status(site.guard.process.id(), "VmHWM");
            most.split(' ').next().and_then(|kibibytes| kibibytes.parse().ok()).expect("a number")
        };
        site.talk("before_1");
        eventually("the inventory", || site.met("before_1"));
        let before = memory();
        site.door.leads_to_endless_answers(true);
        site.talk("amid_1");
        site.waits_for("the server's answer is larger than 40 MiB");
        assert!(site.blocks());
        assert!(memory() - before <= 64 << 10, "{} KiB more", memory() - before);
        site.door.leads_to_endless_answers(false);
        site.waits_for("written again; sightings lost meanwhile: 0");
        eventually("what was seen amid", || site.met("amid_1"));
    });
}

#[test]
fn a_killed_process_is_told_and_another_one_goes_on() {
    as_root(|| {
        let Some(mut site) = Site::new() else { return };
        let first = Helpers::of(&site.guard.process);
        for process in [first.parent, first.starter, first.connection] {
            assert_eq!(status(process, "CapPrm"), "0000000000000000");
            assert_eq!(status(process, "Seccomp"), "2");
            let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("it runs");
            let bound = limits.lines().find(|line| line.starts_with("Max data size")).expect("it is there");
            assert!(!bound.contains("unlimited"), "{bound}");
        }
        site.talk("before_2");
        eventually("the inventory", || site.met("before_2"));
        site.line.router.run(&format!("kill -9 {}", first.connection));
        site.talk("behind_2");
        site.waits_for("the process that speaks to the server has ended: signal 9 (SIGKILL)");
        eventually("the inventory again", || site.met("behind_2"));
        assert!(site.blocks());
        let second = Helpers::of(&site.guard.process);
        assert_eq!((second.parent, second.starter), (first.parent, first.starter));

        // The process that starts them is started again.
        site.line.router.run(&format!("kill -9 {} {}", second.starter, second.connection));
        site.waits_for("the process that starts connections to the server has ended: signal 9 (SIGKILL)");
        site.talk("third_2");
        eventually("the inventory by another starter", || site.met("third_2"));
        let third = Helpers::of(&site.guard.process);
        assert_eq!(third.parent, second.parent);
        assert_ne!(third.starter, second.starter);

        // And works on without its parent.
        site.line.router.run(&format!("kill -9 {} {}", third.parent, third.connection));
        site.talk("fourth_2");
        eventually("the inventory by the same starter", || site.met("fourth_2"));
        assert!(site.blocks());
        // Without both the guard goes on, and says so.
        let last = children(third.starter)[0];
        site.line.router.run(&format!("kill -9 {} {last}", third.starter));
        site.talk("last_2");
        site.waits_for("the process that starts connections to the server has ended: restart");
        assert!(site.blocks());
        site.guard.process.signal(Signal::INT);
        assert_eq!(site.guard.process.wait_exit().code(), Some(0), "{}", site.guard.process.stderr());
    });
}
