//! TLS of a server: certificates, key, and clients' certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ServerConfig, SupportedProtocolVersion};

use crate::tls;

/// TLS settings of a server; files are in PEM.
#[derive(Debug, Clone)]
pub(super) struct WebTlsSettings<'a> {
    /// Certificate chain, the server's own first.
    pub(super) certificates: &'a Path,
    /// Private key of the first certificate.
    pub(super) key: &'a Path,
    /// Authorities of clients' certificates, and whether one is required.
    pub(super) clients: Option<(&'a Path, ClientCertificates)>,
    /// Enabled versions: TLS 1.2, TLS 1.3.
    pub(super) versions: (bool, bool),
}

/// Requirement of a client's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientCertificates {
    /// Optional.
    IfGiven,
    /// Required.
    Required,
}

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsFileKind {
    /// The server's chain.
    Certificates,
    /// The server's private key.
    Key,
    /// Authorities of clients' certificates.
    ClientAuthorities,
}

/// Error of a file.
#[derive(Debug)]
pub(super) struct TlsFileError {
    /// Kind of the file.
    pub(super) file: TlsFileKind,
    /// Path of the file.
    pub(super) path: PathBuf,
    /// Reason.
    pub(super) why: String,
}

impl TlsFileError {
    fn new(file: TlsFileKind, path: &Path, error: &dyn ToString) -> Self {
        Self { file, path: path.into(), why: error.to_string() }
    }
}

const BOTH: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

impl<'a> WebTlsSettings<'a> {
    /// Loads the files.
    ///
    /// # Errors
    ///
    /// A file is unreadable or invalid.
    pub(super) fn config(&self) -> Result<Arc<ServerConfig>, TlsFileError> {
        let chain = tls::certificates(self.certificates).map_err(|error| self.fault(&error))?;
        let key = tls::private_key(self.key);
        let key = key.map_err(|error| TlsFileError::new(TlsFileKind::Key, self.key, &error))?;
        let chosen = [self.versions.0, self.versions.1];
        let versions: Vec<_> = BOTH.into_iter().zip(chosen).filter(|(_, is_spoken)| *is_spoken).collect();
        let versions: Vec<_> = versions.into_iter().map(|(version, _)| version).collect();
        let builder = ServerConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&versions)
            .map_err(|error| self.fault(&error))?;
        let builder = match self.verifier()? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| self.fault(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Returns a fault of the certificates.
    fn fault(&self, error: &dyn ToString) -> TlsFileError {
        TlsFileError::new(TlsFileKind::Certificates, self.certificates, error)
    }

    fn verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsFileError> {
        let Some((path, wanted)) = self.clients else { return Ok(None) };
        let fault = |error: &dyn ToString| TlsFileError::new(TlsFileKind::ClientAuthorities, path, error);
        let authorities = tls::certificates(path).and_then(|authorities| tls::authorities(&authorities));
        let authorities = Arc::new(authorities.map_err(|error| fault(&error))?);
        let builder = WebPkiClientVerifier::builder_with_provider(authorities, tls::provider());
        let builder = match wanted {
            ClientCertificates::IfGiven => builder.allow_unauthenticated(),
            ClientCertificates::Required => builder,
        };
        builder.build().map(Some).map_err(|error| fault(&error))
    }
}
