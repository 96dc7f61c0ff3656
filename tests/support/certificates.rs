//! An authority of a test, and the certificates that it issues, in PEM files.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

/// An authority, and the folder of its files.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Valid {
    Now,
    /// It has expired.
    Past,
}

impl Authority {
    /// An authority with a key of its own. All have the same name.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "Authority of a test");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, folder: tempfile::tempdir().unwrap() };
        std::fs::write(authority.ca(), authority.issuer.pem()).unwrap();
        authority
    }

    /// The file of its own certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for these hosts. Its files begin with `stem`; those of an earlier certificate
    /// with the same stem are replaced at once.
    pub(crate) fn issue(&self, stem: &str, hosts: &[&str], valid: Valid) -> Pair {
        let pair = Pair {
            certificate: self.folder.path().join(format!("{stem}.pem")),
            key: self.folder.path().join(format!("{stem}-key.pem")),
        };
        self.issue_into(&pair, hosts, valid);
        pair
    }

    /// A certificate in the files of another.
    pub(crate) fn issue_into(&self, pair: &Pair, hosts: &[&str], valid: Valid) {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        if valid == Valid::Past {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        replace(&pair.certificate, &certificate.pem());
        replace(&pair.key, &key.serialize_pem());
    }
}

/// Replaces a file as a whole.
pub(crate) fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}
