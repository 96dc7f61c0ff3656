//! A worker gets no task that is not durable.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use super::sync_gate::{LONG, bench, ids};
use super::testing::{START, dead, lane, names, new_task, retry};
use crate::model::task::{OnDead, Options};
use crate::store::{
    Asker, Claim, Claimed, Hint, LockToken, MAX_OUTLOOK, Misfire, Misfired, Moment, NewTask,
    Settled, Signals, Want,
};

fn lamented() -> NewTask {
    let on_dead = OnDead { sn: "b".parse().unwrap(), url: "/".into(), task_id: None };
    let options = Options { on_dead: Some(on_dead), ..Options::default() };
    NewTask { options, ..new_task("a", 0) }
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
    bench.committed(2).await;
    assert!(hints.try_recv().is_err(), "there is nothing to claim yet");

    let grant = bench.work(&[("a", 9)]).await;
    assert_eq!(ids(&grant), [durable]);
    assert!(grant.outlook.due.is_empty(), "the worker would ask for it in a loop");
    bench.settle_by(Asker::Worker, durable, &grant.receipt, retry(5)).await;
    let hint = timeout(LONG, hints.recv()).await.expect("the worker knows no earlier one");
    assert_eq!(hint.unwrap().due.0, START.0 + 5);
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
    bench.committed(2).await;
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
    bench.committed(4).await;
    let grant = bench.work(&[("a", 1)]).await;
    assert!(grant.tasks.is_empty());
    assert_eq!(names(&grant.outlook.due), ["c"]);
    assert_eq!(grant.outlook.next.map(|next| next.0), Some(START.0 + 70));
    gate.open();
    assert!(adding.await.iter().all(Result::is_ok));
    assert_eq!(names(&bench.work(&[]).await.outlook.due), ["c", "a", "b"]);
}

/// What a caller changes is hidden too: a power cut may bring the earlier moment or content back.
#[tokio::test]
async fn a_task_that_a_caller_touched_is_hidden_until_that_is_durable() {
    let (bench, gate) = bench();
    let id = bench.add("a", 60_000).await;
    gate.let_end(0);
    let (lane_, now) = (lane(), Moment::After(Duration::ZERO));
    let mut moved = pin!(bench.store.reschedule(&lane_, id, None, now, None));
    assert!(moved.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    assert_eq!(bench.get(id).await.due, START, "a read may show it");
    assert!(bench.work(&[("a", 1)]).await.tasks.is_empty());
    gate.open();
    timeout(LONG, moved).await.expect("it is confirmed").unwrap();
    assert_eq!(ids(&bench.work(&[("a", 1)]).await), [id]);
}

/// The worker asked for the only free destination of a long list again and again, until the sync
/// ended.
#[tokio::test]
async fn an_outlook_of_a_long_list_names_no_destination_that_has_only_hidden_tasks() {
    let (bench, gate) = bench();
    gate.let_end(0);
    let tasks = (0..MAX_OUTLOOK + 1).map(|number| new_task(&format!("d{number}"), 0)).collect();
    let mut adding = pin!(bench.store.add(tasks));
    assert!(adding.as_mut().now_or_never().is_none());
    bench.committed(MAX_OUTLOOK as u64 + 1).await;
    let outlook = bench.work(&[]).await.outlook;
    assert_eq!((outlook.due.len(), outlook.end.is_some()), (0, true));
    gate.open();
    assert_eq!(timeout(LONG, adding).await.expect("it is confirmed").len(), MAX_OUTLOOK + 1);
    assert_eq!(bench.work(&[]).await.outlook.due.len(), MAX_OUTLOOK);
}

/// A power cut undoes the death, and the task may be delivered after all.
#[tokio::test]
async fn a_dead_letter_call_waits_until_the_death_is_durable() {
    let (bench, gate) = bench();
    let id = bench.store.add(vec![lamented()]).await.remove(0).unwrap().id;
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

/// The claim of a lane whose tasks die by it hands out their calls in the same step.
#[tokio::test]
async fn a_claim_that_stores_a_dead_letter_call_has_it_once_that_is_durable() {
    let (bench, gate) = bench();
    bench.store.add(vec![lamented()]).await.remove(0).unwrap();
    bench.advance(1);
    gate.let_end(0);
    let want = |name: &str| Want { destination: name.parse().unwrap(), slots: 1 };
    let claim = Claim {
        lane: lane(),
        wants: vec![want("a"), want("b")],
        lease: LONG,
        holder: Some(LockToken("worker".into())),
        more: false,
        after: None,
        in_hand: 0,
        misfires: vec![Misfire { from: START, to: START, becomes: Misfired::Dead }],
    };
    let mut claimed = pin!(bench.store.claim(claim));
    assert!(claimed.as_mut().now_or_never().is_none());
    bench.writer_is_through().await;
    assert!(claimed.as_mut().now_or_never().is_none(), "the death is not durable");
    gate.open();
    let Claimed::Granted(grant) = timeout(LONG, claimed).await.expect("an answer").unwrap() else {
        panic!("no claim is refused here")
    };
    assert_eq!(names(&[grant.tasks[0].destination.clone()]), ["b"]);
}
