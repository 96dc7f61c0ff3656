//! Spans as OTLP/HTTP, with the names of the semantic conventions for messaging and HTTP.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind as Kind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::export::Collector;
use super::{AttemptEnd, Called, EndedSpan, ExporterError, Params, SpanKind};
use crate::dns::Dns;
use crate::metrics::AddResult;
use crate::model::trace::TraceContext;

/// The path below the collector's base address.
const PATH: &str = "/v1/traces";
/// The longest time for making a connection, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A collector that speaks OTLP/HTTP.
#[derive(Debug)]
pub(super) struct Otlp {
    exporter: SpanExporter,
    scope: InstrumentationScope,
}

impl Otlp {
    pub(super) fn new(params: &Params, endpoint: &str) -> Result<Self, ExporterError> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .dns_resolver(Arc::new(CollectorNames(Dns::new(1))))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(params.timeout)
            .build()
            .map_err(|error| ExporterError(error.to_string()))?;
        let headers: HashMap<String, String> = params.headers.iter().cloned().collect();
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}{PATH}", endpoint.trim_end_matches('/')))
            .with_timeout(params.timeout)
            .with_headers(headers)
            .build()
            .map_err(|error| ExporterError(error.to_string()))?;
        let version = crate::model::version::VERSION;
        let resource = Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.name", "delayd"),
                KeyValue::new("service.version", version),
                KeyValue::new("service.instance.id", params.instance.clone()),
            ])
            // OTEL_RESOURCE_ATTRIBUTES replaces these, and adds to them.
            .with_detector(Box::new(EnvResourceDetector::new()))
            .build();
        exporter.set_resource(&resource);
        let scope = InstrumentationScope::builder("delayd").with_version(version).build();
        Ok(Self { exporter, scope })
    }

    fn data(&self, span: EndedSpan) -> SpanData {
        let EndedSpan { context, parent, has_remote_parent, link, began, took, topic, task, kind } =
            span;
        let operation = match &kind {
            SpanKind::Add(_) => "add",
            SpanKind::Attempt { .. } => "callback",
        };
        let mut attributes = vec![
            KeyValue::new("messaging.system", "delayd"),
            KeyValue::new("messaging.operation.name", operation),
            KeyValue::new("messaging.destination.name", topic.as_str().to_owned()),
        ];
        attributes.extend(task.map(|id| KeyValue::new("messaging.message.id", id.to_string())));
        let (span_kind, status) = match kind {
            SpanKind::Add(added) => (Kind::Producer, add(added, &mut attributes)),
            SpanKind::Attempt { destination, number, called, ended } => {
                attributes.push(KeyValue::new("peer.service", destination.as_str().to_owned()));
                let url = called.url().and_then(|url| shown(url, destination.is_host()));
                attributes.extend(url.map(|url| KeyValue::new("url.full", url)));
                (Kind::Client, attempt(number, &called, ended, &mut attributes))
            }
        };
        let mut links = SpanLinks::default();
        links.links.extend(link.map(|link| Link::with_context(span_context(link, true))));
        SpanData {
            span_context: span_context(context, false),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: has_remote_parent,
            span_kind,
            name: format!("{operation} {topic}").into(),
            start_time: began,
            end_time: began + took,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// Looks up the collector's name.
struct CollectorNames(Dns);

impl Resolve for CollectorNames {
    fn resolve(&self, name: Name) -> Resolving {
        let dns = self.0.clone();
        Box::pin(async move {
            // The client sets the port.
            let found: Addrs = Box::new(dns.look_up(name.as_str(), 0).await?.into_iter());
            Ok(found)
        })
    }
}

impl Collector for Otlp {
    async fn send(&self, spans: Vec<EndedSpan>) -> Result<(), String> {
        let spans = spans.into_iter().map(|span| self.data(span)).collect();
        self.exporter.export(spans).await.map_err(|error| error.to_string())
    }
}

fn span_context(context: TraceContext, is_remote: bool) -> SpanContext {
    let flags = if context.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    SpanContext::new(
        TraceId::from(context.trace),
        SpanId::from(context.span),
        flags,
        is_remote,
        TraceState::NONE,
    )
}

/// Adds what is known of an add, and returns its status.
fn add(added: Result<AddResult, u16>, attributes: &mut Vec<KeyValue>) -> Status {
    attributes.push(KeyValue::new("messaging.operation.type", "create"));
    match added {
        Ok(result) => {
            let result = match result {
                AddResult::New => "new",
                AddResult::Replaced => "replaced",
                AddResult::Duplicate => "duplicate",
            };
            attributes.push(KeyValue::new("delayd.add.result", result));
            Status::Unset
        }
        Err(code) => {
            attributes.push(KeyValue::new("error.type", code.to_string()));
            Status::error("")
        }
    }
}

/// Adds what is known of an attempt, and returns its status.
fn attempt(
    number: u32,
    called: &Called,
    ended: AttemptEnd,
    attributes: &mut Vec<KeyValue>,
) -> Status {
    let mut has = |name: &'static str, value: Value| attributes.push(KeyValue::new(name, value));
    has("messaging.operation.type", "send".into());
    has("http.request.method", "POST".into());
    if number > 1 {
        has("http.request.resend_count", i64::from(number - 1).into());
    }
    if let Some((server, port)) = called.url().and_then(address) {
        has("server.address", server.to_owned().into());
        has("server.port", i64::from(port).into());
    }
    if let Some(status) = called.status() {
        has("http.response.status_code", i64::from(status).into());
    }
    match ended {
        AttemptEnd::Succeeded => Status::Unset,
        AttemptEnd::Failed(outcome) => {
            let status = || called.status().map(|status| Cow::Owned(status.to_string()));
            let error = called.trouble().map(Cow::Borrowed).or_else(status);
            has("error.type", error.unwrap_or(Cow::Borrowed("_OTHER")).into_owned().into());
            Status::error(outcome)
        }
    }
}

/// The host and the port of a URL.
fn address(url: &Uri) -> Option<(&str, u16)> {
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    let usual = if url.scheme_str() == Some("https") { 443 } else { 80 };
    Some((host, url.port_u16().unwrap_or(usual)))
}

/// The URL without user, password and query, and without the path if the task names the host: the
/// path of a webhook is often its secret.
fn shown(url: &Uri, is_of_task: bool) -> Option<String> {
    let (scheme, host) = (url.scheme_str()?, url.host()?);
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let path = if is_of_task { "" } else { url.path() };
    Some(format!("{scheme}://{host}{port}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        let check = |url: &'static str, expected: &str| {
            assert_eq!(shown(&Uri::from_static(url), false).as_deref(), Some(expected));
        };
        check("http://a:8080/x/y?token=secret", "http://a:8080/x/y");
        check("https://me:secret@a/x", "https://a/x");
        check("http://[::1]:80/?secret", "http://[::1]:80/");
        let of_task = shown(&Uri::from_static("https://a:8443/hooks/secret"), true);
        assert_eq!(of_task.as_deref(), Some("https://a:8443"));
        let check = |url: &'static str, host: &str, port: u16| {
            assert_eq!(address(&Uri::from_static(url)), Some((host, port)));
        };
        check("http://a/x", "a", 80);
        check("https://a/x", "a", 443);
        check("http://[::1]:8080/x", "::1", 8080);
    }
}
