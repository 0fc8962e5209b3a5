//! Files of killed guards in the run-time folders.
//!
//! A guard removes those in its own folder when it starts, and `bannerwall doctor` names all of them. A
//! socket is left if no process listens there. Accounts are left if no guard has written them for a day: a
//! running guard writes each second, and a restarted one goes on from the accounts of its queues.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::account_file::{self, AccountFile};
use super::control::socket_path;
use crate::diagnostics::log_line;
use crate::privileges::UnprivilegedUser;

/// Age of a socket from which on its guard listens, if it lives.
const STARTED: Duration = Duration::from_secs(1);
/// Age of accounts from which on no restarted guard is expected.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// Removes the files that killed guards have left in the folders of this guard's user, except for `own`.
pub(super) fn remove(user: Option<&UnprivilegedUser>, own: &AccountFile) {
    let mut folders = vec![socket_path::folder(user), account_file::folder(user)];
    folders.dedup();
    for path in folders.iter().flat_map(|folder| left_in(folder)).filter(|path| path != own.path()) {
        if let Err(error) = std::fs::remove_file(&path) {
            log_line(format_args!(
                "bannerwall: cannot remove {}, which a killed guard has left: {error}",
                path.display()
            ));
        }
    }
}

/// Returns the files that killed guards have left on this machine, as far as this process may see them.
pub fn find() -> Vec<PathBuf> {
    let shared = socket_path::folder(None);
    let of_users = entries(&shared).filter(|(_, metadata)| metadata.is_dir()).map(|(path, _)| path);
    of_users.chain([shared.clone()]).flat_map(|folder| left_in(&folder)).collect()
}

fn left_in(folder: &Path) -> Vec<PathBuf> {
    let is_left = |(path, metadata): &(PathBuf, Metadata)| {
        if metadata.file_type().is_socket() {
            return is_older(metadata, STARTED) && !may_listen(path);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        metadata.is_file() && name.starts_with(account_file::PREFIX) && is_older(metadata, ABANDONED)
    };
    entries(folder).filter(is_left).map(|(path, _)| path).collect()
}

/// Returns the files in a folder, without following links.
fn entries(folder: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
}

fn is_older(metadata: &Metadata, age: Duration) -> bool {
    metadata.modified().is_ok_and(|written| written.elapsed().is_ok_and(|elapsed| elapsed > age))
}

/// True unless the kernel says that no process listens at a socket.
fn may_listen(path: &Path) -> bool {
    Socket::new(Domain::UNIX, Type::STREAM, None).map_or(true, |probe| listens(&probe, path).unwrap_or(true))
}

/// True if a process listens at a socket. The call does not wait for a process that accepts no connection,
/// such as a stopped one.
///
/// # Errors
///
/// This process may not connect there.
pub(super) fn listens(probe: &Socket, path: &Path) -> io::Result<bool> {
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if is_not_listening(&error) => Ok(false),
        // Its queue of connections is full.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        connected => connected.map(|()| true),
    }
}

/// True if an attempt to connect failed because no process listens.
pub(super) fn is_not_listening(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::SystemTime;

    use super::*;

    /// Moves a file's time back by two days.
    fn age(path: &Path) {
        let then = SystemTime::now() - 2 * ABANDONED;
        let times = FileTimes::new().set_modified(then);
        if let Ok(file) = File::open(path) {
            file.set_times(times).unwrap();
            return;
        }
        // A socket cannot be opened.
        let touched = std::process::Command::new("touch").args(["-d", "2 days ago"]).arg(path).status();
        assert!(touched.unwrap().success());
    }

    #[test]
    fn only_what_no_guard_uses_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _lives = UnixListener::bind(path("lives.sock")).unwrap();
        drop(["dead.sock", "young.sock"].map(|name| UnixListener::bind(path(name)).unwrap()));
        for name in ["accounts-0.1", "accounts-1.1", "rules.toml"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::os::unix::fs::symlink(path("rules.toml"), path("accounts-2.1")).unwrap();
        for name in ["lives.sock", "dead.sock", "accounts-0.1", "rules.toml"] {
            age(&path(name));
        }
        let mut left = left_in(folder.path());
        left.sort();
        assert_eq!(left, [path("accounts-0.1"), path("dead.sock")]);
    }

    #[test]
    fn a_process_that_accepts_no_connection_listens_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stopped.sock");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        assert!(may_listen(&path));
        drop(socket);
        assert!(!may_listen(&path));
    }
}
