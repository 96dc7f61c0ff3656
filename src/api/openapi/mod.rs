//! `GET /openapi.json`: the API as an OpenAPI 3.1 document.
//!
//! Each row of the table in `routes` names the types of its request and answer, and the schemas
//! derive from these types. `delayd_wire::schema` describes types with their own readers.
//!
//! # Invariant
//!
//! A schema is never stricter than its reader, but it may be laxer. Rules that a schema cannot
//! express (exactly one of two fields) are in descriptions.

use delayd_wire::{ErrorCode, Failure};
use std::collections::BTreeMap;
use std::sync::OnceLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::auth::{About, Access};
use crate::api::middleware::route::{Operation, Route, RouteAnswer};
use crate::api::middleware::router::Routes;
use crate::api::wire::schema::{Described, described, reference};
use crate::model::task::TopicPolicy;
use crate::model::token::Scope;
use crate::model::version::VERSION;

/// The error codes of every call.
const ALWAYS: &[u16] = &[1000, 1001, 1003, 1013, 1015, 1029, 2000, 2003];
const NONE: &[u16] = &[];

/// The document.
pub(crate) fn document(routes: &Routes) -> Value {
    let (mut paths, mut schemas) = (Map::new(), BTreeMap::new());
    let documented =
        routes.all().iter().filter_map(|route| Some((route, route.operation.as_ref()?)));
    for (place, (route, operation)) in documented.enumerate() {
        let method = route.method().as_str().to_ascii_lowercase();
        let described = described_operation(place, route, operation, &mut schemas);
        paths.insert(route.path.to_owned(), json!({ method: described }));
    }
    take_in(described::<Failure>(), &mut schemas);
    // It is part of a generic answer, which the derive does not follow.
    take_in(described::<TopicPolicy>(), &mut schemas);
    let responses: Map<String, Value> = ErrorCode::FAILURES
        .map(|code| (code.number().to_string(), error_response(code)))
        .into_iter()
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "delayd",
            "version": VERSION,
            "description": "Delay tasks: add a task now; it is called back, or can be pulled, when \
                it is due. A duration is a number of seconds or a string such as \"5m\". A time is \
                in Unix seconds in requests, and in Unix milliseconds in answers. null is absent; \
                unknown fields are refused.",
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "task", "description": "Tasks: add, pull, settle, manage"},
            {"name": "dead", "description": "Dead letters"},
            {"name": "topic", "description": "Topics: settings, counts, pauses"},
            {"name": "destination", "description": "Destinations: state and holds"},
            {"name": "schedule", "description": "Recurring schedules"},
            {"name": "audit", "description": "Audit: administrative actions"},
            {"name": "beside", "description": "Health, metrics, documentation"},
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "Required if tokens are configured. Each operation names the scopes \
                    of which a token needs one.",
            }},
        },
    })
}

/// `x-order` is the row's position in the table, because JSON objects are unordered.
fn described_operation(
    place: usize,
    route: &Route,
    operation: &Operation,
    schemas: &mut BTreeMap<String, Value>,
) -> Value {
    let Operation { group, summary, request, answer, errors, takes_key } = operation;
    let mut responses = Map::new();
    let ok = |content: Value| json!({"description": "Success.", "content": content});
    match answer {
        RouteAnswer::Json(answers) => {
            let answers: Vec<Described> = answers.iter().map(|described| described()).collect();
            let places: Vec<Value> = answers.iter().map(|answer| json(&answer.place)).collect();
            answers.into_iter().for_each(|answer| take_in(answer, schemas));
            let schema =
                if places.len() == 1 { places[0].clone() } else { json!({"anyOf": places}) };
            responses.insert("200".into(), ok(json!({"application/json": {"schema": schema}})));
        }
        RouteAnswer::Health(answer, statuses) => {
            let answer = answer();
            for status in *statuses {
                responses.insert(
                    status.to_string(),
                    ok(json!({"application/json": {"schema": answer.place}})),
                );
            }
            take_in(answer, schemas);
        }
        RouteAnswer::Events(event) => {
            let event = event();
            let data = "Server-sent events. The schema is that of the data of each.";
            let content = json!({"text/event-stream": {"schema": event.place}});
            responses.insert("200".into(), json!({"description": data, "content": content}));
            take_in(event, schemas);
        }
        RouteAnswer::Text(kind) => {
            responses.insert("200".into(), ok(json!({ *kind: {} })));
        }
    }
    let id =
        route.path.trim_start_matches("/delay/").trim_start_matches('/').replace(['/', '.'], "_");
    let mut operation =
        json!({"operationId": id, "tags": [group], "summary": summary, "x-order": place});
    let always = if request.is_some() { ALWAYS } else { NONE };
    for case in always.iter().chain(*errors) {
        let status = ErrorCode::of((*case).into()).status().to_string();
        responses.insert(status, json!({"$ref": format!("#/components/responses/{case}")}));
    }
    if let Access::Token(scopes, about) = route.access {
        // One requirement for each scope: any of them is enough. The last is for no tokens at all.
        let any = scopes.iter().map(|scope| json!({"token": [scope.as_str()]}));
        operation["security"] = any.chain([json!({})]).collect();
        operation["description"] = access(scopes, about).into();
    }
    if let Some(request) = request.map(|described| described()) {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": request.place}}});
        take_in(request, schemas);
    }
    if *takes_key {
        operation["parameters"] = json!([{
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "schema": {"type": "string", "minLength": 1, "maxLength": 256},
            "description": "The same as idempotency_key in the body.",
        }]);
    }
    operation["responses"] = Value::Object(responses);
    operation
}

/// What a token needs, in words.
fn access(scopes: &[Scope], about: About) -> String {
    let scopes: Vec<String> = scopes.iter().map(|scope| format!("`{}`", scope.as_str())).collect();
    let topics = match about {
        About::Topic => "the topic",
        About::TopicOrAll => "the topic, or all topics if the request names none",
        About::EachOfThem => "each topic; what is about others is refused or left out",
        About::All => "all topics",
    };
    format!("Needs a token with the scope {} that covers {topics}.", scopes.join(" or "))
}

fn error_response(code: ErrorCode) -> Value {
    let (status, case, description) = (code.status(), code.number(), code.meaning());
    let mut response = json!({
        "description": format!("{status}, dm_error {case}: {description}"),
        "content": {"application/json": {"schema": json(&reference::<Failure>())}},
    });
    if code.passes() {
        response["headers"] = json!({"Retry-After": {
            "required": true,
            "description": "Seconds until the call may be repeated.",
            "schema": {"type": "integer", "minimum": 0},
        }});
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
pub(crate) fn serve(routes: &Routes) -> Response {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| document(routes).to_string().into());
    ([(header::CONTENT_TYPE, "application/json")], text.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes::ROUTES;

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
        let document = document(&ROUTES);
        let text = document.to_string();
        let places: Vec<&str> =
            text.split("\"$ref\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(places.len() > 100, "{places:?}");
        for place in places {
            let here =
                place.strip_prefix('#').unwrap_or_else(|| panic!("{place} is another document"));
            assert!(document.pointer(here).is_some(), "{place}");
        }
    }

    /// Doc comments of types become descriptions, and must not contain Rust paths.
    #[test]
    fn no_description_names_a_path_of_the_program() {
        let text = document(&ROUTES).to_string();
        for path in ["[`", "::"] {
            let found = text.find(path).map(|at| text[at..].chars().take(60).collect::<String>());
            assert_eq!(found, None);
        }
    }
}
