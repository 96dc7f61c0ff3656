//! Logs each request at level `debug`. Bodies, queries and headers are never logged, because they
//! may hold secrets. Only the trace's id is taken from the header `traceparent`.

use axum::extract::Request;
use axum::response::Response;
use http::Method;
use tokio::time::Instant;

use crate::api::wire::request_id;
use crate::model::trace::TraceContext;

/// What a line of the log says of a request.
pub(crate) struct RequestLine {
    started: Instant,
    method: Method,
    path: String,
    trace: Option<TraceContext>,
}

impl RequestLine {
    /// The beginning of the line, if requests are logged. In a box, because they rarely are.
    pub(crate) fn of(request: &Request) -> Option<Box<Self>> {
        tracing::enabled!(tracing::Level::DEBUG).then(|| {
            Box::new(Self {
                started: Instant::now(),
                method: request.method().clone(),
                path: request.uri().path().to_owned(),
                trace: TraceContext::of_headers(request.headers()),
            })
        })
    }

    /// Logs the request with its answer.
    pub(crate) fn log(self, answer: &Response) {
        let Self { started, method, path, trace } = self;
        let (status, latency) = (answer.status().as_u16(), started.elapsed());
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let request_id = request_id::current();
        tracing::debug!(
            %method,
            path,
            status,
            latency_us,
            request_id,
            trace_id = trace.map(|trace| tracing::field::display(trace.trace_id())),
            "{method} {path} answered {status} in {latency:?}"
        );
    }
}
