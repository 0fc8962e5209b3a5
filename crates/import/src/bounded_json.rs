//! Bounded JSON streams: neither depth, nor a long text, nor a large file can exhaust the reader's
//! memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::AdvisoryImportError;

/// Limit on one text, in bytes.
const TEXT: usize = 4 << 20;

/// Largest depth of objects and lists.
const DEPTH: usize = 64;

/// Opens a JSON file of at most `limit` bytes unpacked, compressed by gzip or not.
pub(super) fn open(path: &Path, limit: u64) -> Result<BoundedJson<Box<dyn Read>>, AdvisoryImportError> {
    let unreadable = |error| AdvisoryImportError::unreadable(path, error);
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::Error::other("not a regular file")));
    }
    let mut file = BufReader::with_capacity(64 << 10, File::open(path).map_err(unreadable)?);
    let packed = file.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]);
    let inner: Box<dyn Read> = if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    Ok(BoundedJson::new(inner, limit))
}

/// A stream of JSON that returns an error if a bound is exceeded.
pub(super) struct BoundedJson<R> {
    inner: R,
    limit: u64,
    octets: u64,
    depth: usize,
    /// Number of bytes of the current text.
    text: Option<usize>,
    /// True if the last byte was a backslash in a text.
    escaped: bool,
}

impl<R: Read> BoundedJson<R> {
    /// Limits `inner` to `limit` bytes.
    pub(super) const fn new(inner: R, limit: u64) -> Self {
        Self { inner, limit, octets: 0, depth: 0, text: None, escaped: false }
    }

    /// Number of bytes read.
    pub(super) const fn octets(&self) -> u64 {
        self.octets
    }

    fn take(&mut self, octet: u8) -> Result<(), String> {
        self.octets += 1;
        if self.octets > self.limit {
            return Err(format!("more than {} MiB", self.limit >> 20));
        }
        match (&mut self.text, octet) {
            (Some(_), b'"') if !self.escaped => self.text = None,
            (Some(length), _) => {
                *length += 1;
                self.escaped = octet == b'\\' && !self.escaped;
                if *length > TEXT {
                    return Err(format!("byte {}: a text of more than {} MiB", self.octets, TEXT >> 20));
                }
            }
            (None, b'"') => (self.text, self.escaped) = (Some(0), false),
            (None, b'{' | b'[') => {
                self.depth += 1;
                if self.depth > DEPTH {
                    return Err(format!("byte {}: nested deeper than {DEPTH} levels", self.octets));
                }
            }
            (None, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            (None, _) => {}
        }
        Ok(())
    }
}

impl<R: Read> Read for BoundedJson<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        for octet in buffer.iter().take(length) {
            self.take(*octet).map_err(io::Error::other)?;
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(octets: &[u8]) -> Option<String> {
        io::copy(&mut BoundedJson::new(octets, 1 << 30), &mut io::sink()).err().map(|error| error.to_string())
    }

    #[test]
    fn depth_is_that_of_objects_and_lists_outside_of_texts() {
        let deep = "[".repeat(DEPTH);
        assert_eq!(error(format!("{deep}\"[[[\\\"[[\"").as_bytes()), None);
        assert_eq!(error(format!("{deep}]{{").as_bytes()), None);
        let told = error(format!("{deep}{{").as_bytes()).unwrap();
        assert!(told.contains("byte 65") && told.contains("deeper than 64"), "{told}");
    }

    #[test]
    fn a_text_has_an_end() {
        let long = "x".repeat(TEXT);
        assert_eq!(error(format!("\"{long}\"").as_bytes()), None);
        assert!(error(format!("\"{long}x\"").as_bytes()).unwrap().contains("4 MiB"));
    }
}
