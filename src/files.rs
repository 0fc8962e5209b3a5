//! Files that are replaced atomically, so that no reader sees half of one; bounded reads; and files with
//! secrets.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Mode of a new file, before the umask.
const ANYBODY: u32 = 0o666;

/// Replaces the file at `path`, and keeps its mode; for a link, replaces its target. A path that is not a
/// regular file (a device, a FIFO) is written to.
///
/// # Errors
///
/// Error of the system; the old file is intact then.
pub(crate) fn replace(path: &Path, octets: &[u8]) -> io::Result<()> {
    let place = std::fs::canonicalize(path).unwrap_or_else(|_absent| path.to_owned());
    let there = std::fs::metadata(&place).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return File::options().write(true).open(&place)?.write_all(octets);
    }
    let folder = folder_of(&place);
    // A random name and exclusive creation keep this from writing through a planted link.
    let mut file = tempfile::Builder::new()
        .prefix(".bannerwall-")
        .permissions(Permissions::from_mode(ANYBODY))
        .tempfile_in(folder)?;
    file.write_all(octets)?;
    if let Some(there) = there {
        file.as_file().set_permissions(there.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(&place)?;
    Ok(())
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

/// True if a file exists and others than its owner may read, write or run it.
pub(crate) fn is_open_to_others(path: &Path) -> bool {
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
