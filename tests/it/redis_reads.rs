//! Reads for viewers have a link of their own: they delay and fail nothing else.

use std::sync::Arc;
use std::time::Duration;

use delayd::model::breaker;
use delayd::model::clock::{Clock, UnixMillis};
use delayd::model::task::{State, TaskId};
use delayd::store::redis::{Params, Redis};
use delayd::store::{
    Admin, Asker, Audit, Delivery, Error, Grant, ListQuery, Moment, Reader, SampleQuery, Sampling,
    Schedules, Settle, Settled, Store, TaskName, Topics, Transition,
};
use futures_util::future::try_join_all;
use serde_json::json;

use crate::held_wire::HeldWire;
use crate::program::{Program, StoreAt};
use crate::redis_faults::topic;
use crate::round_trips::{add, claim, settle};
use crate::{poll, redis_server};

/// A text in the calls of `lua/list.lua`, and in no other ones of these tests.
const LIST: &str = "\r\nscheduled\r\n";

/// A store behind a proxy. A single failure opens its breaker.
async fn far() -> (HeldWire, Arc<Redis>) {
    let wire = HeldWire::before(redis_server::shared().port()).await;
    let mut params = Params::standalone(format!("redis://{}/0", wire.address));
    params.breaker = breaker::Params { consecutive_failures: 1, ..params.breaker };
    params.key_prefix = format!("reads{:x}", rand::random::<u64>());
    params.timeout = Duration::from_secs(30);
    params.clock = Clock::system();
    (wire, Arc::new(Redis::connect(params).await.unwrap()))
}

fn query() -> ListQuery {
    let lane = topic().lanes().next().unwrap();
    let (from, to) = (UnixMillis(0), UnixMillis(i64::MAX));
    ListQuery { lane, state: State::Scheduled, from, to, after: None, limit: 9 }
}

/// Lists of a wide topic once filled the link of claims. They timed out, and opened the breaker of
/// everything.
#[tokio::test(flavor = "multi_thread")]
async fn reads_that_hang_hold_up_nothing_and_open_no_breaker() {
    let (wire, store) = far().await;
    add(&store, 3).await;
    store.list(query()).await.unwrap();
    wire.hold_of(LIST);
    wire.forget();
    let lists: Vec<_> = (0..100)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.list(query()).await })
        })
        .collect();
    assert!(poll::until(async || wire.trips(LIST) > 0).await);
    settle(&store, &claim(&store, 1).await).await;
    add(&store, 1).await;
    let lanes: Vec<_> = topic().lanes().collect();
    store.next_due(lanes.clone()).await.unwrap();
    // A receiver's nack, and the look-up of a change by its key.
    let Grant { tasks, receipt, .. } = claim(&store, 1).await;
    let due = Moment::After(Duration::ZERO);
    let transition = Transition::Retry { due, outcome: "nack".into() };
    let nack = Settle { lane: lanes[0].clone(), id: tasks[0].id, receipt, transition };
    assert_eq!(store.settle(Asker::Caller, vec![nack]).await[0].clone().unwrap(), Settled::Done);
    let found = store.find(&TaskName::Key("no task's".into()), lanes.clone()).await.unwrap();
    assert_eq!(found, [None]);
    // Contents: a planner, a nack and an update read them, too, and do not wait behind viewers.
    let read = |reader| {
        let (store, lane, name) = (store.clone(), lanes[0].clone(), "none".parse().unwrap());
        tokio::spawn(async move {
            let task = store.get(reader, &lane, TaskId(1)).await?;
            Ok::<_, Error>((task, store.schedules(reader, &lane, vec![name]).await?))
        })
    };
    let shown = read(Reader::Viewer);
    assert_eq!(read(Reader::Worker).await.unwrap().unwrap(), (None, vec![None]));
    store.ping().await.unwrap();
    assert!(!shown.is_finished() && lists.iter().all(|list| !list.is_finished()));
    assert!(wire.calls(LIST) <= 64, "more than one pipeline of reads is under way");
    // The connection breaks. The reads are repeated on a new one, and count as no failure.
    wire.break_off(LIST);
    for list in try_join_all(lists).await.unwrap() {
        assert_eq!(list.unwrap().len(), 3);
    }
    assert_eq!(shown.await.unwrap().unwrap(), (None, vec![None]));
    assert_eq!(store.breaker(), breaker::State::Closed);
    settle(&store, &claim(&store, 1).await).await;
}

/// Each lane was asked for its next task, topic after topic.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_topics_make_no_lists_while_tasks_are_overdue() {
    let wire = HeldWire::before(redis_server::shared().port()).await;
    let store = StoreAt::Redis(wire.address.port(), format!("pages{:x}", rand::random::<u64>()));
    let delayd = Program::start(&store, &["store.redis.timeout=\"20s\"".into()]).await;
    for topic in ["a", "b"] {
        let settings = json!({"topic": topic, "shards": 32}).to_string();
        delayd.post("/delay/topic/set", settings).await.ok();
        for delay in ["0s", "1h"] {
            let task = json!({"topic": topic, "mode": "pull", "delay": delay, "content": {}});
            delayd.add(task).await.ok();
        }
    }
    wire.forget();
    let page = delayd.post("/delay/topic/list", json!({"limit": 9}).to_string()).await.ok().body;
    let shown = delayd.post("/delay/topic/get", json!({"topic": "a"}).to_string()).await.ok().body;
    for topic in [&page["topics"][0], &page["topics"][1], &shown] {
        assert!(topic["oldest_overdue_ms"].is_i64() && topic["next_due_ms"].is_i64(), "{topic}");
    }
    assert_eq!(wire.calls(LIST), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_kinds_of_reads_work_over_their_link() {
    let (_wire, store) = far().await;
    let [id, ..] = add(&store, 2).await[..] else { unreachable!() };
    let lane = topic().lanes().next().unwrap();
    assert_eq!(store.stats(&lane).await.unwrap().scheduled, 2);
    assert_eq!(store.get(Reader::Viewer, &lane, id).await.unwrap().unwrap().id, id);
    let found = store.find(&TaskName::Id(id), vec![lane.clone()]).await.unwrap();
    assert_eq!(found, [Some(id)]);
    let query = SampleQuery { lanes: vec![lane.clone()], ..SampleQuery::default() };
    assert_eq!(store.sample(query).await.unwrap().lanes[0].as_ref().unwrap().counts.scheduled, 2);
    assert_eq!(store.waiting(vec![lane; 200]).await.unwrap()[0].count, 400, "several turns");
    assert!(store.audit(None, 9).await.unwrap().entries.is_empty());
}
