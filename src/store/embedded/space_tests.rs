//! What continues on a full disk, and what is refused. The disk is a number here; SQLite's own
//! limit of the file's size makes it really answer SQLITE_FULL.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};

use super::disk::checkpoint::{Hold, LogKeeper, Turn};
use super::disk::schema;
use super::disk::space::{Params, Space, Volume};
use super::testing::{Bench, START, dead, delivered, lane, new_task, retry, topic};
use super::{Embedded, PushLeases};
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{OnDead, Options, State, TaskId};
use crate::store::{
    Asker, AttemptNote, Counts, Error, Misfired, Moment, NewContent, NewSchedule, NewTask,
    NextOccurrence, Pause, Plan, Planned, Reader, ScheduleSet, Settle, Settled, TopicEntry,
};

const MIB: u64 = 1 << 20;

/// What adds leave free; a quarter of it is the ballast.
const RESERVE: u64 = MIB;

/// A disk whose free bytes the test sets.
#[derive(Clone)]
struct Disk {
    free: Arc<AtomicU64>,
    total: u64,
}

impl Disk {
    fn of(total: u64) -> Self {
        Self { free: Arc::new(AtomicU64::new(total)), total }
    }

    fn leave(&self, free: u64) {
        self.free.store(free, Ordering::SeqCst);
    }

    fn open(&self, folder: tempfile::TempDir, clock: Clock) -> Bench {
        let store =
            Embedded::open_on(self.params(&folder), clock.clone(), PushLeases::Void).unwrap();
        Bench { store, clock, folder }
    }

    fn params(&self, folder: &tempfile::TempDir) -> Params {
        let disk = self.clone();
        let gauge =
            move |_: &_| Ok(Volume { free: disk.free.load(Ordering::SeqCst), total: disk.total });
        Params {
            path: folder.path().join("delayd.db"),
            reserve: RESERVE,
            gauge: Arc::new(gauge),
            look_every: Duration::ZERO,
            hold: Duration::ZERO,
        }
    }
}

fn bench_on(disk: &Disk) -> Bench {
    disk.open(tempfile::tempdir().unwrap(), Clock::manual(START))
}

fn sized(destination: &str, bytes: usize) -> NewTask {
    NewTask { content: "x".repeat(bytes), ..new_task(destination, 0) }
}

/// A task with a key that asks for a dead-letter call.
fn keyed(after_ms: u64) -> NewTask {
    let on_dead = OnDead { sn: "b".parse().unwrap(), url: "/".into(), task_id: None };
    let options = Options { key: Some("k".into()), on_dead: Some(on_dead), ..Options::default() };
    NewTask { options, ..new_task("k", after_ms) }
}

fn note(id: TaskId) -> AttemptNote {
    let (outcome, answer) = ("503".to_owned(), String::new());
    AttemptNote {
        lane: lane(),
        id,
        attempt: 1,
        started: START,
        took: Duration::ZERO,
        wait: None,
        outcome,
        answer,
    }
}

impl Bench {
    async fn add_is_refused(&self) -> bool {
        match self.store.add(vec![new_task("a", 0)]).await.remove(0) {
            Ok(_) => false,
            Err(Error::Full(_)) => true,
            Err(error) => panic!("{error}"),
        }
    }

    /// Readers and the checkpoint may hold the log for a moment; a commit a second later tries
    /// again.
    async fn wait_until_the_log_is_cut(&self) {
        for _ in 0..1_000 {
            self.claim(&[]).await;
            if self.length("-wal") < MIB {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the log still has {} bytes", self.length("-wal"));
    }

    /// Makes the writer wait in a batch of its own. All other jobs gather in one batch until the
    /// sender is dropped.
    async fn hold_the_writer(&self) -> (mpsc::Sender<()>, impl Future<Output = ()>) {
        let (open, gate) = mpsc::channel::<()>();
        let (begin, mut begun) = tokio::sync::mpsc::channel(1);
        let hold = self.store.writes.run(1, move |_| {
            begin.try_send(()).unwrap();
            Ok(gate.recv().is_err())
        });
        let mut hold = Box::pin(hold.map(|held| assert!(held.unwrap())));
        assert!(matches!(select(&mut hold, pin!(begun.recv())).await, Either::Right(_)));
        (open, hold)
    }

    fn length(&self, suffix: &str) -> u64 {
        let file = self.folder.path().join(format!("delayd.db{suffix}"));
        std::fs::metadata(file).map_or(0, |file| file.len())
    }
}

#[tokio::test]
async fn adds_stop_at_the_reserve_and_come_back_a_margin_above_it() {
    let disk = Disk::of(100 * MIB);
    let bench = bench_on(&disk);
    let check = async |free: u64, is_refused: bool| {
        disk.leave(free);
        assert_eq!(bench.add_is_refused().await, is_refused, "{free} bytes free");
    };
    check(RESERVE + MIB, false).await;
    check(RESERVE - 100_000, true).await;
    check(RESERVE + 100_000, true).await;
    check(RESERVE / 4 * 5 + 100_000, false).await;
    check(RESERVE + 200_000, false).await;
    check(0, true).await;
    assert_eq!(bench.length("-ballast"), RESERVE / 4, "it is for writes that find no room");
    check(100 * MIB, false).await;
}

#[tokio::test]
async fn below_the_reserve_everything_but_new_tasks_goes_on() {
    let disk = Disk::of(100 * MIB);
    let bench = bench_on(&disk);
    let first = bench.add("a", 0).await;
    let second = bench.add("b", 60_000).await;
    let key = bench.store.add(vec![keyed(0)]).await.remove(0).unwrap().id;
    disk.leave(RESERVE / 2);
    assert!(bench.add_is_refused().await);
    let new_topic = TopicEntry { topic: "new".parse().unwrap(), shards: 1 };
    assert!(
        matches!(bench.store.create(new_topic, None).await, Err(Error::Full(_))),
        "a new topic needs room as well"
    );
    assert_eq!(
        bench.store.create(topic(), None).await.unwrap(),
        topic(),
        "a known one is only looked up"
    );
    let (destination, content) = ("a".parse().unwrap(), "{}".into());
    let content = Some(NewContent { destination, content, keeps_mode: false });
    let now = Moment::After(Duration::ZERO);
    let moved = bench.store.reschedule(&lane(), second, None, now, content).await;
    assert!(matches!(moved, Err(Error::Full(_))), "{moved:?}");

    let moved = bench.store.add(vec![keyed(60_000)]).await.remove(0);
    assert!(matches!(moved, Err(Error::Full(_))), "a push-back writes a body as well");
    let note = bench.store.note(vec![note(first)]).await;
    assert!(matches!(note, Err(Error::Full(_))), "notes are the first to go");
    let topic_name = topic().topic;
    assert!(bench.store.pause(&topic_name).await.unwrap().is_some());
    assert_eq!(bench.store.resume(&topic_name, Some(Misfired::Dead)).await.unwrap(), Some(true));

    let receipt = bench.claim(&[("k", 1)]).await.receipt;
    assert_eq!(bench.settle(key, &receipt, dead()).await, Settled::Done);
    let call = bench.get(key).await.options.on_dead.unwrap().task_id.unwrap();
    assert_eq!(
        bench.state(call).await,
        State::Scheduled,
        "the call for the dead lives on the reserve"
    );

    let receipt = bench.lease().await;
    let lease = Duration::from_secs(60);
    assert_eq!(
        bench.store.extend(Asker::Worker, &lane(), first, &receipt, lease).await.unwrap(),
        Settled::Done
    );
    assert_eq!(bench.settle(first, &receipt, retry(0)).await, Settled::Done);
    let receipt = bench.lease().await;
    assert_eq!(bench.settle(first, &receipt, delivered()).await, Settled::Done);
    bench.store.reschedule(&lane(), second, None, now, None).await.unwrap();
    bench.store.cancel(&lane(), second, None).await.unwrap();
    assert_eq!(bench.state(second).await, State::Cancelled);
    bench.advance(1);
    let purged =
        bench.store.purge(&lane(), 0, State::Delivered, bench.clock.now(), 10).await.unwrap();
    assert_eq!(purged, 1, "what ended is forgotten, or there would never be room again");
}

#[tokio::test]
async fn what_a_batch_asks_for_must_fit_beside_the_reserve() {
    let disk = Disk::of(100 * MIB);
    let bench = bench_on(&disk);
    disk.leave(3 * MIB);
    let refused = bench.store.add((0..20).map(|_| sized("a", 100_000)).collect()).await;
    assert!(refused.iter().all(|answer| matches!(answer, Err(Error::Full(_)))));
    assert!(!bench.add_is_refused().await, "a small one fits");
}

#[tokio::test]
async fn a_full_file_refuses_adds_whole_and_goes_on_when_there_is_room() {
    let bench = bench_on(&Disk::of(100 * MIB));
    let before = bench.add("a", 0).await;
    bench.limit_size(Some(800)).await;
    let batch = || (0..20).map(|_| sized("b", 100_000)).collect();
    let refused = bench.store.add(batch()).await;
    assert_eq!(refused.len(), 20);
    assert!(refused.iter().all(|answer| matches!(answer, Err(Error::Full(_)))), "{refused:?}");
    assert_eq!(
        bench.store.stats(&lane()).await.unwrap(),
        Counts { scheduled: 1, earliest: Some(START), ..Counts::default() }
    );
    // Settles need little room, and continue.
    let receipt = bench.lease().await;
    assert_eq!(bench.settle(before, &receipt, delivered()).await, Settled::Done);
    assert_eq!(bench.next_due().await, None);

    bench.limit_size(None).await;
    assert!(bench.store.add(batch()).await.iter().all(Result::is_ok));
    assert_eq!(bench.claim(&[("b", 100)]).await.tasks.len(), 20);
    assert!(!*bench.store.fatal().borrow());
}

/// The disk reports room and has none: SQLite rolls back the whole transaction, with its settle.
#[tokio::test]
async fn a_settle_in_the_batch_of_an_add_that_fills_the_disk_is_carried_out_without_it() {
    let disk = Disk::of(100 * MIB);
    let bench = bench_on(&disk);
    let id = bench.add("a", 0).await;
    let receipt = bench.lease().await;
    assert_eq!(bench.length("-ballast"), RESERVE / 4);
    bench.limit_size(Some(800)).await;

    let (open, hold) = bench.hold_the_writer().await;
    let large: Vec<_> = (0..20).map(|_| sized("b", 100_000)).collect();
    let ((), added, settled, also_added) = tokio::join!(
        hold,
        bench.store.add(large),
        // A worker's would wait for others of its kind.
        bench.settle_by(Asker::Caller, id, &receipt, delivered()),
        async {
            let (added, ()) = tokio::join!(bench.store.add(vec![new_task("c", 0)]), async {
                // Until all have reached the queue, which takes a few turns.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                drop(open);
            });
            added
        }
    );
    assert!(added.iter().all(|answer| matches!(answer, Err(Error::Full(_)))), "{added:?}");
    assert!(matches!(also_added[0], Err(Error::Full(_))), "{also_added:?}");
    assert_eq!(settled, Settled::Done);
    assert_eq!(bench.state(id).await, State::Delivered);
    assert_eq!(
        bench.store.stats(&lane()).await.unwrap().scheduled,
        0,
        "nothing of a refused add is there"
    );
    assert_eq!(bench.length("-ballast"), 0, "the ballast is released");
    assert!(!*bench.store.fatal().borrow());

    disk.leave(RESERVE / 4 * 5);
    bench.limit_size(None).await;
    assert!(bench.add_is_refused().await, "not before there is room for the ballast as well");
    disk.leave(4 * MIB);
    assert!(!bench.add_is_refused().await);
    assert!(!bench.add_is_refused().await);
    assert_eq!(bench.length("-ballast"), RESERVE / 4, "the ballast is taken again");
}

#[tokio::test]
async fn a_store_opens_on_a_full_disk_and_works_what_is_there() {
    let disk = Disk::of(100 * MIB);
    let bench = bench_on(&disk);
    let id = bench.add("a", 0).await;
    bench.lease().await;
    let Bench { store, clock, folder } = bench;
    drop(store);
    disk.leave(0);
    let bench = disk.open(folder, clock);
    assert_eq!(bench.length("-ballast"), 0, "it is released, for the opening needs a little room");
    assert_eq!(bench.state(id).await, State::Scheduled, "the lease of the process before is void");
    assert!(bench.add_is_refused().await);
    let receipt = bench.lease().await;
    assert_eq!(bench.settle(id, &receipt, delivered()).await, Settled::Done);
    disk.leave(100 * MIB);
    assert!(!bench.add_is_refused().await);
}

/// Its dead-letter call is as large as the task, and would block all other ends in its batch for as
/// long as the disk is full.
#[tokio::test]
async fn a_task_dies_on_a_full_disk_and_its_call_is_stored_when_there_is_room() {
    let disk = Disk::of(100 * MIB);
    let bench = bench_on(&disk);
    let large = NewTask { content: "x".repeat(2_000_000), ..keyed(0) };
    let (dying, other) =
        (bench.store.add(vec![large]).await.remove(0).unwrap().id, bench.add("k", 0).await);
    let receipt = bench.claim(&[("k", 2)]).await.receipt;
    bench.limit_size(Some(2_400)).await;
    let settle = |id, transition| Settle { lane: lane(), id, receipt: receipt.clone(), transition };
    let settled = bench
        .store
        .settle(Asker::Worker, vec![settle(dying, dead()), settle(other, delivered())])
        .await;
    assert!(settled.iter().all(|settled| matches!(settled, Ok(Settled::Done))), "{settled:?}");
    assert_eq!(
        (bench.state(dying).await, bench.state(other).await),
        (State::Dead, State::Delivered)
    );
    let call = bench.get(dying).await.options.on_dead.unwrap().task_id.unwrap();
    let made = async || bench.store.get(Reader::Worker, &lane(), call).await.unwrap();
    assert_eq!(made().await, None, "there is no room for it");

    bench.claim(&[]).await;
    assert_eq!(made().await, None, "still none, and the claim goes on");
    bench.limit_size(None).await;
    bench.store.purge(&lane(), 0, State::Delivered, UnixMillis(0), 1).await.unwrap();
    assert_eq!(bench.claim(&[("b", 9)]).await.tasks[0].id, call);
    bench.assert_in_order().await;
}

/// A file never shrinks. If its free pages were not counted, a store that filled its disk once
/// would refuse adds for ever.
#[tokio::test]
async fn what_was_purged_makes_room_though_the_file_stays_as_large() {
    let disk = Disk::of(100 * MIB);
    let bench = bench_on(&disk);
    bench.store.add((0..30).map(|_| sized("a", 100_000)).collect()).await;
    let grant = bench.claim(&[("a", 30)]).await;
    for task in &grant.tasks {
        bench.settle(task.id, &grant.receipt, delivered()).await;
    }
    disk.leave(RESERVE / 2);
    bench.wait_until_the_log_is_cut().await;
    assert!(bench.add_is_refused().await);
    let far = UnixMillis(i64::MAX);
    assert_eq!(bench.store.purge(&lane(), 0, State::Delivered, far, 100).await.unwrap(), 30);
    assert!(!bench.add_is_refused().await);
}

#[tokio::test]
async fn the_log_is_cut_when_the_disk_grows_full() {
    let disk = Disk::of(10_000 * MIB);
    let bench = bench_on(&disk);
    for _ in 0..10 {
        bench.store.add((0..10).map(|_| sized("a", 100_000)).collect()).await;
    }
    let before = bench.length("-wal");
    assert!(before > 5 * MIB, "{before}");
    disk.leave(RESERVE / 2);
    bench.wait_until_the_log_is_cut().await;
}

#[tokio::test]
async fn a_small_volume_keeps_a_quarter_in_reserve_and_a_tiny_one_is_refused() {
    let disk = Disk { total: 4 * MIB, ..Disk::of(4 * MIB) };
    let bench = bench_on(&disk);
    assert!(!bench.add_is_refused().await);
    assert_eq!(bench.length("-ballast"), MIB / 4);
    let tiny = Disk::of(3 * MIB);
    let refusal = Embedded::open_on(
        tiny.params(&tempfile::tempdir().unwrap()),
        Clock::manual(START),
        PushLeases::Void,
    )
    .unwrap_err();
    assert!(matches!(&refusal, Error::Misconfigured(text) if text.contains("volume")), "{refusal}");
}

#[tokio::test]
async fn a_volume_that_says_nothing_of_itself_has_room_until_a_write_finds_none() {
    let bench = bench_on(&Disk::of(0));
    assert!(!bench.add_is_refused().await);
    bench.claim(&[]).await;
    assert_eq!(bench.length("-ballast"), RESERVE / 4, "the reserve is the configured one");
    bench.limit_size(Some(800)).await;
    let refused = bench.store.add((0..20).map(|_| sized("b", 100_000)).collect()).await;
    assert!(refused.iter().all(|answer| matches!(answer, Err(Error::Full(_)))), "{refused:?}");
    assert_eq!(bench.length("-ballast"), 0);
    bench.limit_size(None).await;
    assert!(!bench.add_is_refused().await);
}

/// Nothing was written, because the caller had disconnected; so nothing is known of the room.
#[tokio::test]
async fn an_add_that_was_left_undone_does_not_end_the_trouble() {
    let bench = bench_on(&Disk::of(100 * MIB));
    bench.limit_size(Some(800)).await;
    bench.store.add((0..20).map(|_| sized("b", 100_000)).collect()).await;
    assert_eq!(bench.length("-ballast"), 0, "it was released");

    let (open, hold) = bench.hold_the_writer().await;
    let ((), ()) = tokio::join!(hold, async {
        // Queued, and then given up.
        let given_up =
            tokio::time::timeout(Duration::ZERO, bench.store.add(vec![new_task("c", 0)])).await;
        assert!(given_up.is_err());
        drop(open);
    });
    bench.claim(&[]).await;
    bench.claim(&[]).await;
    assert_eq!(bench.length("-ballast"), 0, "it is taken again when an add has found room");
    bench.limit_size(None).await;
    assert!(!bench.add_is_refused().await);
    bench.claim(&[]).await;
    assert_eq!(bench.length("-ballast"), RESERVE / 4);
}

/// A check beside a busy store reads for minutes, and each commit used to wait for it.
#[tokio::test(start_paused = true)]
async fn a_log_that_a_reader_holds_is_not_waited_for_after_each_commit() {
    let (disk, folder) = (Disk::of(10_000 * MIB), tempfile::tempdir().unwrap());
    let params = disk.params(&folder);
    let db = schema::open(&params.path).unwrap();
    let mut space = Space::new(params.clone()).unwrap();
    let reader = schema::open_reader(&params.path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM task").unwrap();
    db.execute_batch("CREATE TABLE filler AS SELECT randomblob(4000000) AS bytes").unwrap();
    disk.leave(MIB);
    space.look_if_due(&db);
    let (wake, _wakes) = mpsc::sync_channel(1);
    let hold = Hold::on(schema::open_reader(&params.path).unwrap());
    let mut keeper = LogKeeper::new(wake, Turn::default(), hold).unwrap();
    let mut tend_and_measure = || {
        keeper.tend(&db, &mut space, false).unwrap();
        space.look_if_due(&db);
        std::fs::metadata(folder.path().join("delayd.db-wal")).unwrap().len()
    };
    assert!(tend_and_measure() > 3 * MIB, "the reader holds it");
    reader.execute_batch("COMMIT").unwrap();
    assert!(tend_and_measure() > 3 * MIB, "it has just been tried in vain");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(tend_and_measure(), 0);
}

/// The moments are missed as in an outage. What is stored is called, and a schedule can be paused.
#[tokio::test]
async fn below_the_reserve_nothing_is_planned() {
    let disk = Disk::of(100 * MIB);
    let bench = bench_on(&disk);
    let set = async |name: &str| {
        let (name, definition) = (name.parse().unwrap(), "{}".to_owned());
        let new = NewSchedule { name, definition, revision: 7, moved: None };
        bench.store.set_schedule(&topic(), new).await
    };
    let ScheduleSet::Created(schedule) = set("a").await.unwrap() else { panic!("it is new") };
    disk.leave(RESERVE / 2);
    assert!(matches!(set("b").await, Err(Error::Full(_))));
    let (since, look) = (schedule.since, START);
    let next = NextOccurrence { task: new_task("a", 0), since, look };
    let plan = || Plan {
        topic: topic(),
        name: schedule.name.clone(),
        revision: 7,
        cursor: None,
        since,
        next: Some(next.clone()),
        missed: None,
        look_again: START,
    };
    let planned = bench.store.plan(plan()).await;
    assert!(matches!(planned, Err(Error::Full(_))), "{planned:?}");
    let due = bench.store.due_schedules(&lane(), 0).await.unwrap();
    assert_eq!(due.names, std::slice::from_ref(&schedule.name), "the planner tries again");
    disk.leave(100 * MIB);
    assert!(matches!(bench.store.plan(plan()).await.unwrap(), Planned::Added { .. }));
    disk.leave(RESERVE / 2);
    assert_eq!(bench.claim(&[("a", 9)]).await.tasks.len(), 1);
    let (lane, pause) = (lane(), Some(Pause::Operator));
    assert!(bench.store.pause_schedule(&lane, &schedule.name, pause).await.unwrap().is_some());
    assert!(bench.store.delete_schedule(&lane, &schedule.name).await.unwrap());
}
