//! A token with only the scope `view` changes nothing, and sees no content, by any route.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use serde_json::{Value, json};

use super::*;
use crate::api::testing::{Ask, edge_with_store};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, TaskId};
use crate::model::token::{Scope, TokenHash};
use crate::store::{Asker, AttemptNote, Claim, Claimed, Delivery, Settle, Transition, Want};

const OPERATOR: &str = "dly_operator";
const VIEWER: &str = "dly_viewer";
/// In every text that a `view` token may not see.
const SECRET: &str = "secret-text";
const SERVICE: &str = "message.call";

/// What a token with only `view` may do with a route.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision {
    /// It needs no token.
    Open,
    /// It answers, and omits what is secret.
    Reads,
    /// It answers 403.
    Refused,
    /// It answers 403, though it changes nothing.
    RefusedRead,
}

/// One decision for each route. A route that is absent here fails the test.
fn decision(path: &str) -> Decision {
    match path {
        "/" | "/dashboard/app.js" | "/dashboard/app.css" | "/healthz" | "/readyz"
        | "/openapi.json" | "/docs" | "/docs/explorer.js" | "/docs/explorer.css"
        | "/docs/icon.svg" => Decision::Open,
        "/delay/task/get"
        | "/delay/task/find"
        | "/delay/task/list"
        | "/delay/dead/causes"
        | "/delay/topic/list"
        | "/delay/topic/get"
        | "/delay/topic/forecast"
        | "/delay/destination/list"
        | "/delay/destination/get"
        | "/delay/audit/list"
        | "/delay/instance/list"
        | "/delay/instance/get"
        | "/delay/series"
        | "/delay/whoami"
        | "/delay/overview"
        | "/delay/forecast"
        | "/delay/schedule/get"
        | "/delay/schedule/list"
        | "/delay/schedule/preview"
        | "/delay/live"
        | "/metrics"
        | "/metrics/topics" => Decision::Reads,
        "/delay/task/search" => Decision::RefusedRead,
        "/delay/task/add"
        | "/delay/task/add_batch"
        | "/delay/task/pull"
        | "/delay/task/ack"
        | "/delay/task/nack"
        | "/delay/task/extend"
        | "/delay/task/cancel"
        | "/delay/task/update"
        | "/delay/task/cancel_many"
        | "/delay/task/update_many"
        | "/delay/task/records"
        | "/delay/task/moved"
        | "/delay/task/adopt"
        | "/delay/dead/replay"
        | "/delay/dead/purge"
        | "/delay/topic/set"
        | "/delay/topic/pause"
        | "/delay/topic/resume"
        | "/delay/topic/purge"
        | "/delay/topic/delete"
        | "/delay/destination/hold"
        | "/delay/destination/release"
        | "/delay/destination/probe"
        | "/delay/schedule/set"
        | "/delay/schedule/pause"
        | "/delay/schedule/resume"
        | "/delay/schedule/delete"
        | "/delay/schedule/run"
        | "/delay/schedule/records"
        | "/delay/schedule/moved"
        | "/delay/schedule/adopt" => Decision::Refused,
        other => panic!("decide what a token with only `view` may do with {other}"),
    }
}

/// Bodies that succeed with every scope, so that only the scope can be the reason of a refusal.
/// For calls about one task there is one for each of them.
fn bodies(path: &str, ids: &[u64]) -> Vec<Value> {
    let task = json!({"topic": "t", "delay": 1, "content": {"a": 1}});
    let each = |more: Value| {
        let one = |id: &u64| {
            let mut body = json!({"topic": "t", "task_id": id});
            let more = more.as_object().unwrap().clone();
            body.as_object_mut().unwrap().extend(more);
            body
        };
        ids.iter().map(one).collect()
    };
    match path {
        "/delay/task/add" => vec![task],
        "/delay/task/add_batch" => vec![json!({"tasks": [task]})],
        "/delay/task/get" => {
            let mut all: Vec<Value> = each(json!({}));
            all.push(json!({"topic": "t", "idempotency_key": format!("{SECRET}-1")}));
            all
        }
        "/delay/task/find" => {
            let mut all: Vec<Value> = ids.iter().map(|id| json!({"task_id": id})).collect();
            all.push(json!({"idempotency_key": format!("{SECRET}-1")}));
            all
        }
        "/delay/task/pull" | "/delay/task/cancel" => each(json!({})),
        "/delay/task/ack" | "/delay/task/nack" => each(json!({"receipt": "r"})),
        "/delay/task/extend" => each(json!({"receipt": "r", "lease": 60})),
        "/delay/task/update" => each(json!({"delay": 60})),
        "/delay/task/list" => {
            let states = ["scheduled", "leased", "delivered", "dead", "cancelled", "expired"];
            let list = |state: &&str| json!({"topic": "t", "state": state});
            let mut all: Vec<Value> = states.iter().map(list).collect();
            all.push(json!({"topic": "t", "state": "dead", "order": "newest", "sn": SERVICE}));
            all
        }
        "/delay/task/cancel_many" => vec![json!({"topic": "t", "state": "dead", "all": true})],
        "/delay/task/update_many" => {
            vec![json!({"topic": "t", "timing_moment": 1_900_000_000, "all": true})]
        }
        "/delay/task/search" => vec![json!({"topic": "t", "state": "dead", "text": "text"})],
        "/delay/task/records" => vec![json!({"topic": "t", "task_ids": ids, "lend": 60})],
        "/delay/task/moved" => vec![json!({"topic": "t", "task_ids": ids, "receipt": "r"})],
        "/delay/task/adopt" => vec![json!({"records": []})],
        "/delay/dead/replay" | "/delay/dead/purge" => vec![json!({"topic": "t", "all": true})],
        "/delay/dead/causes" => vec![json!({"topic": "t"}), json!({})],
        "/delay/topic/set" => vec![json!({"topic": "t", "paused": true})],
        "/delay/topic/purge" => vec![json!({"topic": "t", "confirm": "t"})],
        "/delay/topic/forecast" => vec![json!({"topic": "t", "step": 60})],
        "/delay/schedule/preview" => vec![json!({"cron": "@daily"}), json!({"every": 60})],
        "/delay/schedule/list" => vec![json!({"topic": "t"})],
        "/delay/schedule/set" => vec![json!({
            "topic": "t", "schedule": "s", "every": "1h", "content": {"sn": SERVICE, "url": "/"},
        })],
        "/delay/schedule/records" => vec![json!({"topic": "t"})],
        "/delay/schedule/moved" => vec![json!({"topic": "t", "schedules": []})],
        "/delay/schedule/adopt" => vec![json!({"topic": "t", "records": []})],
        path if path.starts_with("/delay/schedule/") => {
            vec![json!({"topic": "t", "schedule": "s"})]
        }
        "/delay/forecast" => vec![json!({}), json!({"span": "week", "match": "T*"})],
        "/delay/topic/list" => {
            vec![json!({}), json!({"sort": "dead", "match": "T*", "trend": true})]
        }
        "/delay/destination/list" => vec![json!({}), json!({"sampled": true})],
        "/delay/instance/list"
        | "/delay/instance/get"
        | "/delay/audit/list"
        | "/delay/series"
        | "/delay/whoami"
        | "/delay/overview"
        | "/delay/live" => vec![json!({})],
        path if path.starts_with("/delay/destination/") => vec![json!({"sn": SERVICE})],
        path if path.starts_with("/delay/") => vec![json!({"topic": "t"})],
        _ => vec![Value::Null],
    }
}

fn token(name: &str, token: &str, scopes: &[Scope], topic: &str) -> TokenParams {
    TokenParams {
        name: name.into(),
        hash: TokenHash::of(token),
        scopes: scopes.to_vec(),
        topics: vec![topic.parse().unwrap()],
        rate: None,
    }
}

/// Status and text of an answer.
async fn ask(edge: &Router, token: &str, path: &str, body: &Value) -> (u16, String) {
    let request = match path.starts_with("/delay/") {
        true => Request::post(path).body(Body::from(body.to_string())),
        false => Request::get(path).body(Body::empty()),
    };
    let mut request = request.unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let response = edge.clone().answer(request).await;
    let status = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

/// Everything that the operator can read, to find any change.
async fn all_that_is_kept(edge: &Router, ids: &[u64]) -> Vec<String> {
    let mut seen = Vec::new();
    for path in [
        "/delay/topic/list",
        "/delay/topic/get",
        "/delay/task/list",
        "/delay/task/get",
        "/delay/task/find",
        "/delay/dead/causes",
        "/delay/destination/list",
        "/delay/schedule/list",
        "/delay/schedule/get",
    ] {
        for body in bodies(path, ids) {
            let (status, text) = ask(edge, OPERATOR, path, &body).await;
            assert_eq!(status, 200, "{path} {body}: {text}");
            let mut answer: Value = serde_json::from_str(&text).unwrap();
            // It is computed from the present time, to the millisecond.
            if let Some(destination) = answer.pointer_mut("/destinations/0") {
                destination["last_error_ms"].take();
            }
            seen.push(answer.to_string());
        }
    }
    seen
}

/// Adds a task with secrets everywhere.
async fn add(edge: &Router, n: u32) -> u64 {
    let body = json!({
        "topic": "t",
        "delay": if n == 0 { 3600 } else { 0 },
        "content": {"sn": SERVICE, "url": format!("/{SECRET}"), "text": SECRET},
        "headers": {"authorization": SECRET},
        "idempotency_key": format!("{SECRET}-{n}"),
        "on_dead": {"sn": SERVICE, "url": format!("/dead?{SECRET}")},
    });
    let (status, text) = ask(edge, OPERATOR, "/delay/task/add", &body).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["task_id"].as_u64().unwrap()
}

/// A waiting task, a leased one and a dead one, each with secrets, and a destination whose last
/// error is one.
async fn some_tasks(api: &Api, edge: &Router) -> Vec<u64> {
    let schedule = json!({
        "topic": "t", "schedule": "s", "every": "1h",
        "content": {"sn": SERVICE, "url": format!("/{SECRET}"), "text": SECRET},
        "headers": {"authorization": SECRET},
        "on_dead": {"sn": SERVICE, "url": format!("/dead?{SECRET}")},
    });
    let (status, text) = ask(edge, OPERATOR, "/delay/schedule/set", &schedule).await;
    assert_eq!(status, 200, "{text}");
    let ids = vec![add(edge, 0).await, add(edge, 1).await, add(edge, 2).await];
    let (lane, sn): (Lane, Destination) = ("t:0".parse().unwrap(), SERVICE.parse().unwrap());
    let claim = Claim {
        lane: lane.clone(),
        wants: vec![Want { destination: sn.clone(), slots: 2 }],
        lease: Duration::from_secs(600),
        holder: None,
        more: false,
        after: None,
        in_hand: 0,
        misfires: Vec::new(),
    };
    let Claimed::Granted(grant) = api.store.claim(claim).await.unwrap() else {
        panic!("nobody else claims")
    };
    assert_eq!(grant.tasks.len(), 2);
    let note = |id: &u64| AttemptNote {
        lane: lane.clone(),
        id: TaskId(*id),
        attempt: 1,
        started: UnixMillis(1),
        took: Duration::from_millis(1),
        wait: None,
        outcome: SECRET.into(),
        answer: SECRET.into(),
    };
    api.store.note(ids[1..].iter().map(note).collect()).await.unwrap();
    let died = Settle {
        lane: lane.clone(),
        id: TaskId(ids[2]),
        receipt: grant.receipt,
        transition: Transition::Dead { outcome: SECRET.into() },
    };
    api.store.settle(Asker::Worker, vec![died]).await.remove(0).unwrap();
    let allowance = api.services.get(SERVICE).unwrap().allowance();
    let mut permit = api.limits.reserve(&sn, allowance, 1).split_one().unwrap();
    permit.begin(Duration::from_secs(1));
    permit.failed(SECRET);
    drop(permit);
    ids
}

#[tokio::test]
async fn a_view_token_changes_nothing_and_sees_no_content() {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    api.set_bounds(&Params { body_limit: 10_000, ..api.params.clone() });
    let all = [Scope::Admin, Scope::Produce, Scope::Consume];
    api.tokens.replace(vec![
        token("operator", OPERATOR, &all, "*"),
        token("viewer", VIEWER, &[Scope::View], "*"),
    ]);
    let edge = edge(api.clone());
    let ids = some_tasks(&api, &edge).await;
    let before = all_that_is_kept(&edge, &ids).await;
    assert!(before.iter().filter(|text| text.contains(SECRET)).count() >= 5, "{before:?}");
    for route in ROUTES.all() {
        let decision = decision(route.path);
        let changes = decision == Decision::Refused;
        assert_eq!(route.only_reads, !changes, "{}", route.path);
        for body in bodies(route.path, &ids) {
            let (status, text) = ask(&edge, VIEWER, route.path, &body).await;
            let said = format!("{} {body}: {status} {text}", route.path);
            assert!(!text.contains(SECRET), "{said}");
            match decision {
                Decision::Open => assert_eq!(status, 200, "{said}"),
                Decision::Reads => assert_eq!(status, 200, "{said}"),
                Decision::Refused | Decision::RefusedRead => {
                    assert_eq!(status, 403, "{said}");
                    assert!(text.contains("must be a token with the scope"), "{said}");
                    assert!(text.contains("has view"), "{said}");
                }
            }
        }
    }
    // The texts of outcomes cannot be guessed, either.
    let guess = json!({"topic": "t", "state": "dead", "outcome": SECRET});
    let (status, text) = ask(&edge, VIEWER, "/delay/task/list", &guess).await;
    assert!(status == 403 && text.contains("may not filter by outcomes"), "{status} {text}");
    assert_eq!(ask(&edge, OPERATOR, "/delay/task/list", &guess).await.0, 200);
    assert_eq!(all_that_is_kept(&edge, &ids).await, before);
}

#[tokio::test]
async fn what_is_about_all_topics_needs_a_token_for_all_topics() {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    let edge = edge(api.clone());
    for topic in ["t", "u"] {
        let body = json!({"topic": topic, "delay": 1, "content": {"a": 1}});
        assert_eq!(ask(&edge, "", "/delay/task/add", &body).await.0, 200);
    }
    for scope in [Scope::View, Scope::Admin] {
        api.tokens.replace(vec![token("part", VIEWER, &[scope], "t")]);
        for path in
            ["/metrics", "/delay/destination/list", "/delay/task/find", "/delay/dead/causes"]
        {
            let (status, text) = ask(&edge, VIEWER, path, &json!({})).await;
            assert!(status == 403 && text.contains("about all topics"), "{path} {status} {text}");
        }
        for body in [json!({}), json!({"sort": "pending"})] {
            let (status, text) = ask(&edge, VIEWER, "/delay/topic/list", &body).await;
            assert_eq!((status, text.contains("\"u\"")), (200, false), "{text}");
            assert!(!text.contains("\"total\":2"), "{text}");
        }
        let other = json!({"topic": "u", "state": "scheduled", "order": "newest", "text": "x"});
        for path in ["/delay/topic/get", "/delay/task/list", "/delay/task/search"] {
            assert_eq!(ask(&edge, VIEWER, path, &other).await.0, 403, "{path}");
        }
        let own = json!({"topic": "t"});
        assert_eq!(ask(&edge, VIEWER, "/delay/dead/causes", &own).await.0, 200);
        api.tokens.replace(vec![token("all", VIEWER, &[scope], "*")]);
        assert_eq!(ask(&edge, VIEWER, "/metrics", &json!({})).await.0, 200);
    }
}
