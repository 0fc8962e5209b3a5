//! Certificate authorities, and the check of servers' certificate chains.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ahash::{AHashMap, RandomState};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

use crate::banner::tls;
use crate::event::{CertificateFacts, Timestamp};
use crate::terms::CertificateVerification;
use crate::tls::PemFileError;

/// Limit of cached chains.
const REMEMBERED: usize = 1024;

/// Trusted certificate authorities.
#[derive(Debug, Clone)]
pub struct TrustedAuthorities {
    roots: RootCertStore,
}

/// Error of reading a file of authorities.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct AuthorityError {
    /// Path of the file.
    path: PathBuf,
    /// Reason.
    error: PemFileError,
}

impl TrustedAuthorities {
    /// Returns the authorities of this system, perhaps none. The first call reads them, so that it must come
    /// before the confinement.
    pub fn of_system() -> Arc<Self> {
        static SYSTEM: OnceLock<Arc<TrustedAuthorities>> = OnceLock::new();
        Arc::clone(SYSTEM.get_or_init(|| Arc::new(Self { roots: crate::tls::system_authorities() })))
    }

    /// Reads the authorities of a PEM file.
    ///
    /// # Errors
    ///
    /// See [`AuthorityError`].
    pub fn read(path: &Path) -> Result<Self, AuthorityError> {
        let read = || crate::tls::authorities(&crate::tls::certificates(path)?);
        let roots = read().map_err(|error| AuthorityError { path: path.to_owned(), error })?;
        Ok(Self { roots })
    }

    /// True if a certificate is one of the authorities.
    fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut alone = RootCertStore::empty();
        let anchor = alone.add(certificate.clone().into_owned()).ok().and(alone.roots.first());
        anchor.is_some_and(|anchor| self.roots.roots.contains(anchor))
    }

    /// True if there are no authorities.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }
}

/// Certificates of a chain, and the result of their check.
#[derive(Debug)]
pub(in super::super) struct ChainVerification {
    chain: Vec<CertificateDer<'static>>,
    name: Option<ServerName<'static>>,
    /// Certificates, the server's own first.
    pub(in super::super) certificates: Vec<CertificateFacts>,
    /// Results of the check.
    pub(in super::super) verification: Vec<CertificateVerification>,
}

/// Checks chains against authorities and names, with a cache: many servers of a scan share a chain.
#[derive(Debug)]
pub(in super::super) struct ChainVerifier {
    authorities: Arc<TrustedAuthorities>,
    algorithms: WebPkiSupportedAlgorithms,
    hasher: RandomState,
    known: AHashMap<u64, ChainVerification>,
}

impl ChainVerifier {
    pub(in super::super) fn new(authorities: Arc<TrustedAuthorities>) -> Self {
        Self {
            authorities,
            algorithms: crate::tls::algorithms(),
            hasher: RandomState::new(),
            known: AHashMap::new(),
        }
    }

    /// Checks `chain` for `name`, if there is one. A cached result has the time of the first check.
    pub(in super::super) fn appraise(
        &mut self,
        chain: &[CertificateDer<'static>],
        name: Option<&ServerName<'static>>,
        now: Timestamp,
    ) -> &ChainVerification {
        let key = self.hasher.hash_one((chain, name));
        let is_same = |known: &ChainVerification| known.chain == chain && known.name.as_ref() == name;
        if !self.known.get(&key).is_some_and(is_same) {
            self.known.remove(&key);
        }
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        let Self { authorities, algorithms, known, .. } = self;
        known
            .entry(key)
            .or_insert_with(|| ChainVerification::new(chain, name, (authorities, algorithms), now))
    }
}

impl ChainVerification {
    fn new(
        chain: &[CertificateDer<'static>],
        name: Option<&ServerName<'static>>,
        by: (&TrustedAuthorities, &WebPkiSupportedAlgorithms),
        now: Timestamp,
    ) -> Self {
        let certificates = tls::chain(chain.iter().map(AsRef::as_ref));
        let verification = match (chain.split_first(), certificates.first()) {
            (Some((own, others)), Some(told)) => verify((own, told), others, name, by, now),
            _ => Vec::new(),
        };
        Self { chain: chain.to_vec(), name: name.cloned(), certificates, verification }
    }
}

/// Returns all faults of a chain, or that it is valid.
fn verify(
    (own, told): (&CertificateDer<'_>, &CertificateFacts),
    others: &[CertificateDer<'_>],
    name: Option<&ServerName<'_>>,
    (authorities, algorithms): (&TrustedAuthorities, &WebPkiSupportedAlgorithms),
    now: Timestamp,
) -> Vec<CertificateVerification> {
    let Ok(parsed) = ParsedCertificate::try_from(own) else { return vec![CertificateVerification::Broken] };
    let time = UnixTime::since_unix_epoch(Duration::from_nanos(now.as_nanos()));
    let roots = &authorities.roots;
    let anchored = verify_server_cert_signed_by_trust_anchor(&parsed, roots, others, time, algorithms.all);
    let mut faults = Vec::new();
    if let Err(error) = anchored {
        let is_over = told.expires < i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        // The library rejects times before 1970; its error about such a certificate has no other meaning.
        let is_unread = !told.not_before.is_empty() && told.not_before.as_str() < "1970";
        let fault = match fault(&error) {
            _ if is_over => CertificateVerification::Expired,
            CertificateVerification::Broken if is_unread => CertificateVerification::Unusable,
            fault => fault,
        };
        let of_time =
            matches!(fault, CertificateVerification::Expired | CertificateVerification::NotYetValid);
        // A self-signed certificate has no other issuer to report, and needs none if it is trusted.
        faults.extend((of_time || !told.self_signed).then_some(fault));
        faults.extend(
            (told.self_signed && !authorities.has(own)).then_some(CertificateVerification::SelfSigned),
        );
    }
    if name.is_some_and(|name| verify_server_name(&parsed, name).is_err()) {
        faults.push(CertificateVerification::WrongName);
    }
    if faults.is_empty() { vec![CertificateVerification::Valid] } else { faults }
}

/// Translates the library's error.
fn fault(error: &Error) -> CertificateVerification {
    let Error::InvalidCertificate(error) = error else { return CertificateVerification::Unusable };
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            CertificateVerification::Expired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            CertificateVerification::NotYetValid
        }
        CertificateError::UnknownIssuer => CertificateVerification::UnknownIssuer,
        CertificateError::BadSignature => CertificateVerification::BadSignature,
        CertificateError::BadEncoding => CertificateVerification::Broken,
        _ => CertificateVerification::Unusable,
    }
}
