//! `GET /openapi.json`: the whole API as an OpenAPI 3.1 document, for code generators, testers and
//! the page at `/docs`.
//!
//! Each row of the table in `routes` has the types that its handler reads and answers. Schemas are
//! derived from those very types, so a field that is added is documented. `wire::schema` describes
//! types that read themselves by hand.
//!
//! # Invariant
//!
//! A schema is never stricter than its reader. It may be laxer: what only a sentence can say
//! (exactly one of two fields) stands in descriptions.

use delayd_wire::{ErrorCode, Failure};
use std::collections::BTreeMap;
use std::sync::OnceLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::middleware::route::{Answer, Operation, Routes};
use crate::api::wire::schema::{Described, described, reference};
use crate::model::task::TopicPolicy;

/// The errors that every call can meet.
const ALWAYS: &[u16] = &[1000, 1001, 1003, 1013, 1015, 1029, 2000, 2003];
const NONE: &[u16] = &[];

/// The document.
pub(crate) fn document(routes: &Routes) -> Value {
    let (mut paths, mut schemas) = (Map::new(), BTreeMap::new());
    let documented =
        routes.all().iter().filter_map(|route| Some((route, route.operation.as_ref()?)));
    for (place, (route, operation)) in documented.enumerate() {
        let method = route.method().as_str().to_ascii_lowercase();
        let described = described_operation(place, route.path, operation, &mut schemas);
        paths.insert(route.path.to_owned(), json!({ method: described }));
    }
    take_in(described::<Failure>(), &mut schemas);
    // A part of a generic answer, which the derive does not look into.
    take_in(described::<TopicPolicy>(), &mut schemas);
    let responses: Map<String, Value> = ErrorCode::FAILURES
        .map(|code| (code.number().to_string(), error_response(code)))
        .into_iter()
        .collect();
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
fn described_operation(
    place: usize,
    path: &str,
    operation: &Operation,
    schemas: &mut BTreeMap<String, Value>,
) -> Value {
    let Operation { group, summary, request, answer, errors, takes_key } = operation;
    let mut responses = Map::new();
    let ok = |content: Value| json!({"description": "Done.", "content": content});
    match answer {
        Answer::Json(answers) => {
            let answers: Vec<Described> = answers.iter().map(|described| described()).collect();
            let places: Vec<Value> = answers.iter().map(|answer| json(&answer.place)).collect();
            answers.into_iter().for_each(|answer| take_in(answer, schemas));
            let schema =
                if places.len() == 1 { places[0].clone() } else { json!({"anyOf": places}) };
            responses.insert("200".into(), ok(json!({"application/json": {"schema": schema}})));
        }
        Answer::Health(answer, statuses) => {
            let answer = answer();
            for status in *statuses {
                responses.insert(
                    status.to_string(),
                    ok(json!({"application/json": {"schema": answer.place}})),
                );
            }
            take_in(answer, schemas);
        }
        Answer::Text(kind) => {
            responses.insert("200".into(), ok(json!({ *kind: {} })));
        }
    }
    let mut operation = json!({"operationId": path.trim_start_matches("/delay/").trim_start_matches('/').replace(['/', '.'], "_"),
        "tags": [group], "summary": summary, "x-order": place});
    let always = if request.is_some() { ALWAYS } else { NONE };
    for case in always.iter().chain(*errors) {
        let status = ErrorCode::of((*case).into()).status().to_string();
        responses.insert(status, json!({"$ref": format!("#/components/responses/{case}")}));
    }
    if responses.contains_key("401") {
        operation["security"] = json!([{"token": []}, {}]);
    }
    if let Some(request) = request.map(|described| described()) {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": request.place}}});
        take_in(request, schemas);
    }
    if *takes_key {
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
        "content": {"application/json": {"schema": json(&reference::<Failure>())}},
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

    /// A doc comment of a type becomes its description; a reader of the API knows no Rust paths.
    #[test]
    fn no_description_names_a_path_of_the_program() {
        let text = document(&ROUTES).to_string();
        for path in ["[`", "::"] {
            let found = text.find(path).map(|at| text[at..].chars().take(60).collect::<String>());
            assert_eq!(found, None);
        }
    }
}
