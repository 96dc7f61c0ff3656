//! What the table of routes must hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request};

use super::*;
use crate::api::auth::{About, Access, TokenParams};
use crate::api::edge;
use crate::api::openapi::document;
use crate::api::testing::{Ask, edge_without_store};
use crate::model::token::TokenHash;

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

#[tokio::test]
async fn what_the_table_does_not_name_asks_for_admin() {
    let (api, _draining) = edge_without_store().await;
    let token = |name: &str, scopes: &[Scope], topics: &str| TokenParams {
        name: name.into(),
        hash: TokenHash::of(name),
        scopes: scopes.to_vec(),
        topics: vec![topics.parse().unwrap()],
        rate: None,
    };
    let others = [Produce, Consume, View];
    api.tokens.replace(vec![
        token("others", &others, "*"),
        token("admin", &[Admin], "*"),
        token("of t", &[Admin], "t"),
    ]);
    let edge = edge(Arc::new(api));
    let check = async |method: Method, path: &str, [none, others, admin, of_t]: [u16; 4]| {
        for (token, expected) in [("", none), ("others", others), ("admin", admin), ("of t", of_t)]
        {
            let request = Request::builder().method(&method).uri(path);
            let request = match token {
                "" => request,
                token => request.header("authorization", format!("Bearer {token}")),
            };
            let request = request.body(Body::from(r#"{"topic":"t"}"#)).unwrap();
            let status = edge.clone().answer(request).await.status().as_u16();
            assert_eq!(status, expected, "{method} {path} {token:?}");
        }
    };
    check(Method::POST, "/delay/task/add/", [401, 403, 404, 404]).await;
    check(Method::POST, "/delay/something/new", [401, 403, 404, 404]).await;
    check(Method::POST, "/delay/", [401, 403, 404, 404]).await;
    check(Method::GET, "/docs/", [404, 404, 404, 404]).await;
    check(Method::POST, "/something/new", [401, 403, 404, 403]).await;
    check(Method::GET, "/something/new", [401, 403, 404, 403]).await;
    check(Method::GET, "/docsx", [401, 403, 404, 403]).await;
    check(Method::GET, "/docs/app.js", [404, 404, 404, 404]).await;
    check(Method::GET, "/delay/topic/set", [401, 403, 405, 400]).await;
    check(Method::POST, "/metrics", [401, 405, 405, 403]).await;
    check(Method::OPTIONS, "*", [401, 403, 404, 403]).await;
}
