//! What the table of routes must hold.

use std::collections::BTreeSet;

use http::Method;

use super::*;
use crate::api::auth::{About, Access};
use crate::api::openapi::document;

#[test]
fn every_route_is_documented_but_parts_of_the_page() {
    let document = document(&ROUTES);
    let paths = document["paths"].as_object().unwrap();
    let documented: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone()))
        })
        .collect();
    let is_part =
        |path: &str| path == "/" || path.starts_with("/docs/") || path.starts_with("/dashboard/");
    let routes = ROUTES.all().iter().filter(|route| !is_part(route.path));
    let routes =
        routes.map(|route| (route.path.to_owned(), route.method().as_str().to_ascii_lowercase()));
    assert!(documented.len() >= 28);
    assert_eq!(documented, routes.collect());
}

/// The access matrix a second time: a mistake in the table would give access to a call.
#[test]
fn the_scopes_of_each_call_are_meant() {
    let is_call = |route: &&Route| route.path.starts_with("/delay/");
    for route in ROUTES.all().iter().filter(is_call) {
        let about = match route.path {
            "/delay/task/add_batch"
            | "/delay/task/adopt"
            | "/delay/topic/list"
            | "/delay/schedule/preview"
            | "/delay/whoami" => About::EachOfThem,
            "/delay/audit/list"
            | "/delay/task/find"
            | "/delay/instance/list"
            | "/delay/instance/get"
            | "/delay/series"
            | "/delay/overview"
            | "/delay/forecast"
            | "/delay/live" => About::All,
            "/delay/dead/causes" => About::TopicOrAll,
            path if path.starts_with("/delay/destination/") => About::All,
            _ => About::Topic,
        };
        let scopes: &[_] = match route.path.strip_prefix("/delay/task/") {
            Some("add" | "add_batch" | "cancel" | "update") => &[Produce],
            Some("pull" | "ack" | "nack" | "extend") => &[Consume],
            Some("get") => &Scope::ALL,
            Some("search") => &[Admin],
            None if matches!(route.path, "/delay/whoami" | "/delay/schedule/preview") => {
                &Scope::ALL
            }
            None if route.path == "/delay/schedule/run" => &[Produce],
            _ if route.only_reads => READ,
            _ => &[Admin],
        };
        assert_eq!(route.access, Access::Token(scopes, about), "{}", route.path);
    }
}

#[test]
fn what_the_table_does_not_name_asks_for_admin() {
    let check = |path: &str, expected: Access| assert_eq!(ROUTES.access(path), expected, "{path}");
    check("/delay/task/add/", Access::Token(&[Admin], About::Topic));
    check("/delay/something/new", Access::Token(&[Admin], About::Topic));
    check("/metrics", Access::Token(READ, About::All));
    check("/something/new", Access::Token(&[Admin], About::All));
    check("/docsx", Access::Token(&[Admin], About::All));
    check("/docs/app.js", Access::Open);
    check("/healthz", Access::Open);
    let posted =
        ROUTES.call(&Method::POST, "/delay/something/new").expect("what is posted is checked");
    assert_eq!(posted.access, Access::Token(&[Admin], About::Topic));
    assert!(ROUTES.call(&Method::GET, "/delay/task/add").is_none());
    assert!(ROUTES.call(&Method::POST, "/metrics").is_none());
}
