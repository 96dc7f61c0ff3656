//! Ended tasks whose contents are removed.

use std::sync::Arc;

use delayd::maintenance::{self, Janitor};
use delayd::model::task::{ContentDigest, Options, State, TaskId};
use delayd::store::{
    Added, Adopted, AdoptedStanding, Adoptee, Error, Idempotency, NewTask, Novelty, Reader,
    Settled, Spread, Store, Task,
};
use delayd::topic::{self, Registry};

use crate::bench::{Bench, at, dead, delivered, expiring, ids, lane, ms, new_task};
use crate::check::assert_in_order;
use crate::poll;
use crate::transfer::{adopt, ended, stranger};

/// The task without its content.
fn bare(task: Task) -> Task {
    let removed = Some(ContentDigest::of(&task.content));
    Task { content: String::new(), options: Options { removed, ..task.options }, ..task }
}

pub(crate) async fn only_delivered_cancelled_and_expired_tasks_lose_their_contents(
    bench: Bench<impl Store>,
) {
    let max_attempts = Options { max_attempts: Some(3), ..Options::default() };
    let succeeds =
        bench.add_task(NewTask { options: max_attempts, ..new_task("message.call", 0) }).await;
    let held = bench.hold().await;
    bench.settle(&held, delivered()).await;
    let dies = bench.add_held().await;
    bench.settle(&dies, dead()).await;
    let cancelled = bench.add("message.call", 1_000).await;
    bench.store.cancel(&lane(), cancelled, None).await.unwrap();
    let expired = bench.add_task(expiring("message.call", 0, 1)).await;
    bench.advance(2);
    bench.sweep().await;
    let leased = bench.add_held().await.id;
    let waiting = bench.add("message.call", 1_000).await;
    let all = [succeeds, cancelled, expired, dies.id, leased, waiting];
    let mut before = Vec::new();
    for id in all {
        before.push(bench.get(id).await);
    }
    let states = before.iter().map(|task| task.state).collect::<Vec<_>>();
    use State::{Cancelled, Dead, Delivered, Expired, Leased, Scheduled};
    assert_eq!(states, [Delivered, Cancelled, Expired, Dead, Leased, Scheduled]);
    let counts = bench.counts().await;
    // Twice, and with an unknown task: nothing changes.
    for _ in 0..2 {
        let with_unknown = [&all[..], &[TaskId(7)]].concat();
        bench.store.remove_contents(&lane(), &with_unknown).await.unwrap();
        for (n, task) in before.iter().enumerate() {
            let expected = if n < 3 { bare(task.clone()) } else { task.clone() };
            assert_eq!(bench.get(task.id).await, expected, "{:?}", task.state);
        }
    }
    assert_eq!(bench.counts().await, counts);
    assert_in_order(&bench.store).await;
}

/// A dead task has its content for as long as it is dead. It is replayed with it.
pub(crate) async fn a_dead_task_is_replayed_with_its_content(bench: Bench<impl Store>) {
    let (held, late) = (bench.add_held().await, bench.add_held().await);
    for dies in [&held, &late] {
        assert_eq!(bench.settle(dies, dead()).await, Settled::Done);
    }
    let both = [held.id, late.id];
    bench.store.remove_contents(&lane(), &both).await.unwrap();
    assert_eq!(bench.settle(&late, delivered()).await, Settled::Done);
    bench.store.remove_contents(&lane(), &both).await.unwrap();
    assert_eq!(bench.get(late.id).await.content, "");
    let spread = Spread { first: ms(0), step: ms(0) };
    assert_eq!(bench.store.replay(&lane(), vec![held.id], None, spread).await.unwrap(), 1);
    let grant = bench.claim(&[("message.call", 5)]).await;
    assert_eq!(ids(&grant), [held.id]);
    assert_eq!(grant.tasks[0].content, new_task("message.call", 0).content);
}

pub(crate) async fn a_repeated_add_finds_a_task_without_content(bench: Bench<impl Store>) {
    let once = |fingerprint| NewTask {
        idempotency: Some(Idempotency { key: "k".into(), fingerprint, window: ms(60_000) }),
        ..new_task("message.call", 0)
    };
    let first = bench.try_add(once(7)).await.unwrap();
    let held = bench.hold().await;
    bench.settle(&held, delivered()).await;
    bench.store.remove_contents(&lane(), &[first.id]).await.unwrap();
    let state = Some(State::Delivered);
    let repeat = Added { novelty: Novelty::Duplicate { state }, ..first };
    assert_eq!(bench.try_add(once(7)).await.unwrap(), repeat);
    assert!(matches!(bench.try_add(once(8)).await, Err(Error::KeyReused)));
}

/// Two tasks are the same if their contents are, whichever store has removed its copy.
pub(crate) async fn a_task_without_content_is_recognized(bench: Bench<impl Store>) {
    let full = |n: u64| Adoptee { standing: ended(State::Delivered), ..stranger(n) };
    let other = |n: u64| Adoptee { content: "{}".into(), ..full(n) };
    let bare = |task: Adoptee| {
        let removed = Some(ContentDigest::of(&task.content));
        Adoptee { content: String::new(), options: Options { removed, ..task.options }, ..task }
    };
    // Which side has no content: this store, the other one, both.
    for (n, is_bare_here, is_bare_there) in
        [(1, true, false), (2, false, true), (3, true, true), (4, false, false)]
    {
        let n = 1_700_000_000_000_000 + n;
        assert_eq!(adopt(&bench, full(n)).await, Adopted::New);
        if is_bare_here {
            bench.store.remove_contents(&lane(), &[TaskId(n)]).await.unwrap();
        }
        let there = |task: Adoptee| if is_bare_there { bare(task) } else { task };
        assert_eq!(adopt(&bench, there(full(n))).await, Adopted::Known, "{n}");
        assert_eq!(adopt(&bench, there(other(n))).await, Adopted::Taken, "{n}");
    }
    // It is stored as it comes.
    let stored = bare(full(1_700_000_000_000_009));
    assert_eq!(adopt(&bench, stored.clone()).await, Adopted::New);
    let task = bench.get(stored.id).await;
    assert_eq!((task.options, &*task.content), (stored.options, ""));
    assert_in_order(&bench.store).await;
}

/// The first round of the janitor begins at once. It reads all pages of a lane's history.
pub(crate) async fn the_janitor_removes_contents_after_a_while(bench: Bench<impl Store>) {
    const OLD: u64 = 600;
    let task = |n: u64| {
        let finished = if n < OLD { at(-60_001) } else { at(-59_999) };
        let standing = AdoptedStanding::Ended { state: State::Cancelled, finished };
        Adoptee { standing, ..stranger(1_700_000_000_000_000 + n) }
    };
    let tasks: Vec<Adoptee> = (0..OLD + 3).map(task).collect();
    let all: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    for adopted in bench.store.adopt(tasks).await {
        assert!(matches!(adopted, Ok(Adopted::New)), "{adopted:?}");
    }
    let Bench { store, clock: _, kept: _kept } = bench;
    let store = Arc::new(store);
    let topics = Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 10 }));
    let params = maintenance::Params {
        keep: ms(3_600_000),
        keep_of_topic: 1_000,
        keep_in_all: 1_000,
        remove_contents: Some(ms(60_000)),
    };
    let _janitor = Janitor::start(store.clone(), topics, params);
    let bare = async || {
        let mut bare = Vec::new();
        for id in &all {
            let task = store.get(Reader::Worker, &lane(), *id).await.unwrap().unwrap();
            bare.push(task.content.is_empty());
        }
        bare
    };
    let old_ones = async || bare().await.iter().filter(|bare| **bare).count() >= OLD as usize;
    assert!(poll::until(old_ones).await, "contents stay");
    let expected: Vec<bool> = (0..OLD + 3).map(|n| n < OLD).collect();
    assert_eq!(bare().await, expected);
}
