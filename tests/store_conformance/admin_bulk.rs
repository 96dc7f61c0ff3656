//! Admin verbs for many tasks: summaries, forecasts, replays, discards, an empty lane.

use delayd::model::task::{Lane, State, TaskId};
use delayd::store::{
    Cleared, Counts, LEASE_RAN_OUT, LaneForecast, MAX_FORECAST, NewTask, Reader, Settled, Spread,
    Store, Summary, Task, Transition,
};

use crate::bench::{
    Bench, LEASE_MS, at, dead, delivered, keyed, lane, ms, new_task, retry, topic_of,
};

fn summary(task: Task) -> Summary {
    let Task {
        id,
        state,
        lease,
        destination,
        due,
        created,
        finished,
        attempts,
        last_outcome,
        options,
        ..
    } = task;
    Summary {
        id,
        state,
        lease,
        destination,
        due,
        created,
        finished,
        attempts,
        last_outcome,
        key: options.key,
    }
}

pub(crate) async fn summaries_say_what_get_says_without_the_body(bench: Bench<impl Store>) {
    let mut all = vec![bench.add_task(keyed("订单:1", 60_000)).await, bench.add("@pull", 5).await];
    for transition in [delivered(), dead(), retry(7_000), Transition::Release] {
        bench.add("message.call", 0).await;
        let held = bench.hold().await;
        bench.advance(3);
        bench.settle(&held, transition).await;
        all.push(held.id);
        bench
            .store
            .reschedule(&lane(), held.id, None, delayd::store::Moment::After(ms(99_000)), None)
            .await
            .unwrap();
    }
    all.push(bench.add_held().await.id);
    let cancelled = bench.add("message.call", 99_000).await;
    bench.store.cancel(&lane(), cancelled, None).await.unwrap();
    all.push(cancelled);
    let check = async |what: &str| {
        let unknown = [TaskId(1), TaskId::MAX];
        let asked: Vec<TaskId> =
            unknown.iter().chain(all.iter().rev()).chain(&all).copied().collect();
        let mut expected = Vec::new();
        for id in &asked {
            expected
                .push(bench.store.get(Reader::Worker, &lane(), *id).await.unwrap().map(summary));
        }
        assert_eq!(bench.store.summaries(&lane(), asked).await.unwrap(), expected, "{what}");
        assert!(
            expected[..2].iter().all(Option::is_none) && expected[2..].iter().all(Option::is_some)
        );
    };
    check("at once").await;
    bench.let_lease_run_out();
    check("a lease has run out").await;
    bench.sweep().await;
    check("it was swept").await;
    let first = bench.store.summaries(&lane(), all[..1].to_vec()).await.unwrap().remove(0).unwrap();
    assert_eq!((first.key.as_deref(), first.state), (Some("订单:1"), State::Scheduled));
    let elsewhere: Lane = "orders:1".parse().unwrap();
    assert_eq!(
        bench.store.summaries(&elsewhere, all.clone()).await.unwrap(),
        vec![None; all.len()]
    );
    assert_eq!(bench.store.summaries(&lane(), vec![]).await.unwrap(), []);
}

pub(crate) async fn a_replay_spreads_dead_tasks_out(bench: Bench<impl Store>) {
    let mut died = Vec::new();
    for _ in 0..4 {
        let held = bench.add_held().await;
        bench.settle(&held, dead()).await;
        died.push(held.id);
    }
    let waiting = bench.add("message.call", 99_000).await;
    bench.advance(1_000);
    // Only dead tasks take a step, in the order in which they are named.
    let named = vec![died[2], waiting, died[0], died[2], TaskId(1), died[3]];
    let spread = Spread { first: ms(500), step: ms(250) };
    assert_eq!(bench.store.replay(&lane(), named, None, spread).await.unwrap(), 3);
    for (id, due) in [(died[2], 1_500), (died[0], 1_750), (died[3], 2_000), (waiting, 99_000)] {
        assert_eq!(
            (bench.get(id).await.state, bench.get(id).await.due),
            (State::Scheduled, at(due))
        );
    }
    assert_eq!(bench.state(died[1]).await, State::Dead);
    assert_eq!(bench.next_due().await, Some(at(1_500)));
    bench.advance(750);
    let grant = bench.claim(&[("message.call", 9)]).await;
    assert_eq!(crate::bench::ids(&grant), [died[2], died[0]]);
    assert_eq!(grant.tasks.iter().map(|task| task.due).collect::<Vec<_>>(), [at(1_500), at(1_750)]);
}

/// An operator replayed, or purged, the tasks that died of one cause. Those that had died again of
/// another one since they were listed were changed too.
pub(crate) async fn dead_tasks_of_another_outcome_are_left_alone(bench: Bench<impl Store>) {
    let mut died = Vec::new();
    for outcome in ["410 Gone", "410", "", "410 Gone"] {
        let held = bench.add_held().await;
        bench.settle(&held, Transition::Dead { outcome: outcome.into() }).await;
        died.push(held.id);
    }
    let replay = async |ids: &[TaskId], outcome| {
        let spread = Spread::default();
        bench.store.replay(&lane(), ids.to_vec(), Some(outcome), spread).await.unwrap()
    };
    let discard = async |outcome| {
        bench.store.discard(&lane(), State::Dead, died.clone(), Some(outcome)).await.unwrap()
    };
    assert_eq!(replay(&died, "500").await, 0);
    assert_eq!(replay(&died[..3], "410 Gone").await, 1);
    assert_eq!(bench.state(died[0]).await, State::Scheduled);
    assert_eq!(discard("410").await, 1);
    assert_eq!(bench.store.get(Reader::Worker, &lane(), died[1]).await.unwrap(), None);
    assert_eq!(discard("41").await, 0);
    assert_eq!(discard("").await, 1);
    assert_eq!(bench.state(died[3]).await, State::Dead);
}

pub(crate) async fn a_discard_removes_only_tasks_of_the_named_state(bench: Bench<impl Store>) {
    let ends = [delivered(), dead(), dead(), dead()];
    let mut all = Vec::new();
    for transition in ends {
        let held = bench.add_held().await;
        bench.settle(&held, transition).await;
        all.push(held.id);
    }
    all.push(bench.add("message.call", 0).await);
    let discard = async |state, ids: &[TaskId]| {
        bench.store.discard(&lane(), state, ids.to_vec(), None).await.unwrap()
    };
    assert_eq!(discard(State::Scheduled, &all).await, 0);
    assert_eq!(discard(State::Leased, &all).await, 0);
    assert_eq!(discard(State::Expired, &all).await, 0);
    assert_eq!(
        bench
            .store
            .discard(&"orders:1".parse().unwrap(), State::Dead, all.clone(), None)
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        discard(State::Dead, &[all[0], all[1], all[1], TaskId(1), all[3], all[4]]).await,
        2,
        "each task must be discarded once"
    );
    let counts = bench.counts().await;
    assert_eq!((counts.dead, counts.delivered, counts.scheduled), (1, 1, 1));
    for gone in [all[1], all[3]] {
        assert_eq!(bench.store.get(Reader::Worker, &lane(), gone).await.unwrap(), None);
    }
    assert_eq!(
        bench.list(State::Dead).await.iter().map(|listed| listed.id).collect::<Vec<_>>(),
        [all[2]]
    );
    assert_eq!(discard(State::Dead, &[]).await, 0);
    assert_eq!(discard(State::Delivered, &all).await, 1);
}

pub(crate) async fn a_clear_leaves_only_leased_tasks(bench: Bench<impl Store>) {
    let lost = bench.add_held().await;
    bench.let_lease_run_out();
    // A sweep would hand it out again. Its lease has expired, and it stays in that state until the
    // clear.
    bench.add("other.server", 0).await;
    let grant = bench.grant(delayd::store::Claim {
        lease: ms(2 * LEASE_MS),
        ..crate::bench::claim_of(&[("other.server", 1), ("message.call", 1)])
    });
    let grant = grant.await;
    assert_eq!(grant.tasks.len(), 2);
    let kept = crate::bench::Held { id: grant.tasks[0].id, receipt: grant.receipt.clone() };
    assert_eq!(
        bench.settle(&crate::bench::Held { id: lost.id, receipt: grant.receipt }, retry(0)).await,
        Settled::Done
    );
    for transition in [delivered(), dead()] {
        bench.add("ended", 0).await;
        let grant = bench.claim(&[("ended", 1)]).await;
        let held = crate::bench::Held { id: grant.tasks[0].id, receipt: grant.receipt };
        bench.settle(&held, transition).await;
    }
    bench.hold().await;
    bench.let_lease_run_out();
    bench.add("@pull", 5).await;
    bench.add("message.call", 5).await;
    let elsewhere = bench
        .add_task(NewTask { topic: topic_of("others", 1), ..new_task("message.call", 0) })
        .await;
    let clear = async |limit| bench.store.clear(&lane(), limit).await.unwrap().removed;
    assert_eq!(clear(0).await, 0);
    assert_eq!(clear(2).await, 2);
    assert_eq!(clear(2).await, 2);
    assert_eq!(clear(2).await, 1);
    assert_eq!(clear(2).await, 0, "a task was left");
    let counts = bench.counts().await;
    assert_eq!(counts, Counts { leased: 1, ..Counts::default() });
    assert_eq!(bench.next_due().await, Some(at(3 * LEASE_MS as i64)));
    assert!(
        bench
            .store
            .get(Reader::Worker, &"others:0".parse().unwrap(), elsewhere)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(bench.settle(&kept, delivered()).await, Settled::Done);
    assert_eq!(clear(2).await, 1);
    assert_eq!(bench.counts().await, Counts::default());
    assert_eq!(bench.sweep().await.tasks, []);
}

/// A purge of a topic spared the leased tasks for good: those whose receiver failed were called
/// again and again after it.
pub(crate) async fn a_leased_task_that_was_cleared_ends_with_its_lease(bench: Bench<impl Store>) {
    let clear = async || bench.store.clear(&lane(), 10).await.unwrap();
    let succeeds = bench.add_held().await;
    let fails = bench.add_held().await;
    let dies = bench.add_held().await;
    let is_lost = bench.add_held().await;
    let pulled = bench.add("@pull", 0).await;
    bench.store.cancel(&lane(), dies.id, None).await.unwrap();
    assert_eq!(clear().await, Cleared { removed: 1, cancelling: 3 });
    assert_eq!(clear().await, Cleared::default(), "a repeat");
    assert_eq!(bench.store.get(Reader::Worker, &lane(), pulled).await.unwrap(), None);
    assert_eq!(bench.settle(&succeeds, delivered()).await, Settled::Done);
    assert_eq!(bench.settle(&fails, retry(0)).await, Settled::Cancelled);
    assert_eq!(bench.settle(&dies, dead()).await, Settled::Cancelled);
    bench.let_lease_run_out();
    assert_eq!(clear().await, Cleared { removed: 4, cancelling: 0 });
    assert_eq!(bench.counts().await, Counts::default());
    assert_eq!(bench.store.get(Reader::Worker, &lane(), is_lost.id).await.unwrap(), None);
}

pub(crate) async fn a_clear_marks_all_of_many_leased_tasks(bench: Bench<impl Store>) {
    bench.store.add(vec![new_task("message.call", 0); 700]).await;
    let grant = bench.claim(&[("message.call", 700)]).await;
    assert_eq!(grant.tasks.len(), 700);
    let mut all = Cleared::default();
    loop {
        let cleared = bench.store.clear(&lane(), 300).await.unwrap();
        if cleared == Cleared::default() {
            break;
        }
        all.removed += cleared.removed;
        all.cancelling += cleared.cancelling;
    }
    assert_eq!(all, Cleared { removed: 0, cancelling: 700 });
}

pub(crate) async fn a_clear_of_many_is_exact(bench: Bench<impl Store>) {
    bench.store.add(vec![new_task("message.call", 60_000); 900]).await;
    bench.store.add(vec![keyed("k", 60_000)]).await;
    bench.store.add(vec![new_task("@pull", 0); 400]).await;
    assert_eq!(bench.store.clear(&lane(), 1_000).await.unwrap().removed, 1_000);
    assert_eq!(bench.counts().await.scheduled, 301);
    assert_eq!(bench.store.clear(&lane(), 1_000).await.unwrap().removed, 301);
    assert_eq!(bench.next_due().await, None);
}

pub(crate) async fn a_forecast_counts_the_tasks_due_in_each_step(bench: Bench<impl Store>) {
    bench.advance(1_000);
    let forecast =
        async |step, steps| bench.store.forecast(&lane(), ms(step), steps).await.unwrap();
    assert_eq!(
        forecast(10, 2).await,
        LaneForecast { now: at(1_000), overdue: 0, steps: vec![0, 0] }
    );
    bench.add_held().await;
    for after in [0, 0, 1, 10, 11, 20, 20, 21, 30, 31] {
        bench.add(["message.call", "other.server", "@pull"][after as usize % 3], after).await;
    }
    let dead_one = bench.add_task(new_task("ended", 0)).await;
    bench.store.cancel(&lane(), dead_one, None).await.unwrap();
    assert_eq!(
        forecast(10, 3).await,
        LaneForecast { now: at(1_000), overdue: 2, steps: vec![2, 3, 2] }
    );
    assert_eq!(forecast(10, 1).await.steps, [2]);
    assert_eq!(forecast(10, 0).await, LaneForecast { now: at(1_000), overdue: 2, steps: vec![] });
    assert_eq!(forecast(86_400_000, 2).await.steps, [8, 0]);
    bench.advance(20);
    assert_eq!(
        forecast(10, 2).await,
        LaneForecast { now: at(1_020), overdue: 7, steps: vec![2, 1] }
    );
    let longest = forecast(1, MAX_FORECAST + 5).await;
    assert_eq!((longest.steps.len(), longest.steps.iter().sum::<u64>()), (MAX_FORECAST, 3));
}

pub(crate) async fn the_earliest_due_moment_of_a_lane_is_known(bench: Bench<impl Store>) {
    let earliest = async || bench.counts().await.earliest;
    assert_eq!(earliest().await, None);
    bench.add("message.call", 9_000).await;
    bench.add("other.server", 7_000).await;
    assert_eq!(earliest().await, Some(at(7_000)));
    let pulled = bench.add("@pull", 5_000).await;
    assert_eq!(earliest().await, Some(at(5_000)), "pulled and called tasks must both count");
    bench.advance(8_000);
    assert_eq!(
        earliest().await,
        Some(at(5_000)),
        "the moment must be that of the oldest overdue task"
    );
    bench.store.cancel(&lane(), pulled, None).await.unwrap();
    assert_eq!(earliest().await, Some(at(7_000)));
    let grant = bench.claim(&[("other.server", 1)]).await;
    assert_eq!(earliest().await, Some(at(9_000)), "a leased task counts as waiting");
    let held = crate::bench::Held { id: grant.tasks[0].id, receipt: grant.receipt };
    bench.settle(&held, retry(500)).await;
    assert_eq!(earliest().await, Some(at(8_500)), "the moment of a retry must count");
    bench.claim(&[("other.server", 1)]).await;
    bench.advance(500);
    bench.claim(&[("other.server", 1)]).await;
    bench.let_lease_run_out();
    assert_eq!(earliest().await, Some(at(9_000)));
    bench.sweep().await;
    assert_eq!(bench.get(held.id).await.last_outcome, LEASE_RAN_OUT);
    assert_eq!(earliest().await, Some(at(9_000)));
}
