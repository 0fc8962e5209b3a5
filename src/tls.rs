//! Set-up of TLS for every server and client: PEM files, trusted authorities, and the library's provider.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

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

/// Returns the algorithms of signatures that the library verifies.
pub fn algorithms() -> WebPkiSupportedAlgorithms {
    ring::default_provider().signature_verification_algorithms
}

/// Returns the library's provider of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Check of a server's certificate by a client.
pub trait ServerCheck: fmt::Debug + Send + Sync {
    /// Checks the certificate of the server `name`, with the other certificates that it presents.
    ///
    /// # Errors
    ///
    /// The handshake fails with this error.
    fn check(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error>;
}

/// Treatment of a server's proof that it has the key of its certificate.
#[derive(Debug, Clone, Copy)]
pub enum SignatureCheck {
    /// Verify it.
    Verify,
    /// Accept every one, also by these schemes, which the library does not know.
    Accept(&'static [SignatureScheme]),
}

/// Returns a client's configuration up to its own certificate.
///
/// # Errors
///
/// The library's versions and cipher suites do not fit together.
pub fn client(
    check: impl ServerCheck + 'static,
    signatures: SignatureCheck,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let verifier = Arc::new(ServerVerifier { check, signatures, known: algorithms() });
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier))
}

/// Verifier of all clients.
#[derive(Debug)]
struct ServerVerifier<C> {
    check: C,
    signatures: SignatureCheck,
    known: WebPkiSupportedAlgorithms,
}

impl<C: ServerCheck> ServerCertVerifier for ServerVerifier<C> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check.check(end_entity, intermediates, server_name, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.signatures {
            SignatureCheck::Verify => verify_tls12_signature(message, certificate, signed, &self.known),
            SignatureCheck::Accept(_) => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.signatures {
            SignatureCheck::Verify => verify_tls13_signature(message, certificate, signed, &self.known),
            SignatureCheck::Accept(_) => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.known.supported_schemes();
        if let SignatureCheck::Accept(further) = self.signatures {
            schemes.extend(further);
        }
        schemes
    }
}
