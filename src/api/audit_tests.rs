//! Administrative calls are in the audit log, whatever comes of them.

use std::collections::BTreeSet;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use delayd_wire::{AuditEntry, AuditResult};
use futures_util::FutureExt;
use serde_json::{Value, json};

use super::*;
use crate::api::testing::{Ask, edge_with_store};
use crate::model::token::{Scope, TokenHash};
use crate::store::Audit;

const OPERATOR: &str = "dly_operator";
const VIEWER: &str = "dly_viewer";
const SECRET: &str = "secret-text";

/// All calls that change something and need `admin`. A new call of this kind is recorded by
/// default; name it here.
const ADMINISTRATIVE: [&str; 22] = [
    "/delay/task/cancel_many",
    "/delay/task/update_many",
    "/delay/task/records",
    "/delay/task/moved",
    "/delay/task/adopt",
    "/delay/dead/replay",
    "/delay/dead/purge",
    "/delay/topic/set",
    "/delay/topic/pause",
    "/delay/topic/resume",
    "/delay/topic/purge",
    "/delay/topic/delete",
    "/delay/destination/hold",
    "/delay/destination/release",
    "/delay/destination/probe",
    "/delay/schedule/set",
    "/delay/schedule/pause",
    "/delay/schedule/resume",
    "/delay/schedule/delete",
    "/delay/schedule/records",
    "/delay/schedule/moved",
    "/delay/schedule/adopt",
];

fn token(name: &str, token: &str, scopes: &[Scope]) -> TokenParams {
    TokenParams {
        name: name.into(),
        hash: TokenHash::of(token),
        scopes: scopes.to_vec(),
        topics: vec!["*".parse().unwrap()],
        rate: None,
    }
}

fn tokens() -> Vec<TokenParams> {
    vec![
        token("operator", OPERATOR, &[Scope::Admin, Scope::Produce]),
        token("producer", "dly_producer", &[Scope::Produce]),
        token("viewer", VIEWER, &[Scope::View]),
    ]
}

fn request(path: &str, token: Option<&str>, id: &str, body: impl Into<Body>) -> Request {
    let mut request = Request::post(path).header("x-request-id", id);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(body.into()).unwrap()
}

/// What the log of the store holds once everything queued is in it, the newest first.
async fn logged(api: &Api) -> Vec<AuditEntry> {
    let hour = std::time::Duration::from_secs(3600);
    api.audit.finish(tokio::time::Instant::now() + hour).await;
    let logged = api.store.audit(None, 1_000).await.unwrap();
    assert_eq!(logged.next, None);
    logged.entries
}

#[test]
fn every_administrative_call_is_recorded() {
    let recorded: BTreeSet<&str> =
        ROUTES.all().iter().filter(|route| route.is_recorded()).map(|route| route.path).collect();
    assert_eq!(recorded, BTreeSet::from(ADMINISTRATIVE));
}

#[tokio::test]
async fn each_administrative_call_has_an_entry_whoever_made_it() {
    // More refused calls in a minute would not be recorded.
    for calls in ADMINISTRATIVE.chunks(15) {
        each_has_an_entry(calls).await;
    }
}

async fn each_has_an_entry(calls: &[&str]) {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    api.tokens.replace(tokens());
    let edge = edge(api.clone());
    let body = json!({
        "topic": "t", "sn": "message.call", "schedule": "s", "task_ids": [1, 2], "reason": SECRET,
        "content": SECRET, "headers": {"a": SECRET},
    })
    .to_string();
    let callers = [
        (Some(OPERATOR), Some("operator"), 400..500),
        (Some(VIEWER), Some("viewer"), 403..404),
        (None, None, 401..402),
    ];
    for (given, _, statuses) in &callers {
        for (n, path) in calls.iter().enumerate() {
            let id = format!("{}-{n}", given.unwrap_or("none").trim_start_matches("dly_"));
            let answer = edge.clone().answer(request(path, *given, &id, body.clone())).await;
            assert!(statuses.contains(&answer.status().as_u16()), "{path} {given:?}: {answer:?}");
        }
    }
    let entries = logged(&api).await;
    let text = serde_json::to_string(&entries).unwrap();
    assert!(!text.contains(SECRET) && !text.contains("dly_"), "{text}");
    let mut entries = entries.into_iter().rev();
    for (given, name, statuses) in &callers {
        for (n, path) in calls.iter().enumerate() {
            let entry = entries.next().expect("an entry for each call");
            let id = format!("{}-{n}", given.unwrap_or("none").trim_start_matches("dly_"));
            assert_eq!(entry.action, path["/delay/".len()..]);
            assert_eq!((entry.token.as_deref(), entry.request_id), (*name, Some(id)));
            assert_eq!(entry.result, AuditResult::Refused);
            assert!(statuses.contains(&entry.status.unwrap()) && entry.dm_error.is_some());
            // The body of a call that is not admitted is not read.
            let is_read = *given == Some(OPERATOR);
            assert_eq!(entry.topic.map(|topic| topic.to_string()), is_read.then(|| "t".to_owned()));
            assert_eq!(
                entry.sn.map(|sn| sn.to_string()),
                is_read.then(|| "message.call".to_owned())
            );
            assert_eq!(entry.schedule, is_read.then(|| "s".to_owned()));
            assert_eq!(entry.tasks, is_read.then_some(2));
        }
    }
    assert_eq!(entries.next(), None);
}

#[tokio::test]
async fn an_entry_says_what_was_done_to_what() {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    api.tokens.replace(tokens());
    let edge = edge(api.clone());
    let ask = async |token: &str, path: &str, body: Value| {
        let answer = edge.clone().answer(request(path, Some(token), "r", body.to_string())).await;
        let status = answer.status().as_u16();
        (status, crate::api::testing::json_of(answer).await)
    };
    let add = json!({"topic": "t", "delay": 60, "content": {"a": SECRET}});
    let id = ask(OPERATOR, "/delay/task/add", add).await.1["task_id"].clone();
    let update = json!({"topic": "t", "task_id": id, "delay": 90});
    let calls = [
        (OPERATOR, "/delay/topic/pause", json!({"topic": "t"}), 200),
        (OPERATOR, "/delay/dead/purge", json!({"topic": "t", "all": true, "dry_run": true}), 200),
        (OPERATOR, "/delay/topic/pause", json!({"topic": "u"}), 404),
        (OPERATOR, "/delay/task/records", json!({"topic": "t", "task_ids": [id]}), 200),
        (OPERATOR, "/delay/schedule/pause", json!({"topic": "t", "schedule": "nightly"}), 404),
        // These use no right of an administrator. They would fill the log.
        (OPERATOR, "/delay/task/update", update, 200),
        (OPERATOR, "/delay/task/cancel", json!({"topic": "t", "task_id": id}), 200),
        (OPERATOR, "/delay/topic/list", json!({}), 200),
        (OPERATOR, "/delay/no/action", json!({}), 404),
    ];
    for (token, path, body, status) in calls {
        assert_eq!(ask(token, path, body).await.0, status, "{path}");
    }
    let entries = logged(&api).await;
    let said: Vec<String> = entries
        .iter()
        .rev()
        .map(|entry| {
            let mut value = serde_json::to_value(entry).unwrap();
            let fields = value.as_object_mut().unwrap();
            assert!(fields.remove("at_ms").is_some() && fields.remove("source").is_some());
            assert_eq!(fields.remove("token").unwrap(), "operator");
            assert_eq!(fields.remove("request_id").unwrap(), "r");
            value.to_string()
        })
        .collect();
    let expected = [
        r#"{"action":"topic/pause","result":"done","status":200,"topic":"t"}"#,
        concat!(
            r#"{"action":"dead/purge","dry_run":true,"result":"done","status":200,"tasks":0,"#,
            r#""topic":"t"}"#
        ),
        r#"{"action":"topic/pause","dm_error":1004,"result":"refused","status":404,"topic":"u"}"#,
        r#"{"action":"task/records","result":"done","status":200,"tasks":1,"topic":"t"}"#,
        concat!(
            r#"{"action":"schedule/pause","dm_error":1004,"result":"refused","#,
            r#""schedule":"nightly","status":404,"topic":"t"}"#
        ),
    ];
    assert_eq!(said, expected);
}

/// A caller could otherwise hide a purge: the answer is lost, and the purge is done.
#[tokio::test]
async fn a_caller_that_disconnects_hides_nothing() {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    let edge = edge(api.clone());
    let never = futures_util::stream::pending::<Result<Bytes, Infallible>>();
    let request = request("/delay/topic/purge", None, "gone", Body::from_stream(never));
    assert!(edge.answer(request).now_or_never().is_none());
    let entries = logged(&api).await;
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry.action.as_str(), entry.result), ("topic/purge", AuditResult::Unanswered));
    assert_eq!((entry.request_id.as_deref(), entry.status), (Some("gone"), None));
}

#[tokio::test]
async fn refused_requests_do_not_fill_the_log() {
    let (api, _draining, _folder) = edge_with_store();
    let api = Arc::new(api);
    api.tokens.replace(tokens());
    let edge = edge(api.clone());
    let began = std::time::Instant::now();
    for token in [None, Some("dly_unknown"), Some(VIEWER)] {
        for _ in 0..100 {
            edge.clone().answer(request("/delay/topic/pause", token, "r", "{}")).await;
        }
    }
    let pause = request("/delay/topic/pause", Some(OPERATOR), "r", r#"{"topic":"t"}"#);
    edge.clone().answer(pause).await;
    let entries = logged(&api).await;
    let of =
        |name: Option<&str>| entries.iter().filter(|entry| entry.token.as_deref() == name).count();
    // One more for each minute that the test lasts.
    let most = 21 + began.elapsed().as_secs() / 60;
    for name in [None, Some("viewer")] {
        assert!((20..=most).contains(&(of(name) as u64)), "{name:?}: {entries:?}");
    }
    assert_eq!(of(Some("operator")), 1);
    let metrics = api.metrics.encode();
    let dropped = metrics.lines().find_map(|line| {
        line.strip_prefix("delayd_audit_dropped_total{reason=\"rate\"} ")?.parse::<usize>().ok()
    });
    assert_eq!(dropped, Some(301 - entries.len()));
}
