//! One connection to one server.

use std::time::Duration;

use deadpool_redis::redis::AsyncConnectionConfig;
use deadpool_redis::redis::aio::MultiplexedConnection;

use super::address::{Address, Login};
use super::fault::{self, of_redis, silent};
use crate::store::Result;

/// A connection. `timeout` bounds connecting, and each answer later.
///
/// # Errors
/// [`Unavailable`](crate::store::Error::Unavailable), or
/// [`Misconfigured`](crate::store::Error::Misconfigured) if the login is refused.
pub(crate) async fn connect(
    at: &Address,
    login: &Login,
    timeout: Duration,
) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    let client = login.client(at)?;
    let connected =
        tokio::time::timeout(timeout, client.get_multiplexed_async_connection_with_config(&config))
            .await;
    let connected = connected
        .map_or_else(|_| Err(silent()), |connected| connected.map_err(|error| of_redis(&error)));
    connected.map_err(|error| fault::at(at, error))
}
