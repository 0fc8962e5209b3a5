//! TLS to a PostgreSQL server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::inventory::database::place::PlaceError;

/// What makes a connection one by TLS.
pub(in crate::inventory::database) type Tls = MakeRustlsConnect;

/// Files in PEM that a URL names, as libpq calls them.
#[derive(Debug, Clone, Default)]
pub(in crate::inventory::database) struct Certificates {
    /// `sslrootcert`: who signs servers' certificates; the system's authorities where there is none.
    pub(in crate::inventory::database) authorities: Option<PathBuf>,
    /// `sslcert`: the chain that is shown to the server, its own first.
    pub(in crate::inventory::database) own: Option<PathBuf>,
    /// `sslkey`: the key of the first.
    pub(in crate::inventory::database) key: Option<PathBuf>,
}

impl Certificates {
    /// TLS to a server whose certificate is signed by one of the authorities, where it has to be `verified`; else to any, as libpq
    /// does where it is not told to verify: who only listens learns nothing.
    ///
    /// Reads the files: to be made once, before the process is confined to its own.
    ///
    /// # Errors
    /// A file cannot be used, or there are no certificates to verify one by.
    pub(in crate::inventory::database) fn tls(&self, verified: bool) -> Result<Tls, PlaceError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|_| PlaceError::Certificates)?;
        let builder = if verified {
            builder.with_root_certificates(self.authorities()?)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Any(provider)))
        };
        let config = match (&self.own, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(own), Some(path)) => {
                let fault = |why: String| PlaceError::File { name: "sslkey", path: path.clone(), why };
                let chain = read("sslcert", own)?;
                let key = PrivateKeyDer::from_pem_file(path).map_err(|error| fault(reason(error)))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| fault(error.to_string()))?
            }
            (Some(_), None) => return Err(PlaceError::Half("sslkey")),
            (None, Some(_)) => return Err(PlaceError::Half("sslcert")),
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn authorities(&self) -> Result<RootCertStore, PlaceError> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.authorities else {
            let (known, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return if known == 0 { Err(PlaceError::Certificates) } else { Ok(roots) };
        };
        for certificate in read("sslrootcert", path)? {
            let fault = |error: Error| PlaceError::File {
                name: "sslrootcert",
                path: path.clone(),
                why: error.to_string(),
            };
            roots.add(certificate).map_err(fault)?;
        }
        Ok(roots)
    }
}

/// The certificates of a file, one at least.
fn read(name: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, PlaceError> {
    let fault = |why: String| PlaceError::File { name, path: path.to_owned(), why };
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| fault(reason(error)))?;
    if certificates.is_empty() { Err(fault("no certificate in PEM".to_owned())) } else { Ok(certificates) }
}

/// What is wrong with a file, as other files' faults are told.
fn reason(error: pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Takes any certificate whose key the server has.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
