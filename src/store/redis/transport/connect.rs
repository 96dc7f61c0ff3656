//! One connection to one server.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::aio::{MultiplexedConnection, PubSub};
use deadpool_redis::redis::io::AsyncDNSResolver;
use deadpool_redis::redis::{AsyncConnectionConfig, RedisFuture};
use tokio::task::AbortHandle;

use super::address::{Address, Login, tcp};
use super::fault::{self, of_redis, silent};
use super::tls::StoreTls;
use crate::dns::Dns;
use crate::store::{Error, Result};

/// How servers are reached. `Debug` shows no secrets.
#[derive(Clone, Debug)]
pub(crate) struct ConnectParams {
    pub(crate) login: Login,
    /// `None` for connections without TLS.
    pub(crate) tls: Option<Arc<StoreTls>>,
    pub(crate) dns: Dns,
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
    access: &ConnectParams,
    timeout: Duration,
) -> Result<Connection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    let open = async {
        let Some(tls) = &access.tls else {
            let client = access.login.client(at)?;
            let config = config.set_dns_resolver(ServerNames(access.dns.clone()));
            let connected = client.get_multiplexed_async_connection_with_config(&config).await;
            let connection = connected.map_err(|error| of_redis(&error))?;
            return Ok(Connection { connection, driver: None });
        };
        let stream = tls.connect(at, &access.dns, timeout).await?;
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
pub(crate) async fn subscriber(
    at: &Address,
    access: &ConnectParams,
    timeout: Duration,
) -> Result<PubSub> {
    let open = async {
        let (login, dns) = (access.login.settings(), &access.dns);
        let subscriber = match &access.tls {
            None => {
                // The library would look the name up by itself.
                let tcp = tcp(at, dns).await;
                PubSub::new(login, tcp.map_err(|error| Error::Unavailable(error.to_string()))?)
                    .await
            }
            Some(tls) => PubSub::new(login, tls.connect(at, dns, timeout).await?).await,
        };
        subscriber.map_err(|error| of_redis(&error))
    };
    tokio::time::timeout(timeout, open).await.unwrap_or_else(|_| Err(silent()))
}

/// Looks names up for the library.
struct ServerNames(Dns);

impl AsyncDNSResolver for ServerNames {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let found: Box<dyn Iterator<Item = _> + Send> =
                Box::new(self.0.look_up(host, port).await?.into_iter());
            Ok(found)
        })
    }
}
