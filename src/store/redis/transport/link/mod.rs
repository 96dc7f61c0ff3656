//! The connection to one Redis server: long-lived and multiplexed, taken from a deadpool pool.
//!
//! Taking a connection from the pool costs a round trip, so a [`Link`] shares one until an error
//! shows that it is unusable. It is unusable if its socket is broken or silent, or if its server is
//! not a writable primary (`READONLY`, `LOADING`, `MASTERDOWN`). Each new connection checks its
//! server before it is used. [`Link::look_after`] checks it repeatedly, because a primary may
//! become a replica without breaking a connection.
//!
//! No caller waits longer than `timeout`. The circuit breaker counts failures over all links to the
//! server, except those of reads for viewers: many reads say nothing about the server. While it is
//! not closed, callers are refused at once, and only [`Link::look_after`] sends the probes that
//! close it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use deadpool::managed::{Object, Pool};
use deadpool_redis::redis::{self, Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Mutex, MutexGuard, Notify, mpsc};

use super::address::Address;
use super::dial::{self, Dialer};
use super::fault::{is_forgotten, is_no_primary, is_of_the_map, of_redis, silent};
use super::refusal::CommandRefusal;
use super::round_trips::RoundTrips;
use super::server::Server;
use crate::model::breaker::{Pass, SharedBreaker, State, Verdict};
use crate::store::redis::script;
use crate::store::{Durability, Error, Result, warning_of};

mod confirm;
mod upkeep;

/// The settings of a link.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    /// Its purpose, for the log.
    pub(crate) name: &'static str,
    /// Its server, for the log.
    pub(crate) server: Arc<str>,
    pub(crate) pool: Pool<Dialer>,
    pub(crate) timeout: Duration,
    /// The breaker, shared by the links to one server.
    pub(crate) gate: Arc<SharedBreaker>,
    /// Whether failures of this link count for the breaker. Without it, the link has no checks of
    /// its own either: it connects when it is used.
    pub(crate) is_judged: bool,
    /// Notified when this server may no longer be the right one.
    pub(crate) trouble: Arc<Notify>,
    /// How many replicas must have the writes before they count as done.
    pub(crate) replicas: usize,
    /// The prefix of the keys by which confirmations write; `None` if nothing may be written, so
    /// that confirmations only show how many replicas there are.
    pub(crate) marks: Option<Arc<str>>,
}

/// One shared connection to a server.
#[derive(Debug)]
pub(crate) struct Link {
    params: Params,
    live: RwLock<Option<Arc<LiveConnection>>>,
    connecting: Mutex<()>,
    /// How many attempts to connect have failed.
    failures: AtomicU64,
    /// Why the last attempt failed, until one succeeds.
    failing: std::sync::Mutex<Option<Error>>,
    /// The last known durability; 255 before the first.
    durability: AtomicU8,
    /// The last known memory and `maxmemory` of the server.
    memory: (AtomicU64, AtomicU64),
    /// How long the last checks took.
    round_trips: RoundTrips,
}

/// A connection in use, and its server.
///
/// It is no longer part of the pool: a link drops a connection only when it is unusable, and a late
/// claim may keep it for minutes. Otherwise such connections would leave no place for new ones.
pub(crate) struct LiveConnection(dial::Dialed);

impl LiveConnection {
    fn dialed(&self) -> &dial::Dialed {
        &self.0
    }

    /// The server.
    pub(crate) fn server(&self) -> &Server {
        &self.dialed().server
    }

    /// The server's address.
    pub(crate) fn at(&self) -> &Address {
        &self.dialed().at
    }
}

impl std::fmt::Debug for LiveConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("server", self.server()).finish_non_exhaustive()
    }
}

/// Hears answers that come after the timeout.
pub(crate) type LateAnswers = mpsc::UnboundedSender<Value>;

/// How long a late answer is waited for, if somebody wants to hear it.
const LATEST: Duration = Duration::from_secs(600);

/// The answers of a pipeline.
type Replies = std::result::Result<Vec<std::result::Result<Value, RedisError>>, RedisError>;

/// Whether commands are sent again if their connection broke before the answers. After silence,
/// commands are never sent again.
#[derive(Clone, Copy)]
pub(crate) enum Repeat<'a> {
    /// Never.
    Never,
    /// Never. If the server is silent, its answers go here once it speaks again.
    NeverButHear(&'a LateAnswers),
    /// Once, on a new connection.
    Once,
    /// Once, on a new connection to the server in the same run: not on a server that may have lost
    /// what the commands have done.
    InRun,
}

/// The result of each command.
pub(crate) type Answers = Vec<std::result::Result<Value, CommandRefusal>>;

/// A connection that broke before the answers.
struct Lost {
    error: Error,
    /// The server was silent: sending again would only double the wait.
    silent: bool,
}

impl Link {
    pub(crate) fn new(params: Params) -> Self {
        Self {
            params,
            live: RwLock::default(),
            connecting: Mutex::default(),
            failures: AtomicU64::default(),
            failing: std::sync::Mutex::default(),
            durability: AtomicU8::new(u8::MAX),
            memory: Default::default(),
            round_trips: RoundTrips::default(),
        }
    }

    /// The connection; connects if there is none. Fails at once while the breaker is not closed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] within the timeout; [`Error::Misconfigured`] if the server cannot be
    /// used as it is.
    pub(crate) async fn live(&self) -> Result<Arc<LiveConnection>> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if let Some(live) = self.current() {
            return Ok(live);
        }
        // Many callers may arrive together. They share the first one's attempt, so none waits for
        // more than one timeout.
        let failures = self.failures.load(Ordering::SeqCst);
        let Ok(turn) = tokio::time::timeout(self.params.timeout, self.connecting.lock()).await
        else {
            return Err(silent());
        };
        if self.current().is_none() && self.failures.load(Ordering::SeqCst) != failures {
            return Err(self.failure());
        }
        self.reconnect(turn).await
    }

    /// The state of the breaker of this server.
    pub(crate) fn breaker(&self) -> State {
        self.params.gate.state()
    }

    /// The round trip to the server, as the last checks show it; zero before there are some.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trips.shortest()
    }

    /// Why callers are refused now; `None` while the breaker is closed.
    pub(crate) fn refusal(&self) -> Option<Error> {
        (self.breaker() != State::Closed).then(|| self.failure())
    }

    /// Opens the breaker, as failures do.
    #[cfg(test)]
    pub(crate) fn trip(&self) {
        while self.breaker() == State::Closed {
            self.params
                .gate
                .enter(self.params.timeout)
                .expect("it is closed")
                .end(Verdict::Failure);
        }
    }

    /// Begins a call, unless the breaker refuses it. `None`: its end does not count.
    fn enter(&self) -> Result<Option<Pass>> {
        match (self.params.is_judged, self.refusal()) {
            (true, _) => {
                let pass = self.params.gate.enter(self.params.timeout);
                pass.map(Some).map_err(|_| self.failure())
            }
            (false, None) => Ok(None),
            (false, Some(refusal)) => Err(refusal),
        }
    }

    /// Drops the connection if `other` is connected to another server, as after a failover.
    pub(crate) fn follow(&self, other: &Self) {
        if let (Some(live), Some(other)) = (self.current(), other.current())
            && live.at() != other.at()
        {
            self.discard(&live);
        }
    }

    /// The error of refused callers.
    fn failure(&self) -> Error {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        failing.unwrap_or_else(|| {
            Error::Unavailable("the circuit breaker around Redis is open".into())
        })
    }

    /// One attempt to connect by the holder of the turn, if the breaker permits it.
    async fn reconnect(&self, _turn: MutexGuard<'_, ()>) -> Result<Arc<LiveConnection>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let pass = self.enter()?;
        let attempt =
            match tokio::time::timeout(self.params.timeout, dial::take(&self.params.pool)).await {
                Err(_) => Err(silent()),
                // For example "max number of clients reached": a server may refuse us for a while.
                Ok(Err(Error::Corrupt(text))) => Err(Error::Unavailable(text)),
                Ok(attempt) => attempt,
            };
        match attempt {
            Ok(object) => {
                end(pass, Verdict::Success);
                Ok(self.adopt(object))
            }
            Err(error) => {
                end(pass, Verdict::Failure);
                self.fail(&error);
                Err(error)
            }
        }
    }

    fn adopt(&self, object: Object<Dialer>) -> Arc<LiveConnection> {
        self.keeps(&object.server);
        let live = Arc::new(LiveConnection(Object::take(object)));
        if self.failing.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!(
                link = self.params.name,
                server = %self.params.server,
                "Redis answers again"
            );
        }
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
        live
    }

    fn fail(&self, error: &Error) {
        let is_news = self
            .failing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(error.clone())
            .is_none();
        self.failures.fetch_add(1, Ordering::SeqCst);
        self.params.trouble.notify_one();
        // An error that prevents the start is reported by the caller of the start.
        let ends_the_start = matches!(error, Error::Misconfigured(_)) && !self.has_been_up();
        if is_news && !ends_the_start {
            tracing::warn!(
                link = self.params.name,
                server = %self.params.server,
                %error,
                "Redis is unreachable; retrying"
            );
        }
    }

    /// Whether it was ever connected.
    pub(crate) fn has_been_up(&self) -> bool {
        self.durability.load(Ordering::Relaxed) != u8::MAX
    }

    fn keeps(&self, server: &Server) {
        let (used, limit) = server.memory;
        self.memory.0.store(used, Ordering::Relaxed);
        self.memory.1.store(limit, Ordering::Relaxed);
        let durability = server.durability;
        let before = self.durability.swap(durability as u8, Ordering::Relaxed);
        if let Some(warning) = warning_of(durability).filter(|_| before != durability as u8) {
            tracing::warn!(server = %self.params.server, "{warning}");
        }
    }

    /// The last known memory and `maxmemory` of the server.
    pub(crate) fn memory(&self) -> (u64, u64) {
        (self.memory.0.load(Ordering::Relaxed), self.memory.1.load(Ordering::Relaxed))
    }

    /// The last known durability of the server; the lowest one before that.
    pub(crate) fn durability(&self) -> Durability {
        let seen = self.durability.load(Ordering::Relaxed);
        [Durability::AofAlways, Durability::AofEverysec]
            .into_iter()
            .find(|&d| d as u8 == seen)
            .unwrap_or(Durability::Volatile)
    }

    /// The connection, if there is one.
    pub(crate) fn current(&self) -> Option<Arc<LiveConnection>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops an unusable connection. Callers that still wait on it get its error. Returns whether
    /// it was in use.
    fn discard(&self, dead: &Arc<LiveConnection>) -> bool {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let is_in_use = live.as_ref().is_some_and(|live| Arc::ptr_eq(live, dead));
        if is_in_use {
            *live = None;
        }
        self.params.trouble.notify_one();
        is_in_use
    }

    /// Sends commands in one pipeline, and answers each separately. Loads scripts that the server
    /// has lost, and repeats their calls.
    ///
    /// # Errors
    /// [`Error::Unavailable`] within the timeout: the commands may or may not have been executed.
    pub(crate) async fn run(&self, commands: &[Cmd], repeat: Repeat<'_>) -> Result<Answers> {
        let live = self.live().await?;
        let late = match repeat {
            Repeat::NeverButHear(late) => Some(late),
            _ => None,
        };
        let lost = match self.run_via(&live, commands, late).await {
            Ok(answers) => return Ok(answers),
            Err(lost) => lost,
        };
        let again = match repeat {
            Repeat::Never | Repeat::NeverButHear(_) => return Err(lost.error),
            _ if lost.silent => return Err(lost.error),
            Repeat::Once => self.live().await?,
            Repeat::InRun => {
                let again = self.live().await?;
                if again.server().run_id != live.server().run_id {
                    return Err(lost.error);
                }
                again
            }
        };
        self.run_via(&again, commands, None).await.map_err(|lost| lost.error)
    }

    async fn run_via(
        &self,
        live: &Arc<LiveConnection>,
        commands: &[Cmd],
        late: Option<&LateAnswers>,
    ) -> std::result::Result<Answers, Lost> {
        let mut answers = self.send(live, commands, late).await?;
        let forgotten: Vec<usize> =
            (0..answers.len()).filter(|&i| is_forgotten(&answers[i])).collect();
        if !forgotten.is_empty() {
            self.load_scripts(live).await?;
            let again: Vec<Cmd> = forgotten.iter().map(|&i| commands[i].clone()).collect();
            for (i, answer) in forgotten.into_iter().zip(self.send(live, &again, late).await?) {
                answers[i] = answer;
            }
        }
        let at = &live.dialed().at;
        let answers: Answers = answers
            .into_iter()
            .map(|answer| answer.map_err(|error| CommandRefusal::of(&error, at)))
            .collect();
        self.confirm(live, commands, answers).await
    }

    async fn load_scripts(&self, live: &Arc<LiveConnection>) -> std::result::Result<(), Lost> {
        let load = script::all()
            .into_iter()
            .map(|script| redis::cmd("SCRIPT").arg("LOAD").arg(&script.code).take());
        self.send(live, &load.collect::<Vec<_>>(), None).await.map(drop)
    }

    async fn send(
        &self,
        live: &Arc<LiveConnection>,
        commands: &[Cmd],
        late: Option<&LateAnswers>,
    ) -> std::result::Result<Vec<std::result::Result<Value, RedisError>>, Lost> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let pass = self.enter().map_err(|error| Lost { error, silent: true })?;
        let answers: Replies = match late {
            None => {
                let mut connection = live.dialed().connection.clone();
                pipeline.ignore_errors().query_async(&mut connection).await
            }
            Some(late) => self.ask_and_hear(live, pipeline, late).await,
        };
        match answers {
            Ok(answers) => {
                let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
                if errors.clone().any(is_no_primary) {
                    self.fails_once(live, pass);
                } else {
                    end(pass, Verdict::Success);
                    if errors.any(is_of_the_map) {
                        self.params.trouble.notify_one();
                    }
                }
                Ok(answers)
            }
            Err(error) if error.is_timeout() => {
                end(pass, Verdict::Failure);
                self.discard(live);
                Err(Lost { silent: true, error: of_redis(&error) })
            }
            Err(error) => {
                self.fails_once(live, pass);
                Err(Lost { silent: false, error: of_redis(&error) })
            }
        }
    }

    /// Sends a pipeline. If the server is silent, a task keeps the connection, which the link gives
    /// up, until the answers come: the server may execute the commands later.
    async fn ask_and_hear(
        &self,
        live: &Arc<LiveConnection>,
        mut pipeline: Pipeline,
        late: &LateAnswers,
    ) -> Replies {
        let live = live.clone();
        let mut asked = Box::pin(async move {
            let mut connection = live.dialed().connection.clone();
            connection.set_response_timeout(LATEST);
            let answers: Replies = pipeline.ignore_errors().query_async(&mut connection).await;
            answers
        });
        if let Ok(answers) = tokio::time::timeout(self.params.timeout, &mut asked).await {
            return answers;
        }
        let late = late.clone();
        tokio::spawn(async move {
            for answer in asked.await.into_iter().flatten().flatten() {
                // A caller that has ended needs no answer.
                let _ = late.send(answer);
            }
        });
        Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
    }

    /// Drops an unusable connection. However many pipelines were on it, the breaker counts one
    /// failure: they can all be repeated on the next connection.
    fn fails_once(&self, live: &Arc<LiveConnection>, pass: Option<Pass>) {
        if self.discard(live) {
            end(pass, Verdict::Failure);
        }
    }
}

fn end(pass: Option<Pass>, verdict: Verdict) {
    if let Some(pass) = pass {
        pass.end(verdict);
    }
}
