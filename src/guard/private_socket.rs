//! A Unix socket for root and the guard's own user, or for the guard's group, too.

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

use super::control::FOLDER;
use crate::privileges::give_up_all;

/// Peers that may wait for the thread.
const BACKLOG: i32 = 16;
/// Time for which nobody is heard where one could not be: descriptors may be short just now.
const PAUSE: Duration = Duration::from_millis(50);

/// The users who may connect besides root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// The guard's own user.
    Owner,
    /// The guard's own user and group.
    Group,
}

impl Access {
    const fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o660,
        }
    }
}

/// A listener, and the thread that serves it; its file goes with this value.
#[derive(Debug)]
pub(super) struct PrivateSocket {
    path: PathBuf,
    /// Device and inode of the socket, so that another guard's that took its place stays.
    file: (u64, u64),
    listener: UnixListener,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The sockets for one path, opened before the guard is confined: a confined thread can open no Unix socket,
/// so that it can connect to none of another program's.
#[derive(Debug)]
pub(super) struct UnboundSocket {
    /// Becomes the listener.
    socket: Socket,
    /// Finds out whether another guard listens at the path.
    probe: Socket,
}

impl UnboundSocket {
    /// Opens both.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn open(access: Access) -> io::Result<Self> {
        let open = || Socket::new(Domain::UNIX, Type::STREAM, None);
        let socket = open()?;
        // The file gets the mode of the unbound socket (`unix_bind_bsd` of net/unix/af_unix.c), which only
        // the user who has opened it can change.
        fchmod(&socket, access.mode().into())?;
        Ok(Self { socket, probe: open()? })
    }

    /// Listens at `path`, in place of a socket that a dead guard left there.
    ///
    /// # Errors
    /// Where something that lives or is no socket is there, or the socket can't be bound.
    pub(super) fn bind(self, path: &Path) -> io::Result<PrivateSocket> {
        if path.parent().is_some_and(|folder| folder.starts_with(FOLDER)) {
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(FOLDER)?;
        }
        clear(path, &self.probe)?;
        // A usual umask takes writing from a group, which needs it to connect. A file that another thread
        // makes meanwhile can get no more than its group's access by this.
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
    /// Has a thread of this name hear one peer after the other, until `hear` breaks it off or the socket is
    /// closed. It may do nothing else.
    ///
    /// # Errors
    /// Where the system has no thread or descriptor left.
    pub(super) fn serve(
        &mut self,
        name: &'static str,
        mut hear: impl FnMut(UnixStream) -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<()> {
        let (listener, is_closed) = (self.listener.try_clone()?, Arc::clone(&self.is_closed));
        let serve = move || {
            give_up_all(name);
            loop {
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

    /// Takes the file away, and wakes the thread that waits for a peer.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let ours = |found: std::fs::Metadata| (found.dev(), found.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // One that stays is taken for what a dead guard left.
            let _ = std::fs::remove_file(&self.path);
        }
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        self.close();
        // One that waits for a word of a peer, or for the guard's, ends with the process.
        let _ = self.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join);
    }
}

/// Removes the socket of a guard that no longer lives; anything else that is there is in the way.
fn clear(path: &Path, probe: &Socket) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
    }
    match probe.connect(&SockAddr::unix(path)?) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another guard listens there")),
        Err(_) => std::fs::remove_file(path),
    }
}

/// Whether a peer is root's or this process's own user's.
pub(super) fn is_trusted(stream: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    Ok(peer.is_root() || peer == rustix::process::geteuid())
}
