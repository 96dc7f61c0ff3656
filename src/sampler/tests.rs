//! The sampler over an embedded store with a manual clock.

use tempfile::TempDir;

use super::*;
use crate::callback::{ServiceParams, SuccessRule};
use crate::limits::{Allowance, LimitParams};
use crate::model::clock::Clock;
use crate::model::task::{Destination, Options, Topic, TopicPolicy};
use crate::store::embedded::{self, Embedded};
use crate::store::{Instance, Moment, NewTask, Store, TopicEntry};
use crate::topic;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const WORKER: Params = Params { has_workers: true, every: Duration::from_secs(1) };
const NO_WORKER: Params = Params { has_workers: false, ..WORKER };

struct Bench {
    parts: Parts<Embedded>,
    state: SamplerState,
    clock: Clock,
    _folder: TempDir,
}

fn entry() -> TopicEntry {
    TopicEntry { topic: "orders".parse().unwrap(), shards: 1 }
}

fn bench() -> Bench {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let path = folder.path().join("delayd.db");
    let params = embedded::Params { path, reserve: 0, clock: clock.clone() };
    let store = Arc::new(Embedded::open(params).unwrap());
    let service = ServiceParams {
        name: "shop".into(),
        endpoints: vec!["http://127.0.0.1:1".into()],
        allowance: Allowance { concurrency: 10, rate: "5/s".parse().ok() },
        success: SuccessRule::Status,
        secrets: Vec::new(),
        credentials: Default::default(),
    };
    let limits = LimitParams {
        concurrency: 100,
        concurrency_per_service: 50,
        breaker: crate::model::breaker::Params::default(),
        retry_after_max: Duration::from_secs(60),
    };
    let parts = Parts {
        topics: Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 10 })),
        store,
        services: Arc::new(Services::new(vec![service]).unwrap()),
        limits: DestinationLimits::new(limits),
        topic_limits: Default::default(),
        instances: Arc::default(),
        metrics: Metrics::new([]),
    };
    Bench { parts, state: SamplerState::default(), clock, _folder: folder }
}

impl Bench {
    async fn add(&self, destination: &str, after_ms: u64) {
        let task = NewTask {
            topic: entry(),
            destination: destination.parse().unwrap(),
            moment: Moment::After(Duration::from_millis(after_ms)),
            options: Options::default(),
            content: "{}".into(),
            quota: None,
            idempotency: None,
        };
        assert!(self.parts.store.add(vec![task]).await.remove(0).is_ok());
        self.parts.topics.refresh().await.unwrap();
    }

    async fn sample(&mut self, params: Params) -> Snapshot {
        self.state.sample(&self.parts).await;
        self.state.snapshot(&self.parts, params)
    }

    /// The number of overdue tasks by culprit.
    async fn overdue(&mut self, params: Params) -> Vec<(Culprit, u64)> {
        overdue(&self.sample(params).await)
    }

    /// Waits until all overdue tasks have this culprit.
    async fn becomes(&mut self, culprit: Culprit, count: u64) {
        let waited = async {
            while self.overdue(WORKER).await != [(culprit, count)] {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waited).await.expect("it changes");
    }

    fn hold(&self, destinations: &[&str]) {
        let asked = self.parts.limits.ask_holds();
        let held = destinations.iter().map(|name| name.parse().unwrap()).collect();
        self.parts.limits.set_holds(asked, held, std::collections::HashMap::new());
    }
}

fn overdue(snapshot: &Snapshot) -> Vec<(Culprit, u64)> {
    let counts =
        Culprit::OF_WAITING.map(|culprit| (culprit, snapshot.overdue[culprit as usize].count));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[tokio::test]
async fn each_cause_has_its_culprit() {
    let mut bench = bench();
    bench.add("shop", 0).await;
    bench.add("shop", 60_000).await;
    assert_eq!(bench.overdue(WORKER).await, [(Culprit::Delayd, 1)]);
    let oldest = bench.sample(WORKER).await.overdue[Culprit::Delayd as usize].oldest;
    assert_eq!(oldest, Some(NOW));

    bench.hold(&["shop"]);
    assert_eq!(bench.overdue(WORKER).await, [(Culprit::Operator, 1)], "a hold");
    assert!(bench.sample(WORKER).await.destinations[&shop()].is_held);
    bench.hold(&[]);

    bench.add("@pull", 0).await;
    assert_eq!(
        bench.overdue(WORKER).await,
        [(Culprit::Delayd, 1), (Culprit::Consumer, 1)],
        "no consumer waits"
    );
    bench.add("unknown", 0).await;
    assert_eq!(
        bench.overdue(WORKER).await,
        [(Culprit::Delayd, 1), (Culprit::Operator, 1), (Culprit::Consumer, 1)],
        "it is not configured"
    );
    let topic: Topic = entry().topic;
    bench.parts.store.pause(&topic).await.unwrap();
    bench.parts.topics.refresh().await.unwrap();
    assert_eq!(bench.overdue(WORKER).await, [(Culprit::Operator, 3)], "a pause");
}

#[tokio::test]
async fn tasks_that_wait_for_slots_are_the_receivers() {
    let mut bench = bench();
    bench.add("shop", 0).await;
    bench.add("shop", 0).await;
    let allowance = |concurrency| Allowance { concurrency, rate: None };
    let permits = bench.parts.limits.reserve(&shop(), allowance(10), 10);
    assert_eq!(bench.overdue(WORKER).await, [(Culprit::Receiver, 2)], "of the service");
    drop(permits);
    bench.becomes(Culprit::Delayd, 2).await;

    let topic = entry().topic;
    let policy = TopicPolicy { concurrency: Some(3), ..TopicPolicy::default() };
    bench.parts.store.set_policy(&topic, &policy).await.unwrap();
    bench.parts.topics.refresh().await.unwrap();
    let permits = bench.parts.topic_limits.reserve(&topic, allowance(3), 3);
    assert_eq!(bench.overdue(WORKER).await, [(Culprit::Receiver, 2)], "of the topic");
    drop(permits);
    bench.becomes(Culprit::Delayd, 2).await;
}

/// After a restart in an outage of a receiver, all of its backlog was late because of delayd.
#[tokio::test]
async fn what_was_due_before_the_start_is_not_late_at_once() {
    let mut bench = bench();
    bench.add("shop", 0).await;
    bench.clock.advance(Duration::from_secs(60));
    let first = bench.sample(WORKER).await;
    assert_eq!((overdue(&first), first.late), (vec![(Culprit::Delayd, 1)], 0));
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(bench.sample(WORKER).await.late, 1);
}

fn shop() -> Destination {
    "shop".parse().unwrap()
}

#[tokio::test]
async fn an_instance_without_workers_leaves_the_verdict_to_those_that_have_some() {
    let mut bench = bench();
    bench.add("shop", 0).await;
    let instance = |has_workers| Instance { has_workers, ..Instance::default() };
    bench.parts.instances.take_in(vec![instance(false), instance(true)]);
    assert_eq!(bench.overdue(NO_WORKER).await, []);
    bench.parts.instances.take_in(vec![instance(false)]);
    assert_eq!(bench.overdue(NO_WORKER).await, [(Culprit::Delayd, 1)], "no instance calls");
}

#[tokio::test]
async fn tasks_of_a_store_that_does_not_answer_are_the_stores() {
    let mut bench = bench();
    bench.add("shop", 0).await;
    bench.add("other", 0).await;
    bench.hold(&["shop"]);
    let snapshot = bench.sample(WORKER).await;
    bench.parts.store.close().await;
    let without_store = bench.sample(WORKER).await;
    assert_eq!(overdue(&without_store), [(Culprit::Store, 2)]);
    assert_eq!((without_store.at, without_store.tasks), (snapshot.at, snapshot.tasks));
}

/// While the store is away nobody counts, but the earliest moment is known.
#[tokio::test]
async fn a_task_that_falls_due_while_the_store_is_away_is_the_stores() {
    let mut bench = bench();
    bench.add("shop", 40).await;
    assert_eq!(bench.overdue(WORKER).await, []);
    bench.state.away.insert(0);
    let (now, at) = bench.state.read.unwrap();
    bench.state.read = Some((now + Duration::from_secs(1), at));
    let snapshot = bench.state.snapshot(&bench.parts, WORKER);
    assert_eq!((overdue(&snapshot), snapshot.late), (vec![(Culprit::Store, 1)], 0));
    // The gauge of late tasks used to keep its value.
    bench.state.read = Some((now + Duration::from_secs(2), at));
    let snapshot = bench.state.snapshot(&bench.parts, WORKER);
    assert_eq!((snapshot.late, snapshot.oldest), (1, NOW));
    let earliest = NOW + Duration::from_millis(40);
    assert_eq!(snapshot.overdue[Culprit::Store as usize].oldest, Some(earliest));
}

/// Each address of a cluster's server that was ever silent used to stay.
#[tokio::test]
async fn a_silent_server_without_lanes_is_forgotten() {
    let mut bench = bench();
    bench.add("shop", 0).await;
    bench.state.away.insert(77);
    bench.sample(WORKER).await;
    assert!(bench.state.away.is_empty());
}

#[tokio::test]
async fn a_snapshot_has_counts_forecast_and_capacity() {
    let mut bench = bench();
    for after in [0, 30_000, 7_200_000] {
        bench.add("shop", after).await;
    }
    let snapshot = bench.sample(WORKER).await;
    assert_eq!((snapshot.tasks.scheduled, snapshot.at, snapshot.oldest), (3, NOW, NOW));
    assert!(snapshot.is_complete);
    let shop = &snapshot.destinations[&shop()];
    assert_eq!((shop.waiting, shop.overdue, shop.within), (3, 1, [2, 2, 2, 3]));
    let minute = Duration::from_secs(60);
    assert_eq!(shop.capacity(minute, None, 2), 600.0, "5/s on two instances");
    assert_eq!(shop.capacity(minute, Some(4.0), 1), 150.0, "10 slots, 4 s a callback");
    assert_eq!(shop.capacity(minute, Some(4.0), 0), 0.0);
    bench.clock.advance(Duration::from_secs(31));
    let snapshot = bench.sample(WORKER).await;
    let shop = &snapshot.destinations[&self::shop()];
    assert_eq!((shop.overdue, shop.within), (2, [2, 2, 2, 3]), "the forecast is counted rarely");
}

#[tokio::test]
async fn the_gauges_follow_the_samples() {
    let bench = bench();
    bench.add("shop", 0).await;
    let metrics = bench.parts.metrics.clone();
    let before = metrics.encode();
    assert!(before.contains("delayd_store_tasks{state=\"scheduled\"} 0\n"), "{before}");
    assert!(before.contains("delayd_store_forecast_tasks{service=\"other\",within=\"24h\"} 0\n"));
    let sampler = Sampler::start(bench.parts, WORKER);
    let mut snapshots = sampler.sampled().snapshots();
    snapshots.changed().await.unwrap();
    let text = metrics.encode();
    for line in [
        "delayd_store_tasks{state=\"scheduled\"} 1\n",
        "delayd_store_overdue_tasks{culprit=\"delayd\"} 1\n",
        "delayd_store_overdue_tasks{culprit=\"store\"} 0\n",
        "delayd_store_oldest_overdue_timestamp_seconds{culprit=\"delayd\"} 1800000000.0\n",
        "delayd_store_oldest_overdue_timestamp_seconds{culprit=\"receiver\"} 0.0\n",
        "delayd_store_destination_waiting{service=\"shop\"} 1\n",
        "delayd_store_destination_held{service=\"shop\"} 0\n",
        "delayd_store_destination_configured{service=\"shop\"} 1\n",
        "delayd_store_forecast_tasks{service=\"shop\",within=\"1m\"} 1\n",
        "delayd_sampler_timestamp_seconds 1800000000.0\n",
        "delayd_sampler_oldest_timestamp_seconds 1800000000.0\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("delayd_store_overdue_tasks{culprit=\"clock\"}"), "{text}");
}
