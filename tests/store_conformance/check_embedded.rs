//! Each flaw of the embedded store: made in the file, found, and repaired. Then the task takes its
//! normal course.

use delayd::model::clock::Clock;
use delayd::model::task::{State, TaskId};
use delayd::store::embedded::{Embedded, Params};
use delayd::store::{
    Admin, CheckCursor, Counts, Error, Finding, Flaw, Intake, NewTask, Registered, Settled, Store,
    Topics,
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::bench::{
    Bench, Held, START, at, dead, delivered, expiring, ids, keyed, lane, new_task, retry, topic_of,
};
use crate::check::check;

/// Sets each lane's counts to the number of its rows.
const COUNT: &str = "UPDATE lane SET
    scheduled = (SELECT count(*) FROM schedule s
                 JOIN destination d ON d.id = s.destination WHERE d.lane = lane.id),
    leased = (SELECT count(*) FROM progress p WHERE p.lane = lane.id AND p.leased = 1),
    delivered = (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 2),
    dead = (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 3),
    cancelled = (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 4),
    expired = (SELECT count(*) FROM history h WHERE h.lane = lane.id AND h.state = 5)";

/// A store, and direct access to its file.
pub(crate) struct Broken {
    pub(crate) bench: Bench<Embedded>,
    folder: TempDir,
}

fn params(folder: &TempDir, clock: &Clock) -> Params {
    Params { path: folder.path().join("delayd.db"), reserve: 1 << 20, clock: clock.clone() }
}

pub(crate) fn broken() -> Broken {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(START);
    let store = Embedded::open(params(&folder, &clock)).unwrap();
    Broken { bench: Bench::around(store, clock), folder }
}

impl Broken {
    fn db(&self) -> Connection {
        Connection::open(self.folder.path().join("delayd.db")).unwrap()
    }

    /// Runs statements on the file and corrects the lanes' counts. `$` stands for the task.
    fn hand(&self, id: TaskId, statements: &str) {
        self.hand_without_counting(id, statements);
        self.db().execute_batch(COUNT).unwrap();
    }

    /// Runs statements on the file that concern no task.
    pub(crate) fn change(&self, statements: &str) {
        self.db().execute_batch(statements).unwrap();
    }

    fn hand_without_counting(&self, id: TaskId, statements: &str) {
        self.db().execute_batch(&statements.replace('$', &id.to_string())).unwrap();
    }

    /// A check finds this and changes nothing. A repair corrects it. Then everything is in order.
    pub(crate) async fn mends(&self, expected: &[(Flaw, &str)]) {
        self.finds(expected, true).await;
        let report = check(&self.bench.store, false).await;
        assert!(report.findings.is_empty(), "after the repair: {:?}", report.findings);
    }

    pub(crate) async fn leaves_alone(&self, expected: &[(Flaw, &str)]) {
        self.finds(expected, false).await;
        self.finds(expected, false).await;
    }

    async fn finds(&self, expected: &[(Flaw, &str)], is_repaired: bool) {
        let mut expected: Vec<_> =
            expected.iter().map(|(flaw, subject)| (*flaw, (*subject).to_owned())).collect();
        expected.sort();
        let look = check(&self.bench.store, false).await;
        assert_eq!(look.flaws(), expected, "a check without repair");
        assert!(
            look.findings.iter().all(|found| !found.repaired),
            "a check without repair repaired something"
        );
        let report = check(&self.bench.store, true).await;
        assert_eq!(report.flaws(), expected, "a check with repair");
        assert!(
            report.findings.iter().all(|found| found.repaired == is_repaired),
            "{:?}",
            report.findings
        );
    }

    async fn is_called_once(&self, id: TaskId) {
        let held = self.bench.hold().await;
        assert_eq!(held.id, id);
        assert!(
            self.bench.claim(&[("message.call", 9)]).await.tasks.is_empty(),
            "the task was handed out twice"
        );
        assert_eq!(self.bench.settle(&held, delivered()).await, Settled::Done);
        assert_eq!(self.bench.state(id).await, State::Delivered);
    }

    async fn stays(&self, id: TaskId, state: State) {
        self.bench.advance(24 * 3_600_000);
        assert!(
            self.bench.claim(&[("message.call", 9), ("a", 9), ("b", 9)]).await.tasks.is_empty()
        );
        assert_eq!(self.bench.state(id).await, state);
    }
}

#[tokio::test]
async fn a_body_without_a_place_is_scheduled_for_its_moment_or_now() {
    let broken = broken();
    let held = broken.bench.add_held().await;
    broken.bench.settle(&held, retry(60_000)).await;
    let due = broken.bench.add("message.call", 0).await;
    broken.bench.advance(1_000);
    broken.hand(due, "DELETE FROM schedule; UPDATE destination SET earliest = NULL");
    let flaw = Flaw::BodyWithoutPlace;
    broken.mends(&[(flaw, &due.to_string()), (flaw, &held.id.to_string())]).await;
    assert_eq!(broken.bench.next_due().await, Some(at(0)));
    broken.is_called_once(due).await;
    broken.bench.advance(58_999);
    assert!(
        broken.bench.claim(&[("message.call", 1)]).await.tasks.is_empty(),
        "the task was handed out early"
    );
    broken.bench.advance(1);
    assert_eq!(broken.bench.get(held.id).await.attempts, 1);
    broken.is_called_once(held.id).await;
}

#[tokio::test]
async fn a_wrong_or_missing_earliest_moment_is_looked_up() {
    for moment in ["NULL", "9", "9000000000000"] {
        let broken = broken();
        let id = broken.bench.add("message.call", 0).await;
        broken.hand(id, &format!("UPDATE destination SET earliest = {moment}, called = 0"));
        broken
            .mends(&[(Flaw::EarliestWrong, "message.call"), (Flaw::CalledWrong, "message.call")])
            .await;
        assert_eq!(broken.bench.next_due().await, Some(at(0)));
        broken.is_called_once(id).await;
        broken.hand(id, "UPDATE destination SET earliest = 5");
        broken.mends(&[(Flaw::ListedWithoutSchedule, "message.call")]).await;
        assert_eq!(broken.bench.next_due().await, None);
    }
}

#[tokio::test]
async fn a_destination_without_a_valid_name_is_not_called() {
    let broken = broken();
    let id = broken.bench.add("message.call", 0).await;
    broken.hand(id, "UPDATE destination SET name = 'message call'");
    broken.mends(&[(Flaw::UnreadableDestination, "message call")]).await;
    assert_eq!(broken.bench.next_due().await, None);
}

#[tokio::test]
async fn references_to_a_missing_body_are_removed() {
    let broken = broken();
    let scheduled = broken.bench.add("a", 0).await;
    let held = broken.bench.add_held().await;
    let ended = broken.bench.add_held().await;
    broken.bench.settle(&ended, dead()).await;
    let retried = broken.bench.add_held().await;
    broken.bench.settle(&retried, retry(0)).await;
    broken.hand(scheduled, "DELETE FROM task");
    let flaws = [
        (Flaw::ScheduledWithoutBody, &*scheduled.to_string()),
        (Flaw::LeasedWithoutBody, &held.id.to_string()),
        (Flaw::EndedWithoutBody, &ended.id.to_string()),
        (Flaw::ScheduledWithoutBody, &retried.id.to_string()),
        (Flaw::EntryWithoutBody, &retried.id.to_string()),
    ];
    broken.mends(&flaws).await;
    assert_eq!(
        (broken.bench.counts().await, broken.bench.next_due().await),
        (Counts::default(), None)
    );
}

#[tokio::test]
async fn a_task_in_two_places_stays_where_it_should() {
    let broken = broken();
    let ended = broken.bench.add_held().await;
    broken.bench.settle(&ended, delivered()).await;
    let schedule = "INSERT INTO schedule SELECT destination, 7, id FROM task WHERE id = $;";
    let lease = "INSERT INTO progress
                 SELECT id, lane, destination, 1, 7, 1, 0, 0, 'r', NULL, NULL, NULL, 1, NULL
                 FROM task WHERE id = $;";
    broken.hand(ended.id, &format!("{schedule}{lease}UPDATE destination SET earliest = 7"));
    let id = ended.id.to_string();
    broken.mends(&[(Flaw::EndedYetLive, &*id), (Flaw::EndedYetLive, &id)]).await;
    broken.stays(ended.id, State::Delivered).await;

    let held = broken.bench.add_held().await;
    broken.hand(held.id, &format!("{schedule}UPDATE destination SET earliest = 7"));
    broken.mends(&[(Flaw::ScheduledAndLeased, &held.id.to_string())]).await;
    assert!(
        broken.bench.claim(&[("message.call", 9)]).await.tasks.is_empty(),
        "a leased task was handed out"
    );
    assert_eq!(broken.bench.settle(&held, delivered()).await, Settled::Done);

    let twice = broken.bench.add("message.call", 500).await;
    broken.hand(twice, &format!("{schedule}UPDATE destination SET earliest = 7"));
    broken.mends(&[(Flaw::DueDiffers, &twice.to_string())]).await;
    assert!(
        broken.bench.claim(&[("message.call", 9)]).await.tasks.is_empty(),
        "the task was handed out early"
    );
    broken.bench.advance(500);
    broken.is_called_once(twice).await;
}

#[tokio::test]
async fn a_lease_without_a_receipt_runs_to_its_end() {
    let broken = broken();
    let held = broken.bench.add_held().await;
    broken.hand(held.id, "UPDATE progress SET current = NULL");
    broken.mends(&[(Flaw::LeasedWithoutReceipt, &held.id.to_string())]).await;
    broken.bench.advance(29_999);
    assert!(
        broken.bench.claim(&[("message.call", 1)]).await.tasks.is_empty(),
        "a worker may still be calling the task"
    );
    broken.bench.advance(1);
    broken.is_called_once(held.id).await;

    let nobodys = broken.bench.add_held().await;
    let schedule =
        "INSERT INTO schedule SELECT destination, 1800000090000, id FROM task WHERE id = $;";
    let earliest = "UPDATE destination SET earliest = 1800000090000;";
    broken.hand(nobodys.id, &format!("UPDATE progress SET current = NULL; {schedule}{earliest}"));
    let id = nobodys.id.to_string();
    broken.mends(&[(Flaw::ScheduledAndLeased, &*id), (Flaw::LeasedWithoutReceipt, &id)]).await;
    assert_eq!(broken.bench.next_due().await, Some(at(60_000)));

    let cancelled = broken.bench.add_held().await;
    broken.bench.store.cancel(&lane(), cancelled.id, None).await.unwrap();
    broken.hand(cancelled.id, "UPDATE progress SET current = NULL WHERE id = $");
    broken.mends(&[(Flaw::CancelWithoutLease, &cancelled.id.to_string())]).await;
    assert_eq!(broken.bench.state(cancelled.id).await, State::Cancelled);
}

#[tokio::test]
async fn a_task_on_a_wrong_schedule_is_moved() {
    let broken = broken();
    let (id, other) =
        (broken.bench.add("message.call", 1_000).await, broken.bench.add("a", 0).await);
    let move_schedule = "UPDATE schedule
                         SET destination = (SELECT destination FROM task WHERE id = $)
                         WHERE id <> $";
    broken.hand(other, move_schedule);
    broken.hand(
        id,
        "UPDATE destination
         SET earliest = (SELECT min(due) FROM schedule WHERE destination = destination.id)",
    );
    let moved = id.to_string();
    broken.mends(&[(Flaw::WrongSchedule, &*moved), (Flaw::BodyWithoutPlace, &moved)]).await;
    assert_eq!(ids(&broken.bench.claim(&[("a", 9)]).await), [other]);
    broken.bench.advance(1_000);
    let held = broken.bench.hold().await;
    broken.bench.settle(&held, retry(1_000)).await;
    let move_lease = "UPDATE progress
                      SET destination = (SELECT destination FROM task WHERE id = $)
                      WHERE id <> $";
    broken.hand(other, move_lease);
    broken.mends(&[(Flaw::DestinationsDiffer, &id.to_string())]).await;
    broken.bench.advance(1_000);
    broken.is_called_once(id).await;
}

/// The row on the wrong schedule was the only one that the task had.
#[tokio::test]
async fn a_repair_that_ends_early_loses_no_task() {
    let broken = broken();
    let id = broken.bench.add("message.call", 0).await;
    broken.bench.add("a", 60_000).await;
    broken.hand(
        id,
        "UPDATE schedule SET destination = (SELECT id FROM destination WHERE name = 'a')
         WHERE id = $",
    );
    let mut next = Some(CheckCursor::start());
    let is_of_schedules = |found: &Finding| found.flaw == Flaw::WrongSchedule;
    loop {
        let checked = broken.bench.store.check(next.take().unwrap(), true).await.unwrap();
        if checked.findings.iter().any(is_of_schedules) {
            break;
        }
        next = checked.next;
    }
    broken.is_called_once(id).await;
}

#[tokio::test]
async fn an_invalid_moment_is_replaced() {
    for moment in ["-5", "9007199254740992"] {
        let broken = broken();
        let fresh = broken.bench.add("message.call", 0).await;
        let held = broken.bench.add("a", 0).await;
        broken.bench.claim(&[("a", 1)]).await;
        let ended = broken.bench.add("b", 0).await;
        broken.bench.store.cancel(&lane(), ended, None).await.unwrap();
        broken.hand(
            fresh,
            &format!(
                "UPDATE schedule SET due = {moment}; UPDATE task SET due = {moment} WHERE id = $"
            ),
        );
        broken.hand(
            held,
            &format!("UPDATE progress SET due = {moment}; UPDATE history SET finished = {moment}"),
        );
        broken.hand(
            held,
            "UPDATE destination
             SET earliest = (SELECT min(due) FROM schedule WHERE destination = destination.id)",
        );
        let flaw = Flaw::BadMoment;
        broken
            .mends(&[
                (flaw, &fresh.to_string()),
                (flaw, &held.to_string()),
                (flaw, &ended.to_string()),
            ])
            .await;
        assert_eq!(
            ids(&broken.bench.claim(&[("a", 1)]).await),
            [held],
            "the lease with the invalid deadline must be over"
        );
        broken.is_called_once(fresh).await;
        assert_eq!(broken.bench.get(ended).await.finished, Some(at(0)));
    }
}

#[tokio::test]
async fn unreadable_fields_are_written_again() {
    let broken = broken();
    let retried = broken.bench.add_held().await;
    broken.bench.settle(&retried, retry(0)).await;
    let ended = broken.bench.add("b", 0).await;
    broken.bench.store.cancel(&lane(), ended, None).await.unwrap();
    broken.hand(ended, "UPDATE progress SET attempts = -1, past = 'no,receipt ok', lane = 77");
    broken.hand(ended, "UPDATE history SET state = 9, current = '', lane = 77");
    let (retried, ended_name) = (retried.id.to_string(), ended.to_string());
    let flaw = Flaw::UnreadableEntry;
    let lanes = [(Flaw::LanesDiffer, &*retried), (Flaw::LanesDiffer, &*ended_name)];
    broken.mends(&[&lanes[..], &[(flaw, &*retried), (flaw, &*ended_name)]].concat()).await;
    let past: String =
        broken.db().query_row("SELECT past FROM progress", [], |row| row.get(0)).unwrap();
    assert_eq!(past, "ok", "a valid receipt was lost");
    broken.is_called_once(retried.parse().unwrap()).await;
    broken.stays(ended, State::Dead).await;
}

#[tokio::test]
async fn topics_and_counter_are_repaired() {
    let broken = broken();
    let id = broken.bench.add("message.call", 0).await;
    broken.hand(id, "DELETE FROM topic");
    broken.mends(&[(Flaw::UnregisteredTopic, "orders")]).await;
    broken.hand(id, "UPDATE topic SET shards = 0");
    broken.mends(&[(Flaw::UnreadableTopic, "orders")]).await;
    broken.hand(id, "UPDATE meta SET value = 5");
    broken.mends(&[(Flaw::BehindIds, &id.to_string())]).await;
    broken.hand(id, "DELETE FROM meta");
    broken.mends(&[(Flaw::UnreadableCounter, "last_id")]).await;
    assert!(broken.bench.add("message.call", 0).await > id);

    let entry = topic_of("sharded", 2);
    let task = NewTask { topic: entry.clone(), ..new_task("message.call", 0) };
    broken.bench.store.add(vec![task.clone(), task]).await;
    broken.hand(id, "UPDATE topic SET shards = 1 WHERE name = 'sharded'");
    let found = check(&broken.bench.store, true).await.flaws();
    assert!(found.contains(&(Flaw::LaneOutsideTopic, "sharded".into())), "{found:?}");
    broken.mends(&[]).await;
    assert!(broken.bench.store.topics().await.unwrap().contains(&Registered::plain(entry.clone())));
}

#[tokio::test]
async fn rows_that_name_nothing_are_left_alone() {
    let broken = broken();
    let foreign = broken.bench.add("message.call", 0).await;
    // Nor is one taken off its schedule that could not be put on another.
    for change in ["lane = 77", "due = due + 1"] {
        broken.hand(foreign, &format!("UPDATE task SET {change}"));
        broken.leaves_alone(&[(Flaw::ForeignRow, &foreign.to_string())]).await;
    }
    broken.hand(
        foreign,
        "UPDATE task SET lane = (SELECT id FROM lane), due = due - 1; UPDATE lane SET shard = 2;
         UPDATE topic SET shards = 3",
    );
    broken.leaves_alone(&[(Flaw::Misplaced, &foreign.to_string())]).await;
}

#[tokio::test]
async fn a_damaged_file_is_reported() {
    let broken = broken();
    let id = broken.bench.add_held().await.id;
    broken.bench.store.close().await;
    // An index that points to the pages of another. No query would find the lease.
    let db = broken.db();
    db.pragma_update(None, "writable_schema", "ON").unwrap();
    let sql = "UPDATE sqlite_schema
               SET rootpage =
                   (SELECT rootpage FROM sqlite_schema WHERE name = 'history_by_end')
               WHERE name = 'progress_by_deadline'";
    assert_eq!(db.execute(sql, []).unwrap(), 1);
    drop(db);
    let store =
        Embedded::open_for_check(params(&broken.folder, &broken.bench.clock), false).unwrap();
    let found = check(&store, false).await;
    // The leased tasks are counted with that index.
    let is_expected = |flaw| matches!(flaw, Flaw::Damaged | Flaw::CountsWrong);
    assert!(found.findings.iter().all(|found| is_expected(found.flaw)), "{:?}", found.findings);
    assert!(
        found.findings.iter().any(|found| found.flaw == Flaw::Damaged),
        "task {id} is missing from an index"
    );
}

#[tokio::test]
async fn a_check_runs_beside_the_process_that_has_the_file() {
    let broken = broken();
    let held = broken.bench.add_held().await;
    let store =
        Embedded::open_for_check(params(&broken.folder, &broken.bench.clock), false).unwrap();
    assert!(check(&store, false).await.findings.is_empty());
    let refused = check_refused(&broken, true);
    assert!(refused.contains("another process works on"), "{refused}");
    let written = store.add(vec![new_task("message.call", 0)]).await.remove(0);
    assert!(
        matches!(written, Err(Error::Unavailable(_))),
        "a store that was opened for a check accepted an add"
    );
    assert_eq!(broken.bench.settle(&held, delivered()).await, Settled::Done);
}

#[tokio::test]
async fn another_versions_file_is_refused_and_left_as_it_is() {
    let broken = broken();
    broken.bench.store.close().await;
    for (version, says) in [(0, "an older version"), (999, "a newer version")] {
        broken.db().pragma_update(None, "user_version", version).unwrap();
        let refused = check_refused(&broken, false);
        assert!(refused.contains(says), "{refused}");
        let still: i64 =
            broken.db().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(still, version);
    }
}

/// Why a check cannot open the file.
fn check_refused(broken: &Broken, repair: bool) -> String {
    match Embedded::open_for_check(params(&broken.folder, &broken.bench.clock), repair) {
        Err(Error::Misconfigured(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn wrong_counts_are_counted_again() {
    let broken = broken();
    let (waiting, held) = (broken.bench.add("a", 60_000).await, broken.bench.add_held().await);
    broken.bench.store.cancel(&lane(), waiting, None).await.unwrap();
    let before = broken.bench.counts().await;
    broken.hand_without_counting(
        held.id,
        "UPDATE lane SET scheduled = 7, leased = -1, cancelled = 0",
    );
    broken.mends(&[(Flaw::CountsWrong, "orders:0")]).await;
    assert_eq!(broken.bench.counts().await, before);
}

#[tokio::test]
async fn exactly_the_expiring_tasks_are_listed() {
    let broken = broken();
    let bench = &broken.bench;
    let waiting = bench.add_task(expiring("a", 1_000, 1_000)).await;
    let held = bench.add_task(expiring("message.call", 0, 1_000)).await;
    let receipt = bench.claim(&[("message.call", 1)]).await.receipt;
    let plain = bench.add("a", 0).await;
    let (waiting_id, held_id, plain_id) =
        (waiting.to_string(), held.to_string(), plain.to_string());
    let list =
        |moment: i64, id: &str| format!("INSERT INTO expiry SELECT id, {moment}, {id} FROM lane;");
    broken.hand(waiting, "DELETE FROM expiry");
    broken.mends(&[(Flaw::ExpiryWrong, &waiting_id)]).await;
    broken.hand(waiting, &format!("DELETE FROM expiry; {}", list(7, "$")));
    broken.mends(&[(Flaw::ExpiryWrong, &waiting_id), (Flaw::ExpiryWrong, &waiting_id)]).await;
    broken.hand(held, &format!("{}{}", list(8, "$"), list(9, &plain_id)));
    broken.mends(&[(Flaw::ExpiryWrong, &held_id), (Flaw::ExpiryWrong, &plain_id)]).await;
    broken.hand(held, "UPDATE progress SET expires = NULL");
    broken.mends(&[(Flaw::ExpiryWrong, &held_id)]).await;

    assert_eq!(ids(&bench.claim(&[("a", 9)]).await), [plain]);
    bench.advance(2_001);
    bench.settle(&Held { id: held, receipt }, retry(0)).await;
    assert!(bench.claim(&[("message.call", 9), ("a", 9)]).await.tasks.is_empty());
    assert_eq!(
        (bench.state(waiting).await, bench.state(held).await),
        (State::Expired, State::Expired)
    );
}

#[tokio::test]
async fn keys_and_notes_without_a_task_are_removed() {
    let broken = broken();
    let bench = &broken.bench;
    let id = bench.add_task(keyed("k", 60_000)).await;
    broken.hand(
        id,
        "UPDATE task_key SET key = 'other'; INSERT INTO task_key SELECT id, 'gone', 5, 0 FROM lane",
    );
    broken.hand(
        id,
        "INSERT INTO note VALUES
            ($, 1, 1, 1, 1, '', ''), (5, 1, 1, 1, 1, '', ''), (5, 2, 1, 1, 1, '', '')",
    );
    broken.hand(
        id,
        "INSERT INTO idempotency SELECT id, 'whole', zeroblob(16), 5, 5, 5 FROM lane;
         INSERT INTO idempotency SELECT id, 'short', zeroblob(15), 5, 5, 5 FROM lane;
         INSERT INTO idempotency VALUES (77, 'nowhere', zeroblob(16), 5, 5, 5)",
    );
    let flaws = [
        (Flaw::KeyWithoutTask, "gone"),
        (Flaw::KeyWithoutTask, "other"),
        (Flaw::NoteWithoutBody, "5"),
        (Flaw::UnreadableKey, "nowhere"),
        (Flaw::UnreadableKey, "short"),
    ];
    broken.mends(&flaws).await;
    assert_eq!(bench.store.notes(&lane(), id).await.unwrap().len(), 1);
    assert_ne!(bench.add_task(keyed("k", 60_000)).await, id, "the key still named the old task");
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_is_left_alone() {
    let broken = broken();
    let id = broken.bench.add("message.call", 0).await;
    broken.bench.store.create(topic_of("other", 1), None).await.unwrap();
    broken.hand(
        id,
        "UPDATE topic SET policy = '{\"retry\":{\"max_attempts\":\"many\"}}' WHERE name = 'orders'",
    );
    broken.leaves_alone(&[(Flaw::UnreadablePolicy, "orders")]).await;
    let topics = broken.bench.store.topics().await.unwrap();
    assert_eq!(
        topics,
        [Registered::plain(topic_of("orders", 1)), Registered::plain(topic_of("other", 1))]
    );
}
