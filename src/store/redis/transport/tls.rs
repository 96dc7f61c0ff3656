//! Connections over TLS.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::{Address, tcp};
use super::fault::silent;
use super::handshake::of_handshake;
use crate::dns::Dns;
use crate::store::{Error, Result};
use crate::tls::{ClientFiles, TlsClient};

/// TLS to all servers of a store. Each connection reads the files again, so that renewed
/// certificates need no restart.
#[derive(Debug)]
pub(crate) struct StoreTls {
    client: TlsClient,
    /// What was last wrong with the files. It is logged once.
    warned: Mutex<Option<String>>,
}

impl StoreTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if a file cannot be used.
    pub(crate) fn new(files: ClientFiles) -> Result<Arc<Self>> {
        let client = TlsClient::new(files)
            .map_err(|error| Error::Misconfigured(format!("store.redis.tls: {error}")))?;
        Ok(Arc::new(Self { client, warned: Mutex::default() }))
    }

    /// A connection to a server whose certificate was verified.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if the handshake shows that a setting is wrong, or a certificate;
    /// otherwise [`Error::Unavailable`].
    pub(crate) async fn connect(
        self: &Arc<Self>,
        at: &Address,
        dns: &Dns,
        timeout: Duration,
    ) -> Result<TlsStream<TcpStream>> {
        // Shorter than the timeouts of the callers, so that the error of this one is seen.
        let deadline = Instant::now() + timeout * 9 / 10;
        self.read_files_again().await;
        let name = self.client.name_of(&at.host).ok_or_else(|| {
            Error::Misconfigured(
                "TLS needs a server's name: set store.redis.tls.server_name".into(),
            )
        })?;
        let tcp = timeout_at(deadline, tcp(at, dns)).await.map_err(|_| silent())?;
        let tcp = tcp.map_err(|error| Error::Unavailable(error.to_string()))?;
        let connector = TlsConnector::from(self.client.config());
        match timeout_at(deadline, connector.connect(name.clone(), tcp)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(of_handshake(&error, &name.to_str())),
            Err(_) => Err(Error::Unavailable(
                "TLS failed: no answer to the handshake in time; a port without TLS is reached by \
                 redis://"
                    .into(),
            )),
        }
    }

    /// Files that cannot be used leave the old ones in force.
    async fn read_files_again(self: &Arc<Self>) {
        let tls = self.clone();
        let read = tokio::task::spawn_blocking(move || tls.client.read_again()).await;
        let Ok(read) = read else { return };
        let now = read.as_ref().err().map(ToString::to_string);
        let before = std::mem::replace(
            &mut *self.warned.lock().unwrap_or_else(PoisonError::into_inner),
            now,
        );
        match read {
            Err(error) if before.as_deref() != Some(&*error.to_string()) => tracing::error!(
                %error,
                "store.redis.tls: {error}; what was read before stays in force"
            ),
            Ok(true) => tracing::info!("The files of store.redis.tls were read again"),
            _ => {}
        }
    }
}
