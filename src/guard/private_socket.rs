//! A Unix socket that only root and the guard's own user are heard on.

use std::io;
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::control::FOLDER;

/// A listener of mode 0600; its file goes with this value.
#[derive(Debug)]
pub(super) struct PrivateSocket {
    path: PathBuf,
    /// Device and inode of the socket, so that another guard's that took its place stays.
    file: (u64, u64),
    listener: UnixListener,
}

impl PrivateSocket {
    /// Listens at `path`, in place of a socket that a dead guard left there.
    ///
    /// # Errors
    /// Where something that lives or is no socket is there, or the socket can't be made.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        if path.parent().is_some_and(|folder| folder.starts_with(FOLDER)) {
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(FOLDER)?;
        }
        clear(path)?;
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), file: (metadata.dev(), metadata.ino()), listener })
    }

    /// The listener, for the thread that serves it.
    pub(super) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Takes the file away, and wakes the thread that waits for a peer.
    pub(super) fn close(&self) {
        let ours = |found: std::fs::Metadata| (found.dev(), found.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // One that stays is taken for what a dead guard left.
            let _ = std::fs::remove_file(&self.path);
        }
        let _ = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        self.close();
    }
}

/// Removes the socket of a guard that no longer lives; anything else that is there is in the way.
fn clear(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another guard listens there")),
        Err(_) => std::fs::remove_file(path),
    }
}

/// Whether a peer is root's or this process's own user's.
pub(super) fn is_trusted(stream: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    Ok(peer.is_root() || peer == rustix::process::geteuid())
}
