//! Paths of the control socket.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::privileges::UnprivilegedUser;

/// Folder of the sockets without `--control`.
pub const FOLDER: &str = "/run/bannerwall";

/// Returns the path of the socket of the guard whose first queue is `queue`, in the network namespace of this
/// process. Each namespace numbers its queues on its own. A confined guard may not look at process 1 to find
/// the initial namespace, so each socket is named after the inode of its namespace.
///
/// A guard that runs as another user makes the socket in that user's folder.
pub fn default_path(queue: u16, user: Option<&UnprivilegedUser>) -> PathBuf {
    let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |found| found.ino());
    folder(user).join(format!("guard-{queue}-{namespace}.sock"))
}

/// Returns the folder of sockets and accounts. A guard that runs as another user has its own.
pub fn folder(user: Option<&UnprivilegedUser>) -> PathBuf {
    let shared = PathBuf::from(FOLDER);
    user.map_or_else(|| shared.clone(), |user| shared.join(user.number().to_string()))
}

/// Returns the paths at which a guard of this queue may listen: [`default_path`], and the same name in the
/// folder of each user.
///
/// A killed guard leaves its socket behind, even in a namespace whose inode is used again, so there may be
/// several.
pub fn places(queue: u16) -> Vec<PathBuf> {
    let path = default_path(queue, None);
    places_in(Path::new(FOLDER), &path)
}

pub(super) fn places_in(folder: &Path, path: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let others = folders.filter_map(|folder| Some(folder.path().join(path.file_name()?)));
    let others = others.filter(|other| other.exists());
    std::iter::once(path.to_owned()).chain(others).collect()
}
