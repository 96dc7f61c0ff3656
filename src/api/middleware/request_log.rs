//! Logs each request at level `debug`. Bodies, queries and headers are never logged, because they
//! may hold secrets. Only the trace's id is taken from the header `traceparent`.

use axum::extract::Request;
use tokio::time::Instant;
use tower::service_fn;

use crate::api::middleware::service::Answers;
use crate::api::wire::request_id;
use crate::model::trace::TraceContext;

/// Logs each request after it has been answered.
pub(crate) fn log<S: Answers<Request>>(inner: S) -> impl Answers<Request> {
    service_fn(move |request: Request| async move {
        let mut inner = inner;
        let is_logged = tracing::enabled!(tracing::Level::DEBUG);
        let request_line = is_logged.then(|| {
            let trace = TraceContext::of_headers(request.headers());
            let path = request.uri().path().to_owned();
            // In a box, because requests are rarely logged.
            Box::new((Instant::now(), request.method().clone(), path, trace))
        });
        let Ok(response) = inner.call(request).await;
        if let Some(request_line) = request_line {
            let (started, method, path, trace) = *request_line;
            let (status, latency) = (response.status().as_u16(), started.elapsed());
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
        Ok(response)
    })
}
