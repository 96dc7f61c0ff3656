//! What a TLS error means, in a few words. The library's texts hold names of hosts and times.

use rustls::{AlertDescription, CertificateError as Certificate, Error};

/// The cause of an error of a client.
pub fn reason(error: &Error) -> &'static str {
    match error {
        Error::InvalidMessage(_) => "the answer is not TLS",
        Error::InvalidCertificate(certificate) => match certificate {
            // The signature is bad if a trusted authority has the name of the issuer.
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                "the certificate's issuer is not trusted"
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                "the certificate has expired"
            }
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                "the certificate is not valid yet"
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "the certificate is for another host"
            }
            Certificate::Revoked => "the certificate was revoked",
            _ => "the certificate is not trusted",
        },
        Error::PeerIncompatible(_) => "no version or cipher in common",
        Error::AlertReceived(alert) => of_alert(*alert),
        _ => "protocol error",
    }
}

/// The meaning of an alert of the server.
fn of_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateRequired => "the server requires a client certificate",
        AlertDescription::UnknownCA => {
            "the server does not trust the issuer of the client certificate"
        }
        AlertDescription::CertificateExpired => {
            "the server says that the client certificate has expired"
        }
        // The signature is bad if the server trusts another authority of that name.
        AlertDescription::DecryptError
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked => "the server refused the client certificate",
        _ => "the server refused the handshake",
    }
}
