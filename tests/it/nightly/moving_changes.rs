//! A move beside heartbeats whose silence raises an alarm.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Kept;
use crate::moving::{counts, mover_from};
use crate::program::{Program, run, service};
use crate::receiver::Receiver;

/// A device that is silent for this long raises an alarm.
const ALARM: Duration = Duration::from_secs(8);

const DEVICES: usize = 40;

/// One heartbeat of each device.
async fn beat_all(service: &Program) {
    let beat = |device: usize| {
        json!({
            "topic": "alive", "key": format!("device-{device}"),
            "delay": format!("{}s", ALARM.as_secs()),
            "content": {"sn": "message.call", "url": "/", "device": device},
        })
    };
    let tasks: Vec<Value> = (0..DEVICES).map(beat).collect();
    let answer =
        service.post("/delay/task/add_batch", json!({"tasks": tasks}).to_string()).await.ok();
    assert_eq!(answer.body["failed"], 0, "{answer:?}");
}

/// The order of docs/operations/move.md: the mover runs, and the callers change to the new
/// service meanwhile, at different times.
async fn no_alarm_fires_while_heartbeats_come(from: Kept, into: Kept) {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) =
        (from.start_as_shipped(&settings).await, into.start_as_shipped(&settings).await);
    old.post("/delay/topic/set", json!({"topic": "alive", "shards": 4}).to_string()).await.ok();
    let beats = async |span: Duration, services: &[&Program]| {
        let until = Instant::now() + span;
        for service in services.iter().cycle() {
            if Instant::now() >= until {
                break;
            }
            beat_all(service).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    };
    beats(Duration::from_millis(300), &[&old]).await;
    let words = ["--topic", "alive", "--linger", "3s"];
    let moving = tokio::spawn(run(mover_from(&old.url(""), &new.url(""), &words)));
    beats(Duration::from_secs(2), &[&old]).await;
    beats(Duration::from_secs(2), &[&old, &new]).await;
    beats(ALARM + Duration::from_secs(1), &[&new]).await;
    let (code, output, error) = moving.await.unwrap();
    assert_eq!(code, 0, "{output}{error}");
    assert_eq!(
        receiver.seen().len(),
        0,
        "an alarm fired although heartbeats came: {output}{error}"
    );
    let left = counts(&old, "alive").await;
    assert_eq!((&left["scheduled"], &left["leased"]), (&json!(0), &json!(0)));
    assert_eq!(
        counts(&new, "alive").await["scheduled"],
        DEVICES,
        "one task must wait for each device"
    );
    // The devices fall silent, and each raises one alarm.
    let seen = receiver.wait_for(DEVICES).await;
    let mut alarms: HashMap<String, usize> = HashMap::new();
    for call in &seen {
        *alarms.entry(call.body.clone()).or_default() += 1;
    }
    assert_eq!((alarms.len(), seen.len()), (DEVICES, DEVICES));
    assert_eq!(counts(&new, "alive").await["scheduled"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_alarm_fires_while_heartbeats_come_into_redis() {
    no_alarm_fires_while_heartbeats_come(Kept::embedded(), Kept::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_alarm_fires_while_heartbeats_come_into_embedded() {
    no_alarm_fires_while_heartbeats_come(Kept::redis(), Kept::embedded()).await;
}
