//! Tasks that come from another store.

use delayd::model::task::{OnDead, Options, State, TaskId};
use delayd::store::{
    Adopted, AdoptedStanding, Adoptee, Moment, NewTask, Novelty, Reader, Store, Task, TopicEntry,
    Transition,
};
use delayd_wire::Span;

use crate::bench::{
    Bench, Held, START, at, delivered, hear, ids, keyed, lane, ms, new_task, receipt, retry,
    topic_of,
};
use crate::transfer::{adopt, ended, from, lend, stranger};

pub(crate) async fn an_adopted_task_is_as_it_was(bench: Bench<impl Store>) {
    let options = Options {
        expires_after: Some(Span(ms(5_000))),
        max_attempts: Some(7),
        ..Options::default()
    };
    let waiting = Adoptee {
        standing: AdoptedStanding::Waiting { due: at(90_000) },
        attempts: 2,
        outcome: "503 Service Unavailable".into(),
        options: options.clone(),
        ..stranger(1_700_000_000_000_005)
    };
    assert_eq!(adopt(&bench, waiting.clone()).await, Adopted::New);
    let expected = Task {
        id: waiting.id,
        state: State::Scheduled,
        lease: None,
        destination: waiting.destination.clone(),
        due: at(90_000),
        created: at(-3_600_000),
        finished: None,
        attempts: 2,
        last_outcome: "503 Service Unavailable".into(),
        cancelling: false,
        key_set: None,
        options: options.clone(),
        content: waiting.content.clone(),
    };
    assert_eq!(bench.get(waiting.id).await, expected);
    // Its expiry counts from the moment it was stored with, not from its retry.
    assert_eq!(bench.next_due().await, Some(at(65_001)));
    bench.advance(65_001);
    bench.sweep().await;
    assert_eq!(bench.state(waiting.id).await, State::Expired);
}

pub(crate) async fn an_adopted_task_fires_at_its_moment_and_not_before(bench: Bench<impl Store>) {
    let mut hints = bench.store.hints();
    let (soon, late) = (stranger(1_700_000_000_000_005), stranger(1_700_000_000_000_006));
    let late = Adoptee {
        due: at(-5_000),
        standing: AdoptedStanding::Waiting { due: at(70_000) },
        attempts: 3,
        ..late
    };
    let past = Adoptee {
        due: at(-5_000),
        standing: AdoptedStanding::Waiting { due: at(-5_000) },
        ..stranger(1_700_000_000_000_007)
    };
    // Each is earlier than those before, so each causes a hint.
    for task in [&late, &soon, &past] {
        assert_eq!(adopt(&bench, task.clone()).await, Adopted::New);
        assert_eq!(hear(&mut hints).await.lane, lane());
    }
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!((ids(&grant), grant.tasks[0].due), (vec![past.id], at(-5_000)));
    bench.advance(59_999);
    assert_eq!(
        ids(&bench.claim(&[("message.call", 5)]).await),
        [past.id],
        "the task of the first claim must be handed out again"
    );
    bench.advance(1);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!(ids(&grant), [soon.id]);
    assert_eq!(
        (grant.tasks[0].attempt, grant.tasks[0].due, &grant.tasks[0].content),
        (1, at(60_000), &soon.content)
    );
    bench.advance(10_000);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!(
        (ids(&grant), grant.tasks[0].attempt, grant.tasks[0].due),
        (vec![late.id], 4, at(-5_000))
    );
}

pub(crate) async fn an_adoption_may_be_repeated_whatever_became_of_the_task(
    bench: Bench<impl Store>,
) {
    let task = stranger(1_700_000_000_000_005);
    assert_eq!(adopt(&bench, task.clone()).await, Adopted::New);
    assert_eq!(adopt(&bench, task.clone()).await, Adopted::Known);
    assert_eq!(bench.counts().await.scheduled, 1);
    bench.advance(60_000);
    let held = bench.hold().await;
    assert_eq!(adopt(&bench, task.clone()).await, Adopted::Known);
    bench.settle(&held, delivered()).await;
    assert_eq!(adopt(&bench, task.clone()).await, Adopted::Known);
    assert_eq!(bench.state(task.id).await, State::Delivered);
    assert_eq!(bench.claim(&[("message.call", 5)]).await.tasks, []);
}

pub(crate) async fn another_task_of_the_same_id_is_left_alone(bench: Bench<impl Store>) {
    let task = stranger(1_700_000_000_000_005);
    adopt(&bench, task.clone()).await;
    let before = bench.get(task.id).await;
    let other = Adoptee { content: "{}".into(), ..task.clone() };
    assert_eq!(adopt(&bench, other).await, Adopted::Taken);
    let older = Adoptee { created: at(-3_600_001), ..task.clone() };
    assert_eq!(adopt(&bench, older).await, Adopted::Taken);
    let moved = Adoptee { due: at(60_001), ..task.clone() };
    assert_eq!(
        adopt(&bench, moved).await,
        Adopted::Taken,
        "a task whose moment was changed on one side must count as another task"
    );
    assert_eq!(bench.get(task.id).await, before);
    assert_eq!(bench.counts().await.scheduled, 1);
}

pub(crate) async fn a_store_does_not_adopt_what_it_lends(bench: Bench<impl Store>) {
    let id = bench.add("message.call", 1_000).await;
    let own = Adoptee {
        id,
        created: START,
        due: at(1_000),
        standing: AdoptedStanding::Waiting { due: at(1_000) },
        content: new_task("message.call", 0).content,
        ..stranger(1)
    };
    assert!(lend(&bench, id, &receipt("mover")).await);
    assert_eq!(adopt(&bench, own.clone()).await, Adopted::Own);
    bench.settle(&Held { id, receipt: receipt("mover") }, Transition::Release).await;
    assert_eq!(adopt(&bench, own).await, Adopted::Known);
}

pub(crate) async fn an_adopted_id_is_never_drawn(bench: Bench<impl Store>) {
    let first = bench.add("message.call", 0).await;
    // Further ahead than one block of ids.
    let ahead = Adoptee { id: TaskId(first.0 + 1_500), ..stranger(1) };
    adopt(&bench, ahead.clone()).await;
    let behind = Adoptee { id: TaskId(first.0 - 1_500), ..stranger(1) };
    adopt(&bench, behind).await;
    let next = bench.add("message.call", 0).await;
    assert!(next > ahead.id, "{next} after {}", ahead.id);
}

pub(crate) async fn an_ended_task_is_adopted_as_ended(bench: Bench<impl Store>) {
    let on_dead = OnDead {
        sn: "dead.letters".parse().unwrap(),
        url: "/dead".into(),
        task_id: Some(TaskId(99)),
    };
    let options = Options { on_dead: Some(on_dead), ..Options::default() };
    let states = [State::Delivered, State::Dead, State::Cancelled, State::Expired];
    for (i, state) in states.into_iter().enumerate() {
        let task = Adoptee {
            standing: ended(state),
            attempts: 3,
            outcome: "410 Gone".into(),
            options: options.clone(),
            ..stranger(1_700_000_000_000_000 + i as u64)
        };
        assert_eq!(adopt(&bench, task.clone()).await, Adopted::New);
        assert_eq!(adopt(&bench, task.clone()).await, Adopted::Known);
        let kept = bench.get(task.id).await;
        assert_eq!((kept.state, kept.finished, kept.due), (state, Some(at(-60_000)), at(60_000)));
        assert_eq!((kept.attempts, kept.last_outcome.as_str()), (3, "410 Gone"));
        assert_eq!(bench.list(state).await.len(), 1);
    }
    let counts = bench.counts().await;
    assert_eq!((counts.delivered, counts.dead, counts.cancelled, counts.expired), (1, 1, 1, 1));
    assert_eq!(
        (counts.scheduled, counts.leased),
        (0, 0),
        "a callback was made for a task that died elsewhere"
    );
    let dead = TaskId(1_700_000_000_000_001);
    assert_eq!(
        bench
            .store
            .replay(&lane(), vec![dead], None, delayd::store::Spread::default())
            .await
            .unwrap(),
        1
    );
    bench.settle(&bench.hold().await, crate::bench::dead()).await;
    assert_eq!(
        bench.get(TaskId(99)).await.destination.as_str(),
        "dead.letters",
        "a task that dies here must make its callback"
    );
}

pub(crate) async fn an_adopted_task_takes_its_key_if_it_is_free(bench: Bench<impl Store>) {
    let options = Options { key: Some("k".into()), ..Options::default() };
    let adopted = Adoptee { options: options.clone(), ..stranger(1_700_000_000_000_005) };
    adopt(&bench, adopted.clone()).await;
    let pushed = bench.try_add(keyed("k", 5_000)).await.unwrap();
    assert_eq!((pushed.id, pushed.novelty), (adopted.id, Novelty::Replaced));
    // Another task with the same key waits beside it and does not take over the key.
    let second = Adoptee { options: options.clone(), ..stranger(1_700_000_000_000_006) };
    assert_eq!(adopt(&bench, second.clone()).await, Adopted::New);
    assert_eq!(bench.try_add(keyed("k", 6_000)).await.unwrap().id, adopted.id);
    bench.store.cancel(&lane(), adopted.id, None).await.unwrap();
    let third = Adoptee { options: options.clone(), ..stranger(1_700_000_000_000_007) };
    adopt(&bench, third.clone()).await;
    assert_eq!(bench.try_add(keyed("k", 7_000)).await.unwrap().id, third.id);
    let ended =
        Adoptee { options, standing: ended(State::Dead), ..stranger(1_700_000_000_000_008) };
    bench.store.cancel(&lane(), third.id, None).await.unwrap();
    adopt(&bench, ended.clone()).await;
    let fresh = bench.try_add(keyed("k", 8_000)).await.unwrap();
    assert_eq!(fresh.novelty, Novelty::New);
}

/// A task of another store with the key `k`, set there at the moment `set_ms`.
fn rival(id: u64, set_ms: i64) -> Adoptee {
    let options = Options { key: Some("k".into()), ..Options::default() };
    Adoptee { options, key_set: Some(at(set_ms)), ..stranger(1_700_000_000_000_000 + id) }
}

/// Both used to wait, and the alarm of the older one fired although heartbeats came.
pub(crate) async fn of_two_tasks_of_a_key_the_later_one_is_kept(bench: Bench<impl Store>) {
    assert_eq!(adopt(&bench, rival(1, -2_000)).await, Adopted::New);
    let pushed = bench.try_add(keyed("k", 90_000)).await.unwrap();
    assert_eq!((pushed.id, pushed.novelty), (rival(1, 0).id, Novelty::Replaced));
    assert_eq!(adopt(&bench, rival(2, -1)).await, Adopted::Superseded);
    assert_eq!(
        adopt(&bench, rival(2, 0)).await,
        Adopted::Superseded,
        "the task of this store must win if both were set at the same moment"
    );
    assert!(bench.store.get(Reader::Worker, &lane(), rival(2, 0).id).await.unwrap().is_none());
    assert_eq!(
        adopt(&bench, rival(1, -2_000)).await,
        Adopted::Superseded,
        "the task that was pushed back here must win"
    );
    let other_id = Adoptee { id: bench.add("message.call", 60_000_000).await, ..rival(2, -1) };
    assert_eq!(
        adopt(&bench, other_id.clone()).await,
        Adopted::Superseded,
        "a superseded task was adopted under another id"
    );
    assert_eq!(
        adopt(&bench, Adoptee { key_set: Some(at(1)), ..other_id.clone() }).await,
        Adopted::Taken
    );
    assert_eq!(bench.state(pushed.id).await, State::Scheduled);
    // The other store goes on with a task that it leased to a mover, so that task must not wait
    // here.
    let first = bench.try_add(keyed("other", 90_000)).await.unwrap();
    let options = Options { key: Some("other".into()), ..Options::default() };
    let lent = Adoptee { options, lent: true, ..other_id.clone() };
    assert_eq!(
        adopt(&bench, lent.clone()).await,
        Adopted::Superseded,
        "the task that was set before must be superseded"
    );
    assert_eq!(bench.state(first.id).await, State::Scheduled);
    let lent = Adoptee { key_set: Some(at(1)), ..lent };
    for _ in 0..2 {
        assert_eq!(adopt(&bench, lent.clone()).await, Adopted::Taken);
        assert_eq!(bench.state(first.id).await, State::Cancelled);
    }
    bench.store.discard(&lane(), State::Cancelled, vec![first.id], None).await.unwrap();
    bench.store.cancel(&lane(), other_id.id, None).await.unwrap();
    bench.advance(5_000);
    assert_eq!(adopt(&bench, rival(3, 1)).await, Adopted::New);
    assert_eq!(bench.state(pushed.id).await, State::Cancelled);
    assert_eq!(adopt(&bench, rival(3, 1)).await, Adopted::Known, "the adoption was repeated");
    assert_eq!((bench.counts().await.scheduled, bench.counts().await.cancelled), (1, 2));
    assert_eq!(bench.try_add(keyed("k", 60_000)).await.unwrap().id, rival(3, 0).id);
    // If the key's task is leased, it is not retried.
    bench.advance(60_000);
    let held = bench.hold().await;
    assert_eq!(adopt(&bench, rival(4, 5_000)).await, Adopted::Superseded);
    assert_eq!(adopt(&bench, rival(4, 5_001)).await, Adopted::New);
    assert!(bench.get(held.id).await.cancelling);
    bench.settle(&held, retry(1)).await;
    assert_eq!(bench.state(held.id).await, State::Cancelled);
    assert_eq!(bench.counts().await.scheduled, 1);
    let other = Adoptee {
        options: Options { key: Some("other".into()), ..Options::default() },
        ..rival(5, -9_000)
    };
    assert_eq!(adopt(&bench, other).await, Adopted::New);
}

/// Its add would have pushed the owner back, and would have ended with the owner.
pub(crate) async fn an_ended_owner_of_the_key_supersedes_older_tasks(bench: Bench<impl Store>) {
    let owner = bench.try_add(keyed("k", 1_000)).await.unwrap();
    bench.store.cancel(&lane(), owner.id, None).await.unwrap();
    assert_eq!(adopt(&bench, rival(1, -1)).await, Adopted::Superseded);
    assert_eq!(adopt(&bench, rival(2, 1)).await, Adopted::New);
    assert_eq!(
        (bench.state(owner.id).await, bench.state(rival(2, 1).id).await),
        (State::Cancelled, State::Scheduled)
    );
}

pub(crate) async fn an_end_elsewhere_ends_the_task_here_unless_it_was_changed(
    bench: Bench<impl Store>,
) {
    let at_end = |n: u64, state| {
        let task = stranger(1_700_000_000_000_000 + n);
        Adoptee { standing: ended(state), outcome: "as there".into(), ..task }
    };
    for (n, state) in (1..).zip([State::Delivered, State::Cancelled, State::Expired]) {
        let waiting = stranger(1_700_000_000_000_000 + n);
        assert_eq!(adopt(&bench, waiting.clone()).await, Adopted::New);
        assert_eq!(adopt(&bench, at_end(n, state)).await, Adopted::Ended);
        let task = bench.get(waiting.id).await;
        assert_eq!(
            (task.state, task.finished, &*task.last_outcome),
            (state, Some(bench.now()), "as there")
        );
        assert_eq!(
            adopt(&bench, at_end(n, state)).await,
            Adopted::Known,
            "the adoption was repeated"
        );
        assert_eq!(
            adopt(&bench, waiting).await,
            Adopted::Known,
            "a task that has ended waits again"
        );
    }
    assert_eq!(bench.counts().await.scheduled, 0);
    // A dead task may be called again. A task that was changed here has another revision. A task
    // that a mover holds belongs to this store.
    let [waiting, changed, lent] = [5, 6, 7].map(|n| stranger(1_700_000_000_000_000 + n));
    for task in [&waiting, &changed, &lent] {
        assert_eq!(adopt(&bench, task.clone()).await, Adopted::New);
    }
    assert_eq!(adopt(&bench, at_end(5, State::Dead)).await, Adopted::Known);
    bench.store.reschedule(&lane(), changed.id, None, Moment::At(at(70_000)), None).await.unwrap();
    assert_eq!(adopt(&bench, at_end(6, State::Cancelled)).await, Adopted::Taken);
    assert!(lend(&bench, lent.id, &receipt("mover")).await);
    assert_eq!(adopt(&bench, at_end(7, State::Delivered)).await, Adopted::Own);
    assert_eq!((bench.counts().await.scheduled, bench.counts().await.leased), (2, 1));
}

pub(crate) async fn an_end_elsewhere_cancels_a_leased_task_when_its_lease_ends(
    bench: Bench<impl Store>,
) {
    let tasks = [1, 2, 3].map(|n| stranger(1_700_000_000_000_000 + n));
    for task in &tasks {
        adopt(&bench, task.clone()).await;
    }
    bench.advance(60_000);
    let held = [bench.hold().await, bench.hold().await, bench.hold().await];
    for (task, held) in tasks.iter().zip(&held) {
        let over =
            Adoptee { standing: ended(State::Delivered), outcome: "200 OK".into(), ..task.clone() };
        for _ in 0..2 {
            assert_eq!(adopt(&bench, over.clone()).await, Adopted::Cancelling);
        }
        assert!(bench.get(held.id).await.cancelling);
    }
    bench.settle(&held[0], delivered()).await;
    bench.settle(&held[1], retry(1_000)).await;
    bench.advance(60_000);
    let over = Adoptee { standing: ended(State::Delivered), ..tasks[2].clone() };
    assert_eq!(
        adopt(&bench, over).await,
        Adopted::Known,
        "the task must be cancelled when its lease expires"
    );
    let states = [
        bench.state(held[0].id).await,
        bench.state(held[1].id).await,
        bench.state(held[2].id).await,
    ];
    assert_eq!(states, [State::Delivered, State::Cancelled, State::Cancelled]);
}

pub(crate) async fn an_adoption_registers_its_topic_and_asks_for_no_quota(
    bench: Bench<impl Store>,
) {
    let entry: TopicEntry = topic_of("elsewhere", 4);
    let tasks: Vec<Adoptee> = (0..600_u64)
        .map(|i| Adoptee {
            topic: entry.clone(),
            id: TaskId(1_700_000_000_000_000 + i),
            ..stranger(1)
        })
        .collect();
    let adopted = bench.store.adopt(tasks).await;
    assert!(adopted.iter().all(|adopted| matches!(adopted, Ok(Adopted::New))));
    let topics = bench.store.topics().await.unwrap();
    assert!(topics.iter().any(|known| known.entry == entry));
    for lane in entry.lanes() {
        assert_eq!(bench.store.stats(&lane).await.unwrap().scheduled, 150);
    }
    let quota = NewTask { topic: entry, quota: Some(1), ..new_task("message.call", 0) };
    assert!(bench.try_add(quota).await.is_err());
}

/// Two stores that took an add in the same second have given the same id, perhaps for the same
/// content in the same millisecond.
pub(crate) async fn tasks_of_two_stores_with_one_id_are_distinguished(bench: Bench<impl Store>) {
    let task = stranger(1_700_000_000_000_005);
    assert_eq!(adopt(&bench, from(7, task.clone())).await, Adopted::New);
    assert_eq!(adopt(&bench, from(8, task.clone())).await, Adopted::Taken);
    assert_eq!(
        adopt(&bench, task.clone()).await,
        Adopted::Taken,
        "the id belongs to a task of this store"
    );
    assert_eq!(adopt(&bench, from(7, task)).await, Adopted::Known);
}

pub(crate) async fn an_id_that_another_topic_has_is_taken(bench: Bench<impl Store>) {
    let own = bench.add("message.call", 1_000).await;
    let topic = topic_of("elsewhere", 4);
    let task = Adoptee { topic: topic.clone(), id: own, ..stranger(1) };
    assert_eq!(adopt(&bench, from(7, task.clone())).await, Adopted::Taken);
    assert_eq!(
        adopt(&bench, task.clone()).await,
        Adopted::Taken,
        "the id belongs to a task without an origin"
    );
    assert_eq!(bench.store.get(Reader::Worker, &topic.lane_of(own), own).await.unwrap(), None);
    // The id of a removed task is free.
    bench.store.cancel(&lane(), own, None).await.unwrap();
    assert_eq!(bench.store.discard(&lane(), State::Cancelled, vec![own], None).await.unwrap(), 1);
    assert_eq!(adopt(&bench, from(7, task)).await, Adopted::New);
}

pub(crate) async fn an_id_that_another_import_brought_to_another_topic_is_taken(
    bench: Bench<impl Store>,
) {
    let other = |task| Adoptee { topic: topic_of("elsewhere", 4), ..task };
    let [first, second] = [1_600_000_000_000_005, 1_600_000_000_000_006].map(stranger);
    assert_eq!(adopt(&bench, from(7, first.clone())).await, Adopted::New);
    assert_eq!(adopt(&bench, other(from(8, first.clone()))).await, Adopted::Taken);
    assert_eq!(adopt(&bench, other(first.clone())).await, Adopted::Taken);
    assert_eq!(adopt(&bench, from(7, first)).await, Adopted::Known);
    assert_eq!(
        adopt(&bench, second.clone()).await,
        Adopted::New,
        "a task without an origin must be adopted"
    );
    assert_eq!(adopt(&bench, other(second)).await, Adopted::Taken);
}

pub(crate) async fn a_batch_takes_an_id_once(bench: Bench<impl Store>) {
    let task = from(7, stranger(1_700_000_000_000_005));
    let other = from(8, Adoptee { topic: topic_of("elsewhere", 4), ..stranger(task.id.0) });
    let next = from(8, Adoptee { topic: topic_of("elsewhere", 4), ..stranger(task.id.0 + 1) });
    let adopted = bench.store.adopt(vec![task.clone(), other, task, next]).await;
    let expected = [Adopted::New, Adopted::Taken, Adopted::Known, Adopted::New];
    assert_eq!(adopted.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
}

/// Its callback could not be made if another task had its id.
pub(crate) async fn the_id_of_a_call_for_a_moved_task_is_never_drawn(bench: Bench<impl Store>) {
    let first = bench.add("message.call", 0).await;
    let call = TaskId(first.0 + 1_500);
    let on_dead =
        OnDead { sn: "dead.letters".parse().unwrap(), url: "/dead".into(), task_id: Some(call) };
    let options = Options { on_dead: Some(on_dead), ..Options::default() };
    adopt(&bench, from(7, Adoptee { options, ..stranger(first.0 + 1) })).await;
    assert!(bench.add("message.call", 0).await > call);
}
