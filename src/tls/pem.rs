//! Reads certificates and keys from PEM files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The longest file, in bytes. The authorities of a system take a quarter of this.
const LONGEST: u64 = 1 << 20;

/// A file that cannot be used. The text names the file and never shows its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", .path.display())]
pub struct InvalidFile {
    path: PathBuf,
    what: String,
}

impl InvalidFile {
    pub(super) fn new(path: &Path, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), what: what.into() }
    }
}

/// The content of a file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pem {
    path: PathBuf,
    text: Vec<u8>,
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pem").field(&self.path).finish()
    }
}

impl Pem {
    pub(super) fn read(path: &Path) -> Result<Self, InvalidFile> {
        let mut text = Vec::new();
        let unread = |error: io::Error| InvalidFile::new(path, format!("cannot be read: {error}"));
        let file = File::open(path).map_err(unread)?;
        file.take(LONGEST + 1).read_to_end(&mut text).map_err(unread)?;
        if text.len() as u64 > LONGEST {
            return Err(InvalidFile::new(path, "expected a PEM file of at most 1 MiB"));
        }
        Ok(Self { path: path.to_owned(), text })
    }

    /// An error about this file.
    pub(super) fn invalid(&self, what: impl Into<String>) -> InvalidFile {
        InvalidFile::new(&self.path, what)
    }

    /// Its certificates, at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, InvalidFile> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        let found = found.map_err(|_| self.invalid("expected PEM, got text that is damaged"))?;
        if found.is_empty() {
            return Err(
                self.invalid("expected PEM with a certificate (-----BEGIN CERTIFICATE-----)")
            );
        }
        Ok(found)
    }

    /// Its first private key.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, InvalidFile> {
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|_| {
            self.invalid(
                "expected PEM with a private key that is not encrypted \
                 (-----BEGIN PRIVATE KEY-----)",
            )
        })
    }
}
