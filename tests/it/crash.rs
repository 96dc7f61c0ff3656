//! kill -9, and a process that sleeps past its lease.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::program::service;
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores};

on_both_stores!(
    a_kill_in_the_middle_of_callbacks_loses_nothing,
    a_paused_holder_changes_nothing_when_it_wakes
);

fn tasks(count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| {
            json!({
                "topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/", "n": n},
            })
        })
        .collect()
}

async fn a_kill_in_the_middle_of_callbacks_loses_nothing(kept: Kept) {
    let receiver = Receiver::answering(|call| {
        if call.attempt == 1 { Answer::AtTheGate } else { Answer::Status(200) }
    })
    .await;
    let settings = [
        service("message.call", &receiver),
        "worker.lease=\"3s\"".into(),
        "callback.timeout=\"1500ms\"".into(),
    ];
    let delayd = kept.start(&settings).await;
    let ids: HashSet<u64> = delayd.add_all(&tasks(300)).await.into_iter().collect();
    // Calls are running without an answer. Most tasks still wait.
    let first = receiver.wait_for(5).await;
    delayd.kill();
    receiver.open_gate();

    let delayd = kept.start(&settings).await;
    for &id in &ids {
        delayd.wait_for_state("t", id, "delivered").await;
    }
    let seen = receiver.seen();
    assert_eq!(seen.iter().map(|call| call.id).collect::<HashSet<_>>(), ids, "a task was lost");
    let again = seen.iter().find(|call| call.id == first[0].id && call.attempt > 1);
    assert!(again.is_some(), "the killed attempt was not counted, or not repeated");
    assert_eq!(delayd.task("t", first[0].id).await["attempts"], again.unwrap().attempt);
}

/// A process is stopped in the middle of a call and sleeps past its lease. On Redis another
/// instance takes the task. With the embedded store, the task is not called again before the first
/// call has ended.
async fn a_paused_holder_changes_nothing_when_it_wakes(kept: Kept) {
    let receiver = Receiver::answering(|call| {
        if call.attempt == 1 { Answer::AtTheGate } else { Answer::Status(200) }
    })
    .await;
    let settings = [
        service("message.call", &receiver),
        "worker.lease=\"2s\"".into(),
        // The first attempt waits at the gate for as long as the test needs. Its lease covers that
        // from the start.
        "callback.timeout=\"900ms\"".into(),
        "callback.retry.backoff={kind=\"fixed\", every=\"10m\"}".into(),
    ];
    let holder = kept.start(&settings).await;
    let id = holder.add_all(&tasks(1)).await[0];
    receiver.wait_for(1).await;
    holder.signal("STOP");
    if matches!(kept.store, crate::StoreAt::Redis(..)) {
        let other = kept.start(&settings).await;
        let taken = other.wait_for_state("t", id, "delivered").await;
        assert_eq!(taken["attempts"], 2);
        holder.signal("CONT");
        // The first call times out now. Its failure must not change the task.
        let finished = taken["finished_ms"].clone();
        holder.wait_for_log("changed nothing").await;
        let still = other.task("t", id).await;
        assert_eq!(
            (&still["state"], &still["attempts"], &still["finished_ms"]),
            (&json!("delivered"), &json!(2), &finished)
        );
        assert_eq!(receiver.seen().len(), 2);
    } else {
        // Past the lease by the wall clock. Only time itself can be waited for.
        tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
        holder.signal("CONT");
        // The call times out when the process wakes up. If it is settled before the next claim, the
        // task waits for its backoff. If it is settled after the claim, the settle is late and the
        // new lease counts. There are never two calls at a time.
        holder.wait_for_log("timed out after").await;
        let (calls, log) = (receiver.seen(), holder.log());
        assert!(
            calls.len() == 1 || log.contains("A late settle"),
            "a task was called again while its call was running: {log}"
        );
    }
}
