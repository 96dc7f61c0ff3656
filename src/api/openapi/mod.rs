//! `GET /openapi.json`: the whole API as an OpenAPI 3.1 document, for code generators, testers and the page at `/docs`.
//!
//! [`calls`] is the table: one row for each route, with the types that its handler reads and answers. Schemas are derived from those very types, so a
//! field that is added is documented; what their fields mean is said in their comments. [`crate::api::wire::schema`] describes what reads itself by hand.
//!
//! # Invariants
//!
//! - Every route has a row, and every row a route; a test compares them.
//! - A schema is never stricter than its reader. It may be laxer: what only a sentence can say (exactly one of two fields) stands in descriptions.

use delayd_wire::ErrorCode;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use crate::api::handlers::migration::{adopt, transfer};
use crate::api::handlers::task::{add, get, list, manage, new_task, pull, settle};
use crate::api::handlers::topic::{manage as topic, policy};
use crate::api::handlers::{dead, destination, health};
use crate::api::long_poll::delivery::Pulled;
use crate::api::wire::envelope::{Nothing, Success};
use crate::api::wire::schema::reference;
use crate::api::wire::stored::Stored;
use crate::api::wire::response;

/// The errors that every call can meet.
const ALWAYS: &[u16] = &[1000, 1001, 1003, 1013, 1015, 1029, 2000, 2003];
const NONE: &[u16] = &[];
const UNKNOWN: &[u16] = &[1004];
const STANDS_ELSEWHERE: &[u16] = &[1004, 1009];

/// One route: what it is for, what it takes and what it answers.
struct Call {
    method: &'static str,
    path: &'static str,
    group: &'static str,
    summary: &'static str,
    request: Option<Described>,
    answer: Answer,
    errors: &'static [u16],
}

/// What a call answers when all is well.
enum Answer {
    /// One of these.
    Json(Vec<Described>),
    /// Two states, each with its HTTP status.
    Health(Described, &'static [u16]),
    /// Another kind of text.
    Text(&'static str),
}

/// A type's place in the document, and the schemas to be put there.
struct Described {
    place: Value,
    schemas: Vec<(String, RefOr<Schema>)>,
}

fn described<T: ToSchema>() -> Described {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    Described { place: json(&reference::<T>()), schemas }
}

/// A call under `/delay/`.
fn call<Q: ToSchema, A: ToSchema + Serialize>(path: &'static str, summary: &'static str, errors: &'static [u16]) -> Call
where
    Success<A>: ToSchema,
{
    let group = path.split('/').nth(2).expect("/delay/<group>/<verb>");
    let answer = Answer::Json(vec![described::<Success<A>>()]);
    Call { method: "post", path, group, summary, request: Some(described::<Q>()), answer, errors }
}

/// Something to be read beside the API.
fn page(path: &'static str, summary: &'static str, answer: Answer) -> Call {
    Call { method: "get", path, group: "beside", summary, request: None, answer, errors: NONE }
}

impl Call {
    /// Another answer it may give.
    fn or<A: ToSchema + Serialize>(mut self) -> Self {
        if let Answer::Json(answers) = &mut self.answer {
            answers.push(described::<Success<A>>());
        }
        self
    }
}

/// Every route.
fn calls() -> Vec<Call> {
    vec![
        call::<new_task::Request<'_>, Stored>("/delay/task/add", "Store a task", &[1022]),
        call::<add::BatchRequest<'_>, add::Batch>("/delay/task/add_batch", "Store many tasks", &[1022]),
        call::<pull::Request, Pulled>("/delay/task/pull", "Take due tasks, or read one task's content", UNKNOWN)
            .or::<pull::Many>(),
        call::<settle::AckRequest, Nothing>("/delay/task/ack", "A leased task is done", STANDS_ELSEWHERE),
        call::<settle::NackRequest, Nothing>("/delay/task/nack", "A leased task is to come again", STANDS_ELSEWHERE),
        call::<settle::ExtendRequest, Nothing>("/delay/task/extend", "Hold a lease for longer", STANDS_ELSEWHERE),
        call::<manage::CancelRequest, manage::Gone>("/delay/task/cancel", "Take a task back", STANDS_ELSEWHERE),
        call::<manage::UpdateRequest<'_>, manage::Moved>("/delay/task/update", "Move a task", STANDS_ELSEWHERE),
        call::<get::Request, get::Found>("/delay/task/get", "Show a task", UNKNOWN),
        call::<list::Request, list::Page>("/delay/task/list", "Show the tasks of a topic in one state", UNKNOWN),
        call::<transfer::RecordsRequest, transfer::Records>(
            "/delay/task/records",
            "Show whole tasks, or lend them to whoever moves them to another store",
            UNKNOWN,
        ),
        call::<transfer::MovedRequest, transfer::Ended>("/delay/task/moved", "What was lent is elsewhere now", UNKNOWN),
        call::<adopt::AdoptRequest<'_>, adopt::Adoptions>("/delay/task/adopt", "Keep tasks of another store", NONE),
        call::<dead::CausesRequest, dead::Causes>("/delay/dead/causes", "What the dead of a topic died of", UNKNOWN),
        call::<dead::ReplayRequest, dead::Done>("/delay/dead/replay", "Schedule dead tasks again", UNKNOWN),
        call::<dead::PurgeRequest, dead::Done>("/delay/dead/purge", "Throw dead tasks away", UNKNOWN),
        call::<topic::ListRequest, topic::Topics>("/delay/topic/list", "Name all topics", NONE),
        call::<topic::TopicRequest, topic::Shown>("/delay/topic/get", "Show a topic", UNKNOWN),
        call::<policy::Request<'_>, topic::Shown>("/delay/topic/set", "Create or change a topic", UNKNOWN),
        call::<topic::TopicRequest, topic::Paused>("/delay/topic/pause", "Hold a topic back", UNKNOWN),
        call::<topic::ResumeRequest, topic::Paused>("/delay/topic/resume", "End a pause", UNKNOWN),
        call::<topic::PurgeRequest, topic::Purged>("/delay/topic/purge", "Throw a topic's tasks away", UNKNOWN),
        call::<topic::ForecastRequest, topic::Forecast>("/delay/topic/forecast", "Count what falls due when", UNKNOWN),
        call::<topic::TopicRequest, Nothing>("/delay/topic/delete", "Remove an empty topic", STANDS_ELSEWHERE),
        call::<destination::ListRequest, destination::Listed>(
            "/delay/destination/list",
            "How all services stand",
            NONE,
        ),
        call::<destination::HoldRequest, destination::Held>(
            "/delay/destination/hold",
            "Keep calls off a service",
            UNKNOWN,
        ),
        call::<destination::HoldRequest, destination::Held>(
            "/delay/destination/release",
            "End a hold by hand, and one by Retry-After",
            UNKNOWN,
        ),
        page("/healthz", "Is it alive?", Answer::Health(described::<health::Health>(), &[200])),
        page("/readyz", "Should it be given work?", Answer::Health(described::<health::Health>(), &[200, 503])),
        Call {
            errors: &[1001, 1003, 1029],
            ..page("/metrics", "What is counted, for Prometheus", Answer::Text("text/plain"))
        },
        page("/openapi.json", "This document", Answer::Text("application/json")),
        page("/docs", "A page to read this document by, and to try calls", Answer::Text("text/html")),
    ]
}

/// The document.
pub fn document() -> Value {
    let (mut paths, mut schemas) = (Map::new(), BTreeMap::new());
    for (place, call) in calls().into_iter().enumerate() {
        paths.insert(call.path.to_owned(), json!({ call.method: operation(place, call, &mut schemas) }));
    }
    take_in(described::<response::Body>(), &mut schemas);
    let responses: Map<String, Value> =
        ErrorCode::FAILURES.map(|code| (code.number().to_string(), error_response(code))).into_iter().collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "delayd",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Delay tasks: post one now, have it called back or pull it at its due moment. Durations are seconds or strings such as \"5m\"; moments are Unix seconds in requests, Unix milliseconds in answers. null is absent; unknown fields are refused.",
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "task", "description": "Tasks: adding, pulling, settling, managing"},
            {"name": "dead", "description": "Dead letters"},
            {"name": "topic", "description": "Topics: settings, counts, pauses"},
            {"name": "destination", "description": "Services: how those that are called back stand"},
            {"name": "beside", "description": "Beside the API"},
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "Where tokens are configured, each call brings one."}},
        },
    })
}

/// The place in the table goes with it, as `x-order`: JSON objects have no order of their own.
fn operation(place: usize, call: Call, schemas: &mut BTreeMap<String, Value>) -> Value {
    let Call { path, group, summary, request, answer, errors, .. } = call;
    let mut responses = Map::new();
    let ok = |content: Value| json!({"description": "Done.", "content": content});
    match answer {
        Answer::Json(mut answers) => {
            let places: Vec<Value> = answers.iter().map(|answer| answer.place.clone()).collect();
            answers.drain(..).for_each(|answer| take_in(answer, schemas));
            let schema = if places.len() == 1 { places[0].clone() } else { json!({"anyOf": places}) };
            responses.insert("200".into(), ok(json!({"application/json": {"schema": schema}})));
        }
        Answer::Health(answer, statuses) => {
            for status in statuses {
                responses.insert(status.to_string(), ok(json!({"application/json": {"schema": answer.place}})));
            }
            take_in(answer, schemas);
        }
        Answer::Text(kind) => {
            responses.insert("200".into(), ok(json!({ kind: {} })));
        }
    }
    let mut operation = json!({"operationId": path.trim_start_matches("/delay/").trim_start_matches('/').replace(['/', '.'], "_"),
        "tags": [group], "summary": summary, "x-order": place});
    let always = if request.is_some() { ALWAYS } else { NONE };
    for case in always.iter().chain(errors) {
        let status = ErrorCode::of((*case).into()).status().to_string();
        responses.insert(status, json!({"$ref": format!("#/components/responses/{case}")}));
    }
    if responses.contains_key("401") {
        operation["security"] = json!([{"token": []}, {}]);
    }
    if let Some(request) = request {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": request.place}}});
        take_in(request, schemas);
    }
    if path == "/delay/task/add" {
        operation["parameters"] = json!([{"name": "Idempotency-Key", "in": "header", "required": false, "schema": {"type": "string", "minLength": 1, "maxLength": 256},
            "description": "As idempotency_key in the body."}]);
    }
    operation["responses"] = Value::Object(responses);
    operation
}

fn error_response(code: ErrorCode) -> Value {
    let (status, case, description) = (code.status(), code.number(), code.meaning());
    let mut response = json!({
        "description": format!("{status}, dm_error {case}: {description}"),
        "content": {"application/json": {"schema": json(&reference::<response::Body>())}},
    });
    if code.passes() {
        response["headers"] = json!({"Retry-After": {"required": true, "description": "Seconds after which to repeat it.", "schema": {"type": "integer", "minimum": 0}}});
    }
    response
}

fn take_in(described: Described, schemas: &mut BTreeMap<String, Value>) {
    for (name, schema) in described.schemas {
        let schema = json(&schema);
        let before = schemas.insert(name.clone(), schema.clone());
        assert!(before.is_none_or(|before| before == schema), "two schemas are called {name}");
    }
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("schemas are plain data")
}

/// `GET /openapi.json`
pub(crate) async fn serve() -> Response {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The routes, as the router's own source names them, however it is broken into lines. Parts of the page at `/docs`,
    /// and the way to it from `/`, are no calls.
    fn routes() -> BTreeSet<(String, String)> {
        let source: String = include_str!("../mod.rs").split_whitespace().collect();
        for other in [".nest(", ".route_service(", ".nest_service(", ".fallback_service("] {
            assert!(!source.contains(other), "{other} would be a way round this test");
        }
        // Those that are called past the router; it has them once more, for other methods.
        let calls = source.split(".with(\"").skip(1).map(|rest| {
            let (path, _) = rest.split_once("\",").expect("a path and its handler");
            (path.to_owned(), "post".to_owned())
        });
        let named = source.split(".route(").skip(1).filter(|rest| !rest.starts_with("path,post(no_way_here)"));
        let routes = named.map(|rest| {
            let (path, rest) = rest.strip_prefix('"').and_then(|rest| rest.split_once("\",")).expect("a literal path");
            let (method, handler) = rest.split_once('(').expect("a method");
            let (_, after) = handler.split_once(')').expect("its handler");
            assert!(after.starts_with(')') || after.starts_with(",)"), "{path} takes several methods");
            (path.to_owned(), method.to_owned())
        });
        calls.chain(routes.filter(|(path, _)| path != "/" && !path.starts_with("/docs/"))).collect()
    }

    #[test]
    fn every_route_is_documented_and_nothing_else_is() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let documented: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone()))
            })
            .collect();
        assert!(documented.len() >= 28);
        assert_eq!(documented, routes());
    }

    #[test]
    fn the_error_table_is_the_pages() {
        let page = include_str!("../../../docs/API.md");
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            Some((cells.next()?.parse::<u16>().ok()?, cells.next()?.parse::<u16>().ok()?))
        });
        let rows: Vec<(u16, u16)> = rows.collect();
        assert_eq!(ErrorCode::FAILURES.map(|code| (code.number(), code.status())).to_vec(), rows);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let text = document.to_string();
        let places: Vec<&str> = text.split("\"$ref\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(places.len() > 100, "{places:?}");
        for place in places {
            let here = place.strip_prefix('#').unwrap_or_else(|| panic!("{place} is another document"));
            assert!(document.pointer(here).is_some(), "{place}");
        }
    }
}
