//! Recurring schedules on their way to another store: by `delayd move` while they fire, and through
//! a file. Also what an upgrade and a failover leave.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::moving::{Running, counts, move_all, mover, mover_from};
use crate::program::{Program, StoreAt, command, run, service};
use crate::receiver::{Answer, Receiver, Seen};
use crate::{Kept, on_both_stores, poll, redis_server};

on_both_stores!(
    an_export_carries_schedules_and_what_they_have_handed_out,
    a_topic_with_schedules_is_purged_and_not_deleted,
    a_quota_leaves_the_occurrences_alone,
);

const SECOND: i64 = 1_000;

/// Sets a schedule of topic `t` that calls the receiver.
pub(crate) async fn set(delayd: &Program, name: &str, more: Value) -> Value {
    let mut body = json!({
        "topic": "t", "schedule": name,
        "content": {"sn": "message.call", "url": format!("/{name}")},
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    delayd.post("/delay/schedule/set", body.to_string()).await.ok().body
}

pub(crate) async fn call(delayd: &Program, verb: &str, body: Value) -> crate::program::Answer {
    delayd.post(&format!("/delay/schedule/{verb}"), body.to_string()).await
}

pub(crate) async fn records(delayd: &Program) -> Vec<Value> {
    let answer = call(delayd, "records", json!({"topic": "t"})).await;
    if answer.status == 404 {
        return Vec::new();
    }
    answer.ok().body["records"].as_array().unwrap().clone()
}

/// The ids of the waiting tasks that no schedule plans.
pub(crate) async fn waiting(delayd: &Program) -> HashSet<u64> {
    let planned: HashSet<u64> =
        records(delayd).await.iter().filter_map(|record| record["waiting"].as_u64()).collect();
    let list = json!({"topic": "t", "state": "scheduled", "limit": 1000}).to_string();
    let list = delayd.post("/delay/task/list", list).await.ok().body;
    let tasks = list["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["task_id"].as_u64().unwrap()).filter(|id| !planned.contains(id)).collect()
}

/// Deletes schedules, and waits until the calls that are under way have ended.
pub(crate) async fn stop(delayd: &Program, names: &[impl AsRef<str>]) {
    for name in names {
        call(delayd, "delete", json!({"topic": "t", "schedule": name.as_ref()})).await.ok();
    }
    let is_idle = async || counts(delayd, "t").await["leased"] == 0;
    assert!(poll::until(is_idle).await, "calls do not end:\n{}", delayd.log());
}

fn number(seen: &Seen, header: &str) -> Option<i64> {
    seen.headers.get(header)?.to_str().ok()?.parse().ok()
}

pub(crate) fn text<'a>(seen: &'a Seen, header: &str) -> &'a str {
    seen.headers[header].to_str().unwrap()
}

/// The calls of each schedule, in the order of their moments.
pub(crate) fn by_schedule(seen: Vec<Seen>) -> BTreeMap<String, Vec<Seen>> {
    let mut schedules: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for call in seen.into_iter().filter(|call| call.headers.contains_key("delay-schedule")) {
        schedules.entry(text(&call, "delay-schedule").to_owned()).or_default().push(call);
    }
    let moment = |call: &Seen| number(call, "delay-schedule-moment-ms").unwrap();
    schedules.values_mut().for_each(|calls| calls.sort_by_key(moment));
    schedules
}

/// Asserts that each moment of a schedule of one second was called once, or is one of those that
/// another occurrence stands for, and that none came early. Returns the number of calls.
pub(crate) fn check_moments(name: &str, calls: &[Seen]) -> usize {
    let moment = |call: &Seen| number(call, "delay-schedule-moment-ms").unwrap();
    for call in calls {
        assert!(call.arrived_ms >= moment(call), "{name}: a call came early");
    }
    for pair in calls.windows(2) {
        let missed = number(&pair[0], "delay-schedule-missed").unwrap_or_default();
        let (this, next) = (moment(&pair[0]), moment(&pair[1]));
        assert_eq!(next, this + (1 + missed) * SECOND, "{name}: {missed} missed after {this}");
    }
    let ids: HashSet<&str> = calls.iter().map(|call| text(call, "webhook-id")).collect();
    assert_eq!(ids.len(), calls.len(), "{name}: a moment was called twice");
    calls.len()
}

/// Twenty schedules fire each second while tasks are added and everything moves.
async fn schedules_move_while_they_fire(from: Kept, into: Kept) {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) = (from.start(&settings).await, into.start(&settings).await);
    old.post("/delay/topic/set", json!({"topic": "t", "shards": 4}).to_string()).await.ok();
    let names: Vec<String> = (0..20).map(|n| format!("s{n:02}")).collect();
    for (n, name) in names.iter().enumerate() {
        let misfire = if n % 2 == 0 { "all" } else { "once" };
        set(&old, name, json!({"every": "1s", "misfire": misfire})).await;
    }
    set(&old, "far", json!({"cron": "0 0 1 1 *", "zone": "Asia/Shanghai"})).await;
    set(&old, "paused", json!({"every": "1h"})).await;
    call(&old, "pause", json!({"topic": "t", "schedule": "paused"})).await.ok();
    receiver.wait_for(60).await;

    let adding = async {
        let mut added = HashSet::new();
        for n in 0..100 {
            let content = json!({"sn": "message.call", "url": "/", "n": n});
            added.insert(
                old.add(json!({"topic": "t", "delay": "1h", "content": content})).await.id(),
            );
        }
        added
    };
    let words = ["--margin", "1s", "--linger", "2s"];
    let ((code, output, error), added) = tokio::join!(run(mover(&old, &new, &words)), adding);
    let summary: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(summary["topics"][0]["schedules"], 22, "{summary} {error}");
    let moved = receiver.seen().len();
    receiver.wait_for(moved + 60).await;

    assert_eq!(records(&old).await, [] as [Value; 0], "the old store has schedules");
    let there = records(&new).await;
    let origins: HashSet<&str> =
        there.iter().map(|record| record["origin"].as_str().unwrap()).collect();
    assert_eq!((there.len(), origins.len()), (22, 1));
    let origin = (*origins.iter().next().unwrap()).to_owned();
    let one = |name: &str| there.iter().find(|record| record["schedule"] == name).unwrap();
    assert_eq!((&one("paused")["paused"], &one("far")["paused"]), (&json!(true), &json!(false)));
    assert!(one("far")["waiting"].is_u64(), "{}", one("far"));

    stop(&new, &names).await;
    // In the first second in which the new store plans, both may draw the same ids. A task whose id
    // is taken stays at the old store.
    let (stay, moved) = (waiting(&old).await, waiting(&new).await);
    assert_eq!((code, &summary["left"]), (i32::from(!stay.is_empty()), &json!(stay.len())));
    assert!(moved.is_disjoint(&stay) && &moved | &stay == added, "{summary} {error}");
    let calls = by_schedule(receiver.seen());
    assert_eq!(calls.keys().cloned().collect::<Vec<_>>(), names);
    for (name, calls) in &calls {
        assert!(check_moments(name, calls) >= 4, "{name}: {} calls", calls.len());
        let ids = calls.iter().map(|call| text(call, "webhook-id"));
        assert!(ids.into_iter().all(|id| id.starts_with(&origin)), "{name}: another webhook-id");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_move_from_embedded_to_redis_while_they_fire() {
    schedules_move_while_they_fire(Kept::embedded(), Kept::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_move_from_redis_to_embedded_while_they_fire() {
    schedules_move_while_they_fire(Kept::redis(), Kept::embedded()).await;
}

/// The states that a mover leaves if it dies between its steps.
async fn a_mover_that_died_between_its_steps_is_continued(from: Kept, into: Kept) {
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) = (from.start(&settings).await, into.start(&settings).await);
    for name in ["held", "adopted", "changed"] {
        set(&old, name, json!({"every": "1s", "misfire": "all"})).await;
    }
    receiver.wait_for(3).await;
    let hold = json!({"topic": "t", "hold": ["held", "adopted", "changed", "none"]});
    let held = call(&old, "records", hold).await.ok().body;
    let held: Vec<Value> = held["records"].as_array().unwrap().clone();
    assert_eq!(held.len(), 3, "{held:?}");
    assert!(held.iter().all(|record| record["held"] == true && record.get("waiting").is_none()));
    let adopt = json!({"topic": "t", "records": held[1..]});
    for known in [false, true] {
        let answer = call(&new, "adopt", adopt.clone()).await.ok().body;
        assert_eq!((&answer["failed"], &answer["results"][0]["known"]), (&json!(0), &json!(known)));
    }
    // Someone changes it at the old service while it is held.
    set(&old, "changed", json!({"every": "1s", "misfire": "all", "headers": {"x-new": "1"}})).await;
    let stale = json!({"topic": "t", "schedules": [
        {"schedule": "changed", "revision": held[2]["revision"]},
    ]});
    let answer = call(&old, "moved", stale).await.ok().body;
    assert_eq!((&answer["count"], &answer["stale"]), (&json!(0), &json!(["changed"])));

    let summary = move_all(&old, &new, &["--margin", "1s"]).await;
    assert_eq!(summary["topics"][0]["schedules"], 3, "{summary}");
    let before = receiver.seen().len();
    receiver.wait_for(before + 9).await;
    assert_eq!(records(&old).await, [] as [Value; 0]);
    stop(&new, &["held", "adopted", "changed"]).await;
    let calls = by_schedule(receiver.seen());
    check_moments("held", &calls["held"]);
    check_moments("adopted", &calls["adopted"]);
    // A set begins anew, so its moments are others.
    assert!(calls["changed"].last().unwrap().headers.contains_key("x-new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_that_died_is_continued_into_redis() {
    a_mover_that_died_between_its_steps_is_continued(Kept::embedded(), Kept::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_that_died_is_continued_into_embedded() {
    a_mover_that_died_between_its_steps_is_continued(Kept::redis(), Kept::embedded()).await;
}

/// Killed at any of its steps, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_mover_loses_no_moment() {
    let (from, into) = (Kept::redis(), Kept::embedded());
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) = (from.start(&settings).await, into.start(&settings).await);
    let names: Vec<String> = (0..150).map(|n| format!("s{n:03}")).collect();
    for name in &names {
        set(&old, name, json!({"every": "1s", "misfire": "all"})).await;
    }
    receiver.wait_for(150).await;
    for wait in [5, 20, 40, 80, 160] {
        let running = Running::start(mover_from(&old.url(""), &new.url(""), &["--margin", "1s"]));
        old.lives_for(Duration::from_millis(wait)).await;
        drop(running);
    }
    move_all(&old, &new, &["--margin", "1s"]).await;
    assert_eq!(records(&old).await, [] as [Value; 0]);
    let before = receiver.seen().len();
    receiver.wait_for(before + 300).await;
    stop(&new, &names).await;
    let calls = by_schedule(receiver.seen());
    assert_eq!(calls.len(), names.len());
    for (name, calls) in &calls {
        check_moments(name, calls);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_the_new_service_refuses_goes_on_at_the_old_one() {
    let (from, into) = (Kept::embedded(), Kept::redis());
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let (old, new) = (from.start(&settings).await, into.start(&settings).await);
    set(&old, "both", json!({"every": "1s", "misfire": "all"})).await;
    set(&old, "one", json!({"every": "1h"})).await;
    set(&new, "both", json!({"every": "1h"})).await;
    receiver.wait_for(1).await;
    let mover = mover_from(&old.url(""), &new.url(""), &["--margin", "1s", "--patience", "1s"]);
    let (code, output, error) = run(mover).await;
    let summary: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &summary["topics"][0]["schedules"]), (1, &json!(1)), "{output}{error}");
    assert!(error.contains("another schedule already has this name"), "{error}");
    assert!(error.contains("1 schedule left at the old service"), "{error}");
    let before = receiver.seen().len();
    receiver.wait_for(before + 2).await;
    let calls = by_schedule(receiver.seen());
    check_moments("both", &calls["both"]);
    let left = records(&old).await;
    assert_eq!((left.len(), &left[0]["schedule"], left[0].get("held")), (1, &json!("both"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_of_one_store_move_no_schedule() {
    let kept = Kept::redis();
    let (one, two) = (kept.start(&[]).await, kept.start(&[]).await);
    let body = json!({"topic": "t", "schedule": "a", "every": "1h", "content": {"x": 1}});
    call(&one, "set", body).await.ok();
    let before = records(&one).await;
    let (code, output, error) = run(mover_from(&one.url(""), &two.url(""), &[])).await;
    assert!(code == 1 && error.contains("this very store has it"), "{output}{error}");
    let is_back = async || records(&one).await[0]["waiting"].is_u64();
    assert!(poll::until(is_back).await, "the schedule is not planned again");
    let after = records(&one).await;
    assert_eq!((&after[0]["revision"], after[0].get("held")), (&before[0]["revision"], None));
}

/// Through a file. A waiting occurrence is planned again by the imported schedule; one that waits
/// for a retry comes with its `webhook-id`.
async fn an_export_carries_schedules_and_what_they_have_handed_out(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::Status(500)).await;
    let settings = [service("message.call", &receiver)];
    let old = kept.start(&settings).await;
    let retry = json!({"kind": "fixed", "every": "1h"});
    set(&old, "failing", json!({"every": "1s", "misfire": "all", "backoff": retry})).await;
    set(&old, "daily", json!({"cron": "@daily", "zone": "Europe/Berlin"})).await;
    let failed = receiver.wait_for(1).await[0].clone();
    old.wait_for_state("t", failed.id, "scheduled").await;
    old.post("/delay/topic/pause", json!({"topic": "t"}).to_string()).await.ok();

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("export.ndjson");
    let mut export = command(&[]);
    export.args(["export", "--server", &old.url(""), "--out"]).arg(&file);
    let (code, output, error) = run(export).await;
    assert_eq!(code, 0, "{output}{error}");
    let exported = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> =
        exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let schedules: Vec<&Value> =
        lines.iter().filter(|line| !line["definition"].is_null()).collect();
    assert_eq!(schedules.len(), 2, "{exported}");
    let waiting: Vec<&Value> = schedules.iter().map(|schedule| &schedule["waiting"]).collect();
    let tasks: Vec<&Value> = lines.iter().filter(|line| line["task_id"].is_u64()).collect();
    assert!(tasks.iter().all(|task| task["attempts"].as_u64() > Some(0)), "{exported}");
    assert!(tasks.iter().all(|task| !waiting.contains(&&task["task_id"])), "{exported}");
    let origin = schedules[0]["origin"].as_str().unwrap().to_owned();
    old.kill();

    let new = match &kept.store {
        StoreAt::Embedded(_) => Kept::redis(),
        _ => Kept::embedded(),
    };
    let new_receiver = Receiver::start().await;
    let delayd = new.start(&[service("message.call", &new_receiver)]).await;
    let import = async || {
        let mut import = command(&[]);
        import.args(["import", "--json", "--server", &delayd.url("")]).arg(&file);
        let (code, output, error) = run(import).await;
        assert_eq!(code, 0, "{output}{error}");
        serde_json::from_str::<Value>(&output).unwrap()
    };
    let counts = import().await;
    assert_eq!((&counts["stored"], &counts["known"]), (&json!(tasks.len() + 2), &json!(0)));
    let counts = import().await;
    assert_eq!((&counts["stored"], &counts["known"]), (&json!(0), &json!(tasks.len() + 2)));
    // The topic came as it was: paused.
    delayd.post("/delay/topic/resume", json!({"topic": "t"}).to_string()).await.ok();
    let task = delayd.task("t", failed.id).await;
    assert_eq!(task["webhook_id"], text(&failed, "webhook-id"));
    let seen = new_receiver.wait_for(3).await;
    let all = receiver.seen().into_iter().chain(seen).collect();
    let calls = by_schedule(all);
    check_moments("failing", &calls["failing"]);
    let of_origin = |call: &Seen| text(call, "webhook-id").starts_with(&origin);
    assert!(calls["failing"].iter().all(of_origin), "another webhook-id");
}

/// A purge of the tasks passes over the occurrence that waits. A topic with schedules stays.
async fn a_topic_with_schedules_is_purged_and_not_deleted(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let topic = json!({"topic": "t"}).to_string();
    let body = json!({"topic": "t", "schedule": "a", "every": "1h", "content": {"x": 1}});
    call(&delayd, "set", body).await.ok();
    let first = records(&delayd).await[0]["waiting"].clone();
    let purge = json!({"topic": "t", "confirm": "t"}).to_string();
    delayd.post("/delay/topic/purge", purge).await.ok();
    let planned = async || records(&delayd).await[0]["waiting"].clone();
    // Its planner looks at it again when the purged moment falls due, or at once by a set.
    assert_eq!(planned().await, Value::Null, "{first} is gone");
    let refused = delayd.post("/delay/topic/delete", topic.clone()).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (409, &json!(1009)), "{refused:?}");
    let said = refused.body["error_msg"].as_str().unwrap();
    assert!(said.contains("delete its schedules and purge it first"), "{said}");
    call(&delayd, "delete", json!({"topic": "t", "schedule": "a"})).await.ok();
    delayd.post("/delay/topic/delete", topic).await.ok();
}

/// A topic at its quota refuses adds, and its schedules go on.
async fn a_quota_leaves_the_occurrences_alone(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    delayd
        .post("/delay/topic/set", json!({"topic": "t", "quota": 1, "shards": 1}).to_string())
        .await
        .ok();
    delayd.add(json!({"topic": "t", "delay": "1h", "mode": "pull", "content": "x"})).await.id();
    set(&delayd, "a", json!({"every": "1s"})).await;
    receiver.wait_for(2).await;
    let refused = json!({"topic": "t", "delay": "1h", "mode": "pull", "content": "x"});
    assert_eq!(delayd.post("/delay/task/add", refused.to_string()).await.status, 429);
    let run = call(&delayd, "run", json!({"topic": "t", "schedule": "a"})).await;
    assert_eq!(run.status, 429, "a run counts as an add: {:?}", run.body);
}

/// A cluster's failover may forget that a topic has schedules, while their lanes survive.
#[tokio::test(flavor = "multi_thread")]
async fn planning_goes_on_after_a_failover_that_forgot_which_topics_have_schedules() {
    let kept = Kept::redis();
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver)];
    let first = kept.start(&settings).await;
    set(&first, "a", json!({"every": "1s", "misfire": "all"})).await;
    receiver.wait_for(1).await;
    let beside = |role: &str| {
        let prefix = kept.prefix();
        format!("{prefix}:DELAY_TOPIC_{role}-{{{prefix}:DELAY_TOPIC_LIST}}")
    };
    let redis = redis_server::shared();
    redis.command(&["DEL", &beside("SCHEDULED"), &beside("REVISION")]);
    // The instance reads the registry without the mark.
    first.lives_for(Duration::from_secs(2)).await;
    // The janitor of each instance restores the mark once a minute, and at its start.
    let second = kept.start(&settings).await;
    let is_marked = async || redis.command(&["EXISTS", &beside("SCHEDULED")]).contains('1');
    assert!(poll::until(is_marked).await, "the mark is not restored: {}", second.log());
    let before = receiver.seen().len();
    receiver.wait_for(before + 3).await;
    check_moments("a", &by_schedule(receiver.seen())["a"]);
}

/// The store has the format of an older version, whose instances would call occurrences without
/// their headers.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_an_older_format_takes_no_schedules_until_it_is_raised() {
    let kept = Kept::redis();
    let store = format!("{0}:DELAY_STORE-{{{0}:DELAY_TOPIC_LIST}}", kept.prefix());
    let instances = format!("{0}:DELAY_INSTANCES-{{{0}:DELAY_TOPIC_LIST}}", kept.prefix());
    let redis = redis_server::shared();
    let delayd = kept.start(&[]).await;
    redis.command(&["HSET", &store, "format", "1"]);
    let body = json!({"topic": "t", "schedule": "a", "every": "1h", "content": {"x": 1}});
    let refused = async || {
        let answer = call(&delayd, "set", body.clone()).await;
        let says = answer.body["error_msg"].as_str().unwrap().to_owned();
        answer.status == 503 && says.contains("delayd format --raise")
    };
    assert!(poll::until(refused).await, "a set is not refused");
    const SET_MS: u64 = 1_795_268_529_000;
    let record = json!({
        "topic": "t", "schedule": "a", "set_ms": SET_MS, "since_ms": SET_MS,
        "origin": "00c0ffee00c0ffee",
        "definition": {"cron": "@daily", "zone": "UTC", "misfire": "once", "overlap": "allow",
            "destination": "@pull", "content": "{}"},
    });
    let adopted = call(&delayd, "adopt", json!({"topic": "t", "records": [record]})).await.body;
    assert_eq!(adopted["dm_error"], 1000, "no record was stored: {adopted}");
    assert_eq!(adopted["results"][0]["dm_error"], 1000, "a mover does not wait: {adopted}");
    let says = adopted["results"][0]["error_msg"].as_str().unwrap();
    assert!(says.contains("delayd format --raise"), "{adopted}");
    let add = json!({"topic": "t", "delay": "1h", "mode": "pull", "content": "x"});
    delayd.add(add).await.id();

    // An older instance says nothing of a format in its heartbeats.
    let raise = || {
        let mut raise = command(&kept.store.sets());
        raise.args(["format", "--raise"]);
        run(raise)
    };
    let time: String = redis.command(&["TIME"]).lines().next().unwrap().trim().into();
    let older = format!(
        "{time}000 {}",
        json!({"id": "0", "name": "older-host", "version": "0.8.0", "address": "10.0.0.5:7799"})
    );
    redis.command(&["HSET", &instances, "0", &older]);
    let (code, output, error) = raise().await;
    assert!(code != 0 && error.contains("older-host"), "{code} {output}{error}");
    assert!(error.contains("0.8.0") && error.contains("does not know format"), "{error}");
    redis.command(&["HDEL", &instances, "0"]);
    let (code, output, error) = raise().await;
    assert_eq!(code, 0, "{output}{error}");
    let is_set = async || call(&delayd, "set", body.clone()).await.status == 200;
    assert!(poll::until(is_set).await, "a set is refused after the raise");
}
