//! Who waits for a sync, and who does not.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::broadcast;
use tokio::time::timeout;

use super::disk::fault::StoreHealth;
use super::sync_gate::{Gated, LONG, SyncGate, bench, ids};
use super::testing::{START, dead, delivered, lane, new_task, retry};
use super::threads::confirmations::Confirmations;
use super::threads::syncer::Syncer;
use crate::model::task::{State, TopicPolicy};
use crate::store::{Asker, Error, Idempotency, LockToken, Moment, NewTask, Settled, Spread};

#[tokio::test]
async fn workers_claims_and_settles_wait_for_no_sync() {
    let (bench, gate) = bench();
    let [one, two] = [bench.add("a", 0).await, bench.add("a", 0).await];
    gate.let_end(0);
    let grant = bench.work(&[("a", 2)]).await;
    assert_eq!(ids(&grant), [one, two]);
    let receipt = &grant.receipt;
    let settled = bench.settle_by(Asker::Worker, one, receipt, delivered());
    assert_eq!(timeout(LONG, settled).await.expect("it waits for no sync"), Settled::Done);
    let lane = lane();
    let extended = bench.store.extend(Asker::Worker, &lane, two, receipt, LONG);
    let extended = timeout(LONG, extended).await.expect("it waits for no sync");
    assert_eq!(extended.unwrap(), Settled::Done);
    let retried = bench.settle_by(Asker::Worker, two, receipt, retry(0));
    assert_eq!(timeout(LONG, retried).await.expect("it waits for no sync"), Settled::Done);
    assert_eq!(ids(&bench.work(&[("a", 2)]).await), [two], "it was durable before");
    gate.open();
}

/// The first answer may be undone by a power cut, and the second would have promised it.
#[tokio::test]
async fn an_answer_that_wrote_nothing_waits_for_what_it_tells_of() {
    let (bench, gate) = bench();
    let id = bench.add("a", 0).await;
    let receipt = bench.work(&[("a", 1)]).await.receipt;
    gate.let_end(0);
    assert_eq!(bench.settle_by(Asker::Worker, id, &receipt, delivered()).await, Settled::Done);
    let mut repeated = pin!(bench.settle_by(Asker::Caller, id, &receipt, delivered()));
    assert!(repeated.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    assert!(repeated.as_mut().now_or_never().is_none(), "the first one is not durable");
    gate.open();
    assert_eq!(timeout(LONG, repeated).await.expect("it is confirmed"), Settled::Done);
    bench.writer_is_through().await;
}

#[tokio::test]
async fn a_duplicate_of_an_add_waits_for_the_first_one() {
    let (bench, gate) = bench();
    let keyed = || {
        let window = Duration::from_secs(60);
        let idempotency = Idempotency { key: "k".into(), fingerprint: 7, window };
        vec![NewTask { idempotency: Some(idempotency), ..new_task("a", 0) }]
    };
    gate.let_end(0);
    let mut first = pin!(bench.store.add(keyed()));
    assert!(first.as_mut().now_or_never().is_none());
    bench.committed(1).await;
    let mut second = pin!(bench.store.add(keyed()));
    assert!(second.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    assert!(second.as_mut().now_or_never().is_none(), "the first one is not durable");
    gate.open();
    let (first, second) = timeout(LONG, async { tokio::join!(first, second) }).await.unwrap();
    assert_eq!(first[0].as_ref().unwrap().id, second[0].as_ref().unwrap().id);
}

/// A consumer may survive the machine, and must not share its task with another.
#[tokio::test]
async fn a_consumer_has_its_lease_once_it_is_durable() {
    let (bench, gate) = bench();
    bench.add("@pull", 0).await;
    gate.let_end(0);
    let mut pulled = pin!(bench.try_claim(&[("@pull", 1)]));
    assert!(pulled.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    assert!(pulled.as_mut().now_or_never().is_none());
    gate.open();
    let grant = timeout(LONG, pulled).await.expect("it is confirmed").unwrap();
    assert_eq!(grant.tasks.len(), 1);
}

/// Each call writes something, and is answered once that is durable.
#[tokio::test]
async fn what_a_caller_asks_for_is_answered_once_it_is_durable() {
    let (bench, gate) = bench();
    let store = &bench.store;
    let lane = lane();
    let topic = lane.topic.clone();
    macro_rules! promised {
        ($($call:expr),+ $(,)?) => {$(
            gate.let_end(0);
            let mut call = pin!($call);
            assert!(call.as_mut().now_or_never().is_none());
            bench.writer_is_through().await;
            assert!(call.as_mut().now_or_never().is_none(), "{}", stringify!($call));
            gate.open();
            timeout(LONG, call).await.expect(stringify!($call)).unwrap();
        )+};
    }
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(bench.add("a", 0).await);
    }
    let [acked, dying, cancelled, moved] = tasks[..] else { unreachable!() };
    let grant = bench.work(&[("a", 2)]).await;
    let settle = async |id, transition| {
        let settles = bench.settles(id, &grant.receipt, transition);
        store.settle(Asker::Caller, settles).await.remove(0)
    };
    let (mover, destination) = ("m".parse().unwrap(), "a".parse().unwrap());
    let policy = TopicPolicy { quota: Some(7), ..TopicPolicy::default() };
    promised!(
        store.extend(Asker::Caller, &lane, acked, &grant.receipt, LONG),
        settle(acked, delivered()),
        settle(dying, dead()),
        store.replay(&lane, vec![dying], None, Spread { first: LONG, step: LONG }),
        store.cancel(&lane, cancelled, None),
        store.discard(&lane, State::Cancelled, vec![cancelled], None),
        store.reschedule(&lane, moved, None, Moment::After(LONG), None),
        store.lend(&lane, vec![moved], &mover, LONG),
        store.set_policy(&topic, &policy),
        store.pause(&topic),
        store.resume(&topic, None),
        store.set_hold(&destination, true),
        store.purge(&lane, 0, State::Delivered, START + LONG, 10),
        store.clear(&lane, 10),
    );
}

#[tokio::test]
async fn what_is_committed_during_a_sync_waits_for_the_next() {
    let (bench, gate) = bench();
    let id = bench.add("a", 0).await;
    let receipt = bench.work(&[("a", 1)]).await.receipt;
    let before = gate.count();
    gate.let_end(0);
    let mut first = pin!(bench.add("a", 0));
    assert!(first.as_mut().now_or_never().is_none());
    gate.begun(before + 1).await;
    assert_eq!(bench.settle_by(Asker::Worker, id, &receipt, delivered()).await, Settled::Done);
    let mut repeated = pin!(bench.settle_by(Asker::Caller, id, &receipt, delivered()));
    assert!(repeated.as_mut().now_or_never().is_none());
    gate.let_end(1);
    timeout(LONG, first).await.expect("it is confirmed");
    gate.begun(before + 2).await;
    bench.writer_is_through().await;
    assert!(repeated.as_mut().now_or_never().is_none(), "what it tells of came after that sync");
    gate.open();
    assert_eq!(timeout(LONG, repeated).await.expect("it is confirmed"), Settled::Done);
}

#[tokio::test]
async fn one_batch_is_unconfirmed_and_later_ones_wait_uncommitted() {
    let (bench, gate) = bench();
    let before = gate.count();
    gate.let_end(0);
    let mut first = pin!(bench.add("a", 0));
    assert!(first.as_mut().now_or_never().is_none());
    gate.begun(before + 1).await;
    let mut second = pin!(bench.add("a", 0));
    assert!(second.as_mut().now_or_never().is_none());
    {
        let mut given_up = pin!(bench.add("a", 0));
        assert!(given_up.as_mut().now_or_never().is_none());
    }
    let topic = new_task("a", 0).topic.topic;
    {
        let mut given_up = pin!(bench.store.pause(&topic));
        assert!(given_up.as_mut().now_or_never().is_none());
    }
    bench.writer_is_through().await;
    assert_eq!(bench.scheduled().await, 1);
    gate.open();
    let all = async { tokio::join!(first, second) };
    timeout(LONG, all).await.expect("they are confirmed");
    assert_eq!(bench.scheduled().await, 2, "what was given up before it began is not done");
    let registered = bench.store.topic(&topic).await.unwrap().unwrap();
    assert!(registered.paused.is_none(), "nor is another call");
}

#[tokio::test]
async fn the_parts_of_a_large_batch_do_not_wait_for_each_others_sync() {
    let (bench, gate) = bench();
    // The adds wait however slow the disk is: the clock stands still while a blocking task runs.
    let (clock_runs, clock_stands) = std::sync::mpsc::channel::<()>();
    let stand = tokio::task::spawn_blocking(move || clock_stands.recv());
    tokio::time::pause();
    gate.let_end(0);
    let large = || (0..100).map(|_| new_task("b", 0)).collect();
    let mut parts: Vec<_> = (0..10).map(|_| Box::pin(bench.store.add(large()))).collect();
    // All are queued before the writer begins with the first. It begins a batch with what is
    // queued when it takes the held job, so it has that first.
    let (open, closed) = std::sync::mpsc::channel::<()>();
    let (began, has_begun) = std::sync::mpsc::channel();
    let held = bench.store.writes.run_undoable(1, move |_| {
        began.send(()).unwrap();
        Ok(closed.recv().is_err())
    });
    let mut held = pin!(held);
    assert!(held.as_mut().now_or_never().is_none());
    has_begun.recv().unwrap();
    for part in &mut parts {
        assert!(part.as_mut().now_or_never().is_none());
    }
    let committed = async {
        drop(open);
        held.await.unwrap();
        bench.committed(1_000).await;
        gate.open();
    };
    let confirmed = timeout(LONG, futures_util::future::join_all(parts));
    let (confirmed, ()) = tokio::join!(confirmed, committed);
    assert!(confirmed.expect("they are confirmed").iter().flatten().all(Result::is_ok));
    drop(clock_runs);
    assert!(stand.await.unwrap().is_err());
}

/// The kernel forgets which pages it could not write: the next fsync would succeed.
#[tokio::test]
async fn a_failed_sync_ends_the_store_before_anybody_is_answered() {
    let (bench, gate) = bench();
    let before = gate.count();
    gate.let_end(0);
    let fatal = bench.store.fatal();
    let mut first = pin!(bench.add_one());
    assert!(first.as_mut().now_or_never().is_none());
    gate.begun(before + 1).await;
    let mut second = pin!(bench.add_one());
    assert!(second.as_mut().now_or_never().is_none());
    gate.set(|state| state.fails = true);
    gate.let_end(1);
    for add in [first, second] {
        let answer = timeout(LONG, add).await.expect("it is answered");
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
        assert!(*fatal.borrow(), "nobody may go on with it");
    }
    gate.set(|state| state.fails = false);
    gate.open();
    let later = timeout(LONG, bench.add_one()).await.expect("it is answered");
    assert!(matches!(later, Err(Error::Unavailable(_))), "{later:?}");
    let holder = Some(LockToken("worker".into()));
    assert!(bench.claim_by(holder, &[("a", 1)]).await.is_err());
}

/// A silent sync costs its callers their patience once, and workers nothing.
#[tokio::test]
async fn a_silent_sync_refuses_new_promises_at_once_and_no_worker() {
    let (bench, gate) = bench();
    let durable = bench.add("a", 0).await;
    let before = gate.count();
    gate.let_end(0);
    let answer = timeout(LONG, bench.add_one()).await.expect("it is answered");
    let is_silent = matches!(&answer, Err(Error::Unavailable(text)) if text.contains("silent"));
    assert!(is_silent, "{answer:?}");
    gate.begun(before + 1).await;
    let refused = timeout(Duration::ZERO, bench.add_one()).await.expect("it is refused at once");
    assert!(matches!(&refused, Err(Error::Unavailable(text)) if text.contains("silent")));
    let grant = bench.work(&[("a", 9)]).await;
    assert_eq!(ids(&grant), [durable]);
    let settled = bench.settle_by(Asker::Worker, durable, &grant.receipt, delivered());
    assert_eq!(timeout(LONG, settled).await.expect("it waits for no sync"), Settled::Done);
    gate.open();
    assert_eq!(bench.state(durable).await, State::Delivered);
}

/// The checkpoint thread's last copy would take the log from under a sync that still fails.
#[test]
fn the_checkpoint_thread_ends_after_the_last_sync() {
    let gate = SyncGate::new();
    let confirmations = Arc::<Confirmations>::default();
    let (checkpoints, wakes) = sync_channel(1);
    let syncer = Syncer {
        log: Box::new(Gated { gate: Arc::clone(&gate), log: None }),
        confirmations: Arc::clone(&confirmations),
        pace: Arc::default(),
        health: Arc::new(StoreHealth::new()),
        hints: broadcast::channel(1).0,
        disk: Default::default(),
        writer: std::thread::current(),
        checkpoints,
    };
    gate.let_end(0);
    let thread = std::thread::spawn(move || syncer.run());
    confirmations.committed();
    confirmations.close();
    while gate.count() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(wakes.try_recv(), Err(TryRecvError::Empty), "the last sync is not over");
    gate.open();
    thread.join().unwrap();
    assert_eq!(wakes.try_recv(), Err(TryRecvError::Disconnected));
}

#[test]
fn what_no_sync_has_covered_is_synced_when_the_store_closes() {
    let (bench, gate) = bench();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(bench.store.writes.run_undoable(1, |tx| {
            tx.db.execute_batch("UPDATE meta SET value = value WHERE name = 'last_id'")
        }))
        .unwrap();
    let before = gate.count();
    drop(bench);
    assert!(gate.count() > before);
}
