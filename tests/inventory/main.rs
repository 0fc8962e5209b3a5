//! The inventory in SQLite and PostgreSQL.

mod changes;
mod exchange;
mod records;
mod server;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A folder in `folder` that every user may write to: programs that are notified are not root's.
fn open_to_all(folder: &Path) -> PathBuf {
    let open = folder.join("open");
    std::fs::create_dir(&open).expect("the folder is ours");
    for (path, mode) in [(folder, 0o755), (&open, 0o777)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }
    open
}
