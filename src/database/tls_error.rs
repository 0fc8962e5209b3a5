//! Explanations of TLS errors.

use rustls::{AlertDescription, CertificateError, Error};

/// Explains a TLS error and its fix.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(fault) => of_certificate(fault),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::PeerIncompatible(_) => {
            "the server speaks no TLS that is spoken here: let it speak TLS 1.2 or 1.3".to_owned()
        }
        Error::InvalidMessage(_) => "the server answers with something that is not TLS".to_owned(),
        other => other.to_string(),
    }
}

fn of_certificate(fault: &CertificateError) -> String {
    match fault {
        CertificateError::UnknownIssuer => "no trusted authority has signed the server's certificate: name the CA's \
             certificate by sslrootcert=FILE"
            .to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            let (wanted, shown) = match fault {
                CertificateError::NotValidForNameContext { expected, presented } => {
                    (expected.to_str().into_owned(), presented.join(", "))
                }
                _ => ("that host".to_owned(), String::new()),
            };
            let shown = if shown.is_empty() { "no host (subjectAltName)".to_owned() } else { shown };
            format!(
                "the server's certificate is not for {wanted}, but for {shown}: connect by that name, or use \
                 sslmode=verify-ca, which does not check it"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired: renew it".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: look at the clocks of both machines".to_owned()
        }
        // Its type belongs to a dependency of rustls.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the server's certificate is that of a CA (CA:TRUE): name this very certificate by sslrootcert=FILE, or give \
             the server one with CA:FALSE"
                .to_owned()
        }
        CertificateError::BadSignature => "the signature of the server's certificate is wrong".to_owned(),
        CertificateError::Revoked => "the server's certificate is revoked: renew it".to_owned(),
        _ => "the server's certificate cannot be verified: give the server one that `openssl verify` accepts".to_owned(),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => {
            "the server does not know the CA of the certificate that it was shown: name another one by sslcert=FILE&sslkey=FILE"
                .to_owned()
        }
        AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure => {
            "the server wants a certificate: name one by sslcert=FILE&sslkey=FILE".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            "the server refuses the certificate of sslcert: renew it, or name another one".to_owned()
        }
        other => format!("the server ends TLS by alert {}: its log says why", u8::from(other)),
    }
}
