//! An empty store with a manual clock, and short functions for its verbs.

use std::any::Any;
use std::time::Duration;

use delayd::model::clock::{Clock, UnixMillis};
use delayd::model::task::{Lane, OnDead, Options, Receipt, State, TaskId};
use delayd::store::{
    Added, AnyStore, Asker, Claim, Claimed, Counts, Grant, Hint, ListQuery, Listed, LockToken,
    Moment, NewTask, Outlook, Reader, Result, Settle, Settled, Store, Task, TopicEntry, Transition,
    Want, embedded, redis,
};
use delayd_wire::Span;

use crate::poll;
use crate::redis_many;
use crate::redis_server;
use crate::reference::Reference;

/// The tests begin at this moment: the first millisecond of a second.
pub(crate) const START: UnixMillis = UnixMillis(1_800_000_000_000);

/// How long the bench's claims lease their tasks, in milliseconds.
pub(crate) const LEASE_MS: u64 = 30_000;

/// The span from the first to the last possible moment.
pub(crate) const ALWAYS: (UnixMillis, UnixMillis) = (UnixMillis(0), UnixMillis(i64::MAX));

/// A store under test. Its topic is `orders` with one lane, unless a test says otherwise.
pub(crate) struct Bench<S> {
    pub(crate) store: S,
    pub(crate) clock: Clock,
    /// What the store is on: its folder, or its key prefix.
    pub(crate) kept: Box<dyn Any + Send>,
}

/// One leased task.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: TaskId,
    pub(crate) receipt: Receipt,
}

/// An embedded store on a file of its own.
pub(crate) async fn embedded() -> Bench<AnyStore> {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(START);
    let params = embedded::Params {
        path: folder.path().join("delayd.db"),
        reserve: 1 << 20,
        clock: clock.clone(),
    };
    let store = AnyStore::Embedded(embedded::Embedded::open(params).unwrap());
    Bench { store, clock, kept: Box::new(folder) }
}

/// A key prefix of its own on the Redis of this test process.
pub(crate) async fn redis() -> Bench<AnyStore> {
    let clock = Clock::manual(START);
    let prefix = fresh_prefix();
    let store = AnyStore::Redis(connect(&prefix, &clock).await);
    Bench { store, clock, kept: Box::new(prefix) }
}

/// A key prefix of its own on the Redis Cluster of this run. Its lanes and its common keys are on
/// different nodes.
pub(crate) async fn cluster() -> Bench<AnyStore> {
    let clock = Clock::manual(START);
    let prefix = fresh_prefix();
    let params = redis::Params {
        topology: redis::Topology::Cluster,
        urls: redis_many::shared_cluster(),
        key_prefix: prefix.clone(),
        timeout: Duration::from_secs(60),
        clock: clock.clone(),
        ..redis::Params::standalone("")
    };
    let store = AnyStore::Redis(redis::Redis::connect(params).await.unwrap());
    // Some nodes of a new cluster may not know it yet.
    assert!(poll::until(async || store.ping().await.is_ok()).await, "the cluster does not answer");
    Bench { store, clock, kept: Box::new(prefix) }
}

/// The specification itself.
pub(crate) async fn model() -> Bench<Reference> {
    let clock = Clock::manual(START);
    Bench { store: Reference::new(clock.clone()), clock, kept: Box::new(()) }
}

/// A key prefix that was not used before.
pub(crate) fn fresh_prefix() -> String {
    format!("t{:016x}", rand::random::<u64>())
}

/// A connected instance under a key prefix.
pub(crate) async fn connect(prefix: &str, clock: &Clock) -> redis::Redis {
    let params = redis::Params {
        key_prefix: prefix.into(),
        timeout: Duration::from_secs(60),
        clock: clock.clone(),
        ..redis::Params::standalone(redis_server::shared().url())
    };
    redis::Redis::connect(params).await.unwrap()
}

pub(crate) fn topic() -> TopicEntry {
    topic_of("orders", 1)
}

pub(crate) fn topic_of(name: &str, shards: u16) -> TopicEntry {
    TopicEntry { topic: name.parse().unwrap(), shards }
}

pub(crate) fn lane() -> Lane {
    "orders:0".parse().unwrap()
}

pub(crate) fn receipt(text: &str) -> Receipt {
    text.parse().unwrap()
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The moment `ms` milliseconds after [`START`].
pub(crate) fn at(ms: i64) -> UnixMillis {
    UnixMillis(START.0 + ms)
}

pub(crate) fn new_task(destination: &str, after_ms: u64) -> NewTask {
    NewTask {
        topic: topic(),
        destination: destination.parse().unwrap(),
        moment: Moment::After(ms(after_ms)),
        options: Options::default(),
        content: format!("{{\"sn\":\"{destination}\"}}"),
        idempotency: None,
        quota: None,
    }
}

/// A task with a key.
pub(crate) fn keyed(key: &str, after_ms: u64) -> NewTask {
    let options = Options { key: Some(key.into()), ..Options::default() };
    NewTask { options, ..new_task("message.call", after_ms) }
}

/// A task that expires `expires_after_ms` after its due moment.
pub(crate) fn expiring(destination: &str, after_ms: u64, expires_after_ms: u64) -> NewTask {
    let options = Options { expires_after: Some(Span(ms(expires_after_ms))), ..Options::default() };
    NewTask { options, ..new_task(destination, after_ms) }
}

/// A task for `message.call` whose dead-letter callback goes to `dead.letters`.
pub(crate) fn lamented(after_ms: u64) -> NewTask {
    let on_dead =
        OnDead { sn: "dead.letters".parse().unwrap(), url: "/dead".into(), task_id: None };
    let options = Options { on_dead: Some(on_dead), ..Options::default() };
    NewTask { options, ..new_task("message.call", after_ms) }
}

pub(crate) fn wants(wants: &[(&str, usize)]) -> Vec<Want> {
    wants
        .iter()
        .map(|(name, slots)| Want { destination: name.parse().unwrap(), slots: *slots })
        .collect()
}

/// A worker's claim on the bench's lane.
pub(crate) fn claim_of(pairs: &[(&str, usize)]) -> Claim {
    Claim {
        lane: lane(),
        wants: wants(pairs),
        lease: ms(LEASE_MS),
        holder: Some(LockToken("bench".into())),
        more: false,
        after: None,
        in_hand: 0,
        misfires: Vec::new(),
    }
}

pub(crate) fn delivered() -> Transition {
    Transition::Delivered { outcome: "200 OK".into() }
}

pub(crate) fn retry(after_ms: u64) -> Transition {
    let due = Moment::After(ms(after_ms));
    Transition::Retry { due, outcome: "503 Service Unavailable".into() }
}

pub(crate) fn dead() -> Transition {
    Transition::Dead { outcome: "410 Gone".into() }
}

pub(crate) fn stale(state: State) -> Settled {
    Settled::Stale { state }
}

pub(crate) fn ids(grant: &Grant) -> Vec<TaskId> {
    grant.tasks.iter().map(|task| task.id).collect()
}

pub(crate) fn outlook(due: &[&str], next: Option<UnixMillis>) -> Outlook {
    let due: Vec<_> = due.iter().map(|name| name.parse().unwrap()).collect();
    Outlook { due, end: None, next }
}

impl<S: Store> Bench<S> {
    /// A bench around a store that needs nothing else.
    pub(crate) fn around(store: S, clock: Clock) -> Self {
        Self { store, clock, kept: Box::new(()) }
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    pub(crate) fn advance(&self, by_ms: u64) {
        self.clock.advance(ms(by_ms));
    }

    /// Adds a task to the bench's lane.
    pub(crate) async fn add(&self, destination: &str, after_ms: u64) -> TaskId {
        self.add_task(new_task(destination, after_ms)).await
    }

    pub(crate) async fn add_task(&self, task: NewTask) -> TaskId {
        self.store.add(vec![task]).await.remove(0).unwrap().id
    }

    /// Adds one task and returns the result.
    pub(crate) async fn try_add(&self, task: NewTask) -> Result<Added> {
        self.store.add(vec![task]).await.remove(0)
    }

    pub(crate) async fn grant(&self, claim: Claim) -> Grant {
        // A dead-letter call can be claimed once the death is durable. This answer waits for that.
        self.store.settle(Asker::Caller, Vec::new()).await;
        match self.store.claim(claim).await.unwrap() {
            Claimed::Granted(grant) => grant,
            Claimed::Refused { retry_in } => panic!("another holds the lane for {retry_in:?}"),
        }
    }

    pub(crate) async fn claim(&self, pairs: &[(&str, usize)]) -> Grant {
        self.grant(claim_of(pairs)).await
    }

    /// Claims the one task that is due for `message.call`.
    pub(crate) async fn hold(&self) -> Held {
        let grant = self.claim(&[("message.call", 1)]).await;
        assert_eq!(grant.tasks.len(), 1, "one task should have been due");
        Held { id: grant.tasks[0].id, receipt: grant.receipt }
    }

    /// Adds a task for `message.call` and claims it.
    pub(crate) async fn add_held(&self) -> Held {
        self.add("message.call", 0).await;
        self.hold().await
    }

    /// Lets the lease of the last claim expire.
    pub(crate) fn let_lease_run_out(&self) {
        self.advance(LEASE_MS);
    }

    /// A claim without destinations: it only sweeps.
    pub(crate) async fn sweep(&self) -> Grant {
        self.claim(&[]).await
    }

    pub(crate) async fn settle(&self, held: &Held, transition: Transition) -> Settled {
        let settle =
            Settle { lane: lane(), id: held.id, receipt: held.receipt.clone(), transition };
        self.store.settle(Asker::Worker, vec![settle]).await.remove(0).unwrap()
    }

    pub(crate) async fn get(&self, id: TaskId) -> Task {
        self.store.get(Reader::Worker, &lane(), id).await.unwrap().expect("the task is kept")
    }

    pub(crate) async fn state(&self, id: TaskId) -> State {
        self.get(id).await.state
    }

    pub(crate) async fn counts(&self) -> Counts {
        self.store.stats(&lane()).await.unwrap()
    }

    pub(crate) async fn list(&self, state: State) -> Vec<Listed> {
        let (from, to) = ALWAYS;
        self.store
            .list(ListQuery { lane: lane(), state, from, to, after: None, limit: 1_000 })
            .await
            .unwrap()
    }

    pub(crate) async fn next_due(&self) -> Option<UnixMillis> {
        let next = self.store.next_due(vec![lane()]).await.unwrap();
        assert_eq!(next.now, self.now());
        next.lanes[0]
    }
}

/// The next hint, which must have been sent already.
pub(crate) async fn hear(hints: &mut tokio::sync::broadcast::Receiver<Hint>) -> Hint {
    tokio::time::timeout(Duration::from_secs(60), hints.recv())
        .await
        .expect("no hint arrived in time")
        .unwrap()
}
