//! Confinement of the process after its start: files and ports by Landlock, system calls by seccomp. The
//! kernel enforces both for the calling thread and everything that it starts later.
//!
//! An exploited bug can then neither open another file nor run a program. If the kernel lacks a feature, the
//! program continues without it and reports that.

mod confinement_error;
mod system_calls;

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use self::confinement_error::ConfinementError;
use self::system_calls::PermittedActivities;
use crate::diagnostics::log_line;
use crate::files::folder_of;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
    Scope,
};

/// Newest version of Landlock to use, Linux 6.12; older kernels enforce what they support.
const NEWEST: ABI = ABI::V6;

/// Files that are always readable: time zones.
const ALWAYS_READ: [&str; 2] = ["/usr/share/zoneinfo", "/etc/localtime"];

/// Files for looking up names of hosts and of the user.
const NAMES: [&str; 6] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/passwd",
];

/// Needs of a process; all other rights are removed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Confinement {
    activities: PermittedActivities,
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
    makes: Vec<PathBuf>,
}

/// Reports that a process is not confined on request; `by` names its untrusted input.
pub(crate) fn warn_unconfined(by: &str) {
    log_line(format_args!(
        "bannerwall: --no-sandbox: {by} that exploits a bug could open every file and run every program"
    ));
}

impl Confinement {
    /// Permits connections to any address.
    pub(crate) fn speaking(mut self) -> Self {
        self.activities.network = true;
        self
    }

    /// Permits listening for TCP, without connecting.
    pub(crate) fn listening(mut self) -> Self {
        self.activities.listens = true;
        self
    }

    /// Permits packet sockets (`packet(7)`).
    pub(crate) fn packet_sockets(mut self) -> Self {
        self.activities.packets = true;
        self
    }

    /// Permits reading and changing entries of eBPF maps (`bpf(2)`), without creating maps.
    pub(crate) fn keeping_maps(mut self) -> Self {
        self.activities.maps = true;
        self
    }

    /// Permits `io_uring(7)`.
    pub(crate) fn submitting(mut self) -> Self {
        self.activities.rings = true;
        self
    }

    /// Permits starting programs, which inherit the list of system calls. Use it with
    /// [`filter_or_warn`](Self::filter_or_warn) only.
    pub(crate) fn starting_programs(mut self) -> Self {
        self.activities =
            PermittedActivities { programs: true, netlink: true, writes: true, ..self.activities };
        self
    }

    /// Permits continuing as two processes (`fork(2)`).
    pub(crate) fn forking(mut self) -> Self {
        self.activities.forks = true;
        self
    }

    /// Permits creating and removing files and sockets in the folder of this one.
    pub(crate) fn making(mut self, path: &Path) -> Self {
        self.makes.push(folder_of(path).to_owned());
        self
    }

    /// Permits netlink sockets, for notifications of interfaces and rules.
    pub(crate) fn watching_kernel(mut self) -> Self {
        self.activities.netlink = true;
        self
    }

    /// Permits connections to a database server, with a look-up of its name.
    pub(crate) fn finding_servers(mut self) -> Self {
        self.activities.network = true;
        self.activities.unix = true;
        self.reads.extend(NAMES.map(PathBuf::from));
        self
    }

    /// Permits reading a file, or a folder with its content.
    pub(crate) fn reading(mut self, path: &Path) -> Self {
        self.reads.push(path.to_owned());
        self
    }

    /// Permits reading a file again after its replacement, as editors do: its whole folder, or a folder with
    /// its content.
    pub(crate) fn rereading(self, path: &Path) -> Self {
        // The next version may also appear in the folder of a link's target.
        let real = path.canonicalize().unwrap_or_else(|_absent| path.to_owned());
        let both = [path, &real].map(|path| if path.is_dir() { path } else { folder_of(path) }.to_owned());
        both.iter().fold(self, |confinement, path| confinement.reading(path))
    }

    /// Permits writing, recreating and replacing a file.
    pub(crate) fn writing(mut self, path: &Path) -> Self {
        self.writes.push(path.to_owned());
        self
    }

    /// Confines the calling thread and those that it starts.
    ///
    /// # Errors
    ///
    /// The kernel enforces less than it announced.
    pub(crate) fn apply(&self) -> Result<ConfinementResult, ConfinementError> {
        // Its error is returned only at the end: system calls are confined even if files cannot be.
        let files = self.restrict_files();
        // Before its filter, seccompiler sets `PR_SET_NO_NEW_PRIVS`: started programs then gain no rights,
        // with Landlock or without.
        let writes = !self.writes.is_empty() || !self.makes.is_empty();
        PermittedActivities { writes, ..self.activities }.enforce()?;
        Ok(ConfinementResult { files: files?.ruleset })
    }

    /// Confines the calling thread and everything that it starts to system calls only, without files; reports
    /// a failure.
    pub(crate) fn filter_or_warn(&self) {
        if let Err(error) = self.activities.enforce() {
            log_line(format_args!("bannerwall: not confined: {error}"));
        }
    }

    /// Confines as [`Confinement::apply`], and reports a failure or missing features instead of stopping.
    pub(crate) fn apply_or_warn(&self, quiet: bool) {
        match self.apply() {
            Ok(held) if held.is_complete() || quiet => {}
            Ok(held) => log_line(format_args!("bannerwall: {held}")),
            Err(error) => log_line(format_args!("bannerwall: not confined: {error}")),
        }
    }

    fn restrict_files(&self) -> Result<RestrictionStatus, RulesetError> {
        let mut handled = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .scope(scope())?;
        match self.activities {
            PermittedActivities { network: true, .. } => {}
            // Landlock leaves a right that is not handled as it was, so listening stays possible.
            PermittedActivities { listens: true, .. } => {
                handled = handled.handle_access(AccessNet::ConnectTcp)?;
            }
            _ => handled = handled.handle_access(AccessNet::from_all(NEWEST))?,
        }
        let mut rules = handled.create()?;
        let reads = self.reads.iter().map(PathBuf::as_path).chain(ALWAYS_READ.map(Path::new));
        let read = reads.map(|path| (path.to_owned(), AccessFs::ReadFile | AccessFs::ReadDir));
        let write = self.writes.iter().map(|path| written(path));
        let make = self.makes.iter().map(|folder| (folder.clone(), written_in()));
        for (path, access) in read.chain(write).chain(make) {
            // A pipe of the shell (`/dev/fd/63`) has no path to confine. A missing file cannot be opened
            // anyway, and gets its own message.
            let Some(opened) = path.canonicalize().ok().and_then(|path| PathFd::new(path).ok()) else {
                continue;
            };
            // The kernel refuses rights of folders on a file (security/landlock/fs.c:
            // landlock_append_fs_rule).
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
            rules = rules.add_rule(PathBeneath::new(opened, access))?;
        }
        rules.restrict_self()
    }
}

/// Returns the scope that is closed to other processes: signals, and abstract sockets unless the service
/// manager listens on one.
fn scope() -> BitFlags<Scope> {
    let manager = std::env::var_os("NOTIFY_SOCKET");
    match manager.is_some_and(|path| path.as_encoded_bytes().starts_with(b"@")) {
        true => Scope::Signal.into(),
        false => Scope::from_all(NEWEST),
    }
}

/// Landlock support of the running kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LandlockSupport {
    /// All requested features.
    Whole,
    /// An older version.
    Part,
    /// None, or it is disabled.
    None,
}

/// Queries the running kernel, and changes nothing.
pub(crate) fn support() -> LandlockSupport {
    let files = |version| {
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        rules.handle_access(AccessFs::from_all(version))
    };
    match (files(ABI::V1), files(NEWEST).and_then(|rules| rules.scope(Scope::from_all(NEWEST)))) {
        (_, Ok(_)) => LandlockSupport::Whole,
        (Ok(_), Err(_)) => LandlockSupport::Part,
        (Err(_), Err(_)) => LandlockSupport::None,
    }
}

/// Returns the path and the access for writing `path`: its folder, unless the path exists and is not a
/// regular file.
fn written(path: &Path) -> (PathBuf, BitFlags<AccessFs>) {
    // The target of a link, or of `/dev/stdout` in a shell, is the written file.
    let real = path.canonicalize().unwrap_or_else(|_absent| path.to_owned());
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return (real, AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate);
    }
    (folder_of(&real).to_owned(), written_in())
}

/// Returns the access to a folder for writing and replacing files in it.
fn written_in() -> BitFlags<AccessFs> {
    let file = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::ReadDir;
    file | AccessFs::MakeReg | AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::Refer
}

/// Result of the confinement.
#[derive(Debug)]
pub(crate) struct ConfinementResult {
    files: RulesetStatus,
}

impl ConfinementResult {
    /// True if the kernel enforces all of it.
    pub(crate) fn is_complete(&self) -> bool {
        self.files == RulesetStatus::FullyEnforced
    }
}

impl fmt::Display for ConfinementResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.files {
            RulesetStatus::FullyEnforced => "files, ports and system calls are confined",
            RulesetStatus::PartiallyEnforced => {
                "files and system calls are confined as far as this kernel supports it (full support: Linux 6.12)"
            }
            RulesetStatus::NotEnforced => {
                "this kernel has no Landlock: system calls are confined, files are not"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;

    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    /// Names the folder of the test in the process that confines itself.
    const INSIDE: &str = "BANNERWALL_CONFINED_TEST";

    /// What must and what must not be possible inside.
    fn try_inside(folder: &Path) {
        let at = |name: &str| folder.join(name);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held = Confinement::default()
            .reading(&at("read"))
            .reading(&at("folder"))
            .writing(&at("out/written"))
            .writing(Path::new("/dev/null"))
            .writing(&at("not/there"))
            .apply()
            .unwrap();
        if held.files == RulesetStatus::NotEnforced {
            eprintln!("skipped: {held}");
        } else {
            assert_eq!(fs::read(at("read")).unwrap(), b"r");
            assert_eq!(fs::read(at("folder/file")).unwrap(), b"f");
            assert_eq!(fs::read_dir(at("folder")).unwrap().count(), 1);
            fs::write(at("out/written"), "w").unwrap();
            fs::write(at("out/beside"), "b").unwrap();
            fs::rename(at("out/beside"), at("out/written")).unwrap();
            fs::write("/dev/null", "n").unwrap();
            for path in [at("other"), "/etc/passwd".into(), "/proc/self/maps".into()] {
                let kind = fs::read(&path).unwrap_err().kind();
                assert_eq!(kind, std::io::ErrorKind::PermissionDenied, "{}", path.display());
            }
            for path in [at("read"), at("folder/new"), at("new"), "/dev/zero".into()] {
                let kind = fs::write(&path, "x").unwrap_err().kind();
                assert_eq!(kind, std::io::ErrorKind::PermissionDenied, "{}", path.display());
            }
        }
        assert!(Command::new("/bin/true").status().is_err(), "no program");
        assert!(TcpStream::connect(address).is_err() && TcpListener::bind("127.0.0.1:0").is_err());
        assert!(socket(AddressFamily::INET, SocketType::RAW, None).is_err(), "no raw socket");
        let thread = std::thread::spawn(|| Command::new("/bin/true").status().is_err());
        assert!(thread.join().unwrap(), "nor a thread that comes later");
    }

    /// What a guard may do and what not.
    fn try_speaking(taps: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let confinement = Confinement::default().speaking();
        let whole = || confinement.clone().packet_sockets().keeping_maps().watching_kernel();
        if taps { whole() } else { confinement.clone() }.apply().unwrap();
        assert!(TcpStream::connect(address).is_ok() && TcpListener::bind("127.0.0.1:0").is_ok());
        assert!(Command::new("/bin/true").status().is_err(), "no program");
        assert!(crate::bypass::check_support().is_err(), "no program of eBPF, and no map");
        let refused = |family, kind| socket(family, kind, None).err() == Some(Errno::PERM);
        assert!(refused(AddressFamily::INET, SocketType::from_raw(10)), "SOCK_PACKET");
        assert!(std::thread::spawn(|| true).join().unwrap(), "threads start all the same");
        assert!(
            refused(AddressFamily::INET, SocketType::RAW) && refused(AddressFamily::INET6, SocketType::RAW)
        );
        assert_eq!(refused(AddressFamily::PACKET, SocketType::RAW), !taps);
        assert_eq!(refused(AddressFamily::NETLINK, SocketType::RAW), !taps);
        assert!(refused(AddressFamily::UNIX, SocketType::STREAM), "no other program's socket");
    }

    /// What a guard with a page may do and what not.
    fn try_listening() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held = Confinement::default().listening().apply().unwrap();
        assert!(TcpListener::bind("127.0.0.1:0").is_ok());
        if held.is_complete() {
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        }
        let udp = socket(AddressFamily::INET, SocketType::DGRAM, None);
        assert_eq!(udp.err(), Some(Errno::PERM));
    }

    #[test]
    fn who_only_listens_connects_to_nobody() {
        match std::env::var_os(INSIDE) {
            Some(_) => try_listening(),
            None => alone("who_only_listens_connects_to_nobody", ""),
        }
    }

    /// Goes on in a process of its own, which calls itself so, and must end well.
    fn alone(test: &str, folder: &str) {
        let mut inside = Command::new(std::env::current_exe().unwrap());
        let name = format!("confinement::tests::{test}");
        inside.args(["--exact", &name, "--test-threads=1", "--nocapture"]).env(INSIDE, folder);
        let output = inside.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }

    #[test]
    fn who_speaks_to_others_runs_nothing_and_opens_no_raw_socket() {
        match std::env::var(INSIDE).as_deref() {
            Ok(taps) => try_speaking(taps == "taps"),
            // Whether packet sockets can be had at all is another matter: root's.
            Err(_) if !rustix::process::geteuid().is_root() => eprintln!("skipped: root's sockets"),
            Err(_) => ["plain", "taps"].iter().for_each(|way| {
                alone("who_speaks_to_others_runs_nothing_and_opens_no_raw_socket", way);
            }),
        }
    }

    #[test]
    fn nothing_but_what_was_asked_for_is_possible_inside() {
        if let Some(folder) = std::env::var_os(INSIDE) {
            return try_inside(Path::new(&folder));
        }
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("read", "r"), ("other", "o"), ("folder/file", "f"), ("out/old", "")] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        alone("nothing_but_what_was_asked_for_is_possible_inside", folder.path().to_str().unwrap());
    }
}
