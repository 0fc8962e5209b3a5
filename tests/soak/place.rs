//! Networks, servers, files and limits, and the guard among them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bannerwall_test_support::raw::{Battlefield, Cargo};
use bannerwall_test_support::{Nginx, Running, Signal};
use tempfile::TempDir;

/// Where the guard shows its metrics.
pub const METRICS: ([u8; 4], u16) = ([127, 0, 0, 1], 9464);

/// Room for events, in MiB: a disk that is soon full.
const DISK: u64 = 64;

/// What the guard and what it starts may use of memory, in octets.
const MEMORY: u64 = 256 << 20;

/// The length of the flow table: floods are longer than the part of it that they get. Under `closed` nothing
/// gives way that stands amid a banner, for two minutes: there is room for as many as hostile ends leave
/// behind meanwhile.
const FLOWS: u64 = 40_000;

/// Debian's libfaketime.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// The networks with a guard on the router.
pub struct Place {
    pub field: Battlefield,
    pub mode: &'static str,
    program: PathBuf,
    folder: TempDir,
    guard: Mutex<Running>,
    /// Which guard it is, from 1.
    pub life: AtomicU64,
    /// Lines in event files that were counted and removed.
    filed: AtomicU64,
    /// Whether the reader of the pipe reads.
    pub reads: Arc<AtomicBool>,
    /// Lines that came by the pipe.
    piped: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    limit: Option<PathBuf>,
    _nginx: Nginx,
}

/// Metrics by name with labels.
pub type Metrics = BTreeMap<String, f64>;

/// What all series of a family come to.
pub fn sum(metrics: &Metrics, family: &str) -> f64 {
    let of = |name: &str| name == family || name.starts_with(&format!("{family}{{"));
    metrics.iter().filter(|(name, _)| of(name)).map(|(_, value)| value).sum()
}

impl Place {
    pub fn new(program: PathBuf, mode: &'static str) -> Self {
        let field = Battlefield::new();
        // Ports are used again soon: what is closed is forgotten soon, too.
        for (setting, value) in [("close", "2"), ("time_wait", "4"), ("last_ack", "4"), ("fin_wait", "4")] {
            field.router.set(&format!("netfilter/nf_conntrack_tcp_timeout_{setting}"), value);
        }
        let nginx = Nginx::start(&field.real, 80, "");
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        for name in ["log", "rules"] {
            fs::create_dir(folder.path().join(name)).expect("the folder is ours");
        }
        let log = folder.path().join("log");
        let mount = ["-t", "tmpfs", "-o", &format!("size={DISK}m,mode=1777"), "tmpfs"];
        let mounted = Command::new("mount").args(mount).arg(&log).status().expect("mount starts");
        assert!(mounted.success(), "a file system of its own for events");
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&pipe).status().expect("it starts").success());
        let (reads, piped, is_over) =
            (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let reader = read_pipe(&pipe, Arc::clone(&reads), Arc::clone(&piped), Arc::clone(&is_over));
        fs::write(folder.path().join("rules/soak.toml"), Cargo::RULES).expect("the folder is ours");
        fs::write(folder.path().join("rules/clock"), "+0").expect("the folder is ours");
        let limit = memory_limit();
        let guard = start(&program, &field, folder.path(), mode, limit.as_deref(), false);
        Self {
            field,
            mode,
            program,
            folder,
            guard: Mutex::new(guard),
            life: AtomicU64::new(1),
            filed: AtomicU64::new(0),
            reads,
            piped,
            is_over,
            reader: Some(reader),
            limit,
            _nginx: nginx,
        }
    }

    pub fn guard(&self) -> MutexGuard<'_, Running> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the guard by a signal and starts the next one; by a clock that can be set where `by_clock`.
    pub fn restart(&self, signal: Signal, by_clock: bool) -> String {
        let mut guard = self.guard();
        guard.signal(signal);
        let status = guard.wait_exit();
        let told = guard.stderr();
        if signal == Signal::TERM {
            assert_eq!(status.code(), Some(0), "{told}");
        }
        // Events are counted for each guard: what the old one wrote has arrived before the new one writes.
        self.forget_events();
        *guard =
            start(&self.program, &self.field, self.folder.path(), self.mode, self.limit.as_deref(), by_clock);
        self.life.fetch_add(1, Ordering::Relaxed);
        told
    }

    /// Whether clocks can be set: the machine's own is everybody's.
    pub fn has_clock() -> bool {
        Path::new(FAKETIME).exists()
    }

    /// Sets the clock of a guard that was started by one.
    pub fn set_clock(&self, to: &str) {
        fs::write(self.folder.path().join("rules/clock"), to).expect("the folder is ours");
    }

    pub fn write_rules(&self, text: &str) {
        fs::write(self.folder.path().join("rules/soak.toml"), text).expect("the folder is ours");
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log/events.json")
    }

    /// Fills the disk of events.
    pub fn fill(&self) {
        let full: std::io::Result<()> =
            fs::File::create(self.folder.path().join("log/other")).and_then(|mut file| {
                let block = vec![0; 1 << 16];
                loop {
                    file.write_all(&block)?;
                }
            });
        assert!(full.is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull));
    }

    pub fn empty(&self) {
        fs::remove_file(self.folder.path().join("log/other")).expect("it was full");
    }

    /// As logrotate does; counts the lines and removes them.
    pub fn rotate(&self) {
        let old = self.log().with_extension("old");
        if fs::rename(self.log(), &old).is_err() {
            return;
        }
        self.guard().signal(Signal::USR1);
        let until = Instant::now() + Duration::from_secs(10);
        while !self.log().exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.filed.fetch_add(lines(&old), Ordering::Relaxed);
        fs::remove_file(old).expect("it is ours");
    }

    fn forget_events(&self) {
        let mut before = u64::MAX;
        while before != self.piped.load(Ordering::Relaxed) {
            before = self.piped.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
        }
        // It may have been moved away.
        let _ = fs::remove_file(self.log());
        self.filed.store(0, Ordering::Relaxed);
        self.piped.store(0, Ordering::Relaxed);
    }

    /// Whole events that this guard has written to files and to the pipe.
    pub fn written(&self) -> (u64, u64) {
        (self.filed.load(Ordering::Relaxed) + lines(&self.log()), self.piped.load(Ordering::Relaxed))
    }

    /// The guard's metrics; none where nobody answers.
    pub fn metrics(&self) -> Option<Metrics> {
        let mut stream = self.field.router.connect(SocketAddr::from(METRICS)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        let line = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.strip_prefix("bannerwall_")?.to_owned(), value.parse().ok()?))
        };
        Some(text.lines().filter_map(line).collect())
    }

    /// The kernel's line about the queue: number, owner, waiting, mode, range, dropped as full, dropped by
    /// the socket, last id.
    pub fn queue(&self) -> Option<Vec<u64>> {
        let read = || fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue");
        let table = self.field.router.inside(read).ok()?;
        Some(table.lines().next()?.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.reads.store(true, Ordering::Relaxed);
        let guard = self.guard();
        guard.signal(Signal::CONT);
        guard.signal(Signal::KILL);
        drop(guard);
        self.guard().wait_exit();
        if let Some(reader) = self.reader.take() {
            // It reads on where nobody writes until it is told that it is over.
            let _ = reader.join();
        }
        let _ = Command::new("umount").arg(self.folder.path().join("log")).status();
        if let Some(limit) = &self.limit {
            // The processes that end leave it a moment later.
            let gone = (0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                fs::remove_dir(limit).is_ok()
            });
            assert!(gone || std::thread::panicking(), "{} stays", limit.display());
        }
    }
}

/// Whole lines of JSON.
fn lines(path: &Path) -> u64 {
    let Ok(file) = fs::File::open(path) else { return 0 };
    let whole = |line: &Vec<u8>| line.starts_with(b"{") && line.ends_with(b"}");
    BufReader::with_capacity(1 << 16, file).split(b'\n').map_while(Result::ok).filter(whole).count() as u64
}

/// Reads the pipe of events, as long as somebody wants it to be read.
fn read_pipe(
    path: &Path,
    reads: Arc<AtomicBool>,
    lines: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
) -> JoinHandle<()> {
    // Opened for both, it never ends while guards come and go.
    let pipe = fs::OpenOptions::new().read(true).write(true).open(path).expect("the pipe is ours");
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).expect("it is a pipe");
    std::thread::spawn(move || {
        let (mut pipe, mut buffer) = (pipe, vec![0; 1 << 16]);
        while !is_over.load(Ordering::Relaxed) {
            let length = if reads.load(Ordering::Relaxed) { pipe.read(&mut buffer).unwrap_or(0) } else { 0 };
            let whole = buffer[..length].iter().filter(|octet| **octet == b'\n').count();
            lines.fetch_add(whole as u64, Ordering::Relaxed);
            if length == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    })
}

/// A group of processes with little memory, where this machine has such.
fn memory_limit() -> Option<PathBuf> {
    for (folder, file) in
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
    {
        let group = Path::new(folder).join(format!("bannerwall-soak-{}", std::process::id()));
        if !Path::new(folder).exists() || fs::create_dir(&group).is_err() {
            continue;
        }
        if fs::write(group.join(file), MEMORY.to_string()).is_ok() {
            return Some(group);
        }
        let _ = fs::remove_dir(&group);
    }
    None
}

fn start(
    program: &Path,
    field: &Battlefield,
    folder: &Path,
    mode: &str,
    limit: Option<&Path>,
    by_clock: bool,
) -> Running {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let at = |name: &str| folder.join(name).display().to_string();
    let group = limit
        .map_or_else(|| "/dev/null".to_owned(), |group| group.join("cgroup.procs").display().to_string());
    let mut command = field.router.command("sh");
    command.args(["-c", "echo $$ >\"$1\" && shift && exec \"$@\"", "sh", &group, "env"]);
    if by_clock {
        command.args(["FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_CACHE_DURATION=1"]);
        command
            .arg(format!("LD_PRELOAD={FAKETIME}"))
            .arg(format!("FAKETIME_TIMESTAMP_FILE={}", at("rules/clock")));
    }
    command.arg(program).arg("guard").arg("--config").arg(root.join("packaging/guard.toml"));
    command.arg("--rules").arg(root.join("rules")).args(["--rules", &at("rules/soak.toml")]);
    command.args(["--events", &at("log/events.json"), "--output", &at("pipe"), "--format", "json"]);
    command.args(["--enforce", "--on-failure", mode, "--user", "nobody", "--metrics", "127.0.0.1:9464"]);
    command.args(["--flow-limit", &FLOWS.to_string()]);
    if by_clock {
        // The kernel's stamps of packets do not jump along: by them everything would have waited for an hour.
        command.args(["--max-wait", "off"]);
    }
    let process = Running::start(command);
    process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
    process
}
