//! Methods of key agreement with an SSH server, needed to get its host key.
//!
//! The secret protects no data: the connection ends with the server's reply. It is computed because the
//! server signs it.

use std::fmt;

use num_bigint::BigUint;
use ring::agreement::{self, ECDH_P256, ECDH_P384, EphemeralPrivateKey, UnparsedPublicKey, X25519};
use ring::digest::{self, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384};
use ring::rand::{SecureRandom, SystemRandom};

/// Method of key agreement.
#[derive(Debug)]
pub(super) struct KexMethod {
    /// Name in a KEXINIT.
    pub(super) name: &'static str,
    group: KexGroup,
    /// Digest of the exchange hash.
    pub(super) digest: &'static digest::Algorithm,
}

/// Group of the computation.
#[derive(Debug, Clone, Copy)]
enum KexGroup {
    /// Elliptic curve.
    Curve(&'static agreement::Algorithm),
    /// Powers of 2 modulo a prime, in hexadecimal digits.
    Prime(&'static str),
}

/// Supported methods; the first that the server has, too, is used: modern ones, then those of old servers.
pub(super) static METHODS: [KexMethod; 7] = [
    // RFC 8731, and the older name of the same method.
    KexMethod { name: "curve25519-sha256", group: KexGroup::Curve(&X25519), digest: &SHA256 },
    KexMethod { name: "curve25519-sha256@libssh.org", group: KexGroup::Curve(&X25519), digest: &SHA256 },
    // RFC 5656.
    KexMethod { name: "ecdh-sha2-nistp256", group: KexGroup::Curve(&ECDH_P256), digest: &SHA256 },
    KexMethod { name: "ecdh-sha2-nistp384", group: KexGroup::Curve(&ECDH_P384), digest: &SHA384 },
    // RFC 8268 and RFC 4253 section 8.
    KexMethod { name: "diffie-hellman-group14-sha256", group: KexGroup::Prime(GROUP_14), digest: &SHA256 },
    KexMethod {
        name: "diffie-hellman-group14-sha1",
        group: KexGroup::Prime(GROUP_14),
        digest: &SHA1_FOR_LEGACY_USE_ONLY,
    },
    KexMethod {
        name: "diffie-hellman-group1-sha1",
        group: KexGroup::Prime(GROUP_1),
        digest: &SHA1_FOR_LEGACY_USE_ONLY,
    },
];

/// Prime of RFC 2409 section 6.2, 1024 bits.
const GROUP_1: &str = "\
    ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd\
    ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed\
    ee386bfb5a899fa5ae9f24117c4b1fe649286651ece65381ffffffffffffffff";

/// Prime of RFC 3526 section 3, 2048 bits.
const GROUP_14: &str = "\
    ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd\
    ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed\
    ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f\
    83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b\
    e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510\
    15728e5a8aacaa68ffffffffffffffff";

/// Length of the exponent in bytes: twice the strength of the larger group.
const EXPONENT: usize = 32;

/// Own half of an agreement.
pub(super) struct KexKeyPair {
    secret: KexSecret,
    /// Public value, as it is sent and signed.
    pub(super) public: Vec<u8>,
}

enum KexSecret {
    Curve(EphemeralPrivateKey),
    Prime { exponent: BigUint, prime: BigUint },
}

/// Leaves out the secret.
impl fmt::Debug for KexKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KexKeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

impl KexMethod {
    /// Returns the first method that a server's list contains.
    pub(super) fn of(offered: &[u8]) -> Option<&'static Self> {
        METHODS.iter().find(|method| is_among(method.name, offered))
    }

    /// Starts an agreement; none if the system has no random numbers.
    pub(super) fn begin(&self) -> Option<KexKeyPair> {
        let random = SystemRandom::new();
        match self.group {
            KexGroup::Curve(curve) => {
                let secret = EphemeralPrivateKey::generate(curve, &random).ok()?;
                let public = secret.compute_public_key().ok()?.as_ref().to_vec();
                Some(KexKeyPair { secret: KexSecret::Curve(secret), public })
            }
            KexGroup::Prime(digits) => {
                let mut chance = [0; EXPONENT];
                random.fill(&mut chance).ok()?;
                let prime = BigUint::parse_bytes(digits.as_bytes(), 16)?;
                let exponent = BigUint::from_bytes_be(&chance);
                let public = positive(&BigUint::from(2_u8).modpow(&exponent, &prime).to_bytes_be());
                Some(KexKeyPair { secret: KexSecret::Prime { exponent, prime }, public })
            }
        }
    }
}

impl KexKeyPair {
    /// Returns the shared secret as a positive number, as it is signed; none if the server's public value is
    /// invalid.
    pub(super) fn agree(self, public: &[u8]) -> Option<Vec<u8>> {
        match self.secret {
            KexSecret::Curve(secret) => {
                let peer = UnparsedPublicKey::new(secret.algorithm(), public);
                agreement::agree_ephemeral(secret, &peer, positive).ok()
            }
            KexSecret::Prime { exponent, prime } => {
                let one = BigUint::from(1_u8);
                let public = BigUint::from_bytes_be(public);
                let is_within = public > one && public < &prime - &one;
                is_within.then(|| positive(&public.modpow(&exponent, &prime).to_bytes_be()))
            }
        }
    }
}

/// Encodes a positive number as RFC 4251 section 5 does: without leading zeros, except for one if it would be
/// negative.
pub(super) fn positive(octets: &[u8]) -> Vec<u8> {
    let digits = without_zeros(octets);
    let sign = digits.first().is_some_and(|first| *first >= 0x80);
    let mut number = Vec::with_capacity(digits.len() + 1);
    number.extend(sign.then_some(0));
    number.extend_from_slice(digits);
    number
}

/// Returns a number without leading zeros.
pub(super) fn without_zeros(octets: &[u8]) -> &[u8] {
    let first = octets.iter().position(|octet| *octet != 0).unwrap_or(octets.len());
    octets.get(first..).unwrap_or_default()
}

/// True if a comma-separated list contains a name.
pub(super) fn is_among(name: &str, list: &[u8]) -> bool {
    list.split(|octet| *octet == b',').any(|other| other == name.as_bytes())
}
