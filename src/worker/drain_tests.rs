use crate::metrics::Metrics;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use super::settler::LAST_FLUSH;
use super::{NotedAttempts, Params, Parts, Worker};
use crate::callback::{Answer, Call, CallClient, LONGEST_RETRY_AFTER, Services};
use crate::limits::{DestinationLimits, LimitParams};
use crate::model::clock::Clock;
use crate::model::task::{Lane, Receipt, StoreId, TaskId};
use crate::outcome::Policy;
use crate::store::*;
use crate::topic::{self, Registry};

/// A store that never answers, as on a disk that hangs.
#[derive(Debug)]
struct Silent {
    /// A poll has begun.
    asked: Notify,
    hints: broadcast::Sender<Hint>,
}

async fn never<T>() -> T {
    std::future::pending().await
}

impl Signals for Silent {
    async fn id(&self) -> Result<StoreId> {
        never().await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }
}

impl Delivery for Silent {
    async fn look(&self, _: Look) -> Looked {
        self.asked.notify_one();
        never().await
    }

    async fn claim(&self, _: Claim) -> Result<Claimed> {
        never().await
    }

    async fn settle(&self, _: Asker, _: Vec<Settle>) -> Vec<Result<Settled>> {
        never().await
    }

    async fn extend(
        &self,
        _: Asker,
        _: &Lane,
        _: TaskId,
        _: &Receipt,
        _: Duration,
    ) -> Result<Settled> {
        never().await
    }

    async fn note(&self, _: Vec<AttemptNote>) -> Result<()> {
        never().await
    }

    async fn next_due(&self, _: Vec<Lane>) -> Result<NextDue> {
        never().await
    }

    async fn next_pull(&self, _: Vec<Lane>) -> Result<NextDue> {
        never().await
    }
}

struct NoCalls;

impl CallClient for NoCalls {
    async fn call(&self, _: &Call<'_>) -> Answer {
        never().await
    }
}

fn worker_before(store: Arc<Silent>) -> Worker<Silent, NoCalls> {
    let parts = Parts {
        topics: Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 10 })),
        store,
        client: NoCalls,
        services: Arc::new(Services::new(Vec::new()).unwrap()),
        topic_limits: Default::default(),
        limits: DestinationLimits::new(LimitParams {
            concurrency: 1,
            concurrency_per_service: 1,
            breaker: Default::default(),
            retry_after_max: LONGEST_RETRY_AFTER,
        }),
        instances: Arc::default(),
        metrics: Metrics::new([]),
        clock: Clock::system(),
        tracer: Default::default(),
    };
    let second = Duration::from_secs(1);
    let params = Params {
        enabled: true,
        lease: 60 * second,
        idle_stop: 60 * second,
        claim_batch: 10,
        policy: Policy { max_attempts: 3, backoff: Default::default() },
        timeout: 5 * second,
        noted: NotedAttempts::Failures,
        poll_every: second,
    };
    Worker::start(parts, params)
}

/// A SIGTERM had no effect while the disk hung.
#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_holds_up_the_end_for_the_grace_at_most() {
    let store = Arc::new(Silent { asked: Notify::new(), hints: broadcast::Sender::new(1) });
    let worker = worker_before(store.clone());
    store.asked.notified().await;
    let grace = Duration::from_secs(20);
    let began = Instant::now();
    assert_eq!(worker.drain(grace).await, 0);
    assert!(began.elapsed() <= grace + LAST_FLUSH, "{:?}", began.elapsed());
}
