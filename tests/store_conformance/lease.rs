//! Leases: how they last, are extended, expire and are lost.

use delayd::model::task::{Options, Receipt, State, TaskId};
use delayd::store::{
    Asker, Cancelled, Claim, FURTHEST_DEADLINE, LEASE_RAN_OUT, LeaseKind, MAX_EXPIRIES, MAX_LEASE,
    MAX_RECEIPTS, MAX_SWEEP, Moment, NewTask, Rescheduled, Settled, Store, Transition,
};

use crate::bench::{
    Bench, Held, LEASE_MS, START, at, claim_of, dead, delivered, ids, lane, ms, new_task, receipt,
    retry, stale,
};

pub(crate) async fn a_lease_keeps_everyone_else_out_until_its_last_millisecond(
    bench: Bench<impl Store>,
) {
    let held = bench.add_held().await;
    bench.advance(LEASE_MS - 1);
    assert!(bench.claim(&[("message.call", 1)]).await.tasks.is_empty());
    assert_eq!(bench.state(held.id).await, State::Leased);
    bench.advance(1);
    assert_eq!(bench.state(held.id).await, State::Scheduled);
    let again = bench.claim(&[("message.call", 1)]).await;
    assert_eq!(
        (again.tasks[0].id, again.tasks[0].attempt),
        (held.id, 2),
        "the attempt with the lost lease must count"
    );
}

pub(crate) async fn a_claim_with_no_wants_sweeps(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    bench.advance(LEASE_MS + 5_000);
    let counts = bench.counts().await;
    assert_eq!(
        (counts.scheduled, counts.leased),
        (0, 1),
        "the task must count as leased until a claim sweeps it"
    );
    let before = bench.get(held.id).await;
    assert_eq!((before.state, before.due), (State::Scheduled, at(LEASE_MS as i64)));

    let grant = bench.sweep().await;
    assert!(grant.tasks.is_empty());
    assert_eq!(grant.outlook.due.len(), 1);
    let counts = bench.counts().await;
    assert_eq!((counts.scheduled, counts.leased), (1, 0));
    let after = bench.get(held.id).await;
    assert_eq!(
        (after.state, after.due, after.attempts),
        (State::Scheduled, at(LEASE_MS as i64), 1)
    );
    assert_eq!(after.last_outcome, LEASE_RAN_OUT);
}

pub(crate) async fn a_swept_task_comes_before_tasks_due_later(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    let later = bench.add("message.call", LEASE_MS + 1).await;
    bench.advance(LEASE_MS + 1_000);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!(
        ids(&grant),
        [held.id, later],
        "the swept task must come first, since its deadline is its due moment"
    );
}

pub(crate) async fn a_claim_sweeps_a_bounded_number_of_leases(bench: Bench<impl Store>) {
    let count = MAX_SWEEP + 44;
    bench.store.add(vec![new_task("message.call", 0); count]).await;
    assert_eq!(bench.claim(&[("message.call", count)]).await.tasks.len(), count);
    bench.let_lease_run_out();
    bench.sweep().await;
    assert_eq!(bench.counts().await.leased, 44);
    assert_eq!(
        bench.next_due().await,
        Some(at(LEASE_MS as i64)),
        "the other expired leases must be due for a claim"
    );
    bench.sweep().await;
    assert_eq!((bench.counts().await.leased, bench.counts().await.scheduled), (0, count as u64));
}

pub(crate) async fn an_extension_moves_the_deadline_and_keeps_the_receipt(
    bench: Bench<impl Store>,
) {
    let held = bench.add_held().await;
    bench.advance(LEASE_MS - 1);
    let extend = async |held: &Held| {
        bench
            .store
            .extend(Asker::Worker, &lane(), held.id, &held.receipt, ms(60_000))
            .await
            .unwrap()
    };
    assert_eq!(extend(&held).await, Settled::Done);
    assert_eq!(bench.next_due().await, Some(bench.now() + ms(60_000)));
    bench.advance(59_999);
    assert!(bench.claim(&[("message.call", 1)]).await.tasks.is_empty());
    assert_eq!(bench.get(held.id).await.attempts, 1);
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    assert_eq!(extend(&held).await, stale(State::Delivered));
    let nobody = Held { id: TaskId(1), receipt: held.receipt.clone() };
    assert_eq!(extend(&nobody).await, Settled::Unknown);
}

pub(crate) async fn only_the_current_receipt_extends(bench: Bench<impl Store>) {
    let first = bench.add_held().await;
    let extend = async |by: &Receipt| {
        bench.store.extend(Asker::Worker, &lane(), first.id, by, ms(1_000)).await.unwrap()
    };
    assert_eq!(extend(&receipt("stranger")).await, stale(State::Leased));
    bench.settle(&first, retry(0)).await;
    assert_eq!(extend(&first.receipt).await, stale(State::Scheduled));
    let second = bench.hold().await;
    assert_eq!(extend(&first.receipt).await, stale(State::Leased));
    assert_eq!(extend(&second.receipt).await, Settled::Done);
    bench.settle(&second, dead()).await;
    assert_eq!(extend(&second.receipt).await, stale(State::Dead));
    let waiting = bench.add("message.call", 1_000).await;
    let answer = bench
        .store
        .extend(Asker::Worker, &lane(), waiting, &second.receipt, ms(1_000))
        .await
        .unwrap();
    assert_eq!(answer, stale(State::Scheduled), "a task without a lease was extended");
}

/// Two cases in which a lease is over and nothing else has the task.
pub(crate) async fn an_expired_lease_nobody_took_may_settle_and_extend(bench: Bench<impl Store>) {
    for is_swept in [false, true] {
        for transition in [delivered(), retry(100), dead(), Transition::Release] {
            let held = bench.add_held().await;
            bench.let_lease_run_out();
            if is_swept {
                bench.sweep().await;
            }
            let answer = bench
                .store
                .extend(Asker::Worker, &lane(), held.id, &held.receipt, ms(LEASE_MS))
                .await
                .unwrap();
            assert_eq!(answer, Settled::Done, "swept: {is_swept}");
            assert_eq!(bench.state(held.id).await, State::Leased);
            assert!(
                bench.claim(&[("message.call", 5)]).await.tasks.is_empty(),
                "an extension must lease the task again"
            );

            bench.let_lease_run_out();
            if is_swept {
                bench.sweep().await;
            }
            assert_eq!(
                bench.settle(&held, transition.clone()).await,
                Settled::Done,
                "{transition:?}"
            );
            // Nothing may be left to claim for the next round.
            bench.store.cancel(&lane(), held.id, None).await.unwrap();
        }
    }
}

pub(crate) async fn a_superseded_holder_is_refused(bench: Bench<impl Store>) {
    let first = bench.add_held().await;
    bench.let_lease_run_out();
    let second = bench.hold().await;
    assert_eq!(second.id, first.id);
    let before = bench.get(first.id).await;
    for transition in [retry(0), dead(), Transition::Release] {
        assert_eq!(
            bench.settle(&first, transition.clone()).await,
            stale(State::Leased),
            "{transition:?}"
        );
    }
    let answer =
        bench.store.extend(Asker::Worker, &lane(), first.id, &first.receipt, ms(1)).await.unwrap();
    assert_eq!(answer, stale(State::Leased));
    assert_eq!(bench.get(first.id).await, before);
    assert_eq!(bench.settle(&second, delivered()).await, Settled::Done);
}

/// Receipts come from outside. A receipt that was never given out changes nothing, whatever it
/// looks like.
pub(crate) async fn a_made_up_receipt_moves_nothing(bench: Bench<impl Store>) {
    // After a retry there is no current receipt, after a first claim no past one, after a cancel
    // neither.
    let (retried, first, cancelled) =
        (bench.add_held().await, bench.add_held().await, bench.add_held().await);
    bench.settle(&retried, retry(60_000)).await;
    bench.settle(&cancelled, retry(60_000)).await;
    bench.store.cancel(&lane(), cancelled.id, None).await.unwrap();
    for made_up in ["-", "_", "--", "0", "null", "nil", "stranger"] {
        for id in [retried.id, first.id, cancelled.id] {
            let before = bench.get(id).await;
            let held = Held { id, receipt: receipt(made_up) };
            for transition in [delivered(), retry(0), dead(), Transition::Release] {
                let answer = bench.settle(&held, transition.clone()).await;
                assert_eq!(answer, stale(before.state), "{transition:?} by {made_up:?}");
            }
            let answer = bench
                .store
                .extend(Asker::Worker, &lane(), id, &held.receipt, ms(1_000))
                .await
                .unwrap();
            assert_eq!(answer, stale(before.state), "extended by {made_up:?}");
            assert_eq!(bench.get(id).await, before, "after {made_up:?}");
        }
    }
}

pub(crate) async fn only_the_newest_receipts_are_remembered(bench: Bench<impl Store>) {
    let mut holders = vec![bench.add_held().await];
    for _ in 0..MAX_RECEIPTS {
        bench.let_lease_run_out();
        holders.push(bench.hold().await);
    }
    assert_eq!(
        bench.settle(&holders[0], delivered()).await,
        stale(State::Leased),
        "a forgotten receipt was accepted"
    );
    assert_eq!(bench.settle(&holders[1], delivered()).await, Settled::Done);
}

pub(crate) async fn only_a_crash_loop_of_expired_leases_kills_a_task(bench: Bench<impl Store>) {
    let task = NewTask { options: max_attempts(1), ..new_task("message.call", 0) };
    let id = bench.add_task(task).await;
    for attempt in 1..MAX_EXPIRIES {
        assert_eq!(bench.claim(&[("message.call", 1)]).await.tasks[0].attempt, attempt);
        bench.let_lease_run_out();
        bench.sweep().await;
        assert_eq!(bench.state(id).await, State::Scheduled, "after {attempt} expiries");
    }
    let last = bench.hold().await;
    bench.let_lease_run_out();
    assert_eq!(bench.state(id).await, State::Scheduled);
    bench.sweep().await;
    let task = bench.get(id).await;
    assert_eq!(
        (task.state, task.attempts, task.finished),
        (State::Dead, MAX_EXPIRIES, Some(bench.now()))
    );
    assert_eq!(task.last_outcome, LEASE_RAN_OUT);
    assert_eq!(
        bench.settle(&last, delivered()).await,
        Settled::Done,
        "the late success must count"
    );
}

fn max_attempts(attempts: u32) -> Options {
    Options { max_attempts: Some(attempts), ..Default::default() }
}

pub(crate) async fn any_settle_resets_the_count_of_expiries(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 0).await;
    for round in 0..2 {
        for _ in 1..MAX_EXPIRIES {
            bench.hold().await;
            bench.let_lease_run_out();
            bench.sweep().await;
        }
        let held = bench.hold().await;
        let end = if round == 0 { retry(0) } else { Transition::Release };
        assert_eq!(bench.settle(&held, end).await, Settled::Done);
    }
    assert_eq!(bench.state(id).await, State::Scheduled);
}

/// A step back by one millisecond used to end a lease of twelve hours.
pub(crate) async fn a_clock_set_back_a_little_ends_no_lease(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    let extended =
        bench.store.extend(Asker::Worker, &lane(), held.id, &held.receipt, MAX_LEASE).await;
    assert_eq!(extended.unwrap(), Settled::Done);
    for back in [1, 3_600_000] {
        bench.clock.set(at(-back));
        assert_eq!(bench.state(held.id).await, State::Leased);
        assert_eq!(bench.claim(&[("message.call", 1)]).await.tasks, []);
    }
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
}

/// The clock was set back so far that the deadline is further away than any lease lasts.
pub(crate) async fn a_deadline_further_away_than_any_lease_has_expired(bench: Bench<impl Store>) {
    let far = FURTHEST_DEADLINE.as_millis() as u64;
    bench.clock.set(at(far as i64));
    let held = bench.add_held().await;
    assert_eq!(bench.next_due().await, Some(bench.now() + ms(LEASE_MS)));

    bench.clock.set(at(LEASE_MS as i64));
    assert_eq!(bench.state(held.id).await, State::Leased, "the deadline is not too far away yet");

    bench.clock.set(at(LEASE_MS as i64 - 1));
    let task = bench.get(held.id).await;
    assert_eq!((task.state, task.due), (State::Scheduled, bench.now()));
    assert_eq!(bench.next_due().await, Some(bench.now()), "the lane must be due for a claim");
    let again = bench.claim(&[("message.call", 1)]).await;
    assert_eq!((again.tasks[0].id, again.tasks[0].attempt), (held.id, 2));
    assert_eq!(bench.settle(&held, retry(0)).await, stale(State::Leased));
}

/// The deadline within the limit must not hide the one beyond it.
pub(crate) async fn next_due_finds_a_deadline_too_far_away_behind_another(
    bench: Bench<impl Store>,
) {
    bench.clock.set(at(2 * FURTHEST_DEADLINE.as_millis() as i64));
    let (first, _second) = (bench.add_held().await, bench.add_held().await);
    bench.clock.set(START);
    assert_eq!(
        bench
            .store
            .extend(Asker::Worker, &lane(), first.id, &first.receipt, ms(LEASE_MS))
            .await
            .unwrap(),
        Settled::Done
    );
    assert_eq!(bench.next_due().await, Some(START));
}

pub(crate) async fn an_expired_lease_counts_as_scheduled_for_every_admin_verb(
    bench: Bench<impl Store>,
) {
    let held = bench.add_held().await;
    bench.let_lease_run_out();
    assert_eq!(bench.state(held.id).await, State::Scheduled);
    let moved = bench
        .store
        .reschedule(&lane(), held.id, None, Moment::After(ms(5_000)), None)
        .await
        .unwrap();
    assert_eq!(moved, Rescheduled::Done { due: bench.now() + ms(5_000) });
    assert_eq!(bench.get(held.id).await.attempts, 0);
    assert_eq!((bench.counts().await.scheduled, bench.counts().await.leased), (1, 0));

    let held = bench.add_held().await;
    bench.let_lease_run_out();
    assert_eq!(bench.store.cancel(&lane(), held.id, None).await.unwrap(), Cancelled::Done);
    assert_eq!(bench.state(held.id).await, State::Cancelled);
    assert_eq!(bench.counts().await.leased, 0);
    assert_eq!(bench.settle(&held, delivered()).await, stale(State::Cancelled));
}

/// Only a sweep counts expiries. An admin verb must not kill a task whose lease has expired as
/// often as is allowed.
pub(crate) async fn an_admin_verb_counts_no_expiry(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 0).await;
    for _ in 1..MAX_EXPIRIES {
        bench.hold().await;
        bench.let_lease_run_out();
        bench.sweep().await;
    }
    bench.hold().await;
    bench.let_lease_run_out();
    let moved =
        bench.store.reschedule(&lane(), id, None, Moment::After(ms(0)), None).await.unwrap();
    assert_eq!(moved, Rescheduled::Done { due: bench.now() });
    assert_eq!(bench.claim(&[("message.call", 1)]).await.tasks[0].attempt, 1);
}

pub(crate) async fn each_claim_sets_the_length_of_its_lease(bench: Bench<impl Store>) {
    bench.store.add(vec![new_task("message.call", 0), new_task("@pull", 0)]).await;
    bench.grant(Claim { lease: ms(700), ..claim_of(&[("message.call", 1)]) }).await;
    assert_eq!(bench.next_due().await, Some(at(700)));
    bench.grant(Claim { lease: ms(500), holder: None, ..claim_of(&[("@pull", 1)]) }).await;
    assert_eq!(
        bench.next_due().await,
        Some(at(500)),
        "a consumer's lease must count for the next moment"
    );
    let leased = bench.list(State::Leased).await;
    assert_eq!(leased.iter().map(|listed| listed.moment).collect::<Vec<_>>(), [at(500), at(700)]);
}

/// The holder used to be read out of the last outcome, which any receiver may have written.
pub(crate) async fn a_lease_says_who_holds_it(bench: Bench<impl Store>) {
    let kind = async |id| bench.get(id).await.lease;
    let held = bench.add_held().await;
    assert_eq!(kind(held.id).await, Some(LeaseKind::Worker));
    let keep = Transition::Keep { lease: ms(LEASE_MS) };
    bench.settle(&held, keep.clone()).await;
    assert_eq!(kind(held.id).await, Some(LeaseKind::Receiver));
    // An expired lease that is extended stays of the same kind.
    bench.let_lease_run_out();
    bench.sweep().await;
    assert_eq!(kind(held.id).await, None);
    bench.store.extend(Asker::Worker, &lane(), held.id, &held.receipt, ms(LEASE_MS)).await.unwrap();
    assert_eq!(kind(held.id).await, Some(LeaseKind::Receiver));
    bench.settle(&held, retry(0)).await;
    assert_eq!(kind(held.id).await, None);
    let again = bench.hold().await;
    assert_eq!(kind(again.id).await, Some(LeaseKind::Worker));
    bench.settle(&again, delivered()).await;
    assert_eq!(kind(again.id).await, None);

    let pulled = bench.add("@pull", 0).await;
    bench.grant(Claim { holder: None, ..claim_of(&[("@pull", 1)]) }).await;
    assert_eq!(kind(pulled).await, Some(LeaseKind::Consumer));

    let moved = bench.add("message.call", 5_000).await;
    let mover = receipt("mover");
    bench.store.lend(&lane(), vec![moved], &mover, ms(LEASE_MS)).await.unwrap();
    let lent = Some(LeaseKind::Mover { due: bench.get(moved).await.due });
    bench.settle(&Held { id: moved, receipt: mover.clone() }, keep).await;
    assert_eq!(kind(moved).await, lent, "an extension must not change a mover's lease");
    let summary = bench.store.summaries(&lane(), vec![moved]).await.unwrap().remove(0).unwrap();
    assert_eq!(summary.lease, lent);
    bench.settle(&Held { id: moved, receipt: mover }, Transition::Release).await;
    assert_eq!(kind(moved).await, None);
}

pub(crate) async fn a_last_outcome_is_only_a_text(bench: Bench<impl Store>) {
    let says = |after_ms| Transition::Retry {
        due: Moment::After(ms(after_ms)),
        outcome: "being moved, due 5: 200 OK".into(),
    };
    let held = bench.add_held().await;
    bench.settle(&held, says(0)).await;
    let again = bench.hold().await;
    let lent =
        bench.store.lend(&lane(), vec![again.id], &receipt("mover"), ms(LEASE_MS)).await.unwrap();
    assert_eq!(lent, [false], "a worker's task was treated as a mover's");
    bench.settle(&again, Transition::Release).await;
    let back = bench.get(again.id).await;
    assert_eq!(
        (back.due, back.attempts),
        (bench.now(), 1),
        "the task took its due moment from the text of the outcome"
    );
    bench.hold().await;
    bench.let_lease_run_out();
    bench.sweep().await;
    assert_eq!(bench.get(again.id).await.last_outcome, LEASE_RAN_OUT);
}
