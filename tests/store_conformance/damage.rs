//! A stored record that is damaged, or that another version wrote, affects only its own task.
//!
//! The tests change the data of both stores directly. The specification has nothing that could be
//! damaged.

use deadpool_redis::redis;
use delayd::model::task::{State, TaskId};
use delayd::store::{
    Admin, AnyStore, Asker, Delivery, Error, Reader, Schedules, Settle, Settled, Spread,
};
use tempfile::TempDir;

use crate::bench::{Bench, Held, at, delivered, embedded, ids, lane, redis as redis_bench};
use crate::redis_alone::raw;
use crate::redis_server;
use crate::schedules::{name, read, set};

macro_rules! on_both_stores {
    ($($sentence:ident),+ $(,)?) => {
        mod embedded_store {
            $(#[tokio::test]
            async fn $sentence() {
                super::$sentence(super::embedded().await).await;
            })+
        }

        mod redis_store {
            $(#[tokio::test]
            async fn $sentence() {
                super::$sentence(super::redis_bench().await).await;
            })+
        }
    };
}

on_both_stores!(
    an_unreadable_body_is_dead_and_other_tasks_are_handed_out,
    a_missing_body_delays_no_other_task,
    a_replay_of_an_unreadable_task_is_harmless,
    an_unreadable_lease_expires_and_the_task_is_handed_out_again,
    a_sweep_goes_on_after_an_unreadable_task,
    an_unreadable_task_does_not_stop_the_settles_of_its_batch,
    an_admin_verb_fails_for_an_unreadable_task_and_changes_nothing,
    an_unreadable_schedule_is_deleted_and_the_others_stay,
);

/// How the stored bytes of a task are damaged.
#[derive(Clone, Copy)]
enum Harm {
    /// Its body is of another version, or is not text.
    Body,
    /// Its body is missing.
    NoBody,
    /// The record of its place is garbled.
    Place,
}

impl Bench<AnyStore> {
    fn harm(&self, id: TaskId, harm: Harm) {
        if let Some(folder) = self.kept.downcast_ref::<TempDir>() {
            let db = rusqlite::Connection::open(folder.path().join("delayd.db")).unwrap();
            let garbled = "CAST(x'ff20fe' AS TEXT)";
            let statements = match harm {
                Harm::Body => format!("UPDATE task SET content = {garbled} WHERE id = {id}"),
                Harm::NoBody => format!("DELETE FROM task WHERE id = {id}"),
                Harm::Place => format!(
                    "UPDATE progress SET current = {garbled}, past = {garbled},
                         outcome = {garbled}, attempts = -5 WHERE id = {id};
                     UPDATE history SET state = 99, current = {garbled} WHERE id = {id}"
                ),
            };
            db.execute_batch(&statements).unwrap();
        } else {
            let prefix = self.kept.downcast_ref::<String>().unwrap();
            let key = |role: &str| format!("{prefix}:DELAY_{role}_TOPIC_TASK-{{orders:0}}");
            let mut connection = redis::Client::open(redis_server::shared().url())
                .unwrap()
                .get_connection()
                .unwrap();
            let mut run = |words: &[&str]| {
                redis::cmd(words[0]).arg(&words[1..]).exec(&mut connection).unwrap()
            };
            match harm {
                Harm::Body => {
                    run(&["HSET", &key("REALL"), &id.to_string(), "9 of another version"])
                }
                Harm::NoBody => run(&["HDEL", &key("REALL"), &id.to_string()]),
                Harm::Place => run(&["HSET", &key("ATTEMPTS"), &id.to_string(), "garbled"]),
            }
        }
    }

    /// Garbles the record of a recurring schedule.
    fn harm_schedule(&self, name: &str) {
        if let Some(folder) = self.kept.downcast_ref::<TempDir>() {
            let db = rusqlite::Connection::open(folder.path().join("delayd.db")).unwrap();
            let harm = "UPDATE recurring SET state = 'garbled' WHERE name = ?";
            assert_eq!(db.execute(harm, [name]).unwrap(), 1);
        } else {
            let prefix = self.kept.downcast_ref::<String>().unwrap();
            let key = format!("{prefix}:DELAY_RECURRING_TOPIC_TASK-{{orders:0}}");
            raw::<()>(&["HSET", &key, name, "garbled"]);
        }
    }

    async fn settle_all(&self, held: &[&Held]) -> Vec<Settled> {
        let settle = |held: &&Held| Settle {
            lane: lane(),
            id: held.id,
            receipt: held.receipt.clone(),
            transition: delivered(),
        };
        self.store
            .settle(Asker::Worker, held.iter().map(settle).collect())
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect()
    }

    async fn dead(&self) -> Vec<TaskId> {
        self.list(State::Dead).await.iter().map(|listed| listed.id).collect()
    }
}

/// Adds three tasks and damages the second. A claim must hand out the others and then find nothing
/// due.
async fn check_passed_over(bench: &Bench<AnyStore>, harm: Harm) -> TaskId {
    let mut added = Vec::new();
    for _ in 0..3 {
        added.push(bench.add("message.call", 0).await);
    }
    bench.harm(added[1], harm);
    let grant = bench.claim(&[("message.call", 3)]).await;
    assert_eq!(ids(&grant), [added[0], added[2]]);
    assert!(
        grant.outlook.due.is_empty(),
        "the damaged task is still due and would be claimed for ever"
    );
    assert!(bench.claim(&[("message.call", 3)]).await.tasks.is_empty());
    let counts = bench.counts().await;
    assert_eq!((counts.scheduled, counts.leased, counts.dead), (0, 2, 1));
    assert_eq!(bench.dead().await, [added[1]]);
    for task in grant.tasks {
        let held = Held { id: task.id, receipt: grant.receipt.clone() };
        assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    }
    added[1]
}

async fn an_unreadable_body_is_dead_and_other_tasks_are_handed_out(bench: Bench<AnyStore>) {
    let id = check_passed_over(&bench, Harm::Body).await;
    assert!(matches!(bench.store.get(Reader::Worker, &lane(), id).await, Err(Error::Corrupt(_))));
}

async fn a_missing_body_delays_no_other_task(bench: Bench<AnyStore>) {
    let id = check_passed_over(&bench, Harm::NoBody).await;
    assert_eq!(bench.store.get(Reader::Worker, &lane(), id).await.unwrap(), None);
    assert_eq!(
        bench.store.replay(&lane(), vec![id], None, Spread::default()).await.unwrap(),
        0,
        "a task without a body must not be replayed"
    );
}

async fn a_replay_of_an_unreadable_task_is_harmless(bench: Bench<AnyStore>) {
    let id = check_passed_over(&bench, Harm::Body).await;
    assert_eq!(bench.store.replay(&lane(), vec![id], None, Spread::default()).await.unwrap(), 1);
    let good = bench.add("message.call", 0).await;
    let grant = bench.claim(&[("message.call", 3)]).await;
    assert_eq!(ids(&grant), [good]);
    assert_eq!(bench.dead().await, [id]);
}

async fn an_unreadable_lease_expires_and_the_task_is_handed_out_again(bench: Bench<AnyStore>) {
    let harmed = bench.add_held().await;
    let well = bench.add_held().await;
    bench.harm(harmed.id, Harm::Place);
    bench.let_lease_run_out();
    let grant = bench.claim(&[("message.call", 3)]).await;
    assert_eq!(ids(&grant), [harmed.id, well.id]);
    let again = Held { receipt: grant.receipt.clone(), ..harmed };
    assert_eq!(bench.settle(&again, delivered()).await, Settled::Done);
    assert_eq!(bench.state(again.id).await, State::Delivered);
}

async fn a_sweep_goes_on_after_an_unreadable_task(bench: Bench<AnyStore>) {
    let harmed = bench.add_held().await;
    let well = bench.add_held().await;
    bench.harm(harmed.id, Harm::Place);
    bench.harm(harmed.id, Harm::Body);
    bench.let_lease_run_out();
    assert_eq!(ids(&bench.claim(&[("message.call", 3)]).await), [well.id]);
    assert_eq!(bench.dead().await, [harmed.id]);
    assert_eq!(bench.next_due().await, Some(at(60_000)), "only the valid lease must be left");
}

async fn an_unreadable_task_does_not_stop_the_settles_of_its_batch(bench: Bench<AnyStore>) {
    let (first, harmed, last) =
        (bench.add_held().await, bench.add_held().await, bench.add_held().await);
    bench.settle(&harmed, delivered()).await;
    bench.harm(harmed.id, Harm::Place);
    let answers = bench.settle_all(&[&first, &harmed, &last]).await;
    assert_eq!(answers, [Settled::Done, Settled::Unknown, Settled::Done]);
    assert_eq!(bench.state(last.id).await, State::Delivered);
}

async fn an_admin_verb_fails_for_an_unreadable_task_and_changes_nothing(bench: Bench<AnyStore>) {
    let harmed = bench.add_held().await;
    bench.settle(&harmed, delivered()).await;
    bench.harm(harmed.id, Harm::Place);
    let before = bench.counts().await;
    assert!(matches!(bench.store.cancel(&lane(), harmed.id, None).await, Err(Error::Corrupt(_))));
    assert!(matches!(
        bench
            .store
            .extend(
                Asker::Worker,
                &lane(),
                harmed.id,
                &harmed.receipt,
                std::time::Duration::from_secs(1)
            )
            .await,
        Err(Error::Corrupt(_))
    ));
    assert_eq!(bench.counts().await, before);
    let well = bench.add_held().await;
    assert_eq!(bench.settle(&well, delivered()).await, Settled::Done);
}

/// Otherwise a damaged schedule would stay for ever, and its topic with it.
async fn an_unreadable_schedule_is_deleted_and_the_others_stay(bench: Bench<AnyStore>) {
    let of_b = set(&bench, "b", "1").await;
    set(&bench, "a", "1").await;
    bench.harm_schedule("a");
    let (store, a) = (&bench.store, name("a"));
    let found = store.schedules(Reader::Worker, &lane(), vec![name("b"), a.clone()]).await;
    assert!(matches!(found, Err(Error::Corrupt(_))), "{found:?}");
    assert!(!store.forget_schedule(&lane(), &a, 1).await.is_ok_and(|is_gone| is_gone));
    assert!(store.delete_schedule(&lane(), &a).await.unwrap());
    assert!(!store.delete_schedule(&lane(), &a).await.unwrap());
    assert_eq!(store.schedules(Reader::Worker, &lane(), vec![a]).await.unwrap(), [None]);
    assert_eq!(store.schedule_names(&lane(), None, 9).await.unwrap(), [name("b")]);
    assert_eq!(store.due_schedules(&lane(), 0).await.unwrap().names, [name("b")]);
    assert_eq!(read(&bench, "b").await, of_b);
    set(&bench, "a", "2").await;
}
