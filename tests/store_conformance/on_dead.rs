//! Dead-letter callbacks: the task that a dying task asks for.

use delayd::model::task::{Lane, Options, State, TaskId};
use delayd::store::{
    Asker, MAX_EXPIRIES, Misfire, Misfired, NewTask, Reader, Settled, Spread, Store, Task,
};
use serde_json::{Value, json};

use crate::bench::{
    Bench, Held, at, claim_of, dead, delivered, ids, keyed, lamented, lane, new_task, retry,
    topic_of,
};

/// The id that the dead-letter callback of a task has, or will have.
async fn call_id(bench: &Bench<impl Store>, lane: &Lane, id: TaskId) -> TaskId {
    let task = bench.store.get(Reader::Worker, lane, id).await.unwrap().expect("the task is kept");
    let on_dead = task.options.on_dead.expect("the task has a dead-letter callback");
    assert_eq!((on_dead.sn.as_str(), on_dead.url.as_str()), ("dead.letters", "/dead"));
    on_dead.task_id.expect("the id was drawn with the task's own")
}

fn body(call: &Task) -> Value {
    serde_json::from_str(&call.content).expect("the body is JSON")
}

/// Asserts that the dead-letter callback of a task was just made.
async fn check_called(
    bench: &Bench<impl Store>,
    dead: TaskId,
    attempts: u32,
    outcome: &str,
) -> TaskId {
    let (id, task) = (call_id(bench, &lane(), dead).await, bench.get(dead).await);
    let call = bench.get(id).await;
    assert_eq!((task.state, task.last_outcome.as_str()), (State::Dead, outcome));
    assert_eq!((call.state, call.destination.as_str()), (State::Scheduled, "dead.letters"));
    assert_eq!((call.due, call.created, call.attempts), (bench.now(), bench.now(), 0));
    assert_eq!(
        (call.options.clone(), call.last_outcome.as_str(), call.finished),
        (Options::default(), "", None)
    );
    let expected = json!({
        "sn": "dead.letters", "url": "/dead", "task_id": dead.0, "topic": "orders",
        "attempts": attempts, "outcome": outcome, "content": task.content,
    });
    assert_eq!(body(&call), expected);
    id
}

pub(crate) async fn a_settled_death_makes_the_call_in_the_same_step(bench: Bench<impl Store>) {
    let id = bench
        .add_task(NewTask {
            content: "{\"订\":\"a/b \\\" \u{7f}\\u0001\n🦀\"}".into(),
            ..lamented(0)
        })
        .await;
    let call = call_id(&bench, &lane(), id).await;
    assert_ne!(call, id);
    assert_eq!(
        bench.store.get(Reader::Worker, &lane(), call).await.unwrap(),
        None,
        "the callback was made before the task was dead"
    );
    bench.advance(1);
    bench.settle(&bench.hold().await, retry(0)).await;
    assert_eq!(bench.store.get(Reader::Worker, &lane(), call).await.unwrap(), None);
    bench.advance(1);
    let held = bench.hold().await;
    bench.advance(1);
    bench.settle(&held, dead()).await;
    assert_eq!(check_called(&bench, id, 2, "410 Gone").await, call);
    let counts = bench.counts().await;
    assert_eq!((counts.dead, counts.scheduled, counts.earliest), (1, 1, Some(bench.now())));
    assert_eq!(bench.next_due().await, Some(bench.now()));

    assert_eq!(bench.settle(&held, dead()).await, Settled::Done, "a repeat");
    assert_eq!(bench.counts().await.scheduled, 1);
    let grant = bench.claim(&[("dead.letters", 5)]).await;
    assert_eq!(ids(&grant), [call]);
    // The callback has no dead-letter callback of its own.
    bench.settle(&Held { id: call, receipt: grant.receipt }, dead()).await;
    let counts = bench.counts().await;
    assert_eq!((counts.dead, counts.scheduled), (2, 0));
}

pub(crate) async fn a_task_that_dies_by_a_sweep_makes_its_call(bench: Bench<impl Store>) {
    let id = bench.add_task(lamented(0)).await;
    for _ in 0..MAX_EXPIRIES {
        assert_eq!(bench.hold().await.id, id);
        bench.let_lease_run_out();
    }
    bench.sweep().await;
    check_called(&bench, id, MAX_EXPIRIES, delayd::store::LEASE_RAN_OUT).await;
}

pub(crate) async fn a_task_that_dies_by_a_misfire_makes_its_call(bench: Bench<impl Store>) {
    let (id, plain) = (bench.add_task(lamented(10)).await, bench.add("message.call", 10).await);
    bench.advance(1_000);
    let misfires = vec![Misfire { from: at(5), to: at(500), becomes: Misfired::Dead }];
    bench.grant(delayd::store::Claim { misfires, ..claim_of(&[("message.call", 5)]) }).await;
    assert_eq!(bench.state(plain).await, State::Dead);
    check_called(&bench, id, 0, delayd::store::MISFIRED).await;
    assert_eq!(bench.counts().await.scheduled, 1);
}

pub(crate) async fn a_task_that_dies_again_makes_no_second_call(bench: Bench<impl Store>) {
    let id = bench.add_task(lamented(0)).await;
    bench.settle(&bench.hold().await, dead()).await;
    let call = check_called(&bench, id, 1, "410 Gone").await;
    let die_again = async || {
        assert_eq!(
            bench.store.replay(&lane(), vec![id], None, Spread::default()).await.unwrap(),
            1
        );
        assert_eq!(call_id(&bench, &lane(), id).await, call, "the id of the callback changed");
        bench.advance(10);
        bench.settle(&bench.hold().await, dead()).await;
    };
    let before = bench.get(call).await;
    die_again().await;
    assert_eq!(bench.get(call).await, before, "the callback that still waits changed");
    let grant = bench.claim(&[("dead.letters", 1)]).await;
    bench.settle(&Held { id: call, receipt: grant.receipt }, delivered()).await;
    die_again().await;
    assert_eq!(bench.state(call).await, State::Delivered);
    let counts = bench.counts().await;
    assert_eq!((counts.scheduled, counts.dead, counts.delivered), (0, 1, 1));
}

/// A settle whose answer was lost is not a second death, even if the first callback has ended and
/// was removed.
pub(crate) async fn a_repeated_death_makes_no_second_call(bench: Bench<impl Store>) {
    let id = bench.add_task(lamented(0)).await;
    let held = bench.hold().await;
    bench.settle(&held, dead()).await;
    let call = check_called(&bench, id, 1, "410 Gone").await;
    bench.store.cancel(&lane(), call, None).await.unwrap();
    assert_eq!(bench.store.discard(&lane(), State::Cancelled, vec![call], None).await.unwrap(), 1);
    assert_eq!(bench.settle(&held, dead()).await, Settled::Done);
    assert_eq!(bench.store.get(Reader::Worker, &lane(), call).await.unwrap(), None);
}

pub(crate) async fn a_task_that_did_not_die_makes_no_call(bench: Bench<impl Store>) {
    for how in ["delivered", "cancelled", "cancel pending", "expired"] {
        let mut task = lamented(0);
        task.options.expires_after = (how == "expired").then(Default::default);
        let id = bench.add_task(task).await;
        let call = call_id(&bench, &lane(), id).await;
        match how {
            "delivered" => drop(bench.settle(&bench.hold().await, delivered()).await),
            "cancelled" => drop(bench.store.cancel(&lane(), id, None).await.unwrap()),
            "cancel pending" => {
                let held = bench.hold().await;
                bench.store.cancel(&lane(), id, None).await.unwrap();
                assert_eq!(bench.settle(&held, dead()).await, Settled::Cancelled);
            }
            _ => {
                bench.advance(1);
                bench.sweep().await;
            }
        }
        assert!(bench.state(id).await.is_final(), "{how}");
        assert_eq!(bench.store.get(Reader::Worker, &lane(), call).await.unwrap(), None, "{how}");
    }
    let quiet = bench.add_held().await;
    bench.settle(&quiet, dead()).await;
    let counts = bench.counts().await;
    assert_eq!((counts.dead, counts.scheduled), (1, 0), "a callback was made without a request");
}

/// The receiver has finished the work after all. The callback may be running and stays.
pub(crate) async fn a_late_success_does_not_cancel_the_call(bench: Bench<impl Store>) {
    let id = bench.add_task(lamented(0)).await;
    let held = bench.hold().await;
    bench.settle(&held, dead()).await;
    let call = check_called(&bench, id, 1, "410 Gone").await;
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    assert_eq!(bench.state(id).await, State::Delivered);
    assert_eq!(bench.state(call).await, State::Scheduled);
}

pub(crate) async fn a_push_back_keeps_the_id_of_the_call(bench: Bench<impl Store>) {
    let lamented = || NewTask {
        options: Options { key: Some("k".into()), ..lamented(0).options },
        ..lamented(0)
    };
    let id = bench.add_task(lamented()).await;
    let call = call_id(&bench, &lane(), id).await;
    assert_eq!(bench.add_task(lamented()).await, id);
    assert_eq!(call_id(&bench, &lane(), id).await, call);
    // A task without a callback may get one, and a task with one may lose it.
    assert_eq!(bench.add_task(keyed("k", 0)).await, id);
    assert_eq!(bench.get(id).await.options.on_dead, None);
    assert_eq!(bench.add_task(lamented()).await, id);
    assert_ne!(call_id(&bench, &lane(), id).await, id);
    bench.settle(&bench.hold().await, dead()).await;
    check_called(&bench, id, 1, "410 Gone").await;
}

pub(crate) async fn a_call_is_in_the_lane_of_its_dead_task(bench: Bench<impl Store>) {
    let sharded = topic_of("sharded", 5);
    let mut ids_drawn = Vec::new();
    for n in 0..20 {
        let key = (n % 2 == 0).then(|| format!("key-{n}"));
        let options = Options { key, ..lamented(0).options };
        let id = bench.add_task(NewTask { topic: sharded.clone(), options, ..lamented(0) }).await;
        let lane = sharded.lane_of(id);
        let call = call_id(&bench, &lane, id).await;
        assert_eq!(sharded.lane_of(call), lane);
        ids_drawn.extend([id, call]);
    }
    ids_drawn
        .extend([bench.add("message.call", 0).await, bench.add_task(new_task("@pull", 0)).await]);
    let count = ids_drawn.len();
    ids_drawn.sort_unstable();
    ids_drawn.dedup();
    assert_eq!(ids_drawn.len(), count, "an id was drawn twice");
}

/// A batch of deaths makes a batch of callbacks.
pub(crate) async fn each_dead_task_has_its_own_call(bench: Bench<impl Store>) {
    bench.store.add(vec![lamented(0); 40]).await;
    let grant = bench.claim(&[("message.call", 50)]).await;
    let settle = |id: &TaskId| delayd::store::Settle {
        lane: lane(),
        id: *id,
        receipt: grant.receipt.clone(),
        transition: dead(),
    };
    let died = ids(&grant);
    bench.store.settle(Asker::Worker, died.iter().map(settle).collect()).await;
    let calls = bench.claim(&[("dead.letters", 50)]).await;
    let mut told: Vec<u64> = calls
        .tasks
        .iter()
        .map(|call| {
            serde_json::from_str::<Value>(&call.content).unwrap()["task_id"]
                .as_u64()
                .expect("a whole number")
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, died.iter().map(|id| id.0).collect::<Vec<_>>());
}
