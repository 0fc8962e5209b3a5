//! The file in which a guard stores its last good pack with its signature. A start needs no server, and
//! trusts the file no more than the server. A second file holds the number of the pack. No version below it
//! is accepted, whatever happens to the first file.

use std::io;
use std::path::{Path, PathBuf};

use super::key::PublicKeys;
use super::pack::{LARGEST, RulePack};

/// First line of the file.
const HEAD: &str = "bannerwall rules 1\n";

/// Number of lines of a signature.
const LINES: usize = 4;

/// Maximum length of the file, in bytes.
const LONGEST: u64 = LARGEST as u64 + (8 << 10);

/// Maximum length of a file with a number, in bytes.
const NUMBER: u64 = 32;

/// Returns the path of the file with the number of the newest version that was in force.
pub(super) fn number_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".version");
    name.into()
}

/// Returns the newest version that was in force; none if the file does not exist.
///
/// # Errors
///
/// The file is unusable.
pub(super) fn number(path: &Path) -> Result<Option<i64>, String> {
    let held = match crate::files::read_to(&number_file(path), NUMBER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        held => held.map_err(|error| error.to_string())?,
    };
    let number = std::str::from_utf8(&held).ok().and_then(|text| text.trim_end().parse().ok());
    number
        .filter(|number| *number > 0)
        .map(Some)
        .ok_or_else(|| "it is not the number of a version".to_owned())
}

/// Returns the contents of the file for a pack and its signature.
pub(super) fn written(octets: &[u8], signature: &str) -> Vec<u8> {
    let mut file = HEAD.as_bytes().to_vec();
    for line in signature.lines().take(LINES) {
        file.extend(line.as_bytes());
        file.push(b'\n');
    }
    file.extend(octets);
    file
}

/// Reads a stored pack and verifies it; none if the file does not exist.
///
/// # Errors
///
/// The file is unusable.
pub(super) fn read(path: &Path, keys: &PublicKeys) -> Result<Option<RulePack>, String> {
    let held = match crate::files::read_to(path, LONGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        held => held.map_err(|error| error.to_string())?,
    };
    let (signature, octets) = parted(&held).ok_or("it is not a file of stored rules")?;
    keys.verify(octets, signature).map_err(|error| error.to_string())?;
    RulePack::parse(octets).map(Some).map_err(|error| error.to_string())
}

/// Splits the file into the signature and the signed bytes.
fn parted(held: &[u8]) -> Option<(&str, &[u8])> {
    let rest = held.strip_prefix(HEAD.as_bytes())?;
    let (end, _) = rest.iter().enumerate().filter(|(_, octet)| **octet == b'\n').nth(LINES - 1)?;
    let (signature, octets) = rest.split_at_checked(end + 1)?;
    Some((std::str::from_utf8(signature).ok()?, octets))
}

#[cfg(test)]
mod tests {
    use super::super::key::SecretKey;
    use super::*;

    #[test]
    fn a_number_is_read_or_none_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.pack");
        assert_eq!(number(&path), Ok(None));
        for (text, read) in [("7\n", Some(7)), ("0", None), ("-1", None), ("x", None), ("", None)] {
            std::fs::write(folder.path().join("rules.pack.version"), text).unwrap();
            assert_eq!(number(&path).ok().flatten(), read, "{text}");
            assert_eq!(number(&path).is_ok(), read.is_some(), "{text}");
        }
    }

    #[test]
    fn what_is_kept_is_verified_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        SecretKey::make(&path("key"), None).unwrap();
        let key = SecretKey::read(&path("key"), None).unwrap();
        let keys = PublicKeys(vec![key.public().unwrap()]);
        assert_eq!(read(&path("kept"), &keys), Ok(None));
        let pack = RulePack::new(3, "a\nb".to_owned(), Vec::new());
        let octets = pack.octets().unwrap();
        let file = written(&octets, &key.sign(&octets, "version 3").unwrap());
        std::fs::write(path("kept"), &file).unwrap();
        assert_eq!(read(&path("kept"), &keys), Ok(Some(pack)));
        for damaged in [&b""[..], b"bannerwall rules 1\n", &file[1..], &file[..file.len() - 1], &file[..100]]
        {
            std::fs::write(path("kept"), damaged).unwrap();
            assert!(read(&path("kept"), &keys).is_err());
        }
    }
}
