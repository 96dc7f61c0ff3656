//! Workers over an embedded store that records claims, and calls that end when the test says so.

use crate::metrics::Metrics;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::{Notify, Semaphore, broadcast, mpsc, oneshot};
use tokio::time::timeout;

use super::{NotedAttempts, Params, Parts, Worker};
use crate::callback::{
    Answer, Call, CallClient, Fault, LONGEST_RETRY_AFTER, ServiceParams, Services, SuccessRule,
};
use crate::limits::{Allowance, DestinationLimits, LimitParams};
use crate::model::clock::Clock;
use crate::model::task::{Destination, Lane, Options, Receipt, StoreId, TaskId, TopicPolicy};
use crate::outcome::Policy;
use crate::store::*;
use crate::topic::{self, Registry};

/// The longest wait of a test.
const LONG: Duration = Duration::from_secs(20);

/// An embedded store that records claims and can delay polls.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) store: embedded::Embedded,
    /// The claims that were answered.
    claims: Mutex<Vec<Claim>>,
    claimed: Notify,
    /// The due destinations that the answers named, and how often they named one.
    seen_due: Mutex<BTreeSet<Destination>>,
    named: AtomicUsize,
    /// The lanes whose planned moments the polls asked for.
    pub(super) planners: Mutex<BTreeSet<Lane>>,
    /// How far away it says to be.
    pub(super) round_trip: Mutex<Duration>,
    /// Notified when a poll was done. Its answer waits for a permit of `holds_gate`.
    pub(super) holds_read: Notify,
    pub(super) holds_gate: Semaphore,
    /// Notified when a poll is asked for. It waits for a permit of `poll_gate`.
    pub(super) polled: Notify,
    pub(super) poll_gate: Semaphore,
    /// Whether the second request of polls fails.
    pub(super) hides_due: AtomicBool,
    _folder: TempDir,
}

impl Watched {
    fn new(clock: &Clock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let params = embedded::Params {
            path: folder.path().join("delayd.db"),
            reserve: 0,
            clock: clock.clone(),
        };
        Self {
            store: embedded::Embedded::open(params).unwrap(),
            claims: Mutex::default(),
            claimed: Notify::new(),
            seen_due: Mutex::default(),
            named: AtomicUsize::new(0),
            planners: Mutex::default(),
            round_trip: Mutex::default(),
            holds_read: Notify::new(),
            holds_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            polled: Notify::new(),
            poll_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            hides_due: AtomicBool::new(false),
            _folder: folder,
        }
    }

    /// Waits until `found` finds something among the answered claims, and returns it.
    pub(super) async fn until<T>(&self, found: impl Fn(&[Claim]) -> Option<T>) -> T {
        loop {
            let claimed = self.claimed.notified();
            if let Some(found) = found(&self.claims.lock().unwrap_or_else(PoisonError::into_inner))
            {
                return found;
            }
            claimed.await;
        }
    }
}

/// What claims have cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// The number of claims.
    pub(super) claims: usize,
    /// How many due destinations their answers named.
    pub(super) named: usize,
}

impl Watched {
    /// How many due destinations the answers named.
    pub(super) fn count_seen(&self) -> usize {
        self.seen_due.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What the claims have cost so far.
    pub(super) fn cost(&self) -> Cost {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner).len();
        Cost { claims, named: self.named.load(Ordering::SeqCst) }
    }
}

async fn pass(gate: &Semaphore) {
    gate.acquire().await.expect("the gate is never closed").forget();
}

impl Signals for Watched {
    async fn id(&self) -> Result<StoreId> {
        self.store.id().await
    }

    fn round_trip(&self, _lane: &Lane) -> Duration {
        *self.round_trip.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        self.store.hints()
    }
}

impl Delivery for Watched {
    async fn look(&self, look: Look) -> Looked {
        self.planners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(look.planners.iter().cloned());
        self.polled.notify_one();
        pass(&self.poll_gate).await;
        let looked = self.store.look(look).await;
        self.holds_read.notify_one();
        pass(&self.holds_gate).await;
        looked
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let claimed = self.store.claim(claim.clone()).await;
        if let Ok(Claimed::Granted(grant)) = &claimed {
            self.named.fetch_add(grant.outlook.due.len(), Ordering::SeqCst);
            let mut seen = self.seen_due.lock().unwrap_or_else(PoisonError::into_inner);
            seen.extend(grant.outlook.due.iter().cloned());
        }
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
        self.claimed.notify_waiters();
        claimed
    }

    async fn settle(&self, asker: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        self.store.settle(asker, settles).await
    }

    async fn extend(
        &self,
        asker: Asker,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Settled> {
        self.store.extend(asker, lane, id, receipt, lease).await
    }

    async fn note(&self, notes: Vec<AttemptNote>) -> Result<()> {
        self.store.note(notes).await
    }

    async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        self.store.next_pull(lanes).await
    }

    async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        if self.hides_due.load(Ordering::SeqCst) {
            return Err(Error::Unavailable("silent".into()));
        }
        self.store.next_due(lanes).await
    }
}

/// A running call. The test ends it.
pub(super) struct Made {
    pub(super) sn: String,
    pub(super) id: TaskId,
    pub(super) attempt: u32,
    receipt: Receipt,
    pub(super) end: oneshot::Sender<Answer>,
}

impl Made {
    pub(super) fn succeed(self) {
        // A call that was cut off needs no answer.
        let _ = self.end.send(Answer::delivered("200"));
    }

    /// The holder of the receipt ends the task later.
    pub(super) fn keep(self, lease: Duration) -> Receipt {
        let _ = self.end.send(Answer::Accepted { lease: Some(lease) });
        self.receipt
    }

    pub(super) fn fail(self) {
        let fault = Fault::Destination;
        let _ = self.end.send(Answer::Failed {
            outcome: "503".into(),
            retry_after: None,
            hold: None,
            fault,
        });
    }
}

/// Reports calls to the test, which ends them.
pub(super) struct ByHand(mpsc::UnboundedSender<Made>);

impl CallClient for ByHand {
    async fn call(&self, call: &Call<'_>) -> Answer {
        let (end, answer) = oneshot::channel();
        let made = Made {
            sn: call.service.name().to_string(),
            id: call.id,
            attempt: call.attempt,
            receipt: call.receipt.clone(),
            end,
        };
        self.0.send(made).expect("the test listens");
        answer.await.expect("the test answers every call")
    }
}

/// The only lane.
pub(super) fn lane() -> Lane {
    "orders:0".parse().unwrap()
}

/// A service with these limits.
pub(super) fn service(name: &str, allowance: Allowance) -> ServiceParams {
    ServiceParams {
        name: name.into(),
        endpoints: vec!["http://127.0.0.1:9".into()],
        allowance,
        success: SuccessRule::default(),
        secrets: Vec::new(),
        credentials: Default::default(),
    }
}

/// Running workers, and their store and calls.
pub(super) struct Bench {
    pub(super) store: Arc<Watched>,
    pub(super) worker: Worker<Watched, ByHand>,
    calls: mpsc::UnboundedReceiver<Made>,
}

impl Bench {
    /// Starts the workers. `services` are names and concurrency limits; `change` changes settings.
    pub(super) fn start(
        services: &[(impl AsRef<str>, usize)],
        change: impl FnOnce(&mut Params),
    ) -> Self {
        crate::install_crypto();
        let clock = Clock::system();
        let store = Arc::new(Watched::new(&clock));
        let (made, calls) = mpsc::unbounded_channel();
        let service = |(name, concurrency): &(_, usize)| {
            let allowance = Allowance { concurrency: *concurrency, rate: None };
            service(AsRef::<str>::as_ref(name), allowance)
        };
        let limits = LimitParams {
            concurrency: 5_000,
            concurrency_per_service: 100,
            breaker: Default::default(),
            retry_after_max: LONGEST_RETRY_AFTER,
        };
        let parts = Parts {
            store: store.clone(),
            topics: Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 10 })),
            client: ByHand(made),
            services: Arc::new(Services::new(services.iter().map(service).collect()).unwrap()),
            topic_limits: Default::default(),
            limits: DestinationLimits::new(limits),
            instances: Arc::default(),
            metrics: Metrics::new([]),
            clock,
            tracer: Default::default(),
        };
        let second = Duration::from_secs(1);
        let mut params = Params {
            enabled: true,
            lease: 60 * second,
            idle_stop: 60 * second,
            claim_batch: 512,
            policy: Policy { max_attempts: 9, backoff: Default::default() },
            timeout: second,
            noted: NotedAttempts::Failures,
            poll_every: second,
        };
        change(&mut params);
        Self { store, worker: Worker::start(parts, params), calls }
    }

    pub(super) fn parts(&self) -> &Parts<Watched, ByHand> {
        &self.worker.shared.parts
    }

    /// Sets the policy of the topic. The worker should poll often.
    pub(super) async fn set_policy(&self, policy: TopicPolicy) {
        let entry = self
            .store
            .store
            .create(TopicEntry { topic: lane().topic, shards: 1 }, None)
            .await
            .unwrap();
        self.store.store.set_policy(&entry.topic, &policy).await.unwrap();
        // The first notice may be of a poll from before, the second is of one that reads the
        // policy, and the third tells that it has ended.
        for _ in 0..3 {
            soon(self.store.polled.notified()).await;
        }
        assert_eq!(*self.parts().topics.policy_of(&entry.topic), policy);
    }

    /// Adds a task for each named destination, due now.
    pub(super) async fn add(&self, names: impl IntoIterator<Item = impl AsRef<str>>) {
        let topic = TopicEntry { topic: lane().topic, shards: 1 };
        let task = |name: &str| NewTask {
            topic: topic.clone(),
            destination: name.parse().unwrap(),
            moment: Moment::After(Duration::ZERO),
            options: Options::default(),
            content: format!(r#"{{"sn":"{name}","url":"/"}}"#),
            idempotency: None,
            quota: None,
        };
        let registered = self.store.store.create(topic.clone(), None).await.unwrap();
        if self.parts().topics.known_entry(&topic.topic).is_none() {
            let topics = &self.parts().topics;
            topics.learn(topics.begin_read(), &[Registered::plain(registered)]);
        }
        let tasks = names.into_iter().map(|name| task(name.as_ref())).collect();
        for added in self.store.store.add(tasks).await {
            added.unwrap();
        }
    }

    /// Waits for the next call.
    pub(super) async fn call(&mut self) -> Made {
        timeout(LONG, self.calls.recv())
            .await
            .expect("a call comes in time")
            .expect("the workers run")
    }

    /// Whether there is no further call so far.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.calls.is_empty()
    }
}

/// Waits for `what`, at most for `LONG`.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it is ready in time")
}
