//! Who waits for a sync, and who does not. The tests hold the syncs.

use std::io;
use std::pin::pin;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

use super::disk::fault::Health;
use super::disk::space;
use super::disk::wal_sync::{LogSync, WalFile};
use super::testing::{Bench, START, dead, delivered, lane, new_task, params, retry};
use super::threads::confirmations::Confirmations;
use super::threads::syncer::Syncer;
use super::{Embedded, Leases};
use crate::model::clock::Clock;
use crate::model::task::{OnDead, Options, Receipt, State, TaskId, TopicPolicy};
use crate::store::{
    Admin, Asker, Delivery, Error, Grant, Hint, Holder, Idempotency, Intake, Maintenance, Moment,
    NewTask, Settle, Settled, Spread, Topics, Transition,
};

/// The limit for an answer that must come.
const LONG: Duration = Duration::from_secs(20);

/// Holds and fails syncs.
struct Gate {
    state: Mutex<Held>,
    changed: Condvar,
    begun: watch::Sender<u64>,
}

struct Held {
    /// How many more syncs may end; `None`: all.
    may_end: Option<u64>,
    fails: bool,
}

impl Gate {
    fn new() -> Arc<Self> {
        let state = Mutex::new(Held { may_end: None, fails: false });
        Arc::new(Self { state, changed: Condvar::new(), begun: watch::Sender::new(0) })
    }

    fn set(&self, change: impl FnOnce(&mut Held)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Lets this many further syncs end.
    fn let_end(&self, count: u64) {
        self.set(|state| state.may_end = Some(count));
    }

    fn open(&self) {
        self.set(|state| state.may_end = None);
    }

    /// How many syncs have begun.
    fn count(&self) -> u64 {
        *self.begun.borrow()
    }

    /// Waits until this many syncs have begun.
    async fn begun(&self, count: u64) {
        let mut begun = self.begun.subscribe();
        timeout(LONG, begun.wait_for(|begun| *begun >= count)).await.expect("it begins").unwrap();
    }

    fn pass(&self) -> io::Result<()> {
        self.begun.send_modify(|begun| *begun += 1);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.may_end == Some(0) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.may_end = state.may_end.map(|count| count - 1);
        if state.fails { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
    }
}

struct Gated {
    gate: Arc<Gate>,
    log: Option<WalFile>,
}

impl LogSync for Gated {
    fn sync(&mut self) -> io::Result<()> {
        self.gate.pass()?;
        self.log.as_mut().map_or(Ok(()), LogSync::sync)
    }
}

fn bench() -> (Bench, Arc<Gate>) {
    let (folder, clock, gate) = (tempfile::tempdir().unwrap(), Clock::manual(START), Gate::new());
    let disk = space::Params::of(&params(folder.path(), &clock).path, 1 << 20);
    let held = Arc::clone(&gate);
    let open_log =
        Box::new(|log| Box::new(Gated { gate: held, log: Some(log) }) as Box<dyn LogSync>);
    let store = Embedded::open_with(disk, clock.clone(), Leases::Void, open_log).unwrap();
    (Bench { store, clock, folder }, gate)
}

impl Bench {
    /// Returns when the writer has concluded all undoable work so far, and the promised work that
    /// waits for no sync to begin.
    async fn writer_is_through(&self) {
        for _ in 0..2 {
            let through = self.store.writes.run_undoable(1, |_| Ok(()));
            timeout(LONG, through).await.expect("the writer gets on").unwrap();
        }
    }

    async fn work(&self, wants: &[(&str, usize)]) -> Grant {
        let holder = Some(Holder("worker".into()));
        timeout(LONG, self.claim_by(holder, wants)).await.expect("it waits for no sync").unwrap()
    }

    fn settles(&self, id: TaskId, receipt: &Receipt, transition: Transition) -> Vec<Settle> {
        vec![Settle { lane: lane(), id, receipt: receipt.clone(), transition }]
    }

    async fn settle_by(
        &self,
        asker: Asker,
        id: TaskId,
        receipt: &Receipt,
        transition: Transition,
    ) -> Settled {
        let settles = self.settles(id, receipt, transition);
        self.store.settle(asker, settles).await.remove(0).unwrap()
    }

    async fn scheduled(&self) -> u64 {
        self.store.stats(&lane()).await.unwrap().scheduled
    }
}

fn ids(grant: &Grant) -> Vec<TaskId> {
    grant.tasks.iter().map(|task| task.id).collect()
}

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

/// A power cut undoes the add, and the callback would have run for nothing; the id is drawn again.
#[tokio::test]
async fn a_worker_gets_no_task_that_is_not_durable_and_is_told_when_it_is() {
    let (bench, gate) = bench();
    let durable = bench.add("a", 0).await;
    let mut hints = bench.store.hints();
    gate.let_end(0);
    let mut adding = pin!(bench.add("a", 0));
    assert!(adding.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    assert_eq!(bench.scheduled().await, 2, "it is committed");
    assert!(hints.try_recv().is_err(), "there is nothing to claim yet");

    let grant = bench.work(&[("a", 9)]).await;
    assert_eq!(ids(&grant), [durable]);
    assert!(grant.outlook.due.is_empty(), "the worker would ask for it in a loop");
    bench.settle_by(Asker::Worker, durable, &grant.receipt, retry(5)).await;
    assert_eq!(hints.recv().await.unwrap().due.0, START.0 + 5, "the worker knows no earlier one");
    let grant = bench.work(&[]).await;
    assert_eq!(grant.outlook.next.map(|next| next.0), Some(START.0 + 5));

    gate.open();
    let added = timeout(LONG, adding).await.expect("it is confirmed");
    let hint = timeout(LONG, hints.recv()).await.expect("the worker is told").unwrap();
    assert_eq!(hint, Hint { lane: lane(), due: START, is_pull: false });
    assert_eq!(ids(&bench.work(&[("a", 9)]).await), [added]);
}

/// The hint of the add came before its task could be claimed: it was not due yet.
#[tokio::test]
async fn a_worker_that_passed_over_a_task_is_told_when_it_is_durable() {
    let (bench, gate) = bench();
    let first = bench.add("a", 10).await;
    gate.let_end(0);
    let mut adding = pin!(bench.add("a", 20));
    assert!(adding.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    bench.advance(30);
    let mut hints = bench.store.hints();
    assert_eq!(ids(&bench.work(&[("a", 9)]).await), [first]);
    gate.open();
    let added = timeout(LONG, adding).await.expect("it is confirmed");
    timeout(LONG, hints.recv()).await.expect("the worker is told").unwrap();
    assert_eq!(ids(&bench.work(&[("a", 9)]).await), [added]);
}

/// Two destinations with nothing but hidden tasks would have the worker ask for one and the other
/// in turn.
#[tokio::test]
async fn an_outlook_names_no_destination_that_has_only_hidden_tasks() {
    let (bench, gate) = bench();
    bench.add("c", 0).await;
    gate.let_end(0);
    let tasks = vec![new_task("a", 0), new_task("b", 0), new_task("b", 70)];
    let mut adding = pin!(bench.store.add(tasks));
    assert!(adding.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    let grant = bench.work(&[("a", 1)]).await;
    assert!(grant.tasks.is_empty());
    assert_eq!(super::testing::names(&grant.outlook.due), ["c"]);
    assert_eq!(grant.outlook.next.map(|next| next.0), Some(START.0 + 70));
    gate.open();
    assert!(adding.await.iter().all(Result::is_ok));
    assert_eq!(super::testing::names(&bench.work(&[]).await.outlook.due), ["c", "a", "b"]);
}

/// What a caller changes is hidden too: a power cut may bring the earlier moment or content back.
#[tokio::test]
async fn a_task_that_a_caller_touched_is_hidden_until_that_is_durable() {
    let (bench, gate) = bench();
    let id = bench.add("a", 60_000).await;
    gate.let_end(0);
    let (lane_, now) = (lane(), Moment::After(Duration::ZERO));
    let mut moved = pin!(bench.store.reschedule(&lane_, id, now, None));
    assert!(moved.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    assert_eq!(bench.get(id).await.due, START, "a read may show it");
    assert!(bench.work(&[("a", 1)]).await.tasks.is_empty());
    gate.open();
    timeout(LONG, moved).await.expect("it is confirmed").unwrap();
    assert_eq!(ids(&bench.work(&[("a", 1)]).await), [id]);
}

/// A power cut undoes the death, and the task may be delivered after all.
#[tokio::test]
async fn a_dead_letter_call_waits_until_the_death_is_durable() {
    let (bench, gate) = bench();
    let on_dead = OnDead { sn: "b".parse().unwrap(), url: "/".into(), task_id: None };
    let options = Options { on_dead: Some(on_dead), ..Options::default() };
    let task = NewTask { options, ..new_task("a", 0) };
    let id = bench.store.add(vec![task]).await.remove(0).unwrap().id;
    let receipt = bench.work(&[("a", 1)]).await.receipt;
    let mut hints = bench.store.hints();
    gate.let_end(0);
    assert_eq!(bench.settle_by(Asker::Worker, id, &receipt, dead()).await, Settled::Done);
    assert!(bench.work(&[("b", 1)]).await.tasks.is_empty());
    assert!(hints.try_recv().is_err());
    gate.open();
    timeout(LONG, hints.recv()).await.expect("the worker is told").unwrap();
    assert_eq!(bench.work(&[("b", 1)]).await.tasks.len(), 1);
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
    bench.writer_is_through().await;
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
        store.replay(&lane, vec![dying], Spread { first: LONG, step: LONG }),
        store.cancel(&lane, cancelled),
        store.discard(&lane, State::Cancelled, vec![cancelled]),
        store.reschedule(&lane, moved, Moment::After(LONG), None),
        store.lend(&lane, vec![moved], &mover, LONG),
        store.set_policy(&topic, &policy),
        store.pause(&topic),
        store.resume(&topic, None),
        store.set_hold(&destination, true),
        store.purge(&lane, State::Delivered, START + LONG, 10),
        store.clear(&lane, 10),
    );
}

#[tokio::test]
async fn what_is_committed_during_a_sync_waits_for_the_next() {
    let (bench, gate) = bench();
    let before = gate.count();
    gate.let_end(0);
    let mut first = pin!(bench.add("a", 0));
    assert!(first.as_mut().now_or_never().is_none());
    gate.begun(before + 1).await;
    let mut second = pin!(bench.add("a", 0));
    assert!(second.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    assert_eq!(bench.scheduled().await, 2);
    gate.let_end(1);
    timeout(LONG, first).await.expect("it is confirmed");
    gate.begun(before + 2).await;
    assert!(second.as_mut().now_or_never().is_none(), "it was not there when that sync began");
    gate.open();
    timeout(LONG, second).await.expect("it is confirmed");
}

#[tokio::test]
async fn two_batches_are_unconfirmed_and_later_ones_wait_uncommitted() {
    let (bench, gate) = bench();
    let before = gate.count();
    gate.let_end(0);
    let mut first = pin!(bench.add("a", 0));
    assert!(first.as_mut().now_or_never().is_none());
    gate.begun(before + 1).await;
    let mut second = pin!(bench.add("a", 0));
    assert!(second.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    let mut third = pin!(bench.add("a", 0));
    assert!(third.as_mut().now_or_never().is_none());
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
    assert_eq!(bench.scheduled().await, 2);
    gate.open();
    let all = async { tokio::join!(first, second, third) };
    timeout(LONG, all).await.expect("they are confirmed");
    assert_eq!(bench.scheduled().await, 3, "what was given up before it began is not done");
    let registered = bench.store.topic(&topic).await.unwrap().unwrap();
    assert!(registered.paused.is_none(), "nor is another call");
}

/// A burst must not hold up the claims behind it.
#[tokio::test]
async fn a_large_batch_is_written_in_parts_and_counts_as_one() {
    let (bench, gate) = bench();
    let before = gate.count();
    gate.let_end(0);
    let mut first = pin!(bench.add("a", 0));
    assert!(first.as_mut().now_or_never().is_none());
    gate.begun(before + 1).await;
    let large = || (0..100).map(|_| new_task("b", 0)).collect();
    let mut parts: Vec<_> = (0..10).map(|_| Box::pin(bench.store.add(large()))).collect();
    // All are queued before the writer begins with the first.
    let (open, closed) = std::sync::mpsc::channel::<()>();
    let held = bench.store.writes.run_undoable(1, move |_| Ok(closed.recv().is_err()));
    let mut held = pin!(held);
    assert!(held.as_mut().now_or_never().is_none());
    for part in &mut parts {
        assert!(part.as_mut().now_or_never().is_none());
    }
    drop(open);
    held.await.unwrap();
    for _ in 0..10 {
        bench.writer_is_through().await;
    }
    assert_eq!(bench.scheduled().await, 1_001, "all parts are committed beside the running sync");
    gate.open();
    timeout(LONG, first).await.expect("it is confirmed");
    for part in parts {
        assert!(timeout(LONG, part).await.expect("it is confirmed").iter().all(Result::is_ok));
    }
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
    bench.writer_is_through().await;
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
    let holder = Some(Holder("worker".into()));
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
    assert!(matches!(&answer, Err(Error::Unavailable(text)) if text.contains("silent")));
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

impl Bench {
    async fn add_one(&self) -> Result<TaskId, Error> {
        self.store.add(vec![new_task("a", 0)]).await.remove(0).map(|added| added.id)
    }
}

/// The checkpoint thread's last copy would take the log from under a sync that still fails.
#[test]
fn the_checkpoint_thread_ends_after_the_last_sync() {
    let gate = Gate::new();
    let confirmations = Arc::<Confirmations>::default();
    let (checkpoints, wakes) = sync_channel(1);
    let syncer = Syncer {
        log: Box::new(Gated { gate: Arc::clone(&gate), log: None }),
        confirmations: Arc::clone(&confirmations),
        pace: Arc::default(),
        health: Arc::new(Health::new()),
        hints: broadcast::channel(1).0,
        disk: Default::default(),
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
