//! Signatures in minisign's format (Ed25519 of the `BLAKE2b` hash), so that minisign itself can create keys
//! and sign.
//!
//! Guards verify what a database sends with a library that can only verify. The library that signs reads
//! secret keys, and gets no data from other machines.

use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

use minisign::{KeyPair, SecretKeyBox};
use minisign_verify::{Error, PublicKey, Signature};

use crate::files;

/// Maximum number of bytes of a file with a key or a signature.
const LONGEST: u64 = 4 << 10;

/// Error of a key or a signature.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file has no secret key.
    #[error("{}: not a secret key, as `bannerwall fleet rules keygen` and `minisign -G` write: {why}", path.display())]
    NoSecret {
        /// The file.
        path: PathBuf,
        /// The library's message.
        why: String,
    },
    /// The text is no public key, nor a file with one.
    #[error("{0}: neither a public key (56 characters of base64, RW…) nor a file with one")]
    NoPublic(String),
    /// The key has a password.
    #[error("{}: this key has a password: pass its file with --password-file", .0.display())]
    Locked(PathBuf),
    /// The library cannot sign.
    #[error("cannot sign: {0}")]
    Sign(String),
    /// The text is not a signature.
    #[error("not a minisign signature: {0}")]
    NoSignature(Error),
    /// The key of the signature is not trusted.
    #[error("the signature was made with another key")]
    Stranger,
    /// The signature is for other bytes.
    #[error("the signature does not match these rules")]
    False,
}

/// The trusted public keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKeys(pub Vec<PublicKey>);

impl PublicKeys {
    /// Verifies that one of the keys signed these bytes.
    ///
    /// # Errors
    ///
    /// None of them did.
    pub fn verify(&self, octets: &[u8], signature: &str) -> Result<(), SigningKeyError> {
        let signature = Signature::decode(signature).map_err(SigningKeyError::NoSignature)?;
        let mut error = SigningKeyError::Stranger;
        for key in &self.0 {
            match key.verify(octets, &signature, false) {
                Ok(()) => return Ok(()),
                Err(Error::UnexpectedKeyId) => {}
                Err(_) => error = SigningKeyError::False,
            }
        }
        Err(error)
    }
}

/// Reads a public key from its text, or from a file.
///
/// # Errors
///
/// It is neither.
pub fn read_public(text: &str) -> Result<PublicKey, SigningKeyError> {
    if let Ok(key) = PublicKey::from_base64(text) {
        return Ok(key);
    }
    let none = || SigningKeyError::NoPublic(text.to_owned());
    let held = read(Path::new(text)).map_err(|_| none())?;
    // With the comment above it, or alone.
    PublicKey::decode(&held).or_else(|_| PublicKey::from_base64(held.trim())).map_err(|_| none())
}

fn read(path: &Path) -> Result<String, SigningKeyError> {
    text_of(path, files::read_to(path, LONGEST))
}

fn read_secret(path: &Path) -> Result<String, SigningKeyError> {
    text_of(path, files::read_secret(path, LONGEST))
}

fn text_of(path: &Path, octets: io::Result<Vec<u8>>) -> Result<String, SigningKeyError> {
    let text = octets.and_then(|octets| io::read_to_string(octets.as_slice()));
    text.map_err(|source| SigningKeyError::Read { path: path.to_owned(), source })
}

/// A key for signing.
pub struct SecretKey(minisign::SecretKey);

/// A secret key must not appear in any message.
impl std::fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SecretKey(…)")
    }
}

impl SecretKey {
    /// Reads a key from a file, and its password from another one.
    ///
    /// # Errors
    ///
    /// The file has no key, or the password is wrong.
    pub fn read(path: &Path, password: Option<&Path>) -> Result<Self, SigningKeyError> {
        let text = read_secret(path)?;
        let held = || SecretKeyBox::from(text.clone());
        let none = |error: minisign::PError| SigningKeyError::NoSecret {
            path: path.to_owned(),
            why: error.to_string(),
        };
        let key = match (held().into_unencrypted_secret_key(), password) {
            (Ok(key), _) => key,
            (Err(_), Some(file)) => held().into_secret_key(Some(password_of(file)?)).map_err(none)?,
            (Err(error), None) if error.to_string().contains("encrypted") => {
                return Err(SigningKeyError::Locked(path.to_owned()));
            }
            (Err(error), None) => return Err(none(error)),
        };
        Ok(Self(key))
    }

    /// Creates a key in a new file that only its owner can read, locked by the password of the other file.
    /// Returns the text of the public key's file.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub fn make(path: &Path, password: Option<&Path>) -> Result<String, SigningKeyError> {
        let sign = |error: minisign::PError| SigningKeyError::Sign(error.to_string());
        let pair = match password {
            Some(file) => KeyPair::generate_encrypted_keypair(Some(password_of(file)?)),
            None => KeyPair::generate_unencrypted_keypair(),
        };
        let pair = pair.map_err(sign)?;
        let secret = pair.sk.to_box(Some("secret key for rules of bannerwall")).map_err(sign)?.into_string();
        let public = pair.pk.to_box().map_err(sign)?.into_string();
        let fault = |source| SigningKeyError::Write { path: path.to_owned(), source };
        files::write_secret(path, secret.as_bytes()).map_err(fault)?;
        Ok(public)
    }

    /// Returns the public key.
    ///
    /// # Errors
    ///
    /// The library fails.
    pub fn public(&self) -> Result<PublicKey, SigningKeyError> {
        let key = minisign::PublicKey::from_secret_key(&self.0);
        let key = key.map_err(|error| SigningKeyError::Sign(error.to_string()))?.to_base64();
        PublicKey::from_base64(&key).map_err(|_| SigningKeyError::NoPublic(key))
    }

    /// Signs the bytes; the comment is signed, too.
    ///
    /// # Errors
    ///
    /// The library fails.
    pub fn sign(&self, octets: &[u8], comment: &str) -> Result<String, SigningKeyError> {
        let untrusted = Some("signature of rules of bannerwall");
        let signed = minisign::sign(None, &self.0, Cursor::new(octets), Some(comment), untrusted);
        Ok(signed.map_err(|error| SigningKeyError::Sign(error.to_string()))?.into_string())
    }
}

/// Returns the first line of a file.
fn password_of(file: &Path) -> Result<String, SigningKeyError> {
    Ok(read_secret(file)?.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn only_what_a_trusted_key_signed_is_verified() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let [ours, theirs] = ["ours", "theirs"].map(|name| {
            let public = SecretKey::make(&path(name), None).unwrap();
            std::fs::write(path(&format!("{name}.pub")), &public).unwrap();
            (SecretKey::read(&path(name), None).unwrap(), public)
        });
        assert!(SecretKey::make(&path("ours"), None).is_err(), "nothing is written over");
        assert_eq!(std::fs::metadata(path("ours")).unwrap().mode() & 0o777, 0o600);
        let file = path("ours.pub").display().to_string();
        let line = ours.1.lines().nth(1).unwrap();
        let (by_file, by_text) = (read_public(&file).unwrap(), read_public(line).unwrap());
        let trusted = PublicKeys(vec![by_file, by_text]);
        let signed = ours.0.sign(b"rules", "version 1").unwrap();
        trusted.verify(b"rules", &signed).unwrap();
        PublicKeys(vec![ours.0.public().unwrap()]).verify(b"rules", &signed).unwrap();
        let refused = |octets: &[u8], signature: &str| trusted.verify(octets, signature).unwrap_err();
        assert!(matches!(refused(b"rulez", &signed), SigningKeyError::False));
        let stranger = theirs.0.sign(b"rules", "version 1").unwrap();
        assert!(matches!(refused(b"rules", &stranger), SigningKeyError::Stranger));
        let other = signed.replace("version 1", "version 2");
        assert!(matches!(refused(b"rules", &other), SigningKeyError::False), "the comment is signed");
        for text in ["", "\n\n\n\n", "untrusted comment: a\nUlc=\ntrusted comment: b\nUlc="] {
            assert!(matches!(refused(b"rules", text), SigningKeyError::NoSignature(_)), "{text}");
        }
        assert!(matches!(read_public("nonsense"), Err(SigningKeyError::NoPublic(_))));
        std::fs::write(path("wrong"), "untrusted comment: x\nAAAA\n").unwrap();
        assert!(matches!(SecretKey::read(&path("wrong"), None), Err(SigningKeyError::NoSecret { .. })));
    }
}
