//! Makes connections: finds the server, connects within a timeout, and inspects it.
//!
//! This is the manager of a deadpool pool. The stock manager has no timeouts of its own, connects
//! to a fixed address, and checks only PING. This one hands out only connections to a primary that
//! is fit for use. Under Sentinel, it is the primary that the sentinels name at that time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{
    Manager, Metrics, Object, Pool, PoolError, RecycleError, RecycleResult, Timeouts,
};

use super::address::Address;
use super::connect::{ConnectParams, Connection, connect};
use super::fault::{self, silent};
use super::sentinel::Sentinels;
use super::server::{self, Server, ServerMode};
use crate::store::{Error, Result};

/// How many connections a pool may be making at a time. A link takes its connection out of the
/// pool.
const POOL_SIZE: usize = 8;

/// Where connections lead.
#[derive(Clone, Debug)]
pub(crate) enum DialTarget {
    /// To one server.
    Server(Address),
    /// To whichever server the sentinels call the primary.
    Primary(Arc<Sentinels>),
}

impl fmt::Display for DialTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(address) => address.fmt(f),
            Self::Primary(sentinels) => write!(f, "the primary {}", sentinels.name()),
        }
    }
}

/// Makes connections to one target.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) target: DialTarget,
    pub(crate) access: ConnectParams,
    /// The required mode of the server.
    pub(crate) mode: ServerMode,
    pub(crate) timeout: Duration,
}

/// A connection, and its server.
pub(crate) struct Dialed {
    pub(crate) connection: Connection,
    pub(crate) server: Server,
    pub(crate) at: Address,
}

impl fmt::Debug for Dialed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialed")
            .field("server", &self.server)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl Dialer {
    /// The pool of this dialer's connections. Connects nothing yet.
    pub(crate) fn pool(self) -> Pool<Self> {
        let brief = Duration::from_millis(250).min(self.timeout);
        let timeouts =
            Timeouts { wait: Some(brief), create: Some(self.timeout), recycle: Some(brief) };
        Pool::builder(self)
            .max_size(POOL_SIZE)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .build()
            .expect("a pool with timeouts has a runtime")
    }

    /// The address that a new connection would go to.
    pub(crate) async fn find(&self) -> Result<Address> {
        match &self.target {
            DialTarget::Server(address) => Ok(address.clone()),
            DialTarget::Primary(sentinels) => sentinels.primary().await,
        }
    }

    /// Whether another server is known to be the primary now, instead of the one at `at`.
    pub(crate) async fn leads_elsewhere(&self, at: &Address) -> bool {
        matches!(self.find().await, Ok(address) if address != *at)
    }
}

impl Manager for Dialer {
    type Type = Dialed;
    type Error = Error;

    async fn create(&self) -> Result<Dialed> {
        let at = self.find().await?;
        let mut connection = connect(&at, &self.access, self.timeout).await?;
        let server = server::inspect(&mut connection, self.mode)
            .await
            .map_err(|error| fault::at(&at, error))?;
        Ok(Dialed { connection, server, at })
    }

    async fn recycle(&self, dialed: &mut Dialed, _: &Metrics) -> RecycleResult<Error> {
        if self.leads_elsewhere(&dialed.at).await {
            return Err(RecycleError::message("another server is the primary by now"));
        }
        let inspected = server::inspect(&mut dialed.connection, self.mode).await;
        dialed.server = inspected.map_err(|error| fault::at(&dialed.at, error))?;
        Ok(())
    }
}

/// Takes a connection out of a pool. The future is boxed: connecting is deep, and part of
/// everything that may have to connect first.
///
/// # Errors
/// Those of [`connect`] and [`server::inspect`].
pub(crate) fn take(
    pool: &Pool<Dialer>,
) -> Pin<Box<dyn Future<Output = Result<Object<Dialer>>> + Send + '_>> {
    Box::pin(async {
        pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(_) => fault::at(&pool.manager().target, silent()),
            other => Error::Unavailable(other.to_string()),
        })
    })
}
