//! What producers and operators do to tasks and topics: keys, cancel, update, lists, dead letters,
//! pauses.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::poll;
use crate::program::{Program, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores};

on_both_stores!(
    idempotent_adds_from_many_clients_make_one_task,
    heartbeats_push_their_keys_back_and_silent_keys_fire,
    a_cancelled_task_never_fires_and_a_fired_one_cannot_be_cancelled,
    a_leased_task_is_cancelled_unless_it_succeeds,
    an_updated_task_fires_at_its_new_moment_with_its_new_content,
    a_task_not_delivered_in_time_expires,
    a_dying_task_makes_its_call,
    failed_attempts_are_noted_with_their_answers,
    pages_of_a_list_follow_one_another,
    dead_letters_are_grouped_replayed_and_purged,
    skipped_dead_tasks_hide_no_others,
    a_topic_has_settings_counts_and_a_forecast,
    a_topics_settings_are_set_as_they_are_shown,
    a_quota_answers_429,
    a_paused_topic_holds_and_a_resumed_one_goes_by_its_misfire_policy,
    a_purged_topic_is_empty_and_can_be_deleted,
    a_topics_policy_holds_for_its_calls,
    a_topic_has_a_concurrency_and_a_rate_of_its_own,
);

async fn call(delayd: &Program, path: &str, body: Value) -> Value {
    delayd.post(path, body.to_string()).await.ok().body
}

/// A task for the service `s`.
fn pushed(topic: &str, delay: Value, n: usize) -> Value {
    json!({"topic": topic, "delay": delay, "content": {"sn": "s", "url": format!("/{n}")}})
}

fn with(mut task: Value, fields: Value) -> Value {
    task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    task
}

async fn state_of(delayd: &Program, topic: &str, id: u64) -> String {
    delayd.task(topic, id).await["state"].as_str().unwrap().to_owned()
}

async fn idempotent_adds_from_many_clients_make_one_task(kept: Kept) {
    let receiver = Receiver::start().await;
    let sets = [service("s", &receiver)];
    let (first, second) = match &kept.store {
        crate::StoreAt::Embedded(_) => (Arc::new(kept.start(&sets).await), None),
        _ => (Arc::new(kept.start(&sets).await), Some(Arc::new(kept.start(&sets).await))),
    };
    let second = second.unwrap_or_else(|| first.clone());
    let task = with(pushed("t", json!("1h"), 0), json!({"idempotency_key": "order-7"}));
    let adding = (0..32).map(|n| {
        let delayd = if n % 2 == 0 { first.clone() } else { second.clone() };
        let task = task.to_string();
        tokio::spawn(async move { delayd.post("/delay/task/add", task).await.ok() })
    });
    let answers: Vec<_> = join_all(adding).await.into_iter().map(Result::unwrap).collect();
    let ids: HashSet<u64> = answers.iter().map(crate::program::Answer::id).collect();
    assert_eq!(ids.len(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.body["duplicate"] == true).count(), 31);
    let counts = &call(&first, "/delay/topic/get", json!({"topic": "t"})).await["counts"];
    assert_eq!(counts["scheduled"], 1);

    let other = with(task.clone(), json!({"delay": "2h"}));
    let refused = first.post("/delay/task/add", other.to_string()).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (422, &json!(1022)), "{refused:?}");
    let batch = call(&first, "/delay/task/add_batch", json!({"tasks": [task, other]})).await;
    assert_eq!(batch["results"][0]["duplicate"], true);
    assert_eq!(batch["results"][1]["dm_error"], 1022);
}

/// Twenty thousand heartbeats of a thousand keys.
async fn heartbeats_push_their_keys_back_and_silent_keys_fire(kept: Kept) {
    const KEYS: usize = 1_000;
    const ROUNDS: usize = 20;
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("s", &receiver)]).await;
    // Late enough not to fire before the last round, however slow the machine is.
    let beat = |key: usize, delay: &str| {
        with(pushed("alive", json!(delay), key), json!({"key": format!("k{key}")}))
    };
    let mut ids: HashSet<u64> = HashSet::new();
    for round in 0..ROUNDS {
        let beats: Vec<Value> =
            (0..KEYS).map(|key| beat(key, if round == 0 { "30m" } else { "1h" })).collect();
        // A push-back may be done twice.
        for some in beats.chunks(100) {
            let answer = delayd
                .post_until_confirmed("/delay/task/add_batch", &json!({"tasks": some}))
                .await
                .ok();
            let added = answer.body["results"].as_array().unwrap();
            ids.extend(added.iter().map(|one| one["task_id"].as_u64().unwrap()));
        }
    }
    assert_eq!(ids.len(), KEYS, "a heartbeat made a second task");
    let silent: Vec<usize> = (0..KEYS).filter(|key| key % 10 == 3).collect();
    delayd.add_all(&silent.iter().map(|key| beat(*key, "100ms")).collect::<Vec<_>>()).await;
    let seen = receiver.wait_for(silent.len()).await;
    let fired: BTreeSet<String> = seen.iter().map(|seen| seen.path.clone()).collect();
    assert_eq!(fired, silent.iter().map(|key| format!("/{key}")).collect());
    let counts = &call(&delayd, "/delay/topic/get", json!({"topic": "alive"})).await["counts"];
    assert_eq!(counts["scheduled"], KEYS - silent.len());
}

async fn a_cancelled_task_never_fires_and_a_fired_one_cannot_be_cancelled(kept: Kept) {
    const TASKS: usize = 300;
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("s", &receiver)]).await;
    // They fall due while they are being cancelled.
    let tasks: Vec<Value> =
        (0..TASKS).map(|n| pushed("t", json!(format!("{}ms", 200 + n)), n)).collect();
    let ids = delayd.add_all(&tasks).await;
    let cancelling = ids.iter().enumerate().map(async |(n, id)| {
        tokio::time::sleep(Duration::from_millis(100 + n as u64)).await;
        delayd
            .post_until_confirmed("/delay/task/cancel", &json!({"topic": "t", "task_id": id}))
            .await
    });
    let answers = join_all(cancelling).await;
    let mut fired = 0;
    for (n, (id, answer)) in ids.iter().zip(&answers).enumerate() {
        let is_cancelled = answer.status == 200;
        if !is_cancelled {
            assert_eq!(
                (answer.status, &answer.body["dm_error"]),
                (409, &json!(1009)),
                "{answer:?}"
            );
        }
        let state = if is_cancelled { "cancelled" } else { "delivered" };
        delayd.wait_for_state("t", *id, state).await;
        fired += usize::from(!is_cancelled);
        let path = format!("/{n}");
        assert_eq!(
            receiver.seen().iter().any(|seen| seen.path == path),
            !is_cancelled,
            "task {n}: {answer:?}"
        );
    }
    println!("{fired} of {TASKS} fired before they were cancelled");
    let late =
        delayd.post("/delay/task/cancel", json!({"topic": "t", "task_id": 7}).to_string()).await;
    assert_eq!((late.status, &late.body["dm_error"]), (404, &json!(1004)));
}

async fn a_leased_task_is_cancelled_unless_it_succeeds(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let cancel = async |id: u64| {
        delayd.post("/delay/task/cancel", json!({"topic": "t", "task_id": id}).to_string()).await
    };
    for (verb, state) in [("nack", "cancelled"), ("ack", "delivered")] {
        let id = delayd.add(json!({"topic": "t", "delay": 0, "content": {"n": 1}})).await.id();
        let pulled = call(&delayd, "/delay/task/pull", json!({"topic": "t", "lease": "1m"})).await;
        let pending = cancel(id).await;
        assert_eq!(
            (pending.status, &pending.body["cancel_pending"]),
            (409, &json!(true)),
            "{pending:?}"
        );
        let body = json!({"topic": "t", "task_id": id, "receipt": pulled["receipt"]});
        call(&delayd, &format!("/delay/task/{verb}"), body).await;
        assert_eq!(state_of(&delayd, "t", id).await, state);
    }
}

async fn an_updated_task_fires_at_its_new_moment_with_its_new_content(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("s", &receiver)]).await;
    let id = delayd.add(pushed("t", json!("1h"), 1)).await.id();
    let update = json!({
        "topic": "t", "task_id": id, "delay": "50ms", "content": {"sn": "s", "url": "/new"},
    });
    let moved = call(&delayd, "/delay/task/update", update).await;
    let seen = receiver.wait_for(1).await;
    assert_eq!((seen[0].path.as_str(), seen[0].id), ("/new", id));
    assert_eq!(json!(seen[0].due_ms), moved["due_ms"]);
    delayd.wait_for_state("t", id, "delivered").await;
    let late = delayd
        .post("/delay/task/update", json!({"topic": "t", "task_id": id, "delay": 1}).to_string())
        .await;
    assert_eq!((late.status, &late.body["state"]), (409, &json!("delivered")));

    // The content of a pulled task stays opaque.
    let pulled =
        delayd.add(json!({"topic": "t", "delay": 60, "mode": "pull", "content": "any"})).await.id();
    call(
        &delayd,
        "/delay/task/update",
        json!({"topic": "t", "task_id": pulled, "delay": 0, "content": "other"}),
    )
    .await;
    assert_eq!(call(&delayd, "/delay/task/pull", json!({"topic": "t"})).await["content"], "other");
}

async fn a_task_not_delivered_in_time_expires(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let task = json!({"topic": "t", "delay": 0, "expires_after": "50ms", "content": {"n": 1}});
    let id = delayd.add(task).await.id();
    let expired = delayd.wait_for_state("t", id, "expired").await;
    assert_eq!(
        (&expired["attempts"], &expired["last_outcome"]),
        (&json!(0), &json!("not delivered in time"))
    );
    assert_eq!(
        call(&delayd, "/delay/task/pull", json!({"topic": "t"})).await["task_id"],
        Value::Null
    );
}

async fn a_dying_task_makes_its_call(kept: Kept) {
    let receiver = Receiver::start().await;
    receiver.answer(|seen| Answer::Status(if seen.path == "/dead" { 200 } else { 410 }));
    let delayd = kept.start(&[service("s", &receiver)]).await;
    let task = with(pushed("t", json!(0), 1), json!({"on_dead": {"sn": "s", "url": "/dead"}}));
    let id = delayd.add(task).await.id();
    let seen = receiver.wait_for(2).await;
    assert_eq!((seen[0].path.as_str(), seen[1].path.as_str()), ("/1", "/dead"));
    let body: Value = serde_json::from_str(&seen[1].body).unwrap();
    assert_eq!(
        (&body["task_id"], &body["topic"], &body["attempts"]),
        (&json!(id), &json!("t"), &json!(1))
    );
    assert_eq!(
        (&body["outcome"], &body["content"]),
        (&json!("410 Gone"), &json!(r#"{"sn":"s","url":"/1"}"#))
    );
    assert_eq!(state_of(&delayd, "t", id).await, "dead");
}

async fn pages_of_a_list_follow_one_another(kept: Kept) {
    let delayd = kept.start(&[]).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "t", "shards": 4})).await;
    let tasks: Vec<Value> = (0..25)
        .map(|n| json!({"topic": "t", "delay": format!("{}s", 1_000 + n), "content": {"n": n}}))
        .collect();
    let ids = delayd.add_all(&tasks).await;
    let (mut got, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let body = json!({"topic": "t", "state": "scheduled", "limit": 10, "cursor": cursor});
        let page = call(&delayd, "/delay/task/list", body).await;
        got.extend(
            page["tasks"].as_array().unwrap().iter().map(|task| task["task_id"].as_u64().unwrap()),
        );
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
        // A task that is added before the cursor's place neither appears twice nor hides others.
        delayd.add(json!({"topic": "t", "delay": 60, "content": {}})).await;
    }
    assert_eq!(got, ids);
}

async fn dead_letters_are_grouped_replayed_and_purged(kept: Kept) {
    let receiver = Receiver::start().await;
    receiver.answer(|seen| Answer::Status(if seen.path.ends_with('3') { 410 } else { 500 }));
    // This is not about the circuit breaker, which these answers open.
    let delayd = kept
        .start(&[
            service("s", &receiver),
            "callback.breaker.open=\"50ms\"".into(),
            "callback.breaker.open_max=\"50ms\"".into(),
        ])
        .await;
    let tasks: Vec<Value> =
        (0..20).map(|n| with(pushed("t", json!(0), n), json!({"max_attempts": 1}))).collect();
    for id in delayd.add_all(&tasks).await {
        delayd.wait_for_state("t", id, "dead").await;
    }
    let causes = call(&delayd, "/delay/dead/causes", json!({"topic": "t"})).await;
    assert_eq!(causes["causes"][0]["reason"], "500 Internal Server Error");
    assert_eq!(causes["causes"][0]["sn"], "s", "a cause did not say who answered");
    assert_eq!(
        (&causes["causes"][0]["count"], &causes["causes"][1]["count"]),
        (&json!(18), &json!(2))
    );

    receiver.answer(|_| Answer::Status(200));
    let gone = json!({"topic": "t", "all": true, "reason": "410 Gone"});
    let dry =
        call(&delayd, "/delay/dead/replay", with(gone.clone(), json!({"dry_run": true}))).await;
    assert_eq!((&dry["count"], &dry["more"]), (&json!(2), &json!(false)));
    assert_eq!(receiver.seen().len(), 20, "a dry run replayed tasks");
    assert_eq!(call(&delayd, "/delay/dead/replay", gone).await["count"], 2);
    let seen = receiver.wait_for(22).await;
    assert!(
        seen[20..].iter().all(|seen| seen.path.ends_with('3') && seen.attempt == 1),
        "{seen:?}"
    );

    // At ten a second, eight tasks take 700 ms from the first to the last.
    let list =
        call(&delayd, "/delay/task/list", json!({"topic": "t", "state": "dead", "limit": 8})).await;
    let ids: Vec<u64> = list["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["task_id"].as_u64().unwrap())
        .collect();
    call(&delayd, "/delay/dead/replay", json!({"topic": "t", "task_ids": ids, "rate": "10/s"}))
        .await;
    let seen = receiver.wait_for(30).await;
    let (first, last) = (seen[22].due_ms, seen[29].due_ms);
    assert_eq!(last - first, 700, "the due moments do not follow the rate");

    let left = json!({"topic": "t", "all": true});
    let dry_run = json!({"dry_run": true});
    assert_eq!(call(&delayd, "/delay/dead/purge", with(left.clone(), dry_run)).await["count"], 10);
    assert_eq!(call(&delayd, "/delay/dead/purge", left.clone()).await["count"], 10);
    assert_eq!(call(&delayd, "/delay/dead/purge", left).await["count"], 0);
}

/// Goes through the dead tasks in pages of four. Returns how many matched, and how many were read.
async fn in_pages(delayd: &Program, path: &str, mut request: Value) -> (u64, u64) {
    let (mut count, mut seen) = (0, 0);
    request["limit"] = json!(4);
    loop {
        let answer = call(delayd, path, request.clone()).await;
        assert!(seen < 100, "the pages begin at the front again: {answer}");
        count += answer["count"].as_u64().unwrap();
        seen += answer["seen"].as_u64().unwrap();
        assert!(answer["seen"].as_u64().unwrap() <= 4, "{answer}");
        assert_eq!(answer["more"], answer["cursor"].is_string(), "{answer}");
        request["cursor"] = answer["cursor"].clone();
        if answer["more"] == false {
            return (count, seen);
        }
    }
}

/// Each call used to begin at the front. If the first tasks of the list had other reasons, the call
/// never reached the matching ones behind them.
async fn skipped_dead_tasks_hide_no_others(kept: Kept) {
    let receiver =
        Receiver::answering(|seen| Answer::Status(if seen.path == "/19" { 410 } else { 418 }))
            .await;
    let delayd = kept.start(&[service("s", &receiver)]).await;
    call(
        &delayd,
        "/delay/topic/set",
        json!({"topic": "t", "shards": 3, "retry": {"max_attempts": 1}}),
    )
    .await;
    let tasks: Vec<Value> = (0..20).map(|n| pushed("t", json!(0), n)).collect();
    let ids = delayd.add_all(&tasks).await;
    for id in &ids {
        delayd.wait_for_state("t", *id, "dead").await;
    }
    let gone = json!({"topic": "t", "all": true, "reason": "410 Gone"});
    let dry = with(gone.clone(), json!({"dry_run": true}));
    assert_eq!(in_pages(&delayd, "/delay/dead/replay", dry).await, (1, 20));
    // It dies again at once, and is not reached a second time.
    assert_eq!(in_pages(&delayd, "/delay/dead/replay", gone).await, (1, 20));
    assert_eq!(receiver.wait_for(21).await[20].path, "/19");
    let foreign = json!({"topic": "t", "all": true, "cursor": "3.5"}).to_string();
    let refused = delayd.post("/delay/dead/replay", foreign).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (400, &json!(1000)), "{refused:?}");

    delayd.wait_for_state("t", ids[19], "dead").await;
    // The same holds for named tasks. The third is named twice.
    let twice = [&ids[..9], &ids[2..3]].concat();
    let named = json!({"topic": "t", "task_ids": twice});
    assert_eq!(in_pages(&delayd, "/delay/dead/purge", named).await, (9, 9));
    assert_eq!(
        in_pages(&delayd, "/delay/dead/purge", json!({"topic": "t", "all": true})).await,
        (11, 11)
    );
}

async fn a_topic_has_settings_counts_and_a_forecast(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let set = json!({
        "topic": "t", "shards": 3, "retry": {"max_attempts": 2}, "rate": "100/s", "mode": "pull",
    });
    let shown = call(&delayd, "/delay/topic/set", set).await;
    assert_eq!((&shown["shards"], &shown["policy"]["rate"]), (&json!(3), &json!("100/s")));
    let refused =
        delayd.post("/delay/topic/set", json!({"topic": "t", "shards": 4}).to_string()).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (400, &json!(1000)));
    call(&delayd, "/delay/topic/set", json!({"topic": "t", "reset": ["rate"], "quota": 1000}))
        .await;

    let overdue = delayd
        .add(json!({"topic": "t", "delay": 0, "content": "opaque, for the topic says so"}))
        .await;
    for minutes in [1, 5, 7, 70] {
        delayd.add(json!({"topic": "t", "delay": format!("{minutes}m"), "content": "x"})).await;
    }
    let shown = call(&delayd, "/delay/topic/get", json!({"topic": "t"})).await;
    let policy = &shown["policy"];
    assert_eq!(*policy, json!({"retry": {"max_attempts": 2}, "mode": "pull", "quota": 1000}));
    assert_eq!(
        (&shown["counts"]["scheduled"], &shown["oldest_overdue_ms"]),
        (&json!(5), &overdue.body["due_ms"])
    );
    let forecast =
        call(&delayd, "/delay/topic/forecast", json!({"topic": "t", "step": "6m", "steps": 3}))
            .await;
    let counts: Vec<&Value> =
        forecast["steps"].as_array().unwrap().iter().map(|step| &step["count"]).collect();
    assert_eq!((&forecast["overdue"], counts), (&json!(1), vec![&json!(2), &json!(1), &json!(0)]));
    let topics = call(&delayd, "/delay/topic/list", json!({})).await;
    let listed = json!([{"topic": "t", "shards": 3, "paused": false, "overdue": false}]);
    assert_eq!(topics["topics"], listed);
}

/// The settings used to have one name when they were set and another when they were shown.
async fn a_topics_settings_are_set_as_they_are_shown(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let backoff =
        json!({"kind": "exponential", "base": "1500ms", "factor": 3, "max": "2h", "jitter": 0.5});
    let all = json!({
        "retry": {"max_attempts": 5, "backoff": backoff, "final_statuses": [404, 410]},
        "timeout": "1500ms", "mode": "push", "rate": "6000/m", "concurrency": 7, "quota": 100_000,
        "history": {"keep": "90m", "max": 5}, "misfire": "skip", "lateness_objective": "250ms",
    });
    let shown =
        call(&delayd, "/delay/topic/set", with(all, json!({"topic": "a"}))).await["policy"].clone();
    assert_eq!(shown.as_object().unwrap().len(), 9, "{shown}");
    let mut edited = shown.clone();
    edited["history"]["max"] = json!(6);
    let second =
        call(&delayd, "/delay/topic/set", with(edited.clone(), json!({"topic": "b"}))).await;
    assert_eq!(second["policy"], edited);
    assert_eq!(call(&delayd, "/delay/topic/get", json!({"topic": "b"})).await["policy"], edited);
    let plain =
        call(&delayd, "/delay/topic/set", json!({"topic": "c", "history": {"max": 5}})).await;
    assert_eq!(plain["policy"], json!({"history": {"max": 5}}));
}

async fn a_quota_answers_429(kept: Kept) {
    let delayd = kept.start(&[]).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "t", "quota": 2})).await;
    let task = json!({"topic": "t", "delay": 60, "content": {}}).to_string();
    for _ in 0..2 {
        delayd.post("/delay/task/add", task.clone()).await.ok();
    }
    let full = delayd.post("/delay/task/add", task.clone()).await;
    assert_eq!((full.status, &full.body["dm_error"]), (429, &json!(1029)), "{full:?}");
    assert!(full.headers.contains_key("retry-after"));
    let list = call(&delayd, "/delay/task/list", json!({"topic": "t", "state": "scheduled"})).await;
    let id = list["tasks"][0]["task_id"].as_u64().unwrap();
    call(&delayd, "/delay/task/cancel", json!({"topic": "t", "task_id": id})).await;
    delayd.post("/delay/task/add", task).await.ok();
}

async fn a_paused_topic_holds_and_a_resumed_one_goes_by_its_misfire_policy(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("s", &receiver)]).await;
    for (misfire, state) in [("fire", "delivered"), ("skip", "expired"), ("dead", "dead")] {
        let topic = misfire;
        // Known before the pause and after it.
        delayd.add(pushed(topic, json!("1h"), 0)).await;
        let paused = call(&delayd, "/delay/topic/pause", json!({"topic": topic})).await;
        assert!(paused["paused_since_ms"].is_i64());
        let before = receiver.seen().len();
        let id = delayd.add(pushed(topic, json!(0), 1)).await.id();
        let shown = call(&delayd, "/delay/topic/get", json!({"topic": topic})).await;
        assert_eq!((&shown["paused"], &shown["counts"]["scheduled"]), (&json!(true), &json!(2)));
        // Longer than any poll that might still claim.
        delayd.lives_for(Duration::from_millis(1_200)).await;
        assert_eq!(receiver.seen().len(), before, "a task of a paused topic was called");
        call(&delayd, "/delay/topic/resume", json!({"topic": topic, "misfire": misfire})).await;
        delayd.wait_for_state(topic, id, state).await;
        let after = delayd.add(pushed(topic, json!(0), 2)).await.id();
        delayd.wait_for_state(topic, after, "delivered").await;
    }
}

async fn a_purged_topic_is_empty_and_can_be_deleted(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let tasks: Vec<Value> =
        (0..1_500).map(|n| json!({"topic": "t", "delay": 60, "content": {"n": n}})).collect();
    let ids = delayd.add_all(&tasks).await;
    call(&delayd, "/delay/task/cancel", json!({"topic": "t", "task_id": ids[0]})).await;
    let full = delayd.post("/delay/topic/delete", json!({"topic": "t"}).to_string()).await;
    assert_eq!((full.status, &full.body["dm_error"]), (409, &json!(1009)), "{full:?}");
    let purged = call(&delayd, "/delay/topic/purge", json!({"topic": "t", "confirm": "t"})).await;
    assert_eq!((&purged["count"], &purged["more"]), (&json!(1_500), &json!(false)));
    call(&delayd, "/delay/topic/delete", json!({"topic": "t"})).await;
    let gone = delayd.post("/delay/topic/get", json!({"topic": "t"}).to_string()).await;
    assert_eq!((gone.status, &gone.body["dm_error"]), (404, &json!(1004)));
    // The topic exists again with its next task.
    delayd.add(json!({"topic": "t", "delay": 60, "content": {}})).await;
}

async fn a_topics_policy_holds_for_its_calls(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::Status(418)).await;
    let delayd = kept.start(&[service("s", &receiver)]).await;
    let fixed = json!({"kind": "fixed", "every": "1ms"});
    let set = json!({"topic": "t", "retry": {"max_attempts": 2, "backoff": fixed}});
    call(&delayd, "/delay/topic/set", set).await;
    let id = delayd.add(pushed("t", json!(0), 1)).await.id();
    assert_eq!(delayd.wait_for_state("t", id, "dead").await["attempts"], 2);
    let id = delayd.add(with(pushed("t", json!(0), 1), json!({"max_attempts": 3}))).await.id();
    assert_eq!(
        delayd.wait_for_state("t", id, "dead").await["attempts"],
        3,
        "the task's own setting comes first"
    );
    call(&delayd, "/delay/topic/set", json!({"topic": "t", "retry": {"final_statuses": [418]}}))
        .await;
    let id = delayd.add(pushed("t", json!(0), 1)).await.id();
    assert_eq!(delayd.wait_for_state("t", id, "dead").await["attempts"], 1);
}

async fn a_topic_has_a_concurrency_and_a_rate_of_its_own(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let delayd = kept.start(&[service("s", &receiver)]).await;
    call(&delayd, "/delay/topic/set", json!({"topic": "t", "concurrency": 2})).await;
    let tasks: Vec<Value> = (0..10).map(|n| pushed("t", json!(0), n)).collect();
    delayd.add_all(&tasks).await;
    receiver.wait_for(2).await;
    // Calls of another topic to the same service do not wait.
    delayd.add(pushed("other", json!(0), 99)).await;
    let seen = receiver.wait_for(3).await;
    assert_eq!(seen[2].path, "/99", "the third call is not the other topic's");
    receiver.open_gate();
    receiver.wait_for(11).await;

    call(&delayd, "/delay/topic/set", json!({"topic": "slow", "rate": "20/s"})).await;
    let tasks: Vec<Value> = (0..10).map(|n| pushed("slow", json!(0), n)).collect();
    delayd.add_all(&tasks).await;
    let seen = receiver.wait_for(21).await;
    let took = seen[20].arrived_ms - seen[11].arrived_ms;
    // Nine tasks after the first two tokens, 50 ms each. A slow machine only takes longer.
    assert!(took >= 300, "ten calls at 20/s took {took} ms");
}

async fn failed_attempts_are_noted_with_their_answers(kept: Kept) {
    let receiver = Receiver::answering(|seen| match seen.attempt {
        1 => Answer::With(500, Vec::new(), "the till is broken"),
        _ => Answer::Status(200),
    })
    .await;
    let delayd = kept.start(&[service("s", &receiver)]).await;
    let fixed = json!({"backoff": {"kind": "fixed", "every": "3ms"}});
    let id = delayd.add(with(pushed("t", json!(0), 1), fixed)).await.id();
    delayd.wait_for_state("t", id, "delivered").await;
    // Notes are written in the background.
    let noted =
        async || Some(delayd.task("t", id).await).filter(|task| task["log"].get(0).is_some());
    let Some(task) = poll::answer(noted).await else {
        panic!("the failed attempt was not noted:\n{}", delayd.log())
    };
    assert_eq!(task["log"].as_array().unwrap().len(), 1, "{task}");
    let note = &task["log"][0];
    assert_eq!((&note["attempt"], &note["answer"]), (&json!(1), &json!("the till is broken")));
    assert_eq!(
        (&note["outcome"], &note["wait_ms"]),
        (&json!("500 Internal Server Error"), &json!(3))
    );
}

/// A pause at one instance holds on all others within a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_on_every_instance_within_a_second() {
    let kept = Kept::redis();
    let receiver = Receiver::start().await;
    let sets = [service("s", &receiver)];
    let (first, second) = (kept.start(&sets).await, kept.start(&sets).await);
    let before = second.add(pushed("t", json!(0), 0)).await.id();
    second.wait_for_state("t", before, "delivered").await;
    call(&first, "/delay/topic/pause", json!({"topic": "t"})).await;
    first.lives_for(Duration::from_secs(1)).await;
    let during = second.add(pushed("t", json!(0), 1)).await.id();
    let pulled = call(&second, "/delay/task/pull", json!({"topic": "t"})).await;
    assert_eq!(pulled["task_id"], Value::Null);
    // Longer than the poll of either instance that might still claim.
    second.lives_for(Duration::from_millis(1_500)).await;
    assert_eq!(state_of(&second, "t", during).await, "scheduled");
    call(&first, "/delay/topic/resume", json!({"topic": "t"})).await;
    second.wait_for_state("t", during, "delivered").await;
}
