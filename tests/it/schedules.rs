//! Recurring schedules.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fake_time::FakeTime;
use crate::metrics::value;
use crate::program::{self, Program, client, command, run, service};
use crate::receiver::{Answer, Receiver, Seen, now_ms};
use crate::{Kept, on_both_stores, poll};

on_both_stores!(
    the_next_moments_of_a_schedule_are_shown,
    a_schedule_fires_again_and_again_with_its_headers,
    a_consumer_pulls_the_occurrences,
    after_a_stop_one_occurrence_stands_for_the_missed_moments,
    after_a_stop_each_missed_moment_has_its_occurrence,
    an_occurrence_that_overlaps_expires_if_the_schedule_says_so,
    a_pause_ends_with_the_next_moment_and_a_deleted_schedule_is_gone,
    a_set_changes_only_what_differs,
    a_run_with_the_same_key_is_the_same_task,
    a_wrong_schedule_is_refused_with_a_sentence,
    the_commands_do_what_the_calls_do,
);

const SET: &str = "/delay/schedule/set";
const PREVIEW: &str = "/delay/schedule/preview";
const SECOND: i64 = 1_000;

/// The body of a set: a push schedule `s` of topic `t`, with more fields.
fn schedule(more: Value) -> Value {
    let mut body = json!({
        "topic": "t", "schedule": "s", "content": {"sn": "message.call", "url": "/", "n": 7},
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn set(delayd: &Program, more: Value) -> Value {
    delayd.post(SET, schedule(more).to_string()).await.ok().body
}

async fn call(delayd: &Program, verb: &str, more: Value) -> program::Answer {
    let mut body = json!({"topic": "t", "schedule": "s"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    delayd.post(&format!("/delay/schedule/{verb}"), body.to_string()).await
}

async fn get(delayd: &Program) -> Value {
    call(delayd, "get", json!({})).await.ok().body
}

/// The headers of an occurrence's call.
#[derive(Clone)]
struct Moment {
    moment: i64,
    missed: i64,
}

impl Moment {
    fn of(seen: &Seen) -> Self {
        let moment = Self::by_any_clock(seen);
        assert!(seen.arrived_ms >= moment.moment, "an occurrence came early");
        moment
    }

    /// delayd's clock need not be the machine's.
    fn by_any_clock(seen: &Seen) -> Self {
        assert_eq!(seen.headers["delay-schedule"], "s");
        let number = |name: &str| seen.headers.get(name)?.to_str().ok()?.parse::<i64>().ok();
        let moment = number("delay-schedule-moment-ms").unwrap();
        let missed = number("delay-schedule-missed").unwrap_or_default();
        Self { moment, missed }
    }

    fn of_all(seen: &[Seen]) -> Vec<Self> {
        seen.iter().map(Self::of).collect()
    }
}

/// Each moment of a schedule of one second has an occurrence, its own or that of an earlier one.
/// Calls of two that are due may arrive in any order.
fn assert_no_moment_is_lost(moments: &[Moment]) {
    let mut moments = moments.to_vec();
    moments.sort_unstable_by_key(|one| one.moment);
    for pair in moments.windows(2) {
        let [this, next] = pair else { unreachable!("a window has two") };
        assert_eq!(next.moment, this.moment + (1 + this.missed) * SECOND);
    }
}

/// Waits while no delayd runs on the store of the test.
async fn let_pass(span: Duration) {
    Kept::embedded().start(&[]).await.lives_for(span).await;
}

/// Stops a program after its calls, so that none of them is repeated later.
async fn stop(mut delayd: Program) {
    delayd.signal("TERM");
    assert!(delayd.ended().await.success());
}

async fn a_schedule_fires_again_and_again_with_its_headers(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let before = now_ms();
    let answer = set(&delayd, json!({"every": "1s", "headers": {"x-mine": "1"}})).await;
    assert_eq!((&answer["result"], &answer["every_ms"]), (&json!("created"), &json!(1000)));
    assert_eq!(answer["recent"].as_array().unwrap().len(), 1, "the first is planned: {answer}");
    let seen = receiver.wait_for(3).await;
    let moments = Moment::of_all(&seen);
    assert_no_moment_is_lost(&moments);
    // `every` counts from the set.
    let set_ms = answer["set_ms"].as_i64().unwrap();
    assert!(set_ms >= before - SECOND && (moments[0].moment - set_ms) % SECOND == 0, "{answer}");
    let first = &seen[0];
    assert_eq!(
        (first.due_ms, &first.headers["x-mine"]),
        (moments[0].moment, &json!("1").as_str().unwrap().parse().unwrap())
    );
    assert_eq!(first.body, schedule(json!({}))["content"].to_string());
    let ids: Vec<_> = seen.iter().map(|seen| seen.headers["webhook-id"].clone()).collect();
    assert!(ids[0].to_str().unwrap().contains("-s") && ids[0] != ids[1], "{ids:?}");

    let task = delayd.wait_for_state("t", first.id, "delivered").await;
    assert_eq!(task["webhook_id"], ids[0].to_str().unwrap());
    let shown = &task["schedule"];
    assert_eq!((&shown["name"], &shown["missed"]), (&json!("s"), &json!(0)), "{task}");
    assert_eq!(shown["moment_ms"], moments[0].moment);
    assert!(task["options"].get("schedule").is_none(), "{task}");
    let shown = get(&delayd).await;
    let recent = shown["recent"].as_array().unwrap();
    let own = recent.iter().find(|one| one["task_id"] == first.id).unwrap();
    assert_eq!((&own["state"], &own["last_outcome"]), (&json!("delivered"), &json!("200 OK")));
    assert_eq!(shown["content"], first.body);
    assert_eq!(shown["options"], json!({"headers": {"x-mine": "1"}}));
    assert!(value(&delayd, "delayd_schedule_occurrences_total").await >= 3.0);
    assert_eq!(value(&delayd, "delayd_schedule_plan_failures_total").await, 0.0);
    assert_eq!(value(&delayd, "delayd_schedules_unreadable").await, 0.0);
    // A task without a schedule has none.
    let id = delayd.add(json!({"topic": "t", "delay": "1h", "content": {}})).await.id();
    assert!(delayd.task("t", id).await.get("schedule").is_none());
}

/// A cron expression with seconds, and a task that is pulled.
async fn a_consumer_pulls_the_occurrences(kept: Kept) {
    let delayd = kept.start(&[]).await;
    set(&delayd, json!({"cron": "* * * * * *", "content": {"a": 1}})).await;
    let pull = r#"{"topic":"t","wait":"20s","lease":"30s"}"#;
    let pulled = delayd.post("/delay/task/pull", pull).await.ok().body;
    let shown = &pulled["schedule"];
    assert_eq!((&shown["name"], &shown["missed"]), (&json!("s"), &json!(0)), "{pulled}");
    let moment = shown["moment_ms"].as_i64().unwrap();
    assert!(moment % SECOND == 0 && moment <= now_ms(), "{pulled}");
    let read = json!({"topic": "t", "task_id": pulled["task_id"]}).to_string();
    let read = delayd.post("/delay/task/pull", read).await.ok().body;
    assert_eq!(read["schedule"], *shown);
    let many = r#"{"topic":"t","wait":"20s","count":2}"#;
    let many = delayd.post("/delay/task/pull", many).await.ok().body;
    assert_eq!(many["tasks"][0]["schedule"]["moment_ms"], moment + SECOND, "{many}");
}

async fn after_a_stop_one_occurrence_stands_for_the_missed_moments(kept: Kept) {
    let receiver = Receiver::start().await;
    let sets = [service("message.call", &receiver)];
    let delayd = kept.start(&sets).await;
    set(&delayd, json!({"every": "1s", "misfire": "once"})).await;
    receiver.wait_for(1).await;
    stop(delayd).await;
    let_pass(Duration::from_secs(4)).await;
    let came = receiver.seen().len();
    let delayd = kept.start(&sets).await;
    let seen = receiver.wait_for(came + 4).await;
    let moments = Moment::of_all(&seen);
    assert_no_moment_is_lost(&moments);
    let missed: i64 = moments.iter().map(|moment| moment.missed).sum();
    // At least four moments passed: one was planned before, and one stands for the others.
    assert!(missed >= 2, "{missed}");
    // More may be missed by now.
    assert!(value(&delayd, "delayd_schedule_missed_total").await >= missed as f64);
    let stood = moments.iter().position(|moment| moment.missed > 0).unwrap();
    let task = delayd.wait_for_state("t", seen[stood].id, "delivered").await;
    assert_eq!(task["schedule"]["missed"], moments[stood].missed, "{task}");
}

async fn after_a_stop_each_missed_moment_has_its_occurrence(kept: Kept) {
    let receiver = Receiver::start().await;
    let sets = [service("message.call", &receiver)];
    let delayd = kept.start(&sets).await;
    set(&delayd, json!({"every": "1s", "misfire": "all"})).await;
    receiver.wait_for(1).await;
    stop(delayd).await;
    let_pass(Duration::from_secs(4)).await;
    let (started, came) = (now_ms(), receiver.seen().len());
    let _delayd = kept.start(&sets).await;
    let moments = Moment::of_all(&receiver.wait_for(came + 4).await);
    assert!(moments.iter().all(|moment| moment.missed == 0));
    assert_no_moment_is_lost(&moments);
    assert!(moments[came + 1].moment < started, "it begins with the oldest");
}

async fn an_occurrence_that_overlaps_expires_if_the_schedule_says_so(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    set(&delayd, json!({"every": "1s", "overlap": "skip", "timeout": "1m"})).await;
    receiver.wait_for(1).await;
    let skipped = async || {
        let shown = get(&delayd).await;
        let recent = shown["recent"].as_array().unwrap();
        let expired = recent.iter().filter(|one| one["state"] == "expired").count();
        (expired >= 2).then_some(shown)
    };
    let shown = poll::answer(skipped).await.unwrap_or_else(|| panic!("{}", delayd.log()));
    let mut expired = shown["recent"].as_array().unwrap().iter();
    let expired = expired.find(|one| one["state"] == "expired").unwrap();
    assert_eq!(expired["last_outcome"], "an earlier occurrence has not ended");
    assert_eq!(receiver.seen().len(), 1, "the others were not called");
    let ended = "delayd_tasks_ended_total{state=\"expired\",cause=\"overlap\"}";
    assert!(value(&delayd, ended).await >= 2.0);
    receiver.open_gate();
    receiver.wait_for(2).await;
    call(&delayd, "delete", json!({})).await.ok();

    // By default they overlap.
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let delayd = Kept::embedded().start(&[service("message.call", &receiver)]).await;
    set(&delayd, json!({"every": "1s", "timeout": "1m"})).await;
    receiver.wait_for(2).await;
}

/// An occurrence that waits for its moment.
struct Waiting {
    id: u64,
    moment: i64,
}

/// The next occurrence, once it is planned.
async fn waiting(delayd: &Program) -> Waiting {
    let planned = async || {
        let newest = get(delayd).await["recent"][0].clone();
        (newest["state"] == "scheduled").then_some(newest)
    };
    let newest = poll::answer(planned).await.unwrap_or_else(|| panic!("{}", delayd.log()));
    let number = |field: &str| newest[field].as_i64().unwrap();
    Waiting { id: number("task_id").try_into().unwrap(), moment: number("moment_ms") }
}

async fn a_pause_ends_with_the_next_moment_and_a_deleted_schedule_is_gone(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    set(&delayd, json!({"every": "6s"})).await;
    receiver.wait_for(1).await;
    let waits = waiting(&delayd).await;
    let came = receiver.seen().len();
    let paused = call(&delayd, "pause", json!({})).await.ok().body;
    assert_eq!((&paused["paused"], &paused["next"]), (&json!(true), &json!([])), "{paused}");
    assert!(paused["paused_since_ms"].is_i64(), "{paused}");
    assert_eq!(delayd.task("t", waits.id).await["state"], "cancelled", "it is withdrawn: {paused}");
    assert!(paused["recent"].as_array().unwrap().iter().all(|one| one["task_id"] != waits.id));
    delayd.lives_for(Duration::from_secs(7)).await;
    assert_eq!(receiver.seen().len(), came, "a paused schedule fires");
    let again = call(&delayd, "pause", json!({})).await.ok().body;
    assert_eq!(again["paused_since_ms"], paused["paused_since_ms"]);

    let before = now_ms();
    assert!(waits.moment < before, "its moment has passed");
    let resumed = call(&delayd, "resume", json!({})).await.ok().body;
    let after = now_ms();
    assert_eq!(resumed["paused"], false);
    let next = resumed["next"][0]["moment_ms"].as_i64().unwrap();
    let is_next = (before..=after + 6 * SECOND).contains(&next);
    assert!(is_next && (next - waits.moment) % (6 * SECOND) == 0, "{before} {resumed}");
    assert_eq!(resumed["recent"][0]["moment_ms"], next, "it is planned: {resumed}");
    let seen = Moment::of(&receiver.wait_for(came + 1).await[came]);
    assert_eq!((seen.moment, seen.missed), (next, 0), "a pause misses nothing");

    let waits = waiting(&delayd).await;
    let came = receiver.seen().len();
    call(&delayd, "delete", json!({})).await.ok();
    assert_eq!(delayd.task("t", waits.id).await["state"], "cancelled");
    delayd.lives_for(Duration::from_secs(7)).await;
    assert_eq!(receiver.seen().len(), came, "a deleted schedule fires");
    for verb in ["get", "pause", "resume", "delete", "run"] {
        let answer = call(&delayd, verb, json!({})).await;
        assert_eq!((answer.status, &answer.body["dm_error"]), (404, &json!(1004)), "{verb}");
    }
    let list = delayd.post("/delay/schedule/list", r#"{"topic":"t"}"#).await.ok();
    assert_eq!(list.body["schedules"], json!([]));
}

async fn a_set_changes_only_what_differs(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let created = set(&delayd, json!({"cron": "0 0 1 1 *", "zone": "asia/shanghai"})).await;
    assert_eq!(
        (&created["result"], &created["zone"]),
        (&json!("created"), &json!("Asia/Shanghai"))
    );
    let waits = created["recent"][0]["task_id"].as_u64().unwrap();
    let same = set(&delayd, json!({"zone": "Asia/Shanghai", "cron": " 0 0 1 1 * "})).await;
    assert_eq!(same["result"], "unchanged");
    for field in ["set_ms", "recent", "next"] {
        assert_eq!(same[field], created[field], "{same}");
    }
    assert_eq!(delayd.task("t", waits).await["state"], "scheduled");

    let changed = set(&delayd, json!({"cron": "0 0 2 1 *", "zone": "Asia/Shanghai"})).await;
    assert_eq!(changed["result"], "changed");
    let task = delayd.task("t", waits).await;
    assert_eq!(task["state"], "cancelled");
    assert_eq!(task["last_outcome"], "its schedule was changed, paused or deleted");
    let now = changed["recent"][0]["task_id"].as_u64().unwrap();
    assert_ne!(now, waits);
    assert_eq!(changed["recent"][0]["moment"], changed["next"][0]["moment"]);
    // A schedule that is paused stays so.
    call(&delayd, "pause", json!({})).await.ok();
    let changed = set(&delayd, json!({"every": "1s"})).await;
    assert_eq!((&changed["result"], &changed["paused"]), (&json!("changed"), &json!(true)));
    assert!(receiver.seen().is_empty());

    for name in ["a", "b", "c"] {
        let more = json!({"schedule": name, "cron": "@yearly"});
        set(&delayd, more).await;
    }
    let mut names = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let body = json!({"topic": "t", "limit": 3, "cursor": cursor}).to_string();
        let page = delayd.post("/delay/schedule/list", body).await.ok().body;
        let page_names = page["schedules"].as_array().unwrap().iter();
        names.extend(page_names.map(|one| one["schedule"].as_str().unwrap().to_owned()));
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    names.sort();
    assert_eq!(names, ["a", "b", "c", "s"]);
}

async fn a_run_with_the_same_key_is_the_same_task(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let created = set(&delayd, json!({"cron": "@yearly", "overlap": "skip"})).await;
    let once = call(&delayd, "run", json!({"idempotency_key": "k"})).await.ok();
    let seen = receiver.wait_for(1).await;
    assert_eq!(seen[0].id, once.id());
    let id = seen[0].headers["webhook-id"].to_str().unwrap().to_owned();
    assert!(id.ends_with(&format!("-{}", once.id())), "{id}");
    assert_eq!(Moment::of(&seen[0]).missed, 0);
    let twice = call(&delayd, "run", json!({"idempotency_key": "k"})).await.ok();
    assert_eq!((twice.id(), &twice.body["duplicate"]), (once.id(), &json!(true)));
    let client = client();
    let post = client.post(delayd.url("/delay/schedule/run")).header("idempotency-key", "k");
    let thrice = post.body(r#"{"topic":"t","schedule":"s"}"#).send().await.unwrap();
    let thrice: Value = thrice.json().await.unwrap();
    assert_eq!(thrice["task_id"], once.id());
    // Without a key, each run is another task. A pause stops the plan, and no run.
    call(&delayd, "pause", json!({})).await.ok();
    let other = call(&delayd, "run", json!({})).await.ok();
    assert_ne!(other.id(), once.id());
    receiver.wait_for(2).await;
    // The plan is as it was.
    let resumed = call(&delayd, "resume", json!({})).await.ok().body;
    assert_eq!(resumed["next"], created["next"]);
    // The key is of the schedule: another schedule may use it, too.
    set(&delayd, json!({"schedule": "other", "cron": "@yearly"})).await;
    let body = json!({"schedule": "other", "idempotency_key": "k"});
    assert_ne!(call(&delayd, "run", body).await.ok().id(), once.id());
    // The schedule says something else, so it is not the same request.
    set(&delayd, json!({"cron": "@yearly", "max_attempts": 2})).await;
    let conflict = call(&delayd, "run", json!({"idempotency_key": "k"})).await;
    assert_eq!((conflict.status, &conflict.body["dm_error"]), (422, &json!(1022)), "{conflict:?}");
}

async fn a_wrong_schedule_is_refused_with_a_sentence(kept: Kept) {
    let receiver = Receiver::start().await;
    let sets = [service("message.call", &receiver), "limits.content=\"1KiB\"".to_owned()];
    let delayd = kept.start(&sets).await;
    let check = async |verb: &str, body: Value, status: u16, says: &str| {
        let answer = delayd.post(&format!("/delay/schedule/{verb}"), body.to_string()).await;
        let said = answer.body["error_msg"].as_str().unwrap().to_owned();
        assert!(answer.status == status && said.starts_with(says), "{body}: {answer:?}");
    };
    let with = |more: Value| {
        let mut body = schedule(json!({"cron": "30 2 * * *"}));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (more, says) in [
        (json!({"key": "k"}), "key: expected no key, because schedule is the key"),
        (json!({"idempotency_key": "k"}), "idempotency_key: expected none, because a set that"),
        (json!({"delay": 5}), "delay: expected cron or every"),
        (json!({"timing_moment": 1_900_000_000}), "timing_moment: expected cron or every"),
        (json!({"at": "2030-01-01T00:00:00Z"}), "at: expected cron or every"),
        (json!({"flow": "f"}), "flow: expected none"),
        (json!({"overlap": "queue"}), "overlap: must be one of \"allow\", \"skip\", not \"queue\""),
        (json!({"overlap": "merge"}), "overlap: "),
        (json!({"misfire": "none"}), "misfire: "),
        (json!({"schedule": "a b"}), "schedule: must be 1 to 128 characters"),
        (json!({"schedule": "x".repeat(129)}), "schedule: must be 1 to 128 characters"),
        (json!({"schedule": null}), "schedule: is missing"),
        (json!({"topic": null}), "topic: is missing"),
        (json!({"content": null}), "content: is missing"),
        (json!({"content": {"sn": "nobody", "url": "/"}}), "content.sn"),
        (json!({"cron": null}), "cron: expected either cron or every, got neither"),
        (json!({"every": "1h"}), "cron: expected either cron or every, got both"),
        (json!({"cron": "61 * * * *"}), "cron: "),
        (json!({"cron": "* * *"}), "cron: expected five fields"),
        (json!({"cron": "@reboot"}), "cron: expected @yearly"),
        (json!({"cron": "0 0 31 2 *"}), "cron: expected an expression that fires"),
        (json!({"cron": null, "every": "500ms"}), "every: "),
        (json!({"cron": null, "every": "367d"}), "every: "),
        (json!({"zone": "CET+1"}), "zone: expected an offset such as"),
        (json!({"start": "2026-11-26"}), "start: expected a time such as"),
        (json!({"end": "2020-01-01T00:00:00Z"}), "end: expected a moment after the next one"),
        (
            json!({"start": "2031-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z"}),
            "end: expected a moment that is not before start",
        ),
        (json!({"max_attempts": 0}), "max_attempts: "),
        (json!({"on_dead": {"sn": "nobody", "url": "/x"}}), "on_dead.sn"),
        (json!({"corn": "@daily"}), "unknown field \"corn\""),
    ] {
        check("set", with(more), 400, says).await;
    }
    check("set", with(json!({"content": {"a": "x".repeat(2_000)}})), 413, "content: ").await;
    check("list", json!({"topic": "no"}), 404, "topic: ").await;
    for verb in ["get", "pause", "resume", "delete", "run"] {
        check(verb, json!({"topic": "no", "schedule": "s"}), 404, "topic: ").await;
    }
    set(&delayd, json!({"cron": "@yearly"})).await;
    let none = "schedule: there is no such schedule in this topic";
    for verb in ["get", "pause", "resume", "delete", "run"] {
        check(verb, json!({"topic": "t", "schedule": "none"}), 404, none).await;
    }
    let key = json!({"topic": "t", "schedule": "s", "idempotency_key": "k".repeat(101)});
    check("run", key, 400, "idempotency_key: must be 1 to 100 bytes long").await;
    check("preview", json!({"cron": "@daily", "count": 1001}), 400, "count: must be").await;
    assert_eq!(get(&delayd).await["cron"], "@yearly");
    assert!(receiver.seen().is_empty());
}

async fn the_commands_do_what_the_calls_do(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let client = async |words: &[&str]| {
        let mut client = command(&[]);
        client.arg("schedule").args(words).arg("--server").arg(delayd.url(""));
        run(client).await
    };
    let done = async |words: &[&str]| {
        let (code, output, error) = client(words).await;
        assert_eq!(code, 0, "{words:?} {output}{error}");
        output
    };
    let content = r#"{"sn":"message.call","url":"/night"}"#;
    let set = ["set", "bill", "nightly", "--cron", "30 2 * * *", "--zone", "Europe/Berlin"];
    let more = ["--misfire", "all", "--overlap", "skip", "-H", "x-mine: 1", content];
    let output = done(&[&set[..], &more].concat()).await;
    assert!(output.starts_with("created") && output.contains("30 2 * * *"), "{output}");
    assert!(output.contains("T02:30:00+0"), "local time with its offset: {output}");
    let output = done(&[&set[..], &more].concat()).await;
    assert!(output.starts_with("unchanged"), "{output}");

    let shown = done(&["get", "bill", "nightly"]).await;
    for text in ["Europe/Berlin", "skip", "message.call", "/night", "x-mine", "scheduled"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let shown = done(&["get", "bill", "nightly", "--json"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["misfire"], &shown["overlap"]), (&json!("all"), &json!("skip")));
    let listed = done(&["list", "bill"]).await;
    assert!(listed.starts_with("SCHEDULE") && listed.contains("nightly"), "{listed}");

    let ran = done(&["run", "bill", "nightly", "--idempotency-key", "k"]).await;
    assert!(ran.contains("task_id") && !ran.contains("duplicate"), "{ran}");
    assert!(
        done(&["run", "bill", "nightly", "--idempotency-key", "k"]).await.contains("duplicate")
    );
    receiver.wait_for(1).await;

    assert!(done(&["pause", "bill", "nightly"]).await.contains("paused since"));
    assert!(done(&["list", "bill"]).await.contains("paused"));
    let resumed = done(&["resume", "bill", "nightly", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&resumed).unwrap()["paused"], false);
    assert_eq!(done(&["delete", "bill", "nightly"]).await.trim_end(), "deleted");
    let (code, output, error) = client(&["get", "bill", "nightly"]).await;
    assert!(code == 1 && error.contains("no such schedule"), "{code} {output}{error}");
    let (code, _, error) = client(&["set", "bill", "nightly", content]).await;
    assert!(code == 2 && error.contains("--cron"), "{code} {error}");
}

/// The clock of the machine passes both clock changes of 2027. The embedded store's clock is that
/// of the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_local_time_fires_once_in_each_night_of_a_clock_change() {
    /// 2027-03-28T00:59:55Z, 5 s before Berlin's clock goes from 02:00 to 03:00.
    const SPRING: i64 = 1_806_195_595;
    /// 2027-10-31T00:29:55Z, 5 s before 02:30 in its first pass.
    const AUTUMN: i64 = 1_824_942_595;
    const DAY: i64 = 86_400;
    let receiver = Receiver::start().await;
    let folder = program::folder();
    let clock = FakeTime::right(folder.path());
    let go_to = |seconds: i64| clock.set(seconds - now_ms() / 1000);
    go_to(SPRING);
    let sets = [service("message.call", &receiver)];
    let mut serve = program::serve(&program::embedded(folder.path()), &sets);
    serve.envs(clock.variables());
    let delayd = Program::launch(serve).await;
    set(&delayd, json!({"cron": "30 2 * * *", "zone": "Europe/Berlin"})).await;
    let wait_for = async |moment: i64| {
        let moments = async || -> Option<Vec<Moment>> {
            let moments: Vec<_> = receiver.seen().iter().map(Moment::by_any_clock).collect();
            moments.iter().any(|seen| seen.moment == moment).then_some(moments)
        };
        let moments = poll::answer(moments).await;
        moments.unwrap_or_else(|| panic!("{moment} did not come: {}", delayd.log()))
    };
    // 02:30 is skipped, so it fires at the end of the gap.
    assert_eq!(wait_for(1_806_195_600_000).await.len(), 1);
    // 02:30 of the next day.
    go_to(SPRING + DAY - 1_800);
    assert_eq!(wait_for(1_806_280_200_000).await.len(), 2);
    // Each of the 216 days until 31 October counts once, and that day fires in the first pass.
    go_to(AUTUMN);
    let moments = wait_for(1_824_942_600_000).await;
    assert_eq!(moments.iter().map(|moment| 1 + moment.missed).sum::<i64>(), 2 + 216);
    // The second pass of 02:30 goes by.
    go_to(AUTUMN + 3_600);
    delayd.lives_for(Duration::from_secs(10)).await;
    assert_eq!(receiver.seen().len(), moments.len(), "it fired in the second pass");
    // 02:30 of 1 November, in winter time.
    go_to(AUTUMN + DAY + 3_600);
    assert_eq!(wait_for(1_825_032_600_000).await.len(), moments.len() + 1);
}

/// `30 2` is skipped on 29 March and fires at the end of the gap; 25 October repeats it.
async fn the_next_moments_of_a_schedule_are_shown(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let preview = async |after: &str, cron: &str| {
        let body = json!({"cron": cron, "zone": "Europe/Berlin", "after": after, "count": 3});
        let answer = delayd.post(PREVIEW, body.to_string()).await.ok().body;
        answer["moments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|moment| moment["moment"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        preview("2026-03-28 00:00", "30 2 * * *").await,
        ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    );
    assert_eq!(
        preview("2026-10-25 00:00", "30 2 * * *").await,
        ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"]
    );
    assert_eq!(
        preview("2026-10-25 02:00", "*/30 * * * *").await,
        ["2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00"]
    );
    let never = json!({"cron": "0 0 30 2 *"}).to_string();
    let refused = delayd.post(PREVIEW, never).await;
    assert_eq!(refused.status, 400);
    let said = refused.body["error_msg"].as_str().unwrap();
    assert!(said.contains("an expression that fires"), "{said}");

    let mut client = command(&[]);
    client.args(["schedule", "preview", "--cron", "0 9 * * FRI", "--zone", "Asia/Shanghai"]);
    client.args(["--after", "2026-11-25 00:00", "--count", "2", "--server", &delayd.url("")]);
    let (code, table, error) = run(client).await;
    assert_eq!(code, 0, "{error}");
    assert!(table.contains("2026-11-27T09:00:00+08:00"), "{table}");
    assert!(table.contains("2026-12-04T01:00:00.000Z"), "{table}");
}
