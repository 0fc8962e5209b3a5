//! TLS to a PostgreSQL server. `sslmode` and `sslrootcert` verify the same as in libpq
//! (<https://www.postgresql.org/docs/current/libpq-ssl.html>).

use std::path::{Path, PathBuf};

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::error::DatabaseLocationError;
use crate::tls::{self, ServerCheck, SignatureCheck};

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
        let verifies = self.verification != VerificationLevel::Nothing;
        let (trusted, roots) =
            if verifies { self.authorities()? } else { (Vec::new(), RootCertStore::empty()) };
        let verification = self.verification;
        let check = CertificateCheck { verification, trusted, roots };
        let builder = tls::client(check, SignatureCheck::Verify);
        let builder = builder.map_err(|_| DatabaseLocationError::Certificates)?;
        let config = match (&self.own, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(own), Some(path)) => {
                let chain = tls::certificates(own).map_err(|error| fault("sslcert", own, &error))?;
                let key = tls::private_key(path).map_err(|error| fault("sslkey", path, &error))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| fault("sslkey", path, &error))?
            }
            (Some(_), None) => return Err(DatabaseLocationError::Half("sslkey")),
            (None, Some(_)) => return Err(DatabaseLocationError::Half("sslcert")),
        };
        Ok(PostgresTls { connector: MakeRustlsConnect::new(config), verifies })
    }

    /// Returns the trusted certificates of the URL's file, and a root store with them.
    fn authorities(&self) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), DatabaseLocationError> {
        let Some(path) = &self.authorities else {
            let roots = tls::system_authorities();
            return if roots.is_empty() {
                Err(DatabaseLocationError::Certificates)
            } else {
                Ok((Vec::new(), roots))
            };
        };
        let fault = |error| fault("sslrootcert", path, &error);
        let trusted = tls::certificates(path).map_err(fault)?;
        let roots = tls::authorities(&trusted).map_err(fault)?;
        Ok((trusted, roots))
    }
}

/// Returns the fault of a file that the URL names.
fn fault(name: &'static str, path: &Path, error: &impl ToString) -> DatabaseLocationError {
    DatabaseLocationError::File { name, path: path.to_owned(), why: error.to_string() }
}

/// Check of a server's certificate, as far as the URL requires it.
#[derive(Debug)]
struct CertificateCheck {
    verification: VerificationLevel,
    /// Certificates of `sslrootcert`: if the server presents one of them itself, no other has to sign it.
    trusted: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
}

impl ServerCheck for CertificateCheck {
    fn check(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.verification == VerificationLevel::Nothing {
            return Ok(());
        }
        let certificate = ParsedCertificate::try_from(own)?;
        if self.trusted.contains(own) {
            is_valid(own, now)?;
        } else {
            let known = tls::algorithms().all;
            verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, others, now, known)?;
        }
        if self.verification == VerificationLevel::Host {
            verify_server_name(&certificate, name)?;
        }
        Ok(())
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
