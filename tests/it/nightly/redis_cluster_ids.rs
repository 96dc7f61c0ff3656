//! A Redis Cluster without the server of the id counter: adds to the other servers go on with ids
//! that were drawn before.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayd::metrics::Metrics;
use delayd::model::task::{Lane, Options, TaskId};
use delayd::store::redis::{Params, Redis, Topology};
use delayd::store::{Intake, Moment, NewTask, Signals, Store, TopicEntry};
use serde_json::json;

use super::redis_cluster::{is_replaced, start};
use crate::load::{Load, lost};
use crate::receiver::Receiver;
use crate::redis_many::{Cluster, until};
use crate::{Program, poll};

/// How long adds have to go on without the counter.
const OUTAGE: Duration = Duration::from_secs(10);
/// How many ids the blocks have to leave before.
const RESERVE: u64 = 15_000;
/// The longest add without the counter: requests wait for at most half a second for ids, and the
/// breaker of a silent server opens within another half. The rest is a margin for a busy machine.
const SLOWEST: Duration = Duration::from_millis(1_000 + 500);

/// What happens to the server of the counter. Its replica is killed before, so it has no successor.
#[derive(Clone, Copy)]
enum Fault {
    Killed,
    Silent,
}

impl Fault {
    fn begin(self, cluster: &mut Cluster) {
        cluster.nodes[3].kill();
        match self {
            Self::Killed => cluster.nodes[0].kill(),
            Self::Silent => cluster.nodes[0].signal("STOP"),
        }
    }

    fn end(self, cluster: &mut Cluster) {
        match self {
            Self::Killed => cluster.nodes[0].restart(),
            Self::Silent => cluster.nodes[0].signal("CONT"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adds_to_other_servers_go_on_while_that_of_the_id_counter_is_dead() {
    adds_go_on(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adds_to_other_servers_go_on_while_that_of_the_id_counter_is_silent() {
    adds_go_on(Fault::Silent).await;
}

async fn adds_go_on(fault: Fault) {
    let mut cluster = Cluster::start();
    let receiver = Receiver::start().await;
    let delayd = start(&cluster, &receiver).await;
    let topics = [cluster.topic_on(1), cluster.topic_on(2)];
    let loads = topics.each_ref().map(|topic| Load::start(&delayd, topic, "0s", 1));
    for load in &loads {
        load.accepted_after(Instant::now(), 20).await;
    }
    // An instance that has just started has few ids.
    let has_reserve = async || {
        let metrics = delayd.get("/metrics").await.body;
        reserve_of(metrics.as_str().unwrap()) > RESERVE
    };
    assert!(poll::until(has_reserve).await, "the blocks leave too few ids");
    fault.begin(&mut cluster);
    let began = Instant::now();
    while began.elapsed() < OUTAGE {
        let ready = delayd.get("/readyz").await;
        assert_eq!(ready.status, 200, "{:?} after the fault: {ready:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for load in &loads {
        load.accepted_after(began + OUTAGE, 1).await;
        let answers = load.answers();
        let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
        assert!(refused.is_empty(), "{refused:?}");
        let slowest = answers.iter().map(|answer| answer.took).max().unwrap();
        assert!(slowest < SLOWEST, "an add took {slowest:?}");
        println!("cluster: {} adds without the counter, slowest {slowest:?}", answers.len());
    }
    let mut ids = use_up(&delayd, &topics[0]).await;
    delayd.wait_until_ready(503).await;
    delayd.wait_for_log("tasks get ids of the id reserve").await;
    delayd.wait_for_log("The id reserve has too few ids").await;

    fault.end(&mut cluster);
    for load in &loads {
        load.accepted_after(Instant::now(), 20).await;
    }
    delayd.wait_until_ready(200).await;
    delayd.wait_for_log("The id counter answers again").await;
    for load in loads {
        let (topic, answers) = load.stop().await;
        assert_eq!(lost(&delayd, &receiver, &topic, &answers).await.len(), 0);
        let mut given = answers.iter().filter_map(|answer| answer.id);
        assert!(given.all(|id| ids.insert(id)), "an id was given to two tasks of all loads");
    }
}

/// The ids that an instance may use without the counter, as its metrics say.
fn reserve_of(metrics: &str) -> u64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix("delayd_id_reserve "));
    value.unwrap().parse().unwrap()
}

/// Adds until the id reserve is used up. Then adds are refused at once. Returns the ids.
async fn use_up(delayd: &Arc<Program>, topic: &str) -> HashSet<u64> {
    let task = json!({
        "topic": topic, "delay": "1h", "content": {"sn": "message.call", "url": "/"},
    });
    let batch = json!({"tasks": vec![task; 500]}).to_string();
    let mut ids = HashSet::new();
    // The blocks of 30 s have at most 960,000 ids.
    for _ in 0..2_000 {
        let asked = Instant::now();
        let answer = delayd.post("/delay/task/add_batch", batch.clone()).await;
        let results = answer.body["results"].as_array().cloned().unwrap_or_default();
        let added: Vec<u64> = results.iter().filter_map(|one| one["task_id"].as_u64()).collect();
        assert!(added.iter().all(|id| ids.insert(*id)), "an id was given twice");
        if added.is_empty() {
            let took = asked.elapsed();
            println!("cluster: {} ids used up, refused in {took:?}", ids.len());
            assert!(took < Duration::from_secs(1), "a refusal took {took:?}");
            return ids;
        }
    }
    panic!("the reserve has no end");
}

/// An instance that adds to a topic, without the rest of the program.
struct Instance {
    store: Arc<Redis>,
    topic: TopicEntry,
}

impl Instance {
    /// Adds to a topic of the `n`th primary.
    async fn start(cluster: &Cluster, n: usize, id_outage: Duration) -> Self {
        let params = Params {
            topology: Topology::Cluster,
            urls: cluster.urls(),
            key_prefix: cluster.prefix_on_first(),
            id_outage,
            ..Params::standalone("")
        };
        let store = Arc::new(Redis::connect(params).await.unwrap());
        Self { store, topic: TopicEntry { topic: cluster.topic_on(n).parse().unwrap(), shards: 1 } }
    }

    async fn add(&self) -> delayd::store::Result<TaskId> {
        self.store.add(vec![self.task()]).await.remove(0).map(|added| added.id)
    }

    fn task(&self) -> NewTask {
        NewTask {
            topic: self.topic.clone(),
            destination: "message.call".parse().unwrap(),
            moment: Moment::After(Duration::from_secs(3_600)),
            options: Default::default(),
            content: "{}".into(),
            idempotency: None,
            quota: None,
        }
    }

    fn reserve(&self) -> u64 {
        reserve_of(&Metrics::with_store([], self.store.metrics().clone()).encode())
    }

    /// Adds until the blocks leave some ids.
    async fn fill_reserve(&self) {
        let is_filled = async || self.add().await.is_ok() && self.reserve() > RESERVE;
        assert!(poll::until(is_filled).await, "the blocks leave too few ids");
    }
}

/// All instances used to skip ahead, and to have no id reserve until the clock had followed.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_all_instances_skip_once_and_have_a_reserve_at_once() {
    let mut cluster = Cluster::start();
    let counter = format!("{}:DELAY_TASK_ID", cluster.prefix_on_first());
    let marker = format!("{}:DELAY_TASK_ID_RUN-{{{counter}}}", cluster.prefix_on_first());
    let mut instances = Vec::new();
    for n in [1, 2, 1, 2] {
        instances.push(Instance::start(&cluster, n, Duration::from_secs(30)).await);
    }
    let mut ids = HashSet::new();
    let mut note = |id: TaskId| assert!(ids.insert(id), "{id} was given twice");
    for instance in &instances {
        let first = poll::answer(async || instance.add().await.ok()).await;
        note(first.expect("no add succeeds"));
        assert!(instance.reserve() > 0);
    }
    cluster.nodes[0].kill();
    let elected = poll::until(async || {
        for instance in &instances {
            note(instance.add().await.expect("an add was refused"));
        }
        is_replaced(&cluster, 0)
    });
    assert!(elected.await, "no replica takes over");
    let elected = Instant::now();
    let successor = &cluster.nodes[3];
    let base = || -> Option<u64> {
        successor.command(&["GET", &marker]).split_whitespace().nth(1)?.parse().ok()
    };
    let before = base().expect("the mark was replicated");
    // The first draw after the failover, of whichever instance.
    let draws = poll::until(async || {
        for instance in &instances {
            note(instance.add().await.expect("an add was refused"));
        }
        base() > Some(before)
    });
    assert!(draws.await, "no instance draws ids again");
    let skipped = base().unwrap();
    for (n, instance) in instances.iter().enumerate() {
        let fresh = poll::until(async || {
            let id = instance.add().await.expect("an add was refused");
            note(id);
            id.0 > skipped
        });
        assert!(fresh.await, "instance {n} draws no ids");
        assert!(instance.reserve() > 0, "instance {n} has no reserve");
    }
    assert_eq!(base(), Some(skipped), "several instances skipped");
    // What is left of the blocks serves again.
    cluster.nodes[3].kill();
    let killed = Instant::now();
    while killed.elapsed() < Duration::from_secs(3) {
        for instance in &instances {
            note(instance.add().await.expect("an add was refused"));
        }
    }
    println!("cluster: {} ids, all reserves {:?} after the election", ids.len(), elected.elapsed());
}

/// The counter takes longer than the wait for it, nearly all the time. Its answers count, so most
/// ids are of blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_counter_does_not_use_up_the_reserve() {
    const SLOW_MS: u64 = 400;
    const GAP_MS: u64 = 20;
    let cluster = Cluster::start();
    let instance = Instance::start(&cluster, 1, Duration::from_secs(30)).await;
    let mut ids = HashSet::new();
    instance.fill_reserve().await;
    let (mut of_reserve, mut pauses, mut last) = (0, 0, TaskId(0));
    let began = Instant::now();
    while began.elapsed() < OUTAGE {
        cluster.nodes[0].command(&["CLIENT", "PAUSE", &SLOW_MS.to_string(), "WRITE"]);
        pauses += 1;
        let paused = Instant::now();
        while paused.elapsed() < Duration::from_millis(SLOW_MS + GAP_MS) {
            let id = instance.add().await.expect("an add was refused");
            assert!(ids.insert(id));
            // A block has higher ids than those before.
            of_reserve += usize::from(id < last);
            last = last.max(id);
            // At full speed a block would be used up within one pause, on a fast machine.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    println!(
        "cluster: {} adds beside a slow counter ({pauses} pauses), {of_reserve} ids of the \
         reserve, {} left",
        ids.len(),
        instance.reserve()
    );
    assert!(2 * of_reserve < ids.len(), "{of_reserve} of {} ids are of the reserve", ids.len());
    assert!(instance.reserve() >= 500);
}

/// A lane for which the id reserve has no ids used to mark all of it as used up. All adds of all
/// topics were then refused, and those of the same batch failed, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_uses_up_its_share_of_the_reserve_stops_no_other_lane() {
    const LANES: u16 = 64;
    let mut cluster = Cluster::start();
    let instance = Instance::start(&cluster, 1, Duration::from_secs(30)).await;
    let shard_of = |key: &String| Lane::shard_of_key(key, LANES);
    let is_there = |key: &String| cluster.first_owner(&format!("{{hot:{}}}", shard_of(key))).0 == 1;
    let key = (0..).map(|n| format!("k{n}")).find(is_there).unwrap();
    let hot = NewTask {
        topic: TopicEntry { topic: "hot".parse().unwrap(), shards: LANES },
        options: Options { key: Some(key.clone()), ..Options::default() },
        ..instance.task()
    };
    // Now both lanes are open.
    assert!(poll::until(async || instance.add().await.is_ok()).await, "no add succeeds");
    instance.store.add(vec![hot.clone()]).await.remove(0).unwrap();
    instance.fill_reserve().await;
    cluster.nodes[3].kill();
    cluster.nodes[0].kill();
    // Now all blocks are stale.
    let killed = Instant::now();
    while killed.elapsed() < Duration::from_secs(2) {
        instance.add().await.expect("an add was refused");
    }
    let store = instance.store.clone();
    let batch = tokio::spawn(async move { store.add(vec![hot; 500]).await });
    while !batch.is_finished() {
        instance.add().await.expect("an add beside the batch was refused");
    }
    let added = batch.await.unwrap();
    let count = added.iter().filter(|added| added.is_ok()).count();
    assert!((100..500).contains(&count), "{count} of 500 tasks have ids");
    for _ in 0..20 {
        instance.add().await.expect("an add after the batch was refused");
    }
    let left = instance.reserve();
    assert!(left > 5_000, "{left} ids are left");
    instance.store.ping().await.expect("the instance is ready");
    println!("cluster: {count} of 500 tasks of one lane have ids, {left} ids are left");
}

/// The rest of the cluster has lost the majority, and refuses adds. The instance has ids, and used
/// to be ready: the nodes answered TIME.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_with_ids_is_not_ready_while_no_server_takes_adds() {
    let mut cluster = Cluster::start();
    let instance = Instance::start(&cluster, 1, Duration::from_secs(30)).await;
    assert!(poll::until(async || instance.add().await.is_ok()).await, "no add succeeds");
    for node in [3, 5, 0] {
        cluster.nodes[node].kill();
    }
    let ready = poll::until(async || instance.add().await.is_ok()).await;
    assert!(ready, "the others take no adds");
    instance.store.ping().await.expect("two servers take adds");
    cluster.nodes[2].kill();
    until("the cluster is down", || {
        cluster.nodes[1].command(&["CLUSTER", "INFO"]).contains("cluster_state:fail")
    });
    assert!(instance.add().await.is_err());
    assert!(instance.reserve() > 0, "the test shows nothing without ids");
    assert!(instance.store.ping().await.is_err(), "adds are refused, and the instance is ready");
}

/// The store has an unknown format, so nothing is sent any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_with_ids_is_not_ready_while_it_sends_nothing() {
    let cluster = Cluster::start();
    let instance = Instance::start(&cluster, 1, Duration::from_secs(30)).await;
    assert!(poll::until(async || instance.add().await.is_ok()).await, "no add succeeds");
    instance.store.ping().await.expect("it is ready");
    let prefix = cluster.prefix_on_first();
    let store = format!("{prefix}:DELAY_STORE-{{{prefix}:DELAY_TOPIC_LIST}}");
    cluster.nodes[0].command(&["HSET", &store, "format", "999"]);
    let is_refused = poll::until(async || {
        let _ = instance.store.id().await;
        instance.add().await.is_err()
    });
    assert!(is_refused.await, "the instance still adds");
    assert!(instance.reserve() > 0, "the test shows nothing without ids");
    assert!(instance.store.ping().await.is_err(), "adds are refused, and the instance is ready");
}
