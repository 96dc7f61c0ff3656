//! What the handlers share: the store, the topics, the services, and what may change while serving.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::api::auth::Tokens;
use crate::api::long_poll::claim::Pulls;
use crate::api::long_poll::delivery::LeaseReturn;
use crate::api::params::{Bounds, Limit, Params};
use crate::api::wire::error::Error;
use crate::callback::Services;
use crate::limits::DestinationLimits;
use crate::metrics::Metrics;
use crate::model::clock::Clock;
use crate::model::task::{Lane, TaskId, Topic};
use crate::store::{AnyStore, Registered};
use crate::topic::Registry;

/// How long [`Api::finish`] waits.
const LAST_SETTLES: Duration = Duration::from_secs(15);

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
    pub limits: DestinationLimits,
    /// Who may call.
    pub tokens: Arc<Tokens>,
    /// The machine's time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// True from the moment on at which no more work is taken in.
    pub draining: watch::Receiver<bool>,
}

/// What the handlers share.
#[derive(Debug)]
pub struct Api {
    pub(crate) params: Params,
    pub(crate) bounds: RwLock<Bounds>,
    pub(crate) body_limit: Limit,
    pub(crate) batch_body_limit: Limit,
    pub(crate) store: Arc<AnyStore>,
    pub(crate) topics: Arc<Registry>,
    pub(crate) services: Arc<Services>,
    pub(crate) limits: DestinationLimits,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) clock: Clock,
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) pulls: Arc<Pulls>,
    /// Claims and settles that outlive their request.
    pub(crate) pending: TaskTracker,
    pub(crate) metrics: Arc<Metrics>,
}

impl Api {
    /// Puts the parts together. To be called within a runtime.
    pub fn new(parts: Parts, params: Params) -> Self {
        let Parts { store, topics, services, limits, tokens, clock, metrics, draining } = parts;
        let pending = TaskTracker::new();
        let lease_return = LeaseReturn { store: store.clone(), pending: pending.clone() };
        let pulls =
            Arc::new(Pulls::new(lease_return, topics.clone(), draining.clone(), params.waiters));
        let bounds = RwLock::new(params.bounds());
        let (body_limit, batch_body_limit) =
            (Limit::of(params.body_limit), Limit::of(params.batch_body_limit));
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
            pulls,
            pending,
            metrics,
        }
    }

    /// Returns once what outlives its request (the settles of pulls whose answers were written
    /// last) is done. To be awaited after `serve` has returned and before the store is closed;
    /// takes about ten seconds as a rule, and no more than fifteen should the store not answer at
    /// all.
    pub async fn finish(&self) {
        self.pending.close();
        if tokio::time::timeout(LAST_SETTLES, self.pending.wait()).await.is_err() {
            let left = self.pending.len();
            tracing::warn!(
                left,
                "The store does not answer: {left} pulls are not settled, and their tasks come back"
            );
        }
    }

    /// Goes by other limits from now on: of bodies, contents, batches and delays. What else
    /// `params` say stays as it was at the start.
    pub fn set_bounds(&self, params: &Params) {
        self.body_limit.set(params.body_limit);
        self.batch_body_limit.set(params.batch_body_limit);
        *self.bounds.write().unwrap_or_else(PoisonError::into_inner) = params.bounds();
    }

    pub(crate) fn bounds(&self) -> Bounds {
        *self.bounds.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Refuses new work while draining. What ends work (acks, nacks) goes on.
    pub(crate) fn check_accepting(&self) -> Result<(), Error> {
        match self.is_draining() {
            true => Err(Error::Unavailable(
                "this instance is shutting down, so this is not confirmed: repeat it",
            )),
            false => Ok(()),
        }
    }

    /// A topic, if it exists.
    pub(crate) async fn topic(&self, topic: &Topic) -> Result<Registered, Error> {
        self.topics.find(topic).await?.ok_or_else(Error::no_topic)
    }

    /// The lane of a task, if its topic exists.
    pub(crate) async fn lane_of(&self, topic: &Topic, id: TaskId) -> Result<Lane, Error> {
        Ok(self.topic(topic).await?.entry.lane_of(id))
    }

    /// Does something with a task in its lane. Where there is no such task, this instance's entry
    /// of the topic may be an old one: it is read again, and if the id leads to another lane by
    /// that, the same is done there.
    pub(crate) async fn in_lane<T, F>(
        &self,
        topic: &Topic,
        id: TaskId,
        act: impl Fn(Lane) -> F + Send,
    ) -> Result<T, Error>
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

#[cfg(test)]
impl Api {
    /// Room for so many waiting pulls.
    pub(crate) fn set_places(&mut self, places: usize) {
        let lease_return = LeaseReturn { store: self.store.clone(), pending: self.pending.clone() };
        self.pulls =
            Arc::new(Pulls::new(lease_return, self.topics.clone(), self.draining.clone(), places));
    }
}
