//! Verification of the signature in an SSH server's reply.

use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519,
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};

use super::key_agreement::{is_among, without_zeros};
use crate::banner::kex_reply::string;
use crate::event::SignatureResult;

/// Signature algorithm of host keys.
#[derive(Debug)]
pub(super) struct HostKeyAlgorithm {
    /// Name in a KEXINIT.
    pub(super) name: &'static str,
    /// Type of its keys.
    pub(super) key: &'static str,
    trial: SignatureCheck,
}

/// Verification of a signature.
#[derive(Debug, Clone, Copy)]
enum SignatureCheck {
    Ed25519,
    /// ECDSA, with the length of each of its two numbers in bytes.
    Curve(&'static dyn VerificationAlgorithm, usize),
    Rsa(&'static signature::RsaParameters),
    /// Not supported.
    None,
}

/// Supported algorithms; the first that the server has, too, is used, so that it shows the same key each
/// time.
pub(super) static ALGORITHMS: [HostKeyAlgorithm; 8] = [
    HostKeyAlgorithm { name: "ssh-ed25519", key: "ssh-ed25519", trial: SignatureCheck::Ed25519 },
    HostKeyAlgorithm {
        name: "ecdsa-sha2-nistp256",
        key: "ecdsa-sha2-nistp256",
        trial: SignatureCheck::Curve(&ECDSA_P256_SHA256_FIXED, 32),
    },
    HostKeyAlgorithm {
        name: "ecdsa-sha2-nistp384",
        key: "ecdsa-sha2-nistp384",
        trial: SignatureCheck::Curve(&ECDSA_P384_SHA384_FIXED, 48),
    },
    HostKeyAlgorithm { name: "ecdsa-sha2-nistp521", key: "ecdsa-sha2-nistp521", trial: SignatureCheck::None },
    HostKeyAlgorithm {
        name: "rsa-sha2-512",
        key: "ssh-rsa",
        trial: SignatureCheck::Rsa(&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
    },
    HostKeyAlgorithm {
        name: "rsa-sha2-256",
        key: "ssh-rsa",
        trial: SignatureCheck::Rsa(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
    },
    HostKeyAlgorithm {
        name: "ssh-rsa",
        key: "ssh-rsa",
        trial: SignatureCheck::Rsa(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY),
    },
    HostKeyAlgorithm { name: "ssh-dss", key: "ssh-dss", trial: SignatureCheck::None },
];

impl HostKeyAlgorithm {
    /// Returns the first algorithm that a server's list contains.
    pub(super) fn of(offered: &[u8]) -> Option<&'static Self> {
        ALGORITHMS.iter().find(|algorithm| is_among(algorithm.name, offered))
    }

    /// Verifies the signature of `message` by a key.
    pub(super) fn weigh(&self, key: &[u8], signature: &[u8], message: &[u8]) -> SignatureResult {
        match self.tries(key, signature, message) {
            _ if matches!(self.trial, SignatureCheck::None) => SignatureResult::Untried,
            Some(true) => SignatureResult::Good,
            Some(false) | None => SignatureResult::Bad,
        }
    }

    /// Returns whether a signature is valid; none if the key or the signature has a wrong type.
    fn tries(&self, mut key: &[u8], mut signature: &[u8], message: &[u8]) -> Option<bool> {
        let is_of = |field: &[u8], name: &str| field == name.as_bytes();
        if !is_of(string(&mut key)?, self.key) || !is_of(string(&mut signature)?, self.name) {
            return None;
        }
        let mut signed = string(&mut signature)?;
        Some(match self.trial {
            SignatureCheck::Ed25519 => {
                UnparsedPublicKey::new(&ED25519, string(&mut key)?).verify(message, signed).is_ok()
            }
            SignatureCheck::Curve(curve, length) => {
                let _name = string(&mut key)?;
                let both = [string(&mut signed)?, string(&mut signed)?];
                let both = both.map(|number| padded(number, length));
                let [Some(one), Some(other)] = both else { return None };
                let signature = [one, other].concat();
                UnparsedPublicKey::new(curve, string(&mut key)?).verify(message, &signature).is_ok()
            }
            SignatureCheck::Rsa(parameters) => {
                let e = without_zeros(string(&mut key)?);
                let n = without_zeros(string(&mut key)?);
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signed).is_ok()
            }
            SignatureCheck::None => return None,
        })
    }
}

/// Pads a number to a length in bytes; none if it is longer.
fn padded(number: &[u8], length: usize) -> Option<Vec<u8>> {
    let digits = without_zeros(number);
    let zeros = length.checked_sub(digits.len())?;
    Some([vec![0; zeros].as_slice(), digits].concat())
}
