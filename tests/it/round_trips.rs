//! How many round trips to Redis each step of a task takes, counted by a proxy. The table in
//! `docs/performance/round-trips.md` has the same figures.

use std::sync::Arc;
use std::time::Duration;

use delayd::model::task::{Options, Receipt, TaskId};
use delayd::store::redis::Redis;
use delayd::store::{
    Admin, Asker, Cancelled, Claim, Claimed, Delivery, Grant, Intake, Moment, NewTask, Rescheduled,
    Settle, Settled, TaskName, TopicEntry, Topics, Transition, Want,
};

use crate::held_wire::HeldWire;
use crate::poll;
use crate::redis_faults::{connect, task, topic};
use crate::redis_server;

/// The key of the id counter, and a key of the lane `t:0`.
const DRAW: &str = "DELAY_TASK_ID";
const LANE: &str = "{t:0}";

/// A store behind the proxy. The server has all scripts, and the lane is open.
async fn far(prefix: &str) -> (HeldWire, Arc<Redis>, Redis) {
    let server = redis_server::shared();
    let prefix = format!("{prefix}{:x}", rand::random::<u64>());
    let near = connect(server.port(), &prefix).await;
    let [first] = add(&near, 1).await[..] else { unreachable!() };
    settle(&near, &claim(&near, 1).await).await;
    assert!(first.0 > 0);
    let wire = HeldWire::before(server.port()).await;
    let far = Arc::new(connect(wire.address.port(), &prefix).await);
    (wire, far, near)
}

pub async fn add(store: &Redis, count: usize) -> Vec<TaskId> {
    let tasks = (0..count).map(task).collect();
    store.add(tasks).await.into_iter().map(|added| added.unwrap().id).collect()
}

pub async fn claim(store: &Redis, slots: usize) -> Grant {
    let want = Want { destination: "message.call".parse().unwrap(), slots };
    let claim = Claim {
        lane: topic().lanes().next().unwrap(),
        wants: vec![want],
        lease: Duration::from_secs(60),
        holder: None,
        more: false,
        after: None,
        in_hand: 0,
        misfires: Vec::new(),
    };
    match store.claim(claim).await.unwrap() {
        Claimed::Granted(grant) => grant,
        Claimed::Refused { .. } => unreachable!("no lock was asked for"),
    }
}

pub async fn settle(store: &Redis, grant: &Grant) {
    let settle = |id: TaskId, receipt: &Receipt| Settle {
        lane: topic().lanes().next().unwrap(),
        id,
        receipt: receipt.clone(),
        transition: Transition::Delivered { outcome: "200".into() },
    };
    let settles = grant.tasks.iter().map(|task| settle(task.id, &grant.receipt)).collect();
    for settled in store.settle(Asker::Worker, settles).await {
        assert_eq!(settled.unwrap(), Settled::Done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_of_a_task_takes_one_round_trip() {
    const ADDS: usize = 20;
    let (wire, far, _near) = far("trips").await;
    add(&far, 1).await;
    assert_eq!((wire.trips(DRAW), wire.trips(LANE)), (1, 1), "the first add");
    wire.forget();
    for _ in 0..ADDS {
        add(&far, 1).await;
    }
    assert_eq!(wire.trips(LANE), ADDS, "adds, one after the other");
    wire.forget();
    add(&far, 50).await;
    assert_eq!(wire.trips(LANE), 1, "tasks of one request");
    wire.forget();
    let grant = claim(&far, 64).await;
    assert_eq!((grant.tasks.len(), wire.trips(LANE)), (64, 1), "a claim");
    wire.forget();
    settle(&far, &grant).await;
    assert_eq!(wire.trips(LANE), 1, "the settles of a claim");
    let new = TopicEntry { topic: "new".parse().unwrap(), shards: 1 };
    far.create(new.clone(), None).await.unwrap();
    wire.forget();
    far.add(vec![NewTask { topic: new, ..task(0) }]).await.remove(0).unwrap();
    assert_eq!(wire.trips("{new:0}"), 2, "an add that opens its lane");
}

/// A key is one look-up in one lane, whatever the topic holds, and the change compares it.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_named_by_its_key_in_one_more_round_trip() {
    let (wire, far, _near) = far("named").await;
    let lane = topic().lanes().next().unwrap();
    let name = TaskName::Key("k".into());
    let only = name.condition();
    let options = Options { key: Some("k".into()), ..Options::default() };
    let moment = Moment::After(Duration::from_secs(60));
    let task = NewTask { options, moment, ..task(0) };
    let id = far.add(vec![task]).await.remove(0).unwrap().id;
    wire.forget();
    assert_eq!(far.find(&name, vec![lane.clone()]).await.unwrap(), [Some(id)]);
    assert_eq!(wire.trips(LANE), 1, "the look-up");
    let moved = far.reschedule(&lane, id, only.as_ref(), moment, None).await.unwrap();
    assert!(matches!(moved, Rescheduled::Done { .. }));
    let cancelled = far.cancel(&lane, id, only.as_ref()).await.unwrap();
    assert_eq!((cancelled, wire.trips(LANE)), (Cancelled::Done, 3));
    let unknown = TaskName::Key("other".into());
    wire.forget();
    assert_eq!(far.find(&unknown, vec![lane]).await.unwrap(), [None]);
    assert_eq!(wire.trips(LANE), 1, "a key that no task has");
}

/// The answer to the first batch of adds is still on its way. Further adds were held back until it
/// arrived: by the kernel, which waits for an acknowledgement before it sends a further small
/// segment, and by the adders, which sent two batches at a time.
#[tokio::test(flavor = "multi_thread")]
async fn adds_do_not_wait_for_the_answers_to_others() {
    let (wire, far, near) = far("ahead").await;
    add(&far, 1).await;
    let ids = hold_adds(&wire, &far).await;
    wire.release();
    let mut added = Vec::new();
    for adding in ids {
        added.extend(adding.await.unwrap());
    }
    assert!(added.is_sorted(), "ids grow in the order of the adds: {added:?}");
    let counts = near.stats(&topic().lanes().next().unwrap()).await.unwrap();
    assert_eq!(counts.scheduled as usize, BATCHES + 1);
}

/// The connection breaks while several batches are under way. All of them have been carried out,
/// and each is repeated on the next connection, where it finds its own tasks. The circuit breaker
/// counts one failure, and so does not open.
#[tokio::test(flavor = "multi_thread")]
async fn each_batch_on_a_connection_that_breaks_is_repeated() {
    let (wire, far, near) = far("broken").await;
    let before = add(&far, 1).await;
    let adding = hold_adds(&wire, &far).await;
    let lane = topic().lanes().next().unwrap();
    let stored = async || near.stats(&lane).await.unwrap().scheduled as usize == BATCHES + 1;
    assert!(poll::until(stored).await, "not all batches were carried out");
    wire.break_off(LANE);
    let mut ids = before;
    for adding in adding {
        ids.extend(adding.await.unwrap());
    }
    let mut distinct = ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), BATCHES + 1, "{ids:?}");
    assert!(stored().await, "a repeated batch stored other tasks");
}

/// The batches of adds in these tests, each with one task.
const BATCHES: usize = 6;

/// Adds whose answers are held back. Each is sent before the next begins.
async fn hold_adds(wire: &HeldWire, far: &Arc<Redis>) -> Vec<tokio::task::JoinHandle<Vec<TaskId>>> {
    wire.forget();
    wire.hold();
    let mut adding = Vec::new();
    for sent in 1..=BATCHES {
        let far = far.clone();
        adding.push(tokio::spawn(async move { add(&far, 1).await }));
        let is_sent = poll::until(async || wire.trips(LANE) == sent).await;
        assert!(is_sent, "batch {sent} waits for the answers to the others");
    }
    adding
}
