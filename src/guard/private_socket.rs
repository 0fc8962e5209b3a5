//! A Unix socket for root and the guard's own user, and optionally the guard's group.

use std::io;
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::process::umask;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::control::socket_path::FOLDER;
use super::leftovers::listens;
use crate::privileges::give_up_all;

/// Limit of the peers that may wait for a connection.
const BACKLOG: i32 = 16;
/// Pause after a failed accept: the process may be short of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The users who may connect besides root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketAccess {
    /// The guard's own user.
    Owner,
    /// The guard's own user and group.
    Group,
}

impl SocketAccess {
    const fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o660,
        }
    }
}

/// A listener and the thread that serves it. Dropping it removes the socket file.
#[derive(Debug)]
pub(super) struct PrivateSocket {
    path: PathBuf,
    /// Device and inode of the socket. A socket of another guard that took its place is not removed.
    file: (u64, u64),
    listener: UnixListener,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The sockets for one path, opened before the guard is confined: a confined thread can open no Unix socket,
/// so that it cannot connect to other programs.
#[derive(Debug)]
pub(super) struct UnboundSocket {
    /// The socket that becomes the listener.
    socket: Socket,
    /// The socket that probes whether another guard listens at the path.
    probe: Socket,
}

impl UnboundSocket {
    /// Opens both sockets.
    ///
    /// # Errors
    ///
    /// The system has no free descriptor.
    pub(super) fn open(access: SocketAccess) -> io::Result<Self> {
        let open = || Socket::new(Domain::UNIX, Type::STREAM, None);
        let socket = open()?;
        // The file gets the mode of the unbound socket (`unix_bind_bsd` of net/unix/af_unix.c), which only
        // the user who opened it can change.
        fchmod(&socket, access.mode().into())?;
        Ok(Self { socket, probe: open()? })
    }

    /// Listens at `path`. A socket of a dead guard there is removed.
    ///
    /// # Errors
    ///
    /// A live guard or another file is at the path, or the socket cannot be bound.
    pub(super) fn bind(self, path: &Path) -> io::Result<PrivateSocket> {
        if path.parent().is_some_and(|folder| folder.starts_with(FOLDER)) {
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(FOLDER)?;
        }
        clear(path, &self.probe)?;
        // A usual umask denies the group the write access that it needs to connect. With this umask, a file
        // that another thread makes at the same moment gives access to its group at most.
        let before = umask(Mode::from_raw_mode(0o117));
        let bound = SockAddr::unix(path).and_then(|address| self.socket.bind(&address));
        umask(before);
        bound?;
        self.socket.listen(BACKLOG)?;
        let listener = UnixListener::from(self.socket);
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(PrivateSocket {
            path: path.to_owned(),
            file: (metadata.dev(), metadata.ino()),
            listener,
            is_closed: Arc::default(),
            thread: None,
        })
    }
}

impl PrivateSocket {
    /// Starts a thread of this name that passes one peer after the other to `hear`, until `hear` breaks or
    /// the socket is closed. The thread gives up all privileges.
    ///
    /// # Errors
    ///
    /// The system has no free thread or descriptor.
    pub(super) fn serve(
        &mut self,
        name: &'static str,
        mut hear: impl FnMut(UnixStream) -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<()> {
        let (listener, is_closed) = (self.listener.try_clone()?, Arc::clone(&self.is_closed));
        let serve = move || {
            give_up_all(name);
            loop {
                // One peer after the other: a second one waits in the backlog.
                match listener.accept() {
                    Ok((stream, _)) => {
                        if hear(stream).is_break() {
                            return;
                        }
                    }
                    Err(_) if is_closed.load(Ordering::Acquire) => return,
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        self.thread = Some(std::thread::Builder::new().name(name.to_owned()).spawn(serve)?);
        Ok(())
    }

    /// Removes the file, and wakes the thread that waits for a peer.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // A successor may have bound the path already. Its file has another inode and stays.
        let ours = |found: std::fs::Metadata| (found.dev(), found.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // If the file stays, the next guard takes it for that of a dead guard.
            let _ = std::fs::remove_file(&self.path);
        }
        // Wakes a thread that waits in accept(2), which then fails with EINVAL (net/unix/af_unix.c:
        // unix_accept).
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        self.close();
        // A thread that waits for a peer or for the guard ends with the process.
        let _ = self.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join);
    }
}

/// Removes the socket of a dead guard. Any other file at the path is an error.
fn clear(path: &Path, probe: &Socket) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    // Whatever else is at the path was not made by a guard, and could be the user's.
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is not a socket"));
    }
    if listens(probe, path)? {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another guard listens on it"));
    }
    std::fs::remove_file(path)
}

/// True if the peer is root or has this process's user.
pub(super) fn is_trusted(stream: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    Ok(peer.is_root() || peer == rustix::process::geteuid())
}
