//! Whether certificates are valid at a moment.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError as Certificate, Error, RootCertStore};

use super::pem::Pem;

/// Why a certificate of a PEM file is not valid at `now`, in words that follow "one". `None` if all
/// are valid, or if the file cannot be read.
pub fn not_valid(path: &Path, now: UnixTime) -> Option<&'static str> {
    let certificates = Pem::read(path).and_then(|pem| pem.certificates()).ok()?;
    certificates.iter().find_map(|certificate| not_valid_at(certificate, now))
}

/// The verifier looks at the times first, so its other errors do not matter.
fn not_valid_at(certificate: &CertificateDer<'static>, now: UnixTime) -> Option<&'static str> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).ok()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let name = ServerName::try_from("localhost").expect("a constant");
    match verifier.build().ok()?.verify_server_cert(certificate, &[], &name, &[], now) {
        Err(Error::InvalidCertificate(
            Certificate::Expired | Certificate::ExpiredContext { .. },
        )) => Some("that has expired"),
        Err(Error::InvalidCertificate(
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. },
        )) => Some("that is not valid yet"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd,
    };

    use super::*;

    /// 2020-01-01 and 2021-01-01, in seconds since 1970.
    const FROM: u64 = 1_577_836_800;
    const TO: u64 = 1_609_459_200;

    fn of_2020(hosts: &[&str]) -> CertificateParams {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        params
    }

    #[test]
    fn each_certificate_of_a_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("port.pem");
        let check = |pem: &str, at: u64, expected: Option<&str>| {
            std::fs::write(&path, pem).unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(at));
            assert_eq!(not_valid(&path, now), expected, "{at}");
        };
        let mut always = CertificateParams::new(Vec::new()).unwrap();
        always.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(always, KeyPair::generate().unwrap()).unwrap();
        let mut once = of_2020(&[]);
        once.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let old = CertifiedIssuer::self_signed(once, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = of_2020(&["delayd"]);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let leaf = params.signed_by(&key, &authority).unwrap().pem();
        let alone = of_2020(&["delayd"]).self_signed(&key).unwrap().pem();
        for pem in [leaf, alone] {
            check(&pem, FROM - 1, Some("that is not valid yet"));
            check(&pem, FROM + 1, None);
            check(&pem, TO + 1, Some("that has expired"));
        }
        let now = CertificateParams::new(vec!["delayd".to_owned()]).unwrap();
        let now = now.signed_by(&key, &authority).unwrap().pem();
        check(&(now.clone() + &authority.pem()), TO + 1, None);
        check(&(now + &old.pem()), TO + 1, Some("that has expired"));
        check("no PEM", TO + 1, None);
    }
}
