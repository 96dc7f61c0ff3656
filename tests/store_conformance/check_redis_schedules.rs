//! Tasks on the schedule of another destination in Redis. Works like [`crate::check_redis`].

use delayd::store::{Admin, CheckCursor, Flaw, Intake};

use crate::bench::{at, ids, new_task};
use crate::check::check;
use crate::check_redis::broken;

#[tokio::test]
async fn a_task_on_a_wrong_schedule_is_moved() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 1_000).await;
    broken.hand(id, &["ZREM", &broken.schedule("message.call"), "$"]);
    broken.hand(id, &["ZADD", &broken.schedule("a"), &at(2_000).to_string(), "$"]);
    let name = id.to_string();
    let lists = [(Flaw::ListedWithoutSchedule, "message.call"), (Flaw::EarliestWrong, "a")];
    let moved = [(Flaw::WrongSchedule, &*name), (Flaw::BodyWithoutPlace, &name)];
    broken.mends(&[&lists[..], &moved[..]].concat()).await;
    assert_eq!(broken.bench.next_due().await, Some(at(2_000)));

    broken.hand(id, &["ZADD", &broken.schedule("a"), "5", "$"]);
    broken.mends(&[(Flaw::WrongSchedule, &*name), (Flaw::EarliestWrong, "a")]).await;
    broken.bench.advance(2_000);
    assert!(broken.bench.claim(&[("a", 1)]).await.tasks.is_empty());
    broken.is_called_once(id).await;
}

/// The wrong schedule has more pages than a check judges together, and the tasks' records have an
/// earlier moment. The wrong schedule alone knows how long they wait.
#[tokio::test]
async fn tasks_of_a_long_wrong_schedule_wait_as_long_as_before() {
    let broken = broken().await;
    let task = new_task("message.call", 0);
    let added = broken.bench.store.add(vec![task; 1_200]).await;
    let first = added.into_iter().map(Result::unwrap).map(|added| added.id).min().unwrap();
    broken.hand(first, &["RENAME", &broken.schedule("message.call"), &broken.schedule("a")]);
    let one = [broken.schedule("a")];
    broken.hand(first, &["ZUNIONSTORE", &one[0], "1", &one[0], "WEIGHTS", "2"]);
    broken.hand(first, &["ZADD", &one[0], "5", "$"]);
    broken.bench.advance(1_000);
    assert!(check(&broken.bench.store, true).await.findings.iter().all(|found| found.repaired));
    assert_eq!(ids(&broken.bench.claim(&[("message.call", 9)]).await), [first]);
    assert_eq!(broken.bench.counts().await.scheduled, 1_199);
    broken.mends(&[]).await;
}

/// The member of the wrong schedule was the only one that the task had.
#[tokio::test]
async fn a_repair_that_ends_early_loses_no_task() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 0).await;
    broken.hand(id, &["RENAME", &broken.schedule("message.call"), &broken.schedule("a")]);
    let mut next = Some(CheckCursor::start());
    loop {
        let checked = broken.bench.store.check(next.take().unwrap(), true).await.unwrap();
        if checked.findings.iter().any(|found| found.flaw == Flaw::WrongSchedule) {
            break;
        }
        next = checked.next;
    }
    broken.is_called_once(id).await;
}
