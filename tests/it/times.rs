//! Due times as text, on add, update, nack and the command line.

use serde_json::{Value, json};

use crate::program::{command, run};
use crate::{Kept, Program, on_both_stores};

on_both_stores!(
    a_time_as_text_is_stored_as_its_moment_and_shown_in_its_zone,
    an_update_and_a_nack_take_a_time_as_text,
    a_repeated_add_is_the_same_only_with_the_same_text,
    a_wrong_time_is_refused_with_a_sentence,
    the_commands_take_and_show_local_times,
);

/// The texts of `at` and `zone`, the moment by Python's `zoneinfo`, and `due` in the answer.
const TIMES: [(&str, Option<&str>, i64, &str); 11] = [
    ("2035-03-25 02:30", Some("Europe/Berlin"), 2_058_399_000_000, "2035-03-25T03:30:00.000+02:00"),
    ("2035-10-28 02:30", Some("Europe/Berlin"), 2_077_144_200_000, "2035-10-28T02:30:00.000+02:00"),
    (
        "2035-10-28T02:30:00+01:00[Europe/Berlin]",
        None,
        2_077_147_800_000,
        "2035-10-28T02:30:00.000+01:00",
    ),
    (
        "2035-10-07t02:15",
        Some("Australia/Lord_Howe"),
        2_075_298_300_000,
        "2035-10-07T02:45:00.000+11:00",
    ),
    (
        "2035-11-04 01:30[America/New_York]",
        None,
        2_077_767_000_000,
        "2035-11-04T01:30:00.000-04:00",
    ),
    (
        "2035-01-01 06:00:00.0001",
        Some("Asia/Kathmandu"),
        2_051_223_300_001,
        "2035-01-01T06:00:00.001+05:45",
    ),
    ("2035-11-23T20:00:00+08:00", None, 2_079_432_000_000, "2035-11-23T20:00:00.000+08:00"),
    (
        "2035-11-23T20:00+08:00[!Asia/Shanghai][u-ca=hebrew]",
        Some("Asia/Shanghai"),
        2_079_432_000_000,
        "2035-11-23T20:00:00.000+08:00",
    ),
    (
        "2035-11-23T12:00:00Z",
        Some("Asia/Shanghai"),
        2_079_432_000_000,
        "2035-11-23T20:00:00.000+08:00",
    ),
    ("2035-11-23t12:00:00z", None, 2_079_432_000_000, "2035-11-23T12:00:00.000Z"),
    ("2035-11-23T12:00:00-00:00", None, 2_079_432_000_000, "2035-11-23T12:00:00.000Z"),
];

async fn a_time_as_text_is_stored_as_its_moment_and_shown_in_its_zone(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let task =
        |at: &str, zone: Option<&str>| json!({"topic": "t", "at": at, "zone": zone, "content": {}});
    let tasks: Vec<Value> = TIMES.iter().map(|(at, zone, ..)| task(at, *zone)).collect();
    let batch = delayd.post("/delay/task/add_batch", json!({"tasks": tasks}).to_string()).await;
    for (i, (at, zone, due_ms, due)) in TIMES.into_iter().enumerate() {
        let expected = (&json!(due_ms), &json!(due));
        let added = delayd.add(task(at, zone)).await;
        assert_eq!((&added.body["due_ms"], &added.body["due"]), expected, "{at} {zone:?}");
        let item = &batch.body["results"][i];
        assert_eq!((&item["due_ms"], &item["due"]), expected, "{at} {zone:?}");
        let get = json!({"topic": "t", "task_id": added.id()}).to_string();
        let stored = delayd.post("/delay/task/get", get).await;
        assert_eq!(stored.body["task"]["due_ms"], due_ms);
    }
    // A past time means now.
    let past = delayd.add(json!({"topic": "p", "at": "2001-01-01T00:00:00Z", "content": {}})).await;
    assert!(past.body["due_ms"].as_i64().unwrap() > 1_700_000_000_000, "{past:?}");
    let pull = json!({"topic": "p", "wait": "20s"}).to_string();
    let pulled = delayd.post("/delay/task/pull", pull).await;
    assert_eq!(pulled.body["task_id"], past.id());
}

async fn an_update_and_a_nack_take_a_time_as_text(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let id = delayd.add(json!({"topic": "t", "delay": 0, "content": {}})).await.id();
    let pull = json!({"topic": "t", "lease": "1m", "wait": "20s"}).to_string();
    let receipt = delayd.post("/delay/task/pull", pull).await.body["receipt"].clone();
    let (at, zone, due_ms, due) = TIMES[3];
    let given = |more: Value| {
        let mut body = json!({"topic": "t", "task_id": id, "at": at, "zone": zone});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let both = given(json!({"receipt": receipt, "delay": 1}));
    let refused = delayd.post("/delay/task/nack", both).await;
    let says = "delay and at: give at most one of the two";
    assert_eq!((refused.status, &refused.body["error_msg"]), (400, &json!(says)));
    let nacked = delayd.post("/delay/task/nack", given(json!({"receipt": receipt}))).await;
    assert_eq!((&nacked.body["due_ms"], &nacked.body["due"]), (&json!(due_ms), &json!(due)));
    let again = delayd.post("/delay/task/nack", given(json!({"receipt": receipt}))).await;
    assert_eq!((&again.body["due_ms"], &again.body["due"]), (&json!(due_ms), &json!(due)));
    let task = delayd.wait_for_state("t", id, "scheduled").await;
    assert_eq!((&task["due_ms"], &task["attempts"]), (&json!(due_ms), &json!(1)));

    let (at, zone, due_ms, due) = TIMES[1];
    let update = json!({"topic": "t", "task_id": id, "at": at, "zone": zone}).to_string();
    let moved = delayd.post("/delay/task/update", update).await;
    assert_eq!((&moved.body["due_ms"], &moved.body["due"]), (&json!(due_ms), &json!(due)));

    // After its last attempt, a task is not due again. A past time means now.
    let last = json!({"topic": "l", "delay": 0, "max_attempts": 2, "content": {}});
    let id = delayd.add(last).await.id();
    for is_last in [false, true] {
        let pull = json!({"topic": "l", "lease": "1m", "wait": "20s"}).to_string();
        let pulled = delayd.post("/delay/task/pull", pull).await;
        let nack = json!({
            "topic": "l", "task_id": id, "receipt": pulled.body["receipt"],
            "at": "2001-01-01T00:00:00Z",
        });
        let nacked = delayd.post("/delay/task/nack", nack.to_string()).await;
        assert_eq!(nacked.status, 200, "{nacked:?}");
        let due = nacked.body["due_ms"].as_i64();
        assert_eq!(due.is_none(), is_last, "{nacked:?}");
        assert!(due.is_none_or(|due| due > 1_700_000_000_000), "{nacked:?}");
    }
    delayd.wait_for_state("l", id, "dead").await;
}

async fn a_repeated_add_is_the_same_only_with_the_same_text(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let task = |at: &str, zone: Option<&str>| {
        let (topic, key) = ("t", "order-7");
        json!({"topic": topic, "idempotency_key": key, "at": at, "zone": zone, "content": {}})
    };
    let first = delayd.add(task("2035-11-23 20:00", Some("Asia/Shanghai"))).await;
    let again = delayd.add(task("2035-11-23 20:00", Some("Asia/Shanghai"))).await;
    assert_eq!((again.id(), &again.body["duplicate"]), (first.id(), &json!(true)));
    assert_eq!(again.body["due"], "2035-11-23T20:00:00.000+08:00");
    // The same moment in another text may be another one with other zone data.
    for (at, zone) in [
        ("2035-11-23 20:00", Some("+08:00")),
        ("2035-11-23T20:00", Some("Asia/Shanghai")),
        ("2035-11-23T20:00+08:00", None),
    ] {
        let other = delayd.post("/delay/task/add", task(at, zone).to_string()).await;
        assert_eq!((other.status, &other.body["dm_error"]), (422, &json!(1022)), "{at}");
    }
}

async fn a_wrong_time_is_refused_with_a_sentence(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let check = async |fields: Value, says: &str| {
        let mut task = json!({"topic": "t", "content": {}});
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = delayd.post("/delay/task/add", task.to_string()).await;
        let message = answer.body["error_msg"].as_str().unwrap();
        assert_eq!((answer.status, &answer.body["dm_error"]), (400, &json!(1000)), "{task}");
        assert!(message.starts_with(says), "{task}: {message}");
    };
    check(json!({"at": "tomorrow"}), "at: expected a time such as").await;
    check(json!({"at": 1_795_236_367}), "at: must be a string").await;
    check(json!({"at": "2035-02-30T00:00:00Z"}), "at: expected a date and a time that exist").await;
    check(json!({"at": "2035-11-23 20:00"}), "at: expected a local time to have a zone").await;
    check(json!({"at": "2035-11-23 20:00", "zone": "Shanghai"}), "zone: expected an offset").await;
    check(json!({"at": "9999-01-01T00:00:00Z"}), "at: must be at most 3650d from now").await;
    check(json!({"at": "2035-11-23T20:00:00Z", "delay": 1}), "delay, timing_moment and at:").await;
    check(json!({"zone": "Asia/Shanghai", "delay": 1}), "zone: expected a local time in at").await;
    let two = json!({"at": "2035-11-23 20:00[Europe/Berlin]", "zone": "Asia/Shanghai"});
    check(two, "zone: expected Europe/Berlin, as in the time, got Asia/Shanghai").await;
    let tag = json!({"at": "2035-11-23T20:00:00Z[!u-ca=hebrew]"});
    check(tag, "at: expected no critical tag but a zone").await;
    check(json!({"at": "2".repeat(60_000)}), "at: expected at most 128 bytes, got 60000").await;
    let either = "timing_moment: expected either timing_moment or at";
    let moment = 2_000_000_000;
    for (fields, says) in [
        (json!({}), either),
        (json!({"timing_moment": moment, "at": "2035-11-23T20:00:00Z"}), either),
        (json!({"at": "2035-11-23 20:00"}), "at: expected a local time to have a zone"),
        (json!({"timing_moment": moment, "zone": "UTC"}), "zone: expected a local time in at"),
    ] {
        let mut many = json!({"topic": "t", "all": true});
        many.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = delayd.post("/delay/task/update_many", many.to_string()).await;
        let message = answer.body["error_msg"].as_str().unwrap();
        assert!(answer.status == 400 && message.starts_with(says), "{many}: {message}");
    }
    let list = json!({"topic": "t", "state": "scheduled"}).to_string();
    let listed = delayd.post("/delay/task/list", list).await;
    assert_eq!(listed.body["tasks"].as_array().map_or(0, Vec::len), 0, "{listed:?}");
}

/// Runs a client command on a machine that is set to a zone.
async fn client(delayd: &Program, words: &[&str]) -> (i32, String) {
    let mut client = command(&[]);
    client.args(words).arg("--server").arg(delayd.url("")).env("TZ", "America/New_York");
    let (code, output, error) = run(client).await;
    (code, output + &error)
}

async fn the_commands_take_and_show_local_times(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let local = ["--at", "2035-11-23 20:00", "--zone", "Asia/Shanghai"];
    let (code, shown) = client(&delayd, &[&["add", "t", "{}"], &local[..]].concat()).await;
    assert!(code == 0 && shown.contains("2035-11-23T07:00:00.000-05:00"), "{shown}");
    let id = shown.split_whitespace().nth(1).unwrap().to_owned();
    let (code, shown) = client(&delayd, &["get", "t", &id, "--utc"]).await;
    assert!(code == 0 && shown.contains("2035-11-23T12:00:00.000Z"), "{shown}");
    let at = "2035-10-28T02:30:00+01:00[Europe/Berlin]";
    let (code, shown) = client(&delayd, &["update", "t", &id, "--at", at, "--utc"]).await;
    assert!(code == 0 && shown.contains("2035-10-28T01:30:00.000Z"), "{shown}");
    let (code, shown) = client(&delayd, &["update", "t", &id, "--at", "2079432000"]).await;
    assert!(code == 0 && shown.contains("2035-11-23T07:00:00.000-05:00"), "{shown}");

    let (code, refused) = client(&delayd, &["add", "t", "{}", "--at", "2035-11-23 20:00"]).await;
    assert!(code == 1 && refused.contains("at: expected a local time to have a zone"), "{refused}");
    let zone_alone = ["add", "t", "{}", "--in", "1s", "--zone", "Asia/Shanghai"];
    assert_eq!(client(&delayd, &zone_alone).await.0, 2);

    client(&delayd, &["add", "n", "{}", "--in", "0s"]).await;
    for (at, shows) in [(&local[..], "-05:00"), (&["--at", "2079432000", "--utc"], "12:00:00.000Z")]
    {
        let pull = ["pull", "n", "--lease", "1m", "--wait", "20s", "--json"];
        let (code, pulled) = client(&delayd, &pull).await;
        assert_eq!(code, 0, "{pulled}");
        let pulled: Value = serde_json::from_str(&pulled).unwrap();
        let (id, receipt) = (pulled["task_id"].to_string(), pulled["receipt"].as_str().unwrap());
        let (code, shown) = client(&delayd, &[&["nack", "n", &id, receipt], at].concat()).await;
        assert!(code == 0 && shown.starts_with("returned, due 2035-11-23T"), "{shown}");
        assert!(shown.trim_end().ends_with(shows), "{shown}");
        client(&delayd, &["update", "n", &id, "--in", "0s"]).await;
    }
}
