//! A PostgreSQL server in a folder of its own.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::{Running, Signal, eventually};

/// A server that listens on a socket in its folder, and takes whoever comes there; ends when dropped.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    process: Option<Running>,
    /// The port of loopback where it speaks TLS.
    port: Option<u16>,
    databases: AtomicU32,
}

impl Postgres {
    /// Starts one; none where PostgreSQL is not installed, which is told.
    ///
    /// # Panics
    /// When it is installed and does not start.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: PostgreSQL is not installed");
            return None;
        };
        // Whoever comes to its socket has no rights over files of others.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(mode).tempdir().expect("a folder");
        if let Some((user, group)) = other() {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).expect("root may do so");
        }
        let mut server = Self { folder, programs, process: None, port: None, databases: AtomicU32::new(0) };
        let mut command = server.command("initdb");
        command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N", "-D"]);
        let output = command.arg(server.data()).output().expect("initdb is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        server.go_on();
        Some(server)
    }

    /// One that is come to by TLS as well, and the file of the CA that has signed its certificate, for
    /// `localhost`.
    ///
    /// # Panics
    /// When it is installed and does not start.
    pub fn with_tls() -> Option<(Self, PathBuf)> {
        let mut server = Self::start()?;
        server.stop();
        let make = |words: &str| {
            let mut command = server.command("openssl");
            let output = command.args(words.split(' ')).output().expect("openssl is installed");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2";
        make(&format!("{new} -subj /CN=CA -keyout ca.key -out ca.pem"));
        make(&format!(
            "{new} -CA ca.pem -CAkey ca.key -subj /CN=localhost -addext subjectAltName=DNS:localhost \
             -addext basicConstraints=critical,CA:FALSE -keyout data/server.key -out data/server.crt"
        ));
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        server.port = Some(free.local_addr().expect("it is bound").port());
        drop(free);
        server.go_on();
        let authority = server.folder.path().join("ca.pem");
        Some((server, authority))
    }

    /// One for all tests of a process, which ends with it.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        let start = || {
            let (sender, receiver) = std::sync::mpsc::channel();
            // The server ends with the thread that has started it.
            std::thread::spawn(move || {
                let _ = sender.send(Self::start());
                loop {
                    std::thread::park();
                }
            });
            receiver.recv().ok().flatten()
        };
        SHARED.get_or_init(start).as_ref()
    }

    /// Starts it again.
    ///
    /// # Panics
    /// When it does not start.
    pub fn go_on(&mut self) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "INT"]).arg(self.programs.join("postgres")).arg("-D").arg(self.data());
        command.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200", "-k"]);
        command.arg(self.folder.path());
        if let Some(port) = self.port {
            command.args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}"), "-c", "ssl=on"]);
        }
        as_other(&mut command);
        let process = Running::start(command);
        process.wait_stderr("the server to be ready", |said| {
            said.contains("ready to accept connections").then_some(())
        });
        self.process = Some(process);
    }

    /// Ends it as its owner would: those who are connected are told.
    ///
    /// # Panics
    /// When it does not run.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.signal(Signal::INT);
        process.wait_exit();
    }

    /// A new database; its URL.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Relaxed));
        psql(&self.url("postgres"), &format!("CREATE DATABASE {name} TEMPLATE template0"));
        self.url(&name)
    }

    fn url(&self, database: &str) -> String {
        let port = self.port.map_or_else(String::new, |port| format!("&port={port}"));
        format!("postgresql:///{database}?host={}&user=postgres{port}", self.folder.path().display())
    }

    /// The same database by TLS.
    ///
    /// # Panics
    /// When it is not come to so.
    pub fn by_tls(&self, url: &str) -> String {
        let (_, database) = url.split_once(":///").expect("a URL of this server");
        let (database, _) = database.split_once('?').expect("a URL of this server");
        let port = self.port.expect("it speaks TLS");
        format!("postgresql://postgres@localhost:{port}/{database}?sslmode=require")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let own = self.programs.join(program);
        let mut command = Command::new(if own.exists() { own } else { program.into() });
        as_other(&mut command);
        command.current_dir(self.folder.path());
        command
    }
}

/// What `psql` says, a line a row, cells parted by `|`; of tables of the inventory without their schema.
///
/// # Panics
/// When the query is refused.
pub fn psql(url: &str, query: &str) -> String {
    let run = || {
        Command::new("psql")
            .args(["-XAtq", "-P", "null=Null", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", query])
            .env("PGOPTIONS", "-c search_path=bannerwall")
            .output()
            .expect("psql is installed")
    };
    let output = eventually("the server to take the query", || {
        let output = run();
        // Databases are made one after the other.
        let is_busy = String::from_utf8_lossy(&output.stderr).contains("being accessed by other users");
        (!is_busy).then_some(output)
    });
    assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Debian has them in a folder for each version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    folders.filter(|folder| Path::new(folder).join("postgres").exists()).max()
}

/// Whom the server runs as where we are root, which it refuses to be: user and group.
fn other() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let number = |flag: &str| {
        let output = Command::new("id").args([flag, "postgres"]).output().ok()?;
        String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().ok()
    };
    Some((number("-u")?, number("-g")?))
}

fn as_other(command: &mut Command) {
    if let Some((user, group)) = other() {
        command.uid(user).gid(group);
    }
}
