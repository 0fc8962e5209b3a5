//! What TLS of every server and client is set up with: PEM files, trusted authorities, and the library's
//! provider.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, Error, RootCertStore};

/// Fault of a PEM file. The caller names the file.
#[derive(Debug, thiserror::Error)]
pub enum PemFileError {
    /// The file is unreadable.
    #[error("{0}")]
    Read(std::io::Error),
    /// The file is not PEM, or has none of what it should have.
    #[error("{0}")]
    Pem(pem::Error),
    /// The file has no certificate.
    #[error("the file has no certificate (`-----BEGIN CERTIFICATE-----`)")]
    Empty,
    /// A certificate of the file is invalid.
    #[error("certificate {number}: {error}")]
    Certificate {
        /// Number of the certificate, from 1.
        number: usize,
        /// Reason.
        error: Error,
    },
}

impl From<pem::Error> for PemFileError {
    fn from(error: pem::Error) -> Self {
        match error {
            pem::Error::Io(error) => Self::Read(error),
            other => Self::Pem(other),
        }
    }
}

/// Reads the certificates of a file, at least one.
///
/// # Errors
///
/// See [`PemFileError`].
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemFileError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
    if certificates.is_empty() { Err(PemFileError::Empty) } else { Ok(certificates) }
}

/// Reads the private key of a file.
///
/// # Errors
///
/// See [`PemFileError`].
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemFileError> {
    Ok(PrivateKeyDer::from_pem_file(path)?)
}

/// Returns a store of these authorities.
///
/// # Errors
///
/// A certificate is invalid.
pub fn authorities(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, PemFileError> {
    let mut roots = RootCertStore::empty();
    for (number, certificate) in (1..).zip(certificates) {
        roots.add(certificate.clone()).map_err(|error| PemFileError::Certificate { number, error })?;
    }
    Ok(roots)
}

/// Returns the authorities of this system, perhaps none.
pub fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Returns the library's provider of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns a client's configuration up to its certificate; `verifier` decides about servers.
///
/// # Errors
///
/// The library's versions and cipher suites do not fit together.
pub fn client(
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier))
}
