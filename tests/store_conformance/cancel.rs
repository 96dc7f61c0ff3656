//! `cancel`: scheduled, dead → cancelled; leased → cancelled unless it succeeds.

use delayd::model::task::{State, TaskId};
use delayd::store::{
    Asker, Cancelled, Condition, Moment, NewTask, Rescheduled, Settled, Spread, Store, Task,
    Transition,
};

use crate::bench::{Bench, Held, dead, delivered, keyed, lane, ms, retry, stale};

async fn cancel(bench: &Bench<impl Store>, id: TaskId) -> Cancelled {
    bench.store.cancel(&lane(), id, None).await.unwrap()
}

pub(crate) async fn a_scheduled_task_is_cancelled_at_once_and_never_fires(
    bench: Bench<impl Store>,
) {
    let id = bench.add("message.call", 1_000).await;
    bench.advance(999);
    assert_eq!(cancel(&bench, id).await, Cancelled::Done);
    let task = bench.get(id).await;
    assert_eq!(
        (task.state, task.finished, task.attempts),
        (State::Cancelled, Some(bench.now()), 0)
    );
    bench.advance(1);
    assert!(bench.claim(&[("message.call", 1)]).await.tasks.is_empty());
    assert_eq!(bench.next_due().await, None);
    assert_eq!(cancel(&bench, id).await, Cancelled::Done, "a repeat");
    assert_eq!(bench.get(id).await, task);
}

/// The condition that the task is as it is now.
async fn selected(bench: &Bench<impl Store>, id: TaskId) -> Condition {
    let mut found = bench.store.summaries(&lane(), vec![id]).await.unwrap();
    Condition::Selected(found.remove(0).unwrap().selected())
}

async fn cancel_if(bench: &Bench<impl Store>, id: TaskId, only: &Condition) -> Cancelled {
    bench.store.cancel(&lane(), id, Some(only)).await.unwrap()
}

/// A change of many tasks selects them first, and some change before they are cancelled.
pub(crate) async fn a_task_that_left_its_state_is_not_cancelled(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 0).await;
    let waited = selected(&bench, id).await;
    let held = bench.hold().await;
    assert_eq!(cancel_if(&bench, id, &waited).await, Cancelled::Unknown, "leased");
    bench.settle(&held, dead()).await;
    assert_eq!(cancel_if(&bench, id, &waited).await, Cancelled::Unknown, "dead");
    let died = selected(&bench, id).await;
    assert_eq!(bench.store.replay(&lane(), vec![id], None, Spread::default()).await.unwrap(), 1);
    assert_eq!(cancel_if(&bench, id, &died).await, Cancelled::Unknown, "replayed");
    assert_eq!(bench.state(id).await, State::Scheduled);
    let waits = selected(&bench, id).await;
    assert_eq!(cancel_if(&bench, id, &waits).await, Cancelled::Done);
    assert_eq!(cancel_if(&bench, id, &waits).await, Cancelled::Unknown, "twice");
    assert_eq!(cancel_if(&bench, TaskId(1), &waits).await, Cancelled::Unknown, "no task");
}

/// An operator cancelled all tasks of one destination while producers gave them another one by
/// their key. The tasks that were selected before they changed ended cancelled, although each add
/// had been confirmed.
pub(crate) async fn a_task_that_changed_since_it_was_selected_is_left_alone(
    bench: Bench<impl Store>,
) {
    let id = bench.add_task(keyed("k", 1_000)).await;
    let changes: [&dyn Fn() -> NewTask; 2] =
        [&|| NewTask { destination: "other.call".parse().unwrap(), ..keyed("k", 1_000) }, &|| {
            NewTask { destination: "other.call".parse().unwrap(), ..keyed("k", 2_000) }
        }];
    for change in changes {
        let before = selected(&bench, id).await;
        assert_eq!(bench.add_task(change()).await, id, "it is replaced");
        let task = bench.get(id).await;
        assert_eq!(cancel_if(&bench, id, &before).await, Cancelled::Unknown);
        let moment = Moment::After(ms(5));
        let moved = bench.store.reschedule(&lane(), id, Some(&before), moment, None).await;
        assert_eq!(moved.unwrap(), Rescheduled::Unknown);
        assert_eq!(bench.get(id).await, task);
    }
    // A retry gives it another moment and outcome.
    bench.advance(2_000);
    let before = selected(&bench, id).await;
    let grant = bench.claim(&[("other.call", 1)]).await;
    let held = Held { id, receipt: grant.receipt };
    bench.settle(&held, retry(0)).await;
    assert_eq!(cancel_if(&bench, id, &before).await, Cancelled::Unknown);
    let retries = selected(&bench, id).await;
    let moment = Moment::After(ms(5));
    let moved = bench.store.reschedule(&lane(), id, Some(&retries), moment, None).await;
    assert_eq!(moved.unwrap(), Rescheduled::Done { due: bench.now() + ms(5) });
}

pub(crate) async fn a_retrying_task_is_cancelled_at_once_and_its_receipts_are_forgotten(
    bench: Bench<impl Store>,
) {
    let held = bench.add_held().await;
    bench.settle(&held, retry(1_000)).await;
    assert_eq!(cancel(&bench, held.id).await, Cancelled::Done);
    for transition in [delivered(), retry(0), dead(), Transition::Release] {
        assert_eq!(
            bench.settle(&held, transition.clone()).await,
            stale(State::Cancelled),
            "{transition:?}"
        );
    }
    assert_eq!(bench.get(held.id).await.last_outcome, "503 Service Unavailable");
}

pub(crate) async fn a_dead_task_can_be_cancelled_but_no_other_that_ended(bench: Bench<impl Store>) {
    let (ended_dead, ended_well) = (bench.add_held().await, bench.add_held().await);
    bench.settle(&ended_dead, dead()).await;
    bench.settle(&ended_well, delivered()).await;
    bench.advance(1_000);
    assert_eq!(cancel(&bench, ended_dead.id).await, Cancelled::Done);
    let task = bench.get(ended_dead.id).await;
    assert_eq!((task.state, task.finished), (State::Cancelled, Some(bench.now())));
    assert_eq!((bench.counts().await.dead, bench.counts().await.cancelled), (0, 1));
    assert_eq!(bench.settle(&ended_dead, delivered()).await, stale(State::Cancelled));
    assert_eq!(
        bench.store.replay(&lane(), vec![ended_dead.id], None, Spread::default()).await.unwrap(),
        0
    );

    let before = bench.get(ended_well.id).await;
    assert_eq!(cancel(&bench, ended_well.id).await, Cancelled::Refused { state: State::Delivered });
    assert_eq!(bench.get(ended_well.id).await, before);
    assert_eq!(cancel(&bench, TaskId(1)).await, Cancelled::Unknown);
}

/// A leased task with a pending cancel.
async fn pending(bench: &Bench<impl Store>) -> Held {
    let held = bench.add_held().await;
    let before = bench.get(held.id).await;
    assert_eq!(cancel(bench, held.id).await, Cancelled::Pending);
    assert_eq!(cancel(bench, held.id).await, Cancelled::Pending, "a repeat");
    assert_eq!(bench.get(held.id).await, Task { cancelling: true, ..before });
    held
}

pub(crate) async fn any_end_of_the_lease_but_success_fulfils_a_pending_cancel(
    bench: Bench<impl Store>,
) {
    for (transition, outcome) in [
        (retry(60_000), "503 Service Unavailable"),
        (dead(), "410 Gone"),
        (Transition::Release, ""),
    ] {
        let held = pending(&bench).await;
        let settled = bench.settle(&held, transition.clone()).await;
        assert_eq!(settled, Settled::Cancelled, "{transition:?}");
        let task = bench.get(held.id).await;
        assert_eq!(
            (task.state, task.finished),
            (State::Cancelled, Some(bench.now())),
            "{transition:?}"
        );
        assert_eq!((task.attempts, task.last_outcome.as_str()), (1, outcome), "{transition:?}");
        assert_eq!(
            bench.settle(&held, transition.clone()).await,
            Settled::Done,
            "{transition:?}, repeated"
        );
        assert_eq!(
            bench.settle(&held, delivered()).await,
            stale(State::Cancelled),
            "after {transition:?}"
        );
        assert_eq!(cancel(&bench, held.id).await, Cancelled::Done);
    }
}

pub(crate) async fn success_overtakes_a_pending_cancel(bench: Bench<impl Store>) {
    let held = pending(&bench).await;
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    assert_eq!(bench.state(held.id).await, State::Delivered);
    assert_eq!(cancel(&bench, held.id).await, Cancelled::Refused { state: State::Delivered });
}

pub(crate) async fn a_sweep_fulfils_a_pending_cancel(bench: Bench<impl Store>) {
    let held = pending(&bench).await;
    bench.let_lease_run_out();
    let grant = bench.claim(&[("message.call", 1)]).await;
    assert!(grant.tasks.is_empty(), "a cancelled task was handed out");
    let task = bench.get(held.id).await;
    assert_eq!((task.state, task.finished), (State::Cancelled, Some(bench.now())));
    assert_eq!(bench.settle(&held, delivered()).await, stale(State::Cancelled));
    assert_eq!(
        bench.settle(&held, retry(0)).await,
        Settled::Done,
        "a failure after the cancel must be answered as done"
    );
}

/// The caller was told that the task will not be called again. Only a success may change that.
pub(crate) async fn a_pending_cancel_outlives_an_extension_and_a_reschedule(
    bench: Bench<impl Store>,
) {
    let held = pending(&bench).await;
    assert_eq!(
        bench
            .store
            .extend(Asker::Worker, &lane(), held.id, &held.receipt, ms(60_000))
            .await
            .unwrap(),
        Settled::Done
    );
    bench.advance(60_000);
    let moved =
        bench.store.reschedule(&lane(), held.id, None, Moment::After(ms(0)), None).await.unwrap();
    assert_eq!(moved, Rescheduled::Refused { state: State::Cancelled });
    assert!(bench.claim(&[("message.call", 1)]).await.tasks.is_empty());
    assert_eq!(bench.state(held.id).await, State::Cancelled);
}
