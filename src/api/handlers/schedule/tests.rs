//! The calls by way of the router.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::api::edge;
use crate::api::testing::{Ask, edge_with_store, edge_without_store, json_of};
use crate::store::NewSchedule;
use crate::store::embedded::{garble_schedule, refuse_schedule};

/// Otherwise one such schedule would make the whole list fail.
#[tokio::test]
async fn a_schedule_that_cannot_be_read_is_listed_paused_and_deleted() {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    let edge = edge(api.clone());
    let topic: Topic = "t".parse().unwrap();
    let known = api.topics.ensure(&topic).await.unwrap();
    let new = NewSchedule {
        name: "later".parse().unwrap(),
        definition: r#"{"rule":7}"#.to_owned(),
        revision: 1,
        moved: None,
    };
    api.store.set_schedule(&known.entry, new).await.unwrap();
    let call = async |verb: &str, body: Value| {
        let request = Request::post(format!("/delay/schedule/{verb}"));
        let answer = edge.clone().answer(request.body(Body::from(body.to_string())).unwrap()).await;
        (answer.status().as_u16(), json_of(answer).await)
    };
    let one = json!({"topic": "t", "schedule": "later"});
    let (status, list) = call("list", json!({"topic": "t"})).await;
    assert_eq!(status, 200, "{list}");
    let shown = &list["schedules"][0];
    assert_eq!((&shown["schedule"], &shown["unreadable"]), (&json!("later"), &json!(true)));
    for verb in ["get", "pause", "resume"] {
        let (status, shown) = call(verb, one.clone()).await;
        assert_eq!((status, &shown["unreadable"]), (200, &json!(true)), "{verb} {shown}");
        assert_eq!(shown["paused"], json!(verb == "pause"), "{verb}");
    }
    let (status, refused) = call("run", one.clone()).await;
    assert_eq!(status, 503, "{refused}");
    let said = refused["error_msg"].as_str().unwrap();
    assert!(said.starts_with("schedule: this instance cannot read it"), "{said}");
    assert_eq!(call("delete", one.clone()).await.0, 200);
    assert_eq!(call("get", one).await.0, 404);
}

#[tokio::test]
async fn a_wrong_call_is_refused_with_a_sentence() {
    let (api, _draining, _folder) = edge_with_store();
    let edge = edge(Arc::new(api));
    let check = async |verb: &str, body: Value, says: &str| {
        let request = Request::post(format!("/delay/schedule/{verb}"));
        let request = request.body(Body::from(body.to_string())).unwrap();
        let answer = json_of(edge.clone().answer(request).await).await;
        let said = answer["error_msg"].as_str().unwrap();
        assert!(answer["dm_error"] == 1000 && said.starts_with(says), "{verb} {body}: {said}");
    };
    check("set", json!({"topic": "t", "schedule": "s", "at": "x"}), "at: expected cron or").await;
    let name = "schedule: must be 1 to 128 characters of A-Z a-z 0-9 . _ : -";
    check("get", json!({"topic": "t", "schedule": "a b"}), name).await;
    check("pause", json!({"topic": "t"}), "schedule: is missing").await;
    let limit = "limit: must be a whole number from 1 to 1000";
    check("list", json!({"topic": "t", "limit": 1001}), limit).await;
    check("list", json!({"topic": "t", "cursor": "a b"}), "cursor: must be").await;
}

#[tokio::test]
async fn a_call_without_a_store_is_not_confirmed() {
    let (api, _draining) = edge_without_store().await;
    let edge = edge(Arc::new(api));
    let set = json!({"topic": "t", "schedule": "s", "every": 60, "content": {}});
    let one = json!({"topic": "t", "schedule": "s"});
    for (verb, body) in [("set", &set), ("run", &one), ("pause", &one), ("delete", &one)] {
        let request = Request::post(format!("/delay/schedule/{verb}"));
        let request = request.body(Body::from(body.to_string())).unwrap();
        let answer = edge.clone().answer(request).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["retry-after"]),
            (503, &"1".parse().unwrap())
        );
        let said = json_of(answer).await["error_msg"].to_string();
        assert!(said.contains("not confirmed"), "{verb}: {said}");
    }
}

/// An API with a topic `t` of several lanes, and the folder of its store.
struct Bench {
    api: Arc<Api>,
    topic: TopicEntry,
    folder: TempDir,
    _draining: tokio::sync::watch::Sender<bool>,
}

impl Bench {
    async fn start(shards: u16) -> Self {
        let (api, draining, folder) = edge_with_store();
        let topic =
            api.topics.ensure_for(&"t".parse().unwrap(), shards, |_| None).await.unwrap().entry;
        Self { api: Arc::new(api), topic, folder, _draining: draining }
    }

    /// Stores schedules of every second.
    async fn set(&self, names: &[String], content: &str) {
        let definition = json!({
            "every_ms": 1000, "zone": "UTC", "misfire": "once", "overlap": "allow",
            "destination": "@pull", "content": content,
        });
        for name in names {
            let (name, definition) = (name.parse().unwrap(), definition.to_string());
            let new = NewSchedule { name, definition, revision: 1, moved: None };
            self.api.store.set_schedule(&self.topic, new).await.unwrap();
        }
    }

    async fn answer(&self, verb: &str, body: &Value) -> Response {
        let request = Request::post(format!("/delay/schedule/{verb}"));
        let request = request.body(Body::from(body.to_string())).unwrap();
        edge(self.api.clone()).answer(request).await
    }

    async fn call(&self, verb: &str, body: Value) -> Value {
        json_of(self.answer(verb, &body).await).await
    }

    /// All pages of `list` or `records`: the names of each, and the bytes of each answer.
    async fn pages(&self, verb: &str, limit: usize) -> Vec<(Vec<String>, usize)> {
        let field = if verb == "list" { "schedules" } else { "records" };
        let (mut pages, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let body = json!({"topic": "t", "limit": limit, "cursor": cursor});
            let answer = self.answer(verb, &body).await;
            let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            let page: Value = serde_json::from_slice(&bytes).unwrap();
            let names = page[field].as_array().unwrap().iter();
            let names = names.map(|one| one["schedule"].as_str().unwrap().to_owned());
            pages.push((names.collect(), bytes.len()));
            cursor = page["cursor"].clone();
            if cursor.is_null() {
                return pages;
            }
            assert!(pages.len() < 200, "{verb}: the pages do not end");
        }
    }
}

/// A page with such schedules ended the list too early, or the schedules behind it were left out.
#[tokio::test]
async fn pages_go_on_behind_schedules_that_cannot_be_read() {
    let bench = Bench::start(3).await;
    let names: Vec<String> = (0..60).map(|n| format!("s{n:02}")).collect();
    bench.set(&names, "{}").await;
    let is_damaged = |n: usize| n.is_multiple_of(3) || (10..35).contains(&n);
    for (_, name) in names.iter().enumerate().filter(|(n, _)| is_damaged(*n)) {
        garble_schedule(&bench.folder.path().join("delayd.db"), name);
    }
    let readable = names.iter().enumerate().filter(|(n, _)| !is_damaged(*n));
    let readable: Vec<String> = readable.map(|(_, name)| name.clone()).collect();
    for (verb, limit) in [1, 2, 7, 16, 100].into_iter().flat_map(|n| [("list", n), ("records", n)])
    {
        let pages = bench.pages(verb, limit).await;
        let (_last, full) = pages.split_last().unwrap();
        assert!(full.iter().all(|(page, _)| page.len() == limit), "{verb} {limit}: {pages:?}");
        let mut all: Vec<String> = pages.into_iter().flat_map(|(page, _)| page).collect();
        all.sort();
        assert_eq!(all, readable, "{verb} {limit}");
    }
    let damaged = json!({"topic": "t", "schedule": "s00"});
    assert_eq!(bench.call("delete", damaged.clone()).await["dm_error"], 0);
    assert_eq!(bench.call("delete", damaged).await["dm_error"], 1004);
}

/// Each of a hundred records may have a large content.
#[tokio::test]
async fn an_answer_about_large_schedules_is_bounded() {
    const CONTENT: usize = 700 << 10;
    let bench = Bench::start(2).await;
    let names: Vec<String> = (0..20).map(|n| format!("s{n:02}")).collect();
    bench.set(&names, &"x".repeat(CONTENT)).await;
    // A page ends with the first one that exceeds 4 MiB.
    for (verb, most) in [("list", 20 << 10), ("records", (4 << 20) + CONTENT + (20 << 10))] {
        let pages = bench.pages(verb, 100).await;
        assert_eq!(pages.len(), 4, "{verb}");
        let largest = pages.iter().map(|(_, bytes)| *bytes).max().unwrap();
        assert!(largest <= most, "{verb}: {largest} bytes");
        let mut all: Vec<String> = pages.into_iter().flat_map(|(page, _)| page).collect();
        all.sort();
        assert_eq!(all, names, "{verb}");
    }
}

/// A record for an adopt, with some fields of its definition.
fn record(name: &str, definition: Value, cursor: Value) -> Value {
    let mut rule = json!({
        "cron": "30 2 * * *", "zone": "Europe/Berlin", "misfire": "once", "overlap": "allow",
        "destination": "@pull", "content": "{}",
    });
    rule.as_object_mut().unwrap().extend(definition.as_object().unwrap().clone());
    json!({
        "topic": "t", "schedule": name, "set_ms": 1_795_268_529_000_i64,
        "since_ms": 1_795_268_529_000_i64, "origin": "00c0ffee00c0ffee", "cursor": cursor,
        "definition": rule,
    })
}

/// It said what the store said: that nothing was stored.
#[tokio::test]
async fn an_adopt_that_the_store_ends_says_what_was_stored() {
    let bench = Bench::start(1).await;
    bench.set(&["earlier".to_owned()], "{}").await;
    refuse_schedule(&bench.folder.path().join("delayd.db"));
    let adopt = async |names: &[&str]| {
        let records: Vec<_> =
            names.iter().map(|name| record(name, json!({}), Value::Null)).collect();
        let answer = bench.answer("adopt", &json!({"topic": "t", "records": records})).await;
        assert_eq!(answer.status(), 503);
        json_of(answer).await["error_msg"].as_str().unwrap().to_owned()
    };
    let some = "the store failed after some records were stored: repeat the call";
    assert_ne!(adopt(&["refused", "later"]).await, some);
    assert_eq!(adopt(&["first", "refused"]).await, some);
    let kept = bench.call("list", json!({"topic": "t"})).await;
    assert_eq!(kept["schedules"].as_array().unwrap().len(), 2, "{kept}");
}

/// A moment that no store can hold would stop the schedule.
#[tokio::test]
async fn an_adopt_refuses_what_a_set_would_refuse() {
    let bench = Bench::start(1).await;
    let adopt = async |definition: Value, cursor: Value| {
        let record = record("s", definition, cursor);
        let answer = bench.call("adopt", json!({"topic": "t", "records": [record]})).await;
        let result = &answer["results"][0];
        let gone = bench.call("delete", json!({"topic": "t", "schedule": "s"})).await;
        assert_eq!(gone["dm_error"] == 0, result["dm_error"] == 0, "{answer}");
        result["error_msg"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let every = |every: u64| json!({"cron": Value::Null, "every_ms": every, "zone": "UTC"});
    const DAY: u64 = 86_400_000;
    for (definition, says) in [
        (json!({}), "操作成功"),
        (every(2 * DAY), "操作成功"),
        (every(999), "definition.every: expected 1s to 366d"),
        (every(u64::MAX), "definition.every: expected 1s to 366d"),
        (json!({"jitter_ms": 1}), "definition: unknown field \"jitter_ms\""),
    ] {
        let said = adopt(definition.clone(), Value::Null).await;
        assert!(said.starts_with(says), "{definition}: {said}");
    }
    let refused = "cursor: expected a local time and a zone";
    let long_zone = format!("2026-11-25T02:30:00[{}]", "x".repeat(109));
    for (cursor, says) in [
        ("2026-11-25T02:30:00[Europe/Berlin]", "操作成功"),
        ("2026-10-25T02:30:00/1[Europe/Berlin]", "操作成功"),
        ("1970-01-02T00:00:00[Europe/Berlin]", "操作成功"),
        ("1969-12-31T00:00:00[Europe/Berlin]", refused),
        ("-009999-01-01T00:00:00[Europe/Berlin]", refused),
        ("2026-11-25T02:30:00", refused),
        ("2026-11-25 02:30:00[Europe/Berlin]", refused),
        ("2026-11-25T02:30:00[Europe/ Berlin]", refused),
        ("2026-11-25T02:30:00[Zürich]", refused),
        ("2026-11-25T02:30:00/2[Europe/Berlin]", refused),
        ("2026-02-30T02:30:00[Europe/Berlin]", refused),
        ("", refused),
        ("-", refused),
        (long_zone.as_str(), refused),
    ] {
        let said = adopt(json!({}), json!(cursor)).await;
        assert!(said.starts_with(says), "{cursor}: {said}");
    }
}
