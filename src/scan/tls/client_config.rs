//! TLS client configuration: that of rustls, for any server.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, Error, SignatureScheme};

use crate::tls::{self, ServerCheck, SignatureCheck};

/// Obsolete or unsupported signature schemes. No signature is verified, so servers that use them can be
/// scanned.
const UNTRIED: [SignatureScheme; 10] = [
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED448,
    // RSA-PSS keys, and Brainpool curves, RFC 8446 section 4.2.3 and RFC 8734.
    SignatureScheme::Unknown(0x0809),
    SignatureScheme::Unknown(0x080a),
    SignatureScheme::Unknown(0x080b),
    SignatureScheme::Unknown(0x081a),
    SignatureScheme::Unknown(0x081b),
    SignatureScheme::Unknown(0x081c),
    SignatureScheme::ECDSA_SHA1_Legacy,
    SignatureScheme::RSA_PKCS1_SHA1,
];

/// Returns the configuration of all connections.
///
/// # Errors
///
/// The library's versions and cipher suites do not fit together.
pub(in super::super) fn client_config() -> Result<Arc<ClientConfig>, Error> {
    let mut config = tls::client(AnyServer, SignatureCheck::Accept(&UNTRIED))?.with_no_client_auth();
    // A resumed session shows no certificate.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Check that accepts any server.
#[derive(Debug)]
struct AnyServer;

impl ServerCheck for AnyServer {
    fn check(
        &self,
        _own: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _now: UnixTime,
    ) -> Result<(), Error> {
        Ok(())
    }
}
