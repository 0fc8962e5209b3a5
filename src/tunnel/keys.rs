//! Static keys: 32 octets of Curve25519 in base64, a line a file, as `wg genkey` and `wg pubkey` write them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver as _, DefaultResolver};

use crate::diagnostics::tell;
use crate::files;

/// Octets of a key.
const OCTETS: usize = 32;

/// The most that is read of a file: a key, and what editors leave behind it.
const LONGEST: u64 = 256;

/// A key, private or public.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; OCTETS]);

/// Our private key and the peer's public one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// Ours.
    pub private: Key,
    /// The peer's.
    pub peer: Key,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be made.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is something else in the file.
    #[error("{}: not a key: a line of base64 for {OCTETS} octets, as `bannerwall tunnel keygen` writes", .0.display())]
    NoKey(PathBuf),
    /// The peer has the key that we have.
    #[error("{}: this is the public key of our own private one; the peer needs another", .0.display())]
    Ours(PathBuf),
    /// The library does not do Curve25519.
    #[error("no random numbers, or no Curve25519")]
    Curve,
}

impl Keys {
    /// Reads our private key and the peer's public one.
    ///
    /// # Errors
    /// A file cannot be read, or has no key, or both have one pair's.
    pub fn read(private: &Path, peer: &Path) -> Result<Self, KeyError> {
        let keys = Self { private: Key::read(private)?, peer: Key::read(peer)? };
        if keys.private.public()? == keys.peer {
            return Err(KeyError::Ours(peer.to_owned()));
        }
        if files::is_open_to_others(private) {
            tell(format_args!("bannerwall: {}: others may read this private key", private.display()));
        }
        Ok(keys)
    }
}

impl Key {
    /// Reads a key from a file.
    ///
    /// # Errors
    /// The file cannot be read, or has no key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let fault = |source| KeyError::Read { path: path.to_owned(), source };
        let text = files::read_to(path, LONGEST).map_err(fault)?;
        let octets = STANDARD.decode(text.trim_ascii()).ok().and_then(|octets| octets.try_into().ok());
        octets.map(Self).ok_or_else(|| KeyError::NoKey(path.to_owned()))
    }

    /// Makes a private key.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn generate() -> Result<Self, KeyError> {
        let mut random = DefaultResolver.resolve_rng().ok_or(KeyError::Curve)?;
        let mut pair = DefaultResolver.resolve_dh(&DHChoice::Curve25519).ok_or(KeyError::Curve)?;
        pair.generate(&mut *random).map_err(|_| KeyError::Curve)?;
        pair.privkey().try_into().map(Self).map_err(|_| KeyError::Curve)
    }

    /// The public key of this private one.
    ///
    /// # Errors
    /// The library does not do Curve25519.
    pub fn public(&self) -> Result<Self, KeyError> {
        let mut pair = DefaultResolver.resolve_dh(&DHChoice::Curve25519).ok_or(KeyError::Curve)?;
        pair.set(&self.0);
        pair.pubkey().try_into().map(Self).map_err(|_| KeyError::Curve)
    }

    /// Writes a private key to a new file that nobody else may read.
    ///
    /// # Errors
    /// There is such a file, or it cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let fault = |source| KeyError::Write { path: path.to_owned(), source };
        files::write_secret(path, format!("{self}\n").as_bytes()).map_err(fault)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&STANDARD.encode(self.0))
    }
}

/// A private key is not to stand in any message.
impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_public_key_is_what_the_standard_says() {
        // Worked out by the formulas of RFC 7748 section 5, in another language.
        let private = Key(std::array::from_fn(|at| u8::try_from(at + 1).expect("32 octets")));
        let public = private.public().unwrap();
        assert_eq!(public.to_string(), "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw=");
    }

    #[test]
    fn keys_come_from_files_and_nothing_else_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let private = Key::generate().unwrap();
        private.write_new(&file("private")).unwrap();
        assert!(private.write_new(&file("private")).is_err(), "none is written over");
        assert_eq!(std::fs::metadata(file("private")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Key::read(&file("private")).unwrap(), private);
        std::fs::write(file("own"), format!("{}\n\n", private.public().unwrap())).unwrap();
        let own = Keys::read(&file("private"), &file("own"));
        assert!(matches!(own, Err(KeyError::Ours(_))), "{own:?}");
        for bad in ["", "AAAA", "no key", &"A".repeat(45)] {
            std::fs::write(file("bad"), bad).unwrap();
            assert!(matches!(Key::read(&file("bad")), Err(KeyError::NoKey(_))), "{bad}");
        }
        assert_eq!(format!("{private:?}"), "Key(…)");
    }
}
