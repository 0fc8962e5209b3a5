//! Zip archives with a bounded number of members. A reader keeps data about each member before it opens
//! the first.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use zip::ZipArchive;

use super::AdvisoryImportError;

/// Largest number of members of an archive. OSV's largest has some 250,000.
const MEMBERS: u64 = 500_000;

/// End of an archive (APPNOTE.TXT 4.3.16): its signature, its length in bytes, and the largest length of
/// the comment after it.
const END: (&[u8], u64, u64) = (b"PK\x05\x06", 22, 0xffff);

/// End of large archives (4.3.14): its signature and its length in bytes. The locator (4.3.15) has 20
/// bytes.
const LARGE: (&[u8], u64, u64) = (b"PK\x06\x06", 56, 20);

/// Opens an archive.
///
/// # Errors
/// Returns an error if it is no archive or has too many members.
pub(super) fn open(path: &Path) -> Result<ZipArchive<BufReader<File>>, AdvisoryImportError> {
    let unreadable = |error| AdvisoryImportError::unreadable(path, error);
    let malformed =
        |message: String| AdvisoryImportError::Malformed { place: path.display().to_string(), message };
    let bounded = |count: u64| match count {
        0..=MEMBERS => Ok(()),
        _ => Err(malformed(format!("{count} members, more than the {MEMBERS} that are read of an archive"))),
    };
    let mut file = File::open(path).map_err(unreadable)?;
    bounded(claimed(&mut file).map_err(unreadable)?)?;
    let archive = ZipArchive::new(BufReader::new(file)).map_err(|error| malformed(error.to_string()))?;
    // The reader may have found another end than the last one.
    bounded(archive.len() as u64)?;
    Ok(archive)
}

/// Returns the largest number of members by any possible end of the archive; none if it has no end.
fn claimed(file: &mut File) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    let first = length.saturating_sub(END.1 + END.2 + LARGE.1 + LARGE.2);
    file.seek(SeekFrom::Start(first))?;
    let mut tail = Vec::new();
    file.take(length - first).read_to_end(&mut tail)?;
    let small = find(&tail, END.0).filter_map(|end| number(end.get(10..12)?));
    // Archivers write this record only directly before its locator.
    let large = find(&tail, LARGE.0).filter_map(|end| number(end.get(32..40)?));
    Ok(small.filter(|count| *count < 0xffff).chain(large).max().unwrap_or(0))
}

/// Returns the slices that begin with a signature.
fn find<'t>(tail: &'t [u8], signature: &'static [u8]) -> impl Iterator<Item = &'t [u8]> {
    let ends = tail.windows(signature.len()).enumerate().filter(move |(_, window)| *window == signature);
    ends.filter_map(|(at, _)| tail.get(at..))
}

/// Reads a small number, least significant byte first.
fn number(octets: &[u8]) -> Option<u64> {
    octets.iter().rev().try_fold(0_u64, |number, octet| Some(number.checked_mul(256)? + u64::from(*octet)))
}
