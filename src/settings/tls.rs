//! `[http.tls]`: TLS on the port. `[store.redis.tls]`: how delayd connects to a server over TLS.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustls::pki_types::ServerName;
use serde::{Deserialize, Deserializer};

use super::check::Wrong;
use super::error::dotted;
use super::value::unless_empty;
use super::{Settings, StoreKind};
use crate::tls::{ClientFiles, ClientIdentity};

/// What a client trusts, and how it identifies itself. Empty texts mean that a value is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTls {
    /// The PEM file of the authorities; without it, those of the system count.
    #[serde(deserialize_with = "pem_file")]
    pub ca: Option<PathBuf>,
    /// The PEM file of the client certificate.
    #[serde(deserialize_with = "pem_file")]
    pub client_cert: Option<PathBuf>,
    /// The PEM file of its private key.
    #[serde(deserialize_with = "pem_file")]
    pub client_key: Option<PathBuf>,
    /// The name that the server's certificate must have, instead of the host of the address.
    #[serde(deserialize_with = "unless_empty")]
    pub server_name: Option<CertificateName>,
}

/// The section `[http.tls]`: both files, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// The PEM file of the certificate.
    #[serde(deserialize_with = "pem_file")]
    pub cert: Option<PathBuf>,
    /// The PEM file of its private key.
    #[serde(deserialize_with = "pem_file")]
    pub key: Option<PathBuf>,
}

impl ServerTls {
    /// The files to read; `None` without TLS.
    pub fn files(&self) -> Option<ClientIdentity> {
        let (certificate, key) = self.cert.clone().zip(self.key.clone())?;
        Some(ClientIdentity { certificate, key })
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        pair("cert", &self.cert, "key", &self.key, &["http", "tls"])
    }
}

/// Refuses a certificate without its key, and the reverse.
fn pair(
    cert: &str,
    certificate: &Option<PathBuf>,
    key: &str,
    private: &Option<PathBuf>,
    path: &[&str],
) -> Result<(), Wrong> {
    let (given, missing) = match (certificate, private) {
        (Some(_), None) => (cert, key),
        (None, Some(_)) => (key, cert),
        _ => return Ok(()),
    };
    let path = path.iter().chain([&given]).map(|part| (*part).to_owned()).collect();
    Err(Wrong { path, reason: format!("goes only with {missing}") })
}

impl Settings {
    /// The files of the certificates with which delayd identifies itself, by the settings that name
    /// them.
    pub fn own_certificates(&self) -> Vec<(String, &Path)> {
        let port = [(dotted(&["http", "tls", "cert"]), &self.http.tls.cert)];
        let redis = (self.store.kind == StoreKind::Redis)
            .then(|| (dotted(&["store", "redis", "tls", "client_cert"]), &self.store.redis.tls));
        let services = self.services.iter().map(|(name, service)| {
            (dotted(&["services", name, "tls", "client_cert"]), &service.tls)
        });
        let clients = redis.into_iter().chain(services);
        let clients = clients.map(|(key, tls)| (key, &tls.client_cert));
        let all = port.into_iter().chain(clients);
        all.filter_map(|(key, path)| Some((key, path.as_deref()?))).collect()
    }
}

/// The name of a host, or an IP address, as a certificate has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateName(ServerName<'static>);

impl FromStr for CertificateName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let name = ServerName::try_from(text.to_owned());
        name.map(Self).map_err(|_| "must be a host name or an IP address, without a port")
    }
}

/// The path of a PEM file; an empty text is `None`. A text that looks like PEM is refused, and not
/// shown.
pub(super) fn pem_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    unless_empty::<PemFile, D>(from).map(|file| file.map(|file| file.0))
}

struct PemFile(PathBuf);

impl FromStr for PemFile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text.contains("-----BEGIN") || text.contains('\n') {
            true => Err("must be the path of a PEM file, not its content"),
            false => Ok(Self(text.into())),
        }
    }
}

impl ClientTls {
    /// The name of a key that is set.
    pub(super) fn some_key(&self) -> Option<&'static str> {
        let keys = [
            ("ca", self.ca.is_some()),
            ("client_cert", self.client_cert.is_some()),
            ("client_key", self.client_key.is_some()),
            ("server_name", self.server_name.is_some()),
        ];
        keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
    }

    /// The files to read.
    pub fn files(&self) -> ClientFiles {
        let pair = self.client_cert.clone().zip(self.client_key.clone());
        ClientFiles {
            ca: self.ca.clone(),
            identity: pair.map(|(certificate, key)| ClientIdentity { certificate, key }),
            server_name: self.server_name.clone().map(|name| name.0),
        }
    }

    /// Validates the section at `path`.
    pub(super) fn check(&self, path: &[&str]) -> Result<(), Wrong> {
        pair("client_cert", &self.client_cert, "client_key", &self.client_key, path)
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_str())
    }
}
