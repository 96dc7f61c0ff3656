//! TLS: certificates and keys in PEM files, the configurations of rustls that are made of them, and
//! the words for what fails.
//!
//! - [`TlsClient`] connects to servers: Redis, and receivers with an own authority or a client
//!   certificate.
//! - [`TlsServer`] is the port of the service.
//! - [`not_valid`] says whether the certificates of a file have expired.
//! - [`reason()`] names the cause of a rustls error in a few words.
//!
//! # Invariants
//!
//! - No `Debug` and no error shows the content of a file.
//! - Files that changed and cannot be used leave the old configuration in force.

mod client;
mod current;
mod pem;
mod reason;
mod server;
mod validity;

pub use client::{ClientFiles, ClientIdentity, TlsClient};
pub use pem::InvalidFile;
pub use reason::reason;
pub use server::TlsServer;
pub use validity::not_valid;
