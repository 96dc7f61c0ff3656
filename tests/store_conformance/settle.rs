//! `settle`: the table of the contract, row by row.

use delayd::model::task::{State, TaskId};
use delayd::store::{
    Asker, Hint, KEPT, LEASE_RAN_OUT, LeaseKind, MAX_EXPIRIES, MAX_OUTCOME, MOVED, Moment, Settle,
    Settled, Spread, Store, Task, Transition,
};

use crate::bench::{Bench, Held, dead, delivered, hear, lane, ms, receipt, retry, stale};

/// The state of a task before a settle. `old` claimed it and asked for a retry. Then `new` claimed
/// it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// `new` holds it.
    Leased,
    /// The lease of `new` has expired.
    RanOut,
    /// The lease of `new` has expired, and a claim swept it.
    Swept,
    /// `new` asked for a retry.
    Retried,
    /// `new` gave it back.
    Released,
    /// `new` ended it as dead.
    Dead,
    /// `new` ended it as delivered.
    Delivered,
    /// Cancelled while it waited after the retry of `new`.
    Cancelled,
    /// Cancelled while `new` held it. `new` then ended its lease without success.
    CancelledAtEnd,
}

/// The effect of a settle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The answer is done, and the task gets the settle's state.
    Moves,
    /// The answer is done, as it was before, and nothing changes.
    Repeats,
    /// The answer is stale, and nothing changes.
    Stale,
}

use Before::{
    Cancelled, CancelledAtEnd, Dead, Delivered, Leased, RanOut, Released, Retried, Swept,
};
use Then::{Moves, Repeats, Stale};

const ALL: [Before; 9] =
    [Leased, RanOut, Swept, Retried, Released, Dead, Delivered, Cancelled, CancelledAtEnd];

/// Makes the task. Returns it for each of its two holders.
async fn build(bench: &Bench<impl Store>, before: Before) -> (Held, Held) {
    let old = bench.add_held().await;
    bench.settle(&old, retry(0)).await;
    let new = bench.hold().await;
    match before {
        Leased => {}
        RanOut => bench.let_lease_run_out(),
        Swept => {
            bench.let_lease_run_out();
            bench.sweep().await;
        }
        Retried => _ = bench.settle(&new, retry(60_000)).await,
        Released => _ = bench.settle(&new, Transition::Release).await,
        Dead => _ = bench.settle(&new, dead()).await,
        Delivered => _ = bench.settle(&new, delivered()).await,
        Cancelled => {
            bench.settle(&new, retry(60_000)).await;
            bench.store.cancel(&lane(), new.id, None).await.unwrap();
        }
        CancelledAtEnd => {
            bench.store.cancel(&lane(), new.id, None).await.unwrap();
            bench.settle(&new, retry(60_000)).await;
        }
    }
    (old, new)
}

/// Checks one transition in every state. The columns are: state before, effect by `new`, effect by
/// `old`.
async fn check(bench: &Bench<impl Store>, transition: Transition, rows: [(Before, Then, Then); 9]) {
    for (expected, row) in ALL.iter().zip(&rows) {
        assert_eq!(*expected, row.0, "the table names every state");
    }
    for (before, by_new, by_old) in rows {
        for (name, then) in [("new", by_new), ("old", by_old), ("a stranger", Stale)] {
            let (old, new) = build(bench, before).await;
            let by = match name {
                "new" => new,
                "old" => old,
                _ => Held { receipt: receipt("stranger"), ..old },
            };
            let task = bench.get(by.id).await;
            bench.advance(10);
            let answer = bench.settle(&by, transition.clone()).await;
            let label = format!("{transition:?} by {name} on {before:?}");
            let expected = match then {
                Moves | Repeats => Settled::Done,
                Stale => stale(task.state),
            };
            assert_eq!(answer, expected, "{label}");
            let after = bench.get(by.id).await;
            match then {
                Moves => assert_eq!(after, moved(bench, &task, &transition), "{label}"),
                Repeats | Stale => assert_eq!(after, task, "{label}"),
            }
            if then == Moves && !matches!(transition, Transition::Release) {
                assert_eq!(
                    bench.settle(&by, transition.clone()).await,
                    Settled::Done,
                    "{label}, repeated"
                );
                assert_eq!(bench.get(by.id).await, after, "{label}, repeated");
            }
            // Nothing may be left to claim for the next row.
            bench.advance(60_000);
            bench.sweep().await;
            bench.store.cancel(&lane(), by.id, None).await.unwrap();
        }
    }
}

/// The task after a settle.
fn moved(bench: &Bench<impl Store>, task: &Task, transition: &Transition) -> Task {
    let now = bench.now();
    let end = |state, outcome: &str| {
        // Ended tasks show the due moment that they were stored with.
        let due = task.created;
        Task {
            state,
            lease: None,
            due,
            finished: Some(now),
            last_outcome: outcome.into(),
            ..task.clone()
        }
    };
    match transition {
        Transition::Delivered { outcome } => end(State::Delivered, outcome),
        Transition::Moved => end(State::Delivered, MOVED),
        Transition::Dead { outcome } => end(State::Dead, outcome),
        Transition::Retry { due, outcome } => {
            let last_outcome = outcome.clone();
            Task {
                state: State::Scheduled,
                lease: None,
                due: due.due(now),
                last_outcome,
                ..task.clone()
            }
        }
        Transition::Release => {
            let attempts = task.attempts - 1;
            Task { state: State::Scheduled, lease: None, due: now, attempts, ..task.clone() }
        }
        Transition::Keep { .. } => {
            let lease = Some(LeaseKind::Receiver);
            Task {
                state: State::Leased,
                lease,
                due: task.created,
                last_outcome: KEPT.into(),
                ..task.clone()
            }
        }
    }
}

pub(crate) async fn delivered_counts_for_the_whole_revision_unless_cancelled(
    bench: Bench<impl Store>,
) {
    let rows = [
        (Leased, Moves, Moves),
        (RanOut, Moves, Moves),
        (Swept, Moves, Moves),
        (Retried, Moves, Moves),
        (Released, Stale, Moves),
        (Dead, Moves, Moves),
        (Delivered, Repeats, Stale),
        (Cancelled, Stale, Stale),
        (CancelledAtEnd, Stale, Stale),
    ];
    check(&bench, delivered(), rows).await;
}

pub(crate) async fn a_retry_is_the_holders_and_may_be_repeated_until_the_next_claim(
    bench: Bench<impl Store>,
) {
    let rows = [
        (Leased, Moves, Stale),
        (RanOut, Moves, Stale),
        (Swept, Moves, Stale),
        (Retried, Repeats, Stale),
        (Released, Stale, Repeats),
        (Dead, Stale, Stale),
        (Delivered, Stale, Stale),
        (Cancelled, Stale, Stale),
        (CancelledAtEnd, Repeats, Stale),
    ];
    check(&bench, retry(60_000), rows).await;
}

pub(crate) async fn a_retry_may_name_its_moment(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    let mut heard = bench.store.hints();
    let at = |moment| Transition::Retry { due: Moment::At(moment), outcome: "nacked".into() };
    let due = bench.now() + ms(90_001);
    assert_eq!(bench.settle(&held, at(due)).await, Settled::Done);
    assert_eq!(hear(&mut heard).await.due, due);
    let task = bench.get(held.id).await;
    assert_eq!((task.state, task.due, task.attempts), (State::Scheduled, due, 1));
    // A repeat changes nothing.
    assert_eq!(bench.settle(&held, at(due + ms(1))).await, Settled::Done);
    assert_eq!(bench.get(held.id).await.due, due);
    bench.advance(90_000);
    assert!(bench.claim(&[("message.call", 1)]).await.tasks.is_empty(), "it was early");
    bench.advance(1);
    // A past moment means now.
    let again = bench.hold().await;
    assert_eq!(bench.settle(&again, at(bench.now() - ms(5_000))).await, Settled::Done);
    assert_eq!(bench.get(held.id).await.due, bench.now());
    bench.hold().await;
}

pub(crate) async fn a_death_is_the_holders_and_may_be_repeated(bench: Bench<impl Store>) {
    let rows = [
        (Leased, Moves, Stale),
        (RanOut, Moves, Stale),
        (Swept, Moves, Stale),
        (Retried, Stale, Stale),
        (Released, Stale, Stale),
        (Dead, Repeats, Stale),
        (Delivered, Stale, Stale),
        (Cancelled, Stale, Stale),
        (CancelledAtEnd, Repeats, Stale),
    ];
    check(&bench, dead(), rows).await;
}

pub(crate) async fn a_release_is_the_holders_and_gives_the_attempt_back(bench: Bench<impl Store>) {
    let rows = [
        (Leased, Moves, Stale),
        (RanOut, Moves, Stale),
        (Swept, Moves, Stale),
        (Retried, Stale, Stale),
        (Released, Stale, Stale),
        (Dead, Stale, Stale),
        (Delivered, Stale, Stale),
        (Cancelled, Stale, Stale),
        (CancelledAtEnd, Repeats, Stale),
    ];
    check(&bench, Transition::Release, rows).await;
}

pub(crate) async fn a_keep_is_the_holders_and_makes_the_lease_longer(bench: Bench<impl Store>) {
    let rows = [
        (Leased, Moves, Stale),
        (RanOut, Moves, Stale),
        (Swept, Moves, Stale),
        (Retried, Stale, Stale),
        (Released, Stale, Stale),
        (Dead, Stale, Stale),
        (Delivered, Stale, Stale),
        (Cancelled, Stale, Stale),
        (CancelledAtEnd, Stale, Stale),
    ];
    check(&bench, Transition::Keep { lease: ms(90_000) }, rows).await;
    let held = bench.add_held().await;
    bench.settle(&held, Transition::Keep { lease: ms(90_000) }).await;
    bench.advance(89_999);
    assert_eq!(bench.state(held.id).await, State::Leased);
    bench.advance(1);
    assert_eq!(
        bench.state(held.id).await,
        State::Scheduled,
        "the lease does not have the requested length"
    );
    bench.sweep().await;
    assert_eq!(bench.get(held.id).await.last_outcome, LEASE_RAN_OUT);
    assert_eq!(
        bench.settle(&held, delivered()).await,
        Settled::Done,
        "the receipt must still acknowledge the task"
    );
}

pub(crate) async fn a_task_that_is_kept_too_often_dies(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 0).await;
    for _ in 0..MAX_EXPIRIES {
        let held = bench.hold().await;
        bench.settle(&held, Transition::Keep { lease: ms(1_000) }).await;
        bench.advance(1_000);
        bench.sweep().await;
    }
    assert_eq!(bench.state(id).await, State::Dead);
}

pub(crate) async fn a_finished_task_keeps_its_receipt_and_repeats_answer_done(
    bench: Bench<impl Store>,
) {
    for transition in [delivered(), dead()] {
        let held = bench.add_held().await;
        for _ in 0..3 {
            assert_eq!(bench.settle(&held, transition.clone()).await, Settled::Done);
            bench.advance(1_000);
        }
        assert_eq!(
            bench.get(held.id).await.finished,
            Some(bench.now() - ms(3_000)),
            "the repeat changed the task"
        );
    }
}

pub(crate) async fn late_success_counts_for_its_revision_only(bench: Bench<impl Store>) {
    // A task that was lost to another holder.
    let first = bench.add_held().await;
    bench.let_lease_run_out();
    let second = bench.hold().await;
    assert_eq!(bench.settle(&first, delivered()).await, Settled::Done);
    assert_eq!(bench.state(first.id).await, State::Delivered);
    assert_eq!(bench.settle(&second, delivered()).await, stale(State::Delivered));
    assert_eq!(bench.settle(&first, delivered()).await, Settled::Done);
    assert_eq!(bench.counts().await.leased, 0);

    // A dead task that was replayed.
    let held = bench.add_held().await;
    bench.settle(&held, dead()).await;
    assert_eq!(
        bench.store.replay(&lane(), vec![held.id], None, Spread::default()).await.unwrap(),
        1
    );
    assert_eq!(bench.settle(&held, delivered()).await, stale(State::Scheduled));
    let again = bench.hold().await;
    assert_eq!(bench.settle(&held, delivered()).await, stale(State::Leased));
    assert_eq!(bench.settle(&again, delivered()).await, Settled::Done);

    // A task that got other content meanwhile.
    let held = bench.add_held().await;
    bench.settle(&held, retry(1_000)).await;
    bench.store.reschedule(&lane(), held.id, None, Moment::After(ms(0)), None).await.unwrap();
    assert_eq!(bench.settle(&held, delivered()).await, stale(State::Scheduled));
    assert_eq!(
        bench.settle(&held, retry(0)).await,
        stale(State::Scheduled),
        "a retry of an old revision must be refused"
    );
    bench.hold().await;
    assert_eq!(bench.settle(&held, delivered()).await, stale(State::Leased));
}

pub(crate) async fn an_outcome_is_kept_and_cut_between_characters(bench: Bench<impl Store>) {
    let check = async |outcome: &str, kept: &str| {
        let held = bench.add_held().await;
        let transition = Transition::Delivered { outcome: outcome.into() };
        assert_eq!(bench.settle(&held, transition).await, Settled::Done);
        assert_eq!(bench.get(held.id).await.last_outcome, kept);
    };
    check("", "").await;
    check("200 OK", "200 OK").await;
    check(" two\nlines - ! ", " two\nlines - ! ").await;
    check(&"x".repeat(MAX_OUTCOME + 1), &"x".repeat(MAX_OUTCOME)).await;
    check(&"单".repeat(MAX_OUTCOME), &"单".repeat(MAX_OUTCOME / 3)).await;
}

pub(crate) async fn settles_are_answered_in_order_across_lanes(bench: Bench<impl Store>) {
    let (first, second, third) =
        (bench.add_held().await, bench.add_held().await, bench.add_held().await);
    let settle = |held: &Held, transition| Settle {
        lane: lane(),
        id: held.id,
        receipt: held.receipt.clone(),
        transition,
    };
    let elsewhere = Settle { lane: "elsewhere:0".parse().unwrap(), ..settle(&third, delivered()) };
    let unknown = Settle { id: TaskId(7), ..settle(&third, delivered()) };
    let answers = bench.store.settle(
        Asker::Worker,
        vec![
            settle(&first, delivered()),
            elsewhere,
            settle(&second, dead()),
            unknown,
            settle(&first, dead()),
            settle(&third, retry(5)),
        ],
    );
    let expected = [
        Settled::Done,
        Settled::Unknown,
        Settled::Done,
        Settled::Unknown,
        stale(State::Delivered),
        Settled::Done,
    ];
    assert_eq!(answers.await.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
    assert!(bench.store.settle(Asker::Worker, Vec::new()).await.is_empty());
}

pub(crate) async fn each_settle_of_a_batch_sees_those_before_it(bench: Bench<impl Store>) {
    bench.add("other.call", 0).await;
    let grant = bench.claim(&[("other.call", 1)]).await;
    let swept = Held { id: grant.tasks[0].id, receipt: grant.receipt };
    bench.let_lease_run_out();
    bench.sweep().await;
    let (first, second) = (bench.add_held().await, bench.add_held().await);
    let settle = |held: &Held, receipt, transition| Settle {
        lane: lane(),
        id: held.id,
        receipt,
        transition,
    };
    let by_holder = |held: &Held, transition| settle(held, held.receipt.clone(), transition);
    let answers = bench.store.settle(
        Asker::Worker,
        vec![
            by_holder(&first, retry(5)),
            settle(&second, receipt("stranger"), delivered()),
            by_holder(&second, delivered()),
            by_holder(&swept, delivered()),
            by_holder(&second, delivered()),
            by_holder(&first, delivered()),
            settle(&second, receipt("stranger"), delivered()),
        ],
    );
    let (done, ended) = (Settled::Done, stale(State::Delivered));
    let expected = [done, stale(State::Leased), done, done, done, done, ended];
    assert_eq!(answers.await.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
    let counts = bench.counts().await;
    assert_eq!((counts.scheduled, counts.leased, counts.delivered), (0, 0, 3));
    assert_eq!(bench.next_due().await, None);
    assert!(bench.claim(&[("message.call", 9), ("other.call", 9)]).await.tasks.is_empty());
}

/// A task that a receiver gave back used to wait for the next poll, and tasks added after it as
/// well.
pub(crate) async fn a_task_that_its_holder_puts_back_is_hinted(bench: Bench<impl Store>) {
    let mut hints = bench.store.hints();
    for (destination, is_pull) in [("message.call", false), ("@pull", true)] {
        let mut is_told = async |due| {
            let heard = hear(&mut hints).await;
            assert_eq!(heard, Hint { lane: lane(), due, is_pull }, "{destination}");
        };
        let hold = async |id| Held { id, receipt: bench.claim(&[(destination, 1)]).await.receipt };
        let now = bench.now();
        let id = bench.add(destination, 0).await;
        is_told(now).await;
        let kept = hold(id).await;
        bench.settle(&kept, Transition::Keep { lease: ms(90_000) }).await;
        bench.settle(&kept, retry(700)).await;
        is_told(now + ms(700)).await;
        bench.advance(700);
        bench.settle(&hold(id).await, Transition::Release).await;
        is_told(now + ms(700)).await;
        bench.settle(&hold(id).await, retry(60_000)).await;
        is_told(now + ms(60_700)).await;
        let mover = Held { id, receipt: receipt("mover") };
        assert_eq!(
            bench.store.lend(&lane(), vec![id], &mover.receipt, ms(30_000)).await.unwrap(),
            [true]
        );
        bench.settle(&mover, Transition::Release).await;
        is_told(now + ms(60_700)).await;
        bench.advance(60_000);
        bench.settle(&hold(id).await, delivered()).await;
    }
}
