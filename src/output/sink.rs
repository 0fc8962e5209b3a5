//! Destinations of bytes: a file, a log, a FIFO whose reader comes and goes, standard output.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::files::folder_of;

/// Permissions of output files: they describe a network, so only the owner and its group may read them.
const MODE: u32 = 0o640;

/// Bit of a directory that everybody may write to.
const WORLD_WRITABLE: u32 = 0o002;

/// Destination of the bytes.
pub enum OutputDestination {
    /// Standard output.
    Stdout,
    /// A file, which is truncated when the run starts.
    File(PathBuf),
    /// A file that is appended to, as logs are. [`ChannelHandle::reopen`](super::ChannelHandle::reopen) opens
    /// it again.
    Log(PathBuf),
    /// Any other writer, such as standard output under a progress bar.
    Other(Box<dyn Write + Send>),
}

/// An open destination, or a FIFO without a reader.
pub(super) struct OutputSink {
    out: Option<Box<dyn Write + Send>>,
    /// The same descriptor, if it is a regular file: there, an incomplete write can be undone.
    regular: Option<File>,
    path: Option<PathBuf>,
    log: bool,
    fifo: bool,
    /// True if the last write ended within a line.
    torn: bool,
    /// True if reopening by name failed: bytes still go to the old file.
    stale: bool,
}

/// Progress of an incomplete write, and its error.
pub(super) struct PartialWrite {
    /// Number of bytes that were written.
    pub(super) taken: usize,
    /// The error of the system.
    pub(super) error: io::Error,
}

impl OutputSink {
    /// Opens a destination. With `no_waiting`, a FIFO without a reader is no error; else opening waits
    /// for the reader, so that it misses nothing.
    pub(super) fn open(destination: OutputDestination, no_waiting: bool) -> io::Result<Self> {
        let mut sink =
            Self { out: None, regular: None, path: None, log: false, fifo: false, torn: false, stale: false };
        match destination {
            // A separate descriptor, because the standard library's would buffer lines a second time.
            OutputDestination::Stdout => {
                sink.out = Some(Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)));
            }
            OutputDestination::Other(out) => sink.out = Some(out),
            OutputDestination::File(path) | OutputDestination::Log(path) if no_waiting && is_fifo(&path) => {
                (sink.path, sink.log, sink.fifo) = (Some(path), true, true);
                sink.reopen()?;
            }
            OutputDestination::File(path) => {
                sink.attach(open(&path, false)?)?;
                sink.path = Some(path);
            }
            OutputDestination::Log(path) => {
                sink.attach(open(&path, true)?)?;
                (sink.path, sink.log) = (Some(path), true);
            }
        }
        Ok(sink)
    }

    fn attach(&mut self, file: File) -> io::Result<()> {
        let regular = file.metadata()?.is_file();
        // Only a regular file can be cut back to the last whole line after a failed write.
        self.regular = regular.then(|| file.try_clone()).transpose()?;
        self.out = Some(Box::new(file));
        Ok(())
    }

    /// Reopens a log by its name.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let (Some(path), true) = (&self.path, self.log) else { return Ok(()) };
        let opened = match self.fifo {
            true => open_fifo(path),
            false => open(path, true).map(Some),
        };
        // After an error the old file stays in use, so that no event is lost. The next write tries
        // again.
        self.stale = opened.is_err();
        match opened? {
            Some(file) => self.attach(file)?,
            None => self.close_fifo(),
        }
        self.torn = false;
        Ok(())
    }

    /// True if reopening failed and must be tried again.
    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// True if it waits for a reader of the FIFO.
    pub(super) fn awaits_reader(&self) -> bool {
        self.out.is_none()
    }

    /// Closes a FIFO whose reader is gone.
    pub(super) fn close_fifo(&mut self) {
        if self.fifo {
            self.out = None;
        }
    }

    pub(super) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard output".to_owned(), |path| path.display().to_string())
    }

    /// Writes all of `bytes`. After an incomplete write, a line end comes first, so that the next line is
    /// complete.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), PartialWrite> {
        if self.torn {
            // The last write left half a line that could not be removed: a line end keeps the next
            // event apart from it.
            self.write_counting(b"\n").map_err(|broken| PartialWrite { taken: 0, ..broken })?;
        }
        self.write_counting(bytes)?;
        let flushed = self.out.as_mut().map_or(Ok(()), Write::flush);
        flushed.map_err(|error| PartialWrite { taken: 0, error })
    }

    fn write_counting(&mut self, bytes: &[u8]) -> Result<(), PartialWrite> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = match &mut self.out {
                Some(out) => out.write(rest),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            };
            let error = match written {
                Ok(length) if length > 0 => {
                    rest = rest.get(length..).unwrap_or_default();
                    continue;
                }
                Ok(_) => io::ErrorKind::WriteZero.into(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            let taken = bytes.len() - rest.len();
            self.remove_partial_line(bytes.get(..taken).unwrap_or_default());
            return Err(PartialWrite { taken, error });
        }
        self.torn = false;
        Ok(())
    }

    /// Removes the incomplete last line of a failed write, if possible.
    fn remove_partial_line(&mut self, taken: &[u8]) {
        let whole = memchr::memrchr(b'\n', taken).map_or(0, |end| end + 1);
        let cut = taken.len() - whole;
        if !taken.is_empty() {
            self.torn = cut > 0 && !self.take_back(cut);
        }
    }

    /// Removes the last bytes that were written to a regular file, unless other bytes follow them:
    /// another process may append to the same log.
    fn take_back(&mut self, cut: usize) -> bool {
        let Some(file) = &mut self.regular else { return false };
        let taken_back = file.stream_position().and_then(|end| {
            // Another process has appended to the file since. Its data must not be cut off.
            if file.metadata()?.len() != end {
                return Ok(false);
            }
            let whole = end.saturating_sub(cut as u64);
            file.set_len(whole)?;
            file.seek(SeekFrom::Start(whole)).map(|_| true)
        });
        taken_back.unwrap_or(false)
    }
}

/// Creates a missing file, readable for its owner and group. It never follows a link, which an attacker
/// could have planted.
///
/// # Errors
/// Returns the error of the system.
pub fn create(path: &Path) -> io::Result<()> {
    open(path, true).map(drop)
}

/// Opens a file for writing; the error names it.
fn open(path: &Path, append: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(append).truncate(!append).mode(MODE);
    if in_open_folder(path) {
        // An attacker who plants a link there must not choose which file is overwritten.
        options.custom_flags(libc::O_NOFOLLOW);
    }
    options.open(path).map_err(|error| {
        let kind = std::fs::symlink_metadata(path).map(|metadata| metadata.file_type());
        let why = match (error.raw_os_error(), kind) {
            (Some(libc::ELOOP), _) => "a symbolic link in a folder that every user can write to".to_owned(),
            (Some(libc::ENXIO), Ok(kind)) if FileType::is_socket(&kind) => {
                "a socket; name a file or a FIFO".to_owned()
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("{}: {why}", path.display()))
    })
}

/// Opens a FIFO without waiting for a reader; none if it has no reader.
fn open_fifo(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let links = if in_open_folder(path) { libc::O_NOFOLLOW } else { 0 };
    // Without O_NONBLOCK, opening a FIFO for writing waits for a reader.
    options.write(true).custom_flags(libc::O_NONBLOCK | links);
    match options.open(path) {
        Ok(file) => {
            // From here on, writing waits for a slow reader, as with any pipe.
            let flags = rustix::fs::fcntl_getfl(&file)?;
            rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
            Ok(Some(file))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

fn is_fifo(path: &Path) -> bool {
    // This follows links, because opening through a link would wait, too.
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

fn in_open_folder(path: &Path) -> bool {
    std::fs::metadata(folder_of(path)).is_ok_and(|metadata| metadata.mode() & WORLD_WRITABLE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_disk_cut_is_taken_back_unless_another_process_has_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("eve.json");
        for destination in [OutputDestination::File(path.clone()), OutputDestination::Log(path.clone())] {
            std::fs::write(&path, "").unwrap();
            let mut sink = OutputSink::open(destination, true).unwrap_or_else(|error| panic!("{error}"));
            assert!(sink.write(b"one\n").is_ok());
            let cut = b"two\nthr";
            sink.out.as_mut().unwrap().write_all(cut).unwrap();
            sink.remove_partial_line(cut);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
            assert!(sink.write(b"four\n").is_ok());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\nfour\n");
        }
        let mut sink = OutputSink::open(OutputDestination::Log(path.clone()), true)
            .unwrap_or_else(|error| panic!("{error}"));
        sink.out.as_mut().unwrap().write_all(b"fi").unwrap();
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        other.write_all(b"six\n").unwrap();
        sink.remove_partial_line(b"fi");
        assert!(sink.write(b"seven\n").is_ok());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\nfour\nfisix\n\nseven\n");
    }
}
