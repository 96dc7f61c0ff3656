//! What the handlers share: the store, the topics, the services, and values that may change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::api::auth::{Caller, Tokens};
use crate::api::concurrency_limit::ConcurrencyLimit;
use crate::api::forecasts::{Forecasts, Sources};
use crate::api::live::LiveStreams;
use crate::api::long_poll::claim::Pulls;
use crate::api::long_poll::delivery::LeaseReturn;
use crate::api::memory_budget::MemoryBudget;
use crate::api::params::{self, Params};
use crate::api::places::{Place, PlaceBounds, Places};
use crate::api::wire::error::Error;
use crate::audit::AuditLog;
use crate::callback::Services;
use crate::instances::Instances;
use crate::limits::DestinationLimits;
use crate::metrics::{Metrics, Rejection};
use crate::model::clock::Clock;
use crate::model::task::{Lane, TaskId, Topic};
use crate::sampler::Sampled;
use crate::store::{AnyStore, Registered};
use crate::topic::Registry;
use crate::trace::Tracer;

/// The longest time that [`Api::finish`] waits.
const LAST_SETTLES: Duration = Duration::from_secs(15);

/// The scans over many tasks that one instance runs at the same time. A scan takes a second or two.
const SCANS: PlaceBounds = PlaceBounds {
    total: 2,
    each: 1,
    waiting: 4,
    wait: Duration::from_secs(3),
    refusal: "other searches, filtered lists or changes of many tasks still run: try again",
};
/// The reads of many lanes or tasks, such as pages and counts. A read takes some milliseconds of
/// the store.
const READS: PlaceBounds = PlaceBounds {
    total: 4,
    each: 1,
    waiting: 32,
    wait: Duration::from_secs(1),
    refusal: "other lists and counts still run: try again",
};

/// The reads of one task or schedule, with its content.
const GETS: PlaceBounds = PlaceBounds {
    total: 64,
    each: 32,
    waiting: 128,
    wait: Duration::from_millis(300),
    refusal: "other tasks are still read: try again",
};

/// What the API is built from.
#[derive(Debug)]
pub struct Parts {
    /// The store.
    pub store: Arc<AnyStore>,
    /// The topics.
    pub topics: Arc<Registry>,
    /// The services that can be called.
    pub services: Arc<Services>,
    /// The limits and the state of each destination.
    pub limits: DestinationLimits,
    /// The instances.
    pub instances: Arc<Instances>,
    /// What the sampler has found.
    pub sampled: Sampled,
    /// The access tokens.
    pub tokens: Arc<Tokens>,
    /// The system clock.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Where administrative calls are recorded.
    pub audit: Arc<AuditLog>,
    /// Makes the spans of adds.
    pub tracer: Tracer,
    /// True as soon as the instance drains: it refuses new work.
    pub draining: watch::Receiver<bool>,
}

/// What the handlers share.
#[derive(Debug)]
pub struct Api {
    pub(crate) params: Params,
    pub(crate) bounds: RwLock<params::Bounds>,
    /// The slots of concurrent calls.
    pub(crate) slots: ConcurrencyLimit,
    /// The memory budget of bodies and answers.
    pub(crate) memory: MemoryBudget,
    pub(crate) store: Arc<AnyStore>,
    pub(crate) topics: Arc<Registry>,
    pub(crate) services: Arc<Services>,
    pub(crate) limits: DestinationLimits,
    pub(crate) instances: Arc<Instances>,
    pub(crate) sampled: Sampled,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) clock: Clock,
    pub(crate) draining: watch::Receiver<bool>,
    /// Load balancers are to choose other instances.
    leaving: AtomicBool,
    pub(crate) pulls: Arc<Pulls>,
    /// Claims and settles that may outlive their request.
    pub(crate) pending: TaskTracker,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) tracer: Tracer,
    pub(crate) live: LiveStreams,
    pub(crate) forecasts: Forecasts,
    /// The reads of many lanes or tasks that are no scans.
    pub(crate) reads: Places,
    /// The reads of one task or schedule.
    pub(crate) gets: Places,
    /// The scans that only read.
    pub(crate) scans: Places,
    /// The scans that change tasks. They have places of their own, so that no reader delays an
    /// operator.
    pub(crate) changes: Places,
    /// The pulls that wait for tasks.
    pub(crate) waits: Places,
}

/// A pull waits as long as its caller likes, so none waits for a place.
fn waits(total: usize) -> PlaceBounds {
    PlaceBounds {
        total,
        each: total.div_ceil(2),
        waiting: 0,
        wait: Duration::ZERO,
        refusal: "too many pulls are waiting here, or with this token, so this one cannot wait: \
                  repeat it, or leave wait out",
    }
}

impl Api {
    /// Builds the shared state. Must be called within a tokio runtime.
    pub fn new(parts: Parts, params: Params) -> Self {
        let Parts {
            store,
            topics,
            services,
            limits,
            instances,
            sampled,
            tokens,
            clock,
            metrics,
            audit,
            tracer,
            draining,
        } = parts;
        let pending = TaskTracker::new();
        let lease_return = LeaseReturn { store: store.clone(), pending: pending.clone() };
        let pulls = Arc::new(Pulls::new(lease_return, topics.clone(), draining.clone()));
        let bounds = RwLock::new(params.bounds());
        let waits = Places::new(waits(params.waiters));
        let memory =
            MemoryBudget::new(params.bodies).counting(metrics.api.rejections(Rejection::Memory));
        Self {
            slots: ConcurrencyLimit::of(params.concurrency),
            memory,
            params,
            bounds,
            store,
            topics,
            services,
            limits,
            instances,
            sampled,
            tokens,
            clock,
            draining,
            leaving: AtomicBool::new(false),
            pulls,
            pending,
            metrics,
            audit,
            tracer,
            live: LiveStreams::default(),
            forecasts: Forecasts::default(),
            gets: Places::new(GETS),
            reads: Places::new(READS),
            scans: Places::new(SCANS),
            changes: Places::new(SCANS),
            waits,
        }
    }

    /// What forecasts count.
    pub(crate) fn forecast_sources(&self) -> Sources<'_> {
        Sources { store: &self.store, topics: &self.topics, sampled: &self.sampled }
    }

    /// A place for a call. Its token is checked again, because it may have waited.
    pub(crate) async fn place(&self, places: &Places, caller: &Caller) -> Result<Place, Error> {
        let place = places.place(caller).await?;
        self.tokens.check_again(caller)?;
        Ok(place)
    }

    /// A place among the reads of many lanes or tasks.
    pub(crate) async fn reading(&self, caller: &Caller) -> Result<Place, Error> {
        self.place(&self.reads, caller).await
    }

    /// Waits for work that outlives its request, such as the settles of the last pulls. Call it
    /// after `serve` has returned and before the store is closed. It takes at most about ten
    /// seconds while the store answers, and otherwise at most 15 s, and ends at this moment.
    pub async fn finish(&self, until: Instant) {
        self.pending.close();
        let until = until.min(Instant::now() + LAST_SETTLES);
        if tokio::time::timeout_at(until, self.pending.wait()).await.is_err() {
            let left = self.pending.len();
            tracing::warn!(
                left,
                "The store does not answer: {left} pulls are not settled, so their tasks will be \
                 delivered again"
            );
        }
    }

    /// Applies new limits for bodies, contents, batches and delays. The other values of `params`
    /// keep their initial values.
    pub fn set_bounds(&self, params: &Params) {
        *self.bounds.write().unwrap_or_else(PoisonError::into_inner) = params.bounds();
    }

    pub(crate) fn bounds(&self) -> params::Bounds {
        *self.bounds.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks load balancers and callers to choose other instances. New work is still accepted.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) || self.is_draining()
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Refuses new work while draining. Acks, nacks and the like still work.
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

    /// Calls `act` with the lane of a task. If the task is not found, this instance's entry of the
    /// topic may be outdated: the entry is read again, and `act` is repeated if the task's lane has
    /// changed.
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
mod tests {
    use super::*;

    /// One token once took all 4,096 places.
    #[tokio::test]
    async fn a_token_leaves_places_of_waiting_pulls_to_others() {
        let places = Places::new(waits(4));
        let (greedy, other) = (Caller::named("greedy", &[]), Caller::named("other", &[]));
        let mut held =
            vec![places.place(&greedy).await.unwrap(), places.place(&greedy).await.unwrap()];
        let refused = places.place(&greedy).await.unwrap_err();
        assert_eq!((refused.code().number(), refused.is_unavailable()), (2003, true));
        held.push(places.place(&other).await.expect("a place"));
        held.push(places.place(&Caller::anyone()).await.expect("the last place"));
        assert!(places.place(&Caller::anyone()).await.is_err());
        held.truncate(1);
        assert!(places.place(&greedy).await.is_ok());
    }
}
