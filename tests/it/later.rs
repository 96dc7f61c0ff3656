//! Receivers that answer `delay-ack: later` and acknowledge the task later, with its receipt.

use std::time::Duration;

use serde_json::{Value, json};

use crate::poll;
use crate::program::{Program, service};
use crate::receiver::{Answer, Receiver, Seen};
use crate::{Kept, on_both_stores};

on_both_stores!(
    a_receiver_may_acknowledge_later,
    without_an_acknowledgement_the_task_comes_again,
    a_later_nack_and_a_later_extension_work,
    an_ack_that_overtakes_the_202_counts,
    later_frees_the_slot_at_once,
    a_restart_leaves_the_receiver_its_lease,
);

fn later(lease: &'static str) -> Answer {
    Answer::With(202, vec![("delay-ack", "later"), ("delay-lease", lease)], "")
}

async fn add(delayd: &Program, more: Value) -> u64 {
    let mut task = json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}});
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    delayd.add(task).await.id()
}

/// A settle call with the receipt of a callback.
async fn by(delayd: &Program, seen: &Seen, verb: &str, more: Value) -> crate::program::Answer {
    let mut body = json!({
        "topic": "t", "task_id": seen.id,
        "receipt": seen.headers["delay-receipt"].to_str().unwrap(),
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    delayd.post(&format!("/delay/task/{verb}"), body.to_string()).await
}

/// Waits until the answer to the callback is stored with the task.
async fn wait_until_kept(delayd: &Program, id: u64) {
    let outcome = "202 Accepted, to be acknowledged";
    let kept =
        async || Some(delayd.task("t", id).await).filter(|task| task["last_outcome"] == outcome);
    match poll::answer(kept).await {
        Some(task) => assert_eq!(task["state"], "leased"),
        None => panic!("task {id} is not kept: {}\n{}", delayd.task("t", id).await, delayd.log()),
    }
}

async fn a_receiver_may_acknowledge_later(kept: Kept) {
    let receiver = Receiver::answering(|_| later("1h")).await;
    // The lease of the worker's claim would end soon.
    let delayd = kept.start(&[service("message.call", &receiver), "worker.lease=2s".into()]).await;
    let id = add(&delayd, json!({"timeout": "100ms"})).await;
    let seen = receiver.wait_for(1).await.remove(0);
    wait_until_kept(&delayd, id).await;
    delayd.lives_for(Duration::from_millis(2_500)).await;
    assert_eq!(
        delayd.task("t", id).await["state"],
        "leased",
        "the receiver must hold the lease for an hour"
    );
    by(&delayd, &seen, "ack", json!({})).await.ok();
    assert_eq!(delayd.task("t", id).await["state"], "delivered");
    by(&delayd, &seen, "ack", json!({})).await.ok();
    assert_eq!(receiver.seen().len(), 1);
    let late = by(&delayd, &seen, "extend", json!({"lease": "1m"})).await;
    assert_eq!(
        (late.status, &late.body["dm_error"], &late.body["state"]),
        (409, &json!(1009), &json!("delivered"))
    );
}

async fn without_an_acknowledgement_the_task_comes_again(kept: Kept) {
    let receiver =
        Receiver::answering(
            |seen| if seen.attempt == 1 { later("1s") } else { Answer::Status(200) },
        )
        .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let id = add(&delayd, json!({})).await;
    let task = delayd.wait_for_state("t", id, "delivered").await;
    assert_eq!((&task["attempts"], receiver.seen().len()), (&json!(2), 2));
    let seen = receiver.seen();
    assert!(
        seen[1].arrived_ms - seen[0].arrived_ms >= 1_000,
        "the task was called while the receiver held the lease"
    );
}

async fn a_later_nack_and_a_later_extension_work(kept: Kept) {
    let receiver =
        Receiver::answering(
            |seen| if seen.attempt < 3 { later("3s") } else { Answer::Status(200) },
        )
        .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let id = add(&delayd, json!({})).await;
    let seen = receiver.wait_for(1).await.remove(0);
    wait_until_kept(&delayd, id).await;
    by(&delayd, &seen, "nack", json!({"delay": 0})).await.ok();
    let seen = receiver.wait_for(2).await.remove(1);
    assert_eq!(seen.attempt, 2);
    wait_until_kept(&delayd, id).await;
    for lease in ["13h", "0s"] {
        assert_eq!(
            by(&delayd, &seen, "extend", json!({"lease": lease})).await.body["dm_error"],
            1000
        );
    }
    assert_eq!(
        by(&delayd, &seen, "extend", json!({})).await.body["error_msg"],
        "lease: is missing"
    );
    by(&delayd, &seen, "extend", json!({"lease": "1h"})).await.ok();
    delayd.lives_for(Duration::from_millis(3_500)).await;
    assert_eq!(delayd.task("t", id).await["state"], "leased", "extended");
    by(&delayd, &seen, "nack", json!({"delay": 0})).await.ok();
    assert_eq!(delayd.wait_for_state("t", id, "delivered").await["attempts"], 3);
}

async fn an_ack_that_overtakes_the_202_counts(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let id = add(&delayd, json!({})).await;
    let seen = receiver.wait_for(1).await.remove(0);
    by(&delayd, &seen, "ack", json!({})).await.ok();
    receiver.answer(|_| later("1s"));
    receiver.open_gate();
    receiver.wait_until_passed(1).await;
    // The next task shows that the answer has been dealt with.
    receiver.answer(|_| Answer::Status(200));
    let next = add(&delayd, json!({})).await;
    delayd.wait_for_state("t", next, "delivered").await;
    delayd.lives_for(Duration::from_millis(1_500)).await;
    assert_eq!(delayd.task("t", id).await["last_outcome"], "acked");
    assert_eq!(receiver.seen().len(), 2, "the acknowledged task came again");
}

/// There is one slot. If it were held until the acknowledgement, the others would wait.
async fn later_frees_the_slot_at_once(kept: Kept) {
    let receiver = Receiver::answering(|_| later("1h")).await;
    let one = "services.\"message.call\".concurrency=1".to_owned();
    let delayd = kept.start(&[service("message.call", &receiver), one]).await;
    for _ in 0..20 {
        add(&delayd, json!({})).await;
    }
    receiver.wait_for(20).await;
    let listed = delayd.post("/delay/destination/list", "{}").await.ok().body;
    assert_eq!(listed["destinations"][0]["breaker"], "closed");
}

/// The start of an embedded store voids the workers' leases of the previous process. A receiver's
/// lease stays.
async fn a_restart_leaves_the_receiver_its_lease(kept: Kept) {
    let receiver = Receiver::answering(|_| later("1h")).await;
    let settings = [service("message.call", &receiver)];
    let delayd = kept.start(&settings).await;
    let id = add(&delayd, json!({})).await;
    let seen = receiver.wait_for(1).await.remove(0);
    wait_until_kept(&delayd, id).await;
    delayd.kill();
    let delayd = kept.start(&settings).await;
    let other = add(&delayd, json!({})).await;
    wait_until_kept(&delayd, other).await;
    assert_eq!(
        (&delayd.task("t", id).await["state"], receiver.seen().len()),
        (&json!("leased"), 2)
    );
    by(&delayd, &seen, "ack", json!({})).await.ok();
    assert_eq!(delayd.task("t", id).await["state"], "delivered");
}
