//! Files as a power cut, a newer version, another program or a bad disk leaves them.

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use rusqlite::Connection;

use super::Embedded;
use super::disk::schema::PAGE;
use super::testing::{Bench, START, bench, delivered, lane, new_task, params, retry};
use crate::model::clock::Clock;
use crate::model::task::{State, TaskId};
use crate::store::{
    Asker, Counts, Creator, Error, FORMAT, Formats, NewTask, Reader, Registered, Settle, Settled,
    Signals, Store, TopicEntry,
};

/// A frame of the log: a head, and a page.
const FRAME: u64 = 24 + PAGE as u64;

fn open(folder: &Path) -> Result<Embedded, Error> {
    Embedded::open(params(folder, &Clock::manual(START)))
}

/// The files as a power cut leaves them: copied while the store is open, without the index, which
/// is never synced.
fn copy_of(bench: &Bench) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["delayd.db", "delayd.db-wal"] {
        std::fs::copy(bench.folder.path().join(name), folder.path().join(name)).unwrap();
    }
    let log = folder.path().join("delayd.db-wal");
    (folder, log)
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

/// Two files have two ids. A copy has the id of its original, and `replace` gives it another.
#[tokio::test]
async fn a_file_keeps_its_id_until_it_is_given_another() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(one.path()).unwrap();
    let id = store.id().await.unwrap();
    assert_ne!(open(two.path()).unwrap().id().await.unwrap(), id);
    let path = one.path().join("delayd.db");
    let refused = Embedded::replace_id(&path).unwrap_err().to_string();
    assert!(refused.contains("another process works on"), "{refused}");
    drop(store);
    assert_eq!(open(one.path()).unwrap().id().await.unwrap(), id);
    std::fs::copy(&path, two.path().join("delayd.db")).unwrap();
    for beside in ["delayd.db-wal", "delayd.db-shm"] {
        let _ = std::fs::remove_file(two.path().join(beside));
    }
    assert_eq!(open(two.path()).unwrap().id().await.unwrap(), id);
    let (before, fresh) = Embedded::replace_id(&two.path().join("delayd.db")).unwrap();
    assert!(before == id && fresh != id);
    assert_eq!(open(two.path()).unwrap().id().await.unwrap(), fresh);
    assert_eq!(open(one.path()).unwrap().id().await.unwrap(), id);
    let missing = Embedded::replace_id(&two.path().join("none.db")).unwrap_err().to_string();
    assert!(
        missing.contains("there is no store at") && !two.path().join("none.db").exists(),
        "{missing}"
    );
}

async fn assert_kept(store: &Embedded, ids: &[TaskId]) {
    for id in ids {
        assert!(
            store.get(Reader::Worker, &lane(), *id).await.unwrap().is_some(),
            "task {id} was answered and is lost"
        );
    }
    let counts = store.stats(&lane()).await.unwrap();
    assert_eq!(
        counts,
        Counts { scheduled: ids.len() as u64, earliest: counts.earliest, ..Counts::default() }
    );
}

/// Every answered task is there, wherever the log is torn within the frames of the unanswered one.
#[tokio::test]
async fn a_log_torn_in_what_was_not_answered_loses_nothing_that_was() {
    let bench = bench();
    let mut answered = Vec::new();
    for _ in 0..20 {
        answered.push(bench.add("a", 60_000).await);
    }
    let end = length(&bench.folder.path().join("delayd.db-wal"));
    // Answered here, but not in the sequence of the copies.
    let late = NewTask { content: "x".repeat(20_000), ..new_task("a", 60_000) };
    bench.store.add(vec![late]).await.remove(0).unwrap();
    let whole = length(&bench.folder.path().join("delayd.db-wal"));
    assert!(whole >= end + 5 * FRAME, "{end} to {whole}");
    for cut in
        [end, end + 1, end + 24, end + FRAME, end + 2 * FRAME + 100, whole - FRAME, whole - 1]
    {
        let (folder, log) = copy_of(&bench);
        std::fs::OpenOptions::new().write(true).open(log).unwrap().set_len(cut).unwrap();
        let store = open(folder.path()).unwrap();
        assert_kept(&store, &answered).await;
        assert!(store.add(vec![new_task("a", 0)]).await[0].is_ok(), "torn at {cut}");
    }
}

/// A disk may have the length of appended data, and not its bytes.
#[tokio::test]
async fn garbage_behind_the_last_commit_is_passed_over() {
    let bench = bench();
    let mut answered = Vec::new();
    for _ in 0..20 {
        answered.push(bench.add("a", 60_000).await);
    }
    for garbage in
        [vec![0; 10_000], vec![0xa5; 100], (0..50_000).map(|byte| (byte % 251) as u8).collect()]
    {
        let (folder, log) = copy_of(&bench);
        let mut bytes = std::fs::read(&log).unwrap();
        bytes.extend_from_slice(&garbage);
        std::fs::write(&log, bytes).unwrap();
        assert_kept(&open(folder.path()).unwrap(), &answered).await;
    }
}

/// It would write data that only older programs read, or skip data that it cannot read.
#[test]
fn a_file_of_a_newer_format_is_refused() {
    let bench = bench();
    let path = bench.folder.path().join("delayd.db");
    let Bench { store, folder, .. } = bench;
    drop(store);
    assert_eq!(
        Embedded::formats(&path).unwrap(),
        Formats { stored: FORMAT, newest: FORMAT },
        "a new one has it"
    );
    set_format(&path, FORMAT + 1);
    let params = || params(folder.path(), &Clock::manual(START));
    let refusals = [
        open(folder.path()).unwrap_err(),
        Embedded::open_for_check(params(), false).unwrap_err(),
        Embedded::open_for_check(params(), true).unwrap_err(),
        Embedded::probe(&params()).unwrap_err(),
        Embedded::formats(&path).unwrap_err(),
        Embedded::raise_format(&path).unwrap_err(),
        Embedded::replace_id(&path).unwrap_err(),
    ];
    let says = format!(
        "has format {}, and this version of delayd knows formats up to {FORMAT}",
        FORMAT + 1
    );
    for refusal in refusals {
        let is_clear = matches!(&refusal, Error::Misconfigured(text) if text.contains(&says));
        assert!(is_clear && refusal.to_string().contains("delayd.db"), "{refusal}");
    }
}

/// A file of a version that did not keep the creators of topics.
#[tokio::test]
async fn the_topics_of_an_older_schema_have_no_creator() {
    let folder = tempfile::tempdir().unwrap();
    let old = TopicEntry { topic: "old".parse().unwrap(), shards: 2 };
    let store = open(folder.path()).unwrap();
    store.create(old.clone(), None).await.unwrap();
    store.close().await;
    drop(store);
    let db = Connection::open(folder.path().join("delayd.db")).unwrap();
    db.execute_batch(
        "DROP INDEX topic_by_creator; ALTER TABLE topic DROP COLUMN created_by; \
         PRAGMA user_version = 1",
    )
    .unwrap();
    drop(db);
    let store = open(folder.path()).unwrap();
    let creator = Creator { token: "shop".into(), most: Some(1) };
    let new = TopicEntry { topic: "new".parse().unwrap(), shards: 1 };
    assert_eq!(store.create(new.clone(), Some(creator)).await.unwrap(), new);
    let new = Registered { created_by: Some("shop".into()), ..Registered::plain(new) };
    assert_eq!(store.topics().await.unwrap(), [new, Registered::plain(old)]);
}

#[test]
fn a_format_is_raised_while_nothing_has_the_file_open() {
    let bench = bench();
    let path = bench.folder.path().join("delayd.db");
    let refusal = Embedded::raise_format(&path).unwrap_err().to_string();
    assert!(refusal.contains("another process works on"), "{refusal}");
    let Bench { store, folder, .. } = bench;
    drop(store);
    set_format(&path, FORMAT - 1);
    // An older format is read too: it is part of the newer one.
    drop(open(folder.path()).unwrap());
    let before = Formats { stored: FORMAT - 1, newest: FORMAT };
    assert_eq!(Embedded::formats(&path).unwrap(), before);
    assert_eq!(Embedded::raise_format(&path).unwrap(), before);
    assert!(!Embedded::raise_format(&path).unwrap().can_rise());
    let none = Embedded::formats(&folder.path().join("none.db")).unwrap_err().to_string();
    assert!(none.contains("there is no store at"), "{none}");
}

fn set_format(path: &Path, format: u32) {
    let db = Connection::open(path).unwrap();
    db.execute("UPDATE meta SET value = ? WHERE name = 'format'", [format]).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// The first page was written, and the journal that would undo it not yet removed. The start was
/// refused from then on: only a connection that writes can roll a journal back.
#[test]
fn a_first_start_that_was_cut_off_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let magic = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    // No page to write back; a number for checksums; the file had no pages; sector and page size.
    let numbers = [0_u32, 7, 0, 512, 4_096].map(u32::to_be_bytes).concat();
    let mut journal = [&magic[..], &numbers].concat();
    journal.resize(512, 0);
    std::fs::write(folder.path().join("delayd.db-journal"), journal).unwrap();
    std::fs::write(folder.path().join("delayd.db"), [0; 4_096]).unwrap();
    open(folder.path()).unwrap();
}

#[test]
fn a_database_of_another_program_is_refused_and_not_touched() {
    for version in [0, 1, 7] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delayd.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("CREATE TABLE bookmark (url TEXT); INSERT INTO bookmark VALUES ('x')")
            .unwrap();
        db.pragma_update(None, "user_version", version).unwrap();
        drop(db);
        refused_and_untouched(&folder, "another program");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("delayd.db"),
        "a letter that somebody keeps here. ".repeat(200),
    )
    .unwrap();
    refused_and_untouched(&folder, "no store of delayd");
}

fn refused_and_untouched(folder: &tempfile::TempDir, says: &str) {
    let path = folder.path().join("delayd.db");
    let before = std::fs::read(&path).unwrap();
    let refusal = open(folder.path()).unwrap_err();
    assert!(matches!(&refusal, Error::Misconfigured(text) if text.contains(says)), "{refusal}");
    assert!(refusal.to_string().contains("delayd.db"), "{refusal}");
    assert!(std::fs::read(&path).unwrap() == before, "it was changed");
}

/// The damage is where the start reads: the tables of tasks in flight, of names, and of the last
/// id.
#[tokio::test]
async fn a_damaged_file_is_one_clear_error() {
    let bench = bench();
    bench.add("a", 0).await;
    bench.lease().await;
    bench.store.close().await;
    let path = bench.folder.path().join("delayd.db");
    let whole = std::fs::read(&path).unwrap();
    let page = usize::from(PAGE);
    let mut refused = 0;
    for at in 0..whole.len() / page {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = whole.clone();
        let from = at * page + if at == 0 { 100 } else { 0 };
        bytes[from..(at + 1) * page].fill(0xa5);
        std::fs::write(folder.path().join("delayd.db"), bytes).unwrap();
        // Damage elsewhere is an error only of the calls that meet it.
        if let Err(error) = open(folder.path()) {
            refused += 1;
            assert!(
                matches!(&error, Error::Corrupt(text) if text.contains("delayd.db is damaged")),
                "page {at}: {error}"
            );
        }
    }
    assert!(refused >= 3, "only {refused} pages were missed");
}

/// The earliest moments are written once per transaction, for all of its jobs. If all jobs were
/// told that the store is broken, the worker would drop their settles, and delivered tasks would be
/// called again.
#[tokio::test]
async fn a_schedule_that_cannot_be_written_fails_its_own_tasks_alone() {
    let bench = bench();
    let (bad, good) = (bench.add("a", 0).await, bench.add("b", 0).await);
    let receipt = bench.claim(&[("a", 1), ("b", 1)]).await.receipt;
    let break_it = "CREATE TRIGGER bad BEFORE UPDATE ON destination WHEN old.name = 'a'
                    BEGIN SELECT RAISE(ABORT, 'the row is damaged'); END";
    bench.store.writes.run(1, move |tx| tx.db.execute_batch(break_it)).await.unwrap();

    let (open, gate) = mpsc::channel::<()>();
    let hold = bench.store.writes.run(1, move |_| Ok(gate.recv().is_err()));
    let settle = |id, transition| Settle { lane: lane(), id, receipt: receipt.clone(), transition };
    let (held, failed, settled, ()) = tokio::join!(
        hold,
        bench.store.settle(Asker::Worker, vec![settle(bad, retry(0))]),
        bench.store.settle(Asker::Worker, vec![settle(good, delivered())]),
        async { drop(open) }
    );
    held.unwrap();
    assert!(
        matches!(&failed[0], Err(Error::Corrupt(text)) if text.contains("damaged")),
        "{failed:?}"
    );
    assert_eq!(settled[0].as_ref().unwrap(), &Settled::Done);
    assert_eq!(
        (bench.state(bad).await, bench.state(good).await),
        (State::Leased, State::Delivered)
    );
}
