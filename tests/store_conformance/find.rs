//! Lookups of tasks by id, key and idempotency key.

use delayd::model::task::{Lane, Options, State, TaskId};
use delayd::store::{
    Cancelled, Condition, Idempotency, Moment, NewTask, Rescheduled, Spread, Store, TaskName,
};

use crate::bench::{Bench, dead, delivered, keyed, lane, ms, new_task, topic_of};

const WINDOW_MS: u64 = 60_000;

async fn find(bench: &Bench<impl Store>, name: TaskName, lanes: &[Lane]) -> Vec<Option<TaskId>> {
    bench.store.find(&name, lanes.to_vec()).await.unwrap()
}

pub(crate) async fn a_task_is_found_by_its_id_among_the_lanes_of_all_topics(
    bench: Bench<impl Store>,
) {
    let others: Vec<_> = (0..150).map(|n| topic_of(&format!("t{n}"), 3)).collect();
    let topic = others[77].clone();
    let added = bench.add_task(NewTask { topic: topic.clone(), ..new_task("a", 5) }).await;
    let name = TaskName::Id(added);
    let lanes: Vec<Lane> = others.iter().map(|entry| name.lane_in(entry)).collect();
    let expected = |found: Option<TaskId>| {
        (0..others.len()).map(|n| found.filter(|_| n == 77)).collect::<Vec<_>>()
    };
    assert_eq!(find(&bench, name, &lanes).await, expected(Some(added)));
    let ended = bench.add_held().await;
    bench.settle(&ended, delivered()).await;
    assert_eq!(find(&bench, TaskName::Id(ended.id), &[lane()]).await, [Some(ended.id)]);
    assert_eq!(find(&bench, TaskName::Id(TaskId(1)), &lanes).await, expected(None));
    assert_eq!(find(&bench, TaskName::Id(added), &[]).await, []);
}

pub(crate) async fn a_task_is_found_by_its_key(bench: Bench<impl Store>) {
    let unknown: Lane = "nobody:0".parse().unwrap();
    let lanes = [unknown, lane()];
    let name = |key: &str| TaskName::Key(key.into());
    for key in ["k", "订单:1", " two words ", "\u{1f}\n"] {
        let first = bench.add_task(keyed(key, 0)).await;
        assert_eq!(find(&bench, name(key), &lanes).await, [None, Some(first)], "{key:?}");
        // The key belongs to the newest task, which a leased one does not hinder.
        bench.hold().await;
        let second = bench.add_task(keyed(key, 60_000)).await;
        assert_eq!(find(&bench, name(key), &lanes).await, [None, Some(second)], "{key:?}");
    }
    assert_eq!(find(&bench, name("other"), &lanes).await, [None, None]);
}

pub(crate) async fn a_task_is_found_by_its_idempotency_key_until_its_window_ends(
    bench: Bench<impl Store>,
) {
    let topic = topic_of("wide", 5);
    let task = |key: Option<&str>, idempotency_key: &str| NewTask {
        topic: topic.clone(),
        options: Options { key: key.map(str::to_owned), ..Options::default() },
        idempotency: Some(Idempotency {
            key: idempotency_key.into(),
            fingerprint: 7,
            window: ms(WINDOW_MS),
        }),
        ..new_task("a", 5)
    };
    let name = |key: Option<&str>, idempotency_key: &str| TaskName::Idempotency {
        key: key.map(str::to_owned),
        idempotency_key: idempotency_key.into(),
    };
    let found = async |name: TaskName| {
        let lane = name.lane_in(&topic);
        find(&bench, name, &[lane]).await[0]
    };
    let plain = bench.add_task(task(None, "order 7")).await;
    let with_key = bench.add_task(task(Some("k"), "order 7")).await;
    assert_ne!(plain, with_key);
    assert_eq!(found(name(None, "order 7")).await, Some(plain));
    assert_eq!(found(name(Some("k"), "order 7")).await, Some(with_key));
    assert_eq!(found(TaskName::Key("k".into())).await, Some(with_key));
    assert_eq!(found(name(Some("k"), "order 8")).await, None);
    bench.advance(WINDOW_MS - 1);
    assert_eq!(found(name(None, "order 7")).await, Some(plain));
    bench.advance(1);
    assert_eq!(found(name(None, "order 7")).await, None);
}

async fn cancel(bench: &Bench<impl Store>, id: TaskId, name: &TaskName) -> Cancelled {
    let only = Condition::Named(name.clone());
    bench.store.cancel(&lane(), id, Some(&only)).await.unwrap()
}

async fn move_to(
    bench: &Bench<impl Store>,
    id: TaskId,
    name: &TaskName,
    after: u64,
) -> Rescheduled {
    let moment = Moment::After(ms(after));
    let only = Condition::Named(name.clone());
    bench.store.reschedule(&lane(), id, Some(&only), moment, None).await.unwrap()
}

/// A caller looked up the key of an order. Meanwhile the old task was tried, and an add gave the
/// key to a new one. The cancel must not report success because the old task is cancelled.
pub(crate) async fn a_change_by_key_does_not_touch_a_task_that_the_key_has_left(
    bench: Bench<impl Store>,
) {
    let name = TaskName::Key("k".into());
    let old = bench.add_task(keyed("k", 0)).await;
    let held = bench.hold().await;
    assert_eq!(held.id, old);
    assert_eq!(cancel(&bench, old, &name).await, Cancelled::Pending, "it has the key still");
    bench.settle(&held, dead()).await;
    assert_eq!(bench.state(old).await, State::Cancelled);

    // A dead task that an operator replays waits again, without its key.
    let old = bench.add_task(keyed("k", 0)).await;
    let held = bench.hold().await;
    assert_eq!(held.id, old);
    bench.settle(&held, dead()).await;
    let new = bench.add_task(keyed("k", 60_000)).await;
    assert_ne!(old, new);
    assert_eq!(bench.store.replay(&lane(), vec![old], None, Spread::default()).await.unwrap(), 1);
    let before = bench.get(old).await;
    assert_eq!(cancel(&bench, old, &name).await, Cancelled::Unknown);
    assert_eq!(move_to(&bench, old, &name, 9_000).await, Rescheduled::Unknown);
    assert_eq!(bench.get(old).await, before);

    let due = bench.now() + ms(9_000);
    assert_eq!(move_to(&bench, new, &name, 9_000).await, Rescheduled::Done { due });
    assert_eq!(bench.get(new).await.due, due);
    assert_eq!(cancel(&bench, new, &name).await, Cancelled::Done);
    assert_eq!(cancel(&bench, new, &name).await, Cancelled::Done, "a repeat");
    assert_eq!(bench.get(old).await, before);
    let refused = Rescheduled::Refused { state: State::Cancelled };
    assert_eq!(move_to(&bench, new, &name, 1).await, refused);
    for other in [TaskName::Key("other".into()), TaskName::Id(new)] {
        assert_eq!(cancel(&bench, old, &other).await, Cancelled::Unknown, "{other:?}");
    }
    assert_eq!(bench.get(old).await, before);
}

pub(crate) async fn a_change_by_idempotency_key_ends_with_its_window(bench: Bench<impl Store>) {
    let task = |key: Option<&str>| NewTask {
        options: Options { key: key.map(str::to_owned), ..Options::default() },
        idempotency: Some(Idempotency {
            key: "订单 7".into(),
            fingerprint: 7,
            window: ms(WINDOW_MS),
        }),
        ..new_task("a", 2 * WINDOW_MS)
    };
    let name = |key: Option<&str>| TaskName::Idempotency {
        key: key.map(str::to_owned),
        idempotency_key: "订单 7".into(),
    };
    let (plain, with_key) =
        (bench.add_task(task(None)).await, bench.add_task(task(Some("k"))).await);
    assert_eq!(cancel(&bench, plain, &name(Some("k"))).await, Cancelled::Unknown);
    assert_eq!(cancel(&bench, with_key, &name(None)).await, Cancelled::Unknown);
    // The add of another idempotency key replaces the task, which keeps its id and both names.
    let replaced = bench.add_task(keyed("k", 3_000)).await;
    assert_eq!(replaced, with_key);
    assert_eq!(cancel(&bench, with_key, &name(Some("k"))).await, Cancelled::Done);
    bench.advance(WINDOW_MS - 1);
    let due = bench.now() + ms(5);
    assert_eq!(move_to(&bench, plain, &name(None), 5).await, Rescheduled::Done { due });
    bench.advance(1);
    assert_eq!(move_to(&bench, plain, &name(None), 9).await, Rescheduled::Unknown);
    assert_eq!(cancel(&bench, plain, &name(None)).await, Cancelled::Unknown);
    assert_eq!((bench.get(plain).await.due, bench.state(plain).await), (due, State::Scheduled));
}
