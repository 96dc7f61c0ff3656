//! Tasks that fell due in a pause and are not to be delivered late.

use delayd::model::task::{State, TaskId};
use delayd::store::{Claim, Grant, MAX_ENDED, MISFIRED, Misfire, Misfired, Settled, Store};

use crate::bench::{
    Bench, Held, LEASE_MS, at, claim_of, delivered, expiring, ids, ms, new_task, retry, stale,
};

/// A pause from the 100th to the 200th millisecond.
fn pause(becomes: Misfired) -> Misfire {
    Misfire { from: at(100), to: at(200), becomes }
}

async fn claim(bench: &Bench<impl Store>, pairs: &[(&str, usize)], misfires: &[Misfire]) -> Grant {
    bench.grant(Claim { misfires: misfires.to_vec(), ..claim_of(pairs) }).await
}

async fn add_each(bench: &Bench<impl Store>, destination: &str, moments: &[u64]) -> Vec<TaskId> {
    let tasks = moments.iter().map(|after| new_task(destination, *after)).collect();
    bench.store.add(tasks).await.into_iter().map(|added| added.unwrap().id).collect()
}

async fn states(bench: &Bench<impl Store>, ids: &[TaskId]) -> Vec<State> {
    let mut states = Vec::new();
    for id in ids {
        states.push(bench.state(*id).await);
    }
    states
}

pub(crate) async fn tasks_due_in_a_pause_become_what_the_resume_says(bench: Bench<impl Store>) {
    for (becomes, state) in [(Misfired::Expired, State::Expired), (Misfired::Dead, State::Dead)] {
        bench.clock.set(at(0));
        let all = add_each(&bench, "message.call", &[99, 100, 150, 200, 201]).await;
        bench.clock.set(at(1_000));
        let grant = claim(&bench, &[("message.call", 9)], &[pause(becomes)]).await;
        assert_eq!(
            ids(&grant),
            [all[0], all[4]],
            "only the tasks due before and after the pause must be handed out"
        );
        assert_eq!(states(&bench, &all[1..4]).await, [state; 3]);
        let task = bench.get(all[2]).await;
        assert_eq!(
            (task.last_outcome.as_str(), task.finished, task.due),
            (MISFIRED, Some(at(1_000)), at(150))
        );
        assert_eq!(task.attempts, 0);
        assert_eq!(grant.outlook.next, Some(bench.now() + ms(LEASE_MS)));
        bench.store.clear(&crate::bench::lane(), 10).await.unwrap();
    }
}

pub(crate) async fn a_misfire_takes_no_slot(bench: Bench<impl Store>) {
    let all = add_each(&bench, "message.call", &[50, 100, 110, 120, 201, 202]).await;
    bench.advance(1_000);
    let grant = claim(&bench, &[("message.call", 2)], &[pause(Misfired::Expired)]).await;
    assert_eq!(ids(&grant), [all[0], all[4]]);
    assert_eq!(bench.counts().await.expired, 3);
    assert_eq!(grant.outlook.due.len(), 1, "one task must be left");
    // Also tasks behind the last slot.
    let all = add_each(&bench, "other.server", &[0; 3]).await;
    bench.clock.set(at(0));
    add_each(&bench, "other.server", &[100]).await;
    bench.clock.set(at(2_000));
    let before = add_each(&bench, "other.server", &[0]).await;
    bench.advance(1);
    let late = Misfire { from: at(1_500), to: at(2_000), becomes: Misfired::Dead };
    let grant = claim(&bench, &[("other.server", 1)], &[late]).await;
    assert_eq!(grant.tasks.len(), 1);
    assert_eq!(states(&bench, &before).await, [State::Dead]);
    assert_eq!(states(&bench, &all[1..]).await, [State::Scheduled; 2]);
}

pub(crate) async fn a_misfire_of_a_blocked_destination_is_left_alone(bench: Bench<impl Store>) {
    let others = add_each(&bench, "other.server", &[150]).await;
    let pulled = add_each(&bench, "@pull", &[150]).await;
    bench.advance(1_000);
    let misfires = [pause(Misfired::Dead)];
    assert_eq!(claim(&bench, &[], &misfires).await.outlook.due.len(), 1);
    claim(&bench, &[("message.call", 9), ("@pull", 1)], &misfires).await;
    assert_eq!(
        states(&bench, &others).await,
        [State::Scheduled],
        "a misfire of a full or blocked destination was ended"
    );
    assert_eq!(states(&bench, &pulled).await, [State::Dead]);
    let grant = claim(&bench, &[("other.server", 1)], &[]).await;
    assert_eq!(ids(&grant), others, "a claim without the pause must hand the tasks out");
}

pub(crate) async fn a_retry_due_in_a_pause_misfires(bench: Bench<impl Store>) {
    let [tried, spared] = add_each(&bench, "message.call", &[0, 120]).await[..] else {
        panic!("expected two tasks")
    };
    let held = bench.hold().await;
    assert_eq!(held.id, tried);
    bench.settle(&held, retry(160)).await;
    bench.advance(120);
    let before = bench.hold().await;
    assert_eq!(before.id, spared);
    bench.settle(&before, retry(90)).await;
    bench.advance(1_000);
    let grant = claim(&bench, &[("message.call", 9)], &[pause(Misfired::Dead)]).await;
    assert_eq!(ids(&grant), [spared], "a retry due after the pause must be handed out");
    let task = bench.get(tried).await;
    assert_eq!((task.state, task.attempts, task.last_outcome.as_str()), (State::Dead, 1, MISFIRED));
    assert_eq!(
        bench.settle(&held, delivered()).await,
        Settled::Done,
        "a late success must count for a dead task"
    );
}

pub(crate) async fn an_expired_misfire_keeps_no_receipt(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    bench.settle(&held, retry(150)).await;
    bench.advance(1_000);
    claim(&bench, &[("message.call", 9)], &[pause(Misfired::Expired)]).await;
    assert_eq!(bench.settle(&held, delivered()).await, stale(State::Expired));
}

pub(crate) async fn several_pauses_count_separately(bench: Bench<impl Store>) {
    let all = add_each(&bench, "message.call", &[100, 300, 500]).await;
    bench.advance(1_000);
    let misfires = [
        Misfire { from: at(90), to: at(110), becomes: Misfired::Expired },
        Misfire { from: at(490), to: at(510), becomes: Misfired::Dead },
    ];
    let grant = claim(&bench, &[("message.call", 9)], &misfires).await;
    assert_eq!(ids(&grant), all[1..2]);
    assert_eq!(states(&bench, &all).await, [State::Expired, State::Leased, State::Dead]);
}

/// With a clock that was set back, a pause may lie in the future.
pub(crate) async fn a_task_that_is_not_due_does_not_misfire(bench: Bench<impl Store>) {
    let all = add_each(&bench, "message.call", &[150, 151]).await;
    bench.advance(150);
    let grant = claim(&bench, &[("message.call", 9)], &[pause(Misfired::Expired)]).await;
    assert_eq!((grant.tasks, grant.outlook.next), (vec![], Some(at(151))));
    assert_eq!(states(&bench, &all).await, [State::Expired, State::Scheduled]);
}

pub(crate) async fn an_expired_task_does_not_misfire(bench: Bench<impl Store>) {
    let id = bench.add_task(expiring("message.call", 150, 10)).await;
    bench.advance(1_000);
    claim(&bench, &[("message.call", 9)], &[pause(Misfired::Dead)]).await;
    let task = bench.get(id).await;
    assert_eq!((task.state, task.last_outcome.as_str()), (State::Expired, delayd::store::EXPIRED));
}

/// One claim ends a bounded number of misfires. It hands out none of the others, and no later task
/// of their destination.
pub(crate) async fn a_claim_ends_a_bounded_number_of_misfires(bench: Bench<impl Store>) {
    let before = add_each(&bench, "message.call", &[99]).await;
    let missed = add_each(&bench, "message.call", &vec![150; 2 * MAX_ENDED + 3]).await;
    let behind = add_each(&bench, "message.call", &[201]).await;
    let other = add_each(&bench, "other.server", &[150]).await;
    bench.advance(1_000);
    let wants = [("message.call", 600), ("other.server", 600)];
    let check = async |handed_out: &[TaskId], ended: usize, is_more: bool| {
        let grant = claim(&bench, &wants, &[pause(Misfired::Expired)]).await;
        assert_eq!(ids(&grant), handed_out);
        assert_eq!(bench.counts().await.expired, ended as u64);
        assert_eq!(grant.outlook.next == Some(bench.now()), is_more, "{:?}", grant.outlook);
    };
    check(&before, MAX_ENDED, true).await;
    check(&[], 2 * MAX_ENDED, true).await;
    check(&behind, 2 * MAX_ENDED + 4, false).await;
    assert_eq!(
        states(&bench, &[missed[0], missed[2 * MAX_ENDED + 2], other[0]]).await,
        [State::Expired; 3]
    );
}

/// A task whose lease expired in the pause misfires as well: it is swept first, and its deadline is
/// its due moment.
pub(crate) async fn a_lease_that_expired_in_a_pause_misfires(bench: Bench<impl Store>) {
    let held: Held = bench.add_held().await;
    bench.let_lease_run_out();
    bench.advance(5);
    let around =
        Misfire { from: at(LEASE_MS as i64), to: at(LEASE_MS as i64), becomes: Misfired::Dead };
    assert_eq!(claim(&bench, &[("message.call", 1)], &[around]).await.tasks, []);
    assert_eq!(states(&bench, &[held.id]).await, [State::Dead]);
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
}
