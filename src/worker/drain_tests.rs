use tokio::sync::{Notify, broadcast};

use super::*;
use crate::callback::{Answer, Call, LONGEST_RETRY_AFTER, LimitParams};
use crate::clock::UnixMillis;
use crate::store::*;
use crate::task::{Destination, Lane, State, StoreId, TaskId, Topic, TopicPolicy};
use crate::topic;

/// A store that takes what it is asked, and says nothing: a disk that hangs.
#[derive(Debug)]
struct Silent {
    /// What is held was asked for, as a look over the lanes begins.
    asked: Notify,
    hints: broadcast::Sender<Hint>,
}

async fn never<T>() -> T {
    std::future::pending().await
}

impl Delivery for Silent {
    async fn look(&self, _: Option<Revision>, lanes: Vec<Lane>) -> Looked {
        // It counts no revisions: the registry is read each time.
        let next = if lanes.is_empty() { Ok(None) } else { self.next_due(lanes).await.map(Some) };
        let holds = self.holds().await;
        // Last: a pause that has been read must not wait for the others.
        let registry = self.topics().await.map(|topics| Some((Revision::default(), topics)));
        Looked { registry, holds, next }
    }

    async fn id(&self) -> Result<StoreId> {
        never().await
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    async fn claim(&self, _: Claim) -> Result<Claimed> {
        never().await
    }

    async fn settle(&self, _: Vec<Settle>) -> Vec<Result<Settled>> {
        never().await
    }

    async fn extend(&self, _: &Lane, _: TaskId, _: &Receipt, _: Duration) -> Result<Settled> {
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

impl Intake for Silent {
    fn durability(&self) -> Durability {
        unreachable!("nobody asks")
    }

    async fn add(&self, _: Vec<NewTask>) -> Vec<Result<Added>> {
        never().await
    }
}

impl Topics for Silent {
    async fn list(&self, _: ListQuery) -> Result<Vec<Listed>> {
        never().await
    }

    async fn set_policy(&self, _: &Topic, _: &TopicPolicy) -> Result<bool> {
        never().await
    }

    async fn pause(&self, _: &Topic) -> Result<Option<UnixMillis>> {
        never().await
    }

    async fn resume(&self, _: &Topic, _: Option<Misfired>) -> Result<Option<bool>> {
        never().await
    }

    async fn unregister(&self, _: &TopicEntry) -> Result<bool> {
        never().await
    }

    async fn stats(&self, _: &Lane) -> Result<Counts> {
        never().await
    }

    async fn register(&self, _: TopicEntry) -> Result<TopicEntry> {
        never().await
    }

    async fn topic(&self, _: &Topic) -> Result<Option<Registered>> {
        Ok(None)
    }

    async fn topics(&self) -> Result<Vec<Registered>> {
        Ok(Vec::new())
    }
}

impl Admin for Silent {
    async fn cancel(&self, _: &Lane, _: TaskId) -> Result<Cancelled> {
        never().await
    }

    async fn reschedule(&self, _: &Lane, _: TaskId, _: Moment, _: Option<NewContent>) -> Result<Rescheduled> {
        never().await
    }

    async fn get(&self, _: &Lane, _: TaskId) -> Result<Option<Task>> {
        never().await
    }

    async fn replay(&self, _: &Lane, _: Vec<TaskId>, _: Spread) -> Result<usize> {
        never().await
    }

    async fn summaries(&self, _: &Lane, _: Vec<TaskId>) -> Result<Vec<Option<Summary>>> {
        never().await
    }

    async fn discard(&self, _: &Lane, _: State, _: Vec<TaskId>) -> Result<usize> {
        never().await
    }

    async fn clear(&self, _: &Lane, _: usize) -> Result<usize> {
        never().await
    }

    async fn forecast(&self, _: &Lane, _: Duration, _: usize) -> Result<Forecast> {
        never().await
    }

    async fn notes(&self, _: &Lane, _: TaskId) -> Result<Vec<AttemptNote>> {
        never().await
    }

    async fn lend(&self, _: &Lane, _: Vec<TaskId>, _: &Receipt, _: Duration) -> Result<Vec<bool>> {
        never().await
    }

    async fn adopt(&self, _: Vec<Adoptee>) -> Vec<Result<Adopted>> {
        never().await
    }

    async fn set_hold(&self, _: &Destination, _: bool) -> Result<()> {
        never().await
    }

    async fn holds(&self) -> Result<Holds> {
        self.asked.notify_one();
        never().await
    }

    async fn waiting(&self, _: Vec<Lane>) -> Result<Vec<Waiting>> {
        never().await
    }

    async fn check(&self, _: Cursor, _: bool) -> Result<Checked> {
        never().await
    }
}

impl Maintenance for Silent {
    async fn forget_misfire(&self, _: &Topic, _: Misfire) -> Result<()> {
        never().await
    }

    async fn histories(&self, _: Vec<Lane>) -> Result<Histories> {
        never().await
    }

    async fn purge(&self, _: &Lane, _: State, _: UnixMillis, _: usize) -> Result<usize> {
        never().await
    }

    async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        never().await
    }
}

impl Store for Silent {
    async fn ping(&self) -> Result<UnixMillis> {
        never().await
    }

    async fn close(&self) {
        never().await
    }
}

struct NoCalls;

impl Caller for NoCalls {
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
        limits: Arc::new(Limits::new(LimitParams {
            concurrency: 1,
            concurrency_per_service: 1,
            breaker: Default::default(),
            retry_after_max: LONGEST_RETRY_AFTER,
        })),
        clock: Clock::system(),
    };
    let second = Duration::from_secs(1);
    let params = Params {
        enabled: true,
        lease: 60 * second,
        idle_stop: 60 * second,
        claim_batch: 10,
        policy: Policy { max_attempts: 3, backoff: Default::default() },
        timeout: 5 * second,
        keep: 60 * second,
        keep_most: 1_000_000,
        noted: Noted::Failures,
        look_every: second,
    };
    Worker::start(parts, params)
}

/// A SIGTERM was without effect while the disk hung.
#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_holds_up_the_end_for_the_grace_at_most() {
    let store = Arc::new(Silent { asked: Notify::new(), hints: broadcast::Sender::new(1) });
    let worker = worker_before(store.clone());
    store.asked.notified().await;
    let grace = Duration::from_secs(20);
    let drained = tokio::time::timeout(2 * grace, worker.drain(grace)).await;
    assert_eq!(drained.expect("it ends"), 0);
}
