//! Static keys: 32 bytes of Curve25519 in base64, one line in a file, as `wg genkey` and `wg pubkey` write
//! them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver as _, DefaultResolver};

use crate::files;

/// Size of a key in bytes.
const OCTETS: usize = 32;

/// Limit of a key file: a key, and trailing white space.
const LONGEST: u64 = 256;

/// Private or public key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TunnelKey(pub [u8; OCTETS]);

/// Own private key and the peer's public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelKeys {
    /// Own private key.
    pub private: TunnelKey,
    /// Public key of the peer.
    pub peer: TunnelKey,
}

/// Error of a key.
#[derive(Debug, thiserror::Error)]
pub enum TunnelKeyError {
    /// The file is unreadable.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The file cannot be created.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The file does not hold a key.
    #[error("{}: not a key: it must be a line of base64 for {OCTETS} bytes (create one with `bannerwall tunnel keygen`)", .0.display())]
    NoKey(PathBuf),
    /// The peer's key belongs to the own private key.
    #[error("{}: this is the public key of --key; pass the public key of the other end", .0.display())]
    Ours(PathBuf),
    /// The library lacks Curve25519, or the system random numbers.
    #[error("the system has no random numbers, or the library no Curve25519")]
    Curve,
}

impl TunnelKeys {
    /// Reads the own private key and the peer's public key.
    ///
    /// # Errors
    ///
    /// A file is unreadable or holds no key, or both keys are one pair.
    pub fn read(private: &Path, peer: &Path) -> Result<Self, TunnelKeyError> {
        let keys = Self { private: TunnelKey::read_private(private)?, peer: TunnelKey::read(peer)? };
        if keys.private.public()? == keys.peer {
            return Err(TunnelKeyError::Ours(peer.to_owned()));
        }
        Ok(keys)
    }
}

impl TunnelKey {
    /// Reads a public key from a file.
    ///
    /// # Errors
    ///
    /// The file is unreadable, or holds no key.
    pub fn read(path: &Path) -> Result<Self, TunnelKeyError> {
        Self::parse(path, files::read_to(path, LONGEST))
    }

    /// Reads a private key from a file.
    ///
    /// # Errors
    ///
    /// The file is unreadable, or holds no key.
    pub fn read_private(path: &Path) -> Result<Self, TunnelKeyError> {
        Self::parse(path, files::read_secret(path, LONGEST))
    }

    fn parse(path: &Path, text: io::Result<Vec<u8>>) -> Result<Self, TunnelKeyError> {
        let text = text.map_err(|source| TunnelKeyError::Read { path: path.to_owned(), source })?;
        let octets = STANDARD.decode(text.trim_ascii()).ok().and_then(|octets| octets.try_into().ok());
        octets.map(Self).ok_or_else(|| TunnelKeyError::NoKey(path.to_owned()))
    }

    /// Generates a private key.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, TunnelKeyError> {
        let mut random = DefaultResolver.resolve_rng().ok_or(TunnelKeyError::Curve)?;
        let mut pair = DefaultResolver.resolve_dh(&DHChoice::Curve25519).ok_or(TunnelKeyError::Curve)?;
        pair.generate(&mut *random).map_err(|_| TunnelKeyError::Curve)?;
        pair.privkey().try_into().map(Self).map_err(|_| TunnelKeyError::Curve)
    }

    /// Returns the public key of this private key.
    ///
    /// # Errors
    ///
    /// The library lacks Curve25519.
    pub fn public(&self) -> Result<Self, TunnelKeyError> {
        let mut pair = DefaultResolver.resolve_dh(&DHChoice::Curve25519).ok_or(TunnelKeyError::Curve)?;
        pair.set(&self.0);
        pair.pubkey().try_into().map(Self).map_err(|_| TunnelKeyError::Curve)
    }

    /// Writes a private key to a new file that only its owner can read.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), TunnelKeyError> {
        let fault = |source| TunnelKeyError::Write { path: path.to_owned(), source };
        files::write_secret(path, format!("{self}\n").as_bytes()).map_err(fault)
    }
}

impl fmt::Display for TunnelKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&STANDARD.encode(self.0))
    }
}

/// Hides the key, since no message may contain a private key.
impl fmt::Debug for TunnelKey {
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
        let private = TunnelKey(std::array::from_fn(|at| u8::try_from(at + 1).expect("32 octets")));
        let public = private.public().unwrap();
        assert_eq!(public.to_string(), "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw=");
    }

    #[test]
    fn keys_come_from_files_and_nothing_else_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let private = TunnelKey::generate().unwrap();
        private.write_new(&file("private")).unwrap();
        assert!(private.write_new(&file("private")).is_err(), "none is written over");
        assert_eq!(std::fs::metadata(file("private")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(TunnelKey::read(&file("private")).unwrap(), private);
        std::fs::write(file("own"), format!("{}\n\n", private.public().unwrap())).unwrap();
        let own = TunnelKeys::read(&file("private"), &file("own"));
        assert!(matches!(own, Err(TunnelKeyError::Ours(_))), "{own:?}");
        for bad in ["", "AAAA", "no key", &"A".repeat(45)] {
            std::fs::write(file("bad"), bad).unwrap();
            assert!(matches!(TunnelKey::read(&file("bad")), Err(TunnelKeyError::NoKey(_))), "{bad}");
        }
        assert_eq!(format!("{private:?}"), "Key(…)");
    }
}
