//! ① The edge: HTTP in. From a request to a store's verb, and back to an answer.
//!
//! ```text
//! server ─▶ request id ─▶ trace ─▶ panic ─▶ door ─▶ auth ─▶ timeout ─▶ body ─▶ slot ─▶ add │ pull │ settle │ get │ list │ manage │ dead │ topic │ destination ─▶ store
//! ```
//!
//! - `calls` and `router` are the whole API at a glance; one file per family of verbs. What is under `/delay/` is called past the
//!   router, by the table in `calls`.
//! - `server` takes connections and drains them, `connection` serves one; `pulse` and `paced` see to it that nobody holds one for
//!   nothing. `edge` is what every request passes, `door` turns away what is too much, `work` is what stands around every handler that works on
//!   tasks, `budget` how many bytes all requests and answers may hold, `room` counts those of the answers.
//! - `auth` says who may call what; its table is the whole access matrix.
//! - `body` and `json` read a request (a long one beside the runtime), `fields` its values, `new_task` checks one task.
//! - `error` is the only answer of a failure, `envelope` that of a success.
//! - `openapi` describes all of it, from the very types; `docs` is a page to read that by.
//! - `transfer` hands whole tasks to another store, `adopt` takes them from one.
//! - `written` knows whether an answer has been written, on which a pull without `lease` rests.
//!
//! # Invariants
//!
//! - A 2xx on add means that the task is kept. Whatever is not confirmed is 503, and said to be so.
//! - Nothing internal (a store's text, a path, a panic) is in an answer; it is in the log, under the request's id.
//! - An unknown field is refused, never ignored.
//!
//! What is absent on purpose: policy of retries (`outcome`), and every wait for something to fall due, but for that of consumers: whoever
//! pulls with `wait` stands in a line of `waiters`, which `line` serves.

mod add;
mod adopt;
mod auth;
mod body;
#[cfg(test)]
mod bounds_tests;
mod budget;
mod calls;
mod connection;
mod cost;
mod dead;
mod destination;
mod docs;
mod door;
mod edge;
mod envelope;
mod error;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod get;
mod health;
mod json;
mod line;
mod list;
mod manage;
#[cfg(feature = "benching")]
#[doc(hidden)]
pub mod measured;
mod metrics;
mod new_task;
mod openapi;
mod paced;
mod placing;
mod pull;
mod pulse;
mod request_id;
mod room;
mod sameness;
mod server;
mod settle;
mod taken;
#[cfg(test)]
mod testing;
mod topic;
mod topic_policy;
mod topic_shown;
mod transfer;
mod waiters;
mod work;
mod written;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use http::Uri;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::callback::{Limits, Services};
use crate::clock::Clock;
use crate::outcome::Policy;
use crate::store::{AnyStore, Delivery, Registered};
use crate::task::{Lane, TaskId, Topic};
use crate::topic::Registry;
use budget::Budget;
use calls::{Calls, by};
use door::Line;
use edge::Entrance;
use error::Error;
use waiters::Waiters;
use work::{Work, Works};

pub use auth::{TokenParams, Tokens};
pub use edge::Edge;
pub use openapi::document;
pub use server::{Patience, ServerParams, listen, serve};

/// How long [`Api::finish`] waits.
const LAST_SETTLES: Duration = Duration::from_secs(15);

/// The settings of the edge.
#[derive(Clone, Debug)]
pub struct Params {
    /// The longest body of a request, in bytes (`limits.body`).
    pub body_limit: usize,
    /// The longest content of a task, in bytes (`limits.content`).
    pub content_limit: usize,
    /// The most tasks of a batch (`limits.batch`).
    pub batch_limit: usize,
    /// The longest body of a batch, in bytes (`limits.batch_body`).
    pub batch_body_limit: usize,
    /// The furthest due moment from now (`limits.max_delay`).
    pub max_delay: Duration,
    /// How long an idempotency key is remembered (`limits.idempotency_window`).
    pub idempotency_window: Duration,
    /// What a nacked task follows that has no options of its own.
    pub policy: Policy,
    /// The most bytes of requests in hand at a time, and of answers on their way (`limits.bodies`).
    pub bodies: usize,
    /// The most requests that are worked on at a time; one more is answered 503 at once.
    pub concurrency: usize,
    /// The most callers who wait for a task to pull at a time; one more is answered 503 at once.
    pub waiters: usize,
    /// The longest time from a request's head to its answer, beyond what its caller asked to be kept waiting.
    pub timeout: Duration,
}

impl Params {
    /// The parameters that no key of the configuration sets, and the documented default of the others.
    pub fn new(policy: Policy) -> Self {
        Self {
            body_limit: 1 << 20,
            content_limit: 256 << 10,
            batch_limit: 1000,
            batch_body_limit: 16 << 20,
            max_delay: Duration::from_secs(3650 * 24 * 3600),
            idempotency_window: Duration::from_secs(24 * 3600),
            policy,
            bodies: 256 << 20,
            concurrency: 1024,
            waiters: 4096,
            timeout: Duration::from_secs(10),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            content_limit: self.content_limit,
            batch_limit: self.batch_limit,
            max_delay: self.max_delay,
            idempotency_window: self.idempotency_window,
        }
    }
}

/// What callers may ask for; may change while serving ([`Api::set_bounds`]). The fields are those of [`Params`].
#[derive(Clone, Copy, Debug)]
struct Bounds {
    content_limit: usize,
    batch_limit: usize,
    max_delay: Duration,
    idempotency_window: Duration,
}

/// What the edge is built from.
#[derive(Debug)]
pub struct Parts {
    /// Where tasks are kept.
    pub store: Arc<AnyStore>,
    /// Which topics there are.
    pub topics: Arc<Registry>,
    /// Which services can be called back.
    pub services: Arc<Services>,
    /// How the calls to them stand.
    pub limits: Arc<Limits>,
    /// Who may call.
    pub tokens: Arc<Tokens>,
    /// The machine's time.
    pub clock: Clock,
    /// True from the moment on at which no more work is taken in.
    pub draining: watch::Receiver<bool>,
}

/// What the handlers share.
#[derive(Debug)]
pub struct Api {
    params: Params,
    bounds: RwLock<Bounds>,
    body_limit: body::Limit,
    batch_body_limit: body::Limit,
    store: Arc<AnyStore>,
    topics: Arc<Registry>,
    services: Arc<Services>,
    limits: Arc<Limits>,
    tokens: Arc<Tokens>,
    clock: Clock,
    draining: watch::Receiver<bool>,
    /// The lane with which the next pull begins.
    turn: AtomicUsize,
    /// Those who wait for a task to pull.
    waiters: Arc<Waiters>,
    /// Claims and settles that outlive their request.
    pending: TaskTracker,
    reloads: metrics::Reloads,
}

impl Api {
    /// Puts the parts together. To be called within a runtime.
    pub fn new(parts: Parts, params: Params) -> Self {
        let Parts { store, topics, services, limits, tokens, clock, draining } = parts;
        let (turn, pending) = (AtomicUsize::new(0), TaskTracker::new());
        let waiters = Waiters::new(params.waiters, store.hints());
        let bounds = RwLock::new(params.bounds());
        let (body_limit, batch_body_limit) =
            (body::Limit::of(params.body_limit), body::Limit::of(params.batch_body_limit));
        Self {
            params,
            bounds,
            body_limit,
            batch_body_limit,
            store,
            topics,
            services,
            limits,
            tokens,
            clock,
            draining,
            turn,
            waiters,
            pending,
            reloads: metrics::Reloads::default(),
        }
    }

    /// Returns once what outlives its request (the settles of pulls whose answers were written last) is done. To be
    /// awaited after [`serve`] has returned and before the store is closed; takes about ten seconds as a rule, and no more than
    /// fifteen should the store not answer at all.
    pub async fn finish(&self) {
        self.pending.close();
        if tokio::time::timeout(LAST_SETTLES, self.pending.wait()).await.is_err() {
            let left = self.pending.len();
            tracing::warn!(left, "The store does not answer: {left} pulls are not settled, and their tasks come back");
        }
    }

    /// Goes by other limits from now on: of bodies, contents, batches and delays. What else `params` say stays as it was at the start.
    pub fn set_bounds(&self, params: &Params) {
        self.body_limit.set(params.body_limit);
        self.batch_body_limit.set(params.batch_body_limit);
        *self.bounds.write().unwrap_or_else(PoisonError::into_inner) = params.bounds();
    }

    /// The configuration was read again, and taken or refused: for `/metrics`.
    pub fn count_reload(&self, is_taken: bool) {
        self.reloads.count(is_taken);
    }

    fn bounds(&self) -> Bounds {
        *self.bounds.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Refuses new work while draining. What ends work (acks, nacks) goes on.
    fn check_accepting(&self) -> Result<(), Error> {
        match self.is_draining() {
            true => Err(Error::Unavailable("this instance is shutting down, so this is not confirmed: repeat it")),
            false => Ok(()),
        }
    }

    /// Checks something by the rules for new tasks.
    fn checked<T>(&self, header_key: Option<&str>, check: impl FnOnce(&new_task::Rules<'_>) -> T) -> T {
        let bounds = self.bounds();
        check(&new_task::Rules {
            now: self.clock.now(),
            max_delay: bounds.max_delay,
            content_limit: bounds.content_limit,
            services: &self.services,
            idempotency_window: bounds.idempotency_window,
            mode_of: &|topic| self.topics.policy_of(topic).mode,
            header_key,
        })
    }

    /// A topic, if it exists.
    async fn topic(&self, topic: &Topic) -> Result<Registered, Error> {
        self.topics.find(topic).await?.ok_or_else(Error::no_topic)
    }

    /// The lane of a task, if its topic exists.
    async fn lane_of(&self, topic: &Topic, id: TaskId) -> Result<Lane, Error> {
        Ok(self.topic(topic).await?.entry.lane_of(id))
    }

    /// Does something with a task in its lane. Where there is no such task, this instance's entry of the topic may be an old one: it is read
    /// again, and if the id leads to another lane by that, the same is done there.
    async fn in_lane<T, F>(&self, topic: &Topic, id: TaskId, act: impl Fn(Lane) -> F + Send) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
        T: Send,
    {
        let lane = self.lane_of(topic, id).await?;
        let missing = match act(lane.clone()).await {
            Err(error @ Error::NotFound(_)) => error,
            done => return done,
        };
        match self.topics.reload(topic).await?.map(|known| known.entry.lane_of(id)) {
            Some(now) if now != lane => act(now).await,
            _ => Err(missing),
        }
    }
}

/// Every route, and the way to them.
pub fn edge(api: Arc<Api>) -> Edge {
    let line = Line::before(api.params.concurrency);
    let (budget, timeout) = (Budget::new(api.params.bodies), api.params.timeout);
    let work = |limit: &body::Limit, budget: Budget, may_hold_back| Work {
        timeout,
        limit: limit.clone(),
        budget,
        line: line.clone(),
        may_hold_back,
    };
    let works = Works {
        batches: work(&api.batch_body_limit, budget.of_batches(), false),
        contents: work(&api.body_limit, budget.clone(), true),
        others: work(&Works::other_limit(&api.body_limit), budget, true),
    };
    let (tokens, draining, calls) = (api.tokens.clone(), api.draining.clone(), calls(&api));
    let router = router(api, &calls);
    Edge::behind(Entrance { line, tokens, works, calls, draining }, router)
}

/// Every call about tasks.
fn calls(api: &Arc<Api>) -> Calls {
    Calls::default()
        .with("/delay/task/add", by(api, add::add))
        .with("/delay/task/add_batch", by(api, add::add_batch))
        .with("/delay/task/adopt", by(api, adopt::adopt))
        .with("/delay/task/pull", by(api, pull::pull))
        .with("/delay/task/ack", by(api, settle::ack))
        .with("/delay/task/nack", by(api, settle::nack))
        .with("/delay/task/extend", by(api, settle::extend))
        .with("/delay/task/cancel", by(api, manage::cancel))
        .with("/delay/task/update", by(api, manage::update))
        .with("/delay/task/get", by(api, get::get))
        .with("/delay/task/list", by(api, list::list))
        .with("/delay/task/records", by(api, transfer::records))
        .with("/delay/task/moved", by(api, transfer::moved))
        .with("/delay/dead/causes", by(api, dead::causes))
        .with("/delay/dead/replay", by(api, dead::replay))
        .with("/delay/dead/purge", by(api, dead::purge))
        .with("/delay/topic/list", by(api, topic::list))
        .with("/delay/topic/get", by(api, topic::get))
        .with("/delay/topic/set", by(api, topic_policy::set))
        .with("/delay/topic/pause", by(api, topic::pause))
        .with("/delay/topic/resume", by(api, topic::resume))
        .with("/delay/topic/purge", by(api, topic::purge))
        .with("/delay/topic/forecast", by(api, topic::forecast))
        .with("/delay/topic/delete", by(api, topic::delete))
        .with("/delay/destination/list", by(api, destination::list))
        .with("/delay/destination/hold", by(api, destination::hold))
        .with("/delay/destination/release", by(api, destination::release))
}

/// Every other route.
fn router(api: Arc<Api>, calls: &Calls) -> Router {
    let health = Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready));
    let pages = Router::new()
        .route("/metrics", get(metrics::serve))
        .route("/openapi.json", get(openapi::serve))
        .route("/docs", get(docs::page))
        .route("/docs/explorer.js", get(docs::script))
        .route("/docs/explorer.css", get(docs::style))
        .route("/docs/icon.svg", get(docs::icon));
    // For those who ask for a call by another method.
    let others = calls.paths().fold(Router::new(), |router, path| router.route(path, post(no_way_here)));
    let routes = others.merge(health).merge(pages);
    routes.fallback(no_such_route).method_not_allowed_fallback(wrong_method).with_state(api)
}

/// A call that comes by the router has passed nobody who asked who calls: our fault, and the way stays closed.
async fn no_way_here() -> Error {
    Error::Internal
}

async fn no_such_route() -> Error {
    Error::no_route()
}

async fn wrong_method(uri: Uri) -> Error {
    Error::MethodNotAllowed(if uri.path().starts_with("/delay/") { "POST" } else { "GET" })
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
