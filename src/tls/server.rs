//! The configuration of the port of the service.

use std::sync::Arc;

use rustls::ServerConfig;

use super::client::ClientIdentity;
use super::current::Current;
use super::pem::{InvalidFile, Pem};

/// The server's side of TLS. Reads its files again on request.
#[derive(Debug)]
pub struct TlsServer {
    files: ClientIdentity,
    current: Current<ServerFiles, ServerConfig>,
}

/// The certificate and the key.
type ServerFiles = (Pem, Pem);

impl TlsServer {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that cannot be used, for example a key of another certificate.
    pub fn new(files: ClientIdentity) -> Result<Self, InvalidFile> {
        let current = Current::new(read(&files)?, |contents| configure(&files, contents))?;
        Ok(Self { files, current })
    }

    /// The files.
    pub fn files(&self) -> &ClientIdentity {
        &self.files
    }

    /// Reads the files again, for connections that begin from now on. Returns whether they changed.
    ///
    /// # Errors
    /// Names the file that cannot be used; the old pair stays.
    pub fn read_again(&self) -> Result<bool, InvalidFile> {
        let configure = |contents: &ServerFiles| configure(&self.files, contents);
        self.current.replace(read(&self.files)?, configure)
    }

    /// The configuration of a connection that begins now.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.config()
    }
}

fn read(files: &ClientIdentity) -> Result<ServerFiles, InvalidFile> {
    Ok((Pem::read(&files.certificate)?, Pem::read(&files.key)?))
}

fn configure(
    files: &ClientIdentity,
    (certificate, key): &ServerFiles,
) -> Result<ServerConfig, InvalidFile> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .with_no_client_auth()
        .with_single_cert(certificate.certificates()?, key.key()?)
        .map_err(|error| files.invalid(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
