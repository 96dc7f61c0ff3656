//! Keys, expiry, pauses and dead-letter calls where the file matters: with damaged rows, restarts
//! and large content.

use std::time::Duration;

use super::testing::{Bench, bench, dead, lane, new_task, retry, topic};
use crate::model::task::{OnDead, Options, State, TaskId, TopicPolicy};
use crate::store::{
    AttemptNote, Claim, Claimed, Error, Grant, Idempotency, LockToken, MAX_CLAIM_BYTES,
    MAX_EXPIRIES, Misfire, Misfired, NewTask, Novelty, Position, Registered, Settled, Signals,
    TopicEntry,
};
use delayd_wire::Span;

fn with(options: Options, after_ms: u64) -> NewTask {
    NewTask { options, ..new_task("a", after_ms) }
}

fn keyed(key: &str) -> NewTask {
    with(Options { key: Some(key.into()), ..Options::default() }, 0)
}

fn expiring(after_ms: u64) -> NewTask {
    with(
        Options {
            expires_after: Some(Span(Duration::from_millis(after_ms))),
            ..Options::default()
        },
        0,
    )
}

fn lamented() -> NewTask {
    let on_dead = OnDead { sn: "b".parse().unwrap(), url: "/dead".into(), task_id: None };
    with(Options { on_dead: Some(on_dead), ..Options::default() }, 0)
}

fn idempotent(key: &str) -> NewTask {
    let idempotency =
        Idempotency { key: key.into(), fingerprint: 7, window: Duration::from_secs(3_600) };
    NewTask { idempotency: Some(idempotency), ..new_task("a", 0) }
}

impl Bench {
    async fn try_add(&self, task: NewTask) -> Result<(TaskId, Novelty), Error> {
        self.store.add(vec![task]).await.remove(0).map(|added| (added.id, added.novelty))
    }

    async fn add_task(&self, task: NewTask) -> TaskId {
        self.try_add(task).await.unwrap().0
    }

    /// Changes the tables directly.
    async fn hand(&self, statements: &str) {
        let statements = statements.to_owned();
        self.store.writes.run(1, move |tx| tx.db.execute_batch(&statements)).await.unwrap();
    }

    async fn rows(&self, table: &str) -> i64 {
        let select = format!("SELECT count(*) FROM {table}");
        self.store.reads.run(move |db| db.query_row(&select, [], |row| row.get(0))).await.unwrap()
    }

    async fn dies(&self, task: NewTask) -> TaskId {
        let id = self.add_task(task).await;
        let receipt = self.lease().await;
        self.settle(id, &receipt, dead()).await;
        id
    }

    async fn claim_with(&self, misfires: Vec<Misfire>) -> Grant {
        self.claim_after(None, misfires).await
    }

    async fn claim_after(&self, after: Option<Position>, misfires: Vec<Misfire>) -> Grant {
        let wants = vec![crate::store::Want { destination: "a".parse().unwrap(), slots: 9 }];
        let lease = super::testing::LEASE;
        let claim = Claim {
            lane: lane(),
            wants,
            lease,
            holder: Some(LockToken("worker".into())),
            more: false,
            after,
            in_hand: 0,
            misfires,
        };
        match self.store.claim(claim).await.unwrap() {
            Claimed::Granted(grant) => grant,
            Claimed::Refused { .. } => panic!("no claim is refused here"),
        }
    }
}

#[tokio::test]
async fn a_plain_task_has_no_row_in_any_table_of_keys_and_expiry() {
    let bench = bench();
    let id = bench.add("a", 0).await;
    let receipt = bench.lease().await;
    bench.settle(id, &receipt, retry(0)).await;
    for table in ["task_key", "idempotency", "expiry", "note", "task WHERE options IS NOT NULL"] {
        assert_eq!(bench.rows(table).await, 0, "{table}");
    }
}

/// All rows of a task go with it, so that nothing of it fills the file.
#[tokio::test]
async fn what_is_purged_leaves_nothing_behind() {
    let bench = bench();
    let id = bench.dies(NewTask { options: keyed("k").options, ..idempotent("i") }).await;
    let note = AttemptNote {
        lane: lane(),
        id,
        attempt: 1,
        started: bench.clock.now(),
        took: Duration::from_millis(5),
        wait: None,
        outcome: "410 Gone".into(),
        answer: "gone".into(),
    };
    bench.store.note(vec![note.clone()]).await.unwrap();
    assert_eq!(bench.store.notes(&lane(), id).await.unwrap(), [note]);
    bench.advance(3_600_000);
    let purged = bench.store.purge(&lane(), 0, State::Dead, bench.clock.now(), 9).await.unwrap();
    assert_eq!(purged, 1);
    for table in ["task", "task_key", "idempotency", "expiry", "note", "history"] {
        assert_eq!(bench.rows(table).await, 0, "{table}");
    }
}

/// They accumulated if more of them came than the janitor's rounds remove.
#[tokio::test]
async fn idempotency_keys_that_are_over_go_as_new_ones_come() {
    let bench = bench();
    for n in 0..6 {
        bench.add_task(idempotent(&format!("old {n}"))).await;
    }
    bench.advance(3_600_000);
    for n in 0..3 {
        bench.add_task(idempotent(&format!("new {n}"))).await;
    }
    assert_eq!(bench.rows("idempotency").await, 3);
}

#[tokio::test]
async fn keys_of_tasks_and_answers_that_cannot_be_read_count_as_free() {
    let bench = bench();
    let owner = bench.dies(keyed("k")).await;
    let first = bench.add_task(idempotent("i")).await;
    bench.hand("UPDATE history SET state = 9; UPDATE idempotency SET fingerprint = x'00'").await;
    let (id, novelty) = bench.try_add(keyed("k")).await.unwrap();
    assert!(id > owner && novelty == Novelty::New);
    let (id, novelty) = bench.try_add(idempotent("i")).await.unwrap();
    assert!(id > first && novelty == Novelty::New);
    let duplicate = Novelty::Duplicate { state: Some(State::Scheduled) };
    assert_eq!(
        bench.try_add(idempotent("i")).await.unwrap(),
        (id, duplicate),
        "it is written anew"
    );
    let summaries = bench.store.summaries(&lane(), vec![owner, first]).await.unwrap();
    assert_eq!(
        summaries.iter().map(Option::is_some).collect::<Vec<_>>(),
        [false, true],
        "it hides no other"
    );
    while bench.store.clear(&lane(), 2).await.unwrap().removed > 0 {}
    assert_eq!(
        (bench.rows("task").await, bench.rows("history").await),
        (0, 0),
        "it can be forgotten"
    );
}

#[tokio::test]
async fn a_death_whose_call_cannot_be_read_is_a_death_all_the_same() {
    for damage in
        ["UPDATE task SET options = 'damaged'", "UPDATE task SET content = CAST(x'ff' AS TEXT)"]
    {
        let bench = bench();
        let id = bench.add_task(lamented()).await;
        let receipt = bench.lease().await;
        bench.hand(damage).await;
        assert_eq!(bench.settle(id, &receipt, dead()).await, Settled::Done, "{damage}");
        assert_eq!(
            (bench.rows("history WHERE state = 3").await, bench.rows("task").await),
            (1, 1),
            "{damage}"
        );
    }
}

#[tokio::test]
async fn expiry_goes_on_over_a_restart() {
    let bench = bench();
    let (waiting, held) =
        (bench.add_task(expiring(500)).await, bench.add_task(expiring(1_000)).await);
    assert_eq!(bench.claim(&[("a", 1)]).await.tasks[0].id, waiting);
    let bench = bench.reopen();
    bench.assert_in_order().await;
    assert_eq!(bench.store.next_due(vec![lane()]).await.unwrap().lanes[0], Some(bench.clock.now()));
    bench.advance(501);
    assert_eq!(bench.claim(&[("a", 9)]).await.tasks.len(), 1, "one is over, and one is not");
    assert_eq!(
        (bench.state(waiting).await, bench.state(held).await),
        (State::Expired, State::Leased)
    );
    bench.assert_in_order().await;
}

/// The content of dead-letter calls is copied: hundreds of large ones in one transaction would take
/// all the room of a nearly full disk.
#[tokio::test]
async fn a_claim_copies_no_more_than_its_bytes_for_the_dead() {
    let bench = bench();
    let large = || NewTask { content: "x".repeat(MAX_CLAIM_BYTES / 2), ..lamented() };
    let count = 5;
    bench.store.add((0..count).map(|_| large()).collect()).await;
    let misfire =
        Misfire { from: bench.clock.now(), to: bench.clock.now(), becomes: Misfired::Dead };
    let dead = async || bench.store.stats(&lane()).await.unwrap().dead;
    let grant = bench.claim_with(vec![misfire]).await;
    assert!(grant.tasks.is_empty(), "what is left over is not handed out");
    assert_eq!((dead().await, grant.outlook.next), (2, Some(grant.now)));
    bench.claim_with(vec![misfire]).await;
    bench.claim_with(vec![misfire]).await;
    assert_eq!(dead().await, count);
    assert_eq!(bench.rows("task").await, 2 * 5);
    bench.assert_in_order().await;
}

#[tokio::test]
async fn a_start_that_ends_a_crash_loop_calls_for_the_dead() {
    let mut bench = bench();
    let id = bench.add_task(lamented()).await;
    for _ in 0..MAX_EXPIRIES {
        bench.lease().await;
        bench = bench.reopen();
    }
    assert_eq!(bench.state(id).await, State::Dead);
    let call = bench.get(id).await.options.on_dead.unwrap().task_id.unwrap();
    assert_eq!(bench.claim(&[("b", 9)]).await.tasks[0].id, call);
    bench.assert_in_order().await;
}

#[tokio::test]
async fn a_topic_that_was_taken_out_leaves_the_next_one_nothing() {
    let bench = bench();
    let id = bench.dies(NewTask { options: keyed("k").options, ..idempotent("i") }).await;
    assert!(!bench.store.unregister(&topic()).await.unwrap(), "it holds a task");
    bench
        .store
        .set_policy(&topic().topic, &TopicPolicy { quota: Some(1), ..TopicPolicy::default() })
        .await
        .unwrap();
    bench.store.pause(&topic().topic).await.unwrap();
    bench.store.resume(&topic().topic, Some(Misfired::Dead)).await.unwrap();
    assert_eq!(bench.store.discard(&lane(), State::Dead, vec![id], None).await.unwrap(), 1);
    assert!(bench.store.unregister(&topic()).await.unwrap());
    assert_eq!(bench.store.topics().await.unwrap(), []);
    assert_eq!(bench.store.recover_topics().await.unwrap(), []);
    bench.assert_in_order().await;

    // The next lane gets the number of the removed one.
    let other = TopicEntry { topic: "other".parse().unwrap(), shards: 1 };
    let task = NewTask { topic: other.clone(), ..idempotent("i") };
    assert_eq!(bench.try_add(task).await.unwrap().1, Novelty::New);
    assert_eq!(bench.try_add(idempotent("i")).await.unwrap().1, Novelty::New);
    let topics = bench.store.topics().await.unwrap();
    assert_eq!(topics, [Registered::plain(topic()), Registered::plain(other)]);
    bench.assert_in_order().await;
}

/// Callers may name any number of hosts, and each left a row for ever.
#[tokio::test]
async fn a_host_is_forgotten_with_its_last_task_and_not_before() {
    let bench = bench();
    let known =
        async |host: &str| bench.rows(&format!("destination WHERE name = '{host}'")).await == 1;
    let push_back = |host: &str| NewTask { options: keyed("k").options, ..new_task(host, 60_000) };
    // A dead task needs its host, for a replay.
    let ended = bench.add("h1:80", 0).await;
    let grant = bench.claim(&[("h1:80", 1)]).await;
    bench.settle(ended, &grant.receipt, dead()).await;
    let waiting = bench.add("h1:80", 60_000).await;
    assert_eq!(bench.store.discard(&lane(), State::Dead, vec![ended], None).await.unwrap(), 1);
    assert!(known("h1:80").await, "a task waits for it");
    bench.store.cancel(&lane(), waiting, None).await.unwrap();
    assert!(known("h1:80").await, "a task that has ended names it");
    bench.advance(1);
    assert_eq!(
        bench.store.purge(&lane(), 0, State::Cancelled, bench.clock.now(), 9).await.unwrap(),
        1
    );
    assert!(!known("h1:80").await);
    // It returns with its next task, and goes when that is replaced or rescheduled to another.
    bench.add_task(push_back("h1:80")).await;
    let moved = bench.add_task(push_back("h2:80")).await;
    assert_eq!((known("h1:80").await, known("h2:80").await), (false, true));
    let (destination, content) = ("a".parse().unwrap(), "{}".into());
    let content = crate::store::NewContent { destination, content, keeps_mode: false };
    let moment = crate::store::Moment::After(Duration::ZERO);
    bench.store.reschedule(&lane(), moved, None, moment, Some(content)).await.unwrap();
    assert!(!known("h2:80").await);
    assert_eq!(bench.claim(&[("a", 1)]).await.tasks.len(), 1);
    bench.assert_in_order().await;
    // A service stays, and a lane loses its hosts.
    bench.add("h3:80", 60_000).await;
    bench.advance(60_000);
    while bench.store.clear(&lane(), 9).await.unwrap().removed > 0 {}
    assert_eq!(bench.rows("destination").await, 1);
    assert!(known("a").await);
}

/// The host at which a page ends has no number any more, or a higher one than those behind it.
#[tokio::test]
async fn a_page_that_ends_at_a_host_that_went_skips_nothing_of_its_moment() {
    let bench = bench();
    let mut ids = Vec::new();
    for host in ["h1:80", "h2:80", "h3:80"] {
        ids.push(bench.add(host, 0).await);
    }
    let moment = bench.clock.now();
    let due_after = async |moment, last: Option<&str>| {
        let destination = last.map(|host| host.parse().unwrap());
        let after = Some(Position { moment, destination });
        let Grant { outlook, .. } = bench.claim_after(after, Vec::new()).await;
        outlook.due.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(due_after(moment, Some("h2:80")).await, ["h3:80"]);
    bench.store.cancel(&lane(), ids[1], None).await.unwrap();
    bench.store.discard(&lane(), State::Cancelled, vec![ids[1]], None).await.unwrap();
    assert_eq!(due_after(moment, Some("h2:80")).await, ["h1:80", "h3:80"]);
    // It returns. The hint has the lane's worker read what is due from its moment on.
    let mut hints = bench.store.hints();
    bench.add("h2:80", 0).await;
    let hint = tokio::time::timeout(Duration::from_secs(60), hints.recv()).await;
    assert_eq!(hint.expect("the worker is told").unwrap().due, moment);
    let before = moment - Duration::from_millis(1);
    assert_eq!(due_after(before, None).await, ["h1:80", "h3:80", "h2:80"]);
}

/// A batch that is rolled back also rolls back its counts.
#[tokio::test]
async fn counts_are_right_after_a_batch_that_failed() {
    let bench = bench();
    bench.add("a", 0).await;
    let failed = bench.store.writes.run(1, |tx| {
        super::add::add_in(tx, &[new_task("a", 0)])?;
        Err::<(), _>(rusqlite::Error::InvalidQuery)
    });
    assert!(failed.await.is_err());
    assert_eq!(bench.store.stats(&lane()).await.unwrap().scheduled, 1);
    let limited = |quota| NewTask { quota: Some(quota), ..new_task("a", 0) };
    let answers = bench.store.add(vec![limited(2), limited(2), limited(3)]).await;
    let is_stored: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(is_stored, [true, false, true], "within a batch as well");
    bench.assert_in_order().await;
}
