//! A slow destination does not delay others.

use serde_json::{Value, json};

use crate::program::service;
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores};

on_both_stores!(a_destination_that_never_answers_delays_no_other_of_its_topic);

/// 10,000 tasks are due for a destination that never answers. Its first calls hang until the test
/// ends. The other destination's calls must not wait for them, and the rest of the 10,000 stay on
/// their schedule, unclaimed.
async fn a_destination_that_never_answers_delays_no_other_of_its_topic(kept: Kept) {
    let black_hole = Receiver::answering(|_| Answer::Never).await;
    let healthy = Receiver::start().await;
    let delayd = kept
        .start(&[
            service("black.hole", &black_hole),
            service("healthy", &healthy),
            // Longer than the test: no timeout frees a slot of the hanging destination.
            "callback.timeout=\"10m\"".into(),
            "worker.lease=\"20m\"".into(),
        ])
        .await;
    let doomed: Vec<Value> = (0..10_000)
        .map(
            |_| json!({"topic": "shared", "delay": 0, "content": {"sn": "black.hole", "url": "/"}}),
        )
        .collect();
    let doomed = delayd.add_all(&doomed).await;
    black_hole.wait_for(1).await;
    for n in 0..200 {
        delayd
            .add(json!({
                "topic": "shared", "delay": format!("{}ms", n % 20),
                "content": {"sn": "healthy", "url": "/"},
            }))
            .await;
    }
    let seen = healthy.wait_for(200).await;
    let mut lateness: Vec<i64> = seen.iter().map(|call| call.lateness_ms()).collect();
    lateness.sort_unstable();
    println!("beside the black hole: p50 {} ms, p99 {} ms", lateness[100], lateness[197]);
    assert!(lateness[0] >= 0);
    // A new destination starts with a small window, so no more than that window was ever claimed.
    assert!(
        black_hole.seen().len() <= 16,
        "{} calls to the destination that hangs",
        black_hole.seen().len()
    );
    let waiting = delayd.task("shared", *doomed.last().unwrap()).await;
    assert_eq!(
        (&waiting["state"], &waiting["attempts"]),
        (&json!("scheduled"), &json!(0)),
        "{waiting}"
    );
}
