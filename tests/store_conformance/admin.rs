//! `reschedule`, `replay`, `purge`: what operators and producers do to tasks.

use delayd::model::task::{Options, State, TaskId};
use delayd::store::{
    Asker, LaneHistory, Moment, NewContent, NewTask, Reader, Rescheduled, Settled, Spread, Store,
    Transition,
};

use crate::bench::{Bench, at, dead, delivered, ids, lane, ms, new_task, retry, stale};

pub(crate) async fn a_reschedule_moves_the_due_moment(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 10_000).await;
    bench.advance(1_000);
    let check = async |moment: Moment, due_ms: i64| {
        let moved = bench.store.reschedule(&lane(), id, None, moment, None).await.unwrap();
        assert_eq!(moved, Rescheduled::Done { due: at(due_ms) }, "{moment:?}");
        let task = bench.get(id).await;
        assert_eq!((task.due, task.created), (at(due_ms), at(0)), "{moment:?}");
        assert_eq!(bench.next_due().await, Some(at(due_ms)), "{moment:?}");
    };
    check(Moment::At(at(60_000)), 60_000).await;
    check(Moment::After(ms(5)), 1_005).await;
    check(Moment::At(at(3)), 1_000).await;
    check(Moment::At(at(2_000)), 2_000).await;
    assert!(bench.claim(&[("message.call", 1)]).await.tasks.is_empty());
    bench.advance(1_000);
    let grant = bench.claim(&[("message.call", 1)]).await;
    assert_eq!((grant.tasks[0].id, grant.tasks[0].due), (id, at(2_000)));
}

pub(crate) async fn a_reschedule_may_change_content_and_destination(bench: Bench<impl Store>) {
    let options = Options { max_attempts: Some(2), ..Options::default() };
    let id =
        bench.add_task(NewTask { options: options.clone(), ..new_task("old.server", 1_000) }).await;
    let content = "{\"v\":2}".to_owned();
    let new = NewContent { destination: "new.server".parse().unwrap(), content, keeps_mode: false };
    bench
        .store
        .reschedule(&lane(), id, None, Moment::After(ms(0)), Some(new.clone()))
        .await
        .unwrap();
    let task = bench.get(id).await;
    assert_eq!((task.destination.as_str(), task.content.as_str()), ("new.server", "{\"v\":2}"));
    assert_eq!(task.options, options);
    assert_eq!(bench.counts().await.scheduled, 1);
    assert!(bench.claim(&[("old.server", 1)]).await.tasks.is_empty());
    let grant = bench.claim(&[("new.server", 1)]).await;
    assert_eq!((grant.tasks[0].id, grant.tasks[0].content.as_str()), (id, "{\"v\":2}"));
    assert!(grant.outlook.due.is_empty());

    let to_pull = bench.add("old.server", 1_000).await;
    let pulled = NewContent { destination: "@pull".parse().unwrap(), ..new };
    bench
        .store
        .reschedule(&lane(), to_pull, None, Moment::After(ms(7)), Some(pulled))
        .await
        .unwrap();
    bench.advance(7);
    assert!(bench.sweep().await.outlook.due.is_empty(), "the old destination is still due");
    assert_eq!(ids(&bench.claim(&[("@pull", 1)]).await), [to_pull]);
}

/// A caller reads the mode of a task, and an add with the same `key` may change it before the
/// caller's change.
pub(crate) async fn a_reschedule_can_insist_on_the_mode(bench: Bench<impl Store>) {
    let called = bench.add("message.call", 1_000).await;
    let pulled = bench.add("@pull", 1_000).await;
    let check = async |id, destination: &str, expected: Rescheduled| {
        let destination = destination.parse().unwrap();
        let new = NewContent { destination, content: "{\"v\":2}".into(), keeps_mode: true };
        let before = bench.get(id).await;
        let moment = Moment::At(at(5_000));
        let moved = bench.store.reschedule(&lane(), id, None, moment, Some(new)).await.unwrap();
        assert_eq!(moved, expected, "{id}");
        if expected == Rescheduled::OtherMode {
            assert_eq!(bench.get(id).await, before, "{id} changed");
        }
    };
    let done = Rescheduled::Done { due: at(5_000) };
    check(called, "@pull", Rescheduled::OtherMode).await;
    check(pulled, "message.call", Rescheduled::OtherMode).await;
    check(called, "other.server", done).await;
    check(pulled, "@pull", done).await;
}

pub(crate) async fn reschedule_and_replay_forget_receipts_and_attempts(bench: Bench<impl Store>) {
    let moved = bench.add_held().await;
    bench.settle(&moved, retry(1_000)).await;
    bench.store.reschedule(&lane(), moved.id, None, Moment::After(ms(60_000)), None).await.unwrap();
    let replayed = bench.add_held().await;
    bench.settle(&replayed, dead()).await;
    bench.advance(60_000);
    assert_eq!(
        bench.store.replay(&lane(), vec![replayed.id], None, Spread::default()).await.unwrap(),
        1
    );

    for held in [moved, replayed] {
        let task = bench.get(held.id).await;
        assert_eq!((task.state, task.attempts, task.finished), (State::Scheduled, 0, None));
        assert_eq!(task.last_outcome, "");
        for transition in [delivered(), retry(0), dead(), Transition::Release] {
            assert_eq!(
                bench.settle(&held, transition.clone()).await,
                stale(State::Scheduled),
                "{transition:?}"
            );
        }
        let extended = bench
            .store
            .extend(Asker::Worker, &lane(), held.id, &held.receipt, ms(1_000))
            .await
            .unwrap();
        assert_eq!(extended, stale(State::Scheduled));
        let grant = bench.claim(&[("message.call", 1)]).await;
        assert_eq!((grant.tasks[0].id, grant.tasks[0].attempt), (held.id, 1));
    }
}

pub(crate) async fn only_a_scheduled_task_is_rescheduled(bench: Bench<impl Store>) {
    let reschedule = async |id| {
        bench.store.reschedule(&lane(), id, None, Moment::After(ms(0)), None).await.unwrap()
    };
    let held = bench.add_held().await;
    let check = async |state: State| {
        let before = bench.get(held.id).await;
        assert_eq!(reschedule(held.id).await, Rescheduled::Refused { state });
        assert_eq!(bench.get(held.id).await, before);
    };
    check(State::Leased).await;
    bench.settle(&held, dead()).await;
    check(State::Dead).await;
    bench.settle(&held, delivered()).await;
    check(State::Delivered).await;
    let cancelled = bench.add("message.call", 0).await;
    bench.store.cancel(&lane(), cancelled, None).await.unwrap();
    assert_eq!(reschedule(cancelled).await, Rescheduled::Refused { state: State::Cancelled });
    assert_eq!(reschedule(TaskId(1)).await, Rescheduled::Unknown);
}

pub(crate) async fn a_replay_schedules_dead_tasks_now_and_counts_them(bench: Bench<impl Store>) {
    let (first, second, well) =
        (bench.add_held().await, bench.add_held().await, bench.add_held().await);
    bench.settle(&first, dead()).await;
    bench.settle(&second, dead()).await;
    bench.settle(&well, delivered()).await;
    bench.advance(5_000);
    let all = vec![first.id, well.id, TaskId(1), second.id, first.id];
    assert_eq!(bench.store.replay(&lane(), all.clone(), None, Spread::default()).await.unwrap(), 2);
    assert_eq!(
        bench.store.replay(&lane(), all, None, Spread::default()).await.unwrap(),
        0,
        "a repeated replay must find no dead task"
    );
    assert_eq!(bench.get(first.id).await.due, bench.now());
    let counts = bench.counts().await;
    assert_eq!((counts.scheduled, counts.dead, counts.delivered), (2, 0, 1));
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!(ids(&grant), [first.id, second.id]);
    assert_eq!(grant.tasks[0].due, at(5_000), "the due moment is not that of the replay");
    assert_eq!(bench.store.replay(&lane(), Vec::new(), None, Spread::default()).await.unwrap(), 0);
}

pub(crate) async fn a_purge_removes_the_oldest_ended_tasks_first(bench: Bench<impl Store>) {
    let mut ended = Vec::new();
    for _ in 0..5 {
        let held = bench.add_held().await;
        assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
        ended.push(held);
        bench.advance(1_000);
    }
    let dead_one = bench.add_held().await;
    bench.settle(&dead_one, dead()).await;
    let waiting = bench.add("message.call", 0).await;
    let purge = async |state, before, limit| {
        bench.store.purge(&lane(), 0, state, before, limit).await.unwrap()
    };
    let history = async || bench.store.histories(vec![lane()]).await.unwrap().lanes[0].unwrap();

    let expected = LaneHistory { ended: 5, oldest: Some(at(0)), ..LaneHistory::default() };
    assert_eq!(history().await, expected);
    assert_eq!(purge(State::Delivered, at(0), 10).await, 0, "a task was purged that ended later");
    assert_eq!(purge(State::Delivered, at(10_000), 0).await, 0);
    assert_eq!(purge(State::Delivered, at(10_000), 2).await, 2);
    let left: Vec<TaskId> =
        bench.list(State::Delivered).await.iter().map(|listed| listed.id).collect();
    assert_eq!(
        history().await,
        LaneHistory { ended: 3, oldest: Some(at(2_000)), ..LaneHistory::default() }
    );
    assert_eq!(
        left,
        [ended[2].id, ended[3].id, ended[4].id],
        "the purge did not begin with the oldest"
    );
    assert!(bench.store.get(Reader::Worker, &lane(), ended[0].id).await.unwrap().is_none());
    assert_eq!(bench.settle(&ended[0], delivered()).await, Settled::Unknown);
    assert_eq!(
        purge(State::Delivered, at(3_000), 10).await,
        1,
        "a task was purged that ended at the moment itself"
    );
    assert_eq!(purge(State::Delivered, at(100_000), 10).await, 2);
    for state in [State::Scheduled, State::Leased, State::Cancelled, State::Expired] {
        assert_eq!(purge(state, at(100_000), 10).await, 0, "{state:?}");
    }
    assert_eq!(
        (history().await, bench.counts().await.dead),
        (LaneHistory::default(), 1),
        "a dead task was purged"
    );
    assert_eq!(purge(State::Dead, at(100_000), 10).await, 1);
    assert_eq!(bench.state(waiting).await, State::Scheduled);
}

/// Two janitors counted the same excess of a history, and both removed it: the history was cut
/// twice as far as its topic asked for.
pub(crate) async fn an_excess_of_the_history_is_purged_once(bench: Bench<impl Store>) {
    for _ in 0..4 {
        let held = bench.add_held().await;
        bench.settle(&held, delivered()).await;
    }
    let cancelled = bench.add("message.call", 0).await;
    bench.store.cancel(&lane(), cancelled, None).await.unwrap();
    bench.advance(1);
    let excess = async |most, limit| {
        bench.store.purge(&lane(), most, State::Delivered, bench.now(), limit).await.unwrap()
    };
    assert_eq!(excess(3, 1).await, 1);
    assert_eq!((excess(3, 2).await, excess(3, 2).await), (1, 0));
    assert_eq!((bench.counts().await.delivered, bench.counts().await.cancelled), (2, 1));
    assert_eq!(excess(9, 5).await, 0);
}

/// A purge of many tasks works in chunks inside the store. The caller gets one number.
pub(crate) async fn a_purge_of_many_is_exact(bench: Bench<impl Store>) {
    let added = bench.store.add(vec![new_task("message.call", 60_000); 1_300]).await;
    for added in added {
        bench.store.cancel(&lane(), added.unwrap().id, None).await.unwrap();
    }
    bench.advance(1);
    let purge = async |limit| {
        bench.store.purge(&lane(), 0, State::Cancelled, bench.now(), limit).await.unwrap()
    };
    assert_eq!(purge(1_201).await, 1_201);
    assert_eq!(purge(1_000).await, 99);
}
