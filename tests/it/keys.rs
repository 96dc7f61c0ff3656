//! Tasks that are named by the caller's own key instead of their id.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::program::{Answer, Program};
use crate::{Kept, StoreAt, on_both_stores};

on_both_stores!(
    a_task_is_read_changed_and_cancelled_by_its_keys,
    a_name_that_is_unknown_or_ambiguous_is_refused,
    a_repeated_add_answers_when_its_task_is_due_now,
    a_key_names_its_newest_task,
    a_key_is_found_after_the_number_of_lanes_has_changed,
    cancels_by_key_and_adds_end_with_one_task_or_none,
);

const CANCEL: &str = "/delay/task/cancel";
const GET: &str = "/delay/task/get";
const PULL: &str = "/delay/task/pull";
const UPDATE: &str = "/delay/task/update";

async fn call(delayd: &Program, path: &str, body: Value) -> Answer {
    delayd.post(path, body.to_string()).await
}

fn with(mut body: Value, fields: &Value) -> Value {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn task(name: &Value) -> Value {
    with(json!({"topic": "t", "delay": "1h", "content": {"order": 42}}), name)
}

fn by(name: &Value) -> Value {
    with(json!({"topic": "t"}), name)
}

/// A shop knows the number of its order. It crashed between the add and saving the id.
async fn a_task_is_read_changed_and_cancelled_by_its_keys(kept: Kept) {
    let delayd = kept.start(&[]).await;
    for name in [
        json!({"key": "order 42"}),
        json!({"idempotency_key": "订单-42"}),
        json!({"key": "order 43", "idempotency_key": "订单-42"}),
    ] {
        let id = delayd.add(task(&name)).await.id();
        let read = call(&delayd, PULL, by(&name)).await.ok();
        assert_eq!((read.id(), &read.body["content"]), (id, &json!(r#"{"order":42}"#)), "{name}");
        let new = json!({"delay": "2h", "content": {"order": 42, "second": true}});
        let moved = call(&delayd, UPDATE, with(by(&name), &new)).await.ok();
        assert_eq!(moved.id(), id, "{name}");
        let shown = &call(&delayd, GET, by(&name)).await.ok().body["task"];
        assert_eq!((&shown["task_id"], &shown["due_ms"]), (&json!(id), &moved.body["due_ms"]));
        assert_eq!(shown["content"], r#"{"order":42,"second":true}"#, "{name}");
        for _ in 0..2 {
            assert_eq!(call(&delayd, CANCEL, by(&name)).await.ok().id(), id, "{name}");
        }
        assert_eq!(delayd.task("t", id).await["state"], "cancelled", "{name}");
        let late = call(&delayd, UPDATE, with(by(&name), &json!({"delay": 1}))).await;
        assert_eq!((late.status, &late.body["state"]), (409, &json!("cancelled")), "{name}");
        let field = ["idempotency_key", "key"].into_iter().find(|field| name[*field].is_string());
        let sentence = "the task is cancelled, which does not allow this call";
        assert_eq!(late.body["error_msg"], format!("{}: {sentence}", field.unwrap()), "{name}");
    }
    // A key, and not the idempotency key beside it, leads to a task that has both.
    let id = delayd.add(task(&json!({"key": "k", "idempotency_key": "i"}))).await.id();
    assert_eq!(call(&delayd, CANCEL, by(&json!({"idempotency_key": "i"}))).await.status, 404);
    assert_eq!(call(&delayd, CANCEL, by(&json!({"key": "k"}))).await.ok().id(), id);
}

/// It answered the first due time, and the caller believed that its update was lost.
async fn a_repeated_add_answers_when_its_task_is_due_now(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let name = json!({"idempotency_key": "i"});
    let first = delayd.add(task(&name)).await.ok();
    let due = |answer: &Answer| answer.body["due_ms"].clone();
    assert_eq!(due(&delayd.add(task(&name)).await.ok()), due(&first));
    let moved = call(&delayd, UPDATE, with(by(&name), &json!({"delay": "2h"}))).await.ok();
    assert_ne!(due(&moved), due(&first));
    assert_eq!(due(&delayd.add(task(&name)).await.ok()), due(&moved));
    let batch = json!({"tasks": [task(&name), task(&json!({"key": "k"}))]});
    let batch = call(&delayd, "/delay/task/add_batch", batch).await.ok().body;
    assert_eq!(batch["results"][0]["due_ms"], due(&moved), "{batch}");
    assert_eq!(batch["results"][0]["duplicate"], true, "{batch}");
}

async fn a_name_that_is_unknown_or_ambiguous_is_refused(kept: Kept) {
    let delayd = kept.start(&[]).await;
    delayd.add(task(&json!({"key": "k", "idempotency_key": "i"}))).await;
    let check = async |name: Value, status: u16, sentence: &str| {
        for path in [CANCEL, GET, PULL, UPDATE] {
            let moment = if path == UPDATE { json!({"delay": 1}) } else { json!({}) };
            let answer = call(&delayd, path, with(by(&name), &moment)).await;
            assert_eq!(
                (answer.status, answer.body["error_msg"].as_str().unwrap()),
                (status, sentence),
                "{path} {name}"
            );
        }
    };
    let two = "task_id: cannot be combined with key or idempotency_key; name the task by its id or \
               by its key";
    check(json!({"task_id": 7, "key": "k"}), 400, two).await;
    check(json!({"task_id": "7", "idempotency_key": "i"}), 400, two).await;
    check(json!({"task_id": 7}), 404, "task_id: there is no such task in this topic").await;
    check(json!({"key": "another"}), 404, "key: no task of the topic t has the key \"another\"")
        .await;
    check(
        json!({"idempotency_key": "i"}),
        404,
        "idempotency_key: no task of the topic t was added with \"i\" and without a key, or its \
         window has ended",
    )
    .await;
    check(
        json!({"key": "k", "idempotency_key": "j"}),
        404,
        "idempotency_key: no task of the topic t was added with \"j\" and the key \"k\", or its \
         window has ended",
    )
    .await;
    check(json!({"topic": "nowhere", "key": "k"}), 404, "topic: there is no such topic").await;
    for path in [CANCEL, GET, UPDATE] {
        let nameless = call(&delayd, path, with(by(&json!({})), &json!({}))).await;
        let sentence = nameless.body["error_msg"].as_str().unwrap().to_owned();
        assert!(sentence.starts_with("task_id: is missing; "), "{path}: {sentence}");
    }
    let leased = call(&delayd, PULL, by(&json!({"key": "k", "lease": "10s"}))).await;
    let sentence = leased.body["error_msg"].as_str().unwrap();
    assert!(
        leased.status == 400 && sentence.starts_with("key: only reads that task"),
        "{leased:?}"
    );
    // Nothing was changed.
    assert_eq!(call(&delayd, GET, by(&json!({"key": "k"}))).await.body["task"]["attempts"], 0);
}

async fn a_key_names_its_newest_task(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let now = |n: u64| json!({"topic": "t", "key": "k", "delay": 0, "content": {"n": n}});
    let lease = async || {
        let body = json!({"topic": "t", "lease": "1m", "wait": "20s"});
        call(&delayd, PULL, body).await.ok()
    };
    let old = delayd.add(now(1)).await.id();
    let held = lease().await;
    let pending = call(&delayd, CANCEL, by(&json!({"key": "k"}))).await;
    assert_eq!((pending.status, &pending.body["cancel_pending"]), (409, &json!(true)));
    let new = delayd.add(now(2)).await.id();
    assert_ne!(old, new);
    assert_eq!(call(&delayd, CANCEL, by(&json!({"key": "k"}))).await.ok().id(), new);
    // The old one was told to end, and has no key any more.
    let receipt = json!({"task_id": old, "receipt": held.body["receipt"]});
    call(&delayd, "/delay/task/nack", with(by(&json!({})), &receipt)).await.ok();
    assert_eq!(delayd.task("t", old).await["state"], "cancelled");
    // A replacement keeps the id, and so each idempotency key names the task.
    let add = |once: &str| with(task(&json!({"key": "k2"})), &json!({"idempotency_key": once}));
    let first = delayd.add(add("1")).await.id();
    assert_eq!(delayd.add(add("2")).await.id(), first);
    for once in ["1", "2"] {
        let name = json!({"key": "k2", "idempotency_key": once});
        assert_eq!(call(&delayd, CANCEL, by(&name)).await.ok().id(), first);
    }
}

/// Another instance still has the old number of lanes.
async fn a_key_is_found_after_the_number_of_lanes_has_changed(kept: Kept) {
    let first = kept.start(&[]).await;
    let second = match kept.store {
        StoreAt::Embedded(_) => None,
        _ => Some(kept.start(&[]).await),
    };
    let asked = second.as_ref().unwrap_or(&first);
    for shards in [1, 7, 3] {
        call(&first, "/delay/topic/set", json!({"topic": "t", "shards": shards})).await.ok();
        for n in 0..12 {
            let key = json!({"key": format!("order-{n}")});
            let once = json!({"idempotency_key": format!("once-{n}")});
            for name in [key, once] {
                let id = first.add(task(&name)).await.id();
                let (second, third) = (by(&name), with(by(&name), &json!({"delay": "3h"})));
                assert_eq!(call(asked, UPDATE, third).await.ok().id(), id, "{shards} {name}");
                assert_eq!(call(asked, PULL, second.clone()).await.ok().id(), id);
                assert_eq!(call(asked, CANCEL, second).await.ok().id(), id);
            }
        }
        call(&first, "/delay/topic/purge", json!({"topic": "t", "confirm": "t"})).await.ok();
        let unknown = call(asked, CANCEL, by(&json!({"key": "order-1"}))).await;
        assert_eq!(unknown.status, 404, "{unknown:?}");
        call(&first, "/delay/topic/delete", json!({"topic": "t"})).await.ok();
    }
}

/// Adds of a key, claims that lease its task, and cancels by the key, all at the same time. Every
/// answer fits some order of the calls, and after a last cancel no task of the key waits.
async fn cancels_by_key_and_adds_end_with_one_task_or_none(kept: Kept) {
    const ROUNDS: usize = 12;
    let delayd = Arc::new(kept.start(&[]).await);
    let name = json!({"key": "k"});
    for round in 0..ROUNDS {
        let delay = if round % 2 == 0 { json!(0) } else { json!("1h") };
        let add = with(json!({"topic": "t", "delay": delay, "content": {}}), &name);
        let lease = json!({"topic": "t", "lease": "1h"});
        let calls = [
            ("/delay/task/add", add.clone()),
            (CANCEL, by(&name)),
            (PULL, lease),
            ("/delay/task/add", add),
            (CANCEL, by(&name)),
            (UPDATE, with(by(&name), &json!({"delay": "2h"}))),
        ];
        let answers = join_all(calls.map(|(path, body)| {
            let delayd = delayd.clone();
            let asked = async move { call(&delayd, path, body).await };
            tokio::spawn(asked)
        }));
        for answer in answers.await {
            let answer = answer.unwrap();
            assert!(matches!(answer.status, 200 | 404 | 409), "{answer:?}");
        }
        // The newest task is leased, or it can be cancelled.
        let last = call(&delayd, CANCEL, by(&name)).await;
        let is_leased = last.body["cancel_pending"] == true;
        assert!(last.status == 200 || is_leased, "{last:?}");
        let waiting = json!({"topic": "t", "state": "scheduled"});
        let waiting = call(&delayd, "/delay/task/list", waiting).await.ok();
        assert_eq!(waiting.body["tasks"], json!([]), "round {round}");
    }
}
