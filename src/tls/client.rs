//! The configuration of connections to servers.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use super::current::Current;
use super::pem::{InvalidFile, Pem};

/// A certificate and its private key, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate, and those between it and an authority.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl ClientIdentity {
    /// An error that names the files.
    pub(super) fn invalid(&self, error: &rustls::Error) -> InvalidFile {
        let certificate = self.certificate.display();
        let what = match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                format!("expected the private key of the certificate in {certificate}")
            }
            _ => format!("cannot be used with the certificate in {certificate}"),
        };
        InvalidFile::new(&self.key, what)
    }
}

/// What a client trusts, and how it identifies itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificates of the authorities; `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate.
    pub identity: Option<ClientIdentity>,
    /// The name that the server's certificate must have, instead of the host of the address.
    pub server_name: Option<ServerName<'static>>,
}

/// What the files held.
#[derive(Debug, PartialEq, Eq)]
struct ClientFileContents {
    ca: Option<Pem>,
    identity: Option<(Pem, Pem)>,
}

/// A client's side of TLS. Reads its files again on request.
#[derive(Debug)]
pub struct TlsClient {
    files: ClientFiles,
    current: Current<ClientFileContents, ClientConfig>,
}

impl TlsClient {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub fn new(files: ClientFiles) -> Result<Self, InvalidFile> {
        let current = Current::new(read(&files)?, |contents| configure(&files, contents))?;
        Ok(Self { files, current })
    }

    /// The files.
    pub fn files(&self) -> &ClientFiles {
        &self.files
    }

    /// Reads the files again. Returns whether they changed.
    ///
    /// # Errors
    /// Names the file that cannot be used; the old configuration stays.
    pub fn read_again(&self) -> Result<bool, InvalidFile> {
        let configure = |contents: &ClientFileContents| configure(&self.files, contents);
        self.current.replace(read(&self.files)?, configure)
    }

    /// The configuration, without application protocols.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.current.config()
    }

    /// The name that the certificate of the server at `host` must have; `None` if `host` is no name
    /// of a server.
    pub fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        self.files.server_name.clone().or_else(|| ServerName::try_from(host.to_owned()).ok())
    }
}

fn read(files: &ClientFiles) -> Result<ClientFileContents, InvalidFile> {
    let ca = files.ca.as_deref().map(Pem::read).transpose()?;
    let pair = |identity: &ClientIdentity| {
        Ok((Pem::read(&identity.certificate)?, Pem::read(&identity.key)?))
    };
    Ok(ClientFileContents { ca, identity: files.identity.as_ref().map(pair).transpose()? })
}

fn configure(
    files: &ClientFiles,
    contents: &ClientFileContents,
) -> Result<ClientConfig, InvalidFile> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions");
    let builder = match &contents.ca {
        Some(ca) => builder.with_root_certificates(roots(ca)?),
        None => builder.with_platform_verifier().map_err(|error| {
            InvalidFile::new(
                "the system's root certificates".as_ref(),
                format!("cannot be read: {error}"),
            )
        })?,
    };
    match (&files.identity, &contents.identity) {
        (Some(identity), Some((certificate, key))) => builder
            .with_client_auth_cert(certificate.certificates()?, key.key()?)
            .map_err(|error| identity.invalid(&error)),
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn roots(ca: &Pem) -> Result<RootCertStore, InvalidFile> {
    let mut roots = RootCertStore::empty();
    for certificate in ca.certificates()? {
        roots
            .add(certificate)
            .map_err(|_| ca.invalid("expected certificates, got one that cannot be read"))?;
    }
    Ok(roots)
}
