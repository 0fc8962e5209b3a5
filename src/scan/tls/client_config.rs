//! TLS client configuration: that of rustls, for any server.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::tls;

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
    let mut schemes = tls::provider().signature_verification_algorithms.supported_schemes();
    schemes.extend(UNTRIED);
    let mut config = tls::client(Arc::new(AcceptAnyServer { schemes }))?.with_no_client_auth();
    // A resumed session shows no certificate.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Verifier that accepts any server.
#[derive(Debug)]
struct AcceptAnyServer {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for AcceptAnyServer {
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
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
