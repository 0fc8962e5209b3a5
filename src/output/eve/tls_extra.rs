//! Fields of a TLS handshake that EVE lacks.

use serde::Serialize;

use crate::event::{CertificateFacts, TlsAlert, TlsFacts};

/// Fields of a handshake that EVE lacks.
#[derive(Debug, Serialize)]
pub(super) struct EveHandshake<'a> {
    #[serde(skip_serializing_if = "<[u16]>::is_empty")]
    groups: &'a [u16],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ech: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retried: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<EveTlsAlert>,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    verification: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[EveCertificate<'_>]>::is_empty")]
    certificates: Vec<EveCertificate<'a>>,
}

/// One of the server's certificates.
#[derive(Debug, Serialize)]
struct EveCertificate<'a> {
    subject: &'a str,
    issuer: &'a str,
    not_after: &'a str,
    key: &'a str,
    key_bits: &'a str,
    signature: &'a str,
    self_signed: bool,
    sha256: &'a str,
}

#[derive(Debug, Serialize)]
struct EveTlsAlert {
    from: &'static str,
    level: &'static str,
    description: &'static str,
}

impl<'a> EveHandshake<'a> {
    pub(super) fn new(facts: &'a TlsFacts) -> Self {
        let client = facts.client.as_ref();
        let certificates = facts.server.iter().flat_map(|server| &server.certificates);
        Self {
            groups: client.map_or(&[], |client| &client.groups),
            ech: client.is_some_and(|client| client.ech),
            retried: facts.retried,
            alert: facts.alert.map(EveTlsAlert::new),
            verification: facts.verification.iter().map(|told| told.name()).collect(),
            certificates: certificates.map(EveCertificate::new).collect(),
        }
    }
}

impl<'a> EveCertificate<'a> {
    fn new(certificate: &'a CertificateFacts) -> Self {
        Self {
            subject: &certificate.subject,
            issuer: &certificate.issuer,
            not_after: &certificate.not_after,
            key: &certificate.key,
            key_bits: &certificate.key_bits,
            signature: &certificate.signature,
            self_signed: certificate.self_signed,
            sha256: &certificate.sha256,
        }
    }
}

impl EveTlsAlert {
    fn new(alert: TlsAlert) -> Self {
        let level = if alert.fatal { "fatal" } else { "warning" };
        Self { from: alert.from.name(), level, description: alert.code.name() }
    }
}
