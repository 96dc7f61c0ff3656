//! A Redis Cluster: one primary dies and the others are not affected; a slot moves while it is in
//! use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use delayd::store::redis::{Params, Redis, Topology};
use delayd::store::{Error, Intake, Moment, NewTask, Registered, TopicEntry, Topics};
use serde_json::json;

use crate::load::{Load, lost, times_seen};
use crate::program::service;
use crate::receiver::{Answer, Receiver};
use crate::redis_many::{Cluster, until};
use crate::{Program, StoreAt};

/// How long a client may take from the election to its first accepted write.
const RESUME: Duration = Duration::from_secs(5);

pub async fn start(cluster: &Cluster, receiver: &Receiver) -> Arc<Program> {
    let store = StoreAt::Set(vec![
        "store.kind=redis".into(),
        "store.redis.topology=cluster".into(),
        format!("store.redis.urls={:?}", cluster.urls()),
        format!("store.redis.key_prefix={}", cluster.prefix_on_first()),
    ]);
    let delayd = Arc::new(Program::start(&store, &[service("message.call", receiver)]).await);
    delayd.wait_until_ready(200).await;
    delayd
}

/// Waits until a replica has replaced the `n`th primary, as another node sees it.
fn elect(cluster: &Cluster, n: usize) -> Instant {
    until("a replica takes over", || is_replaced(cluster, n));
    Instant::now()
}

/// Whether a replica has replaced the `n`th primary, as another node sees it.
pub fn is_replaced(cluster: &Cluster, n: usize) -> bool {
    let gone = format!("127.0.0.1:{}@", cluster.nodes[n].port());
    let nodes = cluster.nodes[(n + 1) % 3].command(&["CLUSTER", "NODES"]);
    nodes.lines().filter(|line| line.contains("master") && !line.contains(&gone)).count() == 3
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_affects_no_other_slots() {
    let mut cluster = Cluster::start();
    let receiver = Receiver::start().await;
    let delayd = start(&cluster, &receiver).await;
    let (healthy, hurt) = (cluster.topic_on(1), cluster.topic_on(2));
    let loads = [Load::start(&delayd, &healthy, "0s", 4), Load::start(&delayd, &hurt, "0s", 4)];
    for load in &loads {
        load.accepted_after(Instant::now(), 100).await;
    }
    let killed = Instant::now();
    cluster.nodes[2].kill();
    let elected = elect(&cluster, 2);
    let resumed = loads[1].accepted_after(elected, 1).await;
    assert!(resumed - elected < RESUME, "resumed {:?} after the election", resumed - elected);
    loads[1].accepted_after(resumed, 100).await;
    let [healthy, hurt] = loads;
    let ((healthy, undisturbed), (hurt, answers)) = (healthy.stop().await, hurt.stop().await);

    assert!(undisturbed.iter().all(|a| a.status == 200), "adds to another primary's slots failed");
    let meanwhile = undisturbed.iter().filter(|a| a.at > killed && a.at < elected).count();
    assert!(meanwhile > 0, "nothing was added to the healthy slots meanwhile");
    assert_eq!(lost(&delayd, &receiver, &healthy, &undisturbed).await.len(), 0);
    let refused = answers.iter().filter(|a| a.status == 503).count();
    assert!(refused > 0, "the outage was not noticed");
    let lost = lost(&delayd, &receiver, &hurt, &answers).await;
    println!(
        "cluster: {meanwhile} adds elsewhere while one primary was dead; \
         of its own {refused} refused, {} lost, resumed {:?} after the election",
        lost.len(),
        resumed - elected
    );
    assert!(
        lost.iter().all(|a| a.at < killed + Duration::from_millis(100)),
        "the successor lost a task: {lost:?}"
    );
}

/// A page of topics is shown while one of the primaries does not answer: the topics on it have no
/// counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_topics_shows_those_of_a_dead_primary_without_counts() {
    let mut cluster = Cluster::start();
    let receiver = Receiver::start().await;
    let delayd = start(&cluster, &receiver).await;
    let (healthy, hurt) = (cluster.topic_on(1), cluster.topic_on(2));
    for topic in [&healthy, &hurt] {
        delayd.add(json!({"topic": topic, "delay": "1h", "content": {}})).await.ok();
    }
    cluster.nodes[2].kill();
    let without = crate::poll::answer(async || {
        let list = delayd.post("/delay/topic/list", r#"{"limit": 9}"#).await;
        let list = (list.status == 200).then_some(list.body)?;
        let counts = |name: &str| {
            let mut topics = list["topics"].as_array().unwrap().iter();
            topics.find(|topic| topic["topic"] == name).map(|topic| topic["counts"].clone())
        };
        (counts(&hurt)?.is_null()).then(|| (counts(&healthy), list.clone()))
    });
    let (healthy, list) = without.await.expect("the page has a topic without counts");
    assert_eq!(healthy.unwrap()["scheduled"], 1, "{list}");
    assert_eq!(list["total"], 2, "{list}");
}

/// An instance that has drawn no ids cannot add without the id counter, and adds fail at once.
/// Existing tasks are still delivered.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_id_counters_node_and_a_reserve_adds_are_refused_at_once_and_work_goes_on() {
    let mut cluster = Cluster::start();
    let receiver = Receiver::start().await;
    let (adder, delayd) = (start(&cluster, &receiver).await, start(&cluster, &receiver).await);
    let topic = cluster.topic_on(1);
    let task = |delay: &str| {
        json!({
            "topic": topic, "delay": delay, "content": {"sn": "message.call", "url": "/"},
        })
    };
    let ids = adder.add_all(&vec![task("2s"); 30]).await;
    cluster.nodes[0].kill();
    let load = Load::start(&delayd, &topic, "0s", 2);
    load.refused().await;
    let elected = elect(&cluster, 0);
    let resumed = load.accepted_after(elected, 1).await;
    assert!(resumed - elected < RESUME, "resumed {:?} after the election", resumed - elected);
    let (topic, answers) = load.stop().await;
    let refused: Vec<_> = answers.iter().filter(|a| a.status == 503).collect();
    let longest = refused.iter().map(|a| a.took).max().expect("an add was refused");
    assert!(longest < Duration::from_secs(2), "a refusal took {longest:?}");
    println!(
        "cluster: {} adds refused without the counter, the slowest in {longest:?}",
        refused.len()
    );
    // The node of these tasks never failed.
    for &id in &ids {
        delayd.wait_for_state(&topic, id, "delivered").await;
    }
    let fresh = answers.iter().filter_map(|a| a.id).min().unwrap();
    assert!(fresh > *ids.iter().max().unwrap(), "an id was drawn again");
    assert_eq!(lost(&delayd, &receiver, &topic, &answers).await.len(), 0);
}

/// Moves all keys of a slot. The slot's state is then still "migrating".
fn move_keys(cluster: &Cluster, slot: &str, from: usize, to: usize) {
    let port = cluster.nodes[to].port().to_string();
    loop {
        let keys = cluster.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", slot, "1"]);
        let Some(key) = keys.lines().next().filter(|key| !key.is_empty()) else { return };
        cluster.nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }
}

fn begin_move(cluster: &Cluster, slot: &str, from: usize, to: usize) {
    cluster.nodes[to].command(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &cluster.id_of(from)]);
    cluster.nodes[from].command(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &cluster.id_of(to)]);
}

fn end_move(cluster: &Cluster, slot: &str, to: usize) {
    let id = cluster.id_of(to);
    for n in [to, 0, 1, 2] {
        cluster.nodes[n].command(&["CLUSTER", "SETSLOT", slot, "NODE", &id]);
    }
}

/// How often the cluster's nodes have answered TRYAGAIN.
fn refusals(cluster: &Cluster) -> u64 {
    let counted = cluster.nodes.iter().filter_map(|node| {
        let errors = node.command(&["INFO", "errorstats"]);
        let count =
            errors.lines().find_map(|line| line.strip_prefix("errorstat_TRYAGAIN:count="))?;
        Some(count.trim().parse::<u64>().unwrap())
    });
    counted.sum()
}

/// The slot map is read again a quarter of a second later at the earliest. Until then the
/// redirections of the nodes count.
#[tokio::test(flavor = "multi_thread")]
async fn redirections_are_followed_at_once() {
    let cluster = Cluster::start();
    let params = Params {
        topology: Topology::Cluster,
        urls: cluster.urls(),
        key_prefix: cluster.prefix_on_first(),
        timeout: Duration::from_secs(10),
        ..Params::standalone("")
    };
    let registry = format!("{}:DELAY_TOPIC_LIST", params.key_prefix);
    let store = Arc::new(Redis::connect(params).await.unwrap());
    let topic = TopicEntry { topic: cluster.topic_on(1).parse().unwrap(), shards: 1 };
    let task = || NewTask {
        topic: topic.clone(),
        destination: "message.call".parse().unwrap(),
        moment: Moment::After(Duration::ZERO),
        options: Default::default(),
        content: "{}".into(),
        idempotency: None,
        quota: None,
    };
    store.add(vec![task()]).await.remove(0).unwrap();

    // TRYAGAIN while the lane is being moved, then MOVED. An add is refused soon, since adds of
    // other lanes wait behind it.
    let lane = topic.lanes().next().unwrap();
    let slot = cluster.first_owner(&format!("{{{}:0}}", topic.topic)).1.to_string();
    begin_move(&cluster, &slot, 1, 2);
    let adding = tokio::time::timeout(Duration::from_secs(5), store.add(vec![task()]));
    let refused =
        adding.await.expect("an add must not wait for a slot that is being moved").remove(0);
    assert!(matches!(refused, Err(Error::Moving(_))), "{refused:?}");
    let before = refusals(&cluster);
    let counting = tokio::spawn({
        let (store, lane) = (store.clone(), lane.clone());
        async move { store.stats(&lane).await }
    });
    until("a count reaches a lane that is half moved", || refusals(&cluster) > before + 1);
    assert!(!counting.is_finished(), "the count answered for a lane that was half moved");
    move_keys(&cluster, &slot, 1, 2);
    end_move(&cluster, &slot, 2);
    assert_eq!(counting.await.unwrap().unwrap().scheduled, 1);
    store.add(vec![task()]).await.remove(0).unwrap();
    assert_eq!(store.stats(&lane).await.unwrap().scheduled, 2);

    // ASK: the registry's only key has moved already, and its slot has not.
    let slot = cluster.first_owner(&registry).1.to_string();
    begin_move(&cluster, &slot, 0, 1);
    move_keys(&cluster, &slot, 0, 1);
    assert_eq!(store.topics().await.unwrap(), [Registered::plain(topic.clone())]);
    end_move(&cluster, &slot, 1);
    assert_eq!(store.topics().await.unwrap(), [Registered::plain(topic)]);
}

/// A lane's slot stays half moved while one of its tasks has to be settled. The same server takes
/// the settles of all its other lanes, which must go on. The whole server used to count as
/// unavailable: its tasks were called again when their leases expired.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_moved_lane_delays_no_other_lane_of_its_server() {
    let cluster = Cluster::start();
    let receiver = Receiver::answering(|seen| {
        if seen.path == "/gate" { Answer::AtTheGate } else { Answer::Status(200) }
    })
    .await;
    let delayd = start(&cluster, &receiver).await;
    let lies_there = |topic: &String| cluster.first_owner(&format!("{{{topic}:0}}")).0 == 1;
    let mut topics = (0..).map(|n| format!("t{n}")).filter(lies_there);
    let (hurt, healthy) = (topics.next().unwrap(), topics.next().unwrap());
    let task = |topic: &str, url: &str| {
        json!({
            "topic": topic, "delay": "0s", "content": {"sn": "message.call", "url": url},
        })
    };
    let held = delayd.add(task(&hurt, "/gate")).await.id();
    receiver.wait_for(1).await;

    let slot = cluster.first_owner(&format!("{{{hurt}:0}}")).1.to_string();
    begin_move(&cluster, &slot, 1, 2);
    receiver.open_gate();
    until("a settle has failed", || delayd.log().contains("takes no settles"));
    for _ in 0..10 {
        let id = delayd.add(task(&healthy, "/")).await.id();
        delayd.wait_for_state(&healthy, id, "delivered").await;
    }
    move_keys(&cluster, &slot, 1, 2);
    end_move(&cluster, &slot, 2);
    delayd.wait_for_state(&hurt, held, "delivered").await;
    assert_eq!(times_seen(&receiver)[&held], 1);
    let id = delayd.add(task(&hurt, "/")).await.id();
    delayd.wait_for_state(&hurt, id, "delivered").await;
}

/// A lane's slot moves to another primary, key by key, while the lane is added to, claimed and
/// settled.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moved_under_load_loses_and_duplicates_nothing() {
    let cluster = Cluster::start();
    let receiver = Receiver::start().await;
    let delayd = start(&cluster, &receiver).await;
    let topic = cluster.topic_on(1);
    let slot = cluster.first_owner(&format!("{{{topic}:0}}")).1.to_string();
    let load = Load::start(&delayd, &topic, "300ms", 8);
    load.accepted_after(Instant::now(), 200).await;

    // Half of the keys are here and half there, while callers add.
    let half_way = || {
        let before = load.answers().len();
        until("callers get answers meanwhile", || load.answers().len() >= before + 20);
    };
    tokio::task::block_in_place(|| cluster.move_slot(&slot, 1, 2, half_way));
    load.accepted_after(Instant::now(), 200).await;
    let (topic, answers) = load.stop().await;
    assert_eq!(lost(&delayd, &receiver, &topic, &answers).await.len(), 0);
    let twice = times_seen(&receiver).into_iter().filter(|(_, times)| *times > 1).count();
    let refused = answers.iter().filter(|a| a.status != 200).count();
    println!(
        "cluster: a slot moved under {} adds, {refused} refused, {twice} delivered twice",
        answers.len()
    );
    assert_eq!(twice, 0);
    assert!(
        cluster.nodes[2].command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).trim() != "0",
        "the slot did not move"
    );
}
