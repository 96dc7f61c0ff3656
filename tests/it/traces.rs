//! Traces: the spans that a collector gets, and trace ids in the logs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use delayd::model::trace::TraceContext;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::program::{client, command, run, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, Program, on_both_stores, poll};

on_both_stores!(
    attempts_are_linked_to_the_add,
    attempts_of_short_delays_are_children_of_the_add,
    a_batch_has_a_span_for_each_task,
);

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
/// Part of everything that may not be exported.
const SECRET: &str = "hush-hush";

/// One export.
struct Export {
    headers: HeaderMap,
    bytes: Bytes,
    spans: Vec<ResourceSpans>,
}

/// A collector for OTLP/HTTP.
pub struct Collector {
    address: std::net::SocketAddr,
    exports: Arc<Mutex<Vec<Export>>>,
    count: watch::Receiver<usize>,
}

type Shared = (Arc<Mutex<Vec<Export>>>, Arc<watch::Sender<usize>>);

async fn take(State((exports, count)): State<Shared>, headers: HeaderMap, bytes: Bytes) {
    let spans = ExportTraceServiceRequest::decode(bytes.clone()).unwrap().resource_spans;
    let scopes = spans.iter().flat_map(|resource| &resource.scope_spans);
    let new: usize = scopes.map(|scope| scope.spans.len()).sum();
    exports.lock().unwrap().push(Export { headers, bytes, spans });
    count.send_modify(|count| *count += new);
}

impl Collector {
    pub async fn start() -> Self {
        let (exports, count) = (Arc::default(), watch::Sender::new(0));
        let seen = count.subscribe();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared: Shared = (Arc::clone(&exports), Arc::new(count));
        let router = Router::new().route("/v1/traces", post(take)).with_state(shared);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, exports, count: seen }
    }

    pub fn set(&self) -> String {
        format!("trace.endpoint=\"http://{}\"", self.address)
    }

    fn spans(&self) -> Vec<Span> {
        let exports = self.exports.lock().unwrap();
        let all = exports.iter().flat_map(|export| &export.spans);
        let all = all.flat_map(|resource| &resource.scope_spans);
        all.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// Waits for the spans of a task: as many as this, the add first, the attempts in order.
    pub async fn spans_of(&self, id: u64, count: usize) -> Vec<Span> {
        let mut counts = self.count.clone();
        loop {
            counts.borrow_and_update();
            let mut spans = self.spans();
            spans.retain(|span| text(span, "messaging.message.id") == id.to_string());
            if spans.len() >= count {
                assert_eq!(spans.len(), count, "{spans:?}");
                spans.sort_by_key(|span| span.start_time_unix_nano);
                return spans;
            }
            let comes =
                tokio::time::timeout(Duration::from_secs(60), counts.changed()).await.is_ok();
            assert!(comes, "waited for {count} spans of task {id}: {spans:?}");
        }
    }

    /// Whether an export holds the text, in any part.
    fn holds(&self, text: &str) -> bool {
        let exports = self.exports.lock().unwrap();
        exports
            .iter()
            .any(|export| export.bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes()))
    }
}

/// The values of all attributes.
fn attributes(span: &Span) -> HashMap<&str, Value> {
    let value = |value: &Any| match value {
        Any::StringValue(text) => json!(text),
        Any::IntValue(number) => json!(number),
        other => panic!("{other:?}"),
    };
    let pair = |pair: &'_ opentelemetry_proto::tonic::common::v1::KeyValue| {
        value(pair.value.as_ref().unwrap().value.as_ref().unwrap())
    };
    span.attributes.iter().map(|attribute| (attribute.key.as_str(), pair(attribute))).collect()
}

fn text(span: &Span, name: &str) -> String {
    attributes(span).get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn context(span: &Span) -> TraceContext {
    named(&span.trace_id, &span.span_id)
}

/// A sampled context of these ids.
fn named(trace: &[u8], span: &[u8]) -> TraceContext {
    TraceContext {
        trace: u128::from_be_bytes(trace.try_into().unwrap()),
        span: u64::from_be_bytes(span.try_into().unwrap()),
        is_sampled: true,
    }
}

fn links(span: &Span) -> Vec<TraceContext> {
    span.links.iter().map(|link| named(&link.trace_id, &link.span_id)).collect()
}

/// A task with a secret in each place that is not exported.
fn task(delay: &str) -> Value {
    json!({
        "topic": "orders", "delay": delay,
        "backoff": {"kind": "fixed", "every": "10ms"},
        "headers": {"authorization": format!("Bearer {SECRET}")},
        "content": {"sn": "message.call", "url": format!("/path?token={SECRET}"), "n": SECRET},
    })
}

/// Adds a task with the header `traceparent`.
async fn add(delayd: &Program, traceparent: Option<&str>, task: &Value) -> u64 {
    let mut request = client().post(delayd.url("/delay/task/add"));
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent);
    }
    let answer = request.body(task.to_string()).send().await.unwrap();
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    answer["task_id"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

/// A receiver that refuses the first attempt of each task.
async fn receiver() -> Receiver {
    Receiver::answering(|seen| Answer::Status(if seen.attempt == 1 { 503 } else { 200 })).await
}

/// The contexts that the receiver got with the attempts of a task, in order.
fn received(receiver: &Receiver, id: u64) -> Vec<String> {
    let seen = receiver.seen().into_iter().filter(|seen| seen.id == id);
    seen.map(|seen| seen.headers["traceparent"].to_str().unwrap().to_owned()).collect()
}

async fn attempts_are_linked_to_the_add(kept: Kept) {
    let (collector, receiver) = (Collector::start().await, receiver().await);
    let token = format!("trace.headers=[\"authorization: Bearer {SECRET}\"]");
    let sets = [service("message.call", &receiver), collector.set(), token];
    let delayd = kept.start(&sets).await;
    let caller: TraceContext = CALLER.parse().unwrap();
    for traceparent in [Some(CALLER), None] {
        let id = add(&delayd, traceparent, &task("0s")).await;
        let spans = collector.spans_of(id, 3).await;
        let [add, failed, delivered] = &spans[..] else { panic!("three spans") };

        assert_eq!((add.name.as_str(), add.kind()), ("add orders", SpanKind::Producer));
        let parent = traceparent.map_or(Vec::new(), |_| caller.span.to_be_bytes().to_vec());
        assert_eq!(add.parent_span_id, parent);
        assert_eq!(context(add).trace == caller.trace, traceparent.is_some());
        let expected = json!({
            "messaging.system": "delayd", "messaging.operation.name": "add",
            "messaging.operation.type": "create", "messaging.destination.name": "orders",
            "messaging.message.id": id.to_string(), "delayd.add.result": "new",
        });
        assert_eq!(json!(attributes(add)), expected);

        for attempt in [failed, delivered] {
            assert_eq!(attempt.name, "callback orders");
            assert_eq!(attempt.kind(), SpanKind::Client);
            assert!(attempt.parent_span_id.is_empty());
            assert_eq!(links(attempt), [context(add)]);
            assert!(attempt.end_time_unix_nano >= attempt.start_time_unix_nano);
        }
        let traces = [add, failed, delivered].map(|span| context(span).trace);
        assert!(traces[0] != traces[1] && traces[1] != traces[2] && traces[0] != traces[2]);
        let sent = [failed, delivered].map(|span| context(span).to_string());
        assert_eq!(received(&receiver, id), sent);

        let expected = json!({
            "messaging.system": "delayd", "messaging.operation.name": "callback",
            "messaging.operation.type": "send", "messaging.destination.name": "orders",
            "messaging.message.id": id.to_string(), "peer.service": "message.call",
            "http.request.method": "POST", "http.request.resend_count": 1,
            "server.address": "127.0.0.1", "server.port": receiver.address.port(),
            "url.full": format!("{}/path", receiver.endpoint()),
            "http.response.status_code": 200,
        });
        assert_eq!(json!(attributes(delivered)), expected);
        let first = attributes(failed);
        assert_eq!(first["http.response.status_code"], 503);
        assert_eq!(first["error.type"], "503");
        assert!(!first.contains_key("http.request.resend_count"));
        let code = |span: &Span| span.status.as_ref().unwrap().code();
        assert_eq!((code(failed), code(delivered)), (SpanStatus::Error, SpanStatus::Unset));
    }

    // The task's own context is sent as it is.
    let mut own = task("0s");
    own["headers"]["traceparent"] = json!(CALLER);
    let id = add(&delayd, None, &own).await;
    let spans = collector.spans_of(id, 3).await;
    assert_eq!(received(&receiver, id), [CALLER; 2]);
    assert_eq!(context(&spans[0]).trace, caller.trace);
    assert_eq!(links(&spans[1]), [context(&spans[0])]);

    // A marker behind the task of a caller that does not sample.
    let unsampled = add(&delayd, Some(UNSAMPLED), &task("0s")).await;
    delayd.wait_for_state("orders", unsampled, "delivered").await;
    assert!(received(&receiver, unsampled).iter().all(|sent| sent.ends_with("-00")));
    let marker = add(&delayd, None, &task("0s")).await;
    collector.spans_of(marker, 3).await;
    assert!(
        !collector
            .spans()
            .iter()
            .any(|span| text(span, "messaging.message.id") == unsampled.to_string())
    );

    assert!(!collector.holds(SECRET) && !delayd.log().contains(SECRET));
    let exports = collector.exports.lock().unwrap();
    for Export { headers, spans, .. } in &*exports {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        assert_eq!(headers["authorization"], format!("Bearer {SECRET}"));
        let resource = &spans[0].resource.as_ref().unwrap().attributes;
        assert!(resource.iter().any(|attribute| attribute.key == "service.name"));
    }
}

async fn attempts_of_short_delays_are_children_of_the_add(kept: Kept) {
    let (collector, receiver) = (Collector::start().await, receiver().await);
    let continues = "trace.continue_below=\"100ms\"".into();
    let sets = [service("message.call", &receiver), collector.set(), continues];
    let delayd = kept.start(&sets).await;
    for traceparent in [Some(CALLER), None] {
        let id = add(&delayd, traceparent, &task("10ms")).await;
        let spans = collector.spans_of(id, 3).await;
        for attempt in &spans[1..] {
            assert_eq!(attempt.trace_id, spans[0].trace_id);
            assert_eq!(attempt.parent_span_id, spans[0].span_id);
            assert!(attempt.links.is_empty());
        }
        let sent: Vec<_> = spans[1..].iter().map(|span| context(span).to_string()).collect();
        assert_eq!(received(&receiver, id), sent);
        let later = add(&delayd, traceparent, &task("100ms")).await;
        let spans = collector.spans_of(later, 3).await;
        assert_eq!(links(&spans[1]), [context(&spans[0])]);
    }
    assert!(!collector.holds(SECRET));
}

async fn a_batch_has_a_span_for_each_task(kept: Kept) {
    let (collector, receiver) = (Collector::start().await, receiver().await);
    let delayd = kept.start(&[service("message.call", &receiver), collector.set()]).await;
    for id in delayd.add_all(&[task("0s"), task("0s")]).await {
        let spans = collector.spans_of(id, 3).await;
        assert_eq!(links(&spans[1]), [context(&spans[0])]);
    }
    // A repeated add is a span, too, but not that of the task's first add.
    let mut once = task("0s");
    once["idempotency_key"] = json!("k");
    let id = add(&delayd, None, &once).await;
    collector.spans_of(id, 3).await;
    assert_eq!(add(&delayd, Some(CALLER), &once).await, id);
    let spans = collector.spans_of(id, 4).await;
    assert_eq!(text(&spans[3], "delayd.add.result"), "duplicate");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_process_exports_the_last_spans() {
    let (collector, receiver) = (Collector::start().await, receiver().await);
    let kept = Kept::embedded();
    let mut delayd = kept.start(&[service("message.call", &receiver), collector.set()]).await;
    let id = add(&delayd, None, &task("0s")).await;
    delayd.wait_for_state("orders", id, "delivered").await;
    delayd.signal("TERM");
    assert!(delayd.ended().await.success());
    let spans = collector.spans().into_iter();
    assert_eq!(spans.filter(|s| text(s, "messaging.message.id") == id.to_string()).count(), 3);
}

/// The collector refuses connections, or accepts them and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_collector_delays_nothing() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ports = [1, silent.local_addr().unwrap().port()];
    for port in ports {
        let (kept, receiver) = (Kept::embedded(), receiver().await);
        let sets = [
            service("message.call", &receiver),
            format!("trace.endpoint=\"http://127.0.0.1:{port}\""),
            "trace.timeout=\"1s\"".into(),
        ];
        let mut delayd = kept.start(&sets).await;
        for _ in 0..3 {
            let id = add(&delayd, Some(CALLER), &task("0s")).await;
            delayd.wait_for_state("orders", id, "delivered").await;
            let dropped = async || {
                let text = delayd.get("/metrics").await.body.as_str().unwrap().to_owned();
                let name = "delayd_trace_spans_dropped_total{reason=\"export\"} ";
                let count = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                count != "0"
            };
            assert!(poll::until(dropped).await, "no span is dropped: {}", delayd.log());
        }
        let line = "The collector of trace.endpoint does not take spans";
        assert_eq!(delayd.log().matches(line).count(), 1, "{}", delayd.log());
        add(&delayd, Some(CALLER), &task("1h")).await;
        delayd.signal("TERM");
        assert!(delayd.ended().await.success());
    }
}

/// Without an exporter, too.
#[tokio::test(flavor = "multi_thread")]
async fn log_lines_have_the_trace_id() {
    let (kept, receiver) = (Kept::embedded(), receiver().await);
    let sets = [
        service("message.call", &receiver),
        "trace.continue_below=\"1m\"".into(),
        "log.level=\"debug\"".into(),
        "log.format=\"json\"".into(),
    ];
    let delayd = kept.start(&sets).await;
    let id = add(&delayd, Some(CALLER), &task("0s")).await;
    delayd.wait_for_log("Delivered task").await;
    assert_eq!(received(&receiver, id), [CALLER; 2]);
    let log = delayd.log();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    for start in ["POST /delay/task/add answered 200", "Attempt 1 of task", "Delivered task"] {
        let line = lines.iter().find(|line| {
            line["message"].as_str().is_some_and(|message| message.starts_with(start))
        });
        assert_eq!(line.unwrap()["trace_id"], "0af7651916cd43dd8448eb211c80319c", "{start}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tells_where_traces_go() {
    let check = async |sets: &[String]| {
        let mut check = command(sets);
        check.args(["check", "--offline"]);
        run(check).await
    };
    let secret = format!("trace.headers=[\"authorization: Bearer {SECRET}\"]");
    let (code, output, _) =
        check(&["trace.endpoint=\"http://127.0.0.1:4318\"".into(), secret.clone()]).await;
    assert_eq!(code, 0);
    assert!(output.contains("exported to http://127.0.0.1:4318") && !output.contains(SECRET));
    let (code, _, error) = check(&["trace.endpoint=\"collector:4318\"".into(), secret]).await;
    assert!(code == 78 && error.contains("trace.endpoint"), "{code} {error}");
    assert!(!error.contains(SECRET));
}
