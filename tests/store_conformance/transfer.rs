//! Tasks that a mover leases here and stores elsewhere.

use delayd::model::task::{OnDead, Options, Receipt, State, StoreId, TaskId};
use delayd::store::{
    Adopted, AdoptedStanding, Adoptee, Asker, Cancelled, Hint, LeaseKind, MAX_EXPIRIES, MOVED,
    Moment, NewTask, Novelty, Rescheduled, Settled, Store, Transition,
};

use crate::bench::{
    Bench, Held, at, dead, delivered, expiring, hear, ids, keyed, lamented, lane, ms, receipt,
    retry, stale, topic,
};

const HOLD_MS: u64 = 60_000;

pub(crate) async fn lend(bench: &Bench<impl Store>, id: TaskId, by: &Receipt) -> bool {
    bench.store.lend(&lane(), vec![id], by, ms(HOLD_MS)).await.unwrap()[0]
}

pub(crate) async fn adopt(bench: &Bench<impl Store>, task: Adoptee) -> Adopted {
    bench.store.adopt(vec![task]).await.remove(0).unwrap()
}

/// A task of another store: due in a minute, created an hour ago, tried twice.
pub(crate) fn stranger(id: u64) -> Adoptee {
    Adoptee {
        topic: topic(),
        id: TaskId(id),
        destination: "message.call".parse().unwrap(),
        created: at(-3_600_000),
        due: at(60_000),
        standing: AdoptedStanding::Waiting { due: at(60_000) },
        attempts: 0,
        outcome: String::new(),
        options: Options::default(),
        key_set: None,
        lent: false,
        content: "{ \"订\" : \"a\\nb\" }".into(),
    }
}

pub(crate) fn ended(state: State) -> AdoptedStanding {
    AdoptedStanding::Ended { state, finished: at(-60_000) }
}

pub(crate) async fn a_lent_task_is_not_handed_out_and_not_early_afterwards(
    bench: Bench<impl Store>,
) {
    let id = bench.add("message.call", 90_000).await;
    let mover = receipt("mover");
    assert!(lend(&bench, id, &mover).await);
    let task = bench.get(id).await;
    assert_eq!((task.state, task.attempts, task.due), (State::Leased, 0, at(90_000)));
    assert_eq!((task.lease, &*task.last_outcome), (Some(LeaseKind::Mover { due: at(90_000) }), ""));
    assert_eq!((bench.counts().await.scheduled, bench.counts().await.leased), (0, 1));
    bench.advance(HOLD_MS);
    // It waits again, and is still not due.
    assert_eq!(ids(&bench.claim(&[("message.call", 5)]).await), []);
    let task = bench.get(id).await;
    assert_eq!(
        (task.state, task.due, task.last_outcome.as_str()),
        (State::Scheduled, at(90_000), "")
    );
    assert_eq!(bench.next_due().await, Some(at(90_000)));
    bench.advance(29_999);
    assert_eq!(ids(&bench.claim(&[("message.call", 5)]).await), []);
    bench.advance(1);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!((grant.tasks.len(), grant.tasks[0].attempt), (1, 1));
}

pub(crate) async fn a_lent_task_does_not_fire_while_it_is_due(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 1_000).await;
    assert!(lend(&bench, id, &receipt("mover")).await);
    bench.advance(HOLD_MS - 1);
    assert_eq!(ids(&bench.claim(&[("message.call", 5)]).await), []);
    bench.advance(1);
    assert_eq!(ids(&bench.claim(&[("message.call", 5)]).await), [id]);
}

/// The mover died. Its task is due before what the lane's worker reads next, and waited for the
/// scan of all due destinations.
pub(crate) async fn a_hint_follows_the_return_of_a_lent_task(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 1_000).await;
    assert!(lend(&bench, id, &receipt("mover")).await);
    bench.advance(HOLD_MS);
    let mut hints = bench.store.hints();
    bench.sweep().await;
    assert_eq!(hear(&mut hints).await, Hint { lane: lane(), due: at(1_000), is_pull: false });
}

pub(crate) async fn a_moved_task_has_ended(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 1_000).await;
    let held = Held { id, receipt: receipt("mover") };
    assert!(lend(&bench, id, &held.receipt).await);
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done, "the settle was repeated");
    bench.advance(HOLD_MS);
    assert_eq!(ids(&bench.claim(&[("message.call", 5)]).await), []);
    assert_eq!(bench.store.discard(&lane(), State::Delivered, vec![id], None).await.unwrap(), 1);
    assert_eq!(bench.counts().await, delayd::store::Counts::default());
}

pub(crate) async fn a_retrying_task_comes_back_as_it_was(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    bench.settle(&held, retry(40_000)).await;
    let before = bench.get(held.id).await;
    let mover = Held { id: held.id, receipt: receipt("mover") };
    assert!(lend(&bench, held.id, &mover.receipt).await);
    assert_eq!(bench.settle(&mover, Transition::Release).await, Settled::Done);
    assert_eq!(bench.get(held.id).await, before);
    // The mover's receipt now allows only a success.
    let extended =
        bench.store.extend(Asker::Worker, &lane(), held.id, &mover.receipt, ms(1)).await.unwrap();
    assert_eq!(extended, stale(State::Scheduled));
    assert_eq!(bench.settle(&mover, Transition::Release).await, stale(State::Scheduled));
    assert!(lend(&bench, held.id, &mover.receipt).await);
    bench.advance(HOLD_MS);
    bench.sweep().await;
    assert_eq!(bench.get(held.id).await, before);
    // The holder before may still succeed as well.
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
}

pub(crate) async fn a_success_of_the_mover_counts_after_its_lease(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 600_000).await;
    let mover = Held { id, receipt: receipt("mover") };
    assert!(lend(&bench, id, &mover.receipt).await);
    bench.advance(HOLD_MS);
    bench.sweep().await;
    assert_eq!(bench.settle(&mover, delivered()).await, Settled::Done);
    assert_eq!(bench.state(id).await, State::Delivered);
}

pub(crate) async fn only_waiting_and_lent_tasks_are_lent(bench: Bench<impl Store>) {
    let held = bench.add_held().await;
    assert!(
        !lend(&bench, held.id, &receipt("mover")).await,
        "a task was leased to a mover although a worker holds it"
    );
    bench.settle(&held, dead()).await;
    assert!(!lend(&bench, held.id, &receipt("mover")).await, "a dead task was leased to a mover");
    assert!(
        !lend(&bench, TaskId(7), &receipt("mover")).await,
        "an unknown task was leased to a mover"
    );
    let id = bench.add("message.call", 1_000).await;
    let (first, second) = (receipt("first"), receipt("second"));
    assert!(
        lend(&bench, id, &first).await && lend(&bench, id, &first).await,
        "the mover must be able to repeat its lease"
    );
    bench.advance(HOLD_MS - 1);
    assert!(lend(&bench, id, &second).await, "another mover must be able to take over");
    bench.advance(HOLD_MS - 1);
    assert_eq!(
        ids(&bench.claim(&[("message.call", 5)]).await),
        [],
        "the task was handed out during the second mover's lease"
    );
    let moved = |receipt: &Receipt| Held { id, receipt: receipt.clone() };
    assert_eq!(bench.settle(&moved(&first), Transition::Release).await, stale(State::Leased));
    assert_eq!(
        bench.settle(&moved(&first), delivered()).await,
        Settled::Done,
        "a success by the first mover must end the task"
    );
}

pub(crate) async fn a_lent_task_may_be_cancelled_and_is_then_not_moved(bench: Bench<impl Store>) {
    let mover = receipt("mover");
    let [moved, back, left] = [1, 2, 3].map(|_| bench.add("message.call", 600_000));
    let (moved, back, left) = (moved.await, back.await, left.await);
    for id in [moved, back, left] {
        assert!(lend(&bench, id, &mover).await);
        assert_eq!(bench.store.cancel(&lane(), id, None).await.unwrap(), Cancelled::Pending);
        let rescheduled =
            bench.store.reschedule(&lane(), id, None, Moment::At(at(1)), None).await.unwrap();
        assert_eq!(rescheduled, Rescheduled::Refused { state: State::Leased });
        assert!(bench.get(id).await.cancelling);
        assert!(lend(&bench, id, &mover).await, "the next mover must see the cancelled task");
        assert!(bench.get(id).await.cancelling);
        let by = Held { id, receipt: mover.clone() };
        assert_eq!(bench.settle(&by, Transition::Moved).await, stale(State::Leased));
    }
    let called = Held { id: moved, receipt: mover.clone() };
    assert_eq!(bench.settle(&called, delivered()).await, Settled::Done);
    assert_eq!(bench.settle(&called, Transition::Moved).await, Settled::Done, "it has ended");
    bench.settle(&Held { id: back, receipt: mover.clone() }, Transition::Release).await;
    bench.advance(HOLD_MS);
    bench.sweep().await;
    assert_eq!(bench.state(moved).await, State::Delivered);
    assert_eq!(bench.state(back).await, State::Cancelled);
    assert_eq!(bench.state(left).await, State::Cancelled);
}

pub(crate) async fn a_lent_task_counts_no_expiry(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 1_000_000_000).await;
    for _ in 0..=MAX_EXPIRIES {
        assert!(lend(&bench, id, &receipt("mover")).await);
        bench.advance(HOLD_MS);
        bench.sweep().await;
    }
    let task = bench.get(id).await;
    assert_eq!((task.state, task.attempts, task.due), (State::Scheduled, 0, at(1_000_000_000)));
}

pub(crate) async fn a_lent_task_expires_once_it_is_back(bench: Bench<impl Store>) {
    let id = bench.add_task(expiring("message.call", 1_000, 1_000)).await;
    assert!(lend(&bench, id, &receipt("mover")).await);
    bench.advance(30_000);
    bench.sweep().await;
    assert_eq!(bench.state(id).await, State::Leased);
    bench.advance(HOLD_MS);
    bench.sweep().await;
    assert_eq!(bench.state(id).await, State::Expired);
}

/// Its acknowledgement used to be confirmed, and the task was called again at the new store.
pub(crate) async fn a_late_success_ends_a_lent_task_and_the_mover_hears_of_it(
    bench: Bench<impl Store>,
) {
    let held = bench.add_held().await;
    bench.settle(&held, retry(40_000)).await;
    let mover = Held { id: held.id, receipt: receipt("mover") };
    assert!(lend(&bench, held.id, &mover.receipt).await);
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    assert_eq!(bench.settle(&mover, Transition::Moved).await, stale(State::Delivered));
    assert!(!lend(&bench, held.id, &mover.receipt).await);
    let id = bench.add("message.call", 60_000).await;
    assert!(lend(&bench, id, &mover.receipt).await);
    let mover = Held { id, ..mover };
    assert_eq!(bench.settle(&mover, Transition::Moved).await, Settled::Done);
    assert_eq!(
        bench.settle(&mover, Transition::Moved).await,
        Settled::Done,
        "the settle was repeated"
    );
    assert_eq!(
        (bench.state(id).await, bench.get(id).await.last_outcome.as_str()),
        (State::Delivered, MOVED)
    );
}

pub(crate) async fn a_task_remembers_when_its_key_was_set(bench: Bench<impl Store>) {
    let first = bench.try_add(keyed("k", 9_000)).await.unwrap();
    assert_eq!(bench.get(first.id).await.key_set, Some(at(0)));
    bench.advance(500);
    bench.try_add(keyed("k", 9_000)).await.unwrap();
    assert_eq!(bench.get(first.id).await.key_set, Some(at(500)));
    bench.advance(9_000);
    let held = bench.hold().await;
    bench.try_add(keyed("k", 9_000)).await.unwrap();
    assert_eq!(
        bench.get(held.id).await.key_set,
        None,
        "a task without its key must not show when the key was set"
    );
    let plain = bench.add("message.call", 0).await;
    assert_eq!(bench.get(plain).await.key_set, None);
}

/// One store hands the tasks over, another adopts them.
pub(crate) async fn a_move_keeps_every_field(bench: Bench<impl Store>) {
    let new = crate::bench::model().await;
    for task in [lamented(90_000), keyed("k", 90_000), expiring("message.call", 90_000, 5_000)] {
        let id = bench.add_task(task).await;
        let before = bench.get(id).await;
        assert!(lend(&bench, id, &receipt("mover")).await);
        let lent = bench.get(id).await;
        let due = lent.lease.unwrap().returns_to().unwrap();
        let task = Adoptee {
            topic: topic(),
            id,
            destination: lent.destination.clone(),
            created: lent.created,
            due: lent.due,
            standing: AdoptedStanding::Waiting { due },
            attempts: lent.attempts,
            outcome: lent.last_outcome.clone(),
            options: lent.options.clone(),
            key_set: lent.key_set,
            lent: true,
            content: lent.content.clone(),
        };
        assert_eq!(adopt(&new, task).await, Adopted::New);
        assert_eq!(new.get(id).await, before);
    }
}

pub(crate) fn from(store: u64, task: Adoptee) -> Adoptee {
    Adoptee { options: Options { origin: Some(StoreId(store)), ..task.options }, ..task }
}

pub(crate) async fn a_moved_task_keeps_its_origin(bench: Bench<impl Store>) {
    let options = Options { key: Some("k".into()), ..Options::default() };
    let moved = from(7, Adoptee { options, ..stranger(1_700_000_000_000_005) });
    adopt(&bench, moved.clone()).await;
    assert_eq!(bench.get(moved.id).await.options, moved.options);
    // Pushed back here, it is still the same task, whether the add has few or many options.
    let more = Options { max_attempts: Some(2), ..keyed("k", 0).options };
    for options in [keyed("k", 0).options, more] {
        let pushed =
            bench.try_add(NewTask { options: options.clone(), ..keyed("k", 5_000) }).await.unwrap();
        assert_eq!((pushed.id, pushed.novelty), (moved.id, Novelty::Replaced));
        let expected = Options { origin: Some(StoreId(7)), ..options };
        assert_eq!(bench.get(moved.id).await.options, expected);
    }
    bench.advance(5_000);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!(grant.tasks[0].options.origin, Some(StoreId(7)));
    assert_eq!(bench.get(bench.add("message.call", 0).await).await.options.origin, None);
}

pub(crate) async fn a_call_for_a_moved_task_has_its_origin(bench: Bench<impl Store>) {
    let on_dead = OnDead {
        sn: "dead.letters".parse().unwrap(),
        url: "/dead".into(),
        task_id: Some(TaskId(99)),
    };
    let options = Options { on_dead: Some(on_dead), ..Options::default() };
    adopt(&bench, from(7, Adoptee { options, due: at(0), ..stranger(1_700_000_000_000_005) }))
        .await;
    bench.advance(60_000);
    bench.settle(&bench.hold().await, dead()).await;
    assert_eq!(
        bench.get(TaskId(99)).await.options,
        Options { origin: Some(StoreId(7)), ..Options::default() }
    );
}
