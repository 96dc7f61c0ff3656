//! Finds the primary: asks all sentinels at once, and believes the one that knows the last
//! election.
//!
//! Sentinels may disagree. One that was cut off together with an old primary still names that
//! primary for some seconds after it returns. A store that asked only this one would write to a
//! server that is about to lose all its writes. Each election has a number, the epoch; the
//! sentinels will agree on the greatest one.
//!
//! Each sentinel gets a share of the timeout, so that silent sentinels leave time for the server
//! itself. Connections are kept.
//!
//! The sentinels' answer is not sufficient: every new connection also checks that its server is a
//! primary.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{FromRedisValue, RedisError, Value, cmd, pipe};
use futures_util::future::join_all;

use super::address::Address;
use super::connect::{ConnectParams, Connection, connect};
use super::fault::{of_redis, silent};
use crate::store::{Error, Result};

/// A sentinel may take the timeout divided by this.
const SHARE: u32 = 3;

/// The sentinels of one primary. `Debug` shows no secrets.
#[derive(Debug)]
pub(crate) struct Sentinels {
    name: String,
    access: ConnectParams,
    patience: Duration,
    all: Vec<Sentinel>,
}

struct Sentinel {
    address: Address,
    kept: Mutex<Option<Connection>>,
}

impl std::fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sentinel").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The answer of one sentinel.
enum Word {
    At {
        primary: Address,
        /// The epoch of the election that made it the primary.
        epoch: u64,
    },
    /// It watches no primary with this name.
    Unknown,
}

impl Sentinels {
    /// The sentinels at `addresses`, which watch the primary `name`.
    pub(crate) fn new(
        name: String,
        addresses: Vec<Address>,
        access: ConnectParams,
        timeout: Duration,
    ) -> Self {
        let all = addresses.into_iter().map(|address| Sentinel { address, kept: Mutex::default() });
        Self { name, access, patience: timeout / SHARE, all: all.collect() }
    }

    /// The name of the primary.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The primary's address.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no sentinel answers; [`Error::Misconfigured`] if those that answer
    /// know no such primary, or refuse the login.
    pub(crate) async fn primary(&self) -> Result<Address> {
        let words = join_all(self.all.iter().map(|sentinel| self.ask(sentinel))).await;
        let mut last: Option<(u64, Address)> = None;
        let mut refusal = None;
        for word in words {
            match word {
                Ok(Word::At { primary, epoch }) => {
                    if last.as_ref().is_none_or(|(known, _)| epoch > *known) {
                        last = Some((epoch, primary));
                    }
                }
                Ok(Word::Unknown) => {
                    refusal = Some(Error::Misconfigured(format!(
                        "store.redis.master_name: no sentinel knows a primary called {:?}",
                        self.name
                    )));
                }
                Err(error @ Error::Misconfigured(_)) => refusal = Some(error),
                Err(_) => {}
            }
        }
        match last {
            Some((_, primary)) => Ok(primary),
            None => Err(refusal.unwrap_or_else(|| {
                let asked: Vec<_> =
                    self.all.iter().map(|sentinel| sentinel.address.to_string()).collect();
                Error::Unavailable(format!("no sentinel answers: {}", asked.join(", ")))
            })),
        }
    }

    /// The answer of one sentinel, within its share of the timeout.
    async fn ask(&self, sentinel: &Sentinel) -> Result<Word> {
        let kept = sentinel.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let asked = tokio::time::timeout(self.patience, async {
            if let Some(mut kept) = kept
                && let Ok(word) = self.ask_via(&mut kept, &sentinel.address).await
            {
                return Ok((word, kept));
            }
            let mut connection = connect(&sentinel.address, &self.access, self.patience).await?;
            let word = self
                .ask_via(&mut connection, &sentinel.address)
                .await
                .map_err(|error| of_redis(&error))?;
            Ok((word, connection))
        });
        let (word, connection) = asked.await.unwrap_or_else(|_| Err(silent()))?;
        *sentinel.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        Ok(word)
    }

    async fn ask_via(
        &self,
        connection: &mut MultiplexedConnection,
        asked: &Address,
    ) -> std::result::Result<Word, RedisError> {
        let mut questions = pipe();
        // While a failover is being finished, only this field has the successor's address.
        questions
            .add_command(cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name).take());
        questions.add_command(cmd("SENTINEL").arg("MASTER").arg(&self.name).take());
        let (address, about): (
            std::result::Result<Value, RedisError>,
            std::result::Result<Value, RedisError>,
        ) = questions.ignore_errors().query_async(connection).await?;
        let address = Option::<(String, String)>::from_redis_value(address?)?;
        let read = |(host, port): (String, String)| Address::read(&format!("{host}:{port}"), asked);
        let Some(primary) = address.and_then(read) else { return Ok(Word::Unknown) };
        Ok(Word::At { primary, epoch: about.ok().and_then(epoch).unwrap_or_default() })
    }
}

/// The epoch in a sentinel's description of a primary. The login may not permit the question.
fn epoch(about: Value) -> Option<u64> {
    HashMap::<String, String>::from_redis_value(about).ok()?.get("config-epoch")?.parse().ok()
}
