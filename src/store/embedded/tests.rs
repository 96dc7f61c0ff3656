//! The whole store over a real file: what survives, and what a failed batch leaves. The conformance
//! suite tests what its methods do.

use std::pin::Pin;
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::ffi;

use super::Embedded;
use super::testing::{Bench, START, bench, delivered, lane, names, new_task, params, retry, topic};
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{ScheduleName, State};
use crate::store::{
    Asker, Cancelled, CheckCursor, ContinuedSchedule, Counts, Error, Look, NewSchedule, Pause,
    Reader, Registered, Settled, Signals, Store, TopicEntry, Transition,
};

#[tokio::test]
async fn a_closed_store_opens_again_with_everything() {
    let bench = bench();
    let waiting = bench.add("a", 60_000).await;
    let ended = bench.add("a", 0).await;
    let receipt = bench.lease().await;
    assert_eq!(bench.settle(ended, &receipt, delivered()).await, Settled::Done);
    bench.store.close().await;
    assert!(matches!(bench.store.ping().await, Err(Error::Unavailable(_))));

    let bench = bench.reopen();
    assert_eq!(bench.state(waiting).await, State::Scheduled);
    assert_eq!(bench.state(ended).await, State::Delivered);
    assert_eq!(bench.settle(ended, &receipt, delivered()).await, Settled::Done);
    assert_eq!(bench.next_due().await, Some(60_000));
    assert_eq!(bench.store.topics().await.unwrap(), [Registered::plain(topic())]);
    assert!(bench.add("a", 0).await > ended, "ids go on");
}

/// The files as a kill leaves them: copied while the store is open.
#[tokio::test]
async fn a_kill_loses_nothing_that_was_answered() {
    let bench = bench();
    let mut added = Vec::new();
    for _ in 0..50 {
        added.push(bench.add("a", 1_000).await);
    }
    let after = tempfile::tempdir().unwrap();
    for name in ["delayd.db", "delayd.db-wal"] {
        std::fs::copy(bench.folder.path().join(name), after.path().join(name)).unwrap();
    }
    let store = Embedded::open(params(after.path(), &bench.clock)).unwrap();
    for id in added {
        assert!(store.get(Reader::Worker, &lane(), id).await.unwrap().is_some(), "{id}");
    }
    let log = std::fs::metadata(after.path().join("delayd.db-wal")).unwrap();
    assert_eq!(log.len(), 0, "what may be in the system's cache only is written anew");
}

#[tokio::test]
async fn a_second_process_is_refused_until_the_first_has_closed() {
    let bench = bench();
    let again = || Embedded::open(params(bench.folder.path(), &bench.clock));
    let refusal = again().unwrap_err();
    assert!(
        matches!(&refusal, Error::Misconfigured(text) if text.contains("another process")),
        "{refusal}"
    );
    bench.store.close().await;
    again().unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refusal = Embedded::open(params(&file, &Clock::manual(START))).unwrap_err();
    assert!(matches!(&refusal, Error::Misconfigured(text) if text.contains("folder")), "{refusal}");
}

#[tokio::test]
async fn an_io_error_fails_its_batch_and_ends_the_work() {
    let bench = bench();
    let id = bench.add("a", 0).await;
    let failed = bench
        .store
        .writes
        .run(1, |tx| {
            tx.db.execute("DELETE FROM schedule", [])?;
            Err::<(), _>(rusqlite::Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_IOERR_FSYNC),
                None,
            ))
        })
        .await;
    assert!(matches!(failed, Err(Error::Unavailable(_))));
    assert!(*bench.store.fatal().borrow());
    assert!(matches!(bench.store.add(vec![new_task("a", 0)]).await[0], Err(Error::Unavailable(_))));
    assert!(matches!(
        bench.store.get(Reader::Worker, &lane(), id).await,
        Err(Error::Unavailable(_))
    ));
    // Closing must not copy the log and delete it either: the next fsync might "succeed" without
    // having written a byte.
    let Bench { store, clock, folder } = bench;
    drop(store);
    assert!(std::fs::metadata(folder.path().join("delayd.db-wal")).unwrap().len() > 0);
    let bench =
        Bench { store: Embedded::open(params(folder.path(), &clock)).unwrap(), clock, folder };
    assert_eq!(bench.state(id).await, State::Scheduled);
}

#[tokio::test]
async fn a_start_voids_push_leases_and_leaves_pulled_ones() {
    let bench = bench();
    let pushed = bench.add("a", 0).await;
    let pulled = bench.add("@pull", 0).await;
    let cancelled = bench.add("b", 0).await;
    let grant = bench.claim(&[("a", 1), ("@pull", 1), ("b", 1)]).await;
    assert_eq!(grant.tasks.len(), 3);
    assert_eq!(bench.store.cancel(&lane(), cancelled, None).await.unwrap(), Cancelled::Pending);
    bench.advance(1_000);
    let bench = bench.reopen();
    let task = bench.get(pushed).await;
    assert_eq!((task.state, task.due.0 - START.0, task.attempts), (State::Scheduled, 1_000, 1));
    assert_eq!(bench.state(pulled).await, State::Leased);
    assert_eq!(bench.state(cancelled).await, State::Cancelled);
    assert_eq!(
        bench.settle(pushed, &grant.receipt, delivered()).await,
        Settled::Done,
        "a late success counts"
    );
}

#[tokio::test]
async fn a_claim_takes_the_earliest_of_each_wanted_destination_and_looks_ahead() {
    let bench = bench();
    let late = bench.add("a", 20).await;
    let early = bench.add("a", 10).await;
    bench.add("b", 15).await;
    bench.add("c", 70).await;
    bench.add("@pull", 5).await;
    assert_eq!(bench.next_due().await, Some(10));
    assert!(bench.claim(&[("a", 9)]).await.tasks.is_empty(), "not before its moment");
    bench.advance(50);
    let grant = bench.claim(&[("a", 1), ("unheard-of", 1)]).await;
    assert_eq!(
        grant.tasks.iter().map(|task| (task.id, task.attempt)).collect::<Vec<_>>(),
        [(early, 1)]
    );
    assert_eq!(names(&grant.outlook.due), ["b", "a"]);
    assert_eq!(grant.outlook.next, Some(UnixMillis(START.0 + 70)));
    let grant = bench.claim(&[("a", 9), ("b", 9)]).await;
    assert_eq!(grant.tasks.iter().map(|task| task.id).next(), Some(late));
    assert_eq!(names(&grant.outlook.due), [""; 0]);
    let earliest = Some(UnixMillis(START.0 + 5));
    let counts = Counts { scheduled: 2, leased: 3, earliest, ..Counts::default() };
    assert_eq!(bench.store.stats(&lane()).await.unwrap(), counts);
}

#[tokio::test]
async fn an_expired_lease_is_swept_to_its_deadline_and_its_holder_may_still_end_it() {
    let bench = bench();
    let id = bench.add("a", 0).await;
    let first = bench.lease().await;
    assert_eq!(bench.next_due().await, Some(30_000));
    bench.advance(30_000);
    let seen = bench.get(id).await;
    assert_eq!((seen.state, seen.due.0 - START.0), (State::Scheduled, 30_000));
    bench.advance(5_000);
    assert_eq!(names(&bench.claim(&[]).await.outlook.due), ["a"]);
    let seen = bench.get(id).await;
    assert_eq!((seen.state, seen.due.0 - START.0, seen.attempts), (State::Scheduled, 30_000, 1));
    let extended = bench
        .store
        .extend(Asker::Worker, &lane(), id, &first, Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!((extended, bench.state(id).await), (Settled::Done, State::Leased));
    assert_eq!(bench.next_due().await, Some(95_000));
    bench.advance(60_000);
    let second = bench.lease().await;
    assert_eq!(bench.settle(id, &first, retry(0)).await, Settled::Stale { state: State::Leased });
    assert_eq!(bench.settle(id, &first, delivered()).await, Settled::Done, "a late success");
    assert_eq!(
        bench.settle(id, &second, delivered()).await,
        Settled::Stale { state: State::Delivered }
    );
}

/// Every add woke the supervisor and the receivers of consumers' hints in vain.
#[tokio::test]
async fn an_add_behind_the_earliest_of_its_destination_hints_to_consumers_alone() {
    let bench = bench();
    let mut hints = bench.store.hints();
    let mut heard = async |destination: &str, after_ms: u64| {
        bench.add(destination, after_ms).await;
        hints.try_recv().is_ok()
    };
    assert!(heard("a", 50).await);
    assert!(!heard("a", 60).await);
    assert!(heard("a", 40).await);
    assert!(heard("b", 60).await, "its worker knows nothing of that one");
    assert!(heard("@pull", 50).await);
    assert!(heard("@pull", 60).await, "the one before may be another consumer's");
    bench.advance(40);
    bench.lease().await;
    assert!(heard("a", 5).await, "what was claimed is the earliest no more");
}

/// The worker learned of a task that a receiver had given back only at its next poll; also of tasks
/// added behind it.
#[tokio::test]
async fn what_is_put_back_is_told_unless_it_is_behind_the_earliest_of_its_destination() {
    let bench = bench();
    let mut hints = bench.store.hints();
    let mut heard = || hints.try_recv().ok().map(|hint| hint.due.0 - START.0);
    let id = bench.add("a", 0).await;
    assert_eq!(heard(), Some(0));
    let keep = async || {
        let receipt = bench.lease().await;
        let kept = Transition::Keep { lease: Duration::from_secs(60) };
        assert_eq!(bench.settle(id, &receipt, kept).await, Settled::Done);
        receipt
    };
    let receipt = keep().await;
    assert_eq!(heard(), None);
    assert_eq!(bench.settle(id, &receipt, retry(30)).await, Settled::Done);
    assert_eq!(heard(), Some(30));
    bench.add("a", 31).await;
    assert_eq!(heard(), None, "its worker looks a moment earlier");
    bench.advance(30);
    let receipt = keep().await;
    assert_eq!(bench.settle(id, &receipt, retry(10)).await, Settled::Done);
    assert_eq!(heard(), None, "there is one that is due before");
}

#[tokio::test]
async fn a_lost_registry_entry_is_found_again() {
    let bench = bench();
    bench.add("a", 0).await;
    bench.store.writes.run(1, |tx| tx.db.execute("DELETE FROM topic", [])).await.unwrap();
    assert_eq!(bench.store.recover_topics().await.unwrap(), [topic()]);
    assert_eq!(bench.store.topics().await.unwrap(), [Registered::plain(topic())]);
}

/// Two lists of all destinations, each as long as the number of tasks, used to block the workers
/// and the readiness probe.
#[tokio::test]
async fn scans_and_short_reads_do_not_wait_for_one_another() {
    let bench = bench();
    let id = bench.add("a", 1).await;
    let hold = |reads: &'static str| {
        let (gate, closed) = mpsc::channel::<()>();
        let queue = if reads == "scans" { &bench.store.scans } else { &bench.store.reads };
        (gate, queue.run(move |_| Ok(closed.recv().is_err())))
    };
    let answered = async |work: Pin<Box<dyn Future<Output = ()> + '_>>, what: &str| {
        assert!(tokio::time::timeout(Duration::from_secs(60), work).await.is_ok(), "{what} wait");
    };

    let (gate, held) = hold("scans");
    let short = async {
        bench.get(id).await;
        bench.next_due().await;
        bench.list(State::Scheduled, None, 9).await;
        bench.store.holds().await.unwrap();
        bench.store.ping().await.unwrap();
        assert_eq!(bench.store.stats(&lane()).await.unwrap().scheduled, 1);
    };
    // The caller that holds a thread for long learns that the disk is silent. The test is about the
    // callers behind it.
    let _ = tokio::join!(held, async {
        answered(Box::pin(short), "short reads").await;
        drop(gate)
    });

    let ((one, first), (two, second)) = (hold("reads"), hold("reads"));
    let scans = async {
        assert_eq!(bench.store.waiting(vec![lane()]).await.unwrap()[0].count, 1);
        bench.store.forecast(&lane(), Duration::from_secs(1), 9).await.unwrap();
        bench.store.check(CheckCursor::start(), false).await.unwrap();
    };
    // Polls of workers once waited behind the lists of viewers.
    let polls = async {
        bench.next_due().await;
        bench.store.next_pull(vec![lane()]).await.unwrap();
        bench.store.due_schedules(&lane(), 0).await.unwrap();
        let lanes = vec![lane()];
        let (workers, consumers, planners) = (lanes.clone(), lanes.clone(), lanes);
        let look = Look { workers, consumers, planners, ..Look::default() };
        let looked = bench.store.look(look).await;
        assert!(looked.next.is_ok() && looked.pulls.is_ok() && looked.plans.is_ok());
        assert!(looked.registry.is_ok() && looked.holds.is_ok());
        assert!(bench.store.topic(&topic().topic).await.unwrap().is_some());
        bench.store.create(topic(), None).await.unwrap();
        bench.store.ping().await.unwrap();
    };
    let open = async {
        answered(Box::pin(scans), "scans").await;
        answered(Box::pin(polls), "polls").await;
        drop((one, two))
    };
    let _ = tokio::join!(first, second, open);
}

/// Planners look at each topic that is said to have schedules, in every second.
#[tokio::test]
async fn only_topics_with_schedules_are_said_to_have_some_after_each_change_and_restart() {
    let bench = bench();
    let other = TopicEntry { topic: "other".parse().unwrap(), shards: 2 };
    let name: ScheduleName = "s".parse().unwrap();
    bench.store.create(other.clone(), None).await.unwrap();
    let with_schedules = async |bench: &Bench| {
        let found = bench.store.topics().await.unwrap().into_iter();
        let found = found.filter(|known| known.has_schedules);
        found.map(|known| known.entry.topic.to_string()).collect::<Vec<_>>()
    };
    let new = |revision| NewSchedule {
        name: name.clone(),
        definition: "1".into(),
        revision,
        moved: None,
    };
    bench.store.set_schedule(&topic(), new(1)).await.unwrap();
    assert_eq!(with_schedules(&bench).await, ["orders"]);
    let bench = bench.reopen();
    assert_eq!(with_schedules(&bench).await, ["orders"], "after a restart");
    let lane_of_other = name.lane_in(&other.topic, other.shards);
    bench.store.set_schedule(&other, new(2)).await.unwrap();
    assert!(bench.store.delete_schedule(&lane(), &name).await.unwrap());
    assert_eq!(with_schedules(&bench).await, ["other"], "after a deletion");
    bench.store.pause_schedule(&lane_of_other, &name, Some(Pause::Move)).await.unwrap();
    assert_eq!(with_schedules(&bench).await, ["other"], "while it moves");
    assert!(bench.store.forget_schedule(&lane_of_other, &name, 2).await.unwrap());
    assert_eq!(with_schedules(&bench).await, [] as [&str; 0], "after a move");
    let bench = bench.reopen();
    assert_eq!(with_schedules(&bench).await, [] as [&str; 0], "after another restart");
    assert!(bench.store.unregister(&other).await.unwrap());
    let moved = ContinuedSchedule {
        origin: "00c0ffee00c0ffee".parse().unwrap(),
        set: START,
        since: START,
        cursor: None,
        is_paused: false,
    };
    let adopted = NewSchedule { moved: Some(moved), ..new(3) };
    bench.store.set_schedule(&other, adopted).await.unwrap();
    assert_eq!(with_schedules(&bench).await, ["other"], "after an adopt");
}
