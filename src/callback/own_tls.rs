//! TLS of one service: its authority, its client certificate, and connections of its own.
//!
//! # Invariants
//!
//! - A connection with a client certificate carries one service. No other service uses the pool.
//! - New files mean a new pool: no call that begins later uses a connection of the old ones.

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::pair::Pair;
use crate::tls::{ClientFiles, InvalidFile, TlsClient};

/// TLS of one service. Reads its files again on request.
#[derive(Debug)]
pub struct ServiceTls {
    client: TlsClient,
    current: RwLock<Arc<Connections>>,
}

/// What the files held, and the connections that were made with it.
pub(super) struct Connections {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
    pair: OnceLock<Pair>,
}

impl ServiceTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub(super) fn new(files: ClientFiles) -> Result<Self, InvalidFile> {
        let client = TlsClient::new(files)?;
        let current = RwLock::new(Arc::new(Connections::of(&client)));
        Ok(Self { client, current })
    }

    /// The files.
    pub(super) fn files(&self) -> &ClientFiles {
        self.client.files()
    }

    /// Reads the files again, for calls that begin from now on. Returns whether they changed. It
    /// blocks.
    ///
    /// # Errors
    /// Names the file that cannot be used; what was read before stays in force.
    pub fn read_again(&self) -> Result<bool, InvalidFile> {
        let has_changed = self.client.read_again()?;
        if has_changed {
            let new = Arc::new(Connections::of(&self.client));
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        }
        Ok(has_changed)
    }

    /// The connections for a call that begins now.
    pub(super) fn connections(&self) -> Arc<Connections> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Connections {
    fn of(client: &TlsClient) -> Self {
        let name = client.files().server_name.clone();
        Self { config: client.config(), name, pair: OnceLock::new() }
    }

    /// The clients, which `make` builds for the first call.
    pub(super) fn pair(
        &self,
        make: impl FnOnce(&ClientConfig, Option<&ServerName<'static>>) -> Pair,
    ) -> &Pair {
        self.pair.get_or_init(|| make(&self.config, self.name.as_ref()))
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}
