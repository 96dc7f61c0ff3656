//! One connection to one server.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::AsyncConnectionConfig;
use deadpool_redis::redis::aio::{MultiplexedConnection, PubSub};
use tokio::task::AbortHandle;

use super::address::{Address, Login};
use super::fault::{self, of_redis, silent};
use super::tls::Tls;
use crate::store::Result;

/// How servers are reached. `Debug` shows no secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) login: Login,
    /// `None` for connections without TLS.
    pub(crate) tls: Option<Arc<Tls>>,
}

/// A connection. Clones of what it derefs to end with it.
pub(crate) struct Connection {
    connection: MultiplexedConnection,
    /// The task that reads and writes, if the connection has not started it by itself.
    driver: Option<AbortHandle>,
}

impl Deref for Connection {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.connection
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Otherwise the task would wait for the answers of a silent server.
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

/// A connection. `timeout` bounds connecting, and each answer later.
///
/// # Errors
/// [`Unavailable`](crate::store::Error::Unavailable), or
/// [`Misconfigured`](crate::store::Error::Misconfigured) if the login is refused, or TLS fails.
pub(crate) async fn connect(
    at: &Address,
    access: &Access,
    timeout: Duration,
) -> Result<Connection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    let open = async {
        let Some(tls) = &access.tls else {
            let client = access.login.client(at)?;
            let connected = client.get_multiplexed_async_connection_with_config(&config).await;
            let connection = connected.map_err(|error| of_redis(&error))?;
            return Ok(Connection { connection, driver: None });
        };
        let stream = tls.connect(at, timeout).await?;
        let connected =
            MultiplexedConnection::new_with_config(access.login.settings(), stream, config).await;
        let (connection, driver) = connected.map_err(|error| of_redis(&error))?;
        Ok(Connection { connection, driver: Some(tokio::spawn(driver).abort_handle()) })
    };
    let connected = tokio::time::timeout(timeout, open).await;
    connected.unwrap_or_else(|_| Err(silent())).map_err(|error| fault::at(at, error))
}

/// A connection that can subscribe. It has no timeout after it was made.
///
/// # Errors
/// Those of [`connect`].
pub(crate) async fn subscriber(at: &Address, access: &Access, timeout: Duration) -> Result<PubSub> {
    let open = async {
        let subscriber = match &access.tls {
            None => access.login.client(at)?.get_async_pubsub().await,
            Some(tls) => {
                PubSub::new(access.login.settings(), tls.connect(at, timeout).await?).await
            }
        };
        subscriber.map_err(|error| of_redis(&error))
    };
    tokio::time::timeout(timeout, open).await.unwrap_or_else(|_| Err(silent()))
}
