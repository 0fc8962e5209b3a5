//! Files and standard input as bytes: opens, decompresses and counts them.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flate2::read::MultiGzDecoder;

/// First bytes of every gzip file, RFC 1952 section 2.3.1.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Open file or standard input, decompressed if it is gzip.
pub struct CaptureInput {
    reader: Box<dyn Read + Send>,
    length: Option<u64>,
    position: Arc<AtomicU64>,
}

impl CaptureInput {
    /// Opens `path`; `-` is standard input.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or its first bytes are unreadable.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Self::new(io::stdin(), None);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let length = metadata.is_file().then_some(metadata.len());
        Self::new(file, length)
    }

    /// Wraps any source of bytes, compressed or not, with its `length` in bytes if known.
    ///
    /// # Errors
    ///
    /// The first bytes are unreadable.
    pub fn new(source: impl Read + Send + 'static, length: Option<u64>) -> io::Result<Self> {
        let position = Arc::new(AtomicU64::new(0));
        let mut counted = CountingReader { source, position: Arc::clone(&position) };
        let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
        // The format is recognized by content: a pipe has no name, and some compressed captures have no
        // `.gz`.
        counted.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic)?;
        let compressed = magic == GZIP_MAGIC;
        let whole = Cursor::new(magic).chain(counted);
        let reader: Box<dyn Read + Send> =
            // Concatenated gzip files are one valid file (RFC 1952, section 2.2).
            if compressed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        Ok(Self { reader, length, position })
    }

    /// Returns the size of the stored file in bytes, if known.
    pub const fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns a counter of the stored bytes read so far.
    pub fn position(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.position)
    }
}

impl Read for CaptureInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// Counts the bytes read through it.
struct CountingReader<R> {
    source: R,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.position.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn read(stored: &[u8]) -> Vec<u8> {
        let mut octets = Vec::new();
        let mut input = CaptureInput::new(Cursor::new(stored.to_vec()), None).unwrap();
        input.read_to_end(&mut octets).unwrap();
        assert_eq!(input.position().load(Relaxed), stored.len() as u64);
        octets
    }

    #[test]
    fn gzip_is_told_by_its_first_octets() {
        for text in [&b""[..], b"x", b"\x1f", b"plain octets"] {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            let member = encoder.finish().unwrap();
            assert_eq!(read(text), text);
            assert_eq!(read(&member), text);
            assert_eq!(read(&[member.as_slice(), &member].concat()), [text, text].concat());
        }
    }

    #[test]
    fn a_folder_is_refused() {
        assert!(CaptureInput::open(Path::new("/")).is_err());
    }
}
