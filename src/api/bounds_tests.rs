//! The cost of a request, counted: bytes processed between two yields and in total, and bytes
//! allocated. The tests measure no time.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::pin;

use axum::body::Body;
use axum::extract::Request;

use super::*;
use crate::api::auth::Caller;
use crate::api::handlers::dead;
use crate::api::handlers::migration::adopt;
use crate::api::handlers::schedule;
use crate::api::handlers::task::{add, manage, new_task};
use crate::api::handlers::topic::policy;
use crate::api::testing::{Ask, edge_with_store};
use crate::api::wire::{cost, json, long_body};
use crate::outcome::Policy;

const MIB: usize = 1 << 20;
/// The length of the bodies: longer than what is read on a runtime thread. All bounds are
/// proportional to it, so longer bodies would show nothing more.
const LENGTH: usize = long_body::LONG / 4 * 5;

const ADD: &str = "/delay/task/add";
const ADD_BATCH: &str = "/delay/task/add_batch";
const ADOPT: &str = "/delay/task/adopt";
const UPDATE: &str = "/delay/task/update";
const REPLAY: &str = "/delay/dead/replay";
const SET: &str = "/delay/topic/set";
const SCHEDULE: &str = "/delay/schedule/set";
const SCHEDULE_ADOPT: &str = "/delay/schedule/adopt";
const PREVIEW: &str = "/delay/schedule/preview";

/// A body of this length: `before`, then as many of `piece` as fit, then `after`.
fn filled(length: usize, before: &str, piece: impl Fn(usize) -> String, after: &str) -> String {
    let mut body = before.to_owned();
    for n in 0.. {
        if body.len() + after.len() >= length {
            break;
        }
        let comma = if n == 0 { "" } else { "," };
        write!(body, "{comma}{}", piece(n)).unwrap();
    }
    body + after
}

/// Bodies that were expensive once, or could be, with the call for each.
fn hostile(length: usize) -> Vec<(&'static str, String)> {
    let long = |unit: &str| unit.repeat(length / unit.len());
    let task = |option: &str| format!(r#"{{"topic":"t","delay":1,"content":{{}},{option}}}"#);
    let record = |field: &str| {
        let task = r#""topic":"t","task_id":1,"mode":"pull","content":"{}""#;
        let must = format!(r#"{task},"created_ms":1e12,"due_ms":1e12"#);
        format!(r#"{{"records":[{{{must},{field}}}]}}"#)
    };
    let objects =
        |name: &str| filled(length, &format!(r#""{name}":{{"#), |n| format!(r#""a{n}":{{}}"#), "}");
    let strings =
        |name: &str| filled(length, &format!(r#""{name}":{{"#), |n| format!(r#""a{n}":"""#), "}");
    let note = r#"{"attempt":1,"started_ms":1,"duration_ms":1,"outcome":"","answer":""}"#;
    let one_each: Vec<String> = vec![
        format!(r#""{}":1"#, long("x")),
        format!(r#""{}":1"#, long("backoff")),
        format!(r#""{}":1"#, long("\u{e000}")),
        format!(r#""delay":"{}""#, long("9")),
        format!(r#""delay":{}"#, long("9")),
        format!(r#""delay":1e{}"#, long("9")),
        format!(r#""mode":"{}""#, long("x")),
        format!(r#""max_attempts":"{}""#, long("\u{e000}")),
        format!(r#""key":"{}""#, long("\\u0041")),
        format!(r#""timeout":{}"#, long("[")),
        format!(r#""on_dead":{{"{}":1}}"#, long("x")),
        format!(r#""on_dead":{{"sn":"{}"}}"#, long("x")),
        objects("backoff"),
        objects("on_dead"),
        strings("headers"),
        filled(length, r#""backoff":{"kind":"list","steps":["#, |_| "1".into(), "]}"),
        filled(length, r#""headers":{"#, |_| r#""a":null"#.into(), "}"),
        filled(length, r#""a":1"#, |_| r#""a":1"#.into(), ""),
    ];
    let urls = |url: String| format!(r#"{{"topic":"t","delay":1,"content":{{"url":"{url}"}}}}"#);
    let mut all: Vec<(&str, String)> = one_each.iter().map(|option| (ADD, task(option))).collect();
    all.extend(
        one_each.iter().map(|option| (ADD_BATCH, format!(r#"{{"tasks":[{}]}}"#, task(option)))),
    );
    all.extend(
        one_each.iter().map(|option| (UPDATE, format!(r#"{{"topic":"t","task_id":1,{option}}}"#))),
    );
    all.extend(
        one_each.iter().map(|option| (SET, format!(r#"{{"topic":"t","retry":{{{option}}}}}"#))),
    );
    all.extend(
        one_each.iter().map(|option| (ADOPT, record(&format!(r#""options":{{{option}}}"#)))),
    );
    let adopted = |field: &str, rule: &str| {
        let must = r#""topic":"t","schedule":"s","set_ms":1e12,"since_ms":1e12"#;
        let of = r#""origin":"00c0ffee00c0ffee""#;
        let all =
            r#""zone":"UTC","misfire":"once","overlap":"allow","destination":"@pull","content":"""#;
        let definition = format!(r#""definition":{{{all},{rule}}}"#);
        format!(r#"{{"topic":"t","records":[{{{must},{of},{field},{definition}}}]}}"#)
    };
    let schedule = |rule: &str| format!(r#"{{"topic":"t","schedule":"s","content":{{}},{rule}}}"#);
    all.extend(
        one_each.iter().map(|option| (SCHEDULE, schedule(&format!(r#""every":60,{option}"#)))),
    );
    all.extend([
        (SCHEDULE, schedule(&format!(r#""cron":"{}""#, long("*,")))),
        (SCHEDULE, schedule(&format!(r#""cron":"@daily","zone":"{}""#, long("x")))),
        (SCHEDULE, schedule(&format!(r#""cron":"@daily","start":"{}""#, long("9")))),
        (SCHEDULE, schedule(&format!(r#""cron":"@daily","key":"{}""#, long("x")))),
        (SCHEDULE, format!(r#"{{"{}":1}}"#, long("schedule"))),
        (PREVIEW, format!(r#"{{"cron":"{}"}}"#, long("*,"))),
        (PREVIEW, format!(r#"{{"cron":"{}"}}"#, long("0-59/1,"))),
        (PREVIEW, format!(r#"{{"cron":"{}"}}"#, long("* "))),
        (PREVIEW, format!(r#"{{"cron":"@{}"}}"#, long("\\u0041"))),
        (PREVIEW, format!(r#"{{"every":"{}"}}"#, long("9"))),
        (PREVIEW, format!(r#"{{"cron":"@daily","zone":"{}"}}"#, long("Europe/"))),
        (PREVIEW, format!(r#"{{"cron":"@daily","start":"{}"}}"#, long("9"))),
        (PREVIEW, format!(r#"{{"cron":"@daily","after":"2026-11-26 00:00[{}]"}}"#, long("x"))),
        (PREVIEW, format!(r#"{{"cron":"@daily","count":{}}}"#, long("9"))),
        (PREVIEW, format!(r#"{{"cron":"@daily","{}":1}}"#, long("x"))),
        (SCHEDULE_ADOPT, filled(length, r#"{"topic":"t","records":["#, |_| "{}".into(), "]}")),
        (SCHEDULE_ADOPT, adopted(&format!(r#""cursor":"{}""#, long("9")), r#""cron":"@daily""#)),
        (SCHEDULE_ADOPT, adopted(r#""cursor":null"#, &format!(r#""cron":"{}""#, long("*,")))),
        (SCHEDULE_ADOPT, adopted(r#""cursor":null"#, &format!(r#""every_ms":{}"#, long("9")))),
        (SCHEDULE_ADOPT, adopted(r#""cursor":null"#, &format!(r#""{}":1"#, long("x")))),
        (
            SCHEDULE_ADOPT,
            adopted(r#""cursor":null"#, &format!(r#""options":{{{}}}"#, strings("headers"))),
        ),
        (ADD, urls(format!("http://{}/", long("é")))),
        (ADD, urls(format!("http://{}/", long("a.")))),
        (ADD, format!(r#"{{"topic":"t","delay":1,"content":{}}}"#, long("["))),
        (ADD, format!(r#"{{"topic":"t","delay":1,"content":{{"a":"{}"}}}}"#, long("\\u0041"))),
        (ADD_BATCH, format!(r#"{{"{}":1}}"#, long("tasks"))),
        (ADD_BATCH, format!(r#"{{"tasks":"{}"}}"#, long("\u{e000}"))),
        (ADD_BATCH, format!(r#"{{"tasks":{}"#, long("["))),
        (ADD_BATCH, filled(length, r#"{"tasks":["#, |_| "{}".into(), "]}")),
        (ADD_BATCH, filled(length, r#"{"tasks":["#, |_| "[]".into(), "]}")),
        (ADD_BATCH, filled(length, r#"{"tasks":["#, |_| task(r#""x":1"#), "]}")),
        (
            ADD_BATCH,
            filled(
                length,
                r#"{"tasks":["#,
                |_| task(&format!(r#""key":"{}""#, "k".repeat(8_000))),
                "]}",
            ),
        ),
        (ADOPT, filled(length, r#"{"records":["#, |_| "{}".into(), "]}")),
        (ADOPT, record(&filled(length, r#""log":["#, |_| note.into(), "]"))),
        (ADOPT, record(&format!(r#""last_outcome":"{}""#, long("x")))),
        (REPLAY, filled(length, r#"{"topic":"t","task_ids":["#, |_| "1".into(), "]}")),
        (REPLAY, format!(r#"{{"topic":"t","all":true,"rate":"{}"}}"#, long("1"))),
        (SET, filled(length, r#"{"topic":"t","reset":["#, |_| r#""rate""#.into(), "]}")),
        (
            SET,
            filled(length, r#"{"topic":"t","retry":{"final_statuses":["#, |_| "500".into(), "]}}"),
        ),
    ]);
    all
}

/// The documented limits.
fn limits() -> Params {
    Params::new(Policy { max_attempts: 3, backoff: Default::default() })
}

fn anyone() -> Caller {
    Caller::anyone()
}

fn begin(body: &str) -> &str {
    body.get(..80).unwrap_or("not ASCII")
}

/// 15 MiB with one long unknown name once blocked all requests for 5.2 s.
#[tokio::test]
async fn no_request_does_much_between_two_yields() {
    let (api, _draining, _folder) = edge_with_store();
    api.set_bounds(&Params { body_limit: 64 * MIB, batch_body_limit: 64 * MIB, ..limits() });
    let edge = edge(Arc::new(api));
    for (path, body) in hostile(LENGTH) {
        let said = begin(&body).to_owned();
        let mut answering =
            pin!(edge.clone().answer(Request::post(path).body(Body::from(body)).unwrap()));
        let mut most = 0;
        let response = poll_fn(|context| {
            let (spent, polled) = cost::of(|| answering.as_mut().poll(context));
            most = most.max(spent);
            polled
        });
        let response = response.await;
        // These have a body of at most 1 MiB, and the slowest reader processes 200 MiB per
        // second, so four passes take 20 ms. Long bodies of the others are read on a blocking
        // thread.
        let allowed = if matches!(path, REPLAY | SET | PREVIEW) { 4 * LENGTH } else { LENGTH / 4 };
        assert!(most <= allowed, "{path} {said}: {most} bytes looked at between two yields");
        assert!(response.status().as_u16() < 500, "{path} {said}: {}", response.status());
    }
}

/// Reads the body as the call does before it calls the store.
fn read(api: &Api, path: &str, body: &[u8]) {
    let refused = match path {
        ADD => api.checked(None, |rules| new_task::read(body, rules)).err(),
        ADD_BATCH => add::all_checked(api, &anyone(), body).err(),
        ADOPT => adopt::all_checked(api, &anyone(), body).err(),
        UPDATE => json::read::<manage::UpdateRequest>(body).err(),
        REPLAY => json::read::<dead::ReplayRequest>(body).err(),
        SCHEDULE_ADOPT => match schedule::adopt::all_checked(api, body) {
            Ok((_, records)) => records.into_iter().find_map(Result::err),
            Err(refused) => Some(refused),
        },
        PREVIEW => schedule::preview::answer(body, api.clock.now()).err(),
        SCHEDULE => api.checked(None, |rules| schedule::set::read(body, rules)).err(),
        SET => {
            json::read::<policy::Request>(body).and_then(|request| policy::check(&request)).err()
        }
        other => panic!("no reader for {other}"),
    };
    let length = refused.map_or(0, |refused| refused.message().len());
    assert!(
        length < 1_000,
        "{path} {}: an error of {length} bytes",
        begin(&String::from_utf8_lossy(body))
    );
}

/// The budget counts a body twice: its bytes, and what is read from them. A batch was once held a
/// third time.
#[tokio::test]
async fn what_is_read_from_a_batch_takes_no_more_than_its_bytes() {
    let (api, _draining, _folder) = edge_with_store();
    api.set_bounds(&limits());
    let text = "x".repeat(200_000);
    let task = format!(r#"{{"topic":"t","delay":1,"content":{{"a":"{text}"}}}}"#);
    let body = format!(r#"{{"tasks":[{}]}}"#, vec![task; 50].join(","));
    let taken = allocation_counter::measure(|| {
        let checked = add::all_checked(&api, &anyone(), body.as_bytes()).unwrap();
        assert!(checked.iter().all(Result::is_ok));
    });
    let (taken, length) = (taken.bytes_max as usize, body.len());
    assert!(taken <= length + length / 4, "{taken} bytes taken, of {length}");
}

/// `backoff` with many small objects once took a hundred times its bytes.
#[tokio::test]
async fn reading_a_request_goes_over_it_a_few_times_and_takes_little_more_than_its_bytes() {
    let (api, _draining, _folder) = edge_with_store();
    let bodies = hostile(LENGTH);
    for body_limit in [LENGTH / 2, 64 * MIB] {
        api.set_bounds(&Params { body_limit, batch_body_limit: 64 * MIB, ..limits() });
        for (path, body) in &bodies {
            let mut spent = 0;
            let taken = allocation_counter::measure(|| {
                (spent, ()) = cost::of(|| read(&api, path, body.as_bytes()))
            });
            let (length, said) = (body.len(), begin(body));
            assert!(spent <= 12 * length, "{path} {said}: {spent} bytes looked at, of {length}");
            // A body of 1 MiB may allocate 16 MiB in addition; the promise allows another 64 MiB.
            let taken = taken.bytes_max as usize;
            assert!(taken <= 17 * length, "{path} {said}: {taken} bytes taken, of {length}");
        }
    }
}
