//! The way to one Redis server: a few long-lived multiplexed connections out of a deadpool pool.
//!
//! A connection from the pool costs a round trip each time it is taken, so a [`Link`] keeps the one it has and shares it
//! until an error shows that it is of no use any more: a broken or silent socket, or a server that is no
//! writable primary (`READONLY`, `LOADING`, `MASTERDOWN`). Each new connection checks what it talks to before anyone uses it.
//!
//! Nobody waits longer than `timeout`. While the server is away callers are refused at once, and [`Link::look_after`] alone tries to
//! connect, every [`REST`].

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use deadpool_redis::redis::{self, AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value};
use deadpool_redis::{Connection, Manager, Pool, Runtime, Timeouts};
use tokio::sync::{Mutex, MutexGuard};

use super::fault::{cause, is_forgotten, is_no_primary, of_pool, of_redis};
use super::script;
use super::server::{self, Server};
use crate::store::{Durability, Error, Result};

/// The rest between two attempts to connect.
const REST: Duration = Duration::from_millis(200);
/// The time between two looks at a connection that is in order.
const ROUND: Duration = Duration::from_secs(1);
/// Every so many rounds the look is at the server's settings, too.
const ROUNDS_A_LOOK: u32 = 10;
/// Connections the pool may have open; the links hold one each, the rest replaces broken ones.
const POOL_SIZE: usize = 8;

/// Opens the pool. Nothing is connected yet.
///
/// # Errors
/// [`Error::Misconfigured`] for a URL that is none.
pub(super) fn pool(url: &str, timeout: Duration) -> Result<Pool> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(timeout)).set_response_timeout(Some(timeout));
    let manager = Manager::new_with_config(url, config)
        .map_err(|error| Error::Misconfigured(format!("store.redis.urls: {}", cause(&error))))?;
    let timeouts = Timeouts {
        wait: Some(Duration::from_millis(250).min(timeout)),
        create: Some(timeout),
        recycle: Some(Duration::from_millis(250).min(timeout)),
    };
    Pool::builder(manager)
        .max_size(POOL_SIZE)
        .timeouts(timeouts)
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Error::Misconfigured(error.to_string()))
}

/// One shared connection at a time.
#[derive(Debug)]
pub(super) struct Link {
    /// What it is for, in the log.
    name: &'static str,
    pool: Pool,
    timeout: Duration,
    live: RwLock<Option<Arc<Live>>>,
    connecting: Mutex<()>,
    /// Why the last attempt failed, until one succeeds.
    failing: std::sync::Mutex<Option<Error>>,
    /// As last seen; 255 before that.
    durability: AtomicU8,
}

/// A connection in use, and the server it leads to.
pub(super) struct Live {
    connection: Connection,
    pub(super) server: Server,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(name: &'static str, pool: Pool, timeout: Duration) -> Self {
        Self {
            name,
            pool,
            timeout,
            live: RwLock::default(),
            connecting: Mutex::default(),
            failing: std::sync::Mutex::default(),
            durability: AtomicU8::new(u8::MAX),
        }
    }

    /// The connection; made if there is none, unless that has failed already: then [`Link::look_after`] keeps trying, and everyone
    /// else is refused at once.
    ///
    /// # Errors
    /// [`Error::Unavailable`] within the timeout; [`Error::Misconfigured`] if the server cannot be used as it is.
    pub(super) async fn live(&self) -> Result<Arc<Live>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if let Some(error) = self.failure() {
            return Err(error);
        }
        // Many may come here together. The first one's attempt is all of theirs: nobody waits for more than one timeout.
        let Ok(turn) = tokio::time::timeout(self.timeout, self.connecting.lock()).await else {
            return Err(Error::Unavailable("Redis does not answer in time".into()));
        };
        match self.failure() {
            Some(error) => Err(error),
            None => self.reconnect(turn).await,
        }
    }

    fn failure(&self) -> Option<Error> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One attempt to connect, by whose turn it is.
    async fn reconnect(&self, _turn: MutexGuard<'_, ()>) -> Result<Arc<Live>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let silent = || Error::Unavailable("Redis does not answer in time".into());
        let attempt = match tokio::time::timeout(self.timeout, self.connect()).await {
            Err(_) => Err(silent()),
            // Such as "max number of clients reached": a server may refuse us for a while.
            Ok(Err(Error::Corrupt(text))) => Err(Error::Unavailable(text)),
            Ok(attempt) => attempt,
        };
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match attempt {
            Ok(live) => {
                if failing.take().is_some() {
                    tracing::info!(link = self.name, "Redis answers again");
                }
                *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
                Ok(live)
            }
            Err(error) => {
                let is_news = failing.replace(error.clone()).is_none();
                // What keeps delayd from starting at all is said by whoever starts it.
                let ends_the_start = matches!(error, Error::Misconfigured(_)) && !self.has_been_up();
                if is_news && !ends_the_start {
                    tracing::warn!(link = self.name, %error, "Redis is out of reach; trying on");
                }
                Err(error)
            }
        }
    }

    /// Keeps the link in order for as long as it is polled: connects again while the server is away, notices a connection that died
    /// while nobody used it, and follows what the server keeps.
    pub(super) async fn look_after(&self) {
        for round in 0_u32.. {
            let Some(live) = self.current() else {
                // Its failure is remembered and logged by the attempt itself.
                let _ = self.reconnect(self.connecting.lock().await).await;
                tokio::time::sleep(REST).await;
                continue;
            };
            if round.is_multiple_of(ROUNDS_A_LOOK) {
                match server::inspect(&mut (*live.connection).clone()).await {
                    Ok(server) => self.keeps(server.durability),
                    Err(error) => {
                        tracing::warn!(%error, "Redis is not what it was; connecting anew");
                        self.discard(&live);
                    }
                }
            } else {
                // A failure has been noticed by the link.
                let _ = self.send(&live, &[redis::cmd("PING")]).await;
            }
            tokio::time::sleep(ROUND).await;
        }
    }

    fn has_been_up(&self) -> bool {
        self.durability.load(Ordering::Relaxed) != u8::MAX
    }

    fn keeps(&self, durability: Durability) {
        let before = self.durability.swap(durability as u8, Ordering::Relaxed);
        if durability == Durability::Volatile && before != durability as u8 {
            tracing::warn!("Redis keeps no append-only file: tasks are lost when it stops (durability: volatile)");
        }
    }

    async fn connect(&self) -> Result<Arc<Live>> {
        let mut connection = self.pool.get().await.map_err(of_pool)?;
        match server::inspect(&mut connection).await {
            Ok(server) => {
                self.keeps(server.durability);
                Ok(Arc::new(Live { connection, server }))
            }
            Err(error) => {
                // A connection that failed its check must not go back to the pool for the next caller.
                drop(Connection::take(connection));
                Err(error)
            }
        }
    }

    /// What the server keeps, as last seen; the least there is before one was seen.
    pub(super) fn durability(&self) -> Durability {
        let seen = self.durability.load(Ordering::Relaxed);
        [Durability::AofAlways, Durability::AofEverysec]
            .into_iter()
            .find(|&d| d as u8 == seen)
            .unwrap_or(Durability::Volatile)
    }

    fn current(&self) -> Option<Arc<Live>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets go of a connection that is of no use any more; whoever still waits on it gets its error.
    fn discard(&self, dead: &Arc<Live>) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(live, dead)) {
            *live = None;
        }
    }

    /// Sends commands in one pipeline and answers each on its own. Scripts that the server has forgotten are loaded
    /// and repeated.
    ///
    /// # Errors
    /// [`Error::Unavailable`] within the timeout: whether the commands were carried out is not known.
    pub(super) async fn run(&self, commands: &[Cmd]) -> Result<Vec<Result<Value>>> {
        let live = self.live().await?;
        self.run_via(&live, commands).await.map_err(|lost| lost.error)
    }

    /// As [`Link::run`], once more on a new connection if the first one broke: for commands that may be repeated.
    pub(super) async fn run_repeatable(&self, commands: &[Cmd]) -> Result<Vec<Result<Value>>> {
        let live = self.live().await?;
        match self.run_via(&live, commands).await {
            Err(Lost { silent: false, .. }) => self.run(commands).await,
            answers => answers.map_err(|lost| lost.error),
        }
    }

    /// As [`Link::run_repeatable`], beginning on `live` and repeating only on a server that is still in the same run: for
    /// commands that name something drawn from it, which a restarted server may draw again.
    pub(super) async fn run_pinned(&self, live: &Arc<Live>, commands: &[Cmd]) -> Result<Vec<Result<Value>>> {
        match self.run_via(live, commands).await {
            Err(Lost { silent: false, error }) => {
                let again = self.live().await?;
                if again.server.run_id != live.server.run_id {
                    return Err(error);
                }
                self.run_via(&again, commands).await.map_err(|lost| lost.error)
            }
            answers => answers.map_err(|lost| lost.error),
        }
    }

    /// One command that may be repeated.
    pub(super) async fn run_one(&self, command: Cmd) -> Result<Value> {
        one(self.run_repeatable(&[command]).await?)
    }

    async fn run_via(&self, live: &Arc<Live>, commands: &[Cmd]) -> std::result::Result<Vec<Result<Value>>, Lost> {
        let mut answers = self.send(live, commands).await?;
        let forgotten: Vec<usize> = (0..answers.len()).filter(|&i| is_forgotten(&answers[i])).collect();
        if !forgotten.is_empty() {
            let load =
                script::all().into_iter().map(|script| redis::cmd("SCRIPT").arg("LOAD").arg(&script.code).take());
            self.send(live, &load.collect::<Vec<_>>()).await?;
            let again: Vec<Cmd> = forgotten.iter().map(|&i| commands[i].clone()).collect();
            for (i, answer) in forgotten.into_iter().zip(self.send(live, &again).await?) {
                answers[i] = answer;
            }
        }
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| of_redis(&error))).collect())
    }

    async fn send(
        &self,
        live: &Arc<Live>,
        commands: &[Cmd],
    ) -> std::result::Result<Vec<std::result::Result<Value, RedisError>>, Lost> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let mut connection = (*live.connection).clone();
        let answers: std::result::Result<Vec<std::result::Result<Value, RedisError>>, RedisError> =
            pipeline.ignore_errors().query_async(&mut connection).await;
        match answers {
            Ok(answers) => {
                if answers.iter().flat_map(|answer| answer.as_ref().err()).any(is_no_primary) {
                    self.discard(live);
                }
                Ok(answers)
            }
            Err(error) => {
                self.discard(live);
                Err(Lost { silent: error.is_timeout(), error: of_redis(&error) })
            }
        }
    }
}

/// A connection that broke before the answers came.
struct Lost {
    error: Error,
    /// It fell silent: to ask again would only double the wait.
    silent: bool,
}

/// The only answer of a pipeline of one.
pub(super) fn one(answers: Vec<Result<Value>>) -> Result<Value> {
    answers.into_iter().next().unwrap_or_else(|| Err(Error::Corrupt("Redis left a command unanswered".into())))
}
