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
        let folder = tempfile::tempdir().expect("a folder");
        if let Some((user, group)) = other() {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).expect("root may do so");
        }
        let mut server = Self { folder, programs, process: None, databases: AtomicU32::new(0) };
        let mut command = server.command("initdb");
        command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N", "-D"]);
        let output = command.arg(server.data()).output().expect("initdb is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        server.go_on();
        Some(server)
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
        format!("postgresql:///{database}?host={}&user=postgres", self.folder.path().display())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
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
