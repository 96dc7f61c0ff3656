//! What an error of TLS means, and which setting may end it.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use deadpool_redis::redis::RedisError;

use crate::store::Error;
use crate::tls::reason;

/// The error of a failed handshake with a server whose certificate must have a name.
pub(crate) fn of_handshake(error: &io::Error, name: &str) -> Error {
    match of_rustls(error) {
        Some(error) => Error::Misconfigured(format!("TLS failed: {}", explained(error, name))),
        None => Error::Unavailable(format!("TLS failed: {error}")),
    }
}

/// The error of a connection that the server ended by a TLS alert. With TLS 1.3, a client learns
/// only after the handshake that its certificate was refused.
pub(crate) fn of_alert(error: &RedisError) -> Option<Error> {
    // The library keeps its causes in an `Arc`.
    let cause: &Arc<dyn std::error::Error + Send + Sync> = error.source()?.downcast_ref()?;
    let error = of_rustls(cause.downcast_ref()?)?;
    Some(Error::Misconfigured(format!("TLS failed: {}", explained(error, ""))))
}

fn of_rustls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The cause, and the setting that may end it.
fn explained(error: &rustls::Error, name: &str) -> String {
    use rustls::{AlertDescription, CertificateError, Error};

    let reason = reason(error);
    match error {
        Error::InvalidMessage(_) => {
            format!("{reason}; a port without TLS is reached by redis://")
        }
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            format!("{reason}; name the issuer in store.redis.tls.ca")
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("{reason} than {name:?}; set store.redis.tls.server_name to a name in it"),
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            format!("{reason}; set store.redis.tls.client_cert and client_key")
        }
        _ => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_handshake_names_the_cause_and_the_setting() {
        let check = |error: rustls::Error, says: &str| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            match of_handshake(&error, "10.0.0.1") {
                Error::Misconfigured(text) => assert_eq!(text, format!("TLS failed: {says}")),
                other => panic!("{other}"),
            }
        };
        let certificate = rustls::Error::InvalidCertificate;
        check(
            certificate(rustls::CertificateError::UnknownIssuer),
            "the certificate's issuer is not trusted; name the issuer in store.redis.tls.ca",
        );
        check(
            certificate(rustls::CertificateError::NotValidForName),
            "the certificate is for another host than \"10.0.0.1\"; \
             set store.redis.tls.server_name to a name in it",
        );
        check(certificate(rustls::CertificateError::Expired), "the certificate has expired");
        check(
            rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
            "the answer is not TLS; a port without TLS is reached by redis://",
        );
        let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(matches!(of_handshake(&closed, ""), Error::Unavailable(_)));
    }
}
