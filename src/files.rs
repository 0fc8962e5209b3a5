//! Files that are replaced atomically, so that no reader sees half of one; bounded reads; and files with
//! secrets.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::diagnostics::log_line;

/// Mode of a new file, before the umask.
const ANYBODY: u32 = 0o666;

/// Replaces the file at `path`, and keeps its mode; for a link, replaces its target. A path that is not a
/// regular file (a device, a FIFO) is written to.
///
/// # Errors
///
/// Error of the system; the old file is intact then.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let place = std::fs::canonicalize(path).unwrap_or_else(|_absent| path.to_owned());
    let there = std::fs::metadata(&place).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return File::options().write(true).open(&place)?.write_all(bytes);
    }
    ReplacementFile::open(&place)?.put(bytes)
}

/// Temporary file that replaces another one later. It keeps its owner and mode if the process switches to
/// another user meanwhile.
#[derive(Debug)]
pub(crate) struct ReplacementFile {
    place: PathBuf,
    file: NamedTempFile,
}

impl ReplacementFile {
    /// Creates the temporary file in the folder of `place`, with the mode of the file there.
    ///
    /// # Errors
    ///
    /// It cannot be created.
    pub(crate) fn open(place: &Path) -> io::Result<Self> {
        // A random name and exclusive creation keep this from writing through a planted link.
        let file = tempfile::Builder::new()
            .prefix(".bannerwall-")
            .permissions(Permissions::from_mode(ANYBODY))
            .tempfile_in(folder_of(place))?;
        if let Ok(there) = std::fs::metadata(place) {
            file.as_file().set_permissions(there.permissions())?;
        }
        Ok(Self { place: place.to_owned(), file })
    }

    /// Replaces the other file by one with these bytes.
    ///
    /// # Errors
    ///
    /// Error of the system; the old file is intact then.
    pub(crate) fn put(mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.as_file().sync_all()?;
        self.file.persist(&self.place)?;
        Ok(())
    }
}

/// Two files that replace each other by turns. A process that has switched to another user can so replace a
/// file repeatedly, and both files keep their owner.
#[derive(Debug)]
pub(crate) struct AlternatingFile {
    place: PathBuf,
    /// Path of the file that waits.
    beside: PathBuf,
    files: [File; 2],
    /// True while the file at the place is empty.
    is_empty: bool,
}

impl AlternatingFile {
    /// Replaces the file at `place` by one with these bytes, readable by its owner only, and creates the
    /// other file.
    ///
    /// # Errors
    ///
    /// One of them cannot be created.
    pub(crate) fn open(place: &Path, bytes: &[u8]) -> io::Result<Self> {
        let mut beside = place.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let first = make(&beside)?;
        write_all_of(&first, bytes)?;
        std::fs::rename(&beside, place)?;
        let second = make(&beside)?;
        Ok(Self { place: place.to_owned(), beside, files: [second, first], is_empty: bytes.is_empty() })
    }

    /// Replaces the file at the place by the other one with these bytes.
    ///
    /// # Errors
    ///
    /// Error of the system; the old file is intact then.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        // By descriptor: a file or link that was planted at the path meanwhile must not be written.
        write_all_of(&self.files[0], bytes)?;
        match renameat_with(CWD, &self.beside, CWD, &self.place, RenameFlags::EXCHANGE) {
            Ok(()) => self.files.swap(0, 1),
            // Some file systems do not exchange files, and another program may have deleted one.
            Err(Errno::INVAL | Errno::NOENT) => {
                let file = make(&self.beside)?;
                write_all_of(&file, bytes)?;
                std::fs::rename(&self.beside, &self.place)?;
                self.files = [make(&self.beside)?, file];
            }
            Err(error) => return Err(error.into()),
        }
        self.is_empty = bytes.is_empty();
        Ok(())
    }

    /// Removes both files.
    ///
    /// # Errors
    ///
    /// The file at the place cannot be removed.
    pub(crate) fn remove(mut self) -> io::Result<()> {
        self.is_empty = false;
        remove(&self.place)
    }
}

impl Drop for AlternatingFile {
    fn drop(&mut self) {
        // If it cannot be removed, the next start replaces it.
        let _ = remove(&self.beside);
        if self.is_empty {
            let _ = remove(&self.place);
        }
    }
}

/// Creates a new file for its owner only. It must not write through a link or a file that was left at this
/// path.
fn make(path: &Path) -> io::Result<File> {
    remove(path)?;
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replaces the content of a file, and syncs it to the disk.
fn write_all_of(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns the first bytes of a file, up to `most`.
///
/// # Errors
///
/// Error of the system.
pub(crate) fn read_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut octets)?;
    Ok(octets)
}

/// Writes a new file that only its owner can read.
///
/// # Errors
///
/// The file exists, or cannot be written.
pub(crate) fn write_secret(path: &Path, octets: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(octets)?;
    file.sync_all()
}

/// Returns the first bytes of a file with a secret, up to `most`. Warns if other users can read it.
///
/// # Errors
///
/// Error of the system.
pub(crate) fn read_secret(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let octets = read_to(path, most)?;
    if is_open_to_others(path) {
        let path = path.display();
        log_line(format_args!("bannerwall: {path}: other users can read this secret (run chmod 600)"));
    }
    Ok(octets)
}

/// True if a file exists and others than its owner may read, write or run it.
fn is_open_to_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

/// Returns the folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((std::fs::read(&file).unwrap(), mode(&file)), (b"new".to_vec(), 0o600));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside it");
    }

    #[test]
    fn two_files_take_turns_and_planted_links_are_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let [place, beside, treasure] =
            ["state", "state.new", "treasure"].map(|name| folder.path().join(name));
        std::fs::write(&treasure, "gold").unwrap();
        std::os::unix::fs::symlink(&treasure, &beside).unwrap();
        let mut files = AlternatingFile::open(&place, b"a long beginning").unwrap();
        for text in ["first", "second", "third"] {
            files.put(text.as_bytes()).unwrap();
            assert_eq!((std::fs::read_to_string(&place).unwrap(), mode(&place)), (text.to_owned(), 0o600));
        }
        // What has got the name of the one that waits takes the place, and stays what it is.
        std::fs::remove_file(&beside).unwrap();
        std::os::unix::fs::symlink(&treasure, &beside).unwrap();
        files.put(b"fourth").unwrap();
        assert_eq!(std::fs::read_to_string(&treasure).unwrap(), "gold");
        std::fs::remove_file(&place).unwrap();
        files.put(b"fifth").unwrap();
        files.put(b"sixth").unwrap();
        files.remove().unwrap();
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["treasure"]);
        // Where nothing was put, nothing stays.
        drop(AlternatingFile::open(&place, b"").unwrap());
        assert!(!place.exists());
    }

    #[test]
    fn what_is_no_regular_file_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        replace(&pipe, b"octets").unwrap();
        assert_eq!(reader.join().unwrap(), b"octets");
        assert!(!std::fs::metadata(&pipe).unwrap().is_file());
    }

    #[test]
    fn a_secret_is_written_once_and_for_its_owner_and_read_no_further_than_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write_secret(&path, b"secret").unwrap();
        assert_eq!((mode(&path), is_open_to_others(&path)), (0o600, false));
        assert_eq!(write_secret(&path, b"other").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(
            (read_to(&path, 100).unwrap(), read_to(&path, 3).unwrap()),
            (b"secret".to_vec(), b"sec".to_vec())
        );
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(is_open_to_others(&path) && !is_open_to_others(&folder.path().join("none")));
        assert_eq!(read_to(&folder.path().join("none"), 3).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_can_not_be_made_is_an_error() {
        let error = replace(Path::new("/nonexistent/file"), b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
