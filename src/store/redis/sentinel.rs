//! Who is the primary: the sentinels are asked, in turn, until one knows.
//!
//! The one that answered last is asked first, on a connection that is kept; one that did not answer goes to the end of the row. None may
//! take longer than a share of the timeout, so that a silent sentinel does not keep the others from being asked.
//!
//! A sentinel's word is not enough: whoever connects to the address still checks that the server calls itself a primary.

use std::collections::VecDeque;
use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisError, cmd};
use tokio::sync::Mutex;

use super::address::{Address, Login};
use super::dial;
use super::fault::of_redis;
use crate::store::{Error, Result};

/// How much of the timeout one sentinel may take.
const SHARE: u32 = 3;

/// The sentinels of one primary. `Debug` shows no secrets.
#[derive(Debug)]
pub(super) struct Sentinels {
    name: String,
    login: Login,
    patience: Duration,
    row: Mutex<Row>,
}

struct Row {
    order: VecDeque<Address>,
    /// To the first in order.
    kept: Option<MultiplexedConnection>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("order", &self.order).finish_non_exhaustive()
    }
}

/// What one sentinel said.
enum Word {
    At(Address),
    /// It watches no primary of this name.
    Unknown,
}

impl Sentinels {
    /// Those at `addresses`, which watch the primary called `name`.
    pub(super) fn new(name: String, addresses: Vec<Address>, login: Login, timeout: Duration) -> Self {
        let row = Row { order: addresses.into(), kept: None };
        Self { name, login, patience: timeout / SHARE, row: Mutex::new(row) }
    }

    /// What the primary is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The primary's address.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no sentinel answers; [`Error::Misconfigured`] if those that do know no such primary, or refuse the login.
    pub(super) async fn primary(&self) -> Result<Address> {
        let mut row = self.row.lock().await;
        let mut refusal = None;
        for _ in 0..row.order.len() {
            match tokio::time::timeout(self.patience, self.ask_first(&mut row)).await {
                Ok(Ok(Word::At(address))) => return Ok(address),
                Ok(Ok(Word::Unknown)) => {
                    refusal = Some(Error::Misconfigured(format!(
                        "store.redis.master_name: no sentinel knows a primary called {:?}",
                        self.name
                    )));
                }
                Ok(Err(error @ Error::Misconfigured(_))) => refusal = Some(error),
                Ok(Err(_)) | Err(_) => {}
            }
            row.kept = None;
            row.order.rotate_left(1);
        }
        Err(refusal.unwrap_or_else(|| Error::Unavailable("no sentinel answers".into())))
    }

    async fn ask_first(&self, row: &mut Row) -> Result<Word> {
        let first = row.order[0].clone();
        if let Some(kept) = &mut row.kept
            && let Ok(word) = self.ask(kept, &first).await
        {
            return Ok(word);
        }
        let mut connection = dial::connect(&first, &self.login, self.patience).await?;
        let word = self.ask(&mut connection, &first).await.map_err(|error| of_redis(&error))?;
        row.kept = Some(connection);
        Ok(word)
    }

    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        asked: &Address,
    ) -> std::result::Result<Word, RedisError> {
        let address: Option<(String, String)> =
            cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name).query_async(connection).await?;
        let read = |(host, port): (String, String)| Address::read(&format!("{host}:{port}"), asked);
        Ok(address.and_then(read).map_or(Word::Unknown, Word::At))
    }
}
