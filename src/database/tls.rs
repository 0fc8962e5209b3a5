//! TLS to a PostgreSQL server. `sslmode` and `sslrootcert` verify the same as in libpq
//! (<https://www.postgresql.org/docs/current/libpq-ssl.html>).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::error::DatabaseLocationError;

/// TLS settings of a connection.
#[derive(Clone)]
pub(crate) struct PostgresTls {
    pub(super) connector: MakeRustlsConnect,
    /// True if the server proves that it is the one in the URL, or that a trusted authority has certified
    /// it.
    pub(super) verifies: bool,
}

/// The extent to which a server's certificate is verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum VerificationLevel {
    /// Nothing: TLS only protects from eavesdropping.
    #[default]
    Nothing,
    /// A trusted authority has signed it: `verify-ca`, and `require` with `sslrootcert`.
    Authority,
    /// Also, it is valid for the host in the URL: `verify-full`.
    Host,
}

/// PEM files in a URL, by libpq's names, and the extent of verification.
#[derive(Debug, Clone, Default)]
pub(crate) struct PostgresTlsOptions {
    pub(crate) verification: VerificationLevel,
    /// `sslrootcert`: the trusted authorities; the system's if absent.
    pub(crate) authorities: Option<PathBuf>,
    /// `sslcert`: the client's chain, its own certificate first.
    pub(crate) own: Option<PathBuf>,
    /// `sslkey`: the key of the client's certificate.
    pub(crate) key: Option<PathBuf>,
}

impl PostgresTlsOptions {
    /// Returns the TLS settings of the URL.
    ///
    /// It reads the files, so it must run before the process is confined.
    ///
    /// # Errors
    /// A file is unusable, or there are no trusted authorities.
    pub(crate) fn tls(&self) -> Result<PostgresTls, DatabaseLocationError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|_| DatabaseLocationError::Certificates)?;
        let verifies = self.verification != VerificationLevel::Nothing;
        let (trusted, roots) =
            if verifies { self.authorities()? } else { (Vec::new(), RootCertStore::empty()) };
        let verifier = CertificateVerifier { provider, verification: self.verification, trusted, roots };
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let config = match (&self.own, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(own), Some(path)) => {
                let fault =
                    |why: String| DatabaseLocationError::File { name: "sslkey", path: path.clone(), why };
                let chain = read("sslcert", own)?;
                let key = PrivateKeyDer::from_pem_file(path).map_err(|error| fault(reason(error)))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| fault(error.to_string()))?
            }
            (Some(_), None) => return Err(DatabaseLocationError::Half("sslkey")),
            (None, Some(_)) => return Err(DatabaseLocationError::Half("sslcert")),
        };
        Ok(PostgresTls { connector: MakeRustlsConnect::new(config), verifies })
    }

    /// Returns the trusted certificates of the URL's file, and a root store with them.
    fn authorities(&self) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), DatabaseLocationError> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.authorities else {
            let (known, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return if known == 0 {
                Err(DatabaseLocationError::Certificates)
            } else {
                Ok((Vec::new(), roots))
            };
        };
        let trusted = read("sslrootcert", path)?;
        for certificate in &trusted {
            let fault = |_| DatabaseLocationError::File {
                name: "sslrootcert",
                path: path.clone(),
                why: "it holds a certificate that cannot be read: use X.509 in PEM".to_owned(),
            };
            roots.add(certificate.clone()).map_err(fault)?;
        }
        Ok((trusted, roots))
    }
}

/// Returns the certificates of a file, at least one.
fn read(name: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, DatabaseLocationError> {
    let fault = |why: String| DatabaseLocationError::File { name, path: path.to_owned(), why };
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| fault(reason(error)))?;
    if certificates.is_empty() { Err(fault("no certificate in PEM".to_owned())) } else { Ok(certificates) }
}

/// Returns the fault of a file, worded like other files' faults.
fn reason(error: pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Verifies a server's certificate as far as the URL requires.
#[derive(Debug)]
struct CertificateVerifier {
    provider: Arc<CryptoProvider>,
    verification: VerificationLevel,
    /// Certificates of `sslrootcert`: if the server presents one of them itself, no other has to sign it.
    trusted: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.verification == VerificationLevel::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if self.trusted.contains(end_entity) {
            is_valid(end_entity, now)?;
        } else {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                &self.roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        if self.verification == VerificationLevel::Host {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks the validity of a certificate that no other one signs.
fn is_valid(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let (now, validity) = (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), parsed.validity());
    if now < validity.not_before.timestamp() {
        Err(CertificateError::NotValidYet)
    } else if now > validity.not_after.timestamp() {
        Err(CertificateError::Expired)
    } else {
        Ok(())
    }
}
