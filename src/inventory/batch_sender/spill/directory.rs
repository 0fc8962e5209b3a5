//! The spill directory: its owner, its lock, and its files. A file is either complete under its name or
//! absent.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use super::file_format::{LARGEST, SpillFileKind, SpillOwner, opened, sealed};
use super::file_name::{FileName, SetAsideReason};
use crate::privileges::UnprivilegedUser;

/// The lock file; it holds the id of the process that uses the directory.
pub(super) const LOCK: &str = "lock";

/// The file with the owner of the directory.
const OWNER: &str = "sensor";

/// Number of files set aside that are kept; older ones are removed.
const KEPT_ASIDE: usize = 16;

/// The folder.
#[derive(Debug, Clone)]
pub(super) struct SpillDirectory {
    path: PathBuf,
}

/// Lock on the directory; held while the process uses it.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    /// The kernel releases the lock if the process is killed.
    _file: OwnedFd,
}

/// A file of the directory.
#[derive(Debug, Clone)]
pub(super) struct SpillFile {
    pub(super) name: FileName,
    pub(super) file: String,
    pub(super) octets: u64,
    pub(super) written: SystemTime,
}

/// Creates a directory that only its owner can access, if it is missing. With a user, it gives the
/// directory and its files to that user.
///
/// # Errors
/// Error of the system.
pub(super) fn prepare(path: &Path, user: Option<&UnprivilegedUser>) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    // The mode is set at the creation: a later chmod would leave a moment in which others can open the
    // folder.
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let Some(user) = user else { return Ok(()) };
    user.own(path)?;
    // A run as root has left them.
    for entry in std::fs::read_dir(path)?.flatten().filter(|entry| is_ours(&entry.file_name())) {
        user.own(&entry.path())?;
    }
    Ok(())
}

fn is_ours(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| [LOCK, OWNER].contains(&name) || FileName::parse(name).is_some())
}

impl SpillDirectory {
    /// Opens or creates the directory.
    ///
    /// # Errors
    /// It cannot be created, or other users may write to it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        prepare(path, None)?;
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if metadata.permissions().mode() & 0o022 != 0 {
            // Files in it are sent in the name of the sensor.
            return Err(io::Error::other(
                "others may write to it (run chmod go-w, or use a folder inside it)",
            ));
        }
        Ok(Self { path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the directory; none if another process has locked it.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn lock(&self) -> io::Result<Option<DirectoryLock>> {
        let options = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
        let mut file = options.open(self.path.join(LOCK))?;
        // The kernel releases the lock when the process dies, however it dies. A file that only exists
        // would stay.
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            locked => locked?,
        }
        // A process that is refused reads the holder's id here.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Some(DirectoryLock { _file: file.into() }))
    }

    /// Returns the process that holds the lock, if the file names it.
    pub(super) fn holder(&self) -> Option<u32> {
        let said = crate::files::read_to(&self.path.join(LOCK), 16).ok()?;
        std::str::from_utf8(&said).ok()?.parse().ok()
    }

    /// Returns the owner of the directory; none if it was never used.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn owner(&self) -> io::Result<Option<SpillOwner>> {
        let octets = match crate::files::read_to(&self.path.join(OWNER), LARGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            octets => octets?,
        };
        let (owner, _) = opened(SpillFileKind::Owner, &octets).ok_or_else(|| {
            io::Error::other(format!(
                "its file {OWNER:?} is damaged; remove it if the folder belongs to this sensor"
            ))
        })?;
        Ok(Some(owner))
    }

    /// Records the owner of the directory.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn remember(&self, owner: &SpillOwner) -> io::Result<()> {
        self.put(OWNER, &sealed(SpillFileKind::Owner, owner, ""), true)
    }

    /// Writes a file. If it has to survive a power failure, this waits for the disk.
    ///
    /// # Errors
    /// The file was not written, not even a part of it.
    pub(super) fn put(&self, name: &str, octets: &[u8], lasts: bool) -> io::Result<()> {
        // A rename replaces the file atomically, so a reader sees the old or the new contents, never a
        // part.
        let new = self.path.join(format!("{name}.new"));
        let write = || {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(octets)?;
            if lasts {
                file.sync_all()?;
            }
            std::fs::rename(&new, self.path.join(name))
        };
        let written: io::Result<()> = write();
        if let Err(error) = written {
            let _ = std::fs::remove_file(&new);
            return Err(error);
        }
        // The new name is an entry of the directory, which needs a sync of its own.
        if lasts { self.sync() } else { Ok(()) }
    }

    /// Syncs a file that was written without.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn sync_file(&self, name: &str) -> io::Result<()> {
        File::open(self.path.join(name))?.sync_all()
    }

    /// Syncs the names of the directory.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        crate::files::read_to(&self.path.join(name), LARGEST)
    }

    /// Removes a file; a missing one is no error.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Sets a file aside, and removes the oldest such file if there are many.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn set_aside(&self, name: &str, why: SetAsideReason) -> io::Result<()> {
        std::fs::rename(self.path.join(name), self.path.join(format!("{name}{}", why.ending())))?;
        let mut aside = self.files()?;
        aside.retain(|file| file.name == FileName::Aside);
        // The newest files show the current fault. Without a limit, a server that refuses everything
        // would fill the disk.
        aside.sort_by_key(|file| std::cmp::Reverse(file.written));
        aside.iter().skip(KEPT_ASIDE).try_for_each(|file| self.remove(&file.file))
    }

    /// Time of the directory's last change.
    pub(super) fn changed(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|it| it.modified()).ok()
    }

    /// Returns the spill's files, in the order of their names.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn files(&self) -> io::Result<Vec<SpillFile>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(file) = entry.file_name().into_string() else { continue };
            let Some(name) = FileName::parse(&file) else { continue };
            // A file that was removed meanwhile is skipped.
            let Ok(metadata) = entry.metadata() else { continue };
            let written = metadata.modified().unwrap_or_else(|_| SystemTime::now());
            files.push(SpillFile { name, file, octets: metadata.len(), written });
        }
        files.sort_by(|one, other| one.file.cmp(&other.file));
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::batch_sender::spill::file_name::RunName;

    fn folder() -> (tempfile::TempDir, SpillDirectory) {
        let parent = tempfile::tempdir().unwrap();
        let folder = SpillDirectory::open(&parent.path().join("a/spill")).unwrap();
        (parent, folder)
    }

    #[test]
    fn one_process_has_it_and_others_are_told_which() {
        let (_parent, folder) = folder();
        let lock = folder.lock().unwrap().unwrap();
        assert!(folder.lock().unwrap().is_none());
        assert_eq!(folder.holder(), Some(std::process::id()));
        drop(lock);
        assert!(folder.lock().unwrap().is_some());
    }

    #[test]
    fn it_is_its_owners_alone_and_remembers_whom_it_is_for() {
        let (_parent, folder) = folder();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(folder.path()), folder.owner().unwrap()), (0o700, None));
        let owner = SpillOwner { sensor: "east".into(), server: "postgresql://east@db/net".into() };
        folder.remember(&owner).unwrap();
        assert_eq!((mode(&folder.path().join(OWNER)), folder.owner().unwrap()), (0o600, Some(owner)));
        std::fs::write(folder.path().join(OWNER), "x").unwrap();
        assert!(folder.owner().unwrap_err().to_string().contains("damaged"));
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = SpillDirectory::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("others may write"), "{refused}");
    }

    #[test]
    fn files_are_put_there_listed_in_order_and_set_aside() {
        let (_parent, folder) = folder();
        let run = RunName { started: 5, stream: "ab".into() };
        for number in (1..=30).rev() {
            folder.put(&run.batch(number, false), b"x", number % 2 == 0).unwrap();
        }
        std::fs::write(folder.path().join("not ours"), "").unwrap();
        let files = folder.files().unwrap();
        assert_eq!((files.len(), &files[0].name), (30, &FileName::Batch(run.clone(), 1)));
        for number in 1..=20 {
            folder.set_aside(&run.batch(number, false), SetAsideReason::Damaged).unwrap();
        }
        assert_eq!(folder.files().unwrap().len(), 10 + KEPT_ASIDE);
        folder.remove(&run.batch(30, false)).unwrap();
        folder.remove(&run.batch(30, false)).unwrap();
        assert!(folder.read(&run.batch(30, false)).is_err());
        assert_eq!(folder.read(&run.batch(29, false)).unwrap(), b"x");
    }
}
