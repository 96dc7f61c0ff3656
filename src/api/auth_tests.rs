use axum::body::Body;
use axum::extract::Request;
use http::StatusCode;
use serde_json::{Value, json};

use super::*;
use crate::api::edge;
use crate::api::testing::{Ask, edge_without_store, json_of};

const WRITER: &str = "dly_writer-token";
const READER: &str = "dly_reader-token";
const ADMIN: &str = "dly_admin-token";
const PART: &str = "dly_part-admin-token";

fn token(name: &str, token: &str, scopes: &[Scope], topics: &[&str]) -> TokenParams {
    let topics = topics.iter().map(|glob| glob.parse().unwrap()).collect();
    TokenParams {
        name: name.into(),
        hash: TokenHash::of(token),
        scopes: scopes.to_vec(),
        topics,
        rate: None,
    }
}

fn known() -> Vec<TokenParams> {
    vec![
        token("writer", WRITER, &[Scope::Produce], &["order.*", "review"]),
        token("reader", READER, &[Scope::Consume], &["order.*"]),
        token("admin", ADMIN, &[Scope::Admin], &["*"]),
        token("part", PART, &[Scope::Admin], &["order.*"]),
    ]
}

fn request(path: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let mut request = Request::post(path).header("host", "127.0.0.1:7799");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

/// An API with these tokens, whose store is unavailable: an admitted call gets 503 or 400.
async fn ask(tokens: Vec<TokenParams>, request: Request) -> (u16, Value, HeaderMap) {
    let (api, _draining) = edge_without_store().await;
    api.tokens.replace(tokens);
    let response = edge(Arc::new(api)).answer(request).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, json_of(response).await, headers)
}

async fn check(token: &str, path: &str, body: &str, status: u16, dm_error: u16) -> Value {
    let value = format!("Bearer {token}");
    let (got, answer, _) = ask(known(), request(path, &[("authorization", &value)], body)).await;
    assert_eq!(
        (got, &answer["dm_error"]),
        (status, &json!(dm_error)),
        "{token} {path} {body}: {answer}"
    );
    answer
}

const ADD: &str = "/delay/task/add";
const ORDER: &str = r#"{"topic":"order.cancel","delay":1,"content":{}}"#;
const OTHER: &str = r#"{"topic":"other","delay":1,"content":{}}"#;
const ACK: &str = r#"{"topic":"order.cancel","task_id":7,"receipt":"r"}"#;
const GET: &str = r#"{"topic":"order.cancel","task_id":7}"#;

#[tokio::test]
async fn each_scope_opens_its_own_calls() {
    // Admitted calls fail because the store is unavailable.
    for (path, body, holders) in [
        (ADD, ORDER, &[WRITER][..]),
        ("/delay/task/pull", r#"{"topic":"order.cancel"}"#, &[READER]),
        ("/delay/task/ack", ACK, &[READER]),
        ("/delay/task/nack", ACK, &[READER]),
        ("/delay/task/get", GET, &[WRITER, READER, ADMIN, PART]),
        ("/delay/destination/list", "{}", &[ADMIN]),
    ] {
        for token in [WRITER, READER, ADMIN, PART] {
            match holders.contains(&token) {
                true => check(token, path, body, 503, 2003).await,
                false => check(token, path, body, 403, 1003).await,
            };
        }
    }
}

/// A token that was not given at all once got "must be given once".
#[tokio::test]
async fn a_refusal_says_what_is_expected_and_what_was_given() {
    let said = async |headers: &[(&str, &str)]| {
        ask(known(), request(ADD, headers, ORDER)).await.1["error_msg"].clone()
    };
    assert_eq!(said(&[]).await, "Authorization: is missing; must be \"Bearer <token>\"");
    let value = format!("Bearer {WRITER}");
    let twice = [("authorization", value.as_str()), ("authorization", value.as_str())];
    assert_eq!(said(&twice).await, "Authorization: must be given once, as \"Bearer <token>\"");
    let value = format!("Bearer {READER}");
    let scope = said(&[("authorization", &value)]).await;
    assert_eq!(
        scope,
        "Authorization: must be a token with the scope produce; \"reader\" has consume"
    );
}

#[tokio::test]
async fn without_a_known_token_nobody_is_let_in() {
    let refused = async |headers: &[(&str, &str)]| {
        let (status, answer, head) = ask(known(), request(ADD, headers, ORDER)).await;
        assert_eq!((status, &answer["dm_error"]), (401, &json!(1001)), "{headers:?}: {answer}");
        assert_eq!(head["www-authenticate"], "Bearer", "{headers:?}");
        assert!(!answer.to_string().contains("dly_"), "{answer}");
    };
    let (right, hash) =
        (format!("Bearer {WRITER}"), format!("Bearer {}", TokenHash::of(WRITER).to_hex()));
    refused(&[]).await;
    refused(&[("authorization", "")]).await;
    refused(&[("authorization", "Bearer ")]).await;
    refused(&[("authorization", "Bearer dly_nobody")]).await;
    refused(&[("authorization", WRITER)]).await;
    refused(&[("authorization", "Basic d3JpdGVyOg==")]).await;
    refused(&[("authorization", &hash)]).await;
    refused(&[("authorization", &format!("{right}x"))]).await;
    refused(&[("authorization", &right[..right.len() - 1])]).await;
    refused(&[("authorization", &right), ("authorization", &right)]).await;
    let lower = format!("bearer  {WRITER} ");
    assert_eq!(ask(known(), request(ADD, &[("authorization", &lower)], ORDER)).await.0, 503);
}

#[tokio::test]
async fn a_token_reaches_no_topic_that_it_does_not_cover() {
    let answer = check(WRITER, ADD, OTHER, 403, 1003).await;
    assert_eq!(answer["error_msg"], "topic: the token does not cover \"other\"");
    check(WRITER, ADD, r#"{"topic":"review","delay":1,"content":{}}"#, 503, 2003).await;
    check(READER, "/delay/task/pull", r#"{"topic":"review"}"#, 403, 1003).await;
    check(PART, "/delay/task/get", r#"{"topic":"other","task_id":7}"#, 403, 1003).await;
    check(ADMIN, "/delay/task/get", r#"{"topic":"other","task_id":7}"#, 503, 2003).await;
    // A body with two topics: the check and the handler must not read different ones.
    check(WRITER, ADD, r#"{"topic":"order.a","topic":"other","delay":1,"content":{}}"#, 400, 1000)
        .await;
    check(
        WRITER,
        ADD,
        r#"{"topic":"order.a","\u0074opic":"other","delay":1,"content":{}}"#,
        400,
        1000,
    )
    .await;
    check(WRITER, ADD, r#"{"topic":null,"delay":1,"content":{}}"#, 400, 1000).await;
    check(WRITER, ADD, "no json", 400, 1000).await;
    check(WRITER, ADD, &format!(r#"{{"topic":"other","x":{}"#, "[".repeat(300)), 400, 1000).await;
}

#[tokio::test]
async fn of_a_batch_each_task_is_looked_at() {
    let body = format!(r#"{{"tasks":[{OTHER},{{"topic":1}}]}}"#);
    let answer = check(WRITER, "/delay/task/add_batch", &body, 403, 1003).await;
    assert_eq!(answer["results"][0]["dm_error"], 1003, "{answer}");
    assert_eq!(
        (&answer["results"][1]["dm_error"], &answer["failed"]),
        (&json!(1000), &json!(2)),
        "{answer}"
    );
}

#[tokio::test]
async fn health_is_open_and_what_is_open_stays_so_without_tokens() {
    let (status, ..) = ask(known(), Request::get("/healthz").body(Body::empty()).unwrap()).await;
    assert_eq!(status, 200);
    assert_eq!(ask(Vec::new(), request(ADD, &[], ORDER)).await.0, 503);
    assert_eq!(
        ask(Vec::new(), request(ADD, &[("authorization", "Bearer any")], ORDER)).await.0,
        503
    );
}

#[tokio::test]
async fn tokens_can_be_exchanged_while_it_runs() {
    let (api, _draining) = edge_without_store().await;
    let tokens = api.tokens.clone();
    let edge = edge(Arc::new(api));
    let status = async |token: &str| {
        let value = format!("Bearer {token}");
        edge.clone().answer(request(ADD, &[("authorization", &value)], ORDER)).await.status()
    };
    tokens.replace(known());
    assert_eq!((status(WRITER).await.as_u16(), status("dly_next").await.as_u16()), (503, 401));
    tokens.replace(vec![token("next", "dly_next", &[Scope::Produce], &["*"])]);
    assert_eq!((status(WRITER).await.as_u16(), status("dly_next").await.as_u16()), (401, 503));
}

#[tokio::test(start_paused = true)]
async fn a_token_over_its_rate_is_told_when_to_come_again() {
    let limited = TokenParams {
        rate: "30/m".parse().ok(),
        ..token("writer", WRITER, &[Scope::Produce], &["*"])
    };
    let tokens = Tokens::new(vec![limited, token("reader", READER, &[Scope::Produce], &["*"])]);
    let admit = |token: &str| {
        let headers = HeaderMap::from_iter([(
            header::AUTHORIZATION,
            format!("Bearer {token}").parse().unwrap(),
        )]);
        tokens
            .admit(Access::Token(&[Scope::Produce], About::Topic), &Uri::from_static(ADD), &headers)
            .map(|_| ())
            .map_err(|refused| refused.error)
    };
    admit(WRITER).unwrap();
    let error = admit(WRITER).unwrap_err();
    assert_eq!(
        (error.code().number(), error.to_string().as_str()),
        (1029, "Authorization: the token's rate limit, 30/m, is exceeded")
    );
    let response = axum::response::IntoResponse::into_response(error);
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "2");
    admit(READER).unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    admit(WRITER).unwrap();
}

#[tokio::test]
async fn pages_of_another_site_may_not_call() {
    let check = async |tokens: Vec<TokenParams>, host: &str, origin: &str, allowed: bool| {
        let bearer = format!("Bearer {WRITER}");
        let headers = [("host", host), ("origin", origin), ("authorization", &bearer)];
        let mut asked = Request::post(ADD);
        for (name, value) in headers {
            asked = asked.header(name, value);
        }
        let (status, answer, _) = ask(tokens, asked.body(Body::from(ORDER)).unwrap()).await;
        let expected = if allowed { (503, 2003) } else { (403, 1003) };
        assert_eq!(
            (status, &answer["dm_error"]),
            (expected.0, &json!(expected.1)),
            "{host} {origin}: {answer}"
        );
    };
    check(known(), "delay.example", "https://delay.example", true).await;
    check(known(), "delay.example:443", "https://Delay.example", true).await;
    check(known(), "delay.example", "http://delay.example", true).await;
    check(known(), "delay.example:7799", "http://delay.example:7799", true).await;
    check(known(), "delay.example:7799", "http://delay.example", false).await;
    check(known(), "delay.example", "https://evil.example", false).await;
    check(known(), "delay.example", "https://delay.example.evil", false).await;
    check(known(), "delay.example", "null", false).await;
    check(known(), "delay.example", "file://", false).await;
    check(known(), "delay.example", "", false).await;
    check(Vec::new(), "127.0.0.1:7799", "http://127.0.0.1:7799", true).await;
    check(Vec::new(), "[::1]:7799", "http://[::1]:7799", true).await;
    check(Vec::new(), "localhost:7799", "http://localhost:7799", true).await;
    check(Vec::new(), "127.0.0.1:7799", "http://localhost:7799", false).await;
    check(Vec::new(), "127.0.0.1:7799", "https://evil.example", false).await;
    // A host name that resolves to this server for the moment.
    check(Vec::new(), "evil.example:7799", "http://evil.example:7799", false).await;
}

/// Browsers send no `Origin` with a `GET` of their own site.
#[tokio::test]
async fn without_tokens_no_page_reads_by_a_name_of_its_own() {
    let check = async |method: &str, path: &str, host: &str, allowed: bool| {
        let asked = Request::builder().method(method).uri(path).header("host", host);
        let (api, _draining) = edge_without_store().await;
        let answer = edge(Arc::new(api)).answer(asked.body(Body::from("{}")).unwrap()).await;
        assert_eq!(answer.status() != 403, allowed, "{method} {path} {host}");
    };
    for (method, path) in [
        ("GET", "/metrics"),
        ("GET", "/metrics/topics"),
        ("HEAD", "/metrics"),
        ("GET", "/delay/overview"),
        ("POST", "/delay/overview"),
        ("POST", "/delay/topic/list"),
        ("GET", "/anything"),
    ] {
        check(method, path, "evil.example:7799", false).await;
        check(method, path, "localhost:7799", true).await;
    }
    for path in ["/healthz", "/readyz", "/", "/docs", "/openapi.json"] {
        check("GET", path, "evil.example:7799", true).await;
    }
}

#[tokio::test]
async fn pages_of_a_public_origin_may_call_at_any_host() {
    let (api, _draining) = edge_without_store().await;
    let tokens = api.tokens.clone();
    tokens.set_site(vec!["https://public.example".parse().unwrap()], false);
    let edge = edge(Arc::new(api));
    let check = async |origin: &str, allowed: bool| {
        let bearer = format!("Bearer {WRITER}");
        let headers = [("origin", origin), ("authorization", &bearer)];
        let answer = edge.clone().answer(request(ADD, &headers, ORDER)).await;
        assert_eq!(answer.status().as_u16(), if allowed { 503 } else { 403 }, "{origin}");
    };
    for known in [Vec::new(), known()] {
        tokens.replace(known);
        check("https://public.example", true).await;
        check("HTTPS://PUBLIC.example:443", true).await;
        check("http://127.0.0.1:7799", true).await;
        check("http://public.example", false).await;
        check("https://public.example:444", false).await;
        check("https://public.example.evil", false).await;
        check("https://evil.example", false).await;
        check("null", false).await;
    }
    tokens.set_site(Vec::new(), false);
    check("https://public.example", false).await;
}

#[test]
fn debug_shows_names_and_no_hashes() {
    let shown = format!("{:?}", Tokens::new(known()));
    assert!(
        shown.contains("writer") && !shown.contains(&TokenHash::of(WRITER).to_hex()[..8]),
        "{shown}"
    );
}
